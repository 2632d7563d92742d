"""Mend: sets anew, in a settings file of Claude's, what the doctor warns of: a small period, hooks that are turned off.

It promises that every other byte stays as it is, that the file is whole-old or whole-new at every instant, and that a
period becomes a large number of days, never 0 (FIT-9). It refuses a file that is no JSON object.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from keeper import files
from keeper.doors.hooks import OFF, Edit
from keeper.doors.json_text import parse, put
from keeper.errors import Refused
from keeper.retention import KEY, LARGE_DAYS

VALUES: dict[str, int | bool] = {KEY: LARGE_DAYS, OFF: False}


def mended(file: Path) -> Edit | None:
    """The edit that gives each of these keys that the file has its value; None where none is to be changed. Raises
    Refused."""
    name = os.path.realpath(file)
    try:
        before = files.read(name)
    except FileNotFoundError:
        raise Refused(f"{file} is no file", "name the settings file that the check names") from None
    try:
        text = before.decode()
        changed = [key for key in VALUES if (text := _with(text, key)) and parse(text).child(key) is not None]
    except ValueError as error:
        raise Refused(f"{file}: {error}", "mend it by hand: Claude Code reads nothing of it") from error
    if text.encode() == before:
        return None
    what = ", ".join(f"{key} {json.dumps(VALUES[key])}" for key in changed)
    return Edit(name, f"{name}: {what}", before, text.encode())


def _with(text: str, key: str) -> str:
    root = parse(text)
    if not isinstance(root.value, dict):
        raise ValueError("it is no JSON object")
    node = root.child(key)  # where a key stands twice, Claude goes by the last
    return put(text, node, VALUES[key]) if node is not None else text
