"""Bytes become records and stay the same bytes; a line's uuid is what Claude itself would read."""

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from keeper.transcripts.records import Split, is_prompt, join, read, split, uuid_of

UUID = "3f6c0a52-8d1e-4b7a-9c55-0e2f1a7b9d10"


# --- lines ----------------------------------------------------------------------------------------------


@pytest.mark.accepts("FAULT-6")
@settings(max_examples=300)
@given(st.one_of(st.binary(), st.lists(st.sampled_from([b"\n", b"\r", b"{}", b"\xe2\x80\xa8"])).map(b"".join)))
@example(b"")
@example(b"\n\n")
@example(b"a\r\nb")
def test_joining_what_was_split_gives_the_same_bytes(data: bytes) -> None:
    assert join(split(data)) == data


@pytest.mark.accepts("FAULT-6")
@given(st.binary())
def test_no_line_and_no_tail_holds_a_newline(data: bytes) -> None:
    parts = split(data)
    assert len(parts.lines) == data.count(b"\n")
    assert not any(b"\n" in piece for piece in [*parts.lines, parts.tail])


@pytest.mark.accepts("MERGE-9")
def test_a_line_ends_at_the_newline_alone() -> None:
    inside = b"a\rb\x0bc\x0cd\x1ce\x85f\xe2\x80\xa8g\xe2\x80\xa9h\x00i"
    assert split(inside + b"\r\n" + inside) == Split([inside + b"\r"], inside)


# --- which record a line is -----------------------------------------------------------------------------


def deep(levels: int) -> str:
    return "[" * levels + "]" * levels


HAS = {
    "plain": f'{{"uuid":"{UUID}"}}',
    "behind other keys": f'{{"parentUuid":null,"message":{{"content":"x"}},"uuid":"{UUID}"}}',
    "with blanks around": f' {{ "uuid" :\t"{UUID}" }} \r',
    "an escaped key": f'{{"uu\\u0069d":"{UUID}"}}',
    "a wholly escaped key": f'{{"\\u0075\\u0075\\u0069\\u0064":"{UUID}"}}',
    "an escaped value": '{"uuid":"' + "".join(f"\\u{ord(c):04x}" for c in UUID) + '"}',
    "the last of two": f'{{"uuid":"other","uuid":"{UUID}"}}',
    "the last of two, escaped": f'{{"uuid":"other","uu\\u0069d":"{UUID}"}}',
    "the top one, not the nested": f'{{"uuid":"{UUID}","data":{{"uuid":"other"}}}}',
    "a lone surrogate beside it": f'{{"uuid":"{UUID}","text":"\\ud800"}}',
    "NaN beside it": f'{{"uuid":"{UUID}","cost":NaN,"more":-Infinity}}',
    "an integer over 64 bits beside it": f'{{"uuid":"{UUID}","n":{2**80}}}',
    "a number over any double beside it": f'{{"uuid":"{UUID}","n":{"9" * 400}}}',
    "nesting that is still read": f'{{"uuid":"{UUID}","deep":{deep(500)}}}',
}
HAS_BYTES = {
    "a BOM before it": b"\xef\xbb\xbf" + HAS["plain"].encode(),
    "a surrogate's raw bytes beside it": HAS["plain"].encode()[:-1] + b',"text":"\xed\xa0\x80"}',
}
HAS_NOT = {
    "no key": b'{"type":"mode"}',
    "a nested uuid only": b'{"data":{"uuid":"x"}}',
    "the word in a text": b'{"text":"\\"uuid\\":\\"x\\""}',
    "another case": b'{"UUID":"x","Uuid":"x"}',
    "null": b'{"uuid":null}',
    "a number": b'{"uuid":7}',
    "an object": b'{"uuid":{"uuid":"x"}}',
    "an empty string": b'{"uuid":""}',
    "the last of two is none": b'{"uuid":"x","uuid":null}',
    "an array": b'[{"uuid":"x"}]',
    "a string": b'"uuid"',
    "two glued records": b'{"uuid":"x"}{"uuid":"y"}',
    "cut short": b'{"uuid":"x","text":"half',
    "a NUL run": b"\x00" * 64,
    "a NUL run behind it": b'{"uuid":"x"}' + b"\x00" * 8,
    "invalid UTF-8": b'{"uuid":"x","text":"\xff"}',
    "a control character": b'{"uuid":"x","text":"\x01"}',
    "UTF-16": '{"uuid":"x"}'.encode("utf-16"),
    "two BOMs": b"\xef\xbb\xbf\xef\xbb\xbf" + b'{"uuid":"x"}',
    "an integer that Python refuses": b'{"uuid":"x","n":' + b"9" * 5000 + b"}",
    "nesting that no parser takes": f'{{"uuid":"x","deep":{deep(100_000)}}}'.encode(),
    "blank": b"",
    "blanks": b" \t\r",
}


@pytest.mark.accepts("MERGE-7", "MERGE-9")
@pytest.mark.parametrize("line", [*map(str.encode, HAS.values()), *HAS_BYTES.values()], ids=[*HAS, *HAS_BYTES])
def test_a_line_has_the_uuid_that_stands_at_its_top(line: bytes) -> None:
    assert uuid_of(line) == UUID


@pytest.mark.accepts("MERGE-7", "MERGE-9")
@pytest.mark.parametrize("line", HAS_NOT.values(), ids=HAS_NOT)
def test_a_line_without_one_has_none_and_is_no_error(line: bytes) -> None:
    assert uuid_of(line) is None


KEYS = st.sampled_from(["uuid", "Uuid", "parentUuid", "type", "message", "uu\\id", ""])
VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(st.characters(exclude_categories=())), KEYS
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=8,
)


@pytest.mark.accepts("MERGE-7")
@settings(max_examples=300)
@given(st.dictionaries(KEYS, VALUES), st.booleans())
def test_the_uuid_is_what_was_put_there_however_it_is_written(fields: dict[str, Any], ascii_only: bool) -> None:
    line = json.dumps(fields, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    expected = fields.get("uuid")
    assert uuid_of(line) == (expected if isinstance(expected, str) and expected else None)


@pytest.mark.accepts("MERGE-9")
@settings(max_examples=300)
@given(st.binary(), st.binary(max_size=4), st.integers(0, 60))
def test_no_bytes_make_the_reading_fail(noise: bytes, patch: bytes, at: int) -> None:
    record = HAS["an escaped key"].encode()
    for line in (noise, record[:at] + patch + record[at + len(patch) :]):
        found = read(line)
        assert uuid_of(line) == (found.uuid if found else None)


# --- what is read of a record ---------------------------------------------------------------------------


def record(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def test_a_record_has_the_fields_that_keeper_reads() -> None:
    found = read(
        record(uuid=UUID, parentUuid="p", type="system", subtype="compact_boundary", sessionId="s", isSidechain=True)[
            :-1
        ]
        + b',"cwd":"/srv/demo","version":"2.1.328","timestamp":"T","entrypoint":"cli","leafUuid":"l"}'
    )
    assert found is not None
    assert (found.uuid, found.parent, found.leaf) == (UUID, "p", "l")
    assert (found.type, found.subtype, found.session) == ("system", "compact_boundary", "s")
    assert (found.cwd, found.version, found.timestamp, found.entrypoint) == ("/srv/demo", "2.1.328", "T", "cli")
    assert found.sidechain
    assert found.fields["parentUuid"] == "p"


@pytest.mark.parametrize("value", [None, 1, True, ["x"], {"x": "y"}])
def test_a_field_of_another_type_counts_as_absent(value: object) -> None:
    names = ["uuid", "parentUuid", "type", "subtype", "sessionId", "cwd", "version", "timestamp", "entrypoint"]
    found = read(json.dumps(dict.fromkeys([*names, "leafUuid"], value) | {"isSidechain": "true"}).encode())
    assert found is not None
    assert not any((found.uuid, found.parent, found.type, found.subtype, found.session, found.cwd))
    assert not any((found.version, found.timestamp, found.entrypoint, found.leaf, found.sidechain))


@pytest.mark.parametrize("line", [b"", b"[]", b"null", b"{", b'"x"', b"\x00", b'{"a":1}{"b":2}'])
def test_what_is_no_json_object_is_no_record(line: bytes) -> None:
    assert read(line) is None


def user(content: Any, **more: Any) -> bytes:
    return record(type="user", message={"role": "user", "content": content}, **more)


TEXT = {"type": "text", "text": "x"}
RESULT = {"type": "tool_result", "tool_use_id": "t", "content": "x"}


@pytest.mark.parametrize(
    "line",
    [user("hello"), user([TEXT]), user([{"type": "image"}, TEXT]), user([RESULT, TEXT]), user("x", isMeta=False)],
)
def test_a_person_s_words_on_the_main_chain_are_a_prompt(line: bytes) -> None:
    found = read(line)
    assert found is not None and is_prompt(found)


@pytest.mark.parametrize(
    "line",
    [
        user("x", isSidechain=True),
        user("x", isMeta=True),
        user("x", isCompactSummary=True),
        user([RESULT]),
        user([]),
        user(None),
        record(type="user"),
        record(type="user", message="x"),
        record(type="assistant", message={"content": "x"}),
        record(type="last-prompt", lastPrompt="x"),
    ],
)
def test_what_a_tool_the_cli_or_a_subagent_wrote_is_no_prompt(line: bytes) -> None:
    found = read(line)
    assert found is not None and not is_prompt(found)
