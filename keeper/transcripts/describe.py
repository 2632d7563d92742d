"""Describe: what a person sees of a kept session: its title, its size, when it was last used, how it stands.

It promises to read what is kept at the moment of asking: no title or prompt is stored anywhere else. It refuses to
show control characters of a transcript to a terminal.
"""

from __future__ import annotations

import os
import shlex
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from keeper import claude, files
from keeper.files import regular
from keeper.transcripts.activity import last_activity
from keeper.transcripts.head import read_head
from keeper.transcripts.index import Row
from keeper.transcripts.policy import policy_of
from keeper.transcripts.records import Record, is_prompt, read, split, uuid_of
from keeper.transcripts.vault import Vault
from keeper.transcripts.verdict import FOLDED_BY_RESTORE, Verdict

TITLE_CHARS = 80
LAST_TIME = 253402300799
"""The end of the year 9999, past which no date is written; some volumes hold later times."""
UNKEPT = "unkept"
"""The state of a live chat of which nothing is kept."""
UNTOLD = "untold"
"""The state of a kept chat that may live: its profile, or a project's folder of it, cannot be looked at."""
_MENDED = FOLDED_BY_RESTORE | {Verdict.DAMAGED}
"""What a restore puts right."""
_TITLES = ((b'"custom-title"', "customTitle"), (b'"ai-title"', "aiTitle"), (b'"summary"', "summary"))


@dataclass(frozen=True, slots=True)
class Described:
    """One kept session. `state`: live, swept, the verdict of the last keep, or `untold` where its profile cannot be
    looked at; `live` is "" where it is swept, or that is so. `title` is the newest that was given, else the beginning
    of the first `prompt`; `last` is the newest record's own time: a restore renews the file's."""

    chat: str
    session: str
    profile: str
    project: str
    cwd: str
    title: str
    state: str
    policy: str
    records: int
    bytes: int
    last: str
    live: str
    kept: str
    mode: str
    forked_from: str | None = None
    cleared_from: str | None = None
    continues: str | None = None
    damaged: str = ""
    lost: int = 0
    prompt: str = ""


@dataclass(frozen=True, slots=True)
class State:
    """How a session stands that is not as it should be. Of one that was damaged in place, `lost` records were cut from
    its live file at `when` (ISO, else ""); `cure` is the command that mends it, "" where none does by itself.
    `profile` is told where several chats have the session's id, else ""."""

    session: str
    state: str
    lost: int = 0
    when: str = ""
    cure: str = ""
    profile: str = ""

    @property
    def named(self) -> str:
        """The words by which a command means this one."""
        return f"{self.session} --profile {shlex.quote(self.profile)}" if self.profile else self.session


def states(vault: Vault) -> list[State]:
    """Every session whose last keep found more than what it knew."""
    found = {}
    rows = vault.rows()
    count = Counter(row.session for row in rows)
    for row in rows:
        if not row.state:
            continue
        facts = vault.facts(vault.chat(row.chat))
        told = facts.sessions.get(row.session) if facts else None
        one = State(row.session, row.state, profile=row.profile if count[row.session] > 1 else "")
        if row.state in _MENDED:
            full = " --full" if row.state == Verdict.DAMAGED else ""
            one = replace(one, cure=f"keeper restore {one.named}{full}")
        if row.state == Verdict.DAMAGED and told is not None:
            one = replace(one, lost=told.lost, when=_iso(told.damaged))
        found[row.session, row.state, row.chat] = one
    return [found[key] for key in sorted(found)]


def age(last: str, now: float) -> str:
    """How long ago that was (ISO), in one word."""
    seconds = max(0, int(now - datetime.fromisoformat(last).timestamp()))
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return "now"


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(min(max(seconds, 0), LAST_TIME), UTC).isoformat(timespec="seconds")


def describe(vault: Vault, rows: Iterable[Row]) -> list[Described]:
    """What there is to say of these rows, the newest last."""
    rows = list(rows)
    now = time.time()
    told = []
    for profile in dict.fromkeys(row.profile for row in rows):
        seen = claude.survey(Path(profile))
        absent = UNTOLD if seen.failures else "swept"
        for row in (row for row in rows if row.profile == profile):
            footprint = seen.footprints.get(row.session)
            told.append(_one(vault, row, footprint.transcripts if footprint else [], absent, now))
    return sorted((one for one in told if one is not None), key=lambda one: one.last)


def _one(vault: Vault, row: Row, lives: list[Path], absent: str, now: float) -> Described | None:
    chat = vault.chat(row.chat)
    if regular(chat.kept(row.session)) is None:
        return None
    try:
        data = files.read(chat.kept(row.session))
    except FileNotFoundError:
        return None
    facts = vault.facts(chat)
    session = facts.sessions.get(row.session) if facts else None
    last = _iso(last_activity(chat.kept(row.session), now))
    state = row.state or "live"
    prompt = first_prompt(data)
    return Described(
        row.chat, row.session, row.profile, row.project, row.cwd, title_of(data) or prompt,
        state if lives else absent, policy_of(facts, vault.settings.policy), data.count(b"\n"), len(data), last,
        str(lives[0]) if lives else "", chat.kept(row.session), row.mode,
        session.forked_from if session else None, session.cleared_from if session else None,
        session.continues if session else None,
        _iso(session.damaged) if session and session.damaged else "", session.lost if session else 0,
        prompt,
    )  # fmt: skip


def describe_live(path: str, session: str, profile: str, policy: str) -> Described | None:
    """What there is to say of a live chat of which nothing is kept; None where it is gone, or no chat."""
    if regular(path) is None:
        return None
    try:
        head, data = read_head(path, session), files.read(path)
    except FileNotFoundError:
        return None
    if head.noise:
        return None
    prompt = first_prompt(data)
    return Described(
        "", session, profile, os.path.basename(os.path.dirname(path)), head.cwd, title_of(data) or prompt, UNKEPT,
        policy, data.count(b"\n"), len(data), _iso(last_activity(path, time.time())), path, "", "", prompt=prompt,
    )  # fmt: skip


def title_of(data: bytes) -> str:
    """The newest title that Claude or a person gave, "" where none did."""
    for mark, key in _TITLES:
        at = data.rfind(b'"type":' + mark)
        while at >= 0:
            start, end = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at)
            record = read(data[start : end if end >= 0 else len(data)])
            value = record.fields.get(key) if record is not None else None
            if isinstance(value, str) and value.strip():
                return _shown(value)
            at = data.rfind(b'"type":' + mark, 0, start)
    return ""


def first_prompt(data: bytes) -> str:
    """The beginning of the first prompt that a person gave, "" where there is none."""
    at = 0
    while at < len(data):
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end
        if b'"user"' in data[at:end]:
            record = read(data[at:end])
            if record is not None and is_prompt(record):
                return _shown(text_of(record))
        at = end + 1
    return ""


def text_of(record: Record) -> str:
    """The words of a user's or assistant's record; tools are named, their input and output are not shown."""
    message = record.fields.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return content
    words = []
    for block in content if isinstance(content, list) else ():
        if not isinstance(block, dict):
            continue
        if block.get("type") == "text" and isinstance(block.get("text"), str):
            words.append(block["text"])
        elif block.get("type") == "tool_use":
            words.append(f"[{block.get('name')}]")
        elif block.get("type") == "tool_result":
            words.append("[result]")
    return " ".join(words)


def _shown(text: str) -> str:
    line = " ".join(printable(text).split())
    return line if len(line) <= TITLE_CHARS else line[: TITLE_CHARS - 1] + "…"


def printable(text: str) -> str:
    """The text without characters that could steer a terminal; line ends and tabs stay."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


@dataclass(frozen=True, slots=True)
class Shown:
    """One record as a person reads it: who, when, what."""

    uuid: str
    time: str
    who: str
    text: str


def conversation(data: bytes) -> list[Shown]:
    """The main conversation's records with words in them, in the file's order."""
    shown = []
    for line in split(data).lines:
        record = read(line) if line else None
        if record is None or record.uuid is None or record.sidechain or record.type not in ("user", "assistant"):
            continue
        text = printable(text_of(record)).strip()
        if text:
            shown.append(Shown(record.uuid, record.timestamp or "", record.type, text))
    return shown


def aside_names(vault: Vault, chat: str) -> list[str]:
    """What was set aside in a chat."""
    try:
        return sorted(os.listdir(vault.chat(chat).aside))
    except FileNotFoundError:
        return []


def variants(data: bytes) -> dict[str, int]:
    """The records that stand with other bytes under one uuid, and with how many; Claude reads the last of them."""
    found: dict[str, set[bytes]] = {}
    for line in split(data).lines:
        if (uuid := uuid_of(line)) is not None:
            found.setdefault(uuid, set()).add(line)
    return {uuid: len(lines) for uuid, lines in found.items() if len(lines) > 1}
