"""Pair: keep and restore of one live file beside its kept counterpart, a transcript and a subagent's alike.

It promises that kept never loses a record to what live has become, that nothing is written where there is nothing to
do (KEEP-5), and that a name which appears between look and deed is looked at again, never overwritten (RESTORE-4).
It refuses to judge by anything that the caller remembers: what an earlier keep saw only spares a look.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from keeper import disk, files
from keeper.errors import KeeperError, NoLinks, Refused
from keeper.files import regular
from keeper.transcripts.absorb import absorb
from keeper.transcripts.held import Site, beside_name, note, unnote
from keeper.transcripts.kept import Outcome, Pair, second_links, write_kept
from keeper.transcripts.look import Look, pin
from keeper.transcripts.prove import Proof, prove
from keeper.transcripts.verdict import FOLDED_BY_RESTORE, SPLIT_BY_KEEP, Verdict

TAIL = 4096
"""So many bytes before the known end are compared before a tail alone is taken (mode copy)."""
LOOKS = 100
"""A live name that is gone and back again so often within one restore is somebody's loop, not Claude."""


@dataclass(frozen=True, slots=True)
class Known:
    """What an earlier keep saw, from the index: a hint that spares a look, never a truth."""

    mode: str = "link"
    live_inode: int = 0
    live_size: int = 0
    kept_size: int = 0


def keep(pair: Pair, known: Known, left: list[str]) -> Outcome:
    """Bring live's records into kept. `left` are names that an earlier run held for this pair (`held.leftovers`)."""
    proof = prove(pair) if pair.seal and os.path.lexists(pair.seal) else Proof()
    if proof.verdict is Verdict.SAME:
        return _keep(pair, known, left)
    if proof.verdict is Verdict.DAMAGED:
        outcome = _keep(replace(pair, rebuilt=True), Known(), [*left, *proof.held])
        action = "rebuilt" if outcome.action == "none" else outcome.action
        return replace(outcome, action=action, damaged=True, lost=proof.lost)
    outcome = _keep(pair, known, left)
    if outcome.verdict is Verdict.SAME:
        outcome = replace(outcome, verdict=proof.verdict)
    return replace(outcome, action="accepted" if outcome.action == "none" else outcome.action, tail=False)


def _keep(pair: Pair, known: Known, left: list[str]) -> Outcome:
    live, kept = regular(pair.live), regular(pair.kept)
    if live is None and pair.back and pair.live and kept:
        return _step_back(pair, left)
    if live is None:
        return absorb(pair, left) if (left or second_links(pair)) and kept else Outcome(Verdict.ABSENT)
    if kept is None:
        return _first(pair)
    # A second link to another inode than live's is an earlier live file, whose last lines were perhaps never taken.
    older = any((seen := regular(path)) is not None and seen.st_ino != live.st_ino for path in second_links(pair))
    if not left and not older:
        if not pair.apart and (live.st_dev, live.st_ino) == (kept.st_dev, kept.st_ino):
            return Outcome(Verdict.SAME)
        if not live.st_size:
            return Outcome(Verdict.EMPTY, inode=live.st_ino)
        if not pair.apart and (quick := _quick(pair, known, live, kept)) is not None:
            return quick
    try:
        site, pinned = pin(pair)
    except FileNotFoundError:
        return absorb(pair, left) if left or second_links(pair) else Outcome(Verdict.ABSENT)
    look = Look(pair, site, pinned, left)
    try:
        return look.carry_out()
    except (OSError, KeeperError):
        look.abandon()
        raise


def _step_back(pair: Pair, left: list[str]) -> Outcome:
    """A killed swap without exchange had let live step aside: its name comes back first, since the note that tells of
    it goes with the names that are held; then what it had joins."""
    _put_back(pair, Outcome(Verdict.ABSENT), os.stat(pair.kept).st_mtime_ns)
    return _keep(replace(pair, back=False), Known(), left)


def _first(pair: Pair) -> Outcome:
    """The first keep: the kept name is the live inode, or, where no link can be made, a copy of its whole lines."""
    try:
        disk.link(pair.live, pair.kept)
    except NoLinks:
        return _copy(pair)
    except FileNotFoundError:
        if not os.path.isdir(os.path.dirname(pair.kept)):
            raise
        return Outcome(Verdict.ABSENT)
    if regular(pair.kept) is None:
        disk.unlink(pair.kept)  # a symbolic link took the name between look and link
        return Outcome(Verdict.ABSENT)
    return Outcome(Verdict.AHEAD, "linked")


def _copy(pair: Pair) -> Outcome:
    try:
        fd = files.open_read(pair.live)
    except FileNotFoundError:
        return Outcome(Verdict.ABSENT)
    try:
        data = files.read_at(fd, 0, pair.live)
        inode = os.fstat(fd).st_ino
        data = data[: data.rfind(b"\n") + 1]
        if not data:
            return Outcome(Verdict.WAITING, mode="copy")
        write_kept(pair, data, None, os.fstat(fd).st_mtime_ns)
    finally:
        os.close(fd)
    return Outcome(Verdict.AHEAD, "copied", "copy", data.count(b"\n"), inode=inode, size=len(data))


def _quick(pair: Pair, known: Known, live: os.stat_result, kept: os.stat_result) -> Outcome | None:
    """What a stat (mode split) or 4 KiB (mode copy) can settle: nothing new, or a tail alone. None: look properly."""
    if live.st_ino != known.live_inode or kept.st_size != known.kept_size:
        return None
    if known.mode == "split":
        linked = regular(pair.live_link)
        # The link holds the inode, so its number is no other file's: the size tells whether it grew. One that was empty
        # is judged by what it has now.
        if linked is None or linked.st_ino != live.st_ino or not 0 < known.live_size <= live.st_size:
            return None
        return _tail(pair, live.st_ino, known.live_size, Outcome(Verdict.SAME, "split", "split"))
    if known.mode != "copy" or live.st_size < kept.st_size:
        return None
    return _tail(pair, live.st_ino, kept.st_size, Outcome(Verdict.AHEAD, "copied", "copy"))


def _tail(pair: Pair, inode: int, offset: int, took: Outcome) -> Outcome | None:
    """What live has beyond `offset` is appended to kept, so that the cost is the tail's, where kept's end shows that it
    ends as live did there: in mode copy kept is live's beginning, in mode split its last lines are live's last. Where
    they are not, None: a proper look puts them so. `took` is the answer for a tail that was taken.
    """
    try:
        live_fd = files.open_read(pair.live)
    except FileNotFoundError:
        return None
    try:
        size = os.stat(pair.kept).st_size
        kept_fd = files.open_read(pair.kept)
        try:
            end = os.pread(kept_fd, TAIL, max(0, size - TAIL))
        finally:
            os.close(kept_fd)
        before = os.pread(live_fd, min(TAIL, offset), max(0, offset - TAIL))
        if os.fstat(live_fd).st_ino != inode or not end.endswith(b"\n") or not _ends_alike(end, before, offset):
            return None
        tail = files.read_at(live_fd, offset, pair.live)
        tail = tail[: tail.rfind(b"\n") + 1]
        if not tail:
            return replace(took, verdict=Verdict.SAME, action="none", inode=inode, size=offset)
        disk.append(pair.kept, tail)
        disk.touch(pair.kept, os.fstat(live_fd).st_mtime_ns)
        return replace(took, added=tail.count(b"\n"), inode=inode, size=offset + len(tail), tail=True)
    finally:
        os.close(live_fd)


def _ends_alike(end: bytes, before: bytes, offset: int) -> bool:
    """Whether the bytes before live's offset are those at kept's end; a file shorter than the window counts whole."""
    if not before.endswith(b"\n") and offset:
        return False
    return end == before if len(end) == len(before) else end.endswith(before) and offset <= TAIL


def restore(pair: Pair, outcome: Outcome, full: bool, now_ns: int) -> Outcome:
    """Make live what a resume must read, after `keep` has taken what is there. `outcome` is that keep's answer.

    FileNotFoundError where nothing is kept.
    """
    for _ in range(LOOKS):
        if regular(pair.live) is None and os.path.lexists(pair.live):
            raise Refused(f"{pair.live} is no regular file: it was left as it is", "move it away, then run it again")
        if regular(pair.live) is None:
            if regular(pair.live_link) is not None:
                # Mode split, swept since the look: what was written to it since stands behind our second link.
                absorb(pair, [])
            back = _put_back(pair, outcome, now_ns)
            if back is None:
                outcome = keep(pair, Known(), [])
            elif not torn(pair.live):
                return back
            else:
                outcome = replace(_fold(pair, back, now_ns, mend=True), action="restored")
            continue
        wanted = outcome.verdict in FOLDED_BY_RESTORE or (full and outcome.verdict in SPLIT_BY_KEEP)
        done = outcome.action in ("folded", "restored") or outcome.foreign
        if wanted and not done:
            outcome = _fold(pair, outcome, now_ns)
        elif outcome.verdict is not Verdict.UNMERGEABLE and not outcome.foreign and torn(pair.live):
            outcome = _fold(pair, outcome, now_ns, mend=True)
        try:
            disk.touch(pair.live, now_ns)
        except FileNotFoundError:
            continue  # swept between fold and touch: put back in the next turn
        if settled(pair, outcome):
            return outcome
        outcome = keep(pair, Known(), [])
    return outcome


def settled(pair: Pair, outcome: Outcome) -> bool:
    """Whether what stands under the live name is what was looked at: Claude may delete and recreate it meanwhile."""
    live = regular(pair.live)
    if live is None:
        return False
    for name in (pair.kept, pair.live_link):
        seen = regular(name)
        if seen is not None and (seen.st_dev, seen.st_ino) == (live.st_dev, live.st_ino):
            return True
    return live.st_ino == outcome.inode or (not live.st_size and outcome.verdict is Verdict.EMPTY)


def _put_back(pair: Pair, outcome: Outcome, now_ns: int) -> Outcome | None:
    """Kept under the live name, exclusively, its time set before; None where the name was taken meanwhile."""
    disk.touch(pair.kept, now_ns)
    folder = os.path.dirname(pair.live)
    if not os.path.isdir(folder):
        if os.path.lexists(folder):
            raise Refused(f"{folder} is no folder: it was left as it is", "move it away, then run it again")
        disk.make_shared_dir(folder)
    try:
        try:
            disk.link(pair.kept, pair.live)
        except NoLinks:
            outcome = replace(outcome, inode=_copy_out(pair, now_ns))
    except (FileExistsError, FileNotFoundError):
        return None
    return replace(outcome, action="restored")


def _copy_out(pair: Pair, now_ns: int) -> int:
    """On another volume: a copy beside live, whole and synced, then moved to the free name; its inode."""
    site = Site(pair.live, pair.kept, pair.swap, pair.label, linked=False)
    tmp = beside_name(site)
    note(site, tmp)
    try:
        disk.write_new(tmp, [files.read(pair.kept)])
        disk.touch(tmp, now_ns)
        mine = os.lstat(tmp).st_ino
        disk.move(tmp, pair.live)
        disk.sync_dir(os.path.dirname(pair.live))
        return mine
    finally:
        disk.unlink(tmp)
        unnote(site, tmp)


def _fold(pair: Pair, outcome: Outcome, now_ns: int, mend: bool = False) -> Outcome:
    try:
        site, pinned = pin(pair)
    except FileNotFoundError:
        return outcome
    look = Look(pair, site, pinned, [])
    try:
        done = look.mend(now_ns) if mend else look.fold(bring_back=True, stamp_ns=now_ns)
    except (OSError, KeeperError):
        look.abandon()
        raise
    return replace(done, verdict=outcome.verdict, gaps=outcome.gaps or done.gaps, lacks=outcome.lacks)


def torn(live: str) -> bool:
    """Whether live ends in an unfinished line that nobody is writing (CLIs up to 2.1.296 glue the next one to it)."""
    try:
        fd = files.open_read(live)
    except FileNotFoundError:
        return False
    try:
        size = os.fstat(fd).st_size
        return size > 0 and os.pread(fd, 1, size - 1) != b"\n" and files.nobody_writes(fd) is True
    finally:
        os.close(fd)
