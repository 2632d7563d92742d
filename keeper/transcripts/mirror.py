"""Mirror: keeps and puts back a session's other files: its companion folder and its extras, file by file.

It promises that a file appears under its final name whole-old or whole-new (KEEP-8), that kept follows a longer or
newer version with the older one set aside, and that a live file which is no transcript is never overwritten
(KEEP-7). It refuses whatever is no regular file or folder of its own: links, devices, FIFOs, sockets (KEEP-9).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from keeper import disk, files
from keeper.claude import Footprint
from keeper.errors import NoLinks
from keeper.transcripts import pair
from keeper.transcripts.held import Site, make_folder, note, token, unnote
from keeper.transcripts.look import Pair, absorb, regular
from keeper.transcripts.vault import Chat, Vault

COPY_TRIES = 5
"""A file that grows under every copy is taken as it was in the last one; the next keep takes the rest."""


@dataclass(frozen=True, slots=True)
class Part:
    """One file or folder of a footprint: where it lives, and its label (its path in the chat's folder)."""

    live: str
    label: str


def parts(footprint: Footprint) -> list[Part]:
    """The companion folders and extras of a footprint, each with its label in the chat's folder."""
    session = footprint.session
    found = [Part(str(path), session) for path in footprint.companions]
    for kind, path in footprint.extras:
        label = f"extras/{kind}/{session}" if kind != "todos" else f"extras/todos/{session}/{path.name}"
        found.append(Part(str(path), label))
    found += [Part(str(path), f"extras/beside/{session}/{path.name}") for path in footprint.beside]
    return found


@dataclass(slots=True)
class Mirror:
    """The mirroring of one session's parts. `changed` counts the files that kept or live gained."""

    vault: Vault
    chat: Chat
    left: dict[str, list[str]]
    changed: int = 0
    copied: bool = False
    waiting: int = 0
    dirty: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)

    # ------------------------------------------------------------------ keep

    def keep(self, part: Part) -> None:
        """Bring the part into the vault. FileNotFoundError where the chat's own folder is gone (KEEP-11)."""
        for live, label in _files(part.live, part.label):
            self.seen.add(label)
            self._keep_file(live, label)

    def absorb_rest(self) -> None:
        """What an earlier run held of files that are gone from the profile goes into their kept ones."""
        for label in {*self.left, *self.chat.linked_labels()}:
            kept = f"{self.chat.path}/{label}"
            if label and label not in self.seen and regular(kept) is not None:
                outcome = absorb(self.pair("", label), self.left.get(label, []))
                self.waiting += outcome.waiting
                if outcome.added:
                    self._gained(kept)

    def _keep_file(self, live: str, label: str) -> None:
        kept = f"{self.chat.path}/{label}"
        seen, have = regular(live), regular(kept)
        if seen is None:
            return
        if have is None:
            self._folders(label)
        elif _unchanged(seen, have):
            self.dirty.append(kept)  # what Claude appended through the link is made durable with the rest (KEEP-2)
            return
        if label.endswith(".jsonl"):
            outcome = pair.keep(self.pair(live, label), pair.Known(), self.left.get(label, []))
            if outcome.action != "none":
                self._gained(kept)
            self.waiting += outcome.waiting
        elif have is None:
            self._take(live, kept)
        else:
            self._follow(live, seen, kept, have, label)

    def pair(self, live: str, label: str, main: bool = False, apart: bool = False) -> Pair:
        """The pair of one transcript of this chat."""
        chat = self.chat

        def put_aside(name: str, data: bytes) -> object:
            return self.vault.put_aside(chat, name, data)

        return Pair(live, f"{chat.path}/{label}", chat.swap, label, chat.live_link(label), put_aside, main, apart)

    def _folders(self, label: str) -> None:
        """The folder levels below the chat's, one at a time: a chat that was removed is never made anew."""
        path = self.chat.path
        for level in label.split("/")[:-1]:
            path = f"{path}/{level}"
            self.vault.folder(path)

    def _gained(self, kept: str) -> None:
        self.changed += 1
        self.dirty += [kept, os.path.dirname(kept)]

    def _take(self, live: str, kept: str) -> None:
        try:
            disk.link(live, kept)
        except NoLinks:
            self._copy(live, kept)
        except FileNotFoundError:
            if not os.path.isdir(os.path.dirname(kept)):
                raise
            return
        if regular(kept) is None:
            disk.unlink(kept)
            return
        self._gained(kept)

    def _copy(self, live: str, kept: str) -> None:
        """A copy of one instant of the file: read again while it changes under the reading."""
        self.copied = True
        try:
            fd = files.open_read(live)
        except FileNotFoundError:
            return
        try:
            for _ in range(COPY_TRIES):
                before = os.fstat(fd)
                data = files.read_at(fd, 0, live)
                after = os.fstat(fd)
                if (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns) == (
                    len(data), after.st_mtime_ns,
                ):  # fmt: skip
                    break
            self._put(kept, data, before.st_mtime_ns)
        finally:
            os.close(fd)

    def _put(self, kept: str, data: bytes, time_ns: int) -> None:
        make_folder(self.chat.swap)
        new = f"{self.chat.swap}/{token()}.tmp"
        disk.write_new(new, [data])
        disk.touch(new, time_ns)
        disk.replace(new, kept)
        self._gained(kept)

    def _follow(self, live: str, seen: os.stat_result, kept: str, have: os.stat_result, label: str) -> None:
        """Both names have a file of their own, and it is no transcript."""
        try:
            live_data = files.read(live)
        except FileNotFoundError:
            return
        kept_data = files.read(kept)
        if live_data != kept_data:
            longer = len(live_data) > len(kept_data)
            newer = len(live_data) == len(kept_data) and seen.st_mtime_ns > have.st_mtime_ns
            if not longer and not newer:
                return
            self.vault.put_aside(self.chat, os.path.basename(label), kept_data)
        if seen.st_dev != have.st_dev:
            self._copy(live, kept)
            return
        make_folder(self.chat.swap)
        new = f"{self.chat.swap}/{token()}.tmp"
        try:
            disk.link(live, new)
        except NoLinks:
            self._copy(live, kept)
            return
        except FileNotFoundError:
            return
        disk.replace(new, kept)
        self._gained(kept)

    # ------------------------------------------------------------------ restore

    def restore(self, part: Part, now_ns: int) -> None:
        """Put back what live misses of the part, and give every file of it the time `now_ns` (RESTORE-2, -3)."""
        if os.path.islink(part.live):
            return
        for live, _ in _files(part.live, part.label) if os.path.lexists(part.live) else ():
            _touch(live, now_ns)
        for kept, label in _files(f"{self.chat.path}/{part.label}", part.label):
            live = part.live + label[len(part.label) :]
            if label.endswith(".jsonl") and not _occupied(live):
                one = self.pair(live, label)
                outcome = pair.keep(one, pair.Known(), self.left.get(label, []))
                done = pair.restore(one, outcome, False, now_ns)
                self.changed += done.action in ("restored", "folded")
            elif not os.path.lexists(live):
                self._put_back(kept, live, now_ns)

    def _put_back(self, kept: str, live: str, now_ns: int) -> None:
        disk.touch(kept, now_ns)
        try:
            try:
                disk.link(kept, live)
            except FileNotFoundError:
                disk.make_shared_dir(os.path.dirname(live))
                disk.link(kept, live)
        except NoLinks:
            self._copy_out(kept, live, now_ns)
        except FileExistsError:
            return
        self.changed += 1

    def _copy_out(self, kept: str, live: str, now_ns: int) -> None:
        tmp = f"{os.path.dirname(live)}/.keeper-{token()}.tmp"
        site = Site(live, kept, self.chat.swap, "", linked=False)
        note(site, tmp)
        try:
            disk.write_new(tmp, [files.read(kept)])
            disk.touch(tmp, now_ns)
            disk.move(tmp, live)
        except FileExistsError:
            return
        finally:
            disk.unlink(tmp)
            unnote(site, tmp)


def _unchanged(seen: os.stat_result, have: os.stat_result) -> bool:
    """One inode, or, on two volumes, the size and time that the copy was given."""
    if seen.st_dev == have.st_dev:
        return seen.st_ino == have.st_ino
    return (seen.st_size, seen.st_mtime_ns) == (have.st_size, have.st_mtime_ns)


def _occupied(live: str) -> bool:
    """Whether a link, a FIFO, a folder stands under the name: somebody's own, never written over."""
    return os.path.lexists(live) and regular(live) is None


def _touch(live: str, now_ns: int) -> None:
    try:
        disk.touch(live, now_ns)
    except FileNotFoundError:
        return


def _files(path: str, label: str) -> Iterator[tuple[str, str]]:
    """The regular files at or below `path`, each with its label; no link is followed, `.keeper-*` names are ours."""
    if regular(path) is not None:
        yield path, label
        return
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        if error.errno == errno.ELOOP:
            return
        raise files.failure(error, path, "read") from error
    try:
        with os.scandir(fd) as entries:
            found = sorted((e.name, e.is_dir(follow_symlinks=False), e.is_file(follow_symlinks=False)) for e in entries)
    finally:
        os.close(fd)
    for name, is_folder, is_file in found:
        if is_folder:
            yield from _files(f"{path}/{name}", f"{label}/{name}")
        elif is_file and not name.startswith(".keeper-"):
            yield f"{path}/{name}", f"{label}/{name}"
