"""Judge: all facts into all checks, the worst first, and what a program is told of retention and sweep.

Pure. It promises exit code 1 exactly where a check fails.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from keeper.doctor import capture, chats, ground, sweeps
from keeper.doctor.check import FAIL, Check, worst_first
from keeper.doctor.facts import Facts, Profile
from keeper.retention import Source


def checks(facts: Facts, shared: Callable[[str], bool]) -> list[Check]:
    """Every check, the worst first. `shared`: whether a volume of that type is changed behind this machine."""
    found = [*capture.checks(facts), *chats.checks(facts), *sweeps.checks(facts), *ground.checks(facts, shared)]
    return worst_first(found)


def exit_code(found: list[Check]) -> int:
    """1 where something fails; a warning alone is none."""
    return int(any(check.state == FAIL for check in found))


def answer(facts: Facts, found: list[Check]) -> dict[str, Any]:
    """What `keeper doctor --json` says: `retention` and `sweep` are those of the profile that is swept soonest of its
    files, with all of them below. Days and unix seconds."""
    told = [_profile(profile, facts) for profile in facts.profiles]
    retention = min((one["retention"] for one in told), key=lambda one: int(one["days"]))
    kept: dict[str, list[bool | None]] = {}
    due: dict[str, list[float]] = {}
    for one in told:
        for name, word in one["sweep"]["kept"].items():
            kept.setdefault(name, []).append(word)
        for name, when in one["sweep"]["due"].items():
            due.setdefault(name, []).append(when)
    earliest = min(one["sweep"]["earliest"] for one in told)
    whole = [name for one in told for name in one["sweep"]["chats"]]
    return {
        "checks": [asdict(check) for check in found],
        "retention": retention,
        "sweep": {
            "earliest": earliest,
            "chats": whole,
            "kept": {name: None if None in words else all(words) for name, words in kept.items()},
            "due": {name: min(times) for name, times in due.items()},
        },
        "lost": [asdict(one) for profile in facts.profiles for one in profile.lost],
        "profiles": told,
    }


def _profile(profile: Profile, facts: Facts) -> dict[str, Any]:
    days, file = sweeps.days_of(profile, facts)
    found = sweeps.taken(profile, facts)
    return {
        "profile": profile.path,
        "retention": {
            "days": int(days),
            "file": file,
            "profile": profile.path,
            "sources": [_source(source) for source in profile.sources],
        },
        "sweep": {
            "earliest": profile.forecast.earliest,
            "last": profile.last_sweep,
            "chats": [one.session for one in found],
            "kept": {one.session: one.kept for one in found},
            "due": profile.forecast.due,
        },
    }


def _source(source: Source) -> dict[str, Any]:
    return {**asdict(source), "days": None if source.days is None else int(source.days)}
