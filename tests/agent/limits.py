"""The limits on watching, lowered for a test: those that a user namespace has for itself in a process of the test's
own, so that nobody else notices; the length of a queue, which the whole machine shares, for as short as may be."""

from __future__ import annotations

import ctypes
import fcntl
import functools
import os
import subprocess
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Needs

CLONE_NEWUSER = 0x10000000
_NO_NAMESPACE = 77


def apart(test: Callable[..., None]) -> Callable[..., None]:
    """The test runs in a process and a user namespace of its own, where `watches` and `instances` set the limits and
    nothing is in use yet. It must take the fixture `needs`."""

    @functools.wraps(test)
    def run(*args: Any, needs: Needs, **fixtures: Any) -> None:
        read, write = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # fork beside other threads: the child uses none
            pid = os.fork()
        if pid == 0:
            os._exit(_in_child(lambda: test(*args, needs=needs, **fixtures), write))
        os.close(write)
        with open(read, encoding="utf-8") as pipe:
            said = pipe.read()
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code == _NO_NAMESPACE:
            needs.lacking("user namespaces", said, unavoidable="a container may have none")
        if code:
            pytest.fail(f"exit {code}: {said}", pytrace=False)

    return run


def _in_child(test: Callable[[], None], write: int) -> int:
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(CLONE_NEWUSER) != 0:
            os.write(write, os.strerror(ctypes.get_errno()).encode())
            return _NO_NAMESPACE
        Path("/proc/self/uid_map").write_text("0 0 1", "ascii")
        test()
    except BaseException:  # noqa: BLE001  told to the parent, which fails with it
        os.write(write, traceback.format_exc().encode()[-8_000:])
        return 1
    return 0


def watches(most: int) -> None:
    """So many watches may this namespace have, from now on."""
    Path("/proc/sys/user/max_inotify_watches").write_text(str(most), "ascii")


def instances(most: int) -> None:
    """So many inotify instances may this namespace have, from now on."""
    Path("/proc/sys/user/max_inotify_instances").write_text(str(most), "ascii")


@contextmanager
def queue(needs: Needs, most: int) -> Iterator[None]:
    """An instance made now holds so many events that were not read yet, for all its life. One run at a time may do so,
    and a shell of its own puts the limit back, also after a kill of this process."""
    needs.root()
    place = "/proc/sys/fs/inotify/max_queued_events"
    with open(place, encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        before = file.read().strip()
        putting_back = subprocess.Popen(
            ["sh", "-c", 'cat; echo "$0" >"$1"', before, place],
            stdin=subprocess.PIPE,
            pass_fds=[file.fileno()],  # and with it the lock
            start_new_session=True,
        )
        try:
            Path(place).write_text(str(most), "ascii")
            yield
        except PermissionError as error:
            needs.lacking(place, str(error), unavoidable="a container may not change the host's limits")
        finally:
            putting_back.communicate()


def watches_of(process: str = "self") -> int:
    """How many inotify watches the process holds, as the kernel tells of each descriptor."""
    found = 0
    for name in os.listdir(f"/proc/{process}/fdinfo"):
        try:
            text = Path(f"/proc/{process}/fdinfo/{name}").read_text("ascii")
        except FileNotFoundError:
            continue  # the descriptor of the listing itself
        found += sum(line.startswith("inotify wd:") for line in text.splitlines())
    return found
