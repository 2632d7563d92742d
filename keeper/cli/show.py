"""`keeper list`, `show`, `export`, `status`: what the vault holds, for a person or a program."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from keeper import claude, files, wire
from keeper.agent import state as agent_state
from keeper.cli import out
from keeper.errors import AgentDown, NotKept, Refused
from keeper.transcripts.describe import Described, State, aside_names, conversation, describe, states
from keeper.transcripts.index import Row
from keeper.transcripts.vault import Vault


@click.command("list")
@click.option("--cwd", type=click.Path(path_type=Path), help="Only chats of this directory.")
@click.option("--profile", type=click.Path(path_type=Path), help="Only chats of this profile.")
@out.json_option
def list_(cwd: Path | None, profile: Path | None, as_json: bool) -> int:
    """List the kept sessions, the newest last.

    Example: keeper list --cwd .
    """
    vault = out.open_vault()
    rows = [row for row in vault.rows() if profile is None or row.profile == str(claude.effective(profile))]
    if cwd is not None:
        rows = [row for row in rows if row.cwd in (str(cwd.absolute()), str(cwd.resolve()))]
    chats = describe(vault, rows)
    out.notes(vault)
    if as_json:
        out.say_json({"chats": [asdict(one) for one in chats]})
        return 0
    for one in chats:
        out.say(f"{one.session}  {one.last[:16]}  {one.state:<9} {one.records:>6}  {one.title[:40]}")
    out.say(f"{len(chats)} sessions in {vault.root}")
    return 0


def _rows(vault: Vault, name: str, profile: Path | None) -> list[Row]:
    rows = [row for row in vault.rows() if name in (row.session, row.chat)]
    if profile is not None:
        rows = [row for row in rows if row.profile == str(claude.effective(profile))]
    if not rows:
        claude.check_session(name) if "/" in name or ".." in name else None
        raise NotKept(f"nothing is kept under {name}", "`keeper list` shows what is kept")
    return rows


@click.command()
@click.argument("session")
@click.option("--profile", type=click.Path(path_type=Path), help="Only this profile's chat.")
@out.json_option
def show(session: str, profile: Path | None, as_json: bool) -> int:
    """Show one chat: where it lives, its lineage, its conversation, what was set aside.

    Example: keeper show 3f6c0a52-8d1e-4b7a-9c55-0e2f1a7b9d10
    """
    vault = out.open_vault()
    told = describe(vault, _rows(vault, session, profile))
    out.notes(vault)
    if not told:
        raise NotKept(f"the kept transcript of {session} is missing", "`keeper verify` says what is whole")
    if as_json:
        chats = [{**asdict(one), **_within(vault, one)} for one in told]
        out.say_json({"chats": chats})
        return 0
    for one in told:
        _say(vault, one)
    return 0


def _stands(one: State) -> str:
    """How a session stands that is not as it should be: what was lost, when, and which command mends it."""
    if one.when:
        lost = f"{one.lost} records were cut from its live file in place at {one.when}"
        return f"{one.state}, {lost}: `{one.cure}` folds them back, `keeper accept {one.session}` takes what is left"
    return f"{one.state}: `{one.cure}` mends it" if one.cure else one.state


def _within(vault: Vault, one: Described) -> dict[str, object]:
    shown = conversation(files.read(one.kept))
    return {"conversation": [asdict(record) for record in shown], "aside": aside_names(vault, one.chat)}


def _say(vault: Vault, one: Described) -> None:
    out.say(f"{one.session}  {one.title}")
    for name in (
        "chat",
        "profile",
        "project",
        "cwd",
        "state",
        "mode",
        "records",
        "live",
        "kept",
        "forked_from",
        "cleared_from",
        "damaged",
    ):
        value = getattr(one, name)
        if value not in (None, ""):
            out.say(f"  {name}: {value}")
    for state in states(vault):
        if state.session == one.session and state.when:
            out.say(f"  {_stands(state)}")
    for name in aside_names(vault, one.chat):
        out.say(f"  aside: {name}")
    for record in conversation(files.read(one.kept)):
        out.say(f"\n{record.time[:19]}  {record.who}  {record.uuid}\n{record.text}")


@click.command()
@click.argument("session")
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
@out.json_option
def status(as_json: bool) -> int:
    """Say what runs and what the vault holds. Exits 5 where no agent runs.

    Example: keeper status --json
    """
    vault = out.open_vault()
    agent = wire.ask(str(vault.root), {"do": "status"}, 5.0) or agent_state.stopped(vault.root)
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
    out.say(f"vault: {vault.root}, {len(names)} chats, {size} bytes")
    for line in _agent_lines(agent):
        out.say(line)
    for one in found:
        out.say(f"  {one.session}: {_stands(one)}")
    for chat in missing:
        out.say(f"  {chat}: its folder is missing")
    return 0 if agent["running"] else AgentDown.exit_code


def _agent_lines(agent: dict[str, Any]) -> Iterator[str]:
    """The agent's state for a person."""
    if not agent["running"]:
        yield "agent: not running (`keeper run` starts it, `keeper service install` for good)"
        return
    since = out.when(agent["since"])
    yield f"agent: process {agent['pid']} since {since}, {agent['live']} chats live, {agent['queued']} queued"
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
