"""Forget: every kept byte of a chat goes, and stays gone.

It promises a tombstone on the disk before the first byte goes, so that neither a keep that is under way nor a kill in
the middle brings the chat back (KEEP-11). It refuses to touch the live files: those are Claude's.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from keeper import claude
from keeper.errors import KeeperError, NotKept, Refused
from keeper.transcripts.chat import Chat
from keeper.transcripts.index import Row
from keeper.transcripts.removal import drop_page, drop_rows, size_of, take_out
from keeper.transcripts.vault import Vault

FINISH_WAIT_S = 1.0
"""So long is a chat waited for whose forget is to be brought to its end on the way of another command."""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """A chat that is gone from the vault, with its sessions; `bytes` is the size of what was removed."""

    chat: str
    profile: str
    sessions: tuple[str, ...]
    bytes: int


def forget(vault: Vault, name: str, now: float, profile: str | None = None) -> Forgotten:
    """Forget the chat of that name, or the one that keeps the session of that name.

    Raises NotKept where there is none, Refused where several are meant.
    """
    known = [*vault.rows(), *vault.missing()]
    rows = [row for row in known if name in (row.chat, row.session) and profile in (None, row.profile)]
    chats = sorted({row.chat for row in rows})
    if not chats and os.path.isdir(vault.chat(name).path):
        chats = [name]
    if not chats:
        raise NotKept(f"nothing is kept under {name}", "`keeper list` shows what is kept")
    if len(chats) > 1:
        raise Refused(f"{name} is kept in {len(chats)} chats: {', '.join(chats)}", "name the chat, or say --profile")
    return _forget_chat(vault, chats[0], [row for row in known if row.chat == chats[0]], now)


def _forget_chat(vault: Vault, name: str, rows: list[Row], now: float) -> Forgotten:
    chat = vault.chat(name)
    if os.path.islink(chat.path):
        raise Refused(f"{chat.path} is a link: what it points to is not removed", "put the folder itself there first")
    with vault.lock(name):
        facts = vault.facts(chat)
        sessions = {row.session: row.profile for row in rows}
        if facts is not None:
            sessions |= dict.fromkeys(facts.sessions, facts.profile)
        for session in chat.sessions():
            if session not in sessions:
                # Whose it was is told nowhere any more: it is forgotten in the profile that has it, or in the first.
                profiles = vault.settings.profiles
                sessions[session] = str(next((p for p in profiles if claude.places(p, session)), profiles[0]))
        for session, profile in sessions.items():
            vault.bury(name, session, profile, "forget", now)
        size = size_of(chat.path)
        _remove(vault, chat, list(sessions))
    profile = next(iter(sessions.values()), "")
    return Forgotten(name, profile, tuple(sessions), size)


def finish_forgets(vault: Vault) -> None:
    """A forget that was killed after its tombstone is brought to its end: the bytes go now."""
    for name in {stone.chat for stone in vault.tombstones() if stone.by == "forget"}:
        try:
            path = vault.chat(name).path
            if os.path.isdir(path) and not os.path.islink(path):
                _finish_forget(vault, name)
        except (OSError, KeeperError) as error:
            vault.notes.append(f"the forgotten chat {name} could not be removed, its bytes are still there: {error}")


def _finish_forget(vault: Vault, name: str) -> None:
    chat = vault.chat(name)
    with vault.lock(name, FINISH_WAIT_S):
        facts = vault.facts(chat)
        told = [facts.profile] if facts else [row.profile for row in vault.rows() if row.chat == name]
        sessions = [*(facts.sessions if facts is not None else ()), *chat.sessions()]
        stones = {stone.session for stone in vault.tombstones() if stone.profile in told}
        # A chat of which nothing tells whose it is stays: it may not go by a guess.
        if told and stones.issuperset(sessions):
            _remove(vault, chat, sessions)


def _remove(vault: Vault, chat: Chat, sessions: list[str]) -> None:
    drop_page(vault)
    take_out(vault, chat)
    drop_rows(vault, [(chat.name, session) for session in sessions])
