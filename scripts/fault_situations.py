"""Situations: what has become of a live file when a run under trial begins.

It promises that each is told by its name, and that the stage carries all lines that its transcripts ever had. It
refuses chance: two builds are alike.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fault_grounds import Seam, play, refusal
from fault_oracle import Thread, of

from tests.build import boundary, jsonl, meta, talk
from tests.seam import World

OTHER_CWD = "/srv/demo/proj-wt"
NUL_RUN = bytes(64)


@dataclass(slots=True)
class Stage:
    """A world in which Claude writes, and all that it wrote of the session. `live` is what stands in the live file."""

    here: World
    mode: str
    thread: Thread
    live: list[bytes] = field(default_factory=list)
    sides: list[Thread] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    count: int = 0

    @property
    def copies(self) -> bool:
        """Whether kept is never the live inode."""
        return self.mode in ("copy", "no links")

    @property
    def tip(self) -> str | None:
        return next((str(uuid) for line in reversed(self.live) if (uuid := of(line).get("uuid"))), None)

    def say(self, number: int, parent: str | None, prefix: str = "u", version: str = "2.1.328") -> list[bytes]:
        """New records, a chain, with a line without uuid behind them."""
        self.count += 1
        uuids = [f"{prefix}{self.count}-{place}" for place in range(number)]
        last = meta("last-prompt", leafUuid=uuids[-1], lastPrompt=f"{prefix}{self.count}", sessionId=self.here.session)
        return [*talk(uuids, self.here.session, parent, version=version), last]

    def more(self, number: int = 2) -> list[bytes]:
        """New records behind what is live."""
        return self.say(number, self.tip)

    def grow(self, lines: list[bytes], torn: bytes = b"", path: Path | None = None) -> None:
        """Claude appends."""
        path = path or self.here.live
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as stream:
            stream.write(jsonl(*lines) + torn)
        if path == self.here.live:
            self.live += lines
        self.thread.wanted.update(dict.fromkeys(lines))
        if torn:
            self.thread.fragments.append(torn)
        if path not in self.thread.lives:
            self.thread.lives.append(path)
        self.thread.gone = False

    def end_line(self, path: Path, torn: bytes) -> None:
        """Claude ends a line that was torn before it goes on."""
        with path.open("ab") as stream:
            stream.write(b"\n")
        self.thread.wanted[torn] = None

    def put(self, lines: list[bytes], torn: bytes = b"") -> None:
        """The live file is deleted and made anew."""
        self.here.live.unlink(missing_ok=True)
        self.live = []
        self.grow(lines, torn)

    def keep(self) -> None:
        play(self.here.keep, Seam(refusal(self.mode)))


# ------------------------------------------------------------------ what has become of the live file

Situation = Callable[[Stage], None]


def first(stage: Stage) -> None:
    """Nothing is kept yet."""


def same(stage: Stage) -> None:
    """Nothing has changed."""


def grown(stage: Stage) -> None:
    stage.grow(stage.more(3))


def grown_torn(stage: Stage) -> None:
    stage.grow(stage.more(), torn=stage.more()[0][:40])


def ahead(stage: Stage) -> None:
    stage.put([*stage.live, *stage.more()])


def partial(stage: Stage) -> None:
    stage.put(stage.more())


def partial_torn(stage: Stage) -> None:
    stage.put(stage.more(), torn=stage.more()[0][:40])


def recreated(stage: Stage) -> None:
    """Deleted under a live process, kept and folded, and deleted again."""
    stage.put(stage.more())
    stage.keep()
    stage.put(stage.say(2, stage.tip))


def stub(stage: Stage) -> None:
    stage.put([meta("mode", mode="plan"), meta("custom-title", customTitle="named again")])


def empty(stage: Stage) -> None:
    stage.put([])


def waiting(stage: Stage) -> None:
    stage.put([], torn=stage.more()[0][:40])


def behind(stage: Stage) -> None:
    stage.put(stage.live[:3])


def thinned(stage: Stage) -> None:
    stage.put([line for line in stage.live if of(line).get("uuid")])


def pruned(stage: Stage) -> None:
    """A turn is gone, and what followed it hangs on what was before it: a variant."""
    chain = [line for line in stage.live if of(line).get("uuid")]
    was, now = (f'"parentUuid":"{of(line)["uuid"]}"'.encode() for line in (chain[-2], chain[-3]))
    left = [line for line in stage.live if line != chain[-2]]
    stage.put([line.replace(was, now) if line == chain[-1] else line for line in left])


def variant(stage: Stage) -> None:
    changed = [line.replace(b'"prompt ', b'"another prompt ') for line in stage.live]
    stage.put(changed)


def diverged(stage: Stage) -> None:
    cut = stage.live[:3]
    stage.put([*cut, *stage.say(3, str(of(cut[-1])["uuid"]), "d")])


def new_root(stage: Stage) -> None:
    stage.put(stage.say(3, None, "r"))


def trimmed(stage: Stage) -> None:
    """Compacted and trimmed before a keep saw it."""
    stage.put([boundary("boundary", stage.tip, stage.here.session), *stage.say(2, "boundary")])


def trimmed_later(stage: Stage) -> None:
    stage.grow([boundary("boundary", stage.tip, stage.here.session), *stage.say(2, "boundary")])
    stage.keep()
    place = next(place for place, line in enumerate(stage.live) if of(line).get("uuid") == "boundary")
    stage.put([*stage.live[place:], *stage.more()])


def gone(stage: Stage) -> None:
    stage.here.live.unlink()
    stage.live = []
    stage.thread.gone = True


def swept(stage: Stage) -> None:
    """The transcript, its companion and its extras."""
    gone(stage)
    shutil.rmtree(stage.here.companion, ignore_errors=True)
    shutil.rmtree(stage.here.profile / "file-history", ignore_errors=True)
    for side in stage.sides:
        side.lives[0].unlink(missing_ok=True)
        side.gone = True


def swept_after_more(stage: Stage) -> None:
    """Claude wrote on since the last keep, then all was swept: what a second name holds is not lost."""
    before = dict(stage.thread.wanted)
    stage.grow(stage.more())
    swept(stage)
    if stage.copies:
        stage.thread.wanted = before  # nobody had a name for it


def doubled(stage: Stage) -> None:
    other = stage.here.about(stage.here.session, OTHER_CWD).live
    stage.grow([*stage.live, *stage.more()], path=other)
    stage.put([*stage.live, *stage.say(2, stage.tip, "d")])


def moved(stage: Stage) -> None:
    """A worktree took it along."""
    other = stage.here.about(stage.here.session, OTHER_CWD).live
    other.parent.mkdir()
    stage.here.live.rename(other)
    if stage.here.companion.exists():
        stage.here.companion.rename(other.with_suffix(""))
    stage.thread.lives = []
    stage.grow(stage.more(), path=other)


def torn_kept(stage: Stage) -> None:
    stage.grow([], torn=stage.more()[0][:50])
    stage.keep()
    if stage.copies:
        stage.thread.fragments.clear()  # it waits with live for its end
    stage.put(stage.more())


def completed(stage: Stage) -> None:
    whole = stage.more()
    stage.grow([], torn=whole[0][:50])
    stage.keep()
    stage.thread.fragments.clear()
    stage.put(whole)


def glued(stage: Stage) -> None:
    """An old CLI went on behind a torn line: two records on one line, which no parser takes."""
    torn, after = stage.more()[0][:50], stage.more()
    stage.grow([torn + after[0], *after[1:]])


def glued_apart(stage: Stage) -> None:
    """The same on a file of its own."""
    after = stage.more()
    stage.put([after[0][:50] + after[0], *after[1:]])


def nul_run(stage: Stage) -> None:
    after = stage.more(3)
    stage.put([*stage.live, NUL_RUN, *after[:2], NUL_RUN + after[2], *after[3:]])


def legacy(stage: Stage) -> None:
    """A CLI up to 1.0.117 copies the history at each resume: never folded."""
    stage.thread.legacy = True
    stage.put(stage.say(5, None, "l", version="1.0.100"))


def truncated(stage: Stage) -> None:
    """Cut short in place: a link shares its inode's fate."""
    whole = stage.live[:3]
    os.truncate(stage.here.live, len(jsonl(*whole)) + 30)
    stage.live = whole


def rewritten(stage: Stage) -> None:
    """A stub written over it."""
    lines = [meta("mode", mode="plan"), meta("custom-title", customTitle="named again")]
    stage.here.live.write_bytes(b"")
    stage.live = []
    stage.grow(lines)


def rewritten_and_gone(stage: Stage) -> None:
    before = dict(stage.thread.wanted)
    rewritten(stage)
    gone(stage)
    if stage.copies:
        stage.thread.wanted = before  # nobody had a name for the stub


def overwritten(stage: Stage) -> None:
    """Other bytes in the middle, as a failing disk leaves them; and Claude writes on."""
    at = len(jsonl(*stage.live[:2])) + 40
    with stage.here.live.open("r+b") as stream:
        stream.seek(at)
        stream.write(b"\0" * 8)
    changed = stage.here.live.read_bytes().split(b"\n")[2]
    stage.live[2] = changed
    stage.thread.wanted[changed] = None
    stage.thread.free.add(changed)  # rot is no version of a record: the file that has it goes aside
    stage.grow(stage.more())


def tombstoned(stage: Stage) -> None:
    """Claude takes an answer out in place when it asks for it anew."""
    answer = next(line for line in reversed(stage.live) if of(line).get("type") == "assistant")
    asked = str(of(answer)["parentUuid"])
    stage.live = [line for line in stage.live if line != answer]
    stage.here.live.write_bytes(jsonl(*stage.live))
    stage.thread.free.add(answer)
    stage.grow(stage.say(2, asked))


SITUATIONS: dict[str, Situation] = {
    fn.__name__.replace("_", " "): fn
    for fn in (
        first, same, grown, grown_torn, ahead, partial, partial_torn, recreated, stub, empty, waiting, behind, thinned,
        pruned, variant, diverged, new_root, trimmed, trimmed_later, gone, swept, swept_after_more, doubled, moved,
        torn_kept, completed, glued, glued_apart, nul_run, legacy, truncated, rewritten, rewritten_and_gone,
        overwritten, tombstoned,
    )
}  # fmt: skip
