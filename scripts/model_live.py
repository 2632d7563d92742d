"""Live: the rules by which Claudes, a sweep and the clock change live files, each an example's step.

It promises that whatever they do is possible with the real CLI (docs/claude-on-disk.md), or with a machine that went
down. It refuses to touch the vault.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from fault_grounds import Seam, Volumes, chance, play, refusal
from fault_oracle import lines_of, of
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from model_claude import Claude, File, Script, Writer

from tests.build import jsonl, live_path, session_id
from tests.seam import world

SEALED = importlib.util.find_spec("keeper.transcripts.seal") is not None
"""Without a seal a link shares its inode's fate: what is cut in place is a known loss."""
CWDS = ("/srv/demo/proj", "/srv/demo/proj-wt")
HOW = ("tail", "stub", "root", "copy", "cut", "branch", "pruned", "trimmed")
any_number = st.integers(0, 50)


class Live(RuleBasedStateMachine):
    """One vault, two profiles, a handful of sessions, and what happens to their live files. `mode` says how the volume
    is, `where` the places are; a subclass sets both."""

    mode: ClassVar[str] = "link"
    where: ClassVar[Volumes]
    numbers: ClassVar[Any] = itertools.count()

    def __init__(self) -> None:
        super().__init__()
        chance.seed(0)
        self.base = self.where.one / f"example-{next(self.numbers)}"
        two = self.where.two if self.mode == "copy" and self.where.two is not None else self.where.one
        self.profile_base = two / f"profile-{next(self.numbers)}"
        for name in ("a", "b"):
            (self.profile_base / name / "projects").mkdir(parents=True)
        self.here = world(self.profile_base / "a", self.base / "vault", self.base / "state", lock_wait_s=0.2)
        profiles = (self.profile_base / "a", self.profile_base / "b")
        self.here = replace(self.here, settings=replace(self.here.settings, profiles=profiles))
        self.claude = Claude(1_800_000_000 * 1_000_000_000)
        self.refuses = refusal(self.mode)
        self.scripts: list[Script] = []
        self.files: list[File] = []
        self.writers: list[Writer] = []
        self.unsettled = False
        self.unsealed = False
        self.absent: set[Path] = set()
        self.answers: list[Any] = []
        self.sessions = 0
        play(self.here.vault, Seam())

    def teardown(self) -> None:
        for writer in self.writers:
            os.close(writer.fd)
        shutil.rmtree(self.base, ignore_errors=True)
        shutil.rmtree(self.profile_base, ignore_errors=True)

    # ------------------------------------------------------------------ who there is

    def session(self, number: int | None = None) -> Script:
        """A new session of the first profile."""
        self.sessions += 1
        here = self.here.about(session_id(number or self.sessions))
        script = Script(f"session {number or self.sessions}", here.session, here.live, here.chat, here.kept.name)
        self.scripts.append(script)
        return script

    def one(self, number: int, main: bool = False) -> Script:
        """One of the transcripts there are (of the sessions' own, if `main`)."""
        among = [script for script in self.scripts if script.main or not main]
        return among[number % len(among)]

    def there(self, number: int, main: bool = False) -> Script | None:
        script = self.one(number, main)
        return script if script.live.exists() else None

    @initialize()
    def begin(self) -> None:
        script = self.session()
        self.claude.append(script, [*self.claude.header(script), *self.claude.turns(script, 3)])

    # ------------------------------------------------------------------ Claude writes

    @rule(number=any_number, turns=st.integers(1, 3))
    def append(self, number: int, turns: int) -> None:
        script = self.one(number)
        self.claude.append(script, self.claude.turns(script, turns))

    @rule(number=any_number, at=st.integers(1, 200))
    def torn_append(self, number: int, at: int) -> None:
        script = self.one(number)
        line = self.claude.turns(script, 1)[0]
        at = at % len(line) or 1
        self.claude.append(script, [], torn=line[:at])
        script.rest = line[at:]

    @rule(number=any_number)
    def complete(self, number: int) -> None:
        """The rest of a torn append comes."""
        script = self.there(number)
        if script is not None and script.rest and script.torn and script.live.read_bytes().endswith(script.torn):
            self.claude.append(script, [script.rest], glue=True)
            script.rest = b""

    @rule(number=any_number)
    def glue(self, number: int) -> None:
        """An old CLI goes on behind a torn line."""
        script = self.one(number)
        self.claude.append(script, self.claude.turns(script, 1), glue=True)

    @rule(number=any_number)
    def nul_run(self, number: int) -> None:
        """What a machine that went down leaves."""
        script = self.one(number)
        first, *more = self.claude.turns(script, 2)
        self.claude.append(script, [bytes(64) + first, *more])

    @rule(number=any_number)
    def header(self, number: int) -> None:
        script = self.one(number, main=True)
        self.claude.append(script, self.claude.header(script))

    # ------------------------------------------------------------------ a writer that holds the file open

    @rule(number=any_number)
    def hold(self, number: int) -> None:
        script = self.there(number)
        if script is not None and len(self.writers) < 2:
            fd = os.open(script.live, os.O_WRONLY | os.O_APPEND)
            self.writers.append(Writer(script, fd, script.memory))

    @rule(number=any_number)
    def write_held(self, number: int) -> None:
        if self.writers:
            self.writers[number % len(self.writers)].write(self.claude)

    @rule(number=any_number)
    def release(self, number: int) -> None:
        if self.writers:
            os.close(self.writers.pop(number % len(self.writers)).fd)

    # ------------------------------------------------------------------ the live file goes, or is another one

    @rule(number=any_number)
    def unlink(self, number: int) -> None:
        self.claude.delete(self.one(number))

    @rule(number=any_number, how=st.sampled_from(HOW))
    def recreate(self, number: int, how: str) -> None:
        script = self.one(number)
        lines = lines_of(script.live)
        if how == "tail":
            lines = self.claude.turns(script, 2)
        elif how == "stub":
            lines = self.claude.header(script)
        elif how == "root":
            script.memory = None
            lines = self.claude.turns(script, 3)
        elif how == "cut":
            lines = lines[: 1 + number % max(1, len(lines))]
        elif how == "branch":
            lines = self.claude.branch(script, number)
        elif how == "pruned":
            lines = [line for line in lines if of(line).get("uuid")]
        elif how == "trimmed":
            lines = self.claude.compacted(script)
        self.claude.recreate(script, lines)

    @rule(number=any_number, torn=st.booleans())
    def empty(self, number: int, torn: bool) -> None:
        script = self.one(number)
        self.claude.recreate(script, [], torn=self.claude.turns(script, 1)[0][:30] if torn else b"")

    @rule(number=any_number, at=st.integers(0, 4000))
    def truncate_in_place(self, number: int, at: int) -> None:
        script = self.there(number)
        if script is not None and (SEALED or self.mode == "copy"):
            data = script.live.read_bytes()
            self.claude.rewrite(script, data[: at % (len(data) + 1)])

    @rule(number=any_number)
    def stub_in_place(self, number: int) -> None:
        script = self.there(number)
        if script is not None and (SEALED or self.mode == "copy"):
            self.claude.rewrite(script, jsonl(*self.claude.header(script)))

    @rule(number=any_number)
    def tombstone(self, number: int) -> None:
        """Claude takes an answer out in place and asks again."""
        script = self.there(number)
        found = self.claude.without_answer(script) if script is not None and SEALED else None
        if script is not None and found is not None:
            answer, lines = found
            script.free.add(answer)
            script.memory = str(of(answer)["parentUuid"]) if of(answer)["parentUuid"] else None
            self.claude.rewrite(script, jsonl(*lines, *self.claude.turns(script, 2)))

    @rule(number=any_number)
    def move(self, number: int) -> None:
        """A worktree takes the session along, and gives it back."""
        script = self.there(number, main=True)
        if script is None:
            return
        places = [self.here.about(script.session, cwd).live for cwd in CWDS]
        target = places[1] if script.live == places[0] else places[0]
        if script.live not in places or target.exists() or target.with_suffix("").exists():
            return
        target.parent.mkdir(exist_ok=True)
        script.live.rename(target)
        if script.live.with_suffix("").is_dir():
            script.live.with_suffix("").rename(target.with_suffix(""))
        self.lives_at(script, target)

    def lives_at(self, script: Script, live: Path) -> None:
        """The transcript is there now, and its companion beside it."""
        old, script.live = script.live, live
        for side in self.scripts:
            if old.with_suffix("") in side.live.parents:
                side.live = live.with_suffix("") / side.live.relative_to(old.with_suffix(""))
                side.gone = not side.live.exists()

    # ------------------------------------------------------------------ who else there is

    @rule(number=any_number)
    def fork(self, number: int) -> None:
        """`--fork-session`: the records copied under a new id."""
        script = self.there(number, main=True)
        if script is None or self.sessions >= 3:
            return
        other = self.session()
        other.memory = script.memory
        copied = [line.replace(script.session.encode(), other.session.encode()) for line in lines_of(script.live)]
        self.claude.append(other, [*copied, *self.claude.turns(other, 1)])

    @rule()
    def second_session(self) -> None:
        if self.sessions < 3:
            script = self.session()
            self.claude.append(script, self.claude.turns(script, 2))

    @rule(number=any_number, old=st.booleans())
    def subagent(self, number: int, old: bool) -> None:
        """A subagent's transcript, beside the sessions' own as older CLIs put it or in the companion."""
        script = self.one(number, main=True)
        if not script.live.exists() or sum(not one.main for one in self.scripts) >= 3:
            return
        self.claude.count += 1
        name = f"agent-a{self.claude.count}.jsonl"
        live = script.live.parent / name if old else script.live.with_suffix("") / "subagents" / name
        place = f"extras/beside/{script.session}/{name}" if old else f"{script.session}/subagents/{name}"
        side = Script(name, script.session, live, script.chat, place, main=False, profile=script.profile)
        self.scripts.append(side)
        self.claude.append(side, self.claude.turns(side, 2))

    @rule(number=any_number)
    def second_profile(self, number: int) -> None:
        """Another profile has a session of the same id, as a copied profile does."""
        first = self.scripts[0]
        if any(script.profile is not None for script in self.scripts) or not first.live.exists():
            return
        profile = self.profile_base / "b"
        live, nowhere_yet = live_path(profile, first.session), self.here.root / "none yet"
        other = Script("session 1 of b", first.session, live, nowhere_yet, live.name, profile=profile)
        self.scripts.append(other)
        self.claude.append(other, [*lines_of(first.live)[: number % 4], *self.claude.turns(other, 2)])

    @rule(number=any_number, how=st.sampled_from(["new", "longer", "cut in place", "deleted"]), history=st.booleans())
    def companion_file(self, number: int, how: str, history: bool) -> None:
        script = self.there(number, main=True)
        if script is None or script.profile is not None:
            return
        self.claude.count += 1
        own = [file for file in self.files if file.script is script]
        if how == "new" or not own:
            if len(own) < 3:
                self.files.append(File(script, f"x{self.claude.count}.txt", history))
                self.claude.write_file(self.files[-1], f"out {self.claude.count}\n".encode() * 4)
            return
        file = own[number % len(own)]
        if how == "deleted":
            file.path.unlink(missing_ok=True)
        elif how == "longer":
            self.claude.write_file(file, max(file.now, file.longest, key=len) + f"more {self.claude.count}\n".encode())
        elif file.path.exists() and (SEALED or self.mode == "copy"):
            os.truncate(file.path, number % 20)
            self.claude.stamp(file.path)

    # ------------------------------------------------------------------ time

    @rule(days=st.sampled_from([1, 20, 40, -3]))
    def clock(self, days: int) -> None:
        self.claude.now_ns += days * 86_400 * 1_000_000_000
        for script in self.scripts if days < 0 else ():
            script.history.clear()  # a clock that was set back tells of two pasts by one time

    @rule()
    def sweep(self) -> None:
        """Claude's own clean-up, by each file's time."""
        for script in [*self.scripts]:
            if script.main and script.live.exists() and self.claude.old(script.live):
                companion = script.live.with_suffix("")
                self.claude.delete(script)
                for side in self.scripts:
                    if companion in side.live.parents:
                        self.claude.delete(side)
                shutil.rmtree(companion, ignore_errors=True)
            elif script.beside and script.live.exists() and self.claude.old(script.live):
                self.claude.delete(script)
            for path in script.elsewhere:
                if self.claude.old(path):
                    path.unlink()
        for file in self.files:
            place = file.path.parent if file.history else file.path
            if place.exists() and self.claude.old(place):
                file.path.unlink(missing_ok=True)
