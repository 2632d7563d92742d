"""Verify: whether what is kept is whole, told chat by chat.

It promises to name each fault with its chat, session, file and record, and to read only. It refuses to mend: the
fault's own words say which command does. Every sealed byte is proven, of the kept files and of the seals themselves
(SEAL-4); of what is not sealed yet only structure: that the files which `chat.json` tells of are there, that lines
parse, that chains hang together.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from blake3 import blake3

from keeper import files
from keeper.claude import is_session
from keeper.errors import DiskError, Locked
from keeper.files import regular
from keeper.transcripts.audit import audit
from keeper.transcripts.chat import Chat
from keeper.transcripts.held import leftovers
from keeper.transcripts.records import read, split
from keeper.transcripts.vault import Vault


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is not whole. `record` is a uuid or `line N`, "" where the fault is the file's."""

    chat: str
    session: str
    file: str
    record: str
    kind: str


@dataclass(frozen=True, slots=True)
class Verified:
    """What was looked at and what was found. `faults` prove damage; `notes` are the oddities that Claude wrote.
    `held`: chats that another process held, so that they were not looked at; `unsealed`: those in which something waits
    to be sealed."""

    chats: int
    records: int
    faults: tuple[Fault, ...]
    notes: tuple[Fault, ...]
    held: int = 0
    unsealed: tuple[str, ...] = ()


def slice_of(names: list[str], days: int, now: float) -> list[str]:
    """The chats whose turn it is today, where all come round in so many days."""
    today = int(now // 86400) % days
    return [name for name in names if int(blake3(os.fsencode(name)).hexdigest(4), 16) % days == today]


def verify(
    vault: Vault, names: list[str] | None = None, progress: Callable[[int, int], None] | None = None
) -> Verified:
    """Look through these chats, or all."""
    names = vault.chat_names() if names is None else names
    faults: list[Fault] = []
    notes: list[Fault] = []
    unsealed: dict[str, None] = {}
    records = held_by_others = 0
    rows = {row.chat for row in vault.rows()}
    for count, name in enumerate(names):
        chat = vault.chat(name)
        facts = vault.facts(chat)
        if facts is None:
            faults.append(Fault(name, "", "chat.json", "", "missing or unreadable: the next keep writes it anew"))
        elif name not in rows:
            faults.append(Fault(name, "", "state.db", "", "no row: `keeper reindex` writes it"))
        with ExitStack() as stack:
            try:
                stack.enter_context(vault.lock(name))
            except Locked:
                notes.append(Fault(name, "", "", "", "held by another process: not looked at"))
                held_by_others += 1
                continue
            except DiskError:
                pass  # a vault that cannot be written is read all the same
            for session in facts.sessions if facts else ():
                records += _transcript(chat, session, faults, notes)
            for found in audit(chat) if os.path.isdir(chat.path) else ():
                sessions = list(facts.sessions) if facts else []
                session = _session_of(found.file) or (sessions[0] if len(sessions) == 1 else "")
                fault = Fault(name, session, found.file, found.record, found.kind)
                (faults if found.proven else notes).append(fault)
                if not found.proven:
                    unsealed[name] = None
        faults += _modes(chat)
        held = [left for names_ in leftovers(chat.swap, tidy=False).values() for left in names_]
        if held:
            kind = f"{len(held)} files of an unfinished swap: `keeper keep` finishes it"
            notes.append(Fault(name, "", "swap", "", kind))
        if progress is not None:
            progress(count + 1, len(names))
    for row in vault.missing():
        faults.append(Fault(row.chat, row.session, "", "", "the chat's folder is missing"))
    return Verified(len(names), records, tuple(faults), tuple(notes), held_by_others, tuple(unsealed))


def _transcript(chat: Chat, session: str, faults: list[Fault], notes: list[Fault]) -> int:
    name = f"{session}.jsonl"
    try:
        parts = split(files.read(chat.kept(session)))
    except FileNotFoundError:
        if not os.path.lexists(chat.seal(name)):
            faults.append(Fault(chat.name, session, name, "", "the kept transcript is missing"))
        return 0  # one that has a seal the audit tells of
    known: set[str] = set()
    for number, line in enumerate(parts.lines, 1):
        if not line.strip():
            continue
        record = read(line)
        if record is None:
            kind = "no parser takes this line: carried as it is"
            notes.append(Fault(chat.name, session, name, f"line {number}", kind))
        elif record.uuid is not None:
            if record.parent is not None and record.parent not in known and not record.sidechain:
                notes.append(Fault(chat.name, session, name, record.uuid, "hangs on a parent that is not before it"))
            known.add(record.uuid)
    if parts.tail:
        notes.append(Fault(chat.name, session, name, f"line {len(parts.lines) + 1}", "an unfinished last line"))
    return len(parts.lines)


def _session_of(file: str) -> str:
    """The session that a kept file, or its seal, is of: the first id in its path."""
    parts = file.replace(".jsonl", "/").replace("%2F", "/").split("/")
    return next((part for part in parts if is_session(part)), "")


def _modes(chat: Chat) -> Iterator[Fault]:
    """Folders that others could look into, and anything that is no file or folder."""
    for path, folders, names in os.walk(chat.path):
        if stat.S_IMODE(os.stat(path).st_mode) & 0o077:
            yield Fault(chat.name, "", os.path.relpath(path, chat.path), "", "the folder is open to others: chmod 700")
        for name in [*names, *(f for f in folders if os.path.islink(f"{path}/{f}"))]:
            if regular(f"{path}/{name}") is None:
                where = os.path.relpath(f"{path}/{name}", chat.path)
                yield Fault(chat.name, "", where, "", "no regular file: keeper put none there")
