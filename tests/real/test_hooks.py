"""Keeper's hooks in the real CLI: each turn is kept before the next, a clear is noted, nothing stops Claude."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from keeper.doors import hooks
from tests.conftest import Ran
from tests.lab import install, stories
from tests.lab.cli import Cli, age, records, sweep
from tests.lab.screen import Screen
from tests.lab.waiting import eventually, quiet
from tests.real.conftest import OTHER, SESSION

ROOT = Path(__file__).resolve().parents[2]
Keeper = Callable[..., Ran]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The `keeper` that the hooks call."""
    place = tmp_path / "keeper"
    place.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m keeper "$@"\n')
    place.chmod(0o755)
    return place


@pytest.fixture
def hooked(cli: Cli, run_keeper: Keeper, program: Path, vault_home: Path) -> Cli:
    """The CLI with keeper's hooks in its user's settings, and somebody's own."""
    cli.set(model="opus", hooks={"Stop": [{"hooks": [{"type": "command", "command": "touch $HOME/theirs"}]}]})
    ran = run_keeper("hooks", "install")
    assert ran.code == 0, ran.err
    assert str(program) in (cli.profile / "settings.json").read_text()
    return cli.with_env(KEEPER_HOME=str(vault_home))


def log_of(cli: Cli) -> str:
    log = cli.home / ".local/state/keeper/hook.log"
    return log.read_text() if log.exists() else ""


@pytest.mark.accepts("KEEP-2", "KEEP-13", "FAULT-7")
def test_a_turn_is_kept_and_sealed_before_the_process_ends_and_comes_back_after_a_sweep(
    hooked: Cli, run_keeper: Keeper, vault_home: Path
) -> None:
    hooked.say("WORD=one @@say heard", "--session-id", SESSION)
    live, kept = hooked.transcript(SESSION), vault_home / "chats" / SESSION / f"{SESSION}.jsonl"
    assert kept.samefile(live)
    assert (kept.parent / "seal" / f"{SESSION}.jsonl.seal").exists()
    assert [one["profile"] for one in run_keeper("list", "--json").json["chats"]] == [str(hooked.profile)]
    assert log_of(hooked) == ""
    assert (hooked.home / "theirs").exists(), "somebody's own hook was not called"
    before = quiet(live).read_bytes()
    live.unlink()
    assert run_keeper("restore", SESSION).code == 0
    assert live.read_bytes() == before
    assert hooked.resume(SESSION).history.words == ("one",)
    assert hooked.transcript(SESSION).samefile(kept)


@pytest.mark.accepts("KEEP-2")
def test_the_turn_end_hook_is_waited_for(hooked: Cli, program: Path, vault_home: Path) -> None:
    """The next turn does not begin before what the turn before wrote is kept."""
    slow = program.read_text().replace("exec", "sleep 1; exec")
    kept = vault_home / "chats" / SESSION / f"{SESSION}.jsonl"
    program.write_text(slow)
    with hooked.talk("--session-id", SESSION) as talk:
        talk.turn("WORD=one @@say heard one")
        talk.turn("WORD=two @@say heard two")
        assert b"heard one" in kept.read_bytes()
    assert b"heard two" in kept.read_bytes()


def test_a_clear_on_a_terminal_is_told_in_the_new_chat(
    hooked: Cli, run_keeper: Keeper, vault_home: Path, terminal: None
) -> None:
    with Screen(hooked, "--session-id", SESSION) as screen:
        screen.wait("❯")
        screen.type("WORD=before @@say heard before")
        screen.wait("● heard before")
        screen.type("/clear")
        eventually("the clear", lambda: "heard before" not in screen.seen())
        screen.type("WORD=after @@say heard after")
        screen.wait("● heard after")
        screen.leave()
    told = {one["session"]: one for one in run_keeper("list", "--json").json["chats"]}
    (new,) = set(told) - {SESSION}
    assert told[new]["cleared_from"] == SESSION
    assert told[SESSION]["cleared_from"] is None
    assert not list((hooked.home / ".local/state/keeper/rotations").iterdir())
    assert log_of(hooked) == ""
    shown = run_keeper("show", new, "--json").json["chats"][0]["conversation"]
    assert any("WORD=after" in record["text"] for record in shown)


@pytest.mark.parametrize("version", [install.THROW_AWAY_IDS])
@pytest.mark.accepts("FIT-4", "KEEP-2")
def test_a_start_that_tells_a_throw_away_id_makes_no_chat_and_no_rotation(
    hooked: Cli, run_keeper: Keeper, vault_home: Path
) -> None:
    hooked.say("WORD=one @@say heard one", "--session-id", SESSION)
    seen = hooked.home / "seen"
    text = json.loads((hooked.profile / "settings.json").read_text())
    text["hooks"]["SessionStart"][0]["hooks"].append({"type": "command", "command": f"cat > {seen}"})
    (hooked.profile / "settings.json").write_text(json.dumps(text))
    again = hooked.resume(SESSION, prompt="WORD=two @@recall")
    assert again.history.words == ("one", "two")
    told = json.loads(seen.read_text())
    assert told["session_id"] != SESSION, "this CLI tells the right id"
    later = Path(told["transcript_path"])
    assert {record["type"] for record in records(later)} <= {"summary"} if later.exists() else True
    assert [chat.name for chat in (vault_home / "chats").iterdir()] == [SESSION]
    assert run_keeper("show", SESSION, "--json").json["chats"][0]["cleared_from"] is None
    assert not (hooked.home / ".local/state/keeper/rotations").exists()
    assert log_of(hooked) == ""


def no_vault(vault: Path) -> None:
    shutil.rmtree(vault)
    vault.write_text("a file in the vault's place")


def no_version(vault: Path) -> None:
    (vault / "VERSION").write_text("99\n")


@pytest.mark.parametrize("damage", [no_vault, no_version])
@pytest.mark.accepts("RESTORE-13", "FAULT-7")
def test_with_a_vault_that_cannot_be_used_claude_goes_on_as_without_keeper(
    hooked: Cli, vault_home: Path, damage: Callable[[Path], None]
) -> None:
    hooked.say("WORD=one @@say heard", "--session-id", SESSION)
    damage(vault_home)
    again = hooked.resume(SESSION, prompt="WORD=two @@recall")
    assert (again.code, again.err) == (0, "")
    assert again.history.words == ("one", "two")
    assert "keeper:" not in again.history.text
    lines = log_of(hooked).splitlines()
    assert lines and all(SESSION in line and str(vault_home) in line for line in lines)


@pytest.mark.accepts("RESTORE-13", "FAULT-7")
def test_with_keeper_gone_claude_goes_on_as_without_it(hooked: Cli, program: Path) -> None:
    program.unlink()
    done = hooked.say("WORD=one @@recall", "--session-id", SESSION)
    assert (done.code, done.err) == (0, "")
    assert done.history.words == ("one",)
    assert "keeper hook" not in done.history.text
    told = [record for record in records(hooked.transcript(SESSION)) if "hook" in str(record.get("subtype", ""))]
    assert not any("not found" in str(record) for record in told)


def test_after_hooks_remove_only_somebodys_own_are_called(hooked: Cli, run_keeper: Keeper, vault_home: Path) -> None:
    assert run_keeper("hooks", "remove").code == 0
    hooked.say("WORD=one @@say heard", "--session-id", SESSION)
    assert (hooked.home / "theirs").exists()
    assert not (vault_home / "chats").exists()


@pytest.mark.accepts("KEEP-2")
def test_the_plugin_keeps_as_the_settings_do(cli: Cli, program: Path, vault_home: Path) -> None:
    path = f"{program.parent}:/usr/local/bin:/usr/bin:/bin"
    with_keeper = cli.with_env(KEEPER_HOME=str(vault_home), PATH=path)
    with_keeper.say("WORD=one @@say heard", "--session-id", SESSION, "--plugin-dir", str(hooks.PLUGIN))
    assert (vault_home / "chats" / SESSION / f"{SESSION}.jsonl").samefile(cli.transcript(SESSION))
    without = with_keeper.with_env(PATH="/usr/local/bin:/usr/bin:/bin")
    done = without.say("WORD=two @@recall", "--session-id", OTHER, "--plugin-dir", str(hooks.PLUGIN))
    assert (done.code, done.err, done.history.words) == (0, "", ("two",))
    assert not (vault_home / "chats" / OTHER).exists()


@pytest.mark.parametrize("version", [install.NEWEST])
@pytest.mark.accepts("KEEP-2", "FAULT-7")
def test_what_the_hooks_have_kept_survives_the_clis_own_sweep(
    hooked: Cli, run_keeper: Keeper, vault_home: Path
) -> None:
    story = stories.with_tools(hooked, SESSION)
    live: Any = quiet(hooked.transcript(SESSION))
    age(live)
    sweep(hooked, [live])
    assert run_keeper("restore", SESSION).code == 0
    assert story.lost(hooked.resume(SESSION).history) == ""
