"""Resume: what is done before Claude resumes a conversation: found, kept, put back; and the list to choose from.

It promises that one conversation is put back at a time, the one that is about to be resumed (RESTORE-11); that what was
deleted by hand is not brought back by a `--continue`; and that what was never kept and is gone is said to be gone, and
nothing invented (RESTORE-9). It refuses another profile's conversation.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from keeper import claude, disk
from keeper.claude import folder_names, is_session
from keeper.doors import flags
from keeper.doors.cli_version import installed_version, version_of_files
from keeper.errors import KeeperError, Locked, NotKept, Usage
from keeper.files import regular
from keeper.retention import SWEEPS_AT_ONCE
from keeper.settings import Settings
from keeper.transcripts import places
from keeper.transcripts.activity import removed
from keeper.transcripts.describe import Described, age, describe, printable
from keeper.transcripts.head import resumable
from keeper.transcripts.index import Row
from keeper.transcripts.keep import Keeper, keep_session
from keeper.transcripts.restore import Restored, Restorer, Want
from keeper.transcripts.vault import Vault

SHOWN = 30
"""So many conversations of a directory are listed, the newest."""
PREFIX = 4
"""So many characters of a session id may stand for it, where no other begins with them."""


@dataclass(frozen=True, slots=True)
class Start:
    """A start of Claude: with which profile, from which directory, which program ("": not known)."""

    settings: Settings
    profile: Path
    cwd: str
    real: str

    def version(self) -> str:
        """The version of the program, "" where it is not told."""
        return version_of_files(self.real) if self.real else ""

    def sweeps_at_once(self) -> bool:
        """Whether that program may sweep the moment it starts; one that does not tell its version may."""
        version = claude.version_of(self.version())
        return not version or version <= SWEEPS_AT_ONCE

    def folders(self) -> tuple[str, ...]:
        """The names that the directory's project folder may have."""
        return folder_names(os.path.realpath(self.cwd))


# ------------------------------------------------------------------ before a start


def before(start: Start, asked: flags.Asked, agent: bool) -> tuple[list[str], bool]:
    """Keep what this start could sweep, and put back what it resumes; what a person must know of it, and whether there
    is something to choose that Claude's own list has not. `agent`: one runs, and has kept everything.

    All is tried; the first that fails is raised at the end.
    """
    said: list[str] = []
    failures: list[KeeperError | OSError] = []
    choose = False
    try:
        with Vault.open(start.settings) as vault:
            if not agent and (start.sweeps_at_once() or asked.kind == flags.BARE):
                with _collected(failures):
                    said += keep_all(start, vault)
            with _collected(failures):
                said += _put_back_what_is_asked(start, vault, asked)
                choose = asked.kind == flags.BARE and any(one.state == "swept" for one in choices(start, vault)[0])
    finally:
        if not agent:
            keep_behind(start)
    if failures:
        raise failures[0]
    return said, choose


@contextmanager
def _collected(failures: list[KeeperError | OSError]) -> Iterator[None]:
    try:
        yield
    except (KeeperError, OSError) as error:
        failures.append(error)


def _put_back_what_is_asked(start: Start, vault: Vault, asked: flags.Asked) -> list[str]:
    session = asked.session()
    said: list[str] = []
    if asked.kind == flags.NEWEST:
        session, said = newest(start, vault)
    elif asked.kind == flags.ONE and not session:
        session = titled(start, vault, asked.value)
    if not session:
        return said
    answer = put_back(start, vault, session)
    return [*said, *(answer.warnings if answer else ())]


def keep_all(start: Start, vault: Vault) -> list[str]:
    """Link all that the profile has into the vault, durable; what could not be kept is told."""
    keeper = Keeper(vault, time.time())
    answers = keeper.profile(start.profile)
    keeper.finish()
    failed = [answer for answer in answers if answer.error]
    return [f"{len(failed)} conversations could not be kept: `keeper keep` says why"] if failed else []


def keep_behind(start: Start) -> None:
    """Keep and seal the profile in a process of its own, which Claude does not wait for."""
    import subprocess
    import sys

    program = "import sys; from keeper.doors.before import main; main(sys.argv[1:])"
    nowhere = subprocess.DEVNULL
    words = [sys.executable, "-EP", "-c", program, "keep", start.real]  # nothing of the project's PYTHONPATH
    environ = {**os.environ, "CLAUDE_CONFIG_DIR": str(start.profile)}
    subprocess.Popen(words, env=environ, stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True)


def keep_now(start: Start) -> None:
    """What runs behind a start. One at a time: of many starts at once each would do the same work again."""
    os.nice(10)
    with Vault.open(start.settings) as vault, suppress(Locked):
        disk.ensure_dir(start.settings.state_home)
        with disk.lock(start.settings.state_home / "behind.lock", 0):
            keeper = Keeper(vault, time.time())
            keeper.profile(start.profile)
            keeper.finish()
            keeper.seal()


def put_back(start: Start, vault: Vault, session: str) -> Restored | None:
    """The conversation, whole and with the time of now; None where it lives and is not to be kept.

    Raises NotKept where it is in no file any more, and what a restore raises.
    """
    claude.check_session(session)
    lives = claude.one_name_each(claude.places(start.profile, session))
    mine = [row for row in vault.rows(session) if row.profile == str(start.profile)]
    if lives and not mine:
        with suppress(NotKept):  # noise is no conversation
            keep_session(vault, session, time.time(), profile=start.profile)
    cwd = start.cwd if len(lives) > 1 else None
    want = Want(start.profile, cwd, cli=lambda: start.version() or installed_version())
    try:
        return Restorer(vault, time.time_ns(), want).session(session)
    except NotKept:
        if lives:
            return None
        raise _gone(start, vault, session) from None


def _gone(start: Start, vault: Vault, session: str) -> NotKept:
    """What there is to say of a conversation that is nowhere: forgotten, another profile's, removed, or never kept."""
    if any((stone.session, stone.profile) == (session, str(start.profile)) for stone in vault.tombstones()):
        return NotKept(f"session {session} was forgotten, and its transcript is gone", "start a new one")
    elsewhere = sorted({row.profile for row in vault.rows(session)})
    if elsewhere:
        theirs = f"CLAUDE_CONFIG_DIR={elsewhere[0]} claude --resume {session}"
        return NotKept(f"session {session} is kept of another profile, {', '.join(elsewhere)}", f"`{theirs}`")
    cure = prompts_offered([start.profile], session)
    went = removed(vault, session)
    told = f"it was removed from the vault, by the {went['by']} {went['why']}" if went else "it was never kept"
    return NotKept(f"session {session} is gone: {told}, and {start.profile} has it no more", cure)


def prompts_offered(profiles: Iterable[Path], session: str) -> str | None:
    """How to have what these profiles' histories still hold of the session; None where that is nothing (RESTORE-9)."""
    held = sum(len(prompts(profile, session)) for profile in profiles)
    return f"history.jsonl still holds {held} of its prompts: `keeper resume {session} --prompts`" if held else None


def prompts(profile: Path, session: str) -> list[str]:
    """The prompts of the session that the profile's history still holds, in its order (RESTORE-9)."""
    found = []
    with suppress(FileNotFoundError), open(profile / "history.jsonl", "rb") as lines:
        for line in lines:
            if session.encode() not in line:
                continue
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict) and entry.get("sessionId") == session and isinstance(entry.get("display"), str):
                found.append(printable(entry["display"]))
    return found


# ------------------------------------------------------------------ which one


def newest(start: Start, vault: Vault) -> tuple[str, list[str]]:
    """The conversation that `--continue` takes: the newest that lives in the directory's project folder, else the
    newest that is kept of it; "" where there is none.

    A sweep takes the oldest first: what is missing while an older one lives was deleted by hand, and stays so.
    """
    lives = sorted(_living(start), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    live = next((path for path in lives if resumable(str(path))), None)
    swept = [row for row in _rows(start, vault) if not claude.places(start.profile, row.session)]
    kept = next((row for row in swept if resumable(_kept(vault, row))), None)
    if live is None:
        return (kept.session if kept else ""), []
    if kept is not None and os.stat(_kept(vault, kept)).st_mtime_ns > live.stat().st_mtime_ns:
        told = f"a newer conversation of this directory was deleted: `keeper restore {kept.session}` puts it back"
        return live.stem, [told]
    return live.stem, []


def _living(start: Start) -> Iterator[Path]:
    """The transcripts in the directory's project folder that are regular files, as `--continue` sees them."""
    for name in start.folders():
        folder = f"{start.profile}/projects/{name}"
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
            for entry in entries:
                if (
                    entry.name.endswith(".jsonl")
                    and is_session(entry.name[:-6])
                    and entry.is_file(follow_symlinks=False)
                ):
                    yield Path(entry.path)


def _kept(vault: Vault, row: Row) -> str:
    return vault.chat(row.chat).kept(row.session)


def _rows(start: Start, vault: Vault) -> list[Row]:
    """What is kept of the directory, of this profile, one row a session, the newest first."""
    cwds, folders = (start.cwd, os.path.realpath(start.cwd)), start.folders()
    found: dict[str, tuple[int, Row]] = {}
    for row in vault.rows():
        if row.profile == str(start.profile) and (row.cwd in cwds or row.project in folders):
            seen = regular(_kept(vault, row))
            if seen is not None:
                found.setdefault(row.session, (seen.st_mtime_ns, row))
    return [row for _, row in sorted(found.values(), key=lambda one: one[0], reverse=True)]


def choices(start: Start, vault: Vault) -> tuple[list[Described], int]:
    """The conversations of the directory that can be resumed, the newest first, and how many more there are."""
    rows = [row for row in _rows(start, vault) if resumable(_kept(vault, row))]
    return describe(vault, rows[:SHOWN])[::-1], len(rows[SHOWN:])


def listed(found: list[Described], now: float) -> list[str]:
    """The list as a person reads it: number, age, whether it is there, its session, its title."""
    return [
        f"{place:>3}  {age(one.last, now):>6}  {one.state:<9}  {one.session[:8]}  {one.title}"
        for place, one in enumerate(found, 1)
    ]


def ask(start: Start, own_list: bool) -> str:
    """Have a person choose, on the terminal; "" where none is chosen. `own_list`: Claude's own list comes then, after
    Ctrl-C too."""
    import click

    with Vault.open(start.settings) as vault:
        found, more = choices(start, vault)
    if not found:
        return ""
    click.echo("Conversations of this directory that keeper can put back:", err=True)
    for line in listed(found, time.time()):
        click.echo(line, err=True)
    if more:
        click.echo(f"and {more} older ones: `keeper list --cwd .`", err=True)
    what = "Which one (Enter: Claude's own list)" if own_list else "Which one (Enter: none)"
    while True:
        try:
            said = click.prompt(what, default="", show_default=False, err=True).strip()
        except click.Abort:
            if not own_list:
                raise
            return ""
        if not said:
            return ""
        if said.isdecimal() and 1 <= int(said) <= len(found):
            return found[int(said) - 1].session
        click.echo(f"say a number from 1 to {len(found)}", err=True)


def titled(start: Start, vault: Vault, title: str) -> str:
    """The swept conversation of the directory that has this title; "" where none or several have it, or one that lives:
    Claude tells these apart by itself."""
    found = [one for one in describe(vault, _rows(start, vault)) if one.title == title]
    return found[0].session if len(found) == 1 and not found[0].live else ""


def named(start: Start, vault: Vault, name: str) -> str:
    """The session that a person names: by its id, its beginning, its chat, or its title; those of the directory first.

    Raises NotKept, and Usage where several are meant.
    """
    if is_session(name):
        return name
    rows = [row for row in vault.rows() if row.profile == str(start.profile)]
    found = {row.session for row in rows if row.chat == name}
    if not found and len(name) >= PREFIX:
        lives = {path.stem for path in _living(start)}  # what a bound keeps out of the vault is no row
        found = {one for one in {*lives, *(row.session for row in rows)} if one.startswith(name.lower())}
    if not found:
        told = [one for one in describe(vault, rows) if one.title.casefold() == name.casefold()]
        here = {row.session for row in _rows(start, vault)}
        found = {one.session for one in told if one.session in here} or {one.session for one in told}
    if not found:
        raise NotKept(f"nothing is kept under {name}", "`keeper list` shows what is kept")
    if len(found) > 1:
        raise Usage(f"{name} is the name of {len(found)} conversations", f"say which: {', '.join(sorted(found))}")
    return found.pop()


def previous(start: Start, vault: Vault, session: str) -> str:
    """The conversation that was cleared for this one. Raises NotKept where none is known."""
    told = places.find(vault, session, start.profile)[0].told
    if not told.cleared_from:
        raise NotKept(f"no conversation is known that was cleared for {session}", "`keeper list --cwd .` shows all")
    return told.cleared_from
