"""Metrics: how keeper stands, in numbers, as OpenMetrics text for a monitoring system.

It promises units in the names, counters that only grow, and no text of a person's: no title, no session id, no
directory that somebody worked in; the one label is the profile. It refuses to tell a number that is not known: that
line is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from keeper import __version__
from keeper.report.facts import AT_RISK, LIVE, RESCUED, Gathered
from keeper.retention import DAY_S

MARK = b"# HELP keeper_build"
"""What such a file begins with."""
NAMED_COUNTS = (
    ("keeper_sweeps", "sweep events", "Sweeps whose chats were put back by the agent"),
    ("keeper_put_back_chats", "sweep chats", "Chats that the agent put back after a sweep"),
    ("keeper_mass_deletions", "mass deletion events", "Times that very many names went at once"),
    ("keeper_deleted_chats", "deleted chats", "Resident chats that were deleted by other hands than a sweep"),
    ("keeper_degraded_spells", "spells", "Times that the agent began to not rely on something"),
    ("keeper_degraded_seconds", "spell seconds", "How long these lasted, those that are over"),
)


@dataclass(slots=True)
class _Family:
    """One metric: its lines come after one another, as the format wants it."""

    name: str
    kind: str
    unit: str
    help: str
    samples: list[tuple[str, float]] = field(default_factory=list)

    def lines(self) -> Iterable[str]:
        if self.samples:
            yield f"# HELP {self.name} {self.help}."
            yield f"# TYPE {self.name} {self.kind}"
            if self.unit:
                yield f"# UNIT {self.name} {self.unit}"
            ending = {"counter": "_total", "info": "_info"}.get(self.kind, "")
            for labels, value in self.samples:
                yield f"{self.name}{ending}{labels} {repr(float(value)).removesuffix('.0')}"


def exposition(seen: Gathered, agent: Mapping[str, Any], past: Mapping[str, Any]) -> bytes:
    """The text. `agent` is its status, `past` its history, as `agent.past.read` tells it."""
    families = [
        _Family("keeper_build", "info", "", "Which keeper tells this", [(_labels(version=__version__), 1)]),
        _gauge("keeper_report_time_seconds", "When this was told, in unix time", seen.now),
        *_agent(agent),
        *(
            _Family(name, "counter", "seconds" if name.endswith("_seconds") else "", told, [("", _count(past, key))])
            for name, key, told in NAMED_COUNTS
        ),
        _gauge("keeper_missing_chats", "Chats whose folder is missing from the vault", seen.missing),
        _gauge("keeper_vault_free_bytes", "Free space on the vault's volume", seen.free),
        *_profiles(seen),
    ]
    return "".join(f"{line}\n" for family in families for line in [*family.lines()]).encode() + b"# EOF\n"


def _agent(agent: Mapping[str, Any]) -> Iterable[_Family]:
    running = bool(agent.get("running"))
    yield _gauge("keeper_agent_running", "1 where the agent answers", running)
    if running:
        degraded: Sequence[object] = agent.get("degraded") or ()
        yield _gauge("keeper_agent_start_time_seconds", "When the agent began, in unix time", agent["since"])
        yield _gauge("keeper_agent_troubles", "What the agent cannot rely on now", len(degraded))
        yield _gauge("keeper_agent_queued_sessions", "Sessions that wait for a keep", agent["queued"])
        yield _gauge("keeper_agent_watches", "Folders that are watched", agent["watches"]["count"])
        yield _gauge("keeper_agent_polled_profiles", "Profiles whose events cannot be relied on", len(agent["polled"]))


def _profiles(seen: Gathered) -> Iterable[_Family]:
    """One sample a profile."""
    stands = {
        (one.path, state): 0 for one in seen.profiles for state in (LIVE, AT_RISK, RESCUED, "any", "trouble", "seal")
    }
    for session in seen.sessions:
        path = session.row.profile
        stands[path, session.stands] += 1
        stands[path, "any"] += 1
        stands[path, "trouble"] += bool(session.row.state)

    def of(name: str, unit: str, told: str, values: Mapping[str, float | None]) -> _Family:
        samples = [(_labels(profile=path), value) for path, value in values.items() if value is not None]
        return _Family(name, "gauge", unit, told, samples)

    def count(name: str, told: str, *states: str) -> _Family:
        return of(name, "", told, {one.path: sum(stands[one.path, state] for state in states) for one in seen.profiles})

    profiles = {one.path: one for one in seen.profiles}
    yield count("keeper_kept_sessions", "Sessions that the vault holds", "any")
    yield count("keeper_live_sessions", "Of these, those that Claude has as well", LIVE, AT_RISK)
    yield count("keeper_at_risk_sessions", "Of these, those that the next sweep can take", AT_RISK)
    yield count("keeper_rescued_sessions", "Kept sessions that Claude no longer has", RESCUED)
    yield count(
        "keeper_irregular_sessions", "Kept sessions whose last keep found them not as they should be", "trouble"
    )
    yield of(
        "keeper_unkept_sessions", "", "Live sessions that the vault does not hold yet",
        {path: len(one.unkept) for path, one in profiles.items()},
    )  # fmt: skip
    held = seen.bytes
    yield of(
        "keeper_vault_shared_bytes", "bytes", "Bytes of the vault that are Claude's own files, by a link",
        {path: one.shared for path, one in held.items()},
    )  # fmt: skip
    yield of(
        "keeper_vault_own_bytes", "bytes", "Bytes of the vault that nothing else holds, seals among them",
        {path: one.own for path, one in held.items()},
    )  # fmt: skip
    yield of(
        "keeper_vault_seal_bytes", "bytes", "Bytes of the seals",
        {path: one.seals for path, one in held.items()},
    )  # fmt: skip
    yield of(
        "keeper_retention_seconds", "seconds", "After how long without a change a sweep takes a chat, at the worst",
        {path: one.days * DAY_S if one.there else None for path, one in profiles.items()},
    )  # fmt: skip
    yield of(
        "keeper_last_sweep_time_seconds", "seconds", "When Claude last swept the profile, in unix time",
        {path: one.last_sweep for path, one in profiles.items()},
    )  # fmt: skip
    yield of(
        "keeper_next_sweep_time_seconds", "seconds", "Before this no sweep can begin, in unix time",
        {path: one.earliest for path, one in profiles.items()},
    )  # fmt: skip


def _gauge(name: str, told: str, value: float) -> _Family:
    unit = name.rpartition("_")[2]
    return _Family(name, "gauge", unit if unit in ("seconds", "bytes") else "", told, [("", float(value))])


def _count(past: Mapping[str, Any], key: str) -> float:
    return float(past["counts"].get(key, 0))


def _labels(**given: str) -> str:
    """Escaped as the format wants it; a name that is no UTF-8 is told by its escapes."""
    pairs = []
    for name, value in given.items():
        text = value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        pairs.append(f'{name}="{text.replace(chr(92), chr(92) * 2).replace(chr(34), chr(92) + chr(34))}"')
    return "{" + ",".join(pairs).replace("\n", r"\n") + "}"
