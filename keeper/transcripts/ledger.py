"""Ledger: what is told of a session after a keep: its facts, its row, the words for a person.

Pure: from what was known and what was found. It promises that a session which did not change is told the same, so
that nothing is written for it (KEEP-5).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from keeper.claude import Footprint
from keeper.errors import KeeperError, Partial
from keeper.transcripts.chat import SessionFacts
from keeper.transcripts.head import Head
from keeper.transcripts.index import Row
from keeper.transcripts.kept import Outcome
from keeper.transcripts.verdict import FOLDED_BY_RESTORE, Verdict


@dataclass(frozen=True, slots=True)
class Kept:
    """The answer for one session. `files` counts companion files and extras that kept gained, `added` its lines."""

    session: str
    profile: str
    chat: str = ""
    project: str = ""
    cwd: str = ""
    verdict: str = ""
    action: str = "none"
    mode: str = "link"
    added: int = 0
    files: int = 0
    lacks: int = 0
    branch: str = ""
    waiting: int = 0
    variants: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    error: str | None = None
    cure: str | None = None
    exit_code: int = 0


def failure_of(errors: Sequence[KeeperError]) -> tuple[str | None, str | None, int]:
    """What went wrong with a session's other files: the first of it, its cure, and the code of what is done in part."""
    if not errors:
        return None, None, 0
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return errors[0].message + more, errors[0].cure, Partial.exit_code


def headed(told: SessionFacts, head: Head) -> SessionFacts:
    """A session's facts with what its first records say, as far as they have said nothing yet."""
    return replace(
        told, cwd=told.cwd or head.cwd, head=told.head or head.head, entrypoint=told.entrypoint or head.entrypoint,
        forked_from=told.forked_from or head.copied_from, continues=told.continues or head.named,
    )  # fmt: skip


def told_after(told: SessionFacts, outcome: Outcome, project: str, now: float) -> SessionFacts:
    """A session's facts after a keep: where it lives now, in which mode it is kept, which gaps its folds met, when
    records were cut from it in place."""
    if outcome.damaged:
        told = replace(told, damaged=round(now, 3), lost=outcome.lost)
    if outcome.verdict is Verdict.ABSENT:
        return told
    unread = outcome.verdict in (Verdict.EMPTY, Verdict.WAITING)
    gaps = tuple(dict.fromkeys([*told.gaps, *outcome.gaps]))
    return replace(told, mode=told.mode if unread else outcome.mode, project=project, gaps=gaps)


_LESS = (Verdict.THINNED, Verdict.BEHIND)


def row_after(row: Row | None, new: Row, outcome: Outcome, kept: os.stat_result | None) -> Row:
    """A session's row after a keep: its state, and (modes copy and split) what the next keep need not read."""
    state = row.state if row else ""
    whole = outcome.action in ("linked", "relinked", "folded", "copied")
    whole = whole or (outcome.damaged and outcome.verdict is Verdict.ABSENT)
    whole = whole or (outcome.verdict is Verdict.AHEAD and not outcome.damaged)
    if whole or (outcome.verdict is Verdict.SAME and outcome.mode != "split"):
        state = ""
    elif outcome.damaged or state == Verdict.DAMAGED:
        state = str(Verdict.DAMAGED)  # until a restore folds it back, or `keeper accept` takes what is left
    elif state == Verdict.DIVERGED and outcome.action == "none" and outcome.verdict in _LESS:
        pass  # once kept has the union, a branch that live lacks looks like less
    elif outcome.verdict not in (Verdict.ABSENT, Verdict.SAME, Verdict.TOMBSTONED):
        state = str(outcome.verdict)
    seen = (0, 0, 0)
    if outcome.verdict is Verdict.ABSENT and row is not None and not row.live_inode:
        seen = (0, 0, row.kept_size)  # all of a swept one was found sealed
    if outcome.inode and kept is not None and kept.st_ino != outcome.inode:
        seen = (outcome.inode, outcome.size, kept.st_size)
    since = row.since if row else new.since
    return replace(new, state=state, since=since, live_inode=seen[0], live_size=seen[1], kept_size=seen[2])


def warnings(footprint: Footprint, outcome: Outcome, rebuilt: Sequence[str] = ()) -> tuple[str, ...]:
    """What a person should know of a keep, one line each. `rebuilt`: other files that had been cut short in place."""
    found = []
    if outcome.damaged:
        session = footprint.session
        full = "" if outcome.verdict in FOLDED_BY_RESTORE else " --full"
        then = "they were folded back" if outcome.action in ("folded", "absorbed") else (
            f"`keeper restore {session}{full}` folds them back, `keeper accept {session}` makes what is left the truth"
        )  # fmt: skip
        found.append(f"{outcome.lost} records were cut or rewritten in place, and are kept from the seal: {then}")
    for label in rebuilt:
        found.append(f"{label} was cut short in place: kept has it from the seal, to come back when live's is gone")
    if outcome.verdict is Verdict.DOUBLED:
        names = ", ".join(path.parent.name for path in footprint.transcripts)
        found.append(f"two live files of one session ({names}): both are kept, neither was touched")
    if outcome.verdict is Verdict.UNMERGEABLE:
        found.append("written by a CLI up to 1.0.117, whose resumes copy the history: kept, never folded")
    if outcome.foreign:
        found.append("the live file belongs to another user: kept, but not replaced")
    for uuid in outcome.variants:
        found.append(f"record {uuid} stands in two versions: both are kept, the live one behind the kept one")
    for uuid in outcome.gaps:
        found.append(f"the parent record {uuid} is in neither file: CLIs up to 2.1.85 load only what follows it")
    return tuple(found)
