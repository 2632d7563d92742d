"""Machine: the kernel's limits of inotify, and what of them is used by others.

It promises to look at this user's processes alone, as the limits count for each user.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from keeper.doctor.facts import Inotify

LIMITS = Path("/proc/sys/fs/inotify")


def inotify(but: int, proc: Path = Path("/proc"), limits: Path = LIMITS) -> Inotify:
    """The limits, and what this user's processes use, all `but` one (the agent's)."""
    watches = instances = 0
    for name in _names(proc):
        if not name.isdigit() or int(name) == but:
            continue
        with suppress(OSError):
            if os.stat(proc / name).st_uid != os.geteuid():
                continue
            for fd in _names(proc / name / "fd"):
                with suppress(OSError):
                    if os.readlink(proc / name / "fd" / fd) == "anon_inode:inotify":
                        instances += 1
                        watches += (proc / name / "fdinfo" / fd).read_bytes().count(b"inotify wd:")
    most = [_number(limits / f"max_{what}") for what in ("user_watches", "user_instances", "queued_events")]
    return Inotify(most[0], most[1], most[2], watches, instances)


def folders(profile: Path) -> int:
    """How many folders of a profile the agent watches."""
    count = 1
    for top in ("projects", "file-history", "tasks"):
        count += sum(1 for _ in os.walk(profile / top))
    return count


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _number(file: Path) -> int | None:
    try:
        return int(file.read_bytes())
    except (OSError, ValueError):
        return None
