"""Frame: the bytes of one splice in a seal: a header, the packed bytes, the marks, a trailer.

It promises that a flipped bit anywhere in a frame is told: the header and the raw bytes are digested (`own`), each
digest is chained to the one before (`chain`), and the trailer repeats the length, so that the last frame is found
from the file's end. It refuses nothing: what it cannot read it calls `Bad`, with its place.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from blake3 import blake3

from keeper import files

PREFIX = 128 << 10
"""A frame is packed with so many bytes before it as its prefix, so that a turn of 8 kB packs like a part of a file."""
RESTART = 1 << 20
"""After so many bytes a frame stands for itself again: one bad frame costs no more."""
PACKED_BYTES = 4 << 20
"""So large are the frames of a repacked seal."""
LEVEL, REPACK_LEVEL = 6, 12
SPLICE_NS = 1_000_000
"""A splice that takes something away is at least so much later than what was before it: that has a time of its own."""

_MAGIC, _TAIL = b"KSL1", b"1LSK"
_HEADER = struct.Struct("<4sIIIIIIQQQQQQQ16s16s8s32s32s")
_TRAILER = struct.Struct("<Q4s")
_MARK = struct.Struct("<QQ")
_NONE = bytes(32)
_STORED = 1


class SealBroken(Exception):
    """A seal's end does not read as a frame: its path. The reader of the whole seal says why."""


@dataclass(frozen=True, slots=True)
class Bad:
    """A place in a seal that does not prove out: the offset in the file, and what is wrong ("torn": a frame that was
    begun and never finished, at the file's end)."""

    at: int
    kind: str


@dataclass(frozen=True, slots=True)
class Frame:
    """One splice. Lengths in bytes, `time_ns` since the epoch, `number` from 0.

    `about`: whose bytes they are, where a seal holds more than one file's. `since` counts the content bytes since the
    last frame that stands for itself, `loose` the frames since the last repack; `marks` are (time, content's end) of
    the frames that a repack joined; `window` is the digest of what the next one may be packed with.
    """

    flags: int
    told: int
    prefix: int
    since: int
    marked: int
    loose: int
    number: int
    offset: int
    removed: int
    inserted: int
    end: int
    time_ns: int
    packed: int
    end_digest: bytes
    window: bytes
    head: bytes = bytes(8)
    own: bytes = _NONE
    chain: bytes = _NONE
    marks: tuple[tuple[int, int], ...] = ()
    about: bytes = b""

    @property
    def size(self) -> int:
        """The frame's length in the file."""
        return _HEADER.size + self.told + self.packed + self.marked * _MARK.size + _TRAILER.size

    def header(self, head: bytes | None = None) -> bytes:
        """The header's bytes; with another `head` than its own."""
        return _HEADER.pack(
            _MAGIC, self.flags, self.told, self.prefix, self.since, self.marked, self.loose, self.number, self.offset,
            self.removed, self.inserted, self.end, self.time_ns, self.packed, self.end_digest, self.window,
            self.head if head is None else head, self.own, self.chain,
        )  # fmt: skip

    def head_digest(self) -> bytes:
        """The digest over the header, the digests in it too: lengths are believed only where it fits."""
        return blake3(self.header(bytes(8))).digest(8)

    def digest(self, raw: bytes, payload: bytes) -> bytes:
        """The digest over the header, what it is about, the marks, the raw bytes and the packed ones (in which some
        bits say nothing, and are proven all the same)."""
        bare = replace(self, head=bytes(8), own=_NONE, chain=_NONE)
        return (
            blake3(bare.header()).update(self.about).update(_marks(self.marks)).update(raw).update(payload).digest(32)
        )

    def time_of_first(self) -> int:
        """When the first of its bytes were sealed."""
        return self.marks[0][0] if self.marks else self.time_ns

    def end_at(self, time_ns: int) -> int | None:
        """Where the content ended at that time, if that is within this frame."""
        if time_ns >= self.time_ns:
            return None
        return max((end for when, end in self.marks if when <= time_ns), default=self.offset)


def _marks(marks: Sequence[tuple[int, int]]) -> bytes:
    return b"".join(_MARK.pack(*mark) for mark in marks)


def digest_of_end(data: bytes) -> bytes:
    """The digest that tells the last 4 KiB of a content."""
    return blake3(data).digest(16)


class Writer:
    """Frames to be appended to a seal, each chained to the one before."""

    def __init__(self, last: Frame | None) -> None:
        self.last = last
        self.out = bytearray()

    @property
    def end(self) -> int:
        """Where the sealed content ends."""
        return self.last.end if self.last else 0

    def prefix(self) -> int:
        """How many bytes before the content's end the next append may be packed with."""
        if self.last is None or self.last.since >= RESTART:
            return 0
        return min(PREFIX, self.last.since)

    def add(
        self, offset: int, removed: int, raw: bytes, before: bytes, end_bytes: bytes, time_ns: int,
        repacked: bool = False, marks: Sequence[tuple[int, int]] = (), about: bytes = b"",
    ) -> None:  # fmt: skip
        """One splice. `before` is the prefix that it is packed with: without one it stands for itself. `end_bytes`
        are the last 4 KiB of the content after it; `repacked`: it joins frames that were there before."""
        last = self.last
        # Behind a splice in the middle the bytes before the end are no longer those of the frames before it.
        appended = not removed and offset == self.end
        if last is not None:  # a clock may step back: times in a seal do not
            time_ns = max(time_ns, last.time_ns + (0 if appended else SPLICE_NS))
        packed = _pack(raw, before, REPACK_LEVEL if repacked else LEVEL)
        stored = len(packed) >= len(raw)
        frame = Frame(
            flags=_STORED if stored else 0,
            told=len(about),
            prefix=len(before),
            since=min(RESTART, (last.since if before and last else 0) + len(raw)) if appended else RESTART,
            marked=len(marks),
            loose=0 if repacked else (last.loose if last else 0) + 1,
            number=last.number + 1 if last else 0,
            offset=offset,
            removed=removed,
            inserted=len(raw),
            end=(last.end if last else 0) - removed + len(raw),
            time_ns=time_ns,
            packed=len(raw) if stored else len(packed),
            end_digest=digest_of_end(end_bytes),
            window=digest_of_end((before + raw)[-PREFIX:]),
            marks=tuple(marks),
            about=about,
        )
        payload = raw if stored else packed
        own = frame.digest(raw, payload)
        chain = blake3(last.chain if last else _NONE).update(own).digest(32)
        frame = replace(frame, own=own, chain=chain)
        frame = replace(frame, head=frame.head_digest())
        self.out += frame.header() + about + payload + _marks(marks) + _TRAILER.pack(frame.size, _TAIL)
        self.last = frame


def _pack(raw: bytes, before: bytes, level: int) -> bytes:
    import zstandard

    if not before:
        return zstandard.ZstdCompressor(level=level).compress(raw)
    prefix = zstandard.ZstdCompressionDict(before, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    return zstandard.ZstdCompressor(level=level, dict_data=prefix).compress(raw)


def _unpack(payload: bytes, before: bytes, length: int) -> bytes:
    import zstandard

    if zstandard.frame_content_size(payload) != length:
        raise zstandard.ZstdError("another length")  # else a damaged one is believed, and allocated
    if not before:
        return zstandard.ZstdDecompressor().decompress(payload, max_output_size=length)
    prefix = zstandard.ZstdCompressionDict(before, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    return zstandard.ZstdDecompressor(dict_data=prefix).decompress(payload, max_output_size=length)


def raw_of(frame: Frame, data: bytes, at: int, before: bytes, last: Frame | None) -> bytes | Bad:
    """The raw bytes of the frame at `at`, proven; `before` is its prefix, `last` the frame before it."""
    start = at + _HEADER.size + frame.told
    payload = data[start : start + frame.packed]
    if frame.flags & _STORED:
        raw = payload
    else:
        import zstandard

        try:
            raw = _unpack(payload, before, frame.inserted)
        except (zstandard.ZstdError, MemoryError):
            return Bad(at, "its bytes do not unpack")
    if len(raw) != frame.inserted or frame.digest(raw, payload) != frame.own:
        return Bad(at, "its digest does not fit")
    chain = last.chain if last is not None else _NONE
    follows = frame.number == (last.number + 1 if last is not None else 0)
    # Behind frames that are lost the chain cannot be proven; the frame's own digest still is.
    if follows and blake3(chain).update(frame.own).digest(32) != frame.chain:
        return Bad(at, "its chain does not fit")
    return raw


def frames_of(data: bytes) -> Iterator[tuple[int, Frame | Bad]]:
    """The frames of a seal's bytes in order, each with its place; where one cannot be read, the next that can."""
    at = 0
    while at < len(data):
        frame = _frame_at(data, at)
        if frame is not None:
            yield at, frame
            at += frame.size
            continue
        following = _next(data, at + 1)
        if following is None:
            yield at, Bad(at, "torn" if _torn(data, at) else "no frame stands here")
            return
        yield at, Bad(at, "no frame stands here")
        at = following


def _torn(data: bytes, at: int) -> bool:
    """Whether a frame was begun here and never finished: what stands there is too short for it."""
    if not data.startswith(_MAGIC[: len(data) - at], at):
        return False
    if at + _HEADER.size > len(data):
        return True
    frame = Frame(*_HEADER.unpack_from(data, at)[1:])
    return frame.head == frame.head_digest() and at + frame.size > len(data)


def walk(path: str) -> Iterator[tuple[int, Frame | Bad]]:
    """The frames of a seal by their headers alone, each with its place, up to the first that cannot be read; their
    payloads are not read. None where there is no seal."""
    try:
        fd = files.open_read(path)
    except FileNotFoundError:
        return
    try:
        size, at = os.fstat(fd).st_size, 0
        while at < size:
            frame = _header_at(fd, at, size)
            if frame is None:
                break
            yield at, frame
            at += frame.size
        if at < size:
            _, found = next(frames_of(os.pread(fd, size - at, at)))
            yield at, replace(found, at=at) if isinstance(found, Bad) else found
    finally:
        os.close(fd)


def _header_at(fd: int, at: int, size: int) -> Frame | None:
    head = os.pread(fd, _HEADER.size + 256, at)
    if len(head) < _HEADER.size or head[:4] != _MAGIC:
        return None
    frame = Frame(*_HEADER.unpack_from(head)[1:])
    end = at + frame.size
    if (
        frame.head != frame.head_digest()
        or end > size
        or _TRAILER.unpack(os.pread(fd, _TRAILER.size, end - _TRAILER.size)) != (frame.size, _TAIL)
    ):
        return None
    about = head[_HEADER.size : _HEADER.size + frame.told]
    if len(about) < frame.told:
        about = os.pread(fd, frame.told, at + _HEADER.size)
    marks = os.pread(fd, frame.marked * _MARK.size, at + _HEADER.size + frame.told + frame.packed)
    found = tuple(_MARK.iter_unpack(marks)) if frame.marked else ()
    return replace(frame, about=about, marks=found)


def raw_at(path: str, at: int) -> bytes | Bad:
    """The raw bytes of the frame at that place, which stands for itself; its own digest is proven, not its chain."""
    with os.fdopen(files.open_read(path), "rb") as stream:
        stream.seek(at)
        head = stream.read(_HEADER.size)
        if len(head) < _HEADER.size or head[:4] != _MAGIC:
            return Bad(at, "no frame stands here")
        data = head + stream.read(Frame(*_HEADER.unpack(head)[1:]).size - len(head))
    frame = _frame_at(data, 0)
    if frame is None:
        return Bad(at, "no frame stands here")
    raw = raw_of(frame, data, 0, b"", replace(frame, number=frame.number + 1))
    return replace(raw, at=at) if isinstance(raw, Bad) else raw


def _next(data: bytes, at: int) -> int | None:
    while (at := data.find(_MAGIC, at)) >= 0:
        if _frame_at(data, at) is not None:
            return at
        at += 1
    return None


def _frame_at(data: bytes, at: int) -> Frame | None:
    if at + _HEADER.size > len(data):
        return None
    magic, *fields = _HEADER.unpack_from(data, at)
    if magic != _MAGIC:
        return None
    frame = Frame(*fields)
    end = at + frame.size
    if (
        frame.head != frame.head_digest()
        or end > len(data)
        or _TRAILER.unpack_from(data, end - _TRAILER.size) != (frame.size, _TAIL)
    ):
        return None
    about = at + _HEADER.size
    marks = about + frame.told + frame.packed
    found = tuple(_MARK.unpack_from(data, marks + number * _MARK.size) for number in range(frame.marked))
    return replace(frame, marks=found, about=data[about : about + frame.told])


def last_frame(path: str) -> Frame | None:
    """The last frame, read from the file's end, its digests not yet proven. None where there is no seal.

    Raises SealBroken where the end is no frame's: torn by a kill or a power cut, or damaged.
    """
    try:
        fd = files.open_read(path)
    except FileNotFoundError:
        return None
    try:
        size = os.fstat(fd).st_size
        if not size:
            return None
        start = size - _TRAILER.size
        if start >= _HEADER.size:
            length, tail = _TRAILER.unpack(os.pread(fd, _TRAILER.size, start))
            if tail == _TAIL and _HEADER.size + _TRAILER.size <= length <= size:
                magic, *fields = _HEADER.unpack(os.pread(fd, _HEADER.size, size - length))
                frame = Frame(*fields)
                if magic == _MAGIC and frame.size == length and frame.head == frame.head_digest():
                    return frame
    finally:
        os.close(fd)
    raise SealBroken(path)
