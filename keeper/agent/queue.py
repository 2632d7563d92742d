"""Queue: which sessions are to be looked at, and when: hints go in, due ones come out, each once.

It promises that a session which is hinted at while it is kept comes out again, and that it is never handed to two
workers at once. It refuses to know what a keep is.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Task:
    """A session of a profile; `tries` is how often it was looked at in vain since its last hint, `failed` how often its
    keep has failed. One that is `late` (a name of it went, or it has grown) comes after all that is not."""

    profile: str
    session: str
    tries: int = 0
    late: bool = False
    failed: int = 0

    @property
    def key(self) -> tuple[str, str]:
        """What tells it from others."""
        return self.profile, self.session


Order = list[tuple[float, tuple[str, str]]]


class Queue:
    """Tasks by the time at which they are due, in seconds of a clock that only goes forward."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._due: dict[tuple[str, str], tuple[float, Task]] = {}
        self._orders: tuple[Order, Order] = ([], [])
        self._busy: set[tuple[str, str]] = set()
        self._again: dict[tuple[str, str], tuple[float, Task]] = {}
        self._changed = threading.Condition()
        self._closed = False

    def add(self, task: Task, after_s: float = 0.0) -> None:
        """Look at it in so many seconds, or sooner if that is noted already."""
        due = self.clock() + after_s
        with self._changed:
            if self._closed:
                return  # what is hinted at now is found at the next start
            self._note(due, task)

    def _note(self, due: float, task: Task) -> None:
        where = self._again if task.key in self._busy else self._due
        known = where.get(task.key)
        if known is None or (due, task.late) < (known[0], known[1].late) or (known[1].late and not task.late):
            where[task.key] = (due, task)
            if where is self._due:
                heapq.heappush(self._orders[task.late], (due, task.key))
                self._changed.notify()

    def take(self, wait_s: float) -> Task | None:
        """The task that is due first; waits for one at most so long."""
        end = self.clock() + wait_s
        with self._changed:
            while True:
                now = self.clock()
                due, task = self._first(now)
                if task is not None and due <= now:
                    heapq.heappop(self._orders[task.late])
                    del self._due[task.key]
                    self._busy.add(task.key)
                    return task
                if self._closed or now >= end:
                    return None
                self._changed.wait(min(end, due) - now)

    def _first(self, now: float) -> tuple[float, Task | None]:
        """What comes out first; of a session that has another place by now the old one is passed over."""
        found: list[tuple[float, Task]] = []
        for late, order in enumerate(self._orders):
            while order:
                due, task = self._due.get(order[0][1], (-1.0, None))
                if task is not None and (due, task.late) == (order[0][0], bool(late)):
                    found.append((due, task))
                    break
                heapq.heappop(order)
        for due, task in found:
            if due <= now:
                return due, task
        return min(found, key=lambda one: one[0], default=(float("inf"), None))

    def waits_late(self) -> int:
        """About how many late ones wait."""
        return len(self._orders[1])

    def done(self, task: Task) -> None:
        """A worker is through with it; what was asked for meanwhile is due when it was asked for."""
        with self._changed:
            self._busy.discard(task.key)
            again = self._again.pop(task.key, None)
            if again is not None:
                self._note(*again)

    def close(self) -> list[Task]:
        """All that waits, due or not; nothing comes out any more, and nobody waits for it."""
        with self._changed:
            waiting = [task for _, task in [*self._due.values(), *self._again.values()]]
            self._due.clear()
            for order in self._orders:
                order.clear()
            self._again.clear()
            self._closed = True
            self._changed.notify_all()
        return waiting

    def __len__(self) -> int:
        with self._changed:
            return len(self._due) + len(self._busy)
