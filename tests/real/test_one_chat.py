"""What is one chat and what is two: /clear, a worktree, the CLI's own trimming."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Ran
from tests.lab import footprint, install, stories
from tests.lab.cli import Cli
from tests.lab.waiting import eventually, quiet
from tests.real.conftest import SESSION

Keeper = Callable[..., Ran]
GC_LIMIT_BYTES = 5 << 20
only_newest = pytest.mark.parametrize("version", [install.NEWEST])


@pytest.mark.accepts("FAULT-7")
def test_a_clear_in_one_process_makes_two_chats_and_both_come_back(
    cli: Cli, run_keeper: Keeper, vault_home: Path
) -> None:
    with cli.talk("--session-id", SESSION) as talk:
        talk.turn("WORD=before1 @@say one")
        talk.turn("WORD=before2 @@say two")
        talk.turn("/clear")
        cleared = talk.turn("WORD=after @@recall")
        assert cleared.session != SESSION
        assert cleared.history.words == ("after",)
        quiet(cli.transcript(cleared.session))

    assert run_keeper("keep").code == 0
    assert {chat.name for chat in (vault_home / "chats").iterdir()} == {SESSION, cleared.session}

    told = {SESSION: stories.Story(("before1", "before2")), cleared.session: stories.Story(("after",))}
    for session, story in told.items():
        footprint.delete(cli, session)
        assert run_keeper("restore", session).code == 0
        assert story.lost(cli.resume(session).history) == ""


@only_newest
@pytest.mark.accepts("FAULT-7", "KEEP-19", "RESTORE-10")
def test_a_conversation_that_moves_to_a_worktree_and_back_is_one_chat_throughout(
    cli: Cli, run_keeper: Keeper, vault_home: Path
) -> None:
    git = ("git", "-c", "user.name=t", "-c", "user.email=t@example.invalid", "-C", str(cli.cwd))
    subprocess.run(["git", "init", "-q", str(cli.cwd)], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    kept = vault_home / "chats" / SESSION / f"{SESSION}.jsonl"

    def keep_finds_one_chat() -> Path:
        assert run_keeper("keep").code == 0
        assert [chat.name for chat in (vault_home / "chats").iterdir()] == [SESSION]
        (place,) = cli.places(SESSION)
        assert kept.samefile(place)
        return place

    with cli.talk("--session-id", SESSION) as talk:
        talk.turn("WORD=home @@say one")
        quiet(cli.transcript(SESSION))
        at_home = keep_finds_one_chat()

        talk.turn('WORD=away\n@@tool EnterWorktree {"name":"wt1"}\n@@say two')
        quiet(cli.places(SESSION)[0])
        assert cli.places(SESSION) != [at_home], "not moved"
        assert run_keeper("restore", SESSION).code == 0
        away = keep_finds_one_chat()

        footprint.delete(cli, SESSION)
        restored = run_keeper("restore", SESSION, "--json")
        assert restored.code == 0, restored.err
        assert Path(restored.json["live"]) == away
        assert cli.places(SESSION) == [away], "put back where it no longer lives"

        talk.turn('WORD=back\n@@tool ExitWorktree {"action":"keep"}\n@@say three')
        quiet(cli.places(SESSION)[0])
        assert keep_finds_one_chat() == at_home
    assert stories.Story(("home", "away", "back")).lost(cli.resume(SESSION).history) == ""


@only_newest
@pytest.mark.accepts("FAULT-7", "KEEP-4")
def test_what_the_cli_trims_by_itself_stays_kept_and_its_live_file_is_left_as_it_is(
    cli: Cli, run_keeper: Keeper, vault_home: Path
) -> None:
    live, kept = cli.transcript(SESSION), vault_home / "chats" / SESSION / f"{SESSION}.jsonl"
    trimming = cli.with_env(CLAUDE_CODE_TRANSCRIPT_LOCAL_GC="1")
    with trimming.talk("--session-id", SESSION) as talk:
        talk.turn("WORD=first @@say one")
        while quiet(live, 0.2).stat().st_size <= GC_LIMIT_BYTES:
            talk.turn("WORD=more @@fill 2000000")
        assert run_keeper("keep").code == 0
        whole, inode = kept.read_bytes(), live.stat().st_ino

        talk.turn("/compact")
        eventually("the CLI's own trimming", lambda: live.stat().st_ino != inode)
        talk.turn("WORD=after @@say two")
        quiet(live)
    trimmed = live.read_bytes()
    assert len(trimmed) < len(whole)

    assert run_keeper("keep").code == 0
    assert kept.read_bytes().startswith(whole)
    assert b"WORD=after" in kept.read_bytes()
    assert live.read_bytes() == trimmed

    restored = run_keeper("restore", SESSION, "--json")
    assert restored.code == 0, restored.err
    assert restored.json["verdict"] == "trimmed"
    assert live.read_bytes() == trimmed
    assert cli.resume(SESSION).history.words == ("after",)
