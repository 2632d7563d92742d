"""The agent beside the real CLI: one that ran before it, a file that is recreated, an agent that was killed, forks."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.running import Running, running, until
from tests.lab import stories
from tests.lab.cli import Cli
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
