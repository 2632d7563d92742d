"""`keeper restore`: the vault back into the profile, before a resume."""

from __future__ import annotations

import os
import time
import uuid
from dataclasses import asdict, replace
from pathlib import Path

import click

from keeper import claude
from keeper.cli import completion, out
from keeper.cli.put_back import answer
from keeper.doors.cli_version import installed_version
from keeper.errors import Usage
from keeper.transcripts.restore import Restorer, Want
from keeper.transcripts.vault import Vault

SLOW = 1000
"""From so many live chats on the CLI's picker and `--continue` take their time."""


@click.command()
@click.argument("sessions", nargs=-1, metavar="SESSION", shell_complete=completion.sessions)
@click.option("--all", "everything", is_flag=True, help="Every kept session that is swept.")
@click.option("--cwd", type=click.Path(path_type=Path), help="Resume from there (with --all: only chats of it).")
@click.option("--profile", type=click.Path(file_okay=False, path_type=Path), help="Only this profile's chat.")
@click.option("--full", is_flag=True, help="Fold in what the live file lost, whatever the verdict.")
@click.option("--through", metavar="RECORD", help="Up to this record, under a new id.")
@click.option("--branch", metavar="LEAF", help="The branch that this record is on, to its end, under a new id.")
@click.option("--at", "at", metavar="TIME", help="As it was sealed then (ISO, or 90m, 2h, 3d ago), under a new id.")
@click.option("--in-place", is_flag=True, help="With --at: under its own id, live and kept.")
@click.option("--repaired", is_flag=True, help="A copy that every CLI resumes, under a new id.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@out.json_option
def restore(
    sessions: tuple[str, ...], everything: bool, cwd: Path | None, profile: Path | None, full: bool,
    through: str | None, branch: str | None, at: str | None, in_place: bool, repaired: bool, dry_run: bool,
    as_json: bool,
) -> int:  # fmt: skip
    """Put a session back, whole, so that `claude --resume` reads all of it.

    Example: keeper restore 3f6c0a52-8d1e-4b7a-9c55-0e2f1a7b9d10
    """
    if everything == bool(sessions):
        raise Usage("name a session, or say --all", "`keeper list` shows what is kept")
    copies = {"--through": through, "--branch": branch, "--at": at, "--repaired": repaired}
    asked = [name for name, value in copies.items() if value not in (None, False)]
    if len(asked) > 1:
        raise Usage(f"{' and '.join(asked)} are two copies", "make one, then the other")
    if asked and len(sessions) != 1:
        raise Usage(f"{asked[0]} goes with one session", "name the session")
    if in_place and not at:
        raise Usage("--in-place goes with --at", "say --at TIME")
    vault = out.open_vault()
    whose = claude.effective(profile) if profile else None
    want = Want(whose, str(cwd.absolute()) if cwd else None, full, dry_run, installed_version)
    if everything:
        return _all(vault, want, as_json)
    restorer = Restorer(vault, time.time_ns(), want)
    if at is not None and in_place:
        return _put(restorer, sessions[0], out.time_ns(at), dry_run, as_json)
    if asked:
        return copy(restorer, sessions[0], asked[0], through or branch or at or "", dry_run, as_json)
    return answer(restorer, sessions, as_json)


def _all(vault: Vault, want: Want, as_json: bool) -> int:
    from keeper.transcripts.mass import restore_all

    rows = [row for row in vault.rows() if want.profile is None or row.profile == str(want.profile)]
    if want.cwd is not None:
        rows = [row for row in rows if row.cwd in (want.cwd, os.path.realpath(want.cwd))]
    restorer = Restorer(vault, time.time_ns(), replace(want, cwd=None))
    with out.progress("restoring") as progress:
        answers = restore_all(restorer, rows, progress)
    failed = [answer for answer in answers if answer.error]
    back = [answer for answer in answers if answer.action not in ("none", "failed")]
    out.notes(vault)
    if as_json:
        out.say_json({"sessions": [asdict(answer) for answer in answers]})
    else:
        for answer in failed:
            out.warn(f"{answer.session}: {answer.error}")
        out.say(f"{len(answers)} sessions: {len(back)} put back, {len(failed)} failed")
        if len(answers) >= SLOW:
            out.say(f"{len(answers)} live chats slow the CLI's picker; its own sweep takes the old ones again in time")
    return 3 if failed else 0


def copy(restorer: Restorer, session: str, kind: str, what: str, dry_run: bool, as_json: bool) -> int:
    """A copy of the session under a new id: which, says the option's name and value."""
    from keeper.transcripts import branch

    recipe = {
        "--through": lambda: branch.up_to(session, what),
        "--branch": lambda: branch.branch_of(session, what),
        "--at": lambda: branch.as_of(session, out.time_ns(what)),
        "--repaired": lambda: branch.mended(session),
    }[kind]()
    made = branch.write_copy(restorer, session, str(uuid.uuid4()), recipe, dry_run)
    if as_json:
        out.say_json(asdict(made))
        return 0
    for deed in made.deeds:
        out.say(f"  {deed}")
    out.say(f"{made.session}  a copy of {session}: {made.records} records")
    out.say(f"  resume with: {made.resume}")
    return 0


def _put(restorer: Restorer, session: str, time_ns: int, dry_run: bool, as_json: bool) -> int:
    """The session as it was sealed once, under its own id; what it is now stays in the seal."""
    from keeper.cli.accept import say
    from keeper.transcripts import accept, branch, places

    claude.check_session(session)
    place = places.find(restorer.vault, session, restorer.want.profile)[0]
    content = branch.sealed_at(place.chat, session, time_ns)
    if dry_run:
        records = content.count(b"\n")
        out.say_json({"session": session, "records": records}) if as_json else out.say(f"{session}  {records} records")
        return 0
    restorer.session(session)  # what is live is kept and sealed first
    return say(accept.put(restorer.vault, session, content, restorer.now_ns, restorer.want.profile), as_json)
