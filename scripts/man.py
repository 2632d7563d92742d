"""Renews what the commands tell of themselves elsewhere: the man page, docs/commands.md and the shells' completions.

`scripts/man.py --write` writes them, without an argument the man page goes to stdout (`scripts/man.py | man -l -`). All
is made from click's own view of the commands, so that nothing has to be said twice; a test fails where a file says
something else.
"""

import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import click
from readme import README, ROOT, commands

from keeper import __version__
from keeper.cli.completion import SHELLS, script
from keeper.cli.main import group

DATE = "2026-12-01"
"""The man page's; renewed with the version."""
SHARE = ROOT / "share"
PLACES = {
    "bash": SHARE / "bash-completion" / "completions" / "keeper",
    "zsh": SHARE / "zsh" / "site-functions" / "_keeper",
    "fish": SHARE / "fish" / "vendor_completions.d" / "keeper.fish",
}
MAN = SHARE / "man" / "man1" / "keeper.1"
TABLE = ROOT / "docs" / "commands.md"

ENVIRONMENT = {
    "KEEPER_HOME": "The vault; goes before `vault` in keeper.toml. By default `$XDG_DATA_HOME/keeper`.",
    "KEEPER_CONFIG": "The settings file. By default `$XDG_CONFIG_HOME/keeper/keeper.toml`.",
    "KEEPER_CLAUDE": "The Claude Code that the shim and `keeper resume` start, where PATH is not to tell.",
    "CLAUDE_CONFIG_DIR": "Claude Code's own: the profile in use. By default `~/.claude`.",
    "XDG_DATA_HOME, XDG_STATE_HOME, XDG_CONFIG_HOME": "By default `~/.local/share`, `~/.local/state`, `~/.config`.",
}
FILES = {
    "~/.local/share/keeper": "The vault, as its folders tell it: `chats/`, and an index that can be built anew.",
    "~/.local/share/keeper-shim/claude": "The shim.",
    "~/.local/state/keeper": "Which vaults this machine knows, the logs, the profiles that have keeper's hooks.",
    "~/.config/keeper/keeper.toml": "The settings.",
}


def every_command() -> Iterator[tuple[click.Command, click.Context]]:
    """Every command, those of a group behind the group."""

    def below(command: click.Command, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
        yield command, context
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                found = command.get_command(context, name)
                assert found is not None
                yield from below(found, click.Context(found, context, info_name=name))

    for _, command, context in commands():
        yield from below(command, context)


def usage(command: click.Command, context: click.Context) -> str:
    """The command with its arguments, as a person types it; that it takes options each of them says itself."""
    pieces = [piece for piece in command.collect_usage_pieces(context) if piece != "[OPTIONS]"]
    return " ".join([context.command_path, *pieces])


def paragraphs(command: click.Command) -> tuple[list[str], str]:
    """The help's paragraphs, and its example."""
    found = [" ".join(part.split()) for part in (command.help or "").split("\n\n")]
    example = [part.removeprefix("Example: ") for part in found if part.startswith("Example: ")]
    return [part for part in found if not part.startswith("Example: ")], example[0] if example else ""


def options(command: click.Command, context: click.Context) -> list[tuple[str, str]]:
    """Each option as it is typed, and what it does; `--help`, which all have, is told once."""
    found = [param.get_help_record(context) for param in command.params if isinstance(param, click.Option)]
    return [record for record in found if record is not None]


# --- the man page -----------------------------------------------------------------------------------------------


def roff(text: str) -> str:
    """Text as roff takes it: nothing of it is a request, what is in backquotes is bold, a line may end behind |."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("|", "|\\:")
    return re.sub(r"`([^`]+)`", r"\\fB\1\\fR", text)


def filled(text: str) -> Iterator[str]:
    """A paragraph, in short lines that no line's beginning makes a request."""
    for line in textwrap.wrap(text, 72, break_long_words=False, break_on_hyphens=False):
        yield re.sub(r"^(?=[.'])", r"\\&", roff(line))


def example_of(text: str) -> Iterator[str]:
    yield from (".PP", ".RS 4", ".EX", re.sub(r"^(?=[.'])", r"\\&", roff(text)), ".EE", ".RE")


def told(pairs: dict[str, str]) -> Iterator[str]:
    for name, words in pairs.items():
        yield ".TP"
        yield f"\\fB{roff(name)}\\fR"
        yield from filled(words)


def exit_codes() -> dict[str, str]:
    """As the README says them."""
    said = re.search(r"^Exit codes: (.*?)\.$", README.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert said is not None
    pairs = (one.strip().partition(" ") for one in " ".join(said[1].split()).split("·"))
    return {code: words for code, _, words in pairs}


def man_page() -> str:
    top, example = paragraphs(group)
    lines = [
        '.\\" Made by scripts/man.py from the commands themselves.',
        f'.TH KEEPER 1 {DATE} "keeper {__version__}" "User Commands"',
        ".SH NAME",
        "keeper \\- keeps Claude Code conversations and puts them back",
        ".SH SYNOPSIS",
        ".B keeper",
        ".I COMMAND",
        "[\\fIOPTIONS\\fR] [\\fIARGUMENTS\\fR]",
        ".SH DESCRIPTION",
        *(line for part in top for line in filled(part)),
        ".PP",
        *filled(
            "Each command takes `--help`, and `-h`, and says an example there. `keeper --version` tells the version."
        ),
        *example_of(example),
        ".SH COMMANDS",
    ]
    for command, context in every_command():
        words, example = paragraphs(command)
        lines.append(f'.SS "{roff(usage(command, context))}"')
        for number, part in enumerate(words):
            lines += [*([".PP"] if number else []), *filled(part)]
        for option, what in options(command, context):
            lines += [".TP", f"\\fB{roff(option)}\\fR", *filled(what)]
        lines += example_of(example) if example else []
    lines += [
        ".SH EXIT STATUS",
        *told(exit_codes()),
        ".SH ENVIRONMENT",
        *told(ENVIRONMENT),
        ".SH FILES",
        *told(FILES),
        ".SH SEE ALSO",
        "The pages in docs/: install, first\\-rescue, restore\\-by\\-hand, exclude,",
        "move\\-the\\-vault, backup, uninstall.",
    ]
    return "\n".join(lines) + "\n"


# --- docs/commands.md -------------------------------------------------------------------------------------------


def cell(text: str) -> str:
    return text.replace("|", r"\|")


def command_page() -> str:
    lines = [
        "# Commands",
        "",
        "Every command with all that it takes; `--help` says the same, and so does `man keeper`. What they are for the",
        "README tells, task by task. Made by `scripts/man.py` from the commands themselves.",
    ]
    for command, context in every_command():
        words, example = paragraphs(command)
        lines += ["", f"## `{usage(command, context)}`"]
        for part in words:
            lines += ["", *textwrap.wrap(part, 120, break_long_words=False, break_on_hyphens=False)]
        found = options(command, context)
        if found:
            lines += ["", "| option | what it does |", "| --- | --- |"]
            lines += [f"| `{cell(option)}` | {cell(what)} |" for option, what in found]
        if example:
            lines += ["", f"    $ {example}"]
    return "\n".join(lines) + "\n"


def made() -> dict[Path, Callable[[], str]]:
    """Every file that this script writes."""
    shells = {PLACES[shell]: lambda shell=shell: script(shell, group) for shell in SHELLS}
    return {MAN: man_page, TABLE: command_page, **shells}


def main(arguments: list[str]) -> int:
    if arguments == ["--write"]:
        for path, text in made().items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text(), "utf-8")
        return 0
    if arguments:
        print(__doc__)
        return 0 if arguments == ["--help"] else 2
    print(man_page(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
