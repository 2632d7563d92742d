"""JSON text: puts a value into a JSON text, or takes one out, and leaves every other byte as it is.

It promises what Claude Code reads as JSON and no more: no comments, no comma behind the last member, a byte order
mark at most. Of a key that stands twice the last one counts, as for Claude. It refuses nothing silently: what does not
read is a ValueError.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, NoReturn

_BLANKS = re.compile(r"[ \t\n\r]*")
_FIRST_MEMBER = re.compile(r'\ufeff?\s*\{[^\S\n]*\n([ \t]+)"')
_MARGIN = re.compile(r"[ \t]*")
BOM = "\ufeff"


@dataclass(frozen=True, slots=True)
class Node:
    """A value and where it stands: text[start:end]. `members` are those of an object or a list, in order."""

    value: Any
    start: int
    end: int
    members: tuple[Member, ...] = ()

    def child(self, key: str) -> Node | None:
        """An object's member of that key."""
        return next((one.node for one in reversed(self.members) if one.key == key), None)


@dataclass(frozen=True, slots=True)
class Member:
    """A member of an object, from its key on, or of a list (without key)."""

    start: int
    key: str | None
    node: Node


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_decoder = json.JSONDecoder(parse_constant=_no_number)


def parse(text: str) -> Node:
    """The text's value, with the places of all values in it. Raises ValueError."""
    start = _skip(text, len(BOM) if text.startswith(BOM) else 0)
    try:
        _, end = _decoder.raw_decode(text, start)
        if _skip(text, end) != len(text):
            raise json.JSONDecodeError("more behind its end", text, end)
        return _node(text, start)
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def _skip(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return found.end() if found else at


def _node(text: str, at: int) -> Node:
    """The value that stands there, of a text that reads."""
    kind, start = text[at], at
    if kind not in "{[":
        value, end = _decoder.raw_decode(text, at)
        return Node(value, start, end)
    members = []
    at = _skip(text, at + 1)
    while text[at] not in "}]":
        first, key = at, None
        if kind == "{":
            key, at = _decoder.raw_decode(text, at)
            at = _skip(text, _skip(text, at) + 1)
        node = _node(text, at)
        members.append(Member(first, key, node))
        at = _skip(text, node.end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    values = [one.node.value for one in members]
    value = dict(zip((one.key for one in members), values, strict=True)) if kind == "{" else values
    return Node(value, start, at + 1, tuple(members))


def put(text: str, node: Node, value: object) -> str:
    """The text with another value in the place of one."""
    return text[: node.start] + json.dumps(value, ensure_ascii=False) + text[node.end :]


def insert(text: str, into: Node, value: object, key: str | None = None) -> str:
    """The text with a value as the last member of an object (with its key) or of a list, indented as its neighbours."""
    name = f"{json.dumps(key, ensure_ascii=False)}: " if key is not None else ""
    newline = "\r\n" if "\r\n" in text else "\n"
    last = into.members[-1] if into.members else None
    if "\n" not in (text[into.start : last.start] if last else text):
        rendered = name + json.dumps(value, ensure_ascii=False)
        at, before = (last.node.end, ", ") if last else (into.start + 1, "")
        return text[:at] + before + rendered + text[at:]
    found = _FIRST_MEMBER.match(text)
    unit = found[1] if found else "  "
    outer = _margin(text, into.start)
    margin = _margin(text, last.start) if last else outer + unit
    rendered = name + json.dumps(value, ensure_ascii=False, indent=unit)
    rendered = newline + "\n".join(f"{margin}{line}" for line in rendered.split("\n")).replace("\n", newline)
    if last:
        return text[: last.node.end] + "," + rendered + text[last.node.end :]
    return text[: into.start + 1] + rendered + newline + outer + text[into.end - 1 :]


def _margin(text: str, at: int) -> str:
    """The blanks that the line of that place begins with."""
    found = _MARGIN.match(text, text.rfind("\n", 0, at) + 1)
    return found[0] if found else ""


def drop(text: str, out_of: Node, member: Member) -> str:
    """The text without a member of this object or list."""
    at = out_of.members.index(member)
    if at > 0:
        start, end = out_of.members[at - 1].node.end, member.node.end
    elif len(out_of.members) > 1:
        start, end = member.start, out_of.members[1].start
    else:
        start, end = out_of.start + 1, out_of.end - 1
    return text[:start] + text[end:]
