"""Prune: which chats are past the bounds that a person set, as a plan first; carried out when a person says so.

`keep_for` bounds the age of a chat, counted from its last record; `max_size` what the vault takes of its volume, the
longest unused first. It promises that nothing goes which is not in the plan that was shown, that a sole copy goes by a
word of its own (POLICY-3), and that what went stands in `removals.jsonl`. It refuses to prune by itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from keeper import files
from keeper.errors import KeeperError
from keeper.settings import Settings
from keeper.transcripts.activity import KEEP_FOR, MAX_SIZE
from keeper.transcripts.removal import Removed, remove
from keeper.transcripts.usage import Living, Usage, usage, usage_of
from keeper.transcripts.vault import Vault

Count = Callable[[int, int], None]
IN_USE_S = 86_400.0
"""What was used within so long goes by no bound on the size."""


@dataclass(frozen=True, slots=True)
class Item:
    """A chat that is to go. `why` is the bound, `frees` bytes that no link shares, `sole` whether Claude has not all
    of it, `sole_bytes` what of it Claude has no more, `last` its last activity in unix seconds."""

    chat: str
    profile: str
    sessions: tuple[str, ...]
    cwd: str
    why: str
    last: float
    frees: int
    sole: bool
    sole_bytes: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to go, the longest unused first; what the vault takes now, what it takes after that, in bytes."""

    items: tuple[Item, ...]
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was done: the chats that went, and those of the plan that stayed, each with the reason."""

    removed: tuple[Removed, ...]
    stayed: tuple[tuple[str, str], ...]


def plan(vault: Vault, now: float, progress: Count | None = None) -> Plan:
    """What the bounds of the settings ask for; nothing where none is set."""
    settings = vault.settings
    if not settings.keep_for_s and not settings.max_size_bytes:
        return Plan((), 0, 0)
    return plan_of(usage(vault, now, progress), settings, now)


def plan_of(chats: list[Usage], settings: Settings, now: float) -> Plan:
    """The plan for these chats. Pure."""
    before = after = sum(one.frees for one in chats)
    items = []
    for one in sorted((one for one in chats if one.last), key=lambda one: (one.last, one.chat)):
        why = ""
        if settings.keep_for_s and now - one.last > settings.keep_for_s:
            why = KEEP_FOR
        elif settings.max_size_bytes and after > settings.max_size_bytes and now - one.last > IN_USE_S and one.frees:
            why = MAX_SIZE
        if why:
            after -= one.frees
            sole = one.lacking or one.sole > 0
            items.append(
                Item(one.chat, one.profile, one.sessions, one.cwd, why, one.last, one.frees, sole, one.sole)
            )  # fmt: skip
    return Plan(tuple(items), before, after)


def carry_out(vault: Vault, asked: Plan, sole_copies: bool, now: float, progress: Count | None = None) -> Pruned:
    """Do what the plan says; sole copies only where that was said. What has changed since the plan was made stays."""
    removed, stayed, living = [], [], Living(vault)
    for count, item in enumerate(asked.items):
        try:
            gone = _prune(vault, item, sole_copies, now, living)
        except (OSError, KeeperError) as error:
            stayed.append((item.chat, files.told(error, vault.root).message))
        else:
            stayed.append((item.chat, gone)) if isinstance(gone, str) else removed.append(gone)
        if progress is not None:
            progress(count + 1, len(asked.items))
    return Pruned(tuple(removed), tuple(stayed))


def _prune(vault: Vault, item: Item, sole_copies: bool, now: float, living: Living) -> Removed | str:
    if item.sole and not sole_copies:
        return "a sole copy"
    chat = vault.chat(item.chat)
    with vault.lock(item.chat):
        if not os.path.isdir(chat.path):
            return "gone already"
        facts = vault.facts(chat)
        rows = [row for row in vault.rows() if row.chat == item.chat]
        one = usage_of(vault, item.chat, rows, living, now, whole=True)
        if one is None or one.last != item.last:
            return "used since the plan was made"
        sole = item.sole or one.lacking or one.sole > 0
        if sole and not sole_copies:
            return "a sole copy since the plan was made"
        return remove(vault, chat, facts, "plan", item.why, sole, item.last)
