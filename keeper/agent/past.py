"""Past: what the agent could not rely on and what it met, over time: a bounded history in the vault, for the report.

It promises that every spell has a beginning and, once it is over, an end, also where the agent was killed in the middle
of it, and that one kind's many events push out no other kind's. It refuses transcript text: it is given names, counts
and reasons.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import orjson

from keeper import disk, files

FILE = "past.json"
LIMIT = 100
"""So many runs of the agent are remembered, and so many spells and events of each kind."""
UNKNOWN = "it was killed: its end is not known to the minute"


class Past:
    """The history. Times are unix seconds; any thread may tell.

    `runs` of the agent and `spells` of trouble have `since` and `until` (None while they last), a spell its kind
    (`what`) and the reason that it began with; `events` have `when`, and of how many chats they tell. `counts` are of
    all that ever was: events by kind, chats by kind, spells, and how long these were, in seconds.
    """

    def __init__(self) -> None:
        self.runs: list[dict[str, Any]] = []
        self.spells: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.counts: dict[str, float] = {}
        self._vault: Path | None = None
        self._changed = False
        self._lock = threading.Lock()

    def begin(self, vault: Path, now: float) -> None:
        """A run of the agent begins: what was told before is read; what a killed run left open ended by now at the
        latest."""
        before = read(vault)
        with self._lock:
            self._vault = vault
            self.runs = [*before["runs"], {"since": now, "until": None, "why": ""}]
            self.spells = [*before["spells"], *self.spells]
            self.events = [*before["events"], *self.events]
            for name, count in before["counts"].items():
                self.counts[name] = self.counts.get(name, 0) + count
            for one in self.runs[:-1]:
                if one["until"] is None:
                    one.update(until=now, why=UNKNOWN)
            for one in before["spells"]:
                if one["until"] is None:
                    self._close(one, now)
            self._changed = True

    def event(self, what: str, text: str, when: float, chats: int) -> None:
        """Something with a name has happened, to so many chats."""
        with self._lock:
            self.events = _bounded([*self.events, {"what": what, "when": when, "text": text, "chats": chats}])
            self._count(f"{what} events", 1)
            self._count(f"{what} chats", chats)

    def begun(self, what: str, why: str, when: float) -> None:
        """From now on this kind of thing cannot be relied on."""
        with self._lock:
            self.spells = _bounded([*self.spells, {"what": what, "why": why, "since": when, "until": None}])
            self._count("spells", 1)

    def ended(self, what: str, when: float) -> None:
        """This kind is well again."""
        with self._lock:
            for one in self.spells:
                if one["what"] == what and one["until"] is None:
                    self._close(one, when)

    def end(self, now: float) -> None:
        """The run ends, and with it all that lasted: nobody sees whether it goes on."""
        with self._lock:
            for one in self.spells:
                if one["until"] is None:
                    self._close(one, now)
            if self.runs:
                self.runs[-1].update(until=now)
                self._changed = True

    def _close(self, spell: dict[str, Any], when: float) -> None:
        spell["until"] = max(when, spell["since"])
        self._count("spell seconds", spell["until"] - spell["since"])

    def _count(self, name: str, more: float) -> None:
        self.counts[name] = self.counts.get(name, 0) + more
        self._changed = True

    def write(self) -> None:
        """Put it down, where a run has begun and anything was told since. Raises DiskError."""
        with self._lock:
            if not self._changed or self._vault is None:
                return
            self.runs = self.runs[-LIMIT:]
            told = {"runs": self.runs, "spells": self.spells, "events": self.events, "counts": self.counts}
            data = json.dumps({"schema": 1, **told}).encode()
            self._changed = False
        try:
            disk.write_file(self._vault / FILE, data, sync=False)
        except OSError:
            self._changed = True
            raise


def _bounded(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of the kind that was told last, the newest."""
    what = told[-1]["what"]
    kind = [one for one in told if one["what"] == what]
    if len(kind) <= LIMIT:
        return told
    return [one for one in told if one is not kind[0]]


def read(vault: Path) -> dict[str, Any]:
    """What the agents of this vault told: `runs`, `spells`, `events`, `counts`, as in `Past`; what does not read is
    not there."""
    try:
        found = orjson.loads(files.read(vault / FILE))
    except (OSError, ValueError):
        found = None
    table = found if isinstance(found, dict) else {}
    runs = _entries(table.get("runs"), ("since", "until"), ("why",))
    spells = _entries(table.get("spells"), ("since", "until"), ("what", "why"))
    events = _entries(table.get("events"), ("when", "chats"), ("what", "text"))
    counts = table.get("counts")
    told = counts.items() if isinstance(counts, dict) else ()
    return {"runs": runs, "spells": spells, "events": events, "counts": {k: v for k, v in told if _number(v)}}


def _entries(found: object, numbers: tuple[str, ...], texts: tuple[str, ...]) -> list[dict[str, Any]]:
    """Those that have all their keys; `until` may be None, since it is open."""
    every = found if isinstance(found, list) else []
    return [
        one
        for one in every
        if isinstance(one, dict)
        and all(_number(one.get(key)) or (key == "until" and key in one and one[key] is None) for key in numbers)
        and all(isinstance(one.get(key), str) for key in texts)
    ]


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
