"""Jobs, the queue, growth, the journal and the unit: the parts of the agent, each by itself."""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from keeper.agent import journal
from keeper.agent.condition import Condition
from keeper.agent.growth import UNKNOWN, Growth
from keeper.agent.jobs import Job, Jobs
from keeper.agent.journal import Journal
from keeper.agent.queue import Queue, Task
from keeper.agent.run import RECONCILE_S
from keeper.agent.service import MARK, Service, unit
from keeper.errors import KeeperError, Refused
from tests.agent.running import PATIENCE_S, running, until
from tests.build import append, jsonl, session_id, talk, write_live
from tests.conftest import Needs

ONE = Task("/p", session_id(1))
TWO = Task("/p", session_id(2))


# ------------------------------------------------------------------ jobs, and a clock that is set


@pytest.fixture
def clock(needs: Needs) -> Iterator[None]:
    """The machine's clock, put back by the one that only goes forward."""
    needs.root()
    wall, forward = time.time(), time.monotonic()
    yield
    time.clock_settime(time.CLOCK_REALTIME, wall + time.monotonic() - forward)


def set_clock(needs: Needs, by_s: float) -> None:
    try:
        time.clock_settime(time.CLOCK_REALTIME, time.time() + by_s)
    except PermissionError:
        needs.lacking("a clock to set", "run scripts/test where root may set it", unavoidable="root may not set it")


@pytest.mark.alone
@pytest.mark.accepts("AGENT-5")
@pytest.mark.parametrize("by_s", [-3600, 3600, -40 * 86400, 40 * 86400], ids=["-1h", "+1h", "-40d", "+40d"])
def test_a_job_is_late_by_no_more_than_its_interval_when_the_clock_is_set(
    by_s: float, clock: None, needs: Needs
) -> None:
    runs: list[float] = []
    jobs = Jobs([Job("often", 1.0, lambda: runs.append(time.monotonic()))])
    jobs.start()
    try:
        until(lambda: len(runs) >= 1, "it runs")
        set_clock(needs, by_s)
        assert jobs.tick(), "it is seen that the clock was set"
        before = len(runs)
        until(lambda: len(runs) >= before + 2, "it goes on running", 10)
        assert not jobs.tick()
    finally:
        jobs.stop()


@pytest.mark.alone
@pytest.mark.accepts("AGENT-5")
def test_an_agent_whose_clock_is_set_looks_at_everything_and_forgets_nothing(
    cli_env: dict[str, str], profile: Path, clock: None, needs: Needs
) -> None:
    live = write_live(profile, "/srv/new", session_id(1), jsonl(*talk("ab", session_id(1))))
    with running(cli_env) as agent:
        until(lambda: agent.keeps(session_id(1), live), "it is kept")
        for by_s in (40 * 86400, -40 * 86400, -3600):
            count = sum(one["what"] == "clock" for one in agent.status()["events"])
            set_clock(needs, by_s)
            until(lambda count=count: sum(one["what"] == "clock" for one in agent.status()["events"]) > count, "told")  # type: ignore[misc]
        other = write_live(profile, "/srv/new", session_id(2), jsonl(*talk("ab", session_id(2))))
        until(lambda: agent.keeps(session_id(2), other), "what is new is kept")
        assert agent.keeps(session_id(1), live)
        assert agent.end() == 0


def test_what_is_asked_for_while_a_job_runs_is_done_after_it() -> None:
    runs, gate = [], threading.Event()

    def work() -> None:
        runs.append(1)
        gate.wait(10)

    jobs = Jobs([Job("all", RECONCILE_S, work)])
    jobs.start()
    try:
        jobs.soon("all")
        until(lambda: runs, "it runs")
        for _ in range(3):
            jobs.soon("all")
        time.sleep(0.05)
        gate.set()
        until(lambda: len(runs) == 2, "it runs once more")
        jobs.every("all", 2 * RECONCILE_S)
        assert jobs.jobs["all"].every_s == 2 * RECONCILE_S
    finally:
        jobs.stop()


@pytest.mark.accepts("AGENT-7")
def test_a_job_that_hangs_holds_up_no_other() -> None:
    gate, runs = threading.Event(), []
    jobs = Jobs([Job("hangs", RECONCILE_S, gate.wait), Job("goes on", RECONCILE_S, lambda: runs.append(1))])  # type: ignore[arg-type]
    jobs.start()
    try:
        jobs.soon("hangs")
        for count in (1, 2):
            jobs.soon("goes on")
            until(lambda count=count: len(runs) == count, "it runs")  # type: ignore[misc]
    finally:
        gate.set()
        jobs.stop()


@pytest.mark.accepts("AGENT-6")
def test_a_process_ends_though_a_job_of_it_hangs() -> None:
    code = """
import threading, time
from keeper.agent.jobs import Job, Jobs
begun = threading.Event()
jobs = Jobs([Job("hangs", 300, lambda: (begun.set(), time.sleep(3600)))])
jobs.start()
jobs.soon("hangs")
assert begun.wait(20)
jobs.stop()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE_S)


# ------------------------------------------------------------------ the queue


def test_a_session_comes_out_once_and_when_it_is_due() -> None:
    now = [100.0]
    queue = Queue(lambda: now[0])
    queue.add(ONE, 5)
    queue.add(TWO, 1)
    queue.add(ONE, 0.5)
    queue.add(ONE, 9)
    assert queue.take(0) is None
    now[0] = 100.6
    assert queue.take(0) == ONE
    assert queue.take(0) is None
    now[0] = 101.1
    assert queue.take(0) == TWO
    assert len(queue) == 2
    queue.done(ONE)
    queue.done(TWO)
    assert len(queue) == 0


def test_a_session_that_is_hinted_at_while_it_is_kept_comes_out_again_and_never_to_two() -> None:
    queue = Queue(time.monotonic)
    queue.add(ONE)
    assert queue.take(0) == ONE
    queue.add(ONE)
    assert queue.take(0) is None
    queue.done(ONE)
    assert queue.take(0) == ONE
    queue.done(ONE)
    assert queue.take(0) is None


def test_what_a_worker_asks_for_again_is_due_when_it_asked_for_it() -> None:
    now = [100.0]
    queue = Queue(lambda: now[0])
    queue.add(ONE)
    assert queue.take(0) == ONE
    queue.add(ONE, 0.5)
    queue.done(ONE)
    assert queue.take(0) is None
    now[0] = 100.6
    assert queue.take(0) == ONE


def test_what_went_comes_after_all_that_came() -> None:
    now = [100.0]
    queue = Queue(lambda: now[0])
    gone = [Task("/p", session_id(n), late=True) for n in range(10, 20)]
    for task in gone:
        queue.add(task, 0.5)
    now[0] = 101.0
    queue.add(ONE)
    assert (queue.take(0), queue.waits_late()) == (ONE, 10)
    queue.add(Task(*gone[7].key))
    assert queue.take(0) == Task(*gone[7].key)
    assert [queue.take(0) for _ in range(10)] == [*(task for task in gone if task != gone[7]), None]


def test_at_the_end_all_that_waits_is_handed_over_and_nobody_waits_any_longer() -> None:
    queue = Queue(time.monotonic)
    queue.add(ONE, 3600)
    queue.add(TWO)
    assert queue.take(0) == TWO
    queue.add(TWO)
    waits = threading.Thread(target=lambda: queue.take(3600))
    waits.start()
    assert queue.close() == [ONE, TWO]
    waits.join(5)
    assert not waits.is_alive()
    queue.done(TWO)
    queue.add(ONE)
    assert (queue.take(0), len(queue)) == (None, 0)


# ------------------------------------------------------------------ growth, the journal, the condition


def test_what_grew_is_told_and_what_is_quiet_or_gone_is_looked_at_no_more(tmp_path: Path) -> None:
    now = time.time()
    live = write_live(tmp_path, "/srv", session_id(1), b"a\n")
    growth = Growth()
    growth.note("p", session_id(1), str(live), growth.look("p", session_id(1)))
    assert growth.grown(now) == [("p", session_id(1))], "how it stood before that keep nobody knows"
    growth.note("p", session_id(1), str(live), growth.look("p", session_id(1)))
    assert growth.grown(now) == []
    append(live, b"b\n")
    assert growth.grown(now) == [("p", session_id(1))]
    agent = live.with_suffix("") / "subagents" / "agent-a1.jsonl"
    agent.parent.mkdir(parents=True)
    agent.write_bytes(b"s\n")
    assert growth.grown(now) == [("p", session_id(1))]
    os.utime(live, (1, 1))
    os.utime(agent, (1, 1))
    growth.grown(now)
    assert (growth.grown(now), len(growth)) == ([], 0)
    growth.meet("p", session_id(1), str(live), now, now)
    assert len(growth) == 1
    live.unlink()
    assert (growth.grown(now), len(growth)) == ([], 0)
    assert growth.look("p", session_id(1)) == UNKNOWN


@pytest.mark.accepts("AGENT-2")
def test_the_log_has_ten_lines_a_minute_and_says_how_many_it_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    now, lines = [0.0], list[str]()
    monkeypatch.setattr(journal.logger, "info", lines.append)
    book = Journal(lambda: now[0])
    for number in range(500):
        book.tell(f"line {number}")
        now[0] += 0.1
    assert len(lines) <= 10
    now[0] = 61.0
    book.tell("later")
    assert lines[-2:] == [f"{500 - len(lines) + 2} lines were left out in the minute before", "later"]


@pytest.mark.accepts("AGENT-2")
def test_a_trouble_is_told_once_with_its_reason_until_it_is_cured() -> None:
    told: list[str] = []
    condition = Condition(Journal(time.monotonic), lambda: None)
    condition.journal.tell = told.append  # type: ignore[method-assign]
    for _ in range(3):
        condition.trouble("watch: /p", "the limit of watches is reached")
    (one,) = condition.troubles()
    assert (one["what"], one["why"]) == ("watch: /p", "the limit of watches is reached")
    condition.only("watch", {"/q": "gone"})
    assert [one["what"] for one in condition.troubles()] == ["watch: /q"]
    condition.safely("doors", lambda: 1 / 0)
    assert condition.troubles()[-1]["why"].startswith("ZeroDivisionError")
    condition.safely("doors", lambda: None)
    condition.only("watch", {})
    assert condition.troubles() == []
    assert told == [
        "watch: /p: the limit of watches is reached", "watch: /p: well again", "watch: /q: gone",
        "doors: ZeroDivisionError: division by zero", "doors: well again", "watch: /q: well again",
    ]  # fmt: skip


# ------------------------------------------------------------------ systemd


@pytest.mark.accepts("AGENT-7")
def test_systemd_is_told_ready_alive_and_stopping(cli_env: dict[str, str], tmp_path: Path, profile: Path) -> None:
    live = write_live(profile, "/srv/new", session_id(1), jsonl(*talk("ab", session_id(1))))
    place = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.bind(str(place))
        line.settimeout(20)
        with running({**cli_env, "NOTIFY_SOCKET": str(place)}, until_ready=False) as agent:
            first = line.recv(4096).decode().splitlines()
            assert first[0] == "READY=1"
            assert agent.keeps(session_id(1), live), "ready means that what was there is kept"
            assert line.recv(4096) == b"WATCHDOG=1"
            agent.end()
            rest = [first]
            while rest[-1] != b"STOPPING=1":
                rest.append(line.recv(4096))


@pytest.mark.accepts("AGENT-7")
def test_the_unit_is_one_that_systemd_takes(tmp_path: Path, needs: Needs) -> None:
    analyze = needs.command("systemd-analyze")
    path = tmp_path / "keeper.service"
    odd = {"KEEPER_HOME": '/srv/a "place" 100% odd\\', "CLAUDE_CONFIG_DIR": "/srv/$HOME"}
    path.write_text(unit((shutil.which("true") or "/bin/true", "-m", "two words", "100%", "$HOME"), odd))
    ran = subprocess.run([analyze, "verify", "--user", path], capture_output=True, text=True, check=False,
                         env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)})  # fmt: skip
    assert [line for line in ran.stderr.splitlines() if "keeper.service" in line] == []
    assert ran.returncode == 0, ran.stderr


@pytest.mark.accepts("AGENT-7")
def test_what_the_unit_runs_imports_nothing_of_the_home_in_which_it_runs(cli_env: dict[str, str], home: Path) -> None:
    from keeper.cli.run import text

    for name in ("random", "select", "keeper", "click"):
        (home / f"{name}.py").write_text("raise ImportError('this is a file of the user')\n")
    (words,) = [line.removeprefix("ExecStart=") for line in text().splitlines() if line.startswith("ExecStart=")]
    ran = subprocess.run(
        [*shlex.split(words), "--once"], env=cli_env, cwd=home, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.accepts("AGENT-7")
def test_a_unit_is_installed_and_removed_by_one_command_and_another_ones_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    service = Service(tmp_path / "systemd" / "user")
    assert service.remove() == []
    assert "no systemd here" in service.install(unit(("/bin/true",), {}))[-1]
    assert (service.status().installed, service.path.read_text().startswith(MARK)) == (True, True)
    service.install(unit(("/bin/false",), {}))
    assert "/bin/false" in service.path.read_text()
    assert not service.path.exists() or service.remove()
    assert not service.path.exists()
    service.path.write_text("[Service]\nExecStart=/bin/mine\n")
    for deed in (lambda: service.install("x"), service.remove):
        with pytest.raises(Refused):
            deed()
    assert "mine" in service.path.read_text()
    assert not service.status().installed


def systemctl(folder: Path, monkeypatch: pytest.MonkeyPatch, answers: str) -> Path:
    """A systemctl on PATH that answers so; the log of what it was asked."""
    folder.mkdir()
    program, log = folder / "systemctl", folder / "log"
    program.write_text(f'#!/bin/sh\necho "$*" >>{log}\ncase "$*" in {answers} esac\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return log


@pytest.mark.accepts("AGENT-7")
def test_an_agent_that_systemd_does_not_start_is_told_as_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemctl(tmp_path / "bin", monkeypatch, "*) echo 'Failed to connect to bus' >&2; exit 1;;")
    service = Service(tmp_path / "systemd" / "user")
    with pytest.raises(KeeperError, match=r"the agent is not started: .*Failed to connect to bus") as failed:
        service.install(unit(("/bin/true",), {}))
    assert "keeper run" in str(failed.value.cure)
    assert "removed" in service.remove()[-1]


@pytest.mark.accepts("AGENT-7")
def test_an_agent_that_runs_by_an_older_unit_is_started_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = systemctl(tmp_path / "bin", monkeypatch, "*is-active*) echo active;;")
    service = Service(tmp_path / "systemd" / "user")
    service.install(unit(("/bin/true",), {}))
    log.unlink()
    service.install(unit(("/bin/false",), {}))
    assert log.read_text().splitlines() == [
        "--user daemon-reload", "--user enable keeper.service", "--user restart keeper.service",
    ]  # fmt: skip


def test_a_user_without_lingering_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from keeper.agent import service

    monkeypatch.setattr(service, "BOOTED", tmp_path)
    monkeypatch.setattr(service, "LINGERING", tmp_path)
    assert service.ends_with_login()
    (tmp_path / pwd.getpwuid(os.getuid()).pw_name).touch()
    assert not service.ends_with_login()
    monkeypatch.setattr(service, "BOOTED", tmp_path / "none")
    assert not service.ends_with_login()
