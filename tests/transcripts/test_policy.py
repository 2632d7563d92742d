"""Policy: whose it is, and new times that keep the old order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keeper.transcripts.chat import Facts, SessionFacts
from keeper.transcripts.policy import (
    DAY_NS,
    REST_NS,
    STEP_NS,
    Aged,
    fresh_times,
    half_way_ns,
    may_be_swept,
    policy_of,
)
from tests.build import CWD, jsonl, session_id, talk, write_live
from tests.chat import put
from tests.conftest import Ran

NOW_NS = 1_800_000_000 * 10**9
BEFORE_NS = half_way_ns(NOW_NS, 30)


def facts(policy: str, *entrypoints: str) -> Facts:
    sessions = {session_id(n): SessionFacts("-p", "/p", "link", entrypoint=one) for n, one in enumerate(entrypoints, 1)}
    return Facts("c", "/profile", policy, (), sessions)


@pytest.mark.accepts("POLICY-4")
@pytest.mark.parametrize(
    ("told", "default", "policy"),
    [
        (None, "keep", "keep"),
        (facts("", "cli"), "keep", "keep"),
        (facts("", "cli", "sdk-cli", ""), "keep", "keep"),
        (facts("", "cli"), "resident", "resident"),
        (facts("", "cli", "claude-vscode"), "keep", "resident"),
        (facts("", "sdk-ts"), "keep", "resident"),
        (facts("keep", "claude-vscode"), "resident", "keep"),
        (facts("exclude", "claude-desktop"), "resident", "exclude"),
        (facts("resident", "cli"), "keep", "resident"),
    ],
)
def test_what_was_said_of_a_chat_comes_before_how_it_was_started_and_before_the_default(
    told: Facts | None, default: str, policy: str
) -> None:
    assert policy_of(told, default) == policy


def test_a_sweep_takes_what_is_older_than_the_period_when_it_goes() -> None:
    assert may_be_swept(NOW_NS - 30 * DAY_NS - 1, NOW_NS, 30)
    assert not may_be_swept(NOW_NS - 30 * DAY_NS, NOW_NS, 30)


chats = st.lists(
    st.tuples(st.integers(0, 60 * 24), st.sampled_from(["keep", "resident", "exclude"]), st.booleans()), max_size=12
)


@pytest.mark.accepts("POLICY-4", "RESTORE-2")
@given(chats)
def test_new_times_keep_the_order_and_touch_nothing_that_is_newer(drawn: list[tuple[int, str, bool]]) -> None:
    aged = [
        Aged(f"{number:02}", NOW_NS - hours * DAY_NS // 24 - number * 2 * 10**6, policy)
        for number, (hours, policy, _) in enumerate(drawn)
    ]
    need = {
        chat.session for chat, (_, policy, chosen) in zip(aged, drawn, strict=True) if chosen and policy != "exclude"
    }
    new = fresh_times(aged, need, BEFORE_NS, NOW_NS)
    assert need <= set(new)
    theirs = [chat for chat in aged if chat.policy != "exclude"]
    assert set(new) <= {chat.session for chat in theirs}
    before = sorted(theirs, key=lambda chat: chat.mtime_ns)
    after = sorted(theirs, key=lambda chat: new.get(chat.session, chat.mtime_ns))
    assert after == before
    assert list(new.values()) == sorted(new.values(), reverse=True), "the newest first"
    assert all(when <= NOW_NS - REST_NS for when in new.values())
    newest_needy = max((chat.mtime_ns for chat in aged if chat.session in need), default=0)
    for chat in aged:
        if chat.mtime_ns >= max(BEFORE_NS, newest_needy + 1):
            assert chat.session not in new
        if chat.session in need and chat.mtime_ns < BEFORE_NS:
            assert new[chat.session] >= BEFORE_NS - len(aged) * STEP_NS, "fresh, but for the steps between"


@pytest.mark.accepts("POLICY-4")
def test_the_policy_of_a_chat_is_said_by_the_command_and_told_by_list_and_show(
    profile: Path, run_keeper: Callable[..., Ran]
) -> None:
    session = session_id(1)
    write_live(profile, CWD, session, jsonl(*talk("abcd", session)))
    assert run_keeper("keep").code == 0
    assert [one["policy"] for one in run_keeper("list", "--json").json["chats"]] == ["keep"]
    for policy in ("resident", "keep"):
        assert run_keeper("keep", "--policy", policy, session).code == 0
        assert [one["policy"] for one in run_keeper("show", session, "--json").json["chats"]] == [policy]
    assert run_keeper("keep", session).code == 0
    assert [one["policy"] for one in run_keeper("list", "--json").json["chats"]] == ["keep"]


@pytest.mark.accepts("POLICY-4", "POLICY-2")
def test_of_a_chat_whose_policy_is_exclude_nothing_is_kept_until_another_one_is_said(
    profile: Path, vault_home: Path, run_keeper: Callable[..., Ran]
) -> None:
    session = session_id(1)
    live = write_live(profile, CWD, session, jsonl(*talk("abcd", session)))
    assert run_keeper("keep").code == 0
    assert run_keeper("keep", "--policy", "exclude", session).code == 0
    assert run_keeper("keep").code == 0
    assert list((vault_home / "chats").iterdir()) == []
    assert run_keeper("keep", "--policy", "resident", session).code == 0
    assert [one["policy"] for one in run_keeper("list", "--json").json["chats"]] == ["resident"]
    live.unlink()
    assert run_keeper("keep", "--policy", "exclude", session).code == 8, "a sole copy goes by a yes alone"
    assert [one["session"] for one in run_keeper("list", "--json").json["chats"]] == [session]


@pytest.mark.accepts("POLICY-4")
def test_the_policy_of_a_chat_whose_live_file_is_swept_can_be_said_too(
    profile: Path, run_keeper: Callable[..., Ran]
) -> None:
    session = session_id(1)
    live = write_live(profile, CWD, session, jsonl(*talk("abcd", session)))
    assert run_keeper("keep").code == 0
    live.unlink()
    assert run_keeper("keep", "--policy", "resident", session).code == 0
    assert [one["policy"] for one in run_keeper("list", "--json").json["chats"]] == ["resident"]


def test_a_policy_is_said_of_one_session_and_is_one_of_three(run_keeper: Callable[..., Ran]) -> None:
    assert run_keeper("keep", "--policy", "resident").code == 2
    assert run_keeper("keep", "--policy", "eternal", session_id(1)).code == 2


@pytest.mark.accepts("POLICY-4")
def test_the_settings_name_the_policy_of_all_chats_of_which_none_was_said(
    profile: Path, cli_env: dict[str, str], run_keeper: Callable[..., Ran]
) -> None:
    for number in (1, 2):
        write_live(profile, CWD, session_id(number), jsonl(*talk("abcd", session_id(number))))
    assert run_keeper("keep").code == 0
    assert run_keeper("keep", "--policy", "keep", session_id(2)).code == 0
    put(Path(cli_env["KEEPER_CONFIG"]), b'policy = "resident"\n')
    told = {one["session"]: one["policy"] for one in run_keeper("list", "--json").json["chats"]}
    assert told == {session_id(1): "resident", session_id(2): "keep"}
    put(Path(cli_env["KEEPER_CONFIG"]), b'policy = "exclude"\n')
    refused = run_keeper("list")
    assert refused.code == 2
    assert 'policy = "keep"' in refused.err
