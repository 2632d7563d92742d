"""The rows of docs/verdicts.md that a seal tells (damaged, tombstoned) and those that bytes alone do not: what keep
does about each, and what restore does; and that no row of the table is without its two tests."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from keeper.transcripts import seal
from keeper.transcripts.verdict import TOMBSTONE_BYTES, Verdict, judge_sealed
from tests import build
from tests.build import CWD, answer, append, jsonl, meta, prompt, real_live, talk, write_live
from tests.damage import cut_lines, overwrite, seal_of, take_out
from tests.seam import World, lines_of, names_of_ours, state_of, twice_or_missing, world
from tests.transcripts.test_verdict import CASES

VERSIONS = ["2.1.197", "2.1.328"]
DOC = Path(__file__).resolve().parent.parent.parent / "docs" / "verdicts.md"


@pytest.fixture
def here(profile: Path, vault_home: Path, tmp_path: Path) -> World:
    return world(profile, vault_home, tmp_path / "state")


def sealed(here: World, session: str, data: bytes) -> World:
    view = here.about(session)
    write_live(view.profile, CWD, session, data)
    view.keep()
    assert bytes(seal.read(str(seal_of(view))).content) == data
    return view


def real(version: str) -> tuple[str, bytes]:
    """A session of the real CLI with tools in it, and an answer near its end on which nothing hangs."""
    session = str(build.real(version, "tools")["session"])
    return session, real_live(version, "tools", session)


# ------------------------------------------------------------------ damaged


@pytest.mark.accepts("KEEP-4", "SEAL-1")
@pytest.mark.parametrize("version", VERSIONS)
def test_keep_of_a_damaged_file_builds_kept_again_and_judges_what_is_left(here: World, version: str) -> None:
    session, data = real(version)
    view = sealed(here, session, data)
    cut_lines(view.live, 6)
    before = state_of(view.live)
    answer = view.keep()
    assert (answer.verdict, answer.action, answer.lacks > 0) == ("behind", "rebuilt", True)
    assert view.kept.read_bytes() == data
    assert state_of(view.live) == before
    assert (view.chat / f"{session}.live").samefile(view.live)
    assert names_of_ours(view.profile, view.root) == []


@pytest.mark.accepts("KEEP-4", "SEAL-1", "RESTORE-3")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kept_first", [False, True])
def test_restore_of_a_damaged_file_does_what_the_row_of_what_is_left_says(
    here: World, version: str, kept_first: bool
) -> None:
    session, data = real(version)
    view = sealed(here, session, data)
    cut_lines(view.live, 6)
    if kept_first:
        view.keep()
    answer = view.restore()
    assert (answer.verdict, answer.action) == ("behind", "folded")
    assert view.live.read_bytes() == view.kept.read_bytes() == data
    assert view.kept.samefile(view.live)


# ------------------------------------------------------------------ tombstoned (KEEP-20)

FIRST = talk("abc")
GONE = answer("gone", "c", "an answer that Claude asks for anew")
AFTER = [answer("d", "c"), meta("last-prompt", leafUuid="d"), *talk("ef", parent="d")]


def tombstoned(here: World) -> World:
    """Sealed with the answer; Claude took it out in place and wrote another."""
    view = sealed(here, here.session, jsonl(*FIRST, GONE))
    take_out(view.live, GONE)
    append(view.live, jsonl(*AFTER))
    return view


@pytest.mark.accepts("KEEP-4", "KEEP-20")
def test_keep_accepts_what_claude_took_out_and_the_seal_remembers_it(here: World) -> None:
    view = tombstoned(here)
    before = state_of(view.live)
    answer = view.keep()
    assert (answer.verdict, answer.action, answer.warnings) == ("tombstoned", "accepted", ())
    assert state_of(view.live) == before
    assert view.kept.samefile(view.live)
    assert lines_of(view.kept) == [*FIRST, *AFTER]
    assert bytes(seal.read(str(seal_of(view))).content) == view.kept.read_bytes()
    first = seal.first_time(str(seal_of(view)))
    assert bytes(seal.read(str(seal_of(view)), first).content) == jsonl(*FIRST, GONE)
    (row,) = view.vault().rows()
    assert row.state == ""
    found = state_of(view.profile, view.root)
    assert view.keep().verdict == "same"
    assert state_of(view.profile, view.root) == found


@pytest.mark.accepts("KEEP-4", "KEEP-20")
@pytest.mark.parametrize("kept_first", [False, True])
@pytest.mark.parametrize("swept", [False, True])
def test_restore_brings_back_nothing_that_claude_took_out(here: World, kept_first: bool, swept: bool) -> None:
    view = tombstoned(here)
    if kept_first:
        view.keep()
    if swept:
        view.live.unlink()
    view.restore()
    assert lines_of(view.live) == lines_of(view.kept) == [*FIRST, *AFTER]
    view.restore(full=True)
    assert lines_of(view.live) == [*FIRST, *AFTER]


@pytest.mark.accepts("KEEP-20")
@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_of_the_real_cli_that_is_taken_out_and_asked_for_anew_is_accepted(here: World, version: str) -> None:
    """As `removeMessageByUuid` does it: the last answer goes, the lines behind it stay, the new one comes last."""
    session, data = real(version)
    view = sealed(here, session, data)
    lines = lines_of(view.live)
    (last,) = [one for one in lines if b'"type":"assistant"' in one and hangs_on_nothing(one, lines)][-1:]
    take_out(view.live, last)
    again = last.replace(uuid_of(last), b"0badcafe-0000-4000-8000-000000000001").replace(b"say", b"said again")
    append(view.live, jsonl(again))
    assert view.keep().verdict == "tombstoned"
    assert lines_of(view.kept) == [*(one for one in lines if one != last), again]
    assert view.kept.samefile(view.live)


def uuid_of(line: bytes) -> bytes:
    return re.findall(rb'"uuid":"([^"]*)"', line)[-1]


def hangs_on_nothing(line: bytes, lines: list[bytes]) -> bool:
    return not any(b'"parentUuid":"' + uuid_of(line) + b'"' in other for other in lines)


def nothing_follows(view: World) -> list[bytes]:
    take_out(view.live, GONE)
    return [GONE]


def something_hangs_on_it(view: World) -> list[bytes]:
    append(view.live, jsonl(prompt("hangs", "gone")))
    view.keep()
    take_out(view.live, GONE)
    append(view.live, jsonl(*AFTER))
    return [GONE]


def what_follows_hangs_on_it(view: World) -> list[bytes]:
    take_out(view.live, GONE)
    append(view.live, jsonl(prompt("hangs", "gone")))
    return [GONE]


def it_is_a_prompt(view: World) -> list[bytes]:
    asked = prompt("asked", "gone")
    append(view.live, jsonl(asked))
    view.keep()
    take_out(view.live, asked)
    append(view.live, jsonl(*AFTER))
    return [asked]


def it_has_no_uuid(view: World) -> list[bytes]:
    title = meta("custom-title", customTitle="mine")
    append(view.live, jsonl(title))
    view.keep()
    take_out(view.live, title)
    append(view.live, jsonl(*AFTER))
    return [title]


def far_from_the_end(view: World) -> list[bytes]:
    append(view.live, jsonl(*AFTER, prompt("long", "f", "x" * TOMBSTONE_BYTES)))
    view.keep()
    take_out(view.live, GONE)
    append(view.live, jsonl(*talk("yz", parent="long")))
    return [GONE]


def with_a_prompt(view: World) -> list[bytes]:
    """Two lines are gone, and one of them is an answer."""
    asked = prompt("asked", "c")
    append(view.live, jsonl(asked))
    view.keep()
    take_out(view.live, GONE, asked)
    append(view.live, jsonl(*AFTER))
    return [GONE, asked]


def by_a_part_of_it(view: World) -> list[bytes]:
    """Cut within the line, and gone on behind a new line's end."""
    data = view.live.read_bytes()
    overwrite(view.live, data.index(GONE) + 30, b"\n")
    append(view.live, jsonl(*AFTER))
    return [GONE]


def by_a_changed_byte(view: World) -> list[bytes]:
    append(view.live, jsonl(*AFTER))
    overwrite(view.live, view.live.read_bytes().index(b"Claude asks"), b"C")
    overwrite(view.live, view.live.read_bytes().index(b"Claude asks") + 3, b"W")
    return [GONE]


NOT_SO = [
    nothing_follows, something_hangs_on_it, what_follows_hangs_on_it, it_is_a_prompt, it_has_no_uuid, far_from_the_end,
    with_a_prompt, by_a_part_of_it, by_a_changed_byte,
]  # fmt: skip


@pytest.mark.accepts("KEEP-20", "SEAL-1")
@pytest.mark.parametrize("how", NOT_SO, ids=lambda how: how.__name__)
def test_it_is_damage_where_claude_would_not_have_done_so(here: World, how: Callable[[World], list[bytes]]) -> None:
    view = sealed(here, here.session, jsonl(*FIRST, GONE))
    gone = how(view)
    left = lines_of(view.live)
    answer = view.keep()
    assert any("in place" in warning for warning in answer.warnings), "nobody is told"
    assert twice_or_missing(view.kept, [line for line in gone if b'"uuid":"' in line]) == {}
    # What a few bytes made of a sealed record is no version of it: that file goes aside, whole.
    aside = {line for path in (view.chat / "aside").glob("*") for line in lines_of(path)}
    assert set(gone) <= set(lines_of(view.kept))
    assert set(left) <= set(lines_of(view.kept)) | aside


@pytest.mark.accepts("KEEP-20")
def test_just_within_64_kib_of_the_end_it_is_claudes_and_a_byte_farther_it_is_not() -> None:
    for more, verdict in ((0, Verdict.TOMBSTONED), (1, Verdict.DAMAGED)):
        size = TOMBSTONE_BYTES - len(jsonl(GONE)) - len(jsonl(prompt("long", "c")))
        long = prompt("long", "c", "x" * (size + len("prompt long") + more))
        before = jsonl(*FIRST, GONE, long)
        assert len(before) - len(jsonl(*FIRST)) == TOMBSTONE_BYTES + more
        assert judge_sealed(before, jsonl(*FIRST, long)).verdict is verdict


@pytest.mark.accepts("KEEP-20")
def test_a_subagents_answer_counts_like_any_and_a_sidechains_in_a_main_file_does_not() -> None:
    side = [prompt("s1", None, isSidechain=True), answer("s2", "s1", isSidechain=True)]
    again = answer("s3", "s1", "said anew", isSidechain=True)
    before, now = jsonl(*side), jsonl(side[0], again)
    assert judge_sealed(before, now, main=False).verdict is Verdict.TOMBSTONED
    assert judge_sealed(before, now, main=True).verdict is Verdict.DAMAGED


@pytest.mark.accepts("KEEP-20")
def test_several_answers_may_go_and_equal_lines_are_counted() -> None:
    other = answer("other", "c", "a second try")
    assert judge_sealed(jsonl(*FIRST, GONE, other), jsonl(*FIRST, *AFTER)).verdict is Verdict.TOMBSTONED
    title = meta("custom-title", customTitle="mine")
    found = judge_sealed(jsonl(title, *FIRST, title, GONE, title), jsonl(title, *FIRST, title, *AFTER))
    assert (found.verdict, found.lacks) == (Verdict.DAMAGED, 2)


@pytest.mark.accepts("KEEP-20", "SEAL-4")
def test_no_flipped_bit_of_an_answer_that_nothing_hangs_on_is_taken_for_claudes_doing() -> None:
    before = jsonl(*FIRST, GONE, *AFTER)
    start = before.index(GONE)
    for at in range(start, start + len(GONE) + 1):
        for bit in range(8):
            now = bytearray(before)
            now[at] ^= 1 << bit
            found = judge_sealed(before, bytes(now)).verdict
            assert found is Verdict.DAMAGED, f"byte {at - start} of {len(GONE)}, bit {bit}"


# ------------------------------------------------------------------ the rest of the table


def legacy(here: World, mine: str, others: str) -> None:
    """What CLIs up to 1.0.117 write: the history copied under new uuids."""
    write_live(here.profile, CWD, here.session, jsonl(*talk(mine, version="1.0.100")))
    here.keep()
    write_live(here.profile, CWD, here.session, jsonl(*talk(others, version="1.0.100")))


@pytest.mark.accepts("KEEP-4", "FIT-2")
@pytest.mark.parametrize(("mine", "others"), [("ab", "pqrs"), ("abcd", "pq")])
def test_of_two_files_that_must_not_be_merged_the_longer_is_kept_and_the_other_set_aside(
    here: World, mine: str, others: str
) -> None:
    legacy(here, mine, others)
    before = state_of(here.live)
    assert here.keep().verdict == "unmergeable"
    assert state_of(here.live) == before
    longer, shorter = sorted([mine, others], key=len, reverse=True)
    assert lines_of(here.kept) == talk(longer, version="1.0.100")
    assert [path.read_bytes() for path in (here.chat / "aside").iterdir()] == [jsonl(*talk(shorter, version="1.0.100"))]
    assert bytes(seal.read(str(seal_of(here))).content) == here.kept.read_bytes()
    found = state_of(here.chat)
    here.keep()
    assert state_of(here.chat) == found


@pytest.mark.accepts("KEEP-4", "FIT-2", "RESTORE-3")
@pytest.mark.parametrize(("mine", "others"), [("ab", "pqrs"), ("abcd", "pq")])
def test_restore_of_what_must_not_be_merged_leaves_the_live_file_and_says_so(
    here: World, mine: str, others: str
) -> None:
    legacy(here, mine, others)
    answer = here.restore()
    assert answer.verdict == "unmergeable"
    assert any("1.0.117" in warning for warning in answer.warnings)
    assert lines_of(here.live) == talk(others, version="1.0.100")


@pytest.mark.accepts("KEEP-4", "RESTORE-14")
def test_a_branch_that_kept_has_since_is_diverged_also_where_live_has_nothing_new(here: World) -> None:
    """The table's second row of that name: the union is kept, so live has no news, and still lacks a leaf."""
    write_live(here.profile, CWD, here.session, jsonl(*talk("abcd")))
    here.keep()
    write_live(here.profile, CWD, here.session, jsonl(*talk("ab"), *talk("xy", parent="b")))
    for _ in range(2):
        answer = here.keep()
        assert (answer.verdict, answer.branch, answer.mode) == ("diverged", "d", "split")
    found = here.restore()
    assert (found.verdict, found.branch) == ("diverged", "d")
    assert lines_of(here.live) == [*talk("ab"), *talk("xy", parent="b")]


ELSEWHERE = {"doubled", "damaged", "tombstoned", "unmergeable"}
"""Rows whose tests stand above, or in test_verdict.py by themselves."""


@pytest.mark.accepts("KEEP-4")
def test_every_row_of_the_table_in_the_docs_has_a_case() -> None:
    table = DOC.read_text("utf-8").partition("## The table")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\w+) \|", table, re.MULTILINE)
    rows.remove("verdict")
    assert {"absent", "same", "ahead", "partial", "behind", "diverged", "thinned", "trimmed"} <= set(rows)
    cases = {str(CASES[name]().verdict) for name in CASES}
    assert set(rows) <= cases | ELSEWHERE
    assert {str(verdict) for verdict in Verdict} <= cases | ELSEWHERE


@pytest.mark.accepts("KEEP-4", "KEEP-20")
def test_the_docs_tell_of_every_verdict_that_there_is() -> None:
    table = DOC.read_text("utf-8").partition("## The table")[2].partition("\n## ")[0]
    assert {str(verdict) for verdict in Verdict} - set(re.findall(r"^\| (\w+) \|", table, re.MULTILINE)) == set()
