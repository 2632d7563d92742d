"""Deleted under a running CLI and made anew with the tail alone: folded by keep, by restore, for a fork."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Ran
from tests.lab import stories
from tests.lab.cli import Cli, Talk, records
from tests.lab.waiting import quiet
from tests.real.conftest import OTHER, SESSION

Keeper = Callable[..., Ran]


def kept_then_recreated(cli: Cli, keeper: Keeper, talk: Talk) -> stories.Story:
    """Two turns, kept; the transcript deleted; two more turns of the same process. Nothing is kept since."""
    talk.turn("WORD=a @@say a")
    talk.turn("WORD=b @@say b")
    quiet(cli.transcript(SESSION))
    assert keeper("keep").code == 0
    cli.transcript(SESSION).unlink()
    talk.turn("WORD=c @@say c")
    talk.turn("WORD=d @@say d")
    quiet(cli.transcript(SESSION))
    assert words_in(cli.transcript(SESSION)) == ["c", "d"], "not recreated with the tail alone"
    return stories.Story(("a", "b", "c", "d"))


def words_in(transcript: Path) -> list[str]:
    """The words of the prompts in a transcript, in its order."""
    prompts = [r["message"]["content"] for r in records(transcript) if r.get("type") == "user"]
    return [text.split()[0].removeprefix("WORD=") for text in prompts if isinstance(text, str)]


def uuids_in(transcript: Path) -> list[str]:
    return [record["uuid"] for record in records(transcript) if "uuid" in record]


@pytest.mark.accepts("FAULT-7", "KEEP-4", "MERGE-2")
def test_keep_folds_what_a_live_process_recreated_and_the_process_goes_on_in_it(
    cli: Cli, run_keeper: Keeper, vault_home: Path
) -> None:
    live, kept = cli.transcript(SESSION), vault_home / "chats" / SESSION / f"{SESSION}.jsonl"
    with cli.talk("--session-id", SESSION) as talk:
        story = kept_then_recreated(cli, run_keeper, talk)

        assert run_keeper("keep").code == 0
        assert kept.samefile(live)
        assert words_in(live) == list(story.words)
        assert len(uuids_in(live)) == len(set(uuids_in(live))), "a record stands twice"

        assert story.then("e").lost(talk.turn("WORD=e @@say e").history) == ""
        quiet(live)
    assert kept.samefile(live), "the process did not go on in the folded file"
    assert story.then("e").lost(cli.resume(SESSION).history) == ""


@pytest.mark.accepts("FAULT-7", "RESTORE-3")
def test_restore_folds_a_recreated_transcript_before_it_is_resumed(
    cli: Cli, run_keeper: Keeper, vault_home: Path
) -> None:
    with cli.talk("--session-id", SESSION) as talk:
        story = kept_then_recreated(cli, run_keeper, talk)

    restored = run_keeper("restore", SESSION, "--json")
    assert restored.code == 0, restored.err
    assert restored.json["verdict"] == "partial"
    assert (vault_home / "chats" / SESSION / f"{SESSION}.jsonl").samefile(cli.transcript(SESSION))
    assert story.lost(cli.resume(SESSION).history) == ""


@pytest.mark.accepts("FAULT-7", "RESTORE-3")
def test_restore_folds_a_recreated_transcript_before_it_is_forked(cli: Cli, run_keeper: Keeper) -> None:
    with cli.talk("--session-id", SESSION) as talk:
        story = kept_then_recreated(cli, run_keeper, talk)

    assert run_keeper("restore", SESSION).code == 0
    fork = cli.resume(SESSION, "--fork-session", "--session-id", OTHER, prompt="WORD=fork @@recall")
    assert story.then("fork").lost(fork.history) == ""
    assert words_in(cli.transcript(OTHER)) == ["a", "b", "c", "d", "fork"]
