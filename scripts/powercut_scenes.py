"""The scenes of `powercut.py`: what may happen to chats between their first keep and a power cut, one a function.

Each begins with chats that are kept and live, and ends with an answer of keeper's. A run plays all of them once, in an
order of its own, since what one leaves is what the next finds.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

from powercut_chats import Story, cwd_of, one_live_file_each, repaired, uuids_of

from tests.build import append, folder, jsonl, meta, write_live
from tests.chat import put, sweep
from tests.seam import lines_of


def first_chapter(story: Story) -> None:
    """A profile that is kept for the first time, then all that may happen to it, in any order."""
    fresh = [story.begins() for _ in range(6)]
    story.keep_all(*fresh)
    scenes_of(story)


def second_chapter(story: Story) -> None:
    """The run after a power cut: what it left is mended, and life goes on."""
    story.claude_touches(*story.chats)
    repaired(story.world, story.demand)
    story.keep_all(*[] if story.chats else [story.begins(), story.begins()])
    one_live_file_each(story.world, story.chats)
    story.restore_all()
    for session in story.chats:
        story.last[session] = uuids_of(story.demand.kept[session])[-1]
    scenes_of(story)


def scenes_of(story: Story) -> None:
    """All that may happen to chats that are kept, each of it once, in any order."""
    scenes = list(SCENES)
    story.rng.shuffle(scenes)
    for scene in scenes:
        scene(story)


def turns(story: Story) -> None:
    """New turns, kept one by one."""
    for session in story.some():
        story.says(session, story.rng.randint(1, 5))
        story.agent_says(session)
        story.keep(session)


def turns_of_many(story: Story) -> None:
    """New turns of several, kept in a pass over the profile, and a new chat among them."""
    for session in story.some():
        story.says(session)
    story.keep_all(story.begins())


def one_more(story: Story) -> None:
    """A new chat, kept by its host, which names it."""
    story.keep(story.begins(), tags=(f"ticket-{story.count}",))


def forked(story: Story) -> None:
    """A chat that begins with another's records, kept with whose fork it is."""
    (parent,) = story.some(1)
    session = story.new_id()
    old, new = (parent.encode(), cwd_of(parent).encode()), (session.encode(), cwd_of(session).encode())
    copied = [line.replace(old[0], new[0]).replace(old[1], new[1]) for line in lines_of(story.about(parent).live)]
    story.written[session] = list(copied)
    story.last[session] = story.last[parent]
    write_live(story.world.profile, cwd_of(session), session, jsonl(*copied))
    story.says(session)
    story.keep(session)


def recreated(story: Story) -> None:
    """A live file that is made anew and hangs on what it has not: folded."""
    (session,) = story.some(1)
    lines = story.turn(session)
    story.written[session] += lines
    story.again(session, lines)
    story.keep(session)


def rewritten(story: Story) -> None:
    """Live files that are made anew with all that they had, and more: kept becomes the new inode."""
    for session in story.some():
        lines = lines_of(story.about(session).live)
        more = story.turn(session)
        story.written[session] += more
        story.again(session, [*lines, *more])
    story.keep_all()


def stub(story: Story) -> None:
    """A live file of which Claude made a few records without a prompt: folded."""
    (session,) = story.some(1)
    lines = [meta("custom-title", customTitle=story.uuid(), sessionId=session)]
    story.written[session] += lines
    story.again(session, lines)
    story.keep(session)


def cut_short(story: Story) -> None:
    """A live file that lacks its end and goes on otherwise (diverged): split; then its tail alone is taken."""
    (session,) = story.some(1)
    lines = lines_of(story.about(session).live)
    more = story.turn(session)
    story.written[session] += more
    story.again(session, [*lines[: max(1, len(lines) // 2)], *more])
    story.keep(session)
    story.says(session)
    story.keep(session)


def thinned(story: Story) -> None:
    """A live file out of which somebody took records: split."""
    (session,) = story.some(1)
    lines = lines_of(story.about(session).live)
    story.again(session, [*lines[:1], *lines[2:]])
    story.keep(session)


def swept(story: Story) -> None:
    """Claude's clean-up took one chat, which is put back for a resume and goes on."""
    (session,) = story.some(1)
    story.claude_touches(session)
    here = story.about(session)
    here.live.unlink()
    shutil.rmtree(here.companion, ignore_errors=True)
    story.restore(session, swept=True)
    story.says(session)
    story.keep(session)


def all_swept(story: Story) -> None:
    """Everything is gone from the profile, and all of it is put back at once."""
    story.claude_touches(*story.chats)
    sweep(story.world.profile)
    story.restore_all(swept=True)


def forgotten(story: Story) -> None:
    """A chat is forgotten, while its live file stays."""
    if len(story.chats) > 4:
        story.forget(story.rng.choice(story.chats))


def torn(story: Story) -> None:
    """A live file whose last line is unfinished, as a power cut left it, before a resume."""
    (session,) = story.some(1)
    story.keep(session)
    append(story.about(session).live, b'{"type":"user","uuid":"' + story.uuid().encode())
    story.restore(session)


def companions(story: Story) -> None:
    """Companion files that are new, that grow, and that are replaced by a longer version."""
    for session in story.some():
        here = story.about(session)
        story.claude_touches(session)
        put(here.companion / "tool-results" / f"{story.uuid()}.txt", story.text())
        first = here.companion / "tool-results" / "toolu_1.txt"
        if first.exists():
            longer = first.read_bytes() + story.text()
            put(first.with_suffix(".new"), longer).rename(first)
        story.agent_says(session)
        story.keep(session)


def doubled(story: Story) -> None:
    """Two live files of one session, of which one goes again."""
    (session,) = story.some(1)
    story.claude_touches(session)
    here = story.about(session)
    other = here.profile / "projects" / folder("/srv/demo/tree") / here.live.name
    other.parent.mkdir(parents=True, exist_ok=True)
    more = story.turn(session)
    append(other, jsonl(*lines_of(here.live), *more))
    story.written[session] += more
    story.keep(session)
    other.unlink()
    story.keep(session)


def truncated(story: Story) -> None:
    """A live transcript and a companion file that are cut short in place, and with them the kept ones: built again
    from the seal, which the power may have to be cut for."""
    (session,) = story.some(1)
    story.keep(session)
    story.claude_hurts(session)
    here = story.about(session)
    size = here.live.stat().st_size
    os.truncate(here.live, story.rng.randrange(size))
    other = here.companion / "tool-results" / "toolu_1.txt"
    if other.exists() and story.rng.random() < 0.5:
        os.truncate(other, other.stat().st_size // 2)
    story.bystander_syncs()
    story.keep(session)
    story.restore(session)


def overwritten(story: Story) -> None:
    """A live transcript that is written over in place by a stub."""
    (session,) = story.some(1)
    story.keep(session)
    story.claude_hurts(session)
    more = story.turn(session)
    story.written[session] += more
    with open(story.about(session).live, "wb") as file:
        file.write(jsonl(*more))
    story.restore(session)
    story.says(session)
    story.keep(session)


def accepted(story: Story) -> None:
    """A live file that somebody shortened, which is made the truth."""
    (session,) = story.some(1)
    lines = lines_of(story.about(session).live)
    story.again(session, lines[: max(2, len(lines) - 3)])
    story.keep(session)
    story.accept(session)
    story.last[session] = uuids_of(story.demand.kept[session])[-1]
    story.says(session)
    story.keep(session)


def copied(story: Story) -> None:
    """A copy under a new id, which goes on."""
    (session,) = story.some(1)
    story.keep(session)
    story.restore(session)
    story.copy(session)


SCENES: tuple[Callable[[Story], None], ...] = (
    turns,
    turns_of_many,
    one_more,
    forked,
    recreated,
    rewritten,
    stub,
    cut_short,
    thinned,
    swept,
    all_swept,
    forgotten,
    torn,
    companions,
    doubled,
    truncated,
    overwritten,
    accepted,
    copied,
    turns,
)
