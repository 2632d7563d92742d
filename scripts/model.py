#!/usr/bin/env python3
"""Lets Claude, keeper, a sweep, a kill and a failing disk act in any order, and looks whether anything is ever lost.

    scripts/model.py                            20,000 examples of up to 30 steps; about an hour on two cores
    scripts/model.py --examples 500 --jobs 1    a look
    scripts/model.py --seed 7 --part 12         that part alone, as a run that failed has printed it

A hypothesis state machine over a real file system in memory: Claudes append, tear, glue, rewrite in place, delete and
make anew, trim, fork, move, work with subagents and companion files; a sweep deletes by time; keep, restore and accept
run, and are killed or failed at any change. The modes (link, copy, a volume without links, one without exchange) take
turns. Promises one closing line: examples and counter-examples (each is printed as a program), and how many random byte
strings were split into records and joined again. Exits 1 where there is a counter-example.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from fault_grounds import Volumes, played, volumes  # noqa: E402
from hypothesis import HealthCheck, Phase, seed, settings  # noqa: E402
from hypothesis.stateful import run_state_machine_as_test  # noqa: E402
from model_keeper import Model  # noqa: E402

from keeper.transcripts.records import join, read, split, uuid_of  # noqa: E402

STEPS = 30
PART = 250
"""So many examples at a time: what a failure prints is run again by its seed and part alone."""
MODES = ("link", "copy", "no links", "no exchange")
STRINGS = 2_000_000
PIECES = (
    *(b"\n", b"\n\n", b"\r\n", b"\0", bytes(64), b"\xff\xfe", b"\xed\xa0\x80", b"\xe2\x80\xa8", b"\xef\xbb\xbf"),
    *(b'{"uuid":"u"}', b'{"uuid":"\\ud800"}', b'{"uuid":"a\\ud83d","text":"\\udc00"}'),
    *(b'{"parentUuid":null,"uuid":', b'"x"}', b"{}", b"["),
)
"""What strings are made of, beside random bytes: line ends, NULs, no UTF-8, records, some with lone surrogates."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a run: so many examples in one mode, by one seed."""

    number: int
    mode: str
    examples: int
    seed: int


def run_part(part: Part, inside: Volumes) -> str:
    """Run it; the counter-example as a program, or nothing."""
    with volumes(inside) as where, played():
        if part.mode == "copy" and where.two is None:
            return ""
        machine = type("Model", (Model,), {"mode": part.mode, "where": where})
        how = settings(
            max_examples=part.examples, stateful_step_count=STEPS, deadline=None, database=None, print_blob=False,
            suppress_health_check=list(HealthCheck), phases=(Phase.generate, Phase.shrink), report_multiple_bugs=False,
        )  # fmt: skip
        try:
            run_state_machine_as_test(seed(part.seed * 1_000_003 + part.number)(machine), settings=how)
        except Exception as error:  # noqa: BLE001 what an example raises is what was looked for
            program = getattr(error, "__notes__", ()) or traceback.format_exception(error)[-8:]
            return "\n".join([f"part {part.number}, mode {part.mode}: {error}", *program])
    return ""


def parts(examples: int, seed_: int) -> Iterator[Part]:
    """The parts of a run, the modes in turn."""
    for number in range(-(-examples // PART)):
        yield Part(number, MODES[number % len(MODES)], min(PART, examples - number * PART), seed_)


def join_split(number: int, seed_: int) -> int:
    """Split and join so many byte strings; how many did not come out as they went in (FAULT-6)."""
    chance = random.Random(seed_)
    wrong = 0
    for _ in range(number):
        size = chance.randrange(12)
        pieces = [
            chance.choice(PIECES) if chance.random() < 0.7 else chance.randbytes(chance.randrange(9))
            for _ in range(size)
        ]
        data = b"".join(pieces)
        found = split(data)
        wrong += join(found) != data or len(found.lines) != data.count(b"\n")
        for line in found.lines:
            record = read(line)
            wrong += uuid_of(line) != (record.uuid if record else None)
    return wrong


def main() -> int:
    first = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=first[0], epilog=first[2], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--examples", type=int, default=20_000, metavar="N", help="so many examples (default 20,000)")
    parser.add_argument("--strings", type=int, default=STRINGS, metavar="N", help="so many byte strings")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes (default 2)")
    parser.add_argument("--seed", type=int, default=1, help="where the examples come from (default 1)")
    parser.add_argument("--part", type=int, metavar="N", help="that part alone")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    chosen = [part for part in parts(options.examples, options.seed) if options.part in (None, part.number)]
    begun, done, failed = time.monotonic(), 0, 0
    with volumes() as where, multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        for part, program in zip(chosen, pool.imap(partial(run_part, inside=where), chosen), strict=True):
            done += part.examples
            if program:
                failed += 1
                print(f"{program}\nagain: {sys.argv[0]} --seed {options.seed} --part {part.number}", file=sys.stderr)
            print(f"{done:,} examples, {failed} counter-examples, {time.monotonic() - begun:.0f} s", file=sys.stderr)
    wrong = join_split(options.strings, options.seed)
    print(
        f"model: {done:,} examples of up to {STEPS} steps, {failed} counter-examples; "
        f"{options.strings:,} byte strings split and joined, {wrong} not the same"
    )
    return 1 if failed or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
