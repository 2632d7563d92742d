"""Copies: a conversation under a new session id: up to a record, or repaired; the original stays as it is.

It promises that every record of the copy carries the new id, at the place where the old one stood and nowhere else,
so that neither Claude nor keeper takes the copy for a continuation of the original (FIT-6). It refuses to write over
a name that exists.
"""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from keeper.errors import NotKept
from keeper.transcripts.records import Record, read, split


@dataclass(frozen=True, slots=True)
class Copy:
    """The bytes of a copy, and what was done to get them: one line of words for each deed."""

    data: bytes
    deeds: tuple[str, ...]
    set_apart: tuple[bytes, ...] = ()


def through(data: bytes, record: str, session: str, copy: str) -> Copy:
    """The conversation up to and with `record` (a uuid): its chain, and the lines between that belong to no other.

    Raises NotKept where no record has that uuid.
    """
    lines = split(data).lines
    records = [read(line) for line in lines]
    end = next((i for i, one in enumerate(records) if one is not None and one.uuid == record), None)
    if end is None:
        raise NotKept(f"session {session} has no record {record}", "`keeper show --json` lists the records")
    parents = {one.uuid: one.parent for one in records if one is not None and one.uuid is not None}
    chain: set[str] = set()
    at: str | None = record
    while at is not None and at not in chain:
        chain.add(at)
        at = parents.get(at)
    taken = []
    for line, one in zip(lines[: end + 1], records, strict=False):
        if one is None or one.type == "last-prompt":
            continue  # a leaf that is named later than the record would lead Claude away from it
        if one.uuid is None or one.uuid in chain or one.sidechain:
            taken.append(renamed(line, one, session, copy))
    return Copy(_joined(taken), (f"{len(taken)} of {len(lines)} records, up to {record}",))


def repaired(data: bytes, session: str, copy: str) -> Copy:
    """A copy that every CLI from 1.0.124 resumes whole (FIT-8, RESTORE-15): unreadable lines set apart, glued records
    parted, records without a conversation before the first one left out, a chain that hangs tied to what is before it.
    """
    parts = split(data)
    deeds: list[str] = []
    apart: list[bytes] = []
    taken: list[bytes] = []
    known: set[str] = set()
    last: str | None = None
    for number, line in enumerate([*parts.lines, *([parts.tail] if parts.tail else [])], 1):
        if not line.strip():
            continue
        pieces = [line] if read(line) is not None else _parted(line)
        if pieces is None:
            apart.append(line)
            deeds.append(f"line {number}: no parser takes it, set apart")
            continue
        if len(pieces) > 1:
            deeds.append(f"line {number}: {len(pieces)} records were glued together, parted")
        for piece in pieces:
            one = read(piece)
            if one is None:
                continue
            piece = renamed(piece, one, session, copy)
            if one.uuid is not None and not one.sidechain:
                if one.parent is not None and one.parent not in known:
                    deeds.append(f"record {one.uuid}: its parent {one.parent} is missing, tied to {last or 'nothing'}")
                    piece = _tied(piece, last)
                known.add(one.uuid)
                last = one.uuid
            taken.append(piece)
    return Copy(_joined(taken), tuple(deeds), tuple(apart))


def renamed(line: bytes, record: Record, session: str, copy: str) -> bytes:
    """The record's line with its own `sessionId` changed; every other byte as it was, where that can be."""
    if record.session is None:
        return line
    old = b'"sessionId":' + orjson.dumps(record.session)
    new = b'"sessionId":' + orjson.dumps(copy)
    if line.count(old) == 1:
        changed = line.replace(old, new)
        if (seen := read(changed)) is not None and seen.session == copy:
            return changed
    return orjson.dumps({**record.fields, "sessionId": copy})


def _tied(line: bytes, parent: str | None) -> bytes:
    record = read(line)
    return line if record is None else orjson.dumps({**record.fields, "parentUuid": parent})


def _parted(line: bytes) -> list[bytes] | None:
    """The records that stand glued together on one line, or None where it is no such line."""
    import json

    try:
        text = line.decode()
    except UnicodeDecodeError:
        return None
    text = text.strip("\x00 \t\r\ufeff")
    decoder = json.JSONDecoder()
    pieces, at = [], 0
    while at < len(text):
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return None
        if not isinstance(value, dict):
            return None
        pieces.append(text[at:end].encode())
        at = end
        while at < len(text) and text[at] in " \t\r\x00":
            at += 1
    return pieces or None


def _joined(lines: list[bytes]) -> bytes:
    return b"\n".join([*lines, b""])
