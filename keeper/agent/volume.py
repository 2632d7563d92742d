"""Volume: whether the volume of a folder tells of what happens in it.

It promises a reason in words where it does not, or where it tells only of what this machine does (AGENT-8): by the
volume's type, as the kernel names it, and by a file made there for a moment, whose event must come. It refuses to
guess: where neither can be asked, the volume counts as one that tells.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress

from watchdog.observers.inotify_c import CallbackId, InotifyConstants, InotifyEvent

from keeper import disk
from keeper.agent.inotify import Instance, Nobody
from keeper.errors import DiskError

EVENT_WAIT_S = 1.0
MOUNTS = "/proc/self/mountinfo"

SHARED = frozenset(
    "9p afs beegfs ceph cifs coda drvfs glusterfs gpfs lustre ncpfs nfs nfs4 orangefs prl_fs smb3 smbfs vboxsf "
    "virtiofs vmhgfs".split()
)
"""Types that others change behind this kernel: a server, a host, Windows. inotify tells of what passes this kernel."""


def type_of(folder: str, mounts: str) -> str:
    """The type of the volume that the folder (no link) is on, from the text of /proc/self/mountinfo; "" where the text
    does not tell."""
    found, best = "", -1
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields, told = left.split(), right.split()
        if len(fields) < 5 or not told:
            continue
        point = fields[4].encode().decode("unicode_escape").encode("latin-1").decode("utf-8", "surrogateescape")
        inside = point == "/" or folder == point or folder.startswith(f"{point}/")
        # Of two mounts at one place the later one is seen.
        if inside and len(point) >= best:
            found, best = told[0], len(point)
    return found


def is_shared(kind: str) -> bool:
    """Whether a volume of that type is changed behind this kernel. All of FUSE may be, but for block devices (fuseblk),
    which nobody else has mounted."""
    return kind in SHARED or kind == "fuse" or kind.startswith("fuse.")


def silent(folder: str, make: Callable[[str], None] = disk.make_file) -> str | None:
    """Why events of that folder's volume cannot be relied on; None where they can.

    `make` makes the file of the trial, which is taken away again.
    """
    real = os.path.realpath(folder)
    with suppress(OSError), open(MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
        kind = type_of(real, file.read())
        if is_shared(kind):
            return f"{folder} is on a volume of type {kind}, which others can change without an event here"
    return None if event_comes(real, make) else f"{folder} is on a volume that brings no events"


class _Bell(Nobody):
    """Rings at the first event of one name."""

    def __init__(self, name: str) -> None:
        self.name = os.fsencode(name)
        self.rung = threading.Event()

    def on_event(self, event: InotifyEvent) -> None:
        if event.name == self.name:
            self.rung.set()


def event_comes(folder: str, make: Callable[[str], None]) -> bool:
    """Whether a file made in the folder brings an event; also where no file or no instance is to be had, which says
    nothing of the volume."""
    name = f".keeper-{os.urandom(6).hex()}.tmp"
    bell = _Bell(name)
    try:
        instance = Instance()
    except OSError:
        return True
    instance.start()
    try:
        instance.add_callback(os.fsencode(folder), InotifyConstants.IN_CREATE, bell, CallbackId(1))
        make(f"{folder}/{name}")
        return bell.rung.wait(EVENT_WAIT_S)
    except (DiskError, OSError):
        return True
    finally:
        disk.drop(f"{folder}/{name}")
        instance.stop()
        instance.join(EVENT_WAIT_S)
