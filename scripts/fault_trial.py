"""Trial: one start state, put back before each run, a deed that is killed or failed in it, and what the next runs do.

It promises the same answer each time: names that keeper draws come from the seed. It refuses to call anything whole
that the oracle does not: what kept and live must have, names of ours, changes of a run that has nothing to do.
"""

from __future__ import annotations

import itertools
import time
from contextlib import suppress

from fault_grounds import Deed, Seam, Snapshot, Volumes, chance, play, refusal, written_by
from fault_oracle import (
    LEFT,
    LOST,
    UNTOLD,
    WROTE,
    Fault,
    fragments_lost,
    judge_kept,
    judge_live,
    lines_of,
    nowhere,
    sealed_lines,
)
from fault_states import State, build

from keeper import files
from keeper.errors import KeeperError, Locked, NotKept, Refused
from keeper.transcripts import accept, branch, places
from keeper.transcripts.forget import forget
from keeper.transcripts.ledger import Kept
from keeper.transcripts.mass import restore_all
from keeper.transcripts.restore import Restored, Restorer, Want
from tests.build import CWD, session_id
from tests.seam import names_of_ours

TRUTHS = ("accept", "--at in place")
"""Deeds that make one content the truth, and leave the rest to the seal."""
RECORD = "u1-1"
"""The record up to which a copy is made."""


class Trial:
    """One state, built once and put back before each run."""

    def __init__(self, state: State, where: Volumes, seed: int = 0) -> None:
        self.state = state
        self.seed = seed
        chance.seed(f"{seed} {state}")
        self.stage = build(state, where)
        self.here = self.stage.here
        self.refuses = refusal(state.mode)
        self.threads = [self.stage.thread, *self.stage.sides]
        for thread in self.threads:
            thread.begin()
        self.roots = [self.here.profile, self.here.root, self.here.settings.state_home]
        self.snapshot = Snapshot(self.roots, where.pools)
        self.copies = itertools.count(20)
        self.time_ns = time.time_ns()

    def close(self) -> None:
        self.snapshot.forget()

    # ------------------------------------------------------------------ deeds

    def deed(self) -> Deed:
        session = self.here.session
        deeds: dict[str, Deed] = {
            "keep": self.here.keep,
            "restore": self.restore,
            "restore --full": lambda: self.restore(full=True),
            "profile pass": self.here.keep_all,
            "restore --all": self.restore_all,
            "forget": self.forget,
            "--through": lambda: self.copy(branch.up_to(session, RECORD)),
            "--branch": lambda: self.copy(branch.branch_of(session, RECORD)),
            "--repaired": lambda: self.copy(branch.mended(session)),
            "--at": lambda: self.copy(branch.as_of(session, self.time_ns)),
            "--at in place": self.put,
            "accept": self.accept,
        }
        return deeds[self.state.deed]

    def restore(self, full: bool = False) -> Restored:
        cwd = CWD if self.state.situation == "doubled" else None
        with self.here.vault() as vault:
            return Restorer(vault, time.time_ns(), Want(full=full, cwd=cwd)).session(self.here.session)

    def restore_all(self) -> list[Restored]:
        with self.here.vault() as vault:
            return restore_all(Restorer(vault, time.time_ns(), Want()), vault.rows())

    def forget(self) -> object:
        with self.here.vault() as vault:
            return forget(vault, self.here.session, time.time())

    def accept(self) -> object:
        with self.here.vault() as vault:
            return accept.accept(vault, self.here.session, time.time_ns())

    def put(self) -> object:
        with self.here.vault() as vault:
            (place,) = places.find(vault, self.here.session, None)
            sealed = branch.sealed_at(place.chat, self.here.session, self.time_ns)
            Restorer(vault, time.time_ns(), Want()).session(self.here.session)
            return accept.put(vault, self.here.session, sealed, time.time_ns())

    def copy(self, recipe: branch.Recipe) -> object:
        cwd = CWD if self.state.situation == "doubled" else None
        with self.here.vault() as vault:
            restorer = Restorer(vault, time.time_ns(), Want(cwd=cwd))
            return branch.write_copy(restorer, self.here.session, session_id(next(self.copies)), recipe)

    # ------------------------------------------------------------------ points

    def calls(self) -> int:
        """How many changes the deed makes here; 0 where there is nothing for it to do, or it says no."""
        seam = Seam(self.refuses)
        try:
            play(self.deed(), seam)
        except (NotKept, Refused, Locked):
            return 0
        return len(seam.calls)

    def rewind(self, number: int) -> None:
        self.snapshot.rewind()
        chance.seed(f"{self.seed} {self.state} {number}")

    def kill(self, number: int) -> list[Fault]:
        """Killed before that change, then run again."""
        self.rewind(number)
        seam = Seam(self.refuses, kill_at=number)
        if play(self.deed(), seam):
            return []  # fewer calls than before: names that are drawn by chance sort otherwise
        return self.stands() + self.recover(number % 2 == 1)

    def stands(self) -> list[Fault]:
        """Lines that stand in no file any more, nor in a seal."""
        if self.state.deed == "forget":
            return []
        wanted = [line for thread in self.threads for line in thread.wanted]
        missing = nowhere(wanted, *self.roots[:2])
        sealed = self.sealed() if missing else set()
        return [Fault(LOST, f"stands nowhere: {line[:80]!r}") for line in missing if line not in sealed]

    def fail(self, number: int, code: int, forever: bool) -> list[Fault]:
        """Failed at that change, then run again without the error."""
        self.rewind(number)
        seam = Seam(self.refuses, fail_at=number, code=code)
        seam.forever = forever
        found = []
        try:
            answer: object = None

            def run() -> None:
                nonlocal answer
                answer = self.deed()()

            play(run, seam)
            found = untold_in(answer)
        except KeeperError as error:
            found = untold(error.message, error.cure)
        except OSError as error:
            told = files.told(error, self.here.root)
            found = untold(told.message, told.cure)
        return found + self.stands() + self.recover(number % 2 == 1)

    def recover(self, otherwise: bool) -> list[Fault]:
        """The next run ends whole; the one after it writes nothing."""
        if self.state.deed == "forget":
            return self.recover_forget()
        if self.state.deed in TRUTHS:
            return self.recover_truth()
        pass_ = self.state.deed not in ("keep", "restore", "restore --full")
        keep: Deed = self.here.keep_all if pass_ else self.here.keep
        restored = self.state.deed.startswith("restore")
        heal = self.deed() if not self.state.deed.startswith("--") else keep
        if otherwise and self.state.deed in ("keep", "restore", "restore --full") and self.state.situation != "first":
            restored = not restored
            heal = self.restore if restored else keep
        try:
            play(heal, Seam(self.refuses))
        except (KeeperError, OSError) as error:
            return [Fault(UNTOLD, f"the recovery failed: {error!r}")]
        found = self.judge_live(restored, self.state.deed == "restore --full" and not otherwise)
        if restored:
            play(keep, Seam(self.refuses))  # what a restore does not see to: names that it was not asked for
        found += self.judge_kept()
        return found + self.written_by(keep)

    def written_by(self, run: Deed) -> list[Fault]:
        """What a run changes that has nothing to do."""
        return [Fault(WROTE, words) for words in written_by(run, self.refuses)[:1]]

    def judge_live(self, restored: bool, full: bool) -> list[Fault]:
        """The main transcript; of the others after a restore what is owed to them is seen to by the next keep too."""
        says_no = self.state.situation == "doubled" and self.state.deed == "restore --all"
        return list(judge_live(self.stage.thread, restored and not says_no, full))

    def judge_kept(self) -> list[Fault]:
        found: list[Fault] = []
        for thread in self.threads:
            aside = thread.kept.parent / "aside" if thread.main else self.here.chat / "aside"
            found += judge_kept(thread, aside)
            found += judge_live(thread, False, False)
            found += fragments_lost(thread, *self.roots[:2])
        for name, data in self.stage.files.items():
            kept = self.here.chat / name
            if not kept.exists() or kept.read_bytes() != data:
                found.append(Fault(LOST, f"{name}: kept is missing or is another version"))
        return found + [Fault(LEFT, name) for name in names_of_ours(*self.roots)]

    def recover_truth(self) -> list[Fault]:
        """Before or after: the next keep ends whole; then the deed is done, and all is still in the seal."""
        play(self.here.keep, Seam(self.refuses))
        found = [Fault(LEFT, name) for name in names_of_ours(*self.roots)]
        play(self.deed(), Seam(self.refuses))
        live, kept = (lines_of(path) for path in (self.stage.thread.lives[0], self.here.kept))
        if live != kept:
            found.append(Fault(LOST, "live and kept are not one truth"))
        own = self.stage.thread.live_before[self.stage.thread.lives[0]]
        if self.state.deed == "accept" and [line for line in live if line in set(own)] != own:
            found.append(Fault(LOST, "live lost lines of its own"))
        found += [Fault(LEFT, name) for name in names_of_ours(*self.roots)]
        found += self.written_by(self.here.keep)
        sealed = self.sealed()
        for path in (self.here.chat / "aside").glob("*"):
            sealed.update(lines_of(path))  # a file in which bytes rotted is set aside whole, and read as it was before
        missing = [line for line in self.stage.thread.wanted if line not in sealed]
        return found + [Fault(LOST, f"not in the seal, nor aside: {line[:80]!r}") for line in missing]

    def sealed(self) -> set[bytes]:
        return sealed_lines(self.here.chat / "seal" / f"{self.here.session}.jsonl.seal")

    def recover_forget(self) -> list[Fault]:
        with suppress(NotKept):  # the killed one had come to its end, or this run brought it there
            play(self.forget, Seam(self.refuses))
        found = []
        play(self.here.keep_all, Seam(self.refuses))
        if self.here.chat.exists():
            found.append(Fault(LEFT, "the forgotten chat's folder is still there"))
        found += self.written_by(self.here.keep_all)
        for path, before in self.stage.thread.live_before.items():
            if before and lines_of(path) != before:
                found.append(Fault(LOST, f"forget changed the live file {path.name}"))
        return found + [Fault(LEFT, name) for name in names_of_ours(*self.roots)]


def untold(message: str, cure: str | None) -> list[Fault]:
    """What an error fails to say: a file, a cure."""
    found = []
    if "/" not in message:
        found.append(Fault(UNTOLD, f"no file is named: {message}"))
    if not cure:
        found.append(Fault(UNTOLD, f"no cure: {message}"))
    return found


def untold_in(answer: object) -> list[Fault]:
    """The same of the errors that answers carry."""
    if isinstance(answer, dict):
        answer = list(answer.values())
    answers = answer if isinstance(answer, list) else [answer]
    return [
        fault
        for one in answers
        if isinstance(one, Kept | Restored) and one.error and one.exit_code != Refused.exit_code
        for fault in untold(one.error, one.cure)
    ]
