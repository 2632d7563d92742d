"""Sole: whether the vault alone holds a conversation, told from what the files hold.

It promises that a live file counts for one only where it has all that is kept and all that is sealed: an empty file, a
stub, a tail that Claude wrote anew have not. It refuses to take what it cannot read for a second copy.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from keeper import claude, files
from keeper.errors import KeeperError
from keeper.files import regular
from keeper.transcripts.index import Row
from keeper.transcripts.prove import stands
from keeper.transcripts.vault import Vault
from keeper.transcripts.verdict import Verdict, judge

END = 4096
"""So many bytes are compared where a file is not read whole."""


def is_sole(vault: Vault, row: Row, whole: bool = True) -> bool:
    """Whether Claude has no file of what is kept or sealed of this session, or one that has less. Without `whole` a
    file that is not kept's own inode is judged by the bytes where kept ends."""
    chat = vault.chat(row.chat)
    kept, sealed = chat.kept(row.session), chat.seal(f"{row.session}.jsonl")
    if regular(kept) is None and regular(sealed) is None:
        return False
    if row.mode == "split" or row.state:
        return True
    return not any(has_all(live, kept, sealed, whole) for live in lives_of(vault, row))


def lives_of(vault: Vault, row: Row) -> Iterator[str]:
    """Every live transcript of a session, the one in its own project first, perhaps once more."""
    own = f"{row.profile}/projects/{row.project}/{row.session}.jsonl"
    if row.project and regular(own) is not None:
        yield own
    for profile in [Path(row.profile)] if row.profile else vault.settings.profiles:
        yield from map(str, claude.places(profile, row.session))


def has_all(live: str, kept: str, sealed: str, whole: bool) -> bool:
    """Whether a live transcript has all that is kept and sealed of it."""
    try:
        there, ours = regular(live), regular(kept)
        if there is None:
            return False
        if ours is None:
            return stands(live, sealed)
        if not stands(kept, sealed):
            return False
        if (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino):
            return True
        if there.st_size < ours.st_size:
            return False
        if not whole:
            return _end(live, ours.st_size) == _end(kept, ours.st_size)
        return judge(files.read(kept), files.read(live)).verdict in (Verdict.SAME, Verdict.AHEAD)
    except (OSError, KeeperError):
        return False


def _end(path: str, size: int) -> bytes:
    fd = files.open_read(path)
    try:
        start = max(0, size - END)
        return os.pread(fd, size - start, start)
    finally:
        os.close(fd)
