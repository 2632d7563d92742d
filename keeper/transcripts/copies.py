"""Copies: a conversation under a new session id: up to a record, as it once was, or repaired; the original stays.

It promises that every record of the copy carries the new id, at the place where the old one stood and nowhere else,
so that neither Claude nor keeper takes the copy for a continuation of the original (FIT-6). It refuses to write over
a name that exists.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

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

    Of two versions the one that Claude reads, the later; a gap in the chain is bridged by the file's order, as Claude
    does from 2.1.92 on, and told. Raises NotKept where no record has that uuid.
    """
    lines = split(data).lines
    records = [read(line) for line in lines]
    places = {one.uuid: place for place, one in enumerate(records) if one is not None and one.uuid is not None}
    if record not in places:
        raise NotKept(f"session {session} has no record {record}", "`keeper show --json` lists the records")
    end = _end_of_run(records, record)
    chain, ties = _chain(records, places, record)
    taken = []
    for place, (line, one) in enumerate(zip(lines, records, strict=True)):
        if one is None or one.type == "last-prompt":
            continue  # a leaf that is named later than the record would lead Claude away from it
        # The CLI may write an answer before its prompt: the chain's records count wherever they stand.
        if one.uuid in chain or (place <= end and (one.uuid is None or one.sidechain)):
            line = renamed(line, one, session, copy)
            taken.append(_tied(line, ties[one.uuid]) if one.uuid in ties else line)
    deeds = [f"{len(taken)} of {len(lines)} records, up to {record}"]
    deeds += [f"record {uuid}: its parent is missing, tied to {parent or 'nothing'}" for uuid, parent in ties.items()]
    return Copy(_joined(taken), tuple(deeds))


def whole(data: bytes, session: str, copy: str, deed: str) -> Copy:
    """All of it as it is, under the new id."""
    lines = split(data).lines
    taken = [line if (one := read(line)) is None else renamed(line, one, session, copy) for line in lines]
    return Copy(_joined(taken), (f"{len(taken)} records, {deed}",))


def leaf_below(data: bytes, record: str, session: str) -> str:
    """The newest record of the main chain that hangs, over however many, on `record`: itself where none does.

    Raises NotKept where no record has that uuid.
    """
    chain = [one for one in map(read, split(data).lines) if one is not None and one.uuid and not one.sidechain]
    below, size = {record}, 0
    while size < len(below):  # the CLI may write an answer before its prompt
        size = len(below)
        below.update(one.uuid for one in chain if one.uuid and one.parent in below)
    parents = {one.parent for one in chain if one.uuid in below}
    leaf = next((one.uuid for one in reversed(chain) if one.uuid in below - parents), None)
    if leaf is None:
        raise NotKept(f"session {session} has no record {record}", "`keeper show --json` lists the records")
    return leaf


def _end_of_run(records: list[Record | None], record: str) -> int:
    """Where the versions of the record end: those that stand directly behind its first one."""
    end = next(place for place, one in enumerate(records) if one is not None and one.uuid == record)
    while end + 1 < len(records) and (behind := records[end + 1]) is not None and behind.uuid == record:
        end += 1
    return end


def _chain(
    records: list[Record | None], places: dict[str, int], record: str
) -> tuple[set[str], dict[str, str | None]]:  # fmt: skip
    """The uuids from the record up to its root, and the ties where a parent is in no line."""
    chain: set[str] = set()
    ties: dict[str, str | None] = {}
    at: str | None = record
    while at is not None and at not in chain:
        chain.add(at)
        one = records[places[at]]
        above = one.parent if one is not None else None
        if above is not None and above not in places:
            before = (r for r in reversed(records[: places[at]]) if r is not None and r.uuid and not r.sidechain)
            above = ties[at] = next((r.uuid for r in before if r.uuid not in chain), None)
        at = above
    return chain, ties


def repaired(data: bytes, session: str, copy: str) -> Copy:
    """A copy that every CLI from 1.0.124 resumes whole (FIT-8, RESTORE-15): unreadable lines set apart, glued records
    parted, and a chain that hangs on a record of no line tied to what is before it.
    """
    parts = split(data)
    deeds: list[str] = []
    apart: list[bytes] = []
    pieces: list[tuple[bytes, Record]] = []
    for number, line in enumerate([*parts.lines, *([parts.tail] if parts.tail else [])], 1):
        if line.strip():
            found, rest = _parted(line)
            pieces += found
            if rest:
                apart.append(rest)
                deeds.append(f"line {number}: {len(rest)} bytes that no parser takes, set apart")
            if len(found) > 1 or (found and rest):
                deeds.append(f"line {number}: {len(found)} records parted from what was glued to them")
    known = {one.uuid for _, one in pieces}
    taken: list[bytes] = []
    last: str | None = None
    for piece, one in pieces:
        line = renamed(piece, one, session, copy)
        if one.uuid is not None and not one.sidechain:
            if one.parent is not None and one.parent not in known:
                deeds.append(f"record {one.uuid}: its parent {one.parent} is missing, tied to {last or 'nothing'}")
                line = _tied(line, last)
            last = one.uuid
        taken.append(line)
    return Copy(_joined(taken), tuple(deeds), tuple(apart))


def renamed(line: bytes, record: Record, session: str, copy: str) -> bytes:
    """The record's line with its own `sessionId` changed; every other byte as it was, where that can be."""
    if record.session is None:
        return line
    return _changed(line, record, "sessionId", record.session, copy)


def _tied(line: bytes, parent: str | None) -> bytes:
    record = read(line)
    return line if record is None else _changed(line, record, "parentUuid", record.parent, parent)


def _changed(line: bytes, record: Record, key: str, old: str | None, new: str | None) -> bytes:
    """The line with one top-level value changed in place: found by trying each place where it is written so, and
    reading the line back. Written anew only where its keys are escaped."""
    before, after = (f'"{key}":{json.dumps(value)}'.encode() for value in (old, new))
    wanted = {**record.fields, key: new}
    at = line.find(before)
    while at >= 0:
        changed = line[:at] + after + line[at + len(before) :]
        seen = read(changed)
        if seen is not None and _same(seen.fields, wanted):
            return changed
        at = line.find(before, at + 1)
    return json.dumps(wanted, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def _same(one: object, other: object) -> bool:
    """Equal by what is written: NaN is no number that equals itself."""
    return one == other or repr(one) == repr(other)


def _parted(line: bytes) -> tuple[list[tuple[bytes, Record]], bytes]:
    """The records of a line, and what of it no parser takes: records glued together, or one behind a torn one."""
    whole = read(line)
    if whole is not None:
        return [(line, whole)], b""
    text = line.decode("utf-8", "surrogateescape")
    decoder = json.JSONDecoder()
    found: list[tuple[bytes, Record]] = []
    rest: list[str] = []
    at = begun = 0
    while at < len(text):
        end = _record_end(decoder, text, at)
        if end is None:
            # Inside a string a quote is escaped, so this is where a record can begin, and little else.
            at = text.find('{"', at + 1)
            at = len(text) if at < 0 else at
            continue
        if text[begun:at].strip("\x00 \t\r\ufeff"):
            rest.append(text[begun:at])
        piece = text[at:end].encode("utf-8", "surrogateescape")
        record = read(piece)
        if record is not None:
            found.append((piece, record))
        at = begun = end
    if not found:
        return [], line
    if text[begun:].strip("\x00 \t\r\ufeff"):
        rest.append(text[begun:])
    return found, "".join(rest).encode("utf-8", "surrogateescape")


def _record_end(decoder: json.JSONDecoder, text: str, at: int) -> int | None:
    """Where the record that begins at `at` ends; None where none does."""
    if not text.startswith("{", at):
        return None
    try:
        value, end = decoder.raw_decode(text, at)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not ("uuid" in value or "type" in value):
        return None
    # What is inside another record's text is no record: it ends the line, or another record follows it.
    return end if not text[end:].lstrip("\x00 \t\r") or text[end:].lstrip("\x00 \t\r").startswith("{") else None


def _joined(lines: list[bytes]) -> bytes:
    return b"\n".join([*lines, b""]) if lines else b""
