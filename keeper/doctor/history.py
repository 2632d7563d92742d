"""History: what Claude's own lists outside the transcripts still tell: directories, and chats that are gone.

It promises to hand on session ids, directories and counts, and no prompt.
"""

from __future__ import annotations

import json
import os
from collections.abc import Container
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from keeper.claude import is_session
from keeper.doctor.facts import Lost

FILE = "history.jsonl"


@dataclass(frozen=True, slots=True)
class History:
    """`prompts` are how many each session has, `last` the time of the newest, in unix seconds; `cwds` all directories
    that were worked in."""

    prompts: dict[str, int]
    last: dict[str, float]
    cwds: tuple[str, ...]


def read(profile: Path) -> History:
    """What the profile's history tells. A line that does not read tells nothing."""
    prompts: dict[str, int] = {}
    last: dict[str, float] = {}
    cwds: dict[str, None] = {}
    with suppress(OSError):
        file = profile / FILE
        if file.is_file():  # a FIFO would wait for ever
            with open(file, "rb") as lines:
                for line in lines:
                    _take(line, prompts, last, cwds)
    return History(prompts, last, tuple(cwds))


def _take(line: bytes, prompts: dict[str, int], last: dict[str, float], cwds: dict[str, None]) -> None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return
    if not isinstance(entry, dict):
        return
    session, display, time_ms = (entry.get(key) for key in ("sessionId", "display", "timestamp"))
    if isinstance(entry.get("project"), str):
        cwds[entry["project"]] = None
    # A command (`/exit`) is no prompt: a session of nothing else never got a transcript.
    if isinstance(session, str) and is_session(session) and isinstance(display, str) and display[:1] not in ("", "/"):
        prompts[session] = prompts.get(session, 0) + 1
        if isinstance(time_ms, int | float) and not isinstance(time_ms, bool):
            last[session] = max(last.get(session, 0.0), time_ms / 1000)


def lost(profile: Path, told: History, there: Container[str]) -> tuple[Lost, ...]:
    """The sessions that are told of and of which there is no file: `there` are all that are live, kept, or gone
    from the vault by somebody's word."""
    found = [
        Lost(session, str(profile), count, told.last.get(session, 0.0))
        for session, count in told.prompts.items()
        if session not in there
    ]
    return tuple(sorted(found, key=lambda one: -one.last))


def projects(file: Path) -> tuple[str, ...]:
    """The directories that Claude's own settings file (`.claude.json`) knows."""
    with suppress(OSError, ValueError, RecursionError):
        if file.is_file():
            table = json.loads(file.read_bytes())
            known = table.get("projects") if isinstance(table, dict) else None
            return tuple(cwd for cwd in known if os.path.isabs(cwd)) if isinstance(known, dict) else ()
    return ()
