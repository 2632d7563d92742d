"""A whole profile is kept: which folder is whose, which profile's it is, two keeps and a restore at once, and no bad
file that stops another."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from keeper import claude
from tests import build
from tests.build import CWD, append, copy_real, jsonl, meta, prompt, real, session_id, talk, write_live
from tests.conftest import Needs, Ran
from tests.seam import World, before, calls_of, hooked, lines_of, names_of_ours, state_of, twice_or_missing, world
from tests.volumes import tmpfs

OLD, NEW = "2.1.197", "2.1.328"


@pytest.fixture
def here(profile: Path, vault_home: Path, tmp_path: Path) -> World:
    return world(profile, vault_home, tmp_path / "state")


@pytest.fixture
def apart(profile: Path, second_volume: Path, tmp_path: Path) -> World:
    return world(profile, second_volume / "vault", tmp_path / "state")


# ------------------------------------------------------------------ what the real CLI wrote, kept, taken away, put back


@pytest.mark.accepts("KEEP-1", "KEEP-7", "RESTORE-1")
@pytest.mark.parametrize("version", [OLD, NEW])
def test_all_that_the_real_cli_left_is_kept_and_comes_back_byte_for_byte(
    profile: Path, vault_home: Path, run_keeper: Callable[..., Ran], version: str
) -> None:
    scenarios = ["tools", "subagent", "compacted", "forked", "cleared", "two_writers", "relocated", "interactive"]
    for scenario in scenarios:
        copy_real(version, scenario, profile)
    sessions = sorted(session for scenario in scenarios for session in real(version, scenario)["resumed"])
    was = {path: bytes_of for path, (_, _, _, bytes_of) in state_of(profile).items()}
    ran = run_keeper("keep", "--json")
    assert (ran.code, sorted(one["session"] for one in ran.json["kept"])) == (0, sessions)
    for name in ("projects", "file-history", "tasks"):
        shutil.rmtree(profile / name, ignore_errors=True)
    asked = time.time()
    for session in sessions:
        ran = run_keeper("restore", session, "--json")
        assert (ran.code, ran.json["action"]) == (0, "restored"), ran.err
        live = Path(ran.json["live"])
        assert live.samefile(vault_home / "chats" / ran.json["chat"] / f"{session}.jsonl")
        assert live.stat().st_mtime >= asked - 1
    assert {path: bytes_of for path, (_, _, _, bytes_of) in state_of(profile).items()} == was


@pytest.mark.accepts("MERGE-9", "KEEP-17")
@pytest.mark.parametrize(
    "bad",
    [b"\x00" * 50, b"\xff\xfe{", b"{" * 2000, b'{"uuid":"\\ud800","cwd":"/x","type":"user"}', b"[1,2]", b'"text"',
     b'{"uuid":5,"cwd":"\\ud800","sessionId":"\\udfff","type":"user","parentUuid":"\\ud800"}', b"NaN", b"9" * 400,
     b'{"uuid":"u","cwd":"/x","cwd":7,"type":"user"}', "\ufeff{}".encode(), b'{"uuid":"a"}{"uuid":"b"}'],
    ids=range(12),
)  # fmt: skip
def test_a_line_that_no_parser_takes_stops_neither_its_file_nor_the_run(here: World, bad: bytes) -> None:
    own = talk("ab")
    write_live(here.profile, CWD, here.session, jsonl(bad, own[0], bad, own[1]))
    other = here.about(session_id(2))
    write_live(other.profile, CWD, other.session, jsonl(*talk("ab", session=other.session)))
    answers = here.keep_all()
    assert {one.error for one in answers.values()} == {None}
    assert set(answers) == {here.session, other.session}
    assert lines_of(here.kept) == [bad, own[0], bad, own[1]]
    write_live(here.profile, CWD, here.session, jsonl(*talk("cd", parent="b"), b"\x00"))
    assert {one.error for one in here.keep_all().values()} == {None}
    here.live.unlink()
    here.restore()
    assert lines_of(here.live) == [bad, own[0], bad, own[1], *talk("cd", parent="b"), b"\x00"]


@pytest.mark.accepts("MERGE-9", "KEEP-16")
@pytest.mark.parametrize("field", ["cwd", "uuid", "sessionId", "parentUuid", "version", "timestamp"])
@pytest.mark.parametrize("value", ["x\ud800y", "\x00", "/" * 300, "", 7, None, ["a"], {"a": 1}, True])
def test_an_odd_value_in_a_first_record_stops_nothing(here: World, field: str, value: object) -> None:
    first, second = talk("ab")
    fields = {**json.loads(first), field: value}
    write_live(here.profile, CWD, here.session, jsonl(json.dumps(fields).encode(), second))
    other = here.about(session_id(2))
    write_live(other.profile, CWD, other.session, jsonl(*talk("ab", session=other.session)))
    answers = here.keep_all()
    assert answers[other.session].error is None
    assert [one.error for one in answers.values()] == [None, None]
    write_live(here.profile, CWD, here.session, jsonl(*talk("cd", parent="b")))
    assert {one.error for one in here.keep_all().values()} == {None}
    here.vault().reindex()
    assert len(here.vault().rows()) == 2


@pytest.mark.accepts("FIT-5")
def test_noise_is_no_chat(here: World) -> None:
    write_live(here.profile, CWD, session_id(1), b"")
    write_live(here.profile, CWD, session_id(2), jsonl(meta("summary", summary="x"), meta("summary", summary="y")))
    project = build.live_path(here.profile, session_id(1)).parent
    (project / "sessions-index.json").write_text("{}")
    (project / "agent-0a1b.jsonl").write_bytes(jsonl(meta("summary", summary="warm-up")))
    (project / "no-uuid.jsonl").write_bytes(jsonl(*talk("ab")))
    (project / "memory").mkdir()
    (project / "memory" / "MEMORY.md").write_text("x")
    assert here.keep_all() == {}
    assert list((here.root / "chats").iterdir()) == []
    append(build.live_path(here.profile, session_id(1)), jsonl(*talk("ab")))
    assert list(here.keep_all()) == [session_id(1)]


# ------------------------------------------------------------------ folders' names


@pytest.mark.accepts("KEEP-15")
@pytest.mark.parametrize(
    ("cwd", "folder"),
    [
        ("/home/ann/My Project_1.x", "-home-ann-My-Project-1-x"),
        ("/srv/Größe", "-srv-Gr--e"),
        ("/srv/日本", "-srv---"),
        ("/srv/𝄞x", "-srv---x"),
        ("/srv/e\u0301", "-srv-e-"),
        ("/", "-"),
        ("/a/b-c", "-a-b-c"),
        ("/a/b_c", "-a-b-c"),
        ("/a/b/c", "-a-b-c"),
        ("/srv/½²٣", "-srv----"),
    ],
)
def test_every_utf16_unit_outside_letters_and_digits_becomes_a_dash(cwd: str, folder: str) -> None:
    assert claude.folder_names(cwd) == (folder,)


def hashed(cwd: str) -> str:
    """The rule as Claude's own code has it, in 32-bit integers: h = (h << 5) - h + unit, abs, base 36."""
    value = 0
    raw = cwd.encode("utf-16-le")
    for place in range(0, len(raw), 2):
        value = ((value << 5) - value + int.from_bytes(raw[place : place + 2], "little")) & 0xFFFFFFFF
    value = abs(value - (1 << 32) if value >= 1 << 31 else value)
    digits = ""
    while value:
        value, digit = divmod(value, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits or "0"


@pytest.mark.accepts("KEEP-15", "FIT-3")
@pytest.mark.parametrize("text", ["a", "ä", "𝄞", "x.y", "Z"])
def test_over_200_units_the_name_is_cut_and_hashed_and_the_full_one_is_known_too(text: str) -> None:
    units = len(text.encode("utf-16-le")) // 2
    short, long = "/" + text * (199 // units), "/" + text * (201 // units + 1)
    assert claude.folder_names(short) == ("-" + dashed(text) * (199 // units),)
    full = "-" + dashed(text) * (201 // units + 1)
    assert claude.folder_names(long) == (f"{full[:200]}-{hashed(long)}", full)


def dashed(text: str) -> str:
    return "".join(c if c.isascii() and c.isalnum() else "-" * (len(c.encode("utf-16-le")) // 2) for c in text)


@pytest.mark.accepts("KEEP-15")
def test_a_hash_that_is_known(tmp_path: Path) -> None:
    """Reckoned by hand: 202 × `-` are cut to 200, and the sum over `/` + 201 × `a` modulo 2³² is 1291494463."""
    cwd = "/" + "a" * 201
    value = 0
    for unit in cwd:
        value = (31 * value + ord(unit)) % 2**32
    assert claude.folder_names(cwd)[0] == "-" + "a" * 199 + "-" + hashed(cwd)
    assert hashed("a") == "2p"
    assert hashed("/") == "1b"


@pytest.mark.accepts("KEEP-15")
@pytest.mark.parametrize("version", [OLD, NEW])
def test_the_rule_names_the_folders_that_the_real_cli_made(version: str) -> None:
    seen = 0
    for live in sorted((build.REAL / version).glob("*/projects/*/*.jsonl")):
        cwds = {json.loads(one).get("cwd") for one in live.read_bytes().splitlines()} - {None}
        assert not cwds or any(live.parent.name in claude.folder_names(cwd) for cwd in cwds), live
        seen += bool(cwds)
    assert seen > 10


@pytest.mark.accepts("KEEP-15")
def test_sessions_of_directories_with_one_folder_name_stay_apart_and_know_their_own(here: World) -> None:
    cwds = {session_id(1): "/a/b-c", session_id(2): "/a/b_c", session_id(3): "/a/b/c"}
    for session, cwd in cwds.items():
        write_live(here.profile, cwd, session, jsonl(*talk("ab", session=session, cwd=cwd)))
    answers = here.keep_all()
    assert {session: one.cwd for session, one in answers.items()} == cwds
    assert {one.project for one in answers.values()} == {"-a-b-c"}
    assert {one.chat for one in answers.values()} == set(cwds)


@pytest.mark.accepts("KEEP-15")
def test_the_cwd_is_told_by_the_records_and_never_by_the_folders_name(here: World) -> None:
    live = build.live_path(here.profile, here.session, "/somewhere/else")
    live.parent.mkdir(parents=True)
    live.write_bytes(jsonl(meta("mode", mode="plan"), *talk("ab", cwd="/srv/demo/real place")))
    assert here.keep().cwd == "/srv/demo/real place"


# ------------------------------------------------------------------ whose it is


@pytest.mark.accepts("KEEP-13")
def test_one_session_id_in_two_profiles_is_two_chats(
    profile: Path, home: Path, vault_home: Path, run_keeper: Callable[..., Ran]
) -> None:
    session = session_id(1)
    second = home / "second profile"
    live = write_live(profile, CWD, session, jsonl(*talk("ab")))
    other = write_live(second, CWD, session, jsonl(*talk("xy")))
    assert run_keeper("keep", live).code == 0
    assert run_keeper("keep", other).code == 0
    chats = run_keeper("list", "--json").json["chats"]
    assert {(one["profile"], one["session"]) for one in chats} == {(str(profile), session), (str(second), session)}
    mine, theirs = (Path(next(one["kept"] for one in chats if one["profile"] == str(p))) for p in (profile, second))
    assert mine.samefile(live)
    assert theirs.samefile(other)
    assert theirs.parent.name.startswith(f"{session}@")
    append(other, jsonl(*talk("z", parent="y")))
    assert run_keeper("keep").code == 0
    other.unlink()
    write_live(second, CWD, session, jsonl(*talk("w", parent="z")))
    assert run_keeper("keep").code == 0
    assert lines_of(theirs) == [*talk("xyz"), *talk("w", parent="z")]
    assert lines_of(mine) == talk("ab")


@pytest.mark.accepts("KEEP-13")
def test_a_profile_is_learnt_from_a_transcripts_path_the_environment_and_the_settings_file(
    profile: Path, home: Path, cli_env: dict[str, str], run_keeper: Callable[..., Ran]
) -> None:
    by_path, by_settings = home / "by-path", home / "by settings"
    write_live(profile, CWD, session_id(1), jsonl(*talk("ab", session=session_id(1))))
    live = write_live(by_path, CWD, session_id(2), jsonl(*talk("ab", session=session_id(2))))
    write_live(by_settings, CWD, session_id(3), jsonl(*talk("ab", session=session_id(3))))
    config = Path(cli_env["KEEPER_CONFIG"])
    config.parent.mkdir(parents=True)
    config.write_text('profiles = ["~/by settings"]\n')
    assert run_keeper("keep", live).code == 0
    answers = run_keeper("keep", "--json").json["kept"]
    wanted = {session_id(1): str(profile), session_id(2): str(by_path), session_id(3): str(by_settings)}
    assert {one["session"]: one["profile"] for one in answers} == wanted
    config.unlink()
    answers = run_keeper("keep", "--json", env={"CLAUDE_CONFIG_DIR": None}).json["kept"]
    assert {one["session"]: one["profile"] for one in answers} == wanted, "a profile that is kept was lost sight of"


@pytest.mark.accepts("KEEP-13")
def test_a_profile_is_learnt_from_a_claude_that_runs(tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "claude").symlink_to(shutil.which("sleep") or "/bin/sleep")
    profile = tmp_path / "its profile"
    environment = {"CLAUDE_CONFIG_DIR": str(profile)}
    with subprocess.Popen([folder / "claude", "60"], env=environment) as running:
        try:
            deadline = time.monotonic() + 20
            while profile not in claude.running_profiles() and time.monotonic() < deadline:
                time.sleep(0.01)
            assert profile in claude.running_profiles()
        finally:
            running.kill()
    assert profile not in claude.running_profiles()


@pytest.mark.accepts("KEEP-12")
@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_forks_folder_holds_the_fork_alone_and_names_its_parent(here: World, version: str) -> None:
    copy_real(version, "forked", here.profile)
    parent, fork = sorted(real(version, "forked")["resumed"])
    here.keep_all()
    for session in (parent, fork):
        view = here.about(session)
        assert sorted(path.name for path in view.chat.iterdir()) == [f"{session}.jsonl", "chat.json", "seal"]
        assert view.kept.samefile(view.live)
    told = json.loads((here.about(fork).chat / "chat.json").read_bytes())["sessions"]
    assert told[fork]["forked_from"] == parent
    told = json.loads((here.about(parent).chat / "chat.json").read_bytes())["sessions"]
    assert told[parent]["forked_from"] is None


@pytest.mark.accepts("KEEP-19")
@pytest.mark.parametrize("volume", ["here", "apart"])
def test_a_transcript_that_moves_to_another_project_folder_and_back_is_one_chat(
    volume: str, request: pytest.FixtureRequest
) -> None:
    view: World = request.getfixturevalue(volume)
    write_live(view.profile, CWD, view.session, jsonl(*talk("ab")))
    view.companion.mkdir()
    (view.companion / "x").write_bytes(b"x")
    view.keep()
    moved = view.about(view.session, f"{CWD}/.claude/worktrees/wt1")
    moved.live.parent.mkdir()
    view.live.rename(moved.live)
    view.companion.rename(moved.companion)
    append(moved.live, jsonl(*talk("c", parent="b")))
    answer = view.keep()
    assert (answer.project, answer.chat) == (moved.live.parent.name, view.session)
    assert view.restore().live == str(moved.live)
    assert not view.live.exists(), "keeper made a second live copy"
    moved.live.rename(view.live)
    moved.companion.rename(view.companion)
    append(view.live, jsonl(meta("relocated", relocatedCwd=CWD)))
    assert view.keep().project == view.live.parent.name
    assert view.restore().live == str(view.live)
    assert not moved.live.exists()
    assert lines_of(view.kept) == lines_of(view.live) == [*talk("abc"), meta("relocated", relocatedCwd=CWD)]
    assert sorted(path.name for path in (view.root / "chats").iterdir()) == [view.session]


@pytest.mark.accepts("KEEP-19")
def test_a_transcript_that_moves_between_the_survey_and_the_look_is_not_doubled(here: World) -> None:
    write_live(here.profile, CWD, here.session, jsonl(*talk("ab")))
    here.keep()
    write_live(here.profile, CWD, here.session, jsonl(*talk("cd", parent="b")))
    moved = here.about(here.session, "/srv/demo/moved")
    moved.live.parent.mkdir()
    with hooked(before("exchange", lambda: here.live.rename(moved.live))):
        here.keep()
    assert not here.live.exists()
    here.keep()
    assert twice_or_missing(here.kept, talk("abcd")) == {}
    here.restore()
    assert not here.live.exists()
    assert lines_of(moved.live) == talk("abcd")


@pytest.mark.accepts("KEEP-19")
def test_two_names_of_one_inode_are_one_live_file(here: World) -> None:
    write_live(here.profile, CWD, here.session, jsonl(*talk("ab")))
    twin = here.about(here.session, "/srv/demo/twin")
    twin.live.parent.mkdir()
    twin.live.hardlink_to(here.live)
    answer = here.keep()
    assert (answer.verdict, answer.warnings) == ("ahead", ())
    assert here.restore().action == "none"
    assert here.kept.samefile(twin.live)


@pytest.mark.accepts("KEEP-9")
def test_a_linked_project_on_another_volume_is_kept_though_its_inode_number_is_taken(
    needs: Needs, tmp_path: Path
) -> None:
    """Fresh tmpfs volumes count from the same number."""
    with tmpfs(needs, tmp_path / "one") as one, tmpfs(needs, tmp_path / "two") as two:
        here = world(one / "profile", one / "vault", one / "state")
        write_live(here.profile, CWD, here.session, jsonl(*talk("ab")))
        number = here.live.parent.stat().st_ino
        target = next(
            (place for place in map(two.joinpath, map(str, range(1000))) if not place.mkdir() and same(place, number)),
            None,
        )
        if target is None:
            needs.lacking("equal inode numbers", "", unavoidable="this kernel counts them over all volumes")
        (here.profile / "projects" / "-linked").symlink_to(target)
        other = here.about(session_id(2))
        (target / f"{other.session}.jsonl").write_bytes(jsonl(*talk("ab", session=other.session)))
        assert set(here.keep_all()) == {here.session, other.session}


def same(place: Path, number: int) -> bool:
    return place.stat().st_ino == number


# ------------------------------------------------------------------ several at once


LOOP = """
import sys, time
from pathlib import Path
from keeper.errors import KeeperError
from tests.seam import world
from dataclasses import replace
here = replace(world(*map(Path, sys.argv[1:4])), session=sys.argv[4])
stop = Path(sys.argv[5])
count = 0
print("ready", flush=True)
while not stop.exists():
    for deed in sys.argv[6:]:
        getattr(here, deed)()
        count += 1
print(count)
"""


@contextmanager
def loops(here: World, stop: Path, *deeds: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Real processes, one for each of `deeds`, each doing its own over and over until `stop` is there."""
    places = [here.profile, here.root, here.settings.state_home]
    running = [
        subprocess.Popen(
            [sys.executable, "-c", LOOP, *places, here.session, stop, *words.split()],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for words in deeds
    ]
    try:
        for one in running:
            assert one.stdout is not None
            one.stdout.readline()
        yield running
    finally:
        stop.touch()
        for one in running:
            try:
                one.wait(60)
            except subprocess.TimeoutExpired:
                one.kill()


def finished(running: list[subprocess.Popen[str]]) -> int:
    """How often they did it; a traceback of any is this test's."""
    total = 0
    for one in running:
        out, err = one.communicate(timeout=60)
        assert one.returncode == 0, err
        total += int(out.split()[-1])
    return total


def write_and_delete(here: World, count: int, held: Callable[[bytes], bool]) -> list[bytes]:
    """Claude's part: a batch by the name, now and then a file deleted once its last line is held, and made anew."""
    written: list[bytes] = []
    parent: str | None = "b"
    for number in range(count):
        uuid = f"u{number}"
        one = prompt(uuid, parent, "x" * (number % 50))
        append(here.live, jsonl(one))
        written.append(one)
        parent = uuid
        if number % 9 == 8:
            deadline = time.monotonic() + 30
            while not held(one):
                assert time.monotonic() < deadline, "no keep came by"
                time.sleep(0.001)
            here.live.unlink(missing_ok=True)
        time.sleep(0.002)
    return written


@pytest.mark.accepts("KEEP-10", "SWAP-5")
@pytest.mark.parametrize(
    "deeds", [("keep", "keep"), ("keep", "restore"), ("keep_all", "keep restore")], ids=["two", "beside", "all"]
)
@pytest.mark.parametrize("volume", ["here", "apart"])
def test_several_at_once_lose_and_double_no_line_of_a_file_that_is_written_deleted_and_made_anew(
    volume: str, deeds: tuple[str, str], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    view: World = request.getfixturevalue(volume)
    write_live(view.profile, CWD, view.session, jsonl(*talk("ab")))
    view.keep()

    def held(one: bytes) -> bool:
        """On one volume a second name is enough; over two, kept itself must have the line."""
        try:
            if volume == "here":
                return view.live.stat().st_nlink > 1
            return one in view.kept.read_bytes()
        except FileNotFoundError:
            return False

    with loops(view, tmp_path / "stop", *deeds) as running:
        written = write_and_delete(view, 150, held)
    assert finished(running) > 2
    view.keep()
    view.restore()
    assert twice_or_missing(view.kept, [*talk("ab"), *written]) == {}
    assert len(lines_of(view.kept)) == len(written) + 2
    assert lines_of(view.live) == lines_of(view.kept)
    assert names_of_ours(view.profile, view.root) == []


@pytest.mark.accepts("KEEP-10", "KEEP-11")
def test_two_keeps_of_a_growing_profile_bury_no_chat_and_keep_each_once(here: World, tmp_path: Path) -> None:
    write_live(here.profile, CWD, here.session, jsonl(*talk("ab")))
    here.keep()
    with loops(here, tmp_path / "stop", "keep_all", "keep_all") as running:
        for number in range(2, 82):
            write_live(here.profile, CWD, session_id(number), jsonl(*talk("ab", session=session_id(number))))
            time.sleep(0.01)
    assert finished(running) > 2
    assert {one.verdict for one in here.keep_all().values()} <= {"same", "ahead"}
    assert {one.verdict for one in here.keep_all().values()} == {"same"}
    assert not (here.root / "tombstones.jsonl").exists()
    assert sorted(row.session for row in here.vault().rows()) == sorted(map(session_id, range(1, 82)))


@pytest.mark.accepts("KEEP-10")
def test_the_locks_sentinel_is_neither_renamed_nor_removed(here: World) -> None:
    from keeper.transcripts.forget import forget

    write_live(here.profile, CWD, here.session, jsonl(*talk("ab")))
    here.keep()
    sentinel = here.root / "locks" / f"{here.session}.lock"
    inode = sentinel.stat().st_ino
    here.restore()
    forget(here.vault(), here.session, time.time())
    here.keep()
    assert sentinel.stat().st_ino == inode


@pytest.mark.accepts("KEEP-10")
def test_two_first_keeps_at_once_make_one_chat(here: World, tmp_path: Path) -> None:
    for number in range(1, 21):
        write_live(here.profile, CWD, session_id(number), jsonl(*talk("ab", session=session_id(number))))
    go = tmp_path / "go"
    code = f"import pathlib, time\nwhile not pathlib.Path({str(go)!r}).exists(): time.sleep(0.001)\n" + LOOP.replace(
        "while not stop.exists():", "for _ in range(1):"
    )
    places = [here.profile, here.root, here.settings.state_home]
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code, *places, here.session, tmp_path / "stop", "keep_all"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    go.touch()
    assert finished(running) == 3
    assert len(here.vault().rows()) == 20
    assert here.vault().chat_names() == [session_id(number) for number in range(1, 21)]
    assert {one.verdict for one in here.keep_all().values()} == {"same"}


# ------------------------------------------------------------------ the command


@pytest.mark.accepts("KEEP-17")
def test_the_exit_code_tells_all_from_part(
    profile: Path, vault_home: Path, tmp_path: Path, run_keeper: Callable[..., Ran]
) -> None:
    here = world(profile, vault_home, tmp_path / "state")
    assert run_keeper("keep").code == 0
    assert run_keeper("keep", session_id(1)).code == 4
    assert run_keeper("keep", "../../x").code == 8
    assert run_keeper("keep", "--adopt").code == 2
    for number in (1, 2):
        write_live(profile, CWD, session_id(number), jsonl(*talk("ab", session=session_id(number))))
    (vault_home / "chats" / session_id(1)).write_bytes(b"in the way")
    ran = run_keeper("keep", "--json")
    assert ran.code == 3
    assert {one["session"]: one["error"] is None for one in ran.json["kept"]} == {
        session_id(1): False,
        session_id(2): True,
    }
    assert here.about(session_id(2)).kept.exists()


@pytest.mark.accepts("KEEP-17")
def test_one_name_that_is_not_known_stops_no_other_of_the_call(
    profile: Path, vault_home: Path, run_keeper: Callable[..., Ran]
) -> None:
    write_live(profile, CWD, session_id(1), jsonl(*talk("ab")))
    ran = run_keeper("keep", session_id(9), session_id(1))
    assert ran.code == 3
    assert session_id(9) in ran.err
    assert (vault_home / "chats" / session_id(1) / f"{session_id(1)}.jsonl").exists()
    assert [one["session"] for one in run_keeper("list", "--json").json["chats"]] == [session_id(1)]


@pytest.mark.accepts("KEEP-2", "KEEP-12", "KEEP-17")
def test_a_lineage_that_cannot_be_written_takes_nothing_from_what_was_kept(here: World) -> None:
    fork, other = here.about(session_id(2)), here.about(session_id(3))
    write_live(here.profile, CWD, here.session, jsonl(*talk("abc")))
    write_live(fork.profile, CWD, fork.session, jsonl(*talk("abxy", session=fork.session)))
    fork.keep()
    write_live(other.profile, CWD, other.session, jsonl(*talk("pq", session=other.session)))

    def fail(call: str, paths: tuple[str, ...]) -> None:
        if call == "create" and f"/{fork.session}/" in paths[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with hooked(fail):
        answers = here.keep_all()
    assert {one.error for one in answers.values()} == {None}
    assert sorted(row.session for row in here.vault().rows()) == [here.session, fork.session, other.session]


@pytest.mark.accepts("KEEP-2")
def test_what_a_keep_answers_for_was_synced_before_it_answers(here: World) -> None:
    """File and folders, companion files too, also those that only grew through their link."""
    write_live(here.profile, CWD, here.session, jsonl(*talk("ab")))
    here.companion.mkdir()
    (here.companion / "x.txt").write_bytes(b"x")
    grown = {str(here.kept), str(here.kept_companion / "x.txt")}
    made = {str(here.root / "chats"), str(here.chat), str(here.kept_companion), str(here.chat / "chat.json")}
    synced = {paths[0] for call, paths in calls_of(here.keep) if call == "sync"}
    assert grown | made <= synced
    append(here.live, jsonl(*talk("c", parent="b")))
    append(here.companion / "x.txt", b"more")
    synced = {paths[0] for call, paths in calls_of(here.keep) if call == "sync"}
    assert grown <= synced


@pytest.mark.accepts("KEEP-2")
def test_the_folder_is_durable_before_its_row(here: World) -> None:
    write_live(here.profile, CWD, here.session, jsonl(*talk("ab")))
    here.vault()
    names = [call for call, _ in calls_of(here.keep)]
    assert names.index("commit") > max(place for place, name in enumerate(names) if name == "sync")
    assert os.path.exists(here.kept)
