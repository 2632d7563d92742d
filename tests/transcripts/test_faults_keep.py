"""Every change of a keep is failed and killed, one after the other, and the disk refuses for real: kept stays whole,
live stays as it was, the error says what to do, the next run heals, and nothing of ours is left lying about."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from keeper import files
from keeper.errors import DiskError, KeeperError
from tests import build
from tests.build import CWD, append, jsonl, talk, write_live
from tests.conftest import Needs, Ran
from tests.seam import (
    Call,
    Deed,
    Hook,
    World,
    calls_of,
    failing,
    hooked,
    in_child,
    killed_at,
    lines_of,
    names_of_ours,
    refusing,
    state_of,
    twice_or_missing,
    world,
)
from tests.volumes import remount, tmpfs

KEPT, LIVE = talk("ab"), talk("cd", parent="b")
BRANCH = talk("xy", parent="a")
SIDE = talk(["s1", "s2", "s3", "s4"])


# ------------------------------------------------------------------ where it begins


def companion(here: World, text: bytes = b"out\n", side: list[bytes] = SIDE[:2]) -> None:
    for name, data in (("tool-results/x.txt", text), ("subagents/agent-1.jsonl", jsonl(*side))):
        path = here.companion / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_bytes(data)


def first(here: World) -> list[bytes]:
    """Nothing is kept yet."""
    write_live(here.profile, CWD, here.session, jsonl(*KEPT, *LIVE))
    companion(here)
    return KEPT + LIVE


def folded(here: World) -> list[bytes]:
    """Deleted and made anew by a Claude that runs: the tail alone."""
    write_live(here.profile, CWD, here.session, jsonl(*KEPT))
    here.keep()
    write_live(here.profile, CWD, here.session, jsonl(*LIVE))
    return KEPT + LIVE


def ahead(here: World) -> list[bytes]:
    """The same and more, on another inode (in mode copy: more of the same)."""
    write_live(here.profile, CWD, here.session, jsonl(*KEPT))
    here.keep()
    write_live(here.profile, CWD, here.session, jsonl(*KEPT, *LIVE))
    return KEPT + LIVE


def split(here: World) -> list[bytes]:
    """Cut short and gone on."""
    write_live(here.profile, CWD, here.session, jsonl(*KEPT, *LIVE))
    here.keep()
    write_live(here.profile, CWD, here.session, jsonl(*KEPT[:1], *BRANCH))
    return KEPT + LIVE + BRANCH


def others(here: World) -> list[bytes]:
    """A companion file that is longer now, a subagent's transcript that was made anew, a tail on the transcript."""
    write_live(here.profile, CWD, here.session, jsonl(*KEPT))
    companion(here)
    here.keep()
    companion(here, b"out, and more\n", SIDE[2:])
    append(here.live, jsonl(*LIVE))
    return KEPT + LIVE


STATES = [first, folded, ahead, split, others]
MODES = ["link", "copy", "no links", "no exchange"]


@pytest.fixture(scope="module")
def volumes(needs: Needs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """Two volumes in memory, where a sync costs nothing."""
    place = tmp_path_factory.mktemp("volumes")
    with tmpfs(needs, place / "one", "256m") as one, tmpfs(needs, place / "two", "256m") as two:
        yield one, two


@dataclass(frozen=True, slots=True)
class Grounds:
    """Makes worlds that are all alike, each at `state`, on volumes of `mode`."""

    volumes: tuple[Path, Path]
    mode: str
    state: Callable[[World], list[bytes]]

    @property
    def refuses(self) -> Hook | None:
        return {"no links": refusing("link", errno.EPERM), "no exchange": refusing("exchange", errno.EINVAL)}.get(
            self.mode
        )

    def fresh(self) -> tuple[World, list[bytes]]:
        one, two = (place / os.urandom(6).hex() for place in self.volumes)
        profile = (two if self.mode == "copy" else one) / "profile"
        (profile / "projects").mkdir(parents=True)
        here = world(profile, one / "vault", one / "state")
        here.vault()
        with hooked(self.refuses or (lambda call, paths: None)):
            return here, self.state(here)

    def calls(self) -> list[Call]:
        here, _ = self.fresh()
        return calls_of(here.keep, self.refuses)

    def healed(self, here: World, wanted: list[bytes]) -> None:
        """The next run ends whole; the one after it writes nothing."""
        with hooked(self.refuses or (lambda call, paths: None)):
            here.keep()
            assert twice_or_missing(here.kept, wanted) == {}
            assert names_of_ours(here.profile, here.root) == []
            found = state_of(here.profile, here.root)
            here.keep()
        assert state_of(here.profile, here.root) == found
        assert here.live.exists(), "nobody deleted the live file, and it is gone"
        order = [one for one in lines_of(here.kept) if one in wanted]
        assert [one for one in order if one in KEPT + LIVE] == KEPT + LIVE
        if self.state in (first, others):
            side = SIDE[:2] if self.state is first else SIDE
            assert lines_of(here.kept_companion / "subagents" / "agent-1.jsonl") == side
            text = (here.kept_companion / "tool-results" / "x.txt").read_bytes()
            assert text == (here.companion / "tool-results" / "x.txt").read_bytes()


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=STATES, ids=lambda state: state.__name__)
def grounds(request: pytest.FixtureRequest, volumes: tuple[Path, Path], mode: str) -> Grounds:
    return Grounds(volumes, mode, request.param)


def short(call: Call) -> str:
    return f"{call[0]} {[Path(path).name for path in call[1]]}"


def half_done(profile: Path, live: bytes) -> list[Path]:
    """Names of ours beside live that hold something else than what Claude wrote there."""
    return [path for path in profile.rglob(".keeper-*") if path.read_bytes() not in (live, jsonl(*SIDE[2:]))]


# ------------------------------------------------------------------ killed


@pytest.mark.accepts("FAULT-1", "SWAP-3", "KEEP-10")
def test_killed_before_any_change_the_next_run_has_every_line_once_and_the_one_after_writes_nothing(
    grounds: Grounds,
) -> None:
    calls = grounds.calls()
    for number, call in enumerate(calls):
        here, wanted = grounds.fresh()
        before = lines_of(here.kept) if here.kept.exists() else []
        assert killed_at(number, here.keep, grounds.refuses) or call[0] == "commit", short(call)
        held = [one for path in here.root.rglob("*") if path.is_file() for one in path.read_bytes().split(b"\n")]
        assert set(before) <= set(held), f"killed at {number} ({short(call)}): a kept line stands nowhere"
        try:
            grounds.healed(here, wanted)
        except AssertionError as error:
            raise AssertionError(f"killed at {number} of {len(calls)} ({short(call)}): {error}") from error


@pytest.mark.accepts("FAULT-1", "KEEP-10")
def test_a_first_keep_that_was_killed_leaves_nothing_behind_where_the_live_file_goes_before_the_next(
    volumes: tuple[Path, Path], mode: str
) -> None:
    grounds = Grounds(volumes, mode, first)
    for number, call in enumerate(grounds.calls()):
        here, _ = grounds.fresh()
        killed_at(number, here.keep, grounds.refuses)
        shutil.rmtree(here.live.parent)
        with hooked(grounds.refuses or (lambda call, paths: None)):
            here.keep_all()
            assert here.kept.exists() or not here.chat.exists(), f"killed at {number} ({short(call)})"
            assert names_of_ours(here.profile, here.root) == []
            found = state_of(here.root)
            here.keep_all()
        assert state_of(here.root) == found


@pytest.mark.accepts("FAULT-1", "SWAP-3")
def test_killed_in_the_run_that_heals_the_third_run_has_every_line_once(volumes: tuple[Path, Path]) -> None:
    grounds = Grounds(volumes, "link", folded)
    for number in range(0, len(grounds.calls()), 3):
        for second in range(0, 24, 5):
            here, wanted = grounds.fresh()
            killed_at(number, here.keep)
            killed_at(second, here.keep)
            grounds.healed(here, wanted)


# ------------------------------------------------------------------ failed


@pytest.mark.accepts("KEEP-17", "FAULT-4")
def test_failed_at_any_change_kept_is_whole_live_untouched_and_the_error_says_what_to_do(grounds: Grounds) -> None:
    codes = [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.EMFILE]
    calls = grounds.calls()
    for number, call in enumerate(calls):
        code = codes[number % len(codes)]
        here, wanted = grounds.fresh()
        before = lines_of(here.kept) if here.kept.exists() else []
        live = here.live.read_bytes()
        where = f"{errno.errorcode[code]} at {number} of {len(calls)} ({short(call)})"
        try:
            with hooked(failing(number, code, grounds.refuses)):
                here.keep()
        except DiskError as error:
            assert str(error.path) in error.message, where
            assert str(error.volume) in error.message, where
            assert error.cure, where
        except KeeperError as error:
            assert error.cure, where
        assert not before or [one for one in lines_of(here.kept) if one in before] == before, where
        assert here.live.exists(), f"{where}: the live file lost its name"
        assert set(live.splitlines()) <= set(here.live.read_bytes().splitlines()), where
        assert [*half_done(here.profile, live), *here.root.rglob("*.tmp")] == [] or call[0] == "unlink", where
        try:
            grounds.healed(here, wanted)
        except AssertionError as error:
            raise AssertionError(f"{where}: {error}") from error


@pytest.mark.accepts("KEEP-17", "FAULT-4")
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.EMFILE])
def test_a_disk_that_fails_from_some_change_on_for_ever_is_told_and_hurts_nothing(
    volumes: tuple[Path, Path], code: int
) -> None:
    grounds = Grounds(volumes, "link", folded)
    count = len(grounds.calls())
    for number in range(0, count, 2):
        here, wanted = grounds.fresh()
        with hooked(failing(number, code, forever=True)):
            try:
                answer = here.keep_all()[here.session]
                told = f"{answer.error} {answer.cure}"
            except KeeperError as error:
                told = f"{error.message} {error.cure}"
        assert os.strerror(code) in told, f"from {number} on"
        assert "run it again" in told
        assert set(KEPT) <= set(lines_of(here.kept))
        assert set(LIVE) <= set(lines_of(here.live))
        grounds.healed(here, wanted)


@pytest.mark.accepts("KEEP-17")
def test_a_run_that_failed_holds_no_descriptor(volumes: tuple[Path, Path]) -> None:
    for mode in MODES:
        grounds = Grounds(volumes, mode, folded)
        calls = grounds.calls()
        for number, call in enumerate(calls):
            here, _ = grounds.fresh()
            before = len(os.listdir("/proc/self/fd"))
            with hooked(failing(number, errno.EIO, grounds.refuses)):
                try:
                    here.keep()
                except KeeperError:
                    pass
                except OSError:
                    pass
            assert len(os.listdir("/proc/self/fd")) == before, f"{mode}: failed at {number} ({short(call)})"


@pytest.mark.accepts("KEEP-17")
def test_a_session_that_fails_stops_no_other_of_the_run(volumes: tuple[Path, Path]) -> None:
    here, _ = Grounds(volumes, "link", first).fresh()
    other = here.about(build.session_id(2))
    write_live(other.profile, CWD, other.session, jsonl(*talk("ab", session=other.session)))

    def fail(call: str, paths: tuple[str, ...]) -> None:
        if any(here.session in path for path in paths) and call in ("link", "create"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with hooked(fail):
        answers = here.keep_all()
    assert answers[here.session].error
    assert answers[other.session].error is None
    assert other.kept.samefile(other.live)


# ------------------------------------------------------------------ short writes


@pytest.mark.accepts("KEEP-17")
@pytest.mark.parametrize("most", [1, 7])
@pytest.mark.parametrize("state", [folded, split, others, ahead], ids=lambda state: state.__name__)
@pytest.mark.parametrize("mode", ["link", "copy"])
def test_short_writes_are_written_on(
    volumes: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, mode: str, state: Callable[[World], list[bytes]],
    most: int,
) -> None:  # fmt: skip
    grounds = Grounds(volumes, mode, state)
    here, wanted = grounds.fresh()
    whole = os.write
    counted: list[int] = []

    def short_write(fd: int, data: bytes | memoryview) -> int:
        counted.append(len(data))
        return whole(fd, bytes(data[:most]))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", short_write)
        here.keep()
    assert len(counted) > 20 or (mode, state) == ("link", ahead)
    grounds.healed(here, wanted)


# ------------------------------------------------------------------ the disk refuses for real


def told_by(run: Deed, report: Path, first: Deed) -> str:
    """What a run in a process of its own, after `first`, would say on the command line; `` where all went well."""
    with report.open("w") as out:

        def child() -> None:
            first()
            try:
                try:
                    run()
                except (KeeperError, OSError) as error:
                    told = files.told(error, report)
                    print(told.message, told.cure, file=out, flush=True)
            except BaseException:
                traceback.print_exc(file=out)
                out.flush()
                raise

        code = in_child(child)
    text = report.read_text()
    assert code == 0, f"an error that is none of keeper's: {text}"
    return text


def fill(volume: Path) -> Path:
    """Take what is left of a volume, to the last byte."""
    filler = volume / "filler"
    with filler.open("ab", buffering=0) as stream:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while stream.write(b"x" * size):
                    pass
            except OSError as error:
                assert error.errno == errno.ENOSPC
    return filler


@pytest.mark.accepts("KEEP-17")
@pytest.mark.parametrize("state", ["first", "tail", "fold", "companion"])
def test_a_full_volume_is_named_with_its_cure_and_the_next_run_heals(
    needs: Needs, profile: Path, tmp_path: Path, run_keeper: Callable[..., Ran], state: str
) -> None:
    session = build.session_id(1)
    with tmpfs(needs, tmp_path / "small", "1m") as volume:
        env = {"KEEPER_HOME": str(volume / "vault")}
        live = build.live_path(profile, session)
        if state == "first":
            assert run_keeper("keep", env=env).code == 0
        else:
            write_live(profile, CWD, session, jsonl(*KEPT))
            assert run_keeper("keep", env=env).code == 0
        filler = fill(volume)
        long = build.prompt("long", "b", "x" * 20_000)
        if state == "first":
            write_live(profile, CWD, session, jsonl(*KEPT, long))
        elif state == "tail":
            append(live, jsonl(long))
        elif state == "fold":
            write_live(profile, CWD, session, jsonl(long))
        else:
            (live.with_suffix("") / "tool-results").mkdir(parents=True)
            (live.with_suffix("") / "tool-results" / "x.txt").write_bytes(b"x" * 20_000)
        kept = volume / "vault" / "chats" / session / f"{session}.jsonl"
        was = state_of(profile), kept.read_bytes() if kept.exists() else None

        ran = run_keeper("keep", env=env)
        assert ran.code in (1, 3)
        assert "No space left on device" in ran.err
        assert f"volume {volume}" in ran.err
        assert "free some space" in ran.err
        assert "Traceback" not in ran.err
        assert state_of(profile) == was[0]
        assert (kept.read_bytes() if kept.exists() else None) == was[1]
        assert names_of_ours(profile, volume / "vault") == []

        filler.unlink()
        ran = run_keeper("keep", env=env)
        assert (ran.code, ran.err) == (0, "")
        wanted = KEPT if state == "companion" else [*KEPT, long]
        assert lines_of(kept) == wanted
        if state == "companion":
            assert (kept.with_suffix("") / "tool-results" / "x.txt").stat().st_size == 20_000
        assert names_of_ours(profile, volume / "vault") == []


@pytest.mark.accepts("KEEP-17")
@pytest.mark.parametrize("which", ["vault", "profile", "both"])
def test_a_read_only_volume_is_named_with_its_cure_and_the_next_run_heals(
    needs: Needs, tmp_path: Path, run_keeper: Callable[..., Ran], which: str
) -> None:
    session = build.session_id(1)
    with tmpfs(needs, tmp_path / "one") as one, tmpfs(needs, tmp_path / "two") as two:
        root = {"vault": one, "profile": two, "both": one}[which] / "vault"
        profile = {"vault": two, "profile": one, "both": one}[which] / "profile"
        env = {"KEEPER_HOME": str(root), "CLAUDE_CONFIG_DIR": str(profile)}
        live = write_live(profile, CWD, session, jsonl(*KEPT))
        assert run_keeper("keep", env=env).code == 0
        write_live(profile, CWD, session, jsonl(*LIVE))
        kept = root / "chats" / session / f"{session}.jsonl"
        was = state_of(one)
        remount(needs, one, "ro")
        ran = run_keeper("keep", env=env)
        assert ran.code in (1, 3)
        assert "Read-only file system" in ran.err
        assert f"volume {one}" in ran.err
        assert "remount it writable" in ran.err
        assert "Traceback" not in ran.err
        assert state_of(one) == was
        assert run_keeper("list", env=env).code == 0, "a vault that is only to be read cannot be read"
        remount(needs, one, "rw")
        assert run_keeper("keep", env=env).code == 0
        assert lines_of(kept) == lines_of(live) == KEPT + LIVE
        assert names_of_ours(profile, root) == []


@pytest.mark.accepts("KEEP-17")
def test_too_many_open_files_are_named_with_their_cure_whatever_the_limit(tmp_path: Path, vault_home: Path) -> None:
    """The limit falls at another step each time."""
    profile = tmp_path / "profile"
    here = world(profile, vault_home, tmp_path / "state")
    write_live(profile, CWD, here.session, jsonl(*KEPT))
    companion(here)
    here.keep()
    index = (here.root / "state.db").read_bytes()
    told = []
    used = len(os.listdir("/proc/self/fd")) + 1
    for spare in range(14):
        write_live(profile, CWD, here.session, jsonl(*KEPT[:1], *LIVE[:1]))

        def limit(spare: int = spare) -> None:
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (used + spare, hard))

        text = told_by(lambda: list(map(raised, here.keep_all().values())), tmp_path / "report", limit)
        told.append(text)
        assert not text or "ulimit -n" in text, f"{spare} spare descriptors"
        assert set(KEPT) <= set(lines_of(here.kept))
        assert not list(here.root.glob("state.db.broken*")), "a sound index was thrown out for want of a descriptor"
    assert any("Too many open files" in text for text in told)
    assert told[-1] == ""
    here.keep()
    assert names_of_ours(here.profile, here.root) == []
    assert len(here.vault().rows()) == 1
    assert index[:16] == (here.root / "state.db").read_bytes()[:16]


# ------------------------------------------------------------------ as another user


@pytest.fixture
def common(needs: Needs, profile: Path, vault_home: Path, tmp_path: Path) -> Iterator[Path]:
    """A folder that user 65534 can reach and write: pytest's own are root's alone."""
    needs.root()
    # What Python loads at first use must be loaded before: the interpreter may stand where only root can read.
    warm = world(profile, vault_home, tmp_path / "state")
    folded(warm)
    companion(warm)
    warm.keep_all()
    warm.restore()
    place = Path(tempfile.mkdtemp(prefix="keeper-test-"))
    place.chmod(0o711)
    for name in ("profile", "state", "room"):
        (place / name).mkdir()
        os.chown(place / name, 65534, 65534)
    try:
        yield place
    finally:
        shutil.rmtree(place)


def as_nobody(run: Callable[[], object], report: Path) -> str:
    """The words and the cure of what went wrong with the run in a process of user 65534, or ``."""

    def drop() -> None:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)

    return told_by(run, report, drop)


@pytest.mark.accepts("KEEP-17", "KEEP-16")
def test_what_may_not_be_touched_is_named_with_its_cure_and_the_next_run_heals(common: Path, tmp_path: Path) -> None:
    here = world(common / "profile", common / "room" / "vault", common / "state")
    report = tmp_path / "report"

    def as_owner(path: Path) -> None:
        for one in [path, *path.rglob("*")]:
            os.chown(one, 65534, 65534, follow_symlinks=False)

    write_live(here.profile, CWD, here.session, jsonl(*KEPT))
    companion(here)
    as_owner(common / "profile")
    assert as_nobody(here.keep, report) == ""
    assert here.kept.samefile(here.live)
    assert here.root.stat().st_uid == 65534

    for locked, mode in (
        (here.live.parent, 0o500),
        (here.live.parent, 0o000),
        (here.chat, 0o500),
        (here.root / "chats", 0o000),
        (here.root / "locks", 0o000),
        (here.root / "state.db", 0o000),
        (here.root, 0o500),
        (here.live, 0o000),
        (here.companion / "tool-results", 0o000),
    ):
        before = set(lines_of(here.kept))
        number = len(before)
        was = talk([f"n{number}"], parent="b")
        here.live.unlink(missing_ok=True)
        write_live(here.profile, CWD, here.session, jsonl(*was))
        as_owner(common / "profile")
        usual = locked.stat().st_mode
        locked.chmod(mode)
        told = as_nobody(lambda: list(map(raised, here.keep_all().values())), report)
        locked.chmod(usual)
        assert before <= set(lines_of(here.kept)), locked
        assert set(was) <= set(lines_of(here.live)), locked
        if told:
            assert "volume" in told, told
            assert "readable and writable" in told, told
        assert as_nobody(here.keep, report) == ""
        assert set(was) | before <= set(lines_of(here.kept)), locked
        assert names_of_ours(here.profile, here.root) == [], locked


def raised(answer: object) -> None:
    """An answer's error, as the error that it was."""
    if getattr(answer, "error", None):
        raise KeeperError(answer.error, answer.cure)  # type: ignore[attr-defined]


@pytest.mark.accepts("KEEP-17", "KEEP-9")
def test_one_folder_that_may_not_be_read_stops_no_other(common: Path, tmp_path: Path) -> None:
    here = world(common / "profile", common / "room" / "vault", common / "state")
    write_live(here.profile, CWD, here.session, jsonl(*KEPT))
    other = here.about(build.session_id(2), "/srv/demo/locked")
    write_live(other.profile, other.cwd, other.session, jsonl(*talk("ab", session=other.session)))
    (tmp_path / "not theirs").mkdir(mode=0o700)
    (here.profile / "projects" / "-to-another").symlink_to(tmp_path / "not theirs" / "nowhere" / "at-all")
    companion(here)
    locked = here.companion / "locked"
    locked.mkdir()
    for one in [here.profile, *here.profile.rglob("*")]:
        os.chown(one, 65534, 65534, follow_symlinks=False)
    report = tmp_path / "report"
    other.live.parent.chmod(0)
    locked.chmod(0)
    told = as_nobody(here.keep_all, report)
    other.live.parent.chmod(0o700)
    locked.chmod(0o700)
    assert told == ""
    assert here.kept.samefile(here.live)
    assert {path.name for path in here.kept_companion.iterdir()} >= {"subagents", "tool-results"}
    assert as_nobody(other.keep, report) == ""
    assert other.kept.samefile(other.live)


@pytest.mark.accepts("KEEP-3", "SWAP-7")
def test_a_file_of_another_user_that_the_kernel_lets_nobody_link_is_kept_by_a_copy(
    common: Path, tmp_path: Path
) -> None:
    here = world(common / "profile", common / "room" / "vault", common / "state")
    write_live(here.profile, CWD, here.session, jsonl(*KEPT)).chmod(0o644)
    for folder in (here.profile, here.profile / "projects", here.live.parent):
        os.chown(folder, 65534, 65534)
    report = tmp_path / "report"
    assert as_nobody(here.keep, report) == ""
    assert lines_of(here.kept) == KEPT
    assert here.live.stat().st_uid == 0
    guarded = Path("/proc/sys/fs/protected_hardlinks").read_text().strip() == "1"
    assert here.kept.samefile(here.live) is not guarded


# ------------------------------------------------------------------ the command at its end


@pytest.mark.accepts("KEEP-17")
def test_an_interrupted_command_leaves_what_the_next_one_heals(
    profile: Path, vault_home: Path, cli_env: dict[str, str], run_keeper: Callable[..., Ran]
) -> None:
    """SIGINT in the middle of a fold."""
    session = build.session_id(1)
    write_live(profile, CWD, session, jsonl(*KEPT))
    assert run_keeper("keep").code == 0
    for number in (2, 9, 15):
        write_live(profile, CWD, session, jsonl(*talk([f"n{number}"], parent="b")))
        code = (
            "import os, signal, sys\nfrom tests.seam import at_call\nfrom keeper import disk\n"
            f"disk.hook = at_call({number}, lambda: os.kill(os.getpid(), signal.SIGINT))\n"
            "sys.argv = ['keeper', 'keep']\nfrom keeper.cli.main import main\nmain()\n"
        )
        done = subprocess.run([sys.executable, "-c", code], env=cli_env, capture_output=True, text=True, check=False)
        assert done.returncode == 130, done.stderr
        assert "Traceback" not in done.stderr
        assert run_keeper("keep").code == 0
        kept = vault_home / "chats" / session / f"{session}.jsonl"
        assert twice_or_missing(kept, [*KEPT, *talk([f"n{number}"], parent="b")]) == {}
        assert names_of_ours(profile, vault_home) == []
