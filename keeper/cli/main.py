"""Main: the `keeper` command: its groups and their commands.

It refuses to load a command that was not asked for.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

import click

from keeper import __version__
from keeper.cli.ends import INTERRUPTED, ended

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMMANDS = {
    "run": "run",
    "keep": "keep",
    "restore": "restore",
    "resume": "resume",
    "shim": "shim",
    "accept": "accept",
    "list": "listing",
    "show": "show",
    "export": "show",
    "status": "show",
    "doctor": "doctor",
    "report": "report",
    "merge": "merge",
    "exclude": "exclude",
    "prune": "prune",
    "du": "du",
    "forget": "vault",
    "verify": "vault",
    "reindex": "vault",
    "service": "run",
    "hook": "hook",
    "setup": "setup",
    "hooks": "hooks",
    "completion": "completion",
}
"""Command → the module of `keeper.cli` that holds it; loaded when it is asked for, since a person waits."""


class Lazy(click.Group):
    """The group of all commands."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = COMMANDS.get(cmd_name)
        if module is None:
            return None
        name = "list_" if cmd_name == "list" else cmd_name
        command: click.Command = getattr(import_module(f"keeper.cli.{module}"), name)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands by their names alone: their words would load all of them at each press of the key."""
        from click.shell_completion import CompletionItem

        found = [CompletionItem(name) for name in COMMANDS if name.startswith(incomplete)]
        return found + click.Command.shell_complete(self, ctx, incomplete)


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="keeper")
def group() -> None:
    """Keeps Claude Code conversations and puts them back before a resume.

    Example: keeper keep; keeper restore 3f6c0a52-8d1e-4b7a-9c55-0e2f1a7b9d10
    """


def main() -> None:
    """The entry point: exits with the code of what happened."""
    sys.exit(ended(_by_click))


def _by_click() -> object:
    try:
        return group(standalone_mode=False)
    except click.Abort:
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
