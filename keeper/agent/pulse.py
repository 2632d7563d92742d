"""Pulse: which threads are at work, on what, and for how long each has not moved.

It promises to tell one that takes its time from one that hangs: whoever computes, reads or writes uses the processor,
however little, and the kernel counts that for each thread; a call into a dead volume, or a wait for a lock that nobody
lets go of, uses none. So no loop need say that it goes on, and one in code of others is known as well. It refuses to
call what nobody looked at a hang: while the process was stopped, no time has passed here.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

LOOK_S = 5.0
"""Between two looks no more than this counts: the process was stopped if it was longer."""
SPIN_S = 3600.0
"""One that uses the processor for so long, and says in all that time of nothing that it is done, turns in a circle."""


@dataclass(slots=True)
class _Busy:
    """A thread at work. `still_s` is for how long it has not moved, `spun_s` for how long it has said nothing."""

    what: str
    clock_id: int
    spent: float = -1.0
    still_s: float = 0.0
    spun_s: float = 0.0


def spent_by(clock_id: int) -> float:
    """Seconds of the processor that a thread has used; that of one which has ended stands still."""
    try:
        return time.clock_gettime(clock_id)
    except OSError:
        return -1.0


class Pulse:
    """The threads at work. `clock` gives seconds and only goes forward; `spent` what the thread of a clock used."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, spent: Callable[[int], float] = spent_by
    ) -> None:  # fmt: skip
        self.clock = clock
        self.spent = spent
        self._busy: dict[int, _Busy] = {}
        self._numbers = itertools.count()
        self._own = threading.local()
        self._looked = clock()

    @contextmanager
    def at(self, what: str) -> Iterator[None]:
        """This thread is at that work until it is through."""
        number, outer = next(self._numbers), getattr(self._own, "busy", None)
        self._busy[number] = self._own.busy = _Busy(what, time.pthread_getcpuclockid(threading.get_ident()))
        try:
            yield
        finally:
            self._own.busy = outer
            del self._busy[number]

    def beat(self) -> None:
        """This thread has done a part of its work."""
        busy: _Busy | None = getattr(self._own, "busy", None)
        if busy is not None:
            busy.still_s = busy.spun_s = 0.0

    def still(self) -> dict[str, float]:
        """Each work in hand that has not moved since the last look, and for how many seconds. To be called often, by
        one thread."""
        now = self.clock()
        passed_s, self._looked = min(now - self._looked, LOOK_S), now
        found: dict[str, float] = {}
        for busy in list(self._busy.values()):
            spent = self.spent(busy.clock_id)
            busy.spun_s += passed_s
            busy.still_s = busy.still_s + passed_s if spent == busy.spent else 0.0
            busy.spent = spent
            still_s = busy.spun_s if busy.spun_s > SPIN_S else busy.still_s
            if still_s:
                found[busy.what] = max(still_s, found.get(busy.what, 0.0))
        return found
