"""Mass: puts back many sessions at once, after a mass loss, when a person asks for it.

It promises the order of times that was there before: `--continue` takes the newest of a project, so what is put back
is stamped in its old order, together with all others of that project (RESTORE-2, RESTORE-11). Killed in the middle
and run again, it completes. It refuses to read what it need not: a swept chat costs a link, not a pass over its bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from keeper import claude, disk, files
from keeper.claude import Footprint
from keeper.errors import KeeperError, NoLinks, NotKept, Refused
from keeper.files import regular
from keeper.transcripts import seal
from keeper.transcripts.chat import Facts, SessionFacts
from keeper.transcripts.exclude import Exclusion
from keeper.transcripts.frame import SealBroken, digest_of_end, last_frame
from keeper.transcripts.index import Row
from keeper.transcripts.mirror import Mirror
from keeper.transcripts.places import Place
from keeper.transcripts.restore import STEP_NS, Restored, Restorer, failed, resume_line, with_errors

Progress = Callable[[int, int], None]
FEW = 4
"""So many sessions are looked for one by one; for more all of the profile is listed."""


def restore_all(
    restorer: Restorer, rows: Iterable[Row], progress: Progress | None = None, stamps: Mapping[str, int] | None = None
) -> list[Restored]:
    """Put back every session of these rows. A failure is in its answer (`error`), and stops no other.

    `stamps` are the new times in ns of them all, the newest first, where the caller has found the order.
    """
    answers: list[Restored] = []
    by_profile: dict[str, list[Row]] = {}
    exclusion = Exclusion(restorer.vault)
    for row in rows if not exclusion.rules() else [row for row in rows if exclusion.of_row(row) is None]:
        by_profile.setdefault(row.profile, []).append(row)
    total = sum(map(len, by_profile.values()))
    for profile, own in by_profile.items():
        answers += _Mass(restorer, Path(profile), own, stamps).restore(own, len(answers), total, progress)
    restorer.finish()
    return answers


class _Mass:
    def __init__(self, restorer: Restorer, profile: Path, rows: list[Row], stamps: Mapping[str, int] | None) -> None:
        self.restorer = restorer
        self.vault = restorer.vault
        self.profile = profile
        self.stamps = stamps
        few = stamps is not None and len(rows) <= FEW
        self.found = {} if few else claude.survey(profile).footprints
        for row in rows if few else ():  # what else is kept of it is looked for beside its transcript
            self.found[row.session] = Footprint(row.session, claude.places(profile, row.session))
        self.folders: set[str] = set()

    def restore(self, rows: list[Row], done: int, total: int, progress: Progress | None) -> list[Restored]:
        """From the newest to the oldest of each project: what a killed run leaves is still in the old order."""
        by_session: dict[str, list[Row]] = {}
        for row in rows:
            by_session.setdefault(row.session, []).append(row)
        answers: list[Restored] = []
        stamps = dict(self._stamps(by_session) if self.stamps is None else self.stamps)
        for session, stamp_ns in stamps.items():
            if session not in by_session:
                self._restamp(session, stamp_ns)
                continue
            answers.append(self._safely(by_session[session], stamp_ns))
            if progress is not None:
                progress(done + len(answers), total)
        for place, answer in enumerate(answers):
            # A sweep that had judged them by their old times may be running: what it took again is put back again.
            if answer.action == "restored" and regular(answer.live) is None:
                answers[place] = self._safely(by_session[answer.session], stamps[answer.session], again=True)
        self._sync(any(answer.files for answer in answers))
        return answers

    def _sync(self, below: bool) -> None:
        """All names are on the disk; of a few transcripts alone by their folders, for the volume's barrier waits for
        what everybody writes."""
        if self.folders and (below or len(self.folders) > FEW):
            disk.sync_volume(self.profile)
        elif self.folders:
            for folder in dict.fromkeys([*self.folders, f"{self.profile}/projects", str(self.profile)]):
                disk.sync_dir(folder)

    def _safely(self, rows: list[Row], stamp_ns: int, again: bool = False) -> Restored:
        """One that fails is told in its answer, and stops no other."""
        row = rows[0]
        try:
            if len(rows) > 1:
                return self.restorer.one(row.session, stamp_ns)
            return self._whole(row, stamp_ns) if again else self._one(row, stamp_ns)
        except (KeeperError, OSError) as error:
            return failed(row.session, files.told(error, self.profile), row.chat, row.profile)

    def _restamp(self, session: str, stamp_ns: int) -> None:
        """A chat of a touched project that is not put back itself moves along with the others."""
        if not self.restorer.want.dry_run:
            for path in self.found[session].transcripts[:1]:
                try:
                    disk.touch(path, stamp_ns)
                except FileNotFoundError:
                    continue

    def _stamps(self, rows: dict[str, list[Row]]) -> list[tuple[str, int]]:
        """Each session with its new time, by project from the newest to the oldest; the others of a touched project
        among them."""
        projects: dict[str, dict[str, int]] = {}
        for session, (row, *_) in rows.items():
            there = self.found.get(session)
            live = str(there.transcripts[0]) if there and there.transcripts else ""
            seen = regular(live or self.vault.chat(row.chat).kept(session))
            project = os.path.basename(os.path.dirname(live)) if live else row.project
            projects.setdefault(project, {})[session] = seen.st_mtime_ns if seen else 0
        exclusion = Exclusion(self.vault)
        for session, there in self.found.items():
            if session not in rows and exclusion.of_live(str(self.profile), there, None, None) is not None:
                continue  # no time of it is touched
            for path in there.transcripts[:1]:
                times = projects.get(path.parent.name)
                seen = regular(str(path)) if times is not None and session not in rows else None
                if times is not None and seen is not None:
                    times[session] = seen.st_mtime_ns
        stamps = []
        for times in projects.values():
            order = sorted(times, key=lambda session: times[session], reverse=True)
            stamps += [(session, self.restorer.now_ns - place * STEP_NS) for place, session in enumerate(order)]
        return stamps

    def _one(self, row: Row, stamp_ns: int) -> Restored:
        there = self.found.get(row.session)
        long = len(claude.folder_names(row.cwd)) > 1  # which folder depends on the CLI (FIT-3)
        if long or self.restorer.want.dry_run or (there is not None and there.transcripts):
            return self._whole(row, stamp_ns)
        return self._swept(row, there or Footprint(row.session), stamp_ns)

    def _swept(self, row: Row, footprint: Footprint, stamp_ns: int) -> Restored:
        """A session with no live file: its time first, then the exclusive link, then its other files."""
        chat = self.vault.chat(row.chat)
        kept, sealed = chat.kept(row.session), chat.seal(f"{row.session}.jsonl")
        live = f"{self.profile}/projects/{row.project or '-'}/{row.session}.jsonl"
        with self.vault.lock(chat.name):
            gone = regular(kept) is None
            if gone and not os.path.lexists(sealed):
                missing = NotKept(
                    f"the kept transcript of {row.session} is missing", "`keeper verify` says what is whole"
                )
                return failed(row.session, missing, row.chat, row.profile)
            if self.vault.forgotten(row.profile, row.session) is not None:
                return _answer(row, live, "absent", "none", 0, self.restorer, self.profile)
            mirror = Mirror(self.vault, chat, self.restorer.now_ns / 1e9)
            plain = not gone and not any(".live" in name for name in mirror.names) and not mirror.left
            if not gone:
                disk.touch(kept, stamp_ns)
                self._make_folder(os.path.dirname(live))
            linked = plain and _is_whole(kept, sealed) and self._link(kept, live)
            if linked:
                self.restorer.others(mirror, self.profile, row.session, footprint, live, stamp_ns)
        if not linked:
            return self._whole(row, stamp_ns)
        return with_errors(
            _answer(row, live, "absent", "restored", mirror.changed, self.restorer, self.profile), mirror.errors
        )

    def _make_folder(self, folder: str) -> None:
        """Raises Refused where something else has its name."""
        if folder not in self.folders:
            if os.path.lexists(folder) and not os.path.isdir(folder):
                raise Refused(f"{folder} is no folder: it was left as it is", "move it away, then run it again")
            disk.make_shared_dir(folder)
            self.folders.add(folder)

    def _link(self, kept: str, live: str) -> bool:
        """False where it takes a proper look: the name was taken meanwhile, or no link can be made."""
        try:
            disk.link(kept, live)
        except (NoLinks, FileExistsError, FileNotFoundError):
            return False
        return True

    def _whole(self, row: Row, stamp_ns: int) -> Restored:
        chat = self.vault.chat(row.chat)
        facts = self.vault.facts(chat) or Facts(chat.name, row.profile)
        told = facts.sessions.get(row.session) or _told(row)
        return self.restorer.restore(row.session, Place(chat, facts.with_session(row.session, told), told), stamp_ns)


def _is_whole(kept: str, sealed: str) -> bool:
    """Whether kept has what was sealed (`prove.stands`), and its last line is finished: one that is not wants the
    proper way (CLIs up to 2.1.296 glue to it)."""
    try:
        last = last_frame(sealed)
    except SealBroken:
        return False
    fd = files.open_read(kept)
    try:
        size = os.fstat(fd).st_size
        end = os.pread(fd, seal.END, max(0, size - seal.END))
        if size and not end.endswith(b"\n"):
            return False
        if last is not None and last.end == size:  # as `holds`, of what is read already
            return digest_of_end(end) == last.end_digest
        return last is None or seal.holds(last, fd)
    finally:
        os.close(fd)


def _told(row: Row) -> SessionFacts:
    return SessionFacts(row.project, row.cwd, row.mode, row.born, row.head)


def _answer(row: Row, live: str, verdict: str, action: str, files: int, restorer: Restorer, profile: Path) -> Restored:
    resume = resume_line(restorer.vault.settings, row.session, row.cwd, profile)
    return Restored(
        row.session, row.chat, row.profile, row.project, row.cwd, live, verdict, action, None, files, resume, None
    )  # fmt: skip
