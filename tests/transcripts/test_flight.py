"""In flight: what a writer wrote to a file that keeper exchanged lands in the live one, also when its chat goes."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from keeper.transcripts import swap
from keeper.transcripts.exclude import Exclusion
from keeper.transcripts.forget import forget
from keeper.transcripts.keep import Keeper, Options
from keeper.transcripts.prune import carry_out, plan
from keeper.transcripts.rules import Rule
from tests.build import CWD, jsonl, prompt, talk, write_live
from tests.seam import World, hooked, killed_at, lines_of, names_of_ours, refusing, twice_or_missing, world

SECRET = Rule.of({"cwd": f"{CWD}/**"})
Goes = Callable[[World], None]


@pytest.fixture
def here(profile: Path, vault_home: Path, tmp_path: Path) -> World:
    return world(profile, vault_home, tmp_path / "state")


def excluded(here: World) -> None:
    exclusion = Exclusion(here.vault())
    exclusion.say("add", SECRET, time.time())
    exclusion.apply()


def tagged(here: World) -> None:
    Exclusion(here.vault()).say("add", Rule.of({"tag": "gone"}), time.time())
    assert here.keep(Options(tags=("gone",))).action == "removed"


def forgotten(here: World) -> None:
    forget(here.vault(), here.session, time.time())


def pruned(here: World) -> None:
    vault = replace(here, settings=replace(here.settings, keep_for_s=1)).vault()
    gone = carry_out(vault, plan(vault, time.time()), True, time.time())
    assert not gone.stayed, gone


GOES = [excluded, tagged, forgotten, pruned]


def exchanged(live: Path, keep: Callable[[], object]) -> tuple[int, list[bytes]]:
    """A transcript that was swept and recreated by one who holds it open, and folded: the writer's descriptor, which
    is no live file any more, and the lines of live."""
    kept = jsonl(*talk("abcd"))
    live.parent.mkdir(parents=True, exist_ok=True)
    live.write_bytes(kept)
    keep()
    live.unlink()
    writer = os.open(live, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(writer, jsonl(prompt("n0", "d")))
    keep()
    assert os.fstat(writer).st_ino != os.stat(live).st_ino, "it was not exchanged"
    return writer, lines_of(live)


def left(here: World) -> list[str]:
    """What of a chat is in the vault still."""
    return [str(path) for name in ("chats", "going") for path in here.root.glob(f"{name}/*")]


@pytest.mark.accepts("SWAP-2", "SWAP-5", "POLICY-2")
@pytest.mark.parametrize("goes", GOES, ids=lambda one: one.__name__)
def test_what_is_in_flight_as_a_chat_goes_lands_in_live_and_its_inode_stays_until_the_writer_ends(
    here: World, goes: Goes
) -> None:
    writer, lines = exchanged(here.live, here.keep)
    try:
        os.write(writer, jsonl(prompt("n1", "n0")))
        goes(here)
        lines.append(prompt("n1", "n0"))
        assert twice_or_missing(here.live, lines) == {}
        assert not here.chat.exists()
        assert left(here), "nothing has the inode any more that is still written to"
        os.write(writer, jsonl(prompt("n2", "n1")))
        lines.append(prompt("n2", "n1"))
    finally:
        os.close(writer)
    Keeper(here.vault(), time.time())
    assert lines_of(here.live) == lines
    assert left(here) == []
    assert names_of_ours(here.root, here.profile) == []
    assert here.vault().rows() == []


@pytest.mark.accepts("SWAP-2", "SWAP-5", "POLICY-2")
@pytest.mark.parametrize("goes", [excluded, forgotten], ids=lambda one: one.__name__)
def test_the_same_where_no_link_can_be_made_and_the_inode_is_held_beside_live(here: World, goes: Goes) -> None:
    with hooked(refusing("link", errno.EPERM)):
        writer, lines = exchanged(here.live, here.keep)
        try:
            assert names_of_ours(here.profile), "it is not held beside live"
            os.write(writer, jsonl(prompt("n1", "n0")))
            goes(here)
            os.write(writer, jsonl(prompt("n2", "n1")))
        finally:
            os.close(writer)
        Keeper(here.vault(), time.time())
    assert lines_of(here.live) == [*lines, prompt("n1", "n0"), prompt("n2", "n1")]
    assert left(here) == names_of_ours(here.profile) == []


@pytest.mark.accepts("SWAP-2", "POLICY-2")
def test_the_same_of_a_subagent(here: World) -> None:
    write_live(here.profile, CWD, here.session, jsonl(*talk("ab")))
    live = here.companion / "subagents" / "agent-a1b2.jsonl"
    writer, lines = exchanged(live, here.keep)
    try:
        os.write(writer, jsonl(prompt("n1", "n0")))
        excluded(here)
        os.write(writer, jsonl(prompt("n2", "n1")))
    finally:
        os.close(writer)
    Keeper(here.vault(), time.time())
    assert lines_of(live) == [*lines, prompt("n1", "n0"), prompt("n2", "n1")]
    assert left(here) == []


@pytest.mark.accepts("POLICY-2")
@pytest.mark.parametrize("goes", GOES, ids=lambda one: one.__name__)
def test_live_is_not_touched_where_no_line_would_be_lost_and_nothing_waits_for_what_is_swept(
    here: World, goes: Goes
) -> None:
    writer, _ = exchanged(here.live, here.keep)
    os.close(writer)
    was = os.stat(here.live), here.live.read_bytes()
    goes(here)
    assert (os.stat(here.live).st_ino, here.live.read_bytes()) == (was[0].st_ino, was[1])
    assert left(here) == []


@pytest.mark.accepts("POLICY-2")
def test_what_is_swept_has_nothing_to_land_in(here: World) -> None:
    writer, _ = exchanged(here.live, here.keep)
    try:
        os.write(writer, jsonl(prompt("n1", "n0")))
        here.live.unlink()
        excluded(here)
        assert left(here) == []
        assert not here.live.exists()
    finally:
        os.close(writer)


@pytest.mark.accepts("SWAP-2", "SWAP-5", "POLICY-2")
@pytest.mark.parametrize("goes", [excluded, forgotten], ids=lambda one: one.__name__)
def test_killed_at_any_step_of_it_the_next_keep_lands_it(
    here: World, goes: Goes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swap, "LEASE_WAIT_S", 0.02)
    for number in range(200):
        writer, lines = exchanged(here.live, lambda: here.keep(Options(adopt=True)))
        os.write(writer, jsonl(prompt("n1", "n0")))
        os.close(writer)
        killed = killed_at(number, lambda: goes(here))
        Keeper(here.vault(), time.time())
        excluded(here)
        assert twice_or_missing(here.live, [*lines, prompt("n1", "n0")]) == {}, f"killed at step {number}"
        assert left(here) == [], f"killed at step {number}"
        here.live.unlink()
        Exclusion(here.vault()).say("remove", SECRET, time.time())
        if not killed:
            break
    assert number > 10
