"""Kept: one live file's counterpart in the vault: the names of the two, kept's bytes, the answer about them.

It promises that kept is whole-old or whole-new at every instant, and that what several inodes hold is joined in the
order in which they were made. It refuses to join what a CLI up to 1.0.117 wrote: each version of that is set aside.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from keeper import disk, files
from keeper.errors import KeeperError
from keeper.files import regular
from keeper.transcripts.held import Held, Site, drop, make_folder, token
from keeper.transcripts.merge import is_part, merge
from keeper.transcripts.records import split, uuid_of
from keeper.transcripts.verdict import Verdict, judge

SAME_BIRTH_S = 3e-6
"""Births this close are one inode's, as its name and the volume tell them."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One live file and where it is kept. `live_link` is the second link of mode split; `main` as in `judge`.

    `links` are the second links that stand there, but for those of another live file of this session (doubled); where
    there is such a one, `apart`, kept stays on an inode of its own. `back`: a killed run had let live step aside.
    `seal` is kept's seal, read to its end if `thorough`.
    """

    live: str
    kept: str
    swap: str
    label: str
    live_link: str
    put_aside: Callable[[str, bytes], object]
    main: bool = True
    apart: bool = False
    links: tuple[str, ...] = ()
    back: bool = False
    seal: str = ""
    thorough: bool = False


class Change(Enum):
    """What a kept file is to what was sealed of it: that and more at its end; all of that, and more anywhere; or
    another one, knowingly."""

    GREW = "grew"
    JOINED = "joined"
    REPLACED = "replaced"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was found and done. `added` counts the lines that kept gained, `waiting` inodes whose writer holds on.

    `inode` and `size` are the live inode that was looked at, and how many of its bytes are in kept (0: none), so that
    a later keep knows what it need not read. `tail`: kept only gained lines at its end. `damaged`: kept had been cut
    or rewritten in place and was built again from its seal, `lost` its lines that were gone. `branch`: the leaf of a
    branch that live lacks.
    """

    verdict: Verdict
    action: str = "none"
    mode: str = "link"
    added: int = 0
    variants: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
    lacks: int = 0
    waiting: int = 0
    foreign: bool = False
    inode: int = 0
    size: int = 0
    tail: bool = False
    damaged: bool = False
    lost: int = 0
    branch: str = ""

    @property
    def change(self) -> Change:
        """What kept is to what was sealed of it."""
        if self.verdict is Verdict.UNMERGEABLE:
            return Change.REPLACED
        whole = not self.damaged and (self.action in ("none", "linked") or self.tail)
        return Change.GREW if whole else Change.JOINED


def second_links(pair: Pair) -> list[str]:
    """The second links to live inodes that stand now: those that were listed, and the one that this run made."""
    return [path for path in dict.fromkeys([*pair.links, pair.live_link]) if regular(path) is not None]


def read_kept(pair: Pair) -> tuple[bytes, tuple[int, int], float]:
    """Kept's bytes, its inode, and when that was made. FileNotFoundError where nothing is kept."""
    fd = files.open_read(pair.kept)
    try:
        seen = os.fstat(fd)
        return files.read_at(fd, 0, pair.kept), (seen.st_dev, seen.st_ino), files.born(pair.kept, fd)
    finally:
        os.close(fd)


def write_kept(pair: Pair, data: bytes, like: int | None, time_ns: int | None) -> None:
    """Kept gets these bytes on a new inode of its own, whole-old or whole-new, durable."""
    make_folder(pair.swap)
    new = f"{pair.swap}/{token()}.tmp"
    try:
        disk.write_new(new, [data], like=like)
        if time_ns is not None:
            disk.touch(new, time_ns)
        disk.replace(new, pair.kept)
    except (OSError, KeeperError):
        disk.drop(new)
        raise
    disk.sync_dir(os.path.dirname(pair.kept))


def union(pair: Pair, data: bytes, held: list[Held], born: float) -> bytes:
    """`data` with what is held; what a CLI up to 1.0.117 wrote is set aside whole instead (FIT-2).

    `born` is when the file of `data` was made. Each inode was the live file for one span, and the spans follow one
    another: merged in that order, the lines of a writer, who went through them in it, stand in the order in which they
    were written.
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
    whole = data
    if any(one.inode[0] != os.stat(pair.kept).st_dev for one in parts):
        # On another volume kept was never live, and its birth is told by another clock.
        return _older_behind(data, parts, born)
    for one in parts:
        if one.at >= 0 and abs(one.born - born) < SAME_BIRTH_S and not _shares(data, one.data):
            whole = _put_at(whole, data, one.at, one.data)  # it came out when this very kept file took the live name
    spans = sorted([(one.born, one.data) for one in parts] + [(born, whole)], key=lambda span: span[0])
    ordered = _root_first(data, [span[1] for span in spans])
    joined = ordered[0]
    for more in ordered[1:]:
        joined = merge(joined, more).data
    if is_part(split(data).lines, split(joined).lines):
        return joined
    # A file that was pruned or turned around by hand: kept's order is the one that stays.
    return _older_behind(whole, parts, born)


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


def let_go(pair: Pair, site: Site, held: list[Held]) -> None:
    """After a failure: a name of ours goes where its inode has the live, the kept or a second link's name too; another
    hard link says nothing, since it may be anybody's. A name that cannot go stays for the next run."""
    lasting = [pair.live, pair.kept, *second_links(pair)]
    known = {(seen.st_dev, seen.st_ino) for path in lasting if (seen := regular(path)) is not None}
    for one in held:
        try:
            if one.inode in known and one.path not in lasting:
                drop(site, one)
        except (OSError, KeeperError):
            continue
        finally:
            one.close()


def count(data: bytes) -> int:
    """How many whole lines there are."""
    return data.count(b"\n")
