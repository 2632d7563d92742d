"""Facts: what a report tells, read from the vault and the profiles at the moment of asking.

It promises that a chat is *at risk* where the next sweep can take it (by the smallest retention that any settings file
names), *rescued* where Claude no longer has it and the vault does, and *live* otherwise; and that bytes count as shared
only where their file has a name outside the vault. It refuses to change anything, and to read transcripts: titles are
`page`'s own to ask for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from keeper import claude
from keeper.files import regular, walk
from keeper.retention import Forecast, Retention, forecast, last_sweep, retention
from keeper.transcripts.chat import Chat, Facts
from keeper.transcripts.frame import Frame
from keeper.transcripts.frame import walk as frames
from keeper.transcripts.glance import Glance, glance
from keeper.transcripts.index import Row
from keeper.transcripts.places import known_profiles
from keeper.transcripts.policy import may_be_swept, policy_of
from keeper.transcripts.vault import Vault

LIVE, AT_RISK, RESCUED = "live", "at risk", "rescued"

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Bytes:
    """What chats' folders hold. `shared` are bytes that a link shares with Claude's own file, `own` the rest, of which
    `seals` are those of the seals."""

    shared: int = 0
    own: int = 0
    seals: int = 0


@dataclass(frozen=True, slots=True)
class Session:
    """One kept session. Times in unix seconds: `last` when it was last written to, `due` when a sweep can take it
    (None: it does not live), `gone` when its live file went (None: it lives, or that cannot be told), `swept` whether a
    sweep can have taken it. `size` are the transcript's bytes, `seal` its seal's, `grew` how many the transcript had at
    which time."""

    row: Row
    stands: str
    policy: str
    size: int
    last: float
    due: float | None
    gone: float | None
    swept: bool
    grew: tuple[tuple[float, int], ...]
    seal: int

    @property
    def linked(self) -> bool:
        """Whether kept and live were one file while it lived."""
        return self.row.mode == "link"


@dataclass(frozen=True, slots=True)
class Profile:
    """One profile: what a sweep goes by and what it can take, how many sessions live, and which the vault does not hold
    yet."""

    path: str
    there: bool
    period: Retention
    last_sweep: float | None
    next: Forecast
    live: int
    unkept: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Gathered:
    """All of it, as it was at `now` (unix seconds). `bytes` by profile; `free` bytes of the vault's volume."""

    now: float
    vault: str
    profiles: tuple[Profile, ...]
    sessions: tuple[Session, ...]
    bytes: dict[str, Bytes]
    missing: int
    free: int


def gather(vault: Vault, now: float, history: bool = False, progress: Progress | None = None) -> Gathered:
    """Look at everything that is kept; `history`: how it grew as well, which reads the seals' frames."""
    rows = vault.rows()
    glances = {str(profile): glance(vault, profile, rows) for profile in known_profiles(vault)}
    running = claude.running()
    profiles = {
        path: _profile(vault, Path(path), seen, [row for row in rows if row.profile == path], running, now)
        for path, seen in glances.items()
    }
    sessions: list[Session] = []
    chats: dict[str, str] = {}
    facts: dict[str, Facts | None] = {}
    for done, row in enumerate(rows):
        if row.chat not in facts:
            facts[row.chat] = vault.facts(vault.chat(row.chat))
        chats[row.chat] = row.profile
        live = glances[row.profile].live.get(row.session)
        one = _session(vault, row, facts[row.chat], profiles[row.profile], live is not None, history)
        if one is not None:
            sessions.append(one)
        if progress is not None:
            progress(done + 1, len(rows))
    held = dict.fromkeys(profiles, Bytes())
    for name, path in chats.items():
        held[path] = _sum(held[path], _bytes(vault.chat(name)))
    return Gathered(
        now, str(vault.root), tuple(profiles.values()), tuple(sessions), held,
        len({row.chat for row in vault.missing()}), _free(vault.root),
    )  # fmt: skip


def _profile(
    vault: Vault, path: Path, seen: Glance, rows: list[Row], running: Iterable[claude.Running], now: float
) -> Profile:
    mine = [one for one in running if one.profile == path]
    period = retention(path, [*(row.cwd for row in rows if row.cwd), *(one.cwd for one in mine)])
    swept = last_sweep(path)
    times = {session: live.mtime_ns / 1e9 for session, live in seen.live.items()}
    started = [one.started for one in mine if one.started]
    coming = forecast(times, period.days, swept, started, now)
    kept = {row.session for row in rows}
    unkept = [one for one in seen.unkept if one not in kept and vault.forgotten(str(path), one) is None]
    return Profile(str(path), path.is_dir(), period, swept, coming, len(seen.live), tuple(unkept))


def _session(
    vault: Vault, row: Row, facts: Facts | None, profile: Profile, lives: bool, history: bool
) -> Session | None:
    chat = vault.chat(row.chat)
    seen = regular(chat.kept(row.session))
    if seen is None:
        return None
    due = profile.next.due.get(row.session) if lives else None
    stands = LIVE if lives else RESCUED
    if lives and row.session in profile.next.chats:
        stands = AT_RISK
    gone = _gone(chat, row, seen) if not lives else None
    swept = gone is not None and may_be_swept(seen.st_mtime_ns, int(gone * 1e9), profile.period.days)
    seal = chat.seal(f"{row.session}.jsonl")
    sealed = regular(seal)
    return Session(
        row, stands, policy_of(facts, vault.settings.policy), seen.st_size, seen.st_mtime, due, gone, swept,
        _grew(seal, row, seen) if history else (), sealed.st_size if sealed else 0,
    )  # fmt: skip


def _gone(chat: Chat, row: Row, kept: os.stat_result) -> float | None:
    """When the live name went: the time at which the inode that it shared with the vault was last changed."""
    if row.mode == "link":
        return kept.st_ctime
    if row.mode == "split":
        seen = regular(chat.live_link(f"{row.session}.jsonl"))
        return seen.st_ctime if seen else None
    return None


def _grew(seal: str, row: Row, kept: os.stat_result) -> tuple[tuple[float, int], ...]:
    """How long the transcript was at which time; by its birth where nothing is sealed yet."""
    found: list[tuple[float, int]] = []
    for _, frame in frames(seal):
        if not isinstance(frame, Frame):
            break
        found += [(when / 1e9, end) for when, end in frame.marks]
        found.append((frame.time_ns / 1e9, frame.end))
    if not found or found[-1][1] != kept.st_size:
        since = found[-1][0] if found else row.since or row.born
        found.append((max(since, kept.st_mtime if found else since), kept.st_size))
    return tuple(found)


def _bytes(chat: Chat) -> Bytes:
    """Each inode once; shared where it has more names than the vault gave it."""
    inodes: dict[tuple[int, int], list[int]] = {}
    for path, label in walk(chat.path, "", []):
        seen = regular(path)
        if seen is not None:
            known = inodes.setdefault((seen.st_dev, seen.st_ino), [seen.st_size, seen.st_nlink, 0, 0])
            known[2] += 1
            known[3] |= label.startswith("/seal/")
    shared = sum(size for size, links, names, _ in inodes.values() if links > names)
    own = sum(size for size, links, names, _ in inodes.values() if links <= names)
    return Bytes(shared, own, sum(size for size, *_, is_seal in inodes.values() if is_seal))


def _sum(one: Bytes, other: Bytes) -> Bytes:
    return Bytes(one.shared + other.shared, one.own + other.own, one.seals + other.seals)


def _free(root: Path) -> int:
    with suppress(OSError):
        seen = os.statvfs(root)
        return seen.f_bavail * seen.f_frsize
    return 0
