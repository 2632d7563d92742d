"""Flight: lines that writers still write to files which an exchange of keeper's took from under them, as a chat goes.

It promises that such a line stands in the live file before its inode loses its last name, which is the vault's
(SWAP-2); and that no live file is touched where there is no such line. It refuses to let an inode go that somebody
holds open.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from keeper import claude, files
from keeper.claude import Footprint
from keeper.files import regular
from keeper.transcripts import pair
from keeper.transcripts.chat import Chat
from keeper.transcripts.head import owned_agents
from keeper.transcripts.held import held_of, label_name, leftovers, quiet_now
from keeper.transcripts.mirror import Mirror, parts
from keeper.transcripts.vault import Vault


def land(vault: Vault, chat: Chat, now: float) -> set[str]:
    """Put what is in flight of a chat that goes into its live files; the labels of those that are still written to.
    The chat's lock is held by the caller. A file that does not live has nothing to land in."""
    if not leftovers(chat.swap, tidy=False):
        return set()
    mirror = Mirror(vault, chat, now)
    lives = {label: live for label, live in _lives(vault, mirror) if mirror.left_of(label) and regular(live)}
    return {label for label, live in lives.items() if not _landed(mirror, live, label)}


def _lives(vault: Vault, mirror: Mirror) -> Iterator[tuple[str, str]]:
    """The labels of the chat's transcripts, its subagents' too, with their live files."""
    chat, facts = mirror.chat, vault.facts(mirror.chat)
    profiles = [Path(facts.profile)] if facts else vault.settings.profiles
    if len(profiles) > 1:
        return  # nothing tells whose it is
    for session in dict.fromkeys([*(facts.sessions if facts else ()), *chat.sessions()]):
        survey = claude.survey(profiles[0], only=session)
        footprint = survey.footprints.get(session) or Footprint(session)
        footprint.beside += owned_agents(survey.agents).get(session, [])
        told = facts.sessions.get(session) if facts else None
        lives = sorted(footprint.transcripts, key=lambda path: told is None or path.parent.name != told.project)
        for path in lives[:1]:
            yield f"{session}.jsonl", str(path)
        for part in parts(footprint):
            yield from ((label, live) for live, label in mirror.files(part.live, part.label))


def _landed(mirror: Mirror, live: str, label: str) -> bool:
    """Whether all that was written to inodes of this file stands in it, and nobody writes to one any more."""
    one = replace(mirror.pair(live, label, main="/" not in label), seal="")  # nothing is sealed of what goes
    for turn in range(2):
        names = leftovers(mirror.chat.swap, tidy=False).get(label_name(label), [])
        late, quiet = _state(one.live, one.kept, names)
        if not late or turn:
            break
        if regular(one.kept) is None:
            mirror.folders(label)
            pair.keep(one, pair.Known(), [])
        pair.keep(one, pair.Known(), names)
    return quiet and not late


def _state(live: str, kept: str, names: list[str]) -> tuple[bool, bool]:
    """Whether the inodes under these names have lines that stand nowhere else, and whether all of them are quiet."""
    held = held_of(names)
    try:
        quiet = all(quiet_now(one) for one in held)
        known = {line for path in (live, kept) if os.path.isfile(path) for line in files.read(path).split(b"\n")}
        return any(not known.issuperset(one.data.split(b"\n")[:-1]) for one in held), quiet
    finally:
        for one in held:
            one.close()
