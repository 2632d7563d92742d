"""`keeper resume`: the same by hand, by id, by name, from a list; and what it says where nothing is left."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from keeper.doors.resume import age, prompts
from keeper.transcripts.chat import told, written
from tests import chat
from tests.build import dated, jsonl, meta, prompt, session_id, talk, write_live
from tests.conftest import Ran
from tests.doors.stage import CODE, Stage, build
from tests.terminal import Terminal

ONE, TWO, THREE, NEVER = session_id(1), session_id(2), session_id(3), session_id(9)
Keeper = Callable[..., Ran]


@pytest.fixture
def stage(run_keeper: Keeper, cli_env: dict[str, str], home: Path, profile: Path, tmp_path: Path) -> Stage:
    return build(run_keeper, cli_env, home, tmp_path)


@pytest.fixture
def by_hand(stage: Stage, run_keeper: Keeper) -> Keeper:
    """`keeper resume …` in the stage's directory and environment."""

    def run(*words: str, cwd: Path | None = None, **env: str | None) -> Ran:
        merged = {"PATH": stage.env["PATH"], "CLAUDE_CONFIG_DIR": None, **env}
        return run_keeper("resume", *words, cwd=cwd or stage.work, env=merged)

    return run


def write(stage: Stage, session: str, title: str, days: float, cwd: Path | None = None) -> Path:
    """A conversation of the stage's directory, last written so many days ago."""
    place = str(cwd or stage.work)
    records = [
        *dated(days, *talk("abcd", session, cwd=place)),
        meta("custom-title", customTitle=title, sessionId=session),
    ]
    live = write_live(stage.home / ".claude", place, session, jsonl(*records))
    os.utime(live, (then := time.time() - days * chat.DAY_S, then))
    return live


@pytest.fixture
def swept(stage: Stage, run_keeper: Keeper, profile: Path) -> dict[str, bytes]:
    """Two conversations of the directory and one of another, kept and swept."""
    write(stage, ONE, "the parser", 40)
    write(stage, TWO, "the printer", 50)
    write(stage, THREE, "elsewhere", 45, cwd=stage.home)
    assert run_keeper("keep").code == 0
    before = chat.files(profile)
    chat.sweep(profile)
    return before


@pytest.mark.accepts("RESTORE-7", "RESTORE-10", "RESTORE-11")
def test_claude_is_started_on_a_session_from_its_directory_and_it_alone_is_put_back(
    stage: Stage, swept: dict[str, bytes], by_hand: Keeper, tmp_path: Path
) -> None:
    ran = by_hand(ONE, "--", "--fork-session", "-p", "two words", cwd=tmp_path)
    assert (ran.code, ran.text) == (CODE, "started\n")
    assert stage.argv() == ["--resume", ONE, "--fork-session", "-p", "two words"]
    assert (stage.told / "cwd").read_text().strip() == str(stage.work)
    assert stage.live() == [ONE]
    assert "CLAUDE_CONFIG_DIR" not in stage.environ()


@pytest.mark.accepts("RESTORE-7", "RESTORE-10", "KEEP-13")
def test_a_conversation_of_another_profile_is_resumed_with_that_profile(
    stage: Stage, by_hand: Keeper, run_keeper: Keeper, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    live = chat.write_whole(other, ONE, cwd=str(stage.work))
    assert run_keeper("keep", "--profile", other).code == 0
    before = chat.files(other)
    chat.sweep(other)
    ran = by_hand(ONE)
    assert ran.code == 4
    assert str(other) in ran.err
    assert by_hand(ONE, "--profile", str(other)).code == CODE
    assert stage.environ()["CLAUDE_CONFIG_DIR"] == str(other)
    assert live.exists()
    assert before.items() <= chat.files(other).items()


@pytest.mark.parametrize("name", [".claude", "link", ""])
@pytest.mark.accepts("RESTORE-7")
def test_a_profile_that_the_person_has_named_is_named_to_claude_as_they_named_it(
    stage: Stage, swept: dict[str, bytes], by_hand: Keeper, name: str
) -> None:
    """Claude has its login and its settings elsewhere where its default profile is named."""
    (stage.home / "link").symlink_to(".claude")
    named = str(stage.home / name) if name else ""
    assert by_hand(ONE, CLAUDE_CONFIG_DIR=named).code == CODE
    assert stage.environ()["CLAUDE_CONFIG_DIR"] == named
    assert stage.live() == [ONE]


@pytest.mark.accepts("RESTORE-7")
def test_the_default_profile_is_not_named_to_claude_where_another_was(
    stage: Stage, swept: dict[str, bytes], by_hand: Keeper, tmp_path: Path
) -> None:
    ran = by_hand(ONE, "--profile", str(stage.home / ".claude"), CLAUDE_CONFIG_DIR=str(tmp_path / "other"))
    assert (ran.code, "CLAUDE_CONFIG_DIR" in stage.environ()) == (CODE, False)


def test_a_claude_that_is_found_from_here_is_started_from_the_conversations_directory(
    stage: Stage, swept: dict[str, bytes], by_hand: Keeper
) -> None:
    for path in (":/usr/bin:/bin", "bin:/usr/bin:/bin"):
        cwd = stage.home / ".local" / ("bin" if path.startswith(":") else "")
        ran = by_hand(ONE, cwd=cwd, PATH=path)
        assert (ran.code, stage.argv()) == (CODE, ["--resume", ONE]), ran.err
        assert (stage.told / "cwd").read_text().strip() == str(stage.work)


@pytest.mark.parametrize("name", ["the parser", "The Parser", ONE[:8], ONE])
def test_a_conversation_is_named_by_its_title_its_beginning_or_its_id(
    stage: Stage, swept: dict[str, bytes], by_hand: Keeper, name: str
) -> None:
    told = by_hand(name, "--json")
    assert told.code == 0, told.err
    assert told.json["argv"][1:] == ["--resume", ONE]
    assert (
        Path(told.json["live"]).read_bytes() == swept[str(Path(told.json["live"]).relative_to(stage.home / ".claude"))]
    )
    assert not stage.started()


def test_a_hosts_name_for_the_chat_names_it(stage: Stage, by_hand: Keeper, run_keeper: Keeper) -> None:
    write(stage, ONE, "the parser", 1)
    assert run_keeper("keep", ONE, "--chat", "ticket-12").code == 0
    assert by_hand("ticket-12", "--json").json["session"] == ONE


def test_a_title_of_several_is_no_name_but_that_of_this_directory_goes_first(
    stage: Stage, by_hand: Keeper, run_keeper: Keeper
) -> None:
    write(stage, ONE, "same", 1)
    write(stage, THREE, "same", 1, cwd=stage.home)
    assert by_hand("same", "--json").json["session"] == ONE
    write(stage, TWO, "same", 1)
    ran = by_hand("same")
    assert ran.code == 2
    assert ONE in ran.err
    assert TWO in ran.err
    assert not stage.started()


@pytest.mark.parametrize("name", ["no such title", "../../x", "0000", ""])
def test_an_unknown_name_starts_nothing(stage: Stage, swept: dict[str, bytes], by_hand: Keeper, name: str) -> None:
    ran = by_hand(name)
    assert ran.code in (2, 4)
    assert not stage.started()
    assert chat.files(stage.home / ".claude") == {}


@pytest.mark.accepts("RESTORE-11")
def test_without_a_terminal_the_list_is_printed_and_nothing_is_put_back(
    stage: Stage, swept: dict[str, bytes], by_hand: Keeper
) -> None:
    ran = by_hand()
    assert ran.code == 2
    first, second = ran.text.splitlines()
    assert first.split() == ["1", "40", "d", "swept", ONE[:8], "the", "parser"]
    assert second.split() == ["2", "50", "d", "swept", TWO[:8], "the", "printer"]
    told = by_hand("--json")
    assert (told.code, [one["session"] for one in told.json["chats"]]) == (2, [ONE, TWO])
    assert chat.files(stage.home / ".claude") == {}


@pytest.mark.accepts("RESTORE-7", "RESTORE-11")
def test_on_a_terminal_the_one_that_is_chosen_is_put_back_and_started(stage: Stage, swept: dict[str, bytes]) -> None:
    with Terminal([sys.executable, "-m", "keeper", "resume"], stage.env, stage.work) as terminal:
        terminal.wait("Which one")
        terminal.type("7\n")
        terminal.wait("from 1 to 2")
        terminal.type("2\n")
        assert terminal.ended() == CODE
    assert (stage.argv(), stage.live()) == (["--resume", TWO], [TWO])


@pytest.mark.parametrize(("key", "code"), [("Enter", 2), ("Ctrl-C", 130)])
def test_on_a_terminal_one_may_choose_none(stage: Stage, swept: dict[str, bytes], key: str, code: int) -> None:
    with Terminal([sys.executable, "-m", "keeper", "resume"], stage.env, stage.work) as terminal:
        terminal.wait("Which one")
        assert press(terminal, key) == code
    assert not stage.started()


def press(terminal: Terminal, key: str) -> int:
    if key == "Ctrl-C":
        return terminal.interrupt()
    terminal.type("\n")
    return terminal.ended()


@pytest.mark.accepts("RESTORE-7", "RESTORE-11")
def test_bare_resume_by_the_shim_asks_where_something_was_swept(stage: Stage, swept: dict[str, bytes]) -> None:
    with Terminal(["claude", "--verbose", "-r", "--model", "x y"], stage.env, stage.work) as terminal:
        terminal.wait("Which one")
        terminal.type("2\n")
        assert terminal.ended() == CODE
    assert stage.argv() == ["--verbose", "-r", TWO, "--model", "x y"]
    assert stage.live() == [TWO]


@pytest.mark.parametrize("key", ["Enter", "Ctrl-C"])
def test_bare_resume_by_the_shim_leaves_claudes_own_list_to_who_chooses_none(
    stage: Stage, swept: dict[str, bytes], key: str
) -> None:
    with Terminal(["claude", "-r", "--verbose"], stage.env, stage.work) as terminal:
        terminal.wait("Which one")
        assert press(terminal, key) == CODE
    assert (stage.argv(), stage.live()) == (["-r", "--verbose"], [])


def test_bare_resume_by_the_shim_asks_nothing_where_claudes_own_list_has_all(stage: Stage, run_keeper: Keeper) -> None:
    write(stage, ONE, "the parser", 1)
    with Terminal(["claude", "-r"], stage.env, stage.work) as terminal:
        assert terminal.ended() == CODE
        assert "Which" not in terminal.seen
    assert stage.argv() == ["-r"]


@pytest.mark.accepts("RESTORE-7")
def test_a_title_by_the_shim_puts_back_the_swept_one_that_has_it(stage: Stage, swept: dict[str, bytes]) -> None:
    for title, live in (("the scanner", []), ("elsewhere", []), ("the parser", [ONE])):
        ran = stage.claude("--resume", title)
        assert (ran.err, stage.argv(), stage.live()) == ("", ["--resume", title], live)


def test_a_title_by_the_shim_that_several_have_is_claudes_to_tell_apart(stage: Stage, run_keeper: Keeper) -> None:
    write(stage, ONE, "same", 40)
    write(stage, TWO, "same", 50)
    assert run_keeper("keep").code == 0
    chat.sweep(stage.home / ".claude")
    stage.claude("--resume", "same")
    assert stage.live() == []


@pytest.mark.accepts("RESTORE-8")
def test_a_conversation_without_a_prompt_is_started_fresh_and_said_so(
    stage: Stage, by_hand: Keeper, run_keeper: Keeper, profile: Path
) -> None:
    side = prompt("a", None, session=ONE, cwd=str(stage.work), isSidechain=True)
    write_live(profile, str(stage.work), ONE, jsonl(side, meta("mode", mode="normal", sessionId=ONE)))
    assert run_keeper("keep").code == 0
    ran = by_hand(ONE, "--", "hello")
    assert (ran.code, stage.argv()) == (CODE, ["hello"])
    assert "no prompt" in ran.err


@pytest.mark.accepts("RESTORE-9")
def test_what_was_never_kept_and_is_gone_is_gone_and_its_prompts_are_offered(
    stage: Stage, swept: dict[str, bytes], by_hand: Keeper, profile: Path
) -> None:
    entries: list[dict[str, object]] = [
        {"display": "look at\nthe parser", "project": "/w", "sessionId": NEVER},
        {"display": f"how came {NEVER} about", "project": "/w", "sessionId": ONE},
        {"display": "older, without a session", "project": "/w"},
        {"display": "bell \a it", "project": "/w", "sessionId": NEVER},
    ]
    lines = [json.dumps(entry) for entry in entries]
    (profile / "history.jsonl").write_text("\n".join([*lines, "torn " + NEVER, json.dumps([NEVER])]) + "\n")
    before = chat.everything(profile)
    ran = by_hand(NEVER)
    assert ran.code == 4
    assert "2 of its prompts" in ran.err
    assert "the parser" not in ran.err
    assert not stage.started()
    said = by_hand(NEVER, "--prompts")
    assert (said.code, said.text) == (0, "look at\nthe parser\nbell \ufffd it\n")
    assert by_hand(NEVER, "--prompts", "--json").json["prompts"] == ["look at\nthe parser", "bell \ufffd it"]
    assert chat.everything(profile) == before
    (profile / "history.jsonl").unlink()
    assert "history" not in by_hand(NEVER).err
    assert prompts(profile, NEVER) == []


def test_what_was_forgotten_is_said_to_be_forgotten(
    stage: Stage, swept: dict[str, bytes], by_hand: Keeper, run_keeper: Keeper
) -> None:
    assert run_keeper("forget", ONE).code == 0
    ran = by_hand(ONE)
    assert ran.code == 4
    assert "forgotten" in ran.err


def test_a_forgotten_conversation_that_lives_is_claudes_alone(
    stage: Stage, by_hand: Keeper, run_keeper: Keeper, vault_home: Path
) -> None:
    write(stage, ONE, "the parser", 1)
    assert run_keeper("keep").code == 0
    assert run_keeper("forget", ONE).code == 0
    ran = stage.claude("-r", ONE)
    assert (ran.code, ran.err) == (CODE, "")
    assert not (vault_home / "chats" / ONE).exists()


def test_the_one_that_was_cleared_for_it(
    stage: Stage, swept: dict[str, bytes], by_hand: Keeper, vault_home: Path
) -> None:
    assert by_hand(ONE, "--previous").code == 4
    file = vault_home / "chats" / ONE / "chat.json"
    facts = told(ONE, file.read_bytes())
    assert facts is not None
    file.write_bytes(written(facts.with_session(ONE, replace(facts.sessions[ONE], cleared_from=TWO))))
    assert by_hand("--previous", "--json").json["session"] == TWO  # ONE is the newest of the directory
    assert by_hand(ONE, "--previous", "--json").json["session"] == TWO
    ran = by_hand("--previous", cwd=stage.told)
    assert (ran.code, ran.text) == (4, "")


def test_without_a_claude_it_is_put_back_and_the_lack_is_said(
    stage: Stage, swept: dict[str, bytes], by_hand: Keeper
) -> None:
    shutil.rmtree(stage.home / ".local" / "bin")
    ran = by_hand(ONE, PATH="/usr/bin:/bin")
    assert ran.code == 1
    assert "no claude" in ran.err
    assert len(chat.files(stage.home / ".claude")) == 1


@pytest.mark.parametrize(
    ("seconds", "word"), [(-5, "now"), (59, "now"), (60, "1 m"), (3599, "59 m"), (7200, "2 h"), (86400 * 40, "40 d")]
)
def test_how_long_ago(seconds: int, word: str) -> None:
    assert age("2026-01-01T00:00:00+00:00", 1767225600 + seconds) == word


@pytest.mark.accepts("POLICY-3", "RESTORE-2", "RESTORE-9")
def test_what_a_bound_keeps_out_of_the_vault_is_resumed_like_any_other_and_never_said_to_be_unkept(
    stage: Stage, by_hand: Keeper, run_keeper: Keeper, cli_env: dict[str, str]
) -> None:
    live = write(stage, ONE, "the parser", 40)
    assert run_keeper("keep").code == 0
    late = live.read_bytes().replace(b"2026-", b"2016-").replace(b"2025-", b"2015-")
    live.write_bytes(late)  # in place: the kept file is the same
    os.utime(live, (then := time.time() - 40 * chat.DAY_S, then))
    chat.put(Path(cli_env["KEEPER_CONFIG"]), b'keep_for = "30d"\n')
    assert run_keeper("prune", "--apply", "--sole-copies").code == 0
    assert run_keeper("keep", ONE).code == 0
    assert run_keeper("list", "--json").json["chats"] == []
    for name in (ONE, ONE[:8]):
        os.utime(live, (then, then))
        assert by_hand(name).code == CODE
        assert time.time() - os.stat(live).st_mtime < 60, "a sweep as it starts would take it"
        assert run_keeper("prune", "--apply", "--sole-copies").code == 0
    live.unlink()
    ran = by_hand(ONE)
    assert ran.code == 4
    assert "never kept" not in ran.err
    assert "by the plan keep_for" in ran.err
