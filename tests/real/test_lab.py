"""The lab itself: offline for certain, nothing of the machine in it, nothing of it left on the machine."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab import install
from tests.lab.cli import KEY, Cli
from tests.lab.namespace import REPOSITORY, Lab, LeftBehind
from tests.lab.screen import Screen
from tests.lab.stub_api import answer, asked
from tests.lab.waiting import eventually
from tests.real.conftest import SESSION

one_version = pytest.mark.parametrize("version", [install.NEWEST])


def test_the_namespace_has_loopback_and_nothing_else(lab: Lab) -> None:
    listed = subprocess.run([*lab.enter(), "cat", "/proc/net/dev"], capture_output=True, text=True, check=True)
    assert [line.split(":")[0].strip() for line in listed.stdout.splitlines()[2:]] == ["lo"]
    routes = subprocess.run([*lab.enter(), "cat", "/proc/net/route"], capture_output=True, text=True, check=True)
    assert len(routes.stdout.splitlines()) == 1, "a way out"


@one_version
def test_the_cli_sees_nothing_of_its_callers_environment(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_AUTH_TOKEN", "HTTPS_PROXY", "CLAUDE_CONFIG_DIR"):
        monkeypatch.setenv(name, "the caller's own")
    said = cli.say('@@tool Bash {"command":"env"}\n@@recall', "--session-id", SESSION, "--allowedTools", "Bash")
    assert "the caller's own" not in said.history.text
    assert f"HOME={cli.home}" in said.history.text
    assert cli.environment()["ANTHROPIC_API_KEY"] == KEY


@one_version
def test_a_tool_that_outlives_its_turn_is_found_named_and_ended(cli: Cli) -> None:
    cli.say(
        '@@tool Bash {"command":"setsid sleep 1000 >/dev/null 2>&1 </dev/null &"}\n@@say left',
        *("--session-id", SESSION, "--allowedTools", "Bash"),
    )
    assert [words for words in cli.lab.inhabitants().values() if "sleep 1000" in words]
    assert any("sleep 1000" in words for words in cli.lab.end_all())
    assert cli.lab.inhabitants() == {}


def test_a_lab_that_is_closed_over_a_process_ends_it_and_says_so(lab: Lab, tmp_path: Path) -> None:
    with pytest.raises(LeftBehind, match="sleep 1001"), Lab(tmp_path / "another") as another:
        sleeper = subprocess.Popen([*another.enter(), "sleep", "1001"])
        eventually("the sleeper", another.inhabitants)
    assert sleeper.wait(10) == -signal.SIGKILL


def test_a_test_run_that_is_killed_leaves_no_process(lab: Lab, tmp_path: Path) -> None:
    program = (
        "import pathlib, subprocess, sys, time\n"
        "from tests.lab.namespace import Lab\n"
        f"lab = Lab(pathlib.Path({str(tmp_path / 'another')!r}))\n"
        "sleeper = subprocess.Popen([*lab.enter(), 'sleep', '1002'])\n"
        "while not lab.inhabitants(): time.sleep(0.01)\n"
        "print(lab._stub.pid, sleeper.pid, flush=True)\n"
        "time.sleep(1000)\n"
    )
    run = subprocess.Popen([sys.executable, "-c", program], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    with run:
        assert run.stdout is not None
        pids = [int(word) for word in run.stdout.readline().split()]
        run.kill()
    eventually("the end of both", lambda: not [pid for pid in pids if _lives(pid)])


@one_version
@pytest.mark.usefixtures("terminal")
def test_a_terminal_takes_the_cli_along_when_a_test_fails(cli: Cli) -> None:
    with pytest.raises(ZeroDivisionError), Screen(cli, "--session-id", SESSION) as screen:
        screen.wait("❯")
        raise ZeroDivisionError
    # A git that the CLI had just asked something ends by itself, a moment after the CLI.
    eventually("the end of all that the CLI had started", lambda: not cli.lab.inhabitants())
    assert not list(cli.lab.folder.glob("tmux-*"))


def test_the_stub_takes_one_step_of_the_script_an_answer() -> None:
    script = '@@tool Bash {"command":"true"}\n@@sleep 0.5\n@@say WORD=two'
    prompt = {"role": "user", "content": f"WORD=one\n{script}"}
    called = {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "Bash", "input": {}}]}
    result = {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "t", "content": "WORD=three"}],
    }
    reminder = {"role": "user", "content": "<system-reminder>@@say wrong</system-reminder>"}
    first = {"messages": [prompt], "tools": [{}]}
    second = {"messages": [prompt, called, result, reminder], "tools": [{}]}

    assert answer(first, asked(first, None)).stop_reason == "tool_use"
    assert answer(first, asked(first, None)).blocks[0]["input"] == {"command": "true"}
    later = answer(second, asked(second, None))
    assert (later.blocks[0]["text"], later.stop_reason, later.wait_s) == ("WORD=two", "end_turn", 0.5)
    assert asked(second, None).words == ("one", "two", "three")


def test_an_installer_asks_for_a_whole_version_before_it_asks_npm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "_fetch", lambda version: pytest.fail(f"asked for {version}"))
    for word in ("latest", "2", "2.1", "../2.1.328", "2.1.328 --registry=x"):
        with pytest.raises(install.CannotInstall, match="not a full version"):
            install.install(word)


@pytest.mark.parametrize("version", install.PINNED)
def test_what_is_installed_is_the_version_that_was_asked_for(version: str, cli: Cli) -> None:
    assert install.reported(install.binary(version)) == version


def _lives(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_this_process_is_not_in_the_lab(lab: Lab) -> None:
    assert os.getpid() not in lab.inhabitants()
