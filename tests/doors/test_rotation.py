"""A `/clear` gives a process a new session: the new chat is told which one it came from, once it has a file."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from keeper.doors import hook, rotation
from tests.agent.running import running
from tests.build import CWD, append, jsonl, session_id, talk, write_live
from tests.conftest import Ran
from tests.doors.test_hook import Keeper, is_silent, log_of, payload

S, T, U = session_id(1), session_id(2), session_id(3)
CLAUDE = """
import subprocess, sys
for line in sys.stdin:
    done = subprocess.run(["sh", "-c", '"$PY" -m keeper hook || exit 0'], input=line.encode(), capture_output=True)
    print(done.returncode, len(done.stdout + done.stderr), flush=True)
"""
"""Calls the hooks as Claude does: one shell a payload, in a process that its command line tells for Claude's."""


class Claude:
    """A process that calls keeper's hook with what it is told."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        program = folder / "claude-code" / "cli.py"
        program.parent.mkdir(exist_ok=True)
        program.write_text(CLAUDE)
        self.process = subprocess.Popen(
            [sys.executable, str(program)], env={**environ, "PY": sys.executable}, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )  # fmt: skip

    def calls(self, data: bytes) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(data + b"\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == b"0 0\n"

    def end(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()


@pytest.fixture
def claude(tmp_path: Path, cli_env: dict[str, str]) -> Iterator[Claude]:
    one = Claude(tmp_path, cli_env)
    yield one
    one.end()


def cleared_from(run_keeper: Keeper, session: str) -> str | None:
    ran: Ran = run_keeper("show", session, "--json")
    found: str | None = ran.json["chats"][0]["cleared_from"]
    return found


def notes(home: Path) -> list[Path]:
    folder = home / ".local/state/keeper/rotations"
    return sorted(folder.iterdir()) if folder.exists() else []


def live_of(profile: Path, session: str) -> Path:
    return profile / "projects" / "-srv-demo-proj" / f"{session}.jsonl"


def test_the_new_chat_is_told_where_it_came_from_once_it_has_a_file(
    claude: Claude, run_keeper: Keeper, profile: Path, home: Path, vault_home: Path
) -> None:
    old = write_live(profile, CWD, S, jsonl(*talk("ab", S)))
    claude.calls(payload("SessionEnd", old, reason="clear"))
    claude.calls(payload("SessionStart", live_of(profile, T), source="clear"))
    assert [chat.name for chat in (vault_home / "chats").iterdir()] == [S]
    assert [note.name for note in notes(home)] == [T]
    new = write_live(profile, CWD, T, jsonl(*talk("xy", T)))
    claude.calls(payload("Stop", new))
    assert cleared_from(run_keeper, T) == S
    assert cleared_from(run_keeper, S) is None
    assert notes(home) == []
    assert log_of(home) == ""
    append(new, jsonl(*talk("z", T, parent="y")))
    claude.calls(payload("Stop", new))
    assert run_keeper("keep").code == 0
    assert cleared_from(run_keeper, T) == S
    assert f"cleared   {S}" in run_keeper("show", T).text


@pytest.mark.alone
def test_by_a_running_agent_the_new_chat_is_told_as_well(
    claude: Claude, run_keeper: Keeper, profile: Path, home: Path, cli_env: dict[str, str]
) -> None:
    old = write_live(profile, CWD, S, jsonl(*talk("ab", S)))
    with running(cli_env) as agent:
        claude.calls(payload("SessionEnd", old, reason="clear"))
        claude.calls(payload("SessionStart", live_of(profile, T), source="clear"))
        new = write_live(profile, CWD, T, jsonl(*talk("xy", T)))
        claude.calls(payload("Stop", new))
        assert agent.keeps(T, new)
        assert cleared_from(run_keeper, T) == S
        append(new, jsonl(*talk("z", T, parent="y")))
        claude.calls(payload("Stop", new))
    assert cleared_from(run_keeper, T) == S
    assert log_of(home) == ""
    assert notes(home) == []


def test_a_second_clear_goes_on_from_the_first(claude: Claude, run_keeper: Keeper, profile: Path) -> None:
    lives = [write_live(profile, CWD, one, jsonl(*talk("ab", one))) for one in (S, T, U)]
    for old, new in pairwise(lives):
        claude.calls(payload("SessionEnd", old, reason="clear"))
        claude.calls(payload("SessionStart", new, source="clear"))
    assert [cleared_from(run_keeper, one) for one in (S, T, U)] == [None, S, T]


@pytest.mark.accepts("FIT-4")
@pytest.mark.parametrize("source", ["startup", "resume", "compact", "fork"])
def test_only_a_clear_is_a_rotation(source: str, claude: Claude, run_keeper: Keeper, profile: Path, home: Path) -> None:
    """1.0.124 and 2.0.14 tell a throw-away id when they resume."""
    old = write_live(profile, CWD, S, jsonl(*talk("ab", S)))
    claude.calls(payload("SessionEnd", old, reason="clear"))
    claude.calls(payload("SessionStart", live_of(profile, T), source=source))
    claude.calls(payload("Stop", write_live(profile, CWD, T, jsonl(*talk("xy", T)))))
    assert cleared_from(run_keeper, T) is None
    assert T not in {note.name for note in notes(home)}


@pytest.mark.accepts("FIT-4")
@pytest.mark.parametrize("reason", ["other", "resume", "prompt_input_exit", "logout"])
def test_only_what_a_clear_has_ended_is_gone_on_from(
    reason: str, claude: Claude, run_keeper: Keeper, profile: Path, home: Path
) -> None:
    old, new = (write_live(profile, CWD, one, jsonl(*talk("ab", one))) for one in (S, T))
    claude.calls(payload("SessionEnd", old, reason=reason))
    claude.calls(payload("SessionStart", new, source="clear"))
    assert cleared_from(run_keeper, T) is None
    assert notes(home) == []


@pytest.mark.accepts("FIT-4")
def test_an_id_that_never_gets_a_file_leaves_no_chat_and_its_note_goes_in_time(
    claude: Claude, run_keeper: Keeper, profile: Path, home: Path, vault_home: Path
) -> None:
    old = write_live(profile, CWD, S, jsonl(*talk("ab", S)))
    claude.calls(payload("SessionEnd", old, reason="clear"))
    claude.calls(payload("SessionStart", live_of(profile, T), source="clear"))
    claude.calls(payload("UserPromptSubmit", live_of(profile, T)))
    assert run_keeper("keep").code == 0
    assert [chat.name for chat in (vault_home / "chats").iterdir()] == [S]
    then = time.time() - rotation.OLD_S - 1
    os.utime(notes(home)[0], (then, then))
    claude.calls(payload("SessionEnd", old, reason="clear"))
    assert T not in {note.name for note in notes(home)}


def test_two_processes_that_clear_at_once_are_not_taken_for_one_another(
    claude: Claude, run_keeper: Keeper, profile: Path, tmp_path: Path, cli_env: dict[str, str]
) -> None:
    other = Claude(tmp_path, cli_env)
    lives = {one: write_live(profile, CWD, one, jsonl(*talk("ab", one))) for one in map(session_id, (1, 2, 3, 4))}
    old, theirs, new, other_new = lives.values()
    claude.calls(payload("SessionEnd", old, reason="clear"))
    other.calls(payload("SessionEnd", theirs, reason="clear"))
    claude.calls(payload("SessionStart", new, source="clear"))
    other.calls(payload("SessionStart", other_new, source="clear"))
    other.end()
    assert cleared_from(run_keeper, new.stem) == old.stem
    assert cleared_from(run_keeper, other_new.stem) == theirs.stem


def test_a_rotation_that_cannot_be_noted_costs_a_line_and_no_keep(
    claude: Claude, profile: Path, home: Path, vault_home: Path
) -> None:
    (home / ".local/state/keeper").mkdir(parents=True)
    (home / ".local/state/keeper/rotations").write_text("a file in its place")
    old = write_live(profile, CWD, S, jsonl(*talk("ab", S)))
    claude.calls(payload("SessionEnd", old, reason="clear"))
    assert (vault_home / "chats" / S / f"{S}.jsonl").samefile(old)
    assert log_of(home).count("\n") == 1


def test_the_process_is_the_nearest_ancestor_that_is_claude_else_the_one_that_the_environment_names(
    tmp_path: Path,
) -> None:
    def process(pid: int, parent: int, *argv: str) -> None:
        (tmp_path / str(pid)).mkdir()
        stat = f"{pid} (a ) b) S {parent} " + " ".join(["0"] * 17) + f" 7{pid} 0"
        (tmp_path / str(pid) / "stat").write_text(stat)
        (tmp_path / str(pid) / "cmdline").write_bytes(b"\0".join(map(str.encode, argv)) + b"\0")

    process(1, 0, "init")
    process(20, 1, "/opt/bin/claude", "--resume")
    process(30, 20, "node", "/x/node_modules/@anthropic-ai/claude-code/cli.js")
    process(40, 30, "sh", "-c", "keeper hook")
    process(50, 1, "sh", "-c", "keeper hook")
    assert rotation.process_of(40, {}, tmp_path) == "30-730"
    assert rotation.process_of(50, {}, tmp_path) == ""
    assert rotation.process_of(50, {"CLAUDE_PID": "20"}, tmp_path) == "20-720"
    assert rotation.process_of(50, {"CLAUDE_PID": "x"}, tmp_path) == ""
    assert rotation.process_of(99, {}, tmp_path) == ""


def test_a_note_that_is_none_tells_nothing(
    claude: Claude, run_keeper: Keeper, profile: Path, home: Path, cli_env: dict[str, Any]
) -> None:
    new = write_live(profile, CWD, T, jsonl(*talk("ab", T)))
    folder = home / ".local/state/keeper/rotations"
    folder.mkdir(parents=True)
    for told in (b"", b"[]", json.dumps({"session": "../x", "profile": str(profile)}).encode()):
        (folder / T).write_bytes(told)
        hook.handle(payload("Stop", new), cli_env)
        assert cleared_from(run_keeper, T) is None
        assert notes(home) == []
    assert is_silent(run_keeper("hook", stdin=payload("Stop", new)))
