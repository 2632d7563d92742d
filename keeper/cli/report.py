"""`keeper report`, and `keeper status --openmetrics`: how all stands, as a page for a person and as metrics."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from keeper import settings
from keeper.agent import past
from keeper.cli import out
from keeper.cli.show import agent_of
from keeper.errors import Usage
from keeper.transcripts.removal import PAGE
from keeper.transcripts.vault import Vault

if TYPE_CHECKING:
    from keeper.report.facts import Profile


@click.command()
@click.option(
    "--output", type=click.Path(path_type=Path, allow_dash=True),
    help="Where to write the page (- for stdout); default $XDG_STATE_HOME/keeper/report.html.",
)  # fmt: skip
@out.json_option
def report(output: Path | None, as_json: bool) -> int:
    """Write a page about all that is kept: one HTML file that needs no network. It holds the titles of your chats.

    Example: keeper report --output ~/keeper.html
    """
    from keeper import disk
    from keeper.report.facts import gather
    from keeper.report.output import put
    from keeper.report.page import MARK, page

    if as_json and output == Path("-"):
        raise Usage("--json and a page do not both go to stdout", "name a file, or leave one of them out")
    vault = out.open_vault()
    now = out.now()
    with out.progress("looking") as progress:
        seen = gather(vault, now, profiles(vault, now), history=True, progress=progress)
    with out.progress("reading titles") as progress:
        html = page(vault, seen, agent_of(vault), past.read(vault.root), progress)
    out.notes(vault)
    if output == Path("-"):
        _stdout(html)
        return 0
    if output is None:
        folder = settings.load(os.environ).state_home
        disk.ensure_dir(folder)
        output = folder / PAGE
    put(output, html, MARK)
    path = str(output.absolute())
    if as_json:
        out.say_json({"page": path, "sessions": len(seen.sessions), "bytes": len(html)})
    else:
        out.say(f"{path}: {len(seen.sessions)} sessions. It holds their titles, and only you can read it.")
    return 0


def profiles(vault: Vault, now: float) -> list[Profile]:
    """The profiles that are there, with the sweep that doctor forecasts."""
    from keeper.cli import doctor
    from keeper.doctor import sweeps
    from keeper.report.facts import Profile

    seen = doctor.seen(vault, now)
    found = []
    for one in seen.profiles:
        days, file = sweeps.days_of(one, seen)
        taken = frozenset(live.session for live in sweeps.taken(one, seen))
        kept = {row.session for row in vault.rows() if row.profile == one.path}
        wanted = [live for live in one.live if live.chat and not (live.forgotten or live.excluded)]
        found.append(
            Profile(
                one.path, days, file, one.retention.odd, one.last_sweep, one.forecast.earliest, one.forecast.due, taken,
                tuple(live.session for live in wanted if live.session not in kept),
            )
        )  # fmt: skip
    return found


def openmetrics(vault: Vault, output: Path | None, as_json: bool) -> int:
    """The metrics on stdout, or in a file that others may read: there is nothing private in it."""
    from keeper.report.facts import gather
    from keeper.report.metrics import MARK, exposition
    from keeper.report.output import put

    now = out.now()
    told = exposition(gather(vault, now, profiles(vault, now)), agent_of(vault), past.read(vault.root))
    if output is None:
        _stdout(told) if not as_json else out.say_json({"metrics": told.decode()})
        return 0
    put(output, told, MARK, mode=0o644)
    if as_json:
        out.say_json({"output": str(output.absolute()), "bytes": len(told)})
    return 0


def _stdout(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
