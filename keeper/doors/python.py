"""The Python door: `keeper.keep(session)` and `keeper.restore(session)` for a host that starts Claude itself.

It promises the command line's own answers as values, and its failures as the classes of `keeper.errors`. It refuses
to guess an environment: what is not given is read from this process's, as the command line would.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from keeper import claude, settings
from keeper.doors.cli_version import installed_version
from keeper.transcripts.keep import Options
from keeper.transcripts.keep import keep_session as _keep_session
from keeper.transcripts.ledger import Kept
from keeper.transcripts.restore import Restored, Restorer, Want
from keeper.transcripts.vault import Vault


def keep(
    session: str,
    profile: Path | str | None = None,
    chat: str | None = None,
    tags: tuple[str, ...] = (),
    environ: Mapping[str, str] | None = None,
) -> list[Kept]:
    """Keep one session now, durable when this returns: an answer for each profile that has it.

    `environ` is the one that Claude is given, where it is not this process's. Raises NotKept where no profile has
    the session, Refused where `session` is no session id, and what the disk says (DiskError).
    """
    values = settings.load(os.environ if environ is None else environ)
    named = claude.effective(profile) if profile is not None else None
    with Vault.open(values) as vault:
        return _keep_session(vault, session, time.time(), Options(chat=chat, tags=tags), named)


def restore(
    session: str,
    profile: Path | str | None = None,
    cwd: Path | str | None = None,
    full: bool = False,
    environ: Mapping[str, str] | None = None,
) -> Restored:
    """Put back one session, to be called before Claude is started on it.

    Raises NotKept where nothing is kept of it, Refused where it cannot be told which is meant, DiskError.
    """
    values = settings.load(os.environ if environ is None else environ)
    place = str(cwd) if cwd is not None else None
    want = Want(claude.effective(profile) if profile is not None else None, place, full, cli=installed_version)
    with Vault.open(values, make=False) as vault:
        return Restorer(vault, time.time_ns(), want).session(session)
