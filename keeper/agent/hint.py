"""Hint: what an event in a profile says of where to look.

It promises that every name of a session's footprint that comes, goes or moves is a hint for that session, that what
cannot be told from a name is a hint for the whole profile, and that nothing which a handler raises reaches watchdog's
thread. The names that keeper itself uses beside live files (`.keeper-…`) are no news: its exchange arrives as two
moves, and its swaps must not be read as a chat that went somewhere else.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from watchdog.events import FileSystemEvent, FileSystemEventHandler

from keeper import claude

OURS = "/.keeper-"
MASS = 100
"""So many names gone between two ticks are one event with a number, not as many (AGENT-4)."""
_WHOLE = ""
_KINDS = {"created": "made", "deleted": "gone", "moved": "moved"}


@dataclass(frozen=True, slots=True)
class Hint:
    """Where to look. `session` None: at the whole profile, and a tick of the watch is due: its roots may have changed.

    `kind` is made, gone, moved, all (whatever happened, nobody saw it) or mass (`count` names went at about one time:
    told once, when it is over, beside the single hints).
    """

    profile: Path
    session: str | None
    kind: str
    path: str
    count: int = 1


def subject(parts: Sequence[str]) -> str | None:
    """Which session a path below the profile, cut into its parts, is about: "" for all of them, None for none."""
    top, *rest = parts
    if top == "projects":
        if len(rest) < 2:
            return _WHOLE
        if claude.is_session(rest[1][:36]):
            return rest[1][:36]
        # Whose an agent's transcript of the older kind is, stands in its records.
        return _WHOLE if rest[1].startswith("agent-") else None
    if top in ("file-history", "tasks", "todos"):
        return _WHOLE if not rest else rest[0][:36] if claude.is_session(rest[0][:36]) else None
    return None


@dataclass(slots=True)
class Storm:
    """Names of one profile that went at about one time: counted where the hints pass, summed up at the ticks."""

    passed: int = 0
    seen: int = 0
    before: int = 0
    size: int = 0

    def sum_up(self) -> int:
        """How many went in the storm that ended with this tick, 0 where none did."""
        new, self.seen = self.passed - self.seen, self.passed
        if not self.size and self.before + new < MASS:
            self.before = new
            return 0
        if new:
            self.size = (self.size or self.before) + new
            return 0
        ended, self.size, self.before = self.size, 0, 0
        return ended


class Listener(FileSystemEventHandler):
    """Makes hints of one root's events and hands them on.

    `real` is the folder as the kernel hears it, `path` its name in the profile; `put` takes a hint, `lost` the
    profile and the name of what `put` raised.
    """

    def __init__(
        self, profile: Path, real: str, path: str, put: Callable[[Hint], None], lost: Callable[[Path, str], None]
    ) -> None:
        self._profile, self._real, self._path = profile, real, path
        self._put, self._lost = put, lost

    def dispatch(self, event: FileSystemEvent) -> None:
        try:
            for hint in self._hints(event):
                self._put(hint)
        except Exception as error:  # noqa: BLE001  it would end the thread that dispatches, and with it every event
            self._lost(self._profile, type(error).__name__)

    def _hints(self, event: FileSystemEvent) -> Iterator[Hint]:
        kind = _KINDS.get(event.event_type)
        old, new = self._named(event.src_path), self._named(event.dest_path)
        if kind is None or OURS in old[len(self._path) :] or OURS in new[len(self._path) :]:
            return
        if not new:
            yield from self._about(old, kind, event.is_directory)
        elif self._subject(old) == self._subject(new):
            yield from self._about(new, kind, event.is_directory)
        else:
            yield from self._about(old, "gone", event.is_directory)
            yield from self._about(new, "made", event.is_directory)

    def _about(self, path: str, kind: str, is_folder: bool) -> Iterator[Hint]:
        session = self._subject(path)
        if session is None:
            return
        below = path[len(str(self._profile)) + 1 :].split("/")
        if len(below) == 2 and below[0] == "projects" and not is_folder and not self._may_link(path):
            return  # a file beside the project folders is nobody's
        yield Hint(self._profile, session or None, kind, path)

    def _may_link(self, path: str) -> bool:
        """A link to a folder is told like a file; of one that is gone nothing tells what it was. One look: it may be
        made anew between two."""
        try:
            return stat.S_ISLNK(os.lstat(path).st_mode)
        except OSError:
            return True

    def _subject(self, path: str) -> str | None:
        return subject(path[len(str(self._profile)) + 1 :].split("/"))

    def _named(self, path: bytes | str) -> str:
        text = os.fsdecode(path)
        return self._path + text[len(self._real) :] if text else ""
