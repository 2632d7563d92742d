"""Restore: what a resume reads is whole: bytes, times, companions; nothing that is there is overwritten."""

import errno
import os
import shutil
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from keeper.transcripts.records import uuid_of
from keeper.transcripts.restore import Restorer, Want
from tests import build
from tests.build import CWD, jsonl, meta, session_id, talk, write_live
from tests.chat import age, files, kept_path, put, sweep, write_whole
from tests.conftest import Needs, Ran
from tests.seam import Hook, World, calls_of, hooked, killed_at, lines_of, names_of_ours, refusing, twice_or_missing
from tests.seam import before as at
from tests.seam import world as world_of
from tests.volumes import tmpfs

Command = Callable[..., Ran]

S = session_id(1)
A, B, C, D, E, F = talk("abcdef", S)
BRANCH = talk("xy", S, parent="b")
TORN = b'{"type":"assistant","uuid":"c","pare'
VERSIONS = sorted(path.name for path in build.REAL.iterdir() if path.is_dir())


@pytest.fixture
def world(profile: Path, vault_home: Path, home: Path) -> World:
    """The profile and the vault of the command, for calls from here."""
    return world_of(profile, vault_home, home / ".local" / "state" / "keeper")


@pytest.fixture
def far(profile: Path, second_volume: Path) -> World:
    """The same profile with a vault on another volume."""
    return world_of(profile, second_volume / "vault", second_volume / "state")


@pytest.fixture(params=["same volume", "other volume"])
def either(request: pytest.FixtureRequest, world: World, far: World) -> World:
    return world if request.param == "same volume" else far


def kept_then(world: World, kept: bytes, live: bytes | None) -> Path:
    """Keep the one, then have the other live, on another inode (None: swept)."""
    path = write_live(world.profile, CWD, S, kept)
    world.keep()
    path.unlink()
    if live is not None:
        build.append(path, live)
    return path


def lines(*files: bytes) -> set[bytes]:
    return {line for data in files for line in data.splitlines()}


# --- swept: all of it comes back (RESTORE-1, RESTORE-2) -----------------------------------------------------


@pytest.mark.accepts("RESTORE-1", "KEEP-21")
@pytest.mark.parametrize("version", VERSIONS)
def test_everything_the_real_cli_wrote_comes_back_byte_for_byte_and_as_one_inode(
    profile: Path, vault_home: Path, run_keeper: Command, version: str
) -> None:
    for scenario in sorted(path.name for path in (build.REAL / version).iterdir()):
        build.copy_real(version, scenario, profile)
    age(profile)
    before = files(profile)
    sessions = [Path(name).stem for name in before if name.startswith("projects/") and name.count("/") == 2]
    assert len(sessions) > 12
    assert run_keeper("keep").code == 0
    sweep(profile)

    asked = time.time()
    for session in sessions:
        done = run_keeper("restore", session, "--json")
        assert done.code == 0, done.err
        live = Path(done.json["live"])
        assert live.samefile(kept_path(vault_home, session))
        assert live.stat().st_mtime >= asked - 0.1
    assert files(profile) == before


@pytest.mark.accepts("RESTORE-1", "RESTORE-2", "KEEP-21")
def test_a_whole_chat_comes_back_with_companion_extras_and_siblings_and_all_its_times_are_now(
    either: World, profile: Path
) -> None:
    live = write_whole(profile, S)
    before = files(profile)
    either.keep()
    sweep(profile)

    asked = time.time()
    answer = either.restore()
    assert (answer.verdict, answer.action, answer.records) == ("absent", "restored", 4)
    assert answer.files == len(before) - 1
    assert files(profile) == before
    for name in before:
        assert (profile / name).stat().st_mtime >= asked - 0.1, f"{name} keeps its old time"
    assert (profile / "file-history" / S).stat().st_mtime >= asked - 0.1
    assert stat.S_IMODE(live.stat().st_mode) == 0o600


@pytest.mark.accepts("RESTORE-2")
def test_what_is_still_there_but_past_its_retention_gets_the_time_of_now(either: World, profile: Path) -> None:
    live = write_whole(profile, S)
    either.keep()
    put(live.parent / S / "tool-results" / "toolu_2.txt", b"since the last keep")
    put(profile / "file-history" / S / "ffff@v1", b"since the last keep")
    age(profile)
    before = files(profile)

    asked = time.time()
    either.restore()
    assert files(profile) == before
    for name in before:
        assert (profile / name).stat().st_mtime >= asked - 0.1, f"{name} keeps its old time"
    assert (profile / "file-history" / S).stat().st_mtime >= asked - 0.1


@pytest.mark.accepts("RESTORE-2")
def test_a_time_is_set_before_its_name_appears(world: World, profile: Path) -> None:
    """A sweep that is running takes a file by the time that it finds on it."""
    live = write_whole(profile, S)
    world.keep()
    sweep(profile)
    asked = time.time()
    linked: dict[str, float] = {}

    def hook(call: str, paths: tuple[str, ...]) -> None:
        if call == "link" and paths[1].startswith(str(profile)):
            linked[paths[1]] = os.stat(paths[0]).st_mtime

    with hooked(hook):
        world.restore()
    assert str(live) in linked
    assert min(linked.values()) >= asked - 0.1


@pytest.mark.accepts("RESTORE-2")
@pytest.mark.parametrize("victim", [f"{S}.jsonl", f"{S}/tool-results/toolu_1.txt"], ids=["transcript", "tool result"])
def test_what_a_running_sweep_takes_again_meanwhile_is_there_at_the_end(
    world: World, profile: Path, victim: str
) -> None:
    live = write_whole(profile, S)
    before = files(profile)
    world.keep()
    sweep(profile)
    with hooked(at("link", (live.parent / victim).unlink, "/file-history/")):
        world.restore()
    assert files(profile) == before


@pytest.mark.accepts("RESTORE-1")
def test_what_was_written_to_a_split_live_file_and_swept_with_it_comes_back(world: World) -> None:
    """Live lacked records, so kept stands on its own inode; what Claude wrote after that keep no keep has seen."""
    path = kept_then(world, jsonl(A, B, C, D), jsonl(A, B, C))
    world.keep()
    build.append(path, jsonl(E))
    path.unlink()
    world.restore()
    assert path.read_bytes() == jsonl(A, B, C, D, E)


@pytest.mark.accepts("RESTORE-1", "RESTORE-16")
def test_an_unfinished_last_line_is_not_put_back_for_the_next_record_to_be_glued_to(either: World) -> None:
    """A power cut left the fragment, a link shares it, and CLIs up to 2.1.296 append right behind it."""
    path = kept_then(either, jsonl(A, B) + TORN, None)
    either.restore()
    assert path.read_bytes() == jsonl(A, B)


# --- there, but not whole: kept is folded into it first (RESTORE-3) -----------------------------------------

STUB = [meta("custom-title", customTitle="mine", sessionId=S), meta("mode", mode="normal", sessionId=S)]
FOLDED = [
    ("partial", jsonl(A, B), jsonl(C), "partial", jsonl(A, B, C)),
    ("partial with new turns", jsonl(A, B), jsonl(C, D, E), "partial", jsonl(A, B, C, D, E)),
    ("behind", jsonl(A, B, C, D), jsonl(A, B), "behind", jsonl(A, B, C, D)),
    ("empty", jsonl(A, B), b"", "empty", jsonl(A, B)),
    ("stub", jsonl(A, B), jsonl(*STUB), "partial", jsonl(A, B, *STUB)),
    ("torn only", jsonl(A, B), TORN, "waiting", jsonl(A, B)),
    ("whole and torn", jsonl(A, B), jsonl(A, B) + TORN, "same or ahead", jsonl(A, B)),
    ("partial and torn", jsonl(A, B), jsonl(C) + TORN, "partial", jsonl(A, B, C)),
    ("behind and torn", jsonl(A, B, C, D), jsonl(A, B) + TORN, "behind", jsonl(A, B, C, D)),
]


@pytest.mark.accepts("RESTORE-3", "KEEP-4")
@pytest.mark.parametrize("again", [False, True], ids=["at once", "kept again first"])
@pytest.mark.parametrize(("kept", "live", "verdict", "want"), [case[1:] for case in FOLDED], ids=[c[0] for c in FOLDED])
def test_a_live_file_that_is_not_whole_is_whole_before_a_resume(
    either: World, kept: bytes, live: bytes, verdict: str, want: bytes, again: bool
) -> None:
    path = kept_then(either, kept, live)
    if again:
        either.keep()
    asked = time.time()
    answer = either.restore()
    assert path.read_bytes() == want
    assert either.kept.read_bytes() == want
    assert path.stat().st_dev != either.kept.stat().st_dev or path.samefile(either.kept)
    assert path.stat().st_mtime >= asked - 0.1
    assert answer.records == want.count(b"\n")
    assert again or (answer.verdict in verdict.split(" or "), answer.action) == (True, "folded")
    assert names_of_ours(either.profile, either.root) == []
    assert either.restore().action == "none"
    assert path.read_bytes() == want


@pytest.mark.accepts("RESTORE-3", "KEEP-4")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("scenario", "verdict", "folds"),
    [
        ("recreated", "partial", True),
        ("stub", "partial", True),
        ("stub_renamed", "partial", True),
        ("cut_back", "diverged", False),
        ("new_root", "diverged", False),
    ],
)
def test_what_the_real_cli_made_of_a_deleted_or_cut_file_is_folded_or_left_as_the_table_says(
    world: World, profile: Path, version: str, scenario: str, verdict: str, folds: bool
) -> None:
    build.copy_real(version, scenario, profile)
    world = world.about(str(build.real(version, scenario)["session"]))
    kept = build.real_kept(version, scenario, world.session)
    live = build.real_live(version, scenario, world.session)
    (path,) = (profile / "projects").glob(f"*/{world.session}.jsonl")
    path.unlink()
    build.append(path, kept)
    world.keep()
    path.unlink()
    build.append(path, live)

    answer = world.restore()
    assert answer.verdict == verdict
    if not folds:
        assert path.read_bytes() == live
        assert answer.lacks > 0
        assert any(str(answer.lacks) in warning for warning in answer.warnings)
        assert world.restore().verdict == verdict, "what was found stays found"
        return
    found = path.read_bytes().splitlines()
    assert found[: kept.count(b"\n")] == kept.splitlines()
    assert set(found) == lines(kept, live)
    uuids = [uuid for line in found if (uuid := uuid_of(line))]
    assert len(uuids) == len(set(uuids))


@pytest.mark.accepts("RESTORE-3", "KEEP-20")
def test_what_claude_trimmed_itself_stays_trimmed_and_full_folds_it(world: World, profile: Path) -> None:
    version, scenario = "2.1.328", "trimmed"
    world = world.about(str(build.real(version, scenario)["session"]))
    kept = build.real_kept(version, scenario, world.session)
    live = build.real_live(version, scenario, world.session)
    path = write_live(profile, CWD, world.session, kept)
    world.keep()
    write_live(profile, CWD, world.session, live)
    answer = world.restore()
    assert (answer.verdict, path.read_bytes()) == ("trimmed", live)
    world.restore(full=True)
    found = path.read_bytes().splitlines()
    assert set(found) == lines(kept, live)
    rest = iter(found)
    assert all(line in rest for line in kept.splitlines()), "kept's order is lost"


@pytest.mark.accepts("RESTORE-3")
def test_a_file_with_holes_stays_as_it_is_and_full_folds_it(either: World) -> None:
    """Somebody pruned a and b, and tied c to what was before them."""
    whole = [*talk("pq", S), *talk("abcdef", S, parent="q")]
    tied = whole[4].replace(b'"parentUuid":"b"', b'"parentUuid":"q"')
    thin = jsonl(*whole[:2], tied, *whole[5:])
    path = kept_then(either, jsonl(*whole), thin)
    answer = either.restore()
    assert (answer.verdict, answer.action, answer.lacks, path.read_bytes()) == ("thinned", "none", 2, thin)
    assert any("--full" in warning for warning in answer.warnings)
    either.restore(full=True)
    assert path.read_bytes() == jsonl(*whole[:5], tied, *whole[5:])


@pytest.mark.accepts("RESTORE-3")
def test_a_diverged_file_stays_as_it_is_and_the_other_branch_is_said_aloud(world: World, run_keeper: Command) -> None:
    cut = jsonl(A, B, *BRANCH)
    path = kept_then(world, jsonl(A, B, C, D), cut)
    for _ in range(2):
        done = run_keeper("restore", S)
        assert (done.code, path.read_bytes()) == (0, cut)
        assert "diverged" in done.text
        assert "2 records" in done.err
        assert "--full folds" not in done.err, "Claude reads one branch whatever is folded"
    assert world.kept.read_bytes() == jsonl(A, B, C, D, *BRANCH)


@pytest.mark.accepts("RESTORE-16")
@pytest.mark.parametrize("links", [True, False], ids=["", "no links"])
def test_an_unfinished_last_line_goes_where_nothing_is_folded_too(either: World, links: bool) -> None:
    """A branch that live lacks stays out of it; the next record must all the same not be glued to the fragment."""
    with hooked(lambda call, paths: None if links else refusing("link", errno.EPERM)(call, paths)):
        path = kept_then(either, jsonl(A, B, C, D), jsonl(A, B, BRANCH[0]) + TORN)
        answer = either.restore()
        assert (answer.verdict, answer.action) == ("diverged", "mended")
        assert path.read_bytes() == jsonl(A, B, BRANCH[0])
        assert set(lines_of(either.kept)) == {A, B, C, D, BRANCH[0]}
        assert [one.read_bytes() for one in (either.chat / "aside").iterdir()] == [TORN]
        build.append(path, jsonl(BRANCH[1]))
        either.keep()
        assert twice_or_missing(either.kept, [A, B, C, D, *BRANCH]) == {}
        assert names_of_ours(either.profile, either.root) == []


@pytest.mark.accepts("RESTORE-3")
def test_an_unfinished_line_is_left_to_the_writer_that_still_holds_it(world: World) -> None:
    path = kept_then(world, jsonl(A, B), jsonl(A, B))
    with path.open("ab") as writer:
        writer.write(C[:40])
        writer.flush()
        world.restore()
        writer.write(C[40:] + b"\n")
    assert path.read_bytes() == jsonl(A, B, C)


@pytest.mark.accepts("RESTORE-3")
def test_after_a_fold_the_chat_is_told_as_live_again(world: World, run_keeper: Command) -> None:
    kept_then(world, jsonl(A, B, C, D), jsonl(A, B))
    assert world.keep().verdict == "behind"
    world.restore()
    world.keep()
    (chat,) = run_keeper("list", "--json").json["chats"]
    assert (chat["state"], chat["mode"]) == ("live", "link")
    assert run_keeper("status", "--json").json["states"] == []


# --- companion files, whatever the verdict (RESTORE-3) ------------------------------------------------------

LEGACY = [talk("abcd", S, version="1.0.117"), talk("wxyz", S, version="1.0.117")]
VERDICTS = {
    "same": (jsonl(A, B, C, D), jsonl(A, B, C, D)),
    "ahead": (jsonl(A, B, C, D), jsonl(A, B, C, D, E)),
    "empty": (jsonl(A, B, C, D), b""),
    "waiting": (jsonl(A, B, C, D), TORN),
    "partial": (jsonl(A, B, C, D), jsonl(E)),
    "behind": (jsonl(A, B, C, D), jsonl(A, B)),
    "diverged": (jsonl(A, B, C, D), jsonl(A, B, *BRANCH)),
    "unmergeable": (jsonl(*LEGACY[0]), jsonl(*LEGACY[1])),
}


@pytest.mark.accepts("RESTORE-3")
@pytest.mark.parametrize("verdict", VERDICTS)
def test_missing_companion_files_and_extras_come_back_whatever_the_verdict(
    either: World, profile: Path, verdict: str
) -> None:
    kept, live = VERDICTS[verdict]
    write_whole(profile, S, kept)
    others = {name: data for name, data in files(profile).items() if not name.endswith(f"{S}.jsonl")}
    either.keep()
    sweep(profile)
    write_live(profile, CWD, S, live)
    answer = either.restore()
    assert answer.verdict == verdict
    assert {name: data for name, data in files(profile).items() if not name.endswith(f"{S}.jsonl")} == others
    assert answer.files == len(others)


@pytest.mark.accepts("RESTORE-3", "KEEP-19")
def test_missing_companion_files_come_back_to_a_doubled_chat_too(world: World, profile: Path) -> None:
    path = write_whole(profile, S)
    world.keep()
    write_live(profile, "/srv/demo/other", S, jsonl(A, B, C, D, E))
    world.keep()
    shutil.rmtree(path.parent / S)
    answer = Restorer(world.vault(), time.time_ns(), Want(cwd=CWD)).session(S)
    assert answer.verdict == "doubled"
    assert (path.parent / S / "tool-results" / "toolu_1.txt").read_bytes() == b"a long output\n" * 50


@pytest.mark.accepts("RESTORE-3", "KEEP-7")
def test_a_live_companion_file_that_is_no_transcript_is_never_overwritten(either: World, profile: Path) -> None:
    live = write_whole(profile, S)
    either.keep()
    result = live.parent / S / "tool-results" / "toolu_1.txt"
    result.unlink()
    result.write_bytes(b"another, shorter")
    inode = result.stat().st_ino
    either.restore()
    assert (result.read_bytes(), result.stat().st_ino) == (b"another, shorter", inode)
    result.unlink()
    either.restore()
    assert result.read_bytes() == b"a long output\n" * 50, "the longer one comes back when the shorter is gone"


@pytest.mark.accepts("RESTORE-3")
def test_a_recreated_subagent_transcript_is_folded(either: World, profile: Path) -> None:
    agent = write_whole(profile, S).parent / S / "subagents" / "agent-a1.jsonl"
    before = agent.read_bytes()
    either.keep()
    agent.unlink()
    tail = jsonl(build.answer("s3", "s2", session=S, isSidechain=True, agentId="a1"))
    build.append(agent, tail)
    either.restore()
    assert agent.read_bytes() == before + tail


@pytest.mark.accepts("RESTORE-3", "KEEP-9")
@pytest.mark.parametrize("inside", [f"projects/-srv-demo-proj/{S}/tool-results", f"projects/-srv-demo-proj/{S}/later"])
def test_nothing_is_put_back_through_a_symbolic_link_inside_a_companion(
    either: World, profile: Path, tmp_path: Path, inside: str
) -> None:
    live = write_whole(profile, S)
    either.keep()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.rmtree(profile / inside)
    (profile / inside).symlink_to(elsewhere)
    (live.parent / S / "subagents" / "agent-a1.meta.json").unlink()
    either.restore()
    assert list(elsewhere.iterdir()) == []
    assert (live.parent / S / "subagents" / "agent-a1.meta.json").exists(), "the rest comes back all the same"


@pytest.mark.accepts("RESTORE-3")
def test_a_companion_that_a_file_stands_in_the_way_of_does_not_stop_the_rest(
    world: World, profile: Path, run_keeper: Command
) -> None:
    live = write_whole(profile, S)
    world.keep()
    sweep(profile)
    put(live.parent / S, b"a file, not a folder")
    done = run_keeper("restore", S, "--json")
    assert done.code in (0, 3), done.err
    assert live.read_bytes() == jsonl(A, B, C, D)
    assert (live.parent / S).read_bytes() == b"a file, not a folder"
    assert (profile / "file-history" / S / "de5f4b6f867ced73@v1").exists()
    assert any(str(live.parent / S) in warning for warning in done.json["warnings"])


@pytest.mark.accepts("RESTORE-4")
@pytest.mark.parametrize("occupant", ["folder", "link", "dangling link", "fifo"])
def test_a_live_name_that_is_no_regular_file_is_left_alone_and_the_restore_does_not_call_itself_done(
    world: World, profile: Path, tmp_path: Path, run_keeper: Command, occupant: str
) -> None:
    path = kept_then(world, jsonl(A, B), None)
    target = put(tmp_path / "target.jsonl", b"somebody's own\n")
    if occupant == "folder":
        path.mkdir()
    elif occupant == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to(target if occupant == "link" else tmp_path / "nowhere")
    before = path.lstat()
    done = run_keeper("restore", S, "--json", timeout_s=20)
    assert done.code not in (0, 130), done.text
    assert str(path) in done.err
    assert "Traceback" not in done.err
    assert (path.lstat().st_ino, path.lstat().st_mode) == (before.st_ino, before.st_mode)
    assert target.read_bytes() == b"somebody's own\n"
    assert not (tmp_path / "nowhere").exists()


# --- a file appears between the check and the link (RESTORE-4) ----------------------------------------------


def appears(path: Path, data: bytes) -> Hook:
    """A hook that writes the file right before the first change that is to make its name."""
    done = False

    def hook(call: str, paths: tuple[str, ...]) -> None:
        nonlocal done
        if not done and call in ("link", "move") and paths[-1] == str(path):
            done = True
            path.parent.mkdir(parents=True, exist_ok=True)
            build.append(path, data)

    return hook


@pytest.mark.accepts("RESTORE-4")
@pytest.mark.parametrize(
    ("data", "want"),
    [
        (jsonl(C), jsonl(A, B, C)),
        (jsonl(A, B, C), jsonl(A, B, C)),
        (b"", jsonl(A, B)),
        (jsonl(A), jsonl(A, B)),
        (jsonl(C) + TORN, jsonl(A, B, C)),
    ],
    ids=["tail", "longer", "empty", "beginning", "tail and torn"],
)
def test_a_transcript_that_appears_between_the_check_and_the_link_is_folded(
    either: World, data: bytes, want: bytes
) -> None:
    path = kept_then(either, jsonl(A, B), None)
    with hooked(appears(path, data)):
        either.restore()
    assert (path.read_bytes(), either.kept.read_bytes()) == (want, want)


@pytest.mark.accepts("RESTORE-4")
def test_a_companion_file_that_appears_between_the_check_and_the_link_is_not_overwritten(
    either: World, profile: Path
) -> None:
    live = write_whole(profile, S)
    result = live.parent / S / "tool-results" / "toolu_1.txt"
    either.keep()
    sweep(profile)
    with hooked(appears(result, b"claude's own")):
        either.restore()
    assert result.read_bytes() == b"claude's own"
    assert live.exists()
    assert names_of_ours(profile, either.root) == []


@pytest.mark.accepts("RESTORE-4")
def test_a_subagent_transcript_that_appears_between_the_check_and_the_link_is_folded(
    either: World, profile: Path
) -> None:
    agent = write_whole(profile, S).parent / S / "subagents" / "agent-a1.jsonl"
    before = agent.read_bytes()
    either.keep()
    sweep(profile)
    tail = jsonl(build.answer("s3", "s2", session=S, isSidechain=True, agentId="a1"))
    with hooked(appears(agent, tail)):
        either.restore()
    assert agent.read_bytes() == before + tail


@pytest.mark.accepts("RESTORE-4")
def test_a_live_file_recreated_right_before_the_exchange_loses_nothing(either: World) -> None:
    path = kept_then(either, jsonl(A, B), jsonl(C))
    swapped = []

    def recreate() -> None:
        path.unlink()
        build.append(path, jsonl(D))
        swapped.append(True)

    with hooked(at("exchange", recreate)):
        either.restore()
    assert swapped
    assert (path.read_bytes(), either.kept.read_bytes()) == (jsonl(A, B, C, D), jsonl(A, B, C, D))


@pytest.mark.accepts("RESTORE-4")
def test_a_live_file_deleted_with_its_folder_right_before_the_exchange_is_put_back(either: World) -> None:
    path = kept_then(either, jsonl(A, B, C, D), jsonl(A, B))
    deleted = []

    def delete() -> None:
        shutil.rmtree(path.parent)
        deleted.append(True)

    with hooked(at("exchange", delete)):
        either.restore()
    assert deleted
    assert path.read_bytes() == jsonl(A, B, C, D)


# --- killed in the middle (RESTORE-12) ----------------------------------------------------------------------


@pytest.mark.accepts("RESTORE-12")
@pytest.mark.parametrize("live", [None, jsonl(E), jsonl(A, B)], ids=["swept", "partial", "behind"])
@pytest.mark.parametrize("volume", ["same volume", "other volume"])
def test_killed_before_any_change_the_next_run_completes_it(
    needs: Needs, tmp_path: Path, second_volume: Path, volume: str, live: bytes | None
) -> None:
    """All of it in memory: what a kill leaves is the same there, and all is begun anew for each change."""
    with tmpfs(needs, tmp_path / "memory") as memory:
        vaults = memory if volume == "same volume" else second_volume
        kill_before_each_change(world_of(memory / "profile", vaults / "vault", vaults / "state"), live)


def kill_before_each_change(world: World, live: bytes | None) -> None:
    want = jsonl(A, B, C, D, E) if live == jsonl(E) else jsonl(A, B, C, D)

    def begin() -> dict[str, bytes]:
        for used in (world.profile, world.root, world.settings.state_home):
            shutil.rmtree(used, ignore_errors=True)
        path = write_live(world.profile, CWD, S, jsonl(A, B, C, D))
        agent = build.answer("s1", None, session=S, isSidechain=True, agentId="a1")
        put(path.parent / S / "subagents" / "agent-a1.jsonl", jsonl(agent))
        put(path.parent / S / "tool-results" / "toolu_1.txt", b"output")
        put(world.profile / "file-history" / S / "a@v1", b"before")
        before = {**files(world.profile), str(path.relative_to(world.profile)): want}
        world.keep()
        sweep(world.profile)
        if live is not None:
            write_live(world.profile, CWD, S, live)
        return before

    begin()
    calls = calls_of(world.restore)
    numbers = [number for number, (call, _) in enumerate(calls) if call != "sync"]
    assert len(numbers) > 15
    for number in numbers:
        before = begin()
        assert killed_at(number, world.restore)
        answer = world.restore()
        assert files(world.profile) == before, f"killed at {calls[number]}"
        assert (world.kept.read_bytes(), answer.resumable) == (want, True)
        assert names_of_ours(world.profile, world.root) == [], f"killed at {calls[number]}"


# --- up to 1.0.117 (FIT-2) ----------------------------------------------------------------------------------


@pytest.mark.accepts("FIT-2")
def test_what_a_cli_up_to_1_0_117_copied_is_kept_and_restored_never_folded_and_said_so(
    world: World, run_keeper: Command
) -> None:
    """Its every resume writes the whole history anew under new uuids: a fold would double the conversation."""
    old, new = jsonl(*LEGACY[0]), jsonl(*talk("wxyzuv", S, version="1.0.117"))
    path = kept_then(world, old, new)
    said = run_keeper("keep", S)
    assert (said.code, "never folded" in said.err) == (0, True)
    assert world.kept.read_bytes() == new
    assert old in files(world.chat / "aside").values(), "the earlier version is set aside whole"

    world.restore(full=True)
    assert path.read_bytes() == new
    write_live(world.profile, CWD, S, old)
    done = run_keeper("restore", S, "--full")
    assert (done.code, path.read_bytes()) == (0, old)
    assert "1.0.117" in done.err, "a restore says why it folds nothing"
    path.unlink()
    world.restore()
    assert path.read_bytes() == new


@pytest.mark.accepts("FIT-2")
def test_from_1_0_124_on_it_is_folded(world: World) -> None:
    whole = talk("abc", S, version="1.0.124")
    path = kept_then(world, jsonl(*whole[:2]), jsonl(whole[2]))
    world.restore()
    assert path.read_bytes() == jsonl(*whole)


@pytest.mark.accepts("FIT-2")
def test_a_legacy_file_that_only_grew_is_no_conflict(world: World) -> None:
    path = kept_then(world, jsonl(*LEGACY[0][:2]), jsonl(*LEGACY[0]))
    world.restore()
    assert path.read_bytes() == world.kept.read_bytes() == jsonl(*LEGACY[0])
    assert not (world.chat / "aside").exists()


# --- a fold is complete, or its gap is named (FIT-8) --------------------------------------------------------


@pytest.mark.accepts("FIT-8")
@pytest.mark.parametrize("again", [False, True], ids=["at once", "folded by a keep before"])
def test_a_gap_that_a_fold_cannot_close_is_named(world: World, run_keeper: Command, again: bool) -> None:
    """A keep in the background is read by nobody: who resumes hears of the gap from the restore."""
    path = kept_then(world, jsonl(A, B), jsonl(E, F))
    if again:
        kept = run_keeper("keep", S, "--json").json["kept"][0]
        assert kept["gaps"] == ["d"]
        assert any("d" in warning.split() for warning in kept["warnings"])
    done = run_keeper("restore", S, "--json")
    assert (done.code, path.read_bytes()) == (0, jsonl(A, B, E, F))
    assert done.json["gaps"] == ["d"]
    assert any("d" in warning.split() for warning in done.json["warnings"])


@pytest.mark.accepts("FIT-8")
def test_a_complete_fold_has_no_gap(world: World) -> None:
    kept_then(world, jsonl(A, B, C), jsonl(D, E))
    answer = world.restore()
    assert answer.gaps == ()
    assert not any("parent" in warning for warning in answer.warnings)
