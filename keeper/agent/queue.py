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
    """A session of a profile; `tries` is how often it was looked at in vain since its last hint."""

    profile: str
    session: str
    tries: int = 0

    @property
    def key(self) -> tuple[str, str]:
        """What tells it from others."""
        return self.profile, self.session


class Queue:
    """Tasks by the time at which they are due, in seconds of a clock that only goes forward."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._due: dict[tuple[str, str], tuple[float, Task]] = {}
        self._order: list[tuple[float, tuple[str, str]]] = []
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
        if known is None or due < known[0]:
            where[task.key] = (due, task)
            if where is self._due:
                heapq.heappush(self._order, (due, task.key))
                self._changed.notify()

    def take(self, wait_s: float) -> Task | None:
        """The task that is due first; waits for one at most so long."""
        end = self.clock() + wait_s
        with self._changed:
            while True:
                now = self.clock()
                due, task = self._first()
                if task is not None and due <= now:
                    heapq.heappop(self._order)
                    del self._due[task.key]
                    self._busy.add(task.key)
                    return task
                if self._closed or now >= end:
                    return None
                self._changed.wait(min(end, due) - now)

    def _first(self) -> tuple[float, Task | None]:
        """What is due first; of a session that is due sooner by now the later place is passed over."""
        while self._order:
            due, key = self._order[0]
            if key in self._due and self._due[key][0] == due:
                return self._due[key]
            heapq.heappop(self._order)
        return float("inf"), None

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
            self._order.clear()
            self._again.clear()
            self._closed = True
            self._changed.notify_all()
        return waiting

    def __len__(self) -> int:
        with self._changed:
            return len(self._due) + len(self._busy)
