"""Swap: replaces a live file under a writing Claude, losing no line.

Claude opens by path, appends one batch, closes. So keeper never appends to a live file: it exchanges whole files and
then reads what still arrived on the old ones. It promises that every inode which was looked at has a name until its
lines are safe (`swap/` in the chat's folder; on another volume a dot name beside live), so that a kill at any point
leaves all of it to the next run, and that a late line stands before what its writer wrote later (SWAP-1). It refuses
a live file that is not ours to replace (SWAP-7).
"""

from __future__ import annotations

import os
import secrets
import stat
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote

import orjson

from keeper import disk
from keeper.errors import NoExchange, NoLinks, Refused
from keeper.transcripts.merge import merge

ROUNDS = 20
"""After so many rounds with late lines the rest waits in `swap/` for the next run."""
LEASE_WAIT_S = 1.0
"""So long is a writer that holds an old inode waited for (SWAP-2)."""
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
    """An inode that has a name of ours and is read through one descriptor. `data` is what was read so far."""

    path: str
    fd: int
    data: bytes
    inode: tuple[int, int]
    quiet: bool = False

    @classmethod
    def open(cls, path: str) -> Held:
        """Hold the file that stands under `path`, which is one of our names."""
        fd = disk.open_read(path)
        seen = os.fstat(fd)
        return cls(path, fd, disk.read_at(fd, 0, path), (seen.st_dev, seen.st_ino))

    def grew(self) -> bool:
        """Read what came since; whether anything did."""
        if os.fstat(self.fd).st_size == len(self.data):
            return False
        more = disk.read_at(self.fd, len(self.data), self.path)
        self.data += more
        return bool(more)

    def close(self) -> None:
        """Let go of the descriptor; the name stays."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def token() -> str:
    """A name's random part."""
    return secrets.token_hex(6)


def held_name(site: Site) -> str:
    """A free name in `swap/` for an inode of this site."""
    return f"{site.swap}/{quote(site.label, safe='')}~{token()}"


def beside_name(site: Site) -> str:
    """A free name beside live that neither Claude's lists nor its sweep take for a transcript."""
    return f"{os.path.dirname(site.live)}/.keeper-{token()}.tmp"


def hold(site: Site, path: str) -> Held:
    """Give the file under `path` a second name of ours, then read it through that (pin, then look).

    FileNotFoundError where there is no regular file. Raises NoLinks where no link can be made: on another volume the
    name stands beside live, and where that cannot be linked either the descriptor alone holds the inode.
    """
    if not site.linked:
        return _hold_beside(site, path)
    make_folder(site.swap)
    name = held_name(site)
    disk.link(path, name)
    try:
        return Held.open(name)
    except FileNotFoundError:
        disk.unlink(name)
        raise


def make_folder(path: str) -> None:
    """`swap/`, made when first needed; the chat's own folder is never made here."""
    if not os.path.isdir(path):
        try:
            disk.make_dir(path)
        except FileExistsError:
            return


def _hold_beside(site: Site, path: str) -> Held:
    if os.path.dirname(path) != os.path.dirname(site.live):
        return Held.open(path)
    name = beside_name(site)
    note(site, name)
    try:
        disk.link(path, name)
    except NoLinks:
        return Held.open(path)
    return Held.open(name)


def note(site: Site, name: str) -> None:
    """Write down a name beside live before it is made, so that a killed swap's name is found again."""
    make_folder(site.swap)
    path = f"{site.swap}/note-{os.path.basename(name)}.json"
    disk.write_file(path, orjson.dumps({"label": site.label, "name": name}))


def unnote(site: Site, name: str) -> None:
    disk.unlink(f"{site.swap}/note-{os.path.basename(name)}.json")


def drop(site: Site, held: Held) -> None:
    """The name that held an inode goes; its lines are safe elsewhere."""
    held.close()
    if held.path != site.live and held.path != site.kept:
        disk.unlink(held.path)
        if os.path.dirname(held.path) != site.swap:
            unnote(site, held.path)


def leftovers(swap: str) -> dict[str, list[str]]:
    """What an earlier run left, by label: names in `swap/`, and the names beside live that its notes tell of."""
    found: dict[str, list[str]] = {}
    try:
        names = sorted(os.listdir(swap))
    except (FileNotFoundError, NotADirectoryError):
        return found
    for name in names:
        path = f"{swap}/{name}"
        if name.startswith("note-"):
            _follow_note(path, found)
        elif name.endswith(".tmp"):
            disk.unlink(path)  # a note that was being written: the name it would tell of was not made yet
        elif "~" in name:
            found.setdefault(unquote(name.rpartition("~")[0]), []).append(path)
    return found


def _follow_note(path: str, found: dict[str, list[str]]) -> None:
    try:
        told = orjson.loads(disk.read(path))
        label, name = str(told["label"]), str(told["name"])
    except (ValueError, TypeError, KeyError, FileNotFoundError):
        label, name = "", ""
    if name and os.path.basename(name).startswith(".keeper-") and os.path.lexists(name):
        found.setdefault(label, []).append(name)
    else:
        disk.unlink(path)


def ours(fd: int) -> bool:
    """Whether the live file is ours to replace: its owner is this user (SWAP-7)."""
    return os.fstat(fd).st_uid == os.geteuid()


@dataclass(frozen=True, slots=True)
class Swapped:
    """How a swap ended: under the live name or not, with how many rounds, and what is not yet proven quiet."""

    placed: bool
    rounds: int
    data: bytes


def swap(
    site: Site,
    base: bytes,
    held: list[Held],
    bring_back: bool,
    stamp_ns: int | None = None,
    quiet_wait_s: float = LEASE_WAIT_S,
) -> Swapped:
    """Put `base` (whole lines, a merge of all that is `held`) under the live and the kept name.

    `held` are the inodes whose writers may still write: the pinned live one first, the old kept one, leftovers; what
    comes out under the live name in addition is added to it. `bring_back`: a live name that is gone is made again
    (restore), else the lines go to kept alone (keep). Returns when a round found no late line, all synced.
    """
    data = base
    rounds = 0
    while True:
        rounds += 1
        placed = _round(site, data, held, bring_back, stamp_ns)
        found = late(data, held, quiet_wait_s)
        if found == data:
            break
        if rounds >= ROUNDS:
            for one in held:
                one.quiet = False
            break
        data = found
        if placed:
            # M may have been written to since: it is the next to come out, so it is held like the one before.
            fresh = hold(site, site.kept if site.linked else site.live)
            held.append(fresh)
            data = merge(data, fresh.data).data
    disk.sync_dir(os.path.dirname(site.kept))
    if placed:
        disk.sync_dir(os.path.dirname(site.live))
    return Swapped(placed, rounds, data)


def _round(site: Site, data: bytes, held: list[Held], bring_back: bool, stamp_ns: int | None) -> bool:
    """M written, durable and with a name in the vault before anything else; then under both names."""
    make_folder(site.swap)
    new = held_name(site)
    like = held[0].fd if held else None
    disk.write_new(new, [data], like=like if site.linked else None)
    if stamp_ns is None and like is not None:
        stamp_ns = os.fstat(like).st_mtime_ns  # `--continue` takes the newest time: a keep makes none newer
    if stamp_ns is not None:
        disk.touch(new, stamp_ns)
    if site.linked:
        placed = _place(site, new, data, held, bring_back)
        disk.replace(new, site.kept)
        return placed
    disk.replace(new, site.kept)  # on another volume kept takes M first: what live loses then is there
    disk.sync_dir(os.path.dirname(site.kept))
    return _place(site, site.kept, data, held, bring_back)


def _place(site: Site, new: str, data: bytes, held: list[Held], bring_back: bool) -> bool:
    """Exchange M with what stands under the live name. False where the name is gone and stays so."""
    while True:
        tmp = beside_name(site)
        note(site, tmp)
        try:
            if site.linked:
                disk.link(new, tmp)
            else:
                disk.write_new(tmp, [data], like=held[0].fd if held else None)
                disk.touch(tmp, os.stat(new).st_mtime_ns)
        except FileNotFoundError:
            unnote(site, tmp)  # the project's folder went too
            if not bring_back:
                return False
            disk.make_shared_dir(os.path.dirname(site.live))
            continue
        try:
            _exchange(site, tmp, held)
            return True
        except FileNotFoundError:
            if not bring_back:
                disk.unlink(tmp)
                unnote(site, tmp)
                return False
        try:
            disk.move(tmp, site.live)
            unnote(site, tmp)
            return True
        except FileExistsError:
            disk.unlink(tmp)
            unnote(site, tmp)


def _exchange(site: Site, tmp: str, held: list[Held]) -> None:
    """`tmp` and live change places; a stranger that comes out is held from its first byte."""
    try:
        disk.exchange(tmp, site.live)
    except NoExchange:
        _exchange_in_two_steps(site, tmp, held)
        return
    out = os.lstat(tmp)
    if not stat.S_ISREG(out.st_mode):
        disk.exchange(tmp, site.live)
        disk.unlink(tmp)
        unnote(site, tmp)
        raise Refused(f"{site.live} is no regular file any more", "look at what stands there; it was left as it is")
    _take_out(site, tmp, (out.st_dev, out.st_ino), held)


def _exchange_in_two_steps(site: Site, tmp: str, held: list[Held]) -> None:
    """Without an exchange on the volume: live steps aside, M takes the free name or is folded again."""
    out = held_name(site) if site.linked else beside_name(site)
    if not site.linked:
        note(site, out)
    disk.replace(site.live, out)
    try:
        disk.move(tmp, site.live)
    except FileExistsError:
        disk.unlink(tmp)
    unnote(site, tmp)
    seen = os.lstat(out)
    _take_out(site, out, (seen.st_dev, seen.st_ino), held)


def _take_out(site: Site, name: str, inode: tuple[int, int], held: list[Held]) -> None:
    """What came out under `name`: one that is held already needs no second name, another one is held from here on."""
    for one in held:
        if one.inode == inode:
            if one.path == site.live:
                one.path = name  # a volume without links: this is its only name now
            else:
                disk.unlink(name)
                unnote(site, name)
            return
    if site.linked and os.path.dirname(name) != site.swap:
        own = held_name(site)
        disk.link(name, own)
        disk.unlink(name)
        unnote(site, name)
        name = own
    stranger = Held.open(name)
    stranger.data = b""  # nothing of it is in M yet: the drain reads it from its first byte
    held.append(stranger)


def late(data: bytes, held: Sequence[Held], wait_s: float) -> bytes:
    """`data` with every line that arrived on a held inode beyond what was read, in order."""
    deadline = time.monotonic() + wait_s
    for one in held:
        if _wait_quiet(one, deadline) and one.data:
            data = merge(data, one.data).data
    return data


def _wait_quiet(one: Held, deadline: float) -> bool:
    """Read until nobody has the inode open for writing, or the deadline; whether anything new was read."""
    grew = False
    while True:
        grew = one.grew() or grew
        told = disk.nobody_writes(one.fd)
        if told:
            grew = one.grew() or grew
            one.quiet = True
            return grew
        if told is None:
            one.quiet = time.time() - os.fstat(one.fd).st_ctime > SETTLED_S
            return grew
        if time.monotonic() >= deadline:
            return grew
        time.sleep(0.001)


def release(site: Site, held: Sequence[Held], data: bytes, put_aside: Callable[[str, bytes], object]) -> int:
    """The names of those that are quiet go; an unfinished last line of theirs is set aside, if no line completes it.

    Returns how many are not quiet: they keep their names, for the next run.
    """
    waiting = 0
    for one in held:
        if not one.quiet:
            one.close()
            waiting += 1
            continue
        tail = one.data[one.data.rfind(b"\n") + 1 :]
        if tail and not _completed(data, tail):
            put_aside(f"{quote(site.label, safe='')}.torn", tail)
        drop(site, one)
    return waiting


def _completed(data: bytes, tail: bytes) -> bool:
    return data.startswith(tail) or b"\n" + tail in data
