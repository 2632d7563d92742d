"""Answers: what a door asks for, done, and told in the words that the socket carries.

It promises an answer to whatever is asked: what fails is told with its cure, and ends nothing. It refuses what is no
keep, restore, look or status.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from keeper.agent.asks import Asks
from keeper.agent.queue import Queue, Task
from keeper.agent.work import Work
from keeper.agent.workers import AGAIN_S, Workers
from keeper.errors import KeeperError, Usage
from keeper.files import told as failure_told


class Answers:
    """The doors' side of one agent. `status` gives what `keeper status` shows; `hooked` is when a hook last called."""

    def __init__(
        self, work: Work, workers: Workers, queue: Queue, asks: Asks, status: Callable[[], dict[str, Any]]
    ) -> None:
        self.work = work
        self.workers = workers
        self.queue = queue
        self.asks = asks
        self.status = status
        self.hooked: float | None = None

    def to(self, request: dict[str, Any]) -> dict[str, Any]:
        """What a door asks for, in a thread of its own."""
        try:
            match request.get("do"):
                case "status":
                    return self.status()
                case "reconcile":
                    self.asks.ask("reconcile")
                    return {"ok": True}
                case "keep":
                    if request.get("event"):
                        self.hooked = time.time()
                    with self.work.pulse.at("the keep for a door"):
                        return self._keep(str(request["profile"]), str(request["session"]))
                case "restore":
                    with self.work.pulse.at("the restore for a door"):
                        back = self.work.restore(str(request["profile"]), str(request["session"]))
                    self.queue.add(Task(back.profile, back.session), AGAIN_S[-1])
                    return {"ok": not back.error, **asdict(back)}
            return {"ok": False, "error": "this agent does not know that", "cure": "restart it"}
        except (KeeperError, OSError, KeyError, ValueError) as error:
            told = error
            if not isinstance(told, KeeperError):
                told = failure_told(OSError(str(error)), self.work.settings.vault)
            return {"ok": False, "error": told.message, "cure": told.cure}
        finally:
            self.work.let_go()

    def _keep(self, profile: str, session: str) -> dict[str, Any]:
        if not profile.startswith("/"):
            raise Usage(f"{profile!r} is no profile", "name it by its whole path")
        answer = self.workers.keep(profile, session)
        if answer is None:
            self.queue.add(Task(profile, session), AGAIN_S[0])
            return {"ok": True, "sealed": False, "chat": None, "action": "none"}
        if answer.error:
            return {"ok": False, "error": answer.error, "cure": answer.cure}
        return {"ok": True, "sealed": True, "chat": answer.chat, "action": answer.action}
