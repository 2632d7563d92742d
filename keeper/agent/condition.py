"""Condition: what the agent cannot rely on, and what has happened: told once in the log, and in the status.

It promises that a trouble stands there from the first time that it is met until it is cured, with its reason and since
when. It refuses to tell the same thing twice.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from keeper.agent.journal import Journal
from keeper.agent.past import Past
from keeper.errors import KeeperError

EVENTS = 50
"""So many of the last named events are shown."""

SHOWN = 50
"""And so many troubles."""


class Condition:
    """Troubles and events; any thread may tell. `let_go` is called after a failure that nobody expected. `past` is what
    of it is remembered."""

    def __init__(self, journal: Journal, let_go: Callable[[], None]) -> None:
        self.journal = journal
        self.let_go = let_go
        self.past = Past()
        self.events: list[dict[str, Any]] = []
        self._troubles: dict[str, dict[str, Any]] = {}
        self._lock = threading.RLock()

    def tell(self, text: str) -> None:
        """A line in the log."""
        with self._lock:
            self.journal.tell(text)

    def event(self, what: str, text: str, chats: int = 1) -> None:
        """Something with a name, that happened to so many chats: in the log, and for a while in the status."""
        with self._lock:
            now = time.time()
            self.events = [*self.events[1 - EVENTS :], {"what": what, "when": now, "text": text}]
            self.past.event(what, text, now, chats)
            self.tell(f"{what}: {text}")

    def trouble(self, what: str, why: str) -> None:
        """This cannot be relied on, for this reason."""
        with self._lock:
            known = self._troubles.get(what)
            if known is None or known["why"] != why:
                now = time.time()
                if not self.lasts(kind := what.partition(":")[0]):
                    self.past.begun(kind, why, now)
                self._troubles[what] = {"what": what, "why": why, "since": known["since"] if known else now}
                self.tell(f"{what}: {why}")

    def cured(self, what: str) -> None:
        """That is well again; nothing where it was."""
        with self._lock:
            if self._troubles.pop(what, None) is not None:
                self.tell(f"{what}: well again")
                if not self.lasts(kind := what.partition(":")[0]):
                    self.past.ended(kind, time.time())

    def only(self, kind: str, lasting: dict[str, str]) -> None:
        """All troubles of a kind (`kind: …`) are these, what → why; the others of it are cured."""
        with self._lock:
            for what in [what for what in self._troubles if what.startswith(f"{kind}: ")]:
                if what.removeprefix(f"{kind}: ") not in lasting:
                    self.cured(what)
            for what, why in lasting.items():
                self.trouble(f"{kind}: {what}", why)

    def lasts(self, *kinds: str) -> bool:
        """Whether there is a trouble of one of these kinds."""
        with self._lock:
            return any(what.partition(":")[0] in kinds for what in self._troubles)

    def troubles(self) -> list[dict[str, Any]]:
        """Each with what, why, since (unix seconds); of very many the first, and how many more there are."""
        with self._lock:
            found = [dict(one) for one in self._troubles.values()]
        if len(found) > SHOWN:
            more = {"what": "more", "why": f"and {len(found) - SHOWN} more", "since": found[SHOWN]["since"]}
            return [*found[:SHOWN], more]
        return found

    def safely(self, what: str, do: Callable[[], object]) -> None:
        """Do it; whatever it raises is a trouble until it works."""
        try:
            do()
        except Exception as error:  # noqa: BLE001 - the agent goes on whatever one part of it meets
            self.let_go()
            self.trouble(what, error.message if isinstance(error, KeeperError) else f"{type(error).__name__}: {error}")
        else:
            self.cured(what)
