"""Renews what README.md takes from the code: the commands with their help, the modules with their purpose.

Without an argument it prints both tables, with `--write` it puts them into the README between their marks. A test
fails where the README says something else.
"""

import ast
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from keeper.cli.main import group

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"

# From the ground up, as the arrows between them point.
ORDER = (
    *("errors", "homes", "settings", "files", "disk", "claude", "retention", "wire", "transcripts", "architects"),
    *("presence", "savepoint", "agent", "doors", "doctor", "report", "cli"),
)


def modules(package: Path = ROOT / "keeper") -> list[Path]:
    """Every module of the package that does work (`__init__` does none), in the house's order."""
    found = [path.relative_to(package) for path in package.rglob("*.py") if not path.stem.startswith("__")]
    return sorted(found, key=lambda path: (ORDER.index(path.with_suffix("").parts[0]), path.parts))


def purpose(path: Path) -> str:
    """The first line of a module's docstring; empty if it has none."""
    return (ast.get_docstring(ast.parse((ROOT / "keeper" / path).read_text("utf-8"))) or "").partition("\n")[0]


def commands() -> Iterator[tuple[str, click.Command, click.Context]]:
    """Every command by its name, in the order of `keeper --help`."""
    top = click.Context(group, info_name="keeper")
    for name in group.list_commands(top):
        command = group.get_command(top, name)
        assert command is not None
        yield name, command, click.Context(command, top, info_name=name)


def module_table() -> Iterator[str]:
    yield "| module | what it is for |"
    yield "| --- | --- |"
    for path in modules():
        yield f"| `{path.as_posix()}` | {purpose(path)} |"


def command_table() -> Iterator[str]:
    yield "| command | what it does |"
    yield "| --- | --- |"
    for name, command, context in commands():
        pieces = [piece for piece in command.collect_usage_pieces(context) if piece != "[OPTIONS]"]
        usage = " ".join(["keeper", name, *pieces]).replace("|", r"\|")
        words = " ".join((command.help or "").partition("\n\n")[0].split()).replace("|", r"\|")
        yield f"| `{usage}` | {words} |"


PARTS: dict[str, Callable[[], Iterator[str]]] = {"commands": command_table, "modules": module_table}


def part(name: str) -> re.Pattern[str]:
    """Where a table stands in the README."""
    return re.compile(rf"(?<=<!-- {name} -->\n).*?(?=<!-- end of {name} -->)", re.DOTALL)


def main(arguments: list[str]) -> int:
    text = README.read_text("utf-8")
    for name, table in PARTS.items():
        lines = "".join(f"{line}\n" for line in table())
        if arguments == ["--write"]:
            text = part(name).sub(lambda _, lines=lines: lines, text)
        else:
            print(lines)
    if arguments == ["--write"]:
        README.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
