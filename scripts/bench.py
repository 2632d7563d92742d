"""Measures keeper against its budgets, on data of its own, and says which it keeps.

    scripts/bench.py                    every line; a few minutes
    scripts/bench.py --quick            the same with fewer bytes and fewer rounds
    scripts/bench.py --only merge       one group: first, second, seal, restore, turn, merge, start, hook, agent,
                                        resident, large
    scripts/bench.py --json             one object with `"schema": 1` on stdout
    scripts/bench.py --write            and puts the lines into docs/performance.md, with the date and the machine

One line a figure: the id or the budget, the figure, its limit, ok or MISSED. A figure without a limit is stated, not
judged. What can be a ratio is one, its two sides run in turn and taken by their medians, so that a busy machine slows
both. Exits 1 when a limit is missed. Everything lies in a new folder of the disk (`--dir`, else TMPDIR, else
/var/tmp), and of a tmpfs for mode copy, and is gone at the end. docs/performance.md says what is compared with what.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import bench_data as data
from bench_agent import agent_lines, resident_lines, start_line
from bench_lines import Line, as_json, closing, write

PYTHON = [sys.executable, "-c", "pass"]
KEEPER = [str(Path(sys.executable).with_name("keeper"))]
MB = 1_000_000


# ---------------------------------------------------------------------- timing


def timed(command: list[str], env: dict[str, str] | None = None, said: bytes = b"") -> float:
    """Seconds of one run by the clock, `said` to its stdin. The command must end with 0."""
    begun = time.perf_counter()
    done = subprocess.run(command, env=env, input=said, capture_output=True, check=False)
    took = time.perf_counter() - begun
    if done.returncode != 0:
        sys.exit(f"bench: {command} ended with {done.returncode}: {done.stderr.decode()[-1000:]}")
    return took


Result = TypeVar("Result")


def in_turn(rounds: int, runs: dict[str, Callable[[], Result]]) -> dict[str, list[Result]]:
    """Every run once a round, so that what else the machine does meets all of them."""
    found: dict[str, list[Result]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            found[name].append(run())
    return found


def medians(found: dict[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(values) for name, values in found.items()}


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a run lies: `disk` and `memory` are new folders of two volumes. `rounds` is how often each side runs."""

    disk: Path
    memory: Path
    quick: bool

    @property
    def rounds(self) -> int:
        return 3 if self.quick else 7

    def env(self, profile: Path, vault: Path) -> dict[str, str]:
        """What keeper is started with: nothing of the user's own, and settings that are not there."""
        home = self.disk / "home"
        named = {"HOME": home, "XDG_STATE_HOME": f"{vault}.state", "KEEPER_HOME": vault, "CLAUDE_CONFIG_DIR": profile}
        return {"PATH": os.defpath, "LANG": "C.UTF-8", **{name: str(path) for name, path in named.items()}}

    def tree(self, name: str) -> data.Profile:
        """The profile of the issue's first pass: 500 chats of 97 MB in all, each with a companion."""
        return data.profile(self.disk / name, 500, 10 * MB if self.quick else 97 * MB, companions=True)

    def new(self, name: str) -> Path:
        """A name that is free. Nothing is removed before the end: ext4 without a journal passes over each inode that
        was removed within the last half minute, and what comes after a removal pays for it."""
        return self.disk / f"{name}-{time.monotonic_ns():x}"

    def settle(self) -> None:
        """Nothing is left to write back, so no run pays for what was done before it."""
        subprocess.run(["sync", "-f", self.disk], check=True)

    def work(self, name: str, *arguments: object) -> dict[str, float]:
        """A part of bench_work in a process of its own."""
        command = [sys.executable, str(Path(__file__).with_name("bench_work.py")), name, *map(str, arguments)]
        return dict(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))


# ---------------------------------------------------------------------- merge


def merge(stage: Stage) -> Iterator[Line]:
    """MERGE-12: speed and memory, cold, and how both grow from half a million lines to a million."""
    size = 10 * MB if stage.quick else 100 * MB
    pair = _files(stage, "half", data.sharing_half(1, size))
    (runs,) = in_turn(stage.rounds, {"": lambda: stage.work("merge", *pair)}).values()
    took = _median_of(runs)
    what = f"merge of {size // MB} MB onto {size // MB} MB, half of it shared"
    detail = f"{took['cpu_s']:.2f} s of the processor, {took['took_s']:.2f} s by the clock"
    yield Line("MERGE-12", what, took["given"] / MB / took["cpu_s"], "MB/s", 150, True, detail)
    detail = f"{_mb(took['peak'])}: both files, their lines, the {_mb(took['merged'])} merged"
    yield Line(
        "MERGE-12", "peak memory of that, by the bytes given", took["peak"] / took["given"], "×", 4, detail=detail
    )

    count = 50_000 if stage.quick else 500_000
    for shape, make in data.SHAPES.items():
        pairs = {str(n): _files(stage, str(n), make(n)) for n in (count, 2 * count)}
        found = in_turn(3, {name: partial(stage.work, "merge", *pair) for name, pair in pairs.items()})
        one, two = (_median_of(runs) for runs in found.values())
        what = f"{count:,} → {2 * count:,} lines {shape}, processor"
        detail = f"{one['cpu_s']:.2f} → {two['cpu_s']:.2f} s, memory {_mb(one['peak'])} → {_mb(two['peak'])}"
        yield Line("MERGE-12", what, two["cpu_s"] / one["cpu_s"], "×", 2.5, detail=detail)


def _files(stage: Stage, name: str, pair: tuple[bytes, bytes]) -> list[Path]:
    paths = [stage.disk / f"{name}.{side}" for side in ("kept", "live")]
    for path, content in zip(paths, pair, strict=True):
        path.write_bytes(content)
    return paths


def _median_of(runs: list[dict[str, float]]) -> dict[str, float]:
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def _mb(size: float) -> str:
    return f"{size / MB:.0f} MB"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.{1 if seconds < 0.01 else 0}f} ms"


# ---------------------------------------------------------------------- first pass, second keep


def first(stage: Stage) -> Iterator[Line]:
    """The first pass over 500 chats against `cp -al` of the same tree and a folder with two small files a chat."""
    tree = stage.tree("first")
    halves: list[float] = []

    def keep() -> float:
        env = stage.env(tree.path, stage.new("vault"))
        stage.settle()
        return timed([*KEEPER, "keep", "--no-seal", "--profile", str(tree.path)], env)

    def yardstick() -> float:
        stage.settle()
        halves.append(timed(["cp", "-al", str(tree.path), str(stage.new("copy"))]))
        return halves[-1] + stage.work("folders", stage.new("folders"), *tree.sessions)["took_s"]

    took = medians(in_turn(stage.rounds, {"keep": keep, "yard": yardstick, "bare": lambda: timed(PYTHON)}))
    what = f"first pass: {len(tree.sessions)} chats, {tree.files} files, {_mb(tree.bytes)}, by the yardstick"
    detail = f"({_ms(took['keep'])} − python {_ms(took['bare'])}) / {_ms(took['yard'])}"
    detail += f", of which cp -al {_ms(statistics.median(halves))}"
    yield Line("first pass", what, (took["keep"] - took["bare"]) / took["yard"], "×", 2, detail=detail)


def second(stage: Stage) -> Iterator[Line]:
    """KEEP-5: the keep of an unchanged tree writes nothing to kept, live, seals or index; and what it costs."""
    tree, vault = stage.tree("second"), stage.new("vault")
    env = stage.env(tree.path, vault)
    command = [*KEEPER, "keep", "--profile", str(tree.path)]
    timed(command, env)
    before = [data.snapshot(folder) for folder in (tree.path, vault)]
    trace = stage.disk / "trace"
    timed(["strace", "-f", "-y", "-qq", "-o", str(trace), "-e", f"trace={data.TRACED}", *command], env)
    same = before == [data.snapshot(folder) for folder in (tree.path, vault)]
    found = data.changes(trace.read_text("utf-8", "replace"), tree.path, vault)
    locks = found.pop("locks")
    detail = ", ".join(f"{name} {count}" for name, count in found.items())
    detail += f"; inodes, times and sizes {'as before' if same else 'CHANGED'}; {locks} lock files opened"
    figure = sum(found.values()) + (not same)
    yield Line("KEEP-5", "second keep: calls that change anything (strace -f)", figure, "calls", 0, detail=detail)

    took = medians(in_turn(stage.rounds, {"keep": lambda: timed(command, env), **_starts(env)}))
    each = (took["keep"] - took["version"]) / len(tree.sessions) * 1000
    what = f"second keep of {len(tree.sessions)} chats, beyond `keeper --version`"
    yield Line("KEEP-5", what, each, "ms/chat", detail=f"{_ms(took['keep'])}; {_started(took)}")


def seal(stage: Stage) -> Iterator[Line]:
    """What the seals of a first pass cost behind it, and how large those of the real CLI's transcripts are."""
    tree = stage.tree("seal")
    rates = []
    for _ in range(stage.rounds):
        command = [*KEEPER, "keep", "--profile", str(tree.path)]
        env = stage.env(tree.path, stage.new("vault"))
        timed([*command, "--no-seal"], env)
        stage.settle()
        sealing, idle = timed(command, env), timed(command, env)
        rates.append(tree.bytes / MB / (sealing - idle))
    what = f"seals behind the first pass: {tree.files} files, {_mb(tree.bytes)}, durable"
    yield Line("seal", what, statistics.median(rates), "MB/s", 50, at_least=True)
    found = stage.work("seal_sizes", data.FIXTURES)
    detail = f"{found['files']:.0f} transcripts of the real CLI, {_mb(found['bytes'])}"
    yield Line("SEAL-6", "a seal's size by its transcript's, turn by turn", found["turns"], "×", detail=detail)
    yield Line("SEAL-6", "a seal's size by its transcript's, repacked", found["repacked"], "×", 0.2, detail=detail)


def _starts(env: dict[str, str]) -> dict[str, Callable[[], float]]:
    """The starts that every figure of a whole command holds: the bare interpreter's, and keeper's own."""
    return {"version": lambda: timed([*KEEPER, "--version"], env), "bare": lambda: timed(PYTHON)}


def _started(took: dict[str, float]) -> str:
    return f"`keeper --version` {_ms(took['version'])}, python {_ms(took['bare'])}"


# ---------------------------------------------------------------------- turn, restore, start


def turn(stage: Stage) -> Iterator[Line]:
    """The keep of a turn of 8 kB does not depend on how much is kept already."""
    small, large = MB, (10 if stage.quick else 100) * MB
    for mode in ("copy", "link", "split"):
        tree = data.profile(stage.disk / f"turn-{mode}", 2, 2 * MB, companions=False)
        vault = stage.memory / "vault" if mode == "copy" else stage.new("vault")
        env = stage.env(tree.path, vault)
        paths = [tree.rewrite(0, small), tree.rewrite(1, large)]
        timed([*KEEPER, "keep", "--profile", str(tree.path)], env)
        for path in paths if mode == "split" else ():
            data.cut_back(path)
            _turn(path, env)  # what was cut is met with the first turn; what it costs from then on is measured
        inside = stage.work("turn", 3 * stage.rounds, vault, *paths)
        whole = medians(in_turn(stage.rounds, {str(path): partial(_turn, path, env) for path in paths}))
        for place, took in (("in the process", inside), ("the whole command", whole)):
            one, many = (took[str(path)] for path in paths)
            what = f"keep of a turn, mode {mode}, at {_mb(large)} by {_mb(small)}, {place}"
            yield Line("turn", what, many / one, "×", 2, detail=f"{_ms(one)} → {_ms(many)}")


def _turn(path: Path, env: dict[str, str]) -> float:
    data.append_turn(path)
    return timed([*KEEPER, "keep", path.stem, "--profile", str(path.parents[2])], env)


def restore(stage: Stage) -> Iterator[Line]:
    """RESTORE-11: 2,000 swept chats back at once; beside it `cp -al` of the same tree."""
    yield _swept(stage, companions=False)
    yield _swept(stage, companions=True)


def _swept(stage: Stage, companions: bool) -> Line:
    chats, size = 2000, 4 * MB if stage.quick else 20 * MB
    tree = data.profile(stage.disk / f"swept-{companions}", chats, size, companions)
    env = stage.env(tree.path, stage.new("vault"))
    timed([*KEEPER, "keep", "--profile", str(tree.path)], env)

    spent: list[float] = []

    def back() -> float:
        tree.sweep(stage.new("swept"))
        stage.settle()
        begun = _children()
        took = timed([*KEEPER, "restore", "--all"], env)
        spent.append(_children() - begun)
        if sum(len(names) for _, _, names in os.walk(tree.projects)) != tree.files:
            sys.exit("bench: restore --all did not put back every file")
        return took

    def copied() -> float:
        stage.settle()
        return timed(["cp", "-al", str(tree.projects), str(stage.new("copy"))])

    took = medians(in_turn(stage.rounds, {"back": back, "copied": copied, **_starts(env)}))
    detail = f"{_ms(took['back'])}, of the processor {_ms(statistics.median(spent))}; "
    detail += f"cp -al {_ms(took['copied'])}, {_started(took)}"
    what = f"restore --all of {chats:,} swept chats, {tree.files:,} files, beyond python's start"
    return Line("RESTORE-11", what, took["back"] - took["bare"], "s", None if companions else 0.5, detail=detail)


def _children() -> float:
    """The processor's seconds of all that has been run so far."""
    spent = os.times()
    return spent.children_user + spent.children_system


def start(stage: Stage) -> Iterator[Line]:
    """What a person or a hook waits for, by a bare interpreter. Stated: its budget is a later issue's."""
    tree = data.profile(stage.disk / "start", 20, 2 * MB, companions=True)
    large = tree.rewrite(1, (10 if stage.quick else 100) * MB)
    env = stage.env(tree.path, stage.new("vault"))
    timed([*KEEPER, "keep", "--profile", str(tree.path)], env)
    small = tree.sessions[0]

    def swept(path: Path) -> float:
        path.with_suffix("").rename(stage.new("swept"))
        path.unlink()
        return timed([*KEEPER, "restore", path.stem], env)

    runs = {
        "`keeper keep SESSION`, nothing new": lambda: timed([*KEEPER, "keep", small, "--profile", str(tree.path)], env),
        "`keeper restore`, the chat whole": lambda: timed([*KEEPER, "restore", small], env),
        "`keeper restore`, the chat swept": lambda: swept(tree.transcript(0)),
        f"`keeper restore`, a chat of {_mb(large.stat().st_size)} swept": lambda: swept(large),
    }
    took = medians(in_turn(3 * stage.rounds, {**_starts(env), **runs}))
    named = {"`keeper --version`": took["version"], **{what: took[what] for what in runs}}
    for what, seconds in named.items():
        detail = f"{_ms(seconds)} / {_ms(took['bare'])}; a later issue's budget: ≤ 5"
        yield Line("start", f"{what}, by `python -c pass`", seconds / took["bare"], "×", detail=detail)


def hook(stage: Stage) -> Iterator[Line]:
    """What Claude waits for at a turn's end, the turn of 5 kB kept and sealed within it, and what a person does before
    a resume: with an agent, and without."""
    tree = data.profile(stage.disk / "hook", 20, 2 * MB, companions=True)
    env = stage.env(tree.path, stage.new("vault"))
    timed([*KEEPER, "keep", "--profile", str(tree.path)], env)
    live = tree.transcript(0)
    payload = {"hook_event_name": "Stop", "session_id": live.stem, "transcript_path": str(live), "cwd": "/"}

    def turn_ends() -> float:
        with live.open("ab") as file:
            file.write(b'{"type":"user","uuid":"%s","text":"%s"}\n' % (os.urandom(16).hex().encode(), b"x" * 5000))
        return timed([*KEEPER, "hook"], env, json.dumps(payload).encode())

    def swept() -> float:
        tree.transcript(1).unlink()
        return timed([*KEEPER, "restore", tree.sessions[1]], env)

    for what, limit in (("no agent", None), ("an agent", 5.0)):
        agent = None
        if limit is not None:
            agent = subprocess.Popen(
                [*KEEPER, "run", "--json"], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            assert agent.stdout is not None
            agent.stdout.read(1)  # ready
        try:
            runs = {"hook": turn_ends, "restore": swept, "bare": lambda: timed(PYTHON)}
            took = medians(in_turn(3 * stage.rounds, runs))
        finally:
            if agent is not None:
                agent.terminate()
                agent.communicate()
        for name, done in (("hook", "`keeper hook`"), ("restore", "`keeper restore`, the chat swept")):
            detail = f"{_ms(took[name])} / {_ms(took['bare'])}"
            ratio = took[name] / took["bare"]
            yield Line("hook", f"{done}, {what}, by `python -c pass`", ratio, "×", limit, detail=detail)


def agent(stage: Stage) -> Iterator[Line]:
    """The agent over a thousand chats: how soon it keeps, what it costs; and its start over ten thousand."""
    for chats in (200, 1000) if stage.quick else (1000, 10_000):
        tree = data.profile(stage.disk / f"agent{chats}", chats, chats * 4000, companions=False)
        vault = stage.new("vault")
        env = stage.env(tree.path, vault)
        timed([*KEEPER, "keep", "--profile", str(tree.path)], env)
        for number in range(chats):
            os.utime(tree.transcript(number), (time.time() - 7200,) * 2)
        if chats <= 1000 and not (stage.quick and chats == 1000):
            yield from agent_lines(tree, vault, env, stage.quick)
        else:
            yield start_line(env, chats, 1.0, 3)


def resident(stage: Stage) -> Iterator[Line]:
    """Swept chats of the policy `resident`, put back by the agent: one, and two thousand."""
    chats = 400 if stage.quick else 2000
    tree = data.profile(stage.disk / "resident", chats, chats * 10_000, companions=False)
    env = stage.env(tree.path, stage.new("vault"))
    env["KEEPER_CONFIG"] = str(stage.disk / "resident.toml")
    Path(env["KEEPER_CONFIG"]).write_text('policy = "resident"\n', "utf-8")
    timed([*KEEPER, "keep", "--profile", str(tree.path)], env)
    for number in range(chats):
        os.utime(tree.transcript(number), (time.time() - 7200,) * 2)
    yield from resident_lines(tree, env, stage.quick)


def large(stage: Stage) -> Iterator[Line]:
    """The agent's start over a hundred thousand chats."""
    chats = 5000 if stage.quick else 100_000
    tree = data.profile(stage.disk / "large", chats, chats * 1000, companions=False)
    env = stage.env(tree.path, stage.new("vault"))
    timed([*KEEPER, "keep", "--profile", str(tree.path)], env)
    yield start_line(env, chats, 5.0, 2)


# ---------------------------------------------------------------------- all of it

GROUPS = {
    "first": first,
    "second": second,
    "seal": seal,
    "restore": restore,
    "turn": turn,
    "merge": merge,
    "start": start,
    "hook": hook,
    "agent": agent,
    "resident": resident,
    "large": large,
}


@contextmanager
def stage(where: Path | None, quick: bool) -> Iterator[Stage]:
    """New folders on the disk and in memory, gone at the end."""
    where = where or next((p for p in (Path(tempfile.gettempdir()), Path("/var/tmp")) if _kind(p) != "tmpfs"), Path())
    shared = Path("/dev/shm")
    if _kind(shared) != "tmpfs" or _kind(where) == "tmpfs":
        sys.exit(f"bench: needs a disk (not {where}) and a tmpfs at {shared}: name a folder of the disk with --dir")
    with (
        tempfile.TemporaryDirectory(prefix="keeper-bench-", dir=where) as disk,
        tempfile.TemporaryDirectory(prefix="keeper-bench-", dir=shared) as memory,
    ):
        yield Stage(Path(disk).resolve(), Path(memory).resolve(), quick)


def _kind(path: Path) -> str:
    """The kind of file system that the folder is on."""
    return subprocess.run(["stat", "-f", "-c", "%T", path], check=True, capture_output=True, text=True).stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer bytes, fewer rounds")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--only", choices=GROUPS, action="append", help="this group; may be given more than once")
    parser.add_argument("--dir", type=Path, help="a folder of the disk that is measured")
    parser.add_argument("--write", action="store_true", help="put the lines into docs/performance.md")
    asked = parser.parse_args()
    for tool in ("strace", "cp", "sync", "stat", KEEPER[0]):
        if shutil.which(tool) is None:
            sys.exit(f"bench: {tool} is missing: scripts/setup dev installs it")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    lines = []
    with stage(asked.dir, asked.quick) as here:
        for name in asked.only or GROUPS:
            for line in GROUPS[name](here):
                lines.append(line)
                if not asked.json:
                    print(line, flush=True)
    print(as_json(lines) if asked.json else closing(lines))
    if asked.write:
        write(lines, _kind(asked.dir or Path(tempfile.gettempdir())))
    return 1 if any(line.met is False for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
