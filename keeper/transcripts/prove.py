"""Prove: whether a kept file still is what was sealed; one that is not is built again from its seal.

A link shares its inode's fate: what truncates or rewrites the live file in place does so to the kept one. It promises
that nothing is lost of either: the damaged inode keeps a name of ours until its lines are merged like any other's. It
refuses to judge what the live file is: that is the look's, once kept is whole again.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from keeper import disk, files
from keeper.errors import NoLinks
from keeper.files import regular
from keeper.transcripts import seal
from keeper.transcripts.frame import SealBroken, last_frame
from keeper.transcripts.held import NEWEST, Site, hold
from keeper.transcripts.kept import Pair, write_kept
from keeper.transcripts.verdict import Verdict, has_own, judge_sealed


@dataclass(frozen=True, slots=True)
class Proof:
    """What was found: `same`, `tombstoned`, or `damaged` and built again. `lost` counts the sealed lines that kept had
    no more; `held` are names of ours for the damaged inode."""

    verdict: Verdict = Verdict.SAME
    lost: int = 0
    held: tuple[str, ...] = ()


def stands(kept: str, sealed: str) -> bool:
    """Whether kept still has, before the sealed end, what was sealed there: a stat and 4 KiB. True without a seal."""
    try:
        last = last_frame(sealed)
    except SealBroken:
        return False
    if last is None:
        return True
    fd = files.open_read(kept)
    try:
        return seal.holds(last, fd)
    finally:
        os.close(fd)


def prove(pair: Pair) -> Proof:
    """Hold kept against its seal; build it again where it is damaged or gone. `pair.thorough`: read to the end."""
    there = regular(pair.kept) is not None
    if there and not pair.thorough and stands(pair.kept, pair.seal):
        return Proof()
    sealed = seal.read(pair.seal)
    if sealed.torn:
        disk.cut(pair.seal, sealed.good)  # a frame that a killed run had begun
    known = sealed.whole_lines()
    if not there:
        if known:
            write_kept(pair, known, None, sealed.last.time_ns if sealed.last else None)
        return Proof(Verdict.DAMAGED, known.count(b"\n")) if known else Proof()
    kept = files.read(pair.kept)
    found = judge_sealed(known, kept, pair.main)
    if found.verdict is Verdict.DAMAGED:
        return Proof(Verdict.DAMAGED, found.lacks, _build_again(pair, known, has_own(known, kept)))
    return Proof(found.verdict, found.lacks)


def _build_again(pair: Pair, content: bytes, own: bool) -> tuple[str, ...]:
    """Kept gets the sealed lines on an inode of its own. The damaged one is held, so that its own lines are merged; one
    that has none goes aside whole."""
    site = Site(pair.live, pair.kept, pair.swap, pair.label, True)
    names: tuple[str, ...] = ()
    fd = files.open_read(pair.kept)
    try:
        live, kept = regular(pair.live) if pair.live else None, os.fstat(fd)
        if live is None or (live.st_dev, live.st_ino) != (kept.st_dev, kept.st_ino):
            try:
                if own:
                    one = hold(site, pair.kept, NEWEST)
                    one.close()
                    names = (one.path,)
            except NoLinks:
                own = False
            if not own:
                pair.put_aside(os.path.basename(pair.kept), files.read(pair.kept))
        write_kept(pair, content, fd, kept.st_mtime_ns)
    finally:
        os.close(fd)
    return names
