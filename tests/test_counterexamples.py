"""What the fault programme found once and no test of its own holds: each is played again, step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import faults
import pytest
from fault_grounds import Volumes, played, volumes
from fault_oracle import lines_of
from fault_states import State
from model_keeper import Model

from keeper.errors import Partial
from tests.conftest import Needs
from tests.seam import names_of_ours


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


BACK = State("waiting", "no exchange", False, "most of a keep", "profile pass")
"""A swap that lets live step aside is killed before the name is back: the next pass puts it back."""


@pytest.mark.accepts("KEEP-5")
def test_the_pass_that_puts_a_live_name_back_tells_its_row_as_of_one_that_lives(where: Volumes) -> None:
    tally = faults.Tally()
    faults.try_state(BACK, where, tally)
    assert tally.clean, "\n".join([tally.closing, *tally.told[:5]])
    assert tally.kills


ROTTEN = State("overwritten", "no exchange", False, "nothing", "--at in place")
"""Bytes of a line rotted: the file goes aside, and kept, live and seal have the line as it was before."""


def test_a_rotten_line_is_sought_aside_where_one_content_becomes_the_truth(where: Volumes) -> None:
    tally = faults.Tally()
    faults.try_state(ROTTEN, where, tally, every=20)
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


def emptied_after_a_killed_first_keep(state: Model) -> None:
    """A keep of that one session gives what the killed one kept to it, and tidies up behind it, as a pass does."""
    state.crash(k=4, number=0, which="keep")
    assert names_of_ours(state.here.root) == [f"chats/{state.scripts[0].session}/.chat.json.tmp"]
    state.truncate_in_place(at=0, number=0)
    state.keep(again=True, number=0)
    assert state.answers
    state.judge_left(state.here.root)


def another_conversation_after_a_killed_first_keep(state: Model) -> None:
    """Whose the kept lines are nothing tells, of two profiles: they stay untold, and what was begun goes."""
    state.crash(k=10, number=0, which="keep all")
    assert names_of_ours(state.here.root)
    state.recreate(how="root", number=0)
    state.keep_all(again=True)
    state.accept(number=0)


def emptied_beside_what_a_killed_first_keep_left(state: Model) -> None:
    """An empty live file goes on with the chat that its profile has, not with the one that nothing tells of."""
    state.failure(code=28, forever=False, k=2, number=0, which="keep")
    state.recreate(how="root", number=0)
    state.accept(number=0)
    state.empty(number=0, torn=False)
    state.accept(number=0)


def stubbed_and_emptied_beside_a_killed_first_keep(state: Model) -> None:
    """The same where kept is a copy, and was rewritten in place."""
    state.crash(k=8, number=0, which="keep")
    state.stub_in_place(number=0)
    state.nul_run(number=0)
    state.accept(number=0)
    state.empty(number=0, torn=False)
    state.accept(number=0)


def gone_after_a_killed_first_keep(state: Model) -> None:
    """So does a restore, of what the killed one had kept."""
    state.crash(k=4, number=0, which="keep")
    state.unlink(number=0)
    state.restore(number=0, full=False)
    state.judge_left(state.here.root)


def emptied_beside_its_second_link_and_written_on(state: Model) -> None:
    """Split: what follows hangs on what the file has no more, so it is no tail that is taken unseen."""
    state.accept(number=0)
    for at in (420, 0):
        state.truncate_in_place(at=at, number=0)
        state.keep_all(again=False)
    state.nul_run(number=0)
    state.keep_all(again=True)


def gone_before_all_was_sealed(state: Model) -> None:
    """The pass that seals it has its row tell so, and the next one writes nothing, whoever looks at it again."""
    state.crash(k=7, number=0, which="keep")
    state.unlink(number=0)
    state.keep_all(again=True)
    state.crash(k=0, number=0, which="restore")
    state.keep_all(again=True)


def gone_while_its_facts_were_written(state: Model) -> None:
    """The session is in no profile any more, and its chat has a `chat.json` that is not the one that was begun."""
    state.keep_all(again=False)
    state.move(number=0)
    state.crash(k=2, number=0, which="keep")
    assert names_of_ours(state.here.root)
    state.unlink(number=0)
    state.keep_all(again=True)


def a_copied_profile_beside_a_failed_first_keep(state: Model) -> None:
    """What it left is the one profile's live file itself, and has records in common with the other's."""
    state.second_profile(number=3)
    state.failure(code=28, forever=False, k=3, number=0, which="keep all")
    state.accept(number=0)


def a_restore_whose_keep_failed_with_a_subagent(state: Model) -> None:
    """What it could not keep it could not mend: it says so, and is not done."""
    state.keep(again=False, number=0)
    state.subagent(number=0, old=False)
    state.torn_append(at=1, number=1)
    state.failure(code=28, forever=False, k=0, number=0, which="restore")
    assert state.answers[0].exit_code == Partial.exit_code
    state.restore(number=0, full=False)


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
    "emptied after a killed first keep": ("link", emptied_after_a_killed_first_keep),
    "another conversation after a killed first keep": ("copy", another_conversation_after_a_killed_first_keep),
    "emptied beside what a killed first keep left": ("link", emptied_beside_what_a_killed_first_keep_left),
    "stubbed and emptied beside a killed first keep": ("copy", stubbed_and_emptied_beside_a_killed_first_keep),
    "gone after a killed first keep": ("link", gone_after_a_killed_first_keep),
    "emptied beside its second link and written on": ("link", emptied_beside_its_second_link_and_written_on),
    "gone before all was sealed": ("link", gone_before_all_was_sealed),
    "gone while its facts were written": ("link", gone_while_its_facts_were_written),
    "a copied profile beside a failed first keep": ("link", a_copied_profile_beside_a_failed_first_keep),
    "a restore whose keep failed with a subagent": ("copy", a_restore_whose_keep_failed_with_a_subagent),
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
