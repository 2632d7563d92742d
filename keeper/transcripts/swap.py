"""Swap: replaces a live file under a writing Claude, losing no line.

Claude opens by path, appends one batch, closes. So keeper never appends to a live file: it exchanges whole files and
then reads what still arrived on the old ones. It promises that every inode which was looked at has a name until its
lines are safe (`swap/` in the chat's folder; on another volume a dot name beside live), so that a kill at any point
leaves all of it to the next run, and that a late line stands before what its writer wrote later (SWAP-1). It refuses
a live file that is not ours to replace (SWAP-7).
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass

from keeper import disk, files
from keeper.errors import DiskError, KeeperError, NoExchange, Refused
from keeper.transcripts.held import (
    Held,
    Reign,
    Site,
    beside_name,
    held_name,
    hold,
    make_folder,
    note,
    quiet_now,
    unnote,
)
from keeper.transcripts.merge import merge
from keeper.transcripts.records import uuid_of

ROUNDS = 20
"""After so many rounds with late lines the rest waits in `swap/` for the next run."""
TOP_UPS = 8
"""So often M takes what came while it was written, before the exchange goes ahead all the same."""
LEASE_WAIT_S = 1.0
"""So long is a writer that holds an old inode waited for (SWAP-2)."""
COARSE = 5
"""CLOCK_REALTIME_COARSE, which Python does not name."""


def ours(fd: int) -> bool:
    """Whether the live file is ours to replace: its owner is this user (SWAP-7)."""
    return os.fstat(fd).st_uid == os.geteuid()


@dataclass(frozen=True, slots=True)
class Swapped:
    """How a swap ended: the inode that took the live name (0: none did), with how many rounds, and M's bytes."""

    placed: int
    rounds: int
    data: bytes


def swap(
    site: Site, base: bytes, held: list[Held], bring_back: bool, stamp_ns: int | None = None
) -> Swapped:  # fmt: skip
    """Put `base` (whole lines, a merge of all that is `held`) under the live and the kept name.

    `held` are the inodes whose writers may still write: the pinned live one first, the old kept one, leftovers; what
    comes out under the live name in addition is added to it. `bring_back`: a live name that is gone is made again
    (restore), else the lines go to kept alone (keep). Returns when a round found no late line, all synced.
    """
    try:
        return _Swap(site, base, held, bring_back, stamp_ns).run()
    except (OSError, KeeperError):
        for one in held:
            one.close()  # the names stay for the next run
        raise


class _Swap:
    """One swap under way. `data` is M, the merge of all that is known; `topped`, that M got lines after its sync."""

    def __init__(self, site: Site, base: bytes, held: list[Held], bring_back: bool, stamp_ns: int | None) -> None:
        self.site = site
        self.data = base
        self.held = held
        self.bring_back = bring_back
        self.topped = False
        self.uuids: set[str] = set()
        self.stamp_ns = stamp_ns
        self.born = 0.0
        self.newest = held[0] if held else None
        self.deadline = time.monotonic() + LEASE_WAIT_S
        if stamp_ns is None and held:
            # `--continue` takes the newest time: a keep makes none newer.
            self.stamp_ns = os.fstat(held[0].fd).st_mtime_ns

    def run(self) -> Swapped:
        site = self.site
        rounds = 0
        while True:
            rounds += 1
            placed = self._round()
            found = late(self.data, self.held, self.deadline, self.newest)
            if found == self.data:
                break
            # A writer that holds on past the deadline is the next run's, which puts its lines where they belong.
            if rounds >= ROUNDS or (rounds > 1 and time.monotonic() > self.deadline):
                for one in self.held:
                    one.owed = True
                break
            self.data = found
            if placed:
                self._hold_fresh()
        if self.topped:
            disk.sync_file(site.kept)
        disk.sync_dir(os.path.dirname(site.kept))
        if placed:
            try:
                disk.sync_dir(os.path.dirname(site.live))
            except FileNotFoundError:
                placed = 0  # the project's folder went meanwhile: kept has all
        return Swapped(placed, rounds, self.data)

    def _hold_fresh(self) -> None:
        """M may have been written to since: it is the next to come out, so it is held like the one before."""
        try:
            fresh = hold(self.site, self.site.kept if self.site.linked else self.site.live)
        except FileNotFoundError:
            return  # on another volume, and swept: the next round puts what is in hand into kept alone
        self.held.append(fresh)
        self.newest = fresh
        self.data = merge(self.data, fresh.data).data

    def _round(self) -> int:
        """M written, durable and with a name in the vault before anything else; then under both names."""
        site = self.site
        make_folder(site.swap)
        new = held_name(site)
        disk.write_new(new, [self.data], like=self.held[0].fd if self.held and site.linked else None)
        self._stamp(new)
        self.born = files.born_at(new)
        # Before the narrow part: what is compared in it is looked up, not searched for in a large file.
        self.uuids = {uuid for line in self.data.split(b"\n") if (uuid := uuid_of(line)) is not None}
        try:
            if site.linked:
                placed = self._place(new)
                disk.replace(new, site.kept)
                return placed
            disk.replace(new, site.kept)  # on another volume kept takes M first: what live loses then is there
            disk.sync_dir(os.path.dirname(site.kept))
            return self._place(site.kept)
        except DiskError:
            _clear(new)
            raise

    def _reign(self) -> Reign:
        """What names of inodes that come out are marked with; on another volume M is a copy yet to be made, whose birth
        the kernel's coarse clock will tell: births are taken from it."""
        return Reign(self.born if self.site.linked else time.clock_gettime(COARSE), len(self.data))

    def _stamp(self, *names: str) -> None:
        for name in names:
            if self.stamp_ns is not None:
                disk.touch(name, self.stamp_ns)

    def _place(self, new: str) -> int:
        """Exchange M with what stands under the live name; its inode, or 0 where the name is gone and stays so."""
        site = self.site
        while True:
            tmp = beside_name(site, self._reign())
            note(site, tmp)
            try:
                if site.linked:
                    disk.link(new, tmp)
                else:
                    disk.write_new(tmp, [self.data], like=self.held[0].fd if self.held else None)
                    self._stamp(tmp)
                mine = os.lstat(tmp).st_ino
            except DiskError:
                disk.unlink(tmp)
                unnote(site, tmp)
                raise
            except FileNotFoundError:
                unnote(site, tmp)  # the project's folder went too
                if not self.bring_back:
                    return 0
                disk.make_shared_dir(os.path.dirname(site.live))
                continue
            try:
                self._top_up([new] if site.linked else [new, tmp])
                self._exchange(tmp)
                return mine
            except FileExistsError:
                continue
            except FileNotFoundError:
                if not self.bring_back:
                    disk.unlink(tmp)
                    unnote(site, tmp)
                    return 0
            except DiskError:
                if os.path.lexists(tmp) and os.lstat(tmp).st_ino == mine:
                    disk.unlink(tmp)
                    unnote(site, tmp)
                raise
            try:
                disk.move(tmp, site.live)
                unnote(site, tmp)
                return mine
            except (FileExistsError, FileNotFoundError):
                disk.unlink(tmp)  # the name was taken, or the folder went with tmp in it: round again
                unnote(site, tmp)

    def _top_up(self, names: list[str]) -> None:
        """What came on a held inode while M was written joins M just before the exchange, so that a late line needs a
        writer within microseconds, not within the writing of a large file. M is nobody's but ours until then."""
        for _ in range(TOP_UPS):
            # An older inode's line would stand behind what was written to this one: it takes a round.
            newest = self.newest
            more = newest.pending(self.uuids) if newest is not None and newest.grew() else b""
            if not more:
                return
            self.topped = True
            self.data += more  # first: should an append find its folder gone, M is written whole in the next turn
            for name in names:
                disk.append(name, more, sync=False)
            self._stamp(*names)

    def _exchange(self, tmp: str) -> None:
        """`tmp` and live change places; a stranger that comes out is held from its first byte."""
        site = self.site
        try:
            disk.exchange(tmp, site.live)
        except NoExchange:
            self._exchange_in_two_steps(tmp)
            return
        out = os.lstat(tmp)
        if not stat.S_ISREG(out.st_mode):
            disk.exchange(tmp, site.live)
            disk.unlink(tmp)
            unnote(site, tmp)
            raise Refused(
                f"{site.live} is no regular file any more", "look at what stands there; it was left as it is"
            )  # fmt: skip
        self._take_out(tmp, (out.st_dev, out.st_ino))

    def _exchange_in_two_steps(self, tmp: str) -> None:
        """Without an exchange on the volume: live steps aside, and M takes the free name.

        FileExistsError where somebody took the name between the two steps: what stepped aside is held, M is put again.
        """
        site = self.site
        out = held_name(site, self._reign()) if site.linked else beside_name(site, self._reign())
        note(site, tmp, stepping=True)
        if not site.linked:
            note(site, out)
        try:
            disk.replace(site.live, out)
        except (OSError, KeeperError):
            if not site.linked:
                unnote(site, out)
            raise
        taken = False
        try:
            disk.move(tmp, site.live)
        except FileExistsError:
            taken = True
        except DiskError:
            disk.move(out, site.live)
            if not site.linked:
                unnote(site, out)
            raise
        seen = os.lstat(out)
        self._take_out(out, (seen.st_dev, seen.st_ino))
        if taken:
            disk.unlink(tmp)
        unnote(site, tmp)
        if taken:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), site.live)

    def _take_out(self, name: str, inode: tuple[int, int]) -> None:
        """What came out under `name`: one that is held already needs no second name, another is held from here on."""
        site = self.site
        for one in self.held:
            if one.inode == inode:
                if one.path == site.live:
                    one.path = name  # a volume without links: this is its only name now
                else:
                    disk.unlink(name)
                    unnote(site, name)
                return
        if site.linked and os.path.dirname(name) != site.swap:
            own = held_name(site, self._reign())
            disk.link(name, own)
            disk.unlink(name)
            unnote(site, name)
            name = own
        stranger = Held.open(name)
        stranger.data = b""  # nothing of it is in M yet: the drain reads it from its first byte
        stranger.used = 0
        self.held.append(stranger)


def _clear(name: str) -> None:
    """After a failure: an M that stands nowhere yet leaves no name behind; all its lines have their own."""
    try:
        if os.stat(name).st_nlink == 1:
            disk.unlink(name)
    except FileNotFoundError:
        return


def late(data: bytes, held: Sequence[Held], deadline: float, newest: Held | None = None) -> bytes:
    """`data` with every line that arrived on a held inode beyond what was taken from it, in order; until the deadline
    (of the monotonic clock) a writer that holds on is waited for."""
    for one in held:
        _wait_quiet(one, deadline)
        if one.waits() and one is newest and one.used:
            # It was live last of all that is known: what it got since ends the file.
            data += one.pending({uuid for line in data.split(b"\n") if (uuid := uuid_of(line)) is not None})
        if one.waits():
            data = merge(data, one.data, late=one.used > 0, taken=one.data.count(b"\n", 0, one.used)).data
            one.used = one.data.rfind(b"\n") + 1
    return data


def _wait_quiet(one: Held, deadline: float) -> None:
    """Read until nobody has the inode open for writing, or the deadline."""
    while True:
        one.grew()
        told = files.nobody_writes(one.fd)
        if told:
            one.grew()
            one.quiet = True
            return
        if told is None:
            one.quiet = quiet_now(one)
            return
        if time.monotonic() >= deadline:
            return
        time.sleep(0.001)
