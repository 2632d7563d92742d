"""Chats: which of what is kept is not as it should be: damaged, a stub, behind, diverged, missing; and what mends each.

Pure: facts in, checks out. It promises that a chat which was damaged in place is named with what was lost, when, and
the command that folds it back (SEAL-7).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

from keeper.doctor.check import Check, fail, many, ok, some, warn
from keeper.doctor.facts import Facts, Live, VaultFacts
from keeper.transcripts.describe import State
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
    yield from _vault(facts)
    yield from _damaged(facts)
    yield from _others(facts)


def _vault(facts: Facts) -> Iterator[Check]:
    vault = facts.vault
    if vault.error:
        yield (warn if vault.unknown else fail)("vault", vault.error)
        return
    if not vault.made:
        yield warn("vault", f"nothing is kept yet: there is no vault at {vault.path}", "keeper keep")
        return
    if vault.index_lost:
        yield warn("index", f"the index of {vault.path} is lost or broken", "keeper reindex")
    yield from _missing(facts)
    if vault.bare:
        detail = f"{some(vault.bare)}: the kept file is gone from its chat's folder; what was sealed gives it back"
        yield fail("kept", detail, "keeper verify --repair")
    if vault.forgotten:
        detail = f"{some(vault.forgotten)}: forgotten since the folder was removed by hand, and live"
        yield warn("forgotten", detail, _adopting(live for live in _lives(facts) if live.session in vault.forgotten))
    yield ok("vault", f"{many(vault.chats, 'chat')} in {vault.path}")


def many_gone(vault: VaultFacts) -> bool:
    """Whether so many folders are missing that the next keep must wait for them."""
    return bool(vault.missing) and many_missing(len(vault.missing), vault.chats + len(vault.missing))


def _missing(facts: Facts) -> Iterator[Check]:
    """Folders that a hand removed. A keep of all would forget those of them that live, so it is no cure of that."""
    vault, lives = facts.vault, [live for live in _lives(facts) if live.missing]
    if many_gone(vault):
        total = vault.chats + len(vault.missing)
        detail = f"{len(vault.missing)} of {total} chat folders are missing at once: put them back into "
        detail += f"{vault.path}/chats from a backup before the next keep, which keeps what lives anew: "
        yield fail("missing", detail + some(vault.missing))
    elif vault.missing:
        detail = f"{some(vault.missing)}: the folder was removed by hand; the next keep forgets it"
        if lives:
            yield fail(
                "missing", f"{detail}, though it lives: {some([one.session for one in lives])}", _adopting(lives)
            )
        else:
            yield warn("missing", f"{detail}; where that was not meant, put it back into {vault.path}/chats first")


def _adopting(lives: Iterable[Live]) -> str:
    """The line that has these kept again, each by the words that mean it alone."""
    words = (f"{one.session} --profile {shlex.quote(one.profile)}" for one in lives)
    return "; ".join(f"keeper keep --adopt {one}" for one in words)


def _damaged(facts: Facts) -> Iterator[Check]:
    told = set()
    for one in facts.vault.states:
        if one.state == Verdict.DAMAGED:
            told.add(one.session)
            when = f" at {one.when}" if one.when else ""
            detail = f"{one.session}: {many(one.lost, 'record')} cut from its live file in place{when}; they are kept. "
            detail += f"`keeper accept {one.named}` makes what is left the truth"
            yield fail("damaged", detail, one.cure)
    for live in _lives(facts):
        if live.verdict == Verdict.DAMAGED and live.session not in told:
            detail = f"{live.session}: {many(live.lost, 'record')} cut from its live file in place since the last "
            detail += f"keep; they are sealed. `keeper accept {live.session}` makes what is left the truth"
            cure = f"keeper keep {live.session}; keeper restore {live.session} --full"
            yield fail("damaged", detail, cure)


def _others(facts: Facts) -> Iterator[Check]:
    found = list(facts.vault.states)
    told = {one.session for one in found}
    found += [State(one.session, one.verdict) for one in _lives(facts) if one.verdict and one.session not in told]
    for state, said in SAID.items():
        for one in found:
            if one.state == state:
                make = ok if state in AS_CLAUDE_MADE_IT else warn
                ends = _ends(facts.vault, one)
                yield make(NAMES.get(state, str(state)), f"{one.session}: {said}{ends}", _cure(facts.vault, one))


def _ends(vault: VaultFacts, one: State) -> str:
    """What a person has to know of the cure, or do where no command is one."""
    if one.state == Verdict.DIVERGED:
        return (
            f". A copy under an id of its own gives it; `keeper accept {one.named}` then takes what lives for the whole"
        )
    if one.state == Verdict.DOUBLED:
        places = vault.places.get(one.session, ())
        where = f": {', '.join(places)} (the newest last)" if places else ""
        return f"{where}. Move the one away that you do not go on with, then run `keeper keep`"
    return ""


def _cure(vault: VaultFacts, one: State) -> str:
    if one.state == Verdict.DIVERGED:
        leaf, accept = vault.leaves.get(one.session), f"keeper accept {one.named}"
        return f"keeper restore {one.named} --branch {shlex.quote(leaf)} && {accept}" if leaf else ""
    if one.state in (Verdict.DOUBLED, Verdict.UNMERGEABLE):
        return ""
    return f"keeper restore {one.named}{' --full' if one.state in FULL else ''}"


def _lives(facts: Facts) -> Iterator[Live]:
    return (live for profile in facts.profiles for live in profile.live)
