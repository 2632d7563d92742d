"""`keeper exclude add`, `remove`, `list`: rules by which chats keep nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import click

from keeper import homes, settings, wire
from keeper.cli import out
from keeper.cli.parts import yes_option
from keeper.errors import NotKept, Partial, Refused
from keeper.settings import CONDITIONS
from keeper.transcripts.exclude import Exclusion, Met
from keeper.transcripts.rules import Rule
from keeper.transcripts.vault import Vault

SHOWN = 20
"""So many chats are named before a person is asked; --json names all."""
_HELP = {
    "cwd": "The directory that the chat was started in; `**` crosses folders.",
    "project": "Its folder's name under projects/.",
    "title": "Its title, or its first prompt where it has none.",
    "session": "Its session id.",
    "entrypoint": "How its Claude was started: cli, sdk-ts, claude-vscode, …",
    "profile": "Its Claude configuration directory.",
    "preset": "The host's preset, told by `keeper keep --tag preset:NAME`.",
    "tag": "A tag, given by `keeper keep --tag NAME`.",
}


def _conditions(command: Callable[..., Any]) -> Callable[..., Any]:
    for name in reversed(CONDITIONS):
        command = click.option(f"--{name}", metavar="GLOB", help=_HELP[name])(command)
    return command


@click.group()
def exclude() -> None:
    """Say of which chats nothing is kept: no transcript, no seal, no restore.

    Example: keeper exclude add --cwd '~/secret/**'
    """


@exclude.command("add")
@_conditions
@yes_option
@out.json_option
def add(yes: bool, as_json: bool, **globs: str | None) -> int:
    """Add a rule. A chat that meets all its conditions is not kept from now on, and what was kept of it goes at once;
    Claude's own files stay. Chats that Claude has no file of any more are named first, and a person is asked.

    Example: keeper exclude add --cwd '~/secret/**' --entrypoint 'sdk-*'
    """
    return put_in(out.open_vault(make=True), _rule(globs), yes, as_json)


def put_in(vault: Vault, rule: Rule, yes: bool, as_json: bool) -> int:
    """Add the rule and remove what it meets; a person is asked for sole copies. The exit code."""
    exclusion = Exclusion(vault)
    sole = [met for met in exclusion.met(rule) if met.sole]
    if sole and not yes and not _agreed(sole, as_json):
        return 130
    new = rule.conditions not in [one.conditions for one in exclusion.rules()]
    if new:
        exclusion.say("add", rule, out.now())
    with out.progress("removing") as progress:
        removed = exclusion.apply(progress, agreed=True)
    _tell_agent(vault)
    out.notes(vault)
    if as_json:
        out.say_json({"rule": dict(rule.conditions), "new": new, "removed": [asdict(one) for one in removed]})
    else:
        size = sum(one.bytes for one in removed)
        out.say(f"{'excluded' if new else 'excluded already'}: {rule}")
        out.say(f"{len(removed)} kept chats removed, {size} bytes; Claude's own files were not touched")
    return Partial.exit_code if vault.notes else 0


def _agreed(sole: list[Met], as_json: bool) -> bool:
    """A person is asked, where one is there. Raises Refused where none is."""
    what = f"{len(sole)} kept chats would go of which Claude has no file any more, or less than is kept"
    for met in sole[:SHOWN]:
        out.warn(f"sole copy: {met.chat} ({met.rule})")
    if len(sole) > SHOWN:
        out.warn(f"and {len(sole) - SHOWN} more")
    if as_json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Refused(f"{what}: nothing was removed", "look at them with `keeper show`, then say --yes")
    return click.confirm(f"{what}, for good. Go on?", default=False, err=True)


@exclude.command("remove")
@_conditions
@out.json_option
def remove(as_json: bool, **globs: str | None) -> int:
    """Take a rule out: what met it is kept again from the next keep on.

    Example: keeper exclude remove --cwd '~/secret/**'
    """
    rule = _rule(globs)
    vault = out.open_vault()
    exclusion = Exclusion(vault)
    found = [one for one in exclusion.rules() if one.conditions == rule.conditions]
    if not found:
        raise NotKept(f"there is no rule {rule}", "`keeper exclude list` shows them")
    if all(one.origin for one in found):
        raise Refused(f"the rule {rule} stands in {found[0].origin}", "take it out of that file")
    exclusion.say("remove", rule, out.now())
    _tell_agent(vault)
    left = [one.origin for one in found if one.origin]
    if as_json:
        out.say_json({"rule": dict(rule.conditions), "left": left})
    else:
        out.say(f"no rule any more: {rule}")
        for origin in left:
            out.warn(f"the same rule stands in {origin}, and holds")
    return 0


def take_out(vault: Vault, rule: Rule) -> None:
    """The rule goes, if it was given by the command."""
    exclusion = Exclusion(vault)
    if any(one.conditions == rule.conditions and not one.origin for one in exclusion.rules()):
        exclusion.say("remove", rule, out.now())


@exclude.command("list")
@out.json_option
def list_(as_json: bool) -> int:
    """List the rules, those of the settings file and those given by the command.

    Example: keeper exclude list
    """
    vault = out.open_vault()
    rules = Exclusion(vault).rules()
    if as_json:
        told = [{"rule": dict(rule.conditions), "origin": rule.origin or "command"} for rule in rules]
        out.say_json({"rules": told})
        return 0
    for rule in rules:
        out.say(f"{rule}  ({rule.origin or 'command'})")
    out.say(f"{len(rules)} rules")
    return 0


def _rule(globs: dict[str, str | None]) -> Rule:
    table = {name: glob for name, glob in globs.items() if glob is not None}
    return Rule(settings.conditions(table, "keeper exclude", homes.user(os.environ), _here()))


def _here() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""  # a directory that is gone: what is said by `.` is refused


def _tell_agent(vault: Vault) -> None:
    """A running agent looks over everything: what is kept again, what it had in hand."""
    wire.ask(str(vault.root), {"do": "reconcile"}, 1.0)
