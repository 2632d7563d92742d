"""`keeper show`, `export`, `status`: what the vault holds, for a person or a program."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from keeper import claude, files, wire
from keeper.agent import state as agent_state
from keeper.cli import completion, out
from keeper.errors import AgentDown, NotKept, Refused, Usage
from keeper.transcripts.describe import (
    UNTOLD,
    Described,
    Shown,
    State,
    age,
    aside_names,
    conversation,
    describe,
    states,
    variants,
)  # fmt: skip
from keeper.transcripts.index import Row
from keeper.transcripts.lineage import Relative, relatives
from keeper.transcripts.vault import Vault
from keeper.transcripts.verdict import Verdict

BY_HAND = (Verdict.DIVERGED, Verdict.DOUBLED)
"""What no single command mends."""


def _rows(vault: Vault, name: str, profile: Path | None) -> list[Row]:
    rows = [row for row in vault.rows() if name in (row.session, row.chat)]
    if profile is not None:
        rows = [row for row in rows if row.profile == str(claude.effective(profile))]
    if not rows:
        claude.check_session(name) if "/" in name or ".." in name else None
        raise NotKept(f"nothing is kept under {name}", "`keeper list` shows what is kept")
    return rows


@click.command()
@click.argument("session", shell_complete=completion.sessions)
@click.option("--profile", type=click.Path(path_type=Path), help="Only this profile's chat.")
@click.option("--last", type=click.IntRange(0), metavar="N", help="Only the last N records of the conversation.")
@out.json_option
def show(session: str, profile: Path | None, last: int | None, as_json: bool) -> int:
    """Show one chat: how it stands, its lineage, variants, what was set aside, its conversation. On a terminal by your
    PAGER.

    Example: keeper show 3f6c0a52-8d1e-4b7a-9c55-0e2f1a7b9d10 --last 10
    """
    vault = out.open_vault()
    told = describe(vault, _rows(vault, session, profile))
    out.notes(vault)
    if not told:
        raise NotKept(f"the kept transcript of {session} is missing", "`keeper verify` says what is whole")
    if as_json:
        chats = [{**asdict(one), **asdict(_within(vault, one, last))} for one in told]
        out.say_json({"chats": chats})
        return 0
    out.page(line for one in told for line in _lines(vault, one, _within(vault, one, last)))
    return 0


def _stands(one: State) -> str:
    """How a session stands that is not as it should be: what was lost, when, and which command mends it."""
    if one.when:
        lost = f"{one.lost} records were cut from its live file in place at {one.when}"
        return f"{one.state}, {lost}: `{one.cure}` folds them back, `keeper accept {one.named}` takes what is left"
    if one.state in BY_HAND:
        return f"{one.state}: `keeper doctor` says what ends it"
    return f"{one.state}: `{one.cure}` mends it" if one.cure else one.state


@dataclass(frozen=True, slots=True)
class Within:
    """What stands in a kept chat. `earlier` is how many records of the conversation are not shown."""

    lineage: list[Relative]
    variants: dict[str, int]
    aside: list[str]
    conversation: list[Shown]
    earlier: int = 0


def _within(vault: Vault, one: Described, last: int | None) -> Within:
    data = files.read(one.kept)
    told = conversation(data)
    shown = told if last is None else told[len(told) - min(last, len(told)) :]
    family = relatives(vault, one.session, one.profile)
    return Within(family, variants(data), aside_names(vault, one.chat), shown, len(told) - len(shown))


def _lines(vault: Vault, one: Described, within: Within) -> Iterator[str]:
    """The chat as a person reads it."""
    yield f"{one.session}  {one.title}"
    for name, value in _facts(vault, one, within):
        yield f"  {name:<9} {value}"
    if within.earlier:
        yield f"\n{within.earlier} earlier records are not shown"
    for record in within.conversation:
        yield f"\n── {record.who} · {record.time[:19].replace('T', ' ')} · {record.uuid}\n{record.text}"


def _facts(vault: Vault, one: Described, within: Within) -> Iterator[tuple[str, str]]:
    yield "directory", one.cwd or "(not told)"
    yield "profile", one.profile
    yield "chat", f"{one.chat}, policy {one.policy}"
    yield "last used", f"{one.last[:16].replace('T', ' ')} UTC, {_ago(one.last)}"
    yield "holds", f"{one.records} records, {out.size(one.bytes)}, mode {one.mode}"
    yield "stands", "; ".join(_stands(state) for state in states(vault) if state.session == one.session) or one.state
    absent = f"none: `keeper restore {one.session}` puts it back" if one.state != UNTOLD else "that cannot be looked at"
    yield "live", one.live or absent
    yield "kept", one.kept
    for relative in within.lineage:
        yield _relation(relative), relative.session
    for uuid, count in within.variants.items():
        yield "variants", f"{uuid} stands in {count} forms; Claude reads the last"
    for name in within.aside:
        yield "aside", f"{os.path.dirname(one.kept)}/aside/{name}"


def _ago(last: str) -> str:
    found = age(last, out.now())
    return found if found == "now" else f"{found} ago"


_BEFORE = {"forked": "fork of", "cleared": "cleared", "continued": "continues"}
_AFTER = {"forked": "forked to", "cleared": "then", "continued": "goes on in"}


def _relation(relative: Relative) -> str:
    if relative.after:
        return _AFTER[relative.how]
    return _BEFORE[relative.how] if relative.steps == 1 else "… before"


@click.command()
@click.argument("session", shell_complete=completion.sessions)
@click.option("--profile", type=click.Path(path_type=Path), help="Only this profile's chat.")
@click.option("--chat", help="Only this chat's copy.")
@out.json_option
def export(session: str, profile: Path | None, chat: str | None, as_json: bool) -> int:
    """Write the kept bytes of a session to stdout, as they are (with --json: say where they stand).

    Example: keeper export 3f6c0a52-8d1e-4b7a-9c55-0e2f1a7b9d10 > chat.jsonl
    """
    claude.check_session(session)
    vault = out.open_vault()
    rows = [row for row in _rows(vault, session, profile) if row.session == session and chat in (None, row.chat)]
    if not rows:
        raise NotKept(f"chat {chat} keeps no session {session}", "`keeper list` shows what is kept")
    if len(rows) > 1:
        names = ", ".join(row.chat for row in rows)
        raise Refused(f"session {session} is kept in several chats: {names}", "say --profile or --chat")
    kept = vault.chat(rows[0].chat).kept(session)
    data = files.read(kept)
    if as_json:
        records = data.count(b"\n")
        out.say_json({"session": session, "chat": rows[0].chat, "kept": kept, "records": records, "bytes": len(data)})
        return 0
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
    return 0


@click.command()
@click.option("--openmetrics", "metrics", is_flag=True, help="As metrics instead, in the OpenMetrics text format.")
@click.option("--output", type=click.Path(path_type=Path), help="With --openmetrics: the file for it, or `-` (stdout).")
@out.json_option
def status(metrics: bool, output: Path | None, as_json: bool) -> int:
    """Say what runs and what the vault holds. Exits 5 where no agent runs (with --openmetrics: 0, and it is a metric).

    Example: keeper status --json
    """
    if output is not None and not metrics:
        raise Usage("--output goes with --openmetrics", "say both, or none")
    vault = out.open_vault()
    if metrics:
        from keeper.cli.report import openmetrics

        return openmetrics(vault, None if str(output) == "-" else output, as_json)
    agent = agent_of(vault)
    names = vault.chat_names()
    missing = sorted({row.chat for row in vault.missing()})
    size = sum(_size(vault, row) for row in vault.rows())
    found = states(vault)
    if as_json:
        out.say_json(
            {
                "agent": agent,
                "vault": {
                    "path": str(vault.root), "chats": len(names), "bytes": size, "missing": missing,
                    "notes": list(dict.fromkeys(vault.notes)),
                },
                "states": [asdict(one) for one in found],
            }
        )  # fmt: skip
        return 0 if agent["running"] else AgentDown.exit_code
    out.notes(vault)
    out.say(f"vault: {vault.root}, {len(names)} chats, transcripts of {out.size(size)} (`keeper du`: all of it)")
    for line in _agent_lines(agent):
        out.say(line)
    for one in found:
        out.say(f"  {one.session}: {_stands(one)}")
    for chat in missing:
        out.say(f"  {chat}: its folder is missing")
    return 0 if agent["running"] else AgentDown.exit_code


def agent_of(vault: Vault) -> dict[str, Any]:
    """What the agent says of itself, or that none answers."""
    return wire.ask(str(vault.root), {"do": "status"}, 5.0) or agent_state.stopped(vault.root)


def _agent_lines(agent: dict[str, Any]) -> Iterator[str]:
    """The agent's state for a person."""
    if not agent["running"]:
        yield "agent: not running (`keeper run` starts it, `keeper service install` for good)"
        return
    since = out.when(agent["since"])
    yield f"agent: process {agent['pid']} since {since}, {agent['live']} chats in use, {agent['queued']} queued"
    watches, limit = agent["watches"]["count"], agent["watches"]["limit"]
    share = f" of {limit} that this machine allows" if limit else ""
    yield f"  {watches} watches{share}, {agent['watches']['bytes'] >> 10} KiB"
    if agent["sealing"]:
        yield f"  sealing what was linked: {agent['sealing']['done']} of {agent['sealing']['of']} chats"
    for profile in agent["polled"]:
        yield f"  polled, since events cannot be relied on: {profile}"
    for one in agent["degraded"] or ():
        yield f"  degraded since {out.when(one['since'])}: {one['what']}: {one['why']}"
    for one in agent["events"][-5:]:
        yield f"  {out.when(one['when'])} {one['what']}: {one['text']}"


def _size(vault: Vault, row: Row) -> int:
    try:
        return files.size_of(vault.chat(row.chat).kept(row.session))
    except FileNotFoundError:
        return 0
