"""`keeper run`: the agent, in the foreground; `keeper service`: the same by systemd."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path

import click

from keeper import settings
from keeper.agent.run import Agent
from keeper.agent.service import Notify, Service, unit
from keeper.cli import out

HANDED_ON = ("KEEPER_HOME", "KEEPER_CONFIG", "CLAUDE_CONFIG_DIR", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME")


@click.command()
@click.option("--once", is_flag=True, help="Keep and seal all that is there, then end.")
@out.json_option
def run(once: bool, as_json: bool) -> int:
    """Run the agent: watch every profile, keep what Claude writes, answer the hooks, until it is ended (TERM). HUP
    reads the settings again, USR1 looks over everything now. With --json it says one object once it is ready (with
    --once: at its end).

    Example: keeper run
    """
    agent = Agent(
        lambda: settings.load(os.environ),
        Notify(os.environ.get("NOTIFY_SOCKET", "")),
        (lambda told: out.say_json({"agent": told})) if as_json else None,
    )
    first = iter([out.progress("keeping and sealing")])
    agent.work.shows = lambda: next(first, nullcontext())
    try:
        return agent.run(once)
    finally:
        out.end_progress()


@click.group()
def service() -> None:
    """Run the agent by systemd, in this user's session: install, remove, status.

    Example: keeper service install
    """


def of_user() -> Service:
    """The unit of this user."""
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return Service(home / "systemd" / "user")


def text() -> str:
    """The unit's text for this keeper and this environment."""
    environment = {name: os.environ[name] for name in HANDED_ON if os.environ.get(name)}
    # -P: the unit runs in the home, whose files are none of ours to import.
    return unit((sys.executable, "-P", "-m", "keeper", "run"), environment)


@service.command("install")
@click.option("--dry-run", is_flag=True, help="Show the unit, and do nothing.")
@out.json_option
def install(dry_run: bool, as_json: bool) -> int:
    """Write the unit, enable and start it."""
    mine = of_user()
    done = [text()] if dry_run else mine.install(text())
    if as_json:
        out.say_json({"unit": str(mine.path), "done": [] if dry_run else done, "text": text()})
    else:
        for line in done:
            out.say(line)
    return 0


@service.command("remove")
@out.json_option
def remove(as_json: bool) -> int:
    """Stop it and take the unit away."""
    done = of_user().remove()
    if as_json:
        out.say_json({"done": done})
    else:
        for line in done or ["no unit of keeper's is installed"]:
            out.say(line)
    return 0


@service.command("status")
@out.json_option
def status(as_json: bool) -> int:
    """Say whether the unit stands and runs."""
    found = of_user().status()
    if as_json:
        out.say_json({**asdict(found), "path": str(found.path)})
    else:
        out.say(f"{found.path}: {'installed' if found.installed else 'not installed'}, {found.active or 'no systemd'}")
    return 0
