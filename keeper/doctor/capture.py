"""Capture: whether what Claude writes is kept as it writes it; if not, since when, and what brings it back.

Pure: facts in, checks out. It promises that a chat which lives and is not kept is a failure by its name, whatever runs.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator

from keeper.doctor.check import Check, at, fail, many, ok, size, some, span, warn
from keeper.doctor.facts import Agent, Facts, Hooks, Live

GRACE_S = 120.0
"""A chat so young, or a line, may be on its way into the vault."""
QUIET_S = 600.0
"""What is not sealed so long after it was written is not on its way."""
DAY_S = 86_400.0
MASS, CLOCK = "mass deletion", "clock"
LOSING = frozenset({"keep", "look", "reconcile", "worker", "pass", "the end"})
"""Troubles of the agent with which something is not kept; with the others it is kept later than it could be."""
SETTINGS = "settings"
"""The agent's trouble that `config` tells of too: asked again, it reads the same file."""
KEEPS = "keeper keep"
UNTOLD = "whether all is kept cannot be told: keeper's settings, which say where the vault is, do not read"


def checks(facts: Facts) -> Iterator[Check]:
    """What is kept, and what does it: the agent, the hooks, the shim, the service."""
    yield _captured(facts)
    yield from _agent(facts)
    yield from _hooks(facts)
    yield _shim(facts)
    yield _service(facts)


def _captured(facts: Facts) -> Check:
    if facts.vault.error:
        why = "nothing is kept: the vault cannot be used"
        return warn("capture", UNTOLD) if facts.vault.unknown else fail("capture", why)
    closed = [*facts.vault.foreign, *facts.vault.closed]
    if closed:
        return fail("capture", f"nothing new is kept: the vault cannot be written to, see `modes`: {some(closed)}")
    unread = [one.unread for one in facts.profiles if one.unread]
    if unread:
        return fail("capture", f"whether all is kept cannot be told: {some(unread)}")
    lives = [one for profile in facts.profiles for one in profile.live if one.chat and not _left_out(one)]
    unkept = sorted((one for one in lives if _unkept(one, facts.now)), key=lambda one: -one.changed)
    if unkept:
        newest = unkept[0]
        since = min(_since(one) for one in unkept)
        return fail(
            "capture",
            f"{many(len(unkept), 'live chat')} of {len(lives)} not kept, or not to their end; the newest, "
            f"{newest.session}, for {span(facts.now - _since(newest))}; the first since {at(since)}",
            _keeping(facts),
        )
    behind = [one for one in lives if one.lag and facts.now - one.changed > QUIET_S]
    if behind:
        lag = sum(one.lag for one in behind)
        since = min(one.sealed or one.born for one in behind)
        return warn(
            "capture",
            f"{many(len(behind), 'live chat')} linked but not sealed to the end ({size(lag)}) since {at(since)}: "
            f"safe from a sweep, not from damage: {some([one.session for one in behind])}",
            _keeping(facts),
        )
    sealed = max((one.sealed for one in lives), default=0.0)
    when = f", sealed last {at(sealed)}" if sealed else ""
    new = sum(not one.kept for one in lives)
    way = f", {many(new, 'new one')} on the way" if new else ""
    told = f"{len(lives) - new} of {many(len(lives), 'live chat')} kept{way}{when}"
    return ok("capture", told if lives else "no chat lives")


def _left_out(one: Live) -> bool:
    """What is not to be kept, and what another check tells of with a cure of its own: a keep would forget it."""
    return one.forgotten or one.excluded or one.missing


def _keeping(facts: Facts) -> str:
    """A keep of all, unless that would take the place, or the last trace, of folders that are missing."""
    return "" if facts.vault.missing else KEEPS


def _unkept(one: Live, now: float) -> bool:
    """Not kept, and not on its way into the vault."""
    return not one.kept and now - _since(one) > GRACE_S


def _since(one: Live) -> float:
    """Since when it waits: its birth, or (of what is kept in part) its last change."""
    return one.changed if one.lag else min(one.born, one.changed)


def _agent(facts: Facts) -> Iterator[Check]:
    agent = facts.doors.agent
    if facts.vault.error and not (agent.running or agent.silent):
        yield warn("agent", "whether one runs for this vault cannot be told while the vault cannot be used")
    elif agent.silent:
        detail = f"process {agent.pid} runs and does not answer: does a volume hang?"
        yield fail("agent", detail, f"kill {agent.pid}; {_start(facts)}")
    elif not agent.running:
        hooked = [one for one in facts.doors.hooks if _calls(one)]
        covered = bool(hooked) and len(hooked) == len(facts.doors.hooks)
        since = f"no agent since {at(agent.last)}" if agent.last is not None else "no agent has run for this vault yet"
        rest = "hooks alone keep, at each turn's end" if covered else "no hook keeps instead"
        yield (warn if covered else fail)("agent", f"{since}; {rest}", _start(facts))
    elif agent.degraded:
        yield from _degraded(facts, agent)
    else:
        told = f"process {agent.pid} since {at(agent.since)}, folders watched: {agent.watches}"
        yield ok("agent", told) if agent.ready else warn("agent", f"{told}, still in its first look over everything")
    for profile in agent.polled:
        yield warn("polled", f"{profile}: events of its volume cannot be relied on", "keeper doctor --probe")
    for event in agent.events:
        if facts.now - event.when < DAY_S and event.what == MASS:
            detail = f"{event.why}, at {at(event.when)}; what was kept is kept"
            yield warn(MASS, detail, "keeper restore --all --dry-run")


def _degraded(facts: Facts, agent: Agent) -> Iterator[Check]:
    for one in agent.degraded:
        losing = one.what.partition(":")[0] in LOSING
        cure = _keeping(facts) if losing else f"kill -HUP {agent.pid}" if one.what != SETTINGS else ""
        yield (fail if losing else warn)("agent", f"degraded since {at(one.when)}: {one.what}: {one.why}", cure)


def _start(facts: Facts) -> str:
    service = facts.doors.service
    if not service.systemd:
        return "keeper run"
    return "systemctl --user restart keeper.service" if service.installed else "keeper service install"


def _calls(one: Hooks) -> bool:
    return bool(one.events) and not one.missing and not one.disabled and not one.error


def _hooks(facts: Facts) -> Iterator[Check]:
    for one in facts.doors.hooks:
        if one.error:
            yield warn("hooks", one.error, f"python3 -m json.tool {shlex.quote(one.file)}")
        elif not one.events:
            yield warn("hooks", f"Claude calls no hook of keeper's: none in {one.file}", "keeper hooks install")
        elif one.missing:
            yield warn("hooks", f"{one.file} lacks {', '.join(one.missing)}", "keeper hooks install")
        elif one.disabled:
            yield warn("hooks", f"Claude calls no hook of yours: {one.disabled} is true", _turned_on(one))
        else:
            yield _called(facts, one)
    log = facts.doors.hook_log
    if log is not None and facts.now - log < DAY_S:
        file = facts.doors.hook_log_file
        yield warn("hook log", f"a hook failed at {at(log)}", f"tail -n 5 {shlex.quote(file)}")


def _turned_on(one: Hooks) -> str:
    """The line that takes the word back where it is the user's own; an administrator's is shown."""
    word, _, file = one.disabled.replace("`", "").partition(" in ")
    if file == one.file:
        return f"keeper doctor --mend {shlex.quote(file)}"
    return f"grep -n {word} {shlex.quote(file)}"


def _called(facts: Facts, one: Hooks) -> Check:
    """Whether hooks are called too, as far as the agent that they ask can tell: a chat that was written to while it
    ran, a while ago, has had an end of a turn since."""
    agent = facts.doors.agent
    mine = [live for profile in facts.profiles if profile.path == one.profile for live in profile.live]
    written = max((live.changed for live in mine if live.changed < facts.now - QUIET_S), default=0.0)
    if agent.running and written > agent.since + QUIET_S and (agent.hooked or 0.0) < written - QUIET_S:
        last = f"the last call was at {at(agent.hooked)}" if agent.hooked else "none has called since the agent started"
        detail = f"{len(one.events)} hooks in {one.file}, but {last} and a chat was written to at {at(written)}: "
        detail += "a Claude that ran before they were put in has to be restarted"
        return warn("hooks", detail, "keeper hooks status")
    called = f", called last {at(agent.hooked)}" if agent.hooked else ""
    return ok("hooks", f"{len(one.events)} hooks in {one.file}{called}")


def _shim(facts: Facts) -> Check:
    shim = facts.doors.shim
    if not shim.installed:
        detail = "`claude` puts nothing back before a resume: no shim"
        return warn("shim", detail, "keeper shim install")
    if not shim.real:
        return warn("shim", f"{shim.path} finds no claude to start", "keeper shim status")
    if not shim.first:
        line = f'export PATH={shlex.quote(os.path.dirname(shim.path))}:"$PATH"'
        advice = f"; {shim.advice[0]}" if shim.advice else ""
        return warn("shim", f"{shim.path} is not the first claude on PATH{advice}", line)
    if not shim.current:
        return warn("shim", f"{shim.path} is of another keeper or Python", "keeper shim install")
    return ok("shim", f"{shim.path} starts {shim.real}")


def _service(facts: Facts) -> Check:
    service, running = facts.doors.service, facts.doors.agent.running
    if not service.systemd:
        told = "the agent runs in the foreground" if running else "nothing starts the agent"
        detail = f"no systemd here: {told}"
        return ok("service", detail) if running else warn("service", detail, "keeper run")
    if not service.installed:
        how = "the agent runs, but nothing starts it at the next login" if running else "nothing starts the agent"
        return warn("service", how, "keeper service install")
    if service.active not in ("active", "activating", "reloading") and not running:
        said = service.active or "nothing"
        return fail("service", f"systemd says {said} of {service.path}", "systemctl --user restart keeper.service")
    if service.ends:
        return warn("service", "the agent ends with your last login", "loginctl enable-linger")
    return ok("service", f"{service.path}: {service.active or 'the agent runs by itself'}")
