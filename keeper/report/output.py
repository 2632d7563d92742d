"""Output: a report's file: whole-old or whole-new for whoever reads it meanwhile, and never in the place of another's.

It promises that a run which is killed leaves the old file, and two runs at once leave one of the two. It refuses a name
that stands for anything but an earlier report of the same kind.
"""

from __future__ import annotations

import os
from pathlib import Path

from keeper import disk, files
from keeper.errors import KeeperError, Refused, Usage


def put(path: Path, data: bytes, mark: bytes, mode: int = 0o600) -> None:
    """The file has these bytes and that mode. What it replaces must begin with `mark`, or be empty. Raises Refused,
    Usage, DiskError."""
    _check(path, mark)
    beside = path.with_name(f".{path.name}.{os.urandom(6).hex()}.tmp")
    try:
        disk.write_new(beside, [data])
        if mode != 0o600:
            disk.set_mode(beside, mode)
        disk.replace(beside, path)
    except FileNotFoundError as error:
        raise Usage(f"there is no folder {path.parent}", "make it first") from error
    except (OSError, KeeperError):
        disk.drop(beside)
        raise


def _check(path: Path, mark: bytes) -> None:
    if not os.path.lexists(path):
        return
    try:
        fd = files.open_read(path)
        try:
            begins = os.pread(fd, len(mark), 0)
        finally:
            os.close(fd)
    except (FileNotFoundError, NotADirectoryError):
        begins = b"no regular file"
    if begins not in (b"", mark):
        raise Refused(f"{path} is no earlier report of keeper's: it was left as it is", "name another file")
