"""Swept by the CLI's own clean-up, and resumed by plain `claude --resume` with keeper's shim on PATH."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Ran
from tests.lab import footprint, install, stories
from tests.lab.cli import Cli, age, sweep
from tests.lab.screen import Screen
from tests.lab.waiting import eventually, quiet
from tests.real.conftest import OTHER, SESSION
from tests.real.through_shim import ThroughShim, installed

Keeper = Callable[..., Ran]
only_newest = pytest.mark.parametrize("version", [install.NEWEST])


@pytest.fixture
def shimmed(cli: Cli, run_keeper: Keeper, cli_env: dict[str, str]) -> ThroughShim:
    return installed(cli, run_keeper, cli_env)


def swept(cli: Cli, keeper: Keeper) -> tuple[stories.Story, dict[str, bytes]]:
    """A conversation with all that belongs to one, and an older one beside it: kept, then taken by the CLI's own
    clean-up."""
    stories.plain(cli, OTHER, "older")
    story = stories.with_tools(cli, SESSION)
    before = footprint.files(cli, SESSION)
    assert keeper("keep").code == 0
    age(*footprint.everything(cli))
    age(cli.transcript(OTHER), days=60)
    sweep(cli, [cli.profile / name for name in before])
    return story, before


@pytest.mark.accepts("RESTORE-7", "RESTORE-1", "FAULT-7")
def test_claude_resume_by_the_shim_has_the_whole_history_of_a_swept_conversation(
    cli: Cli, shimmed: ThroughShim, run_keeper: Keeper
) -> None:
    story, before = swept(cli, run_keeper)
    assert cli.resume(SESSION).err == f"No conversation found with session ID: {SESSION}"

    resumed = shimmed.resume(SESSION, prompt="WORD=fifth @@recall")
    assert (resumed.code, resumed.err) == (0, "")
    assert story.then("fifth").lost(resumed.history) == ""
    assert set(before) <= set(footprint.files(cli, SESSION))


@only_newest
@pytest.mark.accepts("RESTORE-7", "FAULT-7")
def test_claude_continue_by_the_shim_takes_up_the_swept_conversation_of_the_directory(
    cli: Cli, shimmed: ThroughShim, run_keeper: Keeper
) -> None:
    story, _ = swept(cli, run_keeper)
    assert not cli.transcript(OTHER).exists()
    control = cli.say("@@recall", "--continue")
    assert control.history.words == ()
    assert control.history.session is not None
    cli.transcript(control.history.session).unlink()

    assert story.lost(shimmed.say("@@recall", "-c").history) == ""
    assert not cli.transcript(OTHER).exists(), "more than the one conversation put back"


@only_newest
@pytest.mark.accepts("RESTORE-7", "RESTORE-3", "FAULT-7")
def test_a_fork_by_the_shim_of_a_swept_conversation_has_its_history(
    cli: Cli, shimmed: ThroughShim, run_keeper: Keeper
) -> None:
    story, before = swept(cli, run_keeper)
    fork = shimmed.resume(SESSION, "--fork-session", "--session-id", OTHER, prompt="WORD=fork @@recall")
    assert story.then("fork").lost(fork.history) == ""
    name = str(cli.transcript(SESSION).relative_to(cli.profile))
    assert cli.transcript(SESSION).read_bytes() == before[name]


@only_newest
@pytest.mark.usefixtures("terminal")
@pytest.mark.accepts("RESTORE-7", "RESTORE-11", "FAULT-7")
def test_bare_resume_by_the_shim_offers_what_was_swept_and_puts_back_the_one_that_is_chosen(
    cli: Cli, shimmed: ThroughShim, run_keeper: Keeper
) -> None:
    story, _ = swept(cli, run_keeper)

    with Screen(shimmed, "--resume") as screen:
        screen.wait(rf"(?s) 1 .*{SESSION[:8]}.* 2 .*{OTHER[:8]}.*Which one")
        screen.answer("1")
        screen.wait("❯")
        mark = cli.lab.mark()
        screen.type("WORD=fifth @@recall")
        asked = eventually("the turn", lambda: [one for one in cli.lab.requests(mark) if one.tools])
        assert story.then("fifth").lost(asked[-1]) == ""
        screen.leave()
    assert not cli.transcript(OTHER).exists(), "more than the one conversation put back"


@only_newest
@pytest.mark.accepts("RESTORE-7", "FAULT-7")
def test_claude_resume_by_the_shim_finds_a_swept_conversation_by_its_title(
    cli: Cli, shimmed: ThroughShim, run_keeper: Keeper
) -> None:
    with cli.talk("--session-id", SESSION) as talk:
        talk.turn("WORD=first @@say one")
        talk.turn("/rename my architect")
    assert run_keeper("keep").code == 0
    age(*footprint.everything(cli))
    sweep(cli, [cli.transcript(SESSION)])
    assert "does not match any session title" in cli.resume("my architect").err

    resumed = shimmed.resume("my architect")
    assert (resumed.code, resumed.history.words) == (0, ("first",))


@only_newest
@pytest.mark.accepts("RESTORE-13", "FAULT-7")
def test_with_a_vault_that_cannot_be_read_claude_starts_as_without_keeper_and_one_line_says_why(
    cli: Cli, shimmed: ThroughShim, run_keeper: Keeper, vault_home: Path
) -> None:
    stories.plain(cli, SESSION, "first")
    assert run_keeper("keep").code == 0
    shutil.rmtree(vault_home)
    vault_home.write_bytes(b"no folder")

    resumed = shimmed.resume(SESSION)
    assert (resumed.code, resumed.history.words) == (0, ("first",))
    (line,) = resumed.err.splitlines()
    assert line.startswith("keeper: ")
    assert str(vault_home) in line
    cli.transcript(SESSION).unlink()
    refused = shimmed.resume(SESSION)
    assert refused.code == 1
    assert refused.err.splitlines()[-1] == f"No conversation found with session ID: {SESSION}"
    assert len(refused.err.splitlines()) == 2


@only_newest
@pytest.mark.accepts("KEEP-22", "KEEP-13")
def test_a_cold_resume_and_a_cold_fork_are_kept_in_the_profile_that_the_shim_hands_to_claude(
    cli: Cli, shimmed: ThroughShim, run_keeper: Keeper, vault_home: Path, tmp_path: Path
) -> None:
    """No agent, no hooks, a profile that no settings name, and nothing kept of it before."""
    profile = tmp_path / "another-profile"
    there = shimmed.with_env(CLAUDE_CONFIG_DIR=str(profile))
    plain = cli.with_env(CLAUDE_CONFIG_DIR=str(profile))
    plain.say("WORD=first @@say one", "--session-id", SESSION)
    assert not vault_home.exists()

    resumed = there.resume(SESSION, prompt="WORD=second @@recall")
    assert resumed.history.words == ("first", "second")
    live = next(profile.glob(f"projects/*/{SESSION}.jsonl"))
    assert (vault_home / "chats" / SESSION / f"{SESSION}.jsonl").samefile(quiet(live))
    assert run_keeper("show", SESSION, "--json").json["chats"][0]["profile"] == str(profile)

    fork = there.resume(SESSION, "--fork-session", "--session-id", OTHER, prompt="WORD=fork @@recall")
    assert fork.history.words == ("first", "second", "fork")
    assert run_keeper("keep").code == 0  # learnt of the profile from what is kept of it
    assert (vault_home / "chats" / OTHER / f"{OTHER}.jsonl").exists()


@pytest.mark.parametrize("version", [install.SWEEPS_AT_ONCE])
@pytest.mark.accepts("FIT-7", "FIT-1", "FAULT-7")
def test_a_cli_that_sweeps_the_moment_it_starts_takes_nothing_that_was_not_kept_before(
    cli: Cli, shimmed: ThroughShim, run_keeper: Keeper, vault_home: Path
) -> None:
    """No agent, and nothing kept: both conversations are past retention when the one is resumed."""
    cli.say("WORD=first @@say one", "--session-id", SESSION)
    elsewhere = cli.at(cli.home / "elsewhere")
    elsewhere.say("WORD=other @@say one", "--session-id", OTHER)
    whole = elsewhere.transcript(OTHER).read_bytes()
    age(*footprint.everything(cli))
    assert not vault_home.exists()

    resumed = shimmed.resume(SESSION, prompt="WORD=second @@recall")
    assert resumed.history.words == ("first", "second")
    assert not elsewhere.transcript(OTHER).exists(), "this CLI did not sweep"
    assert run_keeper("restore", OTHER).code == 0
    assert elsewhere.transcript(OTHER).read_bytes() == whole
    assert elsewhere.resume(OTHER).history.words == ("other",)
