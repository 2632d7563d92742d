"""The plugin has the same hooks as the settings file, and goes with the package."""

import json
import subprocess
from importlib.resources import files

import keeper
from keeper.doors import hooks
from keeper.doors.hook import EVENTS, WAIT_S

CALL = hooks.CALL.format("keeper")
PLUGIN = files("keeper.doors") / "plugin"


def test_it_hooks_what_the_settings_hook() -> None:
    told = json.loads((PLUGIN / "hooks" / "hooks.json").read_text("utf-8"))["hooks"]
    assert tuple(told) == EVENTS
    for groups in told.values():
        ((handler,),) = [group["hooks"] for group in groups]
        assert handler == {"type": "command", "command": CALL, "timeout": WAIT_S}


def test_its_command_ends_with_0_and_says_nothing_when_keeper_is_gone() -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", CALL], env={"PATH": "/usr/bin:/bin"}, capture_output=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_it_says_which_keeper_it_is_of() -> None:
    told = json.loads((PLUGIN / ".claude-plugin" / "plugin.json").read_text("utf-8"))
    assert (told["name"], told["version"]) == ("keeper", keeper.__version__)
    assert str(PLUGIN) == str(hooks.PLUGIN)
