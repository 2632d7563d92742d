"""Facts: what a report tells, read from the vault and the profiles at the moment of asking.

It promises that a chat is *at risk* where the forecast that it is given says so, *rescued* where Claude no longer has
it and the vault does, and *live* otherwise; and that bytes count as shared only where their file has a name outside the
vault. It refuses to change anything, and to read transcripts: titles are `page`'s own to ask for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from keeper.files import regular
from keeper.retention import DEFAULT_DAYS
from keeper.transcripts.activity import last_activity
from keeper.transcripts.chat import Chat, Facts
from keeper.transcripts.frame import Frame
from keeper.transcripts.frame import walk as frames
from keeper.transcripts.index import Row
from keeper.transcripts.policy import may_be_swept, policy_of
from keeper.transcripts.usage import usage
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
    """One kept session. Times in unix seconds: `last` when its newest record was written, `due` when a sweep can take
    it (None: it does not live), `gone` when its live file went (None: it lives, or that cannot be told), `swept`
    whether a sweep can have taken it. `size` are the transcript's bytes, `grew` how many it had at which time."""

    row: Row
    stands: str
    policy: str
    size: int
    last: float
    due: float | None
    gone: float | None
    swept: bool
    grew: tuple[tuple[float, int], ...]

    @property
    def linked(self) -> bool:
        """Whether kept and live were one file while it lived."""
        return self.row.mode == "link"


@dataclass(frozen=True, slots=True)
class Profile:
    """One profile, as whoever forecasts sweeps sees it. `days` after which one takes a chat, by the word of `file` (""
    is Claude's default); `odd` are files whose word is none; `earliest` before which none can begin, `due` when each
    live session is old enough, `taken` those that are by then; `unkept` the live chats that the vault does not hold.
    Times in unix seconds. One that is not `there` now has no sweep to come."""

    path: str
    days: float = DEFAULT_DAYS
    file: str = ""
    odd: tuple[str, ...] = ()
    last_sweep: float | None = None
    earliest: float | None = None
    due: Mapping[str, float] = field(default_factory=dict)
    taken: frozenset[str] = frozenset()
    unkept: tuple[str, ...] = ()
    there: bool = True


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


def gather(
    vault: Vault, now: float, profiles: Iterable[Profile], history: bool = False, progress: Progress | None = None
) -> Gathered:
    """Look at everything that is kept; `history`: how it grew and when it was used, too, which reads the seals' frames
    and the transcripts' ends. `profiles` are those that are there; those that only chats tell of are put behind."""
    rows = vault.rows()
    known = {one.path: one for one in profiles}
    known |= {row.profile: Profile(row.profile, there=False) for row in rows if row.profile not in known}
    sessions: list[Session] = []
    facts: dict[str, Facts | None] = {}
    for done, row in enumerate(rows):
        if row.chat not in facts:
            facts[row.chat] = vault.facts(vault.chat(row.chat))
        one = _session(vault, row, facts[row.chat], known[row.profile], now, history)
        if one is not None:
            sessions.append(one)
        if progress is not None:
            progress(done + 1, len(rows))
    held = dict.fromkeys(known, Bytes())
    for chat in usage(vault, now):
        held[chat.profile] = _sum(held.get(chat.profile, Bytes()), Bytes(chat.shared, chat.frees, chat.seal))
    missing = len({row.chat for row in vault.missing()})
    return Gathered(now, str(vault.root), tuple(known.values()), tuple(sessions), held, missing, _free(vault.root))


def _session(
    vault: Vault, row: Row, facts: Facts | None, profile: Profile, now: float, history: bool
) -> Session | None:
    chat = vault.chat(row.chat)
    seen = regular(chat.kept(row.session))
    if seen is None:
        return None
    due = profile.due.get(row.session)
    stands = RESCUED if due is None else AT_RISK if row.session in profile.taken else LIVE
    gone = _gone(chat, row, seen) if due is None else None
    swept = gone is not None and may_be_swept(seen.st_mtime_ns, int(gone * 1e9), profile.days)
    last = seen.st_mtime
    grew: tuple[tuple[float, int], ...] = ()
    if history:
        last = last_activity(chat.kept(row.session), now)
        grew = _grew(chat.seal(f"{row.session}.jsonl"), row, seen)
    policy = policy_of(facts, vault.settings.policy)
    return Session(row, stands, policy, seen.st_size, last, due, gone, swept, grew)


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


def _sum(one: Bytes, other: Bytes) -> Bytes:
    return Bytes(one.shared + other.shared, one.own + other.own, one.seals + other.seals)


def _free(root: Path) -> int:
    with suppress(OSError):
        seen = os.statvfs(root)
        return seen.f_bavail * seen.f_frsize
    return 0
