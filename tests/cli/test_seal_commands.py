"""What the seal gives a person: `accept`, `restore --at`, `restore --branch`, `verify --repair`, and what `status`,
`list` and `show` say of a chat that was damaged in place."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from keeper.transcripts import seal
from tests.build import CWD, append, jsonl, session_id, talk, write_live
from tests.chat import everything, files, put, sweep
from tests.conftest import Ran
from tests.damage import cut_lines, flip, keep_at, seal_of, take_out, write_over
from tests.seam import World, lines_of
from tests.seam import world as world_of

Command = Callable[..., Ran]

S, T, NEVER = session_id(1), session_id(2), session_id(9)
WHOLE = talk("abcdefgh", S)
HOUR_S = 3600.0


@pytest.fixture
def here(profile: Path, vault_home: Path, home: Path) -> World:
    return world_of(profile, vault_home, home / ".local" / "state" / "keeper")


def told(here: World) -> list[float]:
    """Four turns, each kept an hour after the one before, the last one an hour ago; answers when."""
    times = [time.time() - (4 - turn) * HOUR_S for turn in range(4)]
    write_live(here.profile, CWD, S, b"")
    for turn, when in enumerate(times):
        append(here.live, jsonl(*WHOLE[2 * turn : 2 * turn + 2]))
        keep_at(here, when)
    return times


def iso(when: float) -> str:
    return datetime.fromtimestamp(when, UTC).isoformat()


def under(lines: list[bytes], session: str) -> list[bytes]:
    """The same lines, of another session."""
    return [line.replace(S.encode(), session.encode()) for line in lines]


# --- damage is a named state (SEAL-7) -----------------------------------------------------------------------


@pytest.mark.accepts("SEAL-7")
def test_who_asks_is_told_what_was_lost_when_and_which_command_mends_it_until_a_restore_has(
    here: World, run_keeper: Command
) -> None:
    told(here)
    cut_lines(here.live, 3)
    asked = time.time()
    kept = run_keeper("keep", S, "--json").json["kept"][0]
    assert any("5 records" in one and f"keeper restore {S}" in one for one in kept["warnings"])
    (state,) = run_keeper("status", "--json").json["states"]
    assert (state["session"], state["state"], state["lost"]) == (S, "damaged", 5)
    assert abs(datetime.fromisoformat(state["when"]).timestamp() - asked) < 120
    status = run_keeper("status").text
    for text in (status, run_keeper("show", S).text.partition("prompt a\n  ")[2].partition("\n\n")[0]):
        assert "damaged" in text
        assert "5 records" in text
        assert state["when"][:16] in text
        for command in (state["cure"], f"keeper accept {S}"):
            assert command in text
    (listed,) = run_keeper("list", "--json").json["chats"]
    assert (listed["state"], listed["lost"], listed["damaged"]) == ("damaged", 5, state["when"])
    assert "damaged" in run_keeper("list").text
    assert run_keeper("keep").code == 0
    assert run_keeper("status", "--json").json["states"], "a second keep forgot it"

    assert state["cure"].startswith(f"keeper restore {S}")
    assert run_keeper(*state["cure"].split()[1:]).code == 0
    assert lines_of(here.live) == WHOLE
    assert run_keeper("status", "--json").json["states"] == []
    assert run_keeper("list", "--json").json["chats"][0]["state"] == "live"
    assert "damaged" not in run_keeper("status").text


@pytest.mark.accepts("SEAL-7")
def test_the_command_that_is_named_mends_it_also_where_claude_went_on_in_the_damaged_file(
    here: World, run_keeper: Command
) -> None:
    told(here)
    cut_lines(here.live, 2)
    append(here.live, jsonl(*talk("xy", S, parent="b")))
    warnings = run_keeper("keep", S, "--json").json["kept"][0]["warnings"]
    (state,) = run_keeper("status", "--json").json["states"]
    assert any(f"`{state['cure']}`" in one for one in warnings), "two commands are named"
    assert run_keeper(*state["cure"].split()[1:]).code == 0
    assert {*WHOLE, *talk("xy", S, parent="b")} == set(lines_of(here.live))
    assert run_keeper("status", "--json").json["states"] == []


@pytest.mark.accepts("SEAL-7")
def test_after_accept_it_is_gone_from_every_answer_and_the_rest_is_found_by_its_time(
    here: World, run_keeper: Command
) -> None:
    told(here)
    cut_lines(here.live, 3)
    assert run_keeper("keep", S).code == 0
    dry = everything(here.profile)
    done = run_keeper("accept", S)
    assert (done.code, done.err) == (0, "")
    assert f"{S}  3 records are the truth now" in done.text
    assert f"`keeper restore {S} --at" in done.text
    assert everything(here.profile) == dry
    assert here.kept.samefile(here.live)
    assert run_keeper("status", "--json").json["states"] == []
    assert run_keeper("list", "--json").json["chats"][0]["state"] == "live"
    assert run_keeper("verify").code == 0
    assert run_keeper("restore", S, "--json").json["records"] == 3
    copy = run_keeper("restore", S, "--at", "10m", "--json").json
    assert lines_of(Path(copy["live"])) == under(WHOLE, copy["session"])


# --- accept -------------------------------------------------------------------------------------------------


@pytest.mark.accepts("SEAL-7")
def test_accept_answers_as_an_object_and_with_its_code(here: World, run_keeper: Command) -> None:
    told(here)
    cut_lines(here.live, 3)
    with here.live.open("ab"):
        busy = run_keeper("accept", S, "--json")
        assert (busy.code, busy.json["exit"]) == (6, 6)
        assert busy.json["cure"]
    answer = run_keeper("accept", S, "--json").json
    assert (answer["schema"], answer["session"], answer["records"], answer["left"]) == (1, S, 3, 5)
    assert (answer["chat"], answer["profile"], answer["live"]) == (S, str(here.profile), str(here.live))
    assert run_keeper("accept", NEVER).code == 4
    assert run_keeper("accept", "../../x").code == 8
    assert run_keeper("accept").code == 2
    here.live.unlink()
    missing = run_keeper("accept", S)
    assert missing.code == 4
    assert f"keeper restore {S}" in missing.err


@pytest.mark.accepts("SEAL-7", "KEEP-13")
def test_accept_takes_the_profile_that_is_named(here: World, home: Path, profile: Path, run_keeper: Command) -> None:
    told(here)
    write_live(home / "work", CWD, S, jsonl(*WHOLE))
    assert run_keeper("keep", home / "work").code == 0
    cut_lines(here.live, 3)
    assert run_keeper("accept", S).code == 8
    answer = run_keeper("accept", S, "--profile", profile, "--json").json
    assert (answer["profile"], answer["records"]) == (str(profile), 3)


# --- restore --at (SEAL-5) ----------------------------------------------------------------------------------


@pytest.mark.accepts("SEAL-5")
def test_at_gives_the_conversation_as_it_was_sealed_then_under_a_new_id(here: World, run_keeper: Command) -> None:
    times = told(here)
    before = files(here.profile)
    for turn, when in enumerate(times):
        for text in (iso(when + 1), iso(when + 1800)):
            done = run_keeper("restore", S, "--at", text, "--json")
            assert done.code == 0, done.err
            copy = Path(done.json["live"])
            assert lines_of(copy) == under(WHOLE[: 2 * turn + 2], copy.stem)
            assert copy.stem == done.json["session"] != S
            assert done.json["resume"].endswith(f"claude --resume {copy.stem}")
            assert any("as sealed at" in deed for deed in done.json["deeds"])
    assert before.items() <= files(here.profile).items(), "the original was changed"
    chats = {chat["session"]: chat for chat in run_keeper("list", "--json").json["chats"]}
    assert len(chats) == 9
    assert {chat["forked_from"] for session, chat in chats.items() if session != S} == {S}


@pytest.mark.accepts("SEAL-5", "KEEP-20")
@pytest.mark.parametrize("repacked", [False, True])
def test_at_goes_behind_folds_tombstones_and_damage_and_a_repack_changes_nothing_of_it(
    here: World, run_keeper: Command, repacked: bool
) -> None:
    start = time.time() - 10 * HOUR_S
    history: list[list[bytes]] = []
    changes: list[Callable[[], object]] = [
        lambda: write_live(here.profile, CWD, S, jsonl(*WHOLE[:4])),
        lambda: append(here.live, jsonl(*WHOLE[4:6])),
        lambda: write_live(here.profile, CWD, S, jsonl(*WHOLE[6:])),  # made anew with the tail alone: folded
        lambda: (take_out(here.live, WHOLE[7]), append(here.live, jsonl(*talk(["h2"], S, parent="g")))),
        lambda: cut_lines(here.live, 3),
    ]
    for hour, change in enumerate(changes):
        change()
        keep_at(here, start + hour * HOUR_S)
        history.append(lines_of(here.kept))
    assert history[2] == WHOLE
    assert WHOLE[7] not in history[3]
    assert history[4] == history[3], "damage was taken for the truth"
    if repacked:
        assert seal.repack(str(seal_of(here)), f"{seal_of(here)}.new")
    for hour, lines in enumerate(history):
        for second in (1, HOUR_S - 1):
            told_at = iso(start + hour * HOUR_S + second)
            copy = Path(run_keeper("restore", S, "--at", told_at, "--json").json["live"])
            assert lines_of(copy) == under(lines, copy.stem), told_at
    assert run_keeper("verify").code == 0


@pytest.mark.accepts("SEAL-5")
@pytest.mark.parametrize(("words", "turns"), [("30m", 4), ("90m", 3), ("2h", 3), ("9000s", 2), ("215m", 1), ("0d", 4)])
def test_a_time_may_be_so_long_ago(here: World, run_keeper: Command, words: str, turns: int) -> None:
    told(here)
    copy = Path(run_keeper("restore", S, "--at", words, "--json").json["live"])
    assert lines_of(copy) == under(WHOLE[: 2 * turns], copy.stem)


@pytest.mark.accepts("SEAL-5")
def test_a_time_without_a_zone_is_the_persons_own(here: World, run_keeper: Command) -> None:
    times = told(here)
    east = {"TZ": "Asia/Kolkata"}
    local = datetime.fromtimestamp(times[1] + 5.5 * HOUR_S + 1, UTC).isoformat()[:19]
    copy = Path(run_keeper("restore", S, "--at", local, "--json", env=east).json["live"])
    assert lines_of(copy) == under(WHOLE[:4], copy.stem)


@pytest.mark.accepts("SEAL-5")
@pytest.mark.parametrize("text", ["yesterday", "2026-13-40", "-3h", "3w", "h", "9999999999d", "99999-01-01"])
def test_what_is_no_time_is_2_and_says_how_to_say_one(here: World, run_keeper: Command, text: str) -> None:
    told(here)
    before = everything(here.profile)
    done = run_keeper("restore", S, f"--at={text}")
    assert (done.code, done.out) == (2, b"")
    assert "Traceback" not in done.err
    assert everything(here.profile) == before


@pytest.mark.accepts("SEAL-5")
@pytest.mark.parametrize("words", [[], ["--in-place"]], ids=["copy", "in place"])
def test_a_time_before_the_first_seal_is_4_and_says_when_that_was(
    here: World, run_keeper: Command, words: list[str]
) -> None:
    times = told(here)
    before = files(here.profile)
    done = run_keeper("restore", S, "--at", iso(times[0] - 60), *words)
    assert (done.code, done.out) == (4, b"")
    assert "cure: " in done.err
    assert iso(times[0])[:16] in done.err
    assert files(here.profile) == before
    assert run_keeper("restore", NEVER, "--at", "1h", *words).code == 4


@pytest.mark.accepts("SEAL-5")
def test_in_place_puts_it_under_its_own_id_and_what_it_was_since_is_found_by_its_time(
    here: World, run_keeper: Command
) -> None:
    times = told(here)
    dry = run_keeper("restore", S, "--at", iso(times[1] + 1), "--in-place", "--dry-run", "--json")
    assert (dry.code, dry.json["session"], dry.json["records"]) == (0, S, 4)
    assert lines_of(here.live) == WHOLE
    append(here.live, jsonl(*talk("ij", S, parent="h")))
    with here.live.open("ab"):
        assert run_keeper("restore", S, "--at", iso(times[1] + 1), "--in-place").code == 6
    done = run_keeper("restore", S, "--at", iso(times[1] + 1), "--in-place", "--json")
    assert (done.code, done.json["session"], done.json["records"], done.json["left"]) == (0, S, 4, 6)
    assert lines_of(here.live) == lines_of(here.kept) == WHOLE[:4]
    assert here.kept.samefile(here.live)
    assert len(run_keeper("list", "--json").json["chats"]) == 1
    assert run_keeper("verify").code == 0
    copy = Path(run_keeper("restore", S, "--at", "0s", "--json").json["live"])
    assert lines_of(copy) == under(WHOLE[:4], copy.stem)
    content = bytes(seal.read(str(seal_of(here)), time.time_ns() - 1).content)
    assert content == jsonl(*WHOLE[:4])
    again = run_keeper("restore", S, "--at", iso(times[3] + 1), "--in-place", "--json")
    assert (again.json["records"], lines_of(here.live)) == (8, WHOLE)


@pytest.mark.accepts("SEAL-5", "RESTORE-6")
def test_at_and_in_place_work_for_a_session_that_is_swept(here: World, run_keeper: Command) -> None:
    times = told(here)
    here.live.unlink()
    copy = Path(run_keeper("restore", S, "--at", iso(times[1] + 1), "--json").json["live"])
    assert lines_of(copy) == under(WHOLE[:4], copy.stem)
    here.live.unlink(missing_ok=True)
    assert run_keeper("restore", S, "--at", iso(times[1] + 1), "--in-place").code == 0
    assert lines_of(here.live) == WHOLE[:4]


@pytest.mark.accepts("SEAL-5")
@pytest.mark.parametrize(
    "words",
    [
        ["--at", "1h", "--through", "a"], ["--at", "1h", "--branch", "a"], ["--at", "1h", "--repaired"],
        ["--branch", "a", "--through", "a"], ["--in-place"], ["--in-place", "--through", "a"], ["--at", "1h", T],
        ["--branch", "a", T],
    ],
    ids=" ".join,
)  # fmt: skip
def test_words_that_do_not_go_together_are_2_and_do_nothing(here: World, run_keeper: Command, words: list[str]) -> None:
    told(here)
    before = everything(here.profile)
    assert run_keeper("restore", S, *words).code == 2
    assert everything(here.profile) == before


@pytest.mark.accepts("SEAL-5", "SEAL-4")
def test_a_time_that_the_seal_cannot_prove_any_more_is_7(here: World, run_keeper: Command) -> None:
    times = told(here)
    flip(seal_of(here), 300, 3)
    done = run_keeper("restore", S, "--at", iso(times[2]))
    assert done.code == 7
    assert f"keeper verify {S}" in done.err


# --- restore --branch (RESTORE-14) --------------------------------------------------------------------------


@pytest.mark.accepts("RESTORE-14")
@pytest.mark.parametrize("in_place", [False, True])
def test_cut_back_and_gone_on_the_other_branch_is_announced_with_the_command_that_gives_it(
    here: World, run_keeper: Command, in_place: bool
) -> None:
    told(here)
    other = jsonl(*WHOLE[:2], *talk("xy", S, parent="b"))
    if in_place:
        write_over(here.live, other)
    else:
        write_live(here.profile, CWD, S, other)
    inode = here.live.stat().st_ino
    for done in (run_keeper("restore", S, "--json"), run_keeper("restore", S, "--json")):
        assert (done.code, done.json["verdict"], done.json["branch"]) == (0, "diverged", "h")
        (line,) = [one for one in done.json["warnings"] if "--branch" in one]
        assert f"`keeper restore {S} --branch h`" in line
    assert f"keeper restore {S} --branch h" in run_keeper("restore", S).err
    assert (here.live.read_bytes(), here.live.stat().st_ino) == (other, inode)
    made = run_keeper("restore", S, "--branch", "h", "--json").json
    assert lines_of(Path(made["live"])) == under(WHOLE, made["session"])
    assert (here.live.read_bytes(), here.live.stat().st_ino) == (other, inode)
    assert run_keeper("restore", S, "--branch", "nowhere").code == 4


# --- verify -------------------------------------------------------------------------------------------------


@pytest.mark.accepts("SEAL-4")
def test_verify_names_the_record_exits_7_and_repair_makes_it_whole(here: World, run_keeper: Command) -> None:
    told(here)
    result = put(here.companion / "tool-results" / "x.txt", b"out\n" * 20)
    write_live(here.profile, CWD, T, jsonl(*talk("ab", T)))
    assert run_keeper("keep", S).code == run_keeper("keep", T).code == 0
    assert run_keeper("verify").code == 0
    here.live.unlink()
    flip(here.kept, here.kept.read_bytes().index(WHOLE[3]) + 60, 1)
    flip(here.kept_companion / "tool-results" / "x.txt", 10, 2)
    done = run_keeper("verify", "--json")
    assert done.code == 7
    assert {(one["chat"], one["session"], one["file"], one["record"]) for one in done.json["faults"]} == {
        (S, S, f"{S}.jsonl", "d"), (S, S, f"{S}/tool-results/x.txt", ""),
    }  # fmt: skip
    text = run_keeper("verify", S)
    assert (text.code, f"{S}.jsonl d: 1 sealed records are gone or changed" in text.text) == (7, True)
    assert run_keeper("verify", T).code == 0
    assert run_keeper("verify", T, "--repair").code == 0
    assert run_keeper("verify").code == 7, "another chat was repaired"
    assert run_keeper("verify", "--repair").code == 0
    assert run_keeper("verify").code == 0
    assert lines_of(here.kept) == WHOLE, "Claude would read what rotted"
    assert run_keeper("restore", S).code == 0
    assert (here.kept_companion / "tool-results" / "x.txt").read_bytes() == b"out\n" * 20
    assert len(result.read_bytes()) == 80, "a live file that is no transcript is never overwritten (KEEP-7)"
    assert lines_of(here.live) == WHOLE


@pytest.mark.accepts("SEAL-4")
def test_a_slice_looks_at_its_part_and_all_come_round(here: World, run_keeper: Command) -> None:
    sessions = [session_id(n) for n in range(1, 9)]
    for session in sessions:
        write_live(here.profile, CWD, session, jsonl(*talk("ab", session)))
    assert run_keeper("keep").code == 0
    today = run_keeper("verify", "--slice", "3", "--json").json
    assert 0 <= today["chats"] < 8
    assert run_keeper("verify", "--slice", "1", "--json").json["chats"] == 8
    assert run_keeper("verify", "--slice", "0").code == 2


@pytest.mark.accepts("SEAL-4", "KEEP-17")
def test_what_a_kill_left_of_a_seal_is_a_note_and_the_next_keep_mends_it(here: World, run_keeper: Command) -> None:
    told(here)
    os.truncate(seal_of(here), seal_of(here).stat().st_size - 7)
    done = run_keeper("verify", "--json")
    assert (done.code, done.json["faults"]) == (0, [])
    assert any(note["file"].endswith(".seal") for note in done.json["notes"])
    assert run_keeper("keep").code == 0
    assert run_keeper("verify", "--json").json["notes"] == []


@pytest.mark.accepts("SEAL-4")
@pytest.mark.parametrize("cure", [("keep",), ("verify", "--repair")], ids=["keep", "repair"])
def test_what_was_swept_before_it_was_sealed_is_noted_and_sealed_by_a_keep_or_a_repair(
    cure: tuple[str, ...], here: World, run_keeper: Command
) -> None:
    write_live(here.profile, CWD, S, jsonl(*WHOLE[:4]))
    put(here.companion / "tool-results" / "x.txt", b"out")
    assert run_keeper("keep", "--no-seal").code == 0
    sweep(here.profile)
    found = run_keeper("verify", "--json")
    assert (found.code, [fault["file"] for fault in found.json["faults"]]) == (0, [])
    assert [note["file"] for note in found.json["notes"]] == [f"{S}.jsonl", f"{S}/tool-results/x.txt"]
    assert all("`keeper keep`" in note["kind"] for note in found.json["notes"])
    assert run_keeper(*cure).code == 0
    assert run_keeper("verify", "--json").json["notes"] == []
    assert bytes(seal.read(str(seal_of(here))).content) == jsonl(*WHOLE[:4])
