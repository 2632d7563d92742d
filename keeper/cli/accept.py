"""`keeper accept`: the live file, as it is, becomes the truth."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path

import click

from keeper import claude
from keeper.cli import completion, out
from keeper.transcripts.accept import Accepted
from keeper.transcripts.accept import accept as make_truth


@click.command()
@click.argument("session", shell_complete=completion.sessions)
@click.option("--profile", type=click.Path(file_okay=False, path_type=Path), help="Only this profile's chat.")
@out.json_option
def accept(session: str, profile: Path | None, as_json: bool) -> int:
    """Make what the live file is now the truth: kept becomes it, and the seal remembers the rest.

    Example: keeper accept 3f6c0a52-8d1e-4b7a-9c55-0e2f1a7b9d10
    """
    vault = out.open_vault()
    whose = claude.effective(profile) if profile else None
    answer = make_truth(vault, session, time.time_ns(), whose)
    out.notes(vault)
    return say(answer, as_json)


def say(answer: Accepted, as_json: bool) -> int:
    """Tell what is the truth now."""
    if as_json:
        out.say_json(asdict(answer))
        return 0
    out.say(f"{answer.session}  {answer.records} records are the truth now")
    if answer.left:
        out.say(f"  {answer.left} others are in the seal alone: `keeper restore {answer.session} --at {answer.until}`")
    return 0
