"""Cuts the power under keeper, on real ext4 and real xfs, and looks whether what it acknowledged is there.

    .venv/bin/python scripts/powercut.py                        500 cuts on each file system; some minutes
    .venv/bin/python scripts/powercut.py --cuts 40 --seed 7     a sample
    .venv/bin/python scripts/powercut.py --fs xfs               one of the two
    .venv/bin/python scripts/powercut.py --control              without keeper's syncs: must find losses, so exits 1

A run is recorded below the file system: each write and each flush that reaches the disk, in order (`powercut_disk`).
A cut leaves all that was flushed before it and any part of what was not, one write torn; the file system replays its
journal, and keeper is asked for everything that it had answered for (`powercut_chats`, `powercut_scenes`,
`powercut_check`). Half of the cuts come right behind an answer, the others anywhere; every other run begins on what a
cut left. Needs root, mkfs, /dev/fuse and loop devices (exits 77 where one lacks), and leaves nothing on the machine,
however it ends. The log hangs on what the kernel wrote when, so a seed repeats the run and the choice, not the very
log: `--save FOLDER` keeps the image of each cut that fails, as the power left it.

Prints one line on stdout; exits 1 where anything was lost, doubled, out of order or left behind.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from powercut_chats import Acknowledged, Demand, Story, settings
from powercut_check import Found, check
from powercut_disk import (
    FLUSH,
    MNT_DETACH,
    MS_BIND,
    WRITE,
    Cutter,
    Log,
    called,
    copy_sparse,
    make_volume,
    mount,
    mounted,
    own_mounts,
    recording,
    unmounted_after,
)
from powercut_scenes import first_chapter, second_chapter

from keeper import claude, disk
from tests.seam import World

CUTS_A_RUN = 100
LACKS = 77
SCRATCH = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class Ask:
    """What was asked for on the command line."""

    kinds: tuple[str, ...]
    cuts: int
    seed: int
    control: bool
    save: Path | None


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--fs", choices=("ext4", "xfs"), action="append", help="only this file system")
    parser.add_argument("--cuts", type=int, default=500, help="cuts on each file system (default: 500)")
    parser.add_argument("--seed", type=int, default=1, help="of the run and of the choice of cuts (default: 1)")
    parser.add_argument("--control", action="store_true", help="without keeper's syncs")
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="keep the image of each cut that fails there")
    given = parser.parse_args()
    ask = Ask(tuple(given.fs or ("ext4", "xfs")), given.cuts, given.seed, given.control, given.save)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    claude.running_profiles = lambda *_: []  # the Claude of whoever runs this is none of it
    total, parts, begun = Found(), [], time.monotonic()
    try:
        with scratch() as (place, outside):
            for kind in ask.kinds:
                probe(kind, place, outside)
                found, tried = Volume(kind, place, outside, ask).run()
                total.add(found)
                parts.append(f"{tried} on {kind}")
    except Lacks as lacks:
        say(f"this machine lacks {lacks}")
        return LACKS
    except Acknowledged as error:
        say(f"keeper answered for what it has not, with the power on (seed {ask.seed}): {error}")
        return 1
    for note, count in (+total.notes).items():
        say(f"{count} times: {note}")
    print(
        f"power cuts{' without syncs' if ask.control else ''}: {' + '.join(parts)}, lost {total.lost}, "
        f"doubled {total.doubled}, out of order {total.disordered}, left behind {total.left} "
        f"(seed {ask.seed}, {time.monotonic() - begun:.0f} s)"
    )
    return 0 if total.clean else 1


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


class Lacks(Exception):
    """What this machine has not, and why it is said so."""


@contextmanager
def scratch() -> Iterator[tuple[Path, int]]:
    """A tmpfs in mounts of this process's own, and a descriptor of the mounts before. It stands over /dev/shm, so that
    no folder has to be made for it that a kill would leave behind."""
    if os.geteuid() != 0:
        raise Lacks("root")
    try:
        outside = own_mounts()
        mount("keeper-powercut", SCRATCH, "tmpfs", "size=4g,mode=0700")
    except OSError as error:
        raise Lacks(f"mounts: {error}") from error
    try:
        place = SCRATCH / str(os.getpid())  # so that a loop device tells whose it is
        place.mkdir()
        yield place, outside
    finally:
        called("umount2", os.fsencode(SCRATCH), MNT_DETACH)


def probe(kind: str, place: Path, outside: int) -> None:
    """Record one synced file on such a volume. Raises Lacks where the machine does not do it."""
    image, log, volume = place / "probe", place / "probe-log", place / "probe-volume"
    try:
        make_volume(kind, image)
        volume.mkdir()
        with recording(place / "fuse", image, log, outside) as recorder, mounted(recorder.disk, volume, kind):
            recorder.mark(0)
            (volume / "file").write_bytes(b"synced")
            disk.sync_file(volume / "file")
            recorder.mark(1)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Lacks(f"{kind} on a loop device over FUSE: {error}") from error
    seen = Log(log)
    between = seen.entries[seen.marks()[0] : seen.marks()[1]]
    seen.close()
    if not {WRITE, FLUSH} <= {entry.kind for entry in between}:
        raise Lacks(f"{kind} on a loop device that passes flushes on")
    for path in (image, log):
        path.unlink()
    volume.rmdir()


@dataclass(frozen=True, slots=True)
class Carried:
    """What a cut left, for a run that begins there."""

    image: Path
    demand: Demand
    apart: bool


class Volume:
    """The runs and cuts on one file system."""

    def __init__(self, kind: str, place: Path, outside: int, ask: Ask) -> None:
        self.kind = kind
        self.place = place
        self.outside = outside
        self.ask = ask
        self.rng = random.Random(f"{ask.seed} {kind}")
        self.found = Found()
        self.tried = 0
        self.share = max(1, min(CUTS_A_RUN, ask.cuts // 4))
        self.volume = place / "volume"
        self.fresh = place / f"{kind}.fresh"
        make_volume(kind, self.fresh)

    def run(self) -> tuple[Found, int]:
        """Runs until there were enough cuts; what was found, and how many cuts there were."""
        carried: Carried | None = None
        number = 0
        while self.tried < self.ask.cuts:
            apart = carried.apart if carried else number % 4 == 2
            carried = self.one(number, carried, apart)
            number += 1
        self.fresh.unlink()
        return self.found, self.tried

    def one(self, number: int, carried: Carried | None, apart: bool) -> Carried | None:
        """One recorded run with its cuts. Every other run hands on what one of its cuts left."""
        base, log_path = self.place / "base", self.place / "log"
        copy_sparse(carried.image if carried else self.fresh, base)
        demands = self.record(base, log_path, number, carried, apart)
        log = Log(log_path)
        kind = f"{'copy' if apart else 'link'}{', after a cut' if carried else ''}"
        told = f"{log.count(WRITE)} writes, {log.count(FLUSH)} flushes, {len(demands)} demands"
        say(f"{self.kind}, run {number} ({kind}): {told}")
        hand_on = carried is None and not self.ask.control  # a control's cuts leave no ground for a run
        try:
            return self.cuts(number, log, base, demands, apart, hand_on)
        finally:
            log.close()
            for path in (base, log_path):
                path.unlink()
            if carried:
                carried.image.unlink()

    def record(self, base: Path, log: Path, number: int, carried: Carried | None, apart: bool) -> list[Demand]:
        """Have the story happen on a volume whose writes are noted; what was demanded at each mark."""
        disk_file = self.place / "disk"
        copy_sparse(base, disk_file)
        with (
            recording(self.place / "fuse", disk_file, log, self.outside) as recorder,
            self.world(recorder.disk, apart) as world,
            syncs_taken_out() if self.ask.control else nullcontext(),
        ):
            demand = carried.demand if carried else Demand()
            rng = random.Random(self.rng.random())
            story = Story(world, rng, recorder.mark, demand, number * 100, not self.ask.control)
            (second_chapter if carried else first_chapter)(story)
        disk_file.unlink()
        return story.demands

    @contextmanager
    def world(self, image: Path | int, apart: bool) -> Iterator[World]:
        """The volume mounted, with keeper's places on it. `apart`: the profile lies under a mount of its own, so that
        no link leads from it to the vault (mode copy)."""
        self.volume.mkdir(exist_ok=True)
        profile = self.place / "profile" if apart else self.volume / "profile"
        with mounted(image, self.volume, self.kind):
            (self.volume / "profile" / "projects").mkdir(parents=True, exist_ok=True)
            disk.sync_volume(self.volume)
            if not apart:
                yield World(settings(profile, self.volume))
                return
            profile.mkdir(exist_ok=True)
            mount(str(self.volume / "profile"), profile, "", flags=MS_BIND)
            with unmounted_after(profile):
                yield World(settings(profile, self.volume))

    def cuts(
        self, number: int, log: Log, base: Path, demands: list[Demand], apart: bool, hand_on: bool
    ) -> Carried | None:  # fmt: skip
        """Cut at places that rise, and look at each."""
        marks = sorted((place, mark) for mark, place in log.marks().items())
        places = self.places(log, [place for place, _ in marks], min(self.share, self.ask.cuts - self.tried))
        chosen = self.rng.choice(places) if hand_on else -1
        handed: Carried | None = None
        cutter = Cutter(log, base, self.place)
        for place in places:
            seed = self.rng.random()
            demand = demands[max(mark for at, mark in marks if at < place)]
            image = cutter.cut(place, random.Random(seed))
            if place == chosen and handed is None:
                handed = Carried(self.place / f"handed-{number}", demand, apart)
                copy_sparse(image, handed.image)
            if self.ask.save:
                copy_sparse(image, self.place / "as-cut")
            with self.world(image, apart) as world:
                found = check(world, demand, random.Random(seed))
            self.tried += 1
            self.found.add(found)
            if not found.clean:
                self.tell(f"{self.kind}, run {number}, cut at {place}, seed {self.ask.seed}", found)
                if self.ask.save:
                    self.ask.save.mkdir(parents=True, exist_ok=True)
                    kept = self.ask.save / f"{self.kind}-{number}-{place}.img"
                    copy_sparse(self.place / "as-cut", kept)
        cutter.close()
        (self.place / "as-cut").unlink(missing_ok=True)
        return handed

    def places(self, log: Log, marks: list[int], count: int) -> list[int]:
        """Where to cut: half right behind an answer, half anywhere between two flushes, no two between the same two
        before all had their turn."""
        end = marks[-1] + 1
        flushes = [p for p, entry in enumerate(log.entries[:end]) if entry.kind == FLUSH and p > marks[0]]
        found: list[int] = []
        while len(found) < count:
            between = list(zip(flushes, [*flushes[1:], end], strict=True))
            self.rng.shuffle(between)
            answers = self.rng.sample(marks, len(marks))
            for place, (first, last) in zip(answers * (len(between) // len(answers) + 1), between, strict=False):
                found += [min(place + 1 + self.rng.randrange(3), end), self.rng.randint(first + 1, last)]
        return sorted(found[:count])

    def tell(self, where: str, found: Found) -> None:
        """Say what was found; a control finds much, and says little of it."""
        words = found.words[: 1 if self.ask.control else 4]
        for word in words:
            say(f"{where}: {word.strip().splitlines()[-1] if self.ask.control else word}")


@contextmanager
def syncs_taken_out() -> Iterator[None]:
    """keeper asks for its syncs and none is made (SQLite's own remain)."""
    fsync, volume = os.fsync, disk.sync_volume
    os.fsync = lambda fd: None
    disk.sync_volume = lambda name: None
    try:
        yield
    finally:
        os.fsync, disk.sync_volume = fsync, volume


if __name__ == "__main__":
    sys.exit(main())
