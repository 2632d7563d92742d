"""Removal: a whole chat leaves the vault, by a rule or by a plan, and may be kept again one day.

It promises that the chat goes from `chats/` in one step, that what a killed run left of it, or a writer still wrote to,
is removed by the next one, and that what went, when, and why stands in `removals.jsonl` before the first byte goes. It
refuses to touch the live files, which are Claude's, but for lines in flight: those land (`flight`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass

from keeper import disk, files
from keeper.errors import DiskError, KeeperError, Locked, Refused
from keeper.transcripts.chat import Chat, Facts
from keeper.transcripts.flight import land
from keeper.transcripts.held import clear, token
from keeper.transcripts.index import IndexLost
from keeper.transcripts.vault import Vault

GOING = "going"
"""The folder of the vault that a chat on its way out is moved to."""
PAGE = "report.html"
"""The report in its usual place, the state folder: it has titles."""
FINISH_WAIT_S = 0.0
"""What another run is removing just now is its own to finish."""


@dataclass(frozen=True, slots=True)
class Removed:
    """A chat that is gone from the vault. `by` is `rule` or `plan`, `why` the rule or the bound, `sole` whether Claude
    had no live file of it, `last` its last activity in unix seconds (0: not asked)."""

    chat: str
    profile: str
    sessions: tuple[str, ...]
    bytes: int
    by: str
    why: str
    sole: bool = False
    last: float = 0.0


def remove(
    vault: Vault, chat: Chat, facts: Facts | None, by: str, why: str, sole: bool = False, last: float = 0.0
) -> Removed:  # fmt: skip
    """Every kept byte of the chat goes; its lock is held by the caller. Raises Refused where its folder is a link."""
    if os.path.islink(chat.path):
        raise Refused(f"{chat.path} is a link: what it points to is not removed", "put the folder itself there first")
    rows = [row for row in vault.rows() if row.chat == chat.name]
    sessions = tuple(dict.fromkeys([*(facts.sessions if facts else ()), *chat.sessions(), *(r.session for r in rows)]))
    profile = facts.profile if facts else next((row.profile for row in rows), "")
    removed = Removed(chat.name, profile, sessions, size_of(chat.path), by, why, sole, last)
    entry = {**asdict(removed), "at": time.time()}
    _make_going(vault)
    vault.removals.append(entry)
    try:
        drop_page(vault)
        take_out(vault, chat)
    except (OSError, KeeperError):
        if os.path.isdir(chat.path):
            with suppress(OSError, KeeperError):  # what was in the way of the removal may be in this one's too
                vault.removals.take_back(entry)
        raise
    drop_rows(vault, ((chat.name, session) for session in sessions))
    return removed


def take_out(vault: Vault, chat: Chat) -> None:
    """The chat leaves `chats/`, and its bytes the vault; its lock is held by the caller. Nothing where a hand has
    removed its folder."""
    if not os.path.lexists(chat.path):
        return
    _make_going(vault)
    place = f"{vault.root}/{GOING}/{chat.name}~{token()}"
    disk.replace(chat.path, place)
    disk.sync_dir(os.path.dirname(chat.path))
    if not _finish(vault, Chat(chat.name, place)):
        vault.notes.append(
            f"chat {chat.name} is removed but for a file that is still written to: when it is not, the next keep puts "
            "what was written into Claude's file, and removes it"
        )


def _make_going(vault: Vault) -> None:
    going = f"{vault.root}/{GOING}"
    if not os.path.isdir(going):
        disk.ensure_dir(going)


def drop_page(vault: Vault) -> None:
    """The report that keeper wrote to its usual place goes: the title of what is about to go stands in it."""
    page = vault.settings.state_home / PAGE
    if os.path.lexists(page):
        try:
            disk.unlink(page)
        except KeeperError as error:
            vault.notes.append(f"{page} has titles of what is gone, and could not be removed: {error}")


def drop_rows(vault: Vault, rows: Iterable[tuple[str, str]]) -> None:
    """The index's rows of what is gone, by chat and session; what cannot be dropped now the next keep drops."""
    try:
        vault.index.write(drop=rows)
    except IndexLost:
        vault.reindex()
    except (DiskError, Locked) as error:
        vault.notes.append(f"the index could not be written: {error}")


def finish_removals(vault: Vault) -> None:
    """What a killed run was removing goes now."""
    try:
        names = os.listdir(f"{vault.root}/{GOING}")
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        chat = name.rpartition("~")[0]
        try:
            with vault.lock(vault.chat(chat).name, FINISH_WAIT_S):
                _finish(vault, Chat(chat, f"{vault.root}/{GOING}/{name}"))
        except (OSError, KeeperError) as error:
            vault.notes.append(
                f"chat {chat} could not be removed, its bytes are still there: {files.told(error, name)}"
            )


def _finish(vault: Vault, chat: Chat) -> bool:
    """Remove what is left of a chat that was moved to `going/`; False where some of it waits for a writer to end."""
    try:
        waits = land(vault, chat, time.time())
    except (OSError, KeeperError) as error:
        # A live file that cannot be written now: what would land in it waits, and all else goes.
        vault.notes.append(f"chat {chat.name}: lines in flight wait: {files.told(error, chat.path)}")
        waits = {f"{session}.jsonl" for session in chat.sessions()}
    if not waits:
        clear(chat.swap)
        disk.remove_tree(chat.path)
        return True
    needed = {os.path.basename(chat.swap), os.path.basename(chat.facts_file), *(one.split("/")[0] for one in waits)}
    for name in chat.names():
        path = f"{chat.path}/{name}"
        if name not in needed:
            disk.remove_tree(path) if os.path.isdir(path) and not os.path.islink(path) else disk.unlink(path)
    return False


def size_of(folder: str) -> int:
    """The bytes of all files below a folder."""
    total = 0
    below = [folder]
    for path in below:
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        below.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
        except FileNotFoundError:
            continue
    return total
