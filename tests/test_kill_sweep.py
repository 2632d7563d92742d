"""The real command is killed at its system calls, or after any delay (scripts/kill_sweep.py), and run again."""

import re
import subprocess
import sys
from pathlib import Path

import kill_sweep
import pytest
from kill_states import STATES, known
from places import Places

from tests.build import append
from tests.conftest import Needs
from tests.seam import World

CLOSING = re.compile(
    r"kill_sweep: (\d+) points, 0 lost, 0 doubled, 0 left behind, 0 second runs that wrote, 0 not proven, "
    r"0 runs that failed\n"
)


def swept(disk: Path, second: Path, *options: str) -> int:
    """The points of a sweep that lost nothing."""
    done = subprocess.run(
        [sys.executable, kill_sweep.__file__, "--seed", "1", "--dir", disk, "--second", second, *options],
        capture_output=True,
        text=True,
        check=False,
    )
    found = CLOSING.fullmatch(done.stdout)
    assert found is not None, done.stdout + done.stderr
    assert done.returncode == 0, done.stderr
    return int(found[1])


@pytest.mark.alone
@pytest.mark.accepts("FAULT-2", "SWAP-3")
def test_a_run_killed_at_a_system_call_is_finished_by_the_next_one(
    needs: Needs, tmp_path: Path, second_volume: Path
) -> None:
    needs.strace()
    assert swept(tmp_path, second_volume, "--points", "60") >= 50


@pytest.mark.alone
@pytest.mark.accepts("SWAP-3")
def test_a_run_killed_after_any_delay_is_finished_by_the_next_one(tmp_path: Path, second_volume: Path) -> None:
    assert swept(tmp_path, second_volume, "--delay", "--points", "12") >= 6


GROWN = next(one for one in kill_sweep.SCENARIOS if one.state.name == "grown" and not one.copy)


@pytest.fixture
def grown(tmp_path: Path) -> tuple[World, dict[str, set[bytes]]]:
    """A chat in the state `grown`, kept since, and the lines that were known before."""
    here = Places(tmp_path / "disk", tmp_path / "second")
    world, lines, _ = kill_sweep.prepared(GROWN, here)
    world.keep()
    return world, lines


def test_the_sweep_finds_nothing_wrong_where_nothing_is(grown: tuple[World, dict[str, set[bytes]]]) -> None:
    world, lines = grown
    assert kill_sweep.judged(GROWN, world, lines, set())[:2] == (0, 0)


def test_the_sweep_counts_a_record_that_is_lost(grown: tuple[World, dict[str, set[bytes]]]) -> None:
    world, lines = grown
    world.kept.write_bytes(b"".join(world.kept.read_bytes().splitlines(keepends=True)[:-2]))
    assert kill_sweep.judged(GROWN, world, lines, set())[:2] == (2, 0)


def test_the_sweep_counts_a_record_that_is_doubled(grown: tuple[World, dict[str, set[bytes]]]) -> None:
    world, lines = grown
    append(world.kept, world.kept.read_bytes().splitlines(keepends=True)[2])
    assert kill_sweep.judged(GROWN, world, lines, set())[:2] == (0, 1)


def test_the_sweep_counts_a_fragment_that_is_nowhere(grown: tuple[World, dict[str, set[bytes]]]) -> None:
    world, lines = grown
    assert kill_sweep.judged(GROWN, world, lines, {b"half a line"})[:2] == (1, 0)


def test_what_is_known_is_read_from_live_and_vault_alike(grown: tuple[World, dict[str, set[bytes]]]) -> None:
    world, lines = grown
    world.live.unlink()
    assert known(world)[0] == lines


def test_every_start_state_has_a_name_of_its_own() -> None:
    assert len({state.name for state in STATES}) == len(STATES)
