"""Vault: the per-chat stores: layout, identity, locks, facts, tombstones.

It promises that a vault which this machine knows is never made anew where it is missing (an unmounted volume is
refused, by its id), that every folder is 0700 whatever the umask, and that what was forgotten stays forgotten until
somebody says `--adopt`. It refuses names that could leave their folder.
"""

from __future__ import annotations

import math
import os
import re
import time
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from blake3 import blake3

from keeper import disk, files
from keeper.errors import DiskError, Locked, Refused, VaultDamaged, VaultUnavailable
from keeper.settings import Settings
from keeper.transcripts.chat import Chat, Facts, told, written
from keeper.transcripts.held import label_name, make_folder
from keeper.transcripts.index import Index, IndexLost, Row
from keeper.transcripts.lines import Deeds, Lines

VERSION = "1\n"
_CHAT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,127}")
RELATIVE_WAIT_S = 1.0
"""So long is another chat waited for on the way of one's own: its slow keep must not hold up this one (KEEP-2)."""
MANY = 5
"""More folders than this missing at once, or over a tenth of all, is a named state and no forgetting (KEEP-11)."""


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
        self._locks_seen = False
        self._stones = Lines(f"{root}/tombstones.jsonl")
        self._stones_read: object = None
        self._tombstones: dict[tuple[str, str], Tombstone] = {}
        self.removals = Deeds(f"{root}/removals.jsonl")
        self.lost = Lines(f"{root}/lost.jsonl")

    def __enter__(self) -> Vault:
        return self

    def __exit__(self, *_: object) -> None:
        self.index.close()

    # ------------------------------------------------------------------ opening

    @classmethod
    def open(cls, settings: Settings, make: bool = True) -> Vault:
        """The vault of these settings; made where there was never one and `make` is set.

        Raises VaultUnavailable where this machine knows one at that place and it is not there, VaultDamaged where it
        is of a version that this keeper does not know.
        """
        root = settings.vault
        known = _known_file(settings)
        identity = _id_in(root / "id")
        vault = cls(root, settings)
        noted = _id_in(known)
        if identity and noted == identity:
            return vault._checked()
        if not identity and not noted and not make:
            return vault
        disk.ensure_dir(settings.state_home)
        with disk.lock(f"{known}.lock", settings.lock_wait_s):
            return vault._first_met(known)

    def _checked(self) -> Vault:
        path = self.root / "VERSION"
        version = files.read(path).decode() if path.exists() else VERSION
        if version != VERSION:
            raise VaultDamaged(f"the vault {self.root} is of version {version.strip()}", "use the keeper that made it")
        return self

    def _first_met(self, known: Path) -> Vault:
        """A vault that this machine meets for the first time, or makes; one at a time, since two may start at once."""
        identity, noted = _id_in(self.root / "id"), _id_in(known)
        if not identity and noted:
            raise VaultUnavailable(
                f"the vault {self.root} is not there, but this machine has one at that place (is its volume mounted?)",
                f"mount it; if you removed it on purpose, remove {known} too",
            )
        if not identity:
            self._make(known)
        elif noted != identity:
            self._checked()
            if noted:
                self.notes.append(f"another vault than before stands at {self.root}: its chats are taken as they are")
            disk.write_file(known, f"{identity}\n{self.root}\n".encode())
        return self

    def _make(self, known: Path) -> None:
        disk.ensure_dir(self.root)
        disk.set_mode(self.root, 0o700)
        for name in ("chats", "locks"):
            disk.ensure_dir(self.root / name)
        disk.write_file(self.root / "VERSION", VERSION.encode())
        self.index.write(facts=[("chats", self._chats_inode())])
        identity = os.urandom(16).hex()
        disk.write_file(self.root / "id", f"{identity}\n".encode())
        disk.write_file(known, f"{identity}\n{self.root}\n".encode())

    def _chats_inode(self) -> str:
        seen = os.stat(self.root / "chats")
        return str(seen.st_ino)  # the volume's number changes from boot to boot

    # ------------------------------------------------------------------ chats

    def chat(self, name: str) -> Chat:
        """The folder of that name, there or not. Raises Refused on a name that is no chat's."""
        if not _is_chat(name):
            raise Refused(f"{name!r} is no chat's name", "use letters, digits, and . _ @ - (at most 128)")
        return Chat(name, f"{self.root}/chats/{name}")

    def chat_names(self) -> list[str]:
        """Every chat folder there is."""
        try:
            with os.scandir(self.root / "chats") as entries:
                return sorted(e.name for e in entries if e.is_dir(follow_symlinks=False) and _is_chat(e.name))
        except FileNotFoundError:
            return []

    def lock(self, chat: str, wait_s: float | None = None) -> AbstractContextManager[None]:
        """Hold the chat's lock: one chat's keep delays no other chat (KEEP-2). Raises Locked."""
        if not self._locks_seen and (self.root / "id").is_file():
            if not (self.root / "locks").is_dir():
                disk.ensure_dir(self.root / "locks")  # a copy of the vault left it out
            self._locks_seen = True
        return disk.lock(f"{self.root}/locks/{chat}.lock", self.settings.lock_wait_s if wait_s is None else wait_s)

    def facts(self, chat: Chat) -> Facts | None:
        """The chat's `chat.json`; None where there is none or it does not read (it is told anew by the next keep)."""
        try:
            return told(chat.name, files.read(chat.facts_file))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write_facts(self, chat: Chat, facts: Facts, sync: bool) -> None:
        """`chat.json`, whole-old or whole-new. One that did not read is set aside first."""
        there = os.path.lexists(chat.facts_file)
        if there and self.facts(chat) is None:
            self.set_aside(chat, chat.facts_file)
        # One that was acknowledged gives way only to one that is on the disk.
        disk.write_file(chat.facts_file, written(facts), sync=sync or there)

    def set_aside(self, chat: Chat, path: str) -> str:
        """Move a file of the chat into `aside/`, under a name that tells it from all others there."""
        make_folder(chat.aside)
        name = f"{chat.aside}/{time.time_ns():x}-{label_name(os.path.basename(path))}"
        disk.replace(path, name)
        return name

    def put_aside(self, chat: Chat, label: str, data: bytes) -> str:
        """Bytes into `aside/`, once: the name is told by the bytes, so that a second run adds nothing."""
        make_folder(chat.aside)
        name = f"{chat.aside}/{label_name(label)}.{blake3(data).hexdigest(8)}"
        if not os.path.lexists(name):
            make_folder(chat.swap)
            disk.write_file(name, data, beside=chat.swap)
        return name

    def folder(self, chat: Chat, path: str) -> None:
        """A folder directly below one that exists; what else has the name is set aside. Never makes the chat's folder
        anew (KEEP-11)."""
        if os.path.lexists(path) and not os.path.isdir(path):
            self.set_aside(chat, path)
        make_folder(path)

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
        entries = self._stones.read()
        if entries is self._stones_read:
            return
        found: dict[tuple[str, str], Tombstone] = {}
        for entry in entries:
            try:
                key = (entry["profile"], entry["session"])
                if entry["by"] == "adopt":
                    found.pop(key, None)
                else:
                    found[key] = Tombstone(entry["chat"], entry["session"], entry["profile"], entry["by"])
            except (TypeError, KeyError):
                continue
        self._tombstones, self._stones_read = found, entries

    def bury(self, chat: str, session: str, profile: str, by: str, now: float) -> None:
        """Append a tombstone (or, by `adopt`, its lifting), durable before anything is removed."""
        self._stones.append({"chat": chat, "session": session, "profile": profile, "by": by, "at": now})

    def went(self, row: Row) -> bool:
        """Whether the chat of this row went by a rule or by a plan, since it was kept: no hand removed its folder."""
        return self.removals.last_of(row.chat) >= row.since

    # ------------------------------------------------------------------ the index, mended where it is lost

    def rows(self, session: str | None = None) -> list[Row]:
        """The index's rows (of one session); a lost or broken index is built anew first, and noted."""
        try:
            return self.index.rows() if session is None else self.index.of_session(session)
        except IndexLost:
            rows = self._rows_anew() if (self.root / "chats").is_dir() else []
            return [row for row in rows if session in (None, row.session)]

    def relatives(self, profile: str, head: str) -> list[Row]:
        """The rows of a profile whose transcripts begin with one record."""
        try:
            return self.index.of_head(profile, head)
        except IndexLost:
            return [row for row in self.rows() if (row.profile, row.head) == (profile, head)]

    def _rows_anew(self) -> list[Row]:
        """The rows as the folders tell them; where the index cannot be written, they are told all the same."""
        try:
            return self.reindex()
        except DiskError as error:
            self.notes.append(f"the index is lost and cannot be built anew: {error.message}")
            return self.rows_of_folders()

    def reindex(self) -> list[Row]:
        """Build the index from the folders: what `keeper reindex` does. Returns the rows."""
        rows = self.rows_of_folders()
        facts = [("chats", self._chats_inode())]
        try:
            self.index.write(put=rows, facts=facts, anew=True)
        except IndexLost:
            self.index.set_aside(f"{time.time_ns():x}")
            self.index.write(put=rows, facts=facts, anew=True)
        self.notes.append("the index was lost or broken and has been built anew from the folders")
        return rows

    def rows_of_folders(self) -> list[Row]:
        """The rows as the folders tell them; nothing is written."""
        return [row for name in self.chat_names() for row in self._rows_of_folder(self.chat(name))]

    def _rows_of_folder(self, chat: Chat) -> list[Row]:
        facts = self.facts(chat)
        if facts is None:
            return []
        # A folder that is there was kept after its chat went last, however long ago the transcript was born.
        kept = math.nextafter(self.removals.last_of(chat.name), math.inf)
        sessions = facts.sessions.items()
        return [Row.of(chat.name, session, facts.profile, told, max(told.born, kept)) for session, told in sessions]

    def missing(self, rows: list[Row] | None = None) -> list[Row]:
        """The rows whose chat folder is gone, those too that are no more in the index, until the folder is there again
        or the session is kept anew or forgotten. Rows (the index's, or as given) first: a folder is there before its
        row."""
        rows = self.rows() if rows is None else rows
        there = set(self.chat_names())
        found = {(row.profile, row.session): row for row in self._lost() if row.chat not in there}
        kept = {(row.profile, row.session) for row in rows if row.chat in there}
        found |= {(row.profile, row.session): row for row in rows if row.chat not in there}
        return [row for key, row in found.items() if key not in kept]

    def _lost(self) -> list[Row]:
        """What stays known of chats that went many at once; not of one that was forgotten or removed since."""
        found = []
        for entry in self.lost.read():
            with suppress(TypeError):
                row = Row(**entry)
                if self.forgotten(row.profile, row.session) is None and not self.went(row):
                    found.append(row)
        return found

    def settle_missing(self, now: float) -> list[str]:
        """Folders that a hand removed count as forgotten; many at once, or a vault put in another's place, do not.

        Returns the chats that were buried; what is not buried is noted and stays a named state, its rows go, and the
        next keep keeps on.
        """
        if not (self.root / "id").is_file():
            return []
        emptied = not (self.root / "chats").is_dir()
        for name in ("chats", "locks"):
            if not (self.root / name).is_dir():
                disk.ensure_dir(self.root / name)
        there = set(self.chat_names())
        missing = [row for row in self.rows() if row.chat not in there]
        gone = [row for row in missing if not self.went(row)]
        inode = self._chats_inode()
        try:
            moved = self.index.fact("chats") not in (None, inode)
        except IndexLost:
            return []  # noted where the rows were asked for; nothing is forgotten on an index that tells nothing
        if not missing and not moved:
            return []
        moved = moved or emptied
        chats = {row.chat for row in gone}
        total = len({row.chat for row in self.rows()})
        # Buried already by a run that could not write the index: once is enough.
        told = {(row.profile, row.session) for row in gone if self.forgotten(row.profile, row.session)}
        many = many_missing(len(chats), total)
        if chats and (many or moved):
            why = "the vault was moved or put back from a copy" if moved else "too many for a hand"
            self.notes.append(f"{len(chats)} of {total} chat folders are missing at once ({why}): nothing is forgotten")
        buried = []
        if not many and not moved:
            for chat in chats:
                rows = [row for row in gone if row.chat == chat and (row.profile, row.session) not in told]
                if not rows or self._bury_by_hand(chat, rows, now):
                    buried.append(chat)
                else:
                    missing = [row for row in missing if row.chat != chat]
        known = {(row.profile, row.session) for row in self._lost()}
        lost = [asdict(row) for row in gone if row.chat not in buried and (row.profile, row.session) not in known]
        try:
            if lost and (many or moved):
                self.lost.append(*lost)  # before the rows go, which a full disk must not
            self.index.write(drop=[(row.chat, row.session) for row in missing], facts=[("chats", inode)])
        except (IndexLost, DiskError, Locked) as error:
            self.notes.append(f"the index could not be written: {error}")
        return buried

    def _bury_by_hand(self, chat: str, rows: list[Row], now: float) -> bool:
        """A folder that a hand removed is forgotten; False where it is there after all, or where that cannot be told
        now (its lock is held, the disk refuses): one chat must hold up no other."""
        try:
            with self.lock(chat, RELATIVE_WAIT_S):
                if os.path.isdir(self.chat(chat).path):
                    return False
                for row in rows:
                    self.bury(chat, row.session, row.profile, "hand", now)
        except (Locked, DiskError) as error:
            self.notes.append(f"chat {chat}: its folder is gone, and it could not be forgotten: {error}")
            return False
        for row in rows:
            self.notes.append(
                f"session {row.session}: its folder was removed by hand, so it is forgotten "
                f"(`keeper keep --adopt {row.session}` keeps it again)"
            )
        return True


def many_missing(missing: int, total: int) -> bool:
    """Whether so many of all chats' folders are too many for a hand (KEEP-11)."""
    return missing > MANY or (missing > 1 and missing * 10 > total)


def _is_chat(name: str) -> bool:
    """Whether a name can be a chat's folder's."""
    return _CHAT.fullmatch(name) is not None and ".." not in name


def _known_file(settings: Settings) -> Path:
    """Where this machine notes which vault stands at that place."""
    return settings.state_home / f"vault-{blake3(str(settings.vault).encode()).hexdigest(8)}"


def _id_in(file: Path) -> str:
    """The vault's id, as the first line of this file says; "" where there is none."""
    try:
        return files.read(file).decode().split("\n")[0].strip()
    except FileNotFoundError:
        return ""
