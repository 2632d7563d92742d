"""Guards that had no test of their own until a mutation run (docs/mutation.md) took them out and nothing failed."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from keeper.claude import folder_names
from keeper.errors import DiskError, Locked, Partial, Refused
from keeper.files import CURES
from keeper.transcripts import records, seal, swap
from keeper.transcripts import restore as restoring
from keeper.transcripts.chat import marked
from keeper.transcripts.durable import MANY_SYNCS
from keeper.transcripts.forget import forget
from keeper.transcripts.frame import Frame, last_frame, walk
from keeper.transcripts.held import Held, Site, hold
from keeper.transcripts.keep import Keeper, Options, keep_session
from keeper.transcripts.mass import restore_all
from keeper.transcripts.merge import merge
from keeper.transcripts.records import is_unread
from keeper.transcripts.restore import STEP_NS, Restored, Restorer, Want, failed
from keeper.transcripts.vault import Vault
from keeper.transcripts.verdict import ALIKE_BYTES, Judgement, Verdict, has_own, judge, judge_sealed
from tests.build import answer, append, boundary, folder, jsonl, meta, prompt, session_id, talk, write_live
from tests.chat import put, sweep, write_whole
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
    twice_or_missing,
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


# --- keep -----------------------------------------------------------------------------------------------


@pytest.mark.accepts("KEEP-19")
def test_the_answer_for_a_doubled_session_counts_what_both_files_brought(here: World) -> None:
    write_live(here.profile, here.cwd, here.session, jsonl(A, B))
    second = write_live(here.profile, "/srv/demo/other", here.session, jsonl(A, B, *talk("ef", parent="b")))
    first = here.keep()
    assert (first.verdict, first.action, first.mode) == ("doubled", "split", "split")
    append(here.live, jsonl(C))
    append(second, jsonl(*talk("gh", parent="f")))
    again = here.keep()
    assert (again.verdict, again.action, again.added) == ("doubled", "split", 3)
    none = here.keep()
    assert (none.verdict, none.action, none.added) == ("doubled", "none", 0)


def facts_of(view: World) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((view.chat / "chat.json").read_bytes())
    return told


def tombstones(view: World) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines_of(view.root / "tombstones.jsonl")]


def second(here: World, lines: list[bytes] | None = None) -> World:
    """Another session of another directory, with a live file."""
    view = here.about(session_id(2), "/srv/demo/other")
    write_live(view.profile, view.cwd, view.session, jsonl(*(lines or talk("pq", view.session, cwd=view.cwd))))
    return view


@pytest.fixture
def near(tmp_path: Path) -> World:
    (tmp_path / "profile" / "projects").mkdir(parents=True)
    return world(tmp_path / "profile", tmp_path / "vault", tmp_path / "state")


@pytest.mark.accepts("KEEP-11", "KEEP-2")
def test_a_keep_of_one_session_looks_for_no_other_chats_folder_and_one_of_all_does(near: World) -> None:
    other = second(near)
    write_live(near.profile, near.cwd, near.session, jsonl(A, B))
    near.keep_all()
    shutil.rmtree(other.chat)
    other.live.unlink()
    near.keep()
    assert near.vault().tombstones() == []
    assert len(near.vault().rows()) == 2
    near.keep_all()
    assert [(one.session, one.by) for one in near.vault().tombstones()] == [(other.session, "hand")]
    assert [row.session for row in near.vault().rows()] == [near.session]


@pytest.mark.accepts("SWAP-3")
@pytest.mark.parametrize("how", ["beside a file that is not merged", "by a run that was killed"])
@pytest.mark.parametrize("who", ["a pass", "a restore"])
def test_what_is_held_of_a_live_file_that_is_gone_is_taken_in(near: World, how: str, who: str) -> None:
    write_live(near.profile, near.cwd, near.session, jsonl(A, B, C, D))
    near.keep()
    own = talk("xyz", parent="b")
    if how == "by a run that was killed":
        write_live(near.profile, near.cwd, near.session, jsonl(*own))
        with hooked(before("exchange", kill)):
            assert in_child(near.keep) == -signal.SIGKILL
    else:
        write_live(near.profile, near.cwd, near.session, jsonl(A, B, *own[:2]))
        assert near.keep().mode == "split"
        append(near.live, jsonl(own[2]))
    near.live.unlink()
    if who == "a pass":
        near.keep_all()
    else:
        near.restore()
        assert lines_of(near.live) == lines_of(near.kept)
    assert twice_or_missing(near.kept, [A, B, C, D, *own]) == {}
    assert [path for path in (near.chat / "swap").glob("*") if path.is_file()] == []


@pytest.mark.accepts("KEEP-5", "KEEP-13")
def test_a_pass_answers_for_what_it_found_in_its_profile_and_for_nothing_else(near: World, tmp_path: Path) -> None:
    """Not for what is swept and has nothing left to take in, and not for what lives in another profile."""
    second(near).keep()
    near.about(session_id(2), "/srv/demo/other").live.unlink()
    write_live(near.profile, near.cwd, near.session, jsonl(A, B))
    apart = replace(near, settings=replace(near.settings, profiles=(tmp_path / "another",)), session=session_id(3))
    for lines in (talk("abcd", apart.session), talk("axy", apart.session)):
        write_live(apart.profile, apart.cwd, apart.session, jsonl(*lines))
        apart.keep()
    apart.live.unlink()
    assert set(near.keep_all()) == {near.session}
    assert set(apart.keep_all()) == {apart.session}


def test_a_pass_says_how_far_it_is(here: World) -> None:
    second(here)
    write_live(here.profile, here.cwd, here.session, jsonl(A, B))
    told: list[tuple[int, int]] = []
    for _ in range(2):
        keeper = Keeper(here.vault(), time.time())
        keeper.profile(here.profile, lambda done, total: told.append((done, total)))
        keeper.finish()
    assert told == [(1, 2), (2, 2)] * 2
    told.clear()
    keeper.seal(lambda done, total: told.append((done, total)))
    assert told == [(1, 2), (2, 2)]


@pytest.mark.accepts("KEEP-17")
def test_a_folder_that_cannot_be_read_is_told_with_its_path_and_stops_nothing(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = second(here)
    write_live(here.profile, here.cwd, here.session, jsonl(A, B))
    look = os.scandir

    def refuse(path: Any = ".") -> Any:
        if str(path) == str(other.live.parent):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return look(path)

    monkeypatch.setattr(os, "scandir", refuse)
    answers = here.keep_all()
    assert {session: one.error is None for session, one in answers.items()} == {here.session: True, "": False}
    told = answers[""]
    assert str(other.live.parent) in str(told.error)
    assert (told.profile, told.cure, told.exit_code) == (str(here.profile), CURES[errno.EACCES], 1)


@pytest.mark.accepts("KEEP-11")
def test_a_forgotten_session_is_answered_with_its_chat_and_adopted_with_a_time(near: World) -> None:
    write_live(near.profile, near.cwd, near.session, jsonl(A, B))
    named = Options(chat="the-hosts")
    near.keep(named)
    forget(near.vault(), "the-hosts", 1.5)
    for options in (None, named, Options(chat="another")):
        told = near.keep(options)
        assert (told.chat, told.profile, told.verdict) == ("the-hosts", str(near.profile), "forgotten")
    now = time.time()
    told = near.keep(Options(adopt=True))
    assert (told.chat, told.action) == (near.session, "linked")
    lifted = tombstones(near)[-1]
    assert (lifted["by"], lifted["chat"], lifted["session"], lifted["profile"]) == (
        "adopt", "the-hosts", near.session, str(near.profile),
    )  # fmt: skip
    assert now <= lifted["at"] <= time.time()


@pytest.mark.accepts("KEEP-12", "KEEP-13")
def test_a_chat_json_that_is_lost_is_told_again_as_it_was(here: World) -> None:
    """Whose it is, where it lives, and when its first file was born: on another volume kept's copy is younger."""
    write_live(here.profile, here.cwd, here.session, jsonl(A, B))
    here.keep()
    facts, rows = facts_of(here), here.vault().rows()
    for keep in (here.keep, here.keep_all):
        (here.chat / "chat.json").unlink()
        keep()
        assert facts_of(here) == facts
        assert here.vault().rows() == rows


@pytest.mark.accepts("KEEP-5")
def test_a_tag_and_a_policy_are_added_to_what_is_told_and_stay(here: World) -> None:
    write_live(here.profile, here.cwd, here.session, jsonl(A, B))
    here.keep(Options(tags=("one",)))
    here.keep(Options(tags=("two", "one"), policy="keep"))
    here.keep()
    assert (facts_of(here)["tags"], facts_of(here)["policy"]) == (["one", "two"], "keep")
    here.keep(Options(policy="off"))
    assert (facts_of(here)["tags"], facts_of(here)["policy"]) == (["one", "two"], "off")


@pytest.mark.accepts("KEEP-13", "KEEP-17")
def test_a_session_that_fails_in_one_profile_is_kept_in_the_other_and_told_with_the_one_that_failed(
    near: World, tmp_path: Path
) -> None:
    far = replace(near, settings=replace(near.settings, profiles=(tmp_path / "another",)))
    for view in (near, far):
        write_live(view.profile, view.cwd, view.session, jsonl(A, B))
        view.keep()
    append(near.live, jsonl(C))
    append(far.live, jsonl(C))
    both = replace(near.settings, profiles=(near.profile, far.profile))
    refused = {str(near.profile): near.session, str(far.profile): marked(near.session, str(far.profile))}
    for profile, chat in refused.items():
        vault = Vault.open(replace(both, lock_wait_s=0.05))
        with near.vault().lock(chat):
            answers = {one.profile: one for one in keep_session(vault, near.session, time.time())}
        assert set(answers) == set(refused)
        failed = answers.pop(profile)
        assert (failed.session, failed.exit_code, failed.verdict) == (near.session, Locked.exit_code, "")
        assert [one.error for one in answers.values()] == [None]
    with near.vault().lock(near.session), near.vault().lock(refused[str(far.profile)]), pytest.raises(Locked):
        keep_session(Vault.open(replace(both, lock_wait_s=0.05)), near.session, time.time())


@pytest.mark.accepts("KEEP-2")
def test_many_files_are_made_durable_by_one_barrier_and_one_sessions_each_by_itself(
    near: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_live(near.profile, near.cwd, near.session, jsonl(A, B))
    for number in range(MANY_SYNCS):
        put(near.companion / f"{number}.txt", b"x")
    near.vault()

    def barriers(run: Callable[[], object]) -> int:
        return sum(call == "sync" and paths == (str(near.root),) for call, paths in calls_of(run))

    assert barriers(near.keep) == 0
    for number in range(MANY_SYNCS):
        append(near.companion / f"{number}.txt", b"more")
    vault = near.vault()
    keeper = Keeper(vault, time.time())
    keeper.profile(near.profile)
    assert barriers(keeper.finish) == 1
    assert barriers(keeper.finish) == 0


# --- restore --------------------------------------------------------------------------------------------


def restored(view: World, want: Want | None = None, now_ns: int = 0) -> Restored:
    with view.vault() as vault:
        return Restorer(vault, now_ns or time.time_ns(), want or Want()).session(view.session)


@pytest.mark.accepts("RESTORE-1", "RESTORE-8", "RESTORE-10")
def test_a_restore_answers_with_all_that_it_found_and_did_and_a_dry_run_with_what_it_would(
    here: World, tmp_path: Path
) -> None:
    (tmp_path / "proj").mkdir()
    view = here.about(here.session, str(tmp_path / "proj"))
    live = write_whole(view.profile, view.session, cwd=view.cwd)
    count = len([path for path in view.profile.rglob("*") if path.is_file()])
    view.keep()
    whole = Restored(
        view.session, view.session, str(view.profile), folder(view.cwd), view.cwd, str(live), "same", "none", 4, 0,
        f"cd {view.cwd} && claude --resume {view.session}", True,
    )  # fmt: skip
    assert restored(view, Want(dry_run=True)) == whole
    assert view.restore() == whole
    sweep(view.profile)
    assert restored(view, Want(dry_run=True)) == replace(whole, verdict="absent", action="would restore")
    assert not live.exists()
    assert view.restore() == replace(whole, verdict="absent", action="restored", files=count - 1)
    assert view.restore() == whole


OTHER = talk("xy", parent="b")
WHOLE = talk("pqabcdef")
THIN = [*WHOLE[:2], prompt("c", "q"), *WHOLE[5:]]
SIDE = [prompt("s", "a", isSidechain=True), answer("t", "s", isSidechain=True)]
OLD_CLI = [talk("abcd", version="1.0.117"), talk("wxyz", version="1.0.117")]
PLANS = {
    "a lost end": ([A, B, C, D], jsonl(A, B), False, ("behind", "would fold", 2, "", ())),
    "a lost parent": ([A, B], jsonl(*talk("ef", parent="d")), False, ("partial", "would fold", 2, "", ("d",))),
    "holes": (WHOLE, jsonl(*THIN), False, ("thinned", "none", 2, "", ())),
    "holes, full": (WHOLE, jsonl(*THIN), True, ("thinned", "would fold", 2, "", ())),
    "a branch, sidechains": ([A, *SIDE, B, C, D], jsonl(A, B, *OTHER), False, ("diverged", "none", 2, "d", ())),
    "nothing in it": ([A, B], b"", False, ("empty", "would fold", 0, "", ())),
    "another branch": ([A, B, C, D], jsonl(A, B, *OTHER), False, ("diverged", "none", 2, "d", ())),
    "another branch, full": ([A, B, C, D], jsonl(A, B, *OTHER), True, ("diverged", "would fold", 2, "d", ())),
    "an unfinished line": ([A, B, C, D], jsonl(A, B, *OTHER) + b"{", False, ("diverged", "would fold", 2, "d", ())),
    "copied by an old CLI": (OLD_CLI[0], jsonl(*OLD_CLI[1]), True, ("unmergeable", "none", 0, "", ())),
    "an old CLI's, unfinished": (OLD_CLI[0], jsonl(*OLD_CLI[1]) + b"{", False, ("unmergeable", "none", 0, "", ())),
}


@pytest.mark.parametrize(("kept", "live", "full", "told"), PLANS.values(), ids=PLANS)
def test_a_dry_run_tells_the_verdict_the_deed_and_what_live_lacks_and_the_restore_says_the_same(
    here: World, kept: list[bytes], live: bytes, full: bool, told: tuple[object, ...]
) -> None:
    write_live(here.profile, here.cwd, here.session, jsonl(*kept))
    here.keep()
    write_live(here.profile, here.cwd, here.session, live)
    found = restored(here, Want(full=full, dry_run=True))
    assert (found.verdict, found.action, found.lacks, found.branch, found.gaps) == told
    assert here.live.read_bytes() == live
    if found.verdict == "unmergeable":
        return  # the longer of the two becomes what is kept: that is what a restore answers with
    done = here.restore(full)
    assert (done.verdict, done.lacks, done.gaps) == (found.verdict, found.lacks, found.gaps)
    assert done.action in {"would fold": ("folded", "mended"), "none": ("none",)}[found.action]
    (row,) = here.vault().rows()
    assert row.state == ("" if done.action == "folded" else done.verdict), "told as it stands there now"
    for one in (found, done):
        other, holes = ([warning for warning in one.warnings if word in warning] for word in ("--branch", "--full"))
        assert [f"--branch {told[3]}`" in warning for warning in other] == [True] * (one.verdict == "diverged")
        assert len(holes) == (one.verdict == "thinned" and not full)


@pytest.mark.accepts("FIT-4")
def test_lines_that_no_cli_reads_are_told_by_their_number(here: World) -> None:
    bad = b'{"a":1}{"b":2}'
    for lines, said in (([A, bad, B], "line 2: "), ([bad, A, bad, B, bad], "line 1 and 2 more: ")):
        write_live(here.profile, here.cwd, here.session, jsonl(*lines))
        here.keep()
        told = here.restore()
        assert told.records == len(lines)
        assert [warning[: len(said)] for warning in told.warnings if "--repaired" in warning] == [said]
        here = here.about(session_id(2))


@pytest.mark.accepts("RESTORE-3", "RESTORE-5")
def test_a_file_that_cannot_come_back_is_told_in_whichever_chat_it_is_kept(near: World) -> None:
    write_live(near.profile, near.cwd, near.session, jsonl(A, B))
    put(near.companion / "one" / "1.txt", b"1")
    near.keep()
    shutil.rmtree(near.companion / "one")
    put(near.companion / "two" / "2.txt", b"2")
    put(near.companion / "3.txt", b"3")
    near.keep(Options(chat="the-hosts"))
    shutil.rmtree(near.live.parent)
    told = near.restore()
    assert (told.action, told.files, told.error, told.exit_code, told.warnings[1:]) == ("restored", 3, None, 0, ())
    shutil.rmtree(near.companion)
    put(near.companion / "two", b"in the way")
    told = near.restore()
    assert (told.files, told.exit_code) == (2, Partial.exit_code)
    assert str(near.companion / "two") in str(told.error)
    assert told.error in told.warnings
    assert told.cure
    near.live.unlink()
    shutil.rmtree(near.companion / "one")
    put(near.companion / "one", b"in the way, too")
    told = near.restore()
    assert [f"{near.companion}/{name}" in "".join(told.warnings) for name in ("one", "two")] == [True, True]
    assert told.exit_code == Partial.exit_code


@pytest.mark.accepts("RESTORE-5", "SWAP-3")
def test_what_either_of_two_chats_holds_of_a_live_file_comes_back(near: World) -> None:
    write_live(near.profile, near.cwd, near.session, jsonl(A, B, C, D))
    for name in (None, "the-hosts"):
        near.keep(Options(chat=name))
    write_live(near.profile, near.cwd, near.session, jsonl(A, B))
    for name in (None, "the-hosts"):
        assert near.keep(Options(chat=name)).mode == "split"
    append(near.live, jsonl(*talk("ef", parent="d")))
    near.live.unlink()
    near.restore()
    assert lines_of(near.live) == [A, B, C, D, *talk("ef", parent="d")]


@pytest.mark.accepts("FIT-6", "RESTORE-2")
def test_what_a_conversation_goes_on_in_comes_back_with_an_older_time_and_one_that_cannot_is_told(near: World) -> None:
    whole, more = talk("abcd", version="1.0.124"), talk("ef", parent="d", version="1.0.124")
    other = near.about(session_id(2))
    write_live(near.profile, near.cwd, near.session, jsonl(*whole))
    write_live(other.profile, other.cwd, other.session, jsonl(*more))
    near.keep_all()
    shutil.rmtree(near.live.parent)
    now_ns = time.time_ns()
    told = restored(near, now_ns=now_ns)
    assert (told.also, told.error) == ((other.session,), None)
    assert (near.live.stat().st_mtime_ns, other.live.stat().st_mtime_ns) == (now_ns, now_ns - STEP_NS)
    shutil.rmtree(near.live.parent)
    other.live.mkdir(parents=True)
    told = restored(near)
    assert (told.also, told.exit_code, told.action) == ((other.session,), Partial.exit_code, "restored")
    assert str(other.live) in str(told.error)
    assert told.error in told.warnings


@pytest.mark.accepts("RESTORE-10", "KEEP-19")
def test_where_two_live_files_stand_the_directory_says_which_is_meant_and_both_get_the_time_of_now(
    here: World,
) -> None:
    write_live(here.profile, here.cwd, here.session, jsonl(A, B))
    other = here.about(here.session, "/srv/demo/other")
    write_live(other.profile, other.cwd, other.session, jsonl(A, B, C))
    here.keep()
    for view in (here, other):
        now_ns = time.time_ns()
        told = restored(view, Want(cwd=view.cwd), now_ns)
        assert (told.live, told.verdict, told.action) == (str(view.live), "doubled", "none")
        assert {here.live.stat().st_mtime_ns, other.live.stat().st_mtime_ns} == {now_ns}
    with pytest.raises(Refused) as refused:
        here.restore()
    assert folder(here.cwd) in str(refused.value)
    assert folder(other.cwd) in str(refused.value)
    assert (lines_of(here.live), lines_of(other.live)) == ([A, B], [A, B, C])


@pytest.mark.accepts("RESTORE-17")
def test_a_chat_of_which_nobody_knows_a_directory_comes_back_all_the_same(near: World) -> None:
    only = meta("mode", mode="plan", sessionId=near.session)
    write_live(near.profile, near.cwd, near.session, jsonl(only))
    near.keep()
    (near.chat / "chat.json").unlink()
    near.live.unlink()
    told = near.restore()
    assert (told.project, told.cwd, told.resume) == ("-", "", f"claude --resume {near.session}")
    assert Path(told.live) == near.profile / "projects" / "-" / f"{near.session}.jsonl"
    assert lines_of(Path(told.live)) == [only]
    assert told.resumable is False


@pytest.mark.accepts("RESTORE-2", "RESTORE-4")
def test_what_is_swept_while_the_answer_is_made_is_answered_for_from_kept(
    near: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_live(near.profile, near.cwd, near.session, jsonl(A, B, C))
    near.keep()
    look = restoring.resumable

    def swept(path: str) -> bool:
        near.live.unlink(missing_ok=True)
        return look(path)

    monkeypatch.setattr(restoring, "resumable", swept)
    told = near.restore()
    assert (told.live, told.records, told.resumable) == (str(near.live), 3, True)


@pytest.mark.accepts("RESTORE-2", "RESTORE-10")
def test_one_that_cannot_be_put_back_is_answered_with_its_chat_its_profile_and_why(
    near: World,
) -> None:
    other = second(near)
    write_live(near.profile, near.cwd, near.session, jsonl(A, B))
    near.keep_all()
    sweep(near.profile)
    other.live.mkdir(parents=True)
    with near.vault() as vault:
        answers = {one.session: one for one in restore_all(Restorer(vault, time.time_ns(), Want()), vault.rows())}
    told = answers[other.session]
    assert told.error and str(other.live) in told.error
    assert told.cure
    assert told == failed(other.session, Refused(told.error, told.cure), other.session, str(near.profile))
    assert (told.session, told.chat, told.profile, told.action) == (
        other.session, other.session, str(near.profile), "failed",
    )  # fmt: skip
    assert (told.records, told.files, told.resumable, told.exit_code) == (None, 0, None, Refused.exit_code)
    assert (told.project, told.cwd, told.live, told.verdict, told.resume) == ("", "", "", "", "")
    assert answers[near.session].action == "restored"


@pytest.mark.accepts("SEAL-1")
def test_a_dry_run_sees_what_was_cut_from_a_file_in_place(near: World) -> None:
    write_live(near.profile, near.cwd, near.session, jsonl(A, B, C, D))
    near.keep_all()
    assert restored(near, Want(dry_run=True)).verdict == "same"
    os.truncate(near.live, len(jsonl(A, B)))
    told = restored(near, Want(dry_run=True))
    assert (told.verdict, told.action, told.lacks, told.records) == ("behind", "would fold", 2, 2)


@pytest.mark.accepts("RESTORE-2", "RESTORE-4")
@pytest.mark.parametrize(("call", "count"), [("touch", 1), ("sync", 1), ("sync", 2)])
def test_a_live_file_that_is_swept_right_before_it_is_touched_or_synced_is_there_at_the_end(
    here: World, call: str, count: int
) -> None:
    write_live(here.profile, here.cwd, here.session, jsonl(A, B))
    here.keep()
    times: list[int] = []

    def swept(name: str, paths: tuple[str, ...]) -> None:
        if name == call and paths[0] == str(here.live) and here.live.exists():
            times.append(1)
            if len(times) == count:
                here.live.unlink()

    with hooked(swept):
        here.restore()
    assert len(times) >= count
    assert lines_of(here.live) == [A, B]


@pytest.mark.accepts("KEEP-19", "RESTORE-2")
def test_of_two_live_files_the_one_that_stays_gets_the_time_of_now_though_the_other_is_swept_meanwhile(
    here: World,
) -> None:
    other = here.about(here.session, "/srv/demo/other")
    for gone, stays in ((here, other), (other, here)):
        for view in (here, other):
            write_live(view.profile, view.cwd, view.session, jsonl(A, B, C))
        here.keep()
        now_ns = time.time_ns()
        with hooked(before("touch", gone.live.unlink, str(gone.live))):
            restored(stays, Want(cwd=stays.cwd), now_ns)
        assert not gone.live.exists()
        assert stays.live.stat().st_mtime_ns == now_ns


@pytest.mark.accepts("KEEP-17")
def test_a_restore_whose_answer_cannot_be_noted_is_done_in_part_and_says_why(near: World) -> None:
    write_live(near.profile, near.cwd, near.session, jsonl(A, B, C, D))
    near.keep()
    write_live(near.profile, near.cwd, near.session, jsonl(A, B))
    near.keep()

    def full(call: str, paths: tuple[str, ...]) -> None:
        if call == "create" and "chat.json" in paths[0] and lines_of(near.live) == [A, B, C, D]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with hooked(full):
        told = near.restore()
    assert (told.action, told.exit_code, told.cure) == ("folded", Partial.exit_code, CURES[errno.ENOSPC])
    assert "chat.json" in str(told.error)
    assert told.error in told.warnings


@pytest.mark.accepts("FIT-3")
def test_where_no_cli_tells_its_version_a_long_directory_is_the_folder_that_is_there(near: World) -> None:
    cwd = "/srv/" + "long" * 60
    hashed, whole = folder_names(cwd)
    lines = talk("ab", near.session, cwd=cwd)
    live = near.profile / "projects" / whole / f"{near.session}.jsonl"
    put(live, jsonl(*lines))
    near.keep()
    live.unlink()
    assert restored(near, Want(cwd=cwd)).project == whole
    live.unlink()
    live.parent.rmdir()
    assert restored(near, Want(cwd=cwd)).project == hashed


@pytest.mark.accepts("RESTORE-10")
def test_the_line_to_type_undoes_what_the_shell_says_of_the_profile(near: World) -> None:
    write_live(near.profile, near.cwd, near.session, jsonl(A, B))
    near.keep()
    shell = replace(near, settings=replace(near.settings, named_profile=near.root))
    assert shell.restore().resume == f"cd {near.cwd} && env -u CLAUDE_CONFIG_DIR claude --resume {near.session}"
    shell = replace(near, settings=replace(near.settings, default_profile=near.root))
    named = f"CLAUDE_CONFIG_DIR={near.profile}"
    assert shell.restore().resume == f"cd {near.cwd} && {named} claude --resume {near.session}"
