"""Run: the agent: one a vault, ready when it watches and has looked at everything, ended cleanly.

It joins the watch, the queue, the workers, the jobs and the doors. It promises that nothing waits for an event alone
(the reconcile is the truth), that each thing it cannot rely on is told with its reason while it lasts, and that a
TERM leaves everything that was queued linked. It refuses to run beside another agent of the same vault.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Container
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from keeper import disk
from keeper.agent import state
from keeper.agent.answers import Answers
from keeper.agent.asks import Asks
from keeper.agent.condition import Condition
from keeper.agent.eyes import Eyes
from keeper.agent.growth import Growth
from keeper.agent.hint import Hint
from keeper.agent.jobs import Job, Jobs
from keeper.agent.journal import Journal, open_log
from keeper.agent.policy import Policy
from keeper.agent.queue import Queue, Task
from keeper.agent.resident import Resident
from keeper.agent.server import Server
from keeper.agent.service import Notify
from keeper.agent.watch import Watch
from keeper.agent.work import Pass, Stopped, Work
from keeper.agent.workers import Workers
from keeper.claude import is_session
from keeper.errors import KeeperError, Locked
from keeper.settings import Settings
from keeper.transcripts.vault import Vault

TICK_S = 1.5
GROWTH_S = 3.0
POLL_S = 3.0
RECONCILE_S = 300.0
SHARE = 2000
"""A reconcile comes every five minutes, or so seldom that it takes no more than this part of a core, but every hour."""
GONE_S = 0.7
"""A name that went may have gone elsewhere, which is told half a second later."""
SELDOM_S = 3600.0
RETRY_S = 5.0
STILL_S, STUCK_S = 60.0, 180.0
"""A thread that has not moved for so long is told; for so long it hangs, and systemd hears no more of this process. In
between lies the longest wait for a slow volume: one barrier, behind all that others write."""
MANY = 64
"""So many sessions at once are a pass, and not as many keeps."""
START_S, STOP_S = 5.0, 1.5
"""So long the start waits for what comes first, and the end for what is in hand."""


class Agent:
    """One run. `load` gives the settings, again at each HUP; `notify` is where systemd listens; `on_ready` is given the
    status once it is ready, or (`once`) through."""

    def __init__(
        self, load: Callable[[], Settings], notify: Notify, on_ready: Callable[[dict[str, Any]], object] | None = None
    ) -> None:
        self.load = load
        self.notify = notify
        self.on_ready = on_ready
        self.clock = time.monotonic
        self.ended = False
        self.asks = Asks()
        self.queue = Queue(self.clock)
        self.growth = Growth()
        self.settings = load()
        self.work = Work(self.settings, lambda: self.ended, lambda note: self.condition.tell(note))
        self.condition = Condition(Journal(self.clock), self.work.let_go)
        self.policy = Policy(self.work, self.condition, self.settings.config)
        self.watch = Watch((), self.hint, self.clock)
        self.resident = Resident(self.work, self.condition, lambda *key: self.queue.add(Task(*key), GONE_S))
        self.jobs = Jobs([Job("reconcile", RECONCILE_S, self.reconcile), self.resident.job, *self.policy.jobs])
        self.eyes = Eyes(self.work, self.resident, self.growth, self.condition, self.clock)
        self.workers = Workers(self.queue, self.work, self.growth, self.condition, lambda: self.ended)
        self.answers = Answers(self.work, self.workers, self.queue, self.asks, self.status)
        self.server = Server(self.settings.vault, self.answers.to)
        self.told = ""
        self.failing = self.looked = False
        self.ready = 0.0
        self.profiles: list[Path] = []
        self.pause_s = self.again_due = RETRY_S
        self.who = state.who(time.time())

    # ------------------------------------------------------------------ from start to end

    def run(self, once: bool = False) -> int:
        """Run until a TERM; with `once` until everything is kept and sealed. Raises Locked where another runs."""
        with Vault.open(self.settings) as vault:
            root = vault.root
        lock = disk.lock(root / state.LOCK, 0)
        try:
            lock.__enter__()
        except Locked as error:
            raise state.another(root) from error
        try:
            open_log(self.settings.state_home, to_stderr=True)
            if once:
                self._passed(self.work.reconcile())
                if self.on_ready is not None:
                    self.on_ready(self.status())
                return 1 if self.condition.troubles() else 0
            self._signals()
            self._start()
            self._loop()
            return 0
        finally:
            self._stop()
            lock.__exit__(None, None, None)

    def _signals(self) -> None:
        words = {signal.SIGTERM: "end", signal.SIGINT: "end", signal.SIGHUP: "settings", signal.SIGUSR1: "reconcile"}
        for number, word in words.items():
            signal.signal(number, partial(self._signalled, word))

    def _signalled(self, word: str, _number: int, _frame: object) -> None:
        """In the middle of whatever the loop does: no lock may be taken here."""
        self.ended = self.ended or word == "end"
        self.asks.ask(word)

    def _start(self) -> None:
        """Watch first, then look: what comes in between is seen twice and lost never."""
        if self.policy.settle(lambda: self.ended):
            self._do({"settings"})
        self.condition.past.begin(self.settings.vault, self.who.since)
        self._watch_all()
        self.watch.start()
        self.server.start()
        self.workers.start()
        self.jobs.start()
        self.jobs.soon("rules")
        self._wait(self.policy.applied.is_set)
        unkept: list[Task] = []
        self.condition.safely("look", lambda: unkept.extend(self.eyes.glance()))
        if len(unkept) > MANY:
            threading.Thread(target=self.reconcile, name="first pass", daemon=True).start()
        else:
            for task in unkept:
                self.queue.add(task)
            self._wait(lambda: not len(self.queue))
            self._ready()
            self.jobs.soon("reconcile")

    def _wait(self, done: Callable[[], bool]) -> None:
        """For what is quick as a rule, before all is ready."""
        end = self.clock() + START_S
        while not done() and self.clock() < end and not self.ended:
            time.sleep(0.002)

    def _watch_all(self) -> None:
        """Watch every profile that is known by now."""
        # One that is not there now may come, and must be heard then.
        self.profiles = list(dict.fromkeys([*self.work.profiles(), *self.profiles]))
        self.watch.set_profiles(self.profiles)

    def _ready(self) -> None:
        if not self.ready:
            self.ready = time.time()
            self.notify.tell("READY=1", f"MAINPID={os.getpid()}")
            self.condition.tell(f"ready: {len(self.growth)} chats live, {self.watch.cost().watches} watches")
            self._put_down()
            if self.on_ready is not None:
                self.on_ready(self.status())
            self.resident.start()

    def _loop(self) -> None:
        growth_due = poll_due = 0.0
        while not self.ended:
            asked = self.asks.wait(TICK_S)
            now = self.clock()
            self.watch.tick()
            self._do(asked | {"settings"} if self.policy.rewritten() else asked)
            if self.jobs.tick():
                self.condition.event("clock", "the clock was set, or the machine slept: all is looked at anew")
                self.jobs.soon("reconcile")
                self.resident.reconcile()
            if now >= growth_due:
                growth_due = now + GROWTH_S
                self.condition.safely("growth", self._grown)
            if now >= poll_due and self.watch.polled():
                poll_due = now + POLL_S
                self._poll(self.watch.polled())
            if not self.server.reachable():
                self.server.stop()
                self.server = Server(self.settings.vault, self.answers.to)
                self.condition.safely("doors", self.server.start)
            self._again(now)
            self._see()
            if self._moves():
                self.notify.tell("WATCHDOG=1")

    def _moves(self) -> bool:
        """Whether no thread has ended or hangs: in that nobody can help but a new process."""
        still = self.work.pulse.still()
        why = f"no step further in {STILL_S:.0f} s: does a volume hang?"
        self.condition.only("stuck", {what: why for what, still_s in still.items() if still_s > STILL_S})
        stuck = any(still_s > STUCK_S for still_s in still.values())
        return not stuck and self.workers.alive() and self.resident.alive()

    def _stop(self) -> None:
        """What is queued is linked, what is in hand is finished; what remains is found at the next start."""
        self.ended = True
        self.notify.tell("STOPPING=1")
        end = self.clock() + STOP_S
        waiting: dict[str, set[str]] = {}
        for task in self.queue.close():
            waiting.setdefault(task.profile, set()).add(task.session)
        if waiting:
            link = partial(self.condition.safely, "the end", partial(self.work.link, waiting))
            last = threading.Thread(target=link, name="end", daemon=True)
            last.start()
            last.join(STOP_S)
        while len(self.queue) and self.clock() < end:
            time.sleep(0.005)
        self.jobs.stop()
        self.resident.stop()
        self.watch.stop()
        with suppress(KeeperError, OSError):
            self.server.stop()
            if self.ready:
                self.condition.tell("ended")
                self.condition.past.end(time.time())
                self.condition.past.write()
                state.write(self.settings.vault, {**self.status(), "running": False})
        self.asks.close()

    def _do(self, asked: set[str]) -> None:
        if "settings" in asked:
            self.condition.safely("settings", self._reload)
            if self.condition.lasts("settings"):
                self.policy.again()
        if "reconcile" in asked:
            self.jobs.soon("reconcile")
        if "look" in asked:
            self._poll()

    def _reload(self) -> None:
        loaded = self.load()
        if loaded.vault != self.settings.vault:
            raise KeeperError(
                f"the settings name another vault now, {loaded.vault}: this agent stays with {self.settings.vault}",
                "restart it",
            )
        self.settings = self.work.settings = loaded
        self.profiles = []
        self._watch_all()
        self.policy.all_anew()
        self.jobs.soon("rules")
        self.jobs.soon("reconcile")
        self.resident.reconcile()
        self.condition.tell("settings were read again")

    # ------------------------------------------------------------------ hints and keeps

    def hint(self, hint: Hint) -> None:
        """From the watch, in any thread: note it, no more."""
        if hint.kind == "mass":
            self.eyes.mass(hint.profile, hint.count)
        elif hint.session is None:
            self.asks.ask("reconcile" if hint.kind == "all" else "look")
        elif not self.resident.hears(hint):
            self._look_at(str(hint.profile), hint.session, hint.kind == "gone")

    def _look_at(self, profile: str, session: str, gone: bool) -> None:
        if not gone:
            self.queue.add(Task(profile, session))
        elif self.queue.waits_late() < MANY:
            self.queue.add(Task(profile, session, late=True), GONE_S)
        else:
            self.asks.ask("reconcile")  # so many that are gone are one look, and hold up none that came

    def _grown(self) -> None:
        for profile, session in self.growth.grown(time.time()):
            self.queue.add(Task(profile, session, late=True))  # it is linked already: what is new goes before

    def _poll(self, only: Container[Path] | None = None) -> None:
        """Where events cannot be relied on, and where a folder is new."""

        def look() -> None:
            found = self.eyes.glance(only)
            if len(found) > MANY:
                self.asks.ask("reconcile")
            else:
                for task in found:
                    self.queue.add(task)

        self.condition.safely("poll", look)

    def reconcile(self) -> None:
        """The truth: all of every profile."""
        with suppress(Stopped):
            self.condition.safely("reconcile", self._reconcile)

    def _again(self, now: float) -> None:
        """What a look over everything could not do is tried again soon, then ever more seldom."""
        if not self.failing and not self.condition.lasts("reconcile", "look", "seal", "policy"):
            self.pause_s = RETRY_S
            self.again_due = now + self.pause_s
        elif now >= self.again_due:
            self.pause_s = min(2 * self.pause_s, RECONCILE_S)
            self.again_due = now + self.pause_s
            self.jobs.soon("rules")
            self.jobs.soon("reconcile")

    def _reconcile(self) -> None:
        self.policy.exclude()
        with self.work.vault().index.sharing():
            done = self.work.reconcile(self._ready)
            self._passed(done)
            self._watch_all()
            self.eyes.glance()
        if not self.looked:
            self.looked = True
            self.jobs.soon("prune")
        self.jobs.every("reconcile", min(max(RECONCILE_S, done.cpu_s * SHARE), SELDOM_S))

    def _passed(self, done: Pass) -> None:
        """What a pass found is told: failures are troubles until the next pass is through without them."""
        failed = dict(done.failures)
        self.failing = bool(failed)
        sessions = {one for one in failed if is_session(one)}
        self.condition.only("look", {one: why for one, why in failed.items() if one not in sessions})
        self.condition.only("keep", {one: failed[one] for one in sessions})  # as a worker tells of it
        self.condition.only("seal", dict(done.unsealed))
        if done.changed:
            self.condition.tell(
                f"reconciled {done.sessions} sessions in {done.seconds:.1f} s, {done.changed} had changed"
            )

    # ------------------------------------------------------------------ what is told

    def _see(self) -> None:
        """Put the state down where it changed; say what of the watch changed."""
        now = self.watch.troubles()
        self.condition.only("watch", {f"{one.what} {one.where}".strip(): one.why for one in now})
        found = self.condition.troubles()
        if str(found) != self.told or any(one["what"] == "state" for one in found):
            self._put_down()
        self.condition.safely("past", self.condition.past.write)

    def _put_down(self) -> None:
        self.told = str(self.condition.troubles())
        self.condition.safely("state", lambda: state.write(self.settings.vault, self.status()))

    def status(self) -> dict[str, Any]:
        """What `keeper status` shows of the agent."""
        cost = self.watch.cost()
        sealing = self.work.sealing
        return {
            "running": True,
            "pid": self.who.pid,
            "since": self.who.since,
            "ready": self.ready or None,
            "hooked": self.answers.hooked,
            "who": asdict(self.who),
            "degraded": self.condition.troubles() or None,
            "watches": {"count": cost.watches, "limit": cost.limit, "bytes": cost.bytes},
            "profiles": [str(profile) for profile in self.profiles],
            "polled": [str(profile) for profile in self.watch.polled()],
            "live": len(self.growth),
            "queued": len(self.queue),
            "reconcile_s": self.jobs.jobs["reconcile"].every_s,
            "sealing": {"done": sealing[0], "of": sealing[1]} if sealing else None,
            "events": self.condition.events,
        }
