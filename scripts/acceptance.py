"""Prints which test holds which statement of docs/acceptance.md, and the statements that no test holds.

    scripts/acceptance.py                         every id, its tests, then the ids without one
    scripts/acceptance.py --summary               counts by group and in all
    scripts/acceptance.py --issue-ids "MERGE-1..MERGE-13,BOTH-5"     of these alone (with --summary too)

It reads the `accepts` marks from the source of the tests (no test is imported, so it needs nothing installed)
and exits 0 whatever it finds; only an id that the table does not have, or a mark that it cannot read, is an error (2).
"""

import argparse
import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs" / "acceptance.md"
TESTS = ROOT / "tests"
STATEMENT = re.compile(r"- (?P<id>[A-Z]+-[0-9]+) (?P<text>.+)")


@dataclass(frozen=True, slots=True)
class Mark:
    """One id in one `accepts` mark; `test` is written as pytest names it, without parameters."""

    id: str
    test: str


def statements(table: str) -> dict[str, str]:
    """id → its text, in the order of the table. Raises ValueError for an id that stands there twice."""
    found: dict[str, str] = {}
    for line in table.splitlines():
        if match := STATEMENT.fullmatch(line):
            if match["id"] in found:
                raise ValueError(f"{match['id']} stands in the table twice")
            found[match["id"]] = match["text"]
    return found


def marks(source: str, name: str) -> Iterator[Mark]:
    """The marks of one test file: on functions, classes, parameter sets and, by `pytestmark`, whole files."""
    yield from _marks_under(ast.parse(source, name), name)


def _marks_under(node: ast.AST, owner: str) -> Iterator[Mark]:
    for child in ast.iter_child_nodes(node):
        inner = owner
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{owner}::{child.name}"
        elif isinstance(child, ast.Call) and _is_accepts(child.func):
            for argument in child.args:
                if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
                    raise ValueError(f"{owner}: an accepts mark takes plain strings only")
                yield Mark(argument.value, owner)
        yield from _marks_under(child, inner)


def _is_accepts(function: ast.expr) -> bool:
    return (
        isinstance(function, ast.Attribute)
        and function.attr == "accepts"
        and isinstance(function.value, ast.Attribute)
        and function.value.attr == "mark"
    )


def all_marks(tests: Path = TESTS) -> list[Mark]:
    return [
        mark
        for file in sorted(tests.rglob("*.py"))
        for mark in marks(file.read_text("utf-8"), file.relative_to(tests.parent).as_posix())
    ]


def tests_by_id(found: Iterable[Mark]) -> dict[str, list[str]]:
    """id → the tests that carry it, each once."""
    held: dict[str, dict[str, None]] = {}
    for mark in found:
        held.setdefault(mark.id, {})[mark.test] = None
    return {name: list(tests) for name, tests in held.items()}


def group(name: str) -> str:
    return name.partition("-")[0]


def chosen(text: str, known: Iterable[str]) -> list[str]:
    """The ids that `text` names: `A-1, B-2..B-9`. Raises KeyError for one that is not known."""
    known = list(known)
    wanted: set[str] = set()
    for part in re.split(r"[,\s]+", text.strip()):
        first, _, last = part.partition("..")
        if not last:
            wanted.add(part)
            continue
        start, end = (int(name.rpartition("-")[2]) for name in (first, last))
        wanted.update(f"{group(first)}-{number}" for number in range(start, end + 1))
    if unknown := sorted(wanted.difference(known)):
        raise KeyError(", ".join(unknown))
    return [name for name in known if name in wanted]


def list_tests(ids: list[str], held: dict[str, list[str]]) -> Iterator[str]:
    for name in ids:
        yield f"{name:<11} {', '.join(held.get(name, [])) or '-'}"
    without = [name for name in ids if name not in held]
    yield ""
    yield f"without a test ({len(without)} of {len(ids)}): {', '.join(without) or 'none'}"


def summarise(ids: list[str], held: dict[str, list[str]]) -> Iterator[str]:
    for name in dict.fromkeys(map(group, ids)):
        members = [member for member in ids if group(member) == name]
        without = [member for member in members if member not in held]
        line = f"{name:<8} {len(members) - len(without):>3} of {len(members):>3}"
        yield (f"{line}  without a test: {', '.join(without)}" if without and len(without) < len(members) else line)
    yield f"{'in all':<8} {sum(name in held for name in ids):>3} of {len(ids):>3} statements have a test"


def main(arguments: list[str] | None = None) -> int:
    summary = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(description=summary)
    parser.add_argument("--summary", action="store_true", help="counts by group and in all")
    parser.add_argument("--issue-ids", metavar="IDS", help='these alone: "MERGE-1..MERGE-13,BOTH-5"')
    options = parser.parse_args(arguments)
    try:
        known = statements(TABLE.read_text("utf-8"))
        held = tests_by_id(all_marks())
        ids = chosen(options.issue_ids, known) if options.issue_ids else list(known)
        if unknown := [name for name in held if name not in known]:
            raise KeyError(", ".join(unknown))
    except KeyError as error:
        print(f"not in {TABLE.relative_to(ROOT)}: {error.args[0]}", file=sys.stderr)
        return 2
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    for line in summarise(ids, held) if options.summary else list_tests(ids, held):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
