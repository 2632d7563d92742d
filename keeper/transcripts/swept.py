"""Swept: seals what a killed run left unsealed of chats of which nothing lives any more, so that no keep comes by.

It promises that a chat in which all was found sealed costs one stat from then on: its row tells. It refuses to mend
what is damaged, and to wait for a chat that another holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from keeper.errors import KeeperError
from keeper.files import regular
from keeper.transcripts.audit import kept_labels
from keeper.transcripts.index import Row
from keeper.transcripts.kept import Change
from keeper.transcripts.sealer import Behind, Sealer
from keeper.transcripts.vault import Vault
from keeper.transcripts.versions import Versions


def look(vault: Vault, rows: Iterable[Row], behind: Behind, now: float) -> list[Row]:
    """What of these swept sessions' chats is to be sealed joins `behind`; the rows of those in which all is, to be
    put."""
    sealed = []
    for row in rows:
        seen = regular(vault.chat(row.chat).kept(row.session))
        if seen is None or (row.live_inode, row.kept_size) == (0, seen.st_size):
            continue
        lacks = _unsealed(vault, row.chat, now)
        if lacks:
            behind[row.chat] = {**lacks, **behind.get(row.chat, {})}
        elif lacks is not None:
            sealed.append(replace(row, live_inode=0, live_size=0, kept_size=seen.st_size))
    return sealed


def _unsealed(vault: Vault, name: str, now: float) -> dict[str, Change] | None:
    """What is not sealed in a chat; None where another holds it, or it does not read. Nothing is written."""
    chat = vault.chat(name)
    sealer = Sealer(chat, now, lambda label, data: None, later=True)
    try:
        with vault.lock(name, 0):
            versions = Versions(chat.versions)
            whole = versions.bad is None or versions.bad.kind == "torn"
            for label in kept_labels(chat):
                seen = regular(f"{chat.path}/{label}")
                if label.endswith(".jsonl"):
                    sealer.transcript(label, Change.GREW)
                elif whole and seen is not None and not versions.knows(label, seen.st_size, seen.st_mtime_ns):
                    sealer.behind[label] = Change.GREW
    except (OSError, KeeperError):
        return None
    return sealer.behind
