"""Exclude: the rules at work: which chats keep nothing, and what was kept of them goes.

Rules stand in the settings file and, given by the command, in the vault (`rules.jsonl`); a host's tags stand in
`chat.json` and, of a session that nothing is kept of, in `tags.jsonl`. It promises that a rule is durable before the
first byte goes, and that a keep which began before it leaves nothing behind (POLICY-2): every chat whose lock a keep
may hold is looked at after that. It refuses to touch a live file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from blake3 import blake3

from keeper import claude, files
from keeper.claude import Footprint
from keeper.errors import DiskError, KeeperError, Locked
from keeper.files import regular
from keeper.transcripts.chat import Chat, Facts, SessionFacts
from keeper.transcripts.head import Head, read_head
from keeper.transcripts.index import IndexLost, Row
from keeper.transcripts.lines import Lines, mark_of
from keeper.transcripts.removal import Removed, remove
from keeper.transcripts.rules import Rule, Subject, first_met
from keeper.transcripts.sole import is_sole
from keeper.transcripts.vault import RELATIVE_WAIT_S, Vault

Count = Callable[[int, int], None]
APPLIED = "rules"
"""The index's fact: by which rules all chats were judged last."""
TYPE_CHECKING = False
if TYPE_CHECKING:
    from keeper.transcripts.usage import Living


@dataclass(frozen=True, slots=True)
class Met:
    """A kept chat that a rule meets. `sole`: Claude has not all of it."""

    chat: str
    profile: str
    sessions: tuple[str, ...]
    rule: Rule
    sole: bool


class Exclusion:
    """The rules of a vault, as they are at the moment of asking."""

    def __init__(self, vault: Vault) -> None:
        self.vault = vault
        self.said = Lines(f"{vault.root}/rules.jsonl")
        self.tagged = Lines(f"{vault.root}/tags.jsonl")
        self._file = tuple(Rule(told, str(vault.settings.config)) for told in vault.settings.exclude)
        self._read: object = None
        self._rules: tuple[Rule, ...] = ()
        self._tags_read: object = None
        self._tags: dict[tuple[str, str], list[str]] = {}
        self.left: dict[str, str] = {}
        """Of the last `apply`: the chats that could not be looked at or removed, each with the note of that."""

    # ------------------------------------------------------------------ the rules and the tags

    def rules(self) -> tuple[Rule, ...]:
        """The settings file's, then the command's."""
        entries = self.said.read()
        if entries is not self._read:
            found: dict[tuple[tuple[str, str], ...], Rule] = {}
            for entry in entries:
                table = entry.get("rule")
                rule = Rule.of({str(k): str(v) for k, v in table.items()} if isinstance(table, dict) else {})
                if entry.get("do") == "remove":
                    found.pop(rule.conditions, None)
                elif rule.conditions:
                    found[rule.conditions] = rule
            self._rules, self._read = (*self._file, *found.values()), entries
        return self._rules

    def say(self, do: str, rule: Rule, now: float) -> None:
        """`add` or `remove` a rule, durable when this returns."""
        self.said.append({"do": do, "rule": dict(rule.conditions), "at": now})

    def tags(self, profile: str, session: str) -> tuple[str, ...]:
        """What a host said of a session of which there is no chat."""
        entries = self.tagged.read()
        if entries is not self._tags_read:
            self._tags = {}
            for entry in entries:
                told = entry.get("tags")
                if isinstance(told, list):
                    key = (str(entry.get("profile")), str(entry.get("session")))
                    self._tags.setdefault(key, []).extend(map(str, told))
            self._tags_read = entries
        return tuple(dict.fromkeys([*self._tags.get(("", session), ()), *self._tags.get((profile, session), ())]))

    def tag(self, profile: str, session: str, tags: Iterable[str]) -> None:
        """Remember these, durable when this returns; `profile` is "" where it is not known."""
        new = [tag for tag in dict.fromkeys(tags) if tag not in self.tags(profile, session)]
        if new:
            self.tagged.append({"session": session, "profile": profile, "tags": new})

    # ------------------------------------------------------------------ judged

    def of_live(
        self, profile: str, footprint: Footprint, head: Head | None, row: Row | None, tags: Iterable[str] = ()
    ) -> Rule | None:
        """The rule that a session meets as it lives now; None where it is to be kept."""
        rules = self.rules()
        if not rules:
            return None
        facts = self.vault.facts(self.vault.chat(row.chat)) if row else None
        paths = [str(path) for path in footprint.transcripts] or ([self._kept(row)] if row else [])
        if head is None and not (row and row.cwd and facts):
            head = _head(paths, footprint.session)
        told = facts.sessions.get(footprint.session) if facts else None
        folders = [path.parent.name for path in footprint.transcripts] or [row.project if row else ""]
        whole = [*self._kept_apart(row, paths), *paths] if row else paths
        return self._met(rules, profile, footprint.session, folders, whole, told, row, facts, head, tags)

    def of_row(self, row: Row) -> Rule | None:
        """The same of what is kept, whether it lives or not."""
        rules = self.rules()
        if not rules:
            return None
        facts = self.vault.facts(self.vault.chat(row.chat))
        return self._of_kept(rules, row, facts)

    def _of_kept(self, rules: tuple[Rule, ...], row: Row, facts: Facts | None) -> Rule | None:
        told = facts.sessions.get(row.session) if facts else None
        paths = [self._kept(row)]
        head = None if told and told.cwd else _head(paths, row.session)
        return self._met(rules, row.profile, row.session, [row.project], paths, told, row, facts, head, ())

    def _met(
        self, rules: tuple[Rule, ...], profile: str, session: str, folders: list[str], paths: list[str],
        told: SessionFacts | None, row: Row | None, facts: Facts | None, head: Head | None, tags: Iterable[str],
    ) -> Rule | None:  # fmt: skip
        asked = {name for rule in rules for name, _ in rule.conditions}
        goes_on = [one for one in (head.named if head else None, told.continues if told else None) if one]
        known = self.tags(profile, session) + tuple(tag for one in goes_on for tag in self.tags(profile, one))
        titles = _titles(paths) if "title" in asked else ()
        return first_met(
            rules,
            Subject.of(
                [*known, *tags, *(facts.tags if facts else ())],
                session=[session, *goes_on], profile=[profile], project=folders, title=titles,
                cwd=[row.cwd if row else "", told.cwd if told else "", head.cwd if head else ""],
                entrypoint=[told.entrypoint if told else "", head.entrypoint if head else ""],
            ),
        )  # fmt: skip

    def _kept_apart(self, row: Row, lives: list[str]) -> list[str]:
        """The kept transcript where it is another file than what lives: what lives may be no more than its tail."""
        kept = self._kept(row)
        seen = regular(kept)
        same = seen is not None and any(
            (live.st_dev, live.st_ino) == (seen.st_dev, seen.st_ino) for live in map(regular, lives) if live
        )
        return [] if same else [kept]

    def _kept(self, row: Row) -> str:
        return self.vault.chat(row.chat).kept(row.session)

    # ------------------------------------------------------------------ applied

    def met(self, also: Rule | None = None) -> list[Met]:
        """Every kept chat that a rule meets, with this one too; nothing is changed."""
        rules = (*self.rules(), also) if also else self.rules()
        known, living, found = self._rows(), self._living(), []
        for name in self._names() if rules else ():
            chat = self.vault.chat(name)
            facts = self.vault.facts(chat)
            rows = _every(chat, facts, known.get(name, []))
            rule = next((rule for row in rows if (rule := self._of_kept(rules, row, facts))), None)
            if rule is not None and os.path.isdir(chat.path):
                sole = self._lacks(name, rows, living)
                found.append(Met(name, rows[0].profile, tuple(row.session for row in rows), rule, sole))
        return found

    def _rows(self) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = {}
        for row in self.vault.rows():
            found.setdefault(row.chat, []).append(row)
        return found

    def _living(self) -> Living:
        from keeper.transcripts.usage import Living  # the fast doors pay for every import

        return Living(self.vault)

    def _lacks(self, name: str, rows: list[Row], living: Living) -> bool:
        """Whether Claude has not all of a chat: a transcript, or some other file."""
        from keeper.transcripts.usage import usage_of

        one = usage_of(self.vault, name, rows, living, 0.0, whole=True)
        return one is not None and (one.lacking or one.sole > 0)

    def expel(self, chat: Chat, rule: Rule, facts: Facts | None, sole: bool) -> Removed:
        """What is kept of an excluded chat goes; its lock is held by the caller. Its tags are remembered."""
        for session in facts.sessions if facts and facts.tags else ():
            self.tag(facts.profile if facts else "", session, facts.tags if facts else ())
        return remove(self.vault, chat, facts, "rule", str(rule), sole)

    def others_alone(self, chat: Chat, facts: Facts | None, rows: list[Row], met: Iterable[str] = ()) -> list[str]:
        """The sessions of a chat that no rule meets, that are no conversation with one of `met` or one which a rule
        meets, and that the vault alone has."""
        rules, every = self.rules(), _every(chat, facts, rows)
        gone = {*met, *(row.session for row in every if self._of_kept(rules, row, facts))}
        told = facts.sessions if facts else {}
        pairs = [(session, one.continues) for session, one in told.items() if one.continues]
        while more := {one for pair in pairs if gone & set(pair) for one in pair} - gone:
            gone |= more
        return [row.session for row in every if row.session not in gone and is_sole(self.vault, row)]

    def apply(
        self, progress: Count | None = None, wait_s: float | None = None, agreed: bool = False
    ) -> list[Removed]:  # fmt: skip
        """Judge every chat by the rules of now, and remove what is excluded; `wait_s` bounds the wait for each lock.
        One that cannot be removed is noted, and stops no other: the next run tries it again. One with a sole copy of a
        session that no rule meets stays, unless a person `agreed`, and is noted."""
        self.left = {}
        rules = self.rules()
        if not rules:
            self._applied(True)
            return []
        removed = []
        names = list(self._names())
        rows, living = self._rows(), self._living()
        for count, name in enumerate(names):
            try:
                one = self._apply_to(rules, self.vault.chat(name), rows.get(name, []), living, wait_s, agreed)
                removed += [one] if one is not None else []
            except (OSError, KeeperError) as error:
                why = files.told(error, self.vault.root)
                self.left[name] = f"chat {name} may be excluded, and could not be looked at or removed: {why}"
            if progress is not None:
                progress(count + 1, len(names))
        self.vault.notes += self.left.values()
        self._applied(not self.left)
        return removed

    def apply_where_new(self, progress: Count | None = None) -> list[Removed]:
        """Apply where the rules are not those that all chats were judged by last. A chat that another has in hand is
        left to the next run."""
        try:
            known = self.vault.index.fact(APPLIED) or ""
        except IndexLost:
            known = ""
        return self.apply(progress, RELATIVE_WAIT_S) if known != self._stamp() else []

    def living(self, profile: Path) -> set[str]:
        """The sessions of a profile that live and are excluded: no time of theirs is to be touched."""
        if not self.rules():
            return set()
        rows = {row.session: row for row in self.vault.rows() if row.profile == str(profile)}
        found = claude.survey(profile).footprints.items()
        return {session for session, one in found if self.of_live(str(profile), one, None, rows.get(session))}

    def _names(self) -> Iterator[str]:
        """Every chat, and every one that a keep may be making just now: it holds the lock since before the rule."""
        there = self.vault.chat_names()
        yield from there
        known = set(there)
        try:
            held = sorted(os.listdir(self.vault.root / "locks"))
        except FileNotFoundError:
            return
        for name in held:
            chat = name.removesuffix(".lock")
            if name.endswith(".lock") and chat not in known:
                yield chat

    def _apply_to(
        self, rules: tuple[Rule, ...], chat: Chat, rows: list[Row], living: Living, wait_s: float | None,
        agreed: bool,
    ) -> Removed | None:  # fmt: skip
        facts = self.vault.facts(chat)
        if rows and not any(self._of_kept(rules, row, facts) for row in _every(chat, facts, rows)):
            return None
        with self.vault.lock(chat.name, wait_s):
            if not os.path.isdir(chat.path) or os.path.islink(chat.path):
                return None
            facts = self.vault.facts(chat)
            every = _every(chat, facts, rows)
            rule = next((rule for row in every if (rule := self._of_kept(rules, row, facts))), None)
            if rule is None:
                return None
            if not agreed and (others := self.others_alone(chat, facts, rows)):
                self.vault.notes.append(f"the rule {rule} meets chat {chat.name}, which stays: {only_here(others)}")
                return None
            return self.expel(chat, rule, facts, self._lacks(chat.name, every, living))

    def _stamp(self) -> str:
        """What tells the rules, and each time that they were written, from all others; "" where there are none."""
        try:
            file = mark_of(str(self.vault.settings.config))
        except OSError:
            file = None  # those that were read of it hold, until it can be looked at again
        written = (mark_of(self.said.path), file)
        rules = "\n".join(map(str, self.rules()))
        return blake3(f"{rules}\n{written}".encode()).hexdigest(16) if rules else ""

    def _applied(self, whole: bool) -> None:
        """Note by which rules all chats were judged; where not all could be, the next run does it again."""
        stamp = self._stamp() if whole else "not all"
        try:
            if (self.vault.index.fact(APPLIED) or "") != stamp:
                self.vault.index.write(facts=[(APPLIED, stamp)])
        except (IndexLost, DiskError, Locked):
            return  # judged once more by the next run, which finds nothing


def _titles(paths: list[str]) -> frozenset[str]:
    from keeper.transcripts.titles import SHARED  # only where a rule asks: the fast doors pay for every import

    return SHARED.of(paths)


def _head(paths: Iterable[str], session: str) -> Head | None:
    for path in paths:
        try:
            return read_head(path, session)
        except (OSError, KeeperError):
            continue
    return None


def only_here(sessions: list[str]) -> str:
    """Why a chat stays that a rule meets, and what to do."""
    return f"it has what no rule meets, and nothing else has ({', '.join(sessions)}); `keeper forget` takes all of it"


def _every(chat: Chat, facts: Facts | None, rows: list[Row]) -> list[Row]:
    """A row of each session of a chat, those too that no row tells of yet."""
    every = {session: _bare(chat.name, session) for session in chat.sessions()}
    for session, told in facts.sessions.items() if facts else ():
        every[session] = Row.of(chat.name, session, facts.profile if facts else "", told, told.born)
    return list((every | {row.session: row for row in rows}).values())


def _bare(chat: str, session: str) -> Row:
    """A kept transcript that neither row nor `chat.json` tells of: a keep was killed, or is under way."""
    return Row(chat, session, "", "", "", "", "", "", 0.0, 0.0)
