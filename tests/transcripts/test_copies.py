"""Copies: a conversation under a new id, up to a record or repaired; the original stays as it is, byte for byte."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from keeper.errors import NotKept
from keeper.transcripts.copies import Copy, leaf_below, repaired, through
from keeper.transcripts.records import read, split
from tests import build
from tests.build import CWD, answer, boundary, jsonl, line, meta, prompt, session_id, talk, write_live
from tests.chat import files, sweep, write_whole
from tests.conftest import Ran
from tests.damage import write_over
from tests.seam import World
from tests.seam import world as world_of

Command = Callable[..., Ran]

S, T = session_id(1), session_id(2)
VERSIONS = sorted(path.name for path in build.REAL.iterdir() if path.is_dir())


@pytest.fixture
def world(profile: Path, vault_home: Path, home: Path) -> World:
    return world_of(profile, vault_home, home / ".local" / "state" / "keeper")


def records(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(one) for one in data.splitlines()]


def uuids(data: bytes) -> list[str]:
    return [one["uuid"] for one in records(data) if "uuid" in one]


def read_back(data: bytes, leaf: str | None = None) -> list[str]:
    """The uuids that a CLI up to 2.1.85 loads: from the leaf up by `parentUuid`, and no further than a gap."""
    parents = {one["uuid"]: one["parentUuid"] for one in records(data) if "uuid" in one and not one["isSidechain"]}
    at: str | None = leaf or list(parents)[-1]
    chain: list[str] = []
    while at in parents and at not in chain:
        chain.append(at)
        at = parents[at]
    return chain[::-1]


def sessions(data: bytes) -> set[str]:
    return {one["sessionId"] for one in records(data) if "sessionId" in one}


# --- up to a record (RESTORE-6) -----------------------------------------------------------------------------


@pytest.mark.accepts("RESTORE-6")
def test_through_gives_the_conversation_up_to_and_with_the_record() -> None:
    made = through(jsonl(*talk("abcdef", S)), "d", S, T)
    assert made.data == jsonl(*talk("abcd", T))


@pytest.mark.accepts("RESTORE-6")
def test_through_takes_the_branch_of_the_record_alone() -> None:
    data = jsonl(*talk("abcd", S), *talk("xy", S, parent="b"), *talk("ef", S, parent="d"))
    assert uuids(through(data, "y", S, T).data) == list("abxy")
    assert uuids(through(data, "f", S, T).data) == list("abcdef")


@pytest.mark.accepts("RESTORE-6")
def test_through_takes_what_belongs_to_no_record_but_no_leaf_that_is_named_later() -> None:
    title = meta("custom-title", customTitle="mine", sessionId=S)
    leaf = meta("last-prompt", leafUuid="b", sessionId=S)
    later = meta("mode", mode="plan", sessionId=S)
    side = prompt("s", None, session=S, isSidechain=True)
    a, b, c, d = talk("abcd", S)
    made = through(jsonl(title, a, side, b, leaf, c, d, later), "c", S, T)
    assert [one.get("uuid", one["type"]) for one in records(made.data)] == ["custom-title", "a", "s", "b", "c"]
    assert sessions(made.data) == {T}


@pytest.mark.accepts("RESTORE-6")
def test_through_a_record_of_two_versions_gives_the_one_that_claude_reads() -> None:
    """The later line wins; MERGE-8 puts live's right behind the kept one."""
    a, b, c = talk("abc", S)
    newer = answer("b", "a", "said anew", session=S)
    for record in ("b", "c"):
        made = through(jsonl(a, b, newer, c), record, S, T)
        texts = [one["message"]["content"][0]["text"] for one in records(made.data) if one["uuid"] == "b"]
        assert texts[-1] == "said anew", record


@pytest.mark.accepts("RESTORE-6", "FIT-8")
def test_through_goes_over_a_gap_to_what_was_said_before_it() -> None:
    """CLIs from 2.1.92 on bridge a missing record by the order of the file: so the copy must hold what they read."""
    made = through(jsonl(*talk("ab", S), *talk("ef", S, parent="d")), "f", S, T)
    assert uuids(made.data) == list("abef")


@pytest.mark.accepts("RESTORE-6")
def test_through_after_a_compaction_reads_from_its_boundary() -> None:
    summary = prompt("s", "k", session=S, isCompactSummary=True)
    made = through(jsonl(*talk("ab", S), boundary("k", "b", S), summary, *talk("cd", S, "s")), "d", S, T)
    assert read_back(made.data) == ["k", "s", "c", "d"]


@pytest.mark.accepts("RESTORE-6")
def test_a_record_that_there_is_none_of_is_not_kept() -> None:
    with pytest.raises(NotKept, match="no record z"):
        through(jsonl(*talk("ab", S)), "z", S, T)


@pytest.mark.accepts("RESTORE-6")
def test_a_chain_that_goes_in_a_circle_ends() -> None:
    data = jsonl(prompt("a", "b", session=S), answer("b", "a", session=S))
    assert uuids(through(data, "b", S, T).data) == ["a", "b"]


@pytest.mark.accepts("RESTORE-6")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("scenario", ["tools", "compacted", "two_writers", "interactive", "forked"])
def test_through_any_answer_of_the_real_cli_its_whole_chain_is_there(version: str, scenario: str) -> None:
    session = str(build.real(version, scenario)["session"])
    data = build.real_live(version, scenario, session)
    for one in records(data):
        if one.get("type") == "assistant":
            made = through(data, one["uuid"], session, T)
            assert read_back(made.data, one["uuid"]) == read_back(data, one["uuid"])
            assert sessions(made.data) == {T}


@pytest.mark.accepts("RESTORE-6")
@pytest.mark.parametrize("there", ["whole", "swept", "cut back", "kept in a host's chat"])
def test_the_source_is_restored_before_it_is_read_and_stays_as_it_is(
    world: World, profile: Path, run_keeper: Command, there: str
) -> None:
    path = write_whole(profile, S, jsonl(*talk("abcdef", S)))
    before = files(profile)
    words = ["--chat", "host-7"] if there == "kept in a host's chat" else []
    assert run_keeper("keep", S, *words).code == 0
    if there != "whole":
        sweep(profile)
    if there == "cut back":
        write_live(profile, CWD, S, jsonl(*talk("ab", S)))
    done = run_keeper("restore", S, "--through", "d", "--json")
    assert done.code == 0, done.err
    told = done.json
    assert {name: data for name, data in files(profile).items() if told["session"] not in name} == before
    copy = Path(told["live"])
    assert (copy.parent, copy.stem) == (path.parent, told["session"])
    assert copy.read_bytes() == jsonl(*talk("abcd", copy.stem))
    assert (told["source"], told["records"], told["cwd"]) == (S, 4, CWD)
    assert told["resume"].endswith(f"claude --resume {copy.stem}")

    shown = {chat["session"]: chat for chat in run_keeper("list", "--json").json["chats"]}
    assert shown[copy.stem]["forked_from"] == S
    assert shown[copy.stem]["chat"] == copy.stem
    assert Path(shown[copy.stem]["kept"]).samefile(copy)
    assert shown[S]["forked_from"] is None
    assert run_keeper("restore", S, "--through", "z").code == 4


# --- the other branch (RESTORE-14) --------------------------------------------------------------------------


def cut_back(world: World, version: str, in_place: bool) -> tuple[World, bytes, bytes]:
    """Three turns of the real CLI, kept; live cut back to the first and gone on by the CLI; kept again."""
    session = str(build.real(version, "cut_back")["session"])
    history = build.real_kept(version, "cut_back", session)
    live = build.real_live(version, "cut_back", session)
    view = world.about(session)
    write_live(view.profile, CWD, session, history)
    view.keep()
    if in_place:
        write_over(view.live, live)
    else:
        write_live(view.profile, CWD, session, live)
    view.keep()
    return view, history, live


@pytest.mark.accepts("RESTORE-14")
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_branch_that_a_resume_will_not_read_is_announced_and_given_under_a_new_id_by_any_record_of_it(
    world: World, run_keeper: Command, version: str, in_place: bool
) -> None:
    view, history, live = cut_back(world, version, in_place)
    told = run_keeper("restore", view.session, "--json").json
    assert told["verdict"] == "diverged"
    leaf = [one["uuid"] for one in records(history) if one.get("type") == "assistant"][-1]
    assert told["branch"] == leaf
    assert any(f"`keeper restore {view.session} --branch {leaf}`" in one for one in told["warnings"])
    assert view.live.read_bytes() == live

    lost = [one["uuid"] for one in records(history) if one.get("type") in ("user", "assistant")]
    lost = [uuid for uuid in lost if uuid not in uuids(live)]
    assert len(lost) >= 4
    for record in dict.fromkeys([leaf, lost[0], lost[2]]):
        done = run_keeper("restore", view.session, "--branch", record, "--json")
        assert done.code == 0, done.err
        copy = Path(done.json["live"])
        assert (copy.parent, copy.stem) == (view.live.parent, done.json["session"])
        assert read_back(copy.read_bytes()) == read_back(history), record
        assert sessions(copy.read_bytes()) == {copy.stem}
    assert view.live.read_bytes() == live
    shown = {chat["session"]: chat for chat in run_keeper("list", "--json").json["chats"]}
    assert {chat["forked_from"] for session, chat in shown.items() if session != view.session} == {view.session}
    missing = run_keeper("restore", view.session, "--branch", T)
    assert missing.code == 4
    assert "cure:" in missing.err


@pytest.mark.accepts("RESTORE-14")
@pytest.mark.parametrize("answered", ["y", "n", ""])
def test_on_a_terminal_the_other_branch_is_offered_at_once(
    world: World, cli_env: dict[str, str], tmp_path: Path, answered: str
) -> None:
    view, history, _ = cut_back(world, VERSIONS[-1], in_place=False)
    before = {path.name for path in view.live.parent.iterdir()}
    keeper, terminal = os.openpty()
    try:
        os.write(keeper, f"{answered}\n".encode())
        done = subprocess.run(
            [sys.executable, "-m", "keeper", "restore", view.session],
            env=cli_env, cwd=tmp_path, stdin=terminal, stdout=terminal, stderr=terminal, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0
    finally:
        os.close(terminal)
        os.close(keeper)
    made = [path for path in view.live.parent.iterdir() if path.name not in before]
    assert len(made) == (answered == "y")
    for copy in made:
        assert read_back(copy.read_bytes()) == read_back(history)


@pytest.mark.accepts("RESTORE-14")
def test_a_branch_ends_in_its_newest_record_whatever_others_hang_on_it() -> None:
    data = jsonl(*talk("abcd", S), *talk("xy", S, parent="b"), *talk("ef", S, parent="d"), *talk("z", S, parent="c"))
    assert leaf_below(data, "e", S) == leaf_below(data, "f", S) == "f"
    assert leaf_below(data, "x", S) == "y"
    assert leaf_below(data, "c", S) == leaf_below(data, "a", S) == "z"
    side = prompt("s", "f", session=S, isSidechain=True)
    assert leaf_below(data + jsonl(side), "d", S) == "f", "a subagent's record is no leaf of the conversation"
    with pytest.raises(NotKept, match="no record q"):
        leaf_below(data, "q", S)


# --- repaired (FIT-8, RESTORE-15) ---------------------------------------------------------------------------


def of(made: Copy) -> list[dict[str, Any]]:
    return records(made.data)


@pytest.mark.accepts("FIT-8")
def test_a_whole_conversation_is_repaired_into_itself_under_the_new_id() -> None:
    made = repaired(jsonl(*talk("abcdef", S)), S, T)
    assert (made.data, made.deeds, made.set_apart) == (jsonl(*talk("abcdef", T)), (), ())


SIDE = prompt("s", "zz", isSidechain=True)
UNREADABLE = [b"garbled", b"\x00" * 40, b'{"type":"user","uuid":"q', b"\xff\xfe", b"[1,2]", b'{"a":' * 2000]


@pytest.mark.accepts("FIT-8")
@pytest.mark.parametrize("bad", UNREADABLE, ids=["text", "NULs", "torn", "no UTF-8", "no object", "deep"])
def test_a_line_that_none_can_read_is_set_apart_and_the_chain_goes_on(bad: bytes) -> None:
    a, b, c, d = talk("abcd", S)
    made = repaired(jsonl(a, b, bad, c, d), S, T)
    assert made.data == jsonl(*talk("abcd", T))
    assert made.set_apart == (bad,)
    assert "line 3" in made.deeds[0]


@pytest.mark.accepts("FIT-8")
def test_a_record_lost_with_its_line_leaves_no_gap() -> None:
    a, b, _, d = talk("abcd", S)
    made = repaired(jsonl(a, b, b"\x00\x00", d), S, T)
    assert read_back(made.data) == ["a", "b", "d"]
    assert any("record d" in deed and "parent c" in deed for deed in made.deeds)


@pytest.mark.accepts("FIT-8")
@pytest.mark.parametrize("between", [b"", b"\x00\x00\x00", b" "], ids=["glued", "NULs between", "a blank"])
def test_two_records_on_one_line_are_parted(between: bytes) -> None:
    a, b, c, d = talk("abcd", S)
    made = repaired(jsonl(a, b + between + c, d), S, T)
    assert [one["uuid"] for one in of(made)] == list("abcd")
    assert read_back(made.data) == list("abcd")
    assert sessions(made.data) == {T}


@pytest.mark.accepts("FIT-8")
@pytest.mark.parametrize("cut", [20, 100, 200])
def test_a_whole_record_glued_to_an_unfinished_one_is_saved(cut: int) -> None:
    """What a kill in mid-write and CLIs up to 2.1.296 make: the next append goes right behind the fragment."""
    a, b, c, d = talk("abcd", S)
    made = repaired(jsonl(a, b, c[:cut] + d), S, T)
    assert read_back(made.data) == ["a", "b", "d"]
    assert made.set_apart == (c[:cut],)


@pytest.mark.accepts("FIT-8", "MERGE-12")
def test_a_long_line_that_none_can_read_is_not_tried_at_each_of_its_braces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A torn tool result may be megabytes of JSON in a string."""
    tries = 0
    decode = json.JSONDecoder.raw_decode

    def counted(self: json.JSONDecoder, text: str, idx: int = 0) -> tuple[Any, int]:
        nonlocal tries
        tries += 1
        return decode(self, text, idx)

    monkeypatch.setattr(json.JSONDecoder, "raw_decode", counted)
    a, b, c = talk("abc", S)
    torn = b'{"type":"user","uuid":"q","message":{"content":"' + b'{ \\"a\\": 1 }, ' * 5000
    made = repaired(jsonl(a, b, torn + c), S, T)
    assert (made.data, made.set_apart) == (jsonl(*talk("abc", T)), (torn,))
    assert tries < 50


@pytest.mark.accepts("FIT-8")
def test_an_unfinished_last_line_is_set_apart() -> None:
    made = repaired(jsonl(*talk("ab", S)) + b'{"uuid":"c', S, T)
    assert made.data == jsonl(*talk("ab", T))
    assert made.set_apart == (b'{"uuid":"c',)


@pytest.mark.accepts("FIT-8")
def test_a_gap_is_closed_by_what_stands_before_it() -> None:
    made = repaired(jsonl(*talk("ab", S), *talk("ef", S, parent="d")), S, T)
    assert read_back(made.data) == list("abef")
    assert [deed for deed in made.deeds if "d" in deed.replace("tied", "").split()]


@pytest.mark.accepts("FIT-8")
def test_a_head_that_hangs_on_nothing_becomes_the_root() -> None:
    made = repaired(jsonl(*talk("cd", S, parent="b")), S, T)
    assert [one["parentUuid"] for one in of(made)] == [None, "c"]


@pytest.mark.accepts("FIT-8")
def test_branches_sidechains_and_boundaries_are_left_as_they_are() -> None:
    data = [
        *talk("ab", S), *talk("cd", S, "b"), *talk("xy", S, "b"), prompt("s", None, session=S, isSidechain=True),
        answer("s2", "s", session=S, isSidechain=True), boundary("k", "y", S), *talk("ef", S, "k"),
    ]  # fmt: skip
    made = repaired(jsonl(*data), S, T)
    assert made.data == jsonl(*data).replace(S.encode(), T.encode())
    assert made.deeds == ()


@pytest.mark.accepts("FIT-8")
@pytest.mark.parametrize(
    "odd",
    [
        b'"\\ud800"',
        b'"\\u2028 \xe2\x80\xa8"',
        b"123456789012345678901234567890",
        b"1e999",
        b"0.1000000000000000055511151231257827",
        b"NaN",
        b'{"uuid":"inner","sessionId":"%s"}' % S.encode(),
    ],
    ids=["lone surrogate", "line separator", "integer over 64 bits", "infinity", "long decimal", "NaN", "nested ids"],
)
@pytest.mark.parametrize("hangs", [False, True], ids=["whole", "hangs on a missing parent"])
def test_a_record_that_no_strict_parser_writes_is_carried(odd: bytes, hangs: bool) -> None:
    a, b, c, d = talk("abcd", S)
    c = c[:-1] + b',"odd":' + odd + b"}"
    made = repaired(jsonl(a, *([] if hangs else [b]), c, d), S, T)
    assert read_back_leniently(made.data) == (["a", "c", "d"] if hangs else list("abcd"))
    assert b'"odd":' + odd in made.data
    assert made.set_apart == ()


def read_back_leniently(data: bytes) -> list[str]:
    found = [read(one) for one in split(data).lines]
    parents = {one.uuid: one.parent for one in found if one is not None and one.uuid is not None}
    chain = [list(parents)[-1]]
    while (above := parents.get(chain[-1])) is not None:
        chain.append(above)
    return [str(uuid) for uuid in chain[::-1]]


@pytest.mark.accepts("FIT-8")
@pytest.mark.parametrize("version", VERSIONS)
def test_what_the_real_cli_wrote_whole_is_not_mended(version: str) -> None:
    """2.1.197 writes the first answer of an interactive session before its prompt: nothing is missing there."""
    for place in sorted((build.REAL / version).glob("*/projects/*/*.jsonl")):
        scenario, session = place.parts[-4], place.stem
        if scenario in ("recreated", "stub", "stub_renamed", "trimmed"):
            continue  # these hang on what was deleted
        data = place.read_bytes()
        made = repaired(data, session, T)
        leaves = [one["uuid"] for one in records(data) if one.get("type") == "assistant"]
        for leaf in leaves:
            assert read_back(made.data, leaf) == read_back(data, leaf), f"{scenario} {leaf}"
        assert made.data.replace(T.encode(), session.encode()) == data, scenario


@pytest.mark.accepts("FIT-8")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_tail_that_the_real_cli_recreated_is_readable_from_its_root(version: str) -> None:
    session = str(build.real(version, "recreated")["session"])
    data = build.real_live(version, "recreated", session)
    made = repaired(data, session, T)
    roots = [one for one in records(made.data) if "uuid" in one and one["parentUuid"] is None]
    assert len(roots) == 1
    assert set(read_back(made.data)) >= {one["uuid"] for one in records(data) if one.get("type") == "assistant"}


@pytest.mark.accepts("FIT-8", "FIT-6")
def test_only_the_records_own_session_is_renamed_wherever_the_old_id_stands() -> None:
    said = prompt("a", None, f"look at {S}", session=S, toolUseResult={"sessionId": S, "path": f"/x/{S}/y"})
    spaced = json.dumps({**json.loads(answer("b", "a", session=S)), "note": S}).encode()
    other = answer("c", "b", session=session_id(9))
    before = answer("d", "c", session=S).replace(
        b'"type":"text"', b'"type":"text","input":{"sessionId":"%s"}' % S.encode()
    )
    none = line({"type": "file-history-snapshot", "messageId": "a", "snapshot": {"sessionId": S}})
    made = of(repaired(jsonl(said, spaced, other, none, before), S, T))
    assert [one.get("sessionId") for one in made] == [T, T, T, None, T]
    assert made[0]["toolUseResult"] == {"sessionId": S, "path": f"/x/{S}/y"}
    assert made[0]["message"]["content"] == f"look at {S}"
    assert made[1]["note"] == S
    assert made[3]["snapshot"]["sessionId"] == S
    assert made[4]["message"]["content"][0]["input"] == {"sessionId": S}


@pytest.mark.accepts("FIT-8")
@given(st.lists(st.sampled_from([*talk("abcdefgh", S), *UNREADABLE[:-1], b"", b"{}", SIDE])))
def test_whatever_is_repaired_reads_line_by_line_and_repairs_into_itself(lines: Sequence[bytes]) -> None:
    made = repaired(b"".join(one + b"\n" for one in lines), S, T)
    assert all(read(one) is not None for one in split(made.data).lines)
    assert split(made.data).tail == b""
    again = repaired(made.data, T, T)
    assert (again.data, again.set_apart) == (made.data, ())


@pytest.mark.accepts("FIT-8", "RESTORE-15")
def test_the_command_writes_a_copy_and_touches_nothing_of_the_original(
    world: World, profile: Path, run_keeper: Command
) -> None:
    a, b, c, d = talk("abcd", S)
    path = write_live(profile, CWD, S, jsonl(a, b, b"\x00garbled\xff", c, d))
    assert run_keeper("keep", S).code == 0
    inode = path.stat().st_ino
    for lost in (False, True):
        if lost:
            path.unlink()
        done = run_keeper("restore", S, "--repaired", "--json")
        assert done.code == 0, done.err
        copy = Path(done.json["live"])
        assert copy.read_bytes() == jsonl(*talk("abcd", copy.stem))
        assert (path.read_bytes(), path.stat().st_ino) == (jsonl(a, b, b"\x00garbled\xff", c, d), inode)
        aside = files(world.root / "chats" / copy.stem / "aside")
        assert list(aside.values()) == [b"\x00garbled\xff"], "dropped from the copy, thrown away nowhere"
        assert any("line 3" in deed for deed in done.json["deeds"])
    said = run_keeper("restore", S, "--repaired")
    assert "line 3" in said.text
    assert len(run_keeper("list", "--json").json["chats"]) == 4


@pytest.mark.accepts("RESTORE-15")
@pytest.mark.parametrize("glue", ["two records on one line", "a record behind a torn one"])
def test_what_a_cli_would_refuse_or_half_read_is_reported_with_the_command_that_mends_it(
    world: World, profile: Path, run_keeper: Command, glue: str
) -> None:
    a, b, c, d = talk("abcd", S)
    data = {
        "two records on one line": jsonl(a, b + c, d),
        "a record behind a torn one": jsonl(a, b[:90] + c, d),
    }[glue]
    path = write_live(profile, CWD, S, data)
    assert run_keeper("keep", S).code == 0
    told = run_keeper("restore", S, "--json").json
    assert any(f"keeper restore {S} --repaired" in one for one in told["warnings"]), told["warnings"]
    assert path.read_bytes() == data, "it was mended in place"
    copy = Path(run_keeper("restore", S, "--repaired", "--json").json["live"])
    assert set(read_back(copy.read_bytes())) >= {"a", "c", "d"}
    assert all(read(one) is not None for one in split(copy.read_bytes()).lines)


@pytest.mark.accepts("FIT-8")
def test_a_copy_and_a_record_go_with_one_session(world: World, run_keeper: Command) -> None:
    for words in (["--repaired"], [S, T, "--repaired"], ["--all", "--through", "a"], [S, T, "--through", "a"]):
        assert run_keeper("restore", *words).code == 2
    assert run_keeper("restore", "../../x", "--repaired").code == 8
    assert run_keeper("restore", S, "--repaired").code == 4
    assert run_keeper("restore", S, "--repaired", "--through", "a").code == 2
