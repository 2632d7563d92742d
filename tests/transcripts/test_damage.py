"""Live files that are cut short or written over in place, where a hard link shares the fate: all that was sealed comes
back, and what the live file has of its own is kept with it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from keeper.transcripts import seal
from keeper.transcripts.keep import Keeper
from keeper.transcripts.mass import restore_all
from keeper.transcripts.merge import merge
from keeper.transcripts.restore import Restorer, Want
from tests import build
from tests.build import CWD, append, jsonl, meta, prompt, real_kept, real_live, talk, write_live
from tests.chat import put
from tests.damage import cut_lines, flip, overwrite, seal_of, take_out, write_over
from tests.seam import Deed, World, before, hooked, in_child, lines_of, names_of_ours, state_of, twice_or_missing, world

SEALED = [*talk("abcdef"), meta("last-prompt", leafUuid="f")]
NEWEST = talk("gh", parent="f")
NEW = talk("wxyz", parent="b")
ROOT = talk(["r1", "r2"])
SIDE = talk(["s1", "s2", "s3", "s4"])
MODES = ["link", "copy", "split"]


@pytest.fixture
def here(profile: Path, vault_home: Path, tmp_path: Path) -> World:
    return world(profile, vault_home, tmp_path / "state")


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def moded(mode: str, profile: Path, vault_home: Path, tmp_path: Path, request: pytest.FixtureRequest) -> World:
    """A world whose vault stands on another volume where the mode is `copy`."""
    root = request.getfixturevalue("second_volume") / "vault" if mode == "copy" else vault_home
    return world(profile, root, tmp_path / "state")


def sealed(here: World, mode: str) -> list[bytes]:
    """A session that is kept and sealed in that mode; answers what is sealed. The live file has `SEALED`."""
    if mode == "split":
        write_live(here.profile, CWD, here.session, jsonl(*SEALED, *NEWEST))
        here.keep()
    write_live(here.profile, CWD, here.session, jsonl(*SEALED))
    answer = here.keep()
    assert answer.mode == mode
    wanted = SEALED + (NEWEST if mode == "split" else [])
    assert bytes(seal.read(str(seal_of(here))).content) == jsonl(*wanted)
    return wanted


# ------------------------------------------------------------------ the transcript


def cut(live: Path) -> list[bytes]:
    cut_lines(live, 3)
    return []


def cut_within_a_line(live: Path) -> list[bytes]:
    os.truncate(live, len(jsonl(*SEALED[:3])) + 40)
    return []


def emptied(live: Path) -> list[bytes]:
    os.truncate(live, 0)
    return []


def cut_and_gone_on(live: Path) -> list[bytes]:
    cut_lines(live, 2)
    append(live, jsonl(*NEW))
    return NEW


def cut_and_grown_past_its_old_size(live: Path) -> list[bytes]:
    cut_lines(live, 2)
    long = [prompt("long", "b", "x" * 4096), *talk("yz", parent="long")]
    append(live, jsonl(*long))
    return long


def written_over_by_another(live: Path) -> list[bytes]:
    write_over(live, jsonl(*ROOT))
    return ROOT


def written_over_by_a_longer_one(live: Path) -> list[bytes]:
    long = [*ROOT, prompt("long", "r2", "x" * 4096)]
    write_over(live, jsonl(*long))
    return long


def overwritten_at_its_end(live: Path) -> list[bytes]:
    overwrite(live, live.stat().st_size - 900, b"\0" * 700)
    return []


def cut_to_a_hole(live: Path) -> list[bytes]:
    """Truncated to nothing and to its old size again: NULs."""
    size = live.stat().st_size
    os.truncate(live, 0)
    os.truncate(live, size)
    return []


def prompt_taken_out(live: Path) -> list[bytes]:
    take_out(live, SEALED[2])
    return []


Damage = Callable[[Path], list[bytes]]
DAMAGES: list[Damage] = [
    cut, cut_within_a_line, emptied, cut_and_gone_on, cut_and_grown_past_its_old_size, written_over_by_another,
    written_over_by_a_longer_one, overwritten_at_its_end, cut_to_a_hole, prompt_taken_out,
]  # fmt: skip
damages = pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)


def everything_stands(here: World, wanted: list[bytes], new: list[bytes], where: Path) -> None:
    """Each record once, in order. A line without uuid may stand again behind damage: it is told by its place alone."""
    found = lines_of(where)
    records = [line for line in [*wanted, *new] if b'"uuid":"' in line]
    assert twice_or_missing(where, records) == {}
    assert set(wanted) <= set(found)
    assert [line for line in found if line in wanted and line in records] == [one for one in wanted if one in records]
    assert names_of_ours(here.profile, here.root) == []


@pytest.mark.accepts("SEAL-1", "KEEP-6")
@damages
def test_what_was_sealed_is_kept_with_the_live_files_new_records_and_a_full_restore_gives_all(
    moded: World, mode: str, damage: Damage
) -> None:
    wanted = sealed(moded, mode)
    new = damage(moded.live)
    left = lines_of(moded.live)
    moded.keep()
    everything_stands(moded, wanted, new, moded.kept)
    assert set(left) <= set(lines_of(moded.kept)), "a line of the live file was not taken"
    assert bytes(seal.read(str(seal_of(moded))).content) == moded.kept.read_bytes(), "not sealed as it is kept"
    found = state_of(moded.profile, moded.root)
    moded.keep()
    assert state_of(moded.profile, moded.root) == found, "a second keep of the same files changed something"

    moded.restore(full=True)
    everything_stands(moded, wanted, new, moded.live)
    assert moded.live.read_bytes() == moded.kept.read_bytes()


@pytest.mark.accepts("SEAL-1", "SEAL-7")
@damages
def test_the_first_keep_after_it_says_so_and_leaves_a_live_file_that_it_does_not_fold_as_it_is(
    here: World, damage: Damage
) -> None:
    wanted = sealed(here, "link")
    damage(here.live)
    before = state_of(here.live)
    gone = [line for line in wanted if line not in lines_of(here.live)]
    answer = here.keep()
    assert answer.warnings[0].startswith(f"{len(gone)} records were cut or rewritten in place")
    if answer.action == "folded":
        assert here.kept.samefile(here.live)
    else:
        assert state_of(here.live) == before
        assert not here.kept.samefile(here.live)
    (row,) = here.vault().rows()
    facts = here.vault().facts(here.vault().chat(here.session))
    assert facts is not None
    assert facts.sessions[here.session].lost == len(gone)
    assert abs(facts.sessions[here.session].damaged - time.time()) < 60
    assert row.state == ("" if answer.action == "folded" else "damaged")


@pytest.mark.accepts("SEAL-7")
def test_it_stays_so_whatever_becomes_of_the_live_file_until_a_restore_folds_it_back(here: World) -> None:
    sealed(here, "link")
    cut(here.live)
    here.keep()
    for left in (SEALED[:2], [*SEALED[:2], *NEW], SEALED[:4]):
        write_live(here.profile, CWD, here.session, jsonl(*left))
        here.keep()
        here.keep()
        (row,) = here.vault().rows()
        assert row.state == "damaged"
    here.restore(full=True)
    (row,) = here.vault().rows()
    assert row.state == ""


def restored_one_by_one(here: World) -> None:
    here.restore(full=True)


def restored_with_all(here: World) -> None:
    vault = here.vault()
    try:
        (answer,) = restore_all(Restorer(vault, time.time_ns(), Want(full=True)), vault.rows())
        assert answer.error is None
    finally:
        vault.index.close()


@pytest.mark.accepts("SEAL-1", "RESTORE-3", "RESTORE-11")
@pytest.mark.parametrize("restore", [restored_one_by_one, restored_with_all])
@pytest.mark.parametrize("swept", [False, True], ids=["still there", "swept since"])
@damages
def test_a_restore_is_the_first_to_see_it(
    here: World, damage: Damage, swept: bool, restore: Callable[[World], None]
) -> None:
    wanted = sealed(here, "link")
    new = damage(here.live)
    if swept:
        here.live.unlink()
    restore(here)
    everything_stands(here, wanted, new, here.live)
    everything_stands(here, wanted, new, here.kept)


@pytest.mark.accepts("SEAL-1")
@damages
def test_a_pass_over_the_profile_is_the_first_to_see_it(moded: World, mode: str, damage: Damage) -> None:
    wanted = sealed(moded, mode)
    new = damage(moded.live)
    moded.keep_all()
    everything_stands(moded, wanted, new, moded.kept)


@pytest.mark.accepts("SEAL-1")
@damages
def test_claude_goes_on_and_all_of_it_stays_kept_until_the_fold(moded: World, mode: str, damage: Damage) -> None:
    wanted = sealed(moded, mode)
    new = damage(moded.live)
    moded.keep()
    last = new[-1] if new else SEALED[5]
    more = talk(["m1", "m2"], parent="f" if last is SEALED[5] else "r2" if last in ROOT else "z")
    for record in more:
        if moded.live.read_bytes()[-1:] not in (b"\n", b""):
            append(moded.live, b"\n")
        append(moded.live, jsonl(record))
        moded.keep()
    everything_stands(moded, wanted, [*new, *more], moded.kept)
    cut_lines(moded.live, 1)
    moded.keep()
    moded.restore(full=True)
    everything_stands(moded, wanted, [*new, *more], moded.live)


@pytest.mark.accepts("SEAL-1")
def test_records_that_were_never_sealed_are_taken_from_what_the_damage_left(here: World) -> None:
    """Claude wrote on through the link, then the head was written over: what no keep saw is in the live file alone."""
    wanted = sealed(here, "link")
    append(here.live, jsonl(*NEWEST))
    overwrite(here.live, 0, b" " * 600)
    here.keep()
    everything_stands(here, wanted, NEWEST, here.kept)


@pytest.mark.accepts("SEAL-1", "SEAL-2")
@pytest.mark.parametrize("at", [-200, -1], ids=["in a record", "where the last line ends"])
def test_a_byte_that_rots_is_no_version_of_a_record_and_is_healed_in_the_live_file_too(here: World, at: int) -> None:
    wanted = sealed(here, "link")
    flip(here.live, here.live.stat().st_size + at, 0)
    rotten = here.live.read_bytes()
    append(here.live, jsonl(*talk("yz", parent="x")))
    answer = here.keep()
    assert (answer.action, names_of_ours(here.profile, here.root)) == ("folded", [])
    assert here.live.read_bytes() == here.kept.read_bytes() == jsonl(*wanted, *talk("yz", parent="x"))
    assert [one.read_bytes()[: len(rotten)] for one in (here.chat / "aside").iterdir()] == [rotten]


def killed_before(name: str, run: Deed) -> bool:
    """Whether the run was killed before its first change of that name."""

    def hook(call: str, _: tuple[str, ...]) -> None:
        if call == name:
            os.kill(os.getpid(), signal.SIGKILL)

    def watched() -> None:
        with hooked(hook):
            run()

    return in_child(watched) == -signal.SIGKILL


@pytest.mark.accepts("SEAL-1", "SWAP-3")
def test_rot_in_a_file_that_a_killed_keep_held_and_that_is_swept_since_is_read_over_too(here: World) -> None:
    wanted = sealed(here, "link")
    flip(here.live, here.live.stat().st_size // 2, 0)
    append(here.live, jsonl(*talk("yz", parent="x")))
    assert killed_before("exchange", here.keep)
    here.live.unlink()
    here.keep()
    assert here.kept.read_bytes() == jsonl(*wanted, *talk("yz", parent="x"))


@pytest.mark.accepts("SEAL-1", "SEAL-2")
def test_a_stub_that_is_a_byte_off_what_it_is_written_over_is_no_rot(here: World) -> None:
    first, second = meta("mode", mode="m1", sessionId=here.session), meta("mode", mode="m2", sessionId=here.session)
    write_live(here.profile, CWD, here.session, jsonl(first, *SEALED))
    here.keep()
    write_over(here.live, jsonl(second))
    here.keep()
    assert twice_or_missing(here.kept, [first, *SEALED, second]) == {}


@pytest.mark.accepts("SEAL-1", "SEAL-2")
def test_a_stub_written_over_another_one_is_no_rot(here: World) -> None:
    stubs = [meta("mode", mode=f"m{number}", sessionId=here.session) for number in range(3)]
    write_live(here.profile, CWD, here.session, jsonl(stubs[0]))
    here.keep()
    for stub in stubs[1:]:
        write_over(here.live, jsonl(stub))
        here.keep()
    assert twice_or_missing(here.kept, stubs) == {}


@pytest.mark.accepts("SEAL-1")
def test_it_happens_again_and_again(here: World) -> None:
    wanted = sealed(here, "link")
    for number in range(6):
        cut_lines(here.live, number)
        append(here.live, jsonl(*(more := talk([f"n{number}"], parent="f"))))
        wanted = [*wanted, *more]
        if number % 2:
            here.keep()
        else:
            here.restore(full=True)
        assert twice_or_missing(here.kept, wanted) == {}, number
    here.restore(full=True)
    assert twice_or_missing(here.live, wanted) == {}


# ------------------------------------------------------------------ between look and deed


@pytest.mark.accepts("SEAL-1")
@pytest.mark.parametrize("damage", [cut, emptied, written_over_by_another], ids=lambda damage: damage.__name__)
def test_damage_between_the_look_and_the_sealing_is_not_sealed_as_the_truth(here: World, damage: Damage) -> None:
    wanted = sealed(here, "link")
    append(here.live, jsonl(*NEWEST))
    put(here.companion / "tool-results" / "x.txt", b"out\n")
    with hooked(before("link", lambda: damage(here.live), "x.txt")):
        here.keep()
    here.keep()
    assert twice_or_missing(here.kept, wanted) == {}


@pytest.mark.accepts("SEAL-1")
@pytest.mark.parametrize("damage", [cut, emptied, written_over_by_another], ids=lambda damage: damage.__name__)
def test_damage_between_a_pass_and_its_sealing_is_not_sealed_as_the_truth(here: World, damage: Damage) -> None:
    wanted = sealed(here, "link")
    append(here.live, jsonl(*NEWEST))
    vault = here.vault()
    keeper = Keeper(vault, time.time())
    keeper.profile(here.profile)
    keeper.finish()
    damage(here.live)
    keeper.seal()
    vault.index.close()
    here.keep()
    assert twice_or_missing(here.kept, wanted) == {}


@pytest.mark.accepts("SEAL-1", "SEAL-4")
def test_a_turn_is_sealed_such_that_damage_which_nobody_saw_yet_cannot_spoil_it(here: World) -> None:
    """Farther than 4 KiB from the end no keep looks; but a turn is packed with the 128 KiB before it."""
    history = [prompt(f"p{i}", f"p{i - 1}" if i else None, os.urandom(300).hex()) for i in range(40)]
    write_live(here.profile, CWD, here.session, jsonl(*history))
    here.keep()
    text = os.urandom(100).hex()
    data = here.live.read_bytes()
    overwrite(here.live, data.index(history[5]) + 200, text.encode())
    turns = talk(["t1", "t2"], parent="p39")
    turns = [line.replace(b"prompt t1", text.encode()).replace(b"answer t2", text.encode()) for line in turns]
    for turn in turns:
        append(here.live, jsonl(turn))
        here.keep()
    os.truncate(here.live, 2000)
    here.keep()
    assert twice_or_missing(here.kept, [*history, *turns]) == {}


@pytest.mark.accepts("SEAL-1", "SEAL-4")
@pytest.mark.parametrize("noticed", ["keep", "pass"])
def test_what_a_fold_adds_is_sealed_also_where_kept_has_damage_that_nobody_saw_yet(here: World, noticed: str) -> None:
    history = [prompt(f"p{i}", f"p{i - 1}" if i else None, os.urandom(300).hex()) for i in range(40)]
    write_live(here.profile, CWD, here.session, jsonl(*history))
    here.keep()
    overwrite(here.live, here.live.read_bytes().index(history[5]) + 200, b"garbled")
    tail = talk(["t1", "t2"], parent="p39")
    write_live(here.profile, CWD, here.session, jsonl(*tail))
    deeds: dict[str, Deed] = {"keep": here.keep, "pass": here.keep_all}
    deeds[noticed]()
    assert set(tail) <= set(lines_of(here.kept))
    cut_lines(here.live, 10)
    here.keep()
    assert twice_or_missing(here.kept, [*history, *tail]) == {}


# ------------------------------------------------------------------ a stub over it (SEAL-2)


@pytest.mark.accepts("SEAL-2", "KEEP-6")
@pytest.mark.parametrize("version", ["2.1.197", "2.1.328"])
@pytest.mark.parametrize("scenario", ["stub", "stub_renamed"])
def test_a_stub_of_the_real_cli_written_over_the_live_file_never_becomes_the_truth_and_its_lines_are_folded_in(
    moded: World, mode: str, version: str, scenario: str
) -> None:
    session = str(build.real(version, scenario)["session"])
    history, stub = real_kept(version, scenario, session), real_live(version, scenario, session)
    view = moded.about(session)
    if mode == "split":
        write_live(view.profile, CWD, session, history)
        view.keep()
        write_live(view.profile, CWD, session, jsonl(*history.splitlines()[:-1]))
    else:
        write_live(view.profile, CWD, session, history)
    view.keep()
    write_over(view.live, stub)
    answer = view.keep()
    assert answer.verdict == "partial"
    union = merge(history, stub).data
    assert view.kept.read_bytes() == union
    assert set(stub.splitlines()) <= set(union.splitlines())
    assert view.live.read_bytes() == union, "Claude would read the stub"
    assert bytes(seal.read(str(seal_of(view))).content) == union
    assert names_of_ours(view.profile, view.root) == []


# ------------------------------------------------------------------ a subagent's transcript, a tool's result


def with_others(here: World) -> tuple[Path, Path]:
    """A kept session with a subagent and a tool's result; answers their live files."""
    write_live(here.profile, CWD, here.session, jsonl(*SEALED))
    agent = put(here.companion / "subagents" / "agent-1.jsonl", jsonl(*SIDE))
    result = put(here.companion / "tool-results" / "x.txt", b"a long output\n" * 50)
    here.keep()
    return agent, result


def in_vault(here: World, live: Path) -> Path:
    return here.kept_companion / live.relative_to(here.companion)


@pytest.mark.accepts("SEAL-1", "KEEP-7")
@pytest.mark.parametrize("mode", ["link", "copy"])
@pytest.mark.parametrize("noticed", ["keep", "pass", "restore"])
@pytest.mark.parametrize("goes_on", [False, True])
def test_a_subagents_transcript_is_held_to_the_same(moded: World, noticed: str, goes_on: bool) -> None:
    agent, _ = with_others(moded)
    late = talk(["late"], parent="s1") if goes_on else []
    cut_lines(agent, 1)
    append(agent, jsonl(*late))
    deeds: dict[str, Deed] = {"keep": moded.keep, "pass": moded.keep_all, "restore": moded.restore}
    deeds[noticed]()
    assert twice_or_missing(in_vault(moded, agent), [*SIDE, *late]) == {}
    moded.restore()
    assert lines_of(agent) == (SIDE if not goes_on else [SIDE[0], *late]), "behind is folded, diverged is left"
    agent.unlink()
    moded.restore()
    assert twice_or_missing(agent, [*SIDE, *late]) == {}


@pytest.mark.accepts("SEAL-1", "KEEP-7", "RESTORE-3")
@pytest.mark.parametrize("restore", [restored_one_by_one, restored_with_all])
def test_a_subagents_transcript_that_was_cut_short_and_swept_before_any_keep_saw_it_comes_back_whole(
    here: World, restore: Callable[[World], None]
) -> None:
    agent, _ = with_others(here)
    cut_lines(agent, 1)
    agent.unlink()
    here.live.unlink()
    restore(here)
    assert lines_of(agent) == lines_of(in_vault(here, agent)) == SIDE


@pytest.mark.accepts("SEAL-1", "SEAL-7")
def test_a_subagents_transcript_that_was_cut_short_is_told_like_any_file(here: World) -> None:
    agent, _ = with_others(here)
    cut_lines(agent, 1)
    answer = here.keep()
    assert any("agent-1.jsonl" in warning for warning in answer.warnings)


@pytest.mark.accepts("SEAL-1", "KEEP-7")
@pytest.mark.parametrize("mode", ["link", "copy"])
@pytest.mark.parametrize("size", [0, 20])
def test_a_tools_result_that_was_cut_short_stays_whole_in_the_vault_and_comes_back_when_the_short_one_is_gone(
    moded: World, size: int
) -> None:
    _, result = with_others(moded)
    whole = result.read_bytes()
    os.truncate(result, size)
    answer = moded.keep()
    kept = in_vault(moded, result)
    if moded.kept.samefile(moded.live):
        assert [one for one in answer.warnings if "x.txt was cut short in place" in one]
    for deed in (moded.keep, moded.restore, moded.keep_all):
        deed()
        assert kept.read_bytes() == whole
        assert result.read_bytes() == whole[:size], "a live file that is no transcript was written over"
    result.unlink()
    moded.restore()
    assert result.read_bytes() == whole


@pytest.mark.accepts("SEAL-1", "KEEP-7", "RESTORE-3")
@pytest.mark.parametrize("restore", [restored_one_by_one, restored_with_all])
def test_a_tools_result_that_was_cut_short_and_swept_before_any_keep_saw_it_comes_back_whole(
    here: World, restore: Callable[[World], None]
) -> None:
    _, result = with_others(here)
    whole = result.read_bytes()
    os.truncate(result, 20)
    result.unlink()
    here.live.unlink()
    restore(here)
    assert result.read_bytes() == whole
    assert in_vault(here, result).read_bytes() == whole


@pytest.mark.accepts("SEAL-1", "KEEP-7")
@pytest.mark.parametrize("size", [700, 2000], ids=["as long", "longer"])
def test_a_tools_result_that_is_written_over_in_place_is_followed_and_the_older_one_set_aside(
    here: World, size: int
) -> None:
    _, result = with_others(here)
    whole = result.read_bytes()
    write_over(result, b"Z" * size)
    here.keep()
    assert in_vault(here, result).read_bytes() == b"Z" * size
    assert whole in [path.read_bytes() for path in (here.chat / "aside").iterdir()]


@pytest.mark.accepts("KEEP-7", "KEEP-5")
def test_a_tools_result_that_grows_sets_nothing_aside(here: World) -> None:
    _, result = with_others(here)
    append(result, b"and more\n")
    here.keep()
    assert in_vault(here, result).samefile(result)
    assert not (here.chat / "aside").exists()
