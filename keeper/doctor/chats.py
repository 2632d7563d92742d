"""Chats: which of what is kept is not as it should be: damaged, a stub, behind, diverged, missing; and what mends each.

Pure: facts in, checks out. It promises that a chat which was damaged in place is named with what was lost, when, and
the command that folds it back (SEAL-7).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from keeper.doctor.check import Check, fail, many, ok, some, warn
from keeper.doctor.facts import Facts, Live, VaultFacts
from keeper.transcripts.vault import many_missing
from keeper.transcripts.verdict import Verdict

SAID = {
    Verdict.EMPTY: "empty beside a kept conversation",
    Verdict.WAITING: "nothing but an unfinished line beside a kept conversation",
    Verdict.PARTIAL: "a stub, or cut off from what is kept: a resume would read half of it",
    Verdict.BEHIND: "without the newest records, which are kept",
    Verdict.DIVERGED: "cut short and then continued: the other branch is kept",
    Verdict.DOUBLED: "live under two names: both are kept",
    Verdict.THINNED: "pruned by someone: what went is kept",
    Verdict.TRIMMED: "trimmed by Claude before a compact boundary: what went is kept",
    Verdict.UNMERGEABLE: "of a CLI up to 1.0.117: kept whole, never folded",
}
"""What each state is, as a person reads it."""
AS_CLAUDE_MADE_IT = (Verdict.TRIMMED, Verdict.UNMERGEABLE)
FULL = (Verdict.THINNED, Verdict.TRIMMED, Verdict.DAMAGED)
"""What a restore folds back only where it is told to."""
NAMES = {Verdict.PARTIAL: "stub"}


def checks(facts: Facts) -> Iterator[Check]:
    """The vault's own state, then its chats'."""
    yield from _vault(facts.vault)
    yield from _damaged(facts)
    yield from _others(facts)


def _vault(vault: VaultFacts) -> Iterator[Check]:
    if vault.error:
        yield fail("vault", vault.error, vault.cure)
        return
    if not vault.made:
        yield warn("vault", f"nothing is kept yet: there is no vault at {vault.path}", "keeper keep")
        return
    if vault.index_lost:
        yield warn("index", f"the index of {vault.path} is lost or broken", "keeper reindex")
    total = vault.chats + len(vault.missing)
    if vault.missing and many_missing(len(vault.missing), total):
        detail = f"{len(vault.missing)} of {total} chat folders are missing at once: nothing is forgotten; "
        detail += f"put them back into {vault.path}/chats from a backup before the next keep: {some(vault.missing)}"
        yield fail("missing", detail, "keeper keep")
    elif vault.missing:
        detail = f"{some(vault.missing)}: the folder was removed by hand; the next keep forgets it"
        yield warn("missing", detail, f"keeper keep --adopt {vault.missing[0]}")
    if vault.forgotten:
        detail = f"{some(vault.forgotten)}: forgotten since the folder was removed by hand, and live"
        yield warn("forgotten", detail, f"keeper keep --adopt {vault.forgotten[0]}")
    yield ok("vault", f"{many(vault.chats, 'chat')} in {vault.path}")


def _damaged(facts: Facts) -> Iterator[Check]:
    told = set()
    for one in facts.vault.states:
        if one.state == Verdict.DAMAGED:
            told.add(one.session)
            when = f" at {one.when}" if one.when else ""
            detail = f"{one.session}: {many(one.lost, 'record')} cut from its live file in place{when}; they are kept. "
            detail += f"`keeper accept {one.session}` makes what is left the truth"
            yield fail("damaged", detail, one.cure)
    for live in _lives(facts):
        if live.verdict == Verdict.DAMAGED and live.session not in told:
            detail = f"{live.session}: {many(live.lost, 'record')} cut from its live file in place since the last "
            detail += f"keep; they are sealed. `keeper accept {live.session}` makes what is left the truth"
            cure = f"keeper keep {live.session}; keeper restore {live.session} --full"
            yield fail("damaged", detail, cure)


def _others(facts: Facts) -> Iterator[Check]:
    by_state: dict[str, list[str]] = {}
    for one in facts.vault.states:
        by_state.setdefault(one.state, []).append(one.session)
    for live in _lives(facts):
        if live.verdict:
            found = by_state.setdefault(live.verdict, [])
            if live.session not in found and not any(live.session in those for those in by_state.values()):
                found.append(live.session)
    for state, said in SAID.items():
        for session in by_state.get(state, []):
            make = ok if state in AS_CLAUDE_MADE_IT else warn
            yield make(NAMES.get(state, str(state)), f"{session}: {said}", _cure(facts.vault, session, state))


def _cure(vault: VaultFacts, session: str, state: Verdict) -> str:
    if state is Verdict.DIVERGED:
        leaf = vault.leaves.get(session)
        return f"keeper restore {session} --branch {shlex.quote(leaf)}" if leaf else f"keeper show {session}"
    if state is Verdict.DOUBLED:
        cwd = vault.cwds.get(session)
        return f"keeper restore {session} --cwd {shlex.quote(cwd)}" if cwd else f"keeper show {session}"
    if state is Verdict.UNMERGEABLE:
        return ""
    return f"keeper restore {session}{' --full' if state in FULL else ''}"


def _lives(facts: Facts) -> Iterator[Live]:
    return (live for profile in facts.profiles for live in profile.live)
