"""Versions: the seal of a chat's other files: each version of each that was acknowledged, by its label.

One seal a chat, whose every frame is one version of one file and stands for itself. It promises that a file which was
cut short in place is found again, and that what did not change is neither read nor written again. It refuses to judge:
which version is the truth, the mirror knows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote, unquote_to_bytes

import orjson
from blake3 import blake3

from keeper import disk, files
from keeper.transcripts.frame import Bad, Frame, Writer, frames_of, raw_at, raw_of, walk


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a file: where its frame stands, its size in bytes, its times, its digest."""

    at: int
    size: int
    mtime_ns: int
    sealed_ns: int
    digest: str


def digest_of(data: bytes) -> str:
    """The digest that tells a version."""
    return blake3(data).hexdigest(16)


class Versions:
    """The versions in one seal. `bad` is where it ceases to read; `good` where its last readable frame ends."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.latest: dict[str, Version] = {}
        self.stamps: set[int] = set()
        self.bad: Bad | None = None
        self.good = 0
        self.last: Frame | None = None
        for at, frame in walk(path):
            if isinstance(frame, Bad):
                self.bad = frame
                break
            self.good = at + frame.size
            self.last = frame
            self._know(at, frame)
        self.writer = Writer(self.last)

    def _know(self, at: int, frame: Frame) -> None:
        label, version, stamp = told(at, frame)
        if version is not None:
            self.latest[label] = version
        elif stamp:
            self.stamps.add(stamp)

    def knows(self, label: str, size: int, mtime_ns: int) -> bool:
        """Whether a file of that size and time is the version that was sealed last."""
        version = self.latest.get(label)
        return version is not None and version.size == size and mtime_ns in (version.mtime_ns, *self.stamps)

    def content(self, label: str) -> bytes | Bad | None:
        """The bytes that were sealed last, proven; None where none were."""
        version = self.latest.get(label)
        return None if version is None else raw_at(self.path, version.at)

    def add(self, label: str, data: bytes, mtime_ns: int, now_ns: int) -> None:
        """A version to be sealed at `flush`; one that is sealed already is told by its new time alone."""
        digest = digest_of(data)
        version = self.latest.get(label)
        if version is not None and version.digest == digest:
            if mtime_ns not in self.stamps:
                self.stamps.add(mtime_ns)
                self._write({"stamp": mtime_ns}, b"", now_ns)
            return
        at = self.good + len(self.writer.out)
        self._write({"label": quote(os.fsencode(label)), "mtime": mtime_ns, "digest": digest}, data, now_ns)
        self.latest[label] = Version(at, len(data), mtime_ns, now_ns, digest)

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
        label = told(at, frame)[0] or f"version {number}"
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


def told(at: int, frame: Frame) -> tuple[str, Version | None, int]:
    """What a frame is about: a label with its version, or a time that what is sealed was given since."""
    try:
        about = orjson.loads(frame.about)
        if "stamp" in about:
            return "", None, int(about["stamp"])
        label = os.fsdecode(unquote_to_bytes(str(about["label"])))
        return label, Version(at, frame.inserted, int(about["mtime"]), frame.time_ns, str(about["digest"])), 0
    except (ValueError, TypeError, KeyError):
        return "", None, 0
