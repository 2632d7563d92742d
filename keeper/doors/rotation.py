"""Rotation: `/clear` gives a process a new session; the new one is told where it came from once it has a file.

The SessionEnd of a clear and the SessionStart of the same process make a rotation, and nothing else does: a start
that tells a throw-away id is none (FIT-4). It promises that nothing is kept of an id which never gets a file: until
then there is a note in the state folder alone, and old notes go. It refuses to overrule what is told already.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from keeper import claude, disk, files, settings
from keeper.doors.hook import IN_FRONT_S, ROTATIONS
from keeper.transcripts.lineage import tell_cleared
from keeper.transcripts.vault import Vault

OLD_S = 30 * 86400
"""A session that had no file for so long will get none."""
GENERATIONS = 8
"""A hook's shells and wrappers stand between it and its Claude."""


def ended(state: str, environ: Mapping[str, str], session: str, profile: str) -> None:
    """A process has cleared this session: noted, for the start that follows."""
    process = process_of(os.getppid(), environ)
    if process:
        _drop_old(f"{state}/{ROTATIONS}")
        _write(f"{state}/{ROTATIONS}/{process}", {"session": session, "profile": profile})


def started(state: str, environ: Mapping[str, str], session: str, profile: str) -> None:
    """A process has started this session after a clear: it came from the one that the same process cleared before."""
    note = f"{state}/{ROTATIONS}/{process_of(os.getppid(), environ) or '-'}"
    before = _read(note)
    if before.get("profile") == profile and before.get("session") not in (None, session):
        _write(f"{state}/{ROTATIONS}/{session}", before)
    disk.unlink(note)


def settle(state: str, session: str, chat: str, environ: Mapping[str, str]) -> None:
    """The session is kept in this chat: what was noted of it is told there, and the note goes."""
    note = f"{state}/{ROTATIONS}/{session}"
    before = _read(note).get("session")
    if before:
        with Vault.open(replace(settings.load(environ), lock_wait_s=IN_FRONT_S), make=False) as vault:
            tell_cleared(vault, chat, session, before)
    disk.unlink(note)


def process_of(pid: int, environ: Mapping[str, str], proc: Path = Path("/proc")) -> str:
    """The Claude process that this one descends from, by pid and start time; "" where there is none."""
    for _ in range(GENERATIONS):
        stat = _stat(proc, pid)
        if not stat:
            break
        argv = files.read(proc / str(pid) / "cmdline").split(b"\0")
        if claude.is_claude(argv):
            return f"{pid}-{stat[19]}"
        pid = int(stat[1])
    told = environ.get("CLAUDE_PID", "")
    stat = _stat(proc, int(told)) if told.isdecimal() else []
    return f"{told}-{stat[19]}" if stat else ""


def _stat(proc: Path, pid: int) -> list[str]:
    """The fields of a process behind its name; none where it is gone."""
    try:
        return files.read(proc / str(pid) / "stat").decode("ascii", "replace").rpartition(") ")[2].split()
    except OSError:
        return []


def _write(note: str, told: dict[str, str]) -> None:
    disk.ensure_dir(os.path.dirname(note))
    disk.write_file(note, json.dumps(told).encode(), sync=False)


def _read(note: str) -> dict[str, str]:
    try:
        told = json.loads(files.read(note))
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) and claude.is_session(str(told.get("session"))) else {}


def _drop_old(folder: str) -> None:
    try:
        with os.scandir(folder) as entries:
            old = [entry.path for entry in entries if entry.stat().st_mtime < time.time() - OLD_S]
    except OSError:
        return
    for path in old:
        disk.unlink(path)
