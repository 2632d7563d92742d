"""Every deed of keeper's is killed before each of its changes, and failed at them: scripts/faults.py on a sample of its
states, each of which another look at the oracle shows to tell what it must."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import fault_oracle
import faults
import pytest
from fault_grounds import Killed, Seam, Snapshot, Volumes, play, played, volumes
from fault_oracle import Thread
from fault_situations import SITUATIONS
from fault_states import DEEDS, LEFT, MODES, State, states
from fault_trial import Trial

from keeper import disk
from keeper.transcripts import mirror
from tests.build import jsonl, talk
from tests.conftest import Needs

STATES, PARTS = 228, 6
LEAST, POINTS = 200, 5000
"""So many states and kill points at least are tried in every run of the tests; in parts, which two processes share."""
SCRIPT = Path(faults.__file__)


@pytest.fixture(scope="module")
def where(needs: Needs) -> Iterator[Volumes]:
    with volumes() as places, played():
        if places.two is None:
            needs.lacking("a second volume", "give it a /dev/shm that is not where TMPDIR is")
        yield places


def part(number: int) -> list[State]:
    return list(faults.sample(STATES))[number::PARTS]


# ------------------------------------------------------------------ killed and failed


@pytest.mark.accepts("FAULT-1", "SWAP-3", "RESTORE-12")
@pytest.mark.parametrize("number", range(PARTS))
def test_killed_before_any_change_of_any_deed_nothing_is_lost_doubled_reordered_left_or_written_again(
    number: int, where: Volumes
) -> None:
    tally = faults.Tally()
    faults.run(iter(part(number)), where, tally, errors=0, seed=0)
    assert tally.clean, "\n".join([tally.closing, *tally.told[:5]])
    assert tally.states >= LEAST / PARTS
    assert tally.kills >= POINTS / PARTS


@pytest.mark.accepts("FAULT-1")
def test_the_sample_has_every_situation_mode_leftover_and_deed() -> None:
    chosen = list(faults.sample(STATES))
    assert len(set(chosen)) == STATES
    assert {state.situation for state in chosen} == set(SITUATIONS)
    assert {state.mode for state in chosen} == set(MODES)
    assert {state.left for state in chosen} == set(LEFT)
    assert {state.deed for state in chosen} == set(DEEDS)
    assert {state.companion for state in chosen} == {True, False}
    assert len(list(states())) == len(set(states()))


@pytest.mark.accepts("FAULT-4", "KEEP-17")
def test_failed_with_each_error_once_and_for_ever_it_says_file_and_cure_and_the_next_run_completes_all(
    where: Volumes,
) -> None:
    tally = faults.Tally()
    for number, state in enumerate(faults.sample(STATES)):
        if number % 3 == 0:
            faults.try_state(state, where, tally, every=7, errors=1, seed=number, kills=False)
    assert tally.clean, "\n".join([tally.closing, *tally.told[:5]])
    assert tally.errors > 300


# ------------------------------------------------------------------ the ground under it


def test_what_was_killed_changes_nothing_more_and_holds_nothing_open(tmp_path: Path) -> None:
    held: list[int] = []

    def run() -> None:
        held.append(disk.os.open(tmp_path, disk.os.O_RDONLY))
        disk.make_file(tmp_path / "begun.tmp")
        try:
            disk.unlink(tmp_path / "other")
        finally:
            disk.drop(tmp_path / "begun.tmp")

    assert not play(run, Seam(kill_at=1))
    assert (tmp_path / "begun.tmp").exists()
    with pytest.raises(OSError, match="Bad file descriptor"):
        disk.os.fstat(held[0])
    assert disk.hook is None
    assert not issubclass(Killed, Exception)


def test_a_state_that_is_put_back_has_its_bytes_times_links_and_inodes(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    one, two = root / "one", root / "folder" / "two"
    one.write_bytes(b"bytes")
    two.hardlink_to(one)
    before = one.stat()
    snapshot = Snapshot([root], Volumes(tmp_path, None).pools)
    two.unlink()
    two.parent.rmdir()
    one.write_bytes(b"others")
    one.chmod(0o400)
    (root / "more").mkdir()
    (root / "more" / "file").write_bytes(b"")
    snapshot.rewind()
    assert sorted(path.name for path in root.rglob("*")) == ["folder", "one", "two"]
    assert one.read_bytes() == b"bytes"
    assert one.samefile(two)
    after = one.stat()
    assert (after.st_ino, after.st_mode, after.st_mtime_ns) == (before.st_ino, before.st_mode, before.st_mtime_ns)


A, B, C, D = talk("abcd")


@pytest.mark.parametrize(
    "kept, told",
    [
        ((A, B, C, D), {}),
        ((A, B, D), {"lost": 1, "reordered": 0}),
        ((A, B, C, C, D), {"doubled": 1}),
        ((A, B, D, C), {"reordered": 2}),
        ((A, B, C, D, b"{}"), {"doubled": 1}),
    ],
    ids=["whole", "lost", "doubled", "reordered", "nobody wrote it"],
)
def test_the_oracle_tells_what_is_wrong_with_a_kept_file(
    kept: tuple[bytes, ...], told: dict[str, int], tmp_path: Path
) -> None:
    path = tmp_path / "kept.jsonl"
    path.write_bytes(jsonl(A, B, C, D))
    thread = Thread("main", path, [], wanted=dict.fromkeys([A, B, C, D]))
    thread.begin()
    path.write_bytes(jsonl(*kept))
    found = Counter(fault.kind for fault in fault_oracle.judge_kept(thread, tmp_path / "aside"))
    assert found == Counter(told) + Counter()


@pytest.mark.parametrize(
    "live, restored, owed",
    [
        ((), False, False),
        ((), True, True),
        ((C, D), False, True),
        ((A, B), False, False),
        ((A, B), True, True),
        ((A, B, *talk("x", parent="b")), True, False),
        ((b'{"type":"mode"}',), False, True),
    ],
    ids=["empty, kept", "empty", "hangs", "behind, kept", "behind", "diverged", "stub"],
)
def test_the_oracle_knows_what_is_owed_to_a_live_file(live: tuple[bytes, ...], restored: bool, owed: bool) -> None:
    thread = Thread("main", Path("/nowhere"), [], wanted=dict.fromkeys([A, B, C, D]), kept_before=[A, B, C, D])
    assert fault_oracle.owes_all(thread, live, restored) is owed


def test_a_kept_line_that_a_deed_loses_is_found(where: Volumes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole programme, on a keeper that does not look for what a killed run held."""
    state = State("partial", "link", False, "nothing", "keep")
    trial = Trial(state, where)
    assert not any(trial.kill(number) for number in range(trial.calls()))
    monkeypatch.setattr(mirror, "leftovers", lambda folder: {})
    trial.rewind(0)
    assert any(trial.kill(number) for number in range(trial.calls()))
    trial.close()


def test_the_script_prints_one_closing_line(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, SCRIPT, "--states=0", "--jobs=1", "--only", "same · link · alone · left: nothing · keep"],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout.count("\n")) == (0, 1), ran.stderr
    assert "over 1 states" in ran.stdout
    assert "0 lost, 0 doubled, 0 reordered, 0 left behind, 0 writes by a second run" in ran.stdout
