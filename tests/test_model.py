"""Claude, keeper, a sweep, kills and failures act in any order, and nothing is lost: 500 examples of scripts/model.py;
and the model's oracle tells a loss where there is one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import model
import model_oracle
import pytest
from fault_grounds import Volumes, played, volumes
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from model_claude import Script
from model_keeper import Model

from tests.build import jsonl, talk
from tests.conftest import Needs

EXAMPLES = {"link": 200, "copy": 100, "no links": 100, "no exchange": 100}
A, B, C, D = talk("abcd")


@pytest.fixture(scope="module")
def where(needs: Needs) -> Iterator[Volumes]:
    with volumes() as places, played():
        if places.two is None:
            needs.lacking("a second volume", "give it a /dev/shm that is not where TMPDIR is")
        yield places


@pytest.mark.accepts("FAULT-5")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", EXAMPLES)
def test_whatever_comes_in_whatever_order_nothing_is_lost_doubled_reordered_or_left(mode: str, where: Volumes) -> None:
    machine = type("Model", (Model,), {"mode": mode, "where": where})
    # The same examples on every run, so that a red run stays red.
    how = settings(
        max_examples=EXAMPLES[mode], stateful_step_count=model.STEPS, derandomize=True, database=None, deadline=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    run_state_machine_as_test(machine, settings=how)


@pytest.mark.accepts("FAULT-5")
def test_the_examples_are_five_hundred() -> None:
    assert sum(EXAMPLES.values()) == 500
    assert set(EXAMPLES) == set(model.MODES)


@pytest.mark.accepts("FAULT-6")
def test_joining_what_was_split_gives_the_same_bytes_for_whatever_bytes() -> None:
    assert model.join_split(40_000, 1) == 0


# ------------------------------------------------------------------ the oracle


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """A session of two turns, kept whole and live whole."""
    (tmp_path / "projects" / "-srv").mkdir(parents=True)
    found = Script("session", "s", tmp_path / "projects" / "-srv" / "live.jsonl", tmp_path, "kept.jsonl", gone=False)
    for path in (found.live, found.kept):
        path.write_bytes(jsonl(A, B, C, D))
    found.written.update([A, B, C, D])
    found.acked = dict.fromkeys([A, B, C, D])
    found.begin()
    return found


@pytest.mark.parametrize(
    "lines, told",
    [
        ([A, B, C, D], []),
        ([A, B, C], ["lost"]),
        ([A, B, C, D, D], ["doubled"]),
        ([A, C, B, D], ["reordered", "reordered"]),
        ([A, B, C, D, b"{}"], ["doubled"]),
    ],
    ids=["whole", "lost", "doubled", "reordered", "nobody wrote it"],
)
def test_what_kept_must_have_is_told(script: Script, lines: list[bytes], told: list[str]) -> None:
    script.kept.write_bytes(jsonl(*lines))
    assert [words.partition(":")[0] for words in model_oracle.kept(script)] == told


def test_a_live_file_that_hangs_after_a_restore_is_a_loss(script: Script) -> None:
    script.live.write_bytes(jsonl(C, D))
    script.begin()
    assert any("hangs on b" in words for words in model_oracle.live(script, True, False))


def test_a_live_file_that_is_gone_and_that_nobody_deleted_is_a_loss(script: Script) -> None:
    script.live.unlink()
    assert list(model_oracle.live(script, False, False)) == ["lost: session: its live file has no name"]
    script.gone = True
    assert list(model_oracle.live(script, False, False)) == []
    assert list(model_oracle.live(script, True, False)) == ["lost: session: its live file has no name"]


def test_a_live_file_that_ends_in_a_torn_line_after_a_restore_is_told(script: Script) -> None:
    script.live.write_bytes(jsonl(A, B, C, D) + b'{"torn')
    script.begin()
    assert list(model_oracle.live(script, True, False)) == ["lost: session: live ends in an unfinished line"]


def test_a_keeper_that_loses_a_line_is_found(where: Volumes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine itself, one program of it, on a keeper that takes a tail for the whole."""
    from keeper.transcripts import look

    machine = type("Model", (Model,), {"mode": "link", "where": where})
    for breaks in (False, True):
        if breaks:
            monkeypatch.setattr(look.Look, "fold", lambda self, *_: self._adopt(()))
            monkeypatch.setattr(look.Look, "_adopt", adopts_the_tail)
        state = machine()
        state.begin()
        state.keep_all(again=True)
        state.recreate(number=0, how="tail")
        try:
            if breaks:
                with pytest.raises(AssertionError, match="lost: session 1"):
                    state.keep_all(again=False)
            else:
                state.keep_all(again=False)
        finally:
            state.teardown()


def adopts_the_tail(self: object, torn: tuple[bytes, ...]) -> object:
    from keeper import disk

    look = self
    disk.replace(look.pinned.path, look.pair.kept)  # type: ignore[attr-defined]
    look.pinned.path = look.pair.kept  # type: ignore[attr-defined]
    return look._end("relinked", look.pinned.data, look.held)  # type: ignore[attr-defined]


def test_the_script_prints_one_closing_line(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, model.__file__, "--examples", "3", "--strings", "1000", "--jobs", "1"],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == (
        "model: 3 examples of up to 30 steps, 0 counter-examples; 1,000 byte strings split and joined, 0 not the same\n"
    )
