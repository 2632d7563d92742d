"""Keeper: the rules by which keeper runs in the model, is killed and is failed, and what must hold after each.

It promises that after a run that answered all that was there, or was ever answered for, is kept and comes back, once
and in order, that nothing of ours is left, and that the next run writes nothing; and that a run which was killed or
failed has lost nothing.
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import model_oracle as oracle
from fault_grounds import Deed, Seam, play, written_by
from fault_oracle import lines_of, nowhere, of, sealed_lines
from hypothesis import strategies as st
from hypothesis.stateful import rule
from model_claude import Script
from model_live import SEALED, Live, any_number

from keeper.errors import KeeperError, Locked, NotKept, Refused
from keeper.transcripts.accept import accept
from keeper.transcripts.branch import sealed_at
from keeper.transcripts.keep import Keeper, keep_session
from keeper.transcripts.restore import Restorer, Want
from keeper.transcripts.vault import Vault
from tests.seam import names_of_ours

CODES = (
    errno.ENOSPC, errno.EIO, errno.EACCES, errno.EXDEV, errno.EMLINK, errno.EPERM, errno.EDQUOT, errno.EMFILE,
)  # fmt: skip


class Model(Live):
    """All of it: what Claude does, and what keeper does about it."""

    # ------------------------------------------------------------------ keeper

    @rule(again=st.booleans())
    def keep_all(self, again: bool) -> None:
        if self.attempt(self._keep_all, self.scripts):
            self.judge_all()
            if again:
                self.writes_nothing(self._keep_all)

    @rule(number=any_number, again=st.booleans())
    def keep(self, number: int, again: bool) -> None:
        script = self.one(number, main=True)
        covered = self.of(script)
        if self.attempt(lambda: self._keep(script), covered):
            self.judge_kept(covered)
            self.judge_left(script.chat)
            if again:
                self.writes_nothing(lambda: self._keep(script))

    @rule(number=any_number, full=st.booleans())
    def restore(self, number: int, full: bool) -> None:
        script = self.one(number, main=True)
        if self.attempt(lambda: self._restore(script, full), self.of(script), restores=True):
            self.judge_restored(script, full)

    @rule(number=any_number)
    def accept(self, number: int) -> None:
        script = self.there(number, main=True)
        if script is None or not SEALED or not self.attempt(self._keep_all, self.scripts):
            return
        self.judge_all()
        script.begin()
        if not script.own or not self.attempt(lambda: self._accept(script), [script]):
            return
        self.check(lines_of(script.kept) == lines_of(script.live) == script.own, f"{script.name}: accept made no truth")
        script.acked = dict.fromkeys(script.own)
        script.owed.clear()
        self.remember(script)

    @rule(number=any_number)
    def at(self, number: int) -> None:
        """What was sealed at a time is what was kept then."""
        script = self.one(number, main=True)
        if script.history:
            time_ns, lines = script.history[number % len(script.history)]
            chat = Vault(self.here.root, self.here.settings).chat(script.chat.name)
            sealed = sealed_at(chat, script.session, time_ns).split(b"\n")[:-1]
            self.check(sealed == lines, f"{script.name}: another past")

    @rule(which=st.sampled_from(["keep", "keep all", "restore", "accept"]), number=any_number, k=st.integers(0, 60))
    def crash(self, which: str, number: int, k: int) -> None:
        """Killed at a change of a run; one that has fewer has come to its end."""
        self.disturbed(which, number, Seam(self.refuses, kill_at=k))

    @rule(
        which=st.sampled_from(["keep", "keep all", "restore"]), number=any_number, k=st.integers(0, 60),
        code=st.sampled_from(CODES), forever=st.booleans(),
    )  # fmt: skip
    def failure(self, which: str, number: int, k: int, code: int, forever: bool) -> None:
        seam = Seam(self.refuses, fail_at=k, code=code)
        seam.forever = forever
        self.disturbed(which, number, seam)

    def disturbed(self, which: str, number: int, seam: Seam) -> None:
        script = self.one(number, main=True)
        if which == "accept" and not script.live.exists():
            return
        deeds: dict[str, Deed] = {
            "keep": lambda: self._keep(script),
            "keep all": self._keep_all,
            "restore": lambda: self._restore(script, False),
            "accept": lambda: self._accept(script),
        }
        covered = self.scripts if which == "keep all" else self.of(script)
        if which == "accept":
            before = dict(script.acked)
        whole = self.attempt(deeds[which], covered, seam)
        self.unsettled = True
        if which == "accept":
            # Before or after: what stands only in the seal is nobody's to give back unasked.
            own = script.own
            kept = set(lines_of(script.kept))
            script.acked = dict.fromkeys(line for line in before if line in kept or line in own)
            script.owed = dict.fromkeys(own)
        elif whole and which == "restore":
            self.judge_restored(script, False)
        elif whole:
            self.judge_kept(covered)

    # ------------------------------------------------------------------ deeds

    def _keep(self, script: Script) -> list[Any]:
        with self.here.vault() as vault:
            return keep_session(vault, script.session, self.claude.now_ns / 1e9, None, self.profile_of(script))

    def _keep_all(self) -> list[Any]:
        with self.here.vault() as vault:
            keeper = Keeper(vault, self.claude.now_ns / 1e9)
            answers = [answer for profile in self.here.settings.profiles for answer in keeper.profile(profile)]
            keeper.finish()
            keeper.seal()
            self.unsealed = any("not sealed" in note for note in vault.notes)
            return answers

    def _restore(self, script: Script, full: bool) -> list[Any]:
        with self.here.vault() as vault:
            want = Want(self.profile_of(script), full=full)
            return [Restorer(vault, self.claude.now_ns, want).session(script.session)]

    def _accept(self, script: Script) -> list[Any]:
        with self.here.vault() as vault:
            accept(vault, script.session, self.claude.now_ns, self.profile_of(script))
            return []

    def profile_of(self, script: Script) -> Path:
        return script.profile or self.profile_base / "a"

    def main_of(self, side: Script) -> Script:
        return next(one for one in self.of(side) if one.main)

    def of(self, script: Script) -> list[Script]:
        """The transcripts of one session."""
        return [one for one in self.scripts if one.session == script.session and one.profile == script.profile]

    def attempt(
        self, deed: Deed, covered: list[Script], seam: Seam | None = None, restores: bool = False
    ) -> bool:  # fmt: skip
        """Run; whether it came to its end and answered for all. Else nothing that was there may be gone."""
        self.claude.tick()
        self.begins(covered)
        self.absent = {file.path for file in self.files if not file.path.exists()}
        self.unsealed = False
        self.answers = answers = []
        try:
            whole = play(lambda: answers.extend(deed()), seam or Seam(self.refuses))
        except (NotKept, Locked, Refused) as error:
            whole = False
            nothing = isinstance(error, NotKept) and not any(
                one.main and (one.acked or (one.own and not restores)) for one in covered
            )
            # Of two live files it asks which is meant.
            nothing = nothing or (isinstance(error, Refused) and any(one.others for one in covered))
            self.check(seam is not None or self.unsettled or bool(self.writers) or nothing, f"it said no: {error}")
        except KeeperError as error:
            whole = False
            self.check(seam is not None and bool(error.cure), f"failed: {error}, cure {error.cure}")
        whole = whole and not self.unsealed and not any(answer.error for answer in answers)
        self.locate()
        if whole:
            return True
        self.check(seam is not None or not any(answer.error for answer in answers), f"failed: {answers}")
        for script in covered:
            script.owed.update(dict.fromkeys(script.own))
        wanted = {line for script in covered for line in script.must} - {line for one in covered for line in one.free}
        missing = nowhere(wanted, self.profile_base, self.here.root)
        if missing:
            missing = [line for line in missing if line not in self.sealed(covered)]
        self.check(not missing, f"lost: stands nowhere: {missing[:1]}")
        self.unsettled = True
        return False

    def begins(self, covered: list[Script]) -> None:
        for script in covered:
            if not script.live.exists() and (elsewhere := script.elsewhere):
                self.lives_at(script, elsewhere[0])  # a restore that did not come to its end put it there
                script.gone = False
        for script in covered:
            script.begin()
            named = any(of(line).get("sessionId") for line in script.own)
            if script.beside and not (named and self.main_of(script).live.exists()):
                script.own = []  # whose it is nobody can tell, or asks while the session's own transcript is gone

    def sealed(self, covered: list[Script]) -> set[bytes]:
        found: set[bytes] = set()
        for chat in {script.chat for script in covered}:
            for path in (chat / "seal").glob("*.jsonl.seal"):
                found |= sealed_lines(path)
        return found

    def locate(self) -> None:
        """Which chat is whose: of two profiles with a session of one id, and where a killed first keep left a folder
        that told nothing yet."""
        for script in self.scripts:
            whose = f'"profile": "{self.profile_of(script)}"'.encode()
            chats = sorted((self.here.root / "chats").glob(f"{script.session}*/chat.json"))
            own = [path.parent for path in chats if whose in path.read_bytes()]
            plain = self.here.root / "chats" / script.session
            script.chat = own[0] if own else self.here.root / "none yet" if script.profile or chats else plain

    # ------------------------------------------------------------------ judgement

    def check(self, holds: bool, words: str) -> None:
        if not holds:
            raise AssertionError(words)

    def judge_kept(self, covered: list[Script]) -> None:
        for script in covered:
            if script.main or self.main_of(script).kept.exists():
                for words in [*oracle.kept(script), *oracle.live(script, False, False)]:
                    self.check(False, words)
                self.answered(script)
        sessions = {(script.session, script.profile) for script in covered}
        for file in self.files:
            if (file.script.session, file.script.profile) in sessions and file.script.kept.exists():
                file.begin()
                have = file.kept.read_bytes() if file.kept.exists() else b""
                if len(have) > len(file.longest) and any(version.startswith(have) for version in file.versions):
                    file.longest = have  # a killed run had taken it
                # One that was cut in place and is gone comes back from its seal: nobody looks at it before a restore.
                whole = have == file.longest or not file.path.exists()
                self.check(whole, f"lost: {file.name}: kept has {have!r} of {file.longest!r}")

    def answered(self, script: Script) -> None:
        script.acked = script.must
        script.owed.clear()
        self.remember(script)

    def remember(self, script: Script) -> None:
        if script.main and script.kept.exists() and script.live.exists() and self.claude.newest:
            script.history.append((self.claude.now_ns, lines_of(script.kept)))

    def judge_all(self) -> None:
        self.judge_kept(self.scripts)
        self.unsettled = False
        self.judge_left(self.profile_base, self.here.root)

    def judge_left(self, *folders: Path) -> None:
        left = [] if self.writers else names_of_ours(*folders)
        self.check(not left, f"left behind: {left[:2]}")

    def judge_restored(self, script: Script, full: bool) -> None:
        if not script.live.exists():
            self.lives_at(script, Path(self.answers[0].live))  # moved since the last keep, and swept
        for words in [*oracle.kept(script), *oracle.live(script, True, full, bool(self.writers))]:
            self.check(False, words)
        script.gone = False
        script.acked = script.must
        script.owed.clear()
        now_ns = script.live.stat().st_mtime_ns
        self.check(now_ns == self.claude.now_ns, f"{script.name}: its time is {now_ns}, not now")
        for file in self.files:
            if file.script is script and file.kept.exists():
                self.check(file.path.exists(), f"lost: {file.name} did not come back")
                back = file.path in self.absent and len(file.now) < len(file.longest)
                self.check(not back, f"lost: {file.name} came back as {file.now!r} of {file.longest!r}")
                self.check(file.path.stat().st_mtime_ns == self.claude.now_ns, f"{file.name}: its time is not now")
        for side in self.of(script):
            if not side.main and side.kept.exists() and side.live.parent.name == "subagents":
                for words in oracle.live(side, True, False, bool(self.writers)):
                    self.check(False, words)
                side.gone = False

    def writes_nothing(self, deed: Deed) -> None:
        wrote = [] if self.writers else written_by(deed, self.refuses)
        self.check(not wrote, f"written by a second run: {wrote[:3]}")
