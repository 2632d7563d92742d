"""Lineage: which conversation a fork was taken from, told by the record that both begin with.

A fork copies the chain with the records' uuids, so two sessions with one first uuid are a conversation and its fork.
It promises the parent that shares the most records with the fork and was there before it. It refuses to guess across
profiles, or where the first record is nobody else's.
"""

from __future__ import annotations

from keeper import files
from keeper.transcripts.head import Head
from keeper.transcripts.index import Row
from keeper.transcripts.records import split, uuid_of
from keeper.transcripts.vault import Vault


class Family:
    """The heads that are known: those in the index, and those met in this run."""

    def __init__(self, vault: Vault) -> None:
        self.vault = vault
        self.met: dict[str, list[Row]] = {}
        self.known: dict[str, list[Row]] | None = None

    def place(self, profile: str, session: str, chat: str, head: Head, path: str) -> tuple[str | None, list[Row]]:
        """The parent of a session that is kept for the first time, and the kept forks whose parent it is."""
        if not head.head:
            return None, []
        others = [row for row in self._relatives(head.head) if row.profile == profile and row.session != session]
        self.met.setdefault(head.head, []).append(
            Row(chat, session, profile, "", "", "", "", head.head, head.born, 0.0)
        )
        if not others:
            return None, []
        elder = [row for row in others if row.born <= head.born]
        younger = [row for row in others if row.born > head.born]
        if not elder:
            return None, younger
        mine = _uuids(path)
        shared = {row: len(mine & _uuids(self.vault.chat(row.chat).kept(row.session))) for row in elder}
        return max(elder, key=lambda row: (shared[row], -row.born)).session, []

    def _relatives(self, head: str) -> list[Row]:
        if self.known is None:
            # One query for all of a first pass: most conversations share their first record with nobody.
            self.known = {}
            for row in self.vault.rows():
                self.known.setdefault(row.head, []).append(row)
        return [*self.known.get(head, []), *self.met.get(head, [])]


def _uuids(path: str) -> set[str]:
    try:
        lines = split(files.read(path)).lines
    except FileNotFoundError:
        return set()
    return {uuid for line in lines if (uuid := uuid_of(line)) is not None}
