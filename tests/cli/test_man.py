"""The man page, docs/commands.md and the commands themselves say the same, and the page reads on a terminal."""

import os
import re
import subprocess
from pathlib import Path

import click
import man
import pytest

from tests.conftest import Needs

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize("path", man.made(), ids=lambda path: path.name)
def test_what_is_made_from_the_commands_is_what_they_say_now(path: Path) -> None:
    """`scripts/man.py --write` renews it."""
    assert path.read_text("utf-8") == man.made()[path]()


@pytest.fixture(scope="module")
def page(needs: Needs) -> str:
    """The man page as a person reads it, on a line that never ends."""
    needs.command("man")
    done = subprocess.run(
        [needs.command("mandoc"), "-T", "utf8", "-O", "width=900", man.MAN],
        env={**os.environ, "LANG": "C.UTF-8"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return re.sub(".\b", "", done.stdout)


def test_every_command_with_every_option_and_its_help_is_in_the_man_page_and_in_the_table(page: str) -> None:
    table = man.TABLE.read_text("utf-8")
    seen = 0
    for command, context in man.every_command():
        assert f"\n   {man.usage(command, context)}\n" in page
        assert f"\n## `{man.usage(command, context)}`\n" in table
        for param in command.params:
            if isinstance(param, click.Option):
                seen += 1
                assert param.help, f"{context.command_path} {param.opts[0]} says nothing of itself"
                for text in (page, table.replace(r"\|", "|")):
                    assert all(name in text for name in param.opts)
                    assert " ".join(param.help.split()).replace("`", "") in text.replace("`", "")
    assert seen > 40


def test_the_man_page_has_no_fault_that_either_reader_of_it_knows(needs: Needs) -> None:
    lint = subprocess.run([needs.command("mandoc"), "-T", "lint", man.MAN], capture_output=True, text=True, check=False)
    assert (lint.returncode, lint.stdout, lint.stderr) == (0, "", "")
    groff = subprocess.run(
        [needs.command("man"), "--warnings=w", "-l", man.MAN],
        env={**os.environ, "MANPAGER": "cat", "LANG": "C.UTF-8", "MANROFFSEQ": ""}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert (groff.returncode, groff.stderr) == (0, "")


def test_no_line_of_a_help_becomes_a_request_or_loses_a_backslash() -> None:
    lines = list(man.filled(f"{'a' * 71} .so /etc/passwd and 'quoted' \\fB and --json"))
    assert not [line for line in lines if line[0] in ".'"]
    assert "\\&.so" in "\n".join(lines)
    assert "\\efB" in "\n".join(lines)


def test_each_variable_of_keepers_own_is_in_the_man_page_and_each_exit_code_of_an_error(page: str) -> None:
    from keeper import errors

    source = "".join(path.read_text("utf-8") for path in (ROOT / "keeper").rglob("*.py"))
    variables = set(re.findall(r'"(KEEPER_[A-Z]+)"', source))
    assert {"KEEPER_HOME", "KEEPER_CONFIG", "KEEPER_CLAUDE"} <= variables
    assert [name for name in variables if name not in page] == []
    codes = {one.exit_code for one in vars(errors).values() if isinstance(one, type) and hasattr(one, "exit_code")}
    assert {str(code) for code in codes} | {"0", "130"} == set(man.exit_codes())


def test_the_wheel_puts_them_where_a_system_looks() -> None:
    import tomllib

    told = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert told["shared-data"] == {"share": "share"}
    below = {str(path.relative_to(man.SHARE)) for path in man.SHARE.rglob("*") if path.is_file()}
    assert below == {
        "man/man1/keeper.1", "bash-completion/completions/keeper", "zsh/site-functions/_keeper",
        "fish/vendor_completions.d/keeper.fish",
    }  # fmt: skip
