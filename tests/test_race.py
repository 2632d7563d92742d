"""Writers race against `keeper keep` (scripts/race.py): nothing is lost, doubled, or out of one writer's order."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from race_bout import ROOT, Bout, Writer, count

from tests.build import CWD, jsonl, prompt

RACE = Path(__file__).resolve().parent.parent / "scripts" / "race.py"
CLOSING = re.compile(
    r"race: ([\d,]+) lines, ([\d,]+) swaps, ([\d,]+) deletions, ([\d,]+) crashes, "
    r"0 lost, 0 doubled, 0 out of order, 0 left behind\n"
)


def race(disk: Path, second: Path, *options: str) -> list[int]:
    """The lines, swaps, deletions and crashes of a race that lost nothing."""
    done = subprocess.run(
        [sys.executable, RACE, "--seed", "1", "--dir", disk, "--second", second, *options],
        capture_output=True,
        text=True,
        check=False,
    )
    found = CLOSING.fullmatch(done.stdout)
    assert found is not None, done.stdout + done.stderr
    assert done.returncode == 0, done.stderr
    return [int(figure.replace(",", "")) for figure in found.groups()]


@pytest.mark.alone
@pytest.mark.accepts("SWAP-5")
def test_swaps_and_deletions_under_writers_of_both_kinds_lose_double_and_misplace_no_line(
    tmp_path: Path, second_volume: Path
) -> None:
    lines, swaps, deletions, _ = race(tmp_path, second_volume, "--bouts", "12", "--lines", "0", "--seconds", "0.6")
    assert lines > 20_000
    assert swaps > 20
    assert deletions > 20


@pytest.mark.alone
@pytest.mark.accepts("SWAP-6")
def test_deletions_between_any_two_steps_and_kills_there_lose_nothing_that_a_linked_inode_held(
    tmp_path: Path, second_volume: Path
) -> None:
    options = ("--bouts", "12", "--lines", "0", "--seconds", "0.6", "--crashes", "40")
    lines, _, deletions, crashes = race(tmp_path, second_volume, *options)
    assert lines > 20_000
    assert deletions > 20
    assert crashes >= 40


def line(writer: int, number: int) -> bytes:
    return prompt(f"{writer}-{number}", None, cwd=CWD, requestId=f"w{writer}.{number}")


TWO = Bout("", copy=False, writers=(Writer(2, 0), Writer(2, 0)))
WHOLE = [line(0, 0), line(1, 0), line(0, 1), line(1, 1)]


@pytest.mark.parametrize(
    ("lines", "lost", "doubled", "disordered"),
    [
        pytest.param(WHOLE, 0, 0, 0, id="whole"),
        pytest.param(WHOLE[:3], 1, 0, 0, id="lost"),
        pytest.param([*WHOLE, WHOLE[3]], 0, 1, 0, id="doubled"),
        pytest.param(WHOLE[::-1], 0, 0, 2, id="out of order"),
        pytest.param([*WHOLE, WHOLE[0] + WHOLE[1]], 1, 0, 0, id="glued"),
    ],
)
def test_the_race_counts_what_it_says_it_counts(lines: list[bytes], lost: int, doubled: int, disordered: int) -> None:
    kept = jsonl(prompt(ROOT, None), *lines)
    assert count(TWO, kept)[:3] == (lost, doubled, disordered)
