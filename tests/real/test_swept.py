"""Swept by the CLI's own clean-up, and back: resumed, forked, and safe from the next sweep."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Ran
from tests.lab import footprint, install, stories
from tests.lab.cli import Cli, age, sweep
from tests.lab.waiting import eventually, quiet
from tests.real.conftest import OTHER, SESSION

Keeper = Callable[..., Ran]


def swept(cli: Cli, keeper: Keeper) -> tuple[stories.Story, dict[str, bytes]]:
    """Tell a story, keep it, have the CLI sweep it; answer the story and the files that there were."""
    story = stories.with_tools(cli, SESSION)
    before = footprint.files(cli, SESSION)
    assert any("tool-results" in name for name in before), "no tool result in a file of its own"
    assert any("subagents" in name for name in before), "no subagent"
    assert any(name.startswith("tasks/") for name in before), "no task list"

    kept = keeper("keep")
    assert kept.code == 0, kept.err

    age(*footprint.everything(cli))
    sweep(cli, [cli.profile / name for name in before])
    return story, before


@pytest.mark.accepts("FAULT-7", "RESTORE-1", "RESTORE-2", "KEEP-21")
def test_a_swept_conversation_comes_back_whole_and_the_next_sweep_takes_nothing_of_it(
    cli: Cli, run_keeper: Keeper, vault_home: Path
) -> None:
    story, before = swept(cli, run_keeper)
    refused = cli.resume(SESSION)
    assert (refused.code, refused.requests) == (1, [])
    assert refused.err == f"No conversation found with session ID: {SESSION}"

    asked = time.time()
    restored = run_keeper("restore", SESSION, "--json")
    assert restored.code == 0, restored.err
    assert restored.json["session"] == SESSION
    assert Path(restored.json["live"]) == cli.transcript(SESSION)
    assert restored.json["cwd"] == str(cli.cwd)
    assert footprint.files(cli, SESSION) == before
    kept = vault_home / "chats" / SESSION / f"{SESSION}.jsonl"
    assert kept.samefile(cli.transcript(SESSION))
    for name in before:
        assert (cli.profile / name).stat().st_mtime >= asked - 1, f"{name} keeps its old time"

    own_sweep_is_near(cli)
    with cli.talk("--resume", SESSION) as talk:
        assert story.lost(talk.turn("@@recall").history) == ""
        own_sweep_ends(cli)
        assert set(before) <= set(footprint.files(cli, SESSION)), "the sweep took of the chat"
        assert story.then("fifth").lost(talk.turn("WORD=fifth @@recall").history) == ""
        quiet(cli.transcript(SESSION))
    assert kept.samefile(cli.transcript(SESSION))
    assert story.then("fifth").lost(cli.resume(SESSION).history) == ""


@pytest.mark.accepts("FAULT-7", "RESTORE-1", "KEEP-12")
def test_a_fork_of_a_swept_conversation_has_its_history_and_a_folder_of_its_own(
    cli: Cli, run_keeper: Keeper, vault_home: Path
) -> None:
    story, before = swept(cli, run_keeper)
    assert run_keeper("restore", SESSION).code == 0

    prompt = "WORD=fork @@recall"
    fork = cli.resume(SESSION, "--fork-session", "--session-id", OTHER, prompt=prompt)
    assert story.then("fork").lost(fork.history) == ""
    assert cli.transcript(SESSION).read_bytes() == before[str(cli.transcript(SESSION).relative_to(cli.profile))]

    assert run_keeper("keep").code == 0
    chats = vault_home / "chats"
    assert sorted(chat.name for chat in chats.iterdir()) == [SESSION, OTHER]
    assert (chats / OTHER / f"{OTHER}.jsonl").samefile(cli.transcript(OTHER))
    assert not list((chats / OTHER).rglob(f"*{SESSION}*")), "the parent's files in the fork's folder"
    assert not list((chats / SESSION).rglob(f"*{OTHER}*")), "the fork's files in the parent's folder"
    shown = run_keeper("show", OTHER, "--json")
    assert shown.code == 0, shown.err
    assert SESSION in values_of(shown.json, "forked_from")
    assert OTHER not in values_of(run_keeper("show", SESSION, "--json").json, "forked_from")


@pytest.mark.parametrize("keeper_restores", [False, True], ids=["without keeper", "with keeper"])
@pytest.mark.parametrize("version", [install.NEWEST])
@pytest.mark.accepts("FAULT-7", "RESTORE-2")
def test_a_conversation_past_retention_that_is_still_there_survives_its_own_resume(
    cli: Cli, run_keeper: Keeper, keeper_restores: bool
) -> None:
    stories.with_tools(cli, SESSION)
    before = footprint.files(cli, SESSION)
    assert run_keeper("keep").code == 0
    age(*footprint.everything(cli))
    if keeper_restores:
        assert run_keeper("restore", SESSION).code == 0

    own_sweep_is_near(cli)
    with cli.talk("--resume", SESSION) as talk:
        talk.turn("@@recall")
        own_sweep_ends(cli)
        lost = set(before) - set(footprint.files(cli, SESSION))
    assert bool(lost) is not keeper_restores, lost


def bait(cli: Cli) -> Path:
    return cli.profile / "projects" / "-bait" / f"{OTHER}.jsonl"


def own_sweep_is_near(cli: Cli) -> None:
    """Have the next process sweep what is older than a day; the bait will show that it has."""
    bait(cli).parent.mkdir()
    bait(cli).write_bytes(b"{}\n")
    age(bait(cli), days=2)
    (cli.profile / ".last-cleanup").unlink(missing_ok=True)
    cli.set(cleanupPeriodDays=1)


def own_sweep_ends(cli: Cli) -> None:
    marker = cli.profile / ".last-cleanup"
    eventually("the process's own sweep", lambda: not bait(cli).exists() and marker.exists(), 30)


def values_of(told: object, key: str) -> list[object]:
    """Every value of that key, however deep."""
    if isinstance(told, dict):
        own = [told[key]] if key in told else []
        return own + [found for value in told.values() for found in values_of(value, key)]
    if isinstance(told, list):
        return [found for value in told for found in values_of(value, key)]
    return []
