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
