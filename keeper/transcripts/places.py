"""Places: where a session is kept: in which chats, of which profile, and whether they agree.

Found through the index and by the session's own name, not by a walk (RESTORE-5). It promises that two profiles' chats
are never taken for one, and that several chats of one profile are folded or refused aloud. It refuses what lies under
a tombstone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from keeper import claude, disk, files
from keeper.claude import Footprint
from keeper.errors import DiskError, KeeperError, Locked, NoLinks, NotKept, Refused
from keeper.files import regular
from keeper.transcripts.activity import removed
from keeper.transcripts.chat import Chat, Facts, SessionFacts
from keeper.transcripts.head import read_head
from keeper.transcripts.held import leftovers, make_folder, token
from keeper.transcripts.index import IndexLost, Row
from keeper.transcripts.kept import Pair
from keeper.transcripts.merge import merge
from keeper.transcripts.prove import prove
from keeper.transcripts.records import read, split, uuid_of
from keeper.transcripts.vault import Vault
from keeper.transcripts.verdict import Verdict, judge

ORPHAN_WAIT_S = 0.1
"""So long is a chat waited for that nothing tells of: most likely it is being made."""


@dataclass(frozen=True, slots=True)
class Place:
    chat: Chat
    facts: Facts
    told: SessionFacts


def find(vault: Vault, session: str, profile: Path | None, adopts: bool = False) -> list[Place]:
    """Every chat that keeps the session, of one profile; one that a killed first keep left is told of again where the
    caller `adopts`. Raises NotKept, and Refused where two profiles have it."""
    chats = [row.chat for row in vault.rows(session)]
    found = _all(vault, session, chats, profile) or _all(vault, session, _unindexed(vault, session), profile)
    if not found:
        raise _nothing(vault, session)
    profiles = sorted({place.facts.profile for place in found})
    if len(profiles) > 1:
        raise Refused(
            f"session {session} is kept in {len(profiles)} profiles: {', '.join(profiles)}", "say which with --profile"
        )
    untold = [place.chat.name for place in found if regular(place.chat.facts_file) is None]
    if adopts and untold:
        adopt_left(vault, *untold)
    return found


def _nothing(vault: Vault, session: str) -> NotKept:
    if any(stone.session == session for stone in vault.tombstones()):
        return NotKept(f"session {session} was forgotten", f"`keeper keep --adopt {session}` keeps it again")
    for row in vault.missing():
        if row.session == session:
            folder = vault.chat(row.chat).path
            return NotKept(f"session {session} was kept, and its folder is gone: {folder}", "put it back from a backup")
    if (went := removed(vault, session)) is not None:
        return NotKept(f"session {session} was removed from the vault, by the {went['by']} {went['why']}")
    return NotKept(
        f"nothing is kept of session {session}",
        "`keeper list` shows what is kept; what was never kept and is swept cannot be put back",
    )


def _unindexed(vault: Vault, session: str) -> list[str]:
    """The chats that keep the session and that the index does not know; it is told anew then (RESTORE-17)."""
    known = {row.chat for row in vault.rows()}
    found = []
    for name in vault.chat_names():
        facts = vault.facts(vault.chat(name)) if name not in known else None
        if facts is not None and session in facts.sessions:
            found.append(name)
    if found:
        try:
            vault.reindex()
        except (DiskError, Locked) as error:
            vault.notes.append(f"the index could not be written: {error}")
    return found


def _all(vault: Vault, session: str, chats: list[str], profile: Path | None) -> list[Place]:
    """The places among these chats, and the session's own; of this profile alone, where one is named."""
    rows = vault.rows(session)
    found = []
    for name in dict.fromkeys([*chats, session]):
        chat = vault.chat(name)
        if regular(chat.kept(session)) is None and not _from_seal(vault, chat, session):
            continue
        facts = vault.facts(chat)
        if facts is None or session not in facts.sessions:
            facts = _facts_anew(vault, chat, session, facts, rows)
        if facts is None:
            continue  # left by a killed first keep, of nobody knows which profile
        if vault.forgotten(facts.profile, session) is not None:
            continue  # a forget that was killed: its bytes are about to go
        if profile is None or facts.profile == str(profile):
            found.append(Place(chat, facts, facts.sessions[session]))
    return found


def _from_seal(vault: Vault, chat: Chat, session: str) -> bool:
    """Whether a kept transcript that is gone from the vault could be built again from its seal."""
    label = f"{session}.jsonl"
    if not os.path.lexists(chat.seal(label)):
        return False

    def put_aside(name: str, data: bytes) -> object:
        return vault.put_aside(chat, name, data)

    link = chat.live_link(label)
    with vault.lock(chat.name):
        prove(Pair("", chat.kept(session), chat.swap, label, link, put_aside, seal=chat.seal(label)))
    return regular(chat.kept(session)) is not None


def _facts_anew(vault: Vault, chat: Chat, session: str, facts: Facts | None, rows: list[Row]) -> Facts | None:
    """`chat.json` does not tell of the session: whose it is the rest of it tells, else the row, else what lives; None
    where it is told by nothing. `rows` are the session's."""
    profile = facts.profile if facts else _profile_of(vault, chat, session, rows)
    if profile is None:
        return None
    head = read_head(chat.kept(session), session)
    project = claude.folder_names(head.cwd)[0] if head.cwd else ""
    one = SessionFacts(project, head.cwd, "link", head.born, head.head, entrypoint=head.entrypoint)
    return (facts or Facts(chat.name, profile)).with_session(session, one)


def _profile_of(vault: Vault, chat: Chat, session: str, rows: list[Row]) -> str | None:
    """Whose a kept transcript is of which no `chat.json` tells. Two profiles may have one session id, so it is never
    given to one that has another conversation under it, unless no other profile can be meant."""
    told = [row.profile for row in rows if row.chat == chat.name]
    if told:
        return told[0]
    profiles = [str(profile) for profile in vault.settings.profiles]
    living = {one: paths for one in profiles if (paths := claude.places(Path(one), session))}
    near = {one: _nearness(chat.kept(session), paths) for one, paths in living.items()}
    if any(near.values()):
        return max(near, key=lambda one: near[one])
    if len(profiles) == 1:
        return profiles[0]
    elsewhere = {row.profile for row in rows}
    silent = [one for one, paths in living.items() if not any(_has_records(path) for path in paths)]
    silent = [one for one in silent if one not in elsewhere]
    if len(silent) == 1:
        return silent[0]  # its live file has no conversation any more: the others' have another one
    left = [one for one in profiles if one not in elsewhere]
    # One in which it does not live has it by elimination only where it lives in none.
    return left[0] if left and (not living or (len(left) == 1 and left[0] in living)) else None


def fold(vault: Vault, session: str, found: list[Place], dry_run: bool) -> None:
    """Several chats of one profile keep the session: folded into the first. Raises Refused where they contradict."""
    first, *others = found
    with vault.lock(first.chat.name):
        kept = first.chat.kept(session)
        data = whole = files.read(kept)
        for other in others:
            theirs = files.read(other.chat.kept(session))
            if judge(data, theirs).verdict in (Verdict.DIVERGED, Verdict.UNMERGEABLE):
                names = ", ".join(place.chat.name for place in found)
                raise Refused(
                    f"session {session} is kept in chats that contradict each other: {names}",
                    "look at both with `keeper export --chat`, and forget the one that is wrong",
                )
            data = merge(data, theirs).data
        if data == whole or dry_run:
            return
        make_folder(first.chat.swap)
        new = f"{first.chat.swap}/{token()}.tmp"
        disk.write_new(new, [data])
        disk.touch(new, os.stat(kept).st_mtime_ns)
        # A writer may still hold it: the next keep reads what it wrote, and lets go. On a volume without links kept is
        # a copy of ours, and nobody else writes to it.
        with suppress(NoLinks):
            disk.link(kept, f"{first.chat.swap}/{session}.jsonl~{token()}")
        disk.replace(new, kept)
        disk.sync_dir(first.chat.path)


def seen_from(place: Place, session: str) -> Place:
    """The same chat, seen from another of its sessions."""
    return replace(place, told=place.facts.sessions[session])


def is_anothers(vault: Vault, chat: Chat, profile: str, footprint: Footprint) -> bool:
    """Whether a kept transcript of which no `chat.json` tells is another profile's than the one with this footprint: a
    killed first keep left it, and one session id may be two profiles', even with records in common."""
    kept = chat.kept(footprint.session)
    if regular(kept) is None or not footprint.transcripts:
        return False
    near = _nearness(kept, footprint.transcripts)
    others = [claude.places(one, footprint.session) for one in vault.settings.profiles if str(one) != profile]
    return not near or any(_nearness(kept, paths) > near for paths in others)


def _nearness(kept: str, lives: Sequence[Path]) -> int:
    """How near a kept transcript is to these live files: it is one of them (3), one goes on with it (2), one is of the
    same conversation (1), or none of that."""
    seen = regular(kept)
    there = [(path, live) for path in lives if (live := regular(path)) is not None]
    if seen is None or not there:
        return 0
    if any((live.st_dev, live.st_ino) == (seen.st_dev, seen.st_ino) for _, live in there):
        return 3
    data = files.read(kept)
    return max(_likeness(data, files.read(path)) for path, _ in there)


def _has_records(path: Path) -> bool:
    return any(uuid_of(line) is not None for line in split(files.read(path)).lines)


def _likeness(kept: bytes, live: bytes) -> int:
    """2: the one begins the other; 1: they have a record in common, or the first record of what is live hangs on one of
    kept's; else 0."""
    if live.startswith(kept):
        return 2
    known = {uuid for line in split(kept).lines if (uuid := uuid_of(line)) is not None}
    records = [record for line in split(live).lines if (record := read(line)) is not None and record.uuid]
    return int(bool(records) and (records[0].parent in known or any(record.uuid in known for record in records)))


def adopt_orphans(vault: Vault, among: Sequence[str] | None = None) -> None:
    """Chats (or these `among` them) that a killed first keep left without `chat.json` or row are told of again, from
    what stands in them: else nobody would look at one whose live file is swept. One in which nothing is kept goes."""
    known = vault.rows()
    chats = {row.chat for row in known}
    rows = []
    for name in vault.chat_names() if among is None else among:
        if name in chats:
            continue
        chat = vault.chat(name)
        try:
            with vault.lock(name, ORPHAN_WAIT_S):
                disk.drop(chat.facts_begun)
                facts = told = vault.facts(chat)
                if facts is None and set(chat.names()) <= {"swap"} and not leftovers(chat.swap):
                    disk.remove_tree(chat.path)  # its first keep came to keeping nothing
                    continue
                for session in chat.sessions():
                    whole = regular(chat.kept(session)) is not None
                    if whole and (facts is None or session not in facts.sessions):
                        theirs = [row for row in known if row.session == session]
                        facts = _facts_anew(vault, chat, session, facts, theirs) or facts
                if facts is None or any(vault.forgotten(facts.profile, session) for session in facts.sessions):
                    continue
                if facts != told:
                    vault.write_facts(chat, facts, sync=True)
                sessions = facts.sessions.items()
                rows += [Row.of(name, session, facts.profile, one, one.born) for session, one in sessions]
        except (KeeperError, OSError):
            continue  # somebody makes it just now, or it is gone again
    if rows:
        try:
            vault.index.write(put=rows)
        except (DiskError, IndexLost, Locked) as error:
            vault.notes.append(f"the index could not be written: {error}")


def adopt_left(vault: Vault, *names: str) -> bool:
    """The same of the chats of these names; whether one of them is there."""
    there = [name for name in names if os.path.isdir(vault.chat(name).path)]
    if there:
        adopt_orphans(vault, there)
    return bool(there)


def profiles_of(vault: Vault) -> list[Path]:
    """Every profile that is known and there now."""
    return [profile for profile in known_profiles(vault) if profile.is_dir()]


def known_profiles(
    vault: Vault, rows: Iterable[Row] | None = None, running: Iterable[Path] | None = None
) -> list[Path]:  # fmt: skip
    """Every profile that is known, there now or not: from the settings, from the chats kept so far, from a Claude that
    runs (KEEP-13); by the index's `rows` and the `running` profiles, where the caller has them."""
    named = [Path(row.profile) for row in (vault.rows() if rows is None else rows)]
    running = claude.running_profiles() if running is None else running
    return list(dict.fromkeys([*vault.settings.profiles, *named, *running]))
