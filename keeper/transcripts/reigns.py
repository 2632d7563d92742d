"""Reigns: joins what several inodes of one live file hold, in the order in which each was the live file.

It promises that the lines of a writer, who went through the inodes in that order, stand in the order in which they were
written (docs/decisions/0018), and that kept's own lines keep theirs. It refuses to join what a CLI up to 1.0.117 wrote:
each version of that is set aside whole (FIT-2).
"""

from __future__ import annotations

import os

from keeper.transcripts.held import Held
from keeper.transcripts.kept import Pair
from keeper.transcripts.merge import is_part, merge
from keeper.transcripts.records import read, split, uuid_of
from keeper.transcripts.verdict import Verdict, judge, without_rot

SAME_BIRTH_S = 3e-6
"""Births this close are one inode's, as its name and the volume tell them."""
NEVER_LIVE = 0.0
"""Instead of the birth of a kept file that a split wrote: what a second link has more than it was written later."""


def union(pair: Pair, data: bytes, held: list[Held], born: float, linked: bool = True) -> bytes:
    """`data` with what is held; what a CLI up to 1.0.117 wrote is set aside whole instead (FIT-2).

    `born` is when the file of `data` was made, and `linked` whether it may have been live itself. Each inode was the
    live file for one span, and the spans follow one another: merged in that order, the lines of a writer, who went
    through them in it, stand in the order in which they were written.
    """
    parts = []
    for one in held:
        if not one.data:
            continue
        if judge(data, one.data, pair.main).verdict is Verdict.UNMERGEABLE:
            pair.put_aside(os.path.basename(pair.kept), one.data)
        else:
            parts.append(one)
    lines = set(data.split(b"\n"))
    if all(lines.issuperset(one.data.split(b"\n")[:-1]) for one in parts):
        return data
    parts = _without_merged_damage(parts)
    whole = data
    if not linked or any(one.inode[0] != os.stat(pair.kept).st_dev for one in parts):
        # A copy was never live, and on another volume its birth is told by another clock.
        return _older_behind(data, parts, born)
    for one in parts:
        if one.at >= 0 and abs(one.born - born) < SAME_BIRTH_S and not _shares(data, one.data):
            whole = _put_at(whole, data, one.at, one.data)  # it came out when this very kept file took the live name
    ours = split(data).lines
    # Kept that was built again from its seal was never live: where one has all of it, that one stands for it.
    rebuilt = any(one.damaged for one in held)
    own = [] if rebuilt and any(is_part(ours, split(one.data).lines) for one in parts) else [(born, whole)]
    spans = sorted([(one.born, one.data) for one in parts] + own, key=lambda span: span[0])
    ordered = _root_first(data, [span[1] for span in spans])
    joined = ordered.pop(0)
    while ordered:
        joined = merge(joined, ordered.pop(_next(joined, ordered))).data
    if is_part(ours, split(joined).lines):
        return joined
    # A file that was pruned or turned around by hand: kept's order is the one that stays.
    return _older_behind(whole, parts, born)


def read_over_rot(pair: Pair, held: list[Held], kept: bytes) -> list[Held]:
    """An inode in which a few bytes rotted is set aside, and read as it was before; which they are."""
    rotten = []
    for one in held:
        data = without_rot(one.data, kept) if one.damaged else one.data
        if data != one.data:
            pair.put_aside(os.path.basename(pair.kept), one.data)
            one.data, one.used = data, data.rfind(b"\n") + 1
            rotten.append(one)
    return rotten


def _without_merged_damage(parts: list[Held]) -> list[Held]:
    """The parts less a damaged inode of which another has every line: that one was merged from kept and it, and a
    second merge in another order would put a line without a uuid in two places."""
    sets = [set(one.data.split(b"\n")) for one in parts]
    sound = [lines for one, lines in zip(parts, sets, strict=True) if not one.damaged]
    return [
        one
        for one, lines in zip(parts, sets, strict=True)
        if not (one.damaged and any(more >= lines for more in sound))
    ]


def _older_behind(data: bytes, parts: list[Held], born: float) -> bytes:
    """Each joined to kept; what an older one has more goes behind the last record of it that kept knows."""
    for one in sorted(parts, key=lambda one: one.born):
        data = merge(data, one.data, late=one.born <= born).data
    return data


def _root_first(data: bytes, spans: list[bytes]) -> list[bytes]:
    """The spans in their order; but the first that has the conversation's first record goes in front of those that have
    nothing in common with it: a kept file that was written while live was gone was never live, and its birth says
    nothing."""
    root = next((line for line in data.split(b"\n") if uuid_of(line) is not None), None)
    first = next((place for place, span in enumerate(spans) if root in span.split(b"\n")), 0)
    apart = [span for span in spans[:first] if not _shares(spans[first], span)]
    joined = [span for span in spans[:first] if _shares(spans[first], span)]
    return [*joined, spans[first], *apart, *spans[first + 1 :]]


def _shares(some: bytes, other: bytes) -> bool:
    """Whether two files have a record in common."""
    lines = set(other.split(b"\n"))
    return any(line in lines and uuid_of(line) is not None for line in some.split(b"\n"))


def _put_at(data: bytes, kept: bytes, length: int, more: bytes) -> bytes:
    """`more`'s whole lines before the line that stands behind kept's first `length` bytes; `data` has kept's lines in
    their order, and others."""
    ours, lines, place = split(kept).lines, split(data).lines, kept.count(b"\n", 0, length)
    met = 0
    behind = len(lines)
    for at, line in enumerate(lines):
        if met < len(ours) and line == ours[met]:
            if met == place:
                behind = at
                break
            met += 1
    new = split(more).lines
    if lines[max(0, behind - len(new)) : behind] == new:
        return data  # lines without a uuid, which an earlier run put there
    return b"".join(line + b"\n" for line in [*lines[:behind], *new, *lines[behind:]])


def _next(joined: bytes, spans: list[bytes]) -> int:
    """Which span is merged next: the first, but not before the one that has the record on which it hangs: a kept file
    that was written while live was gone was never live, and its birth says nothing."""
    lines = set(joined.split(b"\n"))
    for place, span in enumerate(spans):
        records = [record for line in split(span).lines if (record := read(line)) is not None and record.uuid]
        if not records or records[0].parent is None or not lines.isdisjoint(split(span).lines):
            return place
        parent = b'"uuid":"%b"' % records[0].parent.encode("utf-8", "surrogatepass")
        if parent in joined or not any(parent in other for other in spans):
            return place
    return 0
