"""Look: one pinned look at a live file that differs from kept, and the deed that its verdict asks for.

Pin, then look: only the inode that was given a name of ours is read, judged, kept and linked from then on, since
Claude may delete and recreate the live name between any two steps. It promises that every inode which it held keeps
a name until its lines are safe. It refuses to merge what a CLI up to 1.0.117 wrote (FIT-2), and to replace a live
file that is not ours (SWAP-7).
"""

from __future__ import annotations

import os
import time
from dataclasses import replace

from keeper import disk
from keeper.errors import KeeperError, NoLinks
from keeper.files import regular
from keeper.transcripts import swap
from keeper.transcripts.held import NEWEST, Held, Site, drop, held_name, held_of, hold, one_each, quiet_now, release
from keeper.transcripts.kept import Outcome, Pair, count, let_go, read_kept, second_links, write_kept
from keeper.transcripts.merge import merge
from keeper.transcripts.reigns import NEVER_LIVE, read_over_rot, union
from keeper.transcripts.verdict import FOLDED_BY_KEEP, SPLIT_BY_KEEP, Verdict, judge


def pin(pair: Pair) -> tuple[Site, Held]:
    """Hold the live file by a name of ours. FileNotFoundError where there is no regular file under the name."""
    live, kept = regular(pair.live), regular(pair.kept)
    linked = live is not None and kept is not None and live.st_dev == kept.st_dev
    site = Site(pair.live, pair.kept, pair.swap, pair.label, linked)
    if live is not None and linked:
        named = regular(pair.live_link)
        if named is not None and named.st_ino == live.st_ino:
            return site, Held.open(pair.live_link)  # mode split: it has a name of ours already
        try:
            return site, hold(site, pair.live, NEWEST if pair.rebuilt else None)
        except NoLinks:
            site = replace(site, linked=False)
    # On another volume a look needs no name: the descriptor holds the inode, and only a fold gives it one.
    return site, Held.open(pair.live)


class Look:
    """What was read and judged; `carry_out` does what keep does, `fold` what restore does where the table says so."""

    def __init__(self, pair: Pair, site: Site, pinned: Held, left: list[str]) -> None:
        self.pair = pair
        self.site = site
        self.pinned = pinned
        self.mode = "link" if site.linked else "copy"
        self.mine = [pinned]
        try:
            self._read(left)
        except (OSError, KeeperError):
            self.abandon()
            raise

    def _read(self, left: list[str]) -> None:
        pair, pinned = self.pair, self.pinned
        self.kept, self.kept_inode, born = read_kept(pair)
        self.held = self._left(left)
        self.rotten = self.pinned in read_over_rot(pair, [pinned, *self.held], self.kept)
        older = self._older_live()
        self.held += older
        # An earlier live inode of mode split is a part of what is known; what a killed run held is live's own.
        self.known = union(pair, self.kept, older, NEVER_LIVE, self.site.linked)
        self.base = union(pair, self.known, self.held, born, self.site.linked)
        self.found = judge(self.known, pinned.data, pair.main)
        self.seen = (pinned.inode[1], pinned.data.rfind(b"\n") + 1)

    def _hold(self, path: str) -> Held:
        """Hold, and remember for `abandon`."""
        one = hold(self.site, path)
        self.mine.append(one)
        return one

    def _left(self, names: list[str]) -> list[Held]:
        """What an earlier run held; the live and the kept inode themselves need no further name."""
        found = []
        for one in one_each(self.site, held_of(names)):
            self.mine.append(one)
            if one.inode == self.pinned.inode and self.pinned.path == self.site.live:
                # On another volume the pin is a descriptor alone: this is the only name of ours, if live goes now.
                self.pinned.path = one.path
                one.close()
            elif one.inode == self.pinned.inode and one.damaged and self.pinned.path != self.pair.live_link:
                # The name that tells of damage is the one that stays, should this run be killed.
                drop(self.site, self.pinned)
                self.pinned = one
            elif one.inode in (self.pinned.inode, self.kept_inode):
                drop(self.site, one)
            else:
                found.append(one)
        return found

    def _older_live(self) -> list[Held]:
        """Mode split: the live inode of an earlier keep, whose last lines were perhaps never taken."""
        found = []
        for path in second_links(self.pair):
            seen = regular(path)
            if seen is not None and (seen.st_dev, seen.st_ino) not in (self.pinned.inode, self.kept_inode):
                found.append(self._hold(path))
        return found

    def _hold_kept(self) -> list[Held]:
        """The kept inode, before its name goes to another: a writer may still hold it. What it grew since is late."""
        if not self.site.linked or self.kept_inode == self.pinned.inode:
            return []
        old = self._hold(self.pair.kept)
        if old.data != self.kept:
            old.data = self.kept if old.data.startswith(self.kept) else b""
            old.used = old.data.rfind(b"\n") + 1
        return [old]

    def carry_out(self) -> Outcome:
        """The deed of the verdict's row, for keep."""
        verdict = self.found.verdict
        if verdict is Verdict.UNMERGEABLE:
            return self._legacy()
        if verdict in (Verdict.EMPTY, Verdict.WAITING):
            return self._only_older()
        if self.pair.apart or verdict in SPLIT_BY_KEEP:
            return self._split()
        merged = merge(self.base, self.pinned.data)
        if self.rotten or verdict in FOLDED_BY_KEEP or merged.data != _whole(self.pinned.data):
            return self.fold()
        return self._adopt(merged.torn)

    def _only_older(self) -> Outcome:
        """Nothing is taken from live; what earlier runs held is."""
        added = count(self.base) - count(self.kept)
        self._take_held()
        self._unlink_links(but=self.pinned.path)
        return self._end("absorbed" if added else "none", self.base, self.held, added)

    def _adopt(self, torn: tuple[bytes, ...]) -> Outcome:
        """Live has all that is known: kept becomes the live inode (on another volume: gets live's lines)."""
        for fragment in torn:
            self._aside(fragment)
        data = _whole(self.pinned.data)
        added = count(data) - count(self.kept)
        if not self.site.linked:
            if data != self.kept:
                write_kept(self.pair, data, None, os.fstat(self.pinned.fd).st_mtime_ns)
            return self._end("copied" if data != self.kept else "none", data, self.held, added)
        if self.kept_inode == self.pinned.inode:
            self._unlink_links()
            return self._end("none", data, self.held)
        held = [*self.held, *self._hold_kept()]
        self._take_name()
        self._unlink_links()
        found = swap.late(data, held, time.monotonic() + swap.LEASE_WAIT_S)
        if found == data:
            return self._end("relinked", data, held, added)
        # A writer still held the old kept inode and wrote to it: its lines join live by a swap.
        again = self._hold(self.pair.kept)
        done = swap.swap(self.site, merge(found, again.data).data, [again, *held], bring_back=False)
        self.seen = (done.placed, len(done.data))
        return self._end("folded", done.data, [again, *held], count(done.data) - count(self.kept))

    def fold(self, bring_back: bool = False, stamp_ns: int | None = None) -> Outcome:
        """Both files' records under both names, on one inode (on another volume: the same bytes)."""
        if not swap.ours(self.pinned.fd):
            return replace(self._split(), foreign=True)
        self._name_pin()
        merged = merge(self.base, self.pinned.data)
        for fragment in merged.torn:
            self._aside(fragment)
        held = [self.pinned, *self.held, *self._hold_kept()]
        done = swap.swap(self.site, merged.data, held, bring_back, stamp_ns)
        self._unlink_links()
        self.seen = (done.placed, len(done.data))
        added = count(done.data) - count(self.kept)
        return self._end("folded" if done.placed else "absorbed", done.data, held, added, merged.variants)

    def _name_pin(self) -> None:
        """What is about to be replaced has a name for this swap: on another volume it had none yet, and in mode split
        its name is the second link, which goes before its writer may be done."""
        if self.pinned.path != (self.pair.live_link if self.site.linked else self.site.live):
            return
        try:
            named = self._hold(self.pair.live_link if self.site.linked else self.pair.live)
        except FileNotFoundError:
            return  # swept since the look: its lines are in hand, and the swap meets the free name
        if named.inode != self.pinned.inode:
            self.base = merge(self.base, self.pinned.data).data
            self.held.append(self.pinned)
        else:
            self.pinned.close()
        self.pinned = named

    def _take_held(self) -> None:
        """What earlier runs held goes into kept, where it is not there yet."""
        if count(self.base) > count(self.kept):
            self.held += self._hold_kept()
            write_kept(self.pair, self.base, self.held[0].fd, os.fstat(self.held[0].fd).st_mtime_ns)

    def mend(self, stamp_ns: int) -> Outcome:
        """Live's own whole lines under its name again, without the unfinished one: that goes aside. Nothing else is
        folded in; where kept is no inode of live's, it stays as it is."""
        if self.kept_inode == self.pinned.inode or self.kept in (self.pinned.data, _whole(self.pinned.data)):
            return self.fold(bring_back=True, stamp_ns=stamp_ns)
        self._take_held()
        if not swap.ours(self.pinned.fd):
            return self._end("none", self.base, self.held)
        self._name_pin()
        # On another volume the lines have a name in the vault for the time of the swap alone.
        site = replace(self.site, kept=self.pair.live_link if self.site.linked else held_name(self.site))
        done = swap.swap(site, _whole(self.pinned.data), [self.pinned], True, stamp_ns)
        if self.site.linked:
            self.mode = "split"
        else:
            disk.unlink(site.kept)
        self.seen = (done.placed, len(done.data))
        return self._end("mended", done.data, [self.pinned, *self.held])

    def _split(self) -> Outcome:
        """Kept takes the union on an inode of its own; live stays as it is, with a second link of ours to it."""
        merged = merge(self.base, self.pinned.data)
        held = list(self.held)
        own = self.kept_inode != self.pinned.inode
        added = count(merged.data) - count(self.kept)
        if added or not own:
            for fragment in merged.torn:
                self._aside(fragment)
            held += self._hold_kept()
            like = self.pinned.fd if self.site.linked else None
            write_kept(self.pair, merged.data, like, os.fstat(self.pinned.fd).st_mtime_ns)
        if self.site.linked:
            self.mode = "split"
            if self.pinned.path != self.pair.live_link:
                disk.replace(self.pinned.path, self.pair.live_link)
                disk.sync_dir(os.path.dirname(self.pair.live_link))
            self.pinned.path = self.pair.kept  # it has its name for good: there is none to let go of
            self._unlink_links(but=self.pair.live_link)
        return self._end("split" if added or not own else "none", merged.data, held, added, merged.variants)

    def _legacy(self) -> Outcome:
        """Up to 1.0.117 every resume copies the history under new uuids: never folded, each version kept whole."""
        live = _whole(self.pinned.data)
        label = os.path.basename(self.pair.kept)
        for one in self.held:
            self.pair.put_aside(label, one.data)
        if count(live) < count(self.kept):
            self.pair.put_aside(label, live)
            return self._end("none", self.kept, self.held)
        self.pair.put_aside(label, self.kept)
        held = [*self.held, *self._hold_kept()]
        if self.site.linked and self.kept_inode != self.pinned.inode:
            self._take_name()
        elif not self.site.linked:
            write_kept(self.pair, live, None, os.fstat(self.pinned.fd).st_mtime_ns)
        return self._end("replaced", live, held)

    def _take_name(self) -> None:
        """The pinned inode takes the kept name, once it is on the disk itself: what was acknowledged under that name
        must not give way to a file that a power cut empties (docs/decisions/0013)."""
        disk.sync_file(self.pinned.path)
        disk.replace(self.pinned.path, self.pair.kept)
        disk.sync_dir(os.path.dirname(self.pair.kept))
        self.pinned.path = self.pair.kept

    def _aside(self, fragment: bytes) -> None:
        self.pair.put_aside(os.path.basename(self.pair.kept) + ".torn", fragment)

    def _unlink_links(self, but: str = "") -> None:
        for path in second_links(self.pair):
            if path != but:
                disk.unlink(path)

    def _end(
        self, action: str, data: bytes, held: list[Held], added: int = 0, variants: tuple[str, ...] = ()
    ) -> Outcome:
        """Let go of what is proven quiet; say what was found and done."""
        for one in held:
            one.quiet = one.quiet or quiet_now(one)
        waiting = release(self.site, held, data, self.pair.put_aside)
        if self.pinned not in held:
            self._let_go_of_pin()
        found = self.found
        return Outcome(
            found.verdict, action, self.mode, added, variants, found.gaps, found.lacks, waiting,
            inode=self.seen[0],
            size=self.seen[1],
            branch=found.branch,
        )  # fmt: skip

    def abandon(self) -> None:
        """After a failure: what was held and still has its own name goes, so that no name of ours stays behind."""
        let_go(self.pair, self.site, self.mine)

    def _let_go_of_pin(self) -> None:
        """A pin whose inode still has the live or the kept name goes; else it stays, for the next run."""
        seen = regular(self.pair.live)
        if self.pinned.path == self.pair.live_link:
            self.pinned.close()
        elif self.pinned.path == self.pair.kept or (seen and (seen.st_dev, seen.st_ino) == self.pinned.inode):
            drop(self.site, self.pinned)
        else:
            self.pinned.close()


def _whole(data: bytes) -> bytes:
    """The bytes less an unfinished last line."""
    return data[: data.rfind(b"\n") + 1]
