"""Held: inodes that have a name of ours until their lines are safe: pins, old files whose writers may still write.

A held inode's name stands in the chat's `swap/`; on another volume it is a dot name beside live, told by a note in
`swap/`. It promises that a killed run's names are found again (`leftovers`), and that a name goes only when its inode
is proven quiet or still has a name of its own. It refuses to call an inode quiet on a guess: a read lease tells, or a
minute without a change where no lease can.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, unquote_to_bytes

import orjson
from blake3 import blake3

from keeper import disk, files
from keeper.errors import KeeperError, NoLinks
from keeper.transcripts.records import uuid_of

SETTLED_S = 60.0
"""Where no lease can tell, an inode unchanged for so long is taken for done."""


@dataclass(frozen=True, slots=True)
class Site:
    """Where one live file is replaced. `label` tells whose the names in `swap/` are (the kept path in the chat)."""

    live: str
    kept: str
    swap: str
    label: str
    linked: bool


@dataclass(slots=True)
class Held:
    """An inode that has a name of ours and is read through one descriptor. `data` is what was read so far, `used` how
    much of it (whole lines) has been merged.

    `owed`: lines of it stand in no kept file yet, so its name stays, quiet or not. `born`: unix seconds;
    one that came out when M took the live name is older than M, whenever it was born, and goes `at` that byte of M.
    """

    path: str
    fd: int
    data: bytes
    inode: tuple[int, int]
    quiet: bool = False
    owed: bool = False
    used: int = 0
    born: float = 0.0
    at: int = -1

    @classmethod
    def open(cls, path: str) -> Held:
        """Hold the file that stands under `path`, which is one of our names."""
        fd = files.open_read(path)
        try:
            seen = os.fstat(fd)
            data = files.read_at(fd, 0, path)
        except (OSError, KeeperError):
            os.close(fd)
            raise
        inode = seen.st_dev, seen.st_ino
        born, at = _reign_of(path) or (files.born(path, fd), -1)
        return cls(path, fd, data, inode, used=data.rfind(b"\n") + 1, born=born, at=at)

    @property
    def damaged(self) -> bool:
        """Whether its name tells that it was damaged in place."""
        return self.born >= NEWEST.born - 1

    def grew(self) -> bool:
        """Read what came since; whether anything did."""
        if os.fstat(self.fd).st_size == len(self.data):
            return False
        more = files.read_at(self.fd, len(self.data), self.path)
        self.data += more
        return bool(more)

    def waits(self) -> bool:
        """Whether whole lines of it have not been merged."""
        return self.data.rfind(b"\n") + 1 > self.used

    def pending(self, known: set[str]) -> bytes:
        """The whole lines that came since, to be put behind a merge whose uuids are `known` (theirs are added): none
        where one of them stands in it already, or where nothing of the inode was merged yet (those wait for a merge).
        """
        end = self.data.rfind(b"\n") + 1
        lines = self.data[self.used : end]
        uuids = [uuid for line in lines.split(b"\n") if (uuid := uuid_of(line)) is not None]
        if not self.used or not known.isdisjoint(uuids):
            return b""
        known.update(uuids)
        self.used = end
        return lines

    def close(self) -> None:
        """Let go of the descriptor; the name stays."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


@lru_cache(maxsize=4096)
def label_name(label: str) -> str:
    """A label (a kept path within its chat) as one name of a folder; a long one is cut, and told by its digest."""
    name = quote(os.fsencode(label), safe="")
    return name if len(name) <= 120 else f"{name[:80]}.{blake3(os.fsencode(label)).hexdigest(8)}"


def token() -> str:
    """A name's own part: it sorts by when it was made."""
    return f"{time.time_ns():016x}{os.urandom(3).hex()}"


@dataclass(frozen=True, slots=True)
class Reign:
    """Which inode was live before which: what comes out when M takes the live name was live before M, and so were all
    the lines that it has, though it may be younger than M. `born` is M's birth, `length` M's bytes at that time."""

    born: float
    length: int

    def mark(self) -> str:
        """What a name tells of it."""
        return f"-{int(self.born * 1e6) - 1:x}-{self.length:x}"


NEWEST = Reign(2.0**32, 0)
"""The reign of an inode that was damaged in place: what it has of its own came after all that was sealed, and kept,
built again from the seal, was never live."""


def _reign_of(path: str) -> tuple[float, int] | None:
    """What the name of an inode that came out tells; None where it is no such name."""
    name = os.path.basename(path)
    parts = _token_of(path).split("-") if "~" in name or name.startswith(".keeper-") else []
    try:
        return int(parts[1], 16) / 1e6, int(parts[2], 16)
    except (IndexError, ValueError):
        return None


def held_name(site: Site, before: Reign | None = None) -> str:
    """A free name in `swap/` for an inode of this site."""
    return f"{site.swap}/{label_name(site.label)}~{token()}{before.mark() if before else ''}"


def beside_name(site: Site, before: Reign | None = None) -> str:
    """A free name beside live that neither Claude's lists nor its sweep take for a transcript."""
    return f"{os.path.dirname(site.live)}/.keeper-{token()}{before.mark() if before else ''}.tmp"


def hold(site: Site, path: str, reign: Reign | None = None) -> Held:
    """Give the file under `path` a second name of ours, then read it through that (pin, then look).

    FileNotFoundError where there is no regular file. Raises NoLinks where no link can be made: on another volume the
    name stands beside live, and where that cannot be linked either the descriptor alone holds the inode.
    """
    if not site.linked:
        return _hold_beside(site, path, reign)
    make_folder(site.swap)
    name = held_name(site, reign)
    disk.link(path, name)
    try:
        return Held.open(name)
    except (OSError, KeeperError):
        _drop_if_named(name, path)
        raise


def _drop_if_named(name: str, path: str) -> None:
    """A name that could not be read through goes where the inode has its other name still, or is no file at all."""
    try:
        seen = os.lstat(name)
        other = os.lstat(path)
    except FileNotFoundError:
        return  # its only name now: it stays for the next run
    if (seen.st_dev, seen.st_ino) == (other.st_dev, other.st_ino):
        disk.drop(name)


def make_folder(path: str) -> None:
    """`swap/`, made when first needed; the chat's own folder is never made here."""
    if not os.path.isdir(path):
        try:
            disk.make_dir(path)
        except FileExistsError:
            return


def _hold_beside(site: Site, path: str, reign: Reign | None) -> Held:
    if os.path.dirname(path) != os.path.dirname(site.live):
        return Held.open(path)
    name = beside_name(site, reign)
    note(site, name)
    try:
        disk.link(path, name)
    except NoLinks:
        unnote(site, name)
        return Held.open(path)
    except FileNotFoundError:
        unnote(site, name)
        raise
    try:
        return Held.open(name)
    except (OSError, KeeperError):
        _drop_if_named(name, path)
        if not os.path.lexists(name):
            unnote(site, name)
        raise


def note(site: Site, name: str, stepping: bool = False) -> None:
    """Write down a name beside live before it is made, so that a killed swap's name is found again.

    `stepping`: live is about to step aside, so a next run that finds no live file puts it back.
    """
    make_folder(site.swap)
    told = {"label": label_name(site.label), "name": quote(os.fsencode(name)), "stepping": stepping}
    disk.write_file(f"{site.swap}/note-{os.path.basename(name)}.json", orjson.dumps(told))


def unnote(site: Site, name: str) -> None:
    """The name beside live is gone: so is its note."""
    disk.unlink(f"{site.swap}/note-{os.path.basename(name)}.json")


def stepped(swap: str) -> set[str]:
    """The `label_name`s whose live file a killed run had let step aside."""
    found: set[str] = set()
    try:
        names = [name for name in os.listdir(swap) if name.startswith("note-") and name.endswith(".json")]
    except (FileNotFoundError, NotADirectoryError):
        return found
    for name in names:
        try:
            told = orjson.loads(files.read(f"{swap}/{name}"))
            if told["stepping"]:
                found.add(str(told["label"]))
        except (ValueError, TypeError, KeyError, FileNotFoundError):
            continue
    return found


def clear(swap: str) -> None:
    """Before a chat goes for good: what its notes tell of beside live goes first, since nothing else tells of it; a
    live file that a killed run had let step aside gets its name back."""
    aside = stepped(swap)
    for label, paths in leftovers(swap, tidy=False).items():
        for path in paths:
            if os.path.dirname(path) == swap:
                continue
            live = f"{os.path.dirname(path)}/{os.path.basename(os.fsdecode(unquote_to_bytes(label)))}"
            if label in aside and not os.path.lexists(live):
                disk.move(path, live)
            else:
                disk.unlink(path)


def held_of(names: Sequence[str]) -> list[Held]:
    """What stands under these names still; a second look in one run finds fewer."""
    found = []
    for name in names:
        try:
            found.append(Held.open(name))
        except FileNotFoundError:
            continue
    return found


def one_each(site: Site, held: Sequence[Held]) -> list[Held]:
    """The same with one name an inode: a run that was killed while a file came out may have left it two. The one that
    tells of damage stays, else the one that tells of the earlier reign."""
    best: dict[tuple[int, int], Held] = {}
    for one in sorted(held, key=lambda one: (not one.damaged, one.born)):
        best.setdefault(one.inode, one)
    for one in held:
        if best[one.inode] is not one:
            drop(site, one)
    return [one for one in held if best[one.inode] is one]


def drop(site: Site, held: Held) -> None:
    """The name that held an inode goes; its lines are safe elsewhere."""
    held.close()
    if held.path != site.live and held.path != site.kept:
        disk.unlink(held.path)
        if os.path.dirname(held.path) != site.swap:
            unnote(site, held.path)


def leftovers(swap: str, tidy: bool = True) -> dict[str, list[str]]:
    """What an earlier run left, by `label_name`: names in `swap/`, and those beside live that its notes tell of.

    Each in the order in which it was made. What nobody needs any more is removed on the way, unless the caller only
    looks (`tidy`).
    """
    found: dict[str, list[str]] = {}
    try:
        names = sorted(os.listdir(swap))
    except (FileNotFoundError, NotADirectoryError):
        return found
    for name in names:
        path = f"{swap}/{name}"
        if name.startswith("note-"):
            _follow_note(path, found, tidy)
        elif name.endswith(".tmp") and tidy:
            disk.unlink(path)  # a note that was being written: the name it would tell of was not made yet
        elif "~" in name:
            found.setdefault(name.rpartition("~")[0], []).append(path)
    return {label: sorted(paths, key=_token_of) for label, paths in found.items()}


def _token_of(path: str) -> str:
    name = os.path.basename(path)
    return name.rpartition("~")[2] if "~" in name else name.removeprefix(".keeper-").removesuffix(".tmp")


def _follow_note(path: str, found: dict[str, list[str]], tidy: bool) -> None:
    try:
        told = orjson.loads(files.read(path))
        label, name = str(told["label"]), os.fsdecode(unquote_to_bytes(str(told["name"])))
    except (ValueError, TypeError, KeyError, FileNotFoundError):
        label, name = "", ""
    ours = name and os.path.basename(name).startswith(".keeper-") and os.path.lexists(name)
    if ours and label and os.path.isfile(name) and not os.path.islink(name):
        found.setdefault(label, []).append(name)
    elif not tidy:
        return
    elif ours:
        disk.unlink(name)  # a copy on its way to live: kept has what it holds
        disk.unlink(path)
    else:
        disk.unlink(path)


def quiet_now(one: Held) -> bool:
    """Whether it is proven, without waiting, that nobody writes to the inode any more and all of it was read.

    Where no lease can tell (another owner, a volume without leases), an inode unchanged for a minute is done.
    """
    seen = os.fstat(one.fd)
    told = files.nobody_writes(one.fd)
    if told is None:
        told = time.time() - seen.st_ctime > SETTLED_S
    return told and os.fstat(one.fd).st_size == len(one.data)


def release(site: Site, held: Sequence[Held], data: bytes, put_aside: Callable[[str, bytes], object]) -> int:
    """The names of those that are quiet go; an unfinished last line of theirs is set aside, if no line completes it.

    Returns how many are not quiet: they keep their names, for the next run.
    """
    waiting = 0
    for one in held:
        if one.owed or not one.quiet:
            one.close()
            waiting += 1
            continue
        tail = one.data[one.data.rfind(b"\n") + 1 :]
        if tail and not _completed(data, tail):
            put_aside(f"{label_name(site.label)}.torn", tail)
        drop(site, one)
    return waiting


def _completed(data: bytes, tail: bytes) -> bool:
    return data.startswith(tail) or b"\n" + tail in data
