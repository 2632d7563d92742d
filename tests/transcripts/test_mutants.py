"""Guards that had no test of their own until a mutation run (docs/mutation.md) took them out and nothing failed."""

from __future__ import annotations

import errno
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

import pytest

from keeper.errors import DiskError
from keeper.transcripts import records, seal, swap
from keeper.transcripts.frame import Frame, last_frame, walk
from keeper.transcripts.held import Held, Site, hold
from keeper.transcripts.merge import merge
from keeper.transcripts.records import is_unread
from keeper.transcripts.verdict import ALIKE_BYTES, Judgement, Verdict, has_own, judge, judge_sealed
from tests.build import answer, append, boundary, jsonl, meta, prompt, talk, write_live
from tests.damage import overwrite
from tests.seam import (
    Hook,
    World,
    before,
    calls_of,
    hooked,
    in_child,
    lines_of,
    names_of_ours,
    refusing,
    world,
)
from tests.transcripts.test_swap import settled, to_be_folded

A, B, C, D = talk("abcd")

# --- records --------------------------------------------------------------------------------------------

UNREAD = {
    "two records glued": b'{"a":1}{"b":2}',
    "a record of the chain glued behind a blank": b'{"a":1} {"parentUuid":null}',
    "two of the chain glued": b'{"parentUuid":null} {"parentUuid":null}',
    "one glued right behind a brace": b'{{"parentUuid":null}',
    "a NUL inside": b'{"a":1,\0"b":2}',
    "torn at its end": b'{"a":1',
    "torn at its beginning": b'"a":1}',
    "an array": b"[1]",
}
READ = {
    "whole": b'{"a":1}',
    "of the chain": b'{"parentUuid":null}',
    "with what looks glued in a text": b'{"a":"}{"}',
    "with blanks around": b' {"a":1} ',
    "blank": b"",
    "blanks": b" \t",
}


@pytest.mark.parametrize("line", UNREAD.values(), ids=UNREAD)
def test_a_line_that_no_cli_reads_is_told(line: bytes) -> None:
    assert is_unread(line)


@pytest.mark.parametrize("line", READ.values(), ids=READ)
def test_a_line_that_every_cli_reads_or_skips_is_not(line: bytes) -> None:
    assert not is_unread(line)


def test_what_looks_whole_from_outside_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restore looks at every line of a file, however large."""
    monkeypatch.setattr(records, "read", None)
    assert not is_unread(A)
    assert not is_unread(b"{}")


def test_a_plain_record_never_meets_the_slow_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "json", None)
    assert records.uuid_of(A) == "a"


# --- verdict --------------------------------------------------------------------------------------------


def told(kept: list[bytes], live: list[bytes]) -> Judgement:
    return judge(jsonl(*kept), jsonl(*live))


def test_lost_and_new_records_are_counted_without_sidechains() -> None:
    side = [prompt("s", "a", isSidechain=True), prompt("t", "a", isSidechain=True)]
    found = told([A, side[0], B, C, D], [A, B, side[1], *talk("xyz", parent="b")])
    assert found == Judgement(Verdict.DIVERGED, (), lacks=2, news=3, branch="d")


def test_only_what_diverged_has_a_branch() -> None:
    assert told([A, B, C, D], [A, B]) == Judgement(Verdict.BEHIND, (), lacks=2, news=0, branch="")


def test_a_file_without_its_newest_talk_is_behind_though_it_has_lines_of_its_own() -> None:
    assert told([A, B, C, D], [A, meta("mode", mode="plan"), B, C]).verdict is Verdict.BEHIND


def test_a_kept_file_without_talk_says_of_none_that_it_is_lost() -> None:
    assert told([meta("mode", mode="plan")], [A, B]).verdict is Verdict.THINNED


def test_a_hole_whose_descendants_are_there_is_no_branch() -> None:
    moved = prompt("c", "a")
    assert told([A, B, C, D], [A, moved, D]) == Judgement(Verdict.THINNED, lacks=1)


@pytest.mark.accepts("KEEP-20")
def test_a_boundary_that_kept_never_saw_is_believed_where_the_beginning_is_gone() -> None:
    edge, after = boundary("k", "d"), talk("mn", parent="k")
    assert told([A, B, C, D], [edge, *after]).verdict is Verdict.TRIMMED
    assert told([A, B, C, D], [A, edge, *after]).verdict is not Verdict.TRIMMED


def test_what_hangs_on_nothing_in_kept_too_is_a_loss_only_where_live_begins_with_it() -> None:
    odd, next_, root = prompt("odd", "never"), answer("next", "odd"), prompt("root", None)
    late = told([A, B, odd, next_], [odd, next_])
    assert (late.verdict, late.gaps) == (Verdict.PARTIAL, ("never",))
    assert told([odd, next_, C, D], [odd, next_, D]).gaps == ()
    assert told([A, root, odd, next_], [root, odd, next_]).verdict is Verdict.DIVERGED


def test_a_new_record_that_hangs_on_nothing_is_a_gap_wherever_it_stands() -> None:
    found = told([A, B], [A, prompt("new", "lost"), meta("mode")])
    assert (found.verdict, found.gaps) == (Verdict.PARTIAL, ("lost",))


def test_a_conversation_is_not_merged_where_either_file_is_by_a_cli_up_to_1_0_117() -> None:
    for old, new in (("1.0.117", "2.1.328"), ("2.1.328", "1.0.117")):
        found = told(talk("ab", version=old), talk("pq", version=new))
        assert found.verdict is Verdict.UNMERGEABLE
    assert told(talk("ab", version="1.0.118"), talk("pq", version="1.0.118")).verdict is Verdict.DIVERGED


def test_of_several_lost_branches_the_newest_is_named() -> None:
    lost = [*talk("zy", parent="b"), *talk("ef", parent="b")]
    assert told([A, B, *lost, C, D], [A, B, C, D]).branch == "f"
    assert told([A, B, *lost[2:], *lost[:2], C, D], [A, B, C, D]).branch == "y"


def test_a_line_that_is_no_record_hides_none_behind_it() -> None:
    assert told([A, B, b"\x00", C, D], [A, B]).lacks == 2


def test_a_kept_file_that_has_nothing_of_the_chain_is_no_hindrance() -> None:
    assert told([meta("mode", mode="plan")], [boundary("k", "d"), *talk("mn", parent="k")]).verdict is Verdict.TRIMMED


# --- verdict: what Claude took out, and what damage did -------------------------------------------------

GONE = answer("gone", "c", "an answer that is asked for anew")
AGAIN = answer("again", "c", "another try")
TAIL = meta("mode", mode="plan")


def sealed(before: list[bytes], now: list[bytes]) -> Verdict:
    return judge_sealed(jsonl(*before), jsonl(*now)).verdict


@pytest.mark.accepts("KEEP-20")
def test_what_is_gone_is_counted_and_a_file_that_only_grew_is_the_same() -> None:
    assert judge_sealed(jsonl(A), jsonl(A, B)) == Judgement(Verdict.SAME)
    assert judge_sealed(jsonl(A, B, C, GONE), jsonl(A, B, C, AGAIN)) == Judgement(Verdict.TOMBSTONED, lacks=1)


@pytest.mark.accepts("KEEP-20")
def test_a_file_is_a_main_transcript_where_nothing_else_is_said() -> None:
    side = answer("gone", "c", isSidechain=True)
    assert sealed([A, B, C, side], [A, B, C, AGAIN]) is Verdict.DAMAGED


@pytest.mark.accepts("KEEP-20")
def test_what_has_no_uuid_is_never_taken_for_an_answer_that_claude_took_out() -> None:
    assert sealed([A, B, C, meta("assistant")], [A, B, C, AGAIN]) is Verdict.DAMAGED


@pytest.mark.accepts("KEEP-20")
def test_an_answer_of_which_a_copy_remains_was_not_taken_out_where_that_one_moved() -> None:
    assert sealed([A, B, C, GONE, TAIL, GONE], [A, B, C, TAIL, GONE]) is Verdict.DAMAGED
    assert sealed([A, B, C, GONE, TAIL, GONE], [A, B, C, GONE, TAIL]) is Verdict.TOMBSTONED


@pytest.mark.accepts("KEEP-20")
def test_lines_that_were_there_before_need_be_no_records() -> None:
    assert sealed([A, B, b"\x00 no record", C, GONE], [A, B, b"\x00 no record", C, AGAIN]) is Verdict.TOMBSTONED


@pytest.mark.accepts("KEEP-20")
def test_one_prompt_is_enough_for_what_remains_and_none_is_a_stub() -> None:
    first = answer("first", "a")
    assert sealed([A, first], [A, TAIL]) is Verdict.TOMBSTONED
    assert sealed([first, GONE], [first, TAIL]) is Verdict.TOMBSTONED
    assert sealed([TAIL, first], [TAIL, meta("mode", mode="normal")]) is Verdict.DAMAGED


@pytest.mark.accepts("KEEP-20")
def test_another_version_of_an_answer_is_not_one_that_was_asked_for_anew() -> None:
    assert sealed([A, B, C, GONE], [A, B, C, answer("gone", "c", "other words")]) is Verdict.DAMAGED
    assert sealed([A, B, C, GONE], [A, B, C, answer("again", "c", "other words")]) is Verdict.TOMBSTONED


def changed(line: bytes, count: int) -> bytes:
    """The line with so many bytes of its text changed."""
    start = line.index(b"an answer")
    return line[:start] + bytes(byte ^ 1 for byte in line[start : start + count]) + line[start + count :]


@pytest.mark.accepts("SEAL-1")
def test_a_damaged_file_has_a_record_of_its_own_where_it_is_not_what_damage_made_of_one() -> None:
    assert has_own(jsonl(A), jsonl(A, B))
    assert not has_own(jsonl(A, B), jsonl(A))
    assert not has_own(jsonl(A, B), jsonl(A, b"\x00" * len(B)))
    assert not has_own(jsonl(A, GONE), jsonl(A, changed(GONE, ALIKE_BYTES)))
    assert has_own(jsonl(A, GONE), jsonl(A, changed(GONE, ALIKE_BYTES + 1)))
    assert has_own(jsonl(A, GONE), jsonl(A, GONE.replace(b'"uuid":"gone"', b'"uuid":"goxx"')))


# --- merge ----------------------------------------------------------------------------------------------


@pytest.mark.accepts("MERGE-6")
def test_what_live_has_in_front_stays_in_front_of_all_that_follows_it_there() -> None:
    x, t, u = (meta("mode", mode=mode) for mode in "xtu")
    assert merge(jsonl(t, u, A, B), jsonl(x, t, u, A, C)).lines == [x, t, u, A, B, C]


# --- seal -----------------------------------------------------------------------------------------------

TURN = jsonl(*talk("ab"))
LONG = [prompt(f"long{number}", None, f"{number} " * 1000) for number in range(8)]


class Sealing:
    """A seal, and the file that it is of, which changes as a test says."""

    def __init__(self, place: Path) -> None:
        self.path, self.file = str(place / "x.seal"), place / "x"
        self.content = b""
        self.now = 0

    def grow(self, more: bytes, sync: bool = False, label: str = "") -> Frame | None:
        self.content += more
        self.file.write_bytes(self.content)
        with self.file.open("rb") as stream:
            return seal.grow(self.path, last_frame(self.path), stream.fileno(), self._tick(), sync, label)

    def become(self, content: bytes, sync: bool = False) -> Frame | None:
        self.content = content
        self.file.write_bytes(content)
        return seal.splice(self.path, seal.read(self.path), content, self._tick(), sync)

    def repack(self) -> bool:
        return seal.repack(self.path, f"{self.path}.new")

    def frames(self) -> list[Frame]:
        return [frame for _, frame in walk(self.path) if isinstance(frame, Frame)]

    def places(self) -> list[tuple[int, int, int]]:
        """Offset, bytes removed and bytes inserted of each frame."""
        return [(frame.offset, frame.removed, frame.inserted) for frame in self.frames()]

    def holds(self) -> bool:
        last = last_frame(self.path)
        assert last is not None
        with self.file.open("rb") as stream:
            return seal.holds(last, stream.fileno())

    def _tick(self) -> int:
        self.now += 10**10
        return self.now


@pytest.fixture
def one(tmp_path: Path) -> Sealing:
    return Sealing(tmp_path)


@pytest.mark.accepts("SEAL-4")
def test_after_whatever_was_sealed_the_file_that_was_sealed_holds_and_no_other(one: Sealing) -> None:
    lines = jsonl(*LONG)
    one.grow(lines)
    assert one.holds()
    one.become(lines[: len(jsonl(*LONG[:2]))] + TURN + lines[len(jsonl(*LONG[:2])) :])
    assert one.holds()
    one.become(one.content[: -len(jsonl(*LONG[6:]))] + jsonl(A, *LONG[6:]))
    assert one.holds()
    one.repack()
    assert one.holds()
    assert seal.read(one.path).content == one.content
    for at in (len(one.content) - 1, len(one.content) - 4096):
        changed = bytearray(one.content)
        changed[at] ^= 1
        one.file.write_bytes(changed)
        assert not one.holds(), at
    one.file.write_bytes(one.content[:-1])
    assert not one.holds()
    one.file.write_bytes(b"x" + one.content[1:])
    assert one.holds(), "more than the last 4 KiB was read"


@pytest.mark.accepts("SEAL-3", "SEAL-5")
def test_a_splice_takes_the_changed_lines_and_no_others(one: Sealing) -> None:
    one.grow(jsonl(A, B, C, D))
    a, b, c, d = (len(jsonl(line)) for line in (A, B, C, D))
    new = B.replace(b"answer b", b"another b")
    last = one.become(jsonl(A, new, C, D))
    assert one.places()[1:] == [(a, b, len(new) + 1)]
    assert last == last_frame(one.path)
    assert one.become(one.content) == last, "nothing changed"
    one.become(jsonl(A, new, D))
    # The next line goes along: it begins with the bytes with which the one that is gone began.
    assert one.places()[2:] == [(a + len(new) + 1, c + d, d)]
    one.become(jsonl(A, new, B, D))
    assert one.places()[3:] == [(a + len(new) + 1, d, b + d)]
    assert seal.read(one.path).content == one.content


@pytest.mark.accepts("SEAL-5")
def test_a_blank_first_line_is_a_line(one: Sealing) -> None:
    one.grow(b"\nab\n")
    one.become(b"\nax\n")
    assert one.places()[1:] == [(1, 3, 3)]


@pytest.mark.accepts("SEAL-5")
def test_a_long_splice_is_frames_of_whole_lines_of_which_the_first_takes_away(one: Sealing) -> None:
    one.grow(jsonl(A, B, C))
    many = [prompt(f"m{number}", None, "x" * 300_000) for number in range(8)]
    one.become(jsonl(A, *many, C))
    places = one.places()[1:]
    assert [removed for _, removed, _ in places] == [len(jsonl(B)), *[0] * (len(places) - 1)]
    assert len(places) == 3
    assert all(inserted % len(jsonl(many[0])) == 0 for _, _, inserted in places)
    assert one.holds()
    assert seal.read(one.path).content == one.content


def test_what_is_sealed_for_a_turn_is_synced_and_for_a_pass_is_not(one: Sealing) -> None:
    def synced(run: Callable[[], object]) -> bool:
        return "sync" in [call for call, _ in calls_of(run)]

    assert synced(lambda: one.grow(TURN, sync=True))
    assert not synced(lambda: one.grow(TURN, sync=False))
    assert synced(lambda: one.become(TURN, sync=True))
    assert not synced(lambda: one.become(b"", sync=False))
    with one.file.open("rb") as stream:
        assert synced(lambda: seal.grow(f"{one.path}2", None, stream.fileno(), 1)) is False
    one.grow(TURN)
    with one.file.open("rb") as stream:
        assert synced(lambda: seal.grow(f"{one.path}2", None, stream.fileno(), 1))
    assert seal.label_of(f"{one.path}2") == ""
    assert synced(lambda: seal.splice(f"{one.path}2", seal.read(f"{one.path}2"), b"", 2))


@pytest.mark.accepts("SEAL-3")
def test_whose_seal_it_is_stands_in_its_first_frame_alone(one: Sealing) -> None:
    assert (seal.label_of(one.path), seal.first_time(one.path)) == ("", 0)
    many = jsonl(*(prompt(f"m{number}", None, "x" * 300_000) for number in range(18)))
    one.grow(many, label="subagents/agent-\udcff.jsonl")
    one.grow(TURN, label="another")
    for _ in range(2):
        assert seal.label_of(one.path) == "subagents/agent-\udcff.jsonl"
        assert seal.first_time(one.path) == 10**10
        assert [bool(frame.about) for frame in one.frames()] == [True] + [False] * (len(one.frames()) - 1)
        assert len(one.frames()) > 1
        assert one.repack()
    overwrite(Path(one.path), 0, b"bad")
    assert seal.label_of(one.path) == ""
    assert seal.first_time(one.path) == 0


@pytest.mark.accepts("SEAL-6")
def test_a_repack_makes_large_frames_and_counts_the_loose_ones_anew(one: Sealing) -> None:
    for number in range(6):
        one.grow(jsonl(*talk([f"p{number}", f"a{number}"])))
    one.become(one.content.replace(b"answer a5", b"another a5"))
    assert one.frames()[-1].loose == 7
    assert one.repack()
    assert [frame.loose for frame in one.frames()] == [0, 0]
    assert [len(frame.marks) for frame in one.frames()] == [5, 0]
    one.grow(TURN)
    assert one.frames()[-1].loose == 1
    big = jsonl(*(prompt(f"m{number}", None, "x" * 300_000) for number in range(40)))
    one.grow(big)
    assert one.repack()
    assert max(frame.inserted for frame in one.frames()) == 4 << 20
    assert seal.read(one.path).content == one.content


@pytest.mark.accepts("SEAL-4")
def test_a_frame_of_another_history_is_told_and_stops_a_repack(one: Sealing, tmp_path: Path) -> None:
    """Its own digest fits, its chain does not."""
    other = Sealing(tmp_path / "other")
    other.file.parent.mkdir()
    for which, first in ((one, TURN), (other, TURN.replace(b"answer b", b"answer x"))):
        which.grow(first)
        which.become(first.replace(b"prompt a", b"prompt !"))
    (_, _), (at, _) = walk(one.path)
    theirs = Path(other.path).read_bytes()
    assert len(theirs) == os.path.getsize(one.path)
    overwrite(Path(one.path), at, theirs[at:])
    assert [bad.kind for bad in seal.read(one.path).bad] == ["its chain does not fit"]
    assert not one.repack()


@pytest.mark.accepts("SEAL-4")
def test_behind_a_lost_splice_nothing_before_it_is_believed(one: Sealing) -> None:
    """It may have changed any of it; if it was an append, only what it appended is not known."""
    one.grow(TURN)
    one.become(TURN.replace(b"answer b", b"another!"))
    one.grow(jsonl(C, D))
    frames = [at for at, _ in walk(one.path)]
    overwrite(Path(one.path), frames[1] + 8, b"\xff")
    found = seal.read(one.path)
    assert found.whole_lines() == jsonl(D), "C may be the end of a line that began before it"
    assert found.holes == bytearray(b"\1" * len(TURN) + b"\0" * len(jsonl(C, D)))
    assert len(found.content) == len(one.content)


@pytest.mark.accepts("SEAL-4")
def test_behind_a_lost_append_all_but_it_is_known(one: Sealing) -> None:
    for more in (TURN, jsonl(C), jsonl(D)):
        one.grow(more)
    frames = [at for at, _ in walk(one.path)]
    overwrite(Path(one.path), frames[1] + 8, b"\xff")
    found = seal.read(one.path)
    assert [bad.kind for bad in found.bad] == ["no frame stands here", "hangs on a frame that does not prove out"]
    assert found.whole_lines() == TURN
    assert len(found.content) == len(one.content)
    before = Path(one.path).read_bytes()
    assert not one.repack()
    assert Path(one.path).read_bytes() == before
    assert bytes(found.content).startswith(TURN)
    overwrite(Path(one.path), frames[0] + 8, b"\xff")
    assert seal.read(one.path).whole_lines() == b""


@pytest.mark.accepts("SEAL-4", "SEAL-5")
def test_a_hole_is_sealed_anew_from_its_first_byte_on_and_gone_then(one: Sealing) -> None:
    one.grow(jsonl(*LONG))
    one.become(jsonl(*LONG[:4], A, *LONG[4:]))
    one.grow(TURN)
    frames = list(walk(one.path))
    overwrite(Path(one.path), frames[1][0] + 250, b"xx")
    hole = len(jsonl(*LONG[:4]))
    found = seal.read(one.path)
    assert found.holes is not None and found.holes.index(1) == hole
    assert sum(found.holes) == one.places()[1][2]
    one.become(one.content)
    assert one.places()[-1] == (hole, len(one.content) - hole, len(one.content) - hole)
    mended = seal.read(one.path)
    assert (mended.content, mended.holes, mended.whole_lines()) == (one.content, None, one.content)


@pytest.mark.parametrize("size", [0, 5, seal.RESTART - 1, seal.RESTART, seal.RESTART + 7, 2 * seal.RESTART + 3])
def test_the_last_lines_end_is_found_however_long_the_unfinished_one_is(one: Sealing, size: int) -> None:
    one.file.write_bytes(TURN + b"x" * size)
    with one.file.open("rb") as stream:
        for start in (0, 1, len(TURN) - 1, len(TURN)):
            assert seal.end_of_lines(stream.fileno(), start) == len(TURN)
        if size:
            assert seal.end_of_lines(stream.fileno(), len(TURN) + 1) == len(TURN) + 1


WORDS = [b"", b"a", b"ab", b"aa", b"aab", b"aba", b"abab", b"b", b"ba", b"aaaa", b"abcab", b"cab"]


def test_two_contents_begin_and_end_alike_as_far_as_they_can() -> None:
    def alike(one: bytes, other: bytes) -> int:
        end = min(len(one), len(other))
        return next((at for at in range(end) if one[at] != other[at]), end)

    for old in WORDS:
        for new in WORDS:
            front = alike(old, new)
            assert seal.common(old, new) == (front, alike(old[front:][::-1], new[front:][::-1])), (old, new)


@pytest.mark.accepts("SEAL-1")
def test_a_file_that_is_shorter_when_it_is_read_is_not_sealed(one: Sealing, monkeypatch: pytest.MonkeyPatch) -> None:
    last = one.grow(TURN)
    one.file.write_bytes(TURN + jsonl(C, D))
    monkeypatch.setattr(seal, "end_of_lines", lambda fd, start: len(TURN) + len(jsonl(C, D)))
    before = os.path.getsize(one.path)
    with one.file.open("rb") as stream:
        os.truncate(one.file, len(TURN))
        assert seal.grow(one.path, last, stream.fileno(), 10**18) == last
    assert os.path.getsize(one.path) == before


@pytest.mark.accepts("SEAL-1", "SEAL-4")
def test_what_is_sealed_behind_damage_that_nobody_saw_yet_proves_out_all_the_same(one: Sealing) -> None:
    whole = jsonl(*LONG)
    one.grow(whole)
    one.content = b"#" + whole[1:]
    one.grow(TURN)
    found = seal.read(one.path)
    assert (found.bad, found.whole_lines()) == ([], whole + TURN)


def test_what_was_sealed_at_a_time_is_read_with_its_holes(one: Sealing) -> None:
    for more in (jsonl(A), jsonl(B), jsonl(C)):
        one.grow(more)
    one.become(one.content + jsonl(D))
    frames = list(walk(one.path))
    overwrite(Path(one.path), frames[1][0] + 250, b"xx")
    for second, lines in ((1, b""), (10, jsonl(A)), (20, jsonl(A))):
        assert seal.read(one.path, second * 10**9).whole_lines() == lines
    late = seal.read(one.path, 20 * 10**9)
    assert (len(late.content), late.holes) == (
        len(jsonl(A, B)),
        bytearray(len(jsonl(A)) * b"\0" + len(jsonl(B)) * b"\1"),
    )
    assert not seal.read(one.path, 10 * 10**9).bad


# --- swap -----------------------------------------------------------------------------------------------

NO_EXCHANGE = refusing("exchange", errno.EINVAL)


@pytest.fixture(params=["one volume", "two volumes"])
def here(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    place = tmp_path if request.param == "one volume" else request.getfixturevalue("second_volume")
    (place / "profile" / "projects").mkdir(parents=True)
    return world(place / "profile", tmp_path / "vault", tmp_path / "state")


def on_move_to(live: Path, deed: Callable[[], object]) -> Hook:
    """A volume without exchange, where something happens before M takes the name that live stepped aside from."""
    done: list[bool] = []

    def step(call: str, paths: tuple[str, ...]) -> None:
        NO_EXCHANGE(call, paths)
        if call == "move" and paths[1] == str(live) and not done:
            done.append(True)
            deed()

    return step


def fail() -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.accepts("SWAP-3")
def test_a_live_file_that_stepped_aside_when_the_run_was_killed_is_put_back(here: World) -> None:
    to_be_folded(here, NO_EXCHANGE)

    def killed() -> None:
        with hooked(on_move_to(here.live, kill)):
            here.keep()

    assert in_child(killed) == -signal.SIGKILL
    assert not here.live.exists()
    settled(here, NO_EXCHANGE, [A, B, C, D])


@pytest.mark.accepts("SWAP-3")
def test_a_live_file_that_stepped_aside_is_back_where_m_cannot_take_its_name(here: World) -> None:
    to_be_folded(here, NO_EXCHANGE)
    was = here.live.read_bytes()
    with hooked(on_move_to(here.live, fail)), pytest.raises(DiskError):
        here.keep()
    assert here.live.read_bytes() == was
    settled(here, NO_EXCHANGE, [A, B, C, D])


@pytest.mark.accepts("SWAP-3")
def test_a_live_file_that_cannot_step_aside_stays_and_no_note_tells_of_it(here: World) -> None:
    to_be_folded(here, NO_EXCHANGE)
    was = here.live.read_bytes()

    def step(call: str, paths: tuple[str, ...]) -> None:
        NO_EXCHANGE(call, paths)
        if call == "replace" and paths[0] == str(here.live):
            fail()

    with hooked(step), pytest.raises(DiskError):
        here.keep()
    assert here.live.read_bytes() == was
    notes = [json.loads(path.read_bytes())["name"] for path in here.chat.glob("swap/note-*")]
    assert all(Path(unquote(name)).exists() for name in notes), "a note tells of a name that was never made"
    settled(here, NO_EXCHANGE, [A, B, C, D])


@pytest.mark.accepts("SWAP-4")
def test_a_name_that_is_taken_between_the_two_steps_costs_a_round_and_no_line(here: World) -> None:
    to_be_folded(here, NO_EXCHANGE)
    (late,) = talk("e", parent="d")
    with hooked(on_move_to(here.live, lambda: write_live(here.profile, here.cwd, here.session, jsonl(late)))):
        here.keep()
    assert lines_of(here.live) == lines_of(here.kept) == [A, B, C, D, late]
    assert names_of_ours(here.profile, here.root) == []
    settled(here, NO_EXCHANGE, [A, B, C, D, late])


@pytest.mark.accepts("SWAP-3")
@pytest.mark.parametrize("call", ["exchange", "link", "create"])
def test_a_merge_that_took_no_name_is_not_left_in_the_swap_folder(here: World, call: str) -> None:
    to_be_folded(here, None)

    def step(name: str, paths: tuple[str, ...]) -> None:
        if name == call and ".keeper-" in paths[0 if call != "link" else -1]:
            fail()

    try:
        with hooked(step):
            here.keep()
    except DiskError:
        merged = [path for path in (here.chat / "swap").iterdir() if path.read_bytes() == jsonl(A, B, C, D)]
        assert merged == []
    settled(here, None, [A, B, C, D])


@pytest.mark.accepts("SWAP-4")
def test_a_stranger_that_repeats_a_line_of_m_adds_its_own_behind_all_that_m_has(here: World) -> None:
    """It is younger than all of M, not a late part of it."""
    to_be_folded(here, None)
    late, new = talk("ef", parent="d")
    append(here.live, jsonl(late))
    with hooked(before("exchange", lambda: write_live(here.profile, here.cwd, here.session, jsonl(D, new)))):
        here.keep()
    assert lines_of(here.kept) == [A, B, C, D, late, new]
    settled(here, None, [A, B, C, D, late, new])


def held_with(place: Path, first: bytes, more: bytes) -> Held:
    """An inode that is held, and what came on it since."""
    place.write_bytes(first)
    one = Held.open(str(place))
    append(place, more)
    return one


@pytest.mark.accepts("SWAP-1")
def test_a_late_line_of_an_older_file_goes_to_its_place_and_of_the_newest_to_the_end(tmp_path: Path) -> None:
    (late,) = talk("y", parent="b")
    data = jsonl(A, B, C, D)
    older, newest = (held_with(tmp_path / name, jsonl(A, B), jsonl(late)) for name in ("older", "newest"))
    assert swap.late(data, [older], 0.0) == jsonl(A, B, late, C, D)
    assert swap.late(data, [newest], 0.0, newest) == data + jsonl(late)
    for one in (older, newest):
        assert one.quiet
        assert not one.waits()
        one.close()


@pytest.mark.accepts("SWAP-1")
def test_a_late_line_that_m_has_already_is_no_second_one(tmp_path: Path) -> None:
    data = jsonl(A, B, C)
    newest = held_with(tmp_path / "newest", jsonl(A, B), jsonl(C, D))
    assert swap.late(data, [newest], 0.0, newest) == jsonl(A, B, C, D)
    newest.close()


@pytest.mark.accepts("SWAP-2")
def test_an_unfinished_late_line_waits_and_so_does_a_writer_that_holds_on(tmp_path: Path) -> None:
    one = held_with(tmp_path / "one", jsonl(A), C[:40])
    fd = os.open(tmp_path / "one", os.O_WRONLY | os.O_APPEND)
    try:
        assert swap.late(jsonl(A), [one], 0.0, one) == jsonl(A)
        assert not one.quiet
    finally:
        os.close(fd)
    append(tmp_path / "one", C[40:] + b"\n")
    assert swap.late(jsonl(A), [one], time.monotonic() + 60, one) == jsonl(A, C)
    assert one.quiet
    one.close()


@pytest.mark.accepts("SWAP-2")
def test_a_writer_that_is_about_to_close_is_waited_for(tmp_path: Path) -> None:
    one = held_with(tmp_path / "one", jsonl(A), b"")
    fd = os.open(tmp_path / "one", os.O_WRONLY | os.O_APPEND)

    def finish() -> None:
        os.write(fd, jsonl(C))
        os.close(fd)

    timer = threading.Timer(0.1, finish)
    timer.start()
    assert swap.late(jsonl(A), [one], time.monotonic() + 60, one) == jsonl(A, C)
    timer.join()
    assert one.quiet
    one.close()


@pytest.mark.accepts("SWAP-4", "RESTORE-4")
@pytest.mark.parametrize("bring_back", [True, False])
@pytest.mark.parametrize("gone", ["name", "folder", None])
def test_a_swap_tells_what_it_did_and_makes_a_name_that_is_gone_only_where_it_is_asked_to(
    tmp_path: Path, bring_back: bool, gone: str | None
) -> None:
    live, kept = tmp_path / "project" / "x.jsonl", tmp_path / "chat" / "x.jsonl"
    for path in (live, kept):
        path.parent.mkdir()
        path.write_bytes(jsonl(A))
    os.utime(live, ns=(10**18, 10**18))
    site = Site(str(live), str(kept), str(tmp_path / "chat" / "swap"), "x.jsonl", linked=True)
    one = hold(site, str(live))

    def leave() -> None:
        live.unlink()
        if gone == "folder":
            live.parent.rmdir()

    asked = 2 * 10**18 if bring_back else None
    with hooked(before("exchange" if gone == "name" else "link", leave, ".keeper-") if gone else lambda *_: None):
        told = swap.swap(site, jsonl(A, B), [one], bring_back, asked)
    assert (told.rounds, told.data, kept.read_bytes()) == (1, jsonl(A, B), jsonl(A, B))
    assert kept.stat().st_mtime_ns == (asked or 10**18)
    if gone and not bring_back:
        assert told.placed == 0
        assert not live.exists()
    else:
        assert told.placed == live.stat().st_ino == kept.stat().st_ino
    one.close()
    assert [path.name for path in tmp_path.rglob("*.tmp")] == []


@pytest.mark.accepts("SWAP-4", "RESTORE-4")
def test_a_name_that_goes_and_is_taken_again_before_m_gets_it_costs_a_round(here: World) -> None:
    write_live(here.profile, here.cwd, here.session, jsonl(A, B, C, D))
    here.keep()
    write_live(here.profile, here.cwd, here.session, jsonl(A, B))
    (new,) = talk("e", parent="d")
    steps: list[str] = []

    def step(call: str, paths: tuple[str, ...]) -> None:
        if call == "exchange" and not steps:
            steps.append("gone")
            here.live.unlink()
        elif call == "move" and paths[1] == str(here.live) and steps == ["gone"]:
            steps.append("taken")
            write_live(here.profile, here.cwd, here.session, jsonl(new))

    with hooked(step):
        here.restore()
    assert steps == ["gone", "taken"]
    assert lines_of(here.live) == lines_of(here.kept) == [A, B, C, D, new]
    settled(here, None, [A, B, C, D, new])


@pytest.mark.accepts("SWAP-1", "SWAP-5")
def test_what_comes_while_m_is_written_is_in_what_the_swap_tells(tmp_path: Path) -> None:
    live, kept = tmp_path / "x.jsonl", tmp_path / "kept.jsonl"
    live.write_bytes(jsonl(A))
    site = Site(str(live), str(kept), str(tmp_path / "swap"), "x.jsonl", linked=True)
    one = hold(site, str(live))
    with hooked(before("link", lambda: append(live, jsonl(C)), ".keeper-")):
        told = swap.swap(site, jsonl(A, B), [one], False)
    assert (told.rounds, told.data) == (1, jsonl(A, B, C))
    assert live.read_bytes() == kept.read_bytes() == jsonl(A, B, C)
    one.close()


@pytest.mark.accepts("SWAP-1", "SWAP-3")
def test_the_name_of_what_came_out_tells_that_it_was_live_before_m(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the run ends right behind the exchange; on another volume M is a copy, told by its own birth."""
    monkeypatch.setattr(swap, "LEASE_WAIT_S", 0.02)
    to_be_folded(here, None)
    (new,) = talk("e", parent="d")
    at = len(jsonl(A, B, C, D))
    passed: list[str] = []

    def killed() -> None:
        def step(call: str, paths: tuple[str, ...]) -> None:
            if passed:
                kill()
            if call == "exchange":
                passed.append(call)
                write_live(here.profile, here.cwd, here.session, jsonl(new))

        with hooked(step):
            here.keep()

    def told() -> list[int]:
        names = [*here.live.parent.glob(".keeper-*"), *(here.chat / "swap").glob("*~*")]
        held = [Held.open(str(name)) for name in names]
        for one in held:
            one.close()
        return [one.at for one in held if one.data == jsonl(new)]

    assert in_child(killed) == -signal.SIGKILL
    assert told() == [at]
    settled(here, None, [A, B, C, D, new])

    write_live(here.profile, here.cwd, here.session, jsonl(C))
    fds: list[int] = []

    def recreate() -> None:
        path = write_live(here.profile, here.cwd, here.session, jsonl(new))
        fds.append(os.open(path, os.O_WRONLY | os.O_APPEND))

    with hooked(before("exchange", recreate)):
        here.keep()
    assert told() == [len(jsonl(A, B, C, D, new))]
    os.close(fds[0])
