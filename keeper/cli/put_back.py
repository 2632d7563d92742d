"""Put back: `keeper restore SESSION…` with nothing else said but `--json`: the deed and its answer.

This form is what a person or a wrapper waits for before a resume, so it is reached without click too; the command line
comes here with its further options. It refuses to load what only those need.
"""

from __future__ import annotations

import sys
import time
from dataclasses import asdict

from keeper.cli import out
from keeper.cli.answers import say
from keeper.doors.cli_version import installed_version
from keeper.errors import KeeperError, NotKept
from keeper.transcripts.restore import Restored, Restorer, Want, failed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def put_back(sessions: Sequence[str], as_json: bool) -> int:
    """Put back these sessions, wherever they are kept; the exit code."""
    vault = out.open_vault()
    return answer(Restorer(vault, time.time_ns(), Want(cli=installed_version)), sessions, as_json)


def answer(restorer: Restorer, sessions: Sequence[str], as_json: bool) -> int:
    """Put back these sessions and tell it; the exit code."""
    answers = [_one(restorer, session, alone=len(sessions) == 1) for session in sessions]
    out.notes(restorer.vault)
    if as_json:
        out.say_json(asdict(answers[0]) if len(answers) == 1 else {"sessions": [asdict(one) for one in answers]})
    else:
        for one in answers:
            say(asdict(one))
            _offer(restorer, one)
    if len(answers) == 1:
        return answers[0].exit_code
    return 3 if any(one.error for one in answers) else 0


def _one(restorer: Restorer, session: str, alone: bool) -> Restored:
    """One of several that fails is told in its answer, and stops no other."""
    try:
        return restorer.session(session)
    except KeeperError as error:
        if isinstance(error, NotKept):
            from keeper.doors.resume import prompts_offered  # only where the session is nowhere

            profiles = [restorer.want.profile] if restorer.want.profile else restorer.vault.settings.profiles
            error.cure = prompts_offered(profiles, session) or error.cure
        if alone:
            raise
        return failed(session, error)


def _offer(restorer: Restorer, answer: Restored) -> None:
    """On a terminal the branch that a resume will not read is offered at once (RESTORE-14)."""
    if not answer.branch or restorer.want.dry_run or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return
    import click

    from keeper.cli.ends import INTERRUPTED
    from keeper.cli.restore import copy

    try:
        wanted = click.confirm("Make that branch a session of its own now?", default=False)
    except click.Abort:
        sys.exit(INTERRUPTED)
    if wanted:
        copy(restorer, answer.session, "--branch", answer.branch, dry_run=False, as_json=False)
