"""Activity: when a chat was last used, and whether that is past a bound that a person set.

It promises that how old a kept chat is its own records say, and not a file's time, which a restore renews; that one
which is written to now is kept, however old its records are; and that what was pruned does not come back by the next
keep (POLICY-3). It refuses to read more of a transcript than its end.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from keeper import files
from keeper.errors import KeeperError
from keeper.files import regular
from keeper.transcripts.head import WINDOW
from keeper.transcripts.records import read
from keeper.transcripts.vault import Vault

KEEP_FOR, MAX_SIZE = "keep_for", "max_size"
"""The bounds, by their names in the settings."""


def last_activity(path: str, now: float) -> float:
    """When a record was last written to a transcript, by the records' own words, else by its file's time; never later
    than now. 0 where there is none."""
    if told := last_record(path, now):
        return told
    try:
        fd = files.open_read(path)
    except (OSError, KeeperError):
        return 0.0
    try:
        return min(os.fstat(fd).st_mtime, now)
    finally:
        os.close(fd)


def last_record(path: str, now: float) -> float:
    """The same by the records' own words alone; 0 where none tells."""
    try:
        fd = files.open_read(path)
    except (OSError, KeeperError):
        return 0.0
    try:
        size = os.fstat(fd).st_size
        window = WINDOW
        while True:
            start = max(0, size - window)
            data = os.pread(fd, window, start)
            told = _newest(data[data.find(b"\n") + 1 :] if start else data)
            if told or not start:
                return min(told, now)
            window *= 8
    finally:
        os.close(fd)


def _newest(data: bytes) -> float:
    """The newest time of the records in whole lines; times within a record are of what it tells, not of the record."""
    records = (read(line) for line in data.split(b"\n") if b'"timestamp"' in line)
    return max((_unix(record.timestamp) for record in records if record and record.timestamp), default=0.0)


def _unix(text: str) -> float:
    try:
        told = datetime.fromisoformat(text)
        return (told if told.tzinfo else told.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def removed(vault: Vault, session: str) -> Mapping[str, Any] | None:
    """What the log says of the last time that a session went from the vault, by a plan or a rule; None for never."""
    return next((one for one in reversed(vault.removals.read()) if session in one.get("sessions", ())), None)


def barred(vault: Vault, session: str, paths: list[str], now: float) -> str:
    """Why a session that lives is not to be kept anew: the bound that it is past; "" where it is to be.

    A live file's time counts beside its records, since a fork begins with old ones. What went by a plan is kept again
    once it was used again: its file may have got a new time before that, by a restore.
    """
    settings = vault.settings
    if not settings.keep_for_s and not settings.max_size_bytes:
        return ""
    last = max((last_activity(path, now) for path in paths), default=0.0)
    written = max((min(seen.st_mtime, now) for path in paths if (seen := regular(path)) is not None), default=0.0)
    went = removed(vault, session)
    by_plan = went is not None and went.get("by") == "plan"
    if went is None or not by_plan or written > float(went.get("at") or 0.0):
        last = max(last, written)
    if last and settings.keep_for_s and now - last > settings.keep_for_s:
        return KEEP_FOR
    if went is not None and by_plan and settings.max_size_bytes and went.get("why") == MAX_SIZE:
        return MAX_SIZE if last <= float(went.get("last") or 0.0) else ""
    return ""
