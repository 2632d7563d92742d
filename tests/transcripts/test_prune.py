"""Prune and du: what is past a bound is planned first, sole copies apart; what is pruned stays so until it is used."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from keeper.errors import NotKept
from keeper.settings import Settings
from keeper.transcripts.activity import last_activity
from keeper.transcripts.forget import forget
from keeper.transcripts.keep import Options, keep_session
from keeper.transcripts.prune import carry_out, plan, plan_of
from keeper.transcripts.restore import Restorer, Want
from keeper.transcripts.usage import Usage, usage
from tests.build import CWD, append, jsonl, prompt, session_id, write_live
from tests.chat import age, put, write_whole
from tests.conftest import Ran
from tests.seam import World, before, hooked, state_of, world

DAY_S = 86_400.0
NOW = 1_800_000_000.0


def said(days: float, uuid: str = "a", session: str = "", text: str = "") -> bytes:
    """A prompt so many days ago."""
    then = (datetime.now(UTC) - timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    return prompt(uuid, None, text, session=session, timestamp=then)


@pytest.fixture
def here(profile: Path, vault_home: Path, tmp_path: Path) -> World:
    return world(profile, vault_home, tmp_path / "state")


def with_bounds(here: World, keep_for_days: int = 0, max_size: int = 0) -> World:
    bounds = replace(here.settings, keep_for_s=int(keep_for_days * DAY_S), max_size_bytes=max_size)
    return replace(here, settings=bounds)


def kept(here: World, number: int, days: float) -> World:
    view = here.about(session_id(number))
    write_live(view.profile, CWD, view.session, jsonl(said(days, f"u{number}", view.session, "x" * 5000)))
    view.keep()
    return view


def chats_of(here: World) -> list[str]:
    return sorted(os.listdir(here.root / "chats"))


# ------------------------------------------------------------------ the plan, pure


def a_chat(name: str, days: float, frees: int, sole: int = 0, lacking: bool = False) -> Usage:
    return Usage(name, "/p", (name,), "/c", NOW - days * DAY_S, lacking, sole, 0, 0, 0, frees)


def bounds(here: World, keep_for_days: int = 0, max_size: int = 0) -> Settings:
    return with_bounds(here, keep_for_days, max_size).settings


@pytest.mark.accepts("POLICY-3")
def test_keep_for_takes_what_is_older_and_nothing_else(here: World) -> None:
    chats = [a_chat("old", 91, 5), a_chat("edge", 90, 5), a_chat("new", 1, 5)]
    found = plan_of(chats, bounds(here, keep_for_days=90), NOW)
    assert [(one.chat, one.why) for one in found.items] == [("old", "keep_for")]
    assert (found.before, found.after) == (15, 10)


@pytest.mark.accepts("POLICY-3")
def test_max_size_takes_the_longest_unused_until_it_is_met_and_never_what_is_in_use(here: World) -> None:
    chats = [a_chat("c", 3, 40), a_chat("a", 5, 40), a_chat("b", 4, 0), a_chat("d", 0.5, 40)]
    found = plan_of(chats, bounds(here, max_size=100), NOW)
    assert [(one.chat, one.why) for one in found.items] == [("a", "max_size")]
    found = plan_of(chats, bounds(here, max_size=1), NOW)
    assert [one.chat for one in found.items] == ["a", "c"], "what frees nothing, and what is in use, stays"
    assert found.after == 40


@pytest.mark.accepts("POLICY-3")
def test_without_a_bound_there_is_no_plan_and_what_cannot_be_read_is_in_none(here: World) -> None:
    assert plan_of([a_chat("old", 9999, 5)], here.settings, NOW).items == ()
    unread = replace(a_chat("unread", 1, 5), last=0.0)
    assert plan_of([unread], bounds(here, keep_for_days=1, max_size=1), NOW).items == ()


@pytest.mark.accepts("POLICY-3")
def test_what_claude_has_not_all_of_is_a_sole_copy(here: World) -> None:
    chats = [a_chat("a", 9, 5), a_chat("b", 8, 5, sole=1), a_chat("c", 7, 5, lacking=True)]
    found = plan_of(chats, bounds(here, keep_for_days=1), NOW)
    assert [one.sole for one in found.items] == [False, True, True]


# ------------------------------------------------------------------ the command


@pytest.mark.accepts("POLICY-3")
def test_a_plan_is_shown_first_and_sole_copies_go_by_a_word_of_their_own(
    here: World, cli_env: dict[str, str], profile: Path, vault_home: Path, run_keeper: Callable[..., Ran]
) -> None:
    old, swept, new = (session_id(number) for number in (1, 2, 3))
    for session, days in ((old, 100), (swept, 200), (new, 1)):
        write_live(profile, CWD, session, jsonl(said(days, f"u{days}", session)))
    assert run_keeper("keep").code == 0
    (profile / "projects" / "-srv-demo-proj" / f"{swept}.jsonl").unlink()
    assert "all is kept" in run_keeper("prune").text
    assert run_keeper("prune", "--apply", "--json").json["removed"] == []

    put(Path(cli_env["KEEPER_CONFIG"]), b'keep_for = "90d"\n')
    was, live = state_of(vault_home / "chats"), state_of(profile)
    for words in ([], ["--dry-run"], ["--json"]):
        ran = run_keeper("prune", *words)
        assert ran.code == 0
        assert state_of(vault_home / "chats") == was
    told = ran.json
    assert [(one["chat"], one["sole"]) for one in told["items"]] == [(swept, True), (old, False)]
    shown = run_keeper("prune").text
    assert [line.split()[0] for line in shown.splitlines() if "SOLE COPY" in line] == [swept]
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert run_keeper("prune", "--sole-copies").code == 2

    ran = run_keeper("prune", "--apply", "--json")
    assert ([one["chat"] for one in ran.json["removed"]], ran.code) == ([old], 0)
    assert ran.json["stayed"] == [{"chat": swept, "why": "a sole copy"}]
    assert sorted(os.listdir(vault_home / "chats")) == [swept, new]
    assert state_of(profile) == live
    ran = run_keeper("prune", "--apply", "--sole-copies")
    assert ran.code == 0
    assert os.listdir(vault_home / "chats") == [new]
    assert state_of(profile) == live
    log = run_keeper("prune", "--log", "--json").json["log"]
    assert [(one["chat"], one["by"], one["why"], one["sole"]) for one in log] == [
        (old, "plan", "keep_for", False), (swept, "plan", "keep_for", True),
    ]  # fmt: skip
    assert all(chat in run_keeper("prune", "--log").text for chat in (old, swept))


@pytest.mark.parametrize("text", ['keep_for = "90"', "keep_for = 90", 'keep_for = "-1d"', 'max_size = "20"',
                                  'max_size = "x GB"', "max_size = 0", 'keep_for = "1e999d"'])  # fmt: skip
def test_a_bound_that_is_none_is_refused(text: str, cli_env: dict[str, str], run_keeper: Callable[..., Ran]) -> None:
    put(Path(cli_env["KEEPER_CONFIG"]), f"{text}\n".encode())
    ran = run_keeper("prune")
    assert ran.code == 2
    assert text.partition(" ")[0] in ran.err


@pytest.mark.parametrize(
    ("text", "keep_for_s", "max_size"),
    [('keep_for = "90d"', 90 * 86_400, 0), ('keep_for = "12w"', 84 * 86_400, 0), ('keep_for = "2y"', 730 * 86_400, 0),
     ('max_size = "20GB"', 0, 20 * 10**9), ('max_size = "1.5 gb"', 0, 1_500_000_000), ("", 0, 0)],
)  # fmt: skip
def test_bounds_are_read_with_their_units(
    text: str, keep_for_s: int, max_size: int, cli_env: dict[str, str], run_keeper: Callable[..., Ran]
) -> None:
    put(Path(cli_env["KEEPER_CONFIG"]), f"{text}\n".encode())
    told = run_keeper("prune", "--json").json["bounds"]
    assert told == {"keep_for_s": keep_for_s, "max_size_bytes": max_size}


# ------------------------------------------------------------------ what is pruned stays pruned, until it is used


@pytest.mark.accepts("POLICY-3")
def test_what_is_past_keep_for_is_not_kept_anew_until_it_is_used_again_or_adopted(here: World) -> None:
    bound = with_bounds(here, keep_for_days=90)
    old, other = kept(here, 1, 100), kept(here, 2, 100)
    vault = bound.vault()
    carry_out(vault, plan(vault, time.time()), False, time.time())
    assert chats_of(here) == []
    for _ in range(2):
        assert {one.verdict for one in bound.keep_all().values()} == {"pruned"}
        assert chats_of(here) == []
    append(old.live, jsonl(said(0, "v", old.session)))
    assert bound.about(old.session).keep().action == "linked"
    assert bound.about(other.session).keep().verdict == "pruned"
    assert bound.about(other.session).keep(Options(adopt=True)).action == "linked"
    assert here.about(other.session).keep().verdict == "same"


@pytest.mark.accepts("POLICY-3")
def test_what_went_for_the_size_is_kept_anew_once_it_is_used_again_or_the_bound_is_gone(here: World) -> None:
    bound = with_bounds(here, max_size=1)
    one, two = kept(here, 1, 20), kept(here, 2, 10)
    vault = bound.vault()
    found = plan(vault, time.time())
    assert [item.chat for item in found.items] == [one.session, two.session]
    carry_out(vault, found, False, time.time())
    assert {answer.verdict for answer in bound.keep_all().values()} == {"pruned"}
    append(one.live, jsonl(said(0, "v", one.session)))
    assert bound.about(one.session).keep().action == "linked"
    assert here.about(two.session).keep().action == "linked"


@pytest.mark.accepts("POLICY-3", "KEEP-1")
def test_a_file_that_is_written_to_now_is_kept_however_old_its_records_are(here: World) -> None:
    bound = with_bounds(here, keep_for_days=90)
    write_live(here.profile, CWD, here.session, jsonl(said(100, "a", here.session)))  # a fork begins so
    assert bound.keep().action == "linked"
    aged = bound.about(session_id(2))
    write_live(here.profile, CWD, aged.session, jsonl(said(100, "b", aged.session)))
    age(here.profile, days=91)
    assert aged.keep().verdict == "pruned"
    append(aged.live, jsonl(prompt("c", "b", session=aged.session, timestamp="1999-01-01T00:00:00.000Z")))
    assert aged.keep().action == "linked", "its records may tell a time that is none"


@pytest.mark.accepts("POLICY-3")
@pytest.mark.parametrize("limits", [{"keep_for_days": 90}, {"max_size": 1}])
def test_the_time_that_a_file_had_when_its_chat_was_pruned_is_no_use_of_it(here: World, limits: dict[str, int]) -> None:
    bound = with_bounds(here, **limits)
    old = kept(here, 1, 100)
    os.utime(old.live)  # a restore, or the policy resident, gave it the time of then
    vault = bound.vault()
    carry_out(vault, plan(vault, time.time()), False, time.time())
    assert chats_of(here) == []
    assert {one.verdict for one in bound.keep_all().values()} == {"pruned"}
    then = time.time() + 5
    os.utime(old.live, (then, then))
    vault = bound.vault()
    (answer,) = keep_session(vault, old.session, then + 1)
    assert answer.action == "linked"


@pytest.mark.accepts("POLICY-3", "RESTORE-2")
@pytest.mark.parametrize("limits", [{"keep_for_days": 90}, {"max_size": 1}, {}])
def test_a_pruned_chat_that_lives_is_restored_for_a_resume_like_any_other(here: World, limits: dict[str, int]) -> None:
    old, forgotten = kept(here, 1, 100), kept(here, 2, 100)
    vault = with_bounds(here, keep_for_days=90).vault()
    carry_out(vault, plan(vault, time.time()), False, time.time())
    forget(here.vault(), put_again(forgotten), time.time())
    age(here.profile, days=95)
    vault = with_bounds(here, **limits).vault()
    with pytest.raises(NotKept, match="removed from the vault"):
        Restorer(vault, time.time_ns(), Want(dry_run=True)).session(old.session)
    assert chats_of(here) == []
    answer = Restorer(vault, time.time_ns(), Want()).session(old.session)
    assert (answer.error, answer.records, answer.live) == (None, 1, str(old.live))
    assert chats_of(here) == [old.session]
    assert time.time() - os.stat(old.live).st_mtime < 60
    with pytest.raises(NotKept, match="forgotten"):
        Restorer(vault, time.time_ns(), Want()).session(forgotten.session)
    assert chats_of(here) == [old.session]


def put_again(view: World) -> str:
    """A pruned chat that is kept again, to be forgotten."""
    view.keep(Options(adopt=True))
    return view.session


@pytest.mark.accepts("POLICY-3")
def test_a_chat_that_changes_between_the_plan_and_its_doing_stays(here: World) -> None:
    bound = with_bounds(here, keep_for_days=90)
    used, swept, held = kept(here, 1, 100), kept(here, 2, 100), kept(here, 3, 100)
    vault = with_bounds(replace(here, settings=replace(here.settings, lock_wait_s=0.05)), keep_for_days=90).vault()
    found = plan(vault, time.time())
    append(used.live, jsonl(said(0, "v", used.session)))
    swept.live.unlink()
    with here.vault().lock(held.session):
        done = carry_out(vault, found, False, time.time())
    assert done.removed == ()
    why = dict(done.stayed)
    assert why[used.session] == "used since the plan was made"
    assert why[swept.session] == "a sole copy since the plan was made"
    assert "held" in why[held.session]
    assert chats_of(here) == [used.session, swept.session, held.session]
    assert bound.vault().removals.read() == []


@pytest.mark.accepts("POLICY-3")
def test_the_log_says_what_goes_before_the_first_byte_goes(here: World) -> None:
    bound = with_bounds(here, keep_for_days=90)
    old = kept(here, 1, 100)
    seen: list[tuple[bool, int]] = []

    def look() -> None:
        seen.append((old.kept.exists(), len(here.vault().removals.read())))

    vault = bound.vault()
    found = plan(vault, time.time())
    with hooked(before("replace", look, "going")):
        carry_out(vault, found, False, time.time())
    assert seen == [(True, 1)]


# ------------------------------------------------------------------ how old


@pytest.mark.accepts("POLICY-3")
def test_the_age_of_a_chat_is_that_of_its_last_record_whatever_the_time_of_its_file(here: World) -> None:
    live = write_live(here.profile, CWD, here.session, jsonl(said(9, "a"), said(5, "b"), b'{"type":"mode"}'))
    now = time.time()
    assert abs(now - last_activity(str(live), now) - 5 * DAY_S) < 5
    live.write_bytes(jsonl(said(5, "b"), prompt("c", "b", "y" * 300_000, timestamp="no time")))
    assert abs(now - last_activity(str(live), now) - 5 * DAY_S) < 5, "read on until one is found"
    live.write_bytes(jsonl(said(-30, "a")))
    assert last_activity(str(live), now) == now, "never later than now"
    live.write_bytes(jsonl(b'{"type":"mode"}'))
    os.utime(live, (now - 100, now - 100))
    assert abs(last_activity(str(live), now) - (now - 100)) < 0.001
    assert last_activity(str(live) + "x", now) == 0


@pytest.mark.accepts("POLICY-3")
def test_a_time_within_a_record_is_not_the_records_own(here: World) -> None:
    """Tools answer with times of what they tell of, and a snapshot has that of the record it was taken for."""
    then, now = "2019-03-01T00:00:00Z", time.time()
    told = {"toolUseResult": {"createdBy": "x", "timestamp": then}}
    snapshot = (
        b'{"type":"file-history-snapshot","snapshot":{"timestamp":"2019-03-01T00:00:00Z"},"isSnapshotUpdate":true}'
    )
    late = said(1, "a")[:-1] + b"," + json.dumps(told, separators=(",", ":")).encode()[1:]
    for last in (
        late,
        said(1, "a") + b"\n" + snapshot,
        said(1, "a") + b"\n" + said(9, "b"),
        late + b"\n" + b"x" * 70_000,
    ):
        live = write_live(here.profile, CWD, here.session, jsonl(said(200, "z"), last))
        assert abs(now - last_activity(str(live), now) - DAY_S) < 5, last[-80:]
    live = write_live(here.profile, CWD, here.session, jsonl(snapshot))
    os.utime(live, (now - 100, now - 100))
    assert abs(last_activity(str(live), now) - (now - 100)) < 0.001, "its file's time, where no record tells"
    live = write_live(here.profile, CWD, here.session, jsonl(said(1, "a"), late))
    assert with_bounds(here, keep_for_days=90).keep().action == "linked"


# ------------------------------------------------------------------ du


@pytest.mark.accepts("POLICY-5")
def test_du_tells_what_claude_has_no_more_from_what_a_link_shares(
    here: World, profile: Path, run_keeper: Callable[..., Ran]
) -> None:
    shared, swept = here.about(session_id(1)), here.about(session_id(2))
    for view in (shared, swept):
        write_whole(profile, view.session)
    assert run_keeper("keep").code == 0
    was = {one.chat: one for one in usage(here.vault(), time.time())}
    files = [path for path in shared.chat.rglob("*") if path.is_file()]
    theirs = sum(path.stat().st_size for path in files if path.stat().st_nlink > 1)
    assert theirs > 1000
    assert was[shared.session].sole == 0
    assert was[shared.session].shared == theirs
    assert was[shared.session].seal == sum(p.stat().st_size for p in (shared.chat / "seal").rglob("*"))
    assert was[shared.session].frees == sum(path.stat().st_size for path in files) - theirs

    size = swept.live.stat().st_size
    swept.live.unlink()
    (shared.companion / "tool-results" / "toolu_1.txt").unlink()
    told = run_keeper("du", "--json").json
    chats = {one["chat"]: one for one in told["chats"]}
    assert chats[swept.session]["sole"] == size
    assert chats[swept.session]["lacking"] is True
    assert chats[swept.session]["shared"] == was[swept.session].shared - size
    assert chats[swept.session]["frees"] == was[swept.session].frees + size
    assert chats[shared.session]["sole"] == len(b"a long output\n" * 50)
    assert [one["chat"] for one in told["chats"]] == sorted(chats, key=lambda chat: -chats[chat]["sole"])
    assert told["totals"]["sole"] == size + len(b"a long output\n" * 50)
    shown = run_keeper("du").text.splitlines()
    assert all(len(line) <= 80 for line in shown)
    assert [line for line in shown if swept.session[:8] in line]


@pytest.mark.accepts("POLICY-5")
def test_du_counts_a_copy_as_freed_and_not_as_sole_while_claude_has_it(
    here: World, profile: Path, second_volume: Path
) -> None:
    view = world(profile, second_volume / "vault", here.settings.state_home)
    live = write_whole(profile, view.session)
    view.keep()
    (one,) = usage(view.vault(), time.time())
    assert (one.sole, one.shared, one.lacking) == (0, 0, False)
    whole = sum(path.stat().st_size for path in view.chat.rglob("*") if path.is_file())
    assert one.frees == whole
    live.unlink()
    (one,) = usage(view.vault(), time.time())
    assert (one.sole, one.lacking) == (view.kept.stat().st_size, True)


@pytest.mark.accepts("POLICY-5")
def test_du_counts_what_only_a_second_link_holds_once_claude_has_it_no_more(here: World) -> None:
    a, b, c, d = (said(1, one) for one in "abcd")
    live = write_live(here.profile, CWD, here.session, jsonl(a, b, c, d))
    here.keep()
    write_live(here.profile, CWD, here.session, jsonl(a, b))
    assert here.keep().mode == "split"
    (one,) = usage(here.vault(), time.time())
    assert (one.lacking, one.sole) == (True, 0)
    assert one.shared == live.stat().st_size
    size = live.stat().st_size
    live.unlink()
    (one,) = usage(here.vault(), time.time())
    assert one.sole == size + here.kept.stat().st_size
