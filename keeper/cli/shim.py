"""`keeper shim`: the `claude` on PATH that puts back what is about to be resumed."""

from __future__ import annotations

import os
from dataclasses import asdict

import click

from keeper.cli import out
from keeper.doors import shim as door


@click.command()
@click.argument("action", type=click.Choice(["install", "remove", "status"]))
@out.json_option
def shim(action: str, as_json: bool) -> int:
    """Put the `claude` shim in place, take it away, or say how it stands.

    It goes into a folder of its own; a line to add to your shell's file puts that folder first on PATH.

    Example: keeper shim install
    """
    stands = {"install": door.install, "remove": door.remove, "status": door.status}[action](os.environ)
    if as_json:
        out.say_json(asdict(stands))
        return 0
    state = "not installed" if not stands.installed else "installed" if stands.first else "installed, not first on PATH"
    out.say(f"shim: {stands.path}, {state}")
    out.say(f"claude: {stands.real or 'none'}" + (f", {stands.version}" if stands.version else ""))
    for line in stands.advice:
        out.say(f"  {line}")
    return 0
