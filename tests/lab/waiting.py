"""Waits for what another process does: by looking, with a limit, never by sleeping for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


class TimedOut(AssertionError):
    """What a test waited for did not happen in time."""


def eventually(what: str, look: Callable[[], T], timeout_s: float = 20.0) -> T:
    """Look until something true is seen, and answer it. Raises TimedOut."""
    end = time.monotonic() + timeout_s
    while not (seen := look()):
        if time.monotonic() > end:
            raise TimedOut(f"waited {timeout_s:.0f} s for: {what}")
        time.sleep(0.05)
    return seen


def quiet(path: Path, quiet_s: float = 0.4) -> Path:
    """Wait until a file is there and grows no more: 2.1.197 writes up to 90 ms after it has answered."""
    eventually(f"{path} to be there", path.exists)
    seen, since = (0, -1), time.monotonic()
    while time.monotonic() - since < quiet_s:
        stat = path.stat()
        if seen != (stat.st_ino, stat.st_size):
            seen, since = (stat.st_ino, stat.st_size), time.monotonic()
        time.sleep(0.05)
    return path
