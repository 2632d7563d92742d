"""Anew: a session that lives and that a bound keeps out of the vault is kept after all, as it is about to be resumed.

It promises that what a plan removed is put back for a resume like any other while Claude has its file (RESTORE-2): a
resume is use. It refuses what was forgotten, and to write anything where the caller only asks.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from keeper import claude
from keeper.errors import NotKept
from keeper.transcripts import places
from keeper.transcripts.activity import barred, removed
from keeper.transcripts.keep import Options, keep_session
from keeper.transcripts.places import Place
from keeper.transcripts.vault import Vault


def find_or_keep(vault: Vault, session: str, profile: Path | None, now: float, dry_run: bool) -> list[Place]:
    """Where the session is kept, as `places.find` says, after what a bound keeps out was kept. Raises what that raises,
    and what a keep raises."""
    try:
        return places.find(vault, session, profile, adopts=not dry_run)
    except NotKept:
        if dry_run or not _kept_after_all(vault, session, profile, now):
            raise
    return places.find(vault, session, profile)


def _kept_after_all(vault: Vault, session: str, profile: Path | None, now: float) -> bool:
    went = removed(vault, session)
    by_plan = went is not None and went.get("by") == "plan"
    if not by_plan and not vault.settings.keep_for_s and not vault.settings.max_size_bytes:
        return False
    kept = False
    for one in [profile] if profile else places.profiles_of(vault):
        lives = list(map(str, claude.places(one, session)))
        out = by_plan or barred(vault, session, lives, now)
        if lives and out and vault.forgotten(str(one), session) is None:
            with suppress(NotKept):  # noise is no conversation
                keep_session(vault, session, now, Options(adopt=True), one)
                kept = True
    return kept
