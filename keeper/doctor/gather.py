"""Gather: the facts of the vault and of the profiles, by looking alone.

It promises to write nothing, also where the index is lost, and to go on where a part cannot be looked at.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from keeper import claude, files
from keeper.claude import Running
from keeper.doctor import history, look, machine, sweeps
from keeper.doctor.facts import Live, Lost, Profile, Seen, VaultFacts
from keeper.files import regular
from keeper.retention import DAY_S, MANAGED, forecast, last_sweep, retention, sources
from keeper.transcripts.describe import states
from keeper.transcripts.index import IndexLost, Row
from keeper.transcripts.places import known_profiles
from keeper.transcripts.vault import Vault
from keeper.transcripts.verdict import Verdict

LATELY_S = 30 * DAY_S
Kind = Callable[[str], str]
"""The type of the volume that a folder is on, "" where it cannot be told."""


def rows_of(vault: Vault) -> tuple[list[Row], bool]:
    """The index's rows, or what the folders tell where it is lost; whether it is. Raises Locked."""
    try:
        return vault.index.rows(), False
    except IndexLost:
        return vault.rows_of_folders(), bool(vault.chat_names())


def profiles_of(vault: Vault, rows: Iterable[Row], running: Iterable[Running]) -> list[Path]:
    """Every profile that is known and there, and the one in use before Claude has made it."""
    known = known_profiles(vault, rows, (one.profile for one in running))
    return [one for one in known if os.path.isdir(one) or one == vault.settings.profiles[0]]


def profiles(
    vault: Vault, rows: list[Row] | None, running: list[Running], kind: Kind, now: float,
    installed: tuple[tuple[str, str], ...] = (), managed: Iterable[Path] = MANAGED,
) -> tuple[Profile, ...]:  # fmt: skip
    """What is found of each profile; `rows` is None where the vault cannot be used: then nobody knows what is kept, or
    lost. `installed` are the CLIs on PATH. Raises what the vault raises, and nothing of a profile's own."""
    seen = {
        profile: look.lives(vault, profile, rows, now) if rows is not None else look.lives_alone(profile)
        for profile in profiles_of(vault, rows or [], running)
    }
    there = _there(vault, rows) | {one.session for lives, _ in seen.values() for one in lives}
    found = []
    for profile, (lives, cwds) in seen.items():
        mine = [one for one in running if one.profile == profile]
        told, unread = history.read(profile), _unread(profile)
        known = [*cwds, *_cwds(profile, rows or [], mine), *told.cwds]
        gone = history.lost(profile, told, there) if rows is not None and not unread else ()
        found.append(_profile(profile, lives, known, kind, now, tuple(managed), gone, unread))
    whole = Seen(tuple(found), installed)
    return tuple(_forecast(one, whole, running, now) for one in found)


def _there(vault: Vault, rows: list[Row] | None) -> set[str]:
    """The sessions that are kept, or went by somebody's word."""
    if rows is None:
        return set()
    gone = {str(session) for entry in vault.removals.read() for session in entry.get("sessions") or ()}
    return {row.session for row in rows} | {stone.session for stone in vault.tombstones()} | gone


def _unread(profile: Path) -> str:
    """Why not all of a profile's transcripts can be looked at, "" where they can."""
    failures = claude.survey(profile).failures
    if not failures:
        return ""
    error = files.told(failures[0], profile)
    return f"{error.message}: {error.cure}"


def _forecast(profile: Profile, seen: Seen, running: list[Running], now: float) -> Profile:
    """The next sweep by the days that count at the worst, which hang on the versions of all profiles."""
    times = {one.session: one.changed for one in profile.live}
    started = [one.started for one in running if str(one.profile) == profile.path]
    days, _ = sweeps.days_of(profile, seen)
    return replace(profile, forecast=forecast(times, days, profile.last_sweep, started, now))


def _cwds(profile: Path, rows: Iterable[Row], running: Iterable[Running]) -> list[str]:
    """The directories in which a Claude of this profile may be started."""
    found = [row.cwd for row in rows if row.profile == str(profile)] + [one.cwd for one in running]
    files = [profile / ".claude.json"]
    if profile.name == ".claude":
        files.append(profile.parent / ".claude.json")  # the default profile's stands beside it
    return found + [cwd for file in files for cwd in history.projects(file)]


def _profile(
    profile: Path, lives: tuple[Live, ...], cwds: list[str], kind: Kind, now: float, managed: tuple[Path, ...],
    lost: tuple[Lost, ...], unread: str,
) -> Profile:  # fmt: skip
    period = retention(profile, cwds, managed)
    swept = last_sweep(profile)
    return Profile(
        path=str(profile),
        live=lives,
        retention=period,
        sources=sources(profile, cwds, managed),
        last_sweep=swept,
        forecast=forecast({}, period.days, swept, [], now),
        history=str(profile / history.FILE),
        lost=lost,
        versions=look.versions(lives, now - LATELY_S),
        device=_device(profile / "projects"),
        kind=kind(str(profile)),
        folders=machine.folders(profile),
        unread=unread,
    )


def vault_facts(vault: Vault, rows: list[Row], index_lost: bool, found: Iterable[Profile], kind: Kind) -> VaultFacts:
    """What is found of the vault itself."""
    root = vault.root
    if not root.is_dir():
        return VaultFacts(str(root), made=False)
    names = vault.chat_names()
    folders = [root / "chats", root / "locks", *(root / "chats" / name for name in names)]
    there = set(names)
    live = {one.session: one.path for profile in found for one in profile.live}
    buried = [stone for stone in vault.tombstones() if stone.by == "hand" and stone.session in live]
    seen, room = os.stat(root), os.statvfs(root)
    return VaultFacts(
        path=str(root),
        made=(root / "id").is_file(),
        index_lost=index_lost,
        chats=len(names),
        missing=tuple(sorted({row.chat for row in vault.missing(rows) if not vault.went(row)})),
        bare=tuple(row.session for row in rows if row.chat in there and _is_bare(vault, row)),
        forgotten=tuple(dict.fromkeys(stone.session for stone in buried)),
        states=() if index_lost else tuple(states(vault)),
        leaves=look.leaves(vault, rows, live),
        places={row.session: _places(row) for row in rows if row.state == Verdict.DOUBLED},
        foreign=tuple(_foreign([root, *folders])),
        closed=tuple(str(folder) for folder in [root, *folders] if _is_closed(folder)),
        mode=stat.S_IMODE(seen.st_mode),
        open_folders=tuple(_open(root, folders)),
        device=seen.st_dev,
        kind=kind(str(root)),
        free=room.f_bavail * room.f_frsize,
        free_files=room.f_favail if room.f_files else None,
        read_only=bool(room.f_flag & os.ST_RDONLY),
        born=_time(root / "id"),
    )


def _is_bare(vault: Vault, row: Row) -> bool:
    return regular(vault.chat(row.chat).kept(row.session)) is None


def _places(row: Row) -> tuple[str, ...]:
    """Where a session lives, the newest last."""
    found = claude.one_name_each(claude.places(Path(row.profile), row.session))
    return tuple(str(path) for path in sorted(found, key=_time))


def _foreign(folders: Iterable[Path]) -> Iterator[str]:
    """The folders that are another user's."""
    for path in folders:
        with suppress(OSError):
            if os.stat(path).st_uid != os.geteuid():
                yield str(path)


def _is_closed(folder: Path) -> bool:
    """Whether a folder of yours is there that no keep of yours can write to."""
    with suppress(OSError):
        return os.stat(folder).st_uid == os.geteuid() and not os.access(folder, os.R_OK | os.W_OK | os.X_OK)
    return False


def _open(root: Path, folders: Iterable[Path]) -> Iterator[str]:
    """The folders of the vault, and the files at its top, that others may look into."""
    for path in folders:
        with suppress(OSError):
            if stat.S_IMODE(os.stat(path).st_mode) & 0o077:
                yield str(path)
    with suppress(OSError), os.scandir(root) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False) and stat.S_IMODE(entry.stat().st_mode) & 0o077:
                yield entry.path


def _device(path: Path) -> int:
    """The volume that the path is on, or would be."""
    while not os.path.exists(path) and path != path.parent:
        path = path.parent
    return os.stat(path).st_dev


def _time(path: Path) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0
