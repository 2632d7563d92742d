"""Keep: live into the vault, for one session or for all of a profile.

It promises that an answer is given only when what it covers would survive a power cut (KEEP-2), that one bad session
stops no other, and that a forgotten chat is not brought back by a keep that was already on its way (KEEP-11). It
refuses noise, and sessions under a tombstone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import orjson

from keeper import claude, disk, files
from keeper.claude import Footprint
from keeper.errors import ChatGone, KeeperError, NotKept
from keeper.files import regular
from keeper.transcripts import durable, swept
from keeper.transcripts.chat import Chat, Facts, SessionFacts, marked
from keeper.transcripts.forget import finish_forgets
from keeper.transcripts.gate import Gate
from keeper.transcripts.head import Head, cwd_of, owned_agents, read_head
from keeper.transcripts.index import Row
from keeper.transcripts.kept import Outcome
from keeper.transcripts.ledger import Kept, failure_of, headed, row_after, told_after, warnings
from keeper.transcripts.lineage import Family
from keeper.transcripts.lives import keep_lives
from keeper.transcripts.mirror import Mirror, parts
from keeper.transcripts.places import adopt_left, adopt_orphans, is_anothers, profiles_of
from keeper.transcripts.removal import finish_removals
from keeper.transcripts.sealer import Behind, seal_behind
from keeper.transcripts.vault import Vault
from keeper.transcripts.verdict import Verdict

Count = Callable[[int, int], None]
FAILURES = (KeeperError, OSError, UnicodeError, orjson.JSONEncodeError)
"""What one session's keep may raise, and stops no other; the last two are of names and texts that are no UTF-8."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the caller may ask of a keep: lift a tombstone, name the chat, tag it, read all that was sealed; policy."""

    adopt: bool = False
    chat: str | None = None
    tags: tuple[str, ...] = ()
    thorough: bool = False
    policy: str = ""


class Keeper:
    """One run of keeps; of a `single` session it looks for no other chat's folder. `now` is unix seconds."""

    def __init__(self, vault: Vault, now: float, options: Options | None = None, single: bool = False) -> None:
        self.vault = vault
        self.now = now
        self.options = options or Options()
        finish_forgets(vault)
        finish_removals(vault)
        self.gate = Gate(vault, now)
        self.settled, self.buried = False, set[str]()
        if not single or not all(os.path.isdir(f"{vault.root}/{name}") for name in ("chats", "locks")):
            self.settle()
        if not single:
            self.gate.exclusion.apply_where_new()
        self.rows: dict[tuple[str, str], Row] = {}
        self.known: dict[tuple[str, str], list[Row]] = {}
        self.all_known = False
        self.dirty: dict[str, None] = {}
        self.family = Family(vault)
        self.behind: Behind = {}
        self.swept: list[Row] = []

    # ------------------------------------------------------------------ many, one

    def profile(self, profile: Path, progress: Count | None = None, only: Container[str] | None = None) -> list[Kept]:
        """Keep every session of a profile (or these `only`); a parent before its forks."""
        survey = claude.survey(profile)
        owners = owned_agents(survey.agents)
        new, old = [], []
        if not self.all_known:
            self.all_known = True
            adopt_orphans(self.vault)
            for row in self.vault.rows():
                self.known.setdefault((row.profile, row.session), []).append(row)
        for session, footprint in survey.footprints.items():
            footprint.beside += owners.get(session, [])
            if (str(profile), session) in self.known:
                old.append((footprint, None))
            elif footprint.transcripts:
                new.append((footprint, self._head(footprint)))
        known = [session for session in owners if (str(profile), session) in self.known]
        lone = [session for session in known if session not in survey.footprints]
        old += [(Footprint(session, beside=owners[session]), None) for session in lone]
        met = {*survey.footprints, *lone}
        old += [(Footprint(session), None) for session in self._unfinished(str(profile), met)]
        new.sort(key=lambda item: item[1].born if item[1] else 0.0)
        answers = [self._unread(profile, error) for error in survey.failures]
        wanted = [one for one in [*old, *new] if only is None or one[0].session in only]
        live = {footprint.session for footprint, _ in wanted if footprint.transcripts}
        for count, (footprint, head) in enumerate(wanted):
            answer = self._safely(profile, footprint, head)
            if answer is not None:
                answers.append(answer)
                if answer.verdict not in ("", Verdict.ABSENT):
                    live.add(answer.session)  # one that a killed run had let step aside has its name back
            if progress is not None:
                progress(count + 1, len(wanted))
        if only is None:
            own = [rows for (whose, _), rows in self.known.items() if whose == str(profile)]
            gone = [row for rows in own for row in rows if row.session not in live]
            for row in swept.look(self.vault, gone, self.behind, self.now):
                if row.session not in met:
                    self.rows[(row.chat, row.session)] = row
            self.swept += [row for row in gone if row.session not in met and row.chat in self.behind]
        return answers

    def session(self, profile: Path, session: str) -> Kept | None:
        """Keep one session; None where the profile has nothing of it, or only noise. Errors are raised."""
        survey = claude.survey(profile, only=claude.check_session(session))
        name = self.options.chat or session
        if self._row(str(profile), session) is None and adopt_left(self.vault, name, marked(name, str(profile))):
            self.known.pop((str(profile), session), None)
        footprint = survey.footprints.get(session)
        if footprint is None:
            return self.footprint(profile, Footprint(session), None)
        footprint.beside += owned_agents(survey.agents).get(session, [])
        return self.footprint(profile, footprint, None)

    def _unfinished(self, profile: str, footprints: Iterable[str]) -> list[str]:
        """Sessions that are gone from the profile and of whose chats a killed run left something: lines that it holds
        (SWAP-3), or a `chat.json` that it began."""
        found = []
        for (whose, session), rows in self.known.items():
            if whose == profile and session not in footprints:
                chats = [self.vault.chat(row.chat) for row in rows]
                left = any(os.path.isdir(chat.swap) or os.path.lexists(chat.facts_begun) for chat in chats)
                if left or any(row.mode == "split" for row in rows):
                    found.append(session)
        return found

    def _safely(self, profile: Path, footprint: Footprint, head: Head | None) -> Kept | None:
        try:
            return self.footprint(profile, footprint, head)
        except FAILURES as error:
            return self.failed(profile, footprint.session, files.told(error, profile))

    def _unread(self, profile: Path, error: OSError) -> Kept:
        return self.failed(profile, "", files.told(error, profile))

    def failed(self, profile: Path, session: str, error: KeeperError) -> Kept:
        """The answer for a session that could not be kept."""
        return Kept(session, str(profile), error=error.message, cure=error.cure, exit_code=error.exit_code)

    def _head(self, footprint: Footprint) -> Head | None:
        for path in footprint.transcripts:
            try:
                return read_head(str(path), footprint.session)
            except (OSError, KeeperError):
                continue  # the keep itself meets it again, and tells of it
        return None

    def _telling(self, footprint: Footprint, chat: Chat) -> Head:
        """The head of what is live, or of kept where that one tells nothing."""
        head = self._head(footprint)
        return head if head and head.head else read_head(chat.kept(footprint.session), footprint.session)

    # ------------------------------------------------------------------ one footprint

    def footprint(self, profile: Path, footprint: Footprint, head: Head | None) -> Kept | None:
        """Keep what was found of one session. None where there is no chat in it. Raises KeeperError."""
        session = footprint.session
        row = self._row(str(profile), session)
        if row is None:
            if not footprint.transcripts:
                return None
            head = head or self._head(footprint)
            if head is None or head.noise:
                return None
        name = row.chat if row else self._chat_name(str(profile), footprint, head)
        chat, tags = self.vault.chat(name), self.options.tags
        adopt = self.options.adopt
        answer = self.gate.closed(str(profile), footprint, head, chat, tags, adopt) if row is None else None
        if answer is not None:
            return answer
        with self.vault.lock(name):
            answer = self.gate.barred(str(profile), footprint, head, row, chat, tags, adopt)
            if answer is not None:
                self._let_go(answer, chat)
                return answer
            try:
                return self._locked(profile, footprint, chat, row, head)
            except FileNotFoundError as error:
                if os.path.isdir(chat.path):
                    raise
                raise ChatGone(f"the chat folder {chat.path} was removed while it was written") from error

    def _let_go(self, answer: Kept, chat: Chat) -> None:
        """Nothing is written any more of a chat that was removed."""
        if answer.action == "removed":
            self.rows = {key: row for key, row in self.rows.items() if key[0] != chat.name}
            self.known = {key: [row for row in rows if row.chat != chat.name] for key, rows in self.known.items()}
            self.behind.pop(chat.name, None)

    def _row(self, profile: str, session: str) -> Row | None:
        """The row of this session, as this run or the index has it; a host's own chat is asked for first."""
        key = (profile, session)
        if key not in self.known and not self.all_known:
            self.known[key] = [row for row in self.vault.rows(session) if row.profile == profile]
        rows = self.known.get(key, [])
        if self.options.chat is not None:
            wanted = (self.options.chat, marked(self.options.chat, profile))
            rows = [row for row in rows if row.chat in wanted]
        if not self.settled and not all(os.path.isdir(self.vault.chat(row.chat).path) for row in rows):
            self.settle()
            del self.known[key]
            return self._row(profile, session)
        rows = [row for row in rows if row.chat not in self.buried]
        return rows[0] if rows else None

    def settle(self) -> None:
        """Look for chats whose folders a hand has removed."""
        self.settled, self.buried = True, set(self.vault.settle_missing(self.now))

    def _chat_name(self, profile: str, footprint: Footprint, head: Head | None) -> str:
        """The chat's id: a host's name, the session that this one goes on with, its own; with the profile's mark
        where another profile has a chat of that id already."""
        session = footprint.session
        name = head.named if head and head.named and claude.is_session(head.named) else session
        name = name if self.options.chat is None else self.options.chat
        chat = self.vault.chat(name)
        facts = self.vault.facts(chat)
        theirs = facts.profile != profile if facts else is_anothers(self.vault, chat, profile, footprint)
        return marked(name, profile) if theirs else name

    def _locked(
        self, profile: Path, footprint: Footprint, chat: Chat, row: Row | None, head: Head | None
    ) -> Kept | None:
        session = footprint.session
        facts = self._open_chat(chat, str(profile), row)
        mirror = Mirror(self.vault, chat, self.now, later=self.all_known, thorough=self.options.thorough)
        if footprint.transcripts:
            self.dirty[chat.kept(session)] = None
        outcome = keep_lives(mirror, footprint, row)
        if outcome.verdict is Verdict.ABSENT and regular(chat.kept(session)) is None:
            if not os.listdir(chat.path):
                disk.remove_dir(chat.path)
            return None
        if outcome.action != "none":
            self.dirty[chat.path] = None
        elif outcome.verdict is Verdict.SAME and os.stat(chat.kept(session)).st_ctime < mirror.settled:
            self.dirty.pop(chat.kept(session), None)
        for part in parts(footprint):
            mirror.keep(part)
        mirror.absorb_rest()
        self.dirty.update(dict.fromkeys(mirror.dirty))
        told = self._tell(profile, footprint, chat, facts, head, outcome, row)
        self._seal(mirror, f"{session}.jsonl", outcome)
        return Kept(
            session, str(profile), chat.name, told.project, told.cwd, str(outcome.verdict), outcome.action,
            outcome.mode, outcome.added, mirror.changed, outcome.lacks, outcome.branch,
            outcome.waiting + mirror.waiting, outcome.variants, outcome.gaps,
            warnings(footprint, outcome, mirror.rebuilt), *failure_of(mirror.errors),
        )  # fmt: skip

    def _seal(self, mirror: Mirror, label: str, outcome: Outcome) -> None:
        """What this keep covers is sealed before it is answered; a pass over a profile answers first (`seal`)."""
        mirror.seals.transcript(label, outcome.change)
        mirror.seals.flush()
        if mirror.seals.behind:
            self.behind.setdefault(mirror.chat.name, {}).update(mirror.seals.behind)

    def _open_chat(self, chat: Chat, profile: str, row: Row | None) -> Facts:
        if os.path.isdir(chat.path):
            disk.drop(chat.facts_begun)  # what a killed run began
            return self.vault.facts(chat) or Facts(chat.name, profile)
        if row is not None:
            raise ChatGone(f"the chat folder {chat.path} was removed", "`keeper keep --adopt` keeps it again")
        disk.make_dir(chat.path)
        self.dirty[os.path.dirname(chat.path)] = None
        return Facts(chat.name, profile)

    # ------------------------------------------------------------------ what is told of it

    def _tell(
        self, profile: Path, footprint: Footprint, chat: Chat, facts: Facts, head: Head | None, outcome: Outcome,
        row: Row | None,
    ) -> SessionFacts:  # fmt: skip
        """Facts and row brought up to what was seen; nothing is written where nothing changed (KEEP-5)."""
        session = footprint.session
        live = footprint.transcripts[0] if footprint.transcripts else None
        told = facts.sessions.get(session)
        if told is None:
            head = head if head and head.head else self._telling(footprint, chat)
            told = headed(SessionFacts(live.parent.name if live else "", "", outcome.mode, head.born), head)
            self.family.met(Row.of(chat.name, session, str(profile), told, self.now))
        else:
            told = told_after(told, outcome, live.parent.name if live else told.project, self.now)
            if not told.head or not told.cwd:
                # It was kept with its first line, which may tell nothing of it.
                known, told = told.head, headed(told, self._telling(footprint, chat))
                if not known:
                    self.family.met(Row.of(chat.name, session, str(profile), told, self.now))
        before = facts.sessions.get(session)
        moved = before is None or before.project != told.project
        if live is not None and moved and told.project not in claude.folder_names(told.cwd):
            # A worktree took it along: the directory is the one that its records name for that folder.
            told = replace(told, cwd=cwd_of(chat.kept(session), told.project) or told.cwd)
        said = () if row else self.gate.exclusion.tags(str(profile), session)
        tags = tuple(dict.fromkeys([*facts.tags, *said, *self.options.tags]))
        wanted = replace(facts, tags=tags, policy=self.options.policy or facts.policy).with_session(session, told)
        if wanted != facts or regular(chat.facts_file) is None:
            self.vault.write_facts(chat, wanted, sync=False)
            self.dirty.update({chat.facts_file: None, chat.path: None})
        put = row_after(
            row, Row.of(chat.name, session, str(profile), told, self.now), outcome, regular(chat.kept(session))
        )
        if put != row:
            self.rows[(chat.name, session)] = put
            others = [one for one in self.known.get((str(profile), session), []) if one.chat != chat.name]
            self.known[(str(profile), session)] = [*others, put]
        return told

    # ------------------------------------------------------------------ durable, then told

    def seal(self, progress: Count | None = None) -> dict[str, str]:
        """Seal what the pass has kept, after `finish`, since a seal takes longer; which chats could not be, and why."""
        behind, self.behind = self.behind, {}
        failed = seal_behind(self.vault, behind, self.now, progress)
        rows, self.swept = self.swept, []
        durable.write_rows(self.vault, swept.look(self.vault, rows, {}, self.now))
        return failed

    def finish(self) -> None:
        """Make durable what this run covers, then write the rows: the folder is durable before the row."""
        durable.sync(self.vault, self.dirty, self.all_known)
        self.dirty.clear()
        rows, self.rows = list(self.rows.values()), {}
        durable.write_rows(self.vault, rows)
        durable.tell_families(self.vault, self.family)


def keep_session(
    vault: Vault, session: str, now: float, options: Options | None = None, profile: Path | None = None
) -> list[Kept]:
    """Keep one session in each profile that has it, durable when this returns.

    Tags of one that has no file yet are remembered. Raises NotKept where no profile has it, Refused where it is no
    session id.
    """
    claude.check_session(session)
    keeper = Keeper(vault, now, options, single=True)
    answers, failures = [], []
    for one in [profile] if profile else profiles_of(vault):
        try:
            answer = keeper.session(one, session)
        except FAILURES as error:
            failures.append(files.told(error, one))
            answer = keeper.failed(one, session, failures[-1])
        if answer is not None:
            answers.append(answer)
    keeper.finish()
    if failures and len(answers) == len(failures):
        raise failures[0]
    if not answers and keeper.options.tags:
        whose = str(profile) if profile else ""
        keeper.gate.exclusion.tag(whose, session, keeper.options.tags)
        return [Kept(session, whose, verdict="absent", action="tagged")]
    if not answers:
        raise NotKept(f"no profile has a transcript of session {session}", "give the transcript's path, or --profile")
    return answers
