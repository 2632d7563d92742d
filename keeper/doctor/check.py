"""Check: one thing that a doctor looks at: how it stands, in what words, and the command that cures it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

OK, WARN, FAIL = STATES = ("ok", "warn", "fail")
"""As it should be; works, but not as well as it could, or will not for long; something is at risk or does not work."""
NAMED = 3
"""So many sessions are named in a line for a person; `--json` and the other commands have all."""


@dataclass(frozen=True, slots=True)
class Check:
    """`cure` is a line for a shell, "" where there is nothing to do. No word of a transcript stands in any of it."""

    name: str
    state: str
    detail: str
    cure: str = ""


def ok(name: str, detail: str, cure: str = "") -> Check:
    """As it should be."""
    return Check(name, OK, detail, cure)


def warn(name: str, detail: str, cure: str = "") -> Check:
    """It works, but not as well as it could, or not for long."""
    return Check(name, WARN, detail, cure)


def fail(name: str, detail: str, cure: str = "") -> Check:
    """Something is at risk, or does not work."""
    return Check(name, FAIL, detail, cure)


def worst_first(checks: Iterable[Check]) -> list[Check]:
    """Failures, then warnings, then the rest, each in the order in which they were found."""
    return sorted(checks, key=lambda check: -STATES.index(check.state))


def some(names: Sequence[str]) -> str:
    """The first of the names, and how many more there are."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def many(count: int, what: str) -> str:
    """`1 chat`, `2 chats`."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def span(seconds: float) -> str:
    """How long that is, in its largest unit."""
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= length:
            return many(int(seconds // length), unit)
    return many(max(0, int(seconds)), "second")


def at(unix_s: float) -> str:
    """A time for a person, in the zone of the place."""
    return datetime.fromtimestamp(unix_s).astimezone().strftime("%Y-%m-%d %H:%M")


def size(count: float) -> str:
    """So many bytes, in a unit that a person reads."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.0f} TiB"
