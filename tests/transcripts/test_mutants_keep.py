"""Guards of keep and restore that had no test of their own until a mutation run (docs/mutation.md) took them out."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from keeper import claude, disk
from keeper.claude import folder_names
from keeper.errors import Locked, NotKept, Partial, Refused
from keeper.files import CURES
from keeper.transcripts import restore as restoring
from keeper.transcripts.chat import marked
from keeper.transcripts.durable import MANY_SYNCS
from keeper.transcripts.forget import forget
from keeper.transcripts.keep import Keeper, Options, keep_session
from keeper.transcripts.ledger import Kept
from keeper.transcripts.mass import restore_all
from keeper.transcripts.mirror import SETTLED_S
from keeper.transcripts.restore import STEP_NS, Restored, Restorer, Want, failed
from keeper.transcripts.rules import Rule
from keeper.transcripts.vault import Vault
from tests.build import answer, append, folder, jsonl, meta, prompt, session_id, talk, write_live
from tests.chat import put, sweep, write_whole
from tests.damage import overwrite
from tests.seam import (
    World,
    before,
    calls_of,
    hooked,
    in_child,
    lines_of,
    state_of,
    twice_or_missing,
    world,
)

A, B, C, D = talk("abcd")
LONG = [prompt(f"long{number}", None, f"{number} " * 1000) for number in range(8)]


@pytest.fixture(autouse=True)
def nobody_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Claude that runs on this machine teaches its profile, and that may have a session of the same id."""
    monkeypatch.setattr(claude, "running_profiles", lambda *_: [])


@pytest.fixture(params=["one volume", "two volumes"])
def here(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    place = tmp_path if request.param == "one volume" else request.getfixturevalue("second_volume")
    (place / "profile" / "projects").mkdir(parents=True)
    return world(place / "profile", tmp_path / "vault", tmp_path / "state")


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


# --- keep -----------------------------------------------------------------------------------------------


@pytest.mark.accepts("KEEP-19")
def test_the_answer_for_a_doubled_session_counts_what_both_files_brought(here: World) -> None:
    write_live(here.profile, here.cwd, here.session, jsonl(A, B))
    second = write_live(here.profile, "/srv/demo/other", here.session, jsonl(A, B, *talk("ef", parent="b")))
    first = here.keep()
    assert (first.verdict, first.action, first.mode) == ("doubled", "split", "split")
    append(here.live, jsonl(C))
    append(second, jsonl(*talk("gh", parent="f")))
    again = here.keep()
    assert (again.verdict, again.action, again.added) == ("doubled", "split", 3)
    none = here.keep()
    assert (none.verdict, none.action, none.added) == ("doubled", "none", 0)


def facts_of(view: World) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((view.chat / "chat.json").read_bytes())
    return told


def tombstones(view: World) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines_of(view.root / "tombstones.jsonl")]


def second(here: World, lines: list[bytes] | None = None) -> World:
    """Another session of another directory, with a live file."""
    view = here.about(session_id(2), "/srv/demo/other")
    write_live(view.profile, view.cwd, view.session, jsonl(*(lines or talk("pq", view.session, cwd=view.cwd))))
    return view


def in_profile(view: World, profile: Path) -> World:
    return replace(view, settings=replace(view.settings, profiles=(profile,)))


@pytest.fixture
def near(tmp_path: Path) -> World:
    (tmp_path / "profile" / "projects").mkdir(parents=True)
    return world(tmp_path / "profile", tmp_path / "vault", tmp_path / "state")


@pytest.mark.accepts("KEEP-11", "KEEP-2")
def test_a_keep_of_one_session_looks_for_no_other_chats_folder_and_one_of_all_does(near: World) -> None:
    other = second(near)
    write_live(near.profile, near.cwd, near.session, jsonl(A, B))
    near.keep_all()
    shutil.rmtree(other.chat)
    other.live.unlink()
    near.keep()
    assert near.vault().tombstones() == []
    assert len(near.vault().rows()) == 2
    near.keep_all()
    assert [(one.session, one.by) for one in near.vault().tombstones()] == [(other.session, "hand")]
    assert [row.session for row in near.vault().rows()] == [near.session]


@pytest.mark.accepts("SWAP-3")
@pytest.mark.parametrize("how", ["beside a file that is not merged", "by a run that was killed"])
@pytest.mark.parametrize("who", ["a pass", "a restore"])
def test_what_is_held_of_a_live_file_that_is_gone_is_taken_in(near: World, how: str, who: str) -> None:
    write_live(near.profile, near.cwd, near.session, jsonl(A, B, C, D))
    near.keep()
    own = talk("xyz", parent="b")
    if how == "by a run that was killed":
        write_live(near.profile, near.cwd, near.session, jsonl(*own))
        with hooked(before("exchange", kill)):
            assert in_child(near.keep) == -signal.SIGKILL
    else:
        write_live(near.profile, near.cwd, near.session, jsonl(A, B, *own[:2]))
        assert near.keep().mode == "split"
        append(near.live, jsonl(own[2]))
    near.live.unlink()
    if who == "a pass":
        near.keep_all()
    else:
        near.restore()
        assert lines_of(near.live) == lines_of(near.kept)
    assert twice_or_missing(near.kept, [A, B, C, D, *own]) == {}
    assert [path for path in (near.chat / "swap").glob("*") if path.is_file()] == []


@pytest.mark.accepts("KEEP-5", "KEEP-13")
def test_a_pass_answers_for_what_it_found_in_its_profile_and_for_nothing_else(near: World, tmp_path: Path) -> None:
    """Not for what is swept and has nothing left to take in, and not for what lives in another profile."""
    second(near).keep()
    near.about(session_id(2), "/srv/demo/other").live.unlink()
    write_live(near.profile, near.cwd, near.session, jsonl(A, B))
    apart = in_profile(near, tmp_path / "another").about(session_id(3))
    for lines in (talk("abcd", apart.session), talk("axy", apart.session)):
        write_live(apart.profile, apart.cwd, apart.session, jsonl(*lines))
        apart.keep()
    apart.live.unlink()
    assert set(near.keep_all()) == {near.session}
    assert set(apart.keep_all()) == {apart.session}


def test_a_pass_says_how_far_it_is(here: World) -> None:
    second(here)
    write_live(here.profile, here.cwd, here.session, jsonl(A, B))
    told: list[tuple[int, int]] = []
    for _ in range(2):
        keeper = Keeper(here.vault(), time.time())
        keeper.profile(here.profile, lambda done, total: told.append((done, total)))
        keeper.finish()
    assert told == [(1, 2), (2, 2)] * 2
    told.clear()
    keeper.seal(lambda done, total: told.append((done, total)))
    assert told == [(1, 2), (2, 2)]


@pytest.mark.accepts("KEEP-17")
def test_a_folder_that_cannot_be_read_is_told_with_its_path_and_stops_nothing(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = second(here)
    write_live(here.profile, here.cwd, here.session, jsonl(A, B))
    look = os.scandir

    def refuse(path: Any = ".") -> Any:
        if str(path) == str(other.live.parent):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return look(path)

    monkeypatch.setattr(os, "scandir", refuse)
    answers = here.keep_all()
    assert {session: one.error is None for session, one in answers.items()} == {here.session: True, "": False}
    told = answers[""]
    assert str(other.live.parent) in str(told.error)
    assert (told.profile, told.cure, told.exit_code) == (str(here.profile), CURES[errno.EACCES], 1)


@pytest.mark.accepts("KEEP-11")
def test_a_forgotten_session_is_answered_with_its_chat_and_adopted_with_a_time(near: World) -> None:
    write_live(near.profile, near.cwd, near.session, jsonl(A, B))
    named = Options(chat="the-hosts")
    near.keep(named)
    forget(near.vault(), "the-hosts", 1.5)
    for options in (None, named, Options(chat="another")):
        told = near.keep(options)
        assert (told.chat, told.profile, told.verdict) == ("the-hosts", str(near.profile), "forgotten")
    now = time.time()
    told = near.keep(Options(adopt=True))
    assert (told.chat, told.action) == (near.session, "linked")
    lifted = tombstones(near)[-1]
    assert (lifted["by"], lifted["chat"], lifted["session"], lifted["profile"]) == (
        "adopt", "the-hosts", near.session, str(near.profile),
    )  # fmt: skip
    assert now <= lifted["at"] <= time.time()


@pytest.mark.accepts("KEEP-12", "KEEP-13")
def test_a_chat_json_that_is_lost_is_told_again_as_it_was(here: World) -> None:
    """Whose it is, where it lives, and when its first file was born: on another volume kept's copy is younger."""
    write_live(here.profile, here.cwd, here.session, jsonl(A, B))
    here.keep()
    facts, rows = facts_of(here), here.vault().rows()
    for keep in (here.keep, here.keep_all):
        (here.chat / "chat.json").unlink()
        keep()
        assert facts_of(here) == facts
        assert here.vault().rows() == rows


@pytest.mark.accepts("KEEP-5")
def test_a_tag_and_a_policy_are_added_to_what_is_told_and_stay(here: World) -> None:
    write_live(here.profile, here.cwd, here.session, jsonl(A, B))
    here.keep(Options(tags=("one",)))
    here.keep(Options(tags=("two", "one"), policy="keep"))
    here.keep()
    assert (facts_of(here)["tags"], facts_of(here)["policy"]) == (["one", "two"], "keep")
    here.keep(Options(policy="off"))
    assert (facts_of(here)["tags"], facts_of(here)["policy"]) == (["one", "two"], "off")


@pytest.mark.accepts("KEEP-13", "KEEP-17")
def test_a_session_that_fails_in_one_profile_is_kept_in_the_other_and_told_with_the_one_that_failed(
    near: World, tmp_path: Path
) -> None:
    far = in_profile(near, tmp_path / "another")
    for view in (near, far):
        write_live(view.profile, view.cwd, view.session, jsonl(A, B))
        view.keep()
    append(near.live, jsonl(C))
    append(far.live, jsonl(C))
    both = replace(near.settings, profiles=(near.profile, far.profile))
    refused = {str(near.profile): near.session, str(far.profile): marked(near.session, str(far.profile))}
    for profile, chat in refused.items():
        vault = Vault.open(replace(both, lock_wait_s=0.05))
        with near.vault().lock(chat):
            answers = {one.profile: one for one in keep_session(vault, near.session, time.time())}
        assert set(answers) == set(refused)
        failed = answers.pop(profile)
        assert (failed.session, failed.exit_code, failed.verdict) == (near.session, Locked.exit_code, "")
        assert [one.error for one in answers.values()] == [None]
    with near.vault().lock(near.session), near.vault().lock(refused[str(far.profile)]), pytest.raises(Locked):
        keep_session(Vault.open(replace(both, lock_wait_s=0.05)), near.session, time.time())


@pytest.mark.accepts("KEEP-2")
def test_many_files_are_made_durable_by_one_barrier_and_one_sessions_each_by_itself(
    near: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_live(near.profile, near.cwd, near.session, jsonl(A, B))
    for number in range(MANY_SYNCS):
        put(near.companion / f"{number}.txt", b"x")
    near.vault()

    def barriers(run: Callable[[], object]) -> int:
        return sum(call == "sync" and paths == (str(near.root),) for call, paths in calls_of(run))

    assert barriers(near.keep) == 0
    for number in range(MANY_SYNCS):
        append(near.companion / f"{number}.txt", b"more")
    vault = near.vault()
    keeper = Keeper(vault, time.time())
    keeper.profile(near.profile)
    assert barriers(keeper.finish) == 1
    assert barriers(keeper.finish) == 0


@pytest.mark.accepts("KEEP-1", "KEEP-3")
def test_a_keep_answers_with_all_that_it_found_and_did(near: World) -> None:
    live = write_whole(near.profile, near.session)
    whole = Kept(
        near.session, str(near.profile), near.session, live.parent.name, near.cwd, "ahead", "linked", "link", 0,
        len([path for path in near.profile.rglob("*") if path.is_file()]) - 1,
    )  # fmt: skip
    assert near.keep() == whole
    assert near.keep() == replace(whole, verdict="same", action="none", files=0)
    lines = lines_of(live)
    write_live(near.profile, near.cwd, near.session, jsonl(*lines[:2], *talk("xyz", near.session, parent="b")))
    told = near.keep()
    assert told == replace(
        whole, verdict="diverged", action="split", mode="split", added=3, files=0, lacks=2, branch="d"
    )
    again = lines[1].replace(b"answer b", b"another!")
    write_live(near.profile, near.cwd, near.session, jsonl(lines[0], again, *talk("fg", near.session, parent="e")))
    told = near.keep()
    assert (told.verdict, told.action, told.variants, told.gaps) == ("partial", "folded", ("b",), ("e",))
    assert [word in " ".join(told.warnings) for word in ("record b ", "record e ")] == [True, True]


@pytest.mark.accepts("KEEP-5", "RESTORE-17")
def test_the_row_of_a_keep_is_the_one_that_the_folders_tell(near: World) -> None:
    now = time.time()
    write_live(near.profile, near.cwd, near.session, jsonl(A, B))
    second(near)
    near.keep()
    near.keep_all()
    rows = near.vault().rows()
    assert all(now <= row.since <= time.time() for row in rows)
    near.vault().reindex()
    assert [replace(row, since=0) for row in near.vault().rows()] == [replace(row, since=0) for row in rows]


@pytest.mark.accepts("KEEP-2", "KEEP-5")
def test_what_did_not_change_for_long_is_not_synced_again(near: World) -> None:
    write_live(near.profile, near.cwd, near.session, jsonl(A, B))
    put(near.companion / "x.txt", b"x")
    near.keep()

    def keep(now: float) -> list[tuple[str, tuple[str, ...]]]:
        with near.vault() as vault:
            return calls_of(lambda: keep_session(vault, near.session, now, None, near.profile))

    assert ("sync", (str(near.kept),)) in keep(time.time())
    assert keep(time.time() + 2 * SETTLED_S) == []


@pytest.mark.accepts("KEEP-2")
def test_a_pass_over_what_is_new_syncs_nothing_before_its_end(near: World) -> None:
    second(near)
    write_live(near.profile, near.cwd, near.session, jsonl(A, B))
    keeper = Keeper(near.vault(), time.time())
    assert "sync" not in [call for call, _ in calls_of(lambda: keeper.profile(near.profile))]
    assert "sync" in [call for call, _ in calls_of(keeper.finish)]


@pytest.mark.accepts("KEEP-2")
def test_a_kept_file_that_is_gone_again_at_the_end_of_a_keep_keeps_no_other_from_being_synced(near: World) -> None:
    write_live(near.profile, near.cwd, near.session, jsonl(A, B))
    put(near.companion / "x.txt", b"x")
    keeper = Keeper(near.vault(), time.time())
    keeper.session(near.profile, near.session)
    (near.kept_companion / "x.txt").unlink()
    synced = {paths[0] for call, paths in calls_of(keeper.finish) if call == "sync"}
    assert {str(near.kept), str(near.chat), str(near.chat / "chat.json"), str(near.root / "chats")} <= synced


@pytest.mark.accepts("KEEP-5")
def test_an_index_that_breaks_during_a_keep_is_built_anew_with_what_that_keep_found(near: World) -> None:
    second(near).keep()
    write_live(near.profile, near.cwd, near.session, jsonl(A, B, C, D))
    near.keep()
    write_live(near.profile, near.cwd, near.session, jsonl(A, B, *talk("xy", parent="b")))
    keeper = Keeper(near.vault(), time.time())
    keeper.session(near.profile, near.session)
    keeper.vault.index.close()
    (near.root / "state.db").write_bytes(b"no index " * 1000)
    keeper.finish()
    assert {row.session: row.state for row in near.vault().rows()} == {near.session: "diverged", session_id(2): ""}


@pytest.mark.accepts("RESTORE-17", "RESTORE-10")
def test_where_chat_json_is_lost_and_live_swept_too_a_restore_finds_the_place_by_the_records(near: World) -> None:
    write_live(near.profile, near.cwd, near.session, jsonl(A, B))
    near.keep()
    (near.chat / "chat.json").unlink()
    near.live.unlink()
    put(near.profile / "tasks" / near.session / "1.json", b"{}")
    near.keep_all()
    assert facts_of(near)["sessions"][near.session]["cwd"] == near.cwd
    assert near.restore().live == str(near.live)
    assert lines_of(near.live) == [A, B]


@pytest.mark.accepts("KEEP-15")
def test_a_directory_that_only_a_later_record_names_is_told_once_it_stands_there(near: World) -> None:
    write_live(near.profile, near.cwd, near.session, jsonl(prompt("a", None, cwd="")))
    assert near.keep().cwd == ""
    append(near.live, jsonl(B))
    assert near.keep().cwd == near.cwd
    assert [(row.head, row.cwd) for row in near.vault().rows()] == [("a", near.cwd)]


@pytest.mark.accepts("SEAL-1")
def test_a_thorough_keep_sees_what_rots_far_from_the_end(near: World) -> None:
    write_live(near.profile, near.cwd, near.session, jsonl(*LONG))
    near.keep()
    overwrite(near.live, len(jsonl(*LONG[:2])) + 3000, b"!")
    assert near.keep().verdict == "same"
    told = near.keep(Options(thorough=True))
    assert (told.action, told.warnings != ()) == ("folded", True)
    assert lines_of(near.live) == lines_of(near.kept) == LONG


@pytest.mark.accepts("KEEP-2", "KEEP-17")
def test_a_pass_over_some_sessions_keeps_these_and_answers_for_one_that_fails(near: World) -> None:
    other, third = second(near), near.about(session_id(3))
    for view in (near, third):
        write_live(view.profile, view.cwd, view.session, jsonl(*talk("ab", view.session)))
    vault = Vault.open(replace(near.settings, lock_wait_s=0.05))
    keeper = Keeper(vault, time.time())
    with near.vault().lock(near.session):
        told = {one.session: one for one in keeper.profile(near.profile, only={near.session, other.session})}
    keeper.finish()
    assert {session: one.action for session, one in told.items()} == {near.session: "none", other.session: "linked"}
    failed = told[near.session]
    assert (failed.exit_code, failed.profile, failed.chat) == (Locked.exit_code, str(near.profile), "")
    assert "lock" in str(failed.error)
    assert failed.cure
    assert [row.session for row in near.vault().rows()] == [other.session]
    assert not third.chat.exists()


@pytest.mark.accepts("KEEP-5")
def test_a_chat_of_which_no_record_tells_anything_is_kept_again_and_again(here: World) -> None:
    only = meta("mode", mode="plan", sessionId=here.session)
    write_live(here.profile, here.cwd, here.session, jsonl(only))
    for keep in (here.keep, here.keep, here.keep_all):
        keep()
        append(here.live, jsonl(only))
    told = here.keep_all()[here.session]
    assert (told.error, told.cwd, told.project) == (None, "", folder(here.cwd))
    assert lines_of(here.kept) == [only] * 4


@pytest.mark.accepts("KEEP-11")
def test_a_chat_that_is_forgotten_before_its_row_is_written_is_in_no_list(near: World) -> None:
    write_live(near.profile, near.cwd, near.session, jsonl(A, B))
    other = second(near)
    keeper = Keeper(near.vault(), time.time())
    keeper.profile(near.profile)
    forget(near.vault(), near.session, time.time())
    keeper.finish()
    assert [row.session for row in near.vault().rows()] == [other.session]


@pytest.mark.accepts("KEEP-19", "KEEP-10")
def test_one_of_two_live_files_that_is_swept_right_after_it_was_listed_hides_no_other(
    near: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for cwd in (near.cwd, "/srv/demo/other"):
        write_live(near.profile, cwd, near.session, jsonl(A, B))
    look = claude.survey

    def swept(profile: Path, only: str | None = None) -> claude.Survey:
        found = look(profile, only)
        found.footprints[near.session].transcripts[0].unlink(missing_ok=True)
        return found

    monkeypatch.setattr(claude, "survey", swept)
    assert near.keep_all()[near.session].action == "linked"
    assert lines_of(near.kept) == [A, B]


@pytest.mark.accepts("FIT-8", "KEEP-5")
def test_what_was_told_of_a_session_stays_told(near: World) -> None:
    write_live(near.profile, near.cwd, near.session, jsonl(A, B))
    near.keep()
    write_live(near.profile, near.cwd, near.session, jsonl(*talk("ef", parent="d")))
    assert near.keep().gaps == ("d",)
    told = facts_of(near)["sessions"][near.session]
    assert told["gaps"] == ["d"]
    append(near.live, jsonl(*talk("g", parent="f")))
    for keep in (near.keep, near.keep_all):
        keep()
        assert facts_of(near)["sessions"][near.session] == told


@pytest.mark.accepts("KEEP-11")
def test_a_chat_that_a_hand_removed_is_kept_again_under_its_own_name_where_it_is_adopted(near: World) -> None:
    second(near).keep()
    write_live(near.profile, near.cwd, near.session, jsonl(A, B))
    near.keep()
    shutil.rmtree(near.chat)
    assert near.keep().verdict == "forgotten"
    near.keep(Options(adopt=True))
    shutil.rmtree(near.chat)
    told = near.keep(Options(adopt=True))
    assert (told.action, told.chat) == ("linked", near.session)
    assert near.kept.samefile(near.live)


# --- restore --------------------------------------------------------------------------------------------


def restored(view: World, want: Want | None = None, now_ns: int = 0) -> Restored:
    with view.vault() as vault:
        return Restorer(vault, now_ns or time.time_ns(), want or Want()).session(view.session)


@pytest.mark.accepts("RESTORE-1", "RESTORE-8", "RESTORE-10")
def test_a_restore_answers_with_all_that_it_found_and_did_and_a_dry_run_with_what_it_would(
    here: World, tmp_path: Path
) -> None:
    (tmp_path / "proj").mkdir()
    view = here.about(here.session, str(tmp_path / "proj"))
    live = write_whole(view.profile, view.session, cwd=view.cwd)
    count = len([path for path in view.profile.rglob("*") if path.is_file()])
    view.keep()
    whole = Restored(
        view.session, view.session, str(view.profile), folder(view.cwd), view.cwd, str(live), "same", "none", 4, 0,
        f"cd {view.cwd} && claude --resume {view.session}", True,
    )  # fmt: skip
    assert restored(view, Want(dry_run=True)) == whole
    assert view.restore() == whole
    sweep(view.profile)
    assert restored(view, Want(dry_run=True)) == replace(whole, verdict="absent", action="would restore")
    assert not live.exists()
    assert view.restore() == replace(whole, verdict="absent", action="restored", files=count - 1)
    assert view.restore() == whole


OTHER = talk("xy", parent="b")
WHOLE = talk("pqabcdef")
THIN = [*WHOLE[:2], prompt("c", "q"), *WHOLE[5:]]
SIDE = [prompt("s", "a", isSidechain=True), answer("t", "s", isSidechain=True)]
OLD_CLI = [talk("abcd", version="1.0.117"), talk("wxyz", version="1.0.117")]
PLANS = {
    "a lost end": ([A, B, C, D], jsonl(A, B), False, ("behind", "would fold", 2, "", ())),
    "a lost parent": ([A, B], jsonl(*talk("ef", parent="d")), False, ("partial", "would fold", 2, "", ("d",))),
    "holes": (WHOLE, jsonl(*THIN), False, ("thinned", "none", 2, "", ())),
    "holes, full": (WHOLE, jsonl(*THIN), True, ("thinned", "would fold", 2, "", ())),
    "a branch, sidechains": ([A, *SIDE, B, C, D], jsonl(A, B, *OTHER), False, ("diverged", "none", 2, "d", ())),
    "nothing in it": ([A, B], b"", False, ("empty", "would fold", 0, "", ())),
    "another branch": ([A, B, C, D], jsonl(A, B, *OTHER), False, ("diverged", "none", 2, "d", ())),
    "another branch, full": ([A, B, C, D], jsonl(A, B, *OTHER), True, ("diverged", "would fold", 2, "d", ())),
    "an unfinished line": ([A, B, C, D], jsonl(A, B, *OTHER) + b"{", False, ("diverged", "would fold", 2, "d", ())),
    "copied by an old CLI": (OLD_CLI[0], jsonl(*OLD_CLI[1]), True, ("unmergeable", "none", 0, "", ())),
    "an old CLI's, unfinished": (OLD_CLI[0], jsonl(*OLD_CLI[1]) + b"{", False, ("unmergeable", "none", 0, "", ())),
}


@pytest.mark.parametrize(("kept", "live", "full", "told"), PLANS.values(), ids=PLANS)
def test_a_dry_run_tells_the_verdict_the_deed_and_what_live_lacks_and_the_restore_says_the_same(
    here: World, kept: list[bytes], live: bytes, full: bool, told: tuple[object, ...]
) -> None:
    write_live(here.profile, here.cwd, here.session, jsonl(*kept))
    here.keep()
    write_live(here.profile, here.cwd, here.session, live)
    found = restored(here, Want(full=full, dry_run=True))
    assert (found.verdict, found.action, found.lacks, found.branch, found.gaps) == told
    assert here.live.read_bytes() == live
    if found.verdict == "unmergeable":
        return  # the longer of the two becomes what is kept: that is what a restore answers with
    done = here.restore(full)
    assert (done.verdict, done.lacks, done.gaps) == (found.verdict, found.lacks, found.gaps)
    assert done.action in {"would fold": ("folded", "mended"), "none": ("none",)}[found.action]
    (row,) = here.vault().rows()
    assert row.state == ("" if done.action == "folded" else done.verdict), "told as it stands there now"
    for one in (found, done):
        other, holes = ([warning for warning in one.warnings if word in warning] for word in ("--branch", "--full"))
        assert [f"--branch {told[3]}`" in warning for warning in other] == [True] * (one.verdict == "diverged")
        assert len(holes) == (one.verdict == "thinned" and not full)


@pytest.mark.accepts("FIT-4")
def test_lines_that_no_cli_reads_are_told_by_their_number(here: World) -> None:
    bad = b'{"a":1}{"b":2}'
    for lines, said in (([A, bad, B], "line 2: "), ([A, bad, B, bad], "line 2 and 1 more: ")):
        write_live(here.profile, here.cwd, here.session, jsonl(*lines))
        here.keep()
        told = here.restore()
        assert told.records == len(lines)
        assert [warning[: len(said)] for warning in told.warnings if "--repaired" in warning] == [said]
        here = here.about(session_id(2))


@pytest.mark.accepts("RESTORE-3", "RESTORE-5")
def test_a_file_that_cannot_come_back_is_told_in_whichever_chat_it_is_kept(near: World) -> None:
    write_live(near.profile, near.cwd, near.session, jsonl(A, B))
    put(near.companion / "one" / "1.txt", b"1")
    near.keep()
    shutil.rmtree(near.companion / "one")
    put(near.companion / "two" / "2.txt", b"2")
    put(near.companion / "3.txt", b"3")
    near.keep(Options(chat="the-hosts"))
    shutil.rmtree(near.live.parent)
    told = near.restore()
    assert (told.action, told.files, told.error, told.exit_code, told.warnings[1:]) == ("restored", 3, None, 0, ())
    shutil.rmtree(near.companion)
    put(near.companion / "two", b"in the way")
    told = near.restore()
    assert (told.files, told.exit_code) == (2, Partial.exit_code)
    assert str(near.companion / "two") in str(told.error)
    assert told.error in told.warnings
    assert told.cure
    near.live.unlink()
    shutil.rmtree(near.companion / "one")
    put(near.companion / "one", b"in the way, too")
    told = near.restore()
    assert [f"{near.companion}/{name}" in "".join(told.warnings) for name in ("one", "two")] == [True, True]
    assert told.exit_code == Partial.exit_code


@pytest.mark.accepts("RESTORE-5", "SWAP-3")
def test_what_either_of_two_chats_holds_of_a_live_file_comes_back(near: World) -> None:
    write_live(near.profile, near.cwd, near.session, jsonl(A, B, C, D))
    for name in (None, "the-hosts"):
        near.keep(Options(chat=name))
    write_live(near.profile, near.cwd, near.session, jsonl(A, B))
    for name in (None, "the-hosts"):
        assert near.keep(Options(chat=name)).mode == "split"
    append(near.live, jsonl(*talk("ef", parent="d")))
    near.live.unlink()
    near.restore()
    assert lines_of(near.live) == [A, B, C, D, *talk("ef", parent="d")]


@pytest.mark.accepts("FIT-6", "RESTORE-2")
def test_what_a_conversation_goes_on_in_comes_back_with_an_older_time_and_one_that_cannot_is_told(near: World) -> None:
    whole, more = talk("abcd", version="1.0.124"), talk("ef", parent="d", version="1.0.124")
    other = near.about(session_id(2))
    write_live(near.profile, near.cwd, near.session, jsonl(*whole))
    write_live(other.profile, other.cwd, other.session, jsonl(*more))
    near.keep_all()
    shutil.rmtree(near.live.parent)
    now_ns = time.time_ns()
    told = restored(near, now_ns=now_ns)
    assert (told.also, told.error) == ((other.session,), None)
    assert (near.live.stat().st_mtime_ns, other.live.stat().st_mtime_ns) == (now_ns, now_ns - STEP_NS)
    shutil.rmtree(near.live.parent)
    other.live.mkdir(parents=True)
    told = restored(near)
    assert (told.also, told.exit_code, told.action) == ((other.session,), Partial.exit_code, "restored")
    assert str(other.live) in str(told.error)
    assert told.error in told.warnings
    near.keep(Options(chat="the-hosts"))
    again = near.restore()
    assert (again.exit_code, again.error) == (Partial.exit_code, told.error), "with a further chat, too"


@pytest.mark.accepts("RESTORE-10", "KEEP-19")
def test_where_two_live_files_stand_the_directory_says_which_is_meant_and_both_get_the_time_of_now(
    here: World,
) -> None:
    write_live(here.profile, here.cwd, here.session, jsonl(A, B))
    other = here.about(here.session, "/srv/demo/other")
    write_live(other.profile, other.cwd, other.session, jsonl(A, B, C))
    here.keep()
    for view in (here, other):
        now_ns = time.time_ns()
        told = restored(view, Want(cwd=view.cwd), now_ns)
        assert (told.live, told.verdict, told.action) == (str(view.live), "doubled", "none")
        assert {here.live.stat().st_mtime_ns, other.live.stat().st_mtime_ns} == {now_ns}
    with pytest.raises(Refused) as refused:
        here.restore()
    assert f"{folder(other.cwd)}, {folder(here.cwd)}" in str(refused.value) or (
        f"{folder(here.cwd)}, {folder(other.cwd)}" in str(refused.value)
    )
    assert (lines_of(here.live), lines_of(other.live)) == ([A, B], [A, B, C])


@pytest.mark.accepts("RESTORE-17")
def test_a_chat_of_which_nobody_knows_a_directory_comes_back_all_the_same(near: World) -> None:
    only = meta("mode", mode="plan", sessionId=near.session)
    write_live(near.profile, near.cwd, near.session, jsonl(only))
    near.keep()
    (near.chat / "chat.json").unlink()
    near.live.unlink()
    told = near.restore()
    assert (told.project, told.cwd, told.resume) == ("-", "", f"claude --resume {near.session}")
    assert Path(told.live) == near.profile / "projects" / "-" / f"{near.session}.jsonl"
    assert lines_of(Path(told.live)) == [only]
    assert told.resumable is False


@pytest.mark.accepts("RESTORE-2", "RESTORE-4")
def test_what_is_swept_while_the_answer_is_made_is_answered_for_from_kept(
    near: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_live(near.profile, near.cwd, near.session, jsonl(A, B, C))
    near.keep()
    look = restoring.resumable

    def swept(path: str) -> bool:
        near.live.unlink(missing_ok=True)
        return look(path)

    monkeypatch.setattr(restoring, "resumable", swept)
    told = near.restore()
    assert (told.live, told.records, told.resumable) == (str(near.live), 3, True)


@pytest.mark.accepts("RESTORE-2", "RESTORE-10")
def test_one_that_cannot_be_put_back_is_answered_with_its_chat_its_profile_and_why(
    near: World,
) -> None:
    other = second(near)
    write_live(near.profile, near.cwd, near.session, jsonl(A, B))
    near.keep_all()
    sweep(near.profile)
    other.live.mkdir(parents=True)
    with near.vault() as vault:
        answers = {one.session: one for one in restore_all(Restorer(vault, time.time_ns(), Want()), vault.rows())}
    told = answers[other.session]
    assert told.error and str(other.live) in told.error
    assert told.cure
    assert told == failed(other.session, Refused(told.error, told.cure), other.session, str(near.profile))
    assert (told.session, told.chat, told.profile, told.action) == (
        other.session, other.session, str(near.profile), "failed",
    )  # fmt: skip
    assert (told.records, told.files, told.resumable, told.exit_code) == (None, 0, None, Refused.exit_code)
    assert (told.project, told.cwd, told.live, told.verdict, told.resume) == ("", "", "", "", "")
    assert answers[near.session].action == "restored"


@pytest.mark.accepts("SEAL-1")
def test_a_dry_run_sees_what_was_cut_from_a_file_in_place(near: World) -> None:
    write_live(near.profile, near.cwd, near.session, jsonl(A, B, C, D))
    near.keep_all()
    assert restored(near, Want(dry_run=True)).verdict == "same"
    os.truncate(near.live, len(jsonl(A, B)))
    told = restored(near, Want(dry_run=True))
    assert (told.verdict, told.action, told.lacks, told.records) == ("behind", "would fold", 2, 2)


@pytest.mark.accepts("RESTORE-2", "RESTORE-4")
@pytest.mark.parametrize(("call", "count"), [("touch", 1), ("sync", 1), ("sync", 2)])
def test_a_live_file_that_is_swept_right_before_it_is_touched_or_synced_is_there_at_the_end(
    here: World, call: str, count: int
) -> None:
    write_live(here.profile, here.cwd, here.session, jsonl(A, B))
    here.keep()
    times: list[int] = []

    def swept(name: str, paths: tuple[str, ...]) -> None:
        if name == call and paths[0] == str(here.live) and here.live.exists():
            times.append(1)
            if len(times) == count:
                here.live.unlink()

    with hooked(swept):
        here.restore()
    assert len(times) >= count
    assert lines_of(here.live) == [A, B]


@pytest.mark.accepts("KEEP-19", "RESTORE-2")
def test_of_two_live_files_the_one_that_stays_gets_the_time_of_now_though_the_other_is_swept_meanwhile(
    here: World,
) -> None:
    other = here.about(here.session, "/srv/demo/other")
    for gone, stays in ((here, other), (other, here)):
        for view in (here, other):
            write_live(view.profile, view.cwd, view.session, jsonl(A, B, C))
        here.keep()
        now_ns = time.time_ns()
        with hooked(before("touch", gone.live.unlink, str(gone.live))):
            restored(stays, Want(cwd=stays.cwd), now_ns)
        assert not gone.live.exists()
        assert stays.live.stat().st_mtime_ns == now_ns


@pytest.mark.accepts("KEEP-17")
def test_a_restore_whose_answer_cannot_be_noted_is_done_in_part_and_says_why(near: World) -> None:
    write_live(near.profile, near.cwd, near.session, jsonl(A, B, C, D))
    near.keep()
    write_live(near.profile, near.cwd, near.session, jsonl(A, B))
    near.keep()

    def full(call: str, paths: tuple[str, ...]) -> None:
        if call == "create" and "chat.json" in paths[0] and lines_of(near.live) == [A, B, C, D]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with hooked(full):
        told = near.restore()
    assert (told.action, told.exit_code, told.cure) == ("folded", Partial.exit_code, CURES[errno.ENOSPC])
    assert "chat.json" in str(told.error)
    assert told.error in told.warnings


@pytest.mark.accepts("FIT-3")
def test_where_no_cli_tells_its_version_a_long_directory_is_the_folder_that_is_there(near: World) -> None:
    cwd = "/srv/" + "long" * 60
    hashed, whole = folder_names(cwd)
    lines = talk("ab", near.session, cwd=cwd)
    live = near.profile / "projects" / whole / f"{near.session}.jsonl"
    put(live, jsonl(*lines))
    near.keep()
    live.unlink()
    assert restored(near, Want(cwd=cwd)).project == whole
    live.unlink()
    live.parent.rmdir()
    assert restored(near, Want(cwd=cwd)).project == hashed


@pytest.mark.accepts("RESTORE-10")
def test_the_line_to_type_undoes_what_the_shell_says_of_the_profile(near: World) -> None:
    write_live(near.profile, near.cwd, near.session, jsonl(A, B))
    near.keep()
    shell = replace(near, settings=replace(near.settings, named_profile=near.root))
    assert shell.restore().resume == f"cd {near.cwd} && env -u CLAUDE_CONFIG_DIR claude --resume {near.session}"
    shell = replace(near, settings=replace(near.settings, default_profile=near.root))
    named = f"CLAUDE_CONFIG_DIR={near.profile}"
    assert shell.restore().resume == f"cd {near.cwd} && {named} claude --resume {near.session}"


@pytest.mark.accepts("KEEP-13", "RESTORE-5")
def test_a_restore_takes_the_profile_that_is_named_and_refuses_to_guess(near: World, tmp_path: Path) -> None:
    far = in_profile(near, tmp_path / "another")
    write_live(near.profile, near.cwd, near.session, jsonl(A, B))
    write_live(far.profile, far.cwd, far.session, jsonl(*talk("xyz")))
    near.keep()
    far.keep()
    for view, lines in ((near, [A, B]), (far, talk("xyz"))):
        view.live.unlink()
        told = restored(near, Want(profile=view.profile))
        assert (told.profile, told.live, lines_of(view.live)) == (str(view.profile), str(view.live), lines)
    with pytest.raises(Refused, match="in 2 profiles"):
        near.restore()


# --- what a rule excludes, for a keep and a restore -----------------------------------------------------


def ruled(view: World, **conditions: str) -> World:
    """The same with a rule in the settings file."""
    return replace(view, settings=replace(view.settings, exclude=(tuple(conditions.items()),)))


@pytest.mark.accepts("POLICY-1", "POLICY-2")
def test_an_excluded_chat_is_answered_with_the_rule_and_what_was_kept_of_it_goes(near: World) -> None:
    other = second(near)
    write_live(near.profile, near.cwd, near.session, jsonl(A, B))
    barred = ruled(near, cwd="/srv/demo/p*")
    none = Kept(
        near.session, str(near.profile), verdict="excluded", warnings=("excluded by the rule cwd=/srv/demo/p*",)
    )  # fmt: skip
    assert barred.keep() == none
    assert not near.chat.exists()
    answers = barred.keep_all()
    assert (answers[near.session], answers[other.session].action) == (none, "linked")
    near.keep()
    assert barred.keep() == replace(none, action="removed")
    assert not near.chat.exists()
    assert [row.session for row in near.vault().rows()] == [other.session]
    near.keep()
    assert barred.keep_all()[near.session] == replace(none, action="removed")
    near.keep()
    new = ruled(near, project="-srv-demo-p*").keep_all()[near.session]
    assert (new.verdict, new.action) == ("excluded", "none"), "all chats are judged first where the rules are new"
    assert [row.session for row in near.vault().rows()] == [other.session]
    assert lines_of(near.live) == [A, B]
    near.live.unlink()
    with pytest.raises(NotKept):
        barred.keep()


@pytest.mark.accepts("POLICY-1")
def test_what_a_host_says_of_a_chat_that_is_excluded_is_told_of_it_once_no_rule_bars_it(near: World) -> None:
    write_live(near.profile, near.cwd, near.session, jsonl(A, B))
    barred = ruled(near, tag="secret")
    assert barred.keep(Options(tags=("secret", "more"))).verdict == "excluded"
    assert barred.keep().verdict == "excluded"
    assert barred.keep_all()[near.session].verdict == "excluded"
    near.keep(Options(tags=("last",)))
    assert facts_of(near)["tags"] == ["secret", "more", "last"]
    assert barred.keep().action == "removed"
    assert not near.chat.exists()


@pytest.mark.accepts("POLICY-1", "BOTH-4")
def test_a_restore_of_what_is_excluded_tells_its_live_file_and_leaves_it(near: World, tmp_path: Path) -> None:
    write_live(near.profile, near.cwd, near.session, jsonl(A, B, C))
    barred = ruled(near, project="-srv-demo-*")
    found = Restored(
        near.session, "", str(near.profile), folder(near.cwd), near.cwd, str(near.live), "excluded", "none", 3, 0,
        f"cd {near.cwd} && claude --resume {near.session}", True,
    )  # fmt: skip
    for _ in range(2):
        was = state_of(near.profile)
        told = barred.restore()
        assert replace(told, warnings=()) == found
        assert ["project=-srv-demo-*" in warning for warning in told.warnings] == [True]
        assert restored(barred, Want(cwd=str(tmp_path))).cwd == str(tmp_path)
        assert restored(barred, Want(profile=near.profile)) == told
        assert state_of(near.profile) == was
        near.keep()
    near.live.unlink()
    with pytest.raises(NotKept, match="project=-srv-demo-"):
        barred.restore()
    with pytest.raises(NotKept, match="nothing is kept"):
        restored(barred.about(session_id(3)))


@pytest.mark.accepts("POLICY-1", "KEEP-13")
def test_a_session_that_is_excluded_in_one_profile_alone_comes_back_in_the_other(near: World, tmp_path: Path) -> None:
    far = in_profile(near, tmp_path / "another")
    for view in (near, far):
        write_live(view.profile, view.cwd, view.session, jsonl(A, B))
    both = replace(near, settings=replace(near.settings, profiles=(near.profile, far.profile)))
    barred = ruled(both, profile=str(far.profile))
    barred.keep_all()
    near.live.unlink()
    told = barred.restore()
    assert (told.verdict, told.action, told.profile) == ("absent", "restored", str(near.profile))
    assert restored(barred, Want(profile=far.profile)).verdict == "excluded"
    assert [row.profile for row in near.vault().rows()] == [str(near.profile)]


@pytest.mark.accepts("POLICY-2")
def test_a_run_that_kept_a_chat_writes_nothing_more_of_it_once_a_rule_removed_it(near: World) -> None:
    write_live(near.profile, near.cwd, near.session, jsonl(A, B))
    rule = Rule.of({"project": folder(near.cwd)})
    keeper = Keeper(near.vault(), time.time())

    def keep() -> Kept:
        (answer,) = keeper.profile(near.profile)
        return answer

    assert keep().action == "linked"
    keeper.gate.exclusion.say("add", rule, time.time())
    assert (keep().action, near.chat.exists()) == ("removed", False)
    keeper.finish()
    assert keeper.seal() == {}
    assert near.vault().rows() == []
    keeper.gate.exclusion.say("remove", rule, time.time())
    assert keep().action == "linked"
    keeper.finish()
    assert [row.session for row in near.vault().rows()] == [near.session]


@pytest.mark.accepts("KEEP-2", "RESTORE-5")
def test_a_restore_waits_for_each_chat_that_keeps_the_session(near: World) -> None:
    write_live(near.profile, near.cwd, near.session, jsonl(A, B))
    near.keep()
    near.keep(Options(chat="the-hosts"))
    hasty = replace(near, settings=replace(near.settings, lock_wait_s=0.05))
    for chat in (near.session, "the-hosts"):
        with near.vault().lock(chat), pytest.raises(Locked):
            hasty.restore()
    taken: list[str] = []

    @contextmanager
    def lock(path: str, wait_s: float) -> Iterator[None]:
        taken.append(Path(path).name)
        yield

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk, "lock", lock)
        near.restore()
    assert set(taken) == {f"{near.session}.lock", "the-hosts.lock"}
