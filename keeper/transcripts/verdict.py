"""Verdict: what has become of a live file, told from its bytes and the kept ones alone.

One table (docs/verdicts.md), read from the top: the first row that fits. It promises that a file which has every
record of the other is never called by the name of a loss, and that a conversation which hangs on a lost parent is
always `partial`, so that it is folded before Claude reads half of it. It refuses to look at anything but bytes: that
two names are one inode, or that a name is missing, the caller knows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable
from dataclasses import dataclass
from enum import StrEnum
from operator import ne

from keeper.claude import NEW_ID_ON_RESUME, newest_version
from keeper.transcripts.merge import is_part
from keeper.transcripts.records import Record, read, split, uuid_of


class Verdict(StrEnum):
    """The rows of the table."""

    ABSENT = "absent"
    EMPTY = "empty"
    SAME = "same"
    WAITING = "waiting"
    AHEAD = "ahead"
    TRIMMED = "trimmed"
    PARTIAL = "partial"
    BEHIND = "behind"
    THINNED = "thinned"
    DIVERGED = "diverged"
    DOUBLED = "doubled"
    UNMERGEABLE = "unmergeable"
    TOMBSTONED = "tombstoned"
    DAMAGED = "damaged"


ALIKE_BYTES = 8
"""A line of the same uuid and length that differs from another in so few bytes is that one, damaged."""
_STEP = 64 << 10
TOMBSTONE_BYTES = 64 << 10
"""So near the end Claude looks for a record that it takes out (docs/claude-on-disk.md)."""
FOLDED_BY_KEEP = frozenset({Verdict.PARTIAL})
"""Keep folds these into one inode under both names."""
SPLIT_BY_KEEP = frozenset({Verdict.TRIMMED, Verdict.BEHIND, Verdict.THINNED, Verdict.DIVERGED})
"""Keep takes the union on an inode of its own and leaves the live file as it is."""
FOLDED_BY_RESTORE = frozenset({Verdict.EMPTY, Verdict.WAITING, Verdict.PARTIAL, Verdict.BEHIND})
"""Restore puts the union under the live name before a resume reads it."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict with its grounds.

    `gaps` are the parents that a main-chain record of live names and neither file holds (their history is lost to
    keeper too; loaders up to 2.1.85 drop all before such a gap: FIT-8). `lacks` counts the uuid'd records that kept
    has and live has not, `news` those that live has and kept has not. `branch` is the newest leaf of a branch that
    live lacks.
    """

    verdict: Verdict
    gaps: tuple[str, ...] = ()
    lacks: int = 0
    news: int = 0
    branch: str = ""


def judge(kept: bytes, live: bytes, main: bool = True) -> Judgement:
    """What has become of `live`, beside `kept`. Both are whole files as read.

    `main` is False for a subagent's transcript, whose every record is a sidechain of the conversation and the chain
    of its own file; in a main transcript sidechain records count for no chain.
    """
    if live == kept:
        return Judgement(Verdict.SAME)
    if not live:
        return Judgement(Verdict.EMPTY)
    if b"\n" not in live:
        return Judgement(Verdict.WAITING)
    if live.startswith(kept):
        return Judgement(Verdict.AHEAD)
    kept_lines, live_lines = split(kept).lines, split(live).lines
    if is_part(kept_lines, live_lines):
        return Judgement(Verdict.AHEAD)
    return _judge_lines(kept_lines, live_lines, main)


def _judge_lines(kept_lines: list[bytes], live_lines: list[bytes], main: bool) -> Judgement:
    known: dict[bytes, Record | None] = {}
    kept = _Chain.of(kept_lines, main, known)
    live = _Chain.of(live_lines, main, known)
    if kept.legacy or live.legacy:
        return Judgement(Verdict.UNMERGEABLE)
    lacks = [uuid for uuid in kept.order if uuid not in live.order]
    news = sum(1 for uuid in live.order if uuid not in kept.order)

    def as_(verdict: Verdict, gaps: tuple[str, ...] = ()) -> Judgement:
        ends = kept.leaves() & set(lacks) if verdict is Verdict.DIVERGED else ()
        branch = max(ends, key=lambda uuid: kept.places[uuid], default="")
        return Judgement(verdict, gaps, len(lacks), news, branch)

    if live.boundary is not None and _before_boundary(kept, live, kept_lines, live_lines):
        return as_(Verdict.TRIMMED)
    if not live.talk:
        return as_(Verdict.PARTIAL)
    hanging = live.hanging(kept)
    if hanging:
        return as_(Verdict.PARTIAL, tuple(parent for parent in hanging if parent not in kept.order))
    if lacks and news:
        return as_(Verdict.DIVERGED)
    newest = kept.talk[-1] if kept.talk else None
    if is_part(live_lines, kept_lines) and live_lines == kept_lines[: len(live_lines)]:
        return as_(Verdict.BEHIND)
    if newest is not None and newest not in live.order:
        return as_(Verdict.BEHIND)
    # Once kept has the union, live has no news: a branch that live lacks still ends in a leaf that live lacks.
    if kept.leaves() & set(lacks):
        return as_(Verdict.DIVERGED)
    return as_(Verdict.THINNED)


def judge_sealed(sealed: bytes, kept: bytes, main: bool = True) -> Judgement:
    """What has become of a kept file since it was sealed, both as read: `same` (it has every sealed line in its order,
    and perhaps more), `tombstoned` or `damaged`; `lacks` counts the lines that are gone.

    Claude takes an answer out in place when it asks for it anew: whole records within the last 64 KiB, on which
    nothing hangs that remains, and records follow. All else that is gone from a file in place is damage.
    """
    before, now = split(sealed).lines, split(kept).lines
    if is_part(before, now):
        return Judgement(Verdict.SAME)
    gone = Counter(before) - Counter(now)
    lacks = gone.total()
    remaining = _without(before, gone)
    if not gone or not is_part(remaining, now) or not _taken_out(before, gone, now, main):
        return Judgement(Verdict.DAMAGED, lacks=lacks)
    return Judgement(Verdict.TOMBSTONED, lacks=lacks)


def _without(lines: list[bytes], gone: Counter[bytes]) -> list[bytes]:
    """The lines less those, of equal ones the last: what Claude takes out is near the end."""
    left = Counter(gone)
    remaining = []
    for line in reversed(lines):
        if left[line]:
            left[line] -= 1
        else:
            remaining.append(line)
    return remaining[::-1]


def _taken_out(before: list[bytes], gone: Counter[bytes], now: list[bytes], main: bool) -> bool:
    first = next(place for place, line in enumerate(before) if gone[line])
    if sum(len(line) + 1 for line in before[first:]) > TOMBSTONE_BYTES or len(now) <= first:
        return False
    records = [read(line) for line in gone]
    uuids = {record.uuid for record in records if record is not None}
    if not all(r is not None and r.type == "assistant" and r.uuid and not (main and r.sidechain) for r in records):
        return False
    if any(not _own(line, gone, uuids) for line in Counter(now) - Counter(before)):
        return False
    if not any((r := read(line)) is not None and r.type in ("user", "assistant") for line in now):
        return False  # a stub
    return not any((r := read(line)) is not None and r.parent in uuids for line in now)


def has_own(sealed: bytes, kept: bytes) -> bool:
    """Whether a damaged kept file has a record that is its own, and not what damage made of a sealed one."""
    before, now = Counter(split(sealed).lines), Counter(split(kept).lines)
    gone = before - now
    return any(read(line) is not None and not _rotten(line, gone) for line in now - before)


def _own(line: bytes, gone: Iterable[bytes], uuids: Container[str | None]) -> bool:
    """Whether a new line is a record of its own, and no other version of one that is gone."""
    record = read(line)
    return record is not None and (record.uuid is None or record.uuid not in uuids) and not _rotten(line, gone)


def _rotten(line: bytes, gone: Iterable[bytes]) -> bool:
    """Whether a line is one that is gone, damaged: one byte of it, or a few where the uuid still is the same."""
    uuid = uuid_of(line)
    for other in gone:
        if len(other) == len(line):
            bytes_off = sum(map(ne, line, other))
            if bytes_off <= 1 or (bytes_off <= ALIKE_BYTES and uuid is not None and uuid == uuid_of(other)):
                return True
    return False


def without_rot(data: bytes, sealed: bytes) -> bytes:
    """What a damaged inode has, read as it was before, where all that differs from the sealed bytes at its beginning is
    a few bytes: of two versions of a record Claude reads the later, and rot is no version. Rot takes nothing away: one
    that is shorter was written by somebody, and metadata alone may have been written anew."""
    length, off = len(sealed), 0
    if not any(uuid_of(line) for line in split(sealed).lines):
        return data
    for at in range(0, length if len(data) >= length else 0, _STEP):
        ours, theirs = data[at : min(at + _STEP, length)], sealed[at : at + _STEP]
        off += sum(map(ne, ours, theirs)) if ours != theirs else 0
        if off > ALIKE_BYTES:
            return data
    if len(data) < length or not _rotten_lines_alone(data[:length], sealed):
        return data
    behind = data[length:].partition(b"\n")[0]
    return data if behind and read(behind) is None else sealed + data[length:]  # else somebody's line begins before


def _rotten_lines_alone(ours: bytes, sealed: bytes) -> bool:
    """Whether each line that is another one is a record of the same uuid, or cannot be read any more. Metadata that
    reads well may have been written anew, and one byte be all that is new."""
    at = 0
    for was in sealed.split(b"\n"):
        line = ours[at : at + len(was)]
        at += len(was) + 1
        if line != was and read(line) is not None and (uuid_of(was) is None or uuid_of(line) != uuid_of(was)):
            return False
    return True


def _before_boundary(kept: _Chain, live: _Chain, kept_lines: list[bytes], live_lines: list[bytes]) -> bool:
    """Whether all that live lacks of kept lies before live's own last compact boundary (Claude's own trimming).

    Where kept does not know the boundary yet, the boundary is newer than all of kept; then the conversation's first
    record must be gone too, since Claude's trimming takes from the beginning.
    """
    assert live.boundary is not None
    place = kept.places.get(live.boundary)
    if place is None:
        return next(iter(kept.order), None) not in live.order
    return is_part(kept_lines[place:], live_lines)


@dataclass(frozen=True, slots=True)
class _Chain:
    """What a file's records say of its conversation: uuids in order, who hangs on whom."""

    order: dict[str, str | None]
    parents: set[str]
    places: dict[str, int]
    talk: list[str]
    boundary: str | None
    legacy: bool

    @classmethod
    def of(cls, lines: list[bytes], main: bool, known: dict[bytes, Record | None]) -> _Chain:
        order: dict[str, str | None] = {}
        parents: set[str] = set()
        places: dict[str, int] = {}
        talk: list[str] = []
        boundary: str | None = None
        version: str | None = None
        for place, line in enumerate(lines):
            if line in known:
                record = known[line]
            else:
                record = known[line] = read(line)
            if record is None:
                continue
            version = record.version or version
            if record.uuid is None or (main and record.sidechain):
                continue
            order[record.uuid] = record.parent
            if record.parent is not None:
                parents.add(record.parent)
            places[record.uuid] = place
            if record.type in ("user", "assistant"):
                talk.append(record.uuid)
            elif record.subtype == "compact_boundary":
                boundary = record.uuid
        # A file says its version in most records; the last one is of the CLI that wrote last.
        told = newest_version([version])
        return cls(order, parents, places, talk, boundary, bool(told) and told <= NEW_ID_ON_RESUME)

    def leaves(self) -> set[str]:
        """The prompts and answers that no record of the chain hangs on."""
        return set(self.talk) - self.parents

    def hanging(self, kept: _Chain) -> list[str]:
        """The parents that this file lost: named by a record of its chain, not in it, in order, each once.

        A record that hangs on nothing in kept too was written so by Claude, and tells of no loss; unless it is this
        file's first and kept has records before it: then what Claude reads begins in the middle.
        """
        missing: dict[str, None] = {}
        begins_late = next(iter(self.order), None) != next(iter(kept.order), None)
        for place, (uuid, parent) in enumerate(self.order.items()):
            if parent is None or parent in self.order:
                continue
            if parent in kept.order or uuid not in kept.order or (not place and begins_late):
                missing[parent] = None
        return list(missing)
