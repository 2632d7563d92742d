"""Policy: rules and bounds in the running agent: what is excluded goes, what could be pruned is told, once a day.

It promises that a rule which comes while the agent runs is applied within seconds, and that a settings file which
cannot be looked at leaves those that were read in force. It refuses to read one that is still being written, and to
prune: a clock that was set ages nothing into deletion (AGENT-5).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from keeper.agent.condition import Condition
from keeper.agent.jobs import Job
from keeper.agent.work import Stopped, Work
from keeper.transcripts.lines import mark_of

RULES_S = 300.0
DAY_S = 86_400.0
SETTLE_S = 2.0
"""A settings file that nobody has written to for so long is whole."""
UNREAD = (-1, 0, 0)


class Policy:
    """The policy of one agent. `config` is the settings file, there or not; `clock` gives seconds and only goes
    forward."""

    def __init__(
        self, work: Work, condition: Condition, config: Path, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.work = work
        self.condition = condition
        self.config = str(config)
        self.clock = clock
        self.read = self.seen = self._mark()
        self.since = clock()
        self.applied = threading.Event()
        self.jobs = [Job("rules", RULES_S, self.exclude), Job("prune", DAY_S, self.plan)]
        self._asked, self._done = 1, 0
        self._applying = threading.Lock()

    # ------------------------------------------------------------------ the settings file

    def rewritten(self) -> bool:
        """Whether the settings file is another one than was read last, and has been so for long enough to be whole."""
        mark = self._mark()
        if mark == UNREAD:
            self.read = mark  # it is read once that works again, which cures this
            return False
        if mark != self.seen:
            self.seen, self.since = mark, self.clock()
        if mark == self.read or self.clock() - self.since < SETTLE_S:
            return False
        self.read = mark
        return True

    def again(self) -> None:
        """What was read could not be used: it is read again in a while."""
        self.read, self.since = UNREAD, self.clock()

    def settle(self, ended: Callable[[], bool]) -> bool:
        """Wait while somebody writes to the settings file, as its time tells; whether it is to be read again."""
        waited = False
        while self._is_fresh() and not ended():
            waited = True
            time.sleep(0.05)
        if waited:
            self.read = self.seen = self._mark()
        return waited

    def _is_fresh(self) -> bool:
        mark = self._mark()
        return mark is not None and 0 <= time.time() - mark[2] / 1e9 < SETTLE_S

    def _mark(self) -> tuple[int, int, int] | None:
        try:
            return mark_of(self.config)
        except OSError as error:
            self.condition.trouble("settings", f"cannot look at the settings file {self.config}: {error.strerror}")
            return UNREAD

    # ------------------------------------------------------------------ the rules, the bounds

    def all_anew(self) -> None:
        """The next look by the rules is at every chat, also where they are those of last time."""
        self._asked += 1

    def exclude(self) -> None:
        """What the rules of now exclude goes, and that is told. What they left, the next call tries again."""
        with suppress(Stopped), self._applying, self.work.pulse.at("the rules"):
            self.condition.safely("policy", self._exclude)
        self.applied.set()

    def _exclude(self) -> None:
        asked = self._asked  # asked for again meanwhile, or not done: the next call looks at every chat
        gone, left = self.work.exclude(where_new=asked == self._done)
        self._done = asked
        self.condition.only("policy", left)
        if gone:
            sole = sum(one.sole for one in gone)
            alone = f", {sole} of them the sole copy" if sole else ""
            self.condition.event("excluded", f"{len(gone)} chats that a rule excludes were removed{alone}")

    def plan(self) -> None:
        """What the bounds of the settings would have go is told, and left to a person."""
        with suppress(Stopped), self.work.pulse.at("the bounds"):
            self.condition.safely("prune", self._plan)

    def _plan(self) -> None:
        found = self.work.plan()
        if found.items:
            sole = sum(one.sole for one in found.items)
            size = sum(one.frees for one in found.items)
            self.condition.event(
                "prune", f"{len(found.items)} chats are past a bound, {size} bytes, {sole} sole copies: `keeper prune`"
            )
