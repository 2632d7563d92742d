"""Server: answers the doors over the socket in the vault: one line up, one line down.

It promises that a door which sends rubbish, or hangs, or goes away costs one thread for a while and nothing else. It
refuses more than `AT_ONCE` at one time: whoever gets no answer does the work by itself.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from keeper import disk, wire

AT_ONCE = 32
PATIENCE_S = 10.0

Answer = Callable[[dict[str, Any]], dict[str, Any]]


class Server:
    """The socket, listened at. `answer` is called in a thread for each request."""

    def __init__(self, vault: Path, answer: Answer) -> None:
        self.vault = vault
        self.answer = answer
        self.free = threading.Semaphore(AT_ONCE)
        self.socket: socket.socket | None = None
        self.ended = threading.Event()
        self.place = (0, 0)

    def start(self) -> None:
        """Take the name, and listen. The lock of the agent is held: a name that stands there is a dead one's."""
        disk.drop(self.vault / wire.NAME)
        self.socket = listener = socket.socket(socket.AF_UNIX)
        folder = os.open(self.vault, os.O_PATH | os.O_DIRECTORY)
        try:
            listener.bind(wire.address(folder))
        finally:
            os.close(folder)
        disk.set_mode(self.vault / wire.NAME, 0o600)
        seen = os.lstat(self.vault / wire.NAME)
        self.place = seen.st_dev, seen.st_ino
        listener.listen(AT_ONCE)
        threading.Thread(target=self._listen, args=(listener,), name="doors", daemon=True).start()

    def reachable(self) -> bool:
        """Whether the name still leads here."""
        try:
            seen = os.lstat(self.vault / wire.NAME)
        except OSError:
            return False
        return (seen.st_dev, seen.st_ino) == self.place

    def stop(self) -> None:
        """No more doors."""
        self.ended.set()
        if self.socket is not None:
            with suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)
            self.socket.close()
        if self.reachable():
            disk.drop(self.vault / wire.NAME)

    def _listen(self, listener: socket.socket) -> None:
        while not self.ended.is_set():
            try:
                line, _ = listener.accept()
            except OSError:
                if self.ended.is_set():
                    return
                self.ended.wait(0.1)  # no descriptor is free: they come back
                continue
            if not self.free.acquire(blocking=False):
                line.close()
                continue
            threading.Thread(target=self._serve, args=(line,), name="door", daemon=True).start()

    def _serve(self, line: socket.socket) -> None:
        try:
            with line:
                line.settimeout(PATIENCE_S)
                request = orjson.loads(wire.receive(line))
                if isinstance(request, dict):
                    # By `json`: a name that is no UTF-8 is escaped.
                    line.sendall(json.dumps(self.answer(request)).encode() + b"\n")
        except (OSError, ValueError, TypeError):
            return
        finally:
            self.free.release()
