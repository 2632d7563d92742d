"""A program on a terminal of its own: what it shows, what is typed to it, how it ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self


class Terminal:
    """One program with a terminal as its stdin, stdout and stderr. Its `with` ends it."""

    def __init__(self, argv: Sequence[str | Path], env: Mapping[str, str], cwd: Path) -> None:
        self._ours, theirs = os.openpty()
        self.seen = ""
        self.process = subprocess.Popen(
            argv, env=env, cwd=cwd, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(theirs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, why: BaseException | None, at: TracebackType | None) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def wait(self, pattern: str, timeout_s: float = 20.0) -> None:
        """Until that stands on it."""
        end = time.monotonic() + timeout_s
        while not re.search(pattern, self.seen):
            assert time.monotonic() < end, f"waited for {pattern!r}, saw {self.seen!r}"
            assert self._read(0.2) or re.search(pattern, self.seen), f"ended before {pattern!r}, showing {self.seen!r}"

    def interrupt(self) -> int:
        """Ctrl-C, and again where it came in the moment before the program waited for a line; its exit code."""
        for _ in range(20):
            self.type("\x03")
            with contextlib.suppress(AssertionError):
                return self.ended(2.0)
        raise AssertionError(f"still there, showing {self.seen!r}")

    def ended(self, timeout_s: float = 20.0) -> int:
        """Its exit code, once it has ended."""
        end = time.monotonic() + timeout_s
        while self._read(0.2):
            assert time.monotonic() < end, f"still there, showing {self.seen!r}"
        return self.process.wait(timeout_s)

    def _read(self, wait_s: float) -> bool:
        """Take what is shown; False where nobody has the terminal any more."""
        if select.select([self._ours], [], [], wait_s)[0]:
            with contextlib.suppress(OSError):  # EIO: the last one that had it open is gone
                data = os.read(self._ours, 65536)
                self.seen += data.decode(errors="replace").replace("\r\n", "\n")
                return bool(data)
            return False
        return True
