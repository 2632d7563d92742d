"""Asks: what signals, doors and other threads want of the agent's loop.

It promises that a signal's handler may ask at any instant, also in the middle of the loop's own wait: nothing here
takes a lock. It refuses to answer: the loop does, in its next turn.
"""

from __future__ import annotations

import select
import socket
from collections import deque
from contextlib import suppress


class Asks:
    """Words for the loop. What is asked for several times before its turn is asked for once."""

    def __init__(self) -> None:
        self._words: deque[str] = deque()
        self._hears, self._wakes = socket.socketpair()
        for end in (self._hears, self._wakes):
            end.setblocking(False)

    def ask(self, word: str) -> None:
        """Wake the loop with this word."""
        self._words.append(word)
        with suppress(OSError):  # so many wake it already that no more go in; or it has ended
            self._wakes.send(b".")

    def wait(self, seconds: float) -> set[str]:
        """What was asked for, at once; else what is asked for within so many seconds."""
        if not self._words:
            select.select([self._hears], [], [], seconds)
        with suppress(BlockingIOError):
            self._hears.recv(65536)
        words = set()
        while self._words:
            words.add(self._words.popleft())
        return words

    def close(self) -> None:
        """Nobody is woken any more."""
        self._hears.close()
        self._wakes.close()
