"""Files: reads regular files, and tells what a system call's error means.

It promises every failure as one of the tree's, with the path, the volume and the cure, and that what it opens is a
regular file under that very name. It refuses to follow symbolic links, and to change anything.

FileExistsError, FileNotFoundError and NotADirectoryError pass through as they are: they are answers, not failures.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from keeper.errors import DiskError, KeeperError, NoExchange, NoLinks

Name = str | Path
COPY_TRIES = 5
"""A file that grows under every copy is taken as it was in the last one; the next keep takes the rest."""

CURES = {
    errno.ENOSPC: "free some space on that volume, then run it again",
    errno.EDQUOT: "free some of your quota on that volume, then run it again",
    errno.EIO: "the volume reports errors: look at its health and at the kernel log, then run it again",
    errno.EMFILE: "too many open files: raise the limit (ulimit -n), then run it again",
    errno.ENFILE: "the machine has too many open files: close some programs, then run it again",
    errno.EACCES: "make it readable and writable for you, then run it again",
    errno.EPERM: "make it yours (owner, mode, immutable flag), then run it again",
    errno.EMLINK: "the file has as many names as that volume allows: remove some of its other links, then run it again",
    errno.EXDEV: "put the vault and the profile each on one volume, with no mount in between, then run it again",
    errno.EROFS: "the volume is mounted read-only: remount it writable, then run it again",
}
OTHER_CURE = "look at the volume's health and at the kernel log, then run it again"
NO_LINKS = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS})
NO_EXCHANGE = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EXDEV})
ANSWERS = (FileExistsError, FileNotFoundError, NotADirectoryError)

_CHUNK = 1 << 20
_STATX_BTIME = 0x800
_AT_FDCWD = -100
_AT_SYMLINK_NOFOLLOW = 0x100

_statx = getattr(ctypes.CDLL(None, use_errno=True), "statx", None)


def volume_of(path: Name) -> Path:
    """The mount point that `path`, or its nearest ancestor that exists, is on."""
    here = Path(os.path.abspath(path))
    while not os.path.exists(here) and here != here.parent:
        here = here.parent
    while here != here.parent and not os.path.ismount(here):
        here = here.parent
    return here


def failure(error: OSError, path: Name, doing: str) -> DiskError:
    """The failure that a system call's error is: its path, its volume, its cure."""
    kind: type[DiskError] = DiskError
    if doing == "link" and error.errno in NO_LINKS:
        kind = NoLinks
    elif doing == "exchange" and error.errno in NO_EXCHANGE:
        kind = NoExchange
    volume = volume_of(path)
    cure = CURES.get(error.errno or 0, OTHER_CURE)
    text = f"cannot {doing} {path}: {error.strerror or error} (volume {volume})"
    return kind(text, Path(path), volume, cure)


def told(error: KeeperError | OSError | ValueError | TypeError, path: Name) -> KeeperError:
    """Any failure as one of the tree's; a bare system error is about its own file, or else about `path`."""
    if isinstance(error, KeeperError):
        return error
    if not isinstance(error, OSError):
        return KeeperError(
            f"a name or a text in {path} is no UTF-8", "rename what is not, or move it out of the profile"
        )
    # Of a call with two names the second is the one that was in the way.
    named = error.filename2 or error.filename
    doing = "find" if isinstance(error, FileNotFoundError) else "use"
    return failure(error, named if isinstance(named, str) else path, doing)


def raise_failure(error: OSError, path: Name, doing: str) -> NoReturn:
    """Raise what the error is: an answer as it is, a failure as one of the tree's."""
    if isinstance(error, ANSWERS):
        raise error
    raise failure(error, path, doing) from error


def nobody_writes(fd: int) -> bool | None:
    """Whether no process has the file open for writing; None where the kernel cannot tell.

    Asked by a read lease on a read-only descriptor: it is refused while any writer holds the file, and readers
    (`tail -f`, an indexer) do not matter (SWAP-2). Not the owner, or a volume without leases: None.
    """
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except BlockingIOError:
        return False
    except OSError:
        return None
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return True


def open_read(name: Name) -> int:
    """A read-only descriptor of a regular file; a symbolic link, FIFO or device is refused (KEEP-9).

    Raises FileNotFoundError where there is none, or where the name is no regular file.
    """
    try:
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise FileNotFoundError(errno.ENOENT, "no regular file", str(name)) from error
        raise_failure(error, name, "read")
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise FileNotFoundError(errno.ENOENT, "no regular file", str(name))
    return fd


def read_at(fd: int, offset: int, path: Name) -> bytes:
    """All bytes from `offset` to the end, as the file is now."""
    parts: list[bytes] = []
    try:
        size = os.fstat(fd).st_size
        while True:
            part = os.pread(fd, max(size - offset, _CHUNK), offset)
            if not part:
                return parts[0] if len(parts) == 1 else b"".join(parts)
            parts.append(part)
            offset += len(part)
    except OSError as error:
        raise_failure(error, path, "read")


def pieces(fd: int, path: Name, size: int) -> Iterator[bytes]:
    """The bytes of the file, in order, so many at a time."""
    offset = 0
    while True:
        try:
            piece = os.pread(fd, size, offset)
        except OSError as error:
            raise_failure(error, path, "read")
        if not piece:
            return
        yield piece
        offset += len(piece)


def read(name: Name) -> bytes:
    """All bytes of a regular file; FileNotFoundError where there is none."""
    fd = open_read(name)
    try:
        return read_at(fd, 0, name)
    finally:
        os.close(fd)


def regular(path: Name) -> os.stat_result | None:
    """The regular file's stat, None where there is none (a link, a FIFO, a device is none: KEEP-9)."""
    try:
        seen = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return seen if stat.S_ISREG(seen.st_mode) else None


def size_of(name: Name) -> int:
    """The file's size in bytes; FileNotFoundError where there is none."""
    return os.lstat(name).st_size


def born(name: Name, fd: int) -> float:
    """When the file was made, in unix seconds, as its volume tells; its last change where it does not."""
    buffer = ctypes.create_string_buffer(256)
    if _statx and _statx(_AT_FDCWD, os.fsencode(name), _AT_SYMLINK_NOFOLLOW, _STATX_BTIME, buffer) == 0:
        (mask,) = struct.unpack_from("=I", buffer, 0)
        seconds, nanoseconds = struct.unpack_from("=qI", buffer, 80)
        if mask & _STATX_BTIME:
            return float(seconds) + float(nanoseconds) / 1e9
    return os.fstat(fd).st_mtime


def born_at(name: Name) -> float:
    """When the file under that name was made, as `born` tells."""
    fd = open_read(name)
    try:
        return born(name, fd)
    finally:
        os.close(fd)


def instant(path: str) -> tuple[bytes, int]:
    """The file's bytes at one instant, and its time: read again while it changes under the reading."""
    fd = open_read(path)
    try:
        for _ in range(COPY_TRIES):
            before = os.fstat(fd)
            data = read_at(fd, 0, path)
            after = os.fstat(fd)
            if len(data) == before.st_size == after.st_size and before.st_mtime_ns == after.st_mtime_ns:
                break
        return data, before.st_mtime_ns
    finally:
        os.close(fd)


def walk(path: str, label: str, errors: list[KeeperError]) -> Iterator[tuple[str, str]]:
    """The regular files at or below `path`, each with its label; no link is followed, `.keeper-*` names are ours. A
    folder that cannot be read is told in `errors`, and stops no other."""
    if regular(path) is not None:
        yield path, label
        return
    below = [""]
    while below:
        rest = below.pop()
        try:
            fd = os.open(path + rest, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            if error.errno == errno.ELOOP:
                continue
            errors.append(failure(error, path + rest, "read"))
            continue
        try:
            with os.scandir(fd) as entries:
                found = sorted(
                    (e.name, e.is_dir(follow_symlinks=False), e.is_file(follow_symlinks=False)) for e in entries
                )  # fmt: skip
        finally:
            os.close(fd)
        below += [f"{rest}/{name}" for name, is_folder, _ in reversed(found) if is_folder]
        for name, _, is_file in found:
            if is_file and not name.startswith(".keeper-"):
                yield f"{path}{rest}/{name}", f"{label}{rest}/{name}"
