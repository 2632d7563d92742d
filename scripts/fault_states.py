"""States: where runs under trial begin: a situation, how it is kept, what a killed run left, which deed is tried.

It promises that a state is told by its name alone, and that every combination of the product below that makes sense is
there. It refuses chance: two builds are alike.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from math import gcd
from pathlib import Path

from fault_grounds import Seam, Snapshot, Volumes, play, refusal
from fault_oracle import Thread, of
from fault_situations import SITUATIONS, Stage, diverged

from keeper.errors import KeeperError
from tests.build import jsonl, meta, prompt, session_id, talk
from tests.seam import world

MODES = ("link", "copy", "split", "no links", "no exchange")
LEFT = ("nothing", "half a keep", "most of a keep", "half a restore, and Claude went on")
DEEDS = (
    "keep", "restore", "restore --full", "profile pass", "restore --all", "forget", "--through", "--branch",
    "--repaired", "--at", "--at in place", "accept",
)  # fmt: skip
MANY = ("profile pass", "restore --all")
"""Deeds that see to more than one session; their states have two more."""


@dataclass(frozen=True, slots=True)
class State:
    """A start state and the deed that is tried on it."""

    situation: str
    mode: str
    companion: bool
    left: str
    deed: str

    def __str__(self) -> str:
        parts = [self.situation, self.mode, "companion" if self.companion else "alone", f"left: {self.left}", self.deed]
        return " · ".join(parts)


# ------------------------------------------------------------------ the product


def states() -> Iterator[State]:
    """Every state of the product with every deed, in an order in which each stretch has a bit of all."""
    whole = list(product(SITUATIONS, MODES, (False, True), LEFT, DEEDS))
    step = next(n for n in range(int(len(whole) * 0.618), len(whole)) if gcd(n, len(whole)) == 1)
    for number in range(len(whole)):
        state = State(*whole[number * step % len(whole)])
        if not (state.situation == "first" and state.mode == "split"):
            yield state


# ------------------------------------------------------------------ building one


def build(state: State, volumes: Volumes) -> Stage:
    """The state, in folders of the volumes that are made for it."""
    two = volumes.two if state.mode == "copy" and volumes.two is not None else volumes.one
    for place in (volumes.one, volumes.two):
        for name in ("profile", "vault", "state") if place is not None else ():
            shutil.rmtree(place / name, ignore_errors=True)
    (two / "profile" / "projects").mkdir(parents=True)
    here = world(two / "profile", volumes.one / "vault", volumes.one / "state", lock_wait_s=0.2)
    thread = Thread("main", here.kept, [])
    stage = Stage(here, state.mode, thread)
    play(here.vault, Seam())
    _begin(stage, state)
    SITUATIONS[state.situation](stage)
    if state.companion:
        _change_companion(stage, state.situation)
    if state.deed in MANY:
        _others(stage, state.deed)
    _leave(stage, state.left, volumes.pools)
    return stage


def _begin(stage: Stage, state: State) -> None:
    title = meta("custom-title", customTitle="the title", sessionId=stage.here.session)
    opening = stage.say(4, None)
    stage.put([title, *opening[:2], meta("mode", mode="default"), *opening[2:]])
    if state.companion:
        _companion(stage)
    if state.situation != "first":
        stage.keep()
    if state.mode == "split":
        diverged(stage)
        stage.keep()


def _side(stage: Stage, number: int, uuids: list[str], parent: str | None) -> list[bytes]:
    lines = []
    for uuid in uuids:
        more = {"isSidechain": True, "agentId": f"a{number}"}
        lines.append(prompt(uuid, parent, session=stage.here.session, **more))
        parent = uuid
    return lines


def _companion(stage: Stage) -> None:
    """Two subagents' transcripts, one of the older layout, tool results, a file's history."""
    here = stage.here
    for number, path, kept in (
        (1, here.companion / "subagents" / "agent-a1.jsonl", here.kept_companion / "subagents" / "agent-a1.jsonl"),
        (2, here.live.parent / "agent-a2.jsonl", here.chat / "extras" / "beside" / here.session / "agent-a2.jsonl"),
    ):
        lines = _side(stage, number, [f"s{number}", f"t{number}"], None)
        _write(path, jsonl(*lines))
        stage.sides.append(Thread(path.name, kept, [path], main=False, wanted=dict.fromkeys(lines)))
    for path, name, data in (
        (here.companion / "tool-results" / "x.txt", f"{here.session}/tool-results/x.txt", b"out\n"),
        (here.companion / "tool-results" / "y.txt", f"{here.session}/tool-results/y.txt", b"why\n"),
        (here.profile / "file-history" / here.session / "f@v1", f"extras/file-history/{here.session}/f@v1", b"was\n"),
    ):
        _write(path, data)
        stage.files[name] = data


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def _change_companion(stage: Stage, situation: str) -> None:
    """One result longer on a file of its own, one taken by a sweep, a subagent's transcript made anew, one grown."""
    here = stage.here
    if situation.startswith(("swept", "gone")) or situation == "first":
        return
    companion = stage.thread.lives[0].with_suffix("") if situation == "moved" else here.companion
    stage.sides[0].lives = [companion / "subagents" / "agent-a1.jsonl"]
    _write(companion / "tool-results" / "x.txt", b"out, and more\n")
    stage.files[f"{here.session}/tool-results/x.txt"] = b"out, and more\n"
    (companion / "tool-results" / "y.txt").unlink()
    more = _side(stage, 1, ["u1", "v1"], "t1")
    _write(stage.sides[0].lives[0], jsonl(*more))
    stage.sides[0].wanted.update(dict.fromkeys(more))
    grown_side = _side(stage, 2, ["u2"], "t2")
    with stage.sides[1].lives[0].open("ab") as stream:
        stream.write(jsonl(*grown_side))
    stage.sides[1].wanted.update(dict.fromkeys(grown_side))


def _others(stage: Stage, deed: str) -> None:
    """A fork of the session, kept and then made anew by its Claude, and a session that nobody kept yet."""
    here = stage.here
    for number, name in ((2, "fork"), (3, "new")):
        other = here.about(session_id(number))
        copied = [line.replace(here.session.encode(), other.session.encode()) for line in list(stage.thread.wanted)[:4]]
        lines = copied if number == 2 else talk(["n1", "n2"], other.session)
        _write(other.live, jsonl(*lines))
        if number == 2:
            play(other.keep, Seam(refusal(stage.mode)))
            more = talk(["f1", "f2"], other.session, str(of(copied[-1]).get("uuid") or of(copied[-2])["uuid"]))
            _write(other.live, jsonl(*more))
            lines = lines + more
        elif deed == "restore --all":
            play(other.keep, Seam(refusal(stage.mode)))
        stage.sides.append(Thread(name, other.kept, [other.live], wanted=dict.fromkeys(lines)))


def _leave(stage: Stage, left: str, pools: dict[int, Path]) -> None:
    """What an earlier run left that was killed."""
    if left == "nothing":
        return
    run = stage.here.restore if "restore" in left else stage.here.keep
    counted = Seam(refusal(stage.mode))
    before = Snapshot([stage.here.profile, stage.here.root, stage.here.settings.state_home], pools)
    with suppress(KeeperError):  # nothing is kept yet, or from where must be said
        play(run, counted)
    before.rewind()
    before.forget()
    number = len(counted.calls) * (3 if "most" in left else 2) // 4
    with suppress(KeeperError):
        play(run, Seam(refusal(stage.mode), kill_at=number))
    if "went on" in left:
        lives = [path for path in stage.thread.lives if path.exists()]
        path = stage.here.live if stage.here.live in lives or not lives else lives[-1]
        torn = path.read_bytes().rpartition(b"\n")[2] if lives else b""
        if torn:
            stage.end_line(path, torn)  # as the CLI does from 2.1.297 on
        stage.grow(stage.say(2, stage.tip, "w"), path=path)
