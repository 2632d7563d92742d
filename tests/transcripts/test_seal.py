"""The seal by itself: what is sealed is read back at every time, a bad byte costs no more than it must, and a turn
costs the turn's bytes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keeper.transcripts import seal
from keeper.transcripts.frame import PREFIX, RESTART, Bad, Frame, SealBroken, last_frame, walk
from keeper.transcripts.sealer import REPACK_FRAMES, REPACK_QUIET_S
from keeper.transcripts.verify import verify
from tests import build
from tests.build import CWD, append, jsonl, prompt, session_id, talk, write_live
from tests.chat import put
from tests.damage import keep_at, overwrite, seal_of
from tests.seam import World, changes_of, world

SECOND = 1_000_000_000


@pytest.fixture
def here(profile: Path, vault_home: Path, tmp_path: Path) -> World:
    return world(profile, vault_home, tmp_path / "state")


@dataclass
class Sealing:
    """A file that is sealed as it changes, with what it was at each time (in seconds)."""

    place: Path
    now: int = 0
    content: bytes = b""
    history: list[tuple[int, bytes]] = field(default_factory=list)

    @property
    def path(self) -> str:
        return str(self.place / "x.seal")

    def grow(self, more: bytes) -> None:
        self.content += more
        self.place.mkdir(exist_ok=True)
        (self.place / "x").write_bytes(self.content)
        fd = os.open(self.place / "x", os.O_RDONLY)
        try:
            last = last_frame(self.path)
            assert last is None or seal.holds(last, fd)
            seal.grow(self.path, last, fd, self._tick(), sync=False)
        finally:
            os.close(fd)
        self.history.append((self.now, self.content))

    def become(self, content: bytes) -> None:
        self.place.mkdir(exist_ok=True)
        self.content = content
        seal.splice(self.path, seal.read(self.path), content, self._tick(), sync=False)
        self.history.append((self.now, content))

    def _tick(self) -> int:
        self.now += 10
        return self.now * SECOND

    def at(self, second: float) -> bytes:
        """What the seal says it was then."""
        read = seal.read(self.path, int(second * SECOND))
        assert not read.bad
        return bytes(read.content)

    def repack(self) -> None:
        assert seal.repack(self.path, f"{self.path}.new")

    def proves_out(self) -> None:
        """Every time of its history, just before it, and long after."""
        before = b""
        for second, content in self.history:
            assert self.at(second - 1) == before, f"just before {second}"
            assert self.at(second) == content, f"at {second}"
            before = content
        assert self.at(10**9) == self.content


LINES = st.binary(max_size=40).map(lambda data: data.replace(b"\n", b"") + b"\n")
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("grow"), st.lists(LINES, min_size=1, max_size=8)),
        st.tuples(st.just("splice"), st.integers(0, 30), st.integers(0, 5), st.lists(LINES, max_size=4)),
        st.tuples(st.just("cut"), st.integers(0, 30)),
        st.tuples(st.just("repack")),
    ),
    max_size=12,
)


@pytest.mark.accepts("SEAL-5", "SEAL-4")
@given(changes=CHANGES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_was_sealed_at_any_time_is_read_back_through_folds_cuts_and_repacks(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[object, ...]]
) -> None:
    one = Sealing(tmp_path_factory.mktemp("seal"))
    for change in changes:
        lines = one.content.splitlines(keepends=True)
        match change:
            case ("grow", list(more)):
                one.grow(b"".join(more))
            case ("splice", int(at), int(count), list(more)):
                at = min(at, len(lines))
                one.become(b"".join([*lines[:at], *more, *lines[at + count :]]))
            case ("cut", int(count)):
                one.become(b"".join(lines[:count]))
            case _ if one.history and one.content and os.path.exists(one.path):
                one.repack()
    one.proves_out()


def long_one(place: Path) -> Sealing:
    """Over a restart and over a repacked frame: 6 MB in turns, a fold, turns again."""
    one = Sealing(place / "long")
    for number in range(12):
        one.grow(jsonl(*(prompt(f"{number}-{i}", None, os.urandom(300).hex()) for i in range(600))))
    lines = one.content.splitlines(keepends=True)
    one.become(b"".join([*lines[:1000], b"a late line\n", *lines[1000:]]))
    one.grow(jsonl(*talk("ab")))
    return one


@pytest.mark.accepts("SEAL-5")
def test_a_long_file_is_read_back_at_every_time_before_and_after_a_repack(tmp_path: Path) -> None:
    one = long_one(tmp_path)
    one.proves_out()
    one.repack()
    one.proves_out()
    one.grow(jsonl(*talk("cd", parent="b")))
    one.proves_out()
    one.repack()
    one.proves_out()


# ------------------------------------------------------------------ bad bytes


@pytest.mark.accepts("SEAL-4")
@pytest.mark.parametrize("repacked", [False, True])
def test_every_byte_of_a_seal_is_covered(tmp_path: Path, repacked: bool) -> None:
    one = Sealing(tmp_path / "short")
    one.grow(jsonl(*talk("ab")))
    one.grow(jsonl(*talk("cd", parent="b")))
    one.become(one.content.replace(b"answer b", b"another b"))
    one.grow(b"short\n")
    if repacked:
        one.repack()
    whole = Path(one.path).read_bytes()
    for at in range(len(whole)):
        bad = bytearray(whole)
        bad[at] ^= 1 << at % 8
        Path(one.path).write_bytes(bad)
        found = seal.read(one.path)
        assert found.bad, f"byte {at} of {len(whole)}"
        assert not found.torn, f"byte {at}: taken for what a kill leaves"
        assert set(found.whole_lines().splitlines()) <= {
            line for _, content in one.history for line in content.splitlines()
        }, f"byte {at}: a line that never was"


@pytest.mark.accepts("SEAL-4")
def test_a_bad_frame_costs_no_more_than_the_frames_up_to_the_next_restart(tmp_path: Path) -> None:
    one = Sealing(tmp_path / "x")
    for number in range(60):
        one.grow(jsonl(*(prompt(f"{number}-{i}", None, os.urandom(300).hex()) for i in range(80))))
    frames = [(at, frame) for at, frame in walk(one.path) if isinstance(frame, Frame)]
    at, bad = frames[25]
    overwrite(Path(one.path), at + 250, b"garbled")
    known = seal.read(one.path).whole_lines()
    lost = len(one.content) - len(known)
    assert 0 < lost <= RESTART + 2 * 80 * 800
    assert known.startswith(one.content[: bad.offset])
    assert one.content.endswith(known[bad.offset :])


@pytest.mark.accepts("SEAL-4", "SEAL-1")
def test_behind_a_bad_frame_sealing_goes_on_and_all_proves_out_that_is_sealed_anew(tmp_path: Path) -> None:
    one = Sealing(tmp_path / "x")
    for number in range(8):
        one.grow(jsonl(*talk([f"a{number}", f"b{number}"])))
    frames = [(at, frame) for at, frame in walk(one.path)]
    overwrite(Path(one.path), frames[3][0] + 250, b"x")
    one.become(one.content)
    one.grow(jsonl(*talk("yz")))
    one.become(one.content + jsonl(*talk(["z2"])))
    one.become(one.content.replace(b"answer b7", b"another b7"))
    found = seal.read(one.path)
    assert bytes(found.content) == found.whole_lines() == one.content
    assert not any(found.holes or b"")
    assert found.bad, "what is damaged in it is not forgotten"


@pytest.mark.accepts("SEAL-4")
def test_a_seal_that_does_not_prove_out_is_not_repacked(tmp_path: Path) -> None:
    one = Sealing(tmp_path / "x")
    one.grow(jsonl(*talk("ab")))
    one.grow(jsonl(*talk("cd", parent="b")))
    overwrite(Path(one.path), 250, b"x")
    before = Path(one.path).read_bytes()
    assert not seal.repack(one.path, f"{one.path}.new")
    assert Path(one.path).read_bytes() == before
    assert not os.path.exists(f"{one.path}.new")


@pytest.mark.accepts("SEAL-4")
def test_an_end_that_is_no_frames_is_told_and_what_is_before_it_is_known(tmp_path: Path) -> None:
    one = Sealing(tmp_path / "x")
    one.grow(jsonl(*talk("ab")))
    good = os.path.getsize(one.path)
    one.grow(jsonl(*talk("cd", parent="b")))
    for size in range(good + 1, os.path.getsize(one.path)):
        data = Path(one.path).read_bytes()
        Path(one.path).write_bytes(data[:size])
        with pytest.raises(SealBroken):
            last_frame(one.path)
        found = seal.read(one.path)
        assert (found.torn, found.good, bytes(found.content)) == (True, good, jsonl(*talk("ab")))
        *_, (at, last) = walk(one.path)
        assert (at, last) == (good, Bad(good, "torn"))
        Path(one.path).write_bytes(data)


# ------------------------------------------------------------------ what it costs (SEAL-3)


@dataclass
class Moved:
    """Bytes that a run read and wrote, wherever."""

    read: int = 0
    written: int = 0


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Moved]:
    """Counts what passes `os`; a read beside it would show as a file that is open and was not read."""
    moved = Moved()
    real_read, real_pread, real_write = os.read, os.pread, os.write

    def read(fd: int, size: int) -> bytes:
        data = real_read(fd, size)
        moved.read += len(data)
        return data

    def pread(fd: int, size: int, at: int) -> bytes:
        data = real_pread(fd, size, at)
        moved.read += len(data)
        return data

    def write(fd: int, data: bytes) -> int:
        done = real_write(fd, data)
        moved.written += done
        return done

    with monkeypatch.context() as patch:
        patch.setattr(os, "read", read)
        patch.setattr(os, "pread", pread)
        patch.setattr(os, "write", write)
        yield moved


def cost_of_a_turn(view: World, monkeypatch: pytest.MonkeyPatch, size: int, agent: bool) -> Moved:
    """A turn of 8 kB behind so many bytes; of a subagent, behind as many of its own."""
    filler = prompt("long", None, "a line of text \\n " * (size // 17), view.session)
    end = [prompt(f"p{i}", None, "x" * 4000, view.session) for i in range(60)]
    text = jsonl(filler, *end)
    live = write_live(view.profile, CWD, view.session, jsonl(*talk("ab", view.session)) if agent else text)
    if agent:
        live = put(view.companion / "subagents" / "agent-1.jsonl", text)
    view.keep()
    append(live, jsonl(prompt("new", "long", os.urandom(4000).hex(), view.session)))
    with counted(monkeypatch) as moved:
        view.keep()
    return moved


@pytest.mark.accepts("SEAL-3")
@pytest.mark.parametrize("agent", [False, True], ids=["transcript", "subagent"])
def test_a_turn_behind_100_mb_reads_and_writes_no_more_than_one_behind_1_mb(
    here: World, monkeypatch: pytest.MonkeyPatch, agent: bool
) -> None:
    small = cost_of_a_turn(here, monkeypatch, 1 << 20, agent)
    large = cost_of_a_turn(here.about(session_id(2)), monkeypatch, 100 << 20, agent)
    assert small.read > PREFIX, "what was counted is not what was read"
    assert large.read <= small.read + 32 * 1024
    assert large.written <= small.written + 4 * 1024


@pytest.mark.accepts("SEAL-3", "KEEP-5")
def test_where_nothing_is_new_a_keep_reads_a_header_and_4_kib_of_what_is_sealed_and_writes_nothing(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = write_live(here.profile, CWD, here.session, jsonl(prompt("long", None, "x" * (10 << 20))))
    here.keep()
    with counted(monkeypatch) as moved:
        here.keep()
    assert moved.read < 64 * 1024
    assert moved.written == 0
    assert changes_of(here.keep) == []
    assert live.stat().st_size > 10 << 20


# ------------------------------------------------------------------ how large it is (SEAL-6)

LARGE = 29_000
"""Smaller files of the real CLI hold little but one environment block, which repeats itself from the second turn on."""


def large_ones() -> list[Path]:
    found = [*build.REAL.glob("*/*/projects/*/*.jsonl"), *build.REAL.glob("*/*/kept/*.jsonl")]
    return sorted(path for path in found if path.stat().st_size >= LARGE)


def turns_of(data: bytes) -> list[bytes]:
    """The file as it grew: up to each prompt of a person's."""
    turns = [b""]
    for line in data.splitlines(keepends=True):
        if b'"type":"user"' in line and b'"tool_use_id"' not in line and turns[-1]:
            turns.append(b"")
        turns[-1] += line
    return turns


@pytest.mark.accepts("SEAL-6")
@pytest.mark.parametrize("path", large_ones(), ids=lambda path: "-".join(path.relative_to(build.REAL).parts[:2]))
def test_seals_of_what_the_real_cli_wrote_are_a_quarter_turn_by_turn_and_a_fifth_repacked(
    path: Path, tmp_path: Path
) -> None:
    one = Sealing(tmp_path / "x")
    data = path.read_bytes()
    for turn in turns_of(data):
        one.grow(turn)
    assert len(one.history) >= 3
    assert os.path.getsize(one.path) <= 0.25 * len(data)
    one.repack()
    assert os.path.getsize(one.path) <= 0.20 * len(data)
    one.proves_out()


@pytest.mark.accepts("SEAL-6")
def test_there_are_real_files_to_measure() -> None:
    assert len(large_ones()) >= 4


@pytest.mark.accepts("SEAL-6", "SEAL-5")
def test_the_many_frames_of_a_long_conversation_are_joined_once_it_is_quiet(here: World) -> None:
    live = write_live(here.profile, CWD, here.session, jsonl(*talk("ab")))
    now, parent, history = 1_700_000_000.0, "b", []
    for number in range(REPACK_FRAMES + 6):
        keep_at(here, now)
        history.append((now, here.kept.read_bytes()))
        append(live, jsonl(*talk([f"p{number}", f"a{number}"], parent=parent)))
        now, parent = now + 60, f"a{number}"
    keep_at(here, now)
    path = seal_of(here)
    many, size = len(list(walk(str(path)))), path.stat().st_size
    passes(here, now + 60)
    assert len(list(walk(str(path)))) == many, "it is not quiet yet"
    passes(here, now + 60 + REPACK_QUIET_S)
    frames = list(walk(str(path)))
    assert len(frames) == 1
    assert path.stat().st_size < size / 2
    for when, content in history:
        assert bytes(seal.read(str(path), int(when * 1e9)).content) == content
    append(live, jsonl(*talk(["more"], parent=parent)))
    keep_at(here, now + 8000)
    assert bytes(seal.read(str(path)).content) == here.kept.read_bytes()


def passes(here: World, now: float) -> None:
    """A pass over the profile at that time, with its sealing."""
    from keeper.transcripts.keep import Keeper

    vault = here.vault()
    try:
        keeper = Keeper(vault, now)
        keeper.profile(here.profile)
        keeper.finish()
        keeper.seal()
    finally:
        vault.index.close()


# ------------------------------------------------------------------ while it is written


@pytest.mark.accepts("SEAL-1")
@pytest.mark.parametrize("swept", [False, True])
@pytest.mark.parametrize("noticed", ["keep", "pass"])
def test_a_chat_that_has_no_seal_yet_is_sealed_by_the_next_keep(here: World, swept: bool, noticed: str) -> None:
    """Kept before there were seals, or its sealing was stopped."""
    write_live(here.profile, CWD, here.session, jsonl(*talk("ab")))
    put(here.companion / "tool-results" / "x.txt", b"out\n")
    put(here.companion / "subagents" / "agent-1.jsonl", jsonl(*talk("st")))
    here.keep()
    shutil.rmtree(here.chat / "seal")
    if swept:
        shutil.rmtree(here.profile / "projects")
        here.restore()
    if noticed == "keep":
        here.keep()
    else:
        here.keep_all()
    vault = here.vault()
    assert (verify(vault).faults, verify(vault).notes) == ((), ())
    vault.index.close()
    assert bytes(seal.read(str(seal_of(here))).content) == jsonl(*talk("ab"))


@pytest.mark.accepts("SEAL-1", "KEEP-16")
def test_a_seal_is_the_users_alone_and_an_unfinished_line_waits(here: World) -> None:
    live = write_live(here.profile, CWD, here.session, jsonl(*talk("ab")) + b'{"uuid":"c')
    umask = os.umask(0)
    try:
        here.keep()
    finally:
        os.umask(umask)
    path = seal_of(here)
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert bytes(seal.read(str(path)).content) == jsonl(*talk("ab"))
    append(live, b'"}\n')
    here.keep()
    assert bytes(seal.read(str(path)).content) == here.kept.read_bytes()


@pytest.mark.accepts("SEAL-1")
@pytest.mark.parametrize("number", range(6))
def test_a_file_that_is_cut_while_it_is_read_is_not_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The size is taken again after reading, whichever read it was that came too late."""
    one = Sealing(tmp_path / "x")
    one.grow(jsonl(*talk("ab")))
    path = put(tmp_path / "live", one.content + jsonl(*talk("cd", parent="b")))
    before = Path(one.path).read_bytes()
    real: Callable[..., bytes] = os.pread
    reads = 0

    def cutting(fd: int, size: int, at: int) -> bytes:
        nonlocal reads
        if reads == number:
            os.truncate(path, 100)
        reads += 1
        return real(fd, size, at)

    last = last_frame(one.path)
    fd = os.open(path, os.O_RDONLY)
    monkeypatch.setattr(os, "pread", cutting)
    try:
        sealed = seal.grow(one.path, last, fd, 10**18)
    finally:
        os.close(fd)
    monkeypatch.undo()
    if reads > number:
        assert sealed == last
        assert Path(one.path).read_bytes() == before
    else:
        assert number > 3, "it is read in fewer steps than were tried"
        assert bytes(seal.read(one.path).content) == jsonl(*talk("abcd"))


@pytest.mark.accepts("SEAL-1", "KEEP-16")
def test_lines_longer_than_a_frame_and_no_line_at_all(tmp_path: Path) -> None:
    one = Sealing(tmp_path / "x")
    one.grow(prompt("long", None, "x" * (3 * RESTART)) + b"\n")
    one.grow(jsonl(*talk("ab")))
    one.become(one.content + prompt("more", "b", "y" * (2 * RESTART)) + b"\n")
    one.become(b"")
    one.grow(jsonl(*talk("cd")))
    one.proves_out()
