"""Completion: what a shell is offered where a person presses Tab, and what a press of that key may cost."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from man import PLACES

from keeper.cli.completion import MANY, SHELLS
from keeper.cli.main import COMMANDS
from tests.build import CWD, jsonl, prompt, session_id, talk, write_live
from tests.chat import everything
from tests.conftest import Needs, Ran
from tests.terminal import Terminal

Command = Callable[..., Ran]
S, T = session_id(1), session_id(2)
BIN = Path(sys.executable).parent

INTERACTIVE = {
    "bash": ["bash", "--norc", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}
FIRST = {"bash": "", "zsh": "autoload -U compinit; compinit -D; ", "fish": ""}


@pytest.fixture
def offered(cli_env: dict[str, str], tmp_path: Path) -> Callable[..., list[str]]:
    """What bash is offered for a line, whose last word is the one that is being typed."""

    def ask(line: str, cwd: Path | None = None, **more: str) -> list[str]:
        words = line.split(" ")
        env = {**cli_env, **more, "_KEEPER_COMPLETE": "bash_complete", "COMP_WORDS": line}
        done = subprocess.run(
            [BIN / "keeper"], env={**env, "COMP_CWORD": str(len(words) - 1)}, cwd=cwd or tmp_path,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        return [found.partition(",")[2] for found in done.stdout.splitlines() if found]

    return ask


def test_every_command_is_offered_and_every_option_of_one(offered: Callable[..., list[str]]) -> None:
    assert offered("keeper ") == list(COMMANDS)
    assert offered("keeper rest") == ["restore"]
    assert {"--all", "--at", "--json"} <= set(offered("keeper restore --"))
    assert offered("keeper completion ") == list(SHELLS)
    assert offered("keeper service ") == ["install", "remove", "status"]


def test_no_command_is_loaded_to_offer_the_names_of_all(cli_env: dict[str, str]) -> None:
    ask = (
        "import sys\nfrom keeper.cli.main import group\n"
        "import atexit\natexit.register(lambda: print(*sorted(n for n in sys.modules if n.startswith('keeper.'))))\n"
        "group(prog_name='keeper', standalone_mode=False)"
    )
    env = {**cli_env, "_KEEPER_COMPLETE": "bash_complete", "COMP_WORDS": "keeper ", "COMP_CWORD": "1"}
    done = subprocess.run([sys.executable, "-c", ask], env=env, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "keeper.cli.main" in loaded
    assert not loaded & {"keeper.transcripts", *(f"keeper.cli.{module}" for module in COMMANDS.values())}


@pytest.mark.parametrize("command", ["restore", "resume", "show", "accept", "export", "forget", "verify"])
def test_the_sessions_of_this_directory_are_offered_and_others_by_their_letters(
    profile: Path, tmp_path: Path, run_keeper: Command, offered: Callable[..., list[str]], command: str
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    write_live(profile, str(here), S, jsonl(*talk("ab", S, cwd=str(here))))
    write_live(profile, CWD, T, jsonl(*talk("ab", T)))
    assert run_keeper("keep").code == 0
    assert offered(f"keeper {command} ", cwd=here, PWD=str(here)) == [S]
    assert offered(f"keeper {command} ", cwd=tmp_path, PWD=str(tmp_path)) == []
    assert offered(f"keeper {command} {T}", cwd=tmp_path, PWD=str(tmp_path)) == [T]
    assert offered(f"keeper {command} ffff", cwd=here, PWD=str(here)) == []


def test_no_more_are_offered_than_somebody_reads(
    profile: Path, tmp_path: Path, run_keeper: Command, offered: Callable[..., list[str]]
) -> None:
    for number in range(MANY + 5):
        session = session_id(number)
        write_live(profile, str(tmp_path), session, jsonl(*talk("ab", session, cwd=str(tmp_path))))
    assert run_keeper("keep").code == 0
    assert len(offered("keeper restore ", PWD=str(tmp_path))) == MANY


def test_nothing_is_offered_and_nothing_made_where_there_is_no_vault_or_none_that_reads(
    home: Path, vault_home: Path, offered: Callable[..., list[str]]
) -> None:
    before = everything(home)
    assert offered("keeper restore ") == []
    assert (everything(home), vault_home.exists()) == (before, False)
    vault_home.mkdir()
    (vault_home / "state.db").write_bytes(b"no index at all, but long enough to be looked at " * 20)
    before = everything(vault_home)
    assert offered("keeper restore ") == []
    assert everything(vault_home) == before


def test_a_settings_file_that_does_not_read_disturbs_no_line_that_is_typed(
    home: Path, cli_env: dict[str, str], offered: Callable[..., list[str]]
) -> None:
    config = Path(cli_env["KEEPER_CONFIG"])
    config.parent.mkdir(parents=True)
    config.write_text("vault = [")
    assert offered("keeper restore ") == []


def test_no_word_of_a_conversation_is_offered(
    profile: Path, tmp_path: Path, run_keeper: Command, offered: Callable[..., list[str]]
) -> None:
    data = jsonl(prompt("a", None, "xyzzy-plugh", S, cwd=str(tmp_path)))
    write_live(profile, str(tmp_path), S, data + b'{"type":"custom-title","customTitle":"xyzzy"}\n')
    assert run_keeper("keep").code == 0
    assert offered("keeper restore ", PWD=str(tmp_path)) == [S]
    for shell in SHELLS:
        found = offered("keeper restore ", PWD=str(tmp_path), _KEEPER_COMPLETE=f"{shell}_complete")
        assert "xyzzy" not in str(found)


def test_the_command_prints_what_the_package_installs(run_keeper: Command) -> None:
    for shell in SHELLS:
        done = run_keeper("completion", shell)
        assert (done.code, done.err) == (0, "")
        assert done.text == PLACES[shell].read_text("utf-8")
        assert json.loads(run_keeper("completion", shell, "--json").out)["script"] == done.text
    assert run_keeper("completion", "tcsh").code == 2


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_that_has_read_it_completes_a_command_an_option_and_a_session(
    needs: Needs, profile: Path, tmp_path: Path, cli_env: dict[str, str], run_keeper: Command, shell: str
) -> None:
    needs.command(shell)
    write_live(profile, str(tmp_path), S, jsonl(*talk("ab", S, cwd=str(tmp_path))))
    assert run_keeper("keep").code == 0
    path = f"{BIN}{os.pathsep}{cli_env['PATH']}"
    with Terminal(INTERACTIVE[shell], {**cli_env, "PATH": path, "TERM": "xterm"}, tmp_path) as terminal:
        terminal.type(f"{FIRST[shell]}source {PLACES[shell]}; echo re''ad\n")
        terminal.wait("read\r?\n|\nread")
        terminal.type("keeper reind\t")
        terminal.wait("reindex")
        terminal.type("--js\t")
        terminal.wait("--json")
        terminal.type("\x15keeper restore \t")
        terminal.wait(S)
