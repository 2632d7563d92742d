"""Look: how the live transcripts of a profile stand beside what is kept, told without writing anything.

It promises what a keep would find of a file that no keep has seen since: missing, cut in place, a stub. It refuses to
be the truth: a doctor looks once, at files that Claude may be writing to.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from keeper import claude, files
from keeper.claude import Footprint
from keeper.doctor.facts import Live
from keeper.errors import KeeperError
from keeper.files import regular
from keeper.transcripts import glance, seal
from keeper.transcripts.activity import barred
from keeper.transcripts.exclude import Exclusion
from keeper.transcripts.frame import SealBroken, last_frame
from keeper.transcripts.head import read_head
from keeper.transcripts.index import Row
from keeper.transcripts.prove import stands
from keeper.transcripts.vault import Vault
from keeper.transcripts.verdict import Verdict, judge, judge_sealed

LARGEST = 64 << 20
"""A pair of files over that is not read for a verdict: the next keep reads it."""
TAIL = 64 << 10
NEWEST = 100
"""So many of the newest transcripts are asked which version wrote to them."""
_VERSION = re.compile(rb'"version":"(\d+\.\d+\.\d+)"')
_AS_IT_SHOULD = (Verdict.SAME, Verdict.AHEAD, Verdict.TOMBSTONED)


def lives(vault: Vault, profile: Path, rows: list[Row], now: float) -> tuple[tuple[Live, ...], tuple[str, ...]]:
    """Every live transcript of a profile, and the directories of those of which nothing is kept. `rows` are the
    index's, of any profile."""
    rules = Exclusion(vault)
    rules.rules()  # where they cannot be read, nobody can tell what is to be kept
    known = {row.session: row for row in rows if row.profile == str(profile)}
    seen = glance.glance(vault, profile, known.values())
    gone = {row.session for row in vault.missing(rows) if row.profile == str(profile) and not vault.went(row)}
    unkept = set(seen.unkept)
    found: list[Live] = []
    cwds: list[str] = []
    for session, live in seen.live.items():
        changed = live.mtime_ns / 1e9
        one = Live(session, str(profile), live.path, changed, changed, live.size)
        with suppress(FileNotFoundError):  # gone while it was looked at
            try:
                row = known.get(session)
                if row is not None and regular(vault.chat(row.chat).kept(session)) is not None:
                    one = _beside(vault, one, row, session in unkept)
                else:
                    head = read_head(live.path, session)
                    cwds.append(head.cwd)
                    stone = vault.forgotten(str(profile), session) is not None
                    rule = rules.of_live(str(profile), Footprint(session, [Path(live.path)]), head, None)
                    out = rule is not None or bool(barred(vault, session, [live.path], now))
                    one = replace(one, kept=False, chat=not head.noise, born=head.born, forgotten=stone, excluded=out)
                    one = replace(one, missing=session in gone)
            except (KeeperError, OSError):
                one = replace(one, kept=session not in unkept)  # that it cannot be read the keep tells of
            found.append(one)
    return tuple(found), tuple(cwds)


def lives_alone(profile: Path) -> tuple[tuple[Live, ...], tuple[str, ...]]:
    """The same where the vault cannot be looked at: whether anything is kept nobody can tell."""
    found: list[Live] = []
    cwds: list[str] = []
    for session, footprint in claude.survey(profile).footprints.items():
        for path in footprint.transcripts[:1]:
            with suppress(OSError):
                seen = os.stat(path)
                one = Live(session, str(profile), str(path), seen.st_mtime, seen.st_mtime, seen.st_size, None)
                with suppress(KeeperError, OSError):  # a sweep takes also what nobody can read
                    head = read_head(str(path), session)
                    cwds.append(head.cwd)
                    one = replace(one, born=head.born, chat=not head.noise)
                found.append(one)
    return tuple(found), tuple(cwds)


def _beside(vault: Vault, live: Live, row: Row, unkept: bool) -> Live:
    """A live transcript of which something is kept."""
    chat, label = vault.chat(row.chat), f"{live.session}.jsonl"
    kept = chat.kept(live.session)
    if unkept:
        return _judged(live, kept)
    if row.live_inode:
        return live
    sealed = chat.seal(label)
    try:
        last = last_frame(sealed)
    except SealBroken:
        last = None
    if not stands(kept, sealed):
        known, data = seal.read(sealed).whole_lines(), files.read(kept)
        found = judge_sealed(known, data)
        if found.verdict is Verdict.DAMAGED:
            return replace(live, verdict=str(Verdict.DAMAGED), lost=found.lacks)
        return live
    end = last.end if last else 0
    return replace(live, lag=_whole_lines(kept, end) - end, sealed=last.time_ns / 1e9 if last else 0.0)


def _judged(live: Live, kept: str) -> Live:
    """Another file than the one that was kept, or grown since."""
    if live.size + files.size_of(kept) > LARGEST:
        return replace(live, kept=False)
    found = judge(files.read(kept), files.read(live.path))
    if found.verdict is Verdict.SAME:
        return live
    if found.verdict in _AS_IT_SHOULD:
        return replace(live, kept=False, lag=max(1, live.size - files.size_of(kept)))
    return replace(live, kept=not found.news, verdict=str(found.verdict), lost=found.lacks)


def _whole_lines(path: str, start: int) -> int:
    fd = files.open_read(path)
    try:
        return seal.end_of_lines(fd, start)
    finally:
        os.close(fd)


def leaves(vault: Vault, rows: Iterable[Row], live: Mapping[str, str]) -> dict[str, str]:
    """Of each diverged session the newest leaf that its live file lacks; `live` is where each lives."""
    found = {}
    for row in rows:
        path, kept = live.get(row.session, ""), vault.chat(row.chat).kept(row.session)
        if row.state != Verdict.DIVERGED or not path:
            continue
        with suppress(KeeperError, OSError):
            if files.size_of(path) + files.size_of(kept) <= LARGEST:
                branch = judge(files.read(kept), files.read(path)).branch
                if branch:
                    found[row.session] = branch
    return found


def versions(found: Iterable[Live], since: float) -> tuple[str, ...]:
    """The versions of the CLIs that wrote to these transcripts after `since`, the oldest first."""
    told = set()
    newest = sorted((one for one in found if one.changed >= since), key=lambda one: -one.changed)
    for one in newest[:NEWEST]:
        with suppress(KeeperError, OSError):
            fd = files.open_read(one.path)
            try:
                told.update(_VERSION.findall(os.pread(fd, TAIL, max(0, os.fstat(fd).st_size - TAIL)))[-1:])
            finally:
                os.close(fd)
    return tuple(sorted((one.decode() for one in told), key=claude.version_of))
