#!/usr/bin/env python3
"""Lets the agent run for as long as it is told, under writers, sweeps and kills, and counts what became of the lines.

    scripts/soak.py --seconds 3600        an hour: 50 writers, a kill -9 of the agent every 1 to 60 s
    scripts/soak.py --seconds 60 --writers 10 --kills 1 5

Each writer has chats of its own: it opens, appends and closes as Claude does, and begins a new chat now and then. A
sweep takes a live file that is kept (one that nothing links yet is not older than a moment, and no sweep takes such);
its writer goes on with the newest lines in a new file. The last third is without kills, so that the memory and the
descriptors of one agent are seen to be flat. Prints one closing line; exits 1 when a line was lost, doubled or stands
before what its writer wrote earlier, or when the agent grew.
"""

import argparse
import itertools
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from keeper import wire  # noqa: E402
from tests.build import append, jsonl, live_path, meta, prompt  # noqa: E402
from tests.conftest import ALONE_ON_THE_MACHINE  # noqa: E402

BARE = 0.2
"""So many of the lines have no uuid."""
NEW_CHAT = 0.002
SWEEP_S = 0.4
GROWTH = 1.25
"""An agent whose memory or descriptors are more than this by the end of the calm third has grown."""


@dataclass(slots=True)
class Chat:
    """One writer's conversation: its lines in the order in which they were written."""

    live: Path
    session: str
    lines: list[bytes] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def write(self, rng: random.Random) -> None:
        """One line, by an open, an append and a close."""
        number = len(self.lines)
        name = f"{self.session[:8]}.{number}"
        bare = number > 0 and rng.random() < BARE
        line = meta("mode", mode=name, sessionId=self.session) if bare else prompt(name, None, session=self.session)
        with self.lock:
            self.live.parent.mkdir(parents=True, exist_ok=True)
            append(self.live, jsonl(line))
            self.lines.append(line)

    def sweep(self) -> bool:
        """Take the live file, if it is kept."""
        with self.lock:
            try:
                if os.stat(self.live).st_nlink < 2:
                    return False
                self.live.unlink()
            except FileNotFoundError:
                return False
        return True


class Agent:
    """The agent's process, killed and started again; what it used at most, and at the ends of its calm time."""

    def __init__(self, home: Path, vault: Path) -> None:
        self.vault = vault
        self.environ = {
            "PATH": os.environ.get("PATH", os.defpath), "HOME": str(home), "KEEPER_HOME": str(vault),
            "PYTHONPATH": str(REPOSITORY), "PYTHONDONTWRITEBYTECODE": "1",
        }  # fmt: skip
        self.log = (home / "agent.err").open("wb")
        self.kills = 0
        self.used: list[tuple[int, int]] = []
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", ALONE_ON_THE_MACHINE, "run"], env=self.environ, stdin=subprocess.DEVNULL,
            stdout=self.log, stderr=self.log,
        )  # fmt: skip

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.kills += 1
        self.start()

    def look(self) -> None:
        """Note what it uses: resident memory in kB, open descriptors."""
        try:
            status = Path(f"/proc/{self.process.pid}/status").read_text("ascii")
            resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
            self.used.append((resident, len(os.listdir(f"/proc/{self.process.pid}/fd"))))
        except (OSError, StopIteration):
            return

    def settle(self, patience_s: float = 120) -> bool:
        """Wait until it has looked at everything and nothing is queued."""
        wire.ask(str(self.vault), {"do": "reconcile"}, 10)
        end, calm = time.monotonic() + patience_s, 0
        while calm < 6 and time.monotonic() < end:
            time.sleep(0.5)
            told = wire.ask(str(self.vault), {"do": "status"}, 10)
            calm = calm + 1 if told and told.get("ready") and not told["queued"] and not told["sealing"] else 0
        return calm >= 6

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


@dataclass(slots=True)
class World:
    """All that is under way."""

    profile: Path
    rng: random.Random
    chats: list[Chat] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)
    sweeps: int = 0

    def begin(self, rng: random.Random) -> Chat:
        session = str(uuid.UUID(int=rng.getrandbits(128), version=4))
        chat = Chat(live_path(self.profile, session, f"/srv/p{rng.randrange(20)}"), session)
        self.chats.append(chat)
        return chat

    def writer(self, number: int, rate: float) -> None:
        rng = random.Random(f"{self.rng.random()}/{number}")
        chat = self.begin(rng)
        while not self.ended.is_set():
            chat.write(rng)
            if rng.random() < NEW_CHAT:
                chat = self.begin(rng)
            self.ended.wait(rng.expovariate(rate))

    def sweeper(self) -> None:
        rng = random.Random(self.rng.random())
        while not self.ended.wait(rng.expovariate(1 / SWEEP_S)):
            self.sweeps += rng.choice(list(self.chats)).sweep() if self.chats else 0


@dataclass(frozen=True, slots=True)
class Told:
    lost: int
    doubled: int
    disordered: int


def judge(chats: list[Chat], vault: Path) -> Told:
    """What became of the lines, as kept has them."""
    lost = doubled = disordered = 0
    for chat in chats:
        kept = vault / "chats" / chat.session / f"{chat.session}.jsonl"
        lines = kept.read_bytes().split(b"\n")[:-1] if kept.exists() else []
        count = Counter(lines)
        lost += sum(line not in count for line in chat.lines)
        doubled += sum(number - 1 for number in count.values())
        place = {line: at for at, line in enumerate(lines)}
        known = [place[line] for line in chat.lines if line in place]
        disordered += sum(one > other for one, other in itertools.pairwise(known))
        for line in [line for line in chat.lines if line not in count][:1]:
            print(f"soak: {chat.session} lacks {line[:60]!r} of {len(chat.lines)} lines", file=sys.stderr)
    return Told(lost, doubled, disordered)


def run(world: World, agent: Agent, seconds: float, writers: int, rate: float, kills: tuple[float, float]) -> None:
    """Writers, sweeps and kills for two thirds of the time, the rest without kills."""
    threads = [threading.Thread(target=world.writer, args=(number, rate), daemon=True) for number in range(writers)]
    threads.append(threading.Thread(target=world.sweeper, daemon=True))
    for thread in threads:
        thread.start()
    begun = time.monotonic()
    due = begun + world.rng.uniform(*kills)
    told = begun
    while (now := time.monotonic()) < begun + seconds:
        time.sleep(0.2)
        if now < begun + seconds * 2 / 3:
            if now >= due:
                agent.kill()
                due = now + world.rng.uniform(*kills)
        elif now > begun + seconds * 0.75:
            agent.look()
        if now > told + 60:
            told = now
            lines = sum(len(chat.lines) for chat in world.chats)
            print(f"soak: {now - begun:.0f} s, {lines:,} lines, {agent.kills} kills", file=sys.stderr)
    world.ended.set()
    for thread in threads:
        thread.join(30)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0], epilog="Example: scripts/soak.py --seconds 60"
    )
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--writers", type=int, default=50)
    parser.add_argument("--rate", type=float, default=4.0, help="lines a second of one writer")
    parser.add_argument("--kills", type=float, nargs=2, default=(1, 60), metavar=("MIN", "MAX"), help="seconds between")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="keeper-soak-") as folder:
        home, vault = Path(folder) / "home", Path(folder) / "vault"
        (home / ".claude" / "projects").mkdir(parents=True)
        world = World(home / ".claude", random.Random(options.seed))
        agent = Agent(home, vault)
        try:
            run(world, agent, options.seconds, options.writers, options.rate, tuple(options.kills))
            settled = agent.settle()
        finally:
            world.ended.set()
            agent.end()
        found = judge(world.chats, vault)
        if not settled or found != Told(0, 0, 0):
            sys.stderr.write((home / "agent.err").read_text("utf-8", "replace")[-4000:])
    third = max(1, len(agent.used) // 3)
    first, last = agent.used[:third], agent.used[-third:]
    memory = [sum(use[0] for use in part) / len(part) / 1024 for part in (first, last) if part]
    descriptors = [max(use[1] for use in part) for part in (first, last) if part]
    flat = all(after <= GROWTH * before for before, after in (memory, descriptors) if memory)
    lines = sum(len(chat.lines) for chat in world.chats)
    print(
        f"soak: {options.seconds:.0f} s, {options.writers} writers, {len(world.chats)} chats, {lines:,} lines, "
        f"{world.sweeps} sweeps, {agent.kills} kills: {found.lost} lost, {found.doubled} doubled, "
        f"{found.disordered} out of order; memory {' → '.join(f'{one:.0f}' for one in memory)} MB, "
        f"descriptors {' → '.join(map(str, descriptors))}" + ("" if settled else "; it did not settle")
    )
    return 0 if settled and flat and found == Told(0, 0, 0) else 1


if __name__ == "__main__":
    sys.exit(main())
