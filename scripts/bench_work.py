"""What `bench.py` measures in a process of its own: a cold merge, the yardstick's folders, the keep of a turn.

    bench_work.py merge KEPT LIVE · bench_work.py folders ROOT NAME... · bench_work.py turn ROUNDS VAULT TRANSCRIPT...
    bench_work.py seal_sizes FIXTURES

Prints one JSON object of figures; keys that end in `_s` are seconds. It imports what it measures before it begins.
"""

import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import bench_data

from keeper import disk, settings
from keeper.transcripts import seal
from keeper.transcripts.keep import keep_session
from keeper.transcripts.merge import merge
from keeper.transcripts.vault import Vault

Figures = dict[str, float]
TURN = 8192
"""Bytes of a turn, as a seal meets it."""


def cold_merge(kept: str, live: str) -> Figures:
    """One merge, cold: seconds by the clock and of the processor, and the most memory beyond what was held before."""
    bare = _peak()
    ours, theirs = Path(kept).read_bytes(), Path(live).read_bytes()
    begun, cpu = time.perf_counter(), time.process_time()
    size = len(merge(ours, theirs).data)
    took, cpu = time.perf_counter() - begun, time.process_time() - cpu
    return {"took_s": took, "cpu_s": cpu, "peak": _peak() - bare, "given": len(ours) + len(theirs), "merged": size}


def _peak() -> int:
    """The most bytes this process had in memory. Not by getrusage: there a child begins with its parent's peak."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def folders(root: str, *names: str) -> Figures:
    """The second half of the first pass's yardstick: a folder with two small files for each name, then one barrier."""
    begun = time.perf_counter()
    os.mkdir(root)
    for name in names:
        folder = f"{root}/{name}"
        os.mkdir(folder)
        for file in ("one", "two"):
            with open(f"{folder}/{file}", "wb") as stream:
                stream.write(b"x" * 500)
    disk.sync_volume(root)
    return {"took_s": time.perf_counter() - begun}


def turn(rounds: str, vault: str, *transcripts: str) -> Figures:
    """The keep of a turn without an interpreter's start, the transcripts in turn: the median seconds of each."""
    env = settings.load({**os.environ, "KEEPER_HOME": vault, "XDG_STATE_HOME": f"{vault}.state"})
    profile = Path(transcripts[0]).parents[2]
    found: dict[str, list[float]] = {path: [] for path in transcripts}
    for _ in range(int(rounds)):
        for path in transcripts:
            bench_data.append_turn(Path(path))
            begun = time.perf_counter()
            keep_session(Vault.open(env), Path(path).stem, time.time(), profile=profile)
            found[path].append(time.perf_counter() - begun)
    return {path: statistics.median(seconds) for path, seconds in found.items()}


def seal_sizes(fixtures: str) -> Figures:
    """Seals of transcripts that the real CLI wrote, 8 kB at a time, then repacked: their bytes by the transcripts'."""
    whole = turns = repacked = files = 0
    with tempfile.TemporaryDirectory() as folder:
        for number, path in enumerate(sorted(Path(fixtures).glob("*/*/projects/*/*.jsonl"))):
            data = path.read_bytes()
            if len(data) < 30_000:
                continue
            live, name = Path(folder, "live"), f"{folder}/{number}"
            last = None
            for end in [*range(TURN, len(data), TURN), len(data)]:
                live.write_bytes(data[: data.rfind(b"\n", 0, end) + 1])
                with live.open("rb") as stream:
                    last = seal.grow(name, last, stream.fileno(), end, sync=False)
            whole, files, turns = whole + len(data), files + 1, turns + os.path.getsize(name)
            seal.repack(name, f"{name}.new")
            repacked += os.path.getsize(name)
    return {"files": files, "bytes": whole, "turns": turns / whole, "repacked": repacked / whole}


WORK: dict[str, Callable[..., Figures]] = {"merge": cold_merge, "folders": folders, "turn": turn}
WORK["seal_sizes"] = seal_sizes

if __name__ == "__main__":
    print(json.dumps(WORK[sys.argv[1]](*sys.argv[2:])))
