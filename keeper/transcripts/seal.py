"""Seal: a compressed, digested second copy of what was acknowledged, and the history behind it.

A hard link protects against unlinking, not against truncation in place: the seal does. It promises that a turn costs
the turn's bytes, not the file's (SEAL-3), that every sealed byte is covered by a chained blake3 digest (SEAL-4), and
that one bad frame costs no more than the frames up to the next one that stands for itself. It refuses to guess: what
does not prove out is told, frame by frame, and is never taken for content.

A seal is a file of frames (`frame.py`), each a splice: at `offset` of the content `removed` bytes go and `inserted`
come. An append removes nothing at the content's end; a fold, a tombstone and `accept` are the other splices.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from keeper import disk, files
from keeper.transcripts.frame import (
    PACKED_BYTES,
    RESTART,
    Bad,
    Frame,
    Writer,
    digest_of_end,
    frames_of,
    raw_of,
    walk,
)

END = 4096
"""So many bytes before the sealed end tell whether a file is still the one that was sealed."""


@dataclass(slots=True)
class Sealed:
    """A seal, read through: the content, what of it is not known (`holes`: a byte each, 1 where it is not), and what
    does not prove out. `good` is where its last readable frame ends in the file."""

    content: bytearray = field(default_factory=bytearray)
    last: Frame | None = None
    bad: list[Bad] = field(default_factory=list)
    holes: bytearray | None = None
    good: int = 0

    @property
    def torn(self) -> bool:
        """Whether all that is wrong with it is a frame that was begun and never finished."""
        return bool(self.bad) and all(bad.kind == "torn" for bad in self.bad)

    def whole_lines(self) -> bytes:
        """The content's lines that are known to the last byte."""
        if self.holes is None:
            return bytes(self.content)
        lines, at = [], 0
        for line in bytes(self.content).split(b"\n")[:-1]:
            end = at + len(line) + 1
            if not any(self.holes[at:end]):
                lines.append(line + b"\n")
            at = end
        return b"".join(lines)


def holds(frame: Frame, fd: int) -> bool:
    """Whether the file behind `fd` still has, before the sealed end, what was sealed there (4 KiB of it)."""
    return os.fstat(fd).st_size >= frame.end and digest_of_end(_before(fd, frame.end)) == frame.end_digest


def _before(fd: int, end: int, length: int = END) -> bytes:
    start = max(0, end - length)
    return os.pread(fd, end - start, start)


def end_of_lines(fd: int, start: int) -> int:
    """Where the last whole line of the file behind `fd` ends; `start` where none ends behind it."""
    end = os.fstat(fd).st_size
    while end > start:
        begin = max(start, end - RESTART)
        found = os.pread(fd, end - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return start


def grow(
    path: str, last: Frame | None, fd: int, now_ns: int, sync: bool = True, label: str = ""
) -> Frame | None:  # fmt: skip
    """Seal the whole lines that the file behind `fd` has beyond the seal, whose last frame is `last` and `holds`.

    Returns the last frame now; a first one tells `label`. Durable when this returns, if `sync`.
    """
    writer = Writer(last)
    start = writer.end
    end = end_of_lines(fd, start)
    while start < end:
        raw = _lines(os.pread(fd, min(RESTART, end - start), start))
        if not raw:
            return last  # shorter than a moment ago: the next look finds out why
        before = _before(fd, start, writer.prefix())
        if before and writer.last is not None and digest_of_end(before) != writer.last.window:
            before = b""  # damaged before its last 4 KiB: what is sealed now must not hang on it
        start += len(raw)
        about = b"" if writer.last else os.fsencode(label)
        writer.add(start - len(raw), 0, raw, before, _before(fd, start), now_ns, about=about)
    if not writer.out or os.fstat(fd).st_size < end:
        return last
    disk.append(path, bytes(writer.out), make=True, sync=sync)
    return writer.last


def splice(path: str, sealed: Sealed, content: bytes, now_ns: int, sync: bool = True) -> Frame | None:
    """Seal that the content is another one now; what goes stays in the seal's history. `sealed` is what it was.

    Returns the last frame now. Durable when this returns, if `sync`.
    """
    old = bytes(sealed.content)
    writer = Writer(sealed.last)
    offset, back = common(old, content)
    if sealed.holes is not None:
        # A hole's bytes are nobody's: all from the first one on is sealed anew.
        offset, back = min(offset, sealed.holes.index(1)), 0
    # Frames hold whole lines, so that what is left of a damaged seal is whole lines too.
    offset = old.rfind(b"\n", 0, offset) + 1
    back = back and len(old) - (old.find(b"\n", len(old) - back) + 1)
    removed = len(old) - offset - back
    raw = content[offset : len(content) - back]
    if not removed and not raw:
        return sealed.last
    rest = old[len(old) - back :][-END:] if back else b""
    at = 0
    while not at or at < len(raw):
        part = _lines(raw[at : at + RESTART])
        end_bytes = (content[max(0, offset + at + len(part) - END) : offset + at + len(part)] + rest)[-END:]
        writer.add(offset + at, removed if at == 0 else 0, part, b"", end_bytes, now_ns)
        at += len(part)
        if not part:
            break
    disk.append(path, bytes(writer.out), make=True, sync=sync)
    return writer.last


def _lines(part: bytes) -> bytes:
    """The part up to its last line's end; all of it where one line is longer."""
    return part[: part.rfind(b"\n") + 1] or part


def common(old: bytes, new: bytes) -> tuple[int, int]:
    """How many bytes two contents begin and, behind that, end alike with."""
    shorter = min(len(old), len(new))
    front = _alike(shorter, lambda low, high: old[low:high] == new[low:high])
    back = _alike(
        shorter - front,
        lambda low, high: old[len(old) - high : len(old) - low] == new[len(new) - high : len(new) - low],
    )
    return front, back


def _alike(limit: int, same: Callable[[int, int], bool]) -> int:
    """By halves: each step compares at the speed of memory."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if same(low, middle):
            low = middle
        else:
            high = middle - 1
    return low


def read(path: str, until_ns: int | None = None) -> Sealed:
    """Read a seal through (up to what was sealed at `until_ns`). An empty one where there is none."""
    try:
        data = files.read(path)
    except FileNotFoundError:
        return Sealed()
    sealed = Sealed()
    for at, found in frames_of(data):
        if isinstance(found, Bad):
            sealed.bad.append(found)
            continue
        if until_ns is not None and found.time_of_first() > until_ns:
            break
        _apply(sealed, found, data, at)
        sealed.good = at + found.size
        if until_ns is not None and (end := found.end_at(until_ns)) is not None:
            del sealed.content[end:]
            if sealed.holes is not None:
                del sealed.holes[end:]
            break
    if sealed.holes is not None and 1 not in sealed.holes:
        sealed.holes = None  # what was not known is gone, or sealed anew
    return sealed


def label_of(path: str) -> str:
    """Whose seal it is, as its first frame tells; "" where it does not."""
    for _, found in walk(path):
        return "" if isinstance(found, Bad) else os.fsdecode(found.about)
    return ""


def first_time(path: str) -> int:
    """When the first bytes were sealed, in ns since the epoch; 0 where nothing was."""
    for _, found in walk(path):
        if not isinstance(found, Bad):
            return found.time_of_first()
    return 0


def _apply(sealed: Sealed, frame: Frame, data: bytes, at: int) -> None:
    if (sealed.last is not None and frame.number != sealed.last.number + 1) or (sealed.last is None and frame.number):
        _lost(sealed, frame.end - frame.inserted + frame.removed)
    start = frame.offset - frame.prefix
    raw: bytes | Bad = Bad(at, "hangs on a frame that does not prove out")
    if start >= 0 and (sealed.holes is None or not any(sealed.holes[start : frame.offset])):
        raw = raw_of(frame, data, at, bytes(sealed.content[start : frame.offset]), sealed.last)
    end = frame.offset + frame.removed
    if isinstance(raw, Bad):
        sealed.bad.append(raw)
        del sealed.content[frame.offset : end]
        if sealed.holes is not None:
            del sealed.holes[frame.offset : end]
        _hole(sealed, frame.offset, frame.inserted)
    else:
        sealed.content[frame.offset : end] = raw
        if sealed.holes is not None:
            sealed.holes[frame.offset : end] = bytes(len(raw))
    sealed.last = frame


def _lost(sealed: Sealed, length: int) -> None:
    """Frames before this one are not to be read: what they appended is a hole; if they took away, all is one."""
    more = length - len(sealed.content)
    if more > 0:
        _hole(sealed, len(sealed.content), more)
    else:
        sealed.content[:] = b""
        _hole(sealed, 0, length)


def _hole(sealed: Sealed, at: int, length: int) -> None:
    if sealed.holes is None:
        sealed.holes = bytearray(len(sealed.content))
    sealed.content[at:at] = bytes(length)
    sealed.holes[at:at] = b"\x01" * length


def repack(path: str, beside: str) -> bool:
    """Make large frames of the many that turns made; times and splices stay. False where the seal does not prove out.

    `beside` is a free name on the same volume; the new file takes the old one's place whole.
    """
    data = files.read(path)
    packer = _Packer()
    last: Frame | None = None
    for at, frame in frames_of(data):
        if isinstance(frame, Bad):
            return False
        before = bytes(packer.content[frame.offset - frame.prefix : frame.offset])
        raw = raw_of(frame, data, at, before, last)
        if isinstance(raw, Bad):
            return False
        last = frame
        packer.take(frame, raw)
    packer.close()
    disk.write_new(beside, [bytes(packer.writer.out)])
    disk.replace(beside, path)
    disk.sync_dir(os.path.dirname(path))
    return True


class _Packer:
    """Joins the frames of appends to large ones; a splice stays a frame of its own."""

    def __init__(self) -> None:
        self.writer = Writer(None)
        self.content = bytearray()
        self.run = 0
        self.marks: list[tuple[int, int]] = []
        self.about = b""

    def take(self, frame: Frame, raw: bytes) -> None:
        self.about = self.about or frame.about
        if frame.removed or frame.offset != len(self.content):
            self.close()
            self.content[frame.offset : frame.offset + frame.removed] = raw
            end_bytes = bytes(self.content[-END:])
            self.writer.add(frame.offset, frame.removed, raw, b"", end_bytes, frame.time_ns, repacked=True)
            return
        self.content += raw
        self.run += len(raw)
        self.marks += [*frame.marks, (frame.time_ns, frame.end)]

    def close(self) -> None:
        """Write what was joined."""
        start = len(self.content) - self.run
        while self.run:
            end = start + min(PACKED_BYTES, self.run)
            own = [mark for mark in self.marks if start < mark[1] <= end]
            whole = bool(own) and own[-1][1] == end
            time_ns = own[-1][0] if whole else next(when for when, to in self.marks if to > end)
            about = b"" if self.writer.last else self.about
            self.writer.add(
                start, 0, bytes(self.content[start:end]), b"", bytes(self.content[max(0, end - END) : end]), time_ns,
                repacked=True, marks=own[:-1] if whole else own, about=about,
            )  # fmt: skip
            self.run -= end - start
            start = end
        self.marks.clear()
