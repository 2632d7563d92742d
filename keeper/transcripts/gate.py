"""Gate: whether a session is to be kept at all: asked before a keep begins, and again once it holds the lock.

It promises that of a session which is never kept nothing is made, not even a lock's file, and that what was kept of
one which a rule has come to meet goes at once (POLICY-2). It refuses what lies under a tombstone (KEEP-11), and what a
prune would take at once.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from keeper.claude import Footprint
from keeper.transcripts.activity import barred
from keeper.transcripts.chat import Chat
from keeper.transcripts.exclude import Exclusion, only_here
from keeper.transcripts.head import Head
from keeper.transcripts.index import Row
from keeper.transcripts.ledger import Kept
from keeper.transcripts.rules import Rule
from keeper.transcripts.sole import is_sole
from keeper.transcripts.vault import Vault


def left_out(exclusion: Exclusion, profile: str, session: str, live: str, now: float) -> bool:
    """Whether a session that lives and is not kept is not to be: a rule excludes it, or it is past a bound."""
    excluded = exclusion.of_live(profile, Footprint(session, [Path(live)]), None, None) is not None
    return excluded or bool(barred(exclusion.vault, session, [live], now))


class Gate:
    """The gate of one run of keeps. `now` is unix seconds."""

    def __init__(self, vault: Vault, now: float) -> None:
        self.vault = vault
        self.now = now
        self.exclusion = Exclusion(vault)

    def closed(
        self, profile: str, footprint: Footprint, head: Head | None, chat: Chat, tags: Sequence[str], adopt: bool
    ) -> Kept | None:  # fmt: skip
        """The answer for a session that was never kept and is not to be; without a lock."""
        if os.path.isdir(chat.path):
            return None
        rule = self.exclusion.of_live(profile, footprint, head, None, tags)
        if rule is not None:
            return self._excluded(profile, footprint.session, rule, tags)
        if adopt:
            return None
        bound = barred(self.vault, footprint.session, list(map(str, footprint.transcripts)), self.now)
        told = (f"past the bound {bound}: `keeper keep --adopt {footprint.session}` keeps it all the same",)
        return Kept(footprint.session, profile, verdict="pruned", warnings=told) if bound else None

    def barred(
        self, profile: str, footprint: Footprint, head: Head | None, row: Row | None, chat: Chat, tags: Sequence[str],
        adopt: bool,
    ) -> Kept | None:  # fmt: skip
        """The same under the chat's lock, which the caller holds: what is excluded goes; a tombstone is lifted where
        `adopt` says so."""
        session = footprint.session
        rule = self.exclusion.of_live(profile, footprint, head, row, tags)
        if rule is not None:
            return self._expelled(profile, session, chat, row, rule, tags)
        stone = self.vault.forgotten(profile, session)
        if stone is None:
            return None
        if not adopt:
            return Kept(session, profile, stone.chat, verdict="forgotten")
        self.vault.bury(stone.chat, session, profile, "adopt", self.now)
        return None

    def _excluded(
        self, profile: str, session: str, rule: Rule, tags: Sequence[str], action: str = "none"
    ) -> Kept:  # fmt: skip
        self.exclusion.tag(profile, session, tags)
        return Kept(session, profile, verdict="excluded", action=action, warnings=(f"excluded by the rule {rule}",))

    def _expelled(
        self, profile: str, session: str, chat: Chat, row: Row | None, rule: Rule, tags: Sequence[str]
    ) -> Kept:  # fmt: skip
        """What was kept of it goes; a chat that holds other sessions alone stays."""
        facts = self.vault.facts(chat)
        mine = session in facts.sessions if facts else set(chat.sessions()) <= {session}
        if not os.path.isdir(chat.path) or not (mine or row is not None):
            return self._excluded(profile, session, rule, tags)
        rows = [one for one in self.vault.rows() if one.chat == chat.name]
        if others := self.exclusion.others_alone(chat, facts, rows, [session]):
            answer = self._excluded(profile, session, rule, tags)
            return replace(
                answer, chat=chat.name, warnings=(*answer.warnings, f"what was kept stays: {only_here(others)}")
            )
        answer = self._excluded(profile, session, rule, tags, "removed")
        self.exclusion.expel(chat, rule, facts, row is not None and is_sole(self.vault, row))
        return answer
