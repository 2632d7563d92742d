"""Cut back and gone on: the CLI reads the newest branch alone; keeper gives the other under a new id, to be resumed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Ran
from tests.lab import stories
from tests.lab.cli import Cli
from tests.lab.waiting import quiet
from tests.real.conftest import SESSION

Keeper = Callable[..., Ran]


@pytest.mark.accepts("FAULT-7", "RESTORE-14")
def test_the_other_branch_of_a_conversation_that_was_cut_back_is_resumed_with_its_own_history(
    cli: Cli, run_keeper: Keeper
) -> None:
    live = cli.transcript(SESSION)
    cli.say("WORD=first @@say one", "--session-id", SESSION)
    first_turn = quiet(live).read_bytes()
    cli.say("WORD=second @@say two", "--resume", SESSION)
    cli.say("WORD=third @@say three", "--resume", SESSION)
    quiet(live)
    assert run_keeper("keep").code == 0
    live.unlink()
    live.write_bytes(first_turn)
    cli.say("WORD=other @@say another", "--resume", SESSION)
    quiet(live)
    went_on = live.read_bytes()

    told = run_keeper("restore", SESSION, "--json")
    assert (told.code, told.json["verdict"]) == (0, "diverged")
    assert live.read_bytes() == went_on
    made = run_keeper("restore", SESSION, "--branch", told.json["branch"], "--json")
    assert made.code == 0, made.err
    lost = stories.Story(("first", "second", "third"))
    assert lost.lost(cli.resume(made.json["session"]).history) == ""
    assert Path(made.json["live"]) == cli.transcript(made.json["session"])
    assert stories.Story(("first", "other")).lost(cli.resume(SESSION).history) == ""


@pytest.mark.accepts("FAULT-7", "SEAL-1", "SEAL-5")
def test_a_conversation_that_was_truncated_under_the_cli_is_resumed_whole_and_as_it_once_was(
    cli: Cli, run_keeper: Keeper
) -> None:
    live = cli.transcript(SESSION)
    cli.say("WORD=first @@say one", "--session-id", SESSION)
    first_turn = quiet(live).stat().st_size
    assert run_keeper("keep", SESSION).code == 0
    cli.say("WORD=second @@say two", "--resume", SESSION)
    quiet(live)
    assert run_keeper("keep", SESSION).code == 0
    whole = live.read_bytes()
    with live.open("r+b") as stream:
        stream.truncate(first_turn)
    assert stories.Story(("first",)).lost(cli.resume(SESSION, "--fork-session").history) == "", "the control"

    restored = run_keeper("restore", SESSION, "--json")
    assert (restored.code, restored.json["verdict"]) == (0, "behind"), restored.err
    assert live.read_bytes() == whole
    assert stories.Story(("first", "second")).lost(cli.resume(SESSION).history) == ""
