"""Journal: the agent's log: what happened, when, and what it costs nobody to read at night.

It promises at most `A_MINUTE` lines in a minute, with the number of those that were left out, and files of bounded
size. It refuses transcript text: it is given names, counts and reasons.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from loguru import logger

from keeper import disk

A_MINUTE = 10
"""So many lines are written in a minute at most (AGENT-2)."""


class Journal:
    """The log, bounded. `clock` gives seconds and only goes forward."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.begun = clock()
        self.written = 0
        self.left_out = 0

    def tell(self, text: str) -> None:
        """A line; beyond the bound it is counted only."""
        if self.clock() - self.begun >= 60:
            left_out, self.left_out = self.left_out, 0
            self.begun, self.written = self.clock(), 1 if left_out else 0
            if left_out:
                logger.info(f"{left_out} lines were left out in the minute before")
        if self.written < A_MINUTE - 1:
            self.written += 1
            logger.info(text)
        else:
            self.left_out += 1


def open_log(folder: Path, to_stderr: bool) -> None:
    """Write to `agent.log` in that folder, at most four files of 2 MB and nobody else's to read; to stderr too, where a
    person or journald reads."""
    disk.ensure_dir(folder)
    shape = "{time:YYYY-MM-DD HH:mm:ss} {message}"
    logger.remove()
    logger.add(
        folder / "agent.log", format=shape, rotation="2 MB", retention=3, diagnose=False, backtrace=False,
        encoding="utf-8", delay=True, catch=True, opener=disk.opener,
    )  # fmt: skip
    if to_stderr:
        # By its name at each line: what shows progress puts itself in its place meanwhile.
        logger.add(
            lambda line: print(line, end="", file=sys.stderr, flush=True), format="{message}", diagnose=False,
            backtrace=False, colorize=False, catch=True,
        )  # fmt: skip
