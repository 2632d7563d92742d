"""Each row of the table of verdicts: what keep does about it, and what restore does, on files that the real CLI wrote
where it can make them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from keeper.transcripts.merge import merge
from keeper.transcripts.verdict import Verdict, judge
from tests import build
from tests.build import boundary, jsonl, line, meta, prompt, real_kept, real_live, talk, write_live
from tests.seam import World, lines_of, names_of_ours, state_of, twice_or_missing, world

OLD, NEW = "2.1.197", "2.1.328"
CWD = "/srv/demo/proj"


@dataclass(frozen=True, slots=True)
class Case:
    """What kept held when the look began, and what stands under the live name (None: nothing does)."""

    verdict: Verdict
    session: str
    kept: bytes
    live: bytes | None


def whole(version: str) -> tuple[str, bytes]:
    """An ordinary session of that CLI, with tool calls."""
    (session,) = build.real(version, "tools")["resumed"]
    return session, real_live(version, "tools", session)


def scenario(verdict: Verdict, version: str, name: str) -> Case:
    (session,) = build.real(version, name)["resumed"]
    return Case(verdict, session, real_kept(version, name, session), real_live(version, name, session))


def absent(version: str) -> Case:
    return Case(Verdict.ABSENT, *whole(version), None)


def empty(version: str) -> Case:
    return Case(Verdict.EMPTY, *whole(version), b"")


def same(version: str) -> Case:
    session, data = whole(version)
    return Case(Verdict.SAME, session, data, data)


def waiting(version: str) -> Case:
    session, data = whole(version)
    return Case(Verdict.WAITING, session, data, real_live(version, "recreated", f"{4:08}-0000-4000-8000-{4:012}")[:150])


def ahead(version: str) -> Case:
    session, data = whole(version)
    return Case(Verdict.AHEAD, session, jsonl(*data.splitlines()[:5]), data)


def behind(version: str) -> Case:
    session, data = whole(version)
    return Case(Verdict.BEHIND, session, data, jsonl(*data.splitlines()[:8]))


def thinned(version: str) -> Case:
    """Somebody took out the lines without a uuid."""
    session, data = whole(version)
    return Case(Verdict.THINNED, session, data, jsonl(*(one for one in data.splitlines() if b'"uuid":"' in one)))


CASES: dict[str, Callable[[], Case]] = {}
for cli in (OLD, NEW):
    for make in (absent, empty, same, waiting, ahead, behind, thinned):
        CASES[f"{make.__name__}-{cli}"] = lambda make=make, cli=cli: make(cli)
    for verdict, name in (
        (Verdict.PARTIAL, "recreated"),
        (Verdict.PARTIAL, "stub"),
        (Verdict.PARTIAL, "stub_renamed"),
        (Verdict.DIVERGED, "cut_back"),
        (Verdict.DIVERGED, "new_root"),
    ):
        CASES[f"{verdict}-{name}-{cli}"] = lambda v=verdict, cli=cli, name=name: scenario(v, cli, name)
CASES[f"trimmed-{NEW}"] = lambda: scenario(Verdict.TRIMMED, NEW, "trimmed")

FOLDED = {Verdict.PARTIAL}
SPLIT = {Verdict.TRIMMED, Verdict.BEHIND, Verdict.THINNED, Verdict.DIVERGED}
FOLDED_BY_RESTORE = {Verdict.EMPTY, Verdict.WAITING, Verdict.PARTIAL, Verdict.BEHIND}


@pytest.fixture
def here(profile: Path, vault_home: Path, tmp_path: Path) -> World:
    return world(profile, vault_home, tmp_path / "state")


def staged(here: World, case: Case) -> World:
    """Kept holds what the case says, then Claude's file is deleted and made anew as the case has it."""
    view = here.about(case.session)
    write_live(view.profile, CWD, view.session, case.kept)
    assert view.keep().action == "linked"
    view.live.unlink()
    if case.live is not None:
        write_live(view.profile, CWD, view.session, case.live)
    return view


@pytest.mark.accepts("KEEP-4")
@pytest.mark.parametrize("name", CASES)
def test_the_files_of_the_case_are_judged_so(name: str) -> None:
    case = CASES[name]()
    if case.live is not None:
        assert judge(case.kept, case.live).verdict is case.verdict


@pytest.mark.accepts("KEEP-4", "KEEP-6", "KEEP-20")
@pytest.mark.parametrize("name", CASES)
def test_keep_does_what_the_row_says(here: World, name: str) -> None:
    case = CASES[name]()
    view = staged(here, case)
    before = state_of(view.live)

    answer = view.keep()
    assert answer.verdict == case.verdict
    kept = view.kept.read_bytes()
    union = merge(case.kept, case.live or b"").data
    if case.verdict in (Verdict.ABSENT, Verdict.EMPTY, Verdict.WAITING):
        assert kept == case.kept
        assert state_of(view.live) == before
    elif case.verdict in (Verdict.SAME, Verdict.AHEAD):
        assert kept == case.live
        assert state_of(view.live) == before
        assert view.kept.samefile(view.live)
    elif case.verdict in FOLDED:
        assert kept == union
        assert view.kept.samefile(view.live)
        assert view.live.stat().st_mode & 0o777 == 0o600
    else:
        assert case.verdict in SPLIT
        assert kept == union
        assert state_of(view.live) == before, "a live file that keep only splits from was touched"
        assert not view.kept.samefile(view.live)
        assert (view.chat / f"{view.session}.live").samefile(view.live)
    assert set(case.kept.splitlines()) <= set(kept.splitlines()), "kept lost a line"
    assert names_of_ours(view.profile, view.root) == []
    found = state_of(view.profile, view.root)
    view.keep()
    assert state_of(view.profile, view.root) == found, "a second keep of the same files changed something"


@pytest.mark.accepts("KEEP-4", "RESTORE-3")
@pytest.mark.parametrize("name", CASES)
def test_restore_does_what_the_row_says(here: World, name: str) -> None:
    case = CASES[name]()
    view = staged(here, case)
    union = merge(case.kept, case.live or b"").data
    asked = time.time()

    answer = view.restore()
    live = view.live.read_bytes()
    if case.verdict is Verdict.ABSENT:
        assert answer.action == "restored"
        assert live == case.kept
        assert view.kept.samefile(view.live)
    elif case.verdict in FOLDED_BY_RESTORE:
        assert answer.action == "folded"
        assert live == union
        assert view.kept.samefile(view.live)
    else:
        assert live == case.live, "restore changed a live file that the table leaves alone"
    assert answer.verdict == case.verdict
    assert set(case.kept.splitlines()) <= set(lines_of(view.kept))
    assert view.live.stat().st_mtime >= asked - 1
    assert live.endswith(b"\n")
    assert names_of_ours(view.profile, view.root) == []


@pytest.mark.accepts("KEEP-4", "RESTORE-3")
@pytest.mark.parametrize("name", [name for name in CASES if CASES[name]().verdict in SPLIT])
def test_a_full_restore_folds_what_the_table_leaves_alone(here: World, name: str) -> None:
    case = CASES[name]()
    view = staged(here, case)
    view.restore(full=True)
    assert view.live.read_bytes() == merge(case.kept, case.live or b"").data
    assert view.kept.samefile(view.live)
    assert not (view.chat / f"{view.session}.live").exists()


# ------------------------------------------------------------------ doubled: two live names, two inodes


def doubled(here: World) -> tuple[World, Path, bytes, bytes]:
    """One conversation that went on in two project folders."""
    common = talk("ab")
    one, other = jsonl(*common, *talk("cd", parent="b")), jsonl(*common, *talk("ef", parent="b"))
    write_live(here.profile, CWD, here.session, one)
    second = write_live(here.profile, "/srv/demo/other", here.session, other)
    return here, second, one, other


@pytest.mark.accepts("KEEP-4", "KEEP-19")
def test_keep_of_a_doubled_session_keeps_both_and_touches_neither(here: World) -> None:
    view, second, one, _ = doubled(here)
    for _ in range(3):
        before = state_of(view.live, second)
        answer = view.keep()
        assert answer.verdict == Verdict.DOUBLED
        assert answer.warnings
        assert state_of(view.live, second) == before
    assert twice_or_missing(view.kept, [*one.splitlines(), *talk("ef", parent="b")]) == {}
    assert not view.kept.samefile(view.live)
    assert not view.kept.samefile(second)


@pytest.mark.accepts("KEEP-5", "KEEP-19")
def test_a_second_keep_of_a_doubled_session_changes_nothing_of_kept_and_index(here: World) -> None:
    view, _, _, _ = doubled(here)
    view.keep()
    before = state_of(view.root)
    view.keep()
    assert state_of(view.root) == before


@pytest.mark.accepts("KEEP-4", "KEEP-19")
def test_what_is_appended_to_either_of_two_live_files_is_kept_though_both_are_swept(here: World) -> None:
    view, second, _, _ = doubled(here)
    view.keep()
    view.keep()
    late = [prompt("late1", "d"), prompt("late2", "f")]
    build.append(view.live, jsonl(late[0]))
    build.append(second, jsonl(late[1]))
    view.live.unlink()
    second.unlink()
    view.keep()
    assert twice_or_missing(view.kept, late) == {}


@pytest.mark.accepts("KEEP-4", "RESTORE-5")
def test_restore_of_a_doubled_session_asks_which_and_leaves_both(here: World) -> None:
    from keeper.errors import Refused

    view, second, one, other = doubled(here)
    view.keep()
    with pytest.raises(Refused) as refused:
        view.restore()
    assert "-srv-demo-other" in refused.value.message
    assert "--cwd" in (refused.value.cure or "")
    assert (view.live.read_bytes(), second.read_bytes()) == (one, other)


@pytest.mark.accepts("KEEP-4", "KEEP-19")
def test_a_file_that_claude_set_aside_for_another_is_kept_beside_the_session(here: World) -> None:
    write_live(here.profile, CWD, here.session, jsonl(*talk("ab")))
    aside = here.live.with_name(f"{here.live.name}.superseded-1764500000000")
    aside.write_bytes(jsonl(*talk("xy")))
    here.keep()
    kept = here.chat / "extras" / "beside" / here.session / aside.name
    assert kept.samefile(aside)


# ------------------------------------------------------------------ what the table must not mistake


A, B, C, D = talk("abcd")


def told(kept: list[bytes], live: list[bytes]) -> Verdict:
    return judge(jsonl(*kept), jsonl(*live)).verdict


@pytest.mark.accepts("KEEP-4")
def test_a_file_that_has_every_record_of_kept_is_never_called_by_the_name_of_a_loss() -> None:
    new = talk("ef", parent="d")
    assert told([A, B, C, D], [A, B, meta("mode", mode="plan"), C, D, *new]) is Verdict.AHEAD
    assert told([], [A, B]) is Verdict.AHEAD
    assert judge(jsonl(A, B) + C[:20], jsonl(A, B, C)).verdict is Verdict.AHEAD


@pytest.mark.accepts("KEEP-4")
def test_a_chain_that_hangs_on_a_record_which_kept_has_is_partial_wherever_the_hole_is() -> None:
    assert told([A, B, C, D], [C, D]) is Verdict.PARTIAL
    assert told([A, B, C, D], [A, C, D]) is Verdict.PARTIAL
    assert told([A, B, C], [D]) is Verdict.PARTIAL


@pytest.mark.accepts("KEEP-4")
def test_a_parent_that_neither_file_holds_is_told_as_a_gap() -> None:
    found = judge(jsonl(A, B), jsonl(prompt("z", "lost")))
    assert (found.verdict, found.gaps) == (Verdict.PARTIAL, ("lost",))


@pytest.mark.accepts("KEEP-4")
def test_a_record_that_claude_wrote_with_a_missing_parent_makes_no_loss() -> None:
    odd = prompt("odd", "never")
    assert told([A, odd, B, C], [A, odd, B]) is Verdict.BEHIND


@pytest.mark.accepts("KEEP-4")
def test_sidechain_records_count_for_no_chain() -> None:
    side = prompt("side", "gone", isSidechain=True)
    assert told([A, B, side, C], [A, B, side]) is Verdict.BEHIND
    assert told([A, B, C], [A, side]) is Verdict.BEHIND
    assert judge(jsonl(*(prompt(u, p, isSidechain=True) for u, p in [("s", None), ("t", "s"), ("u", "t")])),
                 jsonl(prompt("u", "t", isSidechain=True)), main=False).verdict is Verdict.PARTIAL  # fmt: skip


@pytest.mark.accepts("KEEP-20")
def test_trimmed_is_said_only_where_all_that_is_missing_lies_before_the_last_boundary() -> None:
    edge = boundary("k", "b")
    after = [prompt("m", "k"), prompt("n", "m")]
    assert told([A, B, edge, *after], [edge, *after]) is Verdict.TRIMMED
    assert told([A, B, edge, *after], [edge, after[1]]) is Verdict.PARTIAL
    assert told([A, B, edge, *after], [edge, after[0]]) is not Verdict.TRIMMED


@pytest.mark.accepts("KEEP-4")
def test_cut_back_and_gone_on_is_diverged_also_once_kept_holds_both_branches() -> None:
    branch = talk("xy", parent="b")
    union = merge(jsonl(A, B, C, D), jsonl(A, B, *branch)).data
    assert told([A, B, C, D], [A, B, *branch]) is Verdict.DIVERGED
    assert judge(union, jsonl(A, B, *branch)).verdict is Verdict.DIVERGED


@pytest.mark.accepts("KEEP-4")
def test_a_changed_record_under_an_old_uuid_is_no_loss() -> None:
    changed = B.replace(b"answer b", b"answer b, edited")
    found = judge(jsonl(A, B, C, D), jsonl(A, changed, C, D))
    assert (found.lacks, found.verdict) == (0, Verdict.THINNED)


@pytest.mark.accepts("KEEP-4")
def test_lines_that_no_parser_takes_are_judged_by_their_bytes_alone() -> None:
    odd = b"\x00\xff{"
    assert told([A, odd, B], [A, odd, B, C]) is Verdict.AHEAD
    assert told([A, odd, B, C], [A, odd]) is Verdict.BEHIND


def test_nothing_is_folded_of_what_a_cli_up_to_1_0_117_wrote(here: World) -> None:
    early = talk("ab", version="1.0.100")
    copied = talk("pqrs", version="1.0.100")
    write_live(here.profile, CWD, here.session, jsonl(*early))
    here.keep()
    write_live(here.profile, CWD, here.session, jsonl(*copied))
    answer = here.keep()
    assert (answer.verdict, answer.action) == (Verdict.UNMERGEABLE, "replaced")
    assert lines_of(here.kept) == copied
    (aside,) = (here.chat / "aside").iterdir()
    assert aside.read_bytes() == jsonl(*early)


@pytest.mark.accepts("KEEP-4")
def test_a_waiting_line_is_taken_once_it_is_finished(here: World) -> None:
    write_live(here.profile, CWD, here.session, jsonl(A, B))
    here.keep()
    write_live(here.profile, CWD, here.session, C[:30])
    assert here.keep().verdict == Verdict.WAITING
    build.append(here.live, C[30:] + b"\n")
    assert here.keep().verdict == Verdict.PARTIAL
    assert lines_of(here.kept) == [A, B, C]
    assert here.kept.samefile(here.live)


@pytest.mark.accepts("KEEP-4", "KEEP-20")
def test_records_behind_a_split_live_file_are_taken_and_it_stays_as_claude_made_it(here: World) -> None:
    case = CASES[f"trimmed-{NEW}"]()
    view = staged(here, case)
    view.keep()
    more = line({"type": "mode", "mode": "plan", "sessionId": view.session})
    build.append(view.live, jsonl(more))
    inode = view.live.stat().st_ino
    view.keep()
    assert lines_of(view.kept)[-1] == more
    assert view.live.stat().st_ino == inode
    assert os.stat(view.chat / f"{view.session}.live").st_ino == inode
