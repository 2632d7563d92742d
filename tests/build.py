"""Builds small transcripts as Claude Code writes them, and puts them, or what the real CLI wrote, into a profile.

A record is its line's bytes without the newline, so that tests compare lines as they stand in a file.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

CWD = "/srv/demo/proj"
CLI = "2.1.328"
WRITTEN = "2026-01-01T00:00:00.000Z"
REAL = Path(__file__).resolve().parent.parent / "fixtures" / "claude"


def session_id(n: int) -> str:
    """The n-th session id."""
    return str(UUID(int=(n << 96) | 0x4000_8000_0000_0000_0000 | n))


def line(fields: dict[str, Any]) -> bytes:
    """One record's line; keys in the order given, as the CLI writes it (no blanks, text not escaped)."""
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def prompt(
    uuid: str, parent: str | None, text: str = "", session: str = "", cwd: str = CWD, version: str = CLI, **more: Any
) -> bytes:
    """A person's prompt."""
    said = {"role": "user", "content": text or f"prompt {uuid}"}
    return _chained("user", uuid, parent, {"message": said}, session, cwd, version, more)


def answer(
    uuid: str, parent: str | None, text: str = "", session: str = "", cwd: str = CWD, version: str = CLI, **more: Any
) -> bytes:
    """An answer of one text block."""
    said = {"role": "assistant", "content": [{"type": "text", "text": text or f"answer {uuid}"}]}
    return _chained("assistant", uuid, parent, {"message": said}, session, cwd, version, more)


def boundary(uuid: str, was: str | None, session: str = "", cwd: str = CWD, version: str = CLI) -> bytes:
    """A compact boundary: it hangs on nothing and names the record that it follows."""
    more = {"subtype": "compact_boundary", "logicalParentUuid": was, "content": "Conversation compacted"}
    return _chained("system", uuid, None, more, session, cwd, version, {})


def meta(type: str, **fields: Any) -> bytes:
    """A record without uuid (`last-prompt`, `mode`, `custom-title`, …), its fields as given."""
    return line({"type": type, **fields})


def _chained(
    type: str, uuid: str, parent: str | None, own: dict[str, Any], session: str, cwd: str, version: str,
    more: dict[str, Any],
) -> bytes:  # fmt: skip
    return line(
        {
            "parentUuid": parent,
            "isSidechain": False,
            "type": type,
            **own,
            "uuid": uuid,
            "timestamp": WRITTEN,
            "cwd": cwd,
            "sessionId": session or session_id(1),
            "version": version,
            **more,
        }
    )


def talk(
    names: str | Sequence[str], session: str = "", parent: str | None = None, cwd: str = CWD, version: str = CLI
) -> list[bytes]:
    """A chain of records with these uuids, prompt and answer in turn, the first one hung on `parent`.

    `talk("abcd")` is two turns: the prompts a and c, the answers b and d.
    """
    chain = []
    for place, uuid in enumerate(names):
        make = answer if place % 2 else prompt
        chain.append(make(uuid, parent, session=session, cwd=cwd, version=version))
        parent = uuid
    return chain


def dated(days: float, *records: bytes) -> list[bytes]:
    """These records as written so many days ago: when a chat was last used its own records tell."""
    then = datetime.fromtimestamp(time.time() - days * 86_400, UTC).isoformat(timespec="milliseconds")
    return [record.replace(WRITTEN.encode(), then.encode()) for record in records]


def jsonl(*records: bytes) -> bytes:
    """A file of these records, each with its newline."""
    return b"".join(record + b"\n" for record in records)


def folder(cwd: str) -> str:
    """The project folder of a plain path (ASCII, at most 200 characters)."""
    return re.sub(r"[^A-Za-z0-9]", "-", cwd)


def live_path(profile: Path, session: str, cwd: str = CWD) -> Path:
    """Where Claude has the transcript of that session."""
    return profile / "projects" / folder(cwd) / f"{session}.jsonl"


def write_live(profile: Path, cwd: str, session: str, data: bytes) -> Path:
    """A new live transcript, on an inode of its own, as Claude makes it: mode 0600, its folder made where missing.

    One that stands there is unlinked first, so that it is deleted and recreated, never rewritten in place.
    """
    path = live_path(profile, session, cwd)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    append(path, data)
    return path


def append(path: Path, data: bytes) -> None:
    """One batch as Claude writes it: open by path for appending (made where missing), one write, close."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        written = os.write(fd, data)
        assert written == len(data)
    finally:
        os.close(fd)


def real(version: str, scenario: str) -> dict[str, Any]:
    """What `scenario.json` tells of a scenario that the real CLI played."""
    told: dict[str, Any] = json.loads((REAL / version / scenario / "scenario.json").read_bytes())
    return told


def real_kept(version: str, scenario: str, session: str) -> bytes:
    """What a hard link held that was made before the live file was deleted or replaced."""
    return (REAL / version / scenario / "kept" / f"{session}.jsonl").read_bytes()


def real_live(version: str, scenario: str, session: str) -> bytes:
    """The live transcript as the CLI left it."""
    (path,) = (REAL / version / scenario / "projects").glob(f"*/{session}.jsonl")
    return path.read_bytes()


def copy_real(version: str, scenario: str, profile: Path) -> None:
    """Put all that the CLI left in that scenario (transcripts, companions, extras) into the profile."""
    for part in ("projects", "file-history", "tasks"):
        source = REAL / version / scenario / part
        if source.is_dir():
            shutil.copytree(source, profile / part, dirs_exist_ok=True)
