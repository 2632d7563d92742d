"""Versions: the seal of a chat's other files: each version of each that was acknowledged, by its label.

One seal a chat, whose every frame stands for itself and is one version of one file, or, of a large one, a part of it:
the last part tells of the version, and without it there is none. It promises that a file which was cut short in place
is found again, that what did not change is neither read nor written again, and that no more than a few parts of a file
are in memory while it is sealed. It refuses to judge: which version is the truth, the mirror knows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from urllib.parse import quote, unquote_to_bytes

import orjson
from blake3 import blake3

from keeper import disk, files
from keeper.transcripts.frame import Bad, Frame, Writer, frames_of, raw_at, raw_of, walk

PART = 8 << 20
"""A frame has no more bytes of a file than this."""


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a file: where the frames of its parts stand, its size in bytes, its times, its digest."""

    parts: tuple[int, ...]
    size: int
    mtime_ns: int
    sealed_ns: int
    digest: str


@dataclass(frozen=True, slots=True)
class Told:
    """What a frame is about: the file of that label, of which it is a part (`part`, from 0; `version` in the last, with
    where that stands alone), or a time (`stamp`) that what is sealed was given since."""

    label: str = ""
    part: int = 0
    version: Version | None = None
    stamp: int = 0


def digest_of(fd: int, path: str) -> tuple[str, int]:
    """The digest that tells a version, of the file behind `fd`, and its size."""
    digest, size = blake3(), 0
    for piece in files.pieces(fd, path, PART):
        digest.update(piece)
        size += len(piece)
    return digest.hexdigest(16), size


class Versions:
    """The versions in one seal. `bad` is where it ceases to read; `good` where its last whole version ends."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.latest: dict[str, Version] = {}
        self.stamps: set[int] = set()
        self.bad: Bad | None = None
        self.good = 0
        self.last: Frame | None = None
        begun = _Begun()
        for at, frame in walk(path):
            if isinstance(frame, Bad):
                self.bad = frame
                break
            told = told_by(at, frame)
            version = begun.add(told, at)
            if begun.parts:
                continue  # until its last part stands there it is no version
            self.good, self.last = at + frame.size, frame
            if version is not None:
                self.latest[told.label] = version
            elif told.stamp:
                self.stamps.add(told.stamp)
        if begun.parts and self.bad is None:
            self.bad = Bad(self.good, "torn")
        self.writer = Writer(self.last)

    def knows(self, label: str, size: int, mtime_ns: int) -> bool:
        """Whether a file of that size and time is the version that was sealed last."""
        version = self.latest.get(label)
        return version is not None and version.size == size and mtime_ns in (version.mtime_ns, *self.stamps)

    def content(self, label: str) -> bytes | Bad | None:
        """The bytes that were sealed last, proven; None where none were."""
        version = self.latest.get(label)
        if version is None:
            return None
        found = []
        for at in version.parts:
            raw = raw_at(self.path, at)
            if isinstance(raw, Bad):
                return raw
            found.append(raw)
        return b"".join(found)

    def begins(self, label: str, fd: int) -> bool | None:
        """Whether the file behind `fd` begins with what was sealed last; None where that does not prove out."""
        offset = 0
        for at in self.latest[label].parts:
            raw = raw_at(self.path, at)
            if isinstance(raw, Bad):
                return None
            if os.pread(fd, len(raw), offset) != raw:
                return False
            offset += len(raw)
        return True

    def add(self, label: str, path: str, fd: int, digest: str, mtime_ns: int, now_ns: int) -> None:
        """The file behind `fd` as a version to be sealed at `flush`, all but the end of a large one written already;
        one that is sealed already, as its digest tells, is told by its new time alone."""
        version = self.latest.get(label)
        if version is not None and version.digest == digest:
            if mtime_ns not in self.stamps:
                self.stamps.add(mtime_ns)
                self._write({"stamp": mtime_ns}, b"", now_ns)
            return
        about: dict[str, object] = {"label": quote(os.fsencode(label))}
        parts: list[int] = []
        hashed, size = blake3(), 0
        following = files.pieces(fd, path, PART)
        piece = next(following, b"")
        while True:
            hashed.update(piece)
            size += len(piece)
            parts.append(self.good + len(self.writer.out))
            more = next(following, b"")
            if not more:
                break
            self._write({**about, "part": len(parts) - 1}, piece, now_ns)
            if len(self.writer.out) >= PART:
                self.flush(sync=False)
            piece = more
        about |= {"mtime": mtime_ns, "digest": hashed.hexdigest(16)}
        if len(parts) > 1:
            about |= {"parts": len(parts), "size": size}
        self._write(about, piece, now_ns)
        self.latest[label] = Version(tuple(parts), size, mtime_ns, now_ns, hashed.hexdigest(16))

    def _write(self, about: dict[str, object], raw: bytes, now_ns: int) -> None:
        self.writer.add(self.writer.end, 0, raw, b"", raw[-4096:], now_ns, about=orjson.dumps(about))

    def flush(self, sync: bool = True) -> bool:
        """Write what was added; durable when this returns, if `sync`. Whether anything was."""
        if not self.writer.out:
            return False
        disk.append(self.path, bytes(self.writer.out), make=True, sync=sync)
        self.good += len(self.writer.out)
        self.last = self.writer.last
        self.writer = Writer(self.last)
        return True


class _Begun:
    """The parts met so far of a version whose last part was not met yet."""

    def __init__(self) -> None:
        self.label = ""
        self.parts: list[int] = []

    def add(self, told: Told, at: int) -> Version | None:
        """The next frame; the whole version where it is its last part."""
        if told.label != self.label or told.part != len(self.parts):
            self.parts = []  # a part before it is lost: there is no such version
        whole = bool(told.label) and told.part == len(self.parts)
        self.label = told.label
        parts, self.parts = [*self.parts, at], []
        if whole and told.version is None:
            self.parts = parts
        return replace(told.version, parts=tuple(parts)) if whole and told.version is not None else None


def proven(path: str) -> Iterator[tuple[int, Frame | Bad, bytes, str]]:
    """Every frame of the seal with its place, its bytes and its label; what does not prove out in its stead, with the
    label where its header tells it."""
    try:
        data = files.read(path)
    except FileNotFoundError:
        return
    last: Frame | None = None
    for number, (at, frame) in enumerate(frames_of(data), 1):
        if isinstance(frame, Bad):
            yield at, frame, b"", f"version {number}"
            continue
        raw = raw_of(frame, data, at, b"", last)
        last = frame
        label = told_by(at, frame).label or f"version {number}"
        yield (at, raw, b"", label) if isinstance(raw, Bad) else (at, frame, raw, label)


def renewed(path: str) -> bytes | None:
    """The seal made anew of its frames that prove out; None where all do."""
    writer = Writer(None)
    whole = True
    for _, frame, raw, _ in proven(path):
        if isinstance(frame, Bad):
            whole = False
        else:
            writer.add(writer.end, 0, raw, b"", raw[-4096:], frame.time_ns, about=frame.about)
    return None if whole else bytes(writer.out)


def told_by(at: int, frame: Frame) -> Told:
    """What a frame is about, as its header tells it; nothing where that does not read."""
    try:
        about = orjson.loads(frame.about)
        if "stamp" in about:
            return Told(stamp=int(about["stamp"]))
        label = os.fsdecode(unquote_to_bytes(str(about["label"])))
        if "part" in about:
            return Told(label, int(about["part"]))
        size, parts = int(about.get("size", frame.inserted)), int(about.get("parts", 1))
        version = Version((at,), size, int(about["mtime"]), frame.time_ns, str(about["digest"]))
        return Told(label, parts - 1, version)
    except (ValueError, TypeError, KeyError):
        return Told()
