"""Rules: which chats keep nothing: conditions as a person writes them, and whether a chat meets them.

It promises that all conditions of a rule must be met, that `**` crosses folders where `*` does not, that a folder is
met by each name that leads to it, and that case counts (POLICY-1). It refuses to guess: what is not known of a chat
meets no condition.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from keeper.settings import CONDITIONS

PATHS = frozenset({"cwd", "profile"})
"""Conditions on a path: `*` stays within one folder's name."""
PRESET = "preset:"
"""A host tells a chat's preset by a tag that begins so."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Globs by the name of the condition, in the order of CONDITIONS. `origin` is the settings file, or "" for a rule
    that was given by the command."""

    conditions: tuple[tuple[str, str], ...]
    origin: str = ""

    @classmethod
    def of(cls, table: Mapping[str, str], origin: str = "") -> Rule:
        """The rule with these conditions; names that are none are passed over."""
        return cls(tuple((name, table[name]) for name in CONDITIONS if name in table), origin)

    def __str__(self) -> str:
        return " ".join(f"{name}={glob}" for name, glob in self.conditions)


@dataclass(frozen=True, slots=True)
class Subject:
    """What is known of a chat, by the name of the condition that asks for it."""

    known: Mapping[str, frozenset[str]]

    @classmethod
    def of(cls, tags: Iterable[str] = (), **known: Iterable[str]) -> Subject:
        """Of a chat with these tags; empty words are unknown."""
        tags = frozenset(tags)
        told = {name: frozenset(filter(None, values)) for name, values in known.items()}
        preset = frozenset(tag.removeprefix(PRESET) for tag in tags if tag.startswith(PRESET))
        return cls({**told, "tag": tags, "preset": preset})


def first_met(rules: Iterable[Rule], subject: Subject) -> Rule | None:
    """The first rule that the chat meets; None where it is to be kept."""
    return next((rule for rule in rules if _meets(rule, subject)), None)


def _meets(rule: Rule, subject: Subject) -> bool:
    return bool(rule.conditions) and all(
        any(matches(name, glob, word) for word in subject.known.get(name, ())) for name, glob in rule.conditions
    )


def matches(name: str, glob: str, word: str) -> bool:
    """Whether a word fits the glob of a condition of that name."""
    if name not in PATHS:
        return fnmatchcase(word, glob)
    globs, words = {glob, _real(glob)}, {word, os.path.realpath(word)}
    return any(path_fits(one, path) for one in globs for path in words)


def _real(glob: str) -> str:
    """The same with no link among the folders before its first wildcard."""
    parts = glob.split("/")
    wild = next((at for at, part in enumerate(parts) if any(char in part for char in "*?[")), len(parts))
    folder = "/".join(parts[:wild])
    if not glob.startswith("/"):
        return glob
    return "/".join([os.path.realpath(folder or "/").rstrip("/"), *parts[wild:]]) or "/"


def path_fits(glob: str, path: str) -> bool:
    """Whether an absolute path fits: `**` stands for any number of folders, none included, so that `/a/**` is /a and
    all below it; a glob that does not begin at the root may begin at any folder; an empty one fits nothing."""
    wanted = [part for part in glob.split("/") if part]
    if not glob:
        return False
    if not glob.startswith("/"):
        wanted.insert(0, "**")
    there = [part for part in path.split("/") if part]
    reached = {0}
    for part in wanted:
        if not reached:
            return False
        if part == "**":
            reached = set(range(min(reached), len(there) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(there) and fnmatchcase(there[at], part)}
    return len(there) in reached
