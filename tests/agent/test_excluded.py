"""Rules under a running agent: applied at its start, when the settings file changes, and to what comes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.running import Running, running, until
from tests.build import append, jsonl, meta, session_id, talk, write_live
from tests.chat import age, put, write_whole
from tests.conftest import Ran

ONE, TWO = session_id(1), session_id(2)
RULE = b'[[exclude]]\ncwd = "/srv/secret/**"\n'


def secret(profile: Path, session: str = ONE) -> Path:
    return write_live(profile, "/srv/secret", session, jsonl(*talk("abcd", session, cwd="/srv/secret")))


def chats(agent: Running) -> list[str]:
    return sorted(os.listdir(agent.vault / "chats"))


@pytest.mark.accepts("POLICY-2", "POLICY-1")
def test_what_the_rules_exclude_goes_at_the_agents_start_swept_or_not(
    cli_env: dict[str, str], profile: Path, run_keeper: Callable[..., Ran]
) -> None:
    secret(profile)
    swept = secret(profile, TWO)
    other = write_live(profile, "/srv/open", session_id(3), jsonl(*talk("ab", session_id(3), cwd="/srv/open")))
    assert run_keeper("keep").code == 0
    swept.unlink()
    put(Path(cli_env["KEEPER_CONFIG"]), RULE)
    with running(cli_env) as agent:
        assert chats(agent) == [session_id(3)]
        assert agent.keeps(session_id(3), other)
        (event,) = [one for one in agent.status()["events"] if one["what"] == "excluded"]
        assert event["text"] == "2 chats that a rule excludes were removed, 1 of them the sole copy"


@pytest.mark.accepts("POLICY-2")
def test_a_changed_settings_file_is_noticed_and_a_broken_one_changes_nothing(
    cli_env: dict[str, str], profile: Path
) -> None:
    live, config = secret(profile), Path(cli_env["KEEPER_CONFIG"])
    data = live.read_bytes()
    with running(cli_env) as agent:
        until(lambda: agent.keeps(ONE, live), "it is kept")
        put(config, RULE)
        until(lambda: chats(agent) == [], "it went when the rule came")
        put(config, b"[[exclude]\n" + RULE)
        until(lambda: [one["what"] for one in agent.status()["degraded"] or ()] == ["settings"], "the file is told of")
        append(live, jsonl(*talk("ef", ONE, parent="d")))
        other = write_live(profile, "/srv/open", TWO, jsonl(*talk("ab", TWO, cwd="/srv/open")))
        until(lambda: agent.keeps(TWO, other), "what no rule meets is kept")
        agent.send(signal.SIGUSR1)
        time.sleep(2)  # longer than that reconcile
        assert chats(agent) == [TWO], "the rules that were read last hold"
        assert "exclude" in str(agent.status()["degraded"]) or "TOML" in str(agent.status()["degraded"])
        put(config, b"")
        until(lambda: agent.keeps(ONE, live), "it is kept again when the rule is gone")
        assert agent.status()["degraded"] is None
    assert live.read_bytes().startswith(data)


@pytest.mark.accepts("POLICY-1", "POLICY-2")
def test_an_excluded_session_is_not_kept_when_it_comes_and_goes_when_it_is_told_later(
    cli_env: dict[str, str], profile: Path, run_keeper: Callable[..., Ran]
) -> None:
    put(Path(cli_env["KEEPER_CONFIG"]), RULE)
    with running(cli_env) as agent:
        live = secret(profile)
        other = write_live(profile, "/srv/open", TWO, jsonl(*talk("ab", TWO, cwd="/srv/open")))
        until(lambda: agent.keeps(TWO, other), "the other one is kept")
        until(lambda: agent.status()["queued"] == 0, "all was looked at")
        assert chats(agent) == [TWO]
        assert run_keeper("exclude", "add", "--title", "optchat-*").code == 0
        append(other, jsonl(meta("custom-title", customTitle="optchat-1", sessionId=TWO)))
        until(lambda: chats(agent) == [], "it went when its title came")
        answer = agent.ask(do="restore", session=ONE, profile=str(profile))
        assert (answer["ok"], answer["verdict"], answer["live"]) == (True, "excluded", str(live))
        assert run_keeper("exclude", "remove", "--title", "optchat-*").code == 0
        until(lambda: agent.keeps(TWO, other), "it is kept again")


@pytest.mark.accepts("POLICY-1", "POLICY-4")
def test_the_times_of_an_excluded_chat_are_left_alone_beside_a_resident_one(
    cli_env: dict[str, str], profile: Path, run_keeper: Callable[..., Ran]
) -> None:
    resident, excluded = write_whole(profile, ONE), write_whole(profile, TWO)
    age(profile, days=20)
    was = excluded.stat().st_mtime_ns
    os.utime(resident, ns=(was - 10**9, was - 10**9))
    put(Path(cli_env["KEEPER_CONFIG"]), b'policy = "resident"\n[[exclude]]\nsession = "' + TWO.encode() + b'"\n')
    assert run_keeper("keep").code == 0
    with running(cli_env):
        until(lambda: resident.stat().st_mtime_ns > was, "the resident one got a new time")
        time.sleep(1)
        assert excluded.stat().st_mtime_ns == was


@pytest.mark.accepts("POLICY-3", "AGENT-5")
def test_the_agent_tells_what_is_past_a_bound_and_removes_nothing_of_it(
    cli_env: dict[str, str], profile: Path, run_keeper: Callable[..., Ran]
) -> None:
    live = write_whole(profile, ONE)  # its records are of 2026-01-01
    assert run_keeper("keep").code == 0
    put(Path(cli_env["KEEPER_CONFIG"]), b'keep_for = "1d"\nmax_size = "1KB"\n')
    with running(cli_env) as agent:
        until(lambda: [one for one in agent.status()["events"] if one["what"] == "prune"], "the plan is told")
        agent.send(signal.SIGUSR1)
        time.sleep(1)
        assert agent.keeps(ONE, live)
        (event,) = [one for one in agent.status()["events"] if one["what"] == "prune"]
        assert event["text"].startswith("1 chats are past a bound")
