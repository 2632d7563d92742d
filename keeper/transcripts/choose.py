"""Choose: which of the kept chats a person asked for, and in which order.

It promises that several conditions narrow each other, and that an order is whole: what is equal stands by its time,
then by its session. It refuses to read a file: it looks at what `describe` told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from keeper.transcripts.describe import Described

ORDERS: dict[str, Callable[[Described], tuple[object, ...]]] = {
    "last": lambda one: (),
    "title": lambda one: (one.title.casefold(),),
    "cwd": lambda one: (one.cwd,),
    "state": lambda one: (one.state,),
    "records": lambda one: (one.records,),
    "bytes": lambda one: (one.bytes,),
}
"""By what a list is sorted, the smallest first; behind each stands when the chat was last used."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a chat must be to be chosen; what is empty asks for nothing. `cwds` are the names of one directory, `below`
    those of one under which it may lie, `since` and `until` the times (ISO, UTC) between which it was last used,
    `words` stand in its title or its first prompt, in any case of letters, each of them."""

    cwds: frozenset[str] = frozenset()
    below: frozenset[str] = frozenset()
    states: frozenset[str] = frozenset()
    since: str = ""
    until: str = ""
    words: tuple[str, ...] = ()

    def takes(self, one: Described) -> bool:
        """Whether the chat is one of those."""
        if self.cwds and one.cwd not in self.cwds:
            return False
        if self.below and not any(_lies_below(one.cwd, folder) for folder in self.below):
            return False
        if self.states and one.state not in self.states:
            return False
        if (self.since and one.last < self.since) or (self.until and one.last > self.until):
            return False
        text = f"{one.title}\n{one.prompt}".casefold()
        return all(word.casefold() in text for word in self.words)


def chosen(chats: Iterable[Described], asked: Asked, order: str = "last", reverse: bool = False) -> list[Described]:
    """Those that are asked for, in one of the ORDERS."""
    key = ORDERS[order]
    found = [one for one in chats if asked.takes(one)]
    return sorted(found, key=lambda one: (*key(one), one.last, one.session), reverse=reverse)


def by_directory(chats: Iterable[Described]) -> dict[str, list[Described]]:
    """The chats of each directory, in the order in which they come; the directory of the last chat is the last."""
    found: dict[str, list[Described]] = {}
    for one in chats:
        group = found.pop(one.cwd, [])
        found[one.cwd] = [*group, one]
    return found


def _lies_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")
