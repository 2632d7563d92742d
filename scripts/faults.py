#!/usr/bin/env python3
"""Kills every deed of keeper's before each of its changes, fails each change with each error, and judges what is left.

    scripts/faults.py                          2,400 start states of the product; about half an hour
    scripts/faults.py --states 0               all 16,000 of them; some hours
    scripts/faults.py --states 236 --errors 0  so many, kills alone
    scripts/faults.py --only "partial · no exchange · alone · left: nothing · keep"

A start state is what has become of a live file, how it is kept, with or without a companion, with or without what an
earlier killed run left; a deed is a keep, a restore in all its ways, a pass over the profile, a forget, an accept. The
kill is a BaseException at the seam of `keeper.disk`; the next run is the same deed, or a keep after a restore and the
other way round. Promises one closing line: points tried, lines lost, doubled, out of order, names left behind, changes
of a run after the recovery, errors without file and cure; exits 1 where one of them but the first is not 0. Refuses
real syncs: a kill loses nothing that the kernel has.
"""

from __future__ import annotations

import argparse
import errno
import itertools
import multiprocessing
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from fault_grounds import Volumes, played, volumes  # noqa: E402
from fault_oracle import DOUBLED, LEFT, LOST, REORDERED, UNTOLD, WROTE, Fault  # noqa: E402
from fault_states import State, states  # noqa: E402
from fault_trial import Trial  # noqa: E402

from keeper.errors import KeeperError  # noqa: E402

CODES = (
    errno.EXDEV, errno.EMLINK, errno.EPERM, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.EACCES,
)  # fmt: skip
STATES = 2400
FEW = ("keep", "restore", "restore --full", "forget", "accept")
"""Deeds of one session: some 15 changes, the others some 70."""
EACH = (1, 5, 12, 40)
"""A sample has every state of few changes, each fifth of many, and fewer of those with a companion."""
SHOWN = 20
"""So many faults are printed in full."""


@dataclass(slots=True)
class Tally:
    """What was tried and what came of it."""

    states: int = 0
    kills: int = 0
    errors: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    told: list[str] = field(default_factory=list)

    def note(self, where: str, found: list[Fault]) -> None:
        for one in found:
            self.faults[one.kind] += 1
        if found:
            self.told.append(f"{where}: {found[0].kind}: {found[0].text}")

    def add(self, other: Tally) -> None:
        self.states += other.states
        self.kills += other.kills
        self.errors += other.errors
        self.faults += other.faults
        self.told += other.told

    @property
    def clean(self) -> bool:
        return not sum(self.faults.values())

    @property
    def closing(self) -> str:
        faults = self.faults
        return (
            f"faults: {self.kills:,} kill points over {self.states:,} states, {self.errors:,} errors, "
            f"{faults[LOST]} lost, {faults[DOUBLED]} doubled, {faults[REORDERED]} reordered, "
            f"{faults[LEFT]} left behind, {faults[WROTE]} writes by a second run, {faults[UNTOLD]} errors untold"
        )


# ------------------------------------------------------------------ all of it


def try_state(
    state: State, where: Volumes, tally: Tally, every: int = 1, errors: int = 0, seed: int = 0, kills: bool = True
) -> None:  # fmt: skip
    """Every kill point of one state (if `kills`), and so many errors of each of its calls (or of each `every`-th)."""
    if state.mode == "copy" and where.two is None:
        return
    trial = Trial(state, where, seed)
    try:
        count = trial.calls()
        if not count:
            return
        tally.states += 1
        for number in range(0, count if kills else 0, every):
            tally.kills += 1
            tally.note(f"{state} · killed at {number} of {count}", _safely(trial.kill, number))
        ways = list(itertools.product(CODES, (False, True)))
        for number in range(0, count, every):
            for turn in range(errors):
                code, forever = ways[(seed + number * 7 + turn * 3 + tally.states) % len(ways)]
                tally.errors += 1
                where_ = f"{state} · {errno.errorcode[code]}{' for ever' if forever else ''} at {number} of {count}"
                tally.note(where_, _safely(trial.fail, number, code, forever))
    finally:
        trial.close()


def _safely(run: Callable[..., list[Fault]], *args: object) -> list[Fault]:
    """What no run may raise is a fault like the others."""
    try:
        return run(*args)
    except (KeeperError, OSError, AssertionError, LookupError, TypeError, ValueError) as error:
        return [Fault(UNTOLD, f"raised {error!r}")]


def sample(number: int) -> Iterator[State]:
    """So many states, every situation, mode, leftover and deed among them again and again; fewer of those that make
    many changes: with a companion, with a deed that sees to more than one session."""
    taken = 0
    for place, state in enumerate(states()):
        if taken == number:
            return
        many = 2 * state.companion + (state.deed not in FEW)
        if place % EACH[many] == 0:
            taken += 1
            yield state


def run(chosen: Iterator[State], where: Volumes, tally: Tally, errors: int, seed: int) -> None:
    """Try each, and say on stderr how far it is."""
    begun = time.monotonic()
    for state in chosen:
        before = len(tally.told)
        try_state(state, where, tally, errors=errors, seed=seed)
        for told in tally.told[before : before + 2] if before < SHOWN else ():
            print(told, file=sys.stderr)
        if tally.states % 50 == 0:
            took = time.monotonic() - begun
            print(f"{tally.states} states, {tally.kills + tally.errors:,} points, {took:.0f} s", file=sys.stderr)


def main() -> int:
    first = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=first[0], epilog=first[2], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--states", type=int, default=STATES, metavar="N", help="so many start states (0: all)")
    parser.add_argument("--errors", type=int, default=1, metavar="N", help="errors tried at each call (default 1)")
    parser.add_argument("--seed", type=int, default=0, help="names that keeper draws, and which error comes where")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes (default 2)")
    parser.add_argument("--only", default="", metavar="STATE", help="the states whose name has this in it")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    chosen = [state for state in (sample(options.states) if options.states else states()) if options.only in str(state)]
    tally = Tally()
    with volumes() as where, multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        shares = [(chosen[job :: options.jobs], options.errors, options.seed, where) for job in range(options.jobs)]
        for share in pool.imap_unordered(_share, shares):
            tally.add(share)
    print(tally.closing)
    if not tally.clean:
        state = tally.told[0].rpartition(" · ")[0]
        print(f"again: {sys.argv[0]} --states 0 --seed {options.seed} --only '{state}'", file=sys.stderr)
    return 0 if tally.clean else 1


def _share(arguments: tuple[list[State], int, int, Volumes]) -> Tally:
    chosen, errors, seed, inside = arguments
    tally = Tally()
    with volumes(inside) as where, played():
        if where.two is None:
            print("one volume alone is to be seen here: mode copy is left out", file=sys.stderr)
        run(iter(chosen), where, tally, errors, seed)
    return tally


if __name__ == "__main__":
    sys.exit(main())
