"""The house stands as it is drawn: who imports whom, who may touch the disk and the environment, how large a
module is, and what the README says of modules and commands."""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
import readme

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "keeper"

# Arrows point down: a line may import all lines below it; those on one line do not import one another.
# `settings` is a value that is handed down: all may import it, and it knows the errors and `homes`, which know nothing.
LEVELS = (
    {"cli"},
    {"doctor", "agent", "doors", "report"},
    {"savepoint"},
    {"architects", "presence"},
    {"transcripts"},
    {"claude", "disk", "retention", "wire"},
    {"files"},
    {"errors"},
)
AT_THE_DOOR = {"cli", "doors", "settings", "homes"}
PURE = {f"keeper.transcripts.{name}" for name in ("records", "merge", "verdict")}
# keeper.claude looks at files, so what a pure module has of it is named one by one.
FOR_THE_PURE = {*PURE, "keeper.errors", "keeper.claude.NEW_ID_ON_RESUME", "keeper.claude.newest_version"}
INDEXES = {"keeper.transcripts.index", "keeper.architects.registry", "keeper.savepoint.monitors"}

INPUT_OUTPUT = set(
    "asyncio ctypes fcntl glob io mmap os pathlib platform random shutil signal socket sqlite3 subprocess "
    "sys tempfile threading time".split()
)
CHANGES = {
    f"os.{name}"
    for name in (
        "link symlink rename renames replace unlink remove removedirs rmdir mkdir makedirs mkfifo mknod "
        "truncate ftruncate utime chmod fchmod lchmod chown fchown lchown setxattr removexattr "
        "write writev pwrite pwritev sendfile copy_file_range splice posix_fallocate fsync fdatasync sync"
    ).split()
}
PATH_CHANGES = set("write_text write_bytes mkdir touch rename unlink rmdir symlink_to hardlink_to chmod lchmod".split())
WRITE_FLAGS = ("O_WRONLY", "O_RDWR", "O_CREAT", "O_APPEND", "O_TRUNC", "O_TMPFILE")
HARMLESS = {"shutil.which", "shutil.disk_usage", "shutil.get_terminal_size"}
NO_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "managers", "misc"}


class Module:
    """One source file: its dotted name, its tree, and what its local names stand for."""

    def __init__(self, name: str, source: str, is_package: bool = False) -> None:
        self.name = name
        self.tree = ast.parse(source, name)
        self.package = name if is_package else name.rpartition(".")[0]
        self.imports: list[tuple[int, str]] = []
        self.stands_for: dict[str, str] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self.imports.append((node.lineno, alias.name))
                    local = alias.asname or alias.name.partition(".")[0]
                    self.stands_for[local] = alias.name if alias.asname else local
            elif isinstance(node, ast.ImportFrom):
                origin = self._origin(node)
                for alias in node.names:
                    self.imports.append((node.lineno, f"{origin}.{alias.name}"))
                    self.stands_for[alias.asname or alias.name] = f"{origin}.{alias.name}"

    @property
    def area(self) -> str:
        return self.name.split(".")[1] if "." in self.name else ""

    def _origin(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        base = self.package.split(".")[: len(self.package.split(".")) - node.level + 1]
        return ".".join([*base, *([node.module] if node.module else [])])

    def dotted(self, node: ast.expr) -> str:
        """What an expression names, through the file's imports; `?` where it is no plain name."""
        if isinstance(node, ast.Name):
            return self.stands_for.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            return f"{self.dotted(node.value)}.{node.attr}"
        return "?"

    def calls(self) -> Iterator[tuple[ast.Call, str]]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call):
                yield node, self.dotted(node.func)


def the_house() -> list[Module]:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        found.append(Module(name, path.read_text("utf-8"), is_package))
    return found


def may_import(area: str) -> set[str]:
    """The areas that a module of `area` may import."""
    if area == "":
        return {"doors"}
    if area == "__main__":
        return {"cli"}
    if area == "homes":
        return set()
    if area == "settings":
        return {"errors", "homes", area}
    level = next(number for number, line in enumerate(LEVELS) if area in line)
    below = set().union(*LEVELS[level + 1 :])
    at_hand = {"settings"} if area != "errors" else set()
    return below | {area} | at_hand | ({"homes"} if area in AT_THE_DOOR else set())


def against_the_arrows(module: Module) -> Iterator[str]:
    if module.area not in {"", "__main__", "settings", "homes"}.union(*LEVELS):
        yield f"{module.name}: has no place in the house"
        return
    for line, target in module.imports:
        parts = target.split(".")
        if parts[0] != "keeper" or target == "keeper.__version__":
            continue
        if len(parts) == 1 or parts[1] not in may_import(module.area):
            yield f"{module.name}:{line} imports {target}"


def input_or_output(module: Module) -> Iterator[str]:
    """What a pure module may not have; other modules are not asked."""
    if module.name not in PURE:
        return
    for line, target in module.imports:
        ours = target.startswith("keeper.")
        pure = any(f"{target}.".startswith(f"{name}.") for name in FOR_THE_PURE)
        if (ours and not pure) or target.partition(".")[0] in INPUT_OUTPUT:
            yield f"{module.name}:{line} imports {target}"
    for call, name in module.calls():
        if name in {"open", "print", "input"}:
            yield f"{module.name}:{call.lineno} calls {name}"


def file_system_changes(module: Module) -> Iterator[str]:
    if module.area == "disk":
        return
    for line, target in module.imports:
        # `files` reads by a call that Python does not have (the birth of a file), and is held to reading below.
        if target.partition(".")[0] in {"tempfile", "ctypes"} and module.area != "files":
            yield f"{module.name}:{line} imports {target}"
        if target.partition(".")[0] == "sqlite3" and module.name not in INDEXES:
            yield f"{module.name}:{line} imports {target}"
    for call, name in module.calls():
        if _changes(call, name):
            yield f"{module.name}:{call.lineno} calls {ast.unparse(call.func)}"


def _changes(call: ast.Call, name: str) -> bool:
    root, _, method = name.rpartition(".")
    if root == "keeper" or root.startswith("keeper."):
        return False
    if root == "shutil":
        return name not in HARMLESS
    if name == "os.open" and ast.unparse(call.args[0]) == "os.devnull":
        return False
    if name == "os.open":
        flags = ast.unparse(call.args[1]) if len(call.args) > 1 else ""
        return any(flag in flags for flag in WRITE_FLAGS) or not ("O_RDONLY" in flags or "O_PATH" in flags)
    if name in {"open", "io.open", "os.fdopen"}:
        return _writes(call, 1)
    if method == "open" and root:
        # Path.open; other things have an `open` too, whose first argument is no mode.
        return all(isinstance(given, ast.Constant) for given in call.args[:1]) and _writes(call, 0)
    # Path.replace takes one argument; those of str take two, those of dataclasses and datetime keywords.
    if method == "replace" and root and name != "os.replace":
        return len(call.args) == 1 and not call.keywords
    return name in CHANGES or (bool(root) and method in PATH_CHANGES)


def _writes(call: ast.Call, position: int) -> bool:
    """Whether a mode asks for more than reading, or cannot be told."""
    given = [word.value for word in call.keywords if word.arg == "mode"] + call.args[position : position + 1]
    if not given:
        return False
    mode = given[0]
    return not isinstance(mode, ast.Constant) or bool(set(str(mode.value)) & set("wax+"))


def environment_reads(module: Module) -> Iterator[str]:
    if module.area in AT_THE_DOOR:
        return
    for line, target in module.imports:
        if target.partition(".")[0] in {"platformdirs", "getpass"}:
            yield f"{module.name}:{line} imports {target}"
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute | ast.Name):
            name = module.dotted(node)
            if name in {"os.environ", "os.environb", "os.getenv", "os.getenvb"} or name.endswith(
                (".expanduser", "Path.home")
            ):
                yield f"{module.name}:{node.lineno} reads {name}"


CHECKS = (against_the_arrows, input_or_output, file_system_changes, environment_reads)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_no_module_goes(check: Callable[[Module], Iterator[str]]) -> None:
    assert [offence for module in the_house() for offence in check(module)] == []


@pytest.mark.parametrize(
    ("check", "name", "source"),
    [
        (against_the_arrows, "keeper.transcripts.keep", "from keeper.cli import main"),
        (against_the_arrows, "keeper.transcripts.keep", "from keeper import doors"),
        (against_the_arrows, "keeper.transcripts.keep", "from ..agent import run"),
        (against_the_arrows, "keeper.transcripts.keep", "def f():\n    import keeper.doors.hook"),
        (against_the_arrows, "keeper.claude", "from keeper import disk"),
        (against_the_arrows, "keeper.disk", "import keeper.claude"),
        (against_the_arrows, "keeper.settings", "from keeper import disk"),
        (against_the_arrows, "keeper.errors", "from keeper import settings"),
        (against_the_arrows, "keeper.presence.names", "from keeper.architects import registry"),
        (against_the_arrows, "keeper.agent.run", "from keeper.doors import hook"),
        (against_the_arrows, "keeper.cupboard", ""),
        (input_or_output, "keeper.transcripts.merge", "import os"),
        (input_or_output, "keeper.transcripts.merge", "from pathlib import Path"),
        (input_or_output, "keeper.transcripts.verdict", "from keeper import disk"),
        (input_or_output, "keeper.transcripts.verdict", "from keeper.transcripts import vault"),
        (input_or_output, "keeper.transcripts.verdict", "from keeper import claude"),
        (input_or_output, "keeper.transcripts.verdict", "from keeper.claude import footprint"),
        (input_or_output, "keeper.transcripts.records", "x = open('a').read()"),
        (file_system_changes, "keeper.claude", "import os\nos.rename('a', 'b')"),
        (file_system_changes, "keeper.claude", "from os import unlink as gone\ngone('a')"),
        (file_system_changes, "keeper.claude", "import os as o\no.open('a', o.O_CREAT | o.O_WRONLY)"),
        (file_system_changes, "keeper.claude", "import os\nos.open('a', flags)"),
        (file_system_changes, "keeper.claude", "open('a', 'wb')"),
        (file_system_changes, "keeper.claude", "open('a', mode=how)"),
        (file_system_changes, "keeper.claude", "path.open('r+')"),
        (file_system_changes, "keeper.claude", "path.open(mode='w')"),
        (file_system_changes, "keeper.claude", "path.write_text('a')"),
        (file_system_changes, "keeper.claude", "(path / 'a').mkdir()"),
        (file_system_changes, "keeper.claude", "path.replace(other)"),
        (file_system_changes, "keeper.claude", "import shutil\nshutil.copy('a', 'b')"),
        (file_system_changes, "keeper.claude", "import tempfile"),
        (file_system_changes, "keeper.transcripts.vault", "import sqlite3"),
        (environment_reads, "keeper.transcripts.vault", "import os\nos.environ['HOME']"),
        (environment_reads, "keeper.transcripts.vault", "from os import getenv\ngetenv('HOME')"),
        (environment_reads, "keeper.transcripts.vault", "from pathlib import Path\nPath.home()"),
        (environment_reads, "keeper.transcripts.vault", "path.expanduser()"),
        (environment_reads, "keeper.transcripts.vault", "import platformdirs"),
    ],
)
def test_the_check_sees(check: Callable[[Module], Iterator[str]], name: str, source: str) -> None:
    assert list(check(Module(name, source)))


@pytest.mark.parametrize(
    ("check", "name", "source"),
    [
        (
            against_the_arrows,
            "keeper.cli.keep",
            "from keeper import __version__, disk\nimport keeper.doors.hook",
        ),
        (
            against_the_arrows,
            "keeper.transcripts.keep",
            "from . import vault\nfrom keeper.settings import Settings",
        ),
        (input_or_output, "keeper.transcripts.verdict", "from keeper.transcripts.records import Record"),
        (input_or_output, "keeper.transcripts.verdict", "from keeper.transcripts import merge\nimport re"),
        (file_system_changes, "keeper.claude", "import os\nos.open('a', os.O_RDONLY | os.O_NOFOLLOW)"),
        (file_system_changes, "keeper.claude", "open('a')\nopen('a', 'rb')\npath.open('rb')"),
        (
            file_system_changes,
            "keeper.claude",
            "from keeper import disk\ndisk.unlink('a')\ndisk.replace('a')",
        ),
        (file_system_changes, "keeper.claude", "'a'.replace('a', 'b')\nmoment.replace(tzinfo=None)"),
        (file_system_changes, "keeper.claude", "from dataclasses import replace\nreplace(value, a=1)"),
        (file_system_changes, "keeper.claude", "import sys\nsys.stdout.buffer.write(b'')"),
        (environment_reads, "keeper.settings", "import os\nos.environ"),
    ],
)
def test_the_check_lets_pass(check: Callable[[Module], Iterator[str]], name: str, source: str) -> None:
    assert list(check(Module(name, source))) == []


def test_every_module_has_at_most_400_lines() -> None:
    sizes = {path: path.read_text("utf-8").count("\n") for path in PACKAGE.rglob("*.py")}
    assert {str(path.relative_to(ROOT)): size for path, size in sizes.items() if size > 400} == {}


def test_every_module_is_named_for_what_it_does() -> None:
    names = {part for path in PACKAGE.rglob("*.py") for part in path.relative_to(PACKAGE).with_suffix("").parts}
    assert names & NO_NAMES == set()


def test_every_module_says_in_one_sentence_what_it_is_for() -> None:
    without = []
    for path in readme.modules():
        docstring = ast.get_docstring(ast.parse((PACKAGE / path).read_text("utf-8"))) or ""
        first, _, rest = docstring.partition("\n")
        if not first.endswith(".") or (rest and not rest.startswith("\n")):
            without.append(str(path))
    assert without == []


@pytest.mark.parametrize("name", readme.PARTS)
def test_the_readme_says_what_the_code_says_of_its(name: str) -> None:
    found = readme.part(name).search(readme.README.read_text("utf-8"))
    assert found is not None
    assert found.group().splitlines() == list(readme.PARTS[name]()), "scripts/readme.py --write renews it"


@pytest.mark.parametrize(
    ("name", "command"), [pytest.param(name, command, id=name) for name, command, _ in readme.commands()]
)
def test_a_command_has_help_with_an_example(name: str, command: click.Command) -> None:
    assert f"Example: keeper {name}" in " ".join((command.help or "").split())


def test_every_command_answers_in_json_but_the_one_that_answers_with_bytes() -> None:
    every = [one for _, command, _ in readme.commands() for one in ends(command)]
    options = {str(one.name): {option for parameter in one.params for option in parameter.opts} for one in every}
    assert [name for name, known in options.items() if "--json" not in known] == []


def ends(command: click.Command) -> list[click.Command]:
    """The commands of a group; a command itself."""
    return list(command.commands.values()) if isinstance(command, click.Group) else [command]


def test_no_test_passes_over_itself() -> None:
    """What a machine lacks is asked for through `needs`, which names it and counts it."""
    offences = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if path.name == "conftest.py":
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in {"skip", "skipif", "xfail", "importorskip"}:
                owner = ast.unparse(node.value)
                if owner in {"pytest", "pytest.mark"}:
                    offences.append(f"{path.relative_to(ROOT)}:{node.lineno} {owner}.{node.attr}")
    assert offences == []
