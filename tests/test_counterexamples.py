"""What the fault programme found once and no test of its own holds: each is played again, step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import faults
import pytest
from fault_grounds import Volumes, played, volumes
from fault_oracle import lines_of
from fault_states import State
from model_keeper import Model

from tests.conftest import Needs


@pytest.fixture(scope="module")
def where(needs: Needs) -> Iterator[Volumes]:
    with volumes() as places, played():
        if places.two is None:
            needs.lacking("a second volume", "give it a /dev/shm that is not where TMPDIR is")
        yield places


STATES = (
    State("overwritten", "no exchange", False, "half a keep", "keep"),
    State("overwritten", "link", False, "half a keep", "--repaired"),
)
"""Damage in place, a keep that was killed in the middle of its fold, and then a kill of the next run, too."""


@pytest.mark.accepts("FAULT-1", "SEAL-1")
@pytest.mark.parametrize("state", STATES, ids=str)
def test_damage_and_two_kills_double_no_line(state: State, where: Volumes) -> None:
    tally = faults.Tally()
    faults.try_state(state, where, tally)
    assert tally.clean, "\n".join([tally.closing, *tally.told[:5]])
    assert tally.kills


def late_lines_on_an_old_file(state: Model) -> None:
    """Kept is a copy here, and was never live: its birth says nothing of the order."""
    state.stub_in_place(number=0)
    state.accept(number=0)
    state.hold(number=0)
    state.stub_in_place(number=0)
    state.accept(number=0)
    state.write_held(number=0)
    state.accept(number=0)
    lines = lines_of(state.scripts[0].kept)
    assert len(lines) == len(set(lines))


def a_subagent_alone_that_has_other_lines(state: Model) -> None:
    """Its session is gone from the profile: it is looked at once a pass, not twice with two answers."""
    state.subagent(number=0, old=True)
    state.accept(number=0)
    state.unlink(number=0)
    state.recreate(how="trimmed", number=1)
    state.keep_all(again=True)


def recreated_after_a_killed_first_keep(state: Model) -> None:
    """Nothing tells whose the kept lines are; what is live hangs on them."""
    state.crash(k=8, number=0, which="keep")
    state.recreate(how="tail", number=0)
    state.keep_all(again=True)


def untold_lines_beside_two_profiles(state: Model) -> None:
    """What a killed first keep left is given to no profile that has another conversation under its id."""
    state.crash(k=8, number=0, which="keep")
    for _ in range(3):
        state.glue(number=0)
    state.second_profile(number=0)
    state.stub_in_place(number=0)
    state.crash(k=23, number=0, which="keep")
    state.failure(code=28, forever=False, k=26, number=0, which="keep all")


def cut_short_by_a_few_bytes_and_written_on(state: Model) -> None:
    """What is new differs from what was sealed by no more bytes than rot would."""
    state.crash(k=0, number=0, which="keep")
    state.accept(number=0)
    for at in (419, 585):
        state.truncate_in_place(at=at, number=0)
        state.header(number=0)
        state.accept(number=0)


def pruned_and_written_on_and_made_anew(state: Model) -> None:
    """Split: kept was never live, and is younger than what stands behind its second link."""
    state.accept(number=0)
    state.recreate(how="pruned", number=0)
    state.header(number=0)
    state.keep(again=False, number=0)
    state.glue(number=0)
    state.empty(number=0, torn=False)
    state.accept(number=0)


def put_back_where_it_was_and_written_where_it_is(state: Model) -> None:
    """Moved unseen, gone, put back by a restore that failed: two live files, and neither is touched."""
    state.accept(number=0)
    state.move(number=0)
    state.unlink(number=0)
    state.failure(code=28, forever=False, k=2, number=0, which="restore")
    state.append(number=0, turns=1)
    state.accept(number=0)
    assert state.scripts[0].others
    state.restore(number=0, full=True)
    state.unlink(number=0)
    state.restore(number=0, full=False)
    assert not state.scripts[0].others


PROGRAMS: dict[str, tuple[str, Callable[[Model], None]]] = {
    "late lines on an old file": ("no links", late_lines_on_an_old_file),
    "recreated after a killed first keep": ("no links", recreated_after_a_killed_first_keep),
    "untold lines beside two profiles": ("copy", untold_lines_beside_two_profiles),
    "cut short by a few bytes and written on": ("link", cut_short_by_a_few_bytes_and_written_on),
    "pruned and written on and made anew": ("no exchange", pruned_and_written_on_and_made_anew),
    "put back where it was and written where it is": ("link", put_back_where_it_was_and_written_where_it_is),
    "a subagent alone that has other lines": ("no exchange", a_subagent_alone_that_has_other_lines),
}


@pytest.mark.accepts("FAULT-5")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_that_once_failed_loses_and_doubles_nothing(name: str, where: Volumes) -> None:
    mode, play = PROGRAMS[name]
    state = type("Model", (Model,), {"mode": mode, "where": where})()
    try:
        state.begin()
        play(state)
    finally:
        state.teardown()
