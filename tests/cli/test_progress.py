"""Long work shows how far it is on a terminal, takes that away again, and shows nothing where nobody looks."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.build import CWD, jsonl, session_id, talk, write_live
from tests.chat import age, kept_path, put, sweep
from tests.conftest import ALONE_ON_THE_MACHINE, Ran
from tests.terminal import Terminal

Command = Callable[..., Ran]
MANY = 30
HIDDEN = "\x1b[?25l"
SHOWN_AGAIN = "\x1b[?25h"
"""What a terminal is told at the end: the cursor is a person's again."""

WORK = {
    ("keep",): ["keeping", "sealing"],
    ("verify",): ["verifying"],
    ("verify", "--repair"): ["verifying", "repairing"],
    ("restore", "--all"): ["restoring"],
    ("prune", "--apply"): ["measuring", "pruning"],
    ("du",): ["measuring"],
    ("exclude", "add", "--cwd", f"{CWD}/**", "--yes"): ["removing"],
    ("run", "--once"): ["keeping and sealing"],
}


@pytest.fixture
def prepared(profile: Path, vault_home: Path, cli_env: dict[str, str], run_keeper: Command) -> Callable[..., None]:
    """Chats, as the work wants to find them."""

    def make(words: tuple[str, ...]) -> None:
        for number in range(MANY):
            session = session_id(number)
            write_live(profile, CWD, session, jsonl(*talk("ab", session)))
        if words[0] in ("keep", "run"):
            return
        assert run_keeper("keep").code == 0
        if words[0] == "prune":
            age(profile)
            put(Path(cli_env["KEEPER_CONFIG"]), b'keep_for = "1d"\n')
        if words[0] == "restore":
            sweep(profile)
        if "--repair" in words:
            for number in range(MANY):
                kept_path(vault_home, session_id(number)).write_bytes(b"{}\n")

    return make


@pytest.fixture
def on_a_terminal(cli_env: dict[str, str], tmp_path: Path) -> Callable[..., Terminal]:
    def start(words: tuple[str, ...], to: str = "") -> Terminal:
        program = [sys.executable, "-c", ALONE_ON_THE_MACHINE, *words]
        argv = ["sh", "-c", f'exec "$@" {to}', "sh", *program] if to else program
        return Terminal(argv, {**cli_env, "TERM": "xterm"}, tmp_path)

    return start


@pytest.mark.accepts("RESTORE-11")
@pytest.mark.parametrize("words", WORK, ids=lambda words: " ".join(words)[:20])
def test_on_a_terminal_a_bar_tells_how_far_it_is_and_goes_again(
    prepared: Callable[..., None], on_a_terminal: Callable[..., Terminal], words: tuple[str, ...]
) -> None:
    prepared(words)
    with on_a_terminal(words) as terminal:
        terminal.ended(60)
        shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.seen)
        for label in WORK[words]:
            assert re.search(rf"{label} \S* +100%", shown), shown
        assert terminal.seen.rindex(SHOWN_AGAIN) > terminal.seen.rindex("100%")
        assert "100%" not in shown.splitlines()[-1]


@pytest.mark.parametrize("words", WORK, ids=lambda words: " ".join(words)[:20])
def test_in_a_pipe_there_is_none_and_no_word_of_one(
    prepared: Callable[..., None], run_keeper: Command, words: tuple[str, ...]
) -> None:
    prepared(words)
    done = run_keeper(*words, env={"TERM": "xterm", "FORCE_COLOR": "1", "NO_COLOR": None})
    said = done.text + done.err
    assert not [label for label in WORK[words] if label in said]
    assert not {"\x1b", "\r", "%"} & set(said)


def test_an_object_on_stdout_stays_one_object_while_stderr_is_a_terminal(
    prepared: Callable[..., None], on_a_terminal: Callable[..., Terminal], tmp_path: Path
) -> None:
    prepared(("keep",))
    with on_a_terminal(("keep", "--json"), to=f">{tmp_path}/out") as terminal:
        assert terminal.ended(60) == 0
        assert "keeping" in terminal.seen
    assert len(json.loads((tmp_path / "out").read_bytes())["kept"]) == MANY


def test_who_interrupts_it_has_the_cursor_again(
    prepared: Callable[..., None], cli_env: dict[str, str], tmp_path: Path
) -> None:
    prepared(("keep",))
    slow = ALONE_ON_THE_MACHINE.replace(
        'sys.argv[0] = "keeper"',
        'sys.argv[0] = "keeper"\nimport time\nfrom keeper import disk\ndisk.hook = lambda *_: time.sleep(0.05)',
    )
    with Terminal([sys.executable, "-c", slow, "keep"], {**cli_env, "TERM": "xterm"}, tmp_path) as terminal:
        terminal.wait("keeping")
        assert terminal.interrupt() == 130
        assert terminal.seen.rindex(SHOWN_AGAIN) > terminal.seen.rindex("keeping")
        assert "Traceback" not in terminal.seen


@pytest.mark.accepts("AGENT-9")
def test_an_agent_on_a_terminal_shows_its_first_pass_and_its_words_stay_readable(
    prepared: Callable[..., None], profile: Path, on_a_terminal: Callable[..., Terminal]
) -> None:
    for number in range(MANY, 3 * MANY):
        write_live(profile, CWD, session_id(number), jsonl(*talk("ab", session_id(number))))
    prepared(("run",))
    with on_a_terminal(("run",)) as terminal:
        terminal.wait("ready: ")
        terminal.wait(r"100%[^%]*\x1b\[\?25h")
        assert terminal.interrupt() == 0
        shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.seen)
        assert re.search(r"keeping and sealing \S* +100%", shown), shown
        assert re.search(rf"^\s*ready: {3 * MANY} chats live", shown.replace("\r", "\n"), re.MULTILINE), shown
        assert SHOWN_AGAIN not in terminal.seen.rpartition(HIDDEN)[0]  # a look over everything shows it once


def test_an_agent_that_is_ended_in_the_middle_of_its_first_pass_gives_the_cursor_back(
    prepared: Callable[..., None], profile: Path, cli_env: dict[str, str], tmp_path: Path
) -> None:
    for number in range(MANY, 3 * MANY):
        write_live(profile, CWD, session_id(number), jsonl(*talk("ab", session_id(number))))
    prepared(("run",))
    slow = ALONE_ON_THE_MACHINE.replace(
        'sys.argv[0] = "keeper"',
        'sys.argv[0] = "keeper"\nimport time\nfrom keeper.transcripts import keep\n'
        "def slowly(vault, behind, now, progress):\n  for step in range(999): time.sleep(0.02); progress(step, 999)\n"
        "keep.seal_behind = slowly",
    )
    with Terminal([sys.executable, "-c", slow, "run"], {**cli_env, "TERM": "xterm"}, tmp_path) as terminal:
        terminal.wait("ready: ")
        terminal.wait(r"\d%")
        assert terminal.interrupt() == 0
        assert terminal.seen.rindex(SHOWN_AGAIN) > terminal.seen.rindex(HIDDEN)


def test_a_bar_of_a_thread_that_does_not_end_is_taken_away(cli_env: dict[str, str], tmp_path: Path) -> None:
    program = (
        "import threading, time\nfrom keeper.cli import out\n"
        "def show():\n  with out.progress('keeping') as bar:\n    bar(1, 2)\n    time.sleep(99)\n"
        "threading.Thread(target=show, daemon=True).start()\ntime.sleep(1)\nout.end_progress()\n"
    )
    with Terminal([sys.executable, "-c", program], {**cli_env, "TERM": "xterm"}, tmp_path) as terminal:
        assert terminal.ended() == 0
        assert "50%" in terminal.seen
        assert terminal.seen.rindex(SHOWN_AGAIN) > terminal.seen.rindex(HIDDEN)
