"""Oracle: judges by bytes what a run left of one transcript: lost, doubled, reordered, and what a resume would miss.

It promises to know nothing of keeper's own records, merge and verdict: lines are compared as bytes, parents are read
with the standard library's json, and what a restore owes is told by the table of docs/verdicts.md in its own words.
Only of a seal it knows what keeper reads.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from keeper.transcripts import seal
from keeper.transcripts.frame import Frame, walk

LOST, DOUBLED, REORDERED, LEFT, WROTE, UNTOLD = "lost", "doubled", "reordered", "left behind", "written", "untold"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that must not be: its kind, and where and what."""

    kind: str
    text: str


@dataclass(slots=True)
class Thread:
    """One transcript, the session's own or a subagent's, and every whole line that it ever had.

    `lives` are the names under which Claude has it, as far as Claude knows; `fragments` unfinished lines that were
    seen in it. `legacy`: written by a CLI up to 1.0.117, of which old versions go aside whole. `gone`: Claude deleted
    it. `free` are lines of those that Claude took out by right: they may stand or not.
    """

    name: str
    kept: Path
    lives: list[Path]
    main: bool = True
    legacy: bool = False
    gone: bool = False
    wanted: dict[bytes, None] = field(default_factory=dict)
    free: set[bytes] = field(default_factory=set)
    fragments: list[bytes] = field(default_factory=list)
    kept_before: list[bytes] = field(default_factory=list)
    live_before: dict[Path, list[bytes]] = field(default_factory=dict)

    def begin(self) -> None:
        """What stands now is what the run under trial begins with."""
        self.kept_before = lines_of(self.kept)
        self.live_before = {path: lines_of(path) for path in self.lives}


def lines_of(path: Path) -> list[bytes]:
    """The whole lines of a file; none where there is no file."""
    try:
        return path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return []


@lru_cache(maxsize=4096)
def of(line: bytes) -> dict[str, object]:
    """A line's fields; none where it is no JSON object."""
    try:
        fields = json.loads(line)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


# ------------------------------------------------------------------ what a restore owes


def owes_all(thread: Thread, live: Sequence[bytes], restores: bool) -> bool:
    """Whether a keep (or a restore) owes the live file everything that is known; else it keeps its own lines.

    Both owe it to a file that hangs on a lost parent, or has neither prompt nor answer. A restore owes it also to one
    that is gone, without a line, a plain beginning, or without the newest prompts and answers and nothing new instead.
    """
    known = {line: of(line) for line in [*thread.wanted, *live]}
    if not live:
        return restores
    chain = [known[line] for line in live if _chained(known[line], thread.main)]
    uuids = {one["uuid"] for one in chain}
    if any(one.get("subtype") == "compact_boundary" for one in chain):
        return False
    if not any(one.get("type") in ("user", "assistant") for one in chain):
        return True
    if any(_hangs(one, place, uuids, thread) for place, one in enumerate(chain)):
        return True
    # What is the beginning of one file that was kept; the union of several has lines of others in between.
    before = thread.kept_before
    return restores and len(live) < len(before) and list(live) == before[: len(live)]


def _hangs(one: dict[str, object], place: int, uuids: set[object], thread: Thread) -> bool:
    """Whether the file lost what this record hangs on: kept has it, or the file begins here and kept does not. What
    hangs on a record of no file is no loss that could be mended."""
    parent = one.get("parentUuid")
    if not parent or parent in uuids:
        return False
    known = [of(line) for line in [*thread.kept_before, *thread.wanted]]
    kept = [fields["uuid"] for fields in known if _chained(fields, thread.main)]
    return parent in kept or (place == 0 and kept[:1] != [one["uuid"]])


def _chained(fields: dict[str, object], main: bool) -> bool:
    return bool(fields.get("uuid")) and not (main and fields.get("isSidechain") is True)


# ------------------------------------------------------------------ what was left


def judge_kept(thread: Thread, aside: Path) -> Iterator[Fault]:
    """What is wrong with what is kept of one transcript after a whole keep, whatever runs were killed before it."""
    kept = lines_of(thread.kept)
    counts = Counter(kept)
    if thread.legacy:
        old = {line for data in _files(aside) for line in data.split(b"\n")}
        counts.update(line for line in thread.wanted if line in old and line not in counts)
    yield from _counted(thread, "kept", counts)
    if not thread.legacy:
        yield from in_order(thread, "kept", kept, [thread.kept_before])


def judge_live(thread: Thread, restored: bool, full: bool) -> Iterator[Fault]:
    """What is wrong with what stands under the live names after a whole keep or restore."""
    for path in thread.lives:
        yield from _judge_live(thread, path, restored, full)


def _judge_live(thread: Thread, path: Path, restored: bool, full: bool) -> Iterator[Fault]:
    where = f"live {path.parent.name}"
    if not path.exists():
        if restored or not thread.gone:
            yield Fault(LOST, f"{thread.name}: {where}: the live file has no name any more")
        return
    own = thread.live_before.get(path, [])
    live = lines_of(path)
    counts = Counter(live)
    all_ = not thread.legacy and len(thread.lives) == 1 and (owes_all(thread, own, restored) or (full and restored))
    wanted = thread.wanted if all_ else dict.fromkeys(own)
    for line in wanted:
        if not counts[line] and line not in thread.free:
            yield Fault(LOST, f"{thread.name}: {where}: {told(line)}")
    for line, count in counts.items():
        if count > 1:
            yield Fault(DOUBLED, f"{thread.name}: {where}: {count} × {told(line)}")
        if line not in thread.wanted:
            yield Fault(DOUBLED, f"{thread.name}: {where}: a line that nobody wrote: {told(line)}")
    yield from in_order(thread, where, live, [own])


def _counted(thread: Thread, where: str, counts: Counter[bytes]) -> Iterator[Fault]:
    for line in thread.wanted:
        if counts[line] == 0 and line not in thread.free:
            yield Fault(LOST, f"{thread.name}: {where}: {told(line)}")
    for line, count in counts.items():
        if count > 1:
            yield Fault(DOUBLED, f"{thread.name}: {where}: {count} × {told(line)}")
        if line not in thread.wanted:
            yield Fault(DOUBLED, f"{thread.name}: {where}: a line that nobody wrote: {told(line)}")


def in_order(thread: Thread, where: str, lines: list[bytes], befores: list[list[bytes]]) -> Iterator[Fault]:
    """What stood in order stands in order, and no record stands before its parent that did not before."""
    for before in befores:
        rest = iter(lines)
        for line in before:
            if line in lines and line not in rest:
                yield Fault(REORDERED, f"{thread.name}: {where}: {told(line)} stood behind the one before it")
                break
    wrong = early([*thread.kept_before], *thread.live_before.values())
    for pair in early(lines) - wrong:
        yield Fault(REORDERED, f"{thread.name}: {where}: record {pair[1]} stands before its parent {pair[0]}")


def early(*files: Sequence[bytes]) -> set[tuple[str, str]]:
    """(parent, child) of all records that stand before their parent."""
    found = set()
    for lines in files:
        fields = [of(line) for line in lines]
        first: dict[str, int] = {}
        for place, one in enumerate(fields):
            first.setdefault(str(one.get("uuid")), place)
        for place, one in enumerate(fields):
            parent = one.get("parentUuid")
            if parent is not None and first.get(str(parent), -1) > place:
                found.add((str(parent), str(one.get("uuid"))))
    return found


def fragments_lost(thread: Thread, *roots: Path) -> list[Fault]:
    """Unfinished lines that stand in no file any more."""
    if not thread.fragments:
        return []
    text = b"\n".join(data for root in roots for data in _files(root))
    lost = [one for one in thread.fragments if one not in text]
    return [Fault(LOST, f"{thread.name}: the unfinished line {told(one)}") for one in lost]


def nowhere(wanted: Iterable[bytes], *roots: Path) -> list[bytes]:
    """The lines that stand in no file below the roots: what a kill has lost for good."""
    there = {line for root in roots for data in _files(root) for line in data.split(b"\n")}
    return [line for line in wanted if line not in there]


def _files(root: Path) -> Iterator[bytes]:
    """The bytes of every file at and below the folder, but for the index and the seals."""
    for folder, _, names in os.walk(root):
        for name in names:
            if not name.endswith((".db", ".seal")):
                with open(f"{folder}/{name}", "rb", buffering=0) as stream:
                    yield stream.readall()


def sealed_lines(path: Path) -> set[bytes]:
    """Every line that a seal ever had: read through to the end of each of its frames in turn."""
    found: set[bytes] = set()
    if not path.exists():
        return found
    data = path.read_bytes()
    with tempfile.TemporaryDirectory() as place:
        for at, frame in walk(str(path)):
            if isinstance(frame, Frame):
                part = Path(place) / path.name
                part.write_bytes(data[: at + frame.size])
                found.update(seal.read(str(part)).whole_lines().split(b"\n"))
    return found


def told(line: bytes) -> str:
    """A line in few words."""
    fields = of(line)
    if fields.get("uuid"):
        return f"{fields.get('type')} {fields['uuid']} on {fields.get('parentUuid')}"
    return repr(line[:60])
