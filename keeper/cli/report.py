"""`keeper report`, and `keeper status --openmetrics`: how all stands, as a page for a person and as metrics."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from keeper import settings, wire
from keeper.agent import past
from keeper.agent import state as agent_state
from keeper.cli import out
from keeper.errors import Usage
from keeper.transcripts.vault import Vault


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
        seen = gather(vault, now, history=True, progress=progress)
    with out.progress("reading titles") as progress:
        html = page(vault, seen, agent(vault), past.read(vault.root), progress)
    out.notes(vault)
    if output == Path("-"):
        _stdout(html)
        return 0
    if output is None:
        folder = settings.load(os.environ).state_home
        disk.ensure_dir(folder)
        output = folder / "report.html"
    put(output, html, MARK)
    path = str(output.absolute())
    if as_json:
        out.say_json({"page": path, "sessions": len(seen.sessions), "bytes": len(html)})
    else:
        out.say(f"{path}: {len(seen.sessions)} sessions. It holds their titles, and only you can read it.")
    return 0


def agent(vault: Vault) -> dict[str, Any]:
    """What the agent says of itself, or that none answers."""
    return wire.ask(str(vault.root), {"do": "status"}, 5.0) or agent_state.stopped(vault.root)


def openmetrics(vault: Vault, output: Path | None, as_json: bool) -> int:
    """The metrics on stdout, or in a file that others may read: there is nothing private in it."""
    from keeper.report.facts import gather
    from keeper.report.metrics import MARK, exposition
    from keeper.report.output import put

    told = exposition(gather(vault, out.now()), agent(vault), past.read(vault.root))
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
