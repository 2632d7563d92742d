"""A `keeper run` of a test's own, in its home, which sees no Claude of this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keeper import wire
from tests.conftest import ALONE_ON_THE_MACHINE

PATIENCE_S = 20.0
"""So long is waited for what comes at once on a quiet machine: no test times anything."""


def until(true: Callable[[], object], what: str, patience_s: float = PATIENCE_S) -> None:
    """Wait until it is so."""
    end = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < end, f"in {patience_s:.0f} s it has not come to be: {what}"
        time.sleep(0.01)


@dataclass(slots=True)
class Running:
    """The agent's process, and the vault that it runs on."""

    process: subprocess.Popen[bytes]
    vault: Path
    log: Path

    def ask(self, **request: object) -> dict[str, Any]:
        answer = wire.ask(str(self.vault), request, PATIENCE_S)
        assert answer is not None, "the agent does not answer"
        return answer

    def status(self) -> dict[str, Any]:
        return self.ask(do="status")

    def kept(self, session: str) -> Path:
        return self.vault / "chats" / session / f"{session}.jsonl"

    def keeps(self, session: str, live: Path) -> bool:
        """Whether kept is live's own inode."""
        return self.kept(session).exists() and self.kept(session).samefile(live)

    def send(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send it that signal and wait; how it ended."""
        self.send(number)
        return self.process.wait(PATIENCE_S)

    def said(self) -> str:
        return self.log.read_text("utf-8", "replace")


@contextmanager
def running(
    environ: Mapping[str, str], *args: str, until_ready: bool = True, sees_running: bool = False, before: str = ""
) -> Iterator[Running]:
    """The agent, ready; it is gone at the end, however the test ends. `sees_running`: it learns profiles from the
    Claude processes of this machine. `before`: code that its process runs first."""
    program = ["-m", "keeper"] if sees_running else ["-c", before + ALONE_ON_THE_MACHINE]
    vault = Path(environ["KEEPER_HOME"])
    log = Path(environ["HOME"]) / f"agent-{time.monotonic_ns()}.err"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, *program, "run", *args],
            env=dict(environ), stdin=subprocess.DEVNULL, stdout=errors, stderr=errors,
        )  # fmt: skip
    agent = Running(process, vault, log)
    try:
        if until_ready:
            until(lambda: ready(agent), "the agent is ready")
        yield agent
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
        process.wait()


def ready(agent: Running) -> bool:
    assert agent.process.poll() is None, agent.said()
    answer = wire.ask(str(agent.vault), {"do": "status"}, 5.0)
    return bool(answer and answer.get("ready"))
