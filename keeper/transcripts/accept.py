"""Accept: makes one content the whole truth of a session, live and kept: what live is now, or what was sealed once.

It promises that the seal has all of the kept file before the first byte of it goes, so that `restore --at` finds it
again, and that killed in the middle the chat is as it was before, with the damage still told. It refuses while anybody
writes to either file.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from keeper import claude, disk, files
from keeper.claude import Footprint
from keeper.errors import Locked, NotKept, Refused
from keeper.files import regular
from keeper.transcripts import places, prove, swap
from keeper.transcripts.branch import when
from keeper.transcripts.frame import last_frame
from keeper.transcripts.held import Held, Site, drop, hold, quiet_now
from keeper.transcripts.keep import Keeper
from keeper.transcripts.kept import Change, Pair, second_links, write_kept
from keeper.transcripts.look import pin
from keeper.transcripts.mirror import Mirror
from keeper.transcripts.places import Place
from keeper.transcripts.vault import Vault


@dataclass(frozen=True, slots=True)
class Accepted:
    """What is the truth of a session now; `left` counts the records that only its seal still has, `until` is the time
    for which it gives them (ISO)."""

    session: str
    chat: str
    profile: str
    live: str
    records: int
    left: int
    until: str


def accept(vault: Vault, session: str, now_ns: int, profile: Path | None = None) -> Accepted:
    """Make the live file, as it is, the truth. Raises NotKept, Refused, Locked."""
    place, live = _one_live(vault, session, profile)
    with vault.lock(place.chat.name):
        truth = _Truth(vault, place, session, live, now_ns)
        whole = truth.take(None)
    return _told(vault, place, session, live, whole, truth)


def put(vault: Vault, session: str, content: bytes, now_ns: int, profile: Path | None = None) -> Accepted:
    """Make `content` (whole lines) the truth, under the session's own id. Raises NotKept, Refused, Locked."""
    place, live = _one_live(vault, session, profile)
    with vault.lock(place.chat.name):
        truth = _Truth(vault, place, session, live, now_ns)
        truth.take(content)
    return _told(vault, place, session, live, content, truth)


def _one_live(vault: Vault, session: str, profile: Path | None) -> tuple[Place, str]:
    claude.check_session(session)
    found = places.find(vault, session, profile)
    if len(found) > 1:
        names = ", ".join(place.chat.name for place in found)
        raise Refused(f"session {session} is kept in several chats: {names}", "forget those that are wrong first")
    whose = Path(found[0].facts.profile)
    footprint = claude.survey(whose, only=session).footprints.get(session) or Footprint(session)
    lives = claude.one_name_each(footprint.transcripts)
    if len(lives) > 1:
        raise Refused(f"session {session} has {len(lives)} live files", "move away the one that is wrong first")
    if not lives:
        raise NotKept(f"session {session} has no live file", f"`keeper restore {session}` puts it back first")
    return found[0], str(lives[0])


def _told(vault: Vault, place: Place, session: str, live: str, content: bytes, truth: _Truth) -> Accepted:
    keeper = Keeper(vault, truth.now_ns / 1e9)
    profile = Path(place.facts.profile)
    footprint = claude.survey(profile, only=session).footprints.get(session)
    if footprint is not None:
        keeper.options = replace(keeper.options, chat=place.chat.name)
        keeper.footprint(profile, footprint, None)  # facts and row say how it stands now
    keeper.finish()
    records = content.count(b"\n")
    return Accepted(session, place.chat.name, str(profile), live, records, truth.left, when(truth.until_ns))


class _Truth:
    """One session whose kept file is about to become another one, under its chat's lock."""

    def __init__(self, vault: Vault, place: Place, session: str, live: str, now_ns: int) -> None:
        self.now_ns = now_ns
        self.mirror = Mirror(vault, place.chat, now_ns / 1e9)
        self.label = f"{session}.jsonl"
        self.pair: Pair = self.mirror.pair(live, self.label, main=True)
        self.left = 0
        self.until_ns = now_ns

    def take(self, content: bytes | None) -> bytes:
        """`content`, or what live is, under both names, and sealed as what the session is now; the bytes of it."""
        pair = self.pair
        proof = prove.prove(pair)
        if [*self.mirror.left_of(self.label), *proof.held] or self._older_links():
            raise _unmerged(pair)
        self.mirror.seals.transcript(self.label, Change.JOINED)  # the seal has all of kept before any of it goes
        last = last_frame(pair.seal)
        self.until_ns = last.time_ns if last is not None else self.now_ns
        site, pinned = pin(pair)
        held = [pinned]
        try:
            whole = pinned.data[: pinned.data.rfind(b"\n") + 1]
            truth = whole if content is None else content
            if not truth:
                raise Refused(f"{pair.live} has no whole record", f"`keeper restore {self.label[:-6]}` fills it again")
            self._quiet(pinned)
            kept = files.read(pair.kept)
            if content is not None and _lacks(whole, kept):
                raise _unmerged(pair)
            self.left = _lacks(kept, truth)
            if content is not None:
                self._swap(site, pinned, content)
            elif site.linked:
                self._link(site, pinned, held)
            else:
                write_kept(pair, whole, None, os.fstat(pinned.fd).st_mtime_ns)
        finally:
            for one in held:
                self._let_go(site, one)
        for path in second_links(pair):
            disk.unlink(path)
        disk.sync_file(pair.kept)
        self.mirror.seals.transcript(self.label, Change.REPLACED)
        return truth

    def _older_links(self) -> bool:
        """Mode split: whether an earlier live inode stands here whose lines were perhaps never taken."""
        known = [(seen.st_dev, seen.st_ino) for path in (self.pair.live, self.pair.kept) if (seen := regular(path))]
        for path in second_links(self.pair):
            seen = regular(path)
            older = seen is not None and (seen.st_dev, seen.st_ino) not in known
            if older and _lacks(files.read(path), files.read(self.pair.kept)):
                return True
        return False

    def _quiet(self, one: Held) -> None:
        if not quiet_now(one):
            raise Locked(f"{self.pair.live} is being written to", "end the Claude that writes to it, then run it again")

    def _link(self, site: Site, pinned: Held, held: list[Held]) -> None:
        seen = regular(self.pair.kept)
        if seen is not None and (seen.st_dev, seen.st_ino) == pinned.inode:
            return
        old = hold(site, self.pair.kept)
        held.append(old)
        self._quiet(old)
        disk.sync_file(pinned.path)
        disk.replace(pinned.path, self.pair.kept)
        disk.sync_dir(os.path.dirname(self.pair.kept))
        pinned.path = self.pair.kept

    def _swap(self, site: Site, pinned: Held, content: bytes) -> None:
        if not swap.ours(pinned.fd):
            raise Refused(f"{self.pair.live} belongs to another user", "it was left as it is")
        pinned.used = len(pinned.data)  # what live had is in the seal: only what comes from now on is late
        swap.swap(site, content, [pinned], bring_back=True, stamp_ns=self.now_ns)
        pinned.owed |= not pinned.quiet  # a writer came meanwhile: the next keep merges all that it has

    def _let_go(self, site: Site, one: Held) -> None:
        """A name of ours goes: what it held is live, kept or sealed."""
        lasting = (self.pair.live, self.pair.kept, self.pair.live_link)
        if one.path in lasting or one.owed:
            one.close()
        else:
            drop(site, one)


def _unmerged(pair: Pair) -> Locked:
    return Locked(f"lines of {pair.live} are still to be merged", "run `keeper keep` on it, wait a minute, then again")


def _lacks(kept: bytes, truth: bytes) -> int:
    """How many lines of kept the truth has not."""
    have = set(truth.split(b"\n"))
    return sum(1 for line in kept.split(b"\n") if line not in have)
