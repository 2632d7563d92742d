"""A chat with all that Claude Code may have of it in a profile, what a sweep takes, and what a folder holds."""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from tests.build import CWD, answer, jsonl, prompt, talk, write_live

DAY_S = 86_400
SWEPT = ("projects", "file-history", "tasks", "todos")


def write_whole(profile: Path, session: str, data: bytes | None = None, cwd: str = CWD) -> Path:
    """A transcript with its companion (two levels, a subagent), its extras and its siblings; answers the transcript.

    Everything is 40 days old, as before a sweep.
    """
    live = write_live(profile, cwd, session, jsonl(*talk("abcd", session, cwd=cwd)) if data is None else data)
    project = live.parent
    agent = jsonl(
        prompt("s1", None, session=session, isSidechain=True, agentId="a1"),
        answer("s2", "s1", session=session, isSidechain=True, agentId="a1"),
    )
    put(project / session / "tool-results" / "toolu_1.txt", b"a long output\n" * 50)
    put(project / session / "subagents" / "agent-a1.jsonl", agent)
    put(project / session / "subagents" / "agent-a1.meta.json", b'{"agentType":"general"}')
    put(project / session / "later" / "versions" / "deep.bin", bytes(range(256)))
    put(project / f"agent-old-{session[:8]}.jsonl", agent)
    put(project / f"{session}.ccr-tip.json", b'{"tip":1}')
    put(profile / "file-history" / session / "de5f4b6f867ced73@v1", b"before the edit\n")
    put(profile / "file-history" / session / "de5f4b6f867ced73@v2", b"after the edit\n")
    put(profile / "tasks" / session / "1.json", b'{"subject":"look"}')
    put(profile / "todos" / f"{session}-agent-{session}.json", b"[]")
    age(profile)
    return live


def put(path: Path, data: bytes) -> Path:
    """A file as Claude makes it, its folders made where missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def age(root: Path, days: float = 40) -> None:
    """Every file and folder at and below `root` was last changed so many days ago."""
    then = time.time() - days * DAY_S
    for path in [*root.rglob("*"), root]:
        os.utime(path, (then, then), follow_symlinks=False)


def sweep(profile: Path) -> None:
    """Delete every live file and folder of the profile."""
    for name in SWEPT:
        shutil.rmtree(profile / name, ignore_errors=True)


def files(root: Path) -> dict[str, bytes]:
    """Path below `root` → bytes, of every regular file."""
    return {
        str(path.relative_to(root)): path.read_bytes() for path in _below(root) if stat.S_ISREG(path.lstat().st_mode)
    }


def everything(root: Path) -> dict[str, tuple[object, ...]]:
    """Path below `root` → kind and mode, inode, time of change, and bytes or target: equal ⇔ nothing was touched."""
    return {str(path.relative_to(root)): _seen(path) for path in [root, *_below(root)]}


def _below(root: Path) -> Iterator[Path]:
    return iter(sorted(root.rglob("*"))) if root.exists() else iter(())


def _seen(path: Path) -> tuple[object, ...]:
    seen = path.lstat()
    content: object = None
    if stat.S_ISREG(seen.st_mode):
        content = path.read_bytes()
    elif stat.S_ISLNK(seen.st_mode):
        content = os.readlink(path)
    return (seen.st_mode, seen.st_ino, seen.st_mtime_ns, content)


def kept_path(vault: Path, session: str, chat: str | None = None) -> Path:
    """Where the transcript is kept, in the chat of that name (the session's own, if none is said)."""
    return vault / "chats" / (chat or session) / f"{session}.jsonl"
