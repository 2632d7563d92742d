"""Wire: how a door speaks with the agent: one line of JSON up, one line of JSON down, over a socket in the vault.

It promises an answer or None within the time given, whatever stands at the other end: the caller then does the work
by itself. It refuses to load more than it needs: it stands in front of a person.
"""

from __future__ import annotations

import json
import os
import socket

NAME = "agent.sock"
LONGEST = 1 << 24
"""A line of so many bytes is no request and no answer."""


def address(folder: int) -> str:
    """The socket's name by the open folder: a socket's path may have 107 bytes only, and a vault's has as many as it
    likes."""
    return f"/proc/self/fd/{folder}/{NAME}"


def ask(vault: str, request: dict[str, object], timeout_s: float) -> dict[str, object] | None:
    """The agent's answer. None where no agent runs on this vault, or where it has not answered in time."""
    try:
        folder = os.open(vault, os.O_PATH | os.O_DIRECTORY)
    except OSError:
        return None
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(timeout_s)
            line.connect(address(folder))
            line.sendall(json.dumps(request).encode() + b"\n")
            answer = json.loads(receive(line))
    except (OSError, ValueError, RecursionError):
        return None
    finally:
        os.close(folder)
    return answer if isinstance(answer, dict) else None


def receive(line: socket.socket) -> bytes:
    """All up to the line's end. Raises ValueError where none comes."""
    data = b""
    while not data.endswith(b"\n"):
        more = line.recv(65536)
        if not more or len(data) > LONGEST:
            raise ValueError("no whole line came")
        data += more
    return data
