"""Memory: what the rescue of resident chats knows from one look to the next, and what of it the vault must know too.

It promises that what a killed run had in hand is found by the next one: the new times that are about to be given stand
in the vault. It refuses to remember a storm once it is over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from keeper import claude, disk, files
from keeper.errors import KeeperError
from keeper.files import regular
from keeper.retention import Retention, retention
from keeper.transcripts.index import Row
from keeper.transcripts.policy import EXCLUDE, RESIDENT, policy_of
from keeper.transcripts.vault import Vault

PLAN = "resident.json"
"""The new times that are about to be given: what a killed run had in hand."""
STORM_S = 5.0
"""A sweep takes its files one after the other: what came back so lately has the place that it had before, and what
goes of it now the same sweep took."""

Key = tuple[str, str]
Told = tuple[tuple[tuple[int, int], str], str, Mapping[str, float]]
"""Of a `chat.json`: what tells it from another, the policy, and which sessions were deleted, and when."""
NONE: Mapping[str, float] = {}


@dataclass(slots=True)
class Memory:
    """What is remembered from one look to the next. Of a storm: what got new times lately, each with the time that it
    had and the one that it got, what came back (`returned`), and which others a rule meets (`met`). `plan` is what the
    vault says is in hand: new times by profile and session."""

    clock: Callable[[], float] = time.monotonic
    told: dict[str, Told] = field(default_factory=dict)
    periods: dict[str, Retention] = field(default_factory=dict)
    excluded: set[Key] = field(default_factory=set)
    resident: set[Key] = field(default_factory=set)
    seen: dict[str, dict[str, int]] = field(default_factory=dict)
    storm: dict[Key, tuple[int, int]] = field(default_factory=dict)
    storm_at: float = float("-inf")
    returned: set[Key] = field(default_factory=set)
    met: dict[Key, bool] = field(default_factory=dict)
    plan: dict[str, dict[str, int]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    back: int = 0

    def storms(self) -> bool:
        """Whether what went now one sweep may have taken with what came back."""
        return self.clock() - self.storm_at <= STORM_S

    def policy(self, vault: Vault, row: Row) -> str:
        """The policy of a row's chat; its facts are read again where the file is another one."""
        chat = vault.chat(row.chat)
        seen = regular(chat.facts_file)
        mark = (seen.st_ino, seen.st_mtime_ns) if seen else (0, 0), vault.settings.policy
        known = self.told.get(row.chat)
        if known is None or known[0] != mark:
            facts = vault.facts(chat)
            sessions = facts.sessions.items() if facts else ()
            deleted = {session: told.deleted for session, told in sessions if told.deleted}
            known = self.told[row.chat] = mark, policy_of(facts, vault.settings.policy), deleted or NONE
        found = known[1]
        for policy, those in ((EXCLUDE, self.excluded), (RESIDENT, self.resident)):
            (those.add if found == policy else those.discard)((row.profile, row.session))
        return found

    def period(self, vault: Vault, profile: str, anew: bool = False) -> Retention:
        """After how long a sweep takes a file of this profile, at the worst."""
        if anew or profile not in self.periods:
            cwds = [row.cwd for row in vault.rows() if row.profile == profile and row.cwd]
            cwds += [one.cwd for one in claude.running() if str(one.profile) == profile]
            self.periods[profile] = retention(Path(profile), cwds)
        return self.periods[profile]

    def load(self, vault: Vault) -> None:
        """What a killed run had in hand."""
        with suppress(OSError, ValueError, KeeperError):
            found = orjson.loads(files.read(vault.root / PLAN))
            self.plan = {str(profile): dict(times) for profile, times in dict(found).items()}

    def keep_plan(self, vault: Vault, profile: str, times: Mapping[str, int]) -> None:
        """These are in hand in that profile."""
        before = dict(self.plan)
        self.plan.pop(profile, None)
        if times:
            self.plan[profile] = dict(times)
        if self.plan != before:
            with suppress(OSError, KeeperError):  # that it cannot be noted is no reason to leave them swept
                if self.plan:
                    disk.write_file(vault.root / PLAN, orjson.dumps(self.plan), sync=False)
                else:
                    disk.unlink(vault.root / PLAN)
