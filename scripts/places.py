"""Places: new folders on two volumes, and processes, for a script that proves something; gone when it ends."""

import ctypes
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from keeper.settings import Settings
from tests.seam import World

SECOND = Path("/dev/shm")
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Places:
    """`disk` and `second` are new folders of two volumes: no hard link leads from one to the other."""

    disk: Path
    second: Path

    def world(self, name: str, copy: bool) -> World:
        """A profile on the disk, and a vault beside it, or on the second volume where `copy`. Nothing is made yet."""
        here = self.disk / name
        vault = (self.second if copy else self.disk) / name / "vault"
        profile = here / "home" / ".claude"
        state = here / "home" / ".local" / "state" / "keeper"
        return World(Settings(vault, state, here / "keeper.toml", (profile,), profile, profile))

    def apart(self, name: str) -> "Places":
        """Folders of their own, for one of several processes."""
        found = Places(self.disk / name, self.second / name)
        for path in (found.disk, found.second):
            path.mkdir()
        return found

    def named(self, name: str) -> tuple[Path, Path]:
        """All that a world of that name may have left."""
        return self.disk / name, self.second / name


@contextmanager
def places(where: Path | None, second: Path) -> Iterator[Places]:
    """Two volumes' folders; SIGTERM and SIGHUP end the script by the way that leaves nothing behind."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    with (
        tempfile.TemporaryDirectory(prefix="keeper-", dir=where) as disk,
        tempfile.TemporaryDirectory(prefix="keeper-", dir=second) as other,
    ):
        if os.stat(disk).st_dev == os.stat(other).st_dev:
            raise SystemExit(f"{second} is on the same volume as {disk}: name another with --second")
        yield Places(Path(disk).resolve(), Path(other).resolve())


@contextmanager
def children() -> Iterator[Callable[[Callable[[], object]], int]]:
    """Starts functions in processes of their own; what still runs at the end is killed, also when this one is."""
    running: list[int] = []

    def start(work: Callable[[], object]) -> int:
        sys.stdout.flush()
        parent = os.getpid()
        pid = os.fork()
        if pid:
            running.append(pid)
            return pid
        code = 1
        try:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() == parent:
                work()
                code = 0
        finally:
            if code:
                traceback.print_exc()
            os._exit(code)

    try:
        yield start
    finally:
        for pid in running:
            try:
                if os.waitpid(pid, os.WNOHANG) == (0, 0):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
            except ChildProcessError:
                continue


def ended(pid: int) -> int | None:
    """The exit code, less the signal that ended it; None while it runs."""
    done, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if done else None


def closing(name: str, counts: dict[str, int]) -> str:
    """The one line of figures that a script ends with."""
    return f"{name}: " + ", ".join(f"{count:,} {what}" for what, count in counts.items())


def _leave(number: int, _: object) -> None:
    raise SystemExit(128 + number)
