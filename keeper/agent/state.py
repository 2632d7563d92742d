"""State: what the agent says of itself: who runs, since when, and what it cannot rely on.

It promises that a file left by an agent that is gone is not taken for one that runs: the lock tells. It refuses to
hide a trouble: degraded names each, with its reason and since when.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from keeper import disk, files
from keeper.errors import Locked

FILE = "agent.json"
LOCK = "agent.lock"


@dataclass(frozen=True, slots=True)
class Who:
    """Which process runs. `started` is the kernel's start time of the process, which tells it from another of its
    number; `since` unix seconds."""

    host: str
    boot: str
    pid: int
    started: str
    since: float


def who(now: float) -> Who:
    """This process."""
    pid = os.getpid()
    return Who(os.uname().nodename, boot_id(), pid, start_of(pid), now)


def boot_id() -> str:
    """The kernel's name for this boot, "" where it tells none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def start_of(pid: int) -> str:
    """When a process started, in the kernel's ticks; "" where there is none of that number."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return ""


def write(vault: Path, told: dict[str, Any]) -> None:
    """Put the state down for whoever reads files."""
    disk.write_file(vault / FILE, json.dumps(told).encode(), sync=False)


def read(vault: Path) -> dict[str, Any]:
    """What the last agent of this vault said; {} where none did."""
    try:
        told = orjson.loads(files.read(vault / FILE))
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}


def another(vault: Path) -> Locked:
    """The failure of one that is to run beside an agent of the same vault."""
    told = read(vault).get("who", {})
    who = f"process {told.get('pid')} on {told.get('host')}" if told else "another process"
    return Locked(f"an agent of the vault {vault} runs already: {who}", "`keeper status` says how it is")


def stopped(vault: Path) -> dict[str, Any]:
    """The status where no agent answers: who ran last, as far as it is told."""
    last = read(vault).get("who") or {}
    return {"running": False, "pid": None, "since": None, "degraded": None, "last": last or None}
