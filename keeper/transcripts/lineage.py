"""Lineage: which conversation a fork was taken from, told by the record that both begin with.

A fork copies the chain with the records' uuids, so sessions with one first uuid are a conversation and its forks. It
promises for each the one that was there before it and shares the most records with it, whatever the order in which
they were kept. It refuses to guess across profiles, and to overrule what the records themselves say.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace

from keeper import files
from keeper.errors import DiskError, KeeperError, Locked
from keeper.transcripts.chat import SessionFacts
from keeper.transcripts.head import read_head
from keeper.transcripts.index import Row
from keeper.transcripts.records import split, uuid_of
from keeper.transcripts.vault import RELATIVE_WAIT_S, Vault

FEW = 16
"""For so many families the index is asked for each; for more it is read whole."""


class Family:
    """The sessions that were kept for the first time in this run, and their relatives."""

    def __init__(self, vault: Vault) -> None:
        self.vault = vault
        self.new: list[Row] = []

    def met(self, row: Row) -> None:
        """A session was kept for the first time."""
        if row.head:
            self.new.append(row)

    def tell(self) -> list[str]:
        """Tell each member of a touched family its parent, where that changed; the files and folders written."""
        if not self.new:
            return []
        families: dict[tuple[str, str], dict[str, Row]] = {(row.profile, row.head): {} for row in self.new}
        few = len(families) <= FEW
        asked = [row for family in families for row in self.vault.relatives(*family)] if few else self.vault.rows()
        for row in [*asked, *self.new]:
            if (row.profile, row.head) in families:
                families[(row.profile, row.head)][row.session] = row
        self.new.clear()
        written: list[str] = []
        for members in families.values():
            if len(members) > 1:
                written += self._tell_family(list(members.values()))
        return written

    def _tell_family(self, members: list[Row]) -> list[str]:
        uuids = {row.session: _uuids(self.vault.chat(row.chat).kept(row.session)) for row in members}
        said = {row.session: self._copied_from(row) for row in members}
        written = []
        for row in members:
            # What was copied from this one, as its records say, is not its parent, whatever the births say.
            others = [one for one in members if row.session not in _line(one.session, said)]
            parent = said[row.session] or _parent(row, others, uuids)
            try:
                written += self._tell_one(row, parent, said[row.session] is None, uuids)
            except (Locked, DiskError) as error:
                self.vault.notes.append(f"session {row.session} is kept, but its lineage could not be told: {error}")
        return written

    def _tell_one(self, row: Row, parent: str | None, guessed: bool, members: Container[str]) -> list[str]:
        """Tell one its parent. One that was told before and is kept no more (forgotten) stays told, unless the records
        say otherwise."""
        chat = self.vault.chat(row.chat)
        with self.vault.lock(chat.name, RELATIVE_WAIT_S):
            facts = self.vault.facts(chat)
            told = facts.sessions.get(row.session) if facts else None
            if facts is None or told is None or told.forked_from == parent:
                return []
            if guessed and told.forked_from is not None and told.forked_from not in members:
                return []
            told = replace(told, forked_from=parent)
            self.vault.write_facts(chat, facts.with_session(row.session, told), sync=False)
        return [chat.facts_file, chat.path]

    def _copied_from(self, row: Row) -> str | None:
        try:
            return read_head(self.vault.chat(row.chat).kept(row.session), row.session).copied_from
        except (OSError, KeeperError):
            return None  # one that cannot be read tells nothing, and keeps nobody else from being told


def tell_cleared(vault: Vault, chat: str, session: str, parent: str) -> None:
    """Tell a session which one was cleared for it, durable; what is told already stays. Raises Locked, DiskError."""
    with vault.lock(chat):
        facts = vault.facts(vault.chat(chat))
        told = facts.sessions.get(session) if facts else None
        if facts is not None and told is not None and told.cleared_from is None:
            told = replace(told, cleared_from=parent)
            vault.write_facts(vault.chat(chat), facts.with_session(session, told), sync=True)


def _line(session: str, said: dict[str, str | None]) -> list[str]:
    """A session and those that it was copied from, one after the other, as far as records say so."""
    line = [session]
    while (parent := said.get(line[-1])) is not None and parent not in line:
        line.append(parent)
    return line


def _parent(row: Row, members: list[Row], uuids: dict[str, set[str]]) -> str | None:
    """The elder that shares the most records; of several, the oldest."""
    elder = [one for one in members if (one.born, one.session) < (row.born, row.session)]  # one tick of a clock: by id
    if not elder:
        return None
    return max(elder, key=lambda one: (len(uuids[row.session] & uuids[one.session]), -one.born)).session


def _uuids(path: str) -> set[str]:
    try:
        lines = split(files.read(path)).lines
    except (OSError, KeeperError):
        return set()
    return {uuid for line in lines if (uuid := uuid_of(line)) is not None}


@dataclass(frozen=True, slots=True)
class Relative:
    """A conversation that another came from, or that came from it. `how`: forked, cleared, continued; `after`: it is
    the later of the two. `steps` is how many lie between, 1 for the next."""

    session: str
    how: str
    after: bool
    steps: int = 1


def relatives(vault: Vault, session: str, profile: str) -> list[Relative]:
    """Where a conversation came from, the nearest first, and what came from it next; kept or not."""
    before: dict[str, list[tuple[str, str]]] = {}
    for facts in filter(None, map(vault.facts, map(vault.chat, vault.chat_names()))):
        if facts.profile == profile:
            for name, told in facts.sessions.items():
                before.setdefault(name, []).extend(_came_from(told))
    found: dict[str, Relative] = {}
    waiting = [(session, 0)]
    for name, steps in waiting:
        for parent, how in before.get(name, ()):
            if parent not in found and parent != session:
                found[parent] = Relative(parent, how, False, steps + 1)
                waiting.append((parent, steps + 1))
    later = {name: how for name, parents in before.items() for parent, how in parents if parent == session}
    return [*found.values(), *(Relative(name, how, True) for name, how in sorted(later.items()) if name not in found)]


def _came_from(told: SessionFacts) -> list[tuple[str, str]]:
    ways = ((told.forked_from, "forked"), (told.cleared_from, "cleared"), (told.continues, "continued"))
    return [(parent, how) for parent, how in ways if parent]
