"""Index: the SQLite table over the vault that finds a session without a walk.

It is an index and no more: every row is told again by the chats' own folders (`keeper reindex`). It promises that
reading never opens it for writing (KEEP-5), that a broken file is set aside and built anew, and that a folder is
durable before its row. It refuses transcript text: no title, no prompt, no record stands in it.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from operator import attrgetter
from pathlib import Path

from keeper import disk, files
from keeper.errors import Locked
from keeper.transcripts.chat import SessionFacts

SCHEMA = 1
_REFUSALS = {
    "SQLITE_FULL": errno.ENOSPC,
    "SQLITE_IOERR": errno.EIO,
    "SQLITE_READONLY": errno.EROFS,
    "SQLITE_PERM": errno.EACCES,
    "SQLITE_CANTOPEN": errno.EACCES,
}


@dataclass(frozen=True, slots=True)
class Row:
    """One session in one chat. Sizes in bytes, `born` and `since` in unix seconds.

    `head` is the uuid of the transcript's first uuid'd record (a fork shares its parent's), `state` the verdict of
    the last keep that found more than what it knew, `live_inode`, `live_size` and `kept_size` what that keep saw; of a
    swept one `kept_size` is that of kept when all of its chat was found sealed, and the other two are 0.
    """

    chat: str
    session: str
    profile: str
    project: str
    cwd: str
    mode: str
    state: str
    head: str
    born: float
    since: float
    live_inode: int = 0
    live_size: int = 0
    kept_size: int = 0

    @classmethod
    def of(cls, chat: str, session: str, profile: str, told: SessionFacts, now: float) -> Row:
        """The row that a chat's facts tell."""
        state = "damaged" if told.damaged and told.mode == "split" else ""
        return cls(chat, session, profile, told.project, told.cwd, told.mode, state, told.head, told.born, now)


_COLUMNS = tuple(column.name for column in fields(Row))
_CREATE = f"""
CREATE TABLE IF NOT EXISTS session ({", ".join(_COLUMNS)}, PRIMARY KEY (chat, session)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS session_by_id ON session (session);
CREATE INDEX IF NOT EXISTS session_by_head ON session (head);
CREATE TABLE IF NOT EXISTS fact (name PRIMARY KEY, value) WITHOUT ROWID;
"""
_values = attrgetter(*_COLUMNS)
_PUT = f"INSERT OR REPLACE INTO session VALUES ({', '.join('?' * len(_COLUMNS))})"


class IndexLost(Exception):
    """The index is not there, or is no index: it must be built anew from the folders."""


def _failure(error: sqlite3.Error, path: Path) -> Exception:
    """What an error of SQLite's means: a lost index, a held one, or a disk that refuses."""
    code = getattr(error, "sqlite_errorname", "") or ""
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return Locked(f"the index {path} is held by another process", "wait for it to finish, then run it again")
    for name, number in _REFUSALS.items():
        if code.startswith(name):
            return files.failure(OSError(number, os.strerror(number)), path, "write the index")
    return IndexLost(str(error))


class Index:
    """The table, opened for reading at first use and for writing only by a change."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reader: sqlite3.Connection | None = None
        self._sharing = 0
        self._shared: tuple[object, list[Row]] | None = None

    @contextmanager
    def sharing(self) -> Iterator[None]:
        """Within this, whoever asks for every row gets those that the first one read, until somebody writes."""
        self._sharing += 1
        try:
            yield
        finally:
            self._sharing -= 1
            if not self._sharing:
                self._shared = None

    def _read(self, query: str, values: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
        try:
            if self._reader is None:
                self._reader = sqlite3.connect(f"file:{_quoted(self.path)}?mode=ro", uri=True, timeout=10)
            return self._reader.execute(query, values).fetchall()
        except sqlite3.Error as error:
            self.close()
            found = _failure(error, self.path)
            raise (found if isinstance(found, Locked) else IndexLost(str(error))) from error

    def rows(self) -> list[Row]:
        """Every row. Raises IndexLost."""
        if not self._sharing:
            return self._rows()
        (version,) = self._read("PRAGMA data_version")  # another one once somebody else has written
        if self._shared is None or self._shared[0] != version:
            self._shared = version, self._rows()
        return list(self._shared[1])

    def _rows(self) -> list[Row]:
        return [Row(*row) for row in self._read(f"SELECT {', '.join(_COLUMNS)} FROM session")]  # type: ignore[arg-type]

    def of_session(self, session: str) -> list[Row]:
        """The rows of a session, in whichever chats it is kept. Raises IndexLost."""
        query = f"SELECT {', '.join(_COLUMNS)} FROM session WHERE session = ?"
        return [Row(*row) for row in self._read(query, (session,))]  # type: ignore[arg-type]

    def of_head(self, profile: str, head: str) -> list[Row]:
        """The rows of a profile whose transcripts begin with one record. Raises IndexLost."""
        query = f"SELECT {', '.join(_COLUMNS)} FROM session WHERE head = ? AND profile = ?"
        return [Row(*row) for row in self._read(query, (head, profile))]  # type: ignore[arg-type]

    def fact(self, name: str) -> str | None:
        """A fact about the vault as a whole, None where none is noted. Raises IndexLost."""
        found = self._read("SELECT value FROM fact WHERE name = ?", (name,))
        return str(found[0][0]) if found else None

    def write(
        self,
        put: Iterable[Row] = (),
        drop: Iterable[tuple[str, str]] = (),
        facts: Iterable[tuple[str, str]] = (),
        anew: bool = False,
    ) -> None:
        """One transaction: rows put, rows dropped by (chat, session), facts noted; `anew` empties it first.

        Raises IndexLost where the file is no index, Locked, DiskError.
        """
        self.close()
        disk.make_file(self.path)
        try:
            disk.step("commit", self.path)
        except OSError as error:
            files.raise_failure(error, self.path, "write the index")
        try:
            connection = sqlite3.connect(self.path, timeout=10, isolation_level=None)
            try:
                # DELETE everywhere: one way, also on network homes; the rows can be told again from the folders.
                connection.execute("PRAGMA synchronous = NORMAL")
                connection.execute("BEGIN IMMEDIATE")
                (version,) = connection.execute("PRAGMA user_version").fetchone()
                if version not in (0, SCHEMA):
                    raise IndexLost(f"schema {version}")
                connection.execute(f"PRAGMA user_version = {SCHEMA}")
                for statement in _CREATE.split(";"):
                    connection.execute(statement)
                if anew:
                    connection.execute("DELETE FROM session")
                connection.executemany(_PUT, [_values(row) for row in put])
                connection.executemany("DELETE FROM session WHERE chat = ? AND session = ?", list(drop))
                connection.executemany("INSERT OR REPLACE INTO fact VALUES (?, ?)", list(facts))
                connection.execute("COMMIT")
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise _failure(error, self.path) from error

    def set_aside(self, stamp: str) -> None:
        """A file that is no index is moved out of the way, not thrown away."""
        self.close()
        try:
            disk.replace(self.path, f"{self.path}.broken-{stamp}")
        except FileNotFoundError:
            return

    def close(self) -> None:
        """Let go of the file."""
        self._shared = None
        if self._reader is not None:
            self._reader.close()
            self._reader = None


def _quoted(path: Path) -> str:
    from urllib.parse import quote

    return quote(str(path))
