"""Vault: the per-chat stores: layout, identity, locks, facts, tombstones.

It promises that a vault which this machine knows is never made anew where it is missing (an unmounted volume is
refused, by its id), that every folder is 0700 whatever the umask, and that what was forgotten stays forgotten until
somebody says `--adopt`. It refuses names that could leave their folder.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote, unquote

import orjson

from keeper import disk, files
from keeper.claude import is_session
from keeper.errors import DiskError, Refused, VaultDamaged, VaultUnavailable
from keeper.settings import Settings
from keeper.transcripts.index import Index, IndexLost, Row

VERSION = "1\n"
_CHAT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,127}")
MANY = 5
"""More folders than this missing at once, or over a tenth of all, is a named state and no forgetting (KEEP-11)."""


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """What a chat's `chat.json` tells of one of its sessions. `born` is unix seconds of its first file."""

    project: str
    cwd: str
    mode: str
    born: float = 0.0
    head: str = ""
    forked_from: str | None = None
    cleared_from: str | None = None
    continues: str | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """A chat's `chat.json`: whose it is, its sessions with their lineage, its policy and the host's tags."""

    chat: str
    profile: str
    policy: str = "keep"
    tags: tuple[str, ...] = ()
    sessions: dict[str, SessionFacts] = field(default_factory=dict)

    def with_session(self, session: str, facts: SessionFacts) -> Facts:
        """The same with this session's facts put in."""
        return replace(self, sessions={**self.sessions, session: facts})


@dataclass(frozen=True, slots=True)
class Chat:
    """The folder of one conversation in the vault, and the names in it."""

    name: str
    path: str

    def kept(self, session: str) -> str:
        """The kept transcript."""
        return f"{self.path}/{session}.jsonl"

    def live_link(self, label: str) -> str:
        """Mode split: the second link to the live inode of the file kept under this label (its path in the chat)."""
        return f"{self.path}/{quote(label.removesuffix('.jsonl'), safe='')}.live"

    def linked_labels(self) -> list[str]:
        """The labels of which a second link to a live inode stands here."""
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            return []
        return [f"{unquote(name[:-5])}.jsonl" for name in names if name.endswith(".live")]

    @property
    def facts_file(self) -> str:
        """`chat.json`."""
        return f"{self.path}/chat.json"

    @property
    def swap(self) -> str:
        """Inodes that are looked at or in flight; every one has a name here until its lines are safe."""
        return f"{self.path}/swap"

    @property
    def aside(self) -> str:
        """Torn fragments, older versions, variants: nothing is thrown away."""
        return f"{self.path}/aside"


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A chat that was forgotten: by a command (`forget`) or by a hand that removed its folder (`hand`)."""

    chat: str
    session: str
    profile: str
    by: str


class Vault:
    """One vault, open. `notes` are the named states that the opening met, for whoever reports."""

    def __init__(self, root: Path, settings: Settings) -> None:
        self.root = root
        self.settings = settings
        self.index = Index(root / "state.db")
        self.notes: list[str] = []
        self._tombstones: dict[tuple[str, str], Tombstone] = {}
        self._tombstones_seen: tuple[int, int, int] | None = None

    # ------------------------------------------------------------------ opening

    @classmethod
    def open(cls, settings: Settings, make: bool = True) -> Vault:
        """The vault of these settings; made where there was never one and `make` is set.

        Raises VaultUnavailable where this machine knows one at that place and it is not there, VaultDamaged where it
        is of a version that this keeper does not know.
        """
        root = settings.vault
        known = _known_file(settings)
        try:
            identity = files.read(root / "id").decode().strip()
        except FileNotFoundError:
            identity = ""
        vault = cls(root, settings)
        if identity:
            version = files.read(root / "VERSION").decode() if (root / "VERSION").exists() else VERSION
            if version != VERSION:
                raise VaultDamaged(f"the vault {root} is of version {version.strip()}", "use the keeper that made it")
            noted = _known_id(known)
            if noted not in ("", identity):
                vault.notes.append(f"another vault than before stands at {root}: its chats are taken as they are")
            if noted != identity:
                disk.ensure_dir(settings.state_home)
                disk.write_file(known, f"{identity}\n{root}\n".encode())
            return vault
        if _known_id(known):
            raise VaultUnavailable(
                f"the vault {root} is not there, but this machine has one at that place (is its volume mounted?)",
                f"mount it; if you removed it on purpose, remove {known} too",
            )
        if not make:
            return vault
        vault._make(known)
        return vault

    def _make(self, known: Path) -> None:
        disk.ensure_dir(self.root)
        disk.set_mode(self.root, 0o700)
        for name in ("chats", "locks"):
            disk.ensure_dir(self.root / name)
        disk.write_file(self.root / "VERSION", VERSION.encode())
        self.index.write(facts=[("chats", self._chats_inode())])
        identity = secrets.token_hex(16)
        disk.write_file(self.root / "id", f"{identity}\n".encode())
        disk.ensure_dir(self.settings.state_home)
        disk.write_file(known, f"{identity}\n{self.root}\n".encode())

    def _chats_inode(self) -> str:
        seen = os.stat(self.root / "chats")
        return f"{seen.st_dev}:{seen.st_ino}"

    # ------------------------------------------------------------------ chats

    def chat(self, name: str) -> Chat:
        """The folder of that name, there or not. Raises Refused on a name that is no chat's."""
        if not _CHAT.fullmatch(name) or ".." in name:
            raise Refused(f"{name!r} is no chat's name", "use letters, digits, and . _ @ - (at most 128)")
        return Chat(name, f"{self.root}/chats/{name}")

    def chat_names(self) -> list[str]:
        """Every chat folder there is."""
        try:
            with os.scandir(self.root / "chats") as entries:
                return sorted(e.name for e in entries if e.is_dir(follow_symlinks=False) and _CHAT.fullmatch(e.name))
        except FileNotFoundError:
            return []

    def lock(self, chat: str) -> AbstractContextManager[None]:
        """Hold the chat's lock: one chat's keep delays no other chat (KEEP-2). Raises Locked."""
        return disk.lock(f"{self.root}/locks/{chat}.lock", self.settings.lock_wait_s)

    def facts(self, chat: Chat) -> Facts | None:
        """The chat's `chat.json`; None where there is none or it does not read (it is told anew by the next keep)."""
        try:
            table = orjson.loads(files.read(chat.facts_file))
            sessions = {str(key): SessionFacts(**value) for key, value in table["sessions"].items() if is_session(key)}
            return Facts(
                chat.name, str(table["profile"]), str(table["policy"]), tuple(map(str, table["tags"])), sessions
            )
        except (FileNotFoundError, NotADirectoryError, ValueError, TypeError, KeyError, AttributeError):
            return None

    def write_facts(self, chat: Chat, facts: Facts, sync: bool) -> None:
        """`chat.json`, whole-old or whole-new. One that did not read is set aside first."""
        if os.path.lexists(chat.facts_file) and self.facts(chat) is None:
            self.set_aside(chat, chat.facts_file)
        data = orjson.dumps({"schema": 1, **_plain(facts)}, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
        disk.write_file(chat.facts_file, data, sync=sync)

    def set_aside(self, chat: Chat, path: str) -> str:
        """Move a file of the chat into `aside/`, under a name that tells it from all others there."""
        self.folder(chat.aside)
        name = f"{chat.aside}/{time.time_ns():x}-{os.path.basename(path)}"
        disk.replace(path, name)
        return name

    def put_aside(self, chat: Chat, label: str, data: bytes) -> str:
        """Bytes into `aside/`, once: the name is told by the bytes, so that a second run adds nothing."""
        from blake3 import blake3

        self.folder(chat.aside)
        name = f"{chat.aside}/{label}.{blake3(data).hexdigest(8)}"
        if not os.path.lexists(name):
            disk.write_file(name, data)
        return name

    def folder(self, path: str) -> None:
        """A folder directly below one that exists. Never makes the chat's folder anew (KEEP-11)."""
        if not os.path.isdir(path):
            try:
                disk.make_dir(path)
            except FileExistsError:
                return

    # ------------------------------------------------------------------ tombstones

    def forgotten(self, profile: str, session: str) -> Tombstone | None:
        """The tombstone that lies on this session of this profile, as the file says at this moment."""
        self._read_tombstones()
        return self._tombstones.get((profile, session))

    def tombstones(self) -> list[Tombstone]:
        """Every tombstone that lies on a session now."""
        self._read_tombstones()
        return list(self._tombstones.values())

    def _read_tombstones(self) -> None:
        path = self.root / "tombstones.jsonl"
        try:
            seen = os.stat(path)
        except FileNotFoundError:
            self._tombstones, self._tombstones_seen = {}, None
            return
        mark = (seen.st_ino, seen.st_size, seen.st_mtime_ns)
        if mark == self._tombstones_seen:
            return
        found: dict[tuple[str, str], Tombstone] = {}
        for line in files.read(path).split(b"\n"):
            try:
                entry = orjson.loads(line)
                key = (entry["profile"], entry["session"])
                if entry["by"] == "adopt":
                    found.pop(key, None)
                else:
                    found[key] = Tombstone(entry["chat"], entry["session"], entry["profile"], entry["by"])
            except (ValueError, TypeError, KeyError):
                continue  # an empty or torn line tells nothing
        self._tombstones, self._tombstones_seen = found, mark

    def bury(self, chat: str, session: str, profile: str, by: str, now: float) -> None:
        """Append a tombstone (or, by `adopt`, its lifting), durable before anything is removed."""
        entry = {"chat": chat, "session": session, "profile": profile, "by": by, "at": now}
        path = self.root / "tombstones.jsonl"
        data = orjson.dumps(entry) + b"\n"
        if path.exists() and not files.read(path).endswith(b"\n") and path.stat().st_size:
            data = b"\n" + data
        disk.append(path, data, make=True)
        disk.sync_dir(self.root)

    # ------------------------------------------------------------------ the index, mended where it is lost

    def rows(self, session: str | None = None) -> list[Row]:
        """The index's rows (of one session); a lost or broken index is built anew first, and noted."""
        try:
            return self.index.rows() if session is None else self.index.of_session(session)
        except IndexLost:
            rows = self._rows_anew() if (self.root / "chats").is_dir() else []
            return [row for row in rows if session in (None, row.session)]

    def _rows_anew(self) -> list[Row]:
        """The rows as the folders tell them; where the index cannot be written, they are told all the same."""
        try:
            return self.reindex()
        except DiskError as error:
            self.notes.append(f"the index is lost and cannot be built anew: {error.message}")
            return self._rows_of_folders()

    def reindex(self) -> list[Row]:
        """Build the index from the folders: what `keeper reindex` does. Returns the rows."""
        rows = self._rows_of_folders()
        facts = [("chats", self._chats_inode())]
        try:
            self.index.write(put=rows, facts=facts, anew=True)
        except IndexLost:
            self.index.set_aside(f"{time.time_ns():x}")
            self.index.write(put=rows, facts=facts, anew=True)
        self.notes.append("the index was lost or broken and has been built anew from the folders")
        return rows

    def _rows_of_folders(self) -> list[Row]:
        return [row for name in self.chat_names() for row in self._rows_of_folder(self.chat(name))]

    def _rows_of_folder(self, chat: Chat) -> list[Row]:
        facts = self.facts(chat)
        if facts is None:
            return []
        rows = []
        for session, told in facts.sessions.items():
            rows.append(
                Row(
                    chat.name, session, facts.profile, told.project, told.cwd, told.mode, "", told.head, told.born,
                    told.born, 0, 0, 0,
                )
            )  # fmt: skip
        return rows

    def missing(self) -> list[Row]:
        """The rows whose chat folder is gone."""
        there = set(self.chat_names())
        return [row for row in self.rows() if row.chat not in there]

    def settle_missing(self, now: float) -> list[str]:
        """Folders that a hand removed count as forgotten; many at once, or a vault put in another's place, do not.

        Returns the chats that were buried; what is not buried is noted, its rows go, and the next keep keeps on.
        """
        if not (self.root / "chats").is_dir():
            return []
        gone = self.missing()
        inode = self._chats_inode()
        try:
            moved = self.index.fact("chats") not in (None, inode)
        except IndexLost:
            return []  # noted where the rows were asked for; nothing is forgotten on an index that tells nothing
        if not gone and not moved:
            return []
        chats = {row.chat for row in gone}
        total = len({row.chat for row in self.rows()})
        many = len(chats) > MANY or (len(chats) > 1 and len(chats) * 10 > total)
        if chats and (many or moved):
            why = "the vault was moved or put back from a copy" if moved else "too many for a hand"
            self.notes.append(f"{len(chats)} of {total} chat folders are missing at once ({why}): nothing is forgotten")
        buried = []
        if not many and not moved:
            for row in gone:
                self.bury(row.chat, row.session, row.profile, "hand", now)
                buried.append(row.chat)
        self.index.write(drop=[(row.chat, row.session) for row in gone], facts=[("chats", inode)])
        return buried


def _plain(facts: Facts) -> dict[str, object]:
    return {
        "chat": facts.chat,
        "profile": facts.profile,
        "policy": facts.policy,
        "tags": list(facts.tags),
        "sessions": facts.sessions,  # orjson writes dataclasses as objects
    }


def _known_file(settings: Settings) -> Path:
    from blake3 import blake3

    return settings.state_home / f"vault-{blake3(str(settings.vault).encode()).hexdigest(8)}"


def _known_id(known: Path) -> str:
    try:
        return files.read(known).decode().split("\n")[0].strip()
    except FileNotFoundError:
        return ""
