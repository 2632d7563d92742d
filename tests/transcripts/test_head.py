"""Head: whose a transcript is, where it was written, whether it is a chat, and whether Claude would resume it."""

import json
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from keeper.transcripts.head import read_head, resumable, session_named
from keeper.transcripts.restore import Restorer, Want
from tests import build
from tests.build import CWD, boundary, jsonl, line, meta, prompt, session_id, talk, write_live
from tests.chat import files, put, sweep
from tests.conftest import Ran
from tests.seam import World
from tests.seam import world as world_of

Command = Callable[..., Ran]

S, T, U = session_id(1), session_id(2), session_id(3)
VERSIONS = sorted(path.name for path in build.REAL.iterdir() if path.is_dir())
PLAYED = [
    pytest.param(version, scenario, session, words, id=f"{version} {scenario} {session[:8]}")
    for version in VERSIONS
    for scenario in sorted(path.name for path in (build.REAL / version).iterdir())
    for session, words in build.real(version, scenario)["resumed"].items()
]


@pytest.fixture
def world(profile: Path, vault_home: Path, home: Path) -> World:
    return world_of(profile, vault_home, home / ".local" / "state" / "keeper")


# --- would Claude resume it (RESTORE-8) ---------------------------------------------------------------------


@pytest.mark.accepts("RESTORE-8")
@pytest.mark.parametrize(("version", "scenario", "session", "words"), PLAYED)
def test_it_agrees_with_the_real_cli_on_all_that_it_wrote(
    tmp_path: Path, version: str, scenario: str, session: str, words: list[str] | None
) -> None:
    path = put(tmp_path / f"{session}.jsonl", build.real_live(version, scenario, session))
    assert resumable(str(path)) is bool(words), "a meta record alone resumes with nothing to read"


SIDE = prompt("s", None, session=S, isSidechain=True)


def said(*kinds: str) -> bytes:
    """A user's record whose content is blocks of these kinds."""
    content = [{"type": kind, "text": "x"} for kind in kinds]
    return line({**json.loads(prompt("p", None)), "message": {"role": "user", "content": content}})


@pytest.mark.accepts("RESTORE-8")
@pytest.mark.parametrize(
    ("data", "want"),
    [
        (b"", False),
        (b"\n\n", False),
        (jsonl(meta("mode", mode="normal"), meta("custom-title", customTitle='"user"')), False),
        (jsonl(SIDE, build.answer("s2", "s", isSidechain=True)), False),
        (jsonl(prompt("m", None, isMeta=True)), False),
        (jsonl(said("tool_result")), False),
        (jsonl(*talk("a", S)), True),
        (jsonl(SIDE, *talk("a", S)), True),
        (jsonl(said("text")), True),
        (jsonl(said("image", "text")), True),
        (jsonl(b"garbled", b'{"type":"user"', b"\x00\x00", *talk("a", S)), True),
        (jsonl(*talk("a", S))[:-1], True),
        (jsonl(*talk("ab", S)), True),
    ],
    ids=[
        "empty", "blank lines", "metadata", "sidechain", "meta prompt", "tool result", "a prompt without an answer",
        "after a sidechain", "text block", "image and text", "after lines that nobody reads", "no last newline",
        "a turn",
    ],
)  # fmt: skip
def test_one_real_prompt_makes_it_resumable_and_nothing_less(tmp_path: Path, data: bytes, want: bool) -> None:
    assert resumable(str(put(tmp_path / "a.jsonl", data))) is want


@pytest.mark.accepts("RESTORE-8")
def test_the_check_stops_reading_at_the_first_prompt(tmp_path: Path) -> None:
    path = put(tmp_path / "a.jsonl", jsonl(meta("mode", mode="normal"), *talk("ab", S)))
    with path.open("ab") as file:
        for _ in range(64):
            file.write(b"x" * ((1 << 20) - 1) + b"\n")
    assert bytes_read(lambda: resumable(str(path))) < 1 << 20


@pytest.mark.accepts("RESTORE-8")
def test_the_check_streams(tmp_path: Path) -> None:
    """A prompt at the end of a large file: never more of it in memory than a line."""
    path = put(tmp_path / "a.jsonl", meta("mode", mode="normal") + b"\n")
    with path.open("ab") as file:
        for _ in range(64):
            file.write(b'{"type":"progress","user":"' + b"x" * (1 << 20) + b'"}\n')
        file.write(jsonl(*talk("ab", S)))
    tracemalloc.start()
    try:
        assert resumable(str(path))
        assert tracemalloc.get_traced_memory()[1] < 24 << 20
    finally:
        tracemalloc.stop()


def bytes_read(run: Callable[[], object]) -> int:
    """How many bytes this process read, as the kernel counts them."""

    def counted() -> int:
        return int(Path("/proc/self/io").read_text().split()[1])

    before = counted()
    run()
    return counted() - before


@pytest.mark.accepts("RESTORE-8")
@pytest.mark.parametrize(
    "data", [jsonl(meta("mode", mode="normal", sessionId=S)), jsonl(SIDE)], ids=["metadata only", "sidechain only"]
)
def test_a_chat_without_a_prompt_is_restored_and_said_to_be_for_no_resume(
    world: World, run_keeper: Command, data: bytes
) -> None:
    path = write_live(world.profile, CWD, S, data)
    world.keep()
    path.unlink()
    done = run_keeper("restore", S, "--json")
    assert (done.code, path.read_bytes()) == (0, data)
    assert done.json["resumable"] is False
    assert any("no prompt" in warning for warning in done.json["warnings"])
    write_live(world.profile, CWD, S, jsonl(*talk("a", S)))
    assert run_keeper("restore", S, "--json").json["resumable"] is True


# --- noise is no chat (FIT-5) -------------------------------------------------------------------------------

SUMMARY = meta("summary", summary="A talk", leafUuid="x")


@pytest.mark.accepts("FIT-5")
@pytest.mark.parametrize(
    "data",
    [b"", SUMMARY + b"\n", jsonl(SUMMARY, SUMMARY), b"\n\n", SUMMARY],
    ids=["0 bytes", "one", "two", "blank", "torn"],
)
@pytest.mark.parametrize("way", ["all", "by id", "by path"])
def test_a_file_of_noise_is_no_chat(world: World, profile: Path, run_keeper: Command, data: bytes, way: str) -> None:
    path = write_live(profile, CWD, T, data)
    put(path.parent / "agent-warm.jsonl", b"")
    put(path.parent / "agent-0f3.jsonl", jsonl(prompt("w", None, "Warmup", session=U, isSidechain=True)))
    put(path.parent / "sessions-index.json", b"{}")
    put(path.parent / "not-a-session.jsonl", jsonl(*talk("ab", T)))
    done = run_keeper("keep", *{"all": [], "by id": [T], "by path": [path]}[way])
    assert done.code == (0 if way == "all" else 4)
    assert run_keeper("list", "--json").json["chats"] == []
    assert list((world.root / "chats").iterdir()) == []
    assert run_keeper("restore", T).code == 4


@pytest.mark.accepts("FIT-5")
def test_noise_that_grows_into_a_conversation_is_kept(world: World) -> None:
    path = write_live(world.profile, CWD, S, SUMMARY + b"\n")
    world.keep_all()
    assert not world.chat.exists()
    build.append(path, jsonl(*talk("ab", S)))
    world.keep_all()
    assert world.kept.samefile(path)


@pytest.mark.accepts("FIT-5")
def test_a_file_that_begins_with_a_line_that_no_parser_takes_is_no_noise(world: World) -> None:
    path = write_live(world.profile, CWD, S, b"\x00garbled\n")
    world.keep_all()
    assert world.kept.samefile(path)


@pytest.mark.accepts("FIT-5")
def test_a_kept_chat_whose_live_file_is_noise_now_stays_a_chat(world: World) -> None:
    for noise in (b"", SUMMARY + b"\n"):
        write_live(world.profile, CWD, S, jsonl(*talk("ab", S)))
        world.keep_all()
        path = write_live(world.profile, CWD, S, noise)
        world.keep_all()
        assert world.kept.read_bytes().startswith(jsonl(*talk("ab", S)))
        world.restore()
        assert path.read_bytes().startswith(jsonl(*talk("ab", S)))


# --- a continuation is the chat that its records name (FIT-6) -----------------------------------------------

WHOLE = talk("abcd", S, version="1.0.124")
GOES_ON = talk("ef", S, parent="d", version="1.0.124")


def continued(world: World, *order: str) -> tuple[Path, Path]:
    """The chat S and the file T that goes on with it, made and kept in that order."""
    paths = {}
    for name in order:
        data = jsonl(*(WHOLE if name == S else GOES_ON))
        paths[name] = write_live(world.profile, CWD, name, data)
        world.about(name).keep()
    return paths[S], paths[T]


@pytest.mark.accepts("FIT-6")
@pytest.mark.parametrize("order", [(S, T), (T, S)], ids=["the chat first", "the continuation first"])
@pytest.mark.parametrize("asked", [S, T], ids=["the chat", "the continuation"])
def test_a_continuation_is_one_chat_with_what_it_goes_on_with_and_a_restore_gives_both(
    world: World, run_keeper: Command, order: tuple[str, str], asked: str
) -> None:
    whole, more = continued(world, *order)
    assert [path.name for path in (world.root / "chats").iterdir()] == [S]
    sweep(world.profile)
    done = run_keeper("restore", asked, "--json")
    assert (done.code, done.json["chat"]) == (0, S)
    assert done.json["also"] == [T if asked == S else S]
    assert (whole.read_bytes(), more.read_bytes()) == (jsonl(*WHOLE), jsonl(*GOES_ON))
    newest = max((whole, more), key=lambda path: path.stat().st_mtime_ns)
    assert newest.stem == asked, "--continue takes the newest: the one that was asked for"
    chats = run_keeper("list", "--json").json["chats"]
    assert {(chat["session"], chat["chat"]) for chat in chats} == {(S, S), (T, S)}


@pytest.mark.accepts("FIT-6")
@pytest.mark.parametrize("asked", [S, T, U])
def test_two_continuations_come_back_together(world: World, asked: str) -> None:
    continued(world, S, T)
    write_live(world.profile, CWD, U, jsonl(*talk("gh", S, parent="f", version="1.0.124")))
    world.about(U).keep()
    before = files(world.profile)
    sweep(world.profile)
    world.about(asked).restore()
    assert files(world.profile) == before


@pytest.mark.accepts("FIT-6")
def test_a_continuation_is_told_in_one_first_pass_too(world: World) -> None:
    for name, data in ((T, jsonl(*GOES_ON)), (S, jsonl(*WHOLE))):
        write_live(world.profile, CWD, name, data)
    world.keep_all()
    assert [path.name for path in (world.root / "chats").iterdir()] == [S]


@pytest.mark.accepts("FIT-6", "KEEP-12")
def test_a_fork_that_left_the_original_id_on_its_copied_head_is_its_own_chat(world: World) -> None:
    """2.0.76, 2.1.15 and 2.1.61 write it so."""
    write_live(world.profile, CWD, S, jsonl(*talk("abcd", S)))
    write_live(world.profile, CWD, T, jsonl(*talk("abcd", S), *talk("ef", T, parent="d")))
    world.keep_all()
    assert sorted(path.name for path in (world.root / "chats").iterdir()) == [S, T]


@pytest.mark.accepts("FIT-6")
@pytest.mark.parametrize("lines_between", [0, 400], ids=["at once", "beyond the first window"])
def test_one_record_with_the_files_own_id_wherever_it_stands_makes_it_no_continuation(
    tmp_path: Path, lines_between: int
) -> None:
    padding = [meta("progress", text="x" * 1000, sessionId=S)] * lines_between
    data = jsonl(*GOES_ON, *padding, meta("mode", mode="normal", sessionId=T))
    assert read_head(str(put(tmp_path / f"{T}.jsonl", data)), T).named is None
    data = jsonl(*GOES_ON, *padding, meta("mode", mode="normal", sessionId=S, note=T))
    assert read_head(str(put(tmp_path / f"{T}.jsonl", data)), T).named == S


@pytest.mark.accepts("FIT-6")
def test_a_file_whose_chain_begins_in_it_is_no_continuation(tmp_path: Path) -> None:
    path = put(tmp_path / f"{T}.jsonl", jsonl(*talk("abcd", S)))
    assert read_head(str(path), T).named is None


@pytest.mark.accepts("FIT-6")
@pytest.mark.parametrize("named", ["../../x", "not-a-session", "", T])
def test_a_continuation_is_believed_only_where_it_names_a_session(world: World, named: str) -> None:
    path = write_live(world.profile, CWD, T, jsonl(*talk("ef", named or " ", parent="d")))
    world.keep_all()
    assert [chat.name for chat in (world.root / "chats").iterdir()] == [T]
    path.unlink()
    world.about(T).restore()
    assert path.exists()


@pytest.mark.accepts("FIT-6")
def test_a_recreated_tail_is_no_continuation(world: World) -> None:
    """Deleted under a living process: the tail hangs on a missing parent, but carries the file's own id."""
    write_live(world.profile, CWD, S, jsonl(*talk("ef", S, parent="d")))
    write_live(world.profile, CWD, T, jsonl(*talk("gh", T, parent="d")))
    world.keep_all()
    assert sorted(chat.name for chat in (world.root / "chats").iterdir()) == [S, T]


# --- what the head tells ------------------------------------------------------------------------------------


@pytest.mark.accepts("KEEP-15")
def test_the_cwd_comes_from_the_records_and_never_from_the_folder(world: World, run_keeper: Command) -> None:
    path = write_live(world.profile, "/a/b-c", S, jsonl(*talk("ab", S, cwd="/a/b_c")))
    write_live(world.profile, "/a/b-c", T, jsonl(*talk("ab", T, cwd="/a/b/c")))
    world.keep_all()
    told = {chat["session"]: chat["cwd"] for chat in run_keeper("list", "--json").json["chats"]}
    assert told == {S: "/a/b_c", T: "/a/b/c"}
    path.unlink()
    answer = Restorer(world.vault(), 0, Want(dry_run=True)).session(S)
    assert (answer.cwd, answer.live) == ("/a/b_c", str(path))


def test_the_head_is_read_from_the_beginning_alone(tmp_path: Path) -> None:
    path = put(tmp_path / f"{S}.jsonl", jsonl(*talk("ab", S)))
    with path.open("ab") as file:
        for _ in range(16):
            file.write(b"x" * ((1 << 20) - 1) + b"\n")
    assert bytes_read(lambda: read_head(str(path), S)) < 1 << 20
    told = read_head(str(path), S)
    assert (told.cwd, told.version, told.head, told.noise) == (CWD, build.CLI, "a", False)


def test_a_compacted_file_and_one_that_begins_with_metadata_tell_their_first_record(tmp_path: Path) -> None:
    data = jsonl(meta("mode", mode="normal", sessionId=S), boundary("k", "j", session=S), *talk("ab", S))
    told = read_head(str(put(tmp_path / f"{S}.jsonl", data)), S)
    assert (told.head, told.cwd) == ("k", CWD)


def test_the_session_that_an_agents_file_names_is_its_first(tmp_path: Path) -> None:
    path = put(tmp_path / "agent-1.jsonl", jsonl(b"garbled sessionId", SIDE, prompt("o", None, session=T)))
    assert session_named(str(path)) == S
    assert session_named(str(put(tmp_path / "agent-2.jsonl", b"{}\n"))) is None
    os.mkfifo(tmp_path / "agent-3.jsonl")
    with pytest.raises(FileNotFoundError):
        session_named(str(tmp_path / "agent-3.jsonl"))
