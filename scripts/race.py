#!/usr/bin/env python3
"""Races writers against `keeper keep`, and counts what became of their lines.

    scripts/race.py                      SWAP-5: a million lines under swaps and deletions; some minutes
    scripts/race.py --crashes 1000       SWAP-6: the keeping process is killed as well, so often at least
    scripts/race.py --lines 20000        fewer
    scripts/race.py --seed 7 --only 12   one bout again, from the seed that a failure names

Writers open, append and close, or hold the file open across exchanges, at 200 and 2,000 lines a second and as fast as
they go, with and without uuids, in modes link and copy, on a volume with and without exchange. Prints one closing
line; exits 1 when a line was lost or doubled, when one stands before what its writer wrote earlier (at up to 2,000
lines a second), or when a name of keeper's was left behind.
"""

import argparse
import random
import sys
import time
from dataclasses import asdict
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from places import SECOND, closing, places  # noqa: E402
from race_bout import ENDLESS, Bout, Told, Writer, fight  # noqa: E402

KINDS = 12


def bout(seed: int, number: int, crashes: bool, seconds: float) -> Bout:
    """The bout of that number: its kind goes round, the rest is by chance."""
    rng = random.Random(f"{seed}/{number}")
    kind = number % KINDS
    rate = (2000, 2000, 0, 2000, 2000, 200, 2000, 0, 2000, 2000, 2000, 2000)[kind]
    lines = int(rate * seconds) or int(4000 * seconds)
    opens, holds = Writer(lines, rate), Writer(lines, rate, rng.randint(200, 2000))
    endless = Writer(lines, rate, ENDLESS)
    writers = (
        (opens, opens, opens), (opens, holds), (opens, holds), (opens, opens, holds), (endless, opens),
        (opens, holds), (opens, opens), (opens, opens), (holds, holds), (opens, holds, opens), (opens, opens),
        (endless, opens),
    )[kind]  # fmt: skip
    return Bout(
        f"{seed}/{number}",
        copy=kind in (3, 7, 9, 10, 11),
        writers=writers,
        bare=rng.choice((0.0, 0.0, 0.1, 0.3)),
        exchange=kind != 6,
        between=rng.choice((0.01, 0.03, 0.06)) if crashes or kind == 6 else 0.0,
        crashes=crashes,
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0], epilog="Example: scripts/race.py --lines 20000 --crashes 50"
    )
    parser.add_argument("--lines", type=int, default=1_000_000, help="lines in all, at least")
    parser.add_argument("--crashes", type=int, default=0, help="kills of the keeping process, at least; 0: none")
    parser.add_argument("--bouts", type=int, default=0, help=f"bouts in all, at least; {KINDS} show each kind once")
    parser.add_argument("--seconds", type=float, default=4.0, help="how long a writer writes in one bout, about")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--only", type=int, help="only the bout of this number")
    parser.add_argument("--dir", type=Path, help="a folder of the disk; else the one for temporary files")
    parser.add_argument("--second", type=Path, default=SECOND, help=f"a folder of another volume; else {SECOND}")
    asked = parser.parse_args()
    told: list[Told] = []
    number = asked.only or 0
    with places(asked.dir, asked.second) as here:
        while True:
            one = bout(asked.seed, number, asked.crashes > 0, asked.seconds)
            begun = time.monotonic()
            told.append(fight(one, here))
            report(number, one, told[-1], time.monotonic() - begun, asked.seed)
            number += 1
            enough = len(told) >= asked.bouts and total(told, "lines") >= asked.lines
            enough = enough and total(told, "crashes") >= asked.crashes
            if enough or asked.only is not None:
                break
    slow = sum(one.disordered for one in told if one.rate)
    fast = sum(one.disordered for one in told if not one.rate)
    if fast:
        print(f"race: at full speed {fast:,} out of order, which nobody promised", file=sys.stderr)
    counts = {what: total(told, what) for what in ("lines", "swaps", "deletions", "crashes", "lost", "doubled")}
    print(closing("race", {**counts, "out of order": slow, "left behind": total(told, "left")}))
    return 1 if any(one.bad for one in told) else 0


def total(told: list[Told], what: str) -> int:
    return sum(getattr(one, what) for one in told)


def report(number: int, one: Bout, told: Told, seconds: float, seed: int) -> None:
    holds = ",".join("endless" if w.hold == ENDLESS else str(w.hold) for w in one.writers)
    said = f"{number}: {'copy' if one.copy else 'link'}, rate {told.rate}, holds {holds}, bare {one.bare}"
    counts = asdict(told)
    for what in ("rate", "seen"):
        del counts[what]
    print(f"{said}: {', '.join(f'{n} {what}' for what, n in counts.items())}, {seconds:.1f} s", file=sys.stderr)
    if told.bad or told.disordered:
        print(f"   again: --seed {seed} --only {number}: {one}\n   {told.seen}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
