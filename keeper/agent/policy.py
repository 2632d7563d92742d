"""Policy: rules and bounds in the running agent: what is excluded goes, what could be pruned is told, once a day.

It promises that a rule which comes while the agent runs is applied within seconds. It refuses to read a settings file
that is still being written, and to prune: a clock that was set ages nothing into deletion (AGENT-5).
"""

from __future__ import annotations

from pathlib import Path

from keeper.agent.condition import Condition
from keeper.agent.jobs import Job
from keeper.agent.work import Work
from keeper.transcripts.lines import mark_of

DAY_S = 86_400.0


class Policy:
    """The policy of one agent. `config` is the settings file, there or not."""

    def __init__(self, work: Work, condition: Condition, config: Path) -> None:
        self.work = work
        self.condition = condition
        self.config = str(config)
        self.read = self.seen = mark_of(self.config)
        self.job = Job("prune", DAY_S, self.plan)

    def rewritten(self) -> bool:
        """Whether the settings file is another one than was read last, and was the same at the last look already."""
        mark = mark_of(self.config)
        settled, self.seen = mark == self.seen, mark
        if not settled or mark == self.read:
            return False
        self.read = mark
        return True

    def exclude(self, where_new: bool = False) -> None:
        """What the rules of now exclude goes, and that is told; or only `where_new` they are not those of last time."""
        with self.work.pulse.at("the rules"):
            self.condition.safely("policy", lambda: self._exclude(where_new))

    def _exclude(self, where_new: bool) -> None:
        gone = self.work.exclude(where_new)
        if gone:
            sole = sum(one.sole for one in gone)
            alone = f", {sole} of them the sole copy" if sole else ""
            self.condition.event("excluded", f"{len(gone)} chats that a rule excludes were removed{alone}")

    def plan(self) -> None:
        """What the bounds of the settings would have go is told, and left to a person."""
        with self.work.pulse.at("the bounds"):
            self.condition.safely("prune", self._plan)

    def _plan(self) -> None:
        found = self.work.plan()
        if found.items:
            sole = sum(one.sole for one in found.items)
            size = sum(one.frees for one in found.items)
            self.condition.event(
                "prune", f"{len(found.items)} chats are past a bound, {size} bytes, {sole} sole copies: `keeper prune`"
            )
