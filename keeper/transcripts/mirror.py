"""Mirror: keeps a session's other files: its companion folder and its extras, file by file.

It promises that a file appears under its final name whole-old or whole-new (KEEP-8), that kept follows a longer or
newer version with the older one set aside, and that one which was cut short in place is kept as it was sealed
(KEEP-7, SEAL-1). It refuses whatever is no regular file or folder of its own: links, devices, FIFOs, sockets (KEEP-9).
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from keeper import disk, files
from keeper.claude import Footprint, is_session
from keeper.errors import KeeperError, NoLinks
from keeper.files import regular
from keeper.transcripts import pair
from keeper.transcripts.absorb import absorb
from keeper.transcripts.chat import Chat
from keeper.transcripts.held import label_name, leftovers, make_folder, stepped, token
from keeper.transcripts.kept import Change, Pair
from keeper.transcripts.prove import stands
from keeper.transcripts.sealer import Sealer
from keeper.transcripts.vault import Vault

SETTLED_S = 3600.0
"""What did not change for so long the kernel wrote back long ago, and an earlier keep made durable."""


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


class Mirror:
    """The mirroring of one session's parts, under its chat's lock. `changed` counts the files that kept or live
    gained, `dirty` names what must be made durable, `errors` what went wrong with a file and stopped no other,
    `rebuilt` the files that had been cut short in place."""

    def __init__(
        self, vault: Vault, chat: Chat, now: float, later: bool = False, thorough: bool = False
    ) -> None:  # fmt: skip
        self.vault = vault
        self.chat = chat
        self.seals = Sealer(chat, now, self._put_aside, later, thorough=thorough)
        self.refresh()
        self.settled = now - SETTLED_S
        self.links = True
        self.changed = 0
        self.waiting = 0
        self.dirty: list[str] = []
        self.errors: list[KeeperError] = []
        self.rebuilt: list[str] = []
        self.seen: set[str] = set()

    def refresh(self) -> None:
        """What stands in the chat's folder now, and what earlier runs left there."""
        self.names = self.chat.names()
        swap = "swap" in self.names
        self.back = stepped(self.chat.swap) if swap else set()
        self.left = leftovers(self.chat.swap) if swap else {}

    # ------------------------------------------------------------------ keep

    def keep(self, part: Part) -> None:
        """Bring the part into the vault. FileNotFoundError where the chat's own folder is gone (KEEP-11)."""
        for live, label in self.files(part.live, part.label):
            self.seen.add(label_name(label))
            try:
                self._keep_file(live, label)
            except (OSError, KeeperError) as error:
                self.failed(error, live)

    def failed(self, error: OSError | KeeperError, path: str) -> None:
        """One bad file stops no other; that the chat itself was removed stops all."""
        if isinstance(error, FileNotFoundError) and not os.path.isdir(self.chat.path):
            raise error
        told = files.told(error, path)
        if told.message not in [one.message for one in self.errors]:
            self.errors.append(told)

    def absorb_rest(self) -> None:
        """What an earlier run held of files that are gone from the profile goes into their kept ones."""
        links = {name for name in self.names if ".live" in name}
        if not links and not self.left:
            return
        for path, label in files.walk(self.chat.path, "", self.errors):
            label = label.removeprefix("/")
            # Other transcripts of this chat are seen to by their own keep.
            own = "/" not in label and is_session(label.removesuffix(".jsonl"))
            if not label.endswith(".jsonl") or own or label_name(label) in self.seen:
                continue
            one = self.pair(self._stepped_aside(label), label)
            left = self.left_of(label)
            if left or one.links:
                outcome = pair.keep(one, pair.Known(), left) if one.live else absorb(one, left)
                self.waiting += outcome.waiting
                if outcome.added:
                    self._gained(path)
                self.seals.transcript(label, outcome.change)

    def _stepped_aside(self, label: str) -> str:
        """Where the live file stood that a killed run had let step aside: beside the name that it made; "" for none."""
        beside = [path for path in self.left_of(label) if os.path.basename(path).startswith(".keeper-")]
        if label_name(label) not in self.back or not beside:
            return ""
        return f"{os.path.dirname(beside[0])}/{os.path.basename(label)}"

    def left_of(self, label: str) -> list[str]:
        """What an earlier run held of the file with this label."""
        return self.left.get(label_name(label), [])

    def _keep_file(self, live: str, label: str) -> None:
        kept = f"{self.chat.path}/{label}"
        seen, have = regular(live), regular(kept)
        if seen is None:
            return
        if have is None:
            self.folders(label)
            if os.path.lexists(kept):
                self.vault.set_aside(self.chat, kept)
        elif self._unchanged(seen, have) and not self.left_of(label) and self._as_sealed(live, kept, label, have):
            if seen.st_ctime > self.settled:
                self.dirty.append(kept)  # what Claude appended through the link is made durable with the rest (KEEP-2)
            return
        if label.endswith(".jsonl"):
            outcome = pair.keep(self.pair(live, label), pair.Known(), self.left_of(label))
            if outcome.action != "none":
                self._gained(kept)
            self.waiting += outcome.waiting
            self.seals.transcript(label, outcome.change)
            if outcome.damaged:
                self.rebuilt.append(label)
            return
        if have is None:
            self._take(live, kept)
        else:
            self._follow(live, kept, label)
        self._seal_other(kept, label)

    def _as_sealed(self, live: str, kept: str, label: str, have: os.stat_result) -> bool:
        """Whether what was not changed by name was not damaged in place either; what it grew by is sealed."""
        if not label.endswith(".jsonl"):
            self._seal_other(kept, label)
            return True
        one = self.pair(live, label)
        if one.links or one.thorough or not stands(kept, one.seal):
            return False
        self.seals.transcript(label, Change.GREW)
        return True

    def _unchanged(self, seen: os.stat_result, have: os.stat_result) -> bool:
        """One inode, or, where no link can be made, the size and time that the copy was given."""
        if seen.st_dev == have.st_dev and self.links:
            return seen.st_ino == have.st_ino
        return (seen.st_size, seen.st_mtime_ns) == (have.st_size, have.st_mtime_ns)

    def prove_other(self, label: str) -> None:
        """Hold a kept file against its seal, whether or not it lives; one that is gone comes back."""
        kept = f"{self.chat.path}/{label}"
        if regular(kept) is None:
            content = self.seals.versions.content(label)
            if isinstance(content, bytes):
                self.folders(label)
                self._put(kept, content, self.seals.versions.latest[label].mtime_ns)
        self._seal_other(kept, label)

    def prove_size(self, kept: str, label: str) -> None:
        """Before a kept file is put back: one that was cut short in place while it lived is as it was sealed again."""
        version = self.seals.versions.latest.get(label)
        seen = regular(kept)
        if version is not None and seen is not None and seen.st_size < version.size:
            self._seal_other(kept, label)

    def _seal_other(self, kept: str, label: str) -> None:
        """One that was cut short in place is as it was sealed again, on an inode of its own: live stays as it is, and
        the longer one comes back when the shorter is gone (KEEP-7)."""
        seen = regular(kept)
        content = self.seals.other(label, seen) if seen is not None else None
        if seen is not None and content is not None:
            self._put(kept, content, seen.st_mtime_ns)
            self.rebuilt.append(label)
            self._seal_other(kept, label)

    def pair(self, live: str, label: str, main: bool = False, apart: bool = False, mark: str = "") -> Pair:
        """The pair of one transcript of this chat; `mark` tells the second link of one of two live files."""
        chat = self.chat
        stem = os.path.basename(chat.live_link(label))
        links = tuple(f"{chat.path}/{name}" for name in self.names if name == stem or name.startswith(f"{stem}-"))
        link = f"{chat.live_link(label)}{mark}"
        return Pair(
            live,
            f"{chat.path}/{label}",
            chat.swap,
            label,
            link,
            self._put_aside,
            main,
            apart,
            links,
            label_name(label) in self.back,
            chat.seal(label),
            self.seals.thorough,
        )

    def _put_aside(self, name: str, data: bytes) -> object:
        return self.vault.put_aside(self.chat, name, data)

    def folders(self, label: str) -> None:
        """The folder levels below the chat's, one at a time: a chat that was removed is never made anew."""
        path = self.chat.path
        for level in label.split("/")[:-1]:
            path = f"{path}/{level}"
            if not os.path.isdir(path):
                self.vault.folder(self.chat, path)
                self.dirty.append(os.path.dirname(path))

    def _gained(self, kept: str) -> None:
        self.changed += 1
        self.dirty += [kept, os.path.dirname(kept)]

    def _take(self, live: str, kept: str) -> None:
        try:
            disk.link(live, kept)
        except NoLinks:
            self.links = False
            self._copy(live, kept)
            return
        except FileNotFoundError:
            if not os.path.isdir(os.path.dirname(kept)):
                raise
            return
        if regular(kept) is None:
            disk.unlink(kept)
            return
        self._gained(kept)

    def _copy(self, live: str, kept: str) -> None:
        try:
            data, time_ns = files.instant(live)
        except FileNotFoundError:
            return
        self._put(kept, data, time_ns)

    def _put(self, kept: str, data: bytes, time_ns: int) -> None:
        make_folder(self.chat.swap)
        new = f"{self.chat.swap}/{token()}.tmp"
        try:
            disk.write_new(new, [data])
            disk.touch(new, time_ns)
            disk.replace(new, kept)
        except (OSError, KeeperError):
            disk.drop(new)
            raise
        self._gained(kept)

    def _follow(self, live: str, kept: str, label: str) -> None:
        """Both names have a file of their own, and it is no transcript. Pinned, then judged, then acted by the pin; but
        a version that does not take the kept name needs none."""
        if not _may_win(live, kept):
            return
        make_folder(self.chat.swap)
        new = f"{self.chat.swap}/{token()}.tmp"
        try:
            try:
                disk.link(live, new)
            except NoLinks:
                self.links = False
                data, time_ns = files.instant(live)
                if self._wins(data, time_ns, kept, label) and data != files.read(kept):
                    self._put(kept, data, time_ns)
                elif os.stat(kept).st_mtime_ns != time_ns and data == files.read(kept):
                    disk.touch(kept, time_ns)  # by size and time the next keep knows it without reading
                return
            if regular(new) is not None and self._wins(*files.instant(new), kept, label):
                disk.sync_file(new)  # a name that was acknowledged goes to a file that is on the disk alone
                disk.replace(new, kept)
                self._gained(kept)
        except FileNotFoundError:
            if not os.path.isdir(self.chat.path):
                raise
        finally:
            disk.drop(new)

    def _wins(self, data: bytes, time_ns: int, kept: str, label: str) -> bool:
        """Whether live's version takes the kept name: equal, longer, or as long and newer; the other is set aside."""
        have = files.read(kept)
        if data == have:
            return True
        if not _is_more(len(data), time_ns, os.stat(kept)):
            return False
        self.vault.put_aside(self.chat, os.path.basename(label), have)
        return True

    def files(self, path: str, label: str) -> list[tuple[str, str]]:
        """The regular files at or below `path` with their labels; a folder that cannot be read is told, and passed."""
        return list(files.walk(path, label, self.errors))


def _is_more(size: int, time_ns: int, kept: os.stat_result) -> bool:
    """Whether a version of that size and time takes the place of another one that is kept."""
    return size > kept.st_size or (size == kept.st_size and time_ns > kept.st_mtime_ns)


def _may_win(live: str, kept: str) -> bool:
    """Whether live's version is more than kept's, as a stat tells, or the same."""
    seen, have = regular(live), regular(kept)
    if seen is None or have is None or _is_more(seen.st_size, seen.st_mtime_ns, have):
        return True
    try:
        return seen.st_size == have.st_size and files.read(live) == files.read(kept)
    except FileNotFoundError:
        return True  # gone since: whoever pins it meets that
