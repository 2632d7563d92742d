"""Swap: replaces a live file under a writing Claude, losing no line.

Claude opens by path, appends one batch, closes. So keeper never appends to a live file: it exchanges whole files and
then reads what still arrived on the old ones. It promises that every inode which was looked at has a name until its
lines are safe (`swap/` in the chat's folder; on another volume a dot name beside live), so that a kill at any point
leaves all of it to the next run, and that a late line stands before what its writer wrote later (SWAP-1). It refuses
a live file that is not ours to replace (SWAP-7).
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass

from keeper import disk, files
from keeper.errors import DiskError, NoExchange, Refused
from keeper.transcripts.held import Held, Site, beside_name, held_name, hold, make_folder, note, quiet_now, unnote
from keeper.transcripts.merge import merge

ROUNDS = 20
"""After so many rounds with late lines the rest waits in `swap/` for the next run."""
LEASE_WAIT_S = 1.0
"""So long is a writer that holds an old inode waited for (SWAP-2)."""


def ours(fd: int) -> bool:
    """Whether the live file is ours to replace: its owner is this user (SWAP-7)."""
    return os.fstat(fd).st_uid == os.geteuid()


@dataclass(frozen=True, slots=True)
class Swapped:
    """How a swap ended: the inode that took the live name (0: none did), with how many rounds, and M's bytes."""

    placed: int
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
                one.owed = True
            break
        data = found
        if placed:
            # M may have been written to since: it is the next to come out, so it is held like the one before.
            try:
                fresh = hold(site, site.kept if site.linked else site.live)
            except FileNotFoundError:
                continue  # on another volume, and swept: the next round puts what is in hand into kept alone
            held.append(fresh)
            data = merge(data, fresh.data).data
    disk.sync_dir(os.path.dirname(site.kept))
    if placed:
        disk.sync_dir(os.path.dirname(site.live))
    return Swapped(placed, rounds, data)


def _round(site: Site, data: bytes, held: list[Held], bring_back: bool, stamp_ns: int | None) -> int:
    """M written, durable and with a name in the vault before anything else; then under both names."""
    make_folder(site.swap)
    new = held_name(site)
    like = held[0].fd if held else None
    disk.write_new(new, [data], like=like if site.linked else None)
    if stamp_ns is None and like is not None:
        stamp_ns = os.fstat(like).st_mtime_ns  # `--continue` takes the newest time: a keep makes none newer
    if stamp_ns is not None:
        disk.touch(new, stamp_ns)
    try:
        if site.linked:
            placed = _place(site, new, data, held, bring_back)
            disk.replace(new, site.kept)
            return placed
        disk.replace(new, site.kept)  # on another volume kept takes M first: what live loses then is there
        disk.sync_dir(os.path.dirname(site.kept))
        return _place(site, site.kept, data, held, bring_back)
    except DiskError:
        _clear(new)
        raise


def _clear(name: str) -> None:
    """After a failure: an M that stands nowhere yet leaves no name behind; all its lines have their own."""
    try:
        if os.stat(name).st_nlink == 1:
            disk.unlink(name)
    except FileNotFoundError:
        return


def _place(site: Site, new: str, data: bytes, held: list[Held], bring_back: bool) -> int:
    """Exchange M with what stands under the live name; its inode, or 0 where the name is gone and stays so."""
    while True:
        tmp = beside_name(site)
        note(site, tmp)
        try:
            if site.linked:
                disk.link(new, tmp)
            else:
                disk.write_new(tmp, [data], like=held[0].fd if held else None)
                disk.touch(tmp, os.stat(new).st_mtime_ns)
            mine = os.lstat(tmp).st_ino
        except FileNotFoundError:
            unnote(site, tmp)  # the project's folder went too
            if not bring_back:
                return 0
            disk.make_shared_dir(os.path.dirname(site.live))
            continue
        try:
            _exchange(site, tmp, held)
            return mine
        except FileExistsError:
            continue
        except FileNotFoundError:
            if not bring_back:
                disk.unlink(tmp)
                unnote(site, tmp)
                return 0
        except DiskError:
            if os.path.lexists(tmp) and os.lstat(tmp).st_ino == mine:
                disk.unlink(tmp)
                unnote(site, tmp)
            raise
        try:
            disk.move(tmp, site.live)
            unnote(site, tmp)
            return mine
        except (FileExistsError, FileNotFoundError):
            disk.unlink(tmp)  # the name was taken, or the folder went with tmp in it: round again
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
    """Without an exchange on the volume: live steps aside, and M takes the free name.

    FileExistsError where somebody took the name between the two steps: what stepped aside is held, M is put again.
    """
    out = held_name(site) if site.linked else beside_name(site)
    if not site.linked:
        note(site, out)
    disk.replace(site.live, out)
    seen = os.lstat(out)
    _take_out(site, out, (seen.st_dev, seen.st_ino), held)
    try:
        disk.move(tmp, site.live)
    except FileExistsError:
        disk.unlink(tmp)
        raise
    finally:
        unnote(site, tmp)


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
        told = files.nobody_writes(one.fd)
        if told:
            grew = one.grew() or grew
            one.quiet = True
            return grew
        if told is None:
            one.quiet = quiet_now(one)
            return grew
        if time.monotonic() >= deadline:
            return grew
        time.sleep(0.001)
