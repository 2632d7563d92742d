"""Head: what a transcript's first records say of it: whose it is, where it was written, whether it is a chat at all.

It promises to read no more of the file than it needs, and the cwd from the records, never from the folder's name
(KEEP-15). It refuses noise: 0-byte files and files of nothing but `summary` lines are no chats (FIT-5).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from keeper import files
from keeper.claude import folder_names, is_session
from keeper.transcripts.records import Record, is_prompt, read

WINDOW = 1 << 16


@dataclass(frozen=True, slots=True)
class Head:
    """`head` is the uuid of the first uuid'd record, `named` the session that the records name where none names the
    file's own id and the chain begins elsewhere (a continuation: FIT-6), `copied_from` the session that the records
    before the first own one name (a fork of some versions), `born` unix seconds of the file's birth."""

    cwd: str = ""
    version: str = ""
    head: str = ""
    entrypoint: str = ""
    named: str | None = None
    copied_from: str | None = None
    noise: bool = False
    born: float = 0.0


def read_head(path: str, session: str) -> Head:
    """The head of the transcript of this session. FileNotFoundError where there is no regular file."""
    fd = files.open_read(path)
    try:
        size = os.fstat(fd).st_size
        window = WINDOW
        while True:
            data = os.pread(fd, window, 0)
            whole = len(data) >= size
            found = _from_lines(data[: data.rfind(b"\n") + 1].split(b"\n"), session, whole)
            if found is not None or whole:
                break
            window *= 8
        return replace(found or Head(noise=True), born=files.born(path, fd))
    finally:
        os.close(fd)


def _from_lines(lines: list[bytes], session: str, whole: bool) -> Head | None:
    """The head as far as these lines tell; None where more must be read."""
    first: Record | None = None
    told: Record | None = None
    seen = False
    foreign: str | None = None
    for line in lines:
        record = read(line) if line else None
        if record is None:
            seen = seen or bool(line.strip())
            continue
        seen = seen or record.type != "summary"
        if record.uuid is not None and first is None:
            first = record
        if record.uuid is not None and record.cwd and told is None:
            told = record
        if record.uuid is not None and record.session != session and is_session(record.session or ""):
            foreign = record.session
        if told is not None and record.session == session:
            break
    else:
        if not whole:
            return None
        if not seen:
            return Head(noise=True)
        return _head(first, told, _continued(first, lines, session))
    return replace(_head(first, told, None), copied_from=foreign if first and first.parent is None else None)


def _head(first: Record | None, told: Record | None, named: str | None) -> Head:
    if first is None:
        return Head(named=named)
    source = told or first
    texts = (source.cwd, source.version, first.uuid, source.entrypoint)
    cwd, version, head, entrypoint = (_clean(text or "") for text in texts)
    return Head(cwd, version, head, entrypoint, named)


def _clean(text: str) -> str:
    """The text without lone surrogates, which no JSON and no index takes."""
    return text.encode("utf-8", "replace").decode()


def _continued(first: Record | None, lines: list[bytes], session: str) -> str | None:
    """The session that a file goes on with: no record carries the file's own id, and its chain begins elsewhere."""
    if first is None or first.parent is None or first.session == session or not is_session(first.session or ""):
        return None
    own = b'"' + session.encode() + b'"'
    for line in lines:
        if own in line and (record := read(line)) is not None and record.session == session:
            return None
    return first.session


def cwd_of(path: str, project: str) -> str | None:
    """The last directory that the records name and that this project's folder is named from; None where none is."""
    for line in reversed(files.read(path).split(b"\n")):
        record = read(line) if b'"cwd"' in line or b'"relocatedCwd"' in line else None
        if record is None:
            continue
        for cwd in (record.cwd, record.fields.get("relocatedCwd")):
            if isinstance(cwd, str) and project in folder_names(_clean(cwd)):
                return _clean(cwd)
    return None


def session_named(path: str) -> str | None:
    """The session that the first record with one names. FileNotFoundError where there is no regular file."""
    with os.fdopen(files.open_read(path), "rb") as stream:
        for line in stream:
            if b"sessionId" in line and (record := read(line.rstrip(b"\n"))) is not None and record.session:
                return record.session
    return None


def owned_agents(agents: Iterable[Path]) -> dict[str, list[Path]]:
    """The older layout: `agent-*.jsonl` beside the transcripts, owned by the session its records name (KEEP-14)."""
    owners: dict[str, list[Path]] = {}
    for path in agents:
        try:
            session = session_named(str(path))
        except FileNotFoundError:
            continue
        if session and is_session(session):
            owners.setdefault(session, []).append(path)
    return owners


def resumable(path: str) -> bool:
    """Whether Claude would find a conversation: at least one real prompt. Streams, and stops at the first (RESTORE-8).

    FileNotFoundError where there is no regular file.
    """
    with os.fdopen(files.open_read(path), "rb") as stream:
        for line in stream:
            if b'"user"' in line and (record := read(line.rstrip(b"\n"))) is not None and is_prompt(record):
                return True
    return False
