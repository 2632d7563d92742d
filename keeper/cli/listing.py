"""`keeper list`: the kept chats that a person asks for, a line each, or all that is known of them for a program."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.cells import cell_len, set_cell_size

from keeper import claude
from keeper.cli import out
from keeper.transcripts.choose import ORDERS, Asked, by_directory, chosen
from keeper.transcripts.describe import Described, age, describe
from keeper.transcripts.vault import Vault
from keeper.transcripts.verdict import Verdict

STATES = ("live", "swept", *(verdict.value for verdict in Verdict))
SESSION = 36


@click.command("list")
@click.option("--cwd", type=click.Path(path_type=Path), help="Only chats of this directory.")
@click.option("--below", type=click.Path(path_type=Path), help="Only chats of this directory and those in it.")
@click.option("--profile", type=click.Path(path_type=Path), help="Only chats of this profile.")
@click.option("--state", "states", multiple=True, type=click.Choice(STATES), help="Only chats that stand so.")
@click.option("--since", metavar="TIME", help="Only chats used after this: 3d (ago), 2026-11-30, 2026-11-30T14:00.")
@click.option("--until", metavar="TIME", help="Only chats last used before this.")
@click.option("--text", "words", multiple=True, help="Only chats with this in their title or first prompt.")
@click.option("--sort", type=click.Choice(list(ORDERS)), default="last", help="By what; the greatest comes last.")
@click.option("--reverse", is_flag=True, help="The greatest first.")
@out.json_option
def list_(
    cwd: Path | None, below: Path | None, profile: Path | None, states: tuple[str, ...], since: str | None,
    until: str | None, words: tuple[str, ...], sort: str, reverse: bool, as_json: bool,
) -> int:  # fmt: skip
    """List the kept sessions, those of a directory together, the newest last.

    Example: keeper list --below ~/work --text refactor --since 14d
    """
    asked = Asked(
        _names(cwd), _names(below), frozenset(states), None, _time(since), _time(until), words,
    )  # fmt: skip
    vault = out.open_vault()
    rows = [row for row in vault.rows() if profile is None or row.profile == str(claude.effective(profile))]
    if asked.cwds:
        rows = [row for row in rows if row.cwd in asked.cwds]  # before any file is read
    chats = chosen(describe(vault, rows), asked, sort, reverse)
    out.notes(vault)
    if as_json:
        out.say_json({"chats": [asdict(one) for one in chats]})
        return 0
    for line in _lines(chats, sort == "last" and not reverse, out.now(), _width()):
        out.say(line)
    out.say(_closing(chats, vault))
    return 0


def _names(folder: Path | None) -> frozenset[str]:
    """The names of a directory by which its chats may be known."""
    return (
        frozenset((str(folder.expanduser().absolute()), str(folder.expanduser().resolve()))) if folder else frozenset()
    )


def _time(text: str | None) -> str:
    """A time as `describe` tells it."""
    return datetime.fromtimestamp(out.time_ns(text) // 10**9, UTC).isoformat(timespec="seconds") if text else ""


def _width() -> int | None:
    """The terminal's columns; None where there is no terminal: who reads a pipe wants all of it."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _lines(chats: list[Described], grouped: bool, now: float, width: int | None) -> Iterator[str]:
    groups = by_directory(chats) if grouped else {"": chats}
    for cwd, found in groups.items():
        if grouped:
            yield _cut(_home(cwd) or "(no directory told)", width)
        for one in found:
            yield _cut(_line(one, now), width)


def _line(one: Described, now: float) -> str:
    """Session, age, state, records, title: what is known of the title has the rest of the line."""
    return f"{one.session:<{SESSION}} {age(one.last, now):>5} {one.state:<8} {one.records:>6} {one.title}"


def _cut(line: str, width: int | None) -> str:
    """At most so many columns, wide letters counted as two."""
    if width is None or cell_len(line) <= width:
        return line
    return set_cell_size(line, max(width - 1, 1)).rstrip() + "…"


def _home(path: str) -> str:
    home = os.path.expanduser("~")
    return f"~{path[len(home) :]}" if path == home or path.startswith(f"{home}/") else path


def _closing(chats: Iterable[Described], vault: Vault) -> str:
    chats = list(chats)
    swept = sum(one.state == "swept" for one in chats)
    more = f", {swept} of them kept alone: swept or deleted" if swept else ""
    return f"{len(chats)} sessions in {vault.root}{more}"
