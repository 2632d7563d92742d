"""Rules under a running agent: applied at its start, when the settings file changes, and to what comes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from keeper import disk
from keeper.agent.condition import Condition
from keeper.agent.journal import Journal
from keeper.agent.policy import SETTLE_S, Policy
from keeper.agent.work import Work
from tests.agent.running import Running, ready, running, until
from tests.build import append, jsonl, meta, session_id, talk, write_live
from tests.chat import age, put, write_whole
from tests.conftest import Ran
from tests.seam import world

ONE, TWO = session_id(1), session_id(2)
RULE = b'[[exclude]]\ncwd = "/srv/secret/**"\n'


def secret(profile: Path, session: str = ONE) -> Path:
    return write_live(profile, "/srv/secret", session, jsonl(*talk("abcd", session, cwd="/srv/secret")))


SLOW_RULES = """
import time
from keeper.agent.work import Work
apply = Work.exclude
Work.exclude = lambda *args, **how: (time.sleep(1), apply(*args, **how))[1]
"""


def degraded(agent: Running) -> list[str]:
    return [one["what"] for one in agent.status()["degraded"] or ()]


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
    with running(cli_env, before=SLOW_RULES) as agent:
        assert chats(agent) == [session_id(3)]
        assert agent.keeps(session_id(3), other)
        (event,) = [one for one in agent.status()["events"] if one["what"] == "excluded"]
        assert event["text"] == "2 chats that a rule excludes were removed, 1 of them the sole copy"


@pytest.mark.accepts("POLICY-2")
def test_a_start_judges_all_chats_anew_also_by_rules_that_are_not_new(
    cli_env: dict[str, str], profile: Path, run_keeper: Callable[..., Ran]
) -> None:
    live = secret(profile)
    config = put(Path(cli_env["KEEPER_CONFIG"]), b'[[exclude]]\ntitle = "optchat-*"\n')
    os.utime(config, (1e9, 1e9))  # nobody is writing it
    assert run_keeper("keep").code == 0
    append(live, jsonl(meta("custom-title", customTitle="optchat-1", sessionId=ONE)))
    live.unlink()
    with running(cli_env) as agent:
        assert chats(agent) == []


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


@pytest.mark.accepts("POLICY-2", "AGENT-2")
def test_a_settings_file_that_cannot_be_looked_at_is_told_and_leaves_those_that_were_read_in_force(
    cli_env: dict[str, str], profile: Path
) -> None:
    config = Path(cli_env["KEEPER_CONFIG"])
    put(config, RULE)
    os.utime(config, (1e9, 1e9))  # nobody is writing it
    live = secret(profile)
    with running(cli_env) as agent:
        config.rename(config.with_name("away"))
        config.symlink_to(config)
        until(lambda: degraded(agent) == ["settings"], "it is told")
        (told,) = agent.status()["degraded"]
        assert str(config) in told["why"]
        other = write_live(profile, "/srv/open", TWO, jsonl(*talk("ab", TWO, cwd="/srv/open")))
        until(lambda: agent.keeps(TWO, other), "what comes is kept")
        append(live, jsonl(*talk("ef", ONE, parent="d")))
        agent.send(signal.SIGUSR1)
        time.sleep(2)  # longer than that reconcile
        assert degraded(agent) == ["settings"], "the looks over everything go on"
        assert chats(agent) == [TWO], "the rule holds"
        config.with_name("away").replace(config)
        until(lambda: degraded(agent) == [], "that it is there again, as it was, is seen")
        config.unlink()
        until(lambda: agent.keeps(ONE, live), "and that it is gone")
        assert agent.end() == 0


@pytest.mark.accepts("POLICY-2")
def test_looks_in_quick_succession_do_not_make_a_half_written_settings_file_a_whole_one(
    profile: Path, vault_home: Path, tmp_path: Path
) -> None:
    now, config = [100.0], tmp_path / "keeper.toml"
    work = Work(world(profile, vault_home, tmp_path / "state").settings, lambda: False, lambda _: None)
    policy = Policy(work, Condition(Journal(time.monotonic), work.let_go), config, lambda: now[0])
    put(config, RULE)
    for _ in range(5):
        assert not policy.rewritten()
        now[0] += SETTLE_S / 10
    put(config, RULE + b'title = "scratch-*"\n')
    for _ in range(9):
        assert not policy.rewritten(), "the time counts from the last change"
        now[0] += SETTLE_S / 10
    now[0] += SETTLE_S
    assert policy.rewritten()
    assert not policy.rewritten(), "once"


@pytest.mark.accepts("POLICY-2")
def test_a_start_waits_for_a_settings_file_that_is_being_written(
    cli_env: dict[str, str], profile: Path, run_keeper: Callable[..., Ran]
) -> None:
    secret(profile)
    assert run_keeper("keep").code == 0
    config = Path(cli_env["KEEPER_CONFIG"])
    put(config, RULE)
    with running(cli_env, until_ready=False) as agent:
        end = time.monotonic() + SETTLE_S + 2
        while time.monotonic() < end:
            os.utime(config)  # as if the writer went on
            time.sleep(0.05)
        put(config, RULE + b'title = "scratch-*"\n')
        until(lambda: ready(agent), "the agent is ready")
        assert chats(agent) == [ONE], "the half of a rule was not applied"


@pytest.mark.accepts("POLICY-2", "AGENT-6")
def test_a_chat_that_another_has_in_hand_holds_up_neither_the_rules_nor_the_loop_nor_the_end(
    cli_env: dict[str, str], profile: Path
) -> None:
    held = [session_id(number) for number in range(1, 8)]
    lives = {one: secret(profile, one) for one in [*held, session_id(9)]}
    with running(cli_env) as agent, ExitStack() as locks:
        until(lambda: all(agent.keeps(one, live) for one, live in lives.items()), "all are kept")
        for one in held:
            locks.enter_context(disk.lock(agent.vault / "locks" / f"{one}.lock", 20))
        put(Path(cli_env["KEEPER_CONFIG"]), RULE)
        agent.send(signal.SIGHUP)
        until(lambda: chats(agent) == held, "what nobody has in hand goes", 30)
        until(lambda: {f"policy: {one}" for one in held} <= set(degraded(agent)), "what could not is told", 30)
        work = profile.with_name("work")
        put(Path(cli_env["KEEPER_CONFIG"]), f'profiles = ["{work}"]\n'.encode() + RULE)
        agent.send(signal.SIGHUP)
        until(lambda: str(work) in agent.status()["profiles"], "the loop reads the settings again")
        assert agent.end() == 0
    with running(cli_env) as agent:
        until(lambda: chats(agent) == [], "the next start removes the others")
        assert degraded(agent) == []


@pytest.mark.accepts("POLICY-2")
def test_what_another_had_in_hand_goes_when_that_one_is_through(cli_env: dict[str, str], profile: Path) -> None:
    live = secret(profile)
    with running(cli_env) as agent:
        until(lambda: agent.keeps(ONE, live), "it is kept")
        with disk.lock(agent.vault / "locks" / f"{ONE}.lock", 20):
            put(Path(cli_env["KEEPER_CONFIG"]), RULE)
            until(lambda: degraded(agent) == [f"policy: {ONE}"], "it is told")
        until(lambda: chats(agent) == [], "it went", 30)
        until(lambda: degraded(agent) == [], "nothing is told any more")


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
