"""Claude: all that is known of Claude Code's own files: names, footprint, versions.

Sources: the measured facts in docs/claude-on-disk.md. It promises that a project folder's name is computed and
never decoded (KEEP-15: the way back is lossy), and that nothing behind a symbolic link is taken for Claude's own,
but for a project folder that a person linked elsewhere (KEEP-9). It refuses to change anything: it only looks.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from keeper.errors import Refused

_SESSION = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")
_AGENT = re.compile(r"agent-[A-Za-z0-9_-]{1,128}\.(jsonl|meta\.json)")
_FOLDER_UNITS = 200
_BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"

NEW_ID_ON_RESUME = (1, 0, 117)
"""The last version whose every resume writes a new id with the history copied under new uuids (FIT-2)."""
FULL_LONG_NAMES = (2, 1, 45)
"""The last version seen that names the folder of a long path in full; the hashed name is seen from 2.1.50 (FIT-3)."""


def is_session(text: str) -> bool:
    """Whether the text is a session id: a uuid in its usual form, and nothing else."""
    return _SESSION.fullmatch(text) is not None


def check_session(text: str) -> str:
    """The session id, or Refused: it is about to become a part of a path (RESTORE-12)."""
    if not is_session(text):
        raise Refused(
            f"{text!r} is no session id", "give the uuid that names the transcript (`keeper list` shows them)"
        )
    return text


@lru_cache(maxsize=4096)
def folder_names(cwd: str) -> tuple[str, ...]:
    """The names of a project's folder, the newest rule first: cut and hashed over 200 units, and in full (FIT-3).

    Every UTF-16 unit outside A–Z a–z 0–9 becomes `-`; the hash is base36(abs(int32 of 31·h + unit)).
    """
    raw = cwd.encode("utf-16-le", "surrogatepass")
    units = [raw[i] | raw[i + 1] << 8 for i in range(0, len(raw), 2)]
    name = "".join(chr(u) if u < 128 and chr(u).isalnum() else "-" for u in units)
    if len(name) <= _FOLDER_UNITS:
        return (name,)
    hashed = 0
    for unit in units:
        hashed = (31 * hashed + unit) & 0xFFFFFFFF
    number = abs(hashed - (1 << 32) if hashed & 0x80000000 else hashed)
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = _BASE36[digit] + digits
    return (f"{name[:_FOLDER_UNITS]}-{digits or '0'}", name)


def version_of(text: str | None) -> tuple[int, ...]:
    """A version as numbers, () where there is none: `2.1.328` is (2, 1, 328)."""
    match = re.match(r"(\d+)\.(\d+)\.(\d+)", text or "")
    return tuple(int(part) for part in match.groups()) if match else ()


@dataclass(slots=True)
class Footprint:
    """All that one profile holds of one session. Paths as found; nothing in it is a symbolic link.

    `transcripts` are `projects/*/<session>.jsonl`; `beside` the other files of a project folder that belong to the
    session (`<session>.*`, and the older `agent-*.jsonl` whose records name it); `companions` its folders.
    """

    session: str
    transcripts: list[Path] = field(default_factory=list)
    companions: list[Path] = field(default_factory=list)
    beside: list[Path] = field(default_factory=list)
    extras: list[tuple[str, Path]] = field(default_factory=list)


def projects(profile: Path, failures: list[OSError] | None = None) -> list[os.DirEntry[str]]:
    """The project folders of a profile; one that is a symbolic link to a folder counts, once (KEEP-9).

    What cannot be told to be a folder (a link that loops, a target that is not ours) is none; that the profile cannot
    be listed is told in `failures`.
    """
    real: list[os.DirEntry[str]] = []
    linked: list[os.DirEntry[str]] = []
    for entry in _entries(str(profile / "projects"), [] if failures is None else failures):
        try:
            if entry.is_dir():
                (linked if entry.is_symlink() else real).append(entry)
        except OSError:
            continue
    if linked:
        seen = {(entry.stat().st_dev, entry.stat().st_ino) for entry in real}
        for entry in linked:
            place = (entry.stat().st_dev, entry.stat().st_ino)
            if place not in seen:
                seen.add(place)
                real.append(entry)
    return real


@dataclass(frozen=True, slots=True)
class Survey:
    """What one look over a profile found: the footprints by session, agent files still without an owner, and the
    folders of transcripts that could not be read."""

    footprints: dict[str, Footprint]
    agents: tuple[Path, ...]
    failures: tuple[OSError, ...] = ()


def survey(profile: Path, only: str | None = None) -> Survey:
    """All sessions of a profile (or `only` one), by one listing of each project folder; those too of which nothing but
    extras is left."""
    found: dict[str, Footprint] = {}
    agents: list[Path] = []
    failures: list[OSError] = []

    def of(session: str) -> Footprint:
        return found.setdefault(session, Footprint(session))

    for project in projects(profile, failures):
        for entry in _entries(project.path, failures):
            name = entry.name
            session = name[:36]
            if only is not None and session != only and not name.startswith("agent-"):
                continue
            if len(name) >= 36 and is_session(session):
                _file_into(of(session), name[36:], entry)
            elif _AGENT.fullmatch(name) and entry.is_file(follow_symlinks=False):
                agents.append(Path(entry.path))
    for kind, session, path in _keyed(profile, only):
        of(session).extras.append((kind, path))
    return Survey(found, tuple(agents), tuple(failures))


def _entries(folder: str, failures: list[OSError]) -> list[os.DirEntry[str]]:
    """What a folder holds; one that cannot be read is told in `failures`, and stops nothing."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        failures.append(error)
        return []


def _file_into(footprint: Footprint, ending: str, entry: os.DirEntry[str]) -> None:
    if not ending:
        if entry.is_dir(follow_symlinks=False):
            footprint.companions.append(Path(entry.path))
    elif not entry.is_file(follow_symlinks=False) or not ending.startswith("."):
        return
    elif ending == ".jsonl":
        footprint.transcripts.append(Path(entry.path))
    elif ".tmp" not in ending:
        footprint.beside.append(Path(entry.path))


def _keyed(profile: Path, only: str | None) -> Iterator[tuple[str, str, Path]]:
    """The session-keyed extras outside `projects/` (KEEP-21): kind, session, path."""
    for kind in ("file-history", "tasks"):
        if only is not None:
            path = profile / kind / only
            if path.is_dir() and not path.is_symlink():
                yield kind, only, path
            continue
        for entry in _entries(str(profile / kind), []):
            if is_session(entry.name) and entry.is_dir(follow_symlinks=False):
                yield kind, entry.name, Path(entry.path)
    for entry in _entries(str(profile / "todos"), []):
        session = entry.name[:36]
        if is_session(session) and only in (None, session) and entry.is_file(follow_symlinks=False):
            yield "todos", session, Path(entry.path)


def places(profile: Path, session: str) -> list[Path]:
    """Every `projects/*/<session>.jsonl` of the profile that is a regular file."""
    found = []
    for project in projects(profile):
        path = f"{project.path}/{session}.jsonl"
        if os.path.isfile(path) and not os.path.islink(path):
            found.append(Path(path))
    return found


def one_name_each(paths: Iterable[Path]) -> list[Path]:
    """One name for each file: two names of one inode are one live file."""
    found: dict[tuple[int, int], Path] = {}
    for path in paths:
        try:
            seen = path.stat()
        except FileNotFoundError:
            continue
        found.setdefault((seen.st_dev, seen.st_ino), path)
    return list(found.values())


def profile_of(transcript: Path) -> Path | None:
    """The profile that a transcript's path lies in (`<profile>/projects/<project>/<session>.jsonl`)."""
    parents = transcript.parents
    if len(parents) >= 3 and parents[1].name == "projects":
        return effective(parents[2])
    return None


@dataclass(frozen=True, slots=True)
class Running:
    """A Claude process of this user's: its profile, the directory it is in, and when it started, in unix seconds
    (0: that cannot be told)."""

    profile: Path
    cwd: str
    started: float


def running_profiles(proc: Path = Path("/proc")) -> list[Path]:
    """The profiles of the Claude processes that this user runs (KEEP-13), each once: what their environment names, or
    their home's own."""
    return list(dict.fromkeys(one.profile for one in running(proc)))


def running(proc: Path = Path("/proc")) -> list[Running]:
    """The Claude processes that this user runs."""
    found = []
    for entry in _entries(str(proc), []):
        if not entry.name.isdigit():
            continue
        try:
            if entry.stat().st_uid != os.geteuid():
                continue
            argv = (proc / entry.name / "cmdline").read_bytes().split(b"\0")
            if not is_claude(argv):
                continue
            environ = (proc / entry.name / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # gone, or not ours to read
        given = dict(item.partition(b"=")[::2] for item in environ)
        named = given.get(b"CLAUDE_CONFIG_DIR") or (given[b"HOME"] + b"/.claude" if given.get(b"HOME") else b"")
        if named:
            cwd = proc / entry.name / "cwd"
            found.append(
                Running(effective(cwd / os.fsdecode(named)), os.path.realpath(cwd), _started(proc, entry.name))
            )
    return found


def _started(proc: Path, pid: str) -> float:
    """The kernel counts it in ticks from the boot."""
    try:
        ticks = int((proc / pid / "stat").read_bytes().rpartition(b")")[2].split()[19])
        booted = int((proc / "stat").read_bytes().partition(b"btime ")[2].split()[0])
    except (OSError, IndexError, ValueError):
        return 0.0
    return booted + ticks / os.sysconf("SC_CLK_TCK")


def is_claude(argv: list[bytes]) -> bool:
    """`claude …`, or an interpreter that runs it (`node …/claude`, `node …/claude-code/cli.js`)."""
    return any(os.path.basename(word) in (b"claude", b"claude.exe") or b"/claude-code/" in word for word in argv[:2])


def resume_command(
    session: str, cwd: str | None, profile: Path, default_profile: Path, named_profile: Path | None
) -> str:  # fmt: skip
    """The line to type to resume the session: where from, and with which profile (RESTORE-10).

    `named_profile` is the one that the shell's environment names. The default profile is never named: Claude keeps its
    own settings elsewhere when it is.
    """
    words = []
    if cwd:
        words.append(f"cd {shlex.quote(cwd)} &&")
    if profile != default_profile:
        words.append(f"CLAUDE_CONFIG_DIR={shlex.quote(str(profile))}")
    elif named_profile not in (None, default_profile):
        words.append("env -u CLAUDE_CONFIG_DIR")
    return " ".join([*words, "claude --resume", session])


def effective(profile: Path | str) -> Path:
    """A profile by its one name: a link to it, or a path with dots, is the same profile (KEEP-13)."""
    return Path(os.path.realpath(profile))


def newest_version(versions: Iterable[str | None]) -> tuple[int, ...]:
    """The highest of the versions, () where none is told."""
    return max((version_of(text) for text in versions), default=())
