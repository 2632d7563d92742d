"""Rescue: what the policy `resident` does in one profile: new times before the cutoff, and back what a sweep took.

It promises the order of times that was there before, also among what one sweep takes a file at a time, and that what a
killed run had begun is finished: its plan stands in the vault before the first time is set. It refuses to put back
what no sweep can have taken, judged by the time of its last change and that of its deletion, which the kept name of
the same file tells.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from keeper import claude, disk, files
from keeper.agent.condition import Condition
from keeper.agent.memory import Memory
from keeper.claude import Footprint
from keeper.files import regular
from keeper.transcripts.back import Back
from keeper.transcripts.chat import Chat
from keeper.transcripts.exclude import Exclusion
from keeper.transcripts.head import owned_agents
from keeper.transcripts.index import Row
from keeper.transcripts.mass import restore_all
from keeper.transcripts.mirror import Mirror, Part, parts
from keeper.transcripts.policy import (
    EXCLUDE,
    KEEP,
    REST_NS,
    Aged,
    fresh_times,
    half_way_ns,
    may_be_swept,
)
from keeper.transcripts.restore import Restorer, Want
from keeper.transcripts.vault import Vault

FEW = 8
"""So many sessions are looked for one by one; for more all of the profile is listed."""


class Rescue:
    """One look at the resident chats of a profile. `rows` are those that are looked at, by session; `hinted`: they were
    told to have gone this moment."""

    def __init__(
        self, memory: Memory, condition: Condition, vault: Vault, profile: str, rows: dict[str, Row], hinted: bool
    ) -> None:
        self.memory = memory
        self.condition = condition
        self.vault = vault
        self.profile = profile
        self.rows = rows
        self.exclusion = Exclusion(vault)
        self.hinted = hinted
        self.now_ns = time.time_ns()
        self.plan = memory.plan.get(profile, {})
        self.times: dict[str, tuple[int, int]] = {}
        self.live = self._living()
        if not memory.storms():
            memory.storm.clear()
            memory.returned.clear()
            memory.met.clear()

    def _living(self) -> dict[str, str]:
        """Where those of the rows live that live."""
        if len(self.rows) <= FEW:
            found = {session: claude.places(Path(self.profile), session) for session in self.rows}
            return {session: str(paths[0]) for session, paths in found.items() if paths}
        live = {}
        for project in claude.projects(Path(self.profile)):
            for name in _names(project.path):
                if name.endswith(".jsonl") and name[:-6] in self.rows and regular(f"{project.path}/{name}"):
                    live[name[:-6]] = f"{project.path}/{name}"
        return live

    # ------------------------------------------------------------------ back

    def put_back(self) -> set[str]:
        """What a sweep took comes back; what others deleted is told. The sessions that came back."""
        swept: dict[str, Row] = {}
        deleted: list[Row] = []
        buried = {(stone.profile, stone.session) for stone in self.vault.tombstones()}  # and each again, under its lock
        for session, row in self.rows.items():
            if session in self.live or (self.profile, session) in buried:
                continue
            took = self._took(row)
            if took:
                swept[session] = row
            elif took is not None:
                deleted.append(row)
        if swept:
            self._put_back(swept)
        elif not self.hinted:
            self.memory.keep_plan(self.vault, self.profile, {})
        for session, live in self.live.items():
            self._fill(self.rows[session], live)
        self._tell_deleted(deleted)
        return swept.keys() - self.memory.failures.keys()

    def _took(self, row: Row) -> bool | None:
        """Whether a sweep took the live file; None where nothing is kept, or where its deletion was told before."""
        chat = self.vault.chat(row.chat)
        times = _times(chat, row)
        if times is None:
            return None
        self.times[row.session] = mtime_ns, gone_ns = times
        if row.session in self.plan:
            return True
        deleted = self.memory.told[row.chat][2].get(row.session)  # read a moment ago, for its policy
        if deleted is not None and mtime_ns <= deleted * 1e9:
            return None
        if row.mode == "copy":
            gone_ns = self.now_ns
            mtime_ns = max(mtime_ns, self.memory.seen.get(self.profile, {}).get(row.session, 0))
        was, _ = self.memory.storm.get((self.profile, row.session), (mtime_ns, 0))  # what a sweep judged it by
        return self._by_age(was, gone_ns)

    def _by_age(self, mtime_ns: int, gone_ns: int) -> bool:
        """A settings file may say less than when it was last read: it is read again before a person is blamed."""
        if may_be_swept(mtime_ns, gone_ns, self.memory.period(self.vault, self.profile).days):
            return True
        period = self.memory.period(self.vault, self.profile, anew=True)
        return may_be_swept(mtime_ns, gone_ns, period.days)

    def _put_back(self, swept: dict[str, Row]) -> None:
        memory, stamps = self.memory, dict[str, int]()
        was: dict[str, int] = {}
        paths: dict[str, str] = {}
        projects: dict[str, list[Row]] = {}
        for row in swept.values():
            projects.setdefault(row.project, []).append(row)
        for project, rows in projects.items():
            chats = []
            for session, path, mtime_ns in _transcripts(f"{self.profile}/projects/{project}"):
                if session not in swept:
                    paths[session] = path
                    chats.append(self._aged(session, mtime_ns))
            chats += [self._aged(row.session, self.times[row.session][0]) for row in rows]
            need = {chat.session for chat in chats if chat.session in swept or self._in_hand(chat.session)}
            before_ns = half_way_ns(self.now_ns, memory.period(self.vault, self.profile).days)
            stamps |= self._fresh(chats, need, before_ns, paths)
            was |= {chat.session: chat.mtime_ns for chat in chats}
        memory.keep_plan(self.vault, self.profile, {**self.plan, **stamps})
        for session, stamp_ns in stamps.items():
            memory.storm[(self.profile, session)] = was[session], stamp_ns
            if session in paths:
                _touch(paths[session], stamp_ns)
        memory.returned.update((self.profile, session) for session in swept)
        memory.storm_at = memory.clock()
        restorer = Restorer(self.vault, self.now_ns, Want(profile=Path(self.profile)))
        answers = restore_all(
            restorer, swept.values(), stamps={session: ns for session, ns in stamps.items() if session in swept}
        )
        memory.storm_at = memory.clock()
        failed = {answer.session: answer.error for answer in answers if answer.error}
        memory.back += len(answers) - len(failed)
        for session in swept:
            memory.failures.pop(session, None)
        memory.failures.update(failed)
        others = {session: ns for session, ns in self.plan.items() if self.hinted and session not in stamps}
        memory.keep_plan(self.vault, self.profile, others | {session: stamps[session] for session in failed})
        self.condition.only("put back", memory.failures)

    def _fresh(
        self, chats: list[Aged], need: set[str], before_ns: int, paths: Mapping[str, str]
    ) -> dict[str, int]:  # fmt: skip
        """The new times, none of them for a chat that a rule has come to meet since the last look over everything."""
        while True:
            stamps = fresh_times(chats, need, before_ns, self.now_ns)
            met = {session for session in stamps if session in paths and self._met(session, paths[session])}
            if not met:
                return stamps
            chats = [replace(chat, policy=EXCLUDE) if chat.session in met else chat for chat in chats]

    def _met(self, session: str, path: str) -> bool:
        key = self.profile, session
        if key not in self.memory.met:
            footprint = Footprint(session, [Path(path)])
            self.memory.met[key] = self.exclusion.of_live(self.profile, footprint, None, None) is not None
        return self.memory.met[key]

    def _aged(self, session: str, mtime_ns: int) -> Aged:
        """A chat with the time that tells its place: of one in hand the time that it had, or is to have."""
        was, stamp_ns = self.memory.storm.get((self.profile, session), (0, 0))
        policy = EXCLUDE if (self.profile, session) in self.memory.excluded else KEEP
        return Aged(session, was if was and stamp_ns == mtime_ns else max(self.plan.get(session, 0), mtime_ns), policy)

    def _in_hand(self, session: str) -> bool:
        return session in self.plan or (self.profile, session) in self.memory.storm

    # ------------------------------------------------------------------ the other files of a chat that lives

    def _fill(self, row: Row, live: str) -> None:
        """Tool results and the like go by their own times, under a transcript that stays."""
        chat, session = self.vault.chat(row.chat), row.session
        if (self.profile, session) in self.memory.storm:
            footprint = claude.survey(Path(self.profile), only=session).footprints.get(session) or Footprint(session)
            restorer = Restorer(self.vault, self.now_ns, Want(profile=Path(self.profile)))
            with self.vault.lock(chat.name):
                mirror = Mirror(self.vault, chat, self.now_ns / 1e9)
                restorer.others(mirror, Path(self.profile), session, footprint, live, self.now_ns - REST_NS)
            return
        missing = [part for part in self._missing(chat, session, live) if self._part_swept(chat, row, part)]
        if missing:
            with self.vault.lock(chat.name):
                back = Back(Mirror(self.vault, chat, self.now_ns / 1e9))
                for part in missing:
                    back.restore(part, self.now_ns - REST_NS)

    def _missing(self, chat: Chat, session: str, live: str) -> Iterator[Part]:
        """What a sweep takes by itself, and is not there."""
        companion = live.removesuffix(".jsonl")
        results = f"{session}/tool-results"
        if not os.path.islink(companion) and not os.path.islink(f"{companion}/tool-results"):
            for name in _names(f"{chat.path}/{results}"):
                if not os.path.lexists(f"{companion}/tool-results/{name}"):
                    yield Part(f"{companion}/tool-results/{name}", f"{results}/{name}")
        for kind in ("file-history", "tasks"):
            label, place = f"extras/{kind}/{session}", f"{self.profile}/{kind}/{session}"
            if os.path.isdir(f"{chat.path}/{label}") and not os.path.lexists(place):
                yield Part(place, label)

    def _part_swept(self, chat: Chat, row: Row, part: Part) -> bool:
        found = [seen for path, _ in files.walk(f"{chat.path}/{part.label}", part.label, []) if (seen := regular(path))]
        if not found or (row.mode == "copy" and not self.hinted):
            return False
        mtime_ns, gone_ns = max(seen.st_mtime_ns for seen in found), max(seen.st_ctime_ns for seen in found)
        return self._by_age(mtime_ns, self.now_ns if row.mode == "copy" else gone_ns)

    # ------------------------------------------------------------------ before the cutoff

    def freshen(self) -> None:
        """New times for what lives and is half-way to the cutoff, with all that a sweep judges beside it."""
        before_ns = half_way_ns(self.now_ns, self.memory.period(self.vault, self.profile).days)
        for project in claude.projects(Path(self.profile)):
            self._freshen_project(project.path, before_ns)
        survey = claude.survey(Path(self.profile))
        old = [path for path in survey.agents if _older(str(path), before_ns)]
        for session, paths in owned_agents(old).items():
            survey.footprints.setdefault(session, Footprint(session)).beside += paths
        for session, footprint in survey.footprints.items():
            for part in parts(footprint) if session in self.rows else ():
                self._freshen_part(part, before_ns)

    def _freshen_project(self, folder: str, before_ns: int) -> None:
        found = list(_transcripts(folder))
        need = {session for session, _, mtime_ns in found if session in self.rows and mtime_ns < before_ns}
        stamps = fresh_times(
            [self._aged(session, mtime_ns) for session, _, mtime_ns in found], need, before_ns, self.now_ns
        )
        now = {session: (path, mtime_ns) for session, path, mtime_ns in found}
        for session, stamp_ns in stamps.items():
            path, mtime_ns = now[session]
            self.memory.storm[(self.profile, session)] = mtime_ns, stamp_ns
            self.memory.storm_at = self.memory.clock()
            _touch(path, stamp_ns)
            row = self.rows.get(session)
            if row is not None and row.mode == "copy":
                _touch(self.vault.chat(row.chat).kept(session), stamp_ns)  # by its time a deletion will be judged

    def _freshen_part(self, part: Part, before_ns: int) -> None:
        folders = [part.live] if os.path.isdir(part.live) else []
        for path in [*(path for path, _ in files.walk(part.live, part.label, [])), *folders]:
            if _older(path, before_ns):
                _touch(path, self.now_ns - REST_NS)

    # ------------------------------------------------------------------ what is told

    def _tell_deleted(self, rows: list[Row]) -> None:
        if not rows:
            return
        days = self.memory.period(self.vault, self.profile).days
        for row in rows:
            chat = self.vault.chat(row.chat)
            with self.vault.lock(chat.name):
                facts = self.vault.facts(chat)
                told = facts.sessions.get(row.session) if facts else None
                if facts is not None and told is not None:
                    told = replace(told, deleted=self.now_ns / 1e9)
                    self.vault.write_facts(chat, facts.with_session(row.session, told), sync=True)
        no_sweep = f"no sweep takes what was changed within {days:g} days"
        if len(rows) <= FEW:
            for row in rows:
                self.condition.event(
                    "deleted",
                    f"chat {row.session} of {row.cwd or row.project} was deleted, and not put back ({no_sweep}): "
                    f"`keeper restore {row.session}` does",
                )
            return
        named = ", ".join(sorted({row.cwd or row.project for row in rows})[:3])
        self.condition.event(
            "deleted",
            f"{len(rows)} chats of {named} were deleted, and not put back ({no_sweep}): `keeper list` names them, "
            "`keeper restore SESSION` puts one back, `keeper restore --all --cwd DIR` those of a directory",
            len(rows),
        )


def _times(chat: Chat, row: Row) -> tuple[int, int] | None:
    """When the live file was last changed and when its name went, in ns, as another name of it in the vault tells;
    None where nothing is kept. A copy tells only the first, and that late."""
    label = f"{row.session}.jsonl"
    kept = regular(chat.kept(row.session))
    if kept is None:
        return None
    if row.mode == "split":
        stem = os.path.basename(chat.live_link(label))
        links = [regular(f"{chat.path}/{name}") for name in chat.names() if name.startswith(stem)]
        found = [seen for seen in links if seen is not None] or [kept]
        return max(seen.st_mtime_ns for seen in found), max(seen.st_ctime_ns for seen in found)
    return kept.st_mtime_ns, kept.st_ctime_ns


def _transcripts(folder: str) -> Iterator[tuple[str, str, int]]:
    """Session, path and mtime in ns of each transcript in a project's folder."""
    for name in _names(folder):
        if name.endswith(".jsonl") and claude.is_session(name[:-6]):
            seen = regular(f"{folder}/{name}")
            if seen is not None:
                yield name[:-6], f"{folder}/{name}", seen.st_mtime_ns


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _older(path: str, before_ns: int) -> bool:
    try:
        return os.lstat(path).st_mtime_ns < before_ns
    except FileNotFoundError:
        return False


def _touch(path: str, stamp_ns: int) -> None:
    with suppress(FileNotFoundError):
        disk.touch(path, stamp_ns)
