"""A FUSE volume of a test's own: an empty folder, served by a thread that speaks the kernel's protocol."""

from __future__ import annotations

import errno
import os
import stat
import struct
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import Needs

_HEADER = struct.Struct("<IIQQIIII")
_INIT, _DESTROY = 26, 38
_NO_ANSWER = {2, 42}  # forget, one or many
_GETATTR, _STATFS, _OPENDIR, _READDIR, _RELEASEDIR, _READDIRPLUS = 3, 17, 27, 28, 29, 44


def _attributes() -> bytes:
    # inode, size, blocks, three times, their nanoseconds, mode, links, owner, group, device, block size, flags
    folder = struct.pack("<6Q10I", 1, 0, 0, 0, 0, 0, 0, 0, 0, stat.S_IFDIR | 0o700, 2, 0, 0, 0, 4096, 0)
    return struct.pack("<QII", 1, 0, 0) + folder


def _answer(opcode: int, major: int, minor: int) -> bytes | int:
    """The answer's body, or the errno of a refusal."""
    if opcode == _INIT:
        return struct.pack("<IIIIHHIIHH32x", major, min(minor, 31), 0, 0, 0, 0, 4096, 1, 0, 0)
    if opcode == _GETATTR:
        return _attributes()
    if opcode == _STATFS:
        return bytes(80)
    if opcode == _OPENDIR:
        return bytes(16)
    if opcode in (_READDIR, _READDIRPLUS, _RELEASEDIR, _DESTROY):
        return b""
    return errno.ENOENT if opcode == 1 else errno.ENOSYS


def _serve(device: int, answers: threading.Event) -> None:
    while True:
        try:
            request = os.read(device, 1 << 17)
        except OSError as error:
            if error.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):
                continue
            return  # unmounted
        _, opcode, unique, *_ = _HEADER.unpack_from(request)
        if opcode in _NO_ANSWER:
            continue
        major, minor = struct.unpack_from("<II", request, _HEADER.size) if opcode == _INIT else (0, 0)
        answers.wait()
        answer = _answer(opcode, major, minor)
        code, body = (-answer, b"") if isinstance(answer, int) else (0, answer)
        try:
            os.write(device, struct.pack("<IiQ", 16 + len(body), code, unique) + body)
        except OSError:
            return


@contextmanager
def volume(needs: Needs, place: Path, answers: threading.Event | None = None) -> Iterator[Path]:
    """An empty volume of type fuse.keeper at `place`, which is made; unmounted however the test ends. It is as dead as
    a server that is gone while `answers` is not set."""
    needs.mounts()
    if answers is None:
        answers = threading.Event()
        answers.set()
    mount, umount = needs.command("mount"), needs.command("umount")
    try:
        device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        needs.lacking("/dev/fuse", str(error), unavoidable="a container may have no FUSE")
    place.mkdir()
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0"
    server = threading.Thread(target=_serve, args=(device, answers), daemon=True)
    try:
        made = subprocess.run(
            [mount, "-i", "-t", "fuse.keeper", "-o", options, "keeper-tests", place],
            pass_fds=[device],
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode != 0:
            needs.lacking("FUSE", made.stderr.strip(), unavoidable="a container may have no FUSE")
        server.start()
        try:
            yield place
        finally:
            answers.set()
            subprocess.run([umount, "-l", place], check=True)
            server.join(5)
    finally:
        os.close(device)
