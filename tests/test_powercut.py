"""The power is cut under keeper, on real ext4 and xfs: a sample of what `scripts/powercut.py` tries in full, and the
proof that it would see a loss."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from powercut import LACKS

from tests.conftest import Needs

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "powercut.py"
LINE = re.compile(
    r"power cuts.*: (?P<cuts>\d+) on (ext4|xfs), lost (?P<lost>\d+), doubled (?P<doubled>\d+), "
    r"out of order (?P<disordered>\d+), left behind (?P<left>\d+) .*"
)

pytestmark = pytest.mark.alone


def cut(needs: Needs, *args: str) -> tuple[int, dict[str, int], str]:
    """Run the script: its exit code, the counts of its line, what it said."""
    needs.root()
    for program in ("mkfs.ext4", "mkfs.xfs"):
        needs.command(program)
    done = subprocess.run([sys.executable, SCRIPT, *args], capture_output=True, text=True, check=False)
    if done.returncode == LACKS:
        needs.lacking("power cuts", "", unavoidable=done.stderr.strip().splitlines()[-1])
    line = LINE.fullmatch(done.stdout.strip())
    assert line is not None, done.stdout + done.stderr
    return done.returncode, {name: int(count) for name, count in line.groupdict().items()}, done.stderr


@pytest.mark.accepts("FAULT-3", "KEEP-2")
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_what_was_acknowledged_is_there_once_and_in_order_after_any_power_cut(needs: Needs, kind: str) -> None:
    code, counts, said = cut(needs, "--fs", kind, "--cuts", "40")
    assert counts == {"cuts": 40, "lost": 0, "doubled": 0, "disordered": 0, "left": 0}, said
    assert code == 0


@pytest.mark.accepts("FAULT-3")
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_without_its_syncs_such_cuts_lose_what_was_acknowledged(needs: Needs, kind: str) -> None:
    code, counts, said = cut(needs, "--fs", kind, "--cuts", "8", "--control")
    assert counts["lost"] > 0, said
    assert code == 1


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_ended_leaves_no_process_mount_or_device(needs: Needs, how: signal.Signals) -> None:
    needs.root()
    mark = f"{os.getpid()}{how:02d}"
    command = [sys.executable, SCRIPT, "--fs", "xfs", "--cuts", "500", "--seed", mark]
    # A shell that starts the tests behind itself has SIGINT ignored in all that they start.
    heard = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **heard) as run:
        assert run.stderr is not None
        said = run.stderr.readline()
        if "run 0" in said:
            run.send_signal(how)  # it has recorded, and is cutting
        run.communicate()
    if run.returncode == LACKS:
        needs.lacking("power cuts", "", unavoidable=said.strip())
    assert run.returncode in (-how, 128 + how)
    deadline = time.monotonic() + 30
    while _left(mark, run.pid) and time.monotonic() < deadline:
        time.sleep(0.02)  # a killed run's mounts are ended by the kernel, behind its back
    assert _left(mark, run.pid) == []


def _left(mark: str, pid: int) -> list[str]:
    """The processes of that run (they have its seed), its mounts, and its loop devices."""
    found = []
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if mark.encode() in command.read_bytes().split(b"\0"):
                found.append(str(command))
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        with suppress(OSError):
            found += [line for line in backing.read_text().splitlines() if f"/{pid}/" in line]
    return found + [line for line in Path("/proc/self/mounts").read_text().splitlines() if "keeper-powercut" in line]
