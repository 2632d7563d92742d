"""Growth: finds what has grown by a stat of the chats that live, since an append costs nobody an event.

It promises that a transcript or a subagent's that grew is told within one look, that what has been quiet for an hour
costs nothing until the next pass, and that of what is not kept a first new line is told within a minute, however long
it was quiet. It refuses to read.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import suppress

QUIET_S = 3600.0
"""A chat that nobody wrote to for so long is left to the hints and to the reconcile."""
SELDOM, SELDOM_S = 0.2, 60.0
"""One that has been quiet for a while is looked at again after this part of that time, and every minute."""

Seen = tuple[int, int]
UNKNOWN = (-1, 0)


class Growth:
    """The chats that live: path of the transcript by (profile, session), and what was last seen of its size."""

    def __init__(self) -> None:
        self._chats: dict[tuple[str, str], tuple[str, Seen]] = {}
        self._due: dict[tuple[str, str], float] = {}
        self._left_out: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def look(self, profile: str, session: str) -> Seen:
        """How a chat stands before it is kept; UNKNOWN where it was never noted, or is gone."""
        with self._lock:
            path, _ = self._chats.get((profile, session), ("", UNKNOWN))
        try:
            return self._seen(path) if path else UNKNOWN
        except OSError:
            return UNKNOWN

    def note(self, profile: str, session: str, path: str, seen: Seen) -> None:
        """This chat was kept as it was seen before that; of an UNKNOWN one the next look says that it has grown."""
        with self._lock:
            self._chats[(profile, session)] = path, seen
            self._due.pop((profile, session), None)
            self._left_out.discard((profile, session))

    def leave_out(self, profile: str, session: str, path: str, seen: Seen) -> None:
        """This chat was not kept, as it was seen before that: nothing of it is in the vault until it is told again."""
        self.note(profile, session, path, seen)
        with self._lock:
            self._left_out.add((profile, session))

    def wait(self, profile: str, session: str, path: str) -> None:
        """The same of one that a look found not to be kept, as it is now; nothing where that is known."""
        with self._lock:
            known = (profile, session) in self._left_out
        with suppress(OSError):
            if not known:
                self.leave_out(profile, session, path, self._seen(path))

    def meet(self, profile: str, session: str, path: str, mtime_s: float, now: float) -> None:
        """This chat stands there; whether it lives its time tells."""
        if now - mtime_s < QUIET_S:
            with self._lock:
                known = (profile, session) in self._chats
            with suppress(OSError):  # gone again, or not to be looked at
                if not known:
                    self.note(profile, session, path, self._seen(path))

    def grown(self, now: float) -> list[tuple[str, str]]:
        """The chats that are not as they were; those that are quiet or gone are no longer looked at."""
        found = []
        with self._lock:
            chats = [(key, chat) for key, chat in self._chats.items() if now >= self._due.get(key, 0.0)]
        for key, (path, seen) in chats:
            try:
                current = self._seen(path)
                quiet_s = now - current[1] / 1e9
                quiet = quiet_s > QUIET_S and key not in self._left_out
                pause_s = min(quiet_s * SELDOM, SELDOM_S)
                self._due[key] = 0.0 if quiet or pause_s < 1 else now + pause_s
            except OSError:
                current, quiet = seen, True  # the keep tells of it, or the reconcile
            if current != seen:
                found.append(key)
            with self._lock:
                if quiet and current == seen:
                    self._chats.pop(key, None)
                    self._due.pop(key, None)
                    self._left_out.discard(key)
                elif self._chats.get(key) == (path, seen):
                    self._chats[key] = path, current
        return found

    def __len__(self) -> int:
        with self._lock:
            return len(self._chats)

    def _seen(self, path: str) -> Seen:
        """Bytes of the transcript and of its subagents', and the newest time of any."""
        seen = os.stat(path)
        size, newest = seen.st_size, seen.st_mtime_ns
        for one in _subagents(path.removesuffix(".jsonl") + "/subagents"):
            size, newest = size + one.st_size, max(newest, one.st_mtime_ns)
        return size, newest


def _subagents(folder: str) -> Iterator[os.stat_result]:
    if os.path.islink(folder):
        return
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                yield entry.stat(follow_symlinks=False)
    except OSError:
        return  # none, or none that can be looked at: a keep tells why
