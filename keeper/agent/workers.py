"""Workers: take from the queue what is due, and keep it.

It promises that one chat's slow keep delays no other, that a file with nothing in it yet is looked at again, and that
no failure ends a worker. What each is at the pulse tells, for whoever must know that none hangs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from keeper.agent.condition import Condition
from keeper.agent.growth import Growth, Seen
from keeper.agent.queue import Queue, Task
from keeper.agent.work import Work
from keeper.claude import places
from keeper.errors import KeeperError
from keeper.files import told
from keeper.transcripts.ledger import Kept

WORKERS = 3
IDLE_S = 15.0
"""So often an idle worker looks whether it is to end."""
AGAIN_S = (0.005, 0.05, 0.5, 2.0)
"""A file with nothing in it yet brings no second event when it has: it is looked at again after so long."""
LEFT_OUT = ("pruned", "excluded")
"""Past a bound until it is used again; excluded, by its title perhaps, until it has another."""

SELDOM_S = 60.0
"""What fails again and again is tried so often."""


class Workers:
    """The threads that keep. `stop` says whether they are to end; `wall` is the time of the day."""

    def __init__(
        self, queue: Queue, work: Work, growth: Growth, condition: Condition,
        stop: Callable[[], bool], wall: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self.queue = queue
        self.work = work
        self.growth = growth
        self.condition = condition
        self.stop = stop
        self.wall = wall
        self.threads: list[threading.Thread] = []

    def start(self) -> None:
        """Begin to take from the queue."""
        self.threads = [threading.Thread(target=self._run, name="worker", daemon=True) for _ in range(WORKERS)]
        for thread in self.threads:
            thread.start()

    def alive(self) -> bool:
        """Whether no worker has ended."""
        return all(thread.is_alive() for thread in self.threads)

    def _run(self) -> None:
        while True:
            task = self.queue.take(IDLE_S)
            if task is not None:
                with self.work.pulse.at(f"the keep of {task.session}"):
                    self.condition.safely("worker", partial(self._keep, task))
                self.queue.done(task)
            elif self.stop():
                return

    def _keep(self, task: Task) -> None:
        what = f"keep: {task.session}"
        try:
            answer = self.keep(task.profile, task.session)
        except (KeeperError, OSError) as error:
            self._failed(task, told(error, task.profile).message)
            return
        if answer is not None and answer.error:
            self._failed(task, answer.error)
            return
        if answer is None and task.failed:
            self.condition.event("keep", f"{task.session} went before it could be kept")
        self.condition.cured(what)
        waits = answer is None or answer.verdict in ("empty", "waiting")
        if waits and task.tries < len(AGAIN_S):
            self.queue.add(Task(task.profile, task.session, task.tries + 1), AGAIN_S[task.tries])
        for warning in answer.warnings if answer is not None and answer.action != "none" else ():
            self.condition.event("keep", f"{task.session}: {warning}")

    def _failed(self, task: Task, why: str) -> None:
        """Told until it works, and tried again, at first soon."""
        self.condition.trouble(f"keep: {task.session}", why)
        pause_s = min(AGAIN_S[-1] * 2**task.failed, SELDOM_S)
        self.queue.add(Task(task.profile, task.session, failed=task.failed + 1), pause_s)

    def keep(self, profile: str, session: str) -> Kept | None:
        """Keep one session now, and note how it stands; None where there is nothing to keep. Raises KeeperError."""
        before: Seen = self.growth.look(profile, session)
        answer = self.work.keep(profile, session)
        if answer is not None and answer.project:
            live = f"{answer.profile}/projects/{answer.project}/{answer.session}.jsonl"
            self.growth.note(answer.profile, answer.session, live, before)
        elif answer is None:
            # There is nothing to keep of it yet; its first line may come whenever it likes, and without an event.
            for live in map(str, places(Path(profile), session)):
                self.growth.meet(profile, session, live, self.wall(), self.wall())
        elif answer.verdict in LEFT_OUT:
            # Its next line may change that, and nothing of it is kept until then.
            for live in map(str, places(Path(answer.profile), session)):
                self.growth.leave_out(answer.profile, session, live, before)
        return answer
