"""What a program gets from `import keeper`, and what the scripts at the door show."""

import os
import subprocess
import sys
from importlib.metadata import entry_points, version
from pathlib import Path

import demo
import pytest

import keeper

ROOT = Path(__file__).resolve().parent.parent


def test_the_two_verbs_are_there_and_nothing_else_pretends_to_be() -> None:
    assert callable(keeper.keep)
    assert callable(keeper.restore)
    assert dir(keeper) == ["__version__", "keep", "restore"]
    with pytest.raises(AttributeError, match="module 'keeper' has no attribute 'sweep'"):
        _ = keeper.sweep


def test_importing_keeper_loads_none_of_its_modules() -> None:
    code = "import sys, keeper; print(*sorted(name for name in sys.modules if name.startswith('keeper')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["keeper"]


def test_the_command_and_the_version_are_those_of_the_distribution() -> None:
    [command] = [point for point in entry_points(group="console_scripts") if point.name == "keeper"]
    assert (command.value, command.dist.name) == ("keeper.cli.entry:main", "transcript-keeper")
    assert version("transcript-keeper") == keeper.__version__
    done = subprocess.run([sys.executable, "-m", "keeper", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"keeper, version {keeper.__version__}\n"


def test_the_package_says_that_it_is_typed() -> None:
    assert (ROOT / "keeper" / "py.typed").is_file()


def test_the_demo_puts_everything_back_and_leaves_nothing_behind(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "demo.py"],
        env={"PATH": os.environ.get("PATH", os.defpath), "HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    commands = [line for line in done.stdout.splitlines() if line.startswith("$ ")]
    assert commands == ["$ keeper keep", f"$ keeper restore {demo.SESSION}"]
    assert done.stdout.count("\n  yes  ") == 3
    assert list(tmp_path.iterdir()) == []


def test_the_demo_says_so_when_something_did_not_come_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stage = demo.Stage(tmp_path)
    demo.converse(stage)
    before = stage.files()
    demo.sweep(stage)
    assert demo.judge(stage, before) is False
    assert capsys.readouterr().out.count("\n  NO   ") == 3
