"""Turns the bytes of a transcript into records, and tells which record a line is.

Promises: `join(split(data)) == data` for all bytes (FAULT-6); lines end at `\\n` alone, so `\\r` and U+2028 are
bytes of a line; a line is carried as it came and is never written anew from what was parsed.

Refuses to guess: a line that no parser takes has no uuid and is no record, and that is not an error.
"""

import json
from dataclasses import dataclass
from typing import Any

import orjson


@dataclass(frozen=True, slots=True)
class Split:
    """The complete lines of a file, each without its `\\n`, and the unfinished rest behind the last `\\n`."""

    lines: list[bytes]
    tail: bytes


@dataclass(frozen=True, slots=True)
class Record:
    """What keeper reads of one line; a field of another type than the one named here counts as absent."""

    uuid: str | None
    parent: str | None
    type: str | None
    subtype: str | None
    session: str | None
    sidechain: bool
    cwd: str | None
    version: str | None
    timestamp: str | None
    entrypoint: str | None
    leaf: str | None
    fields: dict[str, Any]


def split(data: bytes) -> Split:
    lines = data.split(b"\n")
    tail = lines.pop()
    return Split(lines, tail)


def join(parts: Split) -> bytes:
    return b"\n".join([*parts.lines, parts.tail])


def uuid_of(line: bytes) -> str | None:
    """The top-level string `uuid` of a line, or None where there is none (MERGE-7).

    Of a repeated key the last one counts, as it does for Claude.
    """
    return _uuid(_parse(line))


def read(line: bytes) -> Record | None:
    """The record of a line, or None where the line is no JSON object."""
    fields = _parse(line)
    if not isinstance(fields, dict):
        return None

    def text(key: str) -> str | None:
        value = fields.get(key)
        return value if isinstance(value, str) else None

    return Record(
        uuid=_uuid(fields),
        parent=text("parentUuid"),
        type=text("type"),
        subtype=text("subtype"),
        session=text("sessionId"),
        sidechain=fields.get("isSidechain") is True,
        cwd=text("cwd"),
        version=text("version"),
        timestamp=text("timestamp"),
        entrypoint=text("entrypoint"),
        leaf=text("leafUuid"),
        fields=fields,
    )


def is_unread(line: bytes) -> bool:
    """Whether no CLI reads a whole line as one record: torn, glued to another, no JSON object. A blank one is none."""
    # Inside a string a quote is escaped, so what looks whole from outside is parsed only where it may be glued.
    glued = b'}{"' in line or line.find(b'{"parentUuid"', 1) > 0 or b"\0" in line
    doubtful = glued or line[:1] != b"{" or line[-1:] != b"}"
    return doubtful and bool(line.strip()) and read(line) is None


def is_prompt(record: Record) -> bool:
    """Whether this is a person's prompt on the main chain; a resume needs at least one (RESTORE-8)."""
    fields = record.fields
    if record.type != "user" or record.sidechain:
        return False
    if fields.get("isMeta") is True or fields.get("isCompactSummary") is True:
        return False
    message = fields.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list):
        return any(isinstance(block, dict) and block.get("type") == "text" for block in content)
    return isinstance(content, str)


def _uuid(fields: Any) -> str | None:
    value = fields.get("uuid") if isinstance(fields, dict) else None
    return value if isinstance(value, str) and value else None


def _parse(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        pass
    # What orjson refuses and Claude may still read: lone surrogates, a BOM, NaN, huge numbers, deep nesting.
    try:
        return json.loads(line.decode("utf-8-sig", "surrogatepass"))
    except (ValueError, RecursionError):
        return None
