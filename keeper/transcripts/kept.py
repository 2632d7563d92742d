"""Kept: one live file's counterpart in the vault: the names of the two, kept's bytes, the answer about them.

It promises that kept is whole-old or whole-new at every instant, and that a name of ours goes only where its inode has
a lasting one. It refuses to judge.
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
from keeper.transcripts.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Pair:
    """One live file and where it is kept. `live_link` is the second link of mode split; `main` as in `judge`.

    `links` are the second links that stand there, but for those of another live file of this session (doubled); where
    there is such a one, `apart`, kept stays on an inode of its own. `back`: a killed run had let live step aside.
    `seal` is kept's seal, read to its end if `thorough`; `rebuilt`: kept was
    built again from it just now.
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
    rebuilt: bool = False


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
