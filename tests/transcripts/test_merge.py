"""The laws of the merge: over all small pairs of files, over random ones, and on the cases they were made for.

Files are spelt in words: `A` is a record with the uuid A, `A'` another version of it, `t` a line without a uuid.
"""

import json
import sys
import tracemalloc
from collections.abc import Callable
from functools import cache, lru_cache
from itertools import pairwise, product
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keeper.transcripts import merge as module
from keeper.transcripts.merge import merge
from keeper.transcripts.records import Split, split, uuid_of

Names = tuple[str, ...]


@cache
def line(name: str) -> bytes:
    if name[0].isupper():
        return json.dumps({"version": name, "uuid": name.rstrip("'")}).encode()
    return json.dumps({"title": name}).encode()


def file(names: Names) -> bytes:
    return b"".join(line(name) + b"\n" for name in names)


@lru_cache(maxsize=4096)
def merged(kept: Names, live: Names) -> Names:
    name = {line(name): name for name in (*kept, *live)}
    return tuple(name[found] for found in merge(file(kept), file(live)).lines)


def words(text: str) -> Names:
    return tuple(text.split())


def fold(kept: str, live: str) -> str:
    return " ".join(merged(words(kept), words(live)))


def has_uuid(name: str) -> bool:
    return name[0].isupper()


def is_part(some: Names, whole: Names) -> bool:
    rest = iter(whole)
    return all(name in rest for name in some)


def uuids(names: Names) -> set[str]:
    return {name.rstrip("'") for name in names if has_uuid(name)}


def last_known(kept: Names, live: Names) -> int:
    """The index of live's last record that kept has, in these bytes or in others; -1 for none."""
    known = -1
    for index, name in enumerate(live):
        if has_uuid(name) and name.rstrip("'") in uuids(kept):
            copies = kept.count(name)
            known = known if copies and live[: index + 1].count(name) > copies else index
    return known


# --- the laws -------------------------------------------------------------------------------------------


def law_1_kept_is_a_part_of_the_merge(kept: Names, live: Names) -> None:
    assert is_part(kept, merged(kept, live))


def law_2_every_line_of_live_is_there_as_often_as_it_should(kept: Names, live: Names) -> None:
    found = merged(kept, live)
    assert set(found) == {*kept, *live}
    for name in found:
        larger, both = max(kept.count(name), live.count(name)), kept.count(name) + live.count(name)
        if has_uuid(name):
            assert found.count(name) == larger, name
        else:
            assert larger <= found.count(name) <= both, name


def law_3_the_same_merge_again_changes_nothing(kept: Names, live: Names) -> None:
    found = merged(kept, live)
    assert merged(found, live) == found
    assert merged(found, found) == found
    assert merged(kept, kept) == kept


def law_4_what_is_ahead_is_taken_and_what_is_a_part_changes_nothing(kept: Names, live: Names) -> None:
    if live[: len(kept)] == kept:
        assert merged(kept, live) == live
    elif is_part(live, kept):
        assert merged(kept, live) == kept


def law_5_an_interrupted_merge_tried_again_is_one_merge(kept: Names, live: Names) -> None:
    found = merged(kept, live)
    for more in (("Y",), ("z",), ("z", "Y"), ("Y", "z", "Z"), ("z", "z")):
        assert merged(found, live + more) == merged(kept, live + more), more


def law_6_what_is_newest_in_live_is_newest_in_the_merge(kept: Names, live: Names) -> None:
    if is_part(live, kept) or is_part(kept, live):
        return
    found = merged(kept, live)
    known = last_known(kept, live)
    newer = [at for at in range(known + 1, len(live)) if has_uuid(live[at]) or live[at] not in kept]
    if newer:
        assert found[len(found) - len(live) + newer[0] :] == live[newer[0] :]
    for before, name in pairwise(live[: known + 1]):
        if has_uuid(before) and before in kept and name not in kept and name.rstrip("'") not in uuids(kept):
            # Told only where it can be: a repeated name, or two versions side by side, stand in more places.
            alone = sum(has_uuid(one) and one.rstrip("'") == before.rstrip("'") for one in found) == 1
            if alone and found.count(name) == 1:
                assert found[found.index(before) + 1] == name, name


def law_8_two_versions_stand_side_by_side_the_newer_behind(kept: Names, live: Names) -> None:
    if live[: len(kept)] == kept:
        return
    found = merged(kept, live)
    for name in set(live) - set(kept):
        uuid = name.rstrip("'")
        if not has_uuid(name) or uuid not in uuids(kept):
            continue
        at = found.index(name)
        while found[at] not in kept:
            assert found[at].rstrip("'") == uuid
            at -= 1
        assert found[at].rstrip("'") == uuid
        versions = [one for one in found if has_uuid(one) and one.rstrip("'") == uuid]
        if all(live.count(one) <= kept.count(one) for one in versions if one in kept):
            assert versions[-1] not in kept, "Claude reads the last of them"


LAWS = {
    "MERGE-1": law_1_kept_is_a_part_of_the_merge,
    "MERGE-2": law_2_every_line_of_live_is_there_as_often_as_it_should,
    "MERGE-3": law_3_the_same_merge_again_changes_nothing,
    "MERGE-4": law_4_what_is_ahead_is_taken_and_what_is_a_part_changes_nothing,
    "MERGE-5": law_5_an_interrupted_merge_tried_again_is_one_merge,
    "MERGE-6": law_6_what_is_newest_in_live_is_newest_in_the_merge,
    "MERGE-8": law_8_two_versions_stand_side_by_side_the_newer_behind,
}


@pytest.mark.accepts("MERGE-1", "MERGE-2", "MERGE-3", "MERGE-4", "MERGE-5", "MERGE-6", "MERGE-8")
@pytest.mark.parametrize("alphabet, longest", [("A B t", 3), ("A A' t", 3), ("A B C", 3), ("t u", 5)])
def test_the_laws_hold_for_all_pairs_of_small_files(alphabet: str, longest: int) -> None:
    files = [names for length in range(longest + 1) for names in product(words(alphabet), repeat=length)]
    for kept, live in product(files, files):
        for law in LAWS.values():
            law(kept, live)


def files(*alphabets: str) -> st.SearchStrategy[tuple[Names, Names]]:
    def pair(alphabet: str) -> st.SearchStrategy[tuple[Names, Names]]:
        names = st.lists(st.sampled_from(words(alphabet)), max_size=9).map(tuple)
        return st.tuples(names, names)

    return st.one_of([pair(alphabet) for alphabet in alphabets])


# Few names: repeats, versions and files in crossed order. Many: long chains, as Claude writes them.
PAIRS = files("A B t", "A A' B t u", "A A' A'' B B' t", "A B C D t u", "A B C D E F G H t u v w")


@pytest.mark.accepts("MERGE-1", "MERGE-2", "MERGE-3", "MERGE-4", "MERGE-5", "MERGE-6", "MERGE-8")
@pytest.mark.parametrize("law", [pytest.param(law, id=name) for name, law in LAWS.items()])
def test_the_law_holds_for_random_files(law: Callable[[Names, Names], None]) -> None:
    @settings(max_examples=400)
    @given(PAIRS)
    def holds(pair: tuple[Names, Names]) -> None:
        law(*pair)

    holds()


# --- MERGE-4 to MERGE-6: order and retries --------------------------------------------------------------


@pytest.mark.accepts("MERGE-4")
@pytest.mark.parametrize(
    "kept, live, expected",
    [
        ("A B C", "A", "A B C"),
        ("A B", "A C", "A B C"),
        ("a b", "a c", "a b c"),
        ("A B C", "A B C D", "A B C D"),
        ("A B C", "B", "A B C"),
        ("A B C", "A C", "A B C"),
        ("A B C", "B D", "A B C D"),
        ("A t B", "A t u B", "A t u B"),
        ("A t", "A u t", "A u t"),
        ("A C", "A B C", "A B C"),
    ],
)
def test_the_first_record_alone_decides_nothing(kept: str, live: str, expected: str) -> None:
    assert fold(kept, live) == expected


@pytest.mark.accepts("MERGE-5")
@pytest.mark.parametrize("done", ["A", "A B"])
@pytest.mark.parametrize("live", ["B C", "B C t", "A B C"])
def test_a_merge_cut_short_and_tried_again_has_each_record_once(done: str, live: str) -> None:
    expected = "A B C t" if "t" in live else "A B C"
    assert fold(done, live) == expected
    assert fold(expected, live) == expected


@pytest.mark.accepts("MERGE-6")
@pytest.mark.parametrize(
    "kept, live, expected",
    [
        ("A B", "C D", "A B C D"),
        ("A B", "A X B", "A X B"),
        ("A K B", "A X B", "A X K B"),
        ("A K B", "A X t Y B", "A X t Y K B"),
        ("A B C", "A X B Y", "A X B C Y"),
        ("B C", "A B C D", "A B C D"),
        ("K B", "A t B D", "K A t B D"),
        ("A p B q", "C p", "A p B q C p"),
        ("A t B u C", "A t X", "A t B u C X"),
        ("A t B u C", "A u X", "A t B u C u X"),
        ("t A u B", "t C", "t A u B t C"),
        ("A t u", "t C", "A t u t C"),
        ("A B t u", "A t C", "A B t u t C"),
        ("A B t u", "A t u C", "A B t u C"),
        ("A B t t", "A t t t C", "A B t t t C"),
        ("A B t t t", "A t t u", "A B t t t u"),
        ("A B t t u t t t u", "X A t t u t t t", "X A B t t u t t t u t t t"),
        ("A t B C", "X t C D", "A X t B C D"),
    ],
)
def test_what_live_adds_stands_where_claude_reads_it(kept: str, live: str, expected: str) -> None:
    assert fold(kept, live) == expected


@pytest.mark.accepts("MERGE-5", "MERGE-6")
def test_an_end_that_an_earlier_merge_added_is_known_and_no_more_of_it() -> None:
    runs = [run for length in range(7) for run in product("tu", repeat=length)]
    for end, more in product(runs, runs):
        kept, live = ("A", "B", *end), ("A", *more)
        if not is_part(live, kept):
            known = max(n for n in range(len(more) + 1) if end[len(end) - n :] == more[:n] and n <= len(end))
            assert merged(kept, live) == (*kept, *more[known:])


@pytest.mark.accepts("MERGE-6")
@pytest.mark.parametrize(
    "kept, live, expected",
    [
        ("A B C", "C B A", "A B C"),
        ("A B C", "C X B Y A Z", "A B Y C X Z"),
        ("A B C", "C x B y A z", "A B y C x z"),
        ("A B C t D", "A t D B t C", "A t B t C t D"),
        ("A B C u D", "C A u v D", "A B C u v D"),
        ("A C t u", "C t A t u", "A C t u t u"),
    ],
)
def test_kept_s_order_stays_where_live_has_another(kept: str, live: str, expected: str) -> None:
    assert fold(kept, live) == expected
    assert fold(expected, live) == expected


# --- MERGE-7, MERGE-8: identity --------------------------------------------------------------------------


@pytest.mark.accepts("MERGE-7")
@pytest.mark.parametrize(
    "kept, live, expected",
    [
        ("a b", "a b a", "a b a"),
        ("A a b", "A a b a", "A a b a"),
        ("A a b", "C a", "A a b C a"),
        ("A a B b", "A a B b C a", "A a B b C a"),
        ("A a X B", "A a B D", "A a X B D"),
        ("A X a B", "A a B D", "A X a B D"),
        ("A a B", "A a a B", "A a a B"),
        ("A a B K", "A a a B", "A a a B K"),
        ("m A m B m", "A m m B m D", "m A m m B m D"),
    ],
)
def test_a_record_without_uuid_is_told_by_its_bytes_and_its_place(kept: str, live: str, expected: str) -> None:
    assert fold(kept, live) == expected
    assert fold(expected, live) == expected


@pytest.mark.accepts("MERGE-7")
def test_two_spellings_of_one_uuid_are_two_versions_and_a_nested_uuid_is_none() -> None:
    plain, escaped = b'{"uuid":"A"}\n', b'{"uu\\u0069d":"A"}\n'
    assert merge(plain + line("B") + b"\n", escaped).variants == ("A",)
    nested = b'{"data":{"uuid":"A"}}\n'
    found = merge(plain + line("B") + b"\n", nested)
    assert found.variants == ()
    assert found.data == plain + line("B") + b"\n" + nested


@pytest.mark.accepts("MERGE-8")
@pytest.mark.parametrize(
    "kept, live, expected, named",
    [
        ("A B", "A' B", "A A' B", "A"),
        ("A B", "A' C", "A A' B C", "A"),
        ("A t B", "A' t B'", "A A' t B B'", "A B"),
        ("A A' B", "A'' C", "A A' A'' B C", "A"),
        ("A K A' B", "A'' C", "A K A' A'' B C", "A"),
        ("A B", "B A'", "A A' B", "A"),
        ("A B", "A X B A'", "A A' X B", "A"),
    ],
)
def test_two_versions_of_a_record_both_stay_and_are_named_once(kept: str, live: str, expected: str, named: str) -> None:
    assert fold(kept, live) == expected
    assert merge(file(words(kept)), file(words(live))).variants == words(named)
    again = merge(file(words(expected)), file(words(live)))
    assert (again.added, again.variants, again.data) == (0, (), file(words(expected)))


# --- MERGE-9: what no parser takes -----------------------------------------------------------------------

STRANGE = {
    "two glued records": b'{"uuid":"P"}{"uuid":"Q"}',
    "a glued half": b'{"uuid":"P","te{"uuid":"Q"}',
    "a NUL run": b"\x00" * 4096,
    "a NUL run before a record": b"\x00" * 64 + b'{"uuid":"P"}',
    "a lone surrogate": b'{"uuid":"P","text":"\\ud83d"}',
    "a raw surrogate": b'{"uuid":"P","text":"\xed\xa0\x80"}',
    "invalid UTF-8": b'{"uuid":"P","text":"\xff\xfe"}',
    "a BOM": b'\xef\xbb\xbf{"uuid":"P"}',
    "NaN": b'{"uuid":"P","n":NaN}',
    "nesting over 1024": b'{"uuid":"P","n":' + b"[" * 3000 + b"]" * 3000 + b"}",
    "an integer over 64 bits": b'{"uuid":"P","n":123456789012345678901234567890}',
    "an integer over all limits": b'{"uuid":"P","n":' + b"9" * 9000 + b"}",
    "U+2028": '{"uuid":"P","text":"\u2028\u2029"}'.encode(),
    "a carriage return": b'{"uuid":"P"}\r',
    "blanks": b"   ",
    "nothing": b"",
    "no JSON": b"<html>",
}


@pytest.mark.accepts("MERGE-9")
@pytest.mark.parametrize("strange", STRANGE.values(), ids=STRANGE)
def test_a_line_that_no_parser_takes_is_carried_byte_for_byte(strange: bytes) -> None:
    a, b, c, d = (line(name) for name in "ABCD")
    for kept, live, expected in (
        ([a, strange, b], [a, b, c], [a, strange, b, c]),
        ([a, b], [a, strange, b, c], [a, strange, b, c]),
        ([a, b], [c, strange, d], [a, b, c, strange, d]),
        ([a, strange, b], [a, strange, c], [a, strange, b, c]),
    ):
        first, second = (b"".join(one + b"\n" for one in lines) for lines in (kept, live))
        found = merge(first, second)
        assert found.lines == expected
        assert merge(found.data, second).lines == expected


@pytest.mark.accepts("MERGE-9")
@settings(max_examples=400)
@given(st.binary(max_size=80), st.binary(max_size=80))
def test_no_bytes_stop_a_merge_and_none_are_changed(kept: bytes, live: bytes) -> None:
    found = merge(kept, live)
    assert set(found.lines) == {*split(kept).lines, *split(live).lines}
    assert merge(found.data, live).lines == found.lines


@pytest.mark.accepts("MERGE-9")
def test_a_line_of_a_hundred_megabytes_is_carried() -> None:
    huge = b'{"uuid":"P","text":"' + b"x" * (100 << 20) + b'"}\n'
    found = merge(file(words("A B")), file(words("A C")) + huge)
    assert [len(one) for one in found.lines] == [*map(len, map(line, "ABC")), len(huge) - 1]


# --- MERGE-10: unfinished last lines ---------------------------------------------------------------------


@pytest.mark.accepts("MERGE-10")
def test_an_unfinished_last_line_of_live_waits() -> None:
    for cut in range(len(line("C")) + 1):
        found = merge(file(words("A B")), file(words("A")) + line("C")[:cut])
        assert (found.data, found.added, found.waiting) == (file(words("A B")), 0, line("C")[:cut])


@pytest.mark.accepts("MERGE-10")
def test_a_recreated_file_whose_only_line_is_unfinished_changes_nothing() -> None:
    for cut in range(len(line("A")) + 1):
        found = merge(file(words("A B")), line("A")[:cut])
        assert (found.data, found.variants, found.waiting) == (file(words("A B")), (), line("A")[:cut])


@pytest.mark.accepts("MERGE-10")
@pytest.mark.parametrize("live", ["A B C", "B C", "C B", "A X B C"])
def test_an_unfinished_last_line_of_kept_is_completed_by_live(live: str) -> None:
    for cut in range(1, len(line("B")) + 1):
        found = merge(file(words("A")) + line("B")[:cut], file(words(live)))
        assert found == merge(file(words("A")), file(words(live)))
        assert found.torn == ()


@pytest.mark.accepts("MERGE-10")
@pytest.mark.parametrize("live", ["", "A", "C", "A C"])
def test_an_unfinished_last_line_of_kept_is_set_aside_and_glued_to_nothing(live: str) -> None:
    fragment = line("B")[:-4]
    found = merge(file(words("A")) + fragment, file(words(live)) + line("D")[:9])
    assert found.torn == (fragment,)
    assert found.waiting == line("D")[:9]
    assert found.data == file(words("A C" if "C" in live else "A"))


@pytest.mark.accepts("MERGE-10")
@settings(max_examples=200)
@given(PAIRS, st.integers(0, 30), st.integers(0, 30))
def test_unfinished_ends_change_nothing_but_themselves(pair: tuple[Names, Names], ours: int, theirs: int) -> None:
    kept, live = file(pair[0]), file(pair[1])
    found = merge(kept + line("T")[:ours], live + line("u")[:theirs])
    assert found.lines == merge(kept, live).lines
    assert not found.data or found.data.endswith(b"\n")
    assert found.waiting == line("u")[:theirs]
    assert b"".join(found.torn) in (b"", line("T")[:ours])


# --- MERGE-11: files of every shape ----------------------------------------------------------------------


def lines_of(*lines: bytes) -> bytes:
    return b"".join(one + b"\n" for one in lines)


A, B, C = (line(name) for name in "ABC")


@pytest.mark.accepts("MERGE-11")
@pytest.mark.parametrize(
    "kept, live, expected",
    [
        pytest.param(b"", b"", b"", id="both empty"),
        pytest.param(b"", lines_of(A, B), lines_of(A, B), id="kept empty"),
        pytest.param(lines_of(A, B), b"", lines_of(A, B), id="live empty"),
        pytest.param(lines_of(A), lines_of(B), lines_of(A, B), id="one record each"),
        pytest.param(lines_of(A), lines_of(A), lines_of(A), id="one record"),
        pytest.param(b"\n\n", b"\n", b"\n\n", id="blank lines, fewer in live"),
        pytest.param(b"\n", b"\n\n\n", b"\n\n\n", id="blank lines, more in live"),
        pytest.param(lines_of(A, b"", B), lines_of(A, b"", C), lines_of(A, b"", B, C), id="a blank line between"),
        pytest.param(b"\n", lines_of(A), b"\n" + lines_of(A), id="blank kept"),
        pytest.param(
            lines_of(A + b"\r", B + b"\r"),
            lines_of(B + b"\r", C + b"\r"),
            lines_of(A + b"\r", B + b"\r", C + b"\r"),
            id="CRLF",
        ),
        pytest.param(lines_of(A + b"\r", B), lines_of(A, C), lines_of(A + b"\r", A, B, C), id="CRLF against LF"),
        pytest.param(b"x\ny\n", b"x\nz\n", b"x\ny\nz\n", id="no uuid at all"),
    ],
)
def test_files_of_every_shape_are_merged(kept: bytes, live: bytes, expected: bytes) -> None:
    found = merge(kept, live)
    assert found.data == expected
    assert merge(found.data, live).data == expected


@pytest.mark.accepts("MERGE-11")
def test_a_million_records_are_merged() -> None:
    records = [b'{"uuid":"%07d"}\n' % number for number in range(1_000_000)]
    found = merge(b"".join(records), b"".join([*records[-900:-450], A + b"\n", *records[-450:], B + b"\n"]))
    assert (len(found.lines), found.added) == (1_000_002, 2)
    assert (found.lines[-452], found.lines[-1]) == (A, B)


@pytest.mark.accepts("MERGE-11", "MERGE-12")
@pytest.mark.parametrize("same", [True, False], ids=["equal", "different"])
def test_a_million_lines_without_uuid_are_merged(same: bool) -> None:
    lines = [b"mode\n" if same else b"%d\n" % number for number in range(1_000_000)]
    found = merge(b"".join(lines), b"".join([*lines[-10:], b"last\n", *lines[-10:]]))
    assert found.lines[1_000_000:] == [b"last", *(one[:-1] for one in lines[-10:])]


# --- MERGE-12: what a merge costs ------------------------------------------------------------------------


class Counted(bytes):
    """A line that counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return bytes.__eq__(self, other)  # type: ignore[arg-type]

    __hash__ = bytes.__hash__


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Callable[[Names, Names], int]:
    """How much a merge of two files does: lines of its code that run, and lines of the files that it compares."""

    def counted_split(data: bytes) -> Split:
        parts = split(data)
        return Split([Counted(one) for one in parts.lines], parts.tail)

    monkeypatch.setattr(module, "split", counted_split)

    def count(kept: Names, live: Names) -> int:
        ran = 0

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal ran
            ran += event == "line"
            return trace if frame.f_code.co_filename == module.__file__ else None

        first, second = file(kept), file(live)
        Counted.compared = 0
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            merge(first, second)
        finally:
            sys.settrace(before)
        return ran + Counted.compared

    return count


def many(count: int) -> Names:
    return tuple(f"N{number}" for number in range(count))


def woven(names: Names, *between: str) -> Names:
    return tuple(one for name in names for one in (name, *between))


SHAPES: dict[str, Callable[[int], tuple[Names, Names]]] = {
    "live goes on": lambda n: (many(n), many(n + 9)),
    "live is a part": lambda n: (many(n), many(n)[::2]),
    "nothing in common": lambda n: (many(n), tuple(f"M{number}" for number in range(n))),
    "opposite order": lambda n: (many(n), many(n)[::-1]),
    "opposite order with titles": lambda n: (woven(many(n), "t", "u"), woven(many(n)[::-1], "t", "v", "u")),
    "every second one": lambda n: (woven(many(n)[::2], "t"), woven(many(n)[1::2], "t")),
    "versions of all": lambda n: (many(n), tuple(name + "'" for name in many(n))),
    "versions of one": lambda n: (("A", "B"), tuple("A" + "'" * number for number in range(1, n // 20))),
    "equal lines": lambda n: (("A", *["t"] * n, "K", "B"), ("A", *["t", "u"] * n, "B", "C")),
    "equal lines without uuid": lambda n: (("t",) * n, ("u", *("t",) * n)),
    "equal lines at the end": lambda n: (("A", "B", *("t",) * n), ("A", *("t",) * n, "u", *("t",) * n)),
    "nearly equal lines at the end": lambda n: (("A", "B", *["t", "t", "u"] * n), ("A", *["t"] * n, "u")),
    "different lines without uuid": lambda n: (
        tuple(f"t{number}" for number in range(n)),
        tuple(f"t{number}" for number in range(n, -1, -1)),
    ),
    "equal lines passed again and again": lambda n: (
        ("A", *["t"] * n, "B", *["t"] * n, "C"),
        ("C", *["t", "B", "t", "A"] * n, "X", "B"),
    ),
    "copies of one record": lambda n: (("A",) * n, ("B", *("A",) * (2 * n), "B")),
}


@pytest.mark.accepts("MERGE-12")
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_twice_the_lines_take_twice_the_steps(
    shape: Callable[[int], tuple[Names, Names]], steps: Callable[[Names, Names], int]
) -> None:
    once, twice = steps(*shape(800)), steps(*shape(1600))
    assert twice <= 2.1 * once + 200


@pytest.mark.accepts("MERGE-12")
def test_each_distinct_line_is_parsed_once_and_none_where_live_only_went_on(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[bytes] = []

    def counted(one: bytes) -> str | None:
        parsed.append(one)
        return uuid_of(one)

    monkeypatch.setattr(module, "uuid_of", counted)
    merged.cache_clear()
    merged(woven(many(50), "t"), woven(many(60), "t"))
    merged(woven(many(50), "t"), woven(many(40)[5:], "t"))
    assert parsed == []
    merged(woven(many(50), "t"), woven(many(60)[5:], "t"))
    assert len(parsed) == len(set(parsed)) == 61
    merged.cache_clear()


@pytest.mark.accepts("MERGE-12")
@pytest.mark.parametrize("order", [1, -1], ids=["same order", "opposite order"])
def test_the_peak_of_memory_is_bounded_by_the_files(order: int) -> None:
    """Over the two files themselves a merge takes their size once more (the lines), and some 500 bytes a line."""
    records = [b'{"uuid":"%04d","text":"%s"}' % (number, b"x" * 2000) for number in range(3000)]
    kept, live = lines_of(*records[:2000]), lines_of(*records[1000:][::order])
    tracemalloc.start()
    try:
        merge(kept, live)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= 1.05 * (len(kept) + len(live)) + 500 * 4000
