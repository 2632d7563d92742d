"""Drives the real CLI offline, with a home of its own, a minimal environment and a dummy key.

Promises: `Cli.run` for one process to its end, `Cli.talk` for a process over several turns; both answer what
the CLI asked the stub API meanwhile. Nothing of the caller's environment is passed on.

Refuses: to wait for ever; every wait has a limit and says what it waited for.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from . import install
from .namespace import Lab
from .stub_api import PORT, Asked
from .waiting import TimedOut, eventually

KEY = "dummy-key-for-offline-tests"
GRACE_S = 10.0
"""How long a process that was told to end may take."""
DAY_S = 86400.0
PAST_RETENTION_DAYS = 40.0
"""Older than the 30 days after which the CLI deletes by default."""


def folder_name(cwd: Path) -> str:
    """The project folder of a short ASCII cwd: written anew, lest keeper's rule be tested by itself."""
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in str(cwd))


def conversation(requests: list[Asked]) -> Asked:
    """The last request of the conversation itself: those for a title offer no tools."""
    return [request for request in requests if request.tools][-1]


@dataclass(frozen=True, slots=True)
class Run:
    """What one finished process of the CLI said and asked."""

    code: int
    out: str
    err: str
    requests: list[Asked]

    @property
    def history(self) -> Asked:
        return conversation(self.requests)


@dataclass(frozen=True, slots=True)
class Turn:
    """The end of one turn of a running process."""

    session: str
    answer: str
    requests: list[Asked]

    @property
    def history(self) -> Asked:
        return conversation(self.requests)


@dataclass(frozen=True, slots=True)
class Cli:
    """One version of the CLI with one home and one working directory."""

    lab: Lab
    version: str
    home: Path
    cwd: Path
    extra: tuple[tuple[str, str], ...] = ()

    @property
    def profile(self) -> Path:
        return self.home / ".claude"

    def at(self, cwd: Path) -> Cli:
        return replace(self, cwd=cwd)

    def with_env(self, **extra: str) -> Cli:
        return replace(self, extra=(*self.extra, *extra.items()))

    def project(self, cwd: Path | None = None) -> Path:
        return self.profile / "projects" / folder_name(cwd or self.cwd)

    def transcript(self, session: str, cwd: Path | None = None) -> Path:
        return self.project(cwd) / f"{session}.jsonl"

    def companion(self, session: str, cwd: Path | None = None) -> Path:
        return self.project(cwd) / session

    def places(self, session: str) -> list[Path]:
        """Every transcript of that name in the profile, whatever its project."""
        return sorted(self.profile.glob(f"projects/*/{session}.jsonl"))

    def environment(self) -> dict[str, str]:
        """All that the CLI gets to know of this machine."""
        path = ["/usr/local/bin", "/usr/bin", "/bin"]
        if node := shutil.which("node"):  # JavaScript bundles (up to 2.1.112) need it, wherever it stands.
            path.append(str(Path(node).parent))
        temporary = self.home / "tmp"
        for folder in (self.cwd, temporary):
            folder.mkdir(parents=True, exist_ok=True)
        return {
            "HOME": str(self.home),
            "PATH": ":".join(["/usr/local/bin", "/usr/bin", "/bin", *([str(Path(node).parent)] if node else [])]),
            "TMPDIR": str(temporary),
            "CLAUDE_CODE_TMPDIR": str(temporary),
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            "SHELL": "/bin/bash",
            "ANTHROPIC_API_KEY": KEY,
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{PORT}",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "IS_SANDBOX": "1",
            **dict(self.extra),
        }

    def argv(self, *arguments: str) -> list[str]:
        return [str(install.binary(self.version)), *arguments]

    def run(self, *arguments: str, timeout_s: float = 60.0) -> Run:
        """Run the CLI to its end, with nothing on its stdin."""
        mark = self.lab.mark()
        environment = self.environment()
        done = subprocess.run(
            [*self.lab.enter(), *self.argv(*arguments)],
            cwd=self.cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        return Run(done.returncode, done.stdout.strip(), done.stderr.strip(), self.lab.requests(mark))

    def say(self, prompt: str, *arguments: str) -> Run:
        """One prompt, one process (`claude -p`), which must succeed."""
        done = self.run("-p", prompt, *arguments)
        assert done.code == 0, f"claude {' '.join(arguments)} ended with {done.code}: {done.err} {done.out}"
        return done

    def resume(self, session: str, *arguments: str, prompt: str = "@@recall") -> Run:
        """Resume in a process of its own; whether it succeeds is the caller's to judge."""
        return self.run("-p", prompt, "--resume", session, *arguments)

    def talk(self, *arguments: str) -> Talk:
        """A process that stays between turns."""
        return Talk(self, *arguments)

    def set(self, **settings: object) -> None:
        """Write the profile's settings.json."""
        self.profile.mkdir(parents=True, exist_ok=True)
        (self.profile / "settings.json").write_text(json.dumps(settings))


class Talk:
    """One process of the CLI over several turns (stream-json on both sides). Its `with` ends it."""

    def __init__(self, cli: Cli, *arguments: str) -> None:
        self._cli = cli
        stream = ("-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose")
        environment = cli.environment()
        self._process = subprocess.Popen(
            [*cli.lab.enter(), *cli.argv(*stream, *arguments)],
            cwd=cli.cwd,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._said: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, why: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self.kill()

    @property
    def pid(self) -> int:
        return self._process.pid

    def turn(self, prompt: str, timeout_s: float = 40.0) -> Turn:
        """Say something and wait for the end of the turn."""
        mark = self._cli.lab.mark()
        assert self._process.stdin is not None
        message = {"type": "user", "message": {"role": "user", "content": prompt}}
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()
        end = time.monotonic() + timeout_s
        while True:
            event = self._next(prompt, end)
            if event.get("type") == "result":
                requests = self._cli.lab.requests(mark)
                return Turn(event["session_id"], str(event.get("result", "")), requests)

    def close(self) -> None:
        """End its input, so that it ends by itself as after the last prompt of a pipe."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            with contextlib.suppress(BrokenPipeError):  # It has ended already.
                self._process.stdin.close()
        try:
            self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            raise TimedOut(f"still there {GRACE_S:.0f} s after the end of its input") from None
        finally:
            self.kill()

    def kill(self) -> None:
        """SIGKILL, unless it has ended: no hook, no last record."""
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # What was still to be flushed has no reader any more.
                self._process.stdin.close()
        self._reader.join(GRACE_S)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as out:
            for line in out:
                self._said.put(line)
        self._said.put(None)

    def _next(self, prompt: str, end: float) -> dict[str, Any]:
        try:
            line = self._said.get(timeout=max(0.0, end - time.monotonic()))
        except queue.Empty:
            raise TimedOut(f"no end of the turn {prompt[:80]!r}") from None
        if line is None:
            raise TimedOut(f"the process ended in the turn {prompt[:80]!r}")
        try:
            event = json.loads(line)
        except ValueError:
            return {}  # A warning of its own.
        return event if isinstance(event, dict) else {}


def sweep(cli: Cli, gone: Iterable[Path], *, retention_days: int | None = None) -> None:
    """Have the CLI's own clean-up run, in a process of another project, until these files are gone.

    Needs a CLI that sweeps 5 to 6 s after a start without a terminal (2.1.140 and later).
    """
    (cli.profile / ".last-cleanup").unlink(missing_ok=True)
    if retention_days is not None:
        cli.set(cleanupPeriodDays=retention_days)
    files = list(gone)
    with cli.at(cli.home / "elsewhere").talk():
        eventually(f"the sweep of {files}", lambda: not any(file.exists() for file in files), 30.0)


def age(*files: Path, days: float = PAST_RETENTION_DAYS) -> None:
    """Set files and folders back in time, as if nobody had touched them for so long."""
    then = time.time() - days * DAY_S
    for file in files:
        os.utime(file, (then, then), follow_symlinks=False)


def records(transcript: Path) -> Iterator[dict[str, Any]]:
    """The records of a transcript that parse as JSON objects."""
    for line in transcript.read_bytes().split(b"\n"):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            yield record
