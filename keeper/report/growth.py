"""Growth: how much the vault held at which time, and how many chats went at once: pure, from what `facts` found.

It promises that what a link shares counts as shared until Claude's own file goes, and as the vault's own from then on.
It refuses to guess: of a copy, whose live file's end nobody saw, nothing is told to have gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from keeper.report.facts import Session

POINTS = 160
"""So many points a curve has at most."""
APART_S = 60.0
"""What goes within so long of the one before it went with it: a sweep takes its files one after the other."""


@dataclass(frozen=True, slots=True)
class Point:
    """Bytes of the kept transcripts at a time (unix seconds): shared with Claude's files, and the vault's own."""

    time: float
    shared: int
    own: int


@dataclass(frozen=True, slots=True)
class Loss:
    """So many chats of a profile went at about that time, taken by a sweep or by others."""

    time: float
    profile: str
    chats: int
    swept: bool


def growth(sessions: Iterable[Session], now: float) -> list[Point]:
    """The curve, from the first kept byte to now."""
    changes: list[tuple[float, int, int]] = []
    for one in sessions:
        was = 0
        for time, size in one.grew:
            shared = one.linked and (one.gone is None or time < one.gone)
            changes.append((time, size - was if shared else 0, 0 if shared else size - was))
            was = size
        if one.linked and one.gone is not None:
            moved = next((size for time, size in reversed(one.grew) if time < one.gone), 0)
            changes.append((one.gone, -moved, moved))
    if not changes:
        return []
    changes.sort(key=lambda change: change[0])
    first = changes[0][0]
    step = max(now - first, 1.0) / (POINTS - 1)
    curve, place, shared_bytes, own_bytes = [], 0, 0, 0
    for number in range(POINTS):
        time = now if number == POINTS - 1 else first + number * step
        while place < len(changes) and (changes[place][0] <= time or number == POINTS - 1):
            shared_bytes += changes[place][1]
            own_bytes += changes[place][2]
            place += 1
        curve.append(Point(time, shared_bytes, own_bytes))
    return curve


def losses(sessions: Sequence[Session]) -> list[Loss]:
    """What went at once, the oldest first."""
    found: list[Loss] = []
    last: dict[tuple[str, bool], tuple[int, float]] = {}
    gone = [(one.gone, one.row.profile, one.swept) for one in sessions if one.gone is not None]
    for time, profile, swept in sorted(gone):
        place, before = last.get((profile, swept), (-1, float("-inf")))
        if time - before > APART_S:
            place = len(found)
            found.append(Loss(time, profile, 0, swept))
        one = found[place]
        found[place] = Loss(one.time, profile, one.chats + 1, swept)
        last[profile, swept] = place, time
    return found
