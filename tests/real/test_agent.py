"""The agent beside the real CLI: one that ran before it, a file that is recreated, an agent that was killed, forks."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.agent.running import Running, running, until
from tests.conftest import Ran
from tests.lab import install, stories
from tests.lab.cli import Cli, records
from tests.lab.waiting import quiet
from tests.real.conftest import OTHER, SESSION
from tests.real.test_recreated import uuids_in, words_in


def kept(agent: Running, session: str = SESSION) -> Path:
    return agent.kept(session)


@pytest.fixture
def environ(cli: Cli, cli_env: dict[str, str]) -> Iterator[dict[str, str]]:
    """What the agent is started with: the profile is the CLI's own."""
    yield cli_env


@pytest.mark.accepts("KEEP-22", "FAULT-7", "AGENT-1")
def test_a_cli_that_runs_already_is_kept_from_then_on_also_when_it_recreates_its_file(
    cli: Cli, environ: dict[str, str]
) -> None:
    live = cli.transcript(SESSION)
    with cli.talk("--session-id", SESSION) as talk:
        talk.turn("WORD=a @@say a")
        with running(environ) as agent:
            until(lambda: agent.keeps(SESSION, live), "what was there is kept")
            talk.turn("WORD=b @@say b")
            quiet(live)
            live.unlink()
            talk.turn("WORD=c @@say c")
            until(lambda: words_in(kept(agent)) == ["a", "b", "c"], "the newest lines are folded")
            until(lambda: agent.keeps(SESSION, live), "under both names")
            talk.turn("WORD=d @@say d")
            quiet(live)
            until(lambda: words_in(kept(agent)) == ["a", "b", "c", "d"], "it goes on in the folded file")
            assert len(uuids_in(live)) == len(set(uuids_in(live)))
    story = stories.Story(("a", "b", "c", "d", "e"))
    assert story.lost(cli.resume(SESSION, prompt="WORD=e @@say e").history) == ""


@pytest.mark.accepts("KEEP-22", "FAULT-7")
def test_what_came_while_the_agent_was_killed_is_kept_when_it_comes_back(cli: Cli, environ: dict[str, str]) -> None:
    live = cli.transcript(SESSION)
    with cli.talk("--session-id", SESSION) as talk:
        with running(environ) as agent:
            talk.turn("WORD=a @@say a")
            until(lambda: agent.keeps(SESSION, live), "it is kept")
            agent.end(signal.SIGKILL)
        live.unlink()
        talk.turn("WORD=b @@say b")
        quiet(live)
        assert words_in(live) == ["b"]
        with running(environ) as agent:
            until(lambda: words_in(kept(agent)) == ["a", "b"], "what came meanwhile is folded")


@pytest.mark.accepts("KEEP-22", "KEEP-12", "FAULT-7")
def test_a_fork_is_kept_as_a_chat_of_its_own_with_its_parent_told(cli: Cli, environ: dict[str, str]) -> None:
    with running(environ) as agent:
        cli.say("WORD=a @@say a", "--session-id", SESSION)
        until(lambda: kept(agent).exists(), "the parent is kept")
        cli.resume(SESSION, "--fork-session", "--session-id", OTHER, prompt="WORD=b @@say b")
        until(lambda: kept(agent, OTHER).exists(), "the fork is kept")
        until(lambda: words_in(kept(agent, OTHER)) == ["a", "b"], "whole")
        facts = kept(agent, OTHER).parent / "chat.json"
        until(lambda: f'"forked_from": "{SESSION}"' in facts.read_text(), "its parent is told")
        assert words_in(kept(agent)) == ["a"]


@pytest.mark.accepts("KEEP-22", "KEEP-13", "RESTORE-6")
@pytest.mark.parametrize("version", [install.NEWEST])
def test_one_that_runs_in_a_profile_that_nobody_named_is_kept_there_and_forked_through_a_turn_there(
    cli: Cli, environ: dict[str, str], run_keeper: Callable[..., Ran], tmp_path: Path
) -> None:
    elsewhere = tmp_path / "another profile"
    cli = cli.with_env(CLAUDE_CONFIG_DIR=str(elsewhere))
    with cli.talk("--session-id", SESSION) as talk:
        talk.turn("WORD=a @@say a")
        talk.turn("WORD=b @@say b")
        (live,) = elsewhere.glob(f"projects/*/{SESSION}.jsonl")
        quiet(live)
        with running(environ, sees_running=True) as agent:
            until(lambda: agent.keeps(SESSION, live), "it is kept")
            assert str(elsewhere) in agent.status()["profiles"]
            talk.turn("WORD=c @@say c")
            until(lambda: words_in(kept(agent)) == ["a", "b", "c"], "its next turn too")
        quiet(live)
    live.unlink()
    first_answer = next(r["uuid"] for r in records(kept_in(environ)) if r.get("type") == "assistant")
    ran = run_keeper("restore", SESSION, "--through", first_answer, "--json")
    assert ran.code == 0, ran.err
    fork = ran.json["session"]
    assert words_in(next(elsewhere.glob(f"projects/*/{fork}.jsonl"))) == ["a"]
    assert stories.Story(("a", "d")).lost(cli.resume(fork, prompt="WORD=d @@say d").history) == ""


def kept_in(environ: dict[str, str]) -> Path:
    return Path(environ["KEEPER_HOME"]) / "chats" / SESSION / f"{SESSION}.jsonl"
