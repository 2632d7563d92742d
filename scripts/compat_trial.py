"""Trial: one version of the real CLI at work for `scripts/compat.py`, with homes of its own and keeper at hand.

Promises: each question gets a fresh home and a fresh working directory, so that no answer hangs on the one before;
keeper runs from this repository, in that home, with a vault of its own.

Refuses: to use session ids that the tests use, since keeper looks into the profiles of running processes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from tests.lab.cli import Cli  # noqa: E402
from tests.lab.namespace import Lab  # noqa: E402
from tests.lab.stories import SUBAGENT  # noqa: E402
from tests.lab.waiting import quiet  # noqa: E402

Answers = Iterator[tuple[str, str]]
"""Column, answer: what a question finds, as it finds it."""

CALLS = f"@@tool Agent {json.dumps(SUBAGENT)}\n@@tool Task {json.dumps(SUBAGENT)}"
"""A subagent by both names that its tool has had; the CLI answers the one that it does not know with an error."""
LONG_OUTPUT = '@@tool Bash {"command":"seq 1 9000"}'
ALLOWED = ("--permission-mode", "default", "--allowedTools", "Bash,Agent,Task")
"""Said by name: 2.1.296 would ask the API else whether a subagent is safe, which the stub does not judge."""


def session(number: int) -> str:
    """A session id for these trials alone."""
    return f"{number:08d}-c0de-4000-8000-{number:012d}"


@dataclass(frozen=True, slots=True)
class Home:
    """One home of the CLI, and keeper in it."""

    cli: Cli
    vault: Path

    def environment(self) -> dict[str, str]:
        """All that keeper gets to know of this machine."""
        home = self.cli.home
        return {
            "HOME": str(home),
            "PATH": self.cli.environment()["PATH"],
            "PYTHONPATH": str(REPOSITORY),
            "KEEPER_HOME": str(self.vault),
            "XDG_DATA_HOME": str(home / ".local" / "share"),
            "XDG_STATE_HOME": str(home / ".local" / "state"),
            "XDG_CONFIG_HOME": str(home / ".config"),
        }

    def keeper(self, *arguments: str) -> str:
        """Run keeper, which must succeed; answer its stdout."""
        done = subprocess.run(
            [sys.executable, "-m", "keeper", *arguments],
            cwd=REPOSITORY,
            env={**self.environment(), "CLAUDE_CONFIG_DIR": str(self.cli.profile)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"keeper {' '.join(arguments)}: {done.returncode} {done.stderr.strip()}"
        return done.stdout

    def kept(self, session: str) -> Path:
        return self.vault / "chats" / session / f"{session}.jsonl"


@dataclass(frozen=True, slots=True)
class Trial:
    """One version, with a place for its homes."""

    lab: Lab
    version: str
    place: Path
    patient: bool = False
    """Whether to wait for a clean-up that comes after ten minutes."""

    def home(self, name: str) -> Home:
        root = self.place / name
        cli = Cli(self.lab, self.version, root / "home", root / "work")
        cli.environment()  # makes both folders
        return Home(cli, root / "vault")


Question = Callable[[Trial], Answers]


def records(path: Path) -> list[dict[str, Any]]:
    """The records of a transcript; a line that holds none is an empty one."""
    found = []
    for line in path.read_bytes().splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            record = {}
        found.append(record if isinstance(record, dict) else {})
    return found


def uuids(found: Iterable[dict[str, Any]]) -> list[str]:
    return [record["uuid"] for record in found if record.get("uuid")]


def transcripts(cli: Cli) -> list[Path]:
    """The transcripts of the profile that are more than noise: a chat's records are in them."""
    talks = []
    for path in sorted(cli.profile.glob("projects/*/*.jsonl")):
        if not path.name.startswith("agent-") and any(one.get("type") == "assistant" for one in records(path)):
            talks.append(path)
    return talks


def two_turns(cli: Cli, session: str) -> Path:
    """A short conversation (words one, two) in one process; answer its transcript."""
    with cli.talk("--session-id", session) as talk:
        for word in ("one", "two"):
            talk.turn(f"WORD={word} @@say heard {word}")
        quiet(cli.transcript(session))
    return cli.transcript(session)


def agents_beside(cli: Cli, session: str) -> list[Path]:
    """The `agent-*.jsonl` files in the project folder whose first record names the session: those of a throw-away
    session (warm-ups, 2.0.76) are noise."""
    found = sorted(cli.project().glob("agent-*.jsonl"))
    return [one for one in found if records(one)[0].get("sessionId") == session]


def among(words: Iterable[str], wanted: Iterable[str]) -> bool:
    """Whether all that is wanted is there, in that order, each once."""
    wanted = tuple(wanted)
    return tuple(word for word in words if word in wanted) == wanted
