"""Resident: keeps the chats whose policy says so from the sweep, and puts back what one took all the same.

Prevention first: an hourly look over everything gives new times long before the cutoff. It promises that what has gone
is looked at within moments of the hint, in a thread of its own, and that what is missed then the next look finds
(POLICY-4, RESTORE-11). It refuses to do anything for other chats. How it is done is `rescue`'s.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from keeper.agent.condition import Condition
from keeper.agent.hint import Hint
from keeper.agent.jobs import Job
from keeper.agent.memory import Key, Memory
from keeper.agent.rescue import FEW, Rescue
from keeper.agent.work import Work
from keeper.transcripts.exclude import Exclusion
from keeper.transcripts.glance import Live
from keeper.transcripts.index import Row
from keeper.transcripts.places import profiles_of
from keeper.transcripts.policy import RESIDENT

QUIET_S = 0.5
"""A sweep is over when nothing has gone for so long: it is told as one."""
EVERY_S = 3600.0


class Resident:
    """The policy at work. `keep` is told of each session whose names went and that was not put back; `clock` gives
    seconds and only goes forward."""

    def __init__(
        self,
        work: Work,
        condition: Condition,
        keep: Callable[[str, str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.work = work
        self.condition = condition
        self.keep = keep
        self.memory = Memory(clock)
        self.job = Job("resident", EVERY_S, self.reconcile)
        self.ended = False
        self._gone: dict[Key, bool] = {}
        self._whole = False
        self._loaded = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    # ------------------------------------------------------------------ from any thread

    def hears(self, hint: Hint) -> bool:
        """Take a hint about a session; whether nobody else need look: of a resident chat the names that go are looked
        at here first, and those that come in a storm were put back. As many keeps as a sweep took chats would hold up
        their coming back."""
        key = str(hint.profile), hint.session or ""
        if hint.kind == "gone":
            known = key in self.memory.resident
            self.gone(*key, alone=known)
            return known
        return hint.kind == "made" and key in self.memory.returned and self.memory.storms()

    def gone(self, profile: str, session: str, alone: bool = False) -> None:
        """A name of this session went: noted, no more. `alone`: nobody else was told."""
        with self._changed:
            self._gone[(profile, session)] = alone or self._gone.get((profile, session), False)
            self._changed.notify()

    def saw(self, profile: Path, live: Mapping[str, Live]) -> None:
        """All that lives in a profile: what lived before and does not now has gone, whether or not an event told."""
        seen = {session: one.mtime_ns for session, one in live.items()}
        before = self.memory.seen.get(str(profile), {})
        for session in before.keys() - seen.keys():
            self.gone(str(profile), session)
        self.memory.seen[str(profile)] = seen

    def reconcile(self) -> None:
        """Look over everything, soon."""
        with self._changed:
            self._whole = True
            self._changed.notify()

    def start(self) -> None:
        """Begin, with a look over everything."""
        self.reconcile()
        self._thread = threading.Thread(target=self._run, name="resident", daemon=True)
        self._thread.start()

    def alive(self) -> bool:
        """Whether it has not ended, once it has begun."""
        return self._thread is None or self._thread.is_alive()

    def stop(self) -> None:
        """End when what is in hand is done."""
        with self._changed:
            self.ended = True
            self._changed.notify()

    # ------------------------------------------------------------------ in its own

    def _run(self) -> None:
        while not self.ended:
            with self._changed:
                wait_s = QUIET_S if self.memory.back else None
                asked = self._changed.wait_for(lambda: self.ended or self._whole or bool(self._gone), wait_s)
            if asked:
                with self.work.pulse.at("the rescue of resident chats"):
                    self.turn()
            else:
                self.tell()

    def turn(self) -> None:
        """Do what is asked for now."""
        with self._changed:
            gone, self._gone = self._gone, {}
            whole, self._whole = self._whole, False
        by_profile: dict[str, list[str]] = {}
        for profile, session in gone:
            by_profile.setdefault(profile, []).append(session)
        done: set[Key] = set()
        for profile, sessions in by_profile.items():
            self.condition.safely("resident", partial(self._look, profile, sessions, done))
        for (profile, session), alone in gone.items():
            if alone and (profile, session) not in done:
                self.keep(profile, session)
        if whole:
            self.condition.safely("resident", self._look_over)

    def tell(self) -> None:
        """What came back, in one event."""
        back, self.memory.back = self.memory.back, 0
        if back:
            self.condition.event("sweep", f"{back} chats that a sweep took were put back", back)

    def _look(self, profile: str, sessions: list[str], done: set[Key]) -> None:
        vault = self.work.vault()
        if len(sessions) <= FEW:
            found = [row for session in sessions for row in vault.rows(session)]
        else:
            wanted = set(sessions)
            found = [row for row in vault.rows() if row.session in wanted]
        rows = self._resident(found, profile)
        if rows:
            back = Rescue(self.memory, self.condition, vault, profile, rows, hinted=True).put_back()
            done.update((profile, session) for session in back)

    def _look_over(self) -> None:
        vault = self.work.vault()
        if not self._loaded:
            self.memory.load(vault)
            self._loaded = True
        every = vault.rows()
        chats = {row.chat for row in every}
        for name in self.memory.told.keys() - chats:
            del self.memory.told[name]
        for profile in profiles_of(vault):
            rows = self._resident(every, str(profile))
            if rows:
                self.memory.period(vault, str(profile), anew=True)
                self.memory.excluded |= {(str(profile), session) for session in Exclusion(vault).living(profile)}
                rescue = Rescue(self.memory, self.condition, vault, str(profile), rows, hinted=False)
                rescue.put_back()
                rescue.freshen()

    def _resident(self, rows: list[Row], profile: str) -> dict[str, Row]:
        """The resident ones of a profile, by session."""
        vault = self.work.vault()
        found: dict[str, Row] = {}
        for row in rows:
            if row.profile == profile and self.memory.policy(vault, row) == RESIDENT:
                found.setdefault(row.session, row)
        return found
