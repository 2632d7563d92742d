#!/usr/bin/env python3
"""Tries keeper with any published version of the Claude Code CLI: one row each.

    scripts/try_cli.py VERSION …          for example: scripts/try_cli.py 2.1.61 2.1.332

Promises: installs a version by npm where the tests' own are (`tests/lab/install.py`), has it hold a conversation
offline against the stub API, and says in its row what held: kept; deleted by the CLI's own clean-up; refused without
keeper; whole again after `keeper restore`, also for a fork; folded after it was recreated under a live process; two
chats after /clear. Ends with 1 if anything did not hold, and says why.

Refuses: to tell a version that does not do a thing at all (marked –) from one with which keeper works.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from tests.lab import footprint, install, stories  # noqa: E402
from tests.lab.cli import Cli, age, sweep  # noqa: E402
from tests.lab.namespace import Lab, missing  # noqa: E402
from tests.lab.waiting import TimedOut, quiet  # noqa: E402

SESSION = "00000001-0000-4000-8000-000000000001"
FORK = "00000002-0000-4000-8000-000000000002"
RECREATED = "00000003-0000-4000-8000-000000000003"
CLEARED = "00000004-0000-4000-8000-000000000004"
NOT_DONE = "–"
STORY = stories.Story(("one", "two", "three"), ("tool-42",))


@dataclass(frozen=True, slots=True)
class Try:
    """One version at work, with a vault of its own."""

    cli: Cli
    vault: Path

    def keeper(self, *arguments: str) -> str:
        """Run keeper, which must succeed; answer its stdout."""
        done = subprocess.run(
            [sys.executable, "-m", "keeper", *arguments],
            cwd=REPOSITORY,
            env={
                "HOME": str(self.cli.home),
                "PATH": os.defpath,
                "KEEPER_HOME": str(self.vault),
                "CLAUDE_CONFIG_DIR": str(self.cli.profile),
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"keeper {' '.join(arguments)}: {done.returncode} {done.stderr.strip()}"
        return done.stdout

    def kept(self, session: str) -> Path:
        return self.vault / "chats" / session / f"{session}.jsonl"


def kept(trial: Try) -> str:
    with trial.cli.talk("--session-id", SESSION, "--allowedTools", "Bash") as talk:
        talk.turn("WORD=one @@say one")
        talk.turn('WORD=two\n@@tool Bash {"command":"echo tool-$((6*7))"}\n@@say two')
        quiet(trial.cli.transcript(SESSION))
    trial.cli.say("WORD=three @@say three", "--resume", SESSION)
    trial.keeper("keep")
    same = trial.kept(SESSION).samefile(quiet(trial.cli.transcript(SESSION)))
    assert same, "the kept file is not the live one"
    return "linked"


def swept(trial: Try) -> str:
    age(*footprint.everything(trial.cli))
    started = time.monotonic()
    try:
        sweep(trial.cli, [trial.cli.transcript(SESSION)])
    except TimedOut:
        footprint.delete(trial.cli, SESSION)
        return f"not in {time.monotonic() - started:.0f} s"
    return f"in {time.monotonic() - started:.0f} s"


def refused(trial: Try) -> str:
    done = trial.cli.resume(SESSION)
    assert done.code == 1, f"code {done.code}"
    assert "No conversation found" in done.err, done.err
    return "yes"


def resumed(trial: Try) -> str:
    trial.keeper("restore", SESSION)
    _whole(STORY, trial, SESSION)
    return "whole"


def forked(trial: Try) -> str:
    fork = trial.cli.resume(SESSION, "--fork-session", prompt="WORD=four @@recall")
    if "unknown option" in fork.err:
        return NOT_DONE
    lost = STORY.then("four").lost(fork.history)
    assert not lost, lost
    return "whole"


def recreated(trial: Try) -> str:
    live = trial.cli.transcript(RECREATED)
    with trial.cli.talk("--session-id", RECREATED) as talk:
        talk.turn("WORD=a @@say a")
        quiet(live)
        trial.keeper("keep")
        live.unlink()
        talk.turn("WORD=b @@say b")
        quiet(live)
        trial.keeper("keep")
        assert trial.kept(RECREATED).samefile(live), "not folded"
        talk.turn("WORD=c @@say c")
        quiet(live)
    trial.keeper("restore", RECREATED)
    _whole(stories.Story(("a", "b", "c")), trial, RECREATED)
    return "whole"


def cleared(trial: Try) -> str:
    with trial.cli.talk("--session-id", CLEARED) as talk:
        talk.turn("WORD=before @@say one")
        talk.turn("/clear")
        after = talk.turn("WORD=after @@say two").session
        quiet(trial.cli.transcript(after))
    if after == CLEARED:
        return NOT_DONE
    trial.keeper("keep")
    assert trial.kept(CLEARED).exists() and trial.kept(after).exists(), "not two chats"
    return "two chats"


def _whole(story: stories.Story, trial: Try, session: str) -> None:
    again = trial.cli.resume(session)
    assert again.code == 0, again.err
    lost = story.lost(again.history)
    assert not lost, lost


CHECKS: tuple[Callable[[Try], str], ...] = (kept, swept, refused, resumed, forked, recreated, cleared)
WIDTH = 14


def row(version: str) -> list[str]:
    """Print a version's row; answer what did not hold."""
    print(f"{version:{WIDTH}}", end="", flush=True)
    wrong = []
    with tempfile.TemporaryDirectory() as place, Lab(Path(place) / "lab") as lab:
        trial = Try(Cli(lab, version, Path(place) / "home", Path(place) / "work"), Path(place) / "vault")
        for check in CHECKS:
            try:
                said = check(trial)
            except (AssertionError, OSError, IndexError, subprocess.TimeoutExpired) as why:
                said = "NO"
                wrong.append(f"{version}: {check.__name__}: {type(why).__name__} {why}".strip())
            print(f"{said:{WIDTH}}", end="", flush=True)
        lab.end_all()
    print()
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("versions", nargs="+", metavar="VERSION")
    versions = parser.parse_args().versions
    if lack := missing():
        raise SystemExit(f"this machine lacks {lack}")
    print("".join(f"{name:{WIDTH}}" for name in ("version", *(check.__name__ for check in CHECKS))))
    wrong = []
    for version in versions:
        try:
            install.install(version)
        except install.CannotInstall as why:
            print(f"{version:{WIDTH}}cannot be installed")
            wrong.append(f"{version}: {why}")
            continue
        wrong += row(version)
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
