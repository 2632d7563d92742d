"""Trouble: what is wrong with the watch, since when, and when a cure is tried again.

It promises that one that comes and goes is told as one, and not a log full.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, replace

SHOWN_S = 15.0
"""So long a trouble that is cured is still told: one that comes and goes is one, and not a log full."""


Found = dict[tuple[str, str], str]
"""What is wrong now: (what, where) → why."""

REFUSALS = {errno.ENOSPC: "watch limit", errno.EACCES: "unreadable"}


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why the watch cannot be relied on, where, since and until when (on its clock; `until` None while it lasts)."""

    what: str
    why: str
    since: float
    until: float | None = None
    where: str = ""


@dataclass(slots=True)
class Pause:
    """Between two tries of a cure: twice as long each time, up to a cap; forgotten after a quiet minute."""

    cap_s: float
    wait_s: float = 0.0
    until: float = 0.0

    def due(self, now: float) -> bool:
        return now >= self.until

    def again(self, now: float) -> None:
        self.wait_s = min(self.cap_s, self.wait_s * 2 or 1.0) if now - self.until < 60 else 1.0
        self.until = now + self.wait_s


def carried(before: dict[tuple[str, str], Trouble], found: Found, now: float) -> dict[tuple[str, str], Trouble]:
    """The troubles as they are told from now on: what lasts keeps its beginning, what is cured is told for a while."""
    after = {}
    for key, old in before.items():
        until = old.until if old.until is not None else now
        if key not in found and now - until < SHOWN_S:
            after[key] = replace(old, until=until)
    for key, why in found.items():
        after[key] = Trouble(key[0], why, before[key].since if key in before else now, where=key[1])
    return after


def refusal(code: int, count: int, path: str) -> str:
    """What it means that the kernel refused to watch so many folders."""
    many = f"{count} folder{'s' if count > 1 else ''} at or below {path}"
    if code == errno.ENOSPC:
        return (
            f"{many} cannot be watched: the kernel's limit of watches is reached; they are polled until "
            "fs.inotify.max_user_watches is raised (sysctl)"
        )
    if code == errno.EACCES:
        return f"{many} cannot be read: make them readable for you"
    return f"{many} cannot be watched: {os.strerror(code)}"
