"""Every change of a keep that seals is failed and killed, one after the other, and so are those of a repair and of a
repack: nothing that was sealed is lost, the next run heals, and the one after it writes nothing."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from keeper.errors import DiskError, KeeperError
from keeper.transcripts import seal, sealer
from keeper.transcripts.audit import repair
from keeper.transcripts.frame import walk
from keeper.transcripts.keep import Keeper, Options, keep_session
from keeper.transcripts.verify import verify
from tests import build
from tests.build import CWD, answer, append, jsonl, meta, prompt, talk, write_live
from tests.chat import put
from tests.conftest import Needs, Ran
from tests.damage import asked_of, cut_lines, flip, keep_at, other_seal, seal_of, take_out, write_over
from tests.seam import (
    Call,
    Deed,
    Hook,
    World,
    calls_of,
    failing,
    hooked,
    killed_at,
    lines_of,
    names_of_ours,
    refusing,
    state_of,
    twice_or_missing,
    world,
)
from tests.volumes import tmpfs

KEPT, MORE = talk("abcd"), talk("ef", parent="d")
BRANCH = talk("xy", parent="b")
SIDE = talk(["s1", "s2", "s3"])
RESULT = b"a long output\n" * 30
STUB = meta("custom-title", customTitle="left")
GONE = answer("gone", "c", "an answer that Claude asks for anew")

Wanted = list[bytes]


def agent(here: World) -> Path:
    return here.companion / "subagents" / "agent-1.jsonl"


def result(here: World) -> Path:
    return here.companion / "tool-results" / "x.txt"


def kept_whole(here: World, *more: bytes) -> None:
    write_live(here.profile, CWD, here.session, jsonl(*KEPT, *more))
    put(agent(here), jsonl(*SIDE))
    put(result(here), RESULT)
    here.keep()


# ------------------------------------------------------------------ where it begins: what stands, and what must stay


def first(here: World) -> Wanted:
    """Nothing is kept yet."""
    write_live(here.profile, CWD, here.session, jsonl(*KEPT))
    put(agent(here), jsonl(*SIDE))
    put(result(here), RESULT)
    return KEPT


def grown(here: World) -> Wanted:
    kept_whole(here)
    append(here.live, jsonl(*MORE))
    append(result(here), b"more\n")
    return KEPT + MORE


def folded(here: World) -> Wanted:
    """Deleted and made anew by a Claude that runs: the tail alone. A splice follows."""
    kept_whole(here)
    write_live(here.profile, CWD, here.session, jsonl(*MORE))
    return KEPT + MORE


def cut(here: World) -> Wanted:
    """Truncated in place, its subagent's transcript and its tool's result too."""
    kept_whole(here)
    cut_lines(here.live, 2)
    cut_lines(agent(here), 1)
    os.truncate(result(here), 20)
    return KEPT


def cut_and_gone_on(here: World) -> Wanted:
    kept_whole(here)
    cut_lines(here.live, 2)
    append(here.live, jsonl(*BRANCH))
    return KEPT + BRANCH


def stubbed(here: World) -> Wanted:
    """Written over in place by metadata: damage, then a fold."""
    kept_whole(here)
    write_over(here.live, jsonl(STUB))
    return [*KEPT, STUB]


def tombstoned(here: World) -> Wanted:
    kept_whole(here, GONE)
    take_out(here.live, GONE)
    append(here.live, jsonl(*MORE))
    return KEPT + MORE


def torn(here: World) -> Wanted:
    """An earlier run was killed in mid-append of either seal."""
    grown(here)
    here.keep()
    for path in (seal_of(here), other_seal(here)):
        os.truncate(path, path.stat().st_size - 20)
    append(here.live, jsonl(*talk("gh", parent="f")))
    return [*KEPT, *MORE, *talk("gh", parent="f")]


STATES = [first, grown, folded, cut, cut_and_gone_on, stubbed, tombstoned, torn]
IN_PLACE = (cut, cut_and_gone_on, stubbed, tombstoned)
MODES = ["link", "copy", "no links", "no exchange"]


@pytest.fixture(scope="module")
def volumes(needs: Needs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """Two volumes in memory, where a sync costs nothing."""
    place = tmp_path_factory.mktemp("volumes")
    with tmpfs(needs, place / "one", "512m") as one, tmpfs(needs, place / "two", "512m") as two:
        yield one, two


@dataclass(frozen=True, slots=True)
class Grounds:
    """Makes worlds that are all alike, each at `state`, on volumes of `mode`, and runs a `pass` or a single keep."""

    volumes: tuple[Path, Path]
    mode: str
    state: Callable[[World], Wanted]
    passes: bool = False

    @property
    def hook(self) -> Hook:
        refused = {"no links": ("link", errno.EPERM), "no exchange": ("exchange", errno.EINVAL)}.get(self.mode)
        return refusing(*refused) if refused else lambda call, paths: None

    def fresh(self) -> tuple[World, Wanted]:
        one, two = (place / os.urandom(6).hex() for place in self.volumes)
        profile = (two if self.mode == "copy" else one) / "profile"
        (profile / "projects").mkdir(parents=True)
        here = world(profile, one / "vault", one / "state")
        here.vault()
        with hooked(self.hook):
            return here, self.state(here)

    def run(self, here: World) -> Deed:
        return here.keep_all if self.passes else here.keep

    def calls(self) -> list[Call]:
        here, _ = self.fresh()
        return asked_of(self.run(here), self.hook)

    def healed(self, here: World, wanted: Wanted) -> None:
        """The next run ends whole and sealed; the one after it writes nothing."""
        with hooked(self.hook):
            here.keep()
            whole(here, wanted)
            found = state_of(here.profile, here.root)
            here.keep()
        assert state_of(here.profile, here.root) == found, "the run after it writes"


def whole(here: World, wanted: Wanted) -> None:
    records = [line for line in wanted if b'"uuid":"' in line]
    assert twice_or_missing(here.kept, records) == {}
    assert set(wanted) <= set(lines_of(here.kept))
    assert GONE not in lines_of(here.kept)
    assert [line for line in lines_of(here.kept) if line in KEPT] == KEPT
    assert bytes(seal.read(str(seal_of(here))).content) == here.kept.read_bytes()
    assert twice_or_missing(here.kept_companion / "subagents" / "agent-1.jsonl", SIDE) == {}
    assert (here.kept_companion / "tool-results" / "x.txt").read_bytes().startswith(RESULT)
    vault = here.vault()
    found = verify(vault)
    vault.index.close()
    assert found.faults == ()
    assert [note for note in found.notes if "seal" in note.kind or "swap" in note.file] == []
    assert names_of_ours(here.profile, here.root) == []


def sealed_ever(here: World) -> set[bytes]:
    """Every line that either the kept file or its seal, at whatever time, still has; and the damaged inode's."""
    found: set[bytes] = set()
    for path in here.root.rglob("*"):
        if path.is_file() and path.suffix != ".seal":
            found.update(path.read_bytes().split(b"\n"))
    for _, frame in walk(str(seal_of(here))):
        time_ns = getattr(frame, "time_ns", None)
        if time_ns is not None:
            found.update(bytes(seal.read(str(seal_of(here)), time_ns).content).split(b"\n"))
    return found


def short(call: Call) -> str:
    return f"{call[0]} {[Path(path).name for path in call[1]]}"


GROUNDS = [
    (mode, state)
    for mode in MODES
    for state in STATES
    # Where kept is a file of its own, what Claude takes out of the live one is a branch like any.
    if state is not tombstoned or mode in ("link", "no exchange")
]


@pytest.fixture(params=GROUNDS, ids=lambda param: f"{param[0]}-{param[1].__name__}")
def grounds(request: pytest.FixtureRequest, volumes: tuple[Path, Path]) -> Grounds:
    mode, state = request.param
    return Grounds(volumes, mode, state)


# ------------------------------------------------------------------ killed


@pytest.mark.accepts("FAULT-1", "SEAL-1", "SEAL-4")
def test_killed_before_any_change_of_a_keep_that_seals_nothing_is_lost_and_the_third_run_writes_nothing(
    grounds: Grounds,
) -> None:
    calls = grounds.calls()
    seals = any(path.endswith(".seal") for _, paths in calls for path in paths)
    assert seals or (grounds.state is cut and grounds.mode in ("copy", "no links")), "it seals nothing"
    for number, call in enumerate(calls):
        here, wanted = grounds.fresh()
        before = set(KEPT) if grounds.state is not first else set()
        assert killed_at(number, here.keep, grounds.hook) or call[0] == "commit", short(call)
        where = f"killed at {number} of {len(calls)} ({short(call)})"
        assert before <= sealed_ever(here), f"{where}: a sealed line stands nowhere"
        try:
            grounds.healed(here, wanted)
        except AssertionError as error:
            raise AssertionError(f"{where}: {error}") from error


@pytest.mark.accepts("FAULT-1", "SEAL-1")
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_killed_before_any_change_of_a_pass_and_its_sealing_nothing_is_lost(
    volumes: tuple[Path, Path], state: Callable[[World], Wanted]
) -> None:
    grounds = Grounds(volumes, "link", state, passes=True)
    calls = grounds.calls()
    for number, call in enumerate(calls):
        here, wanted = grounds.fresh()
        killed_at(number, here.keep_all)
        try:
            with hooked(grounds.hook):
                here.keep_all()
                whole(here, wanted)
            grounds.healed(here, wanted)
        except AssertionError as error:
            raise AssertionError(f"killed at {number} of {len(calls)} ({short(call)}): {error}") from error


@pytest.mark.accepts("FAULT-1", "SEAL-1")
@pytest.mark.parametrize("state", IN_PLACE, ids=lambda state: state.__name__)
def test_killed_in_the_run_that_mends_damage_and_again_in_the_next_nothing_is_lost(
    volumes: tuple[Path, Path], state: Callable[[World], Wanted]
) -> None:
    grounds = Grounds(volumes, "link", state)
    for number in range(0, len(grounds.calls()), 2):
        for second in range(0, 20, 4):
            here, wanted = grounds.fresh()
            killed_at(number, here.keep)
            killed_at(second, here.keep)
            try:
                grounds.healed(here, wanted)
            except AssertionError as error:
                raise AssertionError(f"killed at {number}, then at {second}: {error}") from error


@pytest.mark.accepts("FAULT-1", "SEAL-1", "RESTORE-12")
@pytest.mark.parametrize("state", IN_PLACE, ids=lambda state: state.__name__)
@pytest.mark.parametrize("swept", [False, True])
def test_killed_before_any_change_of_a_restore_that_is_the_first_to_see_damage(
    volumes: tuple[Path, Path], state: Callable[[World], Wanted], swept: bool
) -> None:
    grounds = Grounds(volumes, "link", state)

    def fresh() -> tuple[World, Wanted]:
        here, wanted = grounds.fresh()
        if swept:
            here.live.unlink()
        return here, wanted

    here, _ = fresh()
    calls = calls_of(here.restore)
    for number, call in enumerate(calls):
        here, wanted = fresh()
        killed_at(number, here.restore)
        where = f"killed at {number} of {len(calls)} ({short(call)})"
        here.restore(full=True)
        here.keep()  # a restore seals nothing of what was swept
        try:
            whole(here, wanted)
            assert set(wanted) <= set(lines_of(here.live))
        except AssertionError as error:
            raise AssertionError(f"{where}: {error}") from error


# ------------------------------------------------------------------ failed


@pytest.mark.accepts("KEEP-17", "FAULT-4", "SEAL-1")
def test_failed_at_any_change_of_it_kept_stays_whole_the_error_says_what_to_do_and_the_next_run_heals(
    grounds: Grounds,
) -> None:
    codes = [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.EMFILE]
    calls = grounds.calls()
    for number, call in enumerate(calls):
        code = codes[number % len(codes)]
        here, wanted = grounds.fresh()
        own = [here.live.read_bytes(), agent(here).read_bytes()]
        where = f"{errno.errorcode[code]} at {number} of {len(calls)} ({short(call)})"
        told = ""
        try:
            with hooked(failing(number, code, grounds.hook)):
                kept = here.keep()
                told = f"{kept.error} {kept.cure}"
        except DiskError as error:
            assert str(error.path) in error.message, where
            assert error.cure, where
            told = error.message
        except KeeperError as error:
            assert error.cure, where
            told = error.message
        if any(path.endswith(".seal") for path in call[1]):
            assert os.strerror(code) in told, f"{where}: nobody is told that it is not sealed"
        beside = [path for path in here.profile.rglob(".keeper-*") if path.read_bytes() not in own]
        assert [*here.root.rglob("*.tmp"), *beside] == [] or call[0] == "unlink", where
        before = set(KEPT) if grounds.state is not first else set()
        assert before <= sealed_ever(here), f"{where}: a sealed line stands nowhere"
        try:
            grounds.healed(here, wanted)
        except AssertionError as error:
            raise AssertionError(f"{where}: {error}") from error


@pytest.mark.accepts("KEEP-17", "FAULT-4")
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_chat_that_cannot_be_sealed_in_a_pass_is_told_and_stops_no_other(
    volumes: tuple[Path, Path], code: int
) -> None:
    here, _ = Grounds(volumes, "link", first).fresh()
    other = here.about(build.session_id(2))
    write_live(other.profile, CWD, other.session, jsonl(*talk("pq", other.session)))

    def fail(call: str, paths: tuple[str, ...]) -> None:
        if call == "append" and any(f"/{here.session}/seal/" in path for path in paths):
            raise OSError(code, os.strerror(code))

    vault = here.vault()
    with hooked(fail):
        keeper = Keeper(vault, time.time())
        answers = keeper.profile(here.profile)
        keeper.finish()
        keeper.seal()
    vault.index.close()
    assert [answer.error for answer in answers] == [None, None]
    assert here.kept.samefile(here.live)
    (note,) = [note for note in vault.notes if here.session in note]
    assert os.strerror(code) in note
    assert bytes(seal.read(str(seal_of(other))).content) == other.kept.read_bytes()
    here.keep_all()
    assert bytes(seal.read(str(seal_of(here))).content) == here.kept.read_bytes()


@pytest.mark.accepts("KEEP-17")
def test_a_volume_without_room_for_the_seal_is_named_with_its_cure(
    needs: Needs, tmp_path: Path, run_keeper: Callable[..., Ran]
) -> None:
    """The turn itself had room: it is Claude's, and kept by its link."""
    session = build.session_id(1)
    with tmpfs(needs, tmp_path / "small", "2m") as volume:
        env = {"KEEPER_HOME": str(volume / "vault"), "CLAUDE_CONFIG_DIR": str(volume / "profile")}
        live = write_live(volume / "profile", CWD, session, jsonl(*KEPT))
        assert run_keeper("keep", session, env=env).code == 0
        turn = [prompt("long", "d", os.urandom(40_000).hex())]
        append(live, jsonl(*turn))
        filler = volume / "filler"
        with filler.open("ab", buffering=0) as stream:
            for size in (1 << 20, 1 << 12, 1):
                try:
                    while stream.write(b"x" * size):
                        pass
                except OSError as error:
                    assert error.errno == errno.ENOSPC
        path = volume / "vault" / "chats" / session / "seal" / f"{session}.jsonl.seal"
        before = path.read_bytes()
        ran = run_keeper("keep", session, env=env)
        assert ran.code == 1
        assert "No space left on device" in ran.err
        assert str(path) in ran.err
        assert f"volume {volume}" in ran.err
        assert "cure:" in ran.err
        assert path.read_bytes() == before, "a part of a frame was left"
        assert lines_of(live) == [*KEPT, *turn]
        assert names_of_ours(volume) == []
        filler.unlink()
        assert run_keeper("keep", session, env=env).code == 0
        assert run_keeper("verify", env=env).code == 0
        assert bytes(seal.read(str(path)).content) == live.read_bytes()


# ------------------------------------------------------------------ a repair, a repack


def rotten(here: World) -> Wanted:
    """A bit of each kind of file is off, and the live ones are swept."""
    long = [prompt(f"l{i}", f"l{i - 1}" if i else "d", os.urandom(400).hex()) for i in range(12)]
    kept_whole(here, *long)
    put(here.profile / "file-history" / here.session / "de5f4b6f867ced73@v1", b"before the edit\n")
    here.keep()
    here.live.unlink()
    flip(here.kept, here.kept.read_bytes().index(KEPT[1]) + 10, 1)
    flip(here.kept_companion / "tool-results" / "x.txt", 100, 1)
    flip(other_seal(here), other_seal(here).stat().st_size - 40, 1)
    agent(here).unlink()
    result(here).unlink()
    return KEPT + long


def mended(here: World) -> None:
    vault = here.vault()
    try:
        repair(vault, here.session, time.time())
        keep_session(vault, here.session, time.time(), Options(chat=here.session), here.profile)
    finally:
        vault.index.close()


@pytest.mark.accepts("FAULT-1", "SEAL-4")
def test_killed_before_any_change_of_a_repair_the_next_one_makes_it_whole(volumes: tuple[Path, Path]) -> None:
    grounds = Grounds(volumes, "link", rotten)
    here, _ = grounds.fresh()
    calls = calls_of(lambda: mended(here))
    for number, call in enumerate(calls):
        here, wanted = grounds.fresh()
        killed_at(number, lambda here=here: mended(here))
        mended(here)
        try:
            whole(here, wanted)
        except AssertionError as error:
            raise AssertionError(f"killed at {number} of {len(calls)} ({short(call)}): {error}") from error


@pytest.mark.accepts("FAULT-1", "SEAL-5")
def test_killed_before_any_change_of_a_repack_the_history_stays(
    volumes: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealer, "REPACK_FRAMES", 3)
    now = time.time() - 3 * sealer.REPACK_QUIET_S

    def turns(here: World) -> Wanted:
        for number in range(4):
            append_or_begin(here, KEPT[number])
            keep_at(here, now + number * 60)
        return KEPT

    grounds = Grounds(volumes, "link", turns, passes=True)
    calls = grounds.calls()
    assert any(call == "replace" and paths[1].endswith(".seal") for call, paths in calls), "nothing was repacked"
    for number in range(len(calls)):
        here, _ = grounds.fresh()
        killed_at(number, here.keep_all)
        for _ in range(2):
            for turn in range(4):
                content = bytes(seal.read(str(seal_of(here)), int((now + turn * 60) * 1e9)).content)
                assert content == jsonl(*KEPT[: turn + 1]), short(calls[number])
            here.keep_all()
        assert len(list(walk(str(seal_of(here))))) == 1
        assert names_of_ours(here.profile, here.root) == []


def append_or_begin(here: World, line: bytes) -> None:
    if here.live.exists():
        append(here.live, jsonl(line))
    else:
        write_live(here.profile, CWD, here.session, jsonl(line))
