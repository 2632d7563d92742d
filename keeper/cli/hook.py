"""`keeper hook`: a payload of Claude Code's hooks on stdin → that session is kept before this ends."""

from __future__ import annotations

import os
import sys

import click

from keeper.cli import out
from keeper.cli.entry import hook as quietly
from keeper.doors.hook import handle


@click.command()
@out.json_option
def hook(as_json: bool) -> int:
    """Keep the session that a hook's payload on stdin tells of. Always ends with 0 and says nothing, since Claude reads
    it: what fails is a line in $XDG_STATE_HOME/keeper/hook.log. With --json it says what it did, for a person who
    tries a payload.

    Example: keeper hook < payload.json
    """
    if not as_json:
        return quietly()
    out.say_json(handle(sys.stdin.buffer.read(), os.environ))
    return 0
