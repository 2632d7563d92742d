#!/usr/bin/env python3
"""Asks any published version of the Claude Code CLI what keeper assumes of it: one row each, what drifted named.

    scripts/compat.py VERSION …             for example: scripts/compat.py 2.1.61 2.1.332
    scripts/compat.py --write VERSION …     puts the rows into docs/compatibility.md too

Promises: each version is installed where the tests' own are (`tests/lab/install.py`), and driven offline against the
stub API in homes of its own. What it was seen to do stands in its row, and what differs from what keeper assumes of
that version (`scripts/compat_assumed.py`) is named at the end. Prints ONE closing line on stdout: versions, answers,
drifted; ends with 1 if anything drifted or could not be asked.

Refuses: to leave a cell empty; what could not be seen in the time that its question takes is told as –.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import compat_page
from compat_assumed import COLUMNS, GROUPS, NOT_ASKED, OLDEST, drifted
from compat_trial import Question, Trial

from keeper.claude import version_of
from tests.lab import install
from tests.lab.namespace import Lab, missing

QUESTIONS = {question.__name__: question for group in GROUPS for question in group.questions}
CLONE_NEWNS = 0x00020000
FAILURES = (AssertionError, OSError, IndexError, ValueError, KeyError, StopIteration, subprocess.TimeoutExpired)


def ask(
    version: str, questions: Iterable[Question], place: Path, *, patient: bool = False
) -> tuple[dict[str, str], list[str]]:
    """What a version answers, by column; and why a question could not be asked to its end, a line each."""
    answers: dict[str, str] = {}
    why_not = []
    with Lab(place / "lab") as lab:
        trial = Trial(lab, version, place, patient)
        for question in questions:
            began = time.monotonic()
            try:
                for column, answer in question(trial):
                    answers[column] = " ".join(answer.split()).replace("|", "/")
            except FAILURES as why:
                why_not.append(f"{version}: {question.__name__}: {type(why).__name__} {why}".strip())
            lab.end_all()
            print(f"{version}  {question.__name__}  {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return answers, why_not


@contextlib.contextmanager
def place_alone(leave: Path | None = None) -> Iterator[Path]:
    """A folder for one version's homes; a new folder in `leave` gets a copy of all at the end.

    Where root may mount, it is a file system that this process and its children alone have: an agent of keeper's that
    runs on the machine looks for the profiles of running Claudes, and would keep these.
    """
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        mounted = os.geteuid() == 0 and _mount_alone(place)
        try:
            yield place
            if leave is not None:
                leave.mkdir(parents=True, exist_ok=True)
                shutil.copytree(place, tempfile.mkdtemp(dir=leave), symlinks=True, dirs_exist_ok=True)
        finally:
            if mounted:
                subprocess.run(["umount", "-l", place], check=True)


def _mount_alone(folder: Path) -> bool:
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS) != 0:
        return False
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    return subprocess.run(["mount", "-t", "tmpfs", "none", folder], check=False).returncode == 0


def row(version: str, answers: dict[str, str]) -> str:
    """The answers by group, for a terminal."""
    lines = [version]
    for group in GROUPS:
        told = [f"{column.name}: {answers[column.name]}" for column in group.columns if column.name in answers]
        if told:
            lines.append(f"  {group.name:42}{' · '.join(told)}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0], epilog="Example: scripts/compat.py --write 2.1.61 2.1.332"
    )
    parser.add_argument("versions", nargs="+", metavar="VERSION")
    parser.add_argument("--write", action="store_true", help="put the rows into docs/compatibility.md")
    parser.add_argument("--only", nargs="+", choices=QUESTIONS, metavar="QUESTION", help=f"of {', '.join(QUESTIONS)}")
    parser.add_argument("--patient", action="store_true", help="wait for a clean-up that comes after ten minutes")
    parser.add_argument("--leave", type=Path, metavar="FOLDER", help="leave a copy of all homes there, to look into")
    given = parser.parse_args()
    if lack := missing():
        raise SystemExit(f"this machine lacks {lack}")
    found: dict[str, dict[str, str]] = {}
    wrong: list[str] = []
    for version in sorted(given.versions, key=version_of):
        try:
            install.install(version)
        except install.CannotInstall as why:
            wrong.append(f"{version}: cannot be installed: {why}")
            continue
        chosen = [QUESTIONS[name] for name in given.only or QUESTIONS]
        with place_alone(given.leave) as place:
            answers, why_not = ask(version, chosen, place, patient=given.patient)
        if not given.only:
            answers = {column.name: answers.get(column.name, "?" if why_not else NOT_ASKED) for column in COLUMNS}
        found[version] = answers
        wrong += why_not
        wrong += [f"{version}: {name}: {said}" for name, said in drifted(version, answers).items()]
        print(row(version, answers), flush=True)
        if version_of(version) < version_of(OLDEST):
            print(f"{version}: before {OLDEST}: kept and restored, never folded; not in the page", file=sys.stderr)
        elif given.write:
            compat_page.write({**compat_page.read(), version: {**compat_page.read().get(version, {}), **answers}})
    for line in wrong:
        print(line, file=sys.stderr)
    print(f"{len(found)} versions, {sum(map(len, found.values()))} answers, {len(wrong)} drifted")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
