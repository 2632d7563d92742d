"""Titles: what transcripts are called, for whoever must know it at every keep.

It promises that one process reads a transcript through once, and then only what was added to it, whichever of its
threads asks. It refuses to store a title anywhere but in the process's memory: a keep without an agent, which is a
process of its own, reads the whole.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from keeper import files
from keeper.errors import KeeperError
from keeper.transcripts.describe import text_of
from keeper.transcripts.records import is_prompt, read

KEYS = {"custom-title": "customTitle", "ai-title": "aiTitle", "summary": "summary"}
END = 256
"""So many bytes before the known end are compared before a tail alone is read: an inode's number may be another's."""
_MARK = re.compile(rb'"type":"(?:custom-title|ai-title|summary)"')


@dataclass(slots=True)
class _Read:
    """What of a file was read, and what it said: the newest title of each kind, the first prompt."""

    inode: int
    size: int = 0
    titles: dict[str, str] = field(default_factory=dict)
    prompt: str = ""
    end: bytes = b""

    def goes_on_in(self, fd: int, seen: os.stat_result) -> bool:
        """Whether the file has all that was read, and perhaps more."""
        return self.inode == seen.st_ino and os.pread(fd, len(self.end), self.size - len(self.end)) == self.end


class Titles:
    """The titles of the files that were asked for; of all threads."""

    def __init__(self) -> None:
        self._read: dict[str, _Read] = {}

    def of(self, paths: Iterable[str]) -> frozenset[str]:
        """What one conversation is called whose files these are, the oldest first: the newest title that Claude gave,
        that a person or host gave, the newest summary; where there is none the first prompt."""
        found = [known for path in paths if (known := self._of(path)) is not None]
        titles = {kind: title for known in found for kind, title in known.titles.items()}
        prompt = next((known.prompt for known in found if known.prompt), "")
        return frozenset(titles.values()) or frozenset(filter(None, [prompt]))

    def _of(self, path: str) -> _Read | None:
        """What that file says; None where there is no regular one."""
        try:
            fd = files.open_read(path)
        except (OSError, KeeperError):
            return None  # the keep meets it too, and tells of it
        try:
            seen = os.fstat(fd)
            known = self._read.get(path)
            if known is None or not known.goes_on_in(fd, seen):
                known = _Read(seen.st_ino)
            if known.size < seen.st_size:
                known = replace(known, titles=dict(known.titles))  # another thread may be at the same
                _more(known, files.read_at(fd, known.size, path))
                self._read[path] = known
        finally:
            os.close(fd)
        return known


def _more(known: _Read, data: bytes) -> None:
    whole = data.rfind(b"\n") + 1
    for mark in _MARK.finditer(data, 0, whole):
        line = data[data.rfind(b"\n", 0, mark.start()) + 1 : data.find(b"\n", mark.end())]
        record = read(line)
        value = record.fields.get(KEYS.get(record.type or "", "")) if record else None
        if record is not None and isinstance(value, str) and value.strip():
            known.titles[record.type or ""] = " ".join(value.split())
    at = 0
    while not known.prompt and at < whole:
        end = data.find(b"\n", at)
        record = read(data[at:end]) if b'"user"' in data[at:end] else None
        if record is not None and is_prompt(record):
            known.prompt = " ".join(text_of(record).split())
        at = end + 1
    known.size += whole
    known.end = data[max(0, whole - END) : whole] or known.end


SHARED = Titles()
"""This process's: the agent's doors open the vault anew for each answer, and its threads have one each."""
