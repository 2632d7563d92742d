"""Durable: what a run of keeps changed is made to survive a power cut, and told to the index after that.

It promises the order: the folders, then the rows, then the lineage, which is no condition of being kept. It refuses to
fail where all is kept already and only the telling is not: that is a note.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

from keeper import disk
from keeper.errors import DiskError, KeeperError, Locked
from keeper.transcripts.index import IndexLost, Row
from keeper.transcripts.lineage import Family
from keeper.transcripts.vault import Vault

MANY_SYNCS = 16
"""In a pass over a profile, more files than this are made durable by one barrier for the volume; one session's are
made so each by itself, since the barrier waits for everybody's."""


def sync(vault: Vault, paths: Collection[str], whole: bool) -> None:
    """These files and folders reach the disk; `whole`: of a pass over a profile. Raises DiskError."""
    if whole and len(paths) > MANY_SYNCS:
        disk.sync_volume(vault.root)
        return
    for path in paths:
        try:
            if os.path.isdir(path):
                disk.sync_dir(path)
            else:
                disk.sync_file(path)
        except FileNotFoundError:
            continue  # gone again since: nothing of it is promised


def write_rows(vault: Vault, rows: Sequence[Row]) -> None:
    """Tell the index; that it could not be told is noted."""
    if not rows:
        return
    try:
        try:
            vault.index.write(put=rows)
        except IndexLost:
            vault.reindex()
            vault.index.write(put=rows)
        went = [row for row in rows if _went(vault, row)]
        if went:
            vault.index.write(drop=[(row.chat, row.session) for row in went])
    except (DiskError, IndexLost, Locked) as error:
        # All is kept and durable; the rows can be told again from the folders.
        vault.notes.append(f"kept, but the index could not be written: {error}")


def _went(vault: Vault, row: Row) -> bool:
    """Whether its chat was removed since, by a rule, a plan or a forget; what a hand removed is seen to by settling."""
    if os.path.isdir(vault.chat(row.chat).path):
        return False
    return vault.went(row) or vault.forgotten(row.profile, row.session) is not None


def tell_families(vault: Vault, family: Family) -> None:
    """Lineage comes last, since it is no condition of being kept; what fails of it the next new relative tells."""
    try:
        written = family.tell()
    except (OSError, KeeperError, UnicodeError) as error:
        vault.notes.append(f"kept, but not all lineage could be told: {error}")
        return
    for path in written:
        (disk.sync_dir if os.path.isdir(path) else disk.sync_file)(path)
