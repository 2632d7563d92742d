"""Probe: what the real volumes grant: link, exchange, lease, reflink, events; tried on files of keeper's own names.

It promises that nothing of a trial is left, whatever it meets, and that no file of anybody else's is touched.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from keeper import disk, files
from keeper.doctor.facts import Trial
from keeper.errors import DiskError, KeeperError

Silent = Callable[[str], str | None]
"""Why the events of a folder's volume cannot be relied on, None where they can."""


def trials(profile: Path, vault: Path | None, silent: Silent) -> Iterator[Trial]:
    """Try all of it in the profile's own folder of transcripts, and between there and the vault (None: there is
    none)."""
    folder = profile / "projects" if (profile / "projects").is_dir() else profile
    one, other = _name(folder), _name(folder)
    away = _name(vault) if vault is not None else _name(folder)
    try:
        for name in (one, away):
            failed = _why(partial(disk.write_new, name, [b"keeper\n"], sync=False))
            if failed:
                yield Trial("write", str(name.parent), failed)
                return
        disk.drop(away)
        yield Trial("link", str(folder), _why(lambda: disk.link(one, away)))
        disk.make_file(other)
        yield Trial("reflink", str(folder), _why(lambda: disk.clone(one, other)))
        yield Trial("exchange", str(folder), _why(lambda: disk.exchange(one, other)))
        yield Trial("lease", str(folder), _lease(one))
    except (KeeperError, OSError) as error:
        yield Trial("write", str(folder), files.told(error, folder).message)
    finally:
        for name in (one, other, away):
            disk.drop(name)
    yield Trial("events", str(folder), "no events can be relied on" if silent(str(folder)) else "")


def _name(folder: Path) -> Path:
    return folder / f".keeper-{os.urandom(6).hex()}.tmp"


def _why(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except (DiskError, OSError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        return str(cause.strerror) if isinstance(cause, OSError) and cause.strerror else str(error)
    return ""


def _lease(path: Path) -> str:
    fd = files.open_read(path)
    try:
        told = files.nobody_writes(fd)
    finally:
        os.close(fd)
    return "" if told else "no read lease is granted"
