"""Lines: what no other file of the vault can tell again, a JSON object a line: appended, synced, read when it changed.

It promises that a line which was acknowledged survives a power cut, that two who append at once lose neither, and that
a torn line costs no other. It refuses to rewrite a file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import orjson

from keeper import disk, files


class Lines:
    """One such file, there or not."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._seen: tuple[int, int, int] | None = None
        self._entries: list[dict[str, Any]] = []

    def read(self) -> list[dict[str, Any]]:
        """Every entry, the oldest first, as the file says at this moment; the same list where it did not change."""
        mark = mark_of(self.path)
        if mark != self._seen:
            self._entries = [] if mark is None else _entries(files.read(self.path))
            self._seen = mark
        return self._entries

    def append(self, *entries: Mapping[str, object]) -> None:
        """One more entry or several, durable when this returns."""
        data = b"".join(orjson.dumps(entry) + b"\n" for entry in entries)
        if _is_torn(self.path):
            data = b"\n" + data
        disk.append(self.path, data, make=True)
        disk.sync_dir(os.path.dirname(self.path))


class Deeds(Lines):
    """A log of deeds: each is noted before it is done, and taken back where it could not be done."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._noted: object = None
        self._done: list[dict[str, Any]] = []
        self._last: dict[str, float] = {}

    def read(self) -> list[dict[str, Any]]:
        """Those that were done, or may have been by a run that was killed."""
        noted = super().read()
        if noted is not self._noted:
            undone = {(one.get("chat"), one["undone"]) for one in noted if "undone" in one}
            self._done = [
                one for one in noted if "undone" not in one and (one.get("chat"), one.get("at")) not in undone
            ]
            self._last = {str(one.get("chat")): float(one.get("at") or 0.0) for one in self._done}
            self._noted = noted
        return self._done

    def last_of(self, chat: str) -> float:
        """When it was last done to a chat, in unix seconds; -1 for never."""
        self.read()
        return self._last.get(chat, -1.0)

    def take_back(self, entry: Mapping[str, object]) -> None:
        """What this entry tells was not done."""
        self.append({"chat": entry["chat"], "undone": entry["at"]})


def mark_of(path: str) -> tuple[int, int, int] | None:
    """What tells a file's content from another one; None where it is not there."""
    try:
        seen = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return seen.st_ino, seen.st_size, seen.st_mtime_ns


def _is_torn(path: str) -> bool:
    try:
        fd = files.open_read(path)
    except FileNotFoundError:
        return False
    try:
        size = os.fstat(fd).st_size
        return bool(size) and os.pread(fd, 1, size - 1) != b"\n"
    finally:
        os.close(fd)


def _entries(data: bytes) -> list[dict[str, Any]]:
    found = []
    for line in data.split(b"\n"):
        try:
            entry = orjson.loads(line)
        except ValueError:
            continue  # an empty or torn line tells nothing
        if isinstance(entry, dict):
            found.append(entry)
    return found
