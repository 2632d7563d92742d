"""Branch: writes a copy of a kept conversation under a new id, live and kept, beside the original.

It promises that the original is restored and read first, from whichever chat keeps it (RESTORE-6), that the copy is
its own chat with its lineage, and that what could not be read is set aside there. It refuses an id that exists.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from keeper import claude, disk, files
from keeper.claude import Footprint
from keeper.errors import NotKept, Refused, VaultDamaged
from keeper.transcripts import seal
from keeper.transcripts.chat import Chat, Facts, SessionFacts
from keeper.transcripts.copies import Copy, leaf_below, repaired, through, whole
from keeper.transcripts.held import Site, beside_name, note, unnote
from keeper.transcripts.keep import Keeper
from keeper.transcripts.records import read, split
from keeper.transcripts.restore import Restorer, resume_line


@dataclass(frozen=True, slots=True)
class Made:
    """The copy: its id, where it lives, how to resume it, and what was done to get it."""

    session: str
    source: str
    chat: str
    profile: str
    project: str
    cwd: str
    live: str
    records: int
    resume: str
    deeds: tuple[str, ...]


Recipe = Callable[[Chat, bytes, str], Copy]
"""How a copy is made: from the chat that keeps the session, its kept bytes, and the copy's id."""


def up_to(session: str, record: str) -> Recipe:
    """The conversation up to a record."""
    return lambda chat, data, copy: through(data, record, session, copy)


def branch_of(session: str, record: str) -> Recipe:
    """The branch that the record is on, to its newest record."""
    return lambda chat, data, copy: through(data, leaf_below(data, record, session), session, copy)


def mended(session: str) -> Recipe:
    """All that reads of it, such that every CLI resumes it."""
    return lambda chat, data, copy: repaired(data, session, copy)


def as_of(session: str, time_ns: int) -> Recipe:
    """The conversation as it was sealed at that time."""
    return lambda chat, data, copy: whole(
        sealed_at(chat, session, time_ns), session, copy, f"as sealed at {when(time_ns)}"
    )


def sealed_at(chat: Chat, session: str, time_ns: int) -> bytes:
    """The bytes of a session as they were sealed at that time. Raises NotKept, and VaultDamaged where they do not
    prove out."""
    path = chat.seal(f"{session}.jsonl")
    sealed = seal.read(path, until_ns=time_ns)
    if sealed.holes is not None or (sealed.last is None and sealed.bad and not sealed.torn):
        raise VaultDamaged(
            f"the seal {path} does not prove out for that time", f"`keeper verify {session}` says what is whole"
        )
    if not sealed.content:
        first = seal.first_time(path)
        since = f"its seal begins at {when(first)}" if first else "it is not sealed yet: `keeper keep` seals it"
        raise NotKept(f"nothing of session {session} was sealed by {when(time_ns)}", since)
    return bytes(sealed.content)


def when(time_ns: int) -> str:
    """The time as a person can say it again: to the microsecond, and not before it."""
    micros = -(-time_ns // 1000)
    return (datetime.fromtimestamp(0, UTC) + timedelta(microseconds=micros)).isoformat()


def write_copy(restorer: Restorer, session: str, copy: str, recipe: Recipe, dry_run: bool = False) -> Made:
    """A copy under the id `copy`; a dry run says what it would be. Raises NotKept, Refused, DiskError."""
    claude.check_session(copy)
    source = restorer.session(session)
    vault = restorer.vault
    data = files.read(vault.chat(source.chat).kept(session))
    made = recipe(vault.chat(source.chat), data, copy)
    live = f"{os.path.dirname(source.live)}/{copy}.jsonl"
    resume = resume_line(vault.settings, copy, source.cwd, Path(source.profile))
    records = made.data.count(b"\n")
    answer = Made(
        copy, session, copy, source.profile, source.project, source.cwd, live, records, resume, made.deeds
    )  # fmt: skip
    if dry_run:
        return answer
    if all((one := read(line)) is None or one.type == "summary" for line in split(made.data).lines):
        raise Refused(
            f"nothing in it makes a conversation: no copy of session {session} was made",
            "look at it with `keeper export`",
        )
    site = Site(live, "", vault.chat(source.chat).swap, "", linked=False)
    tmp = beside_name(site)
    with vault.lock(source.chat):
        note(site, tmp)  # under no label: a copy that a killed run began is removed by the next
        try:
            disk.write_new(tmp, [made.data])
            disk.move(tmp, live)
        except FileExistsError as error:
            raise Refused(
                f"{live} is there already: it was left as it is", "run it again: it takes another id"
            ) from error
        finally:
            disk.unlink(tmp)
            unnote(site, tmp)
    disk.sync_dir(os.path.dirname(live))
    keeper = Keeper(vault, restorer.now_ns / 1e9)
    profile = Path(source.profile)
    kept = keeper.footprint(profile, Footprint(copy, [Path(live)]), None)
    keeper.finish()
    chat = vault.chat(kept.chat if kept is not None else copy)
    with vault.lock(chat.name):
        facts = vault.facts(chat)
        if facts is None or copy not in facts.sessions:
            facts = Facts(chat.name, source.profile).with_session(
                copy, SessionFacts(source.project, source.cwd, "link")
            )
        told = replace(facts.sessions[copy], forked_from=session, cwd=source.cwd or facts.sessions[copy].cwd)
        vault.write_facts(chat, facts.with_session(copy, told), sync=True)
        for line in made.set_apart:
            vault.put_aside(chat, "unreadable", line)
    return replace(answer, chat=chat.name)
