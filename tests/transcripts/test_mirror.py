"""A session's other files: kept file by file at any depth, the longer one never lost, nothing but plain files."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from keeper.transcripts.forget import forget
from tests import build
from tests.build import answer, append, copy_real, jsonl, prompt, talk, write_live
from tests.conftest import Needs, Ran
from tests.seam import World, before, calls_of, changes_of, hooked, lines_of, names_of_ours, state_of, world

CWD = build.CWD
OLD, NEW = "2.1.197", "2.1.328"
SIDE = [
    prompt("s1", None, isSidechain=True),
    answer("s2", "s1", isSidechain=True),
    prompt("s3", "s2", isSidechain=True),
]


@pytest.fixture
def here(profile: Path, vault_home: Path, tmp_path: Path) -> World:
    return started(world(profile, vault_home, tmp_path / "state"))


@pytest.fixture
def apart(profile: Path, second_volume: Path, tmp_path: Path) -> World:
    return started(world(profile, second_volume / "vault", tmp_path / "state"))


@pytest.fixture(params=["here", "apart"])
def either(request: pytest.FixtureRequest) -> World:
    view: World = request.getfixturevalue(request.param)
    return view


def started(view: World) -> World:
    write_live(view.profile, CWD, view.session, jsonl(*talk("ab")))
    return view


def put(path: Path, data: bytes) -> Path:
    """A new file, on an inode of its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    return path


def aside(view: World) -> list[bytes]:
    return (
        sorted(path.read_bytes() for path in (view.chat / "aside").iterdir()) if (view.chat / "aside").exists() else []
    )


# ------------------------------------------------------------------ at any depth, whatever it is called


@pytest.mark.accepts("KEEP-7")
def test_every_file_at_any_depth_is_kept_with_its_bytes(either: World) -> None:
    names = ["tool-results/toolu_1.txt", "subagents/agent-a1.jsonl", "subagents/agent-a1.meta.json"]
    names += ["custom-title.json", "subagents/workflows/wf-1/deep/er/agent-b.jsonl", "later/x", ".hidden", "empty"]
    for name in names:
        put(either.companion / name, b"" if name == "empty" else name.encode() + b"\n")
    assert either.keep().files == len(names)
    for name in names:
        assert (either.kept_companion / name).read_bytes() == (either.companion / name).read_bytes()
    assert changes_of(either.keep) == []


@pytest.mark.accepts("KEEP-7", "KEEP-11")
def test_a_companion_a_thousand_folders_deep_is_kept_and_forgotten(here: World) -> None:
    deep = "/".join("d" * 1100)
    fd = os.open(here.live.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in (here.session, *"d" * 1100):
            os.mkdir(name, dir_fd=fd)
            inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
            os.close(fd)
            fd = inner
        os.close(os.open("x", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=fd))
    finally:
        os.close(fd)
    try:
        assert here.keep_all()[here.session].error is None
        assert (here.kept_companion / deep / "x").exists()
        forget(here.vault(), here.session, 0.0)
        assert not here.chat.exists()
    finally:  # rmtree, and so pytest's own cleaning up, would run out of stack
        subprocess.run(["rm", "-rf", here.companion, here.kept_companion], check=True)


@pytest.mark.accepts("KEEP-7", "KEEP-1")
def test_on_one_volume_the_kept_companion_files_are_the_live_inodes(here: World) -> None:
    live = put(here.companion / "tool-results" / "x.txt", b"one\n")
    here.keep()
    append(live, b"two\n")
    assert (here.kept_companion / "tool-results" / "x.txt").samefile(live)


@pytest.mark.accepts("KEEP-7", "KEEP-21")
@pytest.mark.parametrize("version", [OLD, NEW])
@pytest.mark.parametrize("scenario", ["tools", "subagent", "interactive"])
def test_what_the_real_cli_left_beside_a_transcript_is_kept(
    profile: Path, vault_home: Path, tmp_path: Path, version: str, scenario: str
) -> None:
    (session,) = build.real(version, scenario)["resumed"]
    copy_real(version, scenario, profile)
    view = world(profile, vault_home, tmp_path / "state").about(session)
    view.keep()
    found = [path.relative_to(profile) for path in profile.rglob("*") if path.is_file()]
    others = [path for path in found if path.name != f"{session}.jsonl"]
    assert others or scenario == "interactive"
    for path in others:
        of_project = path.parts[0] == "projects"
        kept = view.chat.joinpath(*path.parts[2:]) if of_project else view.chat / "extras" / path
        assert kept.samefile(profile / path), path


@pytest.mark.accepts("KEEP-7")
@pytest.mark.parametrize(
    "name",
    [b"a b", b"new\nline.txt", b"quote\".jsonl", b"back\\slash", b"til~de.jsonl", b"per%2Fcent.jsonl", b"..odd", b"...",
     b"no-utf8-\xff.txt", b"no-utf8-\xff.jsonl", "ä€𝄞".encode() + b".jsonl", b"n" * 250, b"n" * 249 + b".jsonl",
     "ä".encode() * 120 + b".jsonl"],
    ids=lambda name: name[:12].decode("ascii", "backslashreplace") + str(len(name)),
)  # fmt: skip
def test_a_name_is_kept_as_it_is_and_followed_when_its_file_changes(either: World, name: bytes) -> None:
    folder = either.companion / "deep" / "er"
    folder.mkdir(parents=True)
    live = Path(os.fsdecode(os.path.join(os.fsencode(folder), name)))
    put(live, jsonl(*SIDE[:1]))
    either.keep()
    put(live, jsonl(*SIDE))
    either.keep()
    kept = either.kept_companion / "deep" / "er" / live.name
    assert kept.read_bytes() == jsonl(*SIDE)
    assert changes_of(either.keep) == []
    shutil.rmtree(either.companion)
    either.restore()
    assert live.read_bytes() == jsonl(*SIDE)


# ------------------------------------------------------------------ transcripts are folded, other files followed


@pytest.mark.accepts("KEEP-7", "KEEP-4")
def test_a_subagents_transcript_that_was_recreated_is_folded_by_record(either: World) -> None:
    live = put(either.companion / "subagents" / "agent-a.jsonl", jsonl(*SIDE[:2]))
    either.keep()
    put(live, jsonl(SIDE[2]))
    either.keep()
    kept = either.kept_companion / "subagents" / "agent-a.jsonl"
    assert lines_of(kept) == lines_of(live) == SIDE
    assert names_of_ours(either.profile, either.root) == []
    assert changes_of(either.keep) == []


@pytest.mark.accepts("KEEP-7", "KEEP-6")
def test_a_subagents_transcript_is_never_cut_short(either: World) -> None:
    live = put(either.companion / "subagents" / "agent-a.jsonl", jsonl(*SIDE))
    either.keep()
    put(live, jsonl(SIDE[0]))
    either.keep()
    put(live, b"")
    either.keep()
    assert lines_of(either.kept_companion / "subagents" / "agent-a.jsonl") == SIDE


@pytest.mark.accepts("KEEP-7")
def test_kept_follows_a_longer_version_and_sets_the_older_one_aside(either: World) -> None:
    live = put(either.companion / "x.txt", b"short")
    either.keep()
    put(live, b"much longer")
    either.keep()
    assert (either.kept_companion / "x.txt").read_bytes() == b"much longer"
    assert aside(either) == [b"short"]
    assert changes_of(either.keep) == []


@pytest.mark.accepts("KEEP-7")
def test_kept_follows_a_changed_newer_version_of_the_same_length(either: World) -> None:
    live = put(either.companion / "x.txt", b"title A")
    os.utime(live, (1, 1))
    either.keep()
    put(live, b"title B")
    either.keep()
    assert (either.kept_companion / "x.txt").read_bytes() == b"title B"
    assert aside(either) == [b"title A"]


@pytest.mark.accepts("KEEP-7")
def test_kept_stays_as_it_is_under_a_shorter_version_which_is_never_overwritten(either: World) -> None:
    live = put(either.companion / "x.txt", b"the long text")
    either.keep()
    put(live, b"short")
    found = state_of(live)
    either.keep()
    either.restore()
    assert (either.kept_companion / "x.txt").read_bytes() == b"the long text"
    assert state_of(live)[str(live)][3] == b"short"
    assert state_of(live)[str(live)][0] == found[str(live)][0]


@pytest.mark.accepts("KEEP-7", "KEEP-5")
@pytest.mark.parametrize("less", [b"short", b"older text"])
def test_under_a_version_that_does_not_take_its_place_nothing_is_written_again(either: World, less: bytes) -> None:
    live = put(either.companion / "x.txt", b"newer text")
    either.keep()
    put(live, less)
    os.utime(live, (1, 1))
    either.keep()
    assert changes_of(either.keep) == []
    assert (either.kept_companion / "x.txt").read_bytes() == b"newer text"


@pytest.mark.accepts("KEEP-7", "KEEP-5")
def test_under_a_version_that_was_cut_short_in_place_nothing_is_written_again(either: World) -> None:
    live = put(either.companion / "x.txt", b"the long text")
    either.keep()
    os.truncate(live, 5)
    either.keep()
    assert changes_of(either.keep) == []
    assert (either.kept_companion / "x.txt").read_bytes() == b"the long text"


@pytest.mark.accepts("KEEP-7")
def test_the_longer_one_comes_back_when_the_shorter_is_gone(either: World) -> None:
    live = put(either.companion / "x.txt", b"the long text")
    either.keep()
    put(live, b"short")
    either.keep()
    live.unlink()
    either.restore()
    assert live.read_bytes() == b"the long text"


@pytest.mark.accepts("KEEP-7", "KEEP-5")
def test_a_companion_file_of_equal_bytes_on_another_inode_is_relinked(here: World) -> None:
    live = put(here.companion / "x.txt", b"text")
    here.keep()
    put(live, b"text")
    calls = calls_of(here.keep)
    assert (here.kept_companion / "x.txt").samefile(live)
    assert aside(here) == []
    assert not [paths for call, paths in calls if call == "write" and "x.txt" in paths[0]]


@pytest.mark.accepts("KEEP-7")
@pytest.mark.parametrize("moment", ["link", "create"])
def test_a_shorter_version_that_comes_between_read_and_deed_does_not_take_the_longer_ones_place(
    either: World, moment: str
) -> None:
    live = put(either.companion / "x.txt", b"the long text")
    either.keep()
    put(live, b"the long text, and more")

    def shorten() -> None:
        put(live, b"s")

    with hooked(before(moment, shorten)):
        either.keep()
    either.keep()
    known = [(either.kept_companion / "x.txt").read_bytes(), *aside(either)]
    assert b"the long text" in known or b"the long text, and more" in known


@pytest.mark.accepts("KEEP-7")
def test_an_equal_file_that_shrinks_between_read_and_link_costs_nothing(here: World) -> None:
    live = put(here.companion / "x.txt", b"the long text")
    here.keep()
    put(live, b"the long text")

    def shorten() -> None:
        put(live, b"s")

    with hooked(before("link", shorten)):
        here.keep()
    assert b"the long text" in [(here.kept_companion / "x.txt").read_bytes(), *aside(here)]


@pytest.mark.accepts("KEEP-7", "KEEP-9")
@pytest.mark.parametrize("was", ["file", "folder"])
def test_a_file_that_becomes_a_folder_or_a_folder_that_becomes_a_file_stops_nothing(either: World, was: str) -> None:
    place = either.companion / "x"
    put(place if was == "file" else place / "y", b"old")
    either.keep()
    place.unlink() if was == "file" else shutil.rmtree(place)
    put(place / "y" if was == "file" else place, b"new")
    put(either.companion / "z", b"another")
    append(either.live, jsonl(*talk("cd", parent="b")))
    assert either.keep().error is None
    assert (either.kept_companion / "z").read_bytes() == b"another"
    assert len(lines_of(either.kept)) == 4
    everything = [path.read_bytes() for path in either.chat.rglob("*") if path.is_file()]
    assert b"old" in everything
    assert b"new" in everything


@pytest.mark.accepts("KEEP-7", "KEEP-17")
def test_a_file_that_cannot_be_kept_stops_no_other_and_is_told(either: World) -> None:
    for name in ("x", "y", "z"):
        put(either.companion / name, name.encode())

    def fail(call: str, paths: tuple[str, ...]) -> None:
        if call in ("link", "create") and any(path.endswith("/x") for path in paths):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if call == "replace" and paths[-1].endswith("/x"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with hooked(fail):
        answer = either.keep_all()[either.session]
    assert answer.error is not None
    assert "/x" in answer.error
    assert sorted(path.name for path in either.kept_companion.iterdir()) == ["y", "z"]
    assert (either.chat / "chat.json").exists()
    assert [row.session for row in either.vault().rows()] == [either.session]
    assert either.keep().error is None
    assert (either.kept_companion / "x").read_bytes() == b"x"


# ------------------------------------------------------------------ copies across volumes, while Claude writes


@pytest.mark.accepts("KEEP-8")
def test_a_copied_companion_file_has_its_final_name_only_when_whole(apart: World) -> None:
    live = put(apart.companion / "x.txt", b"version one")
    apart.keep()
    kept = apart.kept_companion / "x.txt"
    put(live, b"version two, longer")
    seen: set[bytes] = set()
    with hooked(lambda call, paths: seen.add(kept.read_bytes())):
        apart.keep()
    seen.add(kept.read_bytes())
    assert seen == {b"version one", b"version two, longer"}


@pytest.mark.accepts("KEEP-8")
def test_a_source_that_is_swept_in_mid_copy_leaves_the_earlier_kept_file_as_it_was(apart: World) -> None:
    live = put(apart.companion / "x.txt", b"version one")
    apart.keep()
    put(live, b"version two, longer")
    for call in ("create", "write", "replace"):
        with hooked(before(call, lambda: live.unlink(missing_ok=True))):
            apart.keep()
        assert (apart.kept_companion / "x.txt").read_bytes() in (b"version one", b"version two, longer")
    assert names_of_ours(apart.root) == []


@pytest.mark.accepts("KEEP-8")
def test_a_copy_that_fails_leaves_the_earlier_kept_file_as_it_was(apart: World) -> None:
    live = put(apart.companion / "x.txt", b"version one")
    apart.keep()
    put(live, b"version two, longer")

    def fail(call: str, paths: tuple[str, ...]) -> None:
        if call == "write" and "/swap/" in paths[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with hooked(fail):
        assert apart.keep_all()[apart.session].error is not None
    assert (apart.kept_companion / "x.txt").read_bytes() == b"version one"
    assert names_of_ours(apart.root) == []
    apart.keep()
    assert (apart.kept_companion / "x.txt").read_bytes() == b"version two, longer"


@pytest.mark.accepts("KEEP-8")
def test_a_source_that_is_cut_short_in_mid_copy_does_not_cut_the_kept_file_short(apart: World) -> None:
    live = put(apart.companion / "x.txt", b"version one")
    apart.keep()
    put(live, b"version two, longer")
    for call in ("create", "write", "mkdir"):
        with hooked(before(call, lambda: live.write_bytes(b""))):
            apart.keep()
    assert (apart.kept_companion / "x.txt").read_bytes() in (b"version one", b"version two, longer")


# ------------------------------------------------------------------ nothing but plain files and folders


@pytest.mark.accepts("KEEP-9")
def test_links_fifos_sockets_and_devices_are_neither_followed_nor_kept(
    needs: Needs, either: World, tmp_path: Path
) -> None:
    needs.root()
    outside = put(tmp_path / "outside" / "secret.txt", b"not for the vault")
    room = either.companion
    put(room / "plain", b"plain")
    (room / "link").symlink_to(outside)
    (room / "link.jsonl").symlink_to(outside)
    (room / "linked-folder").symlink_to(outside.parent)
    (room / "dangling").symlink_to(tmp_path / "nowhere")
    (room / "loop").symlink_to("loop")
    (room / "up").symlink_to("..")
    os.mkfifo(room / "fifo")
    os.mkfifo(room / "fifo.jsonl")
    os.mknod(room / "device", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    at = os.getcwd()
    os.chdir(room)  # a socket's path has room for 108 bytes
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("socket")
    finally:
        os.chdir(at)
    assert either.keep().error is None
    assert sorted(path.name for path in either.kept_companion.iterdir()) == ["plain"]
    either.restore()
    assert os.readlink(room / "link") == str(outside)
    assert outside.read_bytes() == b"not for the vault"


@pytest.mark.accepts("KEEP-9")
@pytest.mark.parametrize("kind", ["link", "fifo", "device", "folder"])
def test_a_transcript_that_is_no_plain_file_is_no_transcript(
    needs: Needs, profile: Path, vault_home: Path, tmp_path: Path, run_keeper: Callable[..., Ran], kind: str
) -> None:
    needs.root()
    session = build.session_id(7)
    live = build.live_path(profile, session)
    live.parent.mkdir(parents=True)
    if kind == "link":
        live.symlink_to(put(tmp_path / "elsewhere.jsonl", jsonl(*talk("ab"))))
    elif kind == "fifo":
        os.mkfifo(live)
    elif kind == "device":
        os.mknod(live, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    else:
        live.mkdir()
    ran = run_keeper("keep", session)
    assert ran.code == 4
    assert run_keeper("keep").code == 0
    assert list((vault_home / "chats").iterdir()) == []


@pytest.mark.accepts("KEEP-9")
def test_a_linked_companion_folder_is_not_followed(either: World, tmp_path: Path) -> None:
    put(tmp_path / "outside" / "x", b"not for the vault")
    either.companion.symlink_to(tmp_path / "outside")
    either.keep()
    assert not either.kept_companion.exists()
    either.restore()
    assert either.companion.is_symlink()


@pytest.mark.accepts("KEEP-9", "KEEP-19")
def test_a_symlinked_project_folder_is_kept_and_never_replaced(either: World, tmp_path: Path) -> None:
    real = tmp_path / "elsewhere" / "project"
    real.parent.mkdir()
    put(either.companion / "x", b"x")
    beside = {
        "agent-a1.jsonl": jsonl(prompt("m", None, session=either.session)),
        f"{either.session}.jsonl.superseded-1": jsonl(*talk("pq")),
    }
    for name, data in beside.items():
        put(either.live.with_name(name), data)
    either.live.parent.rename(real)
    project = either.live.parent
    project.symlink_to(real)
    assert either.keep().error is None
    assert lines_of(either.kept) == talk("ab")
    write_live(either.profile, CWD, either.session, jsonl(*talk("cd", parent="b")))
    either.keep()
    assert lines_of(either.live) == talk("abcd")
    either.live.unlink()
    shutil.rmtree(either.companion)
    for name in beside:
        (real / name).unlink()
    either.restore()
    assert {name: (real / name).read_bytes() for name in beside} == beside
    assert os.readlink(project) == str(real)
    assert lines_of(real / either.live.name) == talk("abcd")
    assert (real / either.session / "x").read_bytes() == b"x"


@pytest.mark.accepts("KEEP-9")
def test_a_project_folder_that_goes_by_two_names_holds_one_live_file(here: World) -> None:
    (here.profile / "projects" / "-an-alias").symlink_to(here.live.parent.name)
    answer = here.keep()
    assert (answer.verdict, answer.warnings) == ("ahead", ())
    assert here.restore().action == "none"
    assert here.kept.samefile(here.live)


@pytest.mark.accepts("KEEP-9")
def test_a_link_that_leads_nowhere_under_projects_stops_nothing(here: World) -> None:
    projects = here.profile / "projects"
    (projects / "loop").symlink_to("loop")
    (projects / "dangling").symlink_to("nowhere")
    os.mkfifo(projects / "fifo")
    (projects / "file").write_bytes(b"")
    assert here.keep_all()[here.session].action == "linked"


@pytest.mark.accepts("KEEP-9", "RESTORE-3")
def test_restore_writes_through_no_link_inside_the_companion(either: World, tmp_path: Path) -> None:
    put(either.companion / "tool-results" / "x.txt", b"out")
    put(either.companion / "a" / "b" / "y.txt", b"out")
    either.keep()
    shutil.rmtree(either.companion / "tool-results")
    shutil.rmtree(either.companion / "a")
    outside = tmp_path / "outside"
    outside.mkdir()
    (either.companion / "tool-results").symlink_to(outside)
    (either.companion / "a").symlink_to(outside)
    either.restore()
    assert list(outside.iterdir()) == []
    assert (either.companion / "tool-results").is_symlink()


@pytest.mark.accepts("KEEP-9", "RESTORE-3")
@pytest.mark.parametrize("kind", ["link", "dangling", "folder", "fifo"])
def test_restore_leaves_what_stands_under_a_companion_files_name(either: World, tmp_path: Path, kind: str) -> None:
    live = put(either.companion / "x.txt", b"out")
    either.keep()
    live.unlink()
    other = put(tmp_path / "other", b"somebody's own")
    if kind == "folder":
        live.mkdir()
    elif kind == "fifo":
        os.mkfifo(live)
    else:
        live.symlink_to(other if kind == "link" else tmp_path / "nowhere")
    was = live.lstat().st_ino
    either.restore()
    assert live.lstat().st_ino == was
    assert other.read_bytes() == b"somebody's own"
    assert not (tmp_path / "nowhere").exists()


# ------------------------------------------------------------------ both subagent layouts, and the other extras


@pytest.mark.accepts("KEEP-14")
def test_subagents_of_both_layouts_are_kept_with_their_session_and_are_no_chats(either: World) -> None:
    other = either.about(build.session_id(2))
    write_live(other.profile, CWD, other.session, jsonl(*talk("ab", session=other.session)))
    new = put(either.companion / "subagents" / "agent-a1b2.jsonl", jsonl(*SIDE))
    mine = put(either.live.with_name("agent-c3d4.jsonl"), jsonl(prompt("m", None, session=either.session)))
    theirs = put(either.live.with_name("agent-e5f6.jsonl"), jsonl(prompt("t", None, session=other.session)))
    warm = put(either.live.with_name("agent-0000.jsonl"), jsonl(build.meta("summary", summary="x")))
    answers = either.keep_all()
    assert set(answers) == {either.session, other.session}
    assert sorted(path.name for path in (either.root / "chats").iterdir()) == [either.session, other.session]
    assert (either.kept_companion / "subagents" / new.name).read_bytes() == new.read_bytes()
    beside = either.chat / "extras" / "beside" / either.session
    assert [path.name for path in beside.iterdir()] == [mine.name]
    assert (beside / mine.name).read_bytes() == mine.read_bytes()
    beside = other.chat / "extras" / "beside" / other.session
    assert [path.name for path in beside.iterdir()] == [theirs.name]
    assert not list(either.root.rglob(warm.name))


@pytest.mark.accepts("KEEP-14")
def test_equal_agent_ids_under_two_sessions_stay_apart(either: World) -> None:
    other = either.about(build.session_id(2), "/srv/demo/other")
    write_live(other.profile, other.cwd, other.session, jsonl(*talk("ab", session=other.session, cwd=other.cwd)))
    for view, uuid in ((either, "m"), (other, "t")):
        put(view.companion / "subagents" / "agent-a1.jsonl", jsonl(prompt(uuid, None, session=view.session)))
        put(view.live.with_name("agent-b2.jsonl"), jsonl(prompt(f"{uuid}2", None, session=view.session)))
    either.keep_all()
    for view, uuid in ((either, b'"m'), (other, b'"t')):
        for kept in (view.kept_companion / "subagents" / "agent-a1.jsonl",
                     view.chat / "extras" / "beside" / view.session / "agent-b2.jsonl"):  # fmt: skip
            assert uuid in kept.read_bytes()


@pytest.mark.accepts("KEEP-14", "RESTORE-1")
def test_an_agent_file_of_the_older_layout_that_grew_and_went_comes_back_beside_the_transcript(either: World) -> None:
    live = put(either.live.with_name("agent-c3d4.jsonl"), jsonl(prompt("m", None)))
    either.keep()
    append(live, jsonl(answer("n", "m")))
    either.keep()
    live.unlink()
    either.restore()
    assert lines_of(live) == [prompt("m", None), answer("n", "m")]


@pytest.mark.accepts("KEEP-21")
def test_extras_of_the_session_alone_are_kept(either: World) -> None:
    other = build.session_id(2)
    for session in (either.session, other):
        put(either.profile / "file-history" / session / "0a1b@v1", session.encode())
        put(either.profile / "tasks" / session / "1.json", session.encode())
        put(either.profile / "todos" / f"{session}-agent-{session}.json", session.encode())
    either.keep()
    kept = [path for path in (either.chat / "extras").rglob("*") if path.is_file()]
    assert sorted(path.parent.parent.name for path in kept) == ["file-history", "tasks", "todos"]
    assert {path.read_bytes() for path in kept} == {either.session.encode()}


@pytest.mark.accepts("KEEP-21", "KEEP-5")
@pytest.mark.parametrize("how", ["the session", "the profile"])
def test_extras_that_are_new_while_the_sessions_transcript_is_gone_are_kept(either: World, how: str) -> None:
    keep = either.keep if how == "the session" else either.keep_all
    either.keep()
    shutil.rmtree(either.live.parent)
    put(either.profile / "file-history" / either.session / "0a1b@v1", b"before the edit")
    put(either.profile / "tasks" / build.session_id(2) / "1.json", b"of a session that is not kept")
    keep()
    kept = [path for path in (either.root / "chats").rglob("*") if path.is_file() and "extras" in path.parts]
    assert [(path.parent.name, path.read_bytes()) for path in kept] == [(either.session, b"before the edit")]
    assert changes_of(keep) == []
    assert not either.live.exists()
