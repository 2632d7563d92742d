"""Volumes of a test's own: small ones that fill up, ones that turn read-only. Unmounted however the test ends."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import Needs


@contextmanager
def tmpfs(needs: Needs, place: Path, size: str = "64m") -> Iterator[Path]:
    """A tmpfs of that size at `place`, which is made. Needs root and mounts, and says so where they lack."""
    needs.root()
    mount, umount = needs.command("mount"), needs.command("umount")
    place.mkdir()
    made = subprocess.run(
        [mount, "-t", "tmpfs", "-o", f"size={size},mode=0700", "keeper-tests", place],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode != 0:
        needs.lacking("mounts", made.stderr.strip())
    try:
        yield place
    finally:
        # Lazily: a test that failed may still have a file open there, and must not leave the mount to the next.
        subprocess.run([umount, "-l", place], check=True)


def remount(needs: Needs, place: Path, option: str) -> None:
    """Make the volume `ro` or `rw`."""
    subprocess.run([needs.command("mount"), "-o", f"remount,{option}", place], check=True)
