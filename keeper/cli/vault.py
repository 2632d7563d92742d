"""`keeper forget`, `verify`, `reindex`: the vault's own care."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import click

from keeper import claude
from keeper.cli import completion, out
from keeper.errors import KeeperError, NotKept, Partial, Usage
from keeper.transcripts.forget import forget as forget_chat
from keeper.transcripts.keep import Options
from keeper.transcripts.vault import Vault
from keeper.transcripts.verify import Fault, slice_of
from keeper.transcripts.verify import verify as look_through


@click.command()
@click.argument("names", nargs=-1, metavar="SESSION|CHAT...", shell_complete=completion.sessions)
@click.option("--profile", type=click.Path(path_type=Path), help="Only this profile's chat.")
@out.json_option
def forget(names: tuple[str, ...], profile: Path | None, as_json: bool) -> int:
    """Remove every kept byte of a chat, for good; the live files stay.

    Example: keeper forget 3f6c0a52-8d1e-4b7a-9c55-0e2f1a7b9d10
    """
    if not names:
        raise Usage("name a session or a chat", "`keeper list` shows what is kept")
    vault = out.open_vault()
    whose = str(claude.effective(profile)) if profile else None
    gone, failures = [], []
    for name in names:
        try:
            gone.append(forget_chat(vault, name, out.now(), whose))
        except KeeperError as error:
            if len(names) == 1:
                raise
            failures.append(error)
    if as_json:
        told = [{"error": one.message, "cure": one.cure} for one in failures]
        out.say_json({"forgotten": [asdict(one) for one in gone], "failed": told})
    else:
        for one in gone:
            out.say(f"{one.chat}: forgotten, {len(one.sessions)} sessions, {one.bytes} bytes")
        for failure in failures:
            out.warn(failure.message)
    return Partial.exit_code if failures else 0


@click.command()
@click.argument("chats", nargs=-1, metavar="[SESSION|CHAT]...", shell_complete=completion.sessions)
@click.option("--slice", "days", type=click.IntRange(1), help="Only today's part, where all come round in DAYS days.")
@click.option("--repair", is_flag=True, help="Build again what is damaged, from seal or kept file; seal the rest.")
@out.json_option
def verify(chats: tuple[str, ...], days: int | None, repair: bool, as_json: bool) -> int:
    """Prove the kept files against their seals; exits 7 where something is not whole.

    Example: keeper verify --slice 30
    """
    vault = out.open_vault()
    names = [chat for name in chats for chat in _chats(vault, name)] if chats else vault.chat_names()
    if days is not None:
        names = slice_of(names, days, out.now())
    with out.progress("verifying") as progress:
        found = look_through(vault, names, progress)
    wanting = dict.fromkeys([*(fault.chat for fault in found.faults), *found.unsealed])
    if repair and wanting:
        with out.progress("repairing") as progress:
            built = _repair(vault, list(wanting), progress)
        for name in () if as_json else built:
            out.say(f"{name}: built again")
        with out.progress("verifying") as progress:
            found = look_through(vault, names, progress)
    if as_json:
        out.say_json(
            {
                "chats": found.chats,
                "records": found.records,
                "faults": [asdict(fault) for fault in found.faults],
                "notes": [asdict(note) for note in found.notes],
            }
        )
    else:
        out.notes(vault)
        for fault in found.faults:
            out.say(f"fault: {_line(fault)}")
        for note in found.notes:
            out.say(f"note: {_line(note)}")
        out.say(f"{found.chats} chats, {found.records} records: {len(found.faults)} faults, {len(found.notes)} notes")
    return 7 if found.faults else Partial.exit_code if found.held else 0


def _line(fault: Fault) -> str:
    """One line, also where a file's name has a line end in it."""
    return " ".join(f"{fault.chat} {fault.file} {fault.record}: {fault.kind}".split("\n"))


def _repair(vault: Vault, names: list[str], progress: out.Progress | None) -> list[str]:
    """Mend these chats; those that were mended."""
    from keeper.transcripts.audit import repair
    from keeper.transcripts.keep import keep_session

    built = []
    for count, name in enumerate(names):
        if progress is not None:
            progress(count, len(names))
        if not os.path.isdir(vault.chat(name).path):
            continue  # its folder is gone: what can be done about that another fault's words say
        try:
            repair(vault, name, out.now())
            facts = vault.facts(vault.chat(name))
            for session in facts.sessions if facts else ():
                with suppress(NotKept):  # a swept one has no more to give
                    keep_session(vault, session, out.now(), Options(chat=name), Path(facts.profile) if facts else None)
        except KeeperError as error:
            out.warn(f"{name}: {error.message}")
            continue
        built.append(name)
    if progress is not None:
        progress(len(names), len(names))
    return built


def _chats(vault: Vault, name: str) -> list[str]:
    """The chats that a chat's or a session's name means. Raises NotKept."""
    rows = [row.chat for row in vault.rows() if name in (row.chat, row.session)]
    found = list(dict.fromkeys([*rows, *(one for one in vault.chat_names() if one == name)]))
    if not found:
        raise NotKept(f"nothing is kept under {name}", "`keeper list` shows what is kept")
    return found


@click.command()
@out.json_option
def reindex(as_json: bool) -> int:
    """Build the index anew from the chats' folders.

    Example: keeper reindex
    """
    vault = out.open_vault()
    count = len(vault.reindex()) if vault.chat_names() else 0
    if as_json:
        out.say_json({"rows": count})
    else:
        out.say(f"{count} sessions indexed")
    return 0
