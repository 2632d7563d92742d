#!/usr/bin/env python3
"""Kills the real command at its system calls, lets Claude go on, runs it again, and counts what became of the records.

    scripts/kill_sweep.py                         1,200 points over all start states; some minutes
    scripts/kill_sweep.py --points 60             fewer
    scripts/kill_sweep.py --delay                 `timeout -s KILL` after any delay, instead of strace
    scripts/kill_sweep.py --only 'empty, keep, link' --at rename:3    one point again, as a failure names it

strace stops the process before one of its calls that may change the file system: that is after the call before, too.
Then two records are appended to the live file, keep (and restore, where that was killed) runs again, and once more.
Prints one closing line; exits 1 when a record that was in kept or live is not in kept once, when a name of keeper's
was left behind, when the last run wrote anything, or when a run failed.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from kill_states import (  # noqa: E402
    ACCEPT,
    KEEP,
    PUT_AT,
    RESTORE,
    STATES,
    Lines,
    State,
    append_two,
    kept_lines,
    known,
    sealed_lines,
)  # fmt: skip
from places import SECOND, Places, children, closing, ended, places  # noqa: E402

from keeper.transcripts.audit import audit  # noqa: E402
from tests.build import session_id  # noqa: E402
from tests.chat import everything  # noqa: E402
from tests.seam import World, in_child, names_of_ours  # noqa: E402

CALLS = ",".join(
    f"?{name}"
    for name in (
        "link linkat symlink symlinkat rename renameat renameat2 unlink unlinkat rmdir mkdir mkdirat write writev "
        "pwrite64 fsync fdatasync syncfs truncate ftruncate utimensat chmod fchmod fchmodat chown fchown fchownat "
        "fsetxattr flock"
    ).split()
)
"""What changes the file system, and the locks and syncs between: the interpreter's own start asks for none of them."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is killed, and where."""

    state: State
    copy: bool
    command: tuple[str, ...]

    @property
    def name(self) -> str:
        said = " ".join(word for word in self.command if word != session_id(1))
        return f"{self.state.name}, {said}, {'copy' if self.copy else 'link'}"

    @property
    def one_truth(self) -> bool:
        """Whether what it leaves in kept is one of several truths; the others are in the seal."""
        return self.command in (ACCEPT, PUT_AT)


SCENARIOS = [Scenario(state, copy, command) for state in STATES for copy in (False, True) for command in state.commands]


@dataclass(frozen=True, slots=True)
class Told:
    """What one point showed."""

    name: str
    at: str
    killed: bool
    lost: int
    doubled: int
    left: int
    wrote: int
    unproven: int
    failed: int
    seen: tuple[str, ...]

    @property
    def bad(self) -> int:
        return self.lost + self.doubled + self.left + self.wrote + self.unproven + self.failed


# ------------------------------------------------------------------ running


def environment(world: World) -> dict[str, str]:
    """The whole environment of the command; nothing of the user's own reaches it."""
    home = world.profile.parent
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": str(REPOSITORY),
        "HOME": str(home),
        "KEEPER_HOME": str(world.root),
        "KEEPER_CONFIG": str(world.settings.config),
        "CLAUDE_CONFIG_DIR": str(world.profile),
        "XDG_STATE_HOME": str(home / ".local" / "state"),
    }


def words(command: tuple[str, ...], world: World) -> list[str]:
    return [sys.executable, "-m", "keeper", *command, "--profile", str(world.profile)]


def run(command: list[str], world: World) -> tuple[int, str]:
    """Its exit code and what it said. In a group of its own, so that an interrupted sweep leaves no process."""
    started = subprocess.Popen(
        command, env=environment(world), cwd=world.profile.parent, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, process_group=0,
    )  # fmt: skip
    try:
        said, _ = started.communicate(timeout=120)
    finally:
        if started.poll() is None:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()
    return started.returncode, said.decode(errors="replace")


def traced(command: list[str], out: Path) -> list[str]:
    """The command with its calls written down."""
    return ["strace", "-f", "-qq", "-o", str(out), "-e", f"trace={CALLS}", *command]


def killed(command: list[str], at: str) -> list[str]:
    """The command, killed before the n-th call of a name (`rename:3`; strace counts each name for itself)."""
    name, _, count = at.partition(":")
    kill = f"inject={name}:signal=KILL:when={count}"
    return ["strace", "-f", "-qq", "-o", os.devnull, "-e", f"trace={name}", "-e", kill, *command]


def prepared(scenario: Scenario, here: Places) -> tuple[World, Lines, set[bytes]]:
    """The start state, and what is known in it."""
    world = here.world("sweep", scenario.copy)
    for path in here.named("sweep"):
        shutil.rmtree(path, ignore_errors=True)
    (world.profile / "projects").mkdir(parents=True)
    world.root.parent.mkdir(parents=True, exist_ok=True)
    gone = scenario.state.make(world) or {}
    lines, others = known(world)
    for name, more in gone.items():
        lines.setdefault(name, set()).update(more)
    return world, lines, others


def moments(scenario: Scenario, here: Places, delay: random.Random | None) -> list[str]:
    """Every call of a run that is not killed, as `killed` takes it; with `delay` times by chance within such a run."""
    world, _, _ = prepared(scenario, here)
    command = words(scenario.command, world)
    log = here.disk / "calls"
    begun = time.monotonic()
    code, said = run(command if delay else traced(command, log), world)
    if code != 0:
        raise SystemExit(f"kill_sweep: {scenario.name}: the run that was not killed ended with {code}: {said}")
    if delay:
        took = time.monotonic() - begun
        return [f"{delay.uniform(0, took):.4f}" for _ in range(100)]
    turns: Counter[str] = Counter()
    found = []
    for name in re.findall(r"(?m)^\d+ +(\w+)\(", log.read_text(errors="replace")):
        turns[name] += 1
        found.append(f"{name}:{turns[name]}")
    return found


# ------------------------------------------------------------------ one point


def point(scenario: Scenario, at: str, here: Places) -> Told:
    """Kill at that call (or after so many seconds), go on, run again, count."""
    world, lines, others = prepared(scenario, here)
    command = words(scenario.command, world)
    first, said = run(killed(command, at) if ":" in at else ["timeout", "-s", "KILL", at, *command], world)
    failed = []
    if first not in (-signal.SIGKILL, 128 + signal.SIGKILL, 0):
        failed.append(f"the killed run ended with {first}: {said}")
    name, more = append_two(world, scenario.state.leaf)
    lines.setdefault(name, set()).update(more)
    for again in dict.fromkeys((KEEP, scenario.command)):
        code, said = run(words(again, world), world)
        if code != 0:
            failed.append(f"the next run ended with {code}: {said}")
    lost, doubled, seen = judged(scenario, world, lines, others)
    if scenario.command != KEEP:
        in_child(world.keep_all)  # what was put there is told to the index
    before = everything(world.root), everything(world.profile)
    if in_child(world.keep_all) != 0:
        failed.append("the last keep failed")
    after = everything(world.root), everything(world.profile)
    wrote = sorted(
        name for was, now in zip(before, after, strict=True) for name in {*was, *now} if was.get(name) != now.get(name)
    )
    left = names_of_ours(world.profile, world.root)
    vault = world.vault()
    unproven = [one for path in (world.root / "chats").iterdir() for one in audit(vault.chat(path.name))]
    vault.index.close()
    seen += [f"written again: {name}" for name in wrote] + [f"left behind: {name}" for name in left]
    seen += [f"not proven: {one}" for one in unproven] + failed
    return Told(
        scenario.name, at, first != 0, lost, doubled, len(left), int(bool(wrote)), len(unproven), len(failed),
        tuple(seen[:8]),
    )  # fmt: skip


def judged(scenario: Scenario, world: World, lines: Lines, others: set[bytes]) -> tuple[int, int, list[str]]:
    """How many of the records are lost, how many doubled, and which."""
    lost = doubled = 0
    seen = []
    elsewhere = sealed_lines(world) if scenario.one_truth else set()
    for name, wanted in lines.items():
        places_of = {"kept": kept_lines(world, name)}
        if scenario.command == RESTORE and scenario.state.folds and name == world.live.name:
            places_of["live"] = world.live.read_bytes().split(b"\n") if world.live.exists() else []
        for where, found in places_of.items():
            counts = Counter(found)
            for line in wanted:
                if not counts[line] and line in elsewhere:
                    continue
                lost += counts[line] == 0
                doubled += max(0, counts[line] - 1)
                if counts[line] != 1:
                    seen.append(f"{where} {name}: {counts[line]} times {line[:120]!r}")
    if scenario.one_truth and kept_lines(world, world.live.name) != world.live.read_bytes().split(b"\n")[:-1]:
        lost += 1
        seen.append("kept is not what live is")
    if others:
        everywhere = [path.read_bytes() for path in (world.root / "chats").rglob("*") if path.is_file()]
        for other in others:
            if other not in everywhere and not any(other in data for data in everywhere):
                lost += 1
                seen.append(f"nowhere: {other[:120]!r}")
    return lost, doubled, seen


# ------------------------------------------------------------------ all of them


def chosen(asked: argparse.Namespace, here: Places) -> list[tuple[int, str]]:
    """The points: of all scenarios, or of as many as so few points are worth, each a share of its moments by chance."""
    rng = random.Random(asked.seed)
    wanted = [number for number, one in enumerate(SCENARIOS) if one.name.startswith(asked.only or "")]
    if asked.at is not None:
        return [(number, asked.at) for number in wanted]
    rng.shuffle(wanted)
    if len(wanted) > asked.points // 3:
        wanted = list({SCENARIOS[number].state.name: number for number in wanted}.values())
    found = {number: moments(SCENARIOS[number], here, rng if asked.delay else None) for number in wanted}
    every = sum(map(len, found.values()))
    print(f"kill_sweep: {len(found)} scenarios, {every:,} moments, seed {asked.seed}", file=sys.stderr)
    shares = []
    for number, all_of_it in found.items():
        rng.shuffle(all_of_it)
        # Short runs give more of their moments than long ones, whose syncs are many and alike.
        shares += [(turn / len(all_of_it) ** 0.5, number, at) for turn, at in enumerate(all_of_it)]
    return [(number, at) for _, number, at in sorted(shares)[: asked.points]]


def work(todo: list[tuple[int, str]], here: Places, out: Path) -> None:
    with out.open("w", buffering=1) as stream:
        for number, at in todo:
            stream.write(json.dumps(asdict(point(SCENARIOS[number], at, here))) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0], epilog="Example: scripts/kill_sweep.py --points 60 --seed 1"
    )
    parser.add_argument("--points", type=int, default=1_200)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--delay", action="store_true", help="kill after a delay by chance, without strace")
    parser.add_argument("--only", help="only scenarios whose name begins so")
    parser.add_argument("--at", help="with --only: only this call, `rename:3`, or after so many seconds, `0.05`")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--dir", type=Path, help="a folder of the disk; else the one for temporary files")
    parser.add_argument("--second", type=Path, default=SECOND, help=f"a folder of another volume; else {SECOND}")
    asked = parser.parse_args()
    if not asked.delay and shutil.which("strace") is None:
        sys.exit("kill_sweep: strace is missing: scripts/setup dev installs it")
    with places(asked.dir, asked.second) as here:
        todo = chosen(asked, here)
        outs = [here.disk / f"told-{job}" for job in range(asked.jobs)]
        with children() as start:
            running = {
                start(lambda j=job, o=out: work(todo[j :: asked.jobs], here.apart(str(j)), o))
                for job, out in enumerate(outs)
            }
            code = follow(running, outs, len(todo))
        results = [json.loads(line) for out in outs for line in out.read_text().splitlines()]
    found = [Told(**{**one, "seen": tuple(one["seen"])}) for one in results]
    for one in found:
        if one.bad:
            print(f"again: --only {one.name!r} --at {one.at}: {one}", file=sys.stderr)
    names = {
        "lost": "lost", "doubled": "doubled", "left": "left behind", "wrote": "second runs that wrote",
        "unproven": "not proven", "failed": "runs that failed",
    }  # fmt: skip
    sums = {said: sum(getattr(one, what) for one in found) for what, said in names.items()}
    print(closing("kill_sweep", {"points": sum(one.killed for one in found), **sums}))
    return 1 if code or any(sums.values()) or len(found) < len(todo) else 0


def follow(running: set[int], outs: list[Path], points: int) -> int:
    """Wait for the workers, saying how far they are; 1 where one failed by itself."""
    code, told_at = 0, time.monotonic()
    while running:
        time.sleep(0.05)
        for pid in list(running):
            if (end := ended(pid)) is not None:
                running.discard(pid)
                code |= end != 0
        if time.monotonic() > told_at + 10:
            told_at = time.monotonic()
            done = sum(out.read_bytes().count(b"\n") for out in outs if out.exists())
            print(f"kill_sweep: {done} of {points}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
