"""Absorb: what killed runs held of a live file that is gone goes into kept.

It promises that nothing which was held loses its name before its lines stand in kept. It refuses to bring the live
file back: that is a restore's.
"""

from __future__ import annotations

import os

from keeper import disk
from keeper.errors import KeeperError, NoLinks
from keeper.transcripts.held import Held, Site, held_of, hold, one_each, quiet_now, release
from keeper.transcripts.kept import Outcome, Pair, count, let_go, read_kept, second_links, write_kept
from keeper.transcripts.reigns import NEVER_LIVE, read_over_rot, union
from keeper.transcripts.verdict import Verdict


def absorb(pair: Pair, left: list[str]) -> Outcome:
    """Live is gone, but an earlier run held inodes of it: their lines go into kept."""
    site = Site(pair.live, pair.kept, pair.swap, pair.label, True)
    held = one_each(site, held_of(left))
    try:
        return _absorb(pair, site, held)
    except (OSError, KeeperError):
        let_go(pair, site, held)
        raise


def _absorb(pair: Pair, site: Site, held: list[Held]) -> Outcome:
    links = second_links(pair)
    lived: list[Held] = []
    for path in list(links):
        try:
            lived.append(hold(site, path))
        except NoLinks:
            lived.append(Held.open(path))  # a volume without links: its own name holds it, and goes when it is quiet
            links.remove(path)
        held.append(lived[-1])
    kept, _, born = read_kept(pair)
    read_over_rot(pair, held, kept)
    data = union(pair, union(pair, kept, lived, NEVER_LIVE), held, born)
    for one in held:
        one.quiet = quiet_now(one)
    added = count(data) - count(kept)
    if added:
        like = held[0]
        try:
            old = hold(site, pair.kept)  # a writer may hold it still, though its live name is gone
        except NoLinks:
            old = None  # a volume without links: kept is a copy of ours, and nobody else writes to it
        if old is not None:
            old.owed = old.data != kept
            held.append(old)
        write_kept(pair, data, like.fd, os.fstat(like.fd).st_mtime_ns)
        if old is not None:
            old.quiet = quiet_now(old)
    for path in links:
        disk.unlink(path)
    waiting = release(site, held, data, pair.put_aside)
    return Outcome(Verdict.ABSENT, "absorbed" if added else "none", added=added, waiting=waiting)
