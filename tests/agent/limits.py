"""The machine's limits on watching, lowered for a test and put back however it ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import Needs


@contextmanager
def inotify(needs: Needs, name: str, value: int) -> Iterator[None]:
    """`fs.inotify.<name>` is `value`."""
    needs.root()
    place = Path("/proc/sys/fs/inotify") / name
    before = place.read_text("ascii")
    try:
        place.write_text(str(value), "ascii")
    except OSError as error:
        needs.lacking(f"fs.inotify.{name}", str(error), unavoidable="a container may not change the host's limits")
    try:
        yield
    finally:
        place.write_text(before, "ascii")


def watches_in_use() -> int:
    """How many inotify watches the processes of this machine hold, as the kernel tells of each descriptor."""
    found = 0
    for process in os.listdir("/proc"):
        if process.isdigit():
            found += watches_of(process)
    return found


def watches_of(process: str = "self") -> int:
    """How many inotify watches the process holds."""
    found = 0
    try:
        for name in os.listdir(f"/proc/{process}/fdinfo"):
            with open(f"/proc/{process}/fdinfo/{name}", encoding="ascii", errors="replace") as file:
                found += sum(line.startswith("inotify wd:") for line in file)
    except OSError:
        pass  # it ended, or the descriptor did
    return found
