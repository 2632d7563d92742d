"""`keeper list`: the kept chats that a person asks for, a line each, or all that is known of them for a program."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from rich.cells import cell_len, set_cell_size

from keeper import claude
from keeper.cli import doctor, out
from keeper.doctor import sweeps
from keeper.transcripts.choose import ORDERS, Asked, by_directory, chosen
from keeper.transcripts.describe import UNKEPT, UNTOLD, Described, age, describe, describe_live
from keeper.transcripts.exclude import Exclusion
from keeper.transcripts.gate import left_out
from keeper.transcripts.policy import EXCLUDE
from keeper.transcripts.vault import Vault
from keeper.transcripts.verdict import Verdict

STATES = ("live", "swept", UNTOLD, UNKEPT, *(verdict.value for verdict in Verdict))
SESSION = 36


@click.command("list")
@click.option("--cwd", type=click.Path(path_type=Path), help="Only chats of this directory.")
@click.option("--below", type=click.Path(path_type=Path), help="Only chats of this directory and those in it.")
@click.option("--profile", type=click.Path(path_type=Path), help="Only chats of this profile.")
@click.option("--state", "states", multiple=True, type=click.Choice(STATES), help="Only chats that stand so.")
@click.option("--at-risk", is_flag=True, help="Only live chats that the next sweep takes, kept or not; and when.")
@click.option("--since", metavar="TIME", help="Only chats used after this: 3d (ago), 2026-11-30, 2026-11-30T14:00.")
@click.option("--until", metavar="TIME", help="Only chats last used before this.")
@click.option("--text", "words", multiple=True, help="Only chats with this in their title or first prompt.")
@click.option("--sort", type=click.Choice(list(ORDERS)), default="last", help="By what; the greatest comes last.")
@click.option("--reverse", is_flag=True, help="The greatest first.")
@out.json_option
def list_(
    cwd: Path | None, below: Path | None, profile: Path | None, states: tuple[str, ...], at_risk: bool,
    since: str | None, until: str | None, words: tuple[str, ...], sort: str, reverse: bool, as_json: bool,
) -> int:  # fmt: skip
    """List the kept sessions, those of a directory together, the newest last; with --at-risk what the next sweep takes.

    Example: keeper list --below ~/work --text refactor --since 14d
    """
    asked = Asked(_names(cwd), _names(below), frozenset(states), _time(since), _time(until), words)
    vault, now = out.open_vault(), out.now()
    own = str(claude.effective(profile)) if profile else ""
    risks = _risks(vault, now, own) if at_risk else []
    chats = chosen(_at_risk(vault, risks, now) if at_risk else _kept(vault, own, asked), asked, sort, reverse)
    out.notes(vault)
    if as_json:
        due = {(risk.profile, session): out.iso(when) for risk in risks for session, when in risk.due.items()}
        told = [{**asdict(one), **({"due": due[one.profile, one.session]} if at_risk else {})} for one in chats]
        sweep = [{**asdict(risk), "due": len(risk.due), "earliest": out.iso(risk.earliest)} for risk in risks]
        out.say_json({"chats": told, **({"sweeps": sweep} if at_risk else {})})
        return 0
    width = _width()
    for line in _lines(chats, sort == "last" and not reverse, now, width):
        out.say(line)
    for risk in risks:
        out.say(_told(risk, now))
    if not at_risk:
        out.say(_closing(chats, vault))
    return 0


def _kept(vault: Vault, profile: str, asked: Asked) -> list[Described]:
    rows = [row for row in vault.rows() if profile in ("", row.profile)]
    if asked.cwds:
        rows = [row for row in rows if row.cwd in asked.cwds]  # before any file is read
    return describe(vault, rows)


# ------------------------------------------------------------------ what the next sweep takes


@dataclass(frozen=True, slots=True)
class Risk:
    """The next sweep of a profile: after how many days it takes a chat, by which file's word ("": Claude's default),
    when it can begin at the earliest, and which sessions are due when (unix seconds); `paths` are their files."""

    profile: str
    days: float
    file: str
    earliest: float
    due: dict[str, float]
    paths: dict[str, str]


def _risks(vault: Vault, now: float, own: str) -> list[Risk]:
    found = doctor.seen(vault, now)
    risks = []
    for profile in found.profiles:
        if own in ("", profile.path):
            taken = sweeps.taken(profile, found)
            days, file = sweeps.days_of(profile, found)
            due = {one.session: profile.forecast.due[one.session] for one in taken}
            paths = {one.session: one.path for one in taken}
            risks.append(Risk(profile.path, days, file, profile.forecast.earliest, due, paths))
    return risks


def _at_risk(vault: Vault, risks: list[Risk], now: float) -> list[Described]:
    """The chats that are due, kept or not."""
    due = {(risk.profile, session): path for risk in risks for session, path in risk.paths.items()}
    rows = [row for row in vault.rows() if (row.profile, row.session) in due]
    kept = {(row.profile, row.session) for row in rows}
    exclusion, default = Exclusion(vault), vault.settings.policy
    alone = [
        describe_live(path, session, profile, EXCLUDE if left_out(exclusion, profile, session, path, now) else default)
        for (profile, session), path in due.items() if (profile, session) not in kept
    ]  # fmt: skip
    return [*describe(vault, rows), *(one for one in alone if one is not None)]


def _told(risk: Risk, now: float) -> str:
    when = f"from {out.when(risk.earliest)} on" if risk.earliest > now else "at any moment"
    whose = risk.file or "Claude's default"
    return (
        f"the next sweep of {_home(risk.profile)}, {when}, takes what nobody changed for {risk.days:g} days "
        f"({_home(whose)}): {len(risk.due)} chats"
    )


# ------------------------------------------------------------------ how a person reads it


def _names(folder: Path | None) -> frozenset[str]:
    """The names of a directory by which its chats may be known."""
    return (
        frozenset((str(folder.expanduser().absolute()), str(folder.expanduser().resolve()))) if folder else frozenset()
    )


def _time(text: str | None) -> str:
    """A time as `describe` tells it."""
    return out.iso(out.time_ns(text) // 10**9) if text else ""


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
