"""`keeper resume`: puts a conversation back and starts Claude on it; a list to choose from where none is named."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import asdict
from pathlib import Path

import click

from keeper import claude, settings
from keeper.cli import completion, out
from keeper.doors import resume as door
from keeper.doors.before import agent_keeps
from keeper.doors.shim import real_claude
from keeper.errors import KeeperError, NotKept, Usage
from keeper.transcripts.restore import Restored
from keeper.transcripts.vault import Vault

_FOR_CLAUDE = "keeper.for_claude"


class _WithArgs(click.Command):
    """What stands behind `--` is Claude's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[_FOR_CLAUDE] = args[at + 1 :]
        return super().parse_args(ctx, args[:at])

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- ARGS]"]


@click.command(cls=_WithArgs)
@click.argument("session", required=False, metavar="[SESSION|NAME]", shell_complete=completion.sessions)
@click.option("--previous", is_flag=True, help="The conversation that was cleared for this one.")
@click.option("--prompts", is_flag=True, help="Print the prompts that history.jsonl still holds of it, and no more.")
@click.option("--profile", type=click.Path(file_okay=False, path_type=Path), help="Of this profile.")
@out.json_option
@click.pass_context
def resume(
    ctx: click.Context, session: str | None, previous: bool, prompts: bool, profile: Path | None, as_json: bool
) -> int:
    """Put a conversation back, whole, and start Claude on it; without a name, choose one of this directory's.

    With --json, and where there is no terminal to choose on, Claude is not started.

    Example: keeper resume 3f6c0a52-8d1e-4b7a-9c55-0e2f1a7b9d10 -- --fork-session
    """
    values = settings.load(os.environ)
    own = claude.effective(profile) if profile else values.named_profile or values.default_profile
    start = door.Start(values, own, os.getcwd(), real_claude(os.environ))
    arguments: list[str] = ctx.meta[_FOR_CLAUDE]
    if prompts:
        return _prompts(start, session, as_json)
    with Vault.open(values) as vault:
        agent = agent_keeps(str(values.vault), str(own))
        if not agent and (start.sweeps_at_once() or not session or not claude.is_session(session)):
            for line in door.keep_all(start, vault):
                out.warn(line)
        chosen = _chosen(start, vault, session, previous, as_json)
        if not chosen:
            return 2
        answer = door.put_back(start, vault, door.previous(start, vault, chosen) if previous else chosen)
        out.notes(vault)
        if not agent:
            door.keep_behind(start)
    if answer is None:
        raise Usage(
            f"session {chosen} is no conversation that keeper keeps", f"`claude --resume {chosen}` takes it as it is"
        )
    return _start(start, answer, arguments, as_json)


def _prompts(start: door.Start, session: str | None, as_json: bool) -> int:
    if session is None:
        raise Usage("--prompts goes with a session", "name the session")
    found = door.prompts(start.profile, claude.check_session(session))
    if as_json:
        out.say_json({"session": session, "prompts": found})
        return 0
    for prompt in found:
        out.say(prompt)
    return 0


def _chosen(start: door.Start, vault: Vault, session: str | None, previous: bool, as_json: bool) -> str:
    """The session that is meant; "" where it is for a person to choose, and the list has been given."""
    if session is not None:
        return door.named(start, vault, session)
    if previous:
        if found := door.newest(start, vault)[0]:
            return found
        raise NotKept(f"no conversation of {start.cwd} is kept", "`keeper list` shows what is kept")
    if sys.stdin.isatty() and not as_json:
        return door.ask(start, own_list=False)
    listed, more = door.choices(start, vault)
    if as_json:
        out.say_json({"chats": [asdict(one) for one in listed], "more": more})
        return ""
    for line in door.listed(listed, time.time()):
        out.say(line)
    out.warn("name one: there is no terminal to choose on" if listed else f"no conversation of {start.cwd} is kept")
    return ""


def _start(start: door.Start, answer: Restored, arguments: list[str], as_json: bool) -> int:
    """Claude takes this process's place: from the conversation's directory, with its profile. One without a prompt
    would be refused: a new one is started there (RESTORE-8)."""
    words = ["--resume", answer.session, *arguments] if answer.resumable else arguments
    if as_json:
        out.say_json({**asdict(answer), "argv": [start.real or "claude", *words]})
        return answer.exit_code
    for warning in answer.warnings:
        out.warn(warning)
    if answer.error:
        out.warn(answer.error)
    if not start.real:
        raise KeeperError("there is no claude on PATH", "install Claude Code, or name it in KEEPER_CLAUDE")
    real = os.path.abspath(start.real)  # PATH may have found it from here
    if answer.cwd and os.path.isdir(answer.cwd):
        os.chdir(answer.cwd)
    sys.stdout.flush()
    os.execve(real, [real, *words], _environment(start))


def _environment(start: door.Start) -> dict[str, str]:
    environ = dict(os.environ)
    values = start.settings
    if start.profile == (values.named_profile or values.default_profile):
        # As the person has it: Claude has its login and settings elsewhere where its default profile is named.
        return environ
    if start.profile == values.default_profile:
        del environ["CLAUDE_CONFIG_DIR"]
    else:
        environ["CLAUDE_CONFIG_DIR"] = str(start.profile)
    return environ
