"""Flags: which conversation a `claude` command line is about to resume.

It promises to see every form that Claude Code takes (`--resume ID`, `--resume=ID`, `-r ID`, `-rID`, `-pr ID`,
`--continue`, `-c`, bare `--resume`), and to look at nothing behind `--`. Another option's value may be taken for a
flag: that puts back a conversation too many, never one too few. It refuses to load anything: it stands in front of a
person.
"""

from __future__ import annotations

PLAIN, ONE, NEWEST, BARE = "plain", "one", "newest", "bare"
"""What is resumed: nothing; the conversation that `value` names; the newest of the directory; one to be chosen."""

_SWITCHES = "pcvh"
"""Short flags without a value: others may stand behind them in one word."""


class Asked:
    """What a command line asks for. `at` is the place of the word that holds the resume flag."""

    __slots__ = ("at", "kind", "value")

    def __init__(self, kind: str, value: str = "", at: int = -1) -> None:
        self.kind = kind
        self.value = value
        self.at = at

    def session(self) -> str:
        """The session that `value` names, by its id or by its transcript's path; "" where it names none (a title)."""
        name = self.value.rpartition("/")[2]
        name = name[:-6] if name.endswith(".jsonl") else self.value
        dashes = all(name[at : at + 1] == "-" for at in (8, 13, 18, 23))
        digits = name.replace("-", "")
        plain = len(name) == 36 and len(digits) == 32 and all(one in "0123456789abcdefABCDEF" for one in digits)
        return name if dashes and plain else ""


def read(words: list[str]) -> Asked:
    """What these arguments of `claude` ask for; where several ask, the one that names most."""
    found = Asked(PLAIN)
    for at, word in enumerate(words):
        if word == "--":
            break
        behind = words[at + 1] if at + 1 < len(words) else ""
        one = _flag(word, "" if behind.startswith("-") else behind, at)
        if one is not None and _weight(one) > _weight(found):
            found = one
    return found


def _weight(asked: Asked) -> int:
    return (PLAIN, BARE, NEWEST, ONE).index(asked.kind)


def _flag(word: str, behind: str, at: int) -> Asked | None:
    if word == "--continue":
        return Asked(NEWEST, at=at)
    if word == "--resume" or word.startswith("--resume="):
        return _resume(word[9:] or behind, at)
    if not word.startswith("-") or word.startswith("--"):
        return None
    for place, letter in enumerate(word[1:], 2):
        if letter == "c":
            return Asked(NEWEST, at=at)
        if letter == "r":
            return _resume(word[place:] or behind, at)
        if letter not in _SWITCHES:
            return None
    return None


def _resume(value: str, at: int) -> Asked:
    return Asked(ONE, value, at) if value else Asked(BARE, at=at)
