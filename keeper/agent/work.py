"""Work: what the agent does with a vault: keep one session, reconcile all, seal behind, restore for a door.

It promises that each thread has the vault open for itself, that a pass over everything can be stopped between two
sessions with all that it has done made durable, and that a first look at many chats links them all before it seals
any. It refuses to seal where the seals would fill the volume.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Container
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from keeper import files
from keeper.agent.pulse import Pulse
from keeper.claude import check_session, effective
from keeper.errors import KeeperError, NotKept
from keeper.settings import Settings
from keeper.transcripts.exclude import Exclusion
from keeper.transcripts.glance import Glance, glance
from keeper.transcripts.keep import Keeper, Options, keep_session
from keeper.transcripts.ledger import Kept
from keeper.transcripts.places import known_profiles, profiles_of
from keeper.transcripts.prune import Plan, plan
from keeper.transcripts.removal import Removed
from keeper.transcripts.restore import Restored, Restorer, Want
from keeper.transcripts.vault import RELATIVE_WAIT_S, Vault

SEAL_SHARE = 0.3
SPARE = 64 << 20
"""Seals are begun where the volume has room for this share of what is to be sealed, and so many bytes more."""

END_WAIT_S = 0.1
"""So long is a lock waited for at the end."""


class Stopped(BaseException):
    """The agent is to end: raised out of a pass, between two sessions."""


@dataclass(frozen=True, slots=True)
class Pass:
    """What a reconcile did: how many sessions it looked at, how many changed, what failed and why; seconds by the
    clock, and of the processor without the sealing."""

    sessions: int
    changed: int
    failures: tuple[tuple[str, str], ...]
    seconds: float
    cpu_s: float
    unsealed: tuple[tuple[str, str], ...] = ()


class Work:
    """The vault's work. `stop` says whether the agent is to end, `told` takes each note of the vault's, `shows` gives,
    for as long as a look over everything takes, what is to be told how far it is."""

    def __init__(self, settings: Settings, stop: Callable[[], bool], told: Callable[[str], None]) -> None:
        self.settings = settings
        self.stop = stop
        self.told = told
        self.shows: Callable[[], AbstractContextManager[Callable[[int, int], None] | None]] = nullcontext
        self._show: Callable[[int, int], None] | None = None
        self.sealing: tuple[int, int] | None = None
        self.pulse = Pulse()
        self._own = threading.local()
        self._passing = threading.Lock()

    def vault(self) -> Vault:
        """This thread's own, opened with the settings of now."""
        known: tuple[Settings, Vault] | None = getattr(self._own, "vault", None)
        if known is None or known[0] is not self.settings:
            known = self.settings, Vault.open(self.settings)
            self._own.vault = known
        return known[1]

    def let_go(self) -> None:
        """After a failure, or at a thread's end: the next use opens it anew, and sees whether it is still there."""
        known: tuple[Settings, Vault] | None = getattr(self._own, "vault", None)
        if known is not None:
            known[1].index.close()
            self._own.vault = None

    def keep(self, profile: str, session: str) -> Kept | None:
        """Keep one session, sealed and durable; None where there is nothing to keep. Raises KeeperError."""
        vault = self.vault()
        try:
            (answer,) = keep_session(vault, session, time.time(), Options(), effective(profile))
        except NotKept:
            return None
        except (KeeperError, OSError):
            self.let_go()
            raise
        finally:
            self._notes(vault)
        return answer

    def restore(self, profile: str, session: str) -> Restored:
        """Put one session back, in its profile where that is said. Raises KeeperError."""
        vault = self.vault()
        want = Want(effective(profile) if profile else None, cli=_asked_of_the_door)
        try:
            return Restorer(vault, time.time_ns(), want).session(check_session(session))
        finally:
            self._notes(vault)

    def link(self, sessions: dict[str, set[str]]) -> None:
        """Link these sessions, by profile, durable when this returns; they are sealed at the next start. One that
        another has in hand is left to that, too: this is the agent's end."""
        with Vault.open(replace(self.settings, lock_wait_s=END_WAIT_S)) as vault:
            keeper = Keeper(vault, time.time())
            for profile, wanted in sessions.items():
                keeper.profile(effective(profile), only=wanted)
            keeper.finish()
            self._notes(vault)

    def glances(self, only: Container[Path] | None = None) -> dict[Path, Glance]:
        """A quick look over every profile, or these `only`."""
        vault = self.vault()
        rows = vault.rows()
        wanted = [profile for profile in profiles_of(vault) if only is None or profile in only]
        return {profile: glance(vault, profile, rows) for profile in wanted}

    def profiles(self) -> list[Path]:
        """Every profile that is known, there now or not."""
        return known_profiles(self.vault())

    def reconcile(self, linked: Callable[[], None] | None = None) -> Pass:
        """Keep all of every profile, then seal it; `linked` is called in between. Stopped where the agent is to end."""
        with self._passing, self.pulse.at("the look over everything"), self.shows() as self._show:
            begun, spent = time.monotonic(), time.thread_time()
            vault = self.vault()
            keeper = Keeper(vault, time.time())
            answers: list[Kept] = []
            try:
                for profile in profiles_of(vault):
                    answers += keeper.profile(profile, self._step)
            finally:
                keeper.finish()
                self._notes(vault)
            spent = time.thread_time() - spent
            if linked is not None:
                linked()
            unsealed = self._seal(vault, keeper)
            changed = sum(answer.action != "none" for answer in answers)
            failures = tuple((one.session or one.profile, one.error) for one in answers if one.error)
            return Pass(len(answers), changed, failures, time.monotonic() - begun, spent, unsealed)

    def exclude(self, where_new: bool = False) -> tuple[list[Removed], dict[str, str]]:
        """Remove what the rules of now exclude, or only `where_new` they are not those that were applied last; also the
        chats that could not be, with the reason: the next run tries them again. Stopped where the agent is to end."""
        vault = self.vault()
        exclusion = Exclusion(vault)
        try:
            if where_new:
                gone = exclusion.apply_where_new(self._goes_on)
            else:
                gone = exclusion.apply(self._goes_on, RELATIVE_WAIT_S)
            vault.notes = [note for note in vault.notes if note not in exclusion.left.values()]
            return gone, exclusion.left
        finally:
            self._notes(vault)

    def plan(self) -> Plan:
        """What the bounds of the settings ask for; nothing is done. Stopped where the agent is to end."""
        vault = self.vault()
        try:
            return plan(vault, time.time(), self._goes_on)
        finally:
            self._notes(vault)

    def _seal(self, vault: Vault, keeper: Keeper) -> tuple[tuple[str, str], ...]:
        """Seal what the pass has linked; what of it is not sealed, and why."""
        want = int(sum(self._size(vault, chat, label) for chat, labels in keeper.behind.items() for label in labels))
        room = os.statvfs(vault.root)
        if want * SEAL_SHARE + SPARE > room.f_bavail * room.f_frsize and want > SPARE:
            where = files.volume_of(vault.root)
            return (("room", f"{want >> 20} MiB are linked but not sealed: {where} has too little room"),)
        self.sealing = 0, len(keeper.behind)
        try:
            return tuple(keeper.seal(self._sealed).items())
        finally:
            self.sealing = None
            self._notes(vault)

    def _sealed(self, done: int, total: int) -> None:
        self.sealing = done, total
        self._step(done, total)

    def _step(self, done: int, total: int) -> None:
        self._go_on()
        if self._show is not None:
            self._show(done, total)

    def _size(self, vault: Vault, chat: str, label: str) -> int:
        try:
            return files.size_of(f"{vault.chat(chat).path}/{label}")
        except OSError:
            return 0

    def _goes_on(self, _done: int, _total: int) -> None:
        self._go_on()

    def _go_on(self) -> None:
        self.pulse.beat()
        if self.stop():
            raise Stopped

    def _notes(self, vault: Vault) -> None:
        for note in dict.fromkeys(vault.notes):
            self.told(note)
        vault.notes.clear()


def _asked_of_the_door() -> str:
    """Which CLI is about to resume only its door knows: where the folder hangs on that, the door does it by itself."""
    raise KeeperError("the folder hangs on the version of the CLI that resumes", "restore it without the agent")
