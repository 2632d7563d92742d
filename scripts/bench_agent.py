"""Measures the agent for `bench.py`: how soon a new session is kept and a swept one is back, what it costs idle and
under appends, its start.

It runs `keeper run` on profiles of its own, which it has made and kept before, and ends it. Times to a second process
are taken by the clock, in the same run as the yardsticks that they stand beside.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

import bench_data as data  # noqa: E402
from bench_lines import Line  # noqa: E402

from tests.conftest import ALONE_ON_THE_MACHINE  # noqa: E402

MB = 1_000_000
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
PATIENCE_S = 300


class Running:
    """An agent, ready: how long that took, what it has used so far."""

    def __init__(self, env: Mapping[str, str]) -> None:
        begun = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-c", ALONE_ON_THE_MACHINE, "run", "--json"],
            env=dict(env), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.process.stdout.read(1)
        self.start_s = time.perf_counter() - begun

    def spent(self) -> float:
        """Seconds of the processor."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * TICK_S

    def memory(self) -> int:
        """Bytes that are resident."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS"))

    def settle(self) -> None:
        """Wait until it has been quiet for some seconds: its first reconcile is through."""
        calm, before, end = 0, self.spent(), time.monotonic() + PATIENCE_S
        while calm < 3 and time.monotonic() < end:
            time.sleep(1)
            now = self.spent()
            calm = calm + 1 if now - before < 0.02 else 0
            before = now

    def end(self) -> float:
        """Seconds from a TERM to its end."""
        begun = time.perf_counter()
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate()
        return time.perf_counter() - begun


@contextmanager
def running(env: Mapping[str, str]) -> Iterator[Running]:
    agent = Running(env)
    try:
        yield agent
    finally:
        if agent.process.poll() is None:
            agent.process.kill()
            agent.process.communicate()


def agent_lines(profile: data.Profile, vault: Path, env: Mapping[str, str], quick: bool) -> Iterator[Line]:
    """What an agent over that profile costs and how soon it keeps; all of it is kept and sealed already."""
    chats = len(profile.sessions)
    with running(env) as agent:
        agent.settle()
        took = [_new_session(profile, vault, number) for number in range(60 if quick else 300)]
        took.sort()
        detail = f"median {statistics.median(took) * 1000:.1f} ms, {len(took)} sessions, {chats:,} chats"
        yield Line("AGENT-1", "a new session is kept, p99", took[int(len(took) * 0.99)] * 1000, "ms", 25, detail=detail)
        agent.settle()
        seconds = 10 if quick else 40
        before = agent.spent()
        time.sleep(seconds)
        idle = (agent.spent() - before) / seconds * 100
        yield Line(
            "AGENT-3",
            f"idle with {chats:,} chats, of a core",
            idle,
            "%",
            0.1,
            detail=f"over {seconds} s; all but the new ones quiet for 2 h",
        )
        yield Line("AGENT-3", "its memory", agent.memory() / MB, "MB", 60)
        before, begun = agent.spent(), time.perf_counter()
        count = _appends(profile.transcript(0), 2 if quick else 6)
        spent, took_s = agent.spent() - before, time.perf_counter() - begun
        detail = f"{count / took_s:,.0f} appends a second; what has grown is sealed every 3 s"
        yield Line("AGENT-3", "the agent beside a writer, of a core", spent / took_s * 100, "%", detail=detail)
        yield Line("AGENT-6", "from a TERM to its end", agent.end(), "s", 2)


def _new_session(profile: data.Profile, vault: Path, number: int) -> float:
    """Seconds from a transcript's first line to its name in the vault."""
    session = f"{number:08x}-0000-4000-a000-{time.monotonic_ns() % (1 << 48):012x}"
    live = profile.transcript(number % len(profile.sessions)).with_name(f"{session}.jsonl")
    line = {
        "type": "user",
        "uuid": session,
        "parentUuid": None,
        "sessionId": session,
        "cwd": "/srv",
        "message": {"role": "user", "content": "x"},
    }
    kept = vault / "chats" / session / f"{session}.jsonl"
    fd = os.open(live, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(fd, json.dumps(line).encode() + b"\n")
    os.close(fd)
    begun = time.perf_counter()
    while not kept.exists():
        if time.perf_counter() - begun > 30:
            raise SystemExit(f"bench: a new session was not kept in 30 s: {live}")
        time.sleep(0.0003)
    took = time.perf_counter() - begun
    time.sleep(0.05)
    return took


PAST = 40 * 86400
"""Seconds: older than any sweep leaves a file."""


def resident_lines(profile: data.Profile, env: Mapping[str, str], quick: bool) -> Iterator[Line]:
    """What a sweep takes of resident chats is back: one at a time, and all of them at once.

    Measured on a running agent that has looked at everything. The sweep is what Claude's is: the unlink of transcripts
    whose times are past the retention (they are set so a moment before; a change of times brings no event). The clock
    runs from before the (first) unlink to when (the last of) the live files is seen under its name again, whole: a
    link puts it there in one step. One at a time: each of another project than the one before, some in the storm of
    those before them. So the figure holds the events' way through the kernel, two processes' turns on the processor,
    and the look every 0.2 ms whether it is there.
    """
    lives = [profile.transcript(number) for number in range(len(profile.sessions))]
    with running(env) as agent:
        agent.settle()
        took = sorted(_back(lives[number : number + 1], 0.0002) for number in range(100 if quick else 300))
        detail = f"median {statistics.median(took) * 1000:.1f} ms, {len(took)} chats, {len(lives):,} kept"
        yield Line("POLICY-4", "a swept chat (resident) is back, p99", took[int(len(took) * 0.99)] * 1000, "ms", 10,
                   detail=detail)  # fmt: skip
        all_back = []
        for _ in range(3 if quick else 5):
            agent.settle()
            before = agent.spent()
            all_back.append((_back(lives, 0.001), agent.spent() - before))
        seconds, spent = (statistics.median(side) for side in zip(*all_back, strict=True))
        detail = f"from the first unlink; the worst {max(all_back)[0]:.2f} s of {len(all_back)}, "
        detail += f"{spent:.2f} s of the processor until then"
        yield Line("RESTORE-11", f"{len(lives):,} swept chats (resident) are back", seconds, "s", 0.5, detail=detail)


def _back(lives: list[Path], every_s: float) -> float:
    """Seconds from a sweep of these to when they are all back."""
    then, inodes = time.time() - PAST, [live.stat().st_ino for live in lives]
    for place, live in enumerate(lives):
        os.utime(live, (then + place, then + place))
    time.sleep(0.05)
    begun = time.perf_counter()
    for live in lives:
        live.unlink()
    for live in lives:
        while not live.exists():
            if time.perf_counter() - begun > PATIENCE_S:
                raise SystemExit(f"bench: a swept chat did not come back in {PATIENCE_S} s: {live}")
            time.sleep(every_s)
    took = time.perf_counter() - begun
    if inodes != [live.stat().st_ino for live in lives]:
        raise SystemExit("bench: what came back is not what was swept")
    return took


def _appends(live: Path, seconds: float) -> int:
    """Open, append and close, as often as it goes, at most 20,000 a second."""
    line = b'{"type":"mode","mode":"default"}\n'
    end, count, begun = time.perf_counter() + seconds, 0, time.perf_counter()
    while (now := time.perf_counter()) < end:
        if count > (now - begun) * 20_000:
            time.sleep(0.0005)
            continue
        fd = os.open(live, os.O_WRONLY | os.O_APPEND)
        os.write(fd, line)
        os.close(fd)
        count += 1
    return count


def start_line(env: Mapping[str, str], chats: int, limit_s: float, rounds: int) -> Line:
    """From exec to ready, everything kept before and in the kernel's cache."""
    took = []
    for _ in range(rounds + 1):
        with running(env) as agent:
            took.append(agent.start_s)
            agent.end()
    detail = f"the worst {max(took[1:]):.2f} s of {rounds}"
    return Line(
        "AGENT-9", f"start with {chats:,} sessions, warm", statistics.median(took[1:]), "s", limit_s, detail=detail
    )
