"""Resident on the real CLI: its own sweep takes nothing for long, and what a person purges stays away."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.running import Running, running
from tests.conftest import Ran
from tests.lab import footprint, install, stories
from tests.lab.cli import Cli, age, sweep
from tests.lab.waiting import eventually
from tests.real.conftest import OTHER, SESSION

Keeper = Callable[..., Ran]


def told(cli: Cli, keeper: Keeper) -> tuple[stories.Story, dict[str, bytes]]:
    """A resident chat, and one of another project that is not, which will show what a sweep does."""
    stories.plain(cli.at(elsewhere(cli)), OTHER, "other")
    story = stories.with_tools(cli, SESSION)
    assert keeper("keep").code == 0
    assert keeper("keep", "--policy", "resident", SESSION).code == 0
    return story, footprint.files(cli, SESSION)


def elsewhere(cli: Cli) -> Path:
    return cli.home / "elsewhere"


def events(agent: Running) -> dict[str, str]:
    return {one["what"]: one["text"] for one in agent.status()["events"]}


@pytest.mark.accepts("POLICY-4", "FAULT-7")
def test_what_the_clis_own_sweep_took_is_back_within_moments_and_plain_claude_resumes_it(
    cli: Cli, run_keeper: Keeper, cli_env: dict[str, str], vault_home: Path
) -> None:
    story, before = told(cli, run_keeper)
    live = cli.transcript(SESSION)
    age(live)
    old = live.stat().st_mtime
    with running(cli_env) as agent:
        eventually("its first look is over", lambda: live.stat().st_mtime > old)
        age(*footprint.everything(cli))
        sweep(cli, [cli.transcript(OTHER, elsewhere(cli))])
        eventually("it was swept, and put back", lambda: "sweep" in events(agent))
        eventually("all of it is there", lambda: footprint.files(cli, SESSION) == before)
        assert live.samefile(vault_home / "chats" / SESSION / f"{SESSION}.jsonl")
        assert "deleted" not in events(agent)
        assert story.lost(cli.resume(SESSION).history) == ""
    assert not cli.transcript(OTHER, elsewhere(cli)).exists()


@pytest.mark.accepts("POLICY-4")
@pytest.mark.parametrize("version", [install.NEWEST])
def test_a_chat_past_the_retention_is_safe_from_the_clis_sweep_once_the_agent_has_begun(
    cli: Cli, run_keeper: Keeper, cli_env: dict[str, str]
) -> None:
    story, before = told(cli, run_keeper)
    age(*footprint.everything(cli))
    live = cli.transcript(SESSION)
    old = live.stat().st_mtime
    with running(cli_env) as agent:
        eventually("it has a new time", lambda: live.stat().st_mtime > old)
        eventually("all that is beside it too", lambda: new_times(cli, before, old))
        sweep(cli, [cli.transcript(OTHER, elsewhere(cli))])
        assert footprint.files(cli, SESSION) == before
        assert events(agent).keys() & {"sweep", "deleted"} == set()
    assert story.lost(cli.resume(SESSION).history) == ""


def new_times(cli: Cli, names: dict[str, bytes], old: float) -> bool:
    """Whether every file that a sweep judges by itself is newer than that; it judges no subagent's."""
    return all((cli.profile / name).stat().st_mtime > old for name in names if "/tool-results/" in name)


@pytest.mark.accepts("POLICY-4")
@pytest.mark.parametrize("version", [install.NEWEST])
def test_what_claude_purge_deletes_stays_away_and_the_command_that_undoes_it_is_told(
    cli: Cli, run_keeper: Keeper, cli_env: dict[str, str]
) -> None:
    story, before = told(cli, run_keeper)
    with running(cli_env) as agent:
        purged = cli.run("purge", "--yes", str(cli.cwd))
        assert purged.code == 0, purged.err
        text = eventually("it is told", lambda: events(agent).get("deleted", ""))
        assert f"`keeper restore {SESSION}`" in text
        assert run_keeper("status").code == 0
        assert not cli.transcript(SESSION).exists()
    with running(cli_env):
        assert not cli.transcript(SESSION).exists()
    assert run_keeper("restore", SESSION).code == 0
    assert footprint.files(cli, SESSION) == before
    assert story.lost(cli.resume(SESSION).history) == ""
