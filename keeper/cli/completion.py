"""`keeper completion`: the script that completes keeper's words in a shell; and which sessions it offers.

Each press of the key is a run of keeper: names are told without loading what they name, and sessions by the index
alone. It refuses what a transcript says: a session is offered by its id, never by its title.
"""

from __future__ import annotations

import os

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from keeper import settings
from keeper.cli import out
from keeper.errors import KeeperError
from keeper.transcripts.index import Index, IndexLost

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_KEEPER_COMPLETE"
MANY = 50
"""More than so many sessions nobody reads: the newest are offered."""


def script(shell: str, group: click.Group) -> str:
    """What the shell is to read, the same for every machine."""
    found = get_completion_class(shell)
    assert found is not None
    # Not the class's own `source`: bash's asks the bash that is on PATH for its version.
    return ShellComplete.source(found(group, {}, "keeper", VARIABLE)).strip() + "\n"


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@out.json_option
@click.pass_context
def completion(ctx: click.Context, shell: str, as_json: bool) -> int:
    """Print the script that completes keeper's commands, options and session ids in bash, zsh or fish.

    Example: keeper completion bash > ~/.local/share/bash-completion/completions/keeper
    """
    group = ctx.find_root().command
    assert isinstance(group, click.Group)
    text = script(shell, group)
    if as_json:
        out.say_json({"shell": shell, "script": text})
        return 0
    click.echo(text, nl=False)
    return 0


def sessions(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The kept sessions of this directory whose ids begin so, the newest first; of any directory where there is none
    here and some letters are given. Nothing where the index does not tell: no key that is pressed mends a vault."""
    try:
        index = Index(settings.load(os.environ).vault / "state.db")
        rows = [row for row in index.rows() if row.session.startswith(incomplete)]
    except (KeeperError, IndexLost, OSError):
        return []
    here = (os.getcwd(), os.path.abspath(os.environ.get("PWD", "")))
    own = [row for row in rows if row.cwd in here]
    offered = own or (rows if incomplete else [])
    newest = sorted(offered, key=lambda row: (row.born, row.session), reverse=True)
    return [CompletionItem(session) for session in list(dict.fromkeys(row.session for row in newest))[:MANY]]
