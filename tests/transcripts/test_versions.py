"""The seal of a chat's other files: a large one is sealed in parts, none of them held in memory for longer than it
takes, and is one version all the same."""

from __future__ import annotations

import os
import random
import shutil
import time
import tracemalloc
from pathlib import Path

import pytest

from keeper.transcripts import versions
from keeper.transcripts.audit import repair
from keeper.transcripts.frame import walk
from keeper.transcripts.verify import Verified, verify
from keeper.transcripts.versions import Versions
from tests.build import CWD, append, jsonl, talk, write_live
from tests.chat import put
from tests.damage import flip, other_seal
from tests.seam import World, changes_of, killed_at, names_of_ours, world

NAME = "tool-results/large.bin"


@pytest.fixture
def here(profile: Path, vault_home: Path, tmp_path: Path) -> World:
    here = world(profile, vault_home, tmp_path / "state")
    write_live(here.profile, CWD, here.session, jsonl(*talk("ab")))
    return here


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of 100 bytes, so that a small file is a large one."""
    monkeypatch.setattr(versions, "PART", 100)


def large(here: World, size: int = 730) -> bytes:
    data = random.Random(size).randbytes(size)
    put(here.companion / NAME, data)
    return data


def looked_through(here: World) -> Verified:
    vault = here.vault()
    try:
        return verify(vault)
    finally:
        vault.index.close()


def sealed(here: World) -> object:
    return Versions(str(other_seal(here))).content(f"{here.session}/{NAME}")


@pytest.mark.accepts("SEAL-3")
def test_a_file_of_any_size_is_sealed_with_little_of_it_in_memory(here: World) -> None:
    size = 12 * versions.PART
    data = large(here, size)
    here.keep()
    append(here.companion / NAME, b"more")
    tracemalloc.start()
    try:
        here.keep()
        assert tracemalloc.get_traced_memory()[1] < size / 2
    finally:
        tracemalloc.stop()
    assert sealed(here) == data + b"more"
    assert changes_of(here.keep) == []


@pytest.mark.usefixtures("parts")
@pytest.mark.accepts("SEAL-1", "SEAL-3")
@pytest.mark.parametrize("size", [99, 100, 101, 200, 730])
def test_a_file_in_parts_is_one_version_that_comes_back_whole(here: World, size: int) -> None:
    data = large(here, size)
    assert here.keep().error is None
    assert len(list(walk(str(other_seal(here))))) == -(-size // 100)
    assert sealed(here) == data
    assert looked_through(here) == Verified(1, 2, (), ())
    assert changes_of(here.keep) == []
    os.truncate(here.companion / NAME, size // 2)
    here.keep()
    assert (here.kept_companion / NAME).read_bytes() == data
    shutil.rmtree(here.live.parent)
    here.restore()
    assert (here.companion / NAME).read_bytes() == data
    append(here.companion / NAME, b"more")
    here.keep()
    assert sealed(here) == data + b"more"
    assert not (here.chat / "aside").exists(), "a file that grew is no other version"
    put(here.companion / NAME, data[::-1] * 2)
    here.keep()
    assert sealed(here) == data[::-1] * 2
    assert data + b"more" in [one.read_bytes() for one in (here.chat / "aside").iterdir()]
    assert looked_through(here).faults == ()


@pytest.mark.usefixtures("parts")
@pytest.mark.accepts("FAULT-1", "SEAL-1")
def test_killed_before_any_change_of_its_sealing_the_next_keep_seals_it_whole(here: World, tmp_path: Path) -> None:
    here.keep()
    count = 0
    while True:
        data = large(here, 330 + count)  # longer than the last, on another inode
        killed = killed_at(count, here.keep)
        here.keep()
        assert sealed(here) == data, f"killed at {count}"
        assert looked_through(here) == Verified(1, 2, (), ()), f"killed at {count}"
        assert names_of_ours(here.profile, here.root) == []
        if not killed:
            break
        count += 1
    assert count > 8, "it was killed between the parts"


@pytest.mark.usefixtures("parts")
@pytest.mark.accepts("SEAL-4")
def test_a_flipped_bit_in_any_part_is_told_and_repaired(here: World) -> None:
    data = large(here)
    other = put(here.companion / "tool-results" / "small.txt", b"small")
    here.keep()
    whole = other_seal(here).read_bytes()
    for at in range(0, len(whole), 37):
        flip(other_seal(here), at, at % 8)
        found = looked_through(here)
        assert {fault.file for fault in found.faults} == {"seal/files.seal"}, at
        vault = here.vault()
        repair(vault, here.session, time.time())
        vault.index.close()
        assert looked_through(here) == Verified(1, 2, (), ()), at
        assert sealed(here) == data
        assert (here.kept_companion / "tool-results" / "small.txt").samefile(other)
        other_seal(here).write_bytes(whole)
    flip(here.kept_companion / NAME, 500, 3)
    assert [fault.file for fault in looked_through(here).faults] == [f"{here.session}/{NAME}"]
    vault = here.vault()
    repair(vault, here.session, time.time())
    vault.index.close()
    assert (here.kept_companion / NAME).read_bytes() == data
