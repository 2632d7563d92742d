"""Pulse: what takes its time is told from what hangs, and what hangs ends the watchdog's word."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from keeper import claude
from keeper.agent.pulse import SPIN_S, Pulse
from keeper.agent.queue import Task
from keeper.agent.run import STILL_S, STUCK_S, Agent
from keeper.agent.service import Notify
from keeper.agent.work import Work
from keeper.agent.workers import Workers
from tests.agent import fuse
from tests.agent.running import until
from tests.build import jsonl, session_id, talk, write_live
from tests.conftest import Needs
from tests.seam import world

LOOK_S = 5.0


class Clock:
    """A clock that goes forward by a look at a time; what runs meanwhile has some milliseconds for each."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def looks(self, look: Callable[[], object], seconds: float) -> None:
        for _ in range(int(seconds / LOOK_S)):
            self.now += LOOK_S
            time.sleep(0.01)
            look()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@contextmanager
def at_work(pulse: Pulse, work: Callable[[], object]) -> Iterator[None]:
    """A thread that is at `work` until that is through."""

    def run() -> None:
        with pulse.at("work"):
            begun.set()
            work()

    begun = threading.Event()
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert begun.wait(20)
    yield
    thread.join(20)
    assert not thread.is_alive()
    assert pulse.still() == {}, "what is through is no longer told"


@contextmanager
def hanging_open(folder: Path) -> Iterator[Callable[[], object]]:
    """An open that does not come back until the end: a FIFO's to which nobody writes."""
    fifo = folder / "fifo"
    os.mkfifo(fifo)
    try:
        yield lambda: os.close(os.open(fifo, os.O_RDONLY))
    finally:
        os.close(os.open(fifo, os.O_RDWR | os.O_NONBLOCK))


@pytest.mark.accepts("AGENT-7")
def test_a_call_that_does_not_come_back_is_told_with_the_time_that_it_took(tmp_path: Path, clock: Clock) -> None:
    pulse = Pulse(clock)
    with hanging_open(tmp_path) as hang, at_work(pulse, hang):
        clock.looks(pulse.still, 3 * LOOK_S)
        clock.looks(pulse.still, 100)
        assert 90 <= pulse.still()["work"] <= 115
        os.close(os.open(tmp_path / "fifo", os.O_RDWR | os.O_NONBLOCK))


@pytest.mark.accepts("AGENT-7")
def test_one_large_file_that_is_read_for_very_long_is_no_hang(tmp_path: Path, clock: Clock) -> None:
    pulse, end = Pulse(clock), threading.Event()
    large = tmp_path / "large"
    large.write_bytes(bytes(1 << 20))

    def stream() -> None:
        with large.open("rb") as file:
            while not end.wait(0.001):  # as slow as a volume may be
                hashlib.sha256(file.read(4096) or b"").digest()

    still: list[float] = []
    with at_work(pulse, stream):
        clock.looks(lambda: still.append(pulse.still().get("work", 0.0)), 1000)
        end.set()
    assert max(still) < STILL_S


@pytest.mark.accepts("AGENT-7")
def test_what_turns_in_a_circle_for_an_hour_hangs_unless_it_says_that_it_goes_on(clock: Clock) -> None:
    for beats in (True, False):
        pulse, end = Pulse(clock), threading.Event()

        def turn(pulse: Pulse = pulse, end: threading.Event = end, beats: bool = beats) -> None:
            while not end.is_set():
                time.sleep(0.0005)
                if beats:
                    pulse.beat()

        with at_work(pulse, turn):
            for _ in range(int(SPIN_S / LOOK_S) + 20):
                clock.now += LOOK_S
                pulse.still()
                time.sleep(0.001)
            found = pulse.still().get("work", 0.0)
            end.set()
        assert (found > SPIN_S) is not beats


def test_while_the_process_was_stopped_no_time_has_passed(tmp_path: Path, clock: Clock) -> None:
    pulse = Pulse(clock)
    with hanging_open(tmp_path) as hang, at_work(pulse, hang):
        clock.looks(pulse.still, 4 * LOOK_S)
        clock.now += 3600
        assert pulse.still()["work"] < 10 * LOOK_S
        os.close(os.open(tmp_path / "fifo", os.O_RDWR | os.O_NONBLOCK))


# ------------------------------------------------------------------ the agent's word


@pytest.fixture
def agent(
    profile: Path, vault_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> Iterator[Agent]:
    """An agent whose parts a test starts; its loop is turned by hand."""
    monkeypatch.setattr(claude, "running_profiles", lambda *_: [])
    found = Agent(lambda: world(profile, vault_home, tmp_path / "state").settings, Notify(""))
    found.work.pulse = Pulse(clock)
    yield found
    found.ended = True
    found.watch.stop()
    found.queue.close()
    found.resident.stop()
    until(lambda: not any(thread.is_alive() for thread in found.workers.threads), "the workers have ended")
    found.asks.close()


def stuck(agent: Agent) -> list[str]:
    return [one["what"] for one in agent.condition.troubles() if one["what"].startswith("stuck: ")]


@pytest.mark.accepts("AGENT-7")
def test_a_keep_on_a_volume_that_is_dead_is_told_and_then_ends_the_watchdogs_word(
    agent: Agent, clock: Clock, needs: Needs, home: Path
) -> None:
    answers = threading.Event()
    answers.set()
    with fuse.volume(needs, home / "mounted", answers) as place:
        answers.clear()
        agent.workers.start()  # now: what a test mounts the threads see that begin after that
        agent.queue.add(Task(str(place), session_id(1)))
        until(lambda: agent.work.pulse._busy, "a worker is at it")
        clock.looks(agent._moves, STILL_S + 5 * LOOK_S)
        assert stuck(agent) == [f"stuck: the keep of {session_id(1)}"]
        assert agent._moves(), "a slow volume has some time left"
        clock.looks(agent._moves, STUCK_S - STILL_S)
        assert not agent._moves()
        answers.set()
        until(lambda: not agent.work.pulse._busy, "the volume answers again")
        assert agent._moves()
        assert stuck(agent) == []


@pytest.mark.accepts("AGENT-7")
@pytest.mark.parametrize("which", ["rescue", "pass", "door", "rules", "bounds", "glance"])
def test_nobody_else_hangs_unnoticed_either(
    which: str, agent: Agent, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = threading.Event()
    with hanging_open(tmp_path) as hang:

        def hangs(*_: object) -> None:
            begun.set()
            hang()
            agent.resident.stop()
            if which != "rescue":
                raise OSError("dead")

        if which == "rescue":
            monkeypatch.setattr(agent.resident, "turn", hangs)
            agent.resident.start()
        else:
            monkeypatch.setattr(Work, "vault", hangs)
            ask = {"do": "keep", "profile": "/p", "session": session_id(1)}
            deeds: dict[str, Callable[[], object]] = {
                "pass": partial(agent.condition.safely, "pass", agent.work.reconcile),
                "door": partial(agent.answers.to, ask),
                "rules": agent.policy.exclude,
                "bounds": agent.policy.plan,
                "glance": partial(agent.condition.safely, "glance", agent.eyes.glance),
            }
            threading.Thread(target=deeds[which], daemon=True).start()
        assert begun.wait(20)
        clock.looks(agent._moves, STUCK_S + 5 * LOOK_S)
        assert len(stuck(agent)) == 1
        assert not agent._moves()
    until(lambda: not agent.work.pulse._busy, "it comes back")
    agent.resident._thread = None


@pytest.mark.accepts("AGENT-7")
@pytest.mark.parametrize("who", ["worker", "rescue"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_has_ended_ends_the_watchdogs_word_too(
    who: str, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends(*_: object) -> None:
        raise SystemExit

    agent.workers.start()
    assert agent._moves()
    if who == "worker":
        monkeypatch.setattr(Workers, "_keep", ends)
        agent.queue.add(Task("/p", session_id(1)))
    else:
        monkeypatch.setattr(agent.resident, "turn", ends)
        agent.resident.start()
    until(lambda: not agent._moves(), "it is seen")


@pytest.mark.accepts("AGENT-7")
def test_a_pass_that_goes_from_one_session_to_the_next_says_so(
    agent: Agent, profile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beats: list[str] = []
    monkeypatch.setattr(agent.work.pulse, "beat", lambda: beats.append("beat"))
    for number in (1, 2, 3):
        write_live(profile, "/srv/new", session_id(number), jsonl(*talk("a", session_id(number))))
    agent.reconcile()
    assert len(beats) == 6, "each is linked, then sealed"
