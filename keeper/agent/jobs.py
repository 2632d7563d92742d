"""Jobs: what the agent does by the clock, whatever the clock does.

It promises that no job is skipped for longer than its interval by a sleep or by a step of the clock: apscheduler drops
what is late unless told otherwise, and stands still for as long as the wall clock was set back; and that one which
hangs holds up neither the others nor the end of the process. It refuses to run a job twice at once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from queue import SimpleQueue
from typing import Any

from apscheduler.executors.base import BaseExecutor, run_job
from apscheduler.schedulers.background import BackgroundScheduler

logging.getLogger("apscheduler").setLevel(logging.ERROR)  # that a third instance is not run is as it should be

STEP_S = 2.0
"""A wall clock that is off by more than this against one that only goes forward was set, or the machine slept."""


@dataclass(frozen=True, slots=True)
class Job:
    """Something to do, every so many seconds."""

    name: str
    every_s: float
    do: Callable[[], None]


class _Lanes(BaseExecutor):  # type: ignore[misc]
    """A thread for each job. Nobody waits for one at the end: those of apscheduler's pools the interpreter joins."""

    def __init__(self) -> None:
        super().__init__()
        self._lanes: dict[str, SimpleQueue[Callable[[], None]]] = {}

    def _do_submit_job(self, job: Any, run_times: list[datetime]) -> None:
        if job.id not in self._lanes:
            self._lanes[job.id] = SimpleQueue()
            threading.Thread(target=self._run, args=(self._lanes[job.id],), name=job.id, daemon=True).start()
        self._lanes[job.id].put(partial(self._do, job, run_times))

    def _do(self, job: Any, run_times: list[datetime]) -> None:
        self._run_job_success(job.id, run_job(job, "default", run_times, self._logger.name))

    @staticmethod
    def _run(lane: SimpleQueue[Callable[[], None]]) -> None:
        while True:
            lane.get()()


class Jobs:
    """The jobs, running. `tick` is called every second or so, and tells whether the clock was set or the machine
    slept."""

    def __init__(self, jobs: list[Job]) -> None:
        self.jobs = {job.name: job for job in jobs}
        self.scheduler = BackgroundScheduler(
            timezone=UTC,
            executors={"default": _Lanes()},
            # A thread for each and two instances: what is asked for while it runs is done after that, once.
            job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 2},
        )
        self.offset = self._offset()

    def start(self) -> None:
        """Each runs first after its interval."""
        for job in self.jobs.values():
            self.scheduler.add_job(job.do, "interval", seconds=job.every_s, id=job.name)
        self.scheduler.start()

    def stop(self) -> None:
        """No more of them; one that runs is not waited for."""
        if self.scheduler.running:
            self.scheduler.shutdown(wait=False)

    def soon(self, name: str) -> None:
        """Run that job now, and then in its interval again; nothing before the start, and after the end."""
        if self.scheduler.running:
            self.scheduler.modify_job(name, next_run_time=datetime.now(UTC))

    def every(self, name: str, seconds: float) -> None:
        """Another interval for that job, counted from now; nothing where it is much the same."""
        job = self.jobs[name]
        if self.scheduler.running and abs(job.every_s - seconds) > job.every_s / 10:
            self.jobs[name] = replace(job, every_s=seconds)
            self.scheduler.reschedule_job(name, trigger="interval", seconds=seconds)

    def tick(self) -> bool:
        """Whether the clock was set or the machine slept since the last look: every job is then put on the new time,
        none further away than its interval."""
        offset = self._offset()
        stepped = abs(offset - self.offset) > STEP_S
        self.offset = offset
        if stepped:
            now = datetime.now(UTC)
            for name, job in self.jobs.items():
                known = self.scheduler.get_job(name)
                if known is None:
                    continue
                latest = now + timedelta(seconds=job.every_s)
                due = min(known.next_run_time, latest) if known.next_run_time else latest
                self.scheduler.modify_job(name, next_run_time=max(due, now))
        return stepped

    @staticmethod
    def _offset() -> float:
        """Wall clock against the one that stands still while the machine sleeps."""
        return time.time() - time.monotonic()
