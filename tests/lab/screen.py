"""The CLI on a terminal: one tmux server a process, on a socket of its own, in the lab's namespace.

Promises: nothing of it outlives the `with`: the server runs in the foreground as a child of the test run, is
ended with it, and takes the CLI along.

Refuses: to run without tmux; `missing()` says so by name.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import time
from types import TracebackType
from typing import Self

from .cli import GRACE_S, KEY, Cli
from .waiting import TimedOut, eventually

ENTERS = 4
"""How often Enter is pressed before a prompt is given up."""


def missing() -> str | None:
    """What this machine lacks for a terminal, by name; None if nothing."""
    return None if shutil.which("tmux") else "tmux"


def greeted(cli: Cli) -> None:
    """Leave the home as after the CLI's first start: theme chosen, key and folder approved."""
    cli.home.mkdir(parents=True, exist_ok=True)
    # Without the list 1.0.124 does not start.
    project = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True, "allowedTools": []}
    state = {
        "hasCompletedOnboarding": True,
        "lastOnboardingVersion": "9.9.9",
        "theme": "dark",
        "numStartups": 5,
        "autoUpdates": False,
        "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
        "projects": {str(cli.cwd): project},
    }
    (cli.home / ".claude.json").write_text(json.dumps(state))


class Screen:
    """One interactive process of the CLI."""

    def __init__(self, cli: Cli, *arguments: str) -> None:
        greeted(cli)
        self._socket = cli.lab.folder / f"tmux-{time.monotonic_ns()}"
        environment = cli.environment()
        self._tmux = ["tmux", "-S", str(self._socket), "-f", "/dev/null"]
        self._environment = {name: environment[name] for name in ("PATH", "HOME", "TERM", "LANG", "TMPDIR")}
        # In the foreground (-D): a server that daemonises would have no parent to die with.
        self._server = subprocess.Popen(
            [*cli.lab.enter(), *self._tmux, "-D"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        eventually("the tmux server's socket", self._socket.exists)
        command = f"exec {shlex.join(cli.argv(*arguments))}"
        pane = ("-P", "-F", "#{pane_pid}", "-x", "150", "-y", "50", "-c", str(cli.cwd), command)
        self._cli = os.pidfd_open(int(self._do("new-session", "-d", *pane)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, why: BaseException | None, at: TracebackType | None) -> None:
        self._server.terminate()
        try:
            self._server.wait(GRACE_S)
            # The CLI hears a hang-up, and may write its last records.
            if not select.select([self._cli], [], [], GRACE_S)[0]:
                raise TimedOut(f"still there {GRACE_S:.0f} s after its terminal went")
        finally:
            self._server.kill()
            self._server.wait()
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._cli, signal.SIGKILL)
            os.close(self._cli)
            self._socket.unlink(missing_ok=True)

    def seen(self) -> str:
        """What stands on the screen."""
        return self._do("capture-pane", "-p")

    def wait(self, pattern: str, timeout_s: float = 20.0) -> None:
        """Wait until a pattern stands on the screen. Raises TimedOut, with the screen."""
        try:
            eventually(pattern, lambda: re.search(pattern, self.seen()), timeout_s)
        except TimedOut as why:
            raise TimedOut(f"{why}\n{self.seen()}") from None

    def type(self, line: str) -> None:
        """Say one line."""
        self._submit("send-keys", "-l", line)

    def answer(self, word: str) -> None:
        """Answer what a program asks before the CLI has the terminal."""
        self._do("send-keys", word, "Enter")

    def paste(self, text: str) -> None:
        """Say several lines as one prompt."""
        self._do("set-buffer", text)
        self._submit("paste-buffer", "-p")

    def rewind(self) -> None:
        """/rewind to before the last prompt, files and conversation; the prompt is there again, to be edited."""
        self.type("/rewind")
        self.wait(r"❯ \(current\)")
        self._do("send-keys", "Up")
        self.wait(r"(?m)^ +❯ (?!\(current\))")
        self._do("send-keys", "Enter")
        self.wait(restore := "❯ 1. Restore code and conversation")
        self._do("send-keys", "Enter")
        eventually("the old prompt", lambda: restore not in self.seen() and self._prompt())

    def rub_out(self) -> None:
        """Empty the prompt."""

        def emptied() -> bool:
            self._do("send-keys", *("C-u", "BSpace") * 4)  # A line each, from the last one up.
            time.sleep(0.5)  # What is still being drawn would pass for an empty prompt.
            return self._prompt() == ""

        eventually("an empty prompt", emptied)

    def _submit(self, *command: str) -> None:
        """Put text in, and press Enter until it is taken: a busy CLI drops keys."""
        before = self._prompt()
        self._do(*command)
        typed = eventually("the text in the prompt", lambda: (now := self._prompt()) != before and now)
        for _ in range(ENTERS):
            self._do("send-keys", "Enter")
            with contextlib.suppress(TimedOut):
                eventually("the prompt to be taken", lambda: self._ended() or self._prompt() != typed, 5.0)
                return
            if self._ended():  # /exit: between the two looks.
                return
        raise TimedOut(f"{ENTERS} times Enter and still there: {typed}\n{self.seen()}")

    def _prompt(self) -> str:
        """What stands in the line for the next prompt (the first line of it)."""
        seen = self.seen().splitlines()
        for sign in ("❯", ">"):  # The second up to 2.0.14 at least.
            if lines := [line for line in seen if line.startswith(sign)]:
                return lines[-1].removeprefix(sign).strip()
        return ""

    def leave(self) -> None:
        """/exit, and wait until the process is gone."""
        self.type("/exit")
        eventually("the CLI to end", self._ended)

    def _ended(self) -> bool:
        listed = [*self._tmux, "list-panes", "-a"]
        # With its last pane gone the server answers with nothing, or that there is no target.
        return not subprocess.run(listed, env=self._environment, capture_output=True, check=False).stdout.strip()

    def _do(self, *command: str) -> str:
        done = subprocess.run(
            [*self._tmux, *command], env=self._environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise TimedOut(f"tmux {command[0]}: {done.stderr.strip()}")
        return done.stdout
