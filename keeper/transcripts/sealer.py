"""Sealer: brings a chat's seals up to its kept files, under the chat's lock.

It promises that what is up to date is told by a stat and a frame's header, and not written again (KEEP-5); that a
kept file which is another one now (a fold, a tombstone, `accept`) is sealed as a splice, so that the seal remembers
what it was; and that a damaged seal is set aside whole before another takes its place. It refuses to change a kept
file: where one was cut short in place, it gives the sealed bytes to whoever may.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from keeper import disk, files
from keeper.errors import KeeperError
from keeper.transcripts import seal
from keeper.transcripts.chat import Chat
from keeper.transcripts.frame import Frame, SealBroken, last_frame
from keeper.transcripts.held import make_folder, token
from keeper.transcripts.kept import Change
from keeper.transcripts.merge import merge
from keeper.transcripts.seal import Sealed
from keeper.transcripts.vault import Vault
from keeper.transcripts.verdict import Verdict, judge_sealed
from keeper.transcripts.versions import Versions, digest_of, renewed

REPACK_FRAMES = 64
"""So many frames of single turns are joined once their transcript is quiet."""
REPACK_QUIET_S = 3600.0

PutAside = Callable[[str, bytes], object]
Behind = dict[str, dict[str, Change]]
"""What is to be sealed: by chat and label, what kept is to what was sealed."""


class Sealer:
    """The sealing of one chat. `later`: only note what is to be sealed (`behind`), since a pass over a profile answers
    first. `wrote` tells that something is not yet synced."""

    def __init__(
        self, chat: Chat, now: float, put_aside: PutAside,
        later: bool = False, sync: bool = True, thorough: bool = False,
    ) -> None:  # fmt: skip
        self.chat = chat
        self.now_ns = int(now * 1e9)
        self.put_aside = put_aside
        self.later = later
        self.sync = sync
        self.thorough = thorough
        self.behind: dict[str, Change] = {}
        self.wrote = False
        self._versions: Versions | None = None

    # ------------------------------------------------------------------ transcripts

    def transcript(self, label: str, change: Change) -> None:
        """Seal what the kept transcript has beyond its seal."""
        path = self.chat.seal(label)
        try:
            fd = files.open_read(f"{self.chat.path}/{label}")
        except FileNotFoundError:
            return
        try:
            last: Frame | None = None
            try:
                last = last_frame(path)
                if last is not None and not seal.holds(last, fd) and change is Change.GREW:
                    change = Change.JOINED  # a run was killed between a fold and its seal
            except SealBroken:
                change = Change.JOINED if change is Change.GREW else change
            grew = change is Change.GREW and not self.thorough
            if grew and last is not None and seal.end_of_lines(fd, last.end) == last.end:
                if self.later and self._many(last):
                    self.behind[label] = change  # only to be repacked
            elif self.later:
                if os.fstat(fd).st_size:
                    self.behind[label] = change
            elif grew or not os.path.lexists(path):
                self._grow(path, label, last, fd)
            else:
                self._splice(path, label, change, fd)
        finally:
            os.close(fd)

    def _grow(self, path: str, label: str, last: Frame | None, fd: int) -> None:
        new = last is None
        self._folder()
        self.wrote |= seal.grow(path, last, fd, self.now_ns, self.sync, label) is not last
        if new and self.wrote and self.sync:
            disk.sync_dir(self.chat.seals)

    def _splice(self, path: str, label: str, change: Change, fd: int) -> None:
        sealed = self._read(path)
        data = files.read_at(fd, 0, path)
        data = data[: data.rfind(b"\n") + 1]
        if sealed.holes is None and data.startswith(bytes(sealed.content)):
            self._grow(path, label, sealed.last, fd)
            return
        if change is not Change.REPLACED:
            found = judge_sealed(sealed.whole_lines(), data, "/" not in label)
            if found.verdict is Verdict.DAMAGED:
                # Cut in place since it was proven, or long ago and unseen: the seal keeps what it has, and takes what
                # is new; so the next keep finds that kept is not what was sealed, tells, and builds it again.
                data = merge(sealed.whole_lines(), data).data
        self.wrote |= seal.splice(path, sealed, data, self.now_ns, self.sync) is not sealed.last

    def _read(self, path: str) -> Sealed:
        """The seal, its end such that frames can follow: what does not read there is set aside and cut off."""
        sealed = seal.read(path)
        if sealed.bad and not sealed.torn and self.thorough:
            self.put_aside(os.path.basename(path), files.read(path))
            disk.unlink(path)
            return Sealed()
        try:
            last_frame(path)
        except SealBroken:
            if not sealed.torn:
                self.put_aside(os.path.basename(path), files.read(path))
            disk.cut(path, sealed.good)
        return sealed

    def repack(self, label: str) -> bool:
        """Join the frames of single turns, where there are many and the transcript is quiet. Whether that was done."""
        path = self.chat.seal(label)
        try:
            last = last_frame(path)
        except SealBroken:
            return False
        if last is None or not self._many(last):
            return False
        make_folder(self.chat.swap)
        return seal.repack(path, f"{self.chat.swap}/{token()}.tmp")

    def _many(self, last: Frame) -> bool:
        return last.loose >= REPACK_FRAMES and self.now_ns - last.time_ns > REPACK_QUIET_S * 1e9

    # ------------------------------------------------------------------ other files

    @property
    def versions(self) -> Versions:
        """The seal of the other files, read when first needed."""
        if self._versions is None:
            self._versions = Versions(self.chat.versions)
            if self._versions.bad is not None and self._versions.bad.kind != "torn":
                self.renew()  # the versions behind a bad one stand for themselves
                self._versions = Versions(self.chat.versions)
        return self._versions

    def renew(self) -> None:
        """Where a frame of the other files' seal does not prove out: the seal is set aside whole, and made anew of
        those that do."""
        data = renewed(self.chat.versions)
        if data is not None:
            self.put_aside(os.path.basename(self.chat.versions), files.read(self.chat.versions))
            make_folder(self.chat.swap)
            disk.write_file(self.chat.versions, data, beside=self.chat.swap)
            self._versions = None

    def other(self, label: str, seen: os.stat_result) -> bytes | None:
        """Seal the kept file of that label, whose stat is `seen`. Where it was cut short in place since (or, if
        `thorough`, damaged otherwise), the bytes that it must have instead."""
        if not self.thorough and self.versions.knows(label, seen.st_size, seen.st_mtime_ns):
            return None
        version = self.versions.latest.get(label)
        shorter = version is not None and seen.st_size < version.size
        if self.later and not shorter and not self.thorough:
            self.behind[label] = Change.GREW
            return None
        path = f"{self.chat.path}/{label}"
        fd = files.open_read(path)
        try:
            digest, size = digest_of(fd, path)
            if version is not None and version.digest != digest and not self.versions.begins(label, fd):
                rotten = self.versions.knows(label, seen.st_size, seen.st_mtime_ns)
                sealed = self.versions.content(label)
                if isinstance(sealed, bytes) and (rotten or size < version.size):
                    return sealed
                if isinstance(sealed, bytes):
                    self.put_aside(os.path.basename(label), sealed)  # as where another inode brings the newer version
            self._ready()  # of a large file all but the end is written before `flush`
            self.versions.add(label, path, fd, digest, seen.st_mtime_ns, self.now_ns)
        finally:
            os.close(fd)
        return None

    def _ready(self) -> None:
        """The seal of the other files, such that frames can follow."""
        self._folder()
        if self.versions.bad is not None:
            disk.cut(self.chat.versions, self.versions.good)  # what a killed run had begun
            self.versions.bad = None

    def flush(self) -> None:
        """Write the versions that were added. Durable when this returns, if `sync`."""
        if self._versions is None or not self._versions.writer.out:
            return
        self._ready()
        self.wrote |= self._versions.flush(self.sync)
        if self.sync:
            disk.sync_dir(self.chat.seals)

    def _folder(self) -> None:
        if not os.path.isdir(self.chat.seals):
            make_folder(self.chat.seals)
            if self.sync:
                disk.sync_dir(self.chat.path)


def seal_behind(
    vault: Vault, behind: Behind, now: float, progress: Callable[[int, int], None] | None = None
) -> dict[str, str]:  # fmt: skip
    """Seal what a pass over a profile has noted, durable when this returns; one chat that fails stops no other, is
    sealed by the next keep, and told with its reason. Each chat is locked for its own sealing alone."""
    wrote, failed = False, dict[str, str]()
    for count, (name, labels) in enumerate(behind.items()):
        chat = vault.chat(name)

        def put_aside(label: str, data: bytes, chat: Chat = chat) -> object:
            return vault.put_aside(chat, label, data)

        try:
            with vault.lock(name):
                if os.path.isdir(chat.path):
                    wrote |= _seal_chat(Sealer(chat, now, put_aside, sync=False), labels)
        except (OSError, KeeperError) as error:
            failed[name] = f"kept, but not sealed yet: {error}"
            vault.notes.append(f"chat {name} is {failed[name]}")
        if progress is not None:
            progress(count + 1, len(behind))
    if wrote:
        disk.sync_volume(vault.root)
    return failed


def _seal_chat(sealer: Sealer, labels: dict[str, Change]) -> bool:
    for label, change in labels.items():
        if label.endswith(".jsonl"):
            sealer.transcript(label, change)
            sealer.repack(label)
            continue
        seen = files.regular(f"{sealer.chat.path}/{label}")
        if seen is not None:
            sealer.other(label, seen)  # one that was cut short meanwhile is the next keep's
    sealer.flush()
    return sealer.wrote
