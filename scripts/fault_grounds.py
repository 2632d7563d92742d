"""Grounds: the places where the fault scripts play, a kill in the process, and a state that is put back in place.

It promises that a killed run changes nothing more from its kill on and holds no descriptor, as if the process had
ended; that a state which is put back has the very inodes it had, so that what the index says of them holds; and that
nothing of it is left when it ends. It refuses real syncs: a kill loses nothing that the kernel has, so they would only
cost time here. A power cut is another script's.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from keeper import disk, files
from keeper.transcripts import swap

Hook = Callable[[str, tuple[str, ...]], None]
Deed = Callable[[], object]
Call = tuple[str, tuple[str, ...]]

IN_MEMORY = "/dev/shm"
REFUSALS = {"no links": ("link", errno.EPERM), "no exchange": ("exchange", errno.EINVAL)}
"""Modes that are a volume's refusal of one call, played at the seam."""


class Killed(BaseException):
    """The process ends here: no `except` of keeper's may see it."""


@dataclass(frozen=True, slots=True)
class Volumes:
    """Two folders on two volumes; `two` is None where the machine shows this user one alone."""

    one: Path
    two: Path | None

    @property
    def pools(self) -> dict[int, Path]:
        """A folder for names of ours on each volume, by its device."""
        places = [place / "pool" for place in (self.one, self.two) if place is not None]
        for place in places:
            place.mkdir(exist_ok=True)
        return {place.stat().st_dev: place for place in places}


@contextmanager
def volumes(inside: Volumes | None = None) -> Iterator[Volumes]:
    """Two new folders, one of them in memory where that can be; both are gone at the end. `inside` others: of a process
    that may be ended by another, which sees to these."""
    memory = str(inside.one) if inside else IN_MEMORY if os.path.isdir(IN_MEMORY) else None
    one = Path(tempfile.mkdtemp(prefix="keeper-faults-", dir=memory))
    two = Path(tempfile.mkdtemp(prefix="keeper-faults-", dir=inside.two if inside else None))
    try:
        yield Volumes(one, two if one.stat().st_dev != two.stat().st_dev else None)
    finally:
        shutil.rmtree(one, ignore_errors=True)
        shutil.rmtree(two, ignore_errors=True)


chance = random.Random(0)
"""Where keeper's random names come from here: seeded before each run, so that a fault comes again."""


@contextmanager
def played() -> Iterator[None]:
    """No sync reaches a disk (each passes the seam all the same, and can be failed there), chance is `chance`, and no
    writer is waited for: one that holds a file open here does not write while a run goes on."""
    fsync, sync_volume, urandom, wait_s = os.fsync, disk.sync_volume, os.urandom, swap.LEASE_WAIT_S
    swap.LEASE_WAIT_S = 0.0
    os.fsync = lambda fd: None
    os.urandom = chance.randbytes
    disk.sync_volume = _sync_volume
    try:
        yield
    finally:
        os.fsync, disk.sync_volume, os.urandom, swap.LEASE_WAIT_S = fsync, sync_volume, urandom, wait_s


def _sync_volume(name: str | Path) -> None:
    try:
        disk.step("sync", name)
    except OSError as error:
        files.raise_failure(error, name, "sync")


# ------------------------------------------------------------------ the seam


class Seam:
    """A hook that counts the changes of one run, and may kill it before one of them, or fail one or all from it on.

    `calls` are all that were asked for; `changes` those that were made, less the syncs, which write nothing new.
    """

    def __init__(self, refuses: Hook | None = None, kill_at: int = -1, fail_at: int = -1, code: int = 0) -> None:
        self.refuses = refuses
        self.kill_at = kill_at
        self.fail_at = fail_at
        self.code = code
        self.forever = False
        self.dead = False
        self.calls: list[Call] = []
        self.changes: list[Call] = []

    def __call__(self, call: str, paths: tuple[str | Path, ...]) -> None:
        number = len(self.calls)
        if self.dead or number == self.kill_at:
            self.dead = True
            raise Killed(call)
        asked = (call, tuple(map(str, paths)))
        self.calls.append(asked)
        fails = number == self.fail_at or (self.forever and number > self.fail_at >= 0)
        if fails and (call not in ("link", "exchange") or looked_up(*asked)):
            raise OSError(self.code, os.strerror(self.code))
        if self.refuses is not None:
            self.refuses(*asked)
        if call != "sync" and not (call == "link" and _apart(*asked[1])):
            self.changes.append(asked)


def written_by(run: Deed, refuses: Hook | None) -> list[str]:
    """What a run changes, as words. A name of ours for what is looked at, which is gone again, changes nothing."""
    seam = Seam(refuses)
    play(run, seam)
    looked = {paths[1] for call, paths in seam.changes if call == "link" and not os.path.lexists(paths[1])}
    return [f"{call} {os.path.basename(paths[-1])}" for call, paths in seam.changes if paths[-1] not in looked]


def refusal(mode: str) -> Hook | None:
    """The hook of a volume that refuses what this mode says; None for a volume that refuses nothing."""
    if mode not in REFUSALS:
        return None
    name, code = REFUSALS[mode]

    def step(call: str, paths: tuple[str, ...]) -> None:
        if call == name and looked_up(call, paths):
            raise OSError(code, os.strerror(code))

    return step


def looked_up(call: str, paths: tuple[str, ...]) -> bool:
    """Whether the kernel finds the names, which it looks up before it asks the volume."""
    if call == "link":
        return os.path.isdir(os.path.dirname(paths[1])) and not os.path.lexists(paths[1]) and os.path.lexists(paths[0])
    return all(os.path.lexists(path) for path in paths)


def _apart(source: str, name: str) -> bool:
    """Whether the two are on two volumes, so that the kernel refuses a link."""
    try:
        return os.lstat(source).st_dev != os.lstat(os.path.dirname(name)).st_dev
    except FileNotFoundError:
        return False


def play(run: Deed, seam: Seam) -> bool:
    """Run with that seam; False where it was killed. What is dead removes nothing more and holds nothing open."""
    drop = disk.drop
    before = _descriptors()

    def dropped(name: str | Path) -> None:
        if not seam.dead:
            drop(name)

    disk.hook, disk.drop = seam, dropped
    try:
        run()
        return True
    except Killed:
        return False
    finally:
        disk.hook, disk.drop = None, drop
        if seam.dead:
            for fd in _descriptors() - before:
                os.close(fd)


def _descriptors() -> set[int]:
    """What this process holds open, but for the listing itself."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            os.fstat(int(name))
            found.add(int(name))
    return found


# ------------------------------------------------------------------ a state, put back in place


@dataclass(slots=True)
class _Inode:
    """A file of the state: a name of ours that holds its inode, and what it was."""

    pool: str
    data: bytes
    mode: int
    times: tuple[int, int]
    names: list[str]

    def mend(self) -> None:
        seen = os.stat(self.pool)
        with open(self.pool, "r+b", buffering=0) as stream:
            changed = stream.read() != self.data
            if changed:
                stream.seek(0)
                stream.truncate()
                stream.write(self.data)
        if changed or seen.st_mtime_ns != self.times[1]:
            os.utime(self.pool, ns=self.times)
        if stat.S_IMODE(seen.st_mode) != self.mode:
            os.chmod(self.pool, self.mode)


class Snapshot:
    """All files and folders below `roots` as they are now. `pools` has, by device, a folder on its volume."""

    def __init__(self, roots: list[Path], pools: dict[int, Path]) -> None:
        self.roots = [str(root) for root in roots]
        self.folders: list[tuple[str, int]] = []
        self.inodes: list[_Inode] = []
        self.names: dict[str, tuple[int, int]] = {}
        found: dict[tuple[int, int], _Inode] = {}
        for root in roots:
            for path, seen in _below(str(root)):
                if stat.S_ISDIR(seen.st_mode):
                    self.folders.append((path, stat.S_IMODE(seen.st_mode)))
                    continue
                place = (seen.st_dev, seen.st_ino)
                self.names[path] = place
                if place not in found:
                    name = f"{pools[seen.st_dev]}/{seen.st_ino}"
                    os.link(path, name)
                    data = Path(path).read_bytes()
                    times = (seen.st_atime_ns, seen.st_mtime_ns)
                    found[place] = _Inode(name, data, stat.S_IMODE(seen.st_mode), times, [])
                    self.inodes.append(found[place])
                found[place].names.append(path)

    def rewind(self) -> None:
        """All of it is as it was, on the inodes that it was on; what came since is gone."""
        there: set[str] = set()
        folders = dict(self.folders)
        stale: list[str] = []
        for root in self.roots:
            for path, seen in _below(root):
                if stat.S_ISDIR(seen.st_mode):
                    there.add(path)
                    if path not in folders:
                        stale.append(path)
                elif self.names.get(path) == (seen.st_dev, seen.st_ino):
                    there.add(path)
                else:
                    os.unlink(path)
        for path in reversed(stale):
            os.rmdir(path)
        for path, mode in self.folders:
            if path not in there:
                os.mkdir(path)
                os.chmod(path, mode)
        for inode in self.inodes:
            for name in inode.names:
                if name not in there:
                    os.link(inode.pool, name)
            inode.mend()

    def forget(self) -> None:
        """Let go of the inodes."""
        for inode in self.inodes:
            os.unlink(inode.pool)


def _below(top: str) -> Iterator[tuple[str, os.stat_result]]:
    """Every name below `top`, a folder before what it holds."""
    todo = [top]
    while todo:
        with os.scandir(todo.pop()) as entries:
            for entry in list(entries):
                seen = entry.stat(follow_symlinks=False)
                yield entry.path, seen
                if stat.S_ISDIR(seen.st_mode):
                    todo.append(entry.path)
