"""Restore: the vault back into the profile, whole, before a resume reads it.

It promises that what is there is kept before it is touched, that a name which exists is never overwritten, that the
times of all that a sweep looks at are now, and that an order of times among chats which are not being resumed stays
(RESTORE-2). It refuses an id that is none, two profiles' chats under one id, and candidates that contradict each other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from keeper import claude, disk, files
from keeper.claude import Footprint
from keeper.errors import KeeperError, NotKept, Partial, Refused
from keeper.files import regular
from keeper.settings import Settings
from keeper.transcripts import pair, places, seal
from keeper.transcripts.anew import find_or_keep
from keeper.transcripts.back import Back
from keeper.transcripts.exclude import Exclusion
from keeper.transcripts.head import read_head, resumable
from keeper.transcripts.keep import Keeper
from keeper.transcripts.kept import Outcome
from keeper.transcripts.ledger import Kept
from keeper.transcripts.merge import merge
from keeper.transcripts.mirror import Mirror, Part, parts
from keeper.transcripts.places import Place, seen_from
from keeper.transcripts.prove import stands
from keeper.transcripts.records import is_unread
from keeper.transcripts.vault import Vault
from keeper.transcripts.verdict import FOLDED_BY_RESTORE, SPLIT_BY_KEEP, Verdict, judge

LAST_LOOKS = 4
"""So often a restore looks whether what it put there still stands; at least twice."""
STEP_NS = 10_000_000
"""Between the times of two chats that are put back together: Claude compares milliseconds."""


@dataclass(frozen=True, slots=True)
class Want:
    """What is asked of a restore. `cwd` is where the resume will be started, `cli` tells that CLI's version and
    is called only where the folder's name depends on it (FIT-3)."""

    profile: Path | None = None
    cwd: str | None = None
    full: bool = False
    dry_run: bool = False
    cli: Callable[[], str] = str


@dataclass(frozen=True, slots=True)
class Restored:
    """The answer for one session: what was found, what was done, and how to resume. `files` counts companion files
    and extras put back, `records` the lines of the live transcript, `lacks` the kept records that live has not. One of
    many is not read through: its `records` and `resumable` are None."""

    session: str
    chat: str
    profile: str
    project: str
    cwd: str
    live: str
    verdict: str
    action: str
    records: int | None
    files: int
    resume: str
    resumable: bool | None
    lacks: int = 0
    branch: str = ""
    also: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    error: str | None = None
    cure: str | None = None
    exit_code: int = 0


class Restorer:
    """One run of restores over a vault. `now_ns` is the time that what is put back gets."""

    def __init__(self, vault: Vault, now_ns: int, want: Want) -> None:
        self.vault = vault
        self.now_ns = now_ns
        self.want = want
        self._keeper: Keeper | None = None

    @property
    def keeper(self) -> Keeper:
        """The run of keeps that goes with this one, begun when first needed: a dry run writes nothing."""
        if self._keeper is None:
            self._keeper = Keeper(self.vault, self.now_ns / 1e9)
        return self._keeper

    def finish(self) -> None:
        """Make durable what was kept on the way, and write its rows."""
        if self._keeper is not None:
            self._keeper.finish()

    # ------------------------------------------------------------------ one session

    def session(self, session: str) -> Restored:
        """Put back one session for a resume. Raises Refused, NotKept and what the disk says."""
        answer = self.one(session, self.now_ns)
        self.finish()
        return answer

    def one(self, session: str, now_ns: int) -> Restored:
        """Put back one session, with the other files of its conversation, and what further chats keep of it."""
        claude.check_session(session)
        if (barred := self._barred(session)) is not None:
            return barred
        found = find_or_keep(self.vault, session, self.want.profile, now_ns / 1e9, self.want.dry_run)
        if len(found) > 1:
            if not self.want.dry_run:
                for place in found:
                    self._absorb(place, session)
            places.fold(self.vault, session, found, dry_run=self.want.dry_run)
        place = found[0]
        head = place.told.continues or session
        sessions = place.facts.sessions.items()
        also = [other for other, told in sessions if other != session and head in (other, told.continues)]
        failures: list[KeeperError] = []
        for other in also:
            try:
                self.restore(other, seen_from(place, other), now_ns - STEP_NS)
            except (KeeperError, OSError) as error:
                failures.append(files.told(error, place.chat.path))
        answer = self.restore(session, place, now_ns)
        if not self.want.dry_run:
            for further in found[1:]:
                mirror = self._further(session, further, answer.live, now_ns)
                answer = replace(answer, files=answer.files + mirror.changed)
                failures += mirror.errors
        return replace(with_errors(answer, failures), also=tuple(also))

    def _barred(self, session: str) -> Restored | None:
        """The answer for an excluded session: its live file, untouched. None where a profile has it that is not to be
        excluded. Raises NotKept where Claude has no file of it either (BOTH-4)."""
        if not (exclusion := Exclusion(self.vault)).rules():
            return None  # asking for all profiles costs a look at every process
        met, lives = dict[Path, str](), list[tuple[Path, Path]]()
        rows = {Path(row.profile): row for row in self.vault.rows(session)}
        for profile in [self.want.profile] if self.want.profile else places.profiles_of(self.vault):
            footprint = _footprint(profile, session)
            if profile in rows or footprint.transcripts:
                rule = exclusion.of_live(str(profile), footprint, None, rows.get(profile))
                if rule is None:
                    return None
                met[profile] = f"session {session} is excluded by the rule {rule}: nothing is kept of it"
                lives += [(profile, path) for path in footprint.transcripts]
        if lives:
            profile, live = lives[0]
            cwd = os.path.realpath(self.want.cwd) if self.want.cwd else read_head(str(live), session).cwd
            return Restored(
                session, "", str(profile), live.parent.name, cwd, str(live), "excluded", "none",
                _read_through(str(live))[0], 0, resume_line(self.vault.settings, session, cwd, profile),
                resumable(str(live)), warnings=(f"{met[profile]}, and its live file was left as it is",),
            )  # fmt: skip
        if met:
            raise NotKept(next(iter(met.values())), "`keeper exclude list` shows the rules; Claude has no file of it")
        return None

    def _absorb(self, place: Place, session: str) -> None:
        """What an earlier run still holds of the session in that chat goes into its kept transcript."""
        with self.vault.lock(place.chat.name):
            mirror = self._mirror(place)
            one = mirror.pair("", f"{session}.jsonl", main=True)
            pair.keep(one, pair.Known(), mirror.left_of(one.label))

    def _further(self, session: str, place: Place, live: str, now_ns: int) -> Mirror:
        """The other files that a further chat keeps of the session: what came back, and what did not."""
        with self.vault.lock(place.chat.name):
            mirror = self._mirror(place)
            self.others(mirror, Path(place.facts.profile), session, Footprint(session), live, now_ns)
        return mirror

    def _mirror(self, place: Place) -> Mirror:
        return Mirror(self.vault, place.chat, self.now_ns / 1e9)

    def restore(self, session: str, place: Place, now_ns: int) -> Restored:
        profile = Path(place.facts.profile)
        footprint = _footprint(profile, session)
        live = self._live(profile, footprint, place)
        if self.want.dry_run:
            return self._plan(session, place, live)
        first = self._keep(profile, footprint, place) if footprint.transcripts else None
        if first is not None and first.verdict == "excluded" and (barred := self._barred(session)) is not None:
            return barred
        with self.vault.lock(place.chat.name):
            mirror = self._mirror(place)
            mirror.errors += [KeeperError(first.error, first.cure)] if first is not None and first.error else []
            outcome = self._transcript(mirror, session, footprint.transcripts, live, now_ns)
            # Looked at once more at the end, since a sweep that had judged them by their old times may be running.
            for turn in range(LAST_LOOKS):
                self.others(mirror, profile, session, footprint, live, now_ns)
                if mirror.changed and os.path.isdir(os.path.dirname(live)):
                    disk.sync_volume(os.path.dirname(live))  # the names of what came back, at any depth
                if turn and self._stands(mirror, session, live, outcome):
                    break
                if not self._stands(mirror, session, live, outcome):
                    mirror.refresh()  # what the first look made or let go of
                    outcome = self._transcript(mirror, session, [], live, now_ns)
        if first is not None and outcome.verdict is Verdict.SAME and outcome.action == "none":
            # What was found is what the keep before found, and where it folded that is the deed.
            outcome = replace(
                outcome, verdict=Verdict(first.verdict), gaps=first.gaps, lacks=first.lacks,
                action=first.action if first.action == "folded" else "none",
            )  # fmt: skip
        if outcome.mode != "link" or outcome.action == "folded":
            try:
                self._keep(profile, _footprint(profile, session), place)
            except (KeeperError, OSError) as error:
                mirror.errors.append(files.told(error, place.chat.path))
        return with_errors(self._answer(session, place, live, outcome, mirror.changed), mirror.errors)

    def _stands(self, mirror: Mirror, session: str, live: str, outcome: Outcome) -> bool:
        """Whether what was put there stands there still, durable."""
        one = mirror.pair(live, f"{session}.jsonl")
        if outcome.verdict is not Verdict.DOUBLED and not pair.settled(one, outcome):
            return False
        try:
            disk.sync_file(live)
            disk.sync_dir(os.path.dirname(live))
        except FileNotFoundError:
            return False
        return True

    def _keep(self, profile: Path, footprint: Footprint, place: Place) -> Kept | None:
        """What stands there now goes into that chat, and is what the next keep compares with."""
        self.keeper.options = replace(self.keeper.options, chat=place.chat.name)
        return self.keeper.footprint(profile, footprint, None)

    def _transcript(self, mirror: Mirror, session: str, lives: list[Path], live: str, now_ns: int) -> Outcome:
        one = mirror.pair(live, f"{session}.jsonl", main=True)
        if len(claude.one_name_each(lives)) > 1:
            _touch_all(lives, now_ns)
            return Outcome(Verdict.DOUBLED)
        outcome = pair.keep(one, pair.Known(), mirror.left_of(one.label))
        return pair.restore(one, outcome, self.want.full, now_ns)

    def _live(self, profile: Path, footprint: Footprint, place: Place) -> str:
        """Where the transcript belongs: where it lives now, else the folder of the cwd (RESTORE-10, FIT-3)."""
        name = f"{footprint.session}.jsonl"
        cwd = os.path.realpath(self.want.cwd) if self.want.cwd else None
        wanted = claude.folder_names(cwd) if cwd else ()
        lives = claude.one_name_each(footprint.transcripts)
        for path in footprint.transcripts:
            if len(lives) == 1 or path.parent.name in wanted:
                return str(path)
        if lives:
            folders = ", ".join(path.parent.name for path in footprint.transcripts)
            raise Refused(
                f"session {footprint.session} lives in several project folders: {folders}",
                "say from which directory you will resume, with --cwd",
            )
        cwd = cwd or place.told.cwd
        folder = place.told.project if not self.want.cwd else ""
        names = claude.folder_names(cwd) if cwd else ()
        if len(names) > 1 and (version := claude.version_of(self.want.cli())):
            folder = names[1] if version <= claude.FULL_LONG_NAMES else names[0]
        if not folder:
            there = [n for n in names if (profile / "projects" / n).is_dir()]
            folder = (there or list(names) or ["-"])[0]
        return str(profile / "projects" / folder / name)

    def others(self, mirror: Mirror, profile: Path, session: str, footprint: Footprint, live: str, now_ns: int) -> None:
        """Companion and extras: what is missing comes back at every restore, whatever the transcript's verdict."""
        chat, folder = mirror.chat, os.path.dirname(live)
        todo = {part.label: part for part in parts(footprint)}
        targets = {
            session: f"{folder}/{session}",
            f"extras/file-history/{session}": f"{profile}/file-history/{session}",
            f"extras/tasks/{session}": f"{profile}/tasks/{session}",
        }
        extras = "extras" in mirror.names
        for label, target in targets.items():
            if (label in mirror.names or extras) and os.path.isdir(f"{chat.path}/{label}"):
                todo[label] = Part(target, label)
        for kind, target in (("beside", folder), ("todos", f"{profile}/todos")) if extras else ():
            for name in _names(f"{chat.path}/extras/{kind}/{session}"):
                label = f"extras/{kind}/{session}/{name}"
                todo[label] = Part(f"{target}/{name}", label)
        back = Back(mirror)
        for part in todo.values():
            back.restore(part, now_ns)
        for kind in ("file-history", "tasks"):
            whole = f"{profile}/{kind}/{session}"
            if os.path.isdir(whole) and not os.path.islink(whole):
                disk.touch(whole, now_ns)  # a sweep judges these folders by their own time

    # ------------------------------------------------------------------ answers

    def _plan(self, session: str, place: Place, live: str) -> Restored:
        if regular(live) is None:
            return self._answer(session, place, live, Outcome(Verdict.ABSENT, "would restore"), 0)
        kept, sealed = files.read(place.chat.kept(session)), place.chat.seal(f"{session}.jsonl")
        if not stands(place.chat.kept(session), sealed):
            kept = merge(seal.read(sealed).whole_lines(), kept).data
        found = judge(kept, files.read(live))
        folds = found.verdict in FOLDED_BY_RESTORE or (self.want.full and found.verdict in SPLIT_BY_KEEP)
        torn = found.verdict is not Verdict.UNMERGEABLE and pair.torn(live)
        action = "would fold" if folds or torn else "none"
        outcome = Outcome(found.verdict, action, gaps=found.gaps, lacks=found.lacks, branch=found.branch)
        return self._answer(session, place, live, outcome, 0)

    def _answer(self, session: str, place: Place, live: str, outcome: Outcome, files: int) -> Restored:
        there = live if regular(live) is not None else place.chat.kept(session)
        cwd = os.path.realpath(self.want.cwd) if self.want.cwd else place.told.cwd
        profile = Path(place.facts.profile)
        try:
            can, (records, bad) = resumable(there), _read_through(there)
        except FileNotFoundError:  # swept once more while the answer is made: kept tells the same
            there = place.chat.kept(session)
            can, (records, bad) = resumable(there), _read_through(there)
        warnings = []
        if not can:
            warnings.append("no prompt is stored in it: Claude will not resume it, start fresh")
        if cwd and not os.path.isdir(cwd):
            warnings.append(f"its directory {cwd} is gone: make it again, or restore with --cwd")
        if outcome.verdict is Verdict.UNMERGEABLE:
            warnings.append("written by a CLI up to 1.0.117, whose resumes copy the history: live was left as it is")
        if bad:
            lines = f"line {bad[0]}" + (f" and {len(bad) - 1} more" if len(bad) > 1 else "")
            warnings.append(
                f"{lines}: no record that a CLI reads, and some load only what follows it: `keeper restore {session} "
                "--repaired` gives a copy that every CLI loads, under a new id"
            )
        gaps = tuple(dict.fromkeys([*place.told.gaps, *outcome.gaps]))
        for uuid in gaps:
            warnings.append(f"the parent record {uuid} is in no file: CLIs up to 2.1.85 load only what follows it")
        if outcome.lacks and outcome.verdict is Verdict.DIVERGED:
            warnings.append(
                f"kept holds another branch, {outcome.lacks} records that the live file has not and a resume will not "
                f"read: `keeper restore {session} --branch {outcome.branch}` gives it under a new id"
            )
        elif outcome.lacks and outcome.verdict is Verdict.THINNED and outcome.action == "none":
            warnings.append(f"kept holds {outcome.lacks} records that the live file has not; --full folds them in")
        return Restored(
            session, place.chat.name, str(profile), os.path.basename(os.path.dirname(live)), cwd, live,
            str(outcome.verdict), outcome.action, records, files,
            resume_line(self.vault.settings, session, cwd, profile), can, outcome.lacks, outcome.branch,
            gaps=gaps, warnings=tuple(warnings),
        )  # fmt: skip


def resume_line(settings: Settings, session: str, cwd: str, profile: Path) -> str:
    """The line to type, as it must be in the shell that this command ran in."""
    return claude.resume_command(session, cwd, profile, settings.default_profile, settings.named_profile)


def with_errors(answer: Restored, errors: Sequence[KeeperError]) -> Restored:
    """The answer with what went wrong with other files of the session or its chat: done in part."""
    if not errors:
        return answer
    first = errors[0]
    told = (*answer.warnings, *(error.message for error in errors))
    return replace(answer, warnings=told, error=first.message, cure=first.cure, exit_code=Partial.exit_code)


def failed(session: str, error: KeeperError, chat: str = "", profile: str = "") -> Restored:
    """The answer for a session that could not be put back."""
    return Restored(
        session, chat, profile, "", "", "", "", "failed", None, 0, "", None,
        error=error.message, cure=error.cure, exit_code=error.exit_code,
    )  # fmt: skip


def _footprint(profile: Path, session: str) -> Footprint:
    return claude.survey(profile, only=session).footprints.get(session) or Footprint(session)


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _touch_all(paths: list[Path], now_ns: int) -> None:
    for path in paths:
        try:
            disk.touch(path, now_ns)
        except FileNotFoundError:
            continue


def _read_through(path: str) -> tuple[int, list[int]]:
    """How many lines there are, and the numbers of those that read as no record."""
    count, bad = 0, []
    with os.fdopen(files.open_read(path), "rb") as stream:
        for line in stream:
            if line.endswith(b"\n"):
                count += 1
                if is_unread(line[:-1]):
                    bad.append(count)
    return count, bad
