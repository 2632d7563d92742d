"""One network namespace with loopback alone, the stub API in it, and everything that runs there.

Promises: closing a `Lab`, which its `with` does also when a test fails, ends every process that still has the
namespace, wherever it went (a tool's shell, a tmux server), and raises `LeftBehind` naming those that should
have ended by themselves. A killed test run takes them along: the stub ends with its stdin, the rest by the
death of their parent.

Refuses: to start where the machine lacks what it takes; `missing()` says what, by name.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from .stub_api import Asked

REPOSITORY = Path(__file__).resolve().parents[2]


class LeftBehind(AssertionError):
    """Processes were still in the namespace when all should have ended."""


def missing() -> str | None:
    """What this machine lacks for a lab, by name; None if nothing."""
    for program in ("unshare", "nsenter", "setpriv"):
        if shutil.which(program) is None:
            return f"{program} (package util-linux)"
    tried = subprocess.run([*_unshare(), "true"], capture_output=True, text=True, check=False)
    return f"network namespaces ({tried.stderr.strip()})" if tried.returncode else None


def _unshare() -> list[str]:
    return ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-r", "-n"]


GRACE_S = 3.0
"""So long may what a test started go on after it, to end by itself."""


class Lab:
    """One network namespace with the stub API in it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._log = folder / "requests.jsonl"
        self._log.touch()
        with open(folder / "stub.err", "w") as errors:
            self._stub = subprocess.Popen(
                [*_unshare(), sys.executable, "-m", "tests.lab.stub_api", "--log", str(self._log)],
                cwd=REPOSITORY,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert self._stub.stdout is not None
        if self._stub.stdout.readline() != "ready\n":
            self._end_stub()
            raise RuntimeError(f"the stub API did not start: {(folder / 'stub.err').read_text()}")
        self._namespace = os.readlink(f"/proc/{self._stub.pid}/ns/net")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, why: BaseException | None, at: TracebackType | None) -> None:
        left = self.end_all()
        self._end_stub()
        if left and kind is None:
            raise LeftBehind(", ".join(left))

    def enter(self) -> list[str]:
        """The words in front of a command that is to run in the namespace and to die with its starter."""
        user = [] if os.geteuid() == 0 else ["-U", "--preserve-credentials"]
        return ["nsenter", *user, "-n", "-t", str(self._stub.pid), "setpriv", "--pdeathsig", "KILL"]

    def mark(self) -> int:
        """A place in the log of requests, for `requests`."""
        return self._log.stat().st_size

    def requests(self, since: int = 0) -> list[Asked]:
        """What the CLI asked the model after that mark."""
        with open(self._log, encoding="utf-8") as log:
            log.seek(since)
            entries = [json.loads(line) for line in log]
        found = [entry["request"] for entry in entries if entry["path"] == "/v1/messages"]
        return [Asked(**{**entry, "words": tuple(entry["words"])}) for entry in found]

    def inhabitants(self) -> dict[int, str]:
        """The processes in the namespace but for the stub: pid and command line."""
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == self._stub.pid:
                continue
            try:
                if os.readlink(entry / "ns/net") == self._namespace:
                    words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    found[int(entry.name)] = words[:160].strip()
            except OSError:
                continue  # It ended while we looked, or is another user's.
        return {pid: words for pid, words in found.items() if words}  # A zombie has no words.

    def end_all(self) -> list[str]:
        """Kill what still has the namespace; answer what it was. What is about to end by itself (a git that the CLI
        had just asked something) is given a moment to."""
        end = time.monotonic() + GRACE_S
        while (left := self.inhabitants()) and time.monotonic() < end:
            time.sleep(0.05)
        while now := self.inhabitants():
            for pid in now:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        return [f"{pid}: {words}" for pid, words in left.items()]

    def _end_stub(self) -> None:
        self._stub.kill()
        self._stub.communicate()
