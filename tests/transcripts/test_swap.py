"""A live file is replaced under a writing Claude: what is written, deleted or made anew between any two steps of the
swap is in the kept file once, in its order, and every inode has a name until its lines are safe."""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from keeper.errors import KeeperError, Refused
from keeper.transcripts import swap
from tests import build
from tests.build import append, jsonl, prompt, talk, write_live
from tests.conftest import Needs
from tests.seam import (
    Hook,
    World,
    at_call,
    before,
    calls_of,
    changes_of,
    hooked,
    lines_of,
    names_of_ours,
    refusing,
    state_of,
    twice_or_missing,
    world,
)
from tests.volumes import tmpfs

CWD = build.CWD
NOBODY = 0xFFFFFFFF
in_mode_link = pytest.mark.parametrize("mode", ["link"], indirect=True)
A, B, C, D = talk("abcd")
E, F = talk("ef", parent="d")


@pytest.fixture(params=["link", "copy", "no links", "no exchange"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def volume(mode: str) -> Hook | None:
    """What the volume of this mode refuses."""
    return {"no links": refusing("link", errno.EPERM), "no exchange": refusing("exchange", errno.EINVAL)}.get(mode)


@pytest.fixture(scope="module")
def third_volume(needs: Needs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with tmpfs(needs, tmp_path_factory.mktemp("third-volume") / "mount") as place:
        yield place


@pytest.fixture
def one(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """Profile and vault on one volume: in memory where this machine can mount, since a swap syncs at every step."""
    place: Path = request.getfixturevalue("second_volume") if os.geteuid() == 0 else tmp_path
    return world(made(place / "profile"), place / "vault", place / "state")


@pytest.fixture
def here(mode: str, one: World, request: pytest.FixtureRequest) -> World:
    if mode != "copy":
        return one
    third: Path = request.getfixturevalue("third_volume")
    return world(made(third / os.urandom(4).hex()), one.root, one.settings.state_home)


def made(profile: Path) -> Path:
    (profile / "projects").mkdir(parents=True)
    return profile


def with_volume(hook: Hook, volume: Hook | None) -> Hook:
    def step(call: str, paths: tuple[str, ...]) -> None:
        hook(call, paths)
        if volume is not None:
            volume(call, paths)

    return step


def to_be_folded(here: World, volume: Hook | None) -> None:
    """Kept holds A and B; Claude's file was deleted and made anew with C and D."""
    write_live(here.profile, CWD, here.session, jsonl(A, B))
    with hooked(with_volume(lambda call, paths: None, volume)):
        here.keep()
    write_live(here.profile, CWD, here.session, jsonl(C, D))


def settled(here: World, volume: Hook | None, wanted: list[bytes], both: bool = True) -> None:
    """After one more keep all lines stand once under the kept (and the live) name, and nothing of ours is left."""
    with hooked(with_volume(lambda call, paths: None, volume)):
        here.keep()
    assert twice_or_missing(here.kept, wanted) == {}
    if both:
        assert lines_of(here.live) == lines_of(here.kept)
    assert names_of_ours(here.profile, here.root) == []
    found = state_of(here.profile, here.root)
    with hooked(with_volume(lambda call, paths: None, volume)):
        here.keep()
    assert state_of(here.profile, here.root) == found


@contextmanager
def open_for_appending(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        yield fd
    finally:
        os.close(fd)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that holds on is waited for a moment, not a second."""
    monkeypatch.setattr(swap, "LEASE_WAIT_S", 0.02)


# ------------------------------------------------------------------ late lines


@pytest.mark.accepts("SWAP-1")
def test_a_line_appended_between_last_read_and_exchange_is_carried_over(here: World, volume: Hook | None) -> None:
    to_be_folded(here, volume)
    with hooked(with_volume(before("exchange", lambda: append(here.live, jsonl(E))), volume)):
        here.keep()
    assert lines_of(here.live) == lines_of(here.kept) == [A, B, C, D, E]
    settled(here, volume, [A, B, C, D, E])


@pytest.mark.accepts("SWAP-1")
def test_a_late_line_stands_before_what_its_writer_wrote_later(here: World, volume: Hook | None) -> None:
    """E goes to the old file just before the exchange, F by the name to the new one just after it."""
    to_be_folded(here, volume)
    steps: list[str] = []

    def write(call: str, paths: tuple[str, ...]) -> None:
        if call == "exchange" and not steps:
            append(here.live, jsonl(E))
            steps.append("exchange")
        elif steps == ["exchange"] and here.live.exists() and E not in lines_of(here.live):
            append(here.live, jsonl(F))
            steps.append("after")

    with hooked(with_volume(write, volume)):
        here.keep()
    assert steps == ["exchange", "after"]
    assert lines_of(here.kept) == [A, B, C, D, E, F]
    settled(here, volume, [A, B, C, D, E, F])


@pytest.mark.accepts("SWAP-1", "SWAP-6")
def test_a_line_appended_before_any_step_is_carried_over_in_its_order(here: World, volume: Hook | None) -> None:
    to_be_folded(here, volume)
    with hooked(with_volume(lambda call, paths: None, volume)):
        count = len(calls_of(here.keep, volume))
    for number in range(count):
        view = here.about(build.session_id(number + 10))
        own = [one.replace(here.session.encode(), view.session.encode()) for one in (A, B, C, D, E)]
        write_live(view.profile, CWD, view.session, jsonl(*own[:2]))
        with hooked(with_volume(lambda call, paths: None, volume)):
            view.keep()
        write_live(view.profile, CWD, view.session, jsonl(*own[2:4]))
        with hooked(at_call(number, lambda view=view, own=own: append(view.live, jsonl(own[4])), volume)):
            view.keep()
        settled(view, volume, own)
        assert lines_of(view.kept) == own, f"out of order at change {number}"


@pytest.mark.accepts("SWAP-1", "SWAP-5")
def test_what_comes_while_the_new_file_is_written_is_in_it_and_costs_no_second_exchange(
    here: World, volume: Hook | None, mode: str
) -> None:
    """Else a large file under a steady writer would be exchanged for ever."""
    to_be_folded(here, volume)
    calls = calls_of(here.keep, with_volume(before("write", lambda: append(here.live, jsonl(E)), "/swap/"), volume))
    assert lines_of(here.live) == lines_of(here.kept) == [A, B, C, D, E]
    steps = [call for call, paths in calls if paths[-1] == str(here.live) and call in ("exchange", "move")]
    # Where the volume has no exchange, one is asked for and refused before the move.
    assert steps == (["exchange", "move"] if mode == "no exchange" else ["exchange"])
    settled(here, volume, [A, B, C, D, E])


# ------------------------------------------------------------------ a writer that holds the file open


@pytest.mark.accepts("SWAP-2")
def test_a_writer_that_holds_the_old_file_open_over_the_exchange_loses_nothing(
    here: World, volume: Hook | None, impatient: None
) -> None:
    to_be_folded(here, volume)
    with open_for_appending(here.live) as writer:
        with hooked(with_volume(lambda call, paths: None, volume)):
            answer = here.keep()
        assert (answer.action, answer.waiting) == ("folded", 1)
        assert names_of_ours(here.profile, here.root), "the old inode has no name"
        os.write(writer, jsonl(E))
    settled(here, volume, [A, B, C, D, E])
    assert lines_of(here.kept) == [A, B, C, D, E]


@pytest.mark.accepts("SWAP-2")
def test_the_old_file_keeps_its_name_as_long_as_its_writer_holds_on(
    here: World, volume: Hook | None, impatient: None
) -> None:
    to_be_folded(here, volume)
    with open_for_appending(here.live) as writer:
        for _ in range(3):
            with hooked(with_volume(lambda call, paths: None, volume)):
                here.keep()
        os.write(writer, jsonl(E))
        with hooked(with_volume(lambda call, paths: None, volume)):
            here.keep()
        os.write(writer, jsonl(F))
    settled(here, volume, [A, B, C, D, E, F])


@pytest.mark.accepts("SWAP-2")
def test_a_line_that_was_begun_before_the_exchange_and_finished_after_it_is_whole(
    here: World, volume: Hook | None, impatient: None
) -> None:
    to_be_folded(here, volume)
    with open_for_appending(here.live) as writer:
        os.write(writer, E[:60])
        with hooked(with_volume(lambda call, paths: None, volume)):
            here.keep()
        assert lines_of(here.kept) == [A, B, C, D]
        os.write(writer, E[60:] + b"\n")
    settled(here, volume, [A, B, C, D, E])


@pytest.mark.accepts("SWAP-2")
@in_mode_link
def test_a_writer_of_the_old_kept_file_whose_live_name_is_gone_loses_nothing(here: World, impatient: None) -> None:
    live = write_live(here.profile, CWD, here.session, jsonl(A, B))
    here.keep()
    with open_for_appending(live) as writer:
        write_live(here.profile, CWD, here.session, jsonl(C, D))
        assert here.keep().waiting == 1
        os.write(writer, jsonl(prompt("late", "b")))
    settled(here, None, [A, B, C, D, prompt("late", "b")])


@pytest.mark.accepts("SWAP-2")
@pytest.mark.parametrize("relink", [jsonl(A, B), jsonl(A, B, C)], ids=["same", "ahead"])
@in_mode_link
def test_a_writer_of_the_old_kept_file_loses_nothing_when_kept_becomes_the_live_inode(
    here: World, impatient: None, relink: bytes
) -> None:
    live = write_live(here.profile, CWD, here.session, jsonl(A, B))
    here.keep()
    late = prompt("late", "b")
    with open_for_appending(live) as writer:
        write_live(here.profile, CWD, here.session, relink)
        with hooked(before("replace", lambda: os.write(writer, jsonl(late)), str(here.kept))):
            here.keep()
        os.write(writer, jsonl(prompt("later", "late")))
    settled(here, None, [*relink.splitlines(), late, prompt("later", "late")])


@pytest.mark.accepts("SWAP-2", "SWAP-3")
@pytest.mark.parametrize("mode", ["link", "copy"], indirect=True)
def test_a_writer_of_a_split_live_file_that_a_restore_folds_loses_nothing(here: World, impatient: None) -> None:
    """Cut short, so that a keep leaves it as it is with a second link to it; that link may not be the only name."""
    write_live(here.profile, CWD, here.session, jsonl(A, B, C, D))
    here.keep()
    write_live(here.profile, CWD, here.session, jsonl(A, B))
    here.keep()
    with open_for_appending(here.live) as writer:
        here.restore()
        os.write(writer, jsonl(prompt("late", "b")))
        assert os.fstat(writer).st_nlink > 0
    settled(here, None, [A, B, C, D, prompt("late", "b")])


@pytest.mark.accepts("SWAP-2", "FIT-2")
@in_mode_link
def test_what_a_writer_of_a_cli_up_to_1_0_117_still_wrote_is_set_aside_and_never_folded(
    here: World, impatient: None
) -> None:
    """Its resume copied the history under new uuids."""
    old, copied = talk("ab", version="1.0.100"), talk("pqrs", version="1.0.100")
    late = prompt("late", "b", version="1.0.100")
    live = write_live(here.profile, CWD, here.session, jsonl(*old))
    here.keep()
    with open_for_appending(live) as writer:
        write_live(here.profile, CWD, here.session, jsonl(*copied))
        here.keep()
        os.write(writer, jsonl(late))
        here.live.unlink()
        here.keep()
    here.keep()
    assert lines_of(here.kept) == copied
    assert any(late in path.read_bytes() for path in (here.chat / "aside").iterdir())
    assert names_of_ours(here.profile, here.root) == []


@pytest.mark.accepts("SWAP-2")
def test_a_reader_of_the_old_file_holds_nobody_up(
    here: World, volume: Hook | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swap, "LEASE_WAIT_S", 3600.0)
    to_be_folded(here, volume)
    with here.live.open("rb"), here.kept.open("rb"), hooked(with_volume(lambda call, paths: None, volume)):
        assert here.keep().waiting == 0
    settled(here, volume, [A, B, C, D])


@pytest.mark.accepts("SWAP-2", "SWAP-5")
def test_lines_that_still_come_after_the_last_round_are_in_the_kept_file_or_wait_under_a_name(
    here: World, volume: Hook | None, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swap, "ROUNDS", 2)
    to_be_folded(here, volume)
    late = talk([f"l{number}" for number in range(200)], parent="d")
    waiting = iter(late)
    with open_for_appending(here.live) as writer:

        def write(call: str, paths: tuple[str, ...]) -> None:
            os.write(writer, jsonl(next(waiting)))

        with hooked(with_volume(write, volume)):
            here.keep()
    written = late[: len(late) - len(list(waiting))]
    assert len(written) > 10
    settled(here, volume, [A, B, C, D, *written])
    assert [one for one in lines_of(here.kept) if one in written] == written


# ------------------------------------------------------------------ deleted, and made anew, between the steps


@pytest.mark.accepts("SWAP-4")
def test_a_live_name_that_is_gone_at_the_exchange_is_not_brought_back_by_a_keep(
    here: World, volume: Hook | None
) -> None:
    to_be_folded(here, volume)
    with hooked(with_volume(before("exchange", here.live.unlink), volume)):
        assert here.keep().action == "absorbed"
    assert not here.live.exists()
    assert lines_of(here.kept) == [A, B, C, D]
    settled(here, volume, [A, B, C, D], both=False)
    assert not here.live.exists()


@pytest.mark.accepts("SWAP-4", "RESTORE-4")
def test_a_live_name_that_is_gone_at_the_exchange_is_made_again_by_a_restore(here: World, volume: Hook | None) -> None:
    """A beginning of kept: a keep leaves it, a restore folds it."""
    write_live(here.profile, CWD, here.session, jsonl(A, B, C, D))
    with hooked(with_volume(lambda call, paths: None, volume)):
        here.keep()
    write_live(here.profile, CWD, here.session, jsonl(A, B))
    with hooked(with_volume(before("exchange", here.live.unlink), volume)):
        here.restore()
    assert lines_of(here.live) == [A, B, C, D]
    settled(here, volume, [A, B, C, D])


@pytest.mark.accepts("SWAP-4", "SWAP-6")
def test_a_live_name_that_goes_before_any_step_of_the_fold_loses_no_line(here: World, volume: Hook | None) -> None:
    """By then the file was read, and its inode is held: what it had is kept."""
    to_be_folded(here, volume)
    with hooked(with_volume(lambda call, paths: None, volume)):
        calls = calls_of(here.keep, volume)
    pinned = next((at for at, (call, _) in enumerate(calls) if call in ("link", "create")), 0) + 1
    assert pinned < len(calls)
    for number in range(pinned, len(calls)):
        view = here.about(build.session_id(number + 10))
        own = [one.replace(here.session.encode(), view.session.encode()) for one in (A, B, C, D)]
        write_live(view.profile, CWD, view.session, jsonl(*own[:2]))
        with hooked(with_volume(lambda call, paths: None, volume)):
            view.keep()
        write_live(view.profile, CWD, view.session, jsonl(*own[2:]))
        with hooked(at_call(number, lambda view=view: view.live.unlink(missing_ok=True), volume)):
            view.keep()
        settled(view, volume, own, both=False)


@pytest.mark.accepts("SWAP-4")
def test_a_stranger_under_the_name_is_drained_from_its_first_byte(here: World, volume: Hook | None) -> None:
    to_be_folded(here, volume)
    stranger = [prompt("s1", "d"), prompt("s2", "s1")]

    def recreate() -> None:
        write_live(here.profile, CWD, here.session, jsonl(*stranger))

    with hooked(with_volume(before("exchange", recreate), volume)):
        here.keep()
    assert lines_of(here.live) == lines_of(here.kept) == [A, B, C, D, *stranger]
    settled(here, volume, [A, B, C, D, *stranger])


@pytest.mark.accepts("SWAP-4", "SWAP-6")
def test_a_stranger_that_comes_before_any_step_of_the_fold_is_kept(here: World, volume: Hook | None) -> None:
    to_be_folded(here, volume)
    with hooked(with_volume(lambda call, paths: None, volume)):
        count = len(calls_of(here.keep, volume))
    for number in range(count):
        view = here.about(build.session_id(number + 10))
        own = [one.replace(here.session.encode(), view.session.encode()) for one in (A, B, C, D, E, F)]
        write_live(view.profile, CWD, view.session, jsonl(*own[:2]))
        with hooked(with_volume(lambda call, paths: None, volume)):
            view.keep()
        write_live(view.profile, CWD, view.session, jsonl(*own[2:4]))

        def recreate(view: World = view, own: list[bytes] = own) -> None:
            write_live(view.profile, CWD, view.session, jsonl(*own[4:]))

        with hooked(at_call(number, recreate, volume)):
            view.keep()
        settled(view, volume, [*own[:2], *own[4:]])


@pytest.mark.accepts("SWAP-4", "RESTORE-4")
@in_mode_link
def test_without_an_exchange_a_file_that_takes_the_name_between_the_two_steps_is_folded(here: World) -> None:
    volume = refusing("exchange", errno.ENOSYS)
    to_be_folded(here, volume)
    taken: list[bytes] = []

    def take(call: str, paths: tuple[str, ...]) -> None:
        if call == "move" and paths[1] == str(here.live) and not taken:
            append(here.live, jsonl(E))
            taken.append(E)

    with hooked(with_volume(take, volume)):
        here.restore()
    assert taken
    assert lines_of(here.live) == [A, B, C, D, E]
    settled(here, volume, [A, B, C, D, E])


@pytest.mark.accepts("SWAP-4", "KEEP-9")
@pytest.mark.parametrize("kind", ["link", "folder", "fifo"])
@in_mode_link
def test_what_is_no_file_and_took_the_live_name_stays_as_it_is(here: World, tmp_path: Path, kind: str) -> None:
    to_be_folded(here, None)
    target = tmp_path / "elsewhere"
    target.write_bytes(b"somebody's own")

    def take() -> None:
        here.live.unlink()
        if kind == "link":
            here.live.symlink_to(target)
        elif kind == "folder":
            here.live.mkdir()
        else:
            os.mkfifo(here.live)

    with hooked(before("exchange", take)), pytest.raises(Refused):
        here.keep()
    kinds = {"link": stat.S_IFLNK, "folder": stat.S_IFDIR, "fifo": stat.S_IFIFO}
    assert stat.S_IFMT(here.live.lstat().st_mode) == kinds[kind]
    assert target.read_bytes() == b"somebody's own"
    if kind == "folder":
        here.live.rmdir()
    else:
        here.live.unlink()
    settled(here, None, [A, B, C, D], both=False)


# ------------------------------------------------------------------ what a swap leaves as it was


@pytest.mark.accepts("SWAP-7")
def test_no_step_appends_to_a_live_file(here: World, volume: Hook | None) -> None:
    to_be_folded(here, volume)
    calls = calls_of(here.keep, volume)
    assert [paths for call, paths in calls if call in ("append", "write") and paths[0] == str(here.live)] == []


@pytest.mark.accepts("SWAP-7", "KEEP-16")
@pytest.mark.parametrize("bits", [0o600, 0o640, 0o666])
def test_the_new_file_takes_mode_and_attributes_of_the_old_one(here: World, volume: Hook | None, bits: int) -> None:
    to_be_folded(here, volume)
    here.live.chmod(bits)
    os.setxattr(here.live, "user.note", b"mine")
    was = here.live.stat()
    with hooked(with_volume(lambda call, paths: None, volume)):
        here.keep()
    now = here.live.stat()
    assert now.st_ino != was.st_ino
    assert (stat.S_IMODE(now.st_mode), now.st_uid, now.st_gid) == (bits, was.st_uid, was.st_gid)
    assert os.getxattr(here.live, "user.note") == b"mine"


@pytest.mark.accepts("SWAP-7")
@in_mode_link
def test_the_new_file_takes_the_access_list_of_the_old_one(here: World) -> None:
    to_be_folded(here, None)
    entries = [(0x01, 6, NOBODY), (0x02, 4, 12345), (0x04, 0, NOBODY), (0x10, 4, NOBODY), (0x20, 0, NOBODY)]
    access = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    os.setxattr(here.live, "system.posix_acl_access", access)
    here.keep()
    assert os.getxattr(here.live, "system.posix_acl_access") == access


@pytest.mark.accepts("SWAP-7")
def test_a_keep_makes_the_time_of_the_live_file_no_newer(here: World, volume: Hook | None) -> None:
    """`--continue` takes the newest."""
    to_be_folded(here, volume)
    os.utime(here.live, ns=(10**18, 10**18))
    with hooked(with_volume(lambda call, paths: None, volume)):
        here.keep()
    assert here.live.stat().st_mtime_ns == 10**18


@pytest.mark.accepts("SWAP-7")
@in_mode_link
def test_a_live_file_of_another_owner_is_kept_and_not_replaced(needs: Needs, here: World) -> None:
    needs.root()
    to_be_folded(here, None)
    os.chown(here.live, 12345, 12345)
    was = state_of(here.live)
    answer = here.keep()
    assert any("another user" in warning for warning in answer.warnings)
    assert state_of(here.live) == was
    assert here.live.stat().st_uid == 12345
    assert twice_or_missing(here.kept, [A, B, C, D]) == {}
    assert here.restore().action != "folded"
    assert here.live.read_bytes() == jsonl(C, D)


@pytest.mark.accepts("SWAP-3")
def test_a_swap_that_failed_at_the_exchange_leaves_both_files_as_they_were(here: World, volume: Hook | None) -> None:
    to_be_folded(here, volume)
    was = here.live.read_bytes()

    def fail() -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with hooked(with_volume(before("exchange", fail), None)), pytest.raises(KeeperError):
        here.keep()
    assert here.live.read_bytes() == was
    assert lines_of(here.kept)[:2] == [A, B]
    settled(here, volume, [A, B, C, D])


@pytest.mark.accepts("KEEP-5")
def test_after_a_fold_nothing_is_left_to_do(here: World, volume: Hook | None) -> None:
    to_be_folded(here, volume)
    with hooked(with_volume(lambda call, paths: None, volume)):
        here.keep()
    assert names_of_ours(here.profile, here.root) == []
    assert changes_of(lambda: here.keep()) == []
