"""One bout of the race: writers in processes of their own, a process that keeps in a loop, deletions and kills.

It promises to lose no line itself: a live file is deleted only while a name of keeper's holds its inode, or, where the
vault is on another volume and no link can hold it, while no writer is under way and kept has every line.
"""

import errno
import fcntl
import mmap
import os
import random
import re
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from places import Places, children, ended

from keeper import disk
from tests.build import append, jsonl, prompt
from tests.seam import World, names_of_ours

ENDLESS = 1 << 60
BURST = 150
"""So many batches a writer at full speed writes before it pauses, about: without pauses a file is too large for swaps
before the race has begun."""
STOP, SWAPS, DELETIONS, KEEPS, FAILED = range(5)
TAG = re.compile(rb'\{[^\n]*"requestId":"w(\d+)\.(\d+)"\}')


@dataclass(frozen=True, slots=True)
class Writer:
    """`rate` in lines a second, 0 for as fast as it goes; `hold`: so many lines before it closes and opens anew, 0 for
    open, append, close of every batch."""

    lines: int
    rate: int
    hold: int = 0


@dataclass(frozen=True, slots=True)
class Bout:
    """What is run: the vault's volume, who writes, and what happens meanwhile. `bare`: the share of lines without uuid.

    `exchange` False: the volume refuses it. `between`: deletions between any two of keeper's steps, and not only by
    another process at any time. `crashes`: the keeping process is killed again and again.
    """

    seed: str
    copy: bool
    writers: tuple[Writer, ...]
    bare: float = 0.0
    exchange: bool = True
    between: float = 0.0
    crashes: bool = False


@dataclass(frozen=True, slots=True)
class Told:
    """How a bout ended."""

    lines: int
    swaps: int
    deletions: int
    crashes: int
    lost: int
    doubled: int
    disordered: int
    left: int
    failed: int
    rate: int
    seen: tuple[str, ...]

    @property
    def bad(self) -> int:
        """What may not be; order is demanded at up to 2,000 lines a second."""
        return self.lost + self.doubled + self.left + self.failed + (self.disordered if self.rate else 0)


# ------------------------------------------------------------------ writing


def write(writer: Writer, number: int, bout: Bout, session: str, live: str, gate: str) -> None:
    """Write all lines of a writer, a batch of 1 to 5 in one write, as Claude does."""
    rng = random.Random(f"{bout.seed}/{number}")
    with open(gate, "rb") as door:
        fd, held, round_ = -1, 0, b""
        due = time.monotonic()
        for batch in _batches(writer.lines, number, bout.bare, session, rng):
            if bout.copy:
                # Where no link can hold an inode, a sweep waits for whoever writes, and who writes opens anew.
                fcntl.flock(door, fcntl.LOCK_SH)
                if (seen := os.pread(door.fileno(), 16, 0)) != round_ and fd >= 0:
                    os.close(fd)
                    fd, held = -1, 0
                round_ = seen
            if fd < 0:
                fd = _open(live)
                if rng.random() < 0.02:
                    time.sleep(0.001)  # a writer may be held up between its open and its write
            data = b"".join(batch)
            if os.write(fd, data) != len(data):
                raise OSError(errno.ENOSPC, "a batch was written in part")
            held += len(batch)
            if held >= writer.hold:
                os.close(fd)
                fd, held = -1, 0
            if bout.copy:
                fcntl.flock(door, fcntl.LOCK_UN)
            if writer.rate:
                due = max(due, time.monotonic()) + len(batch) / writer.rate
                time.sleep(max(0.0, due - time.monotonic()))
            elif rng.random() < 1 / BURST:
                time.sleep(rng.uniform(0.0, 0.05))


def _open(live: str) -> int:
    return os.open(live, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def _batches(lines: int, number: int, bare: float, session: str, rng: random.Random) -> Iterator[list[bytes]]:
    parent = f'"{ROOT}"'
    count = 0
    while count < lines:
        batch = []
        for _ in range(min(rng.randint(1, 5), lines - count)):
            tag = f'"requestId":"w{number}.{count}"}}\n'
            if rng.random() < bare:
                batch.append(f'{{"type":"mode","mode":"normal","sessionId":"{session}",{tag}'.encode())
            else:
                uuid = f"{number:08x}-0000-4000-8000-{count:012x}"
                text = "x" * rng.randint(1, 200)
                kind, said = (
                    ("user", f'"{text}"') if count % 2 else ("assistant", f'[{{"type":"text","text":"{text}"}}]')
                )
                batch.append(
                    f'{{"parentUuid":{parent},"isSidechain":false,"type":"{kind}","message":{{"role":"{kind}",'
                    f'"content":{said}}},"uuid":"{uuid}","cwd":"/srv/demo/proj","sessionId":"{session}",'
                    f'"version":"2.1.328",{tag}'.encode()
                )
                parent = f'"{uuid}"'
            count += 1
        yield batch


ROOT = "ffffffff-0000-4000-8000-000000000000"


# ------------------------------------------------------------------ deleting


def inode(path: str) -> int:
    """0 where there is none."""
    try:
        return os.lstat(path).st_ino
    except FileNotFoundError:
        return 0


def held_by_keeper(world: World, wanted: int, copy: bool) -> bool:
    """Whether a name of keeper's holds that inode."""
    folders = [world.live.parent] if copy else [world.chat, world.chat / "swap"]
    for folder in folders:
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if (not copy or entry.name.startswith(".keeper-")) and entry.inode() == wanted:
                        return True
        except FileNotFoundError:
            continue
    return False


def sweep(world: World, counters: memoryview, gate: str, rng: random.Random) -> None:
    """Another process that deletes the live file at any time at which kept is its inode.

    keeper may exchange between the look and the deed: so what was moved away is looked at again before it goes. Of all
    that deletes, one at a time does so.
    """
    live, out = str(world.live), str(world.root.parent / "swept")
    pause_s = rng.choice((0.02, 0.05, 0.3))
    while not counters[STOP]:
        time.sleep(rng.uniform(0.0, pause_s))
        with alone(gate):
            if not (was := inode(live)) or was != inode(str(world.kept)):
                continue
            try:
                os.rename(live, out)
            except FileNotFoundError:
                continue
            if held_by_keeper(world, inode(out), copy=False):
                counters[DELETIONS] += 1
            else:
                os.link(out, live)  # FileExistsError would be this harness's own loss, and ends the bout
            os.unlink(out)


@contextmanager
def alone(gate: str) -> Iterator[int]:
    """The only one behind the gate; a kill opens it."""
    fd = os.open(gate, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield fd
    finally:
        os.close(fd)


def sweep_at_rest(world: World, counters: memoryview, gate: str) -> None:
    """Delete the live file while no writer is under way and kept has all of it."""
    with alone(gate) as door:
        world.keep()
        lines = set(world.kept.read_bytes().split(b"\n"))
        live = str(world.live)
        if inode(live) and lines.issuperset(Path(live).read_bytes().split(b"\n")):
            os.unlink(live)
            counters[DELETIONS] += 1
            os.pwrite(door, b"%16d" % counters[DELETIONS], 0)


# ------------------------------------------------------------------ keeping


class Disturbed:
    """The seam in the keeping process: counts the swaps, deletes between two steps, dies at a step."""

    def __init__(self, bout: Bout, world: World, counters: memoryview, gate: str, rng: random.Random) -> None:
        self.bout = bout
        self.world = world
        self.counters = counters
        self.gate = gate
        self.rng = rng
        self.live = str(world.live)
        # The others are by the clock, from outside.
        self.left = rng.randint(1, 70) if bout.crashes and rng.random() < 0.7 else ENDLESS

    def __call__(self, call: str, paths: tuple[disk.Name, ...]) -> None:
        self.left -= 1
        if self.left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.rng.random() < self.bout.between:
            self._delete()
        if call == "exchange" and not self.bout.exchange:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        if call == "exchange" or (call == "replace" and str(paths[0]) == self.live):
            self.counters[SWAPS] += 1

    def _delete(self) -> None:
        """No one else takes the name away or exchanges it meanwhile: keeper stands still here."""
        if self.bout.copy:
            self._delete_alone()
        else:
            with alone(self.gate):
                self._delete_alone()

    def _delete_alone(self) -> None:
        was = inode(self.live)
        if not was or not held_by_keeper(self.world, was, self.bout.copy):
            return
        os.unlink(self.live)
        self.counters[DELETIONS] += 1
        if self.rng.random() < 0.5:
            until = time.monotonic() + 0.005
            while not inode(self.live) and time.monotonic() < until:
                time.sleep(0.0002)


def keep_on(bout: Bout, world: World, counters: memoryview, gate: str, turn: int) -> None:
    """Keep in a loop until the writers are done."""
    rng = random.Random(f"{bout.seed}/keep/{turn}")
    disk.hook = Disturbed(bout, world, counters, gate, rng)
    while not counters[STOP]:
        world.keep()
        counters[KEEPS] += 1
        if bout.copy and rng.random() < 0.2:
            sweep_at_rest(world, counters, gate)
        time.sleep(rng.choice((0.0, 0.0, 0.002, 0.01)))


# ------------------------------------------------------------------ a bout


def fight(bout: Bout, here: Places) -> Told:
    """Run a bout from an empty vault to its count."""
    world = here.world("race", bout.copy)
    world.live.parent.mkdir(parents=True)
    world.root.parent.mkdir(parents=True, exist_ok=True)
    append(world.live, jsonl(prompt(ROOT, None, session=world.session)))
    gate = str(here.disk / "race" / "gate")
    Path(gate).write_bytes(b"%16d" % 0)
    world.keep()
    counters = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("q")
    try:
        crashes, failed = _run(bout, world, counters, gate)
        for _ in range(3):
            world.keep()
        left = names_of_ours(world.profile, world.root)
        told = count(bout, world.kept.read_bytes())
        return Told(
            sum(writer.lines for writer in bout.writers), counters[SWAPS], counters[DELETIONS], crashes,
            *told[:3], len(left), failed, min(writer.rate for writer in bout.writers), (*told[3], *left[:5]),
        )  # fmt: skip
    finally:
        for path in here.named("race"):
            shutil.rmtree(path, ignore_errors=True)


def _run(bout: Bout, world: World, counters: memoryview, gate: str) -> tuple[int, int]:
    """Let the writers write; how often the keeping process was killed, and how often a process failed by itself."""
    rng = random.Random(f"{bout.seed}/run")
    crashes = failed = 0
    with children() as start:
        live = str(world.live)
        writers = {
            start(lambda w=writer, n=number: write(w, n, bout, world.session, live, gate))
            for number, writer in enumerate(bout.writers)
        }
        sweeper = 0
        if not bout.copy:
            sweeper = start(lambda: sweep(world, counters, gate, random.Random(f"{bout.seed}/sweep")))
        keeping = 0
        until = 0.0
        while writers or keeping or sweeper:
            if not writers:
                counters[STOP] = 1
            if writers and not keeping:
                keeping = start(lambda turn=crashes: keep_on(bout, world, counters, gate, turn))
                until = time.monotonic() + (rng.uniform(0.0, 0.5) if bout.crashes else ENDLESS)
            time.sleep(0.001)
            if keeping and time.monotonic() > until:
                os.kill(keeping, signal.SIGKILL)
                until = float(ENDLESS)
            for pid in list(writers):
                if (code := ended(pid)) is not None:
                    writers.discard(pid)
                    failed += code != 0
            if keeping and (code := ended(keeping)) is not None:
                keeping = 0
                if code == -signal.SIGKILL:
                    crashes += 1
                elif code:
                    failed += 1
                    crashes += 1
            if sweeper and (code := ended(sweeper)) is not None:
                sweeper = 0
                failed += code != 0
    return crashes, failed


def count(bout: Bout, kept: bytes) -> tuple[int, int, int, tuple[str, ...]]:
    """Lost, doubled, out of order, and where."""
    lines = kept.split(b"\n")
    found = [TAG.fullmatch(line) if line.count(b'"requestId"') == 1 else None for line in lines]
    order = [(int(one[1]), int(one[2])) for one in found if one is not None]
    counts = Counter(order)
    bare = {(int(one[1]), int(one[2])) for one in found if one is not None and b'"uuid":' not in one[0]}
    lost = doubled = disordered = 0
    seen: list[str] = []
    for number, writer in enumerate(bout.writers):
        for count in range(writer.lines):
            times = counts.pop((number, count), 0)
            if times != 1:
                seen.append(f"w{number}.{count}{' (no uuid)' if (number, count) in bare else ''} stands {times} times")
            lost += times == 0
            doubled += max(0, times - 1)
        of_this = [count for who, count in order if who == number]
        for before, after in pairwise(of_this):
            if after < before:
                disordered += 1
                seen.append(f"w{number}.{after} stands behind w{number}.{before}")
    odd = len(lines) - 2 - len(order)  # the root's line, and what is behind the last newline
    if odd or counts:
        seen.append(f"{odd} lines that nobody wrote")
    return lost + max(0, odd), doubled, disordered, tuple(seen[:12])
