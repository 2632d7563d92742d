#!/usr/bin/env python3
"""Changes keeper's code in small ways, one at a time, and counts the changes that a test fails for.

    scripts/mutation.py                             a sample of every module of MODULES; an hour and more
    scripts/mutation.py --module merge --sample 80  80 of one module's
    scripts/mutation.py --module records --sample 0 all of one module's
    scripts/mutation.py --only keeper.transcripts.merge.x_merge__mutmut_3 --tests tests/transcripts

mutmut makes the mutants of a throw-away copy of the tree and runs, for each, those tests of its module that touch the
mutated function, the quickest first, until one fails. No mutant is made of types, docstrings, decorated functions
(properties, dataclasses), constants of a module, or a message's words. Prints each mutant that no test failed for, and
one closing line a module; which test failed for each mutant goes to a file with `--killers`.
"""

import argparse
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
TREE = ("keeper", "tests", "fixtures", "scripts", "docs")
FILES = ("README.md", "CHANGELOG.md", "LICENSE", "constraints.txt")

T = "tests/transcripts/test_"
MODULES = {
    "records": ("records", "mutants", "verdict"),
    "merge": ("merge", "mutants"),
    "verdict": ("verdict", "mutants", "verdict_table"),
    "swap": ("swap", "mutants", "guards"),
    "seal": ("seal", "mutants"),
    "keep": (
        *("keep", "mutants_keep", "verdict", "guards", "head", "pair", "mirror", "lineage", "policy", "vault"),
        *("restore_place", "tests/cli/test_commands.py", "tests/cli/test_policy_commands.py"),
    ),
    "restore": (
        *("restore", "restore_place", "mutants_keep", "mass", "guards", "head"),
        *("tests/cli/test_commands.py", "tests/cli/test_policy_commands.py"),
    ),
}
"""The modules, and which tests are tried against each: those of `T`, or by their path."""
LEFT_OUT = (
    "merge.py::test_a_million",
    "merge.py::test_a_line_of_a_hundred",
    "seal.py::test_a_turn_behind_100_mb",
    "guards.py::test_even_a_umask",
    "keep.py::test_several_at_once",
    "keep.py::test_two_",
    "restore.py::test_killed",
    "mass.py::test_killed",
    "mass.py::test_the_command_killed",
    "mass.py::test_ctrl_c",
)
"""Beginnings of tests that are left out: of size alone, of races and kills (they take long, and a mutant that only they
tell is worth a test of its own), and one that looks at all profiles of the machine."""

MESSAGES = (r"^\s*raise \w+\(", r"(warnings|notes)\.append\(", r"""^\s*f?"[^"]*\s[^"]*",?$""")
"""Lines that begin a message: a change in its wording is no guard."""
TEST_S = 20
"""So long may one test take with a mutant."""
MEMORY = 8 << 30

CONFIG = """
[tool.mutmut]
source_paths = ["keeper"]
only_mutate = {only}
do_not_mutate_patterns = {patterns}
also_copy = {also}
pytest_add_cli_args = ["-p", "mutation_plugin", "-p", "no:cacheprovider", "--alone", "without", "--timeout", "{test_s}"]
pytest_add_cli_args_test_selection = {tests}
timeout_multiplier = 2.0
timeout_constant = {test_s}.0
use_git_change_detection = false
"""


@dataclass(frozen=True, slots=True)
class Told:
    """What became of the mutants that were tried: name → killed, survived, timed out."""

    population: int
    fates: dict[str, str]
    diffs: dict[str, str]
    killers: dict[str, str]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0], epilog="Example: scripts/mutation.py --module swap --sample 60"
    )
    parser.add_argument("--module", action="append", choices=MODULES, help="one module, or several; else all")
    parser.add_argument("--sample", type=int, default=70, help="so many mutants of each, by chance; 0: all")
    parser.add_argument("--seed", type=int, default=1, help="what the sample is drawn by")
    parser.add_argument("--only", action="append", default=[], help="only the mutant of this name, as printed")
    parser.add_argument("--tests", action="append", default=[], help="these tests instead of the module's")
    parser.add_argument("--killers", type=Path, help="a file for the test that failed for each mutant")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # through the ends of all that was begun
    wanted = asked.module or list(MODULES)
    if asked.only:
        wanted = list(dict.fromkeys(name.split(".")[2] for name in asked.only))
    survivors = 0
    for module in wanted:
        begun = time.monotonic()
        only = [name for name in asked.only if name.split(".")[2] == module]
        told = tried(module, only, asked.sample, asked.seed, asked.tests)
        if asked.killers:
            with asked.killers.open("a", encoding="utf-8") as out:
                out.writelines(f"{name}\t{fate}\t{told.killers.get(name, '')}\n" for name, fate in told.fates.items())
        for name, diff in told.diffs.items():
            print(f"{told.fates[name]}: {name}\n{diff}")
        survivors += report(module, told, asked.seed, time.monotonic() - begun)
    return 1 if survivors else 0


def report(module: str, told: Told, seed: int, seconds: float) -> int:
    count = Counter(told.fates.values())
    tried = len(told.fates)
    caught = count["killed"] + count["timed out"]
    print(
        f"{module}: {tried} of {told.population} mutants tried (seed {seed}), {count['killed']} killed, "
        f"{count['survived']} survived, {count['timed out']} timed out: {100 * caught / max(1, tried):.1f} % caught",
        flush=True,
    )
    print(f"{module}: {seconds / 60:.1f} min", file=sys.stderr)
    return count["survived"]


def tried(module: str, only: list[str], size: int, seed: int, tests: list[str]) -> Told:
    """Try mutants of one module: those named, or so many by chance."""
    path = f"keeper/transcripts/{module}.py"
    with copy_of_the_tree() as tree:
        chosen = tests.copy() or [name if "/" in name else f"{T}{name}.py" for name in MODULES[module]]
        chosen += [word for name in LEFT_OUT for word in ("--deselect", T + name)]
        also = [*TREE[1:], *FILES]
        lists = {"only": [path], "patterns": MESSAGES, "also": also, "tests": chosen}
        config = CONFIG.format(test_s=TEST_S, **{key: json.dumps(value) for key, value in lists.items()})
        with (tree / "pyproject.toml").open("a", encoding="utf-8") as out:
            out.write(config)
        names = mutants(tree, path)
        picked = only or names
        if size and not only:
            picked = random.Random(f"{seed}/{module}").sample(names, min(size, len(names)))
        log = tree / "killers.tsv"
        log.touch()
        run(tree, picked, log)
        killers = dict(line.split("\t", 1) for line in log.read_text("utf-8").splitlines())
        fates = {name: fate for name, fate in fates_in(tree, path).items() if name in set(picked)}
        missing = [name for name in picked if fates.get(name, "untried") in ("untried", "unsure")]
        if missing:
            raise SystemExit(f"no verdict on {', '.join(missing)}")
        diffs = {name: diff_of(tree, path, name) for name, fate in fates.items() if fate == "survived"}
    return Told(len(names), fates, diffs, killers)


@contextmanager
def copy_of_the_tree() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="keeper-mutation-", ignore_cleanup_errors=True) as folder:
        tree = Path(folder) / "tree"
        tree.mkdir()
        ignored = shutil.ignore_patterns("__pycache__", ".hypothesis")
        for name in TREE:
            shutil.copytree(REPOSITORY / name, tree / name, ignore=ignored)
        for name in (*FILES, "pyproject.toml"):
            shutil.copy2(REPOSITORY / name, tree / name)
        (tree / "tmp").mkdir()
        yield tree


def python(tree: Path, code: str, *args: str) -> str:
    """What a few lines of Python print that use mutmut in the tree, whose configuration it reads from there."""
    done = subprocess.run(
        [sys.executable, "-c", code, *args], cwd=tree, check=True, stdout=subprocess.PIPE, text=True, env=in_tree(tree)
    )
    return done.stdout


def in_tree(tree: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": str(tree / "scripts"),
        "TMPDIR": str(tree / "tmp"),
        "HYPOTHESIS_PROFILE": "ci",
        "KEEPER_MUTATION_LOG": str(tree / "killers.tsv"),
        "KEEPER_MUTATION_TREE": str(tree / "mutants"),
    }


def mutants(tree: Path, path: str) -> list[str]:
    code = """
import sys
from pathlib import Path
from mutmut.mutation.file_mutation import mutate_file_contents
from mutmut.utils.format_utils import get_mutant_name
path = Path(sys.argv[1])
mutated = mutate_file_contents(str(path), path.read_text("utf-8"))
print(*(get_mutant_name(path, name) for name in mutated.mutant_names))
"""
    return python(tree, code, path).split()


def run(tree: Path, names: list[str], log: Path) -> None:
    """mutmut over these mutants, one at a time. Its processes end with this function, however it ends."""
    words = [str(Path(sys.executable).parent / "mutmut"), "run", "--max-children", "1", *names]
    running = subprocess.Popen(
        words, cwd=tree, env=in_tree(tree), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)),
    )  # fmt: skip
    said = b""
    try:
        assert running.stdout is not None
        while part := os.read(running.stdout.fileno(), 1 << 16):
            said = (said + part)[-20_000:]
            told = said.rpartition(b"\r")[2].strip()[:110].decode(errors="replace")
            print(f"\r{told:<110}", end="", file=sys.stderr, flush=True)
        if running.wait() != 0:
            raise SystemExit(f"mutmut ended with {running.returncode}: {said.decode(errors='replace')}")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)


def fates_in(tree: Path, path: str) -> dict[str, str]:
    code = """
import sys
from mutmut.mutation.data import SourceFileMutationData
from mutmut.stats import status_by_exit_code
data = SourceFileMutationData(path=sys.argv[1])
data.load()
for name, code in data.exit_code_by_key.items():
    print(name, status_by_exit_code[code], sep="\\t")
"""
    told = dict(line.split("\t") for line in python(tree, code, path).splitlines())
    known = {"killed": "killed", "survived": "survived", "no tests": "survived", "timeout": "timed out",
             "not checked": "untried", "segfault": "killed"}  # fmt: skip
    return {name: known.get(status, "unsure") for name, status in told.items()}


def diff_of(tree: Path, path: str, name: str) -> str:
    code = """
import sys
from mutmut.mutation.diff_apply import get_diff_for_mutant
print(get_diff_for_mutant(sys.argv[2], path=sys.argv[1]))
"""
    lines = python(tree, code, path, name).splitlines()
    return "\n".join(line for line in lines if re.match(r"[-+](?!--|\+\+)", line))


if __name__ == "__main__":
    sys.exit(main())
