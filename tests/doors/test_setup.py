"""`keeper setup`: shown first, done once, and taken back to the byte."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from keeper.cli import setup
from keeper.doors.hook import EVENTS
from tests.build import CWD, jsonl, session_id, talk, write_live
from tests.conftest import Ran
from tests.doors.test_hook import Keeper
from tests.doors.test_hooks import FULL
from tests.seam import state_of

S = session_id(1)
NO_SYSTEMD = {"PATH": "/nonexistent"}


@pytest.fixture
def settings_file(profile: Path) -> Path:
    place = profile / "settings.json"
    place.write_bytes(FULL.encode())
    return place


def run(run_keeper: Keeper, *words: str) -> Ran:
    """Without a systemd, whose user session is not the test's."""
    ran: Ran = run_keeper(*words, env=NO_SYSTEMD)
    return ran


def test_what_setup_has_put_in_place_undo_takes_away_to_the_byte(
    run_keeper: Keeper, settings_file: Path, home: Path
) -> None:
    before = settings_file.read_bytes()
    there = {str(place) for place in home.rglob("*")}
    done = run(run_keeper, "setup")
    assert done.code == 0, done.err
    assert [line.partition(":")[0] for line in done.text.splitlines()][:2] == ["hooks", "shim"]
    assert all(event in json.loads(settings_file.read_bytes().decode("utf-8-sig"))["hooks"] for event in EVENTS)
    undone = run(run_keeper, "setup", "--undo")
    assert undone.code == 0, undone.err
    assert [line.partition(":")[0] for line in undone.text.splitlines()][:2] == ["shim", "hooks"]
    assert settings_file.read_bytes() == before
    left = {str(place) for place in home.rglob("*") if place.is_file()} - there
    assert left == set()


def test_a_second_setup_and_a_second_undo_have_nothing_to_do(run_keeper: Keeper, settings_file: Path) -> None:
    for words in (("setup",), ("setup", "--undo")):
        assert run(run_keeper, *words).code == 0
        seen = settings_file.stat().st_ino, settings_file.read_bytes()
        again = run(run_keeper, *words)
        assert again.text.splitlines()[0] == "nothing to do: it is so already"
        assert (settings_file.stat().st_ino, settings_file.read_bytes()) == seen
        assert run(run_keeper, *words, "--json").json["steps"] == []


@pytest.mark.parametrize("words", [("setup",), ("setup", "--undo"), ("hooks", "install"), ("hooks", "remove")])
def test_a_dry_run_shows_the_same_and_does_nothing(
    words: tuple[str, ...], run_keeper: Keeper, settings_file: Path, home: Path
) -> None:
    if words[-1] in ("--undo", "remove"):
        run(run_keeper, "setup")
    before = state_of(home)
    shown = run(run_keeper, *words, "--dry-run")
    told = run(run_keeper, *words, "--dry-run", "--json").json["steps"]
    assert state_of(home) == before
    assert (shown.code, bool(told), {one["done"] for one in told}) == (0, True, {False})
    done = run(run_keeper, *words, "--json").json["steps"]
    assert [one["what"] for one in done] == [one["what"] for one in told]
    assert {one["done"] for one in done} == {True}


def test_what_it_will_do_is_shown_before_it_is_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from keeper.cli import parts

    said: list[str] = []
    part = parts.Part(
        "x", lambda _: [parts.Step("do x", lambda: said.append(capsys.readouterr().out) or ())], lambda _: []
    )
    assert parts.carry_out([part], False, False, False, False) == 0
    assert said == ["x: do x\n"]


@pytest.mark.parametrize(("yes", "answer", "code"), [(False, False, 130), (False, True, 0), (True, False, 0)])
def test_on_a_terminal_a_person_is_asked_first(
    yes: bool, answer: bool, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from keeper.cli import parts

    done: list[int] = []
    part = parts.Part("x", lambda _: [parts.Step("do x", lambda: done.append(1) or ())], lambda _: [])
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("click.confirm", lambda *_, **__: answer)
    assert parts.carry_out([part], False, False, yes, False) == code
    assert done == ([] if code else [1])


def test_every_profile_that_is_known_is_hooked(run_keeper: Keeper, profile: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    write_live(other, CWD, S, jsonl(*talk("ab")))
    assert run_keeper("keep", S, "--profile", other).code == 0
    assert run(run_keeper, "hooks", "install").code == 0
    told = run(run_keeper, "hooks", "status", "--json").json
    assert {(one["profile"], tuple(one["events"])) for one in told["profiles"]} == {
        (str(profile), EVENTS), (str(other), EVENTS),
    }  # fmt: skip
    assert run(run_keeper, "setup", "--undo").code == 0
    assert not (other / "settings.json").exists()
    assert not (profile / "settings.json").exists()


def test_undo_sees_every_profile_that_was_hooked_whatever_the_environment_names_by_then(
    run_keeper: Keeper, profile: Path, home: Path, tmp_path: Path, cli_env: dict[str, str]
) -> None:
    """And with neither a vault nor settings: what calls a keeper that is about to go must be found without."""
    other = tmp_path / "caf\u00e9\n"
    there = {place for place in home.rglob("*") if place.is_file()}
    for name in (other, profile):
        ran = run_keeper("setup", env={**NO_SYSTEMD, "CLAUDE_CONFIG_DIR": str(name)})
        assert ran.code == 0, ran.err
    Path(cli_env["KEEPER_CONFIG"]).parent.mkdir(parents=True, exist_ok=True)
    Path(cli_env["KEEPER_CONFIG"]).write_text("no toml [")
    undone = run_keeper("setup", "--undo", env={**NO_SYSTEMD, "KEEPER_HOME": "/etc/passwd/v"})
    assert undone.code == 0, undone.err
    assert "is no TOML" in undone.err
    assert not any((one / "settings.json").exists() for one in (profile, other))
    Path(cli_env["KEEPER_CONFIG"]).unlink()
    assert {place for place in home.rglob("*") if place.is_file()} == there


@pytest.mark.parametrize("rubbish", [b"\xff", b"{}", b"[1]", b"["])
def test_a_note_of_the_hooked_profiles_that_does_not_read_costs_nothing(
    rubbish: bytes, run_keeper: Keeper, profile: Path, home: Path
) -> None:
    place = home / ".local/state/keeper/hooked.json"
    place.parent.mkdir(parents=True)
    place.write_bytes(rubbish)
    for action in ("status", "install", "remove"):
        assert run(run_keeper, "hooks", action).code == 0


def test_a_profile_that_is_gone_is_not_made_anew_for_its_hooks(
    run_keeper: Keeper, profile: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    assert run_keeper("hooks", "install", env={**NO_SYSTEMD, "CLAUDE_CONFIG_DIR": str(other)}).code == 0
    (other / "settings.json").unlink()
    other.rmdir()
    assert run(run_keeper, "hooks", "install").code == 0
    assert not other.exists()


def test_a_profile_whose_settings_do_not_read_is_told_and_stops_no_other(
    run_keeper: Keeper, profile: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    write_live(other, CWD, S, jsonl(*talk("ab")))
    (other / "settings.json").write_text("{ not json")
    run_keeper("keep", S, "--profile", other)
    ran = run(run_keeper, "hooks", "install")
    assert ran.code == 3
    assert str(other / "settings.json") in ran.err
    assert "cure: mend it" in ran.err
    assert (other / "settings.json").read_text() == "{ not json"
    assert (profile / "settings.json").exists()
    status = run(run_keeper, "hooks", "status")
    assert (status.code, "is no JSON" in status.text, "installed" in status.text) == (0, True, True)


def test_one_profile_with_bad_settings_alone_ends_with_the_code_of_a_refusal(
    run_keeper: Keeper, settings_file: Path
) -> None:
    settings_file.write_text("[]")
    for words in ((), ("--dry-run",)):
        ran = run(run_keeper, "hooks", "install", *words)
        assert (ran.code, "it is no JSON object" in ran.text) == (8, True)
    assert settings_file.read_text() == "[]"


def test_two_profiles_with_one_settings_file_are_one_change(run_keeper: Keeper, profile: Path, tmp_path: Path) -> None:
    """As with dotfiles: the second must not be told that another has changed it."""
    other = tmp_path / "other"
    write_live(other, CWD, S, jsonl(*talk("ab")))
    assert run_keeper("keep", S, "--profile", other).code == 0
    (tmp_path / "dot.json").write_text(FULL)
    for one in (profile, other):
        (one / "settings.json").symlink_to(tmp_path / "dot.json")
    for words in (("setup",), ("setup", "--undo")):
        ran = run(run_keeper, *words, "--json")
        assert (ran.code, [one["part"] for one in ran.json["steps"]].count("hooks")) == (0, 1)
    assert (tmp_path / "dot.json").read_text() == FULL


def test_before_claude_has_run_the_settings_are_made_for_the_hooks(run_keeper: Keeper, profile: Path) -> None:
    (profile / "projects").rmdir()
    profile.rmdir()
    assert run(run_keeper, "hooks", "install").code == 0
    assert json.loads((profile / "settings.json").read_text())["hooks"].keys() == set(EVENTS)


def test_a_person_is_told_that_all_hooks_are_off(run_keeper: Keeper, settings_file: Path) -> None:
    settings_file.write_text('{"disableAllHooks": true}')
    for words in (("setup",), ("hooks", "status")):
        told = run(run_keeper, *words).text
        assert f"Claude Code calls none of your hooks: `disableAllHooks` in {settings_file} is true" in told


def test_without_systemd_a_person_is_told_what_to_do(run_keeper: Keeper, profile: Path) -> None:
    assert "no systemd here" in run(run_keeper, "setup", "--dry-run").text


@pytest.mark.accepts("AGENT-7")
def test_setup_does_not_say_that_an_agent_is_in_place_which_is_not(
    run_keeper: Keeper, profile: Path, tmp_path: Path
) -> None:
    """Without a user bus (su, ssh into a container) nothing is started, at the second run as at the first."""
    program = tmp_path / "systemctl"
    program.write_text("#!/bin/sh\necho 'Failed to connect to bus' >&2; exit 1\n")
    program.chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    for code in (3, 1):
        ran = run_keeper("setup", env=env)
        assert ran.code == code
        assert "service: " in ran.text and "the agent is not started" in ran.err
    program.write_text("#!/bin/sh\necho activating\n")
    assert run_keeper("setup", env=env).text.startswith("nothing to do")
    program.write_text("#!/bin/sh\necho deactivating\n")
    assert "start the agent" in run_keeper("setup", "--dry-run", env=env).text
    assert run_keeper("setup", "--undo", env=env).code == 0


def test_the_parts_are_those_that_stand_alone_too(run_keeper: Keeper) -> None:
    assert [part.name for part in setup.PARTS] == ["hooks", "shim", "service"]
    for part in setup.PARTS:
        ran = run(run_keeper, part.name, "status", "--json")
        assert ran.code == 0, ran.err


def test_the_program_is_called_by_the_name_that_outlives_an_update(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from keeper.cli import hooks

    real = tmp_path / "venv" / "keeper"
    real.parent.mkdir()
    real.write_text("#!/bin/sh\n")
    real.chmod(0o755)
    (tmp_path / "keeper").symlink_to(real)
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "keeper")])
    assert hooks.program() == str(tmp_path / "keeper")
    monkeypatch.setattr(sys, "argv", ["/x/keeper/__main__.py"])
    assert os.path.basename(hooks.program()) == "keeper"


def test_a_plugin_that_would_find_no_keeper_is_told(run_keeper: Keeper, tmp_path: Path) -> None:
    assert "would keep nothing" in run(run_keeper, "hooks", "status").text
    (tmp_path / "keeper").write_text("#!/bin/sh\n")
    (tmp_path / "keeper").chmod(0o755)
    assert "would keep nothing" not in run_keeper("hooks", "status", env={"PATH": str(tmp_path)}).text


def test_the_plugin_is_named(run_keeper: Keeper) -> None:
    told: Any = run(run_keeper, "hooks", "status", "--json").json
    assert (Path(told["plugin"]) / ".claude-plugin" / "plugin.json").is_file()
