"""Glance: which sessions of a profile need a keep, told from one listing and the index alone.

It promises to name every session whose transcript is new, another inode, or (where kept is a copy) of another size
than the last keep saw. It refuses to be the truth: what changed within a companion, or was cut in place, the next
reconcile sees.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from keeper import claude
from keeper.files import regular
from keeper.transcripts.index import Row
from keeper.transcripts.vault import Vault


@dataclass(frozen=True, slots=True)
class Live:
    """A live transcript as it was seen: its path, size in bytes, mtime in ns."""

    path: str
    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Glance:
    """`unkept` need a keep; `live` is every live transcript that was met, by session."""

    unkept: tuple[str, ...]
    live: dict[str, Live]


def glance(vault: Vault, profile: Path, rows: Iterable[Row]) -> Glance:
    """Look over a profile; `rows` are the index's, of any profile."""
    known: dict[str, Row] = {}
    for row in rows:
        if row.profile == str(profile):
            known.setdefault(row.session, row)
    unkept: list[str] = []
    live: dict[str, Live] = {}
    for project in claude.projects(profile):
        try:
            entries = list(os.scandir(project.path))
        except OSError:
            continue  # the reconcile tells of it
        for entry in entries:
            session = entry.name[:36]
            if entry.name[36:] != ".jsonl" or not claude.is_session(session):
                continue
            try:
                seen = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            if session in live or not _is_kept(vault, known.get(session), session, seen):
                unkept.append(session)
            live[session] = Live(entry.path, seen.st_size, seen.st_mtime_ns)
    return Glance(tuple(dict.fromkeys(unkept)), live)


def _is_kept(vault: Vault, row: Row | None, session: str, seen: os.stat_result) -> bool:
    if row is None:
        return False
    if row.live_inode:
        return (row.live_inode, row.live_size) == (seen.st_ino, seen.st_size)
    kept = regular(f"{vault.root}/chats/{row.chat}/{session}.jsonl")
    return kept is not None and (kept.st_dev, kept.st_ino) == (seen.st_dev, seen.st_ino)
