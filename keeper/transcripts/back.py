"""Back: puts a session's other files back: what is missing of its companion folder and its extras.

It promises that a live file which is no transcript is never overwritten (KEEP-7), and that every file of the session
gets a fresh time, so that no sweep takes it (RESTORE-2). It refuses to go through a symbolic link.
"""

from __future__ import annotations

import os

from keeper import disk, files
from keeper.errors import KeeperError, NoLinks
from keeper.files import regular
from keeper.transcripts import pair
from keeper.transcripts.held import Site, note, token, unnote
from keeper.transcripts.mirror import Mirror, Part


class Back:
    """The way back of one session's parts, under its chat's lock; what changed and what failed stands in `mirror`."""

    def __init__(self, mirror: Mirror) -> None:
        self.mirror = mirror
        self.chat = mirror.chat
        self.real: dict[str, bool] = {}

    def restore(self, part: Part, now_ns: int) -> None:
        """Put back what live misses of the part, and give every file of it the time `now_ns` (RESTORE-2, -3)."""
        self.real.clear()  # a sweep and a link may have come between two looks
        if os.path.islink(part.live):
            return
        for live, _ in self.mirror.files(part.live, part.label) if os.path.lexists(part.live) else ():
            _touch(live, now_ns)
        for kept, label in self.mirror.files(f"{self.chat.path}/{part.label}", part.label):
            live = part.live + label[len(part.label) :]
            try:
                if self._is_real(part.live, os.path.dirname(live)):
                    self._restore_file(kept, live, label, now_ns)
            except (OSError, KeeperError) as error:
                self.mirror.failed(error, live)

    def _is_real(self, top: str, folder: str) -> bool:
        """Whether no level from `top` down to `folder` is a link or no folder: nothing is put through one (KEEP-9)."""
        if len(folder) < len(top):
            return True  # the part is a file by itself: what is above it is Claude's, or linked by a person
        levels = [folder]
        while len(levels[-1]) > len(top):
            levels.append(os.path.dirname(levels[-1]))
        real = True
        for level in reversed(levels):
            real = self.real.setdefault(level, real and not os.path.islink(level))
        return real

    def _restore_file(self, kept: str, live: str, label: str, now_ns: int) -> None:
        if label.endswith(".jsonl") and not _occupied(live):
            one = self.mirror.pair(live, label)
            outcome = pair.keep(one, pair.Known(), self.mirror.left_of(label))
            done = pair.restore(one, outcome, False, now_ns)
            self.mirror.changed += done.action in ("restored", "folded")
        elif not os.path.lexists(live):
            self._put_back(kept, live, label, now_ns)

    def _put_back(self, kept: str, live: str, label: str, now_ns: int) -> None:
        self.mirror.prove_size(kept, label)
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
        self.mirror.changed += 1

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


def _occupied(live: str) -> bool:
    """Whether a link, a FIFO, a folder stands under the name: somebody's own, never written over."""
    return os.path.lexists(live) and regular(live) is None


def _touch(live: str, now_ns: int) -> None:
    try:
        disk.touch(live, now_ns)
    except FileNotFoundError:
        return
