"""Eyes: quick looks over the profiles: what needs a keep, what lives, and whether very much has gone.

It promises that a file of which a keep came to nothing (no chat yet, a forgotten one) is told once, until it is
another, and that a mass deletion is one event, whoever saw it first. It refuses to keep.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container
from pathlib import Path

from keeper.agent.condition import Condition
from keeper.agent.growth import Growth
from keeper.agent.hint import MASS
from keeper.agent.queue import Task
from keeper.agent.resident import Resident
from keeper.agent.work import Work
from keeper.transcripts.glance import Live

MASS_S = 30.0
"""A mass deletion within so long of another one is the same."""


class Eyes:
    """What was seen last of each profile. `clock` gives seconds and only goes forward."""

    def __init__(
        self, work: Work, resident: Resident, growth: Growth, condition: Condition, clock: Callable[[], float]
    ) -> None:
        self.work = work
        self.resident = resident
        self.growth = growth
        self.condition = condition
        self.clock = clock
        self._unkept: dict[Path, dict[str, Live]] = {}
        self._lived: dict[Path, set[str]] = {}
        self._massed: dict[Path, float] = {}

    def glance(self, only: Container[Path] | None = None) -> list[Task]:
        """A look over everything, or these profiles: what needs a keep; what lives is noted."""
        now = time.time()
        found: list[Task] = []
        with self.work.pulse.at("a glance over everything"):
            glances = self.work.glances(only)
        for profile, seen in glances.items():
            self.resident.saw(profile, seen.live)
            gone = self._lived.get(profile, set()) - seen.live.keys()
            self._lived[profile] = set(seen.live)
            if len(gone) >= MASS:
                self.mass(profile, len(gone))
            before = self._unkept.get(profile, {})
            self._unkept[profile] = {session: seen.live[session] for session in seen.unkept}
            new = [session for session in seen.unkept if before.get(session) != seen.live[session]]
            found += [Task(str(profile), session) for session in new]
            for session in set(seen.unkept).difference(new):
                self.growth.wait(str(profile), session, seen.live[session].path)
            for session, live in seen.live.items():
                self.growth.meet(str(profile), session, live.path, live.mtime_ns / 1e9, now)
        return found

    def mass(self, profile: Path, count: int) -> None:
        """So many names went at once: told once, by whichever sees it first, the events or a look."""
        now = self.clock()
        if now - self._massed.get(profile, -MASS_S) >= MASS_S:
            self.condition.event("mass deletion", f"at least {count} names went at once from {profile}", count)
        self._massed[profile] = now
