"""The agent as a process: it keeps what comes, goes and moves, one a vault, and ends when it is told to."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from keeper import disk, wire
from keeper.agent.run import MANY
from tests.agent.running import Running, running, until
from tests.build import append, jsonl, live_path, session_id, talk, write_live
from tests.chat import write_whole
from tests.conftest import Ran

A, B, C, D = talk("abcd", session_id(1))
ONE = session_id(1)


@pytest.fixture
def agent(cli_env: dict[str, str]) -> Iterator[Running]:
    with running(cli_env) as found:
        yield found


# ------------------------------------------------------------------ what it keeps


@pytest.mark.accepts("AGENT-1", "KEEP-22")
def test_a_new_session_is_kept_and_sealed_by_itself(agent: Running, profile: Path) -> None:
    live = write_live(profile, "/srv/new", ONE, jsonl(A))
    until(lambda: agent.keeps(ONE, live), "it is kept")
    until(lambda: (agent.kept(ONE).parent / "seal" / f"{ONE}.jsonl.seal").exists(), "it is sealed")


@pytest.mark.accepts("AGENT-1")
def test_a_file_that_was_made_empty_is_kept_once_it_has_a_line(agent: Running, profile: Path) -> None:
    live = write_live(profile, "/srv/new", ONE, b"")
    until(lambda: agent.status()["queued"] == 0, "it was looked at")
    append(live, jsonl(A))
    until(lambda: agent.kept(ONE).exists(), "it is kept")


@pytest.mark.accepts("AGENT-1")
def test_a_first_line_that_is_long_in_coming_is_kept_too(agent: Running, profile: Path) -> None:
    live = write_live(profile, "/srv/new", ONE, b"")
    time.sleep(5)  # longer than an empty file is looked at again
    append(live, jsonl(A))
    until(lambda: agent.keeps(ONE, live), "it is kept")


@pytest.mark.accepts("AGENT-2")
def test_a_folder_that_cannot_be_looked_at_ends_no_agent(cli_env: dict[str, str], profile: Path) -> None:
    live = write_live(profile, "/srv/new", ONE, jsonl(A))
    live.with_suffix("").mkdir()
    loop = live.with_suffix("") / "subagents"
    loop.symlink_to(loop)
    with running(cli_env) as agent:
        until(lambda: agent.keeps(ONE, live), "it is kept")
        time.sleep(4)  # longer than a look at what has grown
        other = write_live(profile, "/srv/new", session_id(2), jsonl(*talk("a", session_id(2))))
        until(lambda: agent.keeps(session_id(2), other), "so is what comes after it")


@pytest.mark.accepts("AGENT-2", "KEEP-13")
def test_a_profile_that_comes_later_or_goes_and_comes_back_is_kept(cli_env: dict[str, str], home: Path) -> None:
    late = home / "late"
    with running({**cli_env, "CLAUDE_CONFIG_DIR": str(late)}) as agent:
        assert agent.status()["degraded"] is None
        live = write_live(late, "/srv/new", ONE, jsonl(A))
        until(lambda: agent.keeps(ONE, live), "it is kept")
        until(lambda: agent.status()["watches"]["count"], "it is watched")
        late.rename(home / "away")
        until(lambda: agent.status()["degraded"], "that it is gone is told")
        agent.send(signal.SIGUSR1)
        time.sleep(3)  # longer than that reconcile
        assert agent.status()["degraded"], "and told as long as it lasts"
        (home / "away").rename(late)
        other = write_live(late, "/srv/new", session_id(2), jsonl(*talk("a", session_id(2))))
        until(lambda: agent.keeps(session_id(2), other), "what comes after its return is kept")


@pytest.mark.accepts("AGENT-1", "KEEP-22")
def test_a_file_that_was_swept_and_recreated_under_it_is_folded(agent: Running, profile: Path) -> None:
    live = write_live(profile, "/srv/new", ONE, jsonl(A, B))
    until(lambda: agent.kept(ONE).exists(), "it is kept")
    live.unlink()
    write_live(profile, "/srv/new", ONE, jsonl(C))
    until(lambda: agent.kept(ONE).exists() and agent.kept(ONE).read_bytes() == jsonl(A, B, C), "kept has both")
    until(lambda: agent.keeps(ONE, live), "so has live, on one inode")


@pytest.mark.accepts("AGENT-1")
def test_a_session_that_moves_to_another_folder_stays_one_chat(agent: Running, profile: Path) -> None:
    live = write_live(profile, "/srv/new", ONE, jsonl(A, B))
    until(lambda: agent.kept(ONE).exists(), "it is kept")
    there = live_path(profile, ONE, "/srv/new/worktree")
    there.parent.mkdir()
    live.rename(there)
    facts = agent.kept(ONE).parent / "chat.json"
    until(lambda: facts.exists() and there.parent.name in facts.read_text(), "its place is told")
    assert os.listdir(agent.vault / "chats") == [ONE]


@pytest.mark.accepts("AGENT-3")
def test_what_has_grown_is_sealed_without_an_event(agent: Running, profile: Path) -> None:
    live = write_live(profile, "/srv/new", ONE, jsonl(A))
    seal = agent.kept(ONE).parent / "seal" / f"{ONE}.jsonl.seal"
    until(seal.exists, "it is sealed")
    before = seal.stat().st_size
    append(live, jsonl(B))
    until(lambda: seal.stat().st_size > before, "the new line is sealed")


@pytest.mark.accepts("KEEP-22")
def test_what_came_and_grew_while_no_agent_ran_is_kept_at_its_start(cli_env: dict[str, str], profile: Path) -> None:
    live = write_whole(profile, ONE)
    with running(cli_env) as agent:
        until(lambda: agent.kept(ONE).exists(), "what was there is kept")
        assert agent.end() == 0
    live.unlink()
    write_live(profile, "/srv/demo/proj", ONE, jsonl(talk("abcde", ONE)[-1]))
    other = write_live(profile, "/srv/new", session_id(2), jsonl(*talk("ab", session_id(2))))
    with running(cli_env) as agent:
        until(lambda: agent.keeps(session_id(2), other), "what is new is kept")
        until(
            lambda: agent.kept(ONE).exists() and agent.kept(ONE).read_bytes() == jsonl(*talk("abcde", ONE)),
            "what was recreated is folded",
        )


@pytest.mark.accepts("KEEP-2", "KEEP-13")
def test_a_door_that_asks_is_answered_when_the_session_is_durable_and_sealed(agent: Running, home: Path) -> None:
    elsewhere = home / "work"
    live = write_live(elsewhere, "/srv/new", ONE, jsonl(A))
    answer = agent.ask(do="keep", session=ONE, profile=str(elsewhere), transcript=str(live), event="Stop")
    assert answer == {"ok": True, "sealed": True, "chat": ONE, "action": "linked"}
    assert (agent.kept(ONE).parent / "seal" / f"{ONE}.jsonl.seal").exists()
    assert json.loads((agent.kept(ONE).parent / "chat.json").read_text())["profile"] == str(elsewhere)


@pytest.mark.accepts("RESTORE-7")
def test_a_door_that_asks_for_a_session_has_it_put_back(agent: Running, profile: Path) -> None:
    live = write_live(profile, "/srv/new", ONE, jsonl(A, B))
    until(lambda: agent.keeps(ONE, live), "it is kept")
    live.unlink()
    answer = agent.ask(do="restore", session=ONE, profile=str(profile), argv=["--resume", ONE])
    assert (answer["ok"], answer["verdict"]) == (True, "absent")
    assert live.read_bytes() == jsonl(A, B)
    assert "nothing is kept" in agent.ask(do="restore", session=session_id(7), profile="")["error"]
    assert "no session id" in agent.ask(do="restore", session="../x", profile="")["error"]


def test_rubbish_from_a_door_costs_nothing(agent: Running) -> None:
    assert agent.ask(do="dance") == {"ok": False, "error": "this agent does not know that", "cure": "restart it"}
    assert "error" in agent.ask(do="keep")
    assert "error" in agent.ask(do="keep", session="../../etc", profile="/")
    folder = os.open(agent.vault, os.O_PATH)
    for data in (b"", b"{\n", b"[1]\n", b"\0" * 70_000):
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(wire.address(folder))
            line.sendall(data)
            line.shutdown(socket.SHUT_WR)
            line.recv(10)
    os.close(folder)
    assert agent.status()["running"] is True


# ------------------------------------------------------------------ one, and its end


@pytest.mark.accepts("AGENT-6")
def test_a_second_agent_says_who_runs_and_exits_6(agent: Running, run_keeper: Callable[..., Ran]) -> None:
    ran = run_keeper("run")
    assert ran.code == 6
    assert str(agent.process.pid) in ran.err


@pytest.mark.accepts("AGENT-6")
def test_a_term_ends_it_with_what_was_queued_kept(agent: Running, profile: Path) -> None:
    lives = {
        session_id(n): write_live(profile, "/srv/new", session_id(n), jsonl(*talk("a", session_id(n))))
        for n in range(1, 41)
    }
    until(lambda: agent.status()["queued"] or agent.kept(ONE).exists(), "the first hints have come")
    assert agent.end() == 0
    told = json.loads((agent.vault / "agent.json").read_text())
    assert (told["running"], told["queued"]) == (False, 0)
    assert not (agent.vault / wire.NAME).exists()
    with running({**os.environ, **environ_of(agent)}) as again:
        for session, live in lives.items():
            until(lambda session=session, live=live: again.keeps(session, live), session)  # type: ignore[misc]


def environ_of(agent: Running) -> dict[str, str]:
    home = agent.log.parent
    return {
        "HOME": str(home), "KEEPER_HOME": str(agent.vault), "CLAUDE_CONFIG_DIR": str(home / ".claude"),
        "XDG_STATE_HOME": str(home / ".local" / "state"), "KEEPER_CONFIG": str(home / "none.toml"),
    }  # fmt: skip


@pytest.mark.accepts("AGENT-6")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_whose_first_pass_is_stuck_ends_all_the_same(
    cli_env: dict[str, str], profile: Path, number: signal.Signals
) -> None:
    for each in range(1, MANY + 3):
        write_live(profile, "/srv/new", session_id(each), jsonl(*talk("a", session_id(each))))
    stuck = """
import time
from keeper.transcripts.keep import Keeper
Keeper.seal = lambda *_: time.sleep(3600)
"""
    with running(cli_env, before=stuck) as agent:
        until(lambda: agent.status()["sealing"], "the first pass is at its sealing")
        agent.send(signal.SIGUSR1)
        assert agent.ask(do="reconcile")["ok"]
        time.sleep(1)  # the next pass waits for that one now
        assert agent.end(number) == 0


@pytest.mark.accepts("AGENT-6")
def test_an_end_does_not_wait_for_a_chat_that_another_has_in_hand(
    agent: Running, profile: Path, cli_env: dict[str, str]
) -> None:
    lives = [write_live(profile, "/srv/new", session_id(number), jsonl(A)) for number in range(1, 10)]
    until(lambda: all(agent.keeps(live.stem, live) for live in lives), "all are kept")
    with ExitStack() as locks:
        for live in lives:
            locks.enter_context(disk.lock(agent.vault / "locks" / f"{live.stem}.lock", 20))
            append(live, jsonl(C))
            live.rename(live.with_suffix(".away"))
            live.with_suffix(".away").rename(live)
        until(lambda: agent.status()["queued"] >= len(lives), "their keeps wait")
        assert agent.end() == 0


@pytest.mark.accepts("AGENT-6")
def test_a_burst_of_signals_holds_up_nothing(agent: Running) -> None:
    for _ in range(300):
        agent.send(signal.SIGUSR1)
        agent.send(signal.SIGHUP)
    assert agent.status()["running"] is True
    assert agent.end() == 0


@pytest.mark.accepts("AGENT-6")
def test_one_that_was_killed_stops_no_next_one(cli_env: dict[str, str], profile: Path) -> None:
    with running(cli_env) as agent:
        agent.end(signal.SIGKILL)
        assert (agent.vault / wire.NAME).exists()
    live = write_live(profile, "/srv/new", ONE, jsonl(A))
    with running(cli_env) as agent:
        until(lambda: agent.keeps(ONE, live), "it is kept")


@pytest.mark.accepts("AGENT-6")
def test_a_hup_reads_the_settings_again_and_a_usr1_looks_at_everything(
    agent: Running, cli_env: dict[str, str], home: Path
) -> None:
    work = home / "work"
    write_live(work, "/srv/new", ONE, jsonl(A))
    config = Path(cli_env["KEEPER_CONFIG"])
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(f'profiles = ["{work}"]\n')
    agent.send(signal.SIGHUP)
    until(lambda: agent.kept(ONE).exists(), "the profile that the settings name now is kept")
    other = write_live(work, "/srv/new", session_id(2), jsonl(A))
    until(lambda: agent.keeps(session_id(2), other), "it is watched, too")
    config.write_text("profiles = 3\n")
    agent.send(signal.SIGHUP)
    until(lambda: agent.status()["degraded"], "bad settings are told")
    assert "profiles" in agent.status()["degraded"][0]["why"]
    shutil.rmtree(agent.vault / "chats" / ONE)
    agent.send(signal.SIGUSR1)
    stones = agent.vault / "tombstones.jsonl"
    until(lambda: stones.exists() and ONE in stones.read_text(), "the pass sees what a hand removed")


def test_once_keeps_all_and_ends(cli_env: dict[str, str], profile: Path, run_keeper: Callable[..., Ran]) -> None:
    write_whole(profile, ONE)
    ran = run_keeper("run", "--once", "--json")
    assert (ran.code, ran.json["agent"]["degraded"]) == (0, None)
    assert (Path(cli_env["KEEPER_HOME"]) / "chats" / ONE / "seal" / f"{ONE}.jsonl.seal").exists()


# ------------------------------------------------------------------ what it says of itself


@pytest.mark.accepts("AGENT-3")
def test_status_tells_who_runs_and_what_the_watches_cost(
    agent: Running, profile: Path, run_keeper: Callable[..., Ran]
) -> None:
    write_live(profile, "/srv/new", ONE, jsonl(A))
    until(lambda: agent.status()["live"] == 1, "it is kept")
    ran = run_keeper("status", "--json")
    told = ran.json["agent"]
    assert (ran.code, told["running"], told["pid"], told["degraded"]) == (0, True, agent.process.pid, None)
    assert told["watches"]["count"] >= 3
    assert told["watches"]["limit"] == int(Path("/proc/sys/fs/inotify/max_user_watches").read_text())
    assert f"process {agent.process.pid}" in run_keeper("status").text
    agent.end()
    ran = run_keeper("status", "--json")
    assert (ran.code, ran.json["agent"]["running"]) == (5, False)


@pytest.mark.accepts("AGENT-2")
def test_a_vault_that_cannot_be_written_is_told_and_healed(agent: Running, profile: Path) -> None:
    locks = agent.vault / "locks"
    locks.rename(agent.vault / "locks.away")
    locks.write_text("")
    write_live(profile, "/srv/new", ONE, jsonl(A))
    until(lambda: agent.status()["degraded"], "it is told")
    assert not agent.kept(ONE).exists()
    locks.unlink()
    (agent.vault / "locks.away").rename(locks)
    until(lambda: agent.kept(ONE).exists(), "it is kept, without another hint")
    until(lambda: not agent.status()["degraded"], "it is well again")


@pytest.mark.accepts("AGENT-4")
def test_a_mass_deletion_is_one_event_and_nothing_of_it_reaches_the_vault(agent: Running, profile: Path) -> None:
    sessions = [session_id(n) for n in range(1, 301)]
    for session in sessions:
        write_live(profile, f"/srv/p{session[7]}", session, jsonl(*talk("a", session)))
    agent.send(signal.SIGUSR1)
    until(lambda: all(agent.kept(session).exists() for session in sessions), "all are kept", 60)
    shutil.rmtree(profile / "projects")
    until(lambda: "mass deletion" in {one["what"] for one in agent.status()["events"]}, "it is told", 30)
    assert all(agent.kept(session).exists() for session in sessions)
    assert agent.said().count("mass deletion") == 1
    assert not (agent.vault / "tombstones.jsonl").exists() or (agent.vault / "tombstones.jsonl").read_text() == ""
