"""Installs published versions of the Claude Code CLI for the tests.

Promises: `python -m tests.lab.install [VERSION …]` (no version: those that tests use) leaves each at
`${XDG_CACHE_HOME:-~/.cache}/keeper-lab/<version>/node_modules/.bin/claude`, runs it once, prints one line a
version, and does nothing for one that is there already. Two installers at once do not meet half a folder.

Refuses: to run a package's install scripts through npm, and to go on where node or npm is missing.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

NEWEST = "2.1.328"
"""The pinned version that tests use where one is enough: a native binary, so it runs without node."""

NODE_20_PICK = "2.1.197"
"""What npm picks under node 20, so what many users have; of the older generation on disk."""

PINNED = (NEWEST, NODE_20_PICK)

SWEEPS_AT_ONCE = "2.0.76"
"""A JavaScript bundle of the generation that sweeps the moment it starts: what a test has to ask of such a one."""

THROW_AWAY_IDS = "1.0.124"
"""The version whose SessionStart of a resume tells an id that never gets a chat, needed where that is the point."""

PACKAGE = "@anthropic-ai/claude-code"
VERSION = re.compile(r"\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?")


class CannotInstall(RuntimeError):
    """The version could not be put in place; the message says what is missing or what npm answered."""


def cache() -> Path:
    """The folder that holds one folder a version."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "keeper-lab"


def binary(version: str) -> Path:
    """Where `version` stands once installed; it need not exist."""
    return cache() / version / "node_modules" / ".bin" / "claude"


def reported(claude: Path) -> str | None:
    """What `claude --version` answers, without touching the caller's home; None if it does not run."""
    search = os.defpath + os.pathsep + os.environ.get("PATH", "")
    try:
        done = subprocess.run(
            [claude, "--version"],
            env={"HOME": "/nonexistent", "PATH": search, "DISABLE_AUTOUPDATER": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = VERSION.match(done.stdout.strip())
    return found.group() if done.returncode == 0 and found else None


def installed(version: str) -> bool:
    """Whether `version` stands in the cache whole (it is renamed into place only after it has run)."""
    return binary(version).exists()


def install(version: str) -> Path:
    """Put `version` in place and answer its executable. Raises CannotInstall."""
    if not VERSION.fullmatch(version):
        raise CannotInstall(f"{version!r} is not a full version such as {NEWEST}")
    cache().mkdir(parents=True, exist_ok=True)
    with open(cache() / f"{version}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not installed(version):
            _fetch(version)
    return binary(version)


def _fetch(version: str) -> None:
    target = cache() / version
    beside = cache() / f".{version}.{os.getpid()}"
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir()
    try:
        (beside / "package.json").write_text('{"private": true}\n')
        _run(beside, "npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", f"{PACKAGE}@{version}")
        package = beside / "node_modules" / PACKAGE
        if (package / "install.cjs").exists():
            # From 2.1.116 the package is a shell around a native binary that its post-install step links into
            # place; npm 11 leaves that step out unless told otherwise, so it is always taken here.
            _run(package, "node", "install.cjs")
        runs_as = reported(beside / "node_modules" / ".bin" / "claude")
        if runs_as != version:
            raise CannotInstall(f"{version} is installed but answers --version with {runs_as!r}")
        shutil.rmtree(target, ignore_errors=True)
        beside.rename(target)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _run(folder: Path, *command: str) -> None:
    program = shutil.which(command[0])
    if program is None:
        raise CannotInstall(f"{command[0]} is missing: install node 20 or newer with npm")
    done = subprocess.run(
        [program, *command[1:]],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-6:]
        raise CannotInstall(f"{' '.join(command)} ended with {done.returncode}:\n  " + "\n  ".join(last))


def main(versions: Sequence[str]) -> int:
    failed = 0
    for version in versions or (*PINNED, SWEEPS_AT_ONCE, THROW_AWAY_IDS):
        try:
            print(f"{version}  {install(version)}", flush=True)
        except CannotInstall as why:
            print(f"{version}  {why}", file=sys.stderr, flush=True)
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
