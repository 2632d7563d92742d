"""Lives: every live name of one session's transcript, kept as the one conversation that they are.

It promises that two live files of one session are both kept and neither is touched (KEEP-19), and that what a killed
run held of a live file that is gone is taken into kept.
"""

from __future__ import annotations

from dataclasses import replace

from keeper.claude import Footprint
from keeper.files import regular
from keeper.transcripts import pair
from keeper.transcripts.index import Row
from keeper.transcripts.kept import Outcome
from keeper.transcripts.mirror import Mirror
from keeper.transcripts.verdict import Verdict


def keep_lives(mirror: Mirror, footprint: Footprint, row: Row | None) -> Outcome:
    """Keep the transcript; `row` is what the index knows of the session."""
    session, chat = footprint.session, mirror.chat
    label = f"{session}.jsonl"
    known = pair.Known(row.mode, row.live_inode, row.live_size, row.kept_size) if row else pair.Known()
    left = mirror.left_of(label)
    inodes: dict[tuple[int, int], str] = {}
    for path in footprint.transcripts:
        seen = regular(str(path))
        if seen is not None:
            inodes.setdefault((seen.st_dev, seen.st_ino), str(path))
    if not inodes:
        live = f"{row.profile}/projects/{row.project}/{label}" if row and row.project else f"{chat.path}/none"
        return pair.keep(mirror.pair(live, label, main=True), known, left)
    if len(inodes) == 1:
        return pair.keep(mirror.pair(next(iter(inodes.values())), label, main=True), known, left)
    return _doubled(mirror, label, inodes, left)


def _doubled(mirror: Mirror, label: str, inodes: dict[tuple[int, int], str], left: list[str]) -> Outcome:
    """The union of two live files into kept; each has a second link of its own, told by its inode."""
    lives = [mirror.pair(live, label, True, True, f"-{ino:x}") for (_, ino), live in inodes.items()]
    theirs = {one.live_link for one in lives}
    outcomes = []
    if regular(mirror.chat.kept(label.removesuffix(".jsonl"))) is None:
        outcomes.append(pair.keep(lives[0], pair.Known(), []))
    for one in lives:
        others = tuple(path for path in one.links if path == one.live_link or path not in theirs)
        outcomes.append(pair.keep(replace(one, links=others), pair.Known(), left))
        left = []
    added = sum(outcome.added for outcome in outcomes)
    action = "split" if any(outcome.action != "none" for outcome in outcomes) else "none"
    last = outcomes[-1]
    lost = max(outcome.lost for outcome in outcomes)
    damaged = any(outcome.damaged for outcome in outcomes)
    return replace(
        last, verdict=Verdict.DOUBLED, action=action, added=added, mode="split", inode=0, tail=False,
        damaged=damaged, lost=lost,
    )  # fmt: skip
