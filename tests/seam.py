"""The seam of `keeper.disk`, as tests use it: what a run changes, and a run that is failed, disturbed or killed at one
of its changes. Every run happens in a world of its own: a profile, a vault, one session."""

from __future__ import annotations

import os
import signal
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from keeper import disk
from keeper.settings import Settings
from keeper.transcripts.keep import Keeper, Options, keep_session
from keeper.transcripts.ledger import Kept
from keeper.transcripts.restore import Restored, Restorer, Want
from keeper.transcripts.vault import Vault
from tests.build import CWD, live_path, session_id

Call = tuple[str, tuple[str, ...]]
Hook = Callable[[str, tuple[str, ...]], None]
Deed = Callable[[], object]


@dataclass(frozen=True, slots=True)
class World:
    """A profile, a vault that knows it, and the session that a test is about."""

    settings: Settings
    session: str = session_id(1)
    cwd: str = CWD

    @property
    def profile(self) -> Path:
        return self.settings.profiles[0]

    @property
    def root(self) -> Path:
        return self.settings.vault

    @property
    def live(self) -> Path:
        return live_path(self.profile, self.session, self.cwd)

    @property
    def companion(self) -> Path:
        return self.live.with_suffix("")

    @property
    def chat(self) -> Path:
        return self.root / "chats" / self.session

    @property
    def kept(self) -> Path:
        return self.chat / f"{self.session}.jsonl"

    @property
    def kept_companion(self) -> Path:
        return self.chat / self.session

    def about(self, session: str, cwd: str = CWD) -> World:
        """The same world, with another session in view."""
        return replace(self, session=session, cwd=cwd)

    def vault(self) -> Vault:
        return Vault.open(self.settings)

    def keep(self, options: Options | None = None) -> Kept:
        """Keep the session, as `keeper keep SESSION` does. Raises what that raises."""
        vault = self.vault()
        try:
            (answer,) = keep_session(vault, self.session, time.time(), options, self.profile)
            return answer
        finally:
            vault.index.close()

    def keep_all(self) -> dict[str, Kept]:
        """Keep the whole profile, as `keeper keep` does; answers by session."""
        vault = self.vault()
        try:
            keeper = Keeper(vault, time.time())
            answers = keeper.profile(self.profile)
            keeper.finish()
            keeper.seal()
            return {answer.session: answer for answer in answers}
        finally:
            vault.index.close()

    def restore(self, full: bool = False) -> Restored:
        vault = self.vault()
        try:
            return Restorer(vault, time.time_ns(), Want(full=full)).session(self.session)
        finally:
            vault.index.close()


def world(profile: Path, root: Path, state_home: Path, lock_wait_s: float = 30.0) -> World:
    """A world on these places."""
    return World(Settings(root, state_home, state_home / "keeper.toml", (profile,), profile, lock_wait_s=lock_wait_s))


@contextmanager
def hooked(hook: Hook) -> Iterator[None]:
    """`hook` sees every change of keeper's before it is made."""

    def seen(call: str, paths: tuple[str | Path, ...]) -> None:
        hook(call, tuple(map(str, paths)))

    disk.hook = seen
    try:
        yield
    finally:
        disk.hook = None


def calls_of(run: Deed, hook: Hook | None = None) -> list[Call]:
    """The changes that a run asks for, in order (of a run that raises nothing)."""
    found: list[Call] = []

    def note(call: str, paths: tuple[str, ...]) -> None:
        found.append((call, paths))  # also what the hook refuses: it was asked for
        if hook is not None:
            hook(call, paths)

    with hooked(note):
        run()
    return found


def changes_of(run: Deed) -> list[Call]:
    """The changes of a run but its syncs, which write nothing that was not written before."""
    return [call for call in calls_of(run) if call[0] != "sync"]


def at_call(number: int, deed: Deed, hook: Hook | None = None) -> Hook:
    """A hook that does `deed` once, before the change of that number (from 0)."""
    count = 0

    def step(call: str, paths: tuple[str, ...]) -> None:
        nonlocal count
        if count == number:
            count += 1
            deed()
        else:
            count += 1
        if hook is not None:
            hook(call, paths)

    return step


def before(name: str, deed: Deed, where: str = "") -> Hook:
    """A hook that does `deed` once, before the first change of that name (about a path that has `where` in it)."""
    done = False

    def step(call: str, paths: tuple[str, ...]) -> None:
        nonlocal done
        if not done and call == name and any(where in path for path in paths):
            done = True
            deed()

    return step


def failing(number: int, code: int, hook: Hook | None = None, forever: bool = False) -> Hook:
    """A hook that fails the change of that number, or it and all that follow, with this errno."""
    count = 0

    def step(call: str, paths: tuple[str, ...]) -> None:
        nonlocal count
        count += 1
        if count - 1 == number or (forever and count - 1 > number):
            raise OSError(code, os.strerror(code))
        if hook is not None:
            hook(call, paths)

    return step


def refusing(name: str, code: int) -> Hook:
    """A hook that makes a volume which never grants this change."""

    def step(call: str, paths: tuple[str, ...]) -> None:
        if call == name:
            raise OSError(code, os.strerror(code))

    return step


def killed_at(number: int, run: Deed, hook: Hook | None = None) -> bool:
    """Run in a process of its own that is killed before the change of that number; whether it came to that."""

    def kill() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def child() -> None:
        with hooked(at_call(number, kill, hook)):
            run()

    return in_child(child) == -signal.SIGKILL


def in_child(run: Deed) -> int:
    """Run in a forked process; its exit code, 0 where it raised nothing, or less the signal that ended it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork beside pytest's own threads: the child uses none
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            run()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def lines_of(path: Path) -> list[bytes]:
    """The whole lines of a file, each without its newline."""
    return path.read_bytes().split(b"\n")[:-1]


def twice_or_missing(path: Path, wanted: list[bytes]) -> dict[bytes, int]:
    """Those of the wanted lines that do not stand in the file exactly once, with how often they do."""
    counts = Counter(lines_of(path))
    return {line: counts[line] for line in wanted if counts[line] != 1}


def names_of_ours(*folders: Path) -> list[str]:
    """Names that a finished run leaves nowhere: temporary files, pins, notes."""
    found = []
    for folder in folders:
        for path in folder.rglob("*"):
            inside = path.parent.name == "swap" and path.parent.parent.parent.name == "chats"
            if inside or path.name.startswith(".keeper-") or path.name.endswith(".tmp"):
                found.append(str(path.relative_to(folder)))
    return sorted(found)


def state_of(*paths: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """Inode, mode, time and bytes of every file at and below the paths."""
    found = {}
    for top in paths:
        for path in [top, *top.rglob("*")] if top.is_dir() else [top]:
            if path.is_file() and not path.is_symlink():
                seen = path.stat()
                found[str(path)] = (seen.st_ino, seen.st_mode, seen.st_mtime_ns, path.read_bytes())
    return found
