"""Sole: what the vault alone has is told from what the files hold, and does not go unasked."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from keeper.transcripts.exclude import Exclusion
from keeper.transcripts.keep import Keeper, Options
from keeper.transcripts.prune import carry_out, plan
from keeper.transcripts.rules import Rule
from keeper.transcripts.sole import is_sole
from keeper.transcripts.usage import usage
from tests.build import CWD, append, jsonl, meta, prompt, session_id, talk, write_live
from tests.chat import put
from tests.conftest import Ran
from tests.seam import World, state_of, world

STUB = meta("last-prompt", lastPrompt="x", sessionId="s")
RULE = Rule.of({"cwd": f"{CWD}/**"})
DAY_S = 86_400.0


@pytest.fixture
def here(profile: Path, vault_home: Path, tmp_path: Path) -> World:
    return world(profile, vault_home, tmp_path / "state")


def at(days: float) -> str:
    return (datetime.now(UTC) - timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def old(*uuids: str) -> list[bytes]:
    """Prompts of long ago, each hung on the one before."""
    parents = [None, *uuids]
    return [prompt(uuid, parent, timestamp=at(200)) for uuid, parent in zip(uuids, parents, strict=False)]


def recreated(data: bytes) -> Callable[[World], None]:
    def harm(here: World) -> None:
        write_live(here.profile, CWD, here.session, data)

    return harm


def truncated(here: World) -> None:
    os.truncate(here.live, 0)


def written_over(here: World) -> None:
    here.live.write_bytes(jsonl(STUB))


def rebuildable(here: World) -> None:
    here.kept.unlink()
    here.live.unlink()


def rebuildable_with_a_stub(here: World) -> None:
    here.kept.unlink()
    recreated(jsonl(STUB))(here)


def no_tool_results(here: World) -> None:
    shutil.rmtree(here.companion / "tool-results")


def emptied_tool_result(here: World) -> None:
    path = here.companion / "tool-results" / "x.txt"
    path.unlink()
    put(path, b"")


def agent_of_another(here: World) -> None:
    path = here.companion / "subagents" / "agent-1.jsonl"
    path.unlink()
    put(path, jsonl(*old("q"), prompt("r", "q", "z" * 5000)))


HARMS = [
    recreated(b""), recreated(jsonl(STUB)), recreated(jsonl(prompt("n", "f", "z" * 9000))),
    recreated(jsonl(*old("a", "b", "c", "d", "e"), prompt("n", "e", "z" * 9000))), truncated, written_over, rebuildable,
    rebuildable_with_a_stub, no_tool_results, emptied_tool_result, agent_of_another, lambda here: here.live.unlink(),
]  # fmt: skip


def whole(here: World) -> None:
    """A chat of long ago, kept and sealed, with a tool's result and a subagent."""
    write_live(here.profile, CWD, here.session, jsonl(*old(*"abcdef")))
    put(here.companion / "tool-results" / "x.txt", b"the only copy of a big output")
    put(here.companion / "subagents" / "agent-1.jsonl", jsonl(*old("s", "t")))
    here.keep_all()


@pytest.mark.accepts("POLICY-2", "SEAL-2")
@pytest.mark.parametrize("harm", HARMS)
def test_whatever_claude_has_less_of_is_asked_for_and_stays(
    here: World, harm: Callable[[World], None], run_keeper: Callable[..., Ran]
) -> None:
    whole(here)
    harm(here)
    was = state_of(here.root / "chats")
    ran = run_keeper("exclude", "add", "--cwd", f"{CWD}/**")
    assert ran.code == 8, ran.err
    assert here.session in ran.err
    assert state_of(here.root / "chats") == was
    (one,) = usage(here.vault(), time.time())
    assert one.lacking or one.sole


@pytest.mark.accepts("POLICY-3", "SEAL-2")
@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("planned_before", [False, True])
def test_nor_does_a_prune_take_it(here: World, harm: Callable[[World], None], planned_before: bool) -> None:
    whole(here)
    vault = replace(here, settings=replace(here.settings, keep_for_s=int(90 * DAY_S))).vault()
    found = plan(vault, time.time())
    assert [item.sole for item in found.items] == [False]
    harm(here)
    if not planned_before:
        found = plan(vault, time.time())
        assert all(item.sole for item in found.items)
    assert carry_out(vault, found, False, time.time()).removed == ()
    assert here.chat.is_dir()


def grown(here: World) -> None:
    append(here.live, jsonl(prompt("n", "f")))


def copied(here: World) -> None:
    recreated(here.live.read_bytes())(here)


def copied_and_grown(here: World) -> None:
    recreated(here.live.read_bytes() + jsonl(prompt("n", "f")))(here)


def moved(here: World) -> None:
    put(here.profile / "projects" / "-srv-other" / here.live.name, b"")
    os.replace(here.live, here.profile / "projects" / "-srv-other" / here.live.name)


@pytest.mark.accepts("POLICY-2")
@pytest.mark.parametrize("change", [lambda here: None, grown, copied, copied_and_grown, moved])
def test_a_live_file_with_all_of_it_is_a_second_copy(here: World, change: Callable[[World], None]) -> None:
    write_live(here.profile, CWD, here.session, jsonl(*old(*"abcdef")))
    here.keep_all()
    change(here)
    vault = here.vault()
    (row,) = vault.rows()
    assert [is_sole(vault, row, whole) for whole in (True, False)] == [False, False]
    here.kept.unlink()
    assert not is_sole(vault, row), "it has what is sealed"


@pytest.mark.accepts("POLICY-3")
def test_a_chat_that_goes_on_in_a_file_that_is_not_kept_yet_is_not_old(here: World) -> None:
    whole(here)
    recreated(jsonl(prompt("n", "f", timestamp=at(0))))(here)
    vault = replace(here, settings=replace(here.settings, keep_for_s=int(90 * DAY_S))).vault()
    assert plan(vault, time.time()).items == ()
    recreated(b"")(here)
    assert [item.sole for item in plan(vault, time.time()).items] == [True], "the time of a file tells of no use"


@pytest.mark.accepts("POLICY-2")
def test_of_several_live_files_one_with_all_of_it_is_enough(here: World) -> None:
    whole(here)
    moved(here)
    assert not is_sole(here.vault(), *here.vault().rows())
    recreated(jsonl(STUB))(here)
    assert not is_sole(here.vault(), *here.vault().rows())


@pytest.mark.accepts("POLICY-2", "FAULT-1")
def test_a_chat_that_no_row_tells_of_is_asked_for_too(here: World, run_keeper: Callable[..., Ran]) -> None:
    write_live(here.profile, CWD, here.session, jsonl(*old(*"abcd")))
    keeper = Keeper(here.vault(), time.time())
    keeper.session(here.profile, here.session)  # killed before it finishes: no row
    assert here.vault().rows() == []
    met = Exclusion(here.vault()).met(RULE)
    assert [(one.chat, one.sole) for one in met] == [(here.session, False)]
    here.live.unlink()
    ran = run_keeper("exclude", "add", "--cwd", f"{CWD}/**")
    assert ran.code == 8, ran.err
    assert here.kept.is_file()
    assert run_keeper("exclude", "add", "--cwd", f"{CWD}/**", "--yes").code == 0
    assert not here.chat.exists()


@pytest.mark.accepts("POLICY-1", "KEEP-4")
def test_a_title_rule_is_asked_of_the_whole_chat_and_not_of_the_tail_that_lives(here: World) -> None:
    title = meta("custom-title", customTitle="Design of the shop", sessionId=here.session)
    rules = replace(here.settings, exclude=(Rule.of({"title": "run the tests*"}).conditions,))
    ruled = replace(here, settings=rules)
    write_live(here.profile, CWD, here.session, jsonl(*old(*"abcd"), title))
    assert ruled.keep().action == "linked"
    recreated(jsonl(prompt("n", "d", "run the tests again")))(here)
    vault = ruled.vault()
    assert Exclusion(vault).living(here.profile) == set()
    assert ruled.keep().action == "folded"
    assert here.live.read_bytes().count(b"\n") == 6

    other = ruled.about(session_id(2))
    write_live(other.profile, CWD, other.session, jsonl(*talk("abcd", other.session)))
    assert other.keep().action == "linked"
    recreated(jsonl(prompt("n", "d", "run the tests again", other.session)))(other)
    assert other.keep().action == "folded", "its first prompt is another one"
    append(other.live, jsonl(meta("custom-title", customTitle="run the tests", sessionId=other.session)))
    assert other.keep().verdict == "excluded"


def two_in_one(here: World) -> tuple[World, World]:
    """A host's chat of two conversations; the first one is swept."""
    one, other = here.about(session_id(1)), here.about(session_id(2))
    for view, text in ((one, "design"), (other, "scratch-1")):
        write_live(view.profile, CWD, view.session, jsonl(prompt("a", None, text, view.session)))
        view.keep(Options(chat="arch"))
    one.live.unlink()
    return one, other


@pytest.mark.accepts("POLICY-2")
def test_a_rule_that_one_session_of_a_chat_meets_takes_no_sole_copy_of_another(
    here: World, run_keeper: Callable[..., Ran]
) -> None:
    one, other = two_in_one(here)
    arch = here.root / "chats" / "arch"
    rules = replace(here.settings, exclude=(Rule.of({"title": "scratch-*"}).conditions,))
    answer = replace(other, settings=rules).keep()
    assert (answer.verdict, answer.action) == ("excluded", "none")
    assert any(one.session in warning for warning in answer.warnings)
    vault = replace(here, settings=rules).vault()
    assert Exclusion(vault).apply() == []
    assert any(one.session in note for note in vault.notes)
    assert (arch / f"{one.session}.jsonl").is_file()

    assert run_keeper("exclude", "add", "--title", "scratch-*").code == 8
    assert arch.is_dir()
    assert run_keeper("exclude", "add", "--title", "scratch-*", "--yes").code == 0
    assert not arch.exists()


@pytest.mark.accepts("POLICY-2")
@pytest.mark.parametrize("how", ["keep", "apply"])
def test_it_goes_whole_where_the_others_live_or_are_the_same_conversation(here: World, how: str) -> None:
    one, other = two_in_one(here)
    vault = replace(here, settings=replace(here.settings, exclude=((("title", "scratch-*"),),))).vault()
    arch = vault.chat("arch")
    facts = vault.facts(arch)
    assert facts is not None
    exclusion, rows = Exclusion(vault), vault.rows()
    assert exclusion.others_alone(arch, facts, rows, [other.session]) == [one.session]
    for first, second in ((one, other), (other, one)):
        told = replace(facts.sessions[first.session], continues=second.session)
        assert exclusion.others_alone(arch, facts.with_session(first.session, told), rows, [other.session]) == []
    write_live(one.profile, CWD, one.session, Path(arch.kept(one.session)).read_bytes())
    if how == "apply":
        assert [gone.chat for gone in exclusion.apply()] == ["arch"]
    else:
        view = replace(other, settings=vault.settings)
        assert view.keep().action == "removed"
    assert not Path(arch.path).exists()
