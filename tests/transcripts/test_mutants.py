"""Guards that had no test of their own until a mutation run (docs/mutation.md) took them out and nothing failed."""

from __future__ import annotations

import pytest

from keeper.transcripts import records
from keeper.transcripts.records import is_unread
from keeper.transcripts.verdict import ALIKE_BYTES, Judgement, Verdict, has_own, judge, judge_sealed
from tests.build import answer, boundary, jsonl, meta, prompt, talk

A, B, C, D = talk("abcd")

# --- records --------------------------------------------------------------------------------------------

UNREAD = {
    "two records glued": b'{"a":1}{"b":2}',
    "a record of the chain glued behind a blank": b'{"a":1} {"parentUuid":null}',
    "two of the chain glued": b'{"parentUuid":null} {"parentUuid":null}',
    "one glued right behind a brace": b'{{"parentUuid":null}',
    "a NUL inside": b'{"a":1,\0"b":2}',
    "torn at its end": b'{"a":1',
    "torn at its beginning": b'"a":1}',
    "an array": b"[1]",
}
READ = {
    "whole": b'{"a":1}',
    "of the chain": b'{"parentUuid":null}',
    "with what looks glued in a text": b'{"a":"}{"}',
    "with blanks around": b' {"a":1} ',
    "blank": b"",
    "blanks": b" \t",
}


@pytest.mark.parametrize("line", UNREAD.values(), ids=UNREAD)
def test_a_line_that_no_cli_reads_is_told(line: bytes) -> None:
    assert is_unread(line)


@pytest.mark.parametrize("line", READ.values(), ids=READ)
def test_a_line_that_every_cli_reads_or_skips_is_not(line: bytes) -> None:
    assert not is_unread(line)


def test_what_looks_whole_from_outside_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restore looks at every line of a file, however large."""
    monkeypatch.setattr(records, "read", None)
    assert not is_unread(A)
    assert not is_unread(b"{}")


def test_a_plain_record_never_meets_the_slow_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "json", None)
    assert records.uuid_of(A) == "a"


# --- verdict --------------------------------------------------------------------------------------------


def told(kept: list[bytes], live: list[bytes]) -> Judgement:
    return judge(jsonl(*kept), jsonl(*live))


def test_lost_and_new_records_are_counted_without_sidechains() -> None:
    side = [prompt("s", "a", isSidechain=True), prompt("t", "a", isSidechain=True)]
    found = told([A, side[0], B, C, D], [A, B, side[1], *talk("xyz", parent="b")])
    assert found == Judgement(Verdict.DIVERGED, (), lacks=2, news=3, branch="d")


def test_only_what_diverged_has_a_branch() -> None:
    assert told([A, B, C, D], [A, B]) == Judgement(Verdict.BEHIND, (), lacks=2, news=0, branch="")


def test_a_file_without_its_newest_talk_is_behind_though_it_has_lines_of_its_own() -> None:
    assert told([A, B, C, D], [A, meta("mode", mode="plan"), B, C]).verdict is Verdict.BEHIND


def test_a_kept_file_without_talk_says_of_none_that_it_is_lost() -> None:
    assert told([meta("mode", mode="plan")], [A, B]).verdict is Verdict.THINNED


def test_a_hole_whose_descendants_are_there_is_no_branch() -> None:
    moved = prompt("c", "a")
    assert told([A, B, C, D], [A, moved, D]) == Judgement(Verdict.THINNED, lacks=1)


@pytest.mark.accepts("KEEP-20")
def test_a_boundary_that_kept_never_saw_is_believed_where_the_beginning_is_gone() -> None:
    edge, after = boundary("k", "d"), talk("mn", parent="k")
    assert told([A, B, C, D], [edge, *after]).verdict is Verdict.TRIMMED
    assert told([A, B, C, D], [A, edge, *after]).verdict is not Verdict.TRIMMED


def test_what_hangs_on_nothing_in_kept_too_is_a_loss_only_where_live_begins_with_it() -> None:
    odd, next_, root = prompt("odd", "never"), answer("next", "odd"), prompt("root", None)
    late = told([A, B, odd, next_], [odd, next_])
    assert (late.verdict, late.gaps) == (Verdict.PARTIAL, ("never",))
    assert told([odd, next_, C, D], [odd, next_, D]).gaps == ()
    assert told([A, root, odd, next_], [root, odd, next_]).verdict is Verdict.DIVERGED


def test_a_new_record_that_hangs_on_nothing_is_a_gap_wherever_it_stands() -> None:
    found = told([A, B], [A, prompt("new", "lost"), meta("mode")])
    assert (found.verdict, found.gaps) == (Verdict.PARTIAL, ("lost",))


def test_a_conversation_is_not_merged_where_either_file_is_by_a_cli_up_to_1_0_117() -> None:
    for old, new in (("1.0.117", "2.1.328"), ("2.1.328", "1.0.117")):
        found = told(talk("ab", version=old), talk("pq", version=new))
        assert found.verdict is Verdict.UNMERGEABLE
    assert told(talk("ab", version="1.0.118"), talk("pq", version="1.0.118")).verdict is Verdict.DIVERGED


def test_of_several_lost_branches_the_newest_is_named() -> None:
    lost = [*talk("zy", parent="b"), *talk("ef", parent="b")]
    assert told([A, B, *lost, C, D], [A, B, C, D]).branch == "f"
    assert told([A, B, *lost[2:], *lost[:2], C, D], [A, B, C, D]).branch == "y"


def test_a_line_that_is_no_record_hides_none_behind_it() -> None:
    assert told([A, B, b"\x00", C, D], [A, B]).lacks == 2


def test_a_kept_file_that_has_nothing_of_the_chain_is_no_hindrance() -> None:
    assert told([meta("mode", mode="plan")], [boundary("k", "d"), *talk("mn", parent="k")]).verdict is Verdict.TRIMMED


# --- verdict: what Claude took out, and what damage did -------------------------------------------------

GONE = answer("gone", "c", "an answer that is asked for anew")
AGAIN = answer("again", "c", "another try")
TAIL = meta("mode", mode="plan")


def sealed(before: list[bytes], now: list[bytes]) -> Verdict:
    return judge_sealed(jsonl(*before), jsonl(*now)).verdict


@pytest.mark.accepts("KEEP-20")
def test_what_is_gone_is_counted_and_a_file_that_only_grew_is_the_same() -> None:
    assert judge_sealed(jsonl(A), jsonl(A, B)) == Judgement(Verdict.SAME)
    assert judge_sealed(jsonl(A, B, C, GONE), jsonl(A, B, C, AGAIN)) == Judgement(Verdict.TOMBSTONED, lacks=1)


@pytest.mark.accepts("KEEP-20")
def test_a_file_is_a_main_transcript_where_nothing_else_is_said() -> None:
    side = answer("gone", "c", isSidechain=True)
    assert sealed([A, B, C, side], [A, B, C, AGAIN]) is Verdict.DAMAGED


@pytest.mark.accepts("KEEP-20")
def test_an_answer_of_which_a_copy_remains_was_not_taken_out_where_that_one_moved() -> None:
    assert sealed([A, B, C, GONE, TAIL, GONE], [A, B, C, TAIL, GONE]) is Verdict.DAMAGED
    assert sealed([A, B, C, GONE, TAIL, GONE], [A, B, C, GONE, TAIL]) is Verdict.TOMBSTONED


@pytest.mark.accepts("KEEP-20")
def test_lines_that_were_there_before_need_be_no_records() -> None:
    assert sealed([A, B, b"\x00 no record", C, GONE], [A, B, b"\x00 no record", C, AGAIN]) is Verdict.TOMBSTONED


@pytest.mark.accepts("KEEP-20")
def test_one_prompt_is_enough_for_what_remains_and_none_is_a_stub() -> None:
    first = answer("first", "a")
    assert sealed([A, first], [A, TAIL]) is Verdict.TOMBSTONED
    assert sealed([first, GONE], [first, TAIL]) is Verdict.TOMBSTONED
    assert sealed([TAIL, first], [TAIL, meta("mode", mode="normal")]) is Verdict.DAMAGED


@pytest.mark.accepts("KEEP-20")
def test_another_version_of_an_answer_is_not_one_that_was_asked_for_anew() -> None:
    assert sealed([A, B, C, GONE], [A, B, C, answer("gone", "c", "other words")]) is Verdict.DAMAGED
    assert sealed([A, B, C, GONE], [A, B, C, answer("again", "c", "other words")]) is Verdict.TOMBSTONED


def changed(line: bytes, count: int) -> bytes:
    """The line with so many bytes of its text changed."""
    start = line.index(b"an answer")
    return line[:start] + bytes(byte ^ 1 for byte in line[start : start + count]) + line[start + count :]


@pytest.mark.accepts("SEAL-1")
def test_a_damaged_file_has_a_record_of_its_own_where_it_is_not_what_damage_made_of_one() -> None:
    assert has_own(jsonl(A), jsonl(A, B))
    assert not has_own(jsonl(A, B), jsonl(A))
    assert not has_own(jsonl(A, B), jsonl(A, b"\x00" * len(B)))
    assert not has_own(jsonl(A, GONE), jsonl(A, changed(GONE, ALIKE_BYTES)))
    assert has_own(jsonl(A, GONE), jsonl(A, changed(GONE, ALIKE_BYTES + 1)))
    assert has_own(jsonl(A, GONE), jsonl(A, GONE.replace(b'"uuid":"gone"', b'"uuid":"goxx"')))
