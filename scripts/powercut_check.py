"""What `powercut.py` asks of keeper after a cut: what was acknowledged before it, all of it, once, in its order.

It promises to look at keeper's work as a user has it: the vault opens, a keep and a restore succeed, a second one of
each finds nothing to do, `verify` finds no fault. In half of the cuts Claude's own clean-up takes all live files
first, so that what is demanded can come from nowhere but the vault.
"""

from __future__ import annotations

import random
import stat
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from powercut_chats import Demand, kept_files, lives, one_live_file_each, repaired, told_of

from keeper.errors import KeeperError
from keeper.transcripts.mass import restore_all
from keeper.transcripts.restore import Restorer, Want
from keeper.transcripts.verify import verify
from tests.chat import sweep
from tests.seam import World, lines_of, names_of_ours

FAILURES = (KeeperError, OSError, ValueError, LookupError, TypeError, AttributeError, AssertionError, RecursionError)
"""What keeper raises, and what it must not: each is a fault of the cut in which it comes."""


@dataclass(slots=True)
class Found:
    """Counts over cuts, and what was said of each fault. `lost` counts lines, files, and forgets that did not last."""

    lost: int = 0
    doubled: int = 0
    disordered: int = 0
    left: int = 0
    words: list[str] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)

    @property
    def clean(self) -> bool:
        return not (self.lost or self.doubled or self.disordered or self.left)

    def add(self, other: Found) -> None:
        self.lost += other.lost
        self.doubled += other.doubled
        self.disordered += other.disordered
        self.left += other.left
        self.notes.update(other.notes)

    def gone(self, what: str, count: int = 1) -> None:
        self.lost += count
        self.words.append(f"lost: {what}")

    def remains(self, what: str) -> None:
        self.left += 1
        self.words.append(f"left: {what}")

    def compare(self, where: str, wanted: Sequence[bytes], lines: Sequence[bytes]) -> None:
        """Each wanted line once, in their order; no line twice."""
        counts = Counter(lines)
        missing = [line for line in wanted if not counts[line]]
        if missing:
            self.gone(f"{len(missing)} of {len(wanted)} lines of {where}, first {missing[0][:90]!r}", len(missing))
        double = [line for line, count in counts.items() if count > 1]
        if double:
            self.doubled += len(double)
            self.words.append(f"doubled: {len(double)} lines of {where}, first {double[0][:90]!r}")
        asked = set(wanted)
        order = list(dict.fromkeys(line for line in lines if line in asked))
        if order != [line for line in wanted if counts[line]]:
            self.disordered += 1
            self.words.append(f"out of order: {where}")


def check(world: World, demand: Demand, rng: random.Random) -> Found:
    """Look at a volume after a cut, by what was acknowledged before it. Keeper mends what it finds on the way."""
    found = Found()
    swept = rng.random() < 0.5
    with_all = rng.random() < 0.5
    steps: list[Callable[[], None]] = [
        lambda: _as_it_was_left(world, demand, found),
        lambda: sweep(world.profile) if swept else None,
        lambda: _keep(world, found),
        lambda: _repaired(world, demand, found),
        lambda: _kept(world, demand, found),
        lambda: one_live_file_each(world, demand.kept),
        lambda: _restore(world, demand, with_all, found),
        lambda: _live(world, demand, swept, found),
        lambda: _kept(world, demand, found),
        lambda: _nothing_to_do(world, demand, found),
        lambda: _verified(world, demand, found),
    ]
    for step in steps:
        try:
            step()
        except FAILURES:
            found.gone(f"keeper failed, and with it the rest of this cut\n{traceback.format_exc()}")
            break
    return found


def _as_it_was_left(world: World, demand: Demand, found: Found) -> None:
    """Before keeper runs: the live files that a restore answered for, what `chat.json` tells, which chats are gone."""
    for session, (parent, tags) in demand.told.items():
        told = told_of(world.about(session).chat, session)
        # A newer fork may tell it another parent, and none where that was forgotten; else none is what only a fresh
        # `chat.json` says.
        orphaned = told is not None and parent not in (None, *demand.forgetting) and told[0] is None
        lost = told is None or orphaned or not set(tags) <= set(told[1])
        if session in demand.kept and lost:
            found.gone(f"{session}: its chat.json told {(parent, tags)}, now {told}")
    for session, lines in demand.live.items():
        there = [path.stat().st_size for path in lives(world, session)]
        found.compare(f"{session} live ({there} bytes), before a keep", lines, _live_lines(world, session))
    for session, files in demand.beside.items():
        for name, data in files.items():
            path = world.profile / name
            now = path.read_bytes() if path.is_file() else None
            if now is None or not now.startswith(data):
                how = "missing" if now is None else _differs(data, now)
                found.gone(f"{session}: its live file {name}, before a keep: {how}")
    for session in demand.forgotten:
        if world.about(session).chat.exists():
            found.remains(f"{session}: forgotten, and its folder is there")


def _lines(path: Path) -> list[bytes]:
    try:
        return lines_of(path)
    except FileNotFoundError:
        return []


def _differs(data: bytes, now: bytes) -> str:
    """Where a file ceases to be what it was."""
    same = next((at for at, (one, other) in enumerate(zip(data, now, strict=False)) if one != other), len(now))
    zeros = f", {now.count(0)} of them zeros" if 0 in now else ""
    return f"of {len(data)} bytes the first {same} stand, there are {len(now)}{zeros}"


def _live_lines(world: World, session: str) -> list[bytes]:
    return [line for path in lives(world, session)[:1] for line in _lines(path)]


def _keep(world: World, found: Found) -> None:
    for answer in world.keep_all().values():
        if answer.error is not None:
            found.gone(f"{answer.session}: the keep says: {answer.error}")


def _repaired(world: World, demand: Demand, found: Found) -> None:
    told = repaired(world, demand)
    found.notes["bytes changed in place, told by verify and repaired"] += told


def _kept(world: World, demand: Demand, found: Found) -> None:
    """The kept lines and files; what was never forgotten is not, what was forgotten is."""
    for session, lines in demand.kept.items():
        here = world.about(session)
        found.compare(f"{session} kept", lines, _lines(here.kept))
        back = demand.dropped.get(session, frozenset()).intersection(_lines(here.kept))
        if back:
            found.remains(f"{session}: {len(back)} lines are back that an accept let go of")
        there = kept_files(here.chat, session)
        for label, data in demand.files[session].items():
            if label not in there:
                found.gone(f"{session}: its file {label}")
            elif not there[label].startswith(data):
                found.gone(f"{session}: its file {label}: {_differs(data, there[label])}")
    with world.vault() as vault:
        stones = {stone.session for stone in vault.tombstones()}
    for session in stones - demand.forgetting:
        found.gone(f"{session}: forgotten, and nobody asked for it")
    for session in demand.forgotten:
        if session not in stones:
            found.gone(f"{session}: its forgetting")
        if world.about(session).chat.exists():
            found.remains(f"{session}: forgotten, and kept again")


def _restore(world: World, demand: Demand, with_all: bool, found: Found) -> None:
    with world.vault() as vault:
        restorer = Restorer(vault, time.time_ns(), Want())
        if with_all:
            for answer in restore_all(restorer, vault.rows()):
                if answer.error is not None:
                    found.gone(f"{answer.session}: the restore says: {answer.error}")
        else:
            for session in demand.kept:
                restorer.session(session)
        for note in vault.notes:
            found.notes[f"keeper says: {note.split(':')[0]}"] += 1


def _live(world: World, demand: Demand, swept: bool, found: Found) -> None:
    """What a resume reads: after a clean-up everything, else what a restore had answered for, and nothing twice."""
    for session, lines in demand.kept.items():
        wanted = lines if swept else demand.live.get(session, ())
        found.compare(f"{session} live, restored", wanted, _live_lines(world, session))


def _nothing_to_do(world: World, demand: Demand, found: Found) -> None:
    """A further keep changes nothing, and nothing of a swap is left."""
    world.keep_all()  # what a restore changed is told here
    before = _state(world.root, world.profile)
    world.keep_all()
    after = _state(world.root, world.profile)
    if before != after:
        changed = [path for path in {**before, **after} if before.get(path) != after.get(path)]
        found.remains(f"a further keep changes {len(changed)} files: {changed[:3]}")
    names = [name for name in names_of_ours(world.root, world.profile) if not _half_made(world, demand, name)]
    if names:
        found.remains(f"{len(names)} names of keeper's own: {names[:3]}")


def _state(*tops: Path) -> dict[Path, tuple[int, ...]]:
    """Inode, mode, size and time of all files below these folders."""
    found = {}
    for path in (path for top in tops for path in top.rglob("*")):
        seen = path.lstat()
        if stat.S_ISREG(seen.st_mode):
            found[path] = (seen.st_ino, seen.st_mode, seen.st_size, seen.st_mtime_ns)
    return found


def _half_made(world: World, demand: Demand, name: str) -> bool:
    """Whether a path in the vault belongs to a chat that keeper had begun and not acknowledged, of whose live file the
    cut or the clean-up left nothing: no keep takes it for a chat, and nobody was told that it is kept."""
    parts = name.split("/")
    chat = parts[1] if parts[0] == "chats" else ""
    return bool(chat) and chat not in demand.kept and not _live_lines(world, chat)


def _verified(world: World, demand: Demand, found: Found) -> None:
    with world.vault() as vault:
        faults = verify(vault).faults
    for fault in faults:
        if _half_made(world, demand, f"chats/{fault.chat}"):
            found.notes[f"a chat that was never acknowledged is left half made: {fault.file}: {fault.kind}"] += 1
        else:
            found.gone(f"verify: {fault}")
