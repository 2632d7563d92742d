"""A disk that remembers every write and every flush, and what a power cut may leave of it.

`Recorder` is a FUSE file system of one file, spoken by hand, with a loop device on that file: each block that a file
system on the device writes, and each flush that it asks for (a flush is an fsync here), comes by in order and is
noted. `Log` reads the notes and makes the images of a cut: all that was flushed, and of what was not any part. It
promises that a write was answered before the flush that covers it was noted, so that "flushed" means what it means on
a device. Everything hangs on the mounts of one process: where that ends, however it ends, nothing stays behind.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import random
import stat
import struct
import subprocess
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

SECTOR = 512
MAX_WRITE = 1 << 20
CLONE_NEWNS = 0x00020000
LOOP_CTL_GET_FREE, LOOP_CONFIGURE, LO_FLAGS_AUTOCLEAR = 0x4C82, 0x4C0A, 4
MS_BIND, MS_REC, MS_PRIVATE, MNT_DETACH = 0x1000, 0x4000, 0x40000, 2

SIZES = {"ext4": 64 << 20, "xfs": 300 << 20}
"""Bytes of a volume; mkfs.xfs makes none below 300 MB. The files are sparse."""
MAKE = {
    # Nothing that the kernel would write by itself later: what the log has is what the workload made.
    "ext4": ("mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"),
    "xfs": ("mkfs.xfs", "-q", "-f", "-K"),
}
# An error that the file system meets must be seen; a commit each second gives cuts between keeper's own syncs.
MOUNT = {"ext4": "errors=remount-ro,commit=1", "xfs": ""}

libc = ctypes.CDLL(None, use_errno=True)


def called(name: str, *args: object) -> None:
    """A call of the C library that answers 0, or fails with errno."""
    if getattr(libc, name)(*args) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}", str(args[0]))


def mount(source: str, target: Path, kind: str, options: str = "", flags: int = 0) -> None:
    """mount(2)."""
    called("mount", source.encode(), os.fsencode(target), kind.encode(), flags, options.encode())


def own_mounts() -> int:
    """From here on this process has its mounts to itself, and they end with it. A descriptor of those before."""
    before = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    called("unshare", CLONE_NEWNS)
    called("mount", b"none", b"/", None, MS_REC | MS_PRIVATE, None)
    return before


@contextmanager
def unmounted_after(target: Path) -> Iterator[None]:
    """What is mounted there is so no longer afterwards. A file that is still open there is a fault of the run (EBUSY),
    but for one that was ended in the middle."""
    try:
        yield
    except BaseException:
        called("umount2", os.fsencode(target), MNT_DETACH)
        raise
    called("umount2", os.fsencode(target), 0)


@contextmanager
def mounted(image: Path | int, target: Path, kind: str) -> Iterator[None]:
    """The file system in that file, mounted by a loop device that goes with the mount."""
    fd = os.open(image, os.O_RDWR | os.O_CLOEXEC) if isinstance(image, Path) else image
    try:
        device, loop = _loop(fd)
    finally:
        if isinstance(image, Path):
            os.close(fd)
    try:
        mount(device, target, kind, MOUNT[kind])
    finally:
        os.close(loop)
    with unmounted_after(target):
        yield


def _loop(fd: int) -> tuple[str, int]:
    """A free loop device on the file; another process may take the free one first."""
    for _ in range(50):
        with open("/dev/loop-control", "rb") as control:
            number = fcntl.ioctl(control, LOOP_CTL_GET_FREE)
        device = f"/dev/loop{number}"
        loop = os.open(device, os.O_RDWR | os.O_CLOEXEC)
        config = struct.pack("<II5Q4I160x16x64x", fd, 0, 0, 0, 0, 0, 0, 0, 0, 0, LO_FLAGS_AUTOCLEAR)
        try:
            fcntl.ioctl(loop, LOOP_CONFIGURE, config)
        except OSError as error:
            os.close(loop)
            if error.errno != errno.EBUSY:
                raise
            continue
        return device, loop
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), "/dev/loop-control")


def make_volume(kind: str, path: Path) -> None:
    """An empty file system of that kind in a new sparse file."""
    raw = path.with_suffix(".raw")
    with open(raw, "wb") as file:
        file.truncate(SIZES[kind])
    env = {**os.environ, "PATH": os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"}
    subprocess.run([*MAKE[kind], raw], check=True, env=env, stdout=subprocess.DEVNULL)
    copy_sparse(raw, path)
    raw.unlink()


def copy_sparse(source: Path, target: Path) -> None:
    """A copy in which zeros take no room."""
    with open(source, "rb") as old, open(target, "wb") as new:
        size = os.fstat(old.fileno()).st_size
        new.truncate(size)
        at = 0
        while at < size:
            try:
                at = os.lseek(old.fileno(), at, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                return
            end = os.lseek(old.fileno(), at, os.SEEK_HOLE)
            while at < end:
                part = os.pread(old.fileno(), min(1 << 16, end - at), at)
                if part.count(0) < len(part):
                    os.pwrite(new.fileno(), part, at)
                at += len(part)


# --- the recorder ---------------------------------------------------------------------------------------

ROOT, DISK, MARKS = 1, 2, 3
NODES = {b"disk": DISK, b"marks": MARKS}
FORGET, INTERRUPT, BATCH_FORGET = 2, 36, 42
_IN, _OUT, _ENTRY = struct.Struct("<IIQQIIIHH"), struct.Struct("<IiQ"), struct.Struct("<BQI")
WRITE, FLUSH, MARK = 0, 1, 2


class Recorder:
    """A volume behind a recorder. `disk` is a descriptor for a loop device; `mark` puts a number into the log."""

    def __init__(self, place: Path) -> None:
        self.disk = os.open(place / "disk", os.O_RDWR | os.O_CLOEXEC)
        self.marks = os.open(place / "marks", os.O_WRONLY | os.O_CLOEXEC)

    def mark(self, number: int) -> None:
        """A mark, noted behind all writes and flushes that were answered before."""
        os.pwrite(self.marks, str(number).encode(), 0)

    def close(self) -> None:
        """Nothing more is recorded."""
        os.close(self.marks)
        os.close(self.disk)


@contextmanager
def recording(place: Path, image: Path, log: Path, outside: int) -> Iterator[Recorder]:
    """A recorder, mounted at `place`, for the disk in `image`; the log is whole afterwards."""
    place.mkdir()
    fuse = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    mount("keeper-powercut", place, "fuse", f"fd={fuse},rootmode=40000,user_id=0,group_id=0")
    with unmounted_after(place):
        with open(image, "r+b") as disk, open(log, "wb") as notes:
            pid = os.fork()
            if pid == 0:
                _record_and_exit(fuse, disk.fileno(), notes.fileno(), outside)
        os.close(fuse)
        recorder = Recorder(place)
        try:
            yield recorder
        finally:
            recorder.close()
    if os.waitpid(pid, 0)[1] != 0:
        raise RuntimeError("the recorder failed: its words are on stderr")
    place.rmdir()


def _record_and_exit(fuse: int, disk: int, log: int, outside: int) -> None:
    """The recorder's process. Outside the mounts, so that they end with the process that made them, and this one with
    them; it opens nothing that lies on its own disk, which would have it wait for itself."""
    code = 1
    try:
        called("setns", outside, CLONE_NEWNS)
        keep = {0, 1, 2, fuse, disk, log}
        for fd in [int(name) for name in os.listdir("/proc/self/fd")]:
            if fd not in keep:
                with suppress(OSError):
                    os.close(fd)
        _Server(fuse, disk, log).run()
        code = 0
    except (OSError, ValueError, LookupError, struct.error):
        traceback.print_exc()
    finally:
        os._exit(code)


class _Server:
    """The file system of two files: the disk, whose every write and fsync is noted, and the marks."""

    def __init__(self, fuse: int, disk: int, log: int) -> None:
        self.fuse = fuse
        self.disk = disk
        self.log = os.fdopen(log, "wb")
        self.size = os.fstat(disk).st_size

    def run(self) -> None:
        """Answer until the mount is gone."""
        buffer = bytearray(MAX_WRITE + 65536)
        view = memoryview(buffer)
        with self.log, open(self.fuse, "rb", buffering=0, closefd=False) as device:
            while True:
                try:
                    length = device.readinto(buffer)
                except OSError as error:
                    if error.errno == errno.ENODEV:  # unmounted
                        break
                    if error.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                        continue
                    raise
                _, opcode, unique, node, *_ = _IN.unpack_from(buffer)
                if opcode in (FORGET, INTERRUPT, BATCH_FORGET):
                    continue
                answer = self.answer(opcode, node, view[_IN.size : length])
                code, body = (-answer, b"") if isinstance(answer, int) else (0, answer)
                with suppress(FileNotFoundError):  # interrupted: nobody waits for the answer
                    os.write(self.fuse, _OUT.pack(_OUT.size + len(body), code, unique) + body)

    def answer(self, opcode: int, node: int, body: memoryview) -> bytes | int:
        """The reply's body, or an errno. Numbers and layouts are those of linux/fuse.h."""
        match opcode:
            case 1:  # LOOKUP
                found = NODES.get(bytes(body).rstrip(b"\0"))
                return struct.pack("<4Q2I", found, 0, 3600, 3600, 0, 0) + self.attr(found) if found else errno.ENOENT
            case 3 | 4:  # GETATTR, SETATTR: nothing of it is kept
                return struct.pack("<QII", 3600, 0, 0) + self.attr(node)
            case 14:  # OPEN, with FOPEN_DIRECT_IO: no cache of the kernel's comes between
                return struct.pack("<QII", 0, 1, 0)
            case 15:  # READ
                _, offset, size = struct.unpack_from("<QQI", body)
                return os.pread(self.disk, size, offset)
            case 16:  # WRITE
                _, offset, size = struct.unpack_from("<QQI", body)
                return self.write(node, offset, body[40 : 40 + size])
            case 20:  # FSYNC
                self.log.write(_ENTRY.pack(FLUSH, 0, 0))
                return b""
            case 26:  # INIT: BIG_WRITES, MAX_PAGES
                return struct.pack("<4I2H2I2HI28x", 7, 31, 0, 1 << 5 | 1 << 22, 64, 48, MAX_WRITE, 1, 256, 0, 0)
            case 17:  # STATFS
                return bytes(80)
            case 18 | 25 | 34 | 38:  # RELEASE, FLUSH (of a descriptor), ACCESS, DESTROY
                return b""
        return errno.ENOSYS

    def write(self, node: int, offset: int, data: memoryview) -> bytes:
        if node == MARKS:
            self.log.write(_ENTRY.pack(MARK, int(bytes(data)), 0))
        else:
            os.pwrite(self.disk, data, offset)
            self.log.write(_ENTRY.pack(WRITE, offset, len(data)))
            self.log.write(data)
        return struct.pack("<II", len(data), 0)

    def attr(self, node: int) -> bytes:
        mode = stat.S_IFDIR | 0o700 if node == ROOT else stat.S_IFREG | 0o600
        size = self.size if node == DISK else 0
        return struct.pack("<6Q10I", node, size, size // SECTOR, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


# --- the log, and what a cut leaves ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that reached the disk: a write (at `offset`, `length` bytes that stand in the log from `data` on), a
    flush, or a mark (its number is `offset`)."""

    kind: int
    offset: int
    length: int
    data: int


class Log:
    """What a recorder noted, in order."""

    def __init__(self, path: Path) -> None:
        with open(path, "rb") as file:
            self.bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.entries: list[Entry] = []
        at = 0
        while at < len(self.bytes):
            kind, offset, length = _ENTRY.unpack_from(self.bytes, at)
            at += _ENTRY.size
            self.entries.append(Entry(kind, offset, length, at))
            at += length

    def close(self) -> None:
        self.bytes.close()

    def count(self, kind: int) -> int:
        """How many entries of that kind there are."""
        return sum(entry.kind == kind for entry in self.entries)

    def marks(self) -> dict[int, int]:
        """Each mark's place in the log."""
        return {entry.offset: place for place, entry in enumerate(self.entries) if entry.kind == MARK}

    def apply(self, disk: int, places: range | list[int]) -> None:
        """Write these entries to the image."""
        for place in places:
            entry = self.entries[place]
            if entry.kind == WRITE:
                os.pwrite(disk, self.bytes[entry.data : entry.data + entry.length], entry.offset)

    def tear(self, disk: int, place: int, rng: random.Random) -> None:
        """Write a part of that entry's sectors: its beginning, or any of them."""
        entry = self.entries[place]
        sectors = range(0, entry.length, SECTOR)
        end = rng.randrange(entry.length // SECTOR + 1) * SECTOR
        scattered = rng.random() < 0.5
        for at in sectors:
            if rng.random() < 0.5 if scattered else at < end:
                data = self.bytes[entry.data + at : entry.data + min(at + SECTOR, entry.length)]
                os.pwrite(disk, data, entry.offset + at)


class Cutter:
    """Images of cuts at rising places of one log. `base` is what the disk held when the recording began."""

    def __init__(self, log: Log, base: Path, folder: Path) -> None:
        self.log = log
        self.flushed = folder / "flushed"
        self.image = folder / "image"
        copy_sparse(base, self.flushed)
        self.done = 0

    def cut(self, place: int, rng: random.Random) -> Path:
        """The disk after a cut before the entry at `place`: all that was written before the last flush, and of what
        came after it what the device had written by then, in any order: none, all, or any part, one write torn."""
        flush = next((p for p in range(place - 1, self.done - 1, -1) if self.log.entries[p].kind == FLUSH), self.done)
        with open(self.flushed, "r+b") as disk:
            self.log.apply(disk.fileno(), range(self.done, flush))
        self.done = flush
        copy_sparse(self.flushed, self.image)
        loose = [p for p in range(flush, place) if self.log.entries[p].kind == WRITE]
        share = rng.choice((0.0, 1.0, rng.random(), rng.random(), rng.random()))
        taken = [p for p in loose if rng.random() < share]
        if rng.random() < 0.25:
            taken = loose[: rng.randrange(len(loose) + 1)]  # in order, as far as it came
        torn = rng.choice(taken) if taken and rng.random() < 0.5 else -1
        with open(self.image, "r+b") as disk:
            for p in taken:  # in their order: of two writes to one sector a device never keeps the older
                if p == torn:
                    self.log.tear(disk.fileno(), p, rng)
                else:
                    self.log.apply(disk.fileno(), [p])
        return self.image

    def close(self) -> None:
        for path in (self.flushed, self.image):
            path.unlink(missing_ok=True)
