"""Retention: after how many days Claude's clean-up deletes what nobody changed, who says so, and when it comes next.

From the facts in docs/claude-on-disk.md: a sweep takes its `cleanupPeriodDays` from the settings of the directory that
its Claude was started in, and sweeps every project of the profile by it. So the smallest of all counts (POLICY-6). It
promises to name its file. It refuses to change anything, and to trust a value that stops the sweep of some versions
only.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

DEFAULT_DAYS = 30.0
KEY = "cleanupPeriodDays"
MANAGED = (Path("/etc/claude-code"), Path("/Library/Application Support/ClaudeCode"))
"""Where an administrator's settings stand; they win over all others."""
DAY_S = 86_400.0
EARLY_S = 5.0
"""A sweep begins so long after a start of Claude if the profile's last one is over a day old; up to 2.1.40 at once."""
LATE_S = 604.0
"""And so long after its start where the last one was today."""
LARGE_DAYS = 36_500
"""What a person is advised to set instead of a small number, or of 0."""
SWEEPS_AT_ONCE = (2, 1, 44)
"""Up to 2.1.40 the sweep was seen to run the moment a CLI starts, from 2.1.45 on it was not (FIT-7)."""
WIPES_AT_ZERO = (2, 1, 85)
"""Up to this version a period of 0 takes every transcript of every project, and none is written (FIT-9)."""
LARGEST = 1 << 22


@dataclass(frozen=True, slots=True)
class Retention:
    """The smallest of the periods that a sweep may go by. `file` is whose word that is, "" for Claude's own default;
    `odd` are the files whose value is none (0, a fraction, no JSON): versions differ in what they make of it, and here
    it counts for nothing."""

    days: float = DEFAULT_DAYS
    file: str = ""
    odd: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """A settings file that has a word on the period: `scope` is managed, user, project or local, `cwd` the directory
    of the last two. `days` is None where its value is no number of days: `zero`, `odd`, or `unreadable` (no JSON)."""

    file: str
    scope: str
    days: float | None
    why: str = ""
    cwd: str = ""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What the next sweep can take. `earliest` is unix seconds before which none can begin, `chats` are the sessions
    that are old enough by then, the oldest first, `due` when each live session is, in unix seconds."""

    earliest: float
    chats: tuple[str, ...]
    due: dict[str, float]


def retention(profile: Path, cwds: Iterable[str], managed: Iterable[Path] = MANAGED) -> Retention:
    """The smallest period by which a Claude in one of these directories, or in any other, would sweep the profile."""
    odd: list[str] = []
    above = _first(_managed(managed), odd)
    if above is not None:
        return Retention(*above, tuple(odd))
    own = _first([profile / "settings.json"], odd) or (DEFAULT_DAYS, "")
    found = [own]
    for cwd in dict.fromkeys(cwds):
        if os.path.isabs(cwd):
            found.append(_first(_of_project(cwd), odd) or own)
    days, file = min(found, key=lambda one: one[0])
    return Retention(days, file, tuple(dict.fromkeys(odd)))


def administered(keys: Iterable[str], managed: Iterable[Path] = MANAGED) -> str:
    """The administrator's word by which one of these is true, with its file; "" where there is none."""
    for file in _managed(managed):
        table = _read(file) or {}
        for key in keys:
            if table.get(key) is True:
                return f"`{key}` in {file}"
    return ""


def forecast(
    live: Mapping[str, float], days: float, last_sweep: float | None, started: Iterable[float], now: float
) -> Forecast:
    """When the next sweep can begin, and what it takes. `live` is when each live transcript was last changed,
    `last_sweep` the time of the profile's `.last-cleanup`, `started` when the Claudes that run were; unix seconds."""
    soon = now + (EARLY_S if last_sweep is None else max(EARLY_S, min(LATE_S, last_sweep + DAY_S - now)))
    earliest = min([soon, *(max(now, then + LATE_S) for then in started)])
    due = {session: changed + days * DAY_S for session, changed in live.items()}
    chats = sorted((session for session, when in due.items() if when < earliest), key=lambda session: due[session])
    return Forecast(earliest, tuple(chats), due)


def last_sweep(profile: Path) -> float | None:
    """When Claude last swept the profile, in unix seconds; None where it never did."""
    try:
        return os.stat(profile / ".last-cleanup").st_mtime
    except OSError:
        return None


def sources(profile: Path, cwds: Iterable[str], managed: Iterable[Path] = MANAGED) -> tuple[Source, ...]:
    """Every settings file that has a word on the period of this profile's sweeps, the strongest first."""
    named = [(file, "managed", "") for file in _managed(managed)] + [(profile / "settings.json", "user", "")]
    for cwd in dict.fromkeys(cwds):
        if os.path.isabs(cwd):
            named += [(file, scope, cwd) for file, scope in zip(_of_project(cwd), ("local", "project"), strict=True)]
    found: dict[str, Source] = {}
    for file, scope, cwd in named:
        one = _word(file, scope, cwd)
        if one is not None:
            found.setdefault(one.file, one)  # a home's own project settings are the user's
    return tuple(found.values())


def _of_project(cwd: str) -> list[Path]:
    """A project's settings files, the strongest first."""
    return [Path(cwd, ".claude", name) for name in ("settings.local.json", "settings.json")]


def _first(files: Iterable[Path], odd: list[str]) -> tuple[float, str] | None:
    """The value of the first of these files that has one."""
    for file in files:
        one = _word(file)
        if one is not None and one.days is not None:
            return one.days, one.file
        if one is not None:
            odd.append(one.file)
    return None


def _word(file: Path, scope: str = "", cwd: str = "") -> Source | None:
    """What a file says of the period; None where it says nothing of it."""
    table = _read(file)
    if table is None:
        return Source(str(file), scope, None, "unreadable", cwd)
    if KEY not in table:
        return None
    value = table[KEY]
    whole = isinstance(value, int | float) and not isinstance(value, bool) and value % 1 == 0  # 2.0 is 2 to Claude
    if whole and isinstance(value, int | float) and value > 0:
        return Source(str(file), scope, float(value), "", cwd)
    zero = value == 0 and not isinstance(value, bool)
    return Source(str(file), scope, None, "zero" if zero else "odd", cwd)


def _managed(folders: Iterable[Path]) -> Iterator[Path]:
    """An administrator's files, the strongest first: of the parts the last in the alphabet wins, over the whole."""
    for folder in folders:
        parts = folder / "managed-settings.d"
        try:
            names = sorted((name for name in os.listdir(parts) if name.endswith(".json")), reverse=True)
        except OSError:
            names = []
        yield from (parts / name for name in names)
        yield folder / "managed-settings.json"


def _read(file: Path) -> Mapping[str, object] | None:
    """What a settings file says; {} where there is none, None where it is no JSON object. A link is followed, as
    people keep their settings elsewhere; a FIFO would wait for ever and is none."""
    try:
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return {}
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return {}
        table = json.loads(os.read(fd, LARGEST))
    except (OSError, ValueError, RecursionError):
        return None
    finally:
        os.close(fd)
    return table if isinstance(table, dict) else None
