"""The control: what the CLI by itself makes of a conversation that was deleted, with no keeper about.

(The sweep's own control, `No conversation found`, stands where the sweep is, in test_swept.py.)
"""

import pytest

from tests.lab import stories
from tests.lab.cli import Cli, age
from tests.lab.waiting import quiet
from tests.real.conftest import OTHER, SESSION

pytestmark = pytest.mark.accepts("FAULT-7")


def recreated(cli: Cli) -> None:
    """Two turns, the transcript deleted under the process, two more turns."""
    with cli.talk("--session-id", SESSION) as talk:
        talk.turn("WORD=a @@say a")
        talk.turn("WORD=b @@say b")
        quiet(cli.transcript(SESSION)).unlink()
        talk.turn("WORD=c @@say c")
        talk.turn("WORD=d @@say d")
        quiet(cli.transcript(SESSION))


def test_a_recreated_transcript_resumes_with_its_tail_alone_and_no_word_of_it(cli: Cli) -> None:
    recreated(cli)
    again = cli.resume(SESSION)
    assert (again.code, again.history.words) == (0, ("c", "d"))


def test_a_fork_of_a_recreated_transcript_has_the_tail_alone(cli: Cli) -> None:
    recreated(cli)
    assert cli.resume(SESSION, "--fork-session").history.words == ("c", "d")


def test_a_deleted_conversation_starts_empty_under_its_old_id(cli: Cli) -> None:
    stories.plain(cli, SESSION, "a", "b")
    cli.transcript(SESSION).unlink()
    assert "No conversation found" in cli.resume(SESSION).err
    assert cli.say("@@recall", "--session-id", SESSION).history.words == ()


def test_continue_takes_what_was_touched_last_whatever_was_said_last(cli: Cli) -> None:
    stories.plain(cli, SESSION, "older")
    stories.plain(cli, OTHER, "newer")
    assert cli.say("@@recall", "--continue").history.words == ("newer",)
    age(cli.transcript(OTHER), days=1)
    assert cli.say("@@recall", "--continue").history.words == ("older",)
