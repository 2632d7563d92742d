"""Sweeps: after how many days Claude deletes, by whose word, when next and what; and what is gone already.

Pure: facts in, checks out. It promises that a 0 is warned of wherever it stands, as it wipes everything on some
versions, and that a cure is never less than a large number of days (FIT-9).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from keeper.claude import version_of
from keeper.doctor.check import Check, at, fail, many, ok, some, span, warn
from keeper.doctor.facts import Facts, Live, Profile, Seen
from keeper.retention import DEFAULT_DAYS, KEY, SWEEPS_AT_ONCE, WIPES_AT_ZERO, Source

BY = {"managed": "an administrator's", "user": "your own", "project": "a project's", "local": "a project's local"}


def checks(facts: Facts) -> Iterator[Check]:
    """The period, the odd values, the next sweep, the versions that sweep at once, the lost."""
    for profile in facts.profiles:
        yield from _period(profile, facts)
        for source in profile.sources:
            yield from _odd(facts, source)
        yield _next(facts, profile)
        if profile.lost:
            yield _lost(profile)
    yield from _versions(facts)


def days_of(profile: Profile, facts: Facts | Seen) -> tuple[float, str]:
    """The period that a sweep of this profile may go by at the worst, and the file that says so: 0 counts where a
    version that takes it at its word is in use."""
    if wiping(facts):
        zero = next((one for one in profile.sources if one.why == "zero"), None)
        if zero is not None:
            return 0.0, zero.file
    return profile.retention.days, profile.retention.file


def wiping(facts: Facts | Seen) -> list[str]:
    """The versions in use that take 0 days at its word."""
    return [one for one in in_use(facts) if version_of(one) <= WIPES_AT_ZERO]


def in_use(facts: Facts | Seen) -> list[str]:
    """The versions that are installed, or wrote of late, the oldest first."""
    told = {version for _, version in facts.installed if version}
    told |= {version for profile in facts.profiles for version in profile.versions}
    return sorted(told, key=version_of)


def taken(profile: Profile, facts: Facts | Seen) -> list[Live]:
    """The chats that the next sweep takes, the oldest first."""
    if days_of(profile, facts)[0] == 0:
        return sorted(profile.live, key=lambda one: one.changed)
    by = {one.session: one for one in profile.live}
    return [by[session] for session in profile.forecast.chats if session in by]


def raise_in(file: str) -> str:
    """The line that sets a large number in this file, where a value stands, and leaves the rest as it is."""
    return f"keeper doctor --mend {shlex.quote(file)}"


def _period(profile: Profile, facts: Facts) -> Iterator[Check]:
    days, file = days_of(profile, facts)
    if days == 0:
        return  # `retention 0` tells of it
    said = next((one for one in profile.sources if one.file == file), None)
    own = next((one.days for one in profile.sources if one.scope == "user" and one.days), None)
    usual = own or DEFAULT_DAYS
    if said is None:
        yield ok("retention", f"{days:.0f} days, Claude's default, in {profile.path}")
        return
    if said.scope in ("project", "local") and days < usual:
        whose = f"your own {usual:.0f}" if own else f"Claude's default of {usual:.0f}"
        detail = f"{days:.0f} days by {file}, beside {whose}: a Claude started in {said.cwd} sweeps every project by it"
        yield fail("retention", detail, raise_in(file))
        return
    detail = f"{days:.0f} days by {BY[said.scope]} {file}"
    yield ok("retention", detail) if days >= DEFAULT_DAYS else warn("retention", detail, raise_in(file))


def _odd(facts: Facts, source: Source) -> Iterator[Check]:
    if source.why == "zero":
        old = wiping(facts)
        here = f"; {some(old)} is in use" if old else ""
        detail = f"{KEY} 0 in {source.file}: up to 2.1.85 Claude wipes every chat of every project by it, and writes "
        yield (fail if old else warn)("retention 0", f"{detail}none{here}", raise_in(source.file))
    elif source.why == "odd":
        yield warn("settings", f"{KEY} in {source.file} is no number of days", raise_in(source.file))
    elif source.why:
        detail = f"{source.file} is no JSON object: Claude reads nothing of it"
        yield warn("settings", detail, f"python3 -m json.tool {shlex.quote(source.file)}")


def _next(facts: Facts, profile: Profile) -> Check:
    found = taken(profile, facts)
    if profile.unread:
        told = f"what the next one of {profile.path} takes cannot be told"
        return fail("sweep", f"{told}: {profile.unread}")
    when = f"from {at(profile.forecast.earliest)} on" if profile.forecast.earliest > facts.now else "at any moment"
    if not found:
        due = [then for then in profile.forecast.due.values() if then > facts.now]
        first = f", the first is due in {span(min(due) - facts.now)}" if due else ""
        return ok("sweep", f"the next one of {profile.path} takes none of {many(len(profile.live), 'chat')}{first}")
    left = [one for one in found if one.forgotten or one.excluded or one.missing]  # of `missing` its check tells
    unkept = [one.session for one in found if not one.kept and one.chat and one not in left]
    detail = f"the next one of {profile.path}, {when}, takes {many(len(found), 'chat')} of {len(profile.live)}"
    if facts.vault.error:
        return warn("sweep", f"{detail}; whether they are kept cannot be told", "keeper list --at-risk")
    if unkept:
        return fail("sweep", f"{detail}; not kept: {some(unkept)}", "" if facts.vault.missing else "keeper keep")
    names = some([one.session for one in found])
    kept = sum(bool(one.kept) for one in found)
    how = "all of them kept" if kept == len(found) else f"{kept} kept, {len(found) - kept} not to be"
    return warn("sweep", f"{detail}, {how}: {names}", "keeper list --at-risk")


def _lost(profile: Profile) -> Check:
    first, count = profile.lost[0], len(profile.lost)
    prompts = sum(one.prompts for one in profile.lost)
    detail = (
        f"{many(count, 'chat')} without any file, live or kept; {profile.history} still has "
        f"{many(prompts, 'prompt')} of that: {some([one.session for one in profile.lost])}"
    )
    return warn("lost", detail, f"keeper resume {first.session} --prompts")


def _versions(facts: Facts) -> Iterator[Check]:
    found = in_use(facts)
    old = [one for one in found if version_of(one) <= SWEEPS_AT_ONCE]
    if not old:
        if found:
            yield ok("claude", f"in use: {', '.join(found[-3:])}")
        return
    mixed = f", beside {found[-1]}" if len(old) < len(found) else ""
    places = [path for path, version in facts.installed if version in old]
    where = f" ({some(places)})" if places else ""
    detail = f"{some(old)}{where}{mixed}: up to 2.1.40 a sweep runs the moment it starts"
    yield warn("claude", detail, "claude update")
