"""A watch as tests use it: its hints gathered, its clock moved by hand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from keeper.agent.watch import Hint, Watch
from tests.lab.waiting import eventually


class Heard:
    """Gathers the hints of a watch over these profiles."""

    def __init__(self, *profiles: Path, silent: Callable[[str], str | None] = lambda folder: None) -> None:
        self.hints: list[Hint] = []
        self.now = 1000.0
        self.refuses: type[Exception] | None = None
        self.watch = Watch(profiles, self._put, lambda: self.now, silent)
        self._profile = profiles[0]
        self._tries = 0

    def _put(self, hint: Hint) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.hints.append(hint)

    def told(self, session: str | None, *kinds: str) -> bool:
        """Whether a hint of one of these kinds about that session came."""
        return any(hint.session == session and hint.kind in kinds for hint in list(self.hints))

    def wait_for(self, session: str | None, *kinds: str) -> Hint:
        eventually(f"a hint {kinds} for {session}", lambda: self.told(session, *kinds))
        return next(hint for hint in self.hints if hint.session == session and hint.kind in kinds)

    def tick(self, after_s: float = 1.0) -> None:
        self.now += after_s
        self.watch.tick()

    def settle(self) -> None:
        """All that happened so far has been heard: a folder made now, and told, came behind it in every root (a file's
        name is told sooner than a folder's)."""
        self._tries += 1
        for top in ("projects/-settle", "tasks", "file-history", "todos"):
            number = f"{self._tries:012d}"
            mark = f"00000000-0000-4000-8000-{number}"
            folder = self._profile / top
            if folder.is_dir() or top == "projects/-settle":
                folder.mkdir(exist_ok=True)
                before = len(self.hints)
                (folder / mark).mkdir()
                eventually(
                    f"the mark in {top}",
                    lambda before=before, mark=mark: any(hint.session == mark for hint in self.hints[before:]),
                )
                (folder / mark).rmdir()
        eventually("the marks to be gone", lambda: self.told(mark, "gone"))
        self.hints = [
            hint
            for hint in self.hints
            if not (hint.session or "").startswith("00000000-0000-4000-8000") and not hint.path.endswith("/-settle")
        ]

    def lasting(self) -> dict[str, str]:
        """The troubles that last, by what they are."""
        return {trouble.what: trouble.why for trouble in self.watch.troubles() if trouble.until is None}

    def cured(self) -> set[str]:
        return {trouble.what for trouble in self.watch.troubles() if trouble.until is not None}


@contextmanager
def watching(*profiles: Path, silent: Callable[[str], str | None] = lambda folder: None) -> Iterator[Heard]:
    """A started watch, stopped at the end."""
    heard = Heard(*profiles, silent=silent)
    heard.watch.start()
    try:
        yield heard
    finally:
        heard.watch.stop()


def threads_but(before: set[threading.Thread]) -> list[str]:
    """The threads that were not there before."""
    return [thread.name for thread in threading.enumerate() if thread not in before]
