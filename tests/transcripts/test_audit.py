"""Verify and repair: one flipped bit anywhere in what is kept or sealed is told with its place, and mended; a seal
whose end was torn off by a kill is none."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from keeper.transcripts import seal
from keeper.transcripts.audit import repair
from keeper.transcripts.frame import Frame, walk
from keeper.transcripts.keep import Options, keep_session
from keeper.transcripts.verify import Verified, slice_of, verify
from tests.build import CWD, answer, append, jsonl, meta, prompt, session_id, talk, write_live
from tests.chat import put
from tests.damage import cut_lines, flip, keep_at, other_seal, seal_of
from tests.seam import World, lines_of, names_of_ours, twice_or_missing, world

SIDE = talk(["s1", "s2", "s3"])


def conversation(turns: int) -> list[list[bytes]]:
    """Turns of some kilobytes each, with lines that have no uuid, and answers that nothing hangs on."""
    dice = random.Random(1)
    found: list[list[bytes]] = []
    last = None
    for turn in range(turns):
        said = "".join(dice.choice("abcdefgh ") for _ in range(1500))
        one = [
            prompt(f"p{turn}", last, said),
            answer(f"x{turn}", f"p{turn}", said[:80]),
            answer(f"a{turn}", f"p{turn}"),
        ]
        found.append([*one, meta("last-prompt", leafUuid=f"a{turn}", lastPrompt=str(turn))])
        last = f"a{turn}"
    return found


TURNS = conversation(48)
LINES = [line for turn in TURNS for line in turn]


def sealed(place: Path) -> World:
    """A chat of 96 kB, sealed in several turns with a fold among them, with a subagent and other files."""
    (place / "profile" / "projects").mkdir(parents=True)
    here = world(place / "profile", place / "vault", place / "state")
    live = write_live(here.profile, CWD, here.session, jsonl(*LINES[:160]))
    put(here.companion / "subagents" / "agent-1.jsonl", jsonl(*SIDE))
    put(here.companion / "tool-results" / "x.txt", b"a long output\n" * 50)
    put(here.profile / "file-history" / here.session / "de5f4b6f867ced73@v1", b"before the edit\n")
    here.keep()
    append(live, jsonl(*LINES[160:168]))
    here.keep()
    write_live(here.profile, CWD, here.session, jsonl(*LINES[168:180]))
    assert here.keep().action == "folded"
    append(live, jsonl(*LINES[180:]))
    here.keep()
    assert bytes(seal.read(str(seal_of(here))).content) == here.kept.read_bytes() == jsonl(*LINES)
    return here


@pytest.fixture
def here(tmp_path: Path) -> World:
    return sealed(tmp_path)


def looked_through(here: World, names: list[str] | None = None) -> Verified:
    vault = here.vault()
    try:
        return verify(vault, names)
    finally:
        vault.index.close()


def repaired(here: World) -> None:
    """As `keeper verify --repair` does it."""
    vault = here.vault()
    try:
        repair(vault, here.session, time.time())
        keep_session(vault, here.session, time.time(), Options(chat=here.session), here.profile)
    finally:
        vault.index.close()


# ------------------------------------------------------------------ one bit


@dataclass(frozen=True, slots=True)
class Rot:
    """One flipped bit: in which file, how far into it (in thousandths), which bit; with the live file there or not."""

    file: str
    place: int
    bit: int
    swept: bool


def rotting(here: World, rot: Rot) -> tuple[Path, int]:
    """The file, and the place in it."""
    files = {
        "transcript": here.kept,
        "agent": here.kept_companion / "subagents" / "agent-1.jsonl",
        "result": here.kept_companion / "tool-results" / "x.txt",
        "history": here.chat / "extras" / "file-history" / here.session / "de5f4b6f867ced73@v1",
        "seal": seal_of(here),
        "agent's seal": next(path for path in (here.chat / "seal").iterdir() if "agent-1" in path.name),
        "other files' seal": other_seal(here),
    }
    path = files[rot.file]
    return path, rot.place * (path.stat().st_size - 1) // 1000


FILES = ["transcript", "agent", "result", "history", "seal", "agent's seal", "other files' seal"]
ROTS = st.builds(Rot, st.sampled_from(FILES), st.integers(0, 1000), st.integers(0, 7), st.booleans())


@pytest.fixture
def ground(tmp_path: Path) -> Path:
    """Where a sealed chat stands at `now`, and a copy of all of it, its hard links too, at `saved`."""
    sealed(tmp_path / "now")
    subprocess.run(["cp", "-a", tmp_path / "now", tmp_path / "saved"], check=True)
    return tmp_path


def anew(ground: Path) -> World:
    """The chat as it was sealed."""
    shutil.rmtree(ground / "now")
    subprocess.run(["cp", "-a", ground / "saved", ground / "now"], check=True)
    return world(ground / "now" / "profile", ground / "now" / "vault", ground / "now" / "state")


@pytest.mark.accepts("SEAL-4")
@given(rot=ROTS)
@example(Rot("transcript", 500, 0, swept=False))
@example(Rot("transcript", 500, 0, swept=True))
@example(Rot("transcript", 998, 0, swept=False))
@example(Rot("transcript", 1000, 0, swept=False))
@example(Rot("transcript", 1000, 0, swept=True))
@example(Rot("agent", 900, 1, swept=False))
@example(Rot("seal", 1000, 0, swept=True))
@example(Rot("seal", 500, 3, swept=False))
@example(Rot("other files' seal", 300, 4, swept=True))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_one_flipped_bit_is_told_with_its_place_and_repaired_without_a_loss(ground: Path, rot: Rot) -> None:
    here = anew(ground)
    if rot.swept:
        shutil.rmtree(here.profile / "projects")
    path, at = rotting(here, rot)
    others = {one: one.read_bytes() for one in (rotting(here, Rot(name, 0, 0, False))[0] for name in FILES[2:4])}
    whole = path.read_bytes()
    flip(path, at, rot.bit)

    found = looked_through(here)
    place = str(path.relative_to(here.chat))
    told = [fault for fault in found.faults if fault.file == place]
    assert told, f"not found: {found.faults} {found.notes}"
    assert {(fault.chat, fault.session) for fault in found.faults} == {(here.session, here.session)}
    if rot.file == "transcript":
        assert {fault.record for fault in told} <= names_at(whole, at)
    elif rot.file == "agent":
        assert told[0].record in ("s1", "s2", "s3")
    elif "seal" in rot.file:
        assert all(fault.record for fault in told), "which record it is that is not proven any more"

    repaired(here)
    after = looked_through(here)
    assert after.faults == ()
    assert twice_or_missing(here.kept, LINES) == {}
    agent = here.kept_companion / "subagents" / "agent-1.jsonl"
    assert twice_or_missing(agent, SIDE) == {}
    assert set(lines_of(here.kept)) | set(lines_of(agent)) == {*LINES, *SIDE}, "of two versions Claude reads the later"
    if not rot.swept:
        assert here.live.read_bytes() == here.kept.read_bytes()
    assert {one: one.read_bytes() for one in others} == others
    assert bytes(seal.read(str(seal_of(here))).content) == here.kept.read_bytes()
    assert names_of_ours(here.profile, here.root) == []


def names_at(data: bytes, at: int) -> set[str]:
    """What the line at that place may be called: its uuid or its number; where it ends, the next one's too."""
    first = data[:at].count(b"\n")
    found = set()
    for number in (first, first + 1):
        found.add(f"line {number + 1}")
        line = data.split(b"\n")[number]
        if b'"uuid":"' in line:
            found.add(line.partition(b'"uuid":"')[2].partition(b'"')[0].decode())
    return found


@pytest.mark.accepts("SEAL-4")
def test_a_whole_vault_has_no_faults_and_looking_writes_nothing(here: World) -> None:
    from tests.seam import changes_of

    found = looked_through(here)
    assert (found.faults, found.notes, found.records) == ((), (), len(LINES))
    assert changes_of(lambda: looked_through(here)) == []


@pytest.mark.accepts("SEAL-4")
def test_a_damaged_seal_is_set_aside_whole_before_another_takes_its_place(here: World) -> None:
    for path in (seal_of(here), other_seal(here)):
        flip(path, path.stat().st_size // 2, 2)
        damaged = path.read_bytes()
        repaired(here)
        assert looked_through(here).faults == ()
        assert damaged in [one.read_bytes() for one in (here.chat / "aside").iterdir()]


@pytest.mark.accepts("SEAL-4", "SEAL-1")
@pytest.mark.parametrize("grown", [False, True])
def test_a_damaged_seal_is_told_and_repaired_also_after_a_keep_sealed_anew_what_it_lacked(
    here: World, grown: bool
) -> None:
    for at in (0.2, 0.6, 0.95):
        flip(seal_of(here), int(seal_of(here).stat().st_size * at), 3)
        if grown:
            append(here.live, jsonl(meta("mode", mode=str(at))))
        tail = lines_of(here.live)[-2:]
        write_live(here.profile, CWD, here.session, jsonl(*tail, meta("mode", mode=f"later {at}")))
        here.keep()  # a fold: the seal is read through, and a splice put behind it
        here.keep()
        found = looked_through(here)
        assert {fault.file for fault in found.faults} == {f"seal/{here.session}.jsonl.seal"}, at
        assert any(fault.record for fault in found.faults), at
        repaired(here)
        assert looked_through(here).faults == ()
        assert twice_or_missing(here.kept, [line for line in LINES if b'"uuid":"' in line]) == {}
        assert bytes(seal.read(str(seal_of(here))).content) == here.kept.read_bytes()


@pytest.mark.accepts("SEAL-4")
def test_a_kept_file_and_its_seal_that_are_damaged_in_different_places_make_a_whole_again(here: World) -> None:
    shutil.rmtree(here.profile / "projects")
    flip(here.kept, here.kept.read_bytes().index(LINES[4]) + 100, 1)
    flip(seal_of(here), seal_of(here).stat().st_size - 60, 1)
    assert len({fault.file for fault in looked_through(here).faults}) == 2
    repaired(here)
    assert looked_through(here).faults == ()
    assert twice_or_missing(here.kept, LINES) == {}


@pytest.mark.accepts("SEAL-4")
@pytest.mark.parametrize("name", ["tool-results/x.txt", "subagents/agent-1.jsonl"])
def test_a_kept_file_that_is_gone_is_told_and_comes_back_from_the_seal(here: World, name: str) -> None:
    gone = here.kept_companion / name
    whole = gone.read_bytes()
    shutil.rmtree(here.profile / "projects")
    gone.unlink()
    (fault,) = looked_through(here).faults
    assert (fault.session, fault.file) == (here.session, f"{here.session}/{name}")
    repaired(here)
    assert gone.read_bytes() == whole
    assert looked_through(here).faults == ()


@pytest.mark.accepts("SEAL-4")
def test_a_kept_transcript_that_is_gone_comes_back_from_the_seal(here: World) -> None:
    shutil.rmtree(here.profile / "projects")
    here.kept.unlink()
    assert looked_through(here).faults
    repaired(here)
    assert lines_of(here.kept) == LINES
    assert looked_through(here).faults == ()


@pytest.mark.accepts("SEAL-4", "SEAL-1")
def test_records_cut_from_a_kept_file_are_told_until_they_are_back(here: World) -> None:
    shutil.rmtree(here.profile / "projects")
    cut_lines(here.kept, 100)
    (fault,) = looked_through(here).faults
    assert (fault.file, fault.record) == (f"{here.session}.jsonl", "p25")
    assert str(len(LINES) - 100) in fault.kind
    repaired(here)
    assert looked_through(here).faults == ()
    assert lines_of(here.kept) == LINES


@pytest.mark.accepts("SEAL-4", "SEAL-1")
def test_a_turn_is_sealed_whatever_bit_of_the_last_header_is_off(small: World) -> None:
    """A keep reads of a seal the last header alone, and hangs the next frame on it. (Rot of what is packed behind it
    costs the frames up to the next that stands for itself, until a verify.)"""
    path, turn = seal_of(small), talk("ef", parent="d")
    whole, size = path.read_bytes(), small.live.stat().st_size
    (*_, (start, last)) = walk(str(path))
    assert isinstance(last, Frame)
    packed = range(len(whole) - 12 - last.packed, len(whole) - 12)
    for at in [at for at in range(start, len(whole)) if at not in packed]:
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at % 8
        path.write_bytes(damaged)
        append(small.live, jsonl(*turn))
        small.keep()
        known = seal.read(str(path)).whole_lines()
        assert set(turn) <= set(known.splitlines()), f"byte {at} of {len(whole)}"
        os.truncate(small.live, size)
        path.write_bytes(whole)


# ------------------------------------------------------------------ a torn end


@pytest.fixture
def small(tmp_path: Path) -> World:
    """A chat of four lines, sealed in two turns, with one other file that was sealed twice."""
    (tmp_path / "profile" / "projects").mkdir(parents=True)
    here = world(tmp_path / "profile", tmp_path / "vault", tmp_path / "state")
    live = write_live(here.profile, CWD, here.session, jsonl(*talk("ab")))
    result = put(here.companion / "tool-results" / "x.txt", b"out\n")
    here.keep()
    append(live, jsonl(*talk("cd", parent="b")))
    append(result, b"and more\n")
    here.keep()
    return here


def last_frame_bytes(path: Path) -> int:
    return int.from_bytes(path.read_bytes()[-12:-4], "little")


@pytest.mark.accepts("SEAL-4", "KEEP-17")
@pytest.mark.parametrize("seal_at", [seal_of, other_seal], ids=["the transcript's", "the other files'"])
def test_a_seal_that_was_torn_off_at_any_byte_is_noted_and_mended_by_the_next_keep(
    small: World, seal_at: Callable[[World], Path]
) -> None:
    path = seal_at(small)
    for lacking in range(1, last_frame_bytes(path) + 1):
        os.truncate(path, path.stat().st_size - lacking)
        found = looked_through(small)
        assert found.faults == (), f"{lacking} bytes of the last frame are not there"
        assert found.notes, f"{lacking} bytes"
        small.keep()
        assert looked_through(small) == Verified(1, 4, (), ()), f"{lacking} bytes"
        assert bytes(seal.read(str(seal_of(small))).content) == jsonl(*talk("abcd"))


@pytest.mark.accepts("SEAL-4", "KEEP-17")
@pytest.mark.parametrize("seal_at", [seal_of, other_seal], ids=["the transcript's", "the other files'"])
def test_a_first_seal_that_was_torn_off_at_any_byte_is_begun_anew(
    small: World, seal_at: Callable[[World], Path]
) -> None:
    path = seal_at(small)
    path.unlink()
    small.keep()
    for size in range(path.stat().st_size):
        os.truncate(path, size)
        assert looked_through(small).faults == (), f"{size} bytes of it are there"
        small.keep()
        assert looked_through(small) == Verified(1, 4, (), ()), f"{size} bytes of it were there"


@pytest.mark.accepts("SEAL-4", "SEAL-1")
def test_a_file_that_is_cut_short_while_its_seals_end_is_torn_off_has_all_that_its_whole_frames_tell(
    small: World,
) -> None:
    """A kill in mid-append, then damage in place: one run mends both."""
    os.truncate(seal_of(small), seal_of(small).stat().st_size - 20)
    cut_lines(small.live, 1)
    small.keep()
    assert lines_of(small.kept) == talk("ab")
    assert looked_through(small).faults == ()


# ------------------------------------------------------------------ a part of them a day


@pytest.mark.accepts("SEAL-4")
@pytest.mark.parametrize("days", [1, 7, 30])
def test_all_chats_come_round_in_so_many_days_each_on_one_of_them(days: int) -> None:
    names = [session_id(n) for n in range(1, 400)]
    slices = [slice_of(names, days, day * 86400 + 5000) for day in range(days)]
    assert sorted(name for one in slices for name in one) == sorted(names)
    assert slice_of(names, days, days * 86400) == slices[0], "and again from the start"
    assert max(map(len, slices)) < 3 * len(names) / days
    assert slice_of(names, days, 3600) == slice_of(names, days, 86399), "one slice all day long"


@pytest.mark.accepts("SEAL-4")
def test_a_slice_looks_at_no_other_chat(here: World) -> None:
    other = here.about(session_id(2))
    write_live(other.profile, CWD, other.session, jsonl(*talk("ab", other.session)))
    keep_at(other, time.time())
    flip(here.kept, 50, 0)
    assert looked_through(here, [other.session]).faults == ()
    assert looked_through(here, [here.session]).faults != ()
