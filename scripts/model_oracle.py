"""What must hold of one transcript of the model after a run of keeper's that answered.

It promises to judge by bytes and by the words of docs/verdicts.md alone; each finding is one line of words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from fault_oracle import Thread, early, lines_of, of, owes_all, told
from model_claude import Script

from keeper.transcripts import seal


def kept(script: Script, whole: bool = True) -> Iterator[str]:
    """After a keep, or a restore that kept first. `whole`: what kept had is there still, in its order."""
    lines = lines_of(script.kept)
    counts = Counter(lines)
    missing = [line for line in script.must if not counts[line] and line not in script.free]
    # Cut in place and gone, or of the older layout and cut to nothing: nobody looks at it before a restore does.
    unseen = script.beside or not script.live.exists()
    sealed = set(seal.read(str(script.seal)).whole_lines().split(b"\n")) if missing and unseen else set()
    for line in missing:
        if line not in sealed:
            yield f"lost: {script.name}: kept has not {told(line)}"
    yield from _once(script, "kept", counts)
    if whole:
        yield from _ordered(script, "kept", lines, script.kept_before)


def live(script: Script, restored: bool, full: bool, held: bool = False) -> Iterator[str]:
    """After a keep or a restore, by what stood there when it began. `held`: somebody has it open for writing."""
    if not script.live.exists():
        if restored or not script.gone:
            yield f"lost: {script.name}: its live file has no name"
        return
    lines = lines_of(script.live)
    if script.others:
        yield from _untouched(script, lines)
        return
    counts = Counter(lines)
    wanted = dict.fromkeys(script.own)
    if full or owes_all(_thread(script), script.own, restored):
        wanted = script.must
    for line in wanted:
        if not counts[line] and line not in script.free:
            yield f"lost: {script.name}: live has not {told(line)}"
    yield from _once(script, "live", counts)
    yield from _ordered(script, "live", lines, script.own)
    if restored:
        yield from _resumes(script, lines)
        if not held and not _ended(script.live):
            yield f"lost: {script.name}: live ends in an unfinished line"


def _untouched(script: Script, lines: list[bytes]) -> Iterator[str]:
    """Two live files of one session: which is meant nobody can tell, so neither is touched."""
    now = {path: path.read_bytes() if path.exists() else b"" for path in script.others}
    if lines != script.own or now != script.others:
        yield f"touched: {script.name}: it has two live files, and one of them is another one now"


def _thread(script: Script) -> Thread:
    thread = Thread(script.name, script.kept, [script.live], script.main)
    thread.wanted, thread.kept_before = script.must, script.kept_before
    return thread


def _once(script: Script, where: str, counts: Counter[bytes]) -> Iterator[str]:
    for line, count in counts.items():
        # Without a uuid a line that was written again is another one.
        if count > (1 if of(line).get("uuid") else max(1, script.written[line])):
            yield f"doubled: {script.name}: {where}: {count} × {told(line)}"
        if line not in script.written:
            yield f"doubled: {script.name}: {where}: nobody wrote {line!r}"


def _ordered(script: Script, where: str, lines: list[bytes], before: list[bytes]) -> Iterator[str]:
    places = {line: place for place, line in enumerate(lines)}
    known = [places[line] for line in before if line in places and of(line).get("uuid")]
    if known != sorted(known):
        yield f"reordered: {script.name}: {where}: what stood in order does no more"
    for parent, child in early(lines) - early(script.kept_before, script.own):
        yield f"reordered: {script.name}: {where}: {child} stands before its parent {parent}"


def _resumes(script: Script, lines: list[bytes]) -> Iterator[str]:
    """What a resume reads is whole: no record hangs on one that kept has."""
    fields = [of(line) for line in lines]
    uuids = {one.get("uuid") for one in fields}
    if not any(one.get("subtype") == "compact_boundary" for one in fields):
        have = {of(line).get("uuid") for line in lines_of(script.kept)} - {None}
        for one in fields:
            parent = one.get("parentUuid")
            if parent and parent not in uuids and parent in have and not (script.main and one.get("isSidechain")):
                yield f"lost: {script.name}: live: {one.get('uuid')} hangs on {parent}, which kept has"


def _ended(path: Path) -> bool:
    data = path.read_bytes()
    return not data or data.endswith(b"\n")
