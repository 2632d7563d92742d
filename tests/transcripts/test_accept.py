"""Accept: what the live file is, or what the session once was, becomes the truth; the seal remembers the rest, and a
run that is stopped anywhere leaves the chat as it was before or as it is to be."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from keeper.errors import DiskError, KeeperError, Locked, NotKept, Refused
from keeper.transcripts import accept as accepting
from keeper.transcripts import seal, swap
from keeper.transcripts.accept import Accepted
from keeper.transcripts.frame import Frame, walk
from keeper.transcripts.keep import Keeper
from tests.build import CWD, append, jsonl, meta, session_id, talk, write_live
from tests.conftest import Needs
from tests.damage import asked_of, cut_lines, keep_at, seal_of
from tests.seam import (
    Hook,
    World,
    at_call,
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

WHOLE = [*talk("abcdef"), meta("last-prompt", leafUuid="f")]
NEW = talk("xy", parent="b")
SEALED_AT = 1_700_000_000.0


def accept(here: World) -> Accepted:
    vault = here.vault()
    try:
        return accepting.accept(vault, here.session, time.time_ns(), here.profile)
    finally:
        vault.index.close()


def put(here: World, content: bytes) -> Accepted:
    vault = here.vault()
    try:
        return accepting.put(vault, here.session, content, time.time_ns(), here.profile)
    finally:
        vault.index.close()


# ------------------------------------------------------------------ where it begins

State = Callable[[World], None]


def cut_and_seen(here: World) -> None:
    """Cut short in place, gone on, and a keep has told of it."""
    cut_and_not_seen(here)
    here.keep()


def cut_and_not_seen(here: World) -> None:
    write_live(here.profile, CWD, here.session, jsonl(*WHOLE))
    keep_at(here, SEALED_AT)
    cut_lines(here.live, 2)
    append(here.live, jsonl(*NEW))


def pruned(here: World) -> None:
    """Somebody wrote the file anew with less in it."""
    write_live(here.profile, CWD, here.session, jsonl(*WHOLE))
    keep_at(here, SEALED_AT)
    write_live(here.profile, CWD, here.session, jsonl(*WHOLE[:2], *NEW))
    here.keep()


STATES: list[State] = [cut_and_seen, cut_and_not_seen, pruned]
MODES = ["link", "copy", "no links", "no exchange"]
TRUTH = [*WHOLE[:2], *NEW]
LEFT = WHOLE[2:]


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
    state: State

    @property
    def hook(self) -> Hook:
        refused = {"no links": ("link", errno.EPERM), "no exchange": ("exchange", errno.EINVAL)}.get(self.mode)
        return refusing(*refused) if refused else lambda call, paths: None

    def fresh(self) -> World:
        one, two = (place / os.urandom(6).hex() for place in self.volumes)
        profile = (two if self.mode == "copy" else one) / "profile"
        (profile / "projects").mkdir(parents=True)
        here = world(profile, one / "vault", one / "state")
        with hooked(self.hook):
            self.state(here)
        return here


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=STATES, ids=lambda state: state.__name__)
def grounds(request: pytest.FixtureRequest, volumes: tuple[Path, Path], mode: str) -> Grounds:
    return Grounds(volumes, mode, request.param)


def sealed_at(here: World, second: float) -> list[bytes]:
    return bytes(seal.read(str(seal_of(here)), int(second * 1e9)).content).split(b"\n")[:-1]


def sealed_ever(here: World) -> set[bytes]:
    """Every line that some time gives back."""
    path = str(seal_of(here))
    times = [frame.time_ns for _, frame in walk(path) if isinstance(frame, Frame)]
    return {line for when in times for line in bytes(seal.read(path, when).content).split(b"\n")}


def is_the_truth(here: World, truth: list[bytes]) -> None:
    """Live and kept are that, so is the seal's end, and what else there was the seal remembers."""
    assert lines_of(here.live) == lines_of(here.kept) == truth
    assert sealed_at(here, 1e10) == truth
    assert sealed_at(here, SEALED_AT) == WHOLE
    assert not list(here.chat.glob("*.live*"))
    assert names_of_ours(here.profile, here.root) == []
    (row,) = here.vault().rows()
    assert row.state == ""


# ------------------------------------------------------------------ what live is


@pytest.mark.accepts("SEAL-7")
def test_the_shorter_file_becomes_the_truth_and_the_seal_remembers_the_rest(grounds: Grounds) -> None:
    here = grounds.fresh()
    before = state_of(here.live)
    with hooked(grounds.hook):
        answer = accept(here)
        assert (answer.session, answer.records, answer.left) == (here.session, len(TRUTH), len(LEFT))
        assert state_of(here.live) == before, "the live file is the person's: it was only to be believed"
        is_the_truth(here, TRUTH)
        found = state_of(here.profile, here.root)
        here.keep()
        assert state_of(here.profile, here.root) == found, "a keep after it changed something"
        here.restore()
    is_the_truth(here, TRUTH)


@pytest.mark.accepts("SEAL-7")
def test_what_claude_writes_after_it_is_kept_and_what_was_left_does_not_come_back(grounds: Grounds) -> None:
    here = grounds.fresh()
    with hooked(grounds.hook):
        accept(here)
        more = talk("zv", parent="y")
        for record in more:
            append(here.live, jsonl(record))
            here.keep()
        here.restore()
        is_the_truth(here, [*TRUTH, *more])
        here.live.unlink()
        here.restore()
        is_the_truth(here, [*TRUTH, *more])


@pytest.mark.accepts("SEAL-7")
def test_a_file_that_is_whole_is_the_truth_already(volumes: tuple[Path, Path]) -> None:
    def whole(here: World) -> None:
        write_live(here.profile, CWD, here.session, jsonl(*WHOLE))
        keep_at(here, SEALED_AT)

    here = Grounds(volumes, "link", whole).fresh()
    assert accept(here).left == 0
    assert here.kept.samefile(here.live)
    is_the_truth(here, WHOLE)


@pytest.mark.accepts("SEAL-7")
def test_an_unfinished_line_of_the_live_file_waits_as_ever(volumes: tuple[Path, Path]) -> None:
    here = Grounds(volumes, "link", cut_and_seen).fresh()
    (record,) = talk("z", parent="y")
    append(here.live, record[:40])
    assert accept(here).records == len(TRUTH)
    append(here.live, record[40:] + b"\n")
    here.keep()
    is_the_truth(here, [*TRUTH, record])


@pytest.mark.accepts("SEAL-7", "SEAL-1")
def test_what_kept_has_and_no_seal_yet_is_sealed_before_it_goes(volumes: tuple[Path, Path], mode: str) -> None:
    """A pass was stopped before its sealing (`keep --no-seal`)."""
    grounds = Grounds(volumes, mode, gone_on)
    here = grounds.fresh()
    with hooked(grounds.hook):
        append(here.live, jsonl(*NEW))
        linked = here.kept.samefile(here.live)
        write_live(here.profile, CWD, here.session, jsonl(*WHOLE[:3]))
        vault = here.vault()
        keeper = Keeper(vault, time.time())
        keeper.profile(here.profile)
        keeper.finish()
        vault.index.close()
        before = lines_of(here.kept)
        assert set(WHOLE) <= set(before)
        assert set(NEW) <= set(before) or not linked
        accept(here)
    assert lines_of(here.kept) == WHOLE[:3]
    assert set(before) <= sealed_ever(here), "no time gives it back"


@pytest.mark.accepts("SEAL-7", "KEEP-19")
def test_of_a_session_that_had_two_live_files_the_one_that_is_left_is_the_truth(volumes: tuple[Path, Path]) -> None:
    here = Grounds(volumes, "link", gone_on).fresh()
    other = write_live(here.profile, "/srv/demo/other", here.session, jsonl(*WHOLE[:4], *talk("pq", parent="d")))
    assert here.keep().verdict == "doubled"
    assert set(lines_of(other)) <= set(lines_of(here.kept))
    append(other, jsonl(*talk("rs", parent="q")))
    other.unlink()
    with pytest.raises(Locked):
        accept(here)  # what was written to the other last is in no kept file yet
    here.keep()
    accept(here)
    here.keep()
    assert lines_of(here.kept) == lines_of(here.live) == WHOLE
    assert set(talk("rs", parent="q")) <= sealed_ever(here)
    assert not list(here.chat.glob("*.live*"))
    assert names_of_ours(here.profile, here.root) == []


# ------------------------------------------------------------------ refused


@pytest.mark.accepts("SEAL-7")
def test_while_somebody_has_the_file_open_for_writing_it_is_refused_and_nothing_changes(grounds: Grounds) -> None:
    here = grounds.fresh()
    if grounds.state is cut_and_not_seen:
        with hooked(grounds.hook):
            here.keep()
    fd = os.open(here.live, os.O_WRONLY | os.O_APPEND)
    try:
        before = state_of(here.profile, here.kept, seal_of(here))
        with hooked(grounds.hook), pytest.raises(Locked) as locked:
            accept(here)
        assert locked.value.cure
        assert state_of(here.profile, here.kept, seal_of(here)) == before
        assert names_of_ours(here.profile, here.root) == []
    finally:
        os.close(fd)
    with hooked(grounds.hook):
        accept(here)
    is_the_truth(here, TRUTH)


@pytest.mark.accepts("SEAL-7")
def test_a_session_without_one_live_file_with_a_record_is_refused(volumes: tuple[Path, Path]) -> None:
    here = Grounds(volumes, "link", cut_and_seen).fresh()
    whole = lines_of(here.kept)
    with pytest.raises(NotKept):
        accept(here.about(session_id(9)))
    os.truncate(here.live, 0)
    with pytest.raises(Refused):
        accept(here)
    here.live.unlink()
    with pytest.raises(NotKept) as missing:
        accept(here)
    assert "restore" in (missing.value.cure or "")
    write_live(here.profile, CWD, here.session, jsonl(*WHOLE[:3]))
    write_live(here.profile, "/srv/demo/other", here.session, jsonl(*WHOLE[:4]))
    with pytest.raises(Refused):
        accept(here)
    with pytest.raises(Refused):
        accept(here.about("../../x"))
    assert lines_of(here.kept) == whole
    assert names_of_ours(here.profile, here.root) == []


@pytest.mark.accepts("SEAL-7", "SWAP-3")
def test_while_lines_of_it_are_still_to_be_merged_it_is_refused(volumes: tuple[Path, Path]) -> None:
    here = Grounds(volumes, "link", cut_and_seen).fresh()
    (here.chat / "swap").mkdir(exist_ok=True)
    held = here.chat / "swap" / f"{here.session}.jsonl~0000000000000001abcdef"
    held.write_bytes(jsonl(*talk("pq", parent="f")))
    with pytest.raises(Locked):
        accept(here)
    here.keep()
    assert twice_or_missing(here.kept, [*WHOLE, *NEW, *talk("pq", parent="f")]) == {}


# ------------------------------------------------------------------ stopped anywhere


def nothing_is_lost(here: World, where: str) -> None:
    """All that was sealed or live stands in the kept file, or the truth does and the seal tells the rest."""
    found = lines_of(here.kept)
    assert found == TRUTH or twice_or_missing(here.kept, [*WHOLE, *NEW]) == {}, where
    assert sealed_at(here, SEALED_AT) == WHOLE, where
    assert lines_of(here.live) == TRUTH, where


@pytest.mark.accepts("SEAL-7", "FAULT-1")
def test_killed_before_any_change_it_is_as_before_or_as_it_is_to_be_and_the_run_after_heals(grounds: Grounds) -> None:
    here = grounds.fresh()
    calls = asked_of(lambda: accept(here), grounds.hook)
    for number, call in enumerate(calls):
        where = f"killed at {number} of {len(calls)}: {call[0]} {[Path(path).name for path in call[1]]}"
        here = grounds.fresh()
        assert killed_at(number, lambda here=here: accept(here), grounds.hook) or call[0] == "commit", where
        with hooked(grounds.hook):
            here.keep()
            nothing_is_lost(here, where)
            assert names_of_ours(here.profile, here.root) == [], where
            found = state_of(here.profile, here.root)
            here.keep()
            assert state_of(here.profile, here.root) == found, f"{where}: the third run writes"
            accept(here)
        is_the_truth(here, TRUTH)


@pytest.mark.accepts("SEAL-7", "FAULT-4", "KEEP-17")
def test_failed_at_any_change_it_says_so_with_a_cure_and_nothing_is_lost(grounds: Grounds) -> None:
    here = grounds.fresh()
    calls = asked_of(lambda: accept(here), grounds.hook)
    codes = [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EMFILE]
    for number, call in enumerate(calls):
        where = f"failed at {number} of {len(calls)}: {call[0]} {[Path(path).name for path in call[1]]}"
        here = grounds.fresh()
        with hooked(failing(number, codes[number % len(codes)], grounds.hook)):
            try:
                accept(here)
            except DiskError as error:
                assert error.cure, where
            except KeeperError as error:
                assert call[0] == "commit", f"{where}: {error}"
        assert list(here.root.rglob("*.tmp")) == [] or call[0] == "unlink", where
        with hooked(grounds.hook):
            here.keep()
            nothing_is_lost(here, where)
            assert names_of_ours(here.profile, here.root) == [], where
            accept(here)
        is_the_truth(here, TRUTH)


# ------------------------------------------------------------------ what it once was


def gone_on(here: World) -> None:
    """A turn later."""
    write_live(here.profile, CWD, here.session, jsonl(*WHOLE[:4]))
    keep_at(here, SEALED_AT)
    append(here.live, jsonl(*WHOLE[4:]))
    keep_at(here, SEALED_AT + 60)


@pytest.mark.accepts("SEAL-5")
def test_what_it_once_was_stands_under_its_own_id_live_and_kept_and_the_seal_has_what_it_was_since(
    volumes: tuple[Path, Path], mode: str
) -> None:
    grounds = Grounds(volumes, mode, gone_on)
    here = grounds.fresh()
    mode_bits = here.live.stat().st_mode
    with hooked(grounds.hook):
        answer = put(here, jsonl(*WHOLE[:4]))
        assert (answer.records, answer.left) == (4, len(WHOLE) - 4)
        assert lines_of(here.live) == lines_of(here.kept) == WHOLE[:4]
        assert here.live.stat().st_mode == mode_bits
        assert here.kept.samefile(here.live) is (mode in ("link", "no exchange"))
        append(here.live, jsonl(*NEW))
        here.keep()
        here.restore()
    assert lines_of(here.live) == lines_of(here.kept) == [*WHOLE[:4], *NEW]
    assert sealed_at(here, SEALED_AT + 60) == WHOLE
    assert names_of_ours(here.profile, here.root) == []


@pytest.mark.accepts("SEAL-5", "SEAL-7")
@pytest.mark.parametrize("state", [cut_and_seen, pruned], ids=lambda state: state.__name__)
def test_of_a_live_file_that_had_become_another_one_nothing_comes_back_behind_it(
    volumes: tuple[Path, Path], mode: str, state: State
) -> None:
    grounds = Grounds(volumes, mode, state)
    here = grounds.fresh()
    with hooked(grounds.hook):
        put(here, jsonl(*WHOLE))
        here.keep()
        here.restore()
    assert set(NEW) <= sealed_ever(here)
    is_the_truth(here, WHOLE)


@pytest.mark.accepts("SEAL-5")
def test_a_writer_holds_up_what_it_once_was(volumes: tuple[Path, Path]) -> None:
    here = Grounds(volumes, "link", gone_on).fresh()
    with here.live.open("ab"), pytest.raises(Locked):
        put(here, jsonl(*WHOLE[:4]))
    assert lines_of(here.live) == lines_of(here.kept) == WHOLE


@pytest.mark.accepts("SEAL-5", "SWAP-1")
def test_what_a_writer_appends_meanwhile_is_not_lost(volumes: tuple[Path, Path]) -> None:
    """Opened before the exchange, written and closed after it."""
    here = Grounds(volumes, "link", gone_on).fresh()
    late = talk(["late"], parent="f")
    calls = calls_of(lambda: put(Grounds(volumes, "link", gone_on).fresh(), jsonl(*WHOLE[:4])))
    for number in range(len(calls)):
        here = Grounds(volumes, "link", gone_on).fresh()

        def write(here: World = here) -> None:
            append(here.live, jsonl(*late))

        with hooked(at_call(number, write)), suppress(Locked):
            put(here, jsonl(*WHOLE[:4]))
        here.keep()
        where = f"{number} of {len(calls)}: {calls[number][0]} {[Path(path).name for path in calls[number][1]]}"
        everywhere = [*lines_of(here.kept), *lines_of(here.live), *sealed_at(here, 1e10)]
        assert late[0] in everywhere, where
        assert late[0] in lines_of(here.kept), where


@pytest.mark.accepts("SEAL-5", "SEAL-7", "SWAP-2")
@pytest.mark.parametrize("deed", ["accept", "what it once was"])
def test_what_a_writer_that_holds_the_file_all_the_while_writes_at_last_is_not_lost(
    volumes: tuple[Path, Path], mode: str, deed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swap, "LEASE_WAIT_S", 0.01)
    late = talk(["late"], parent="b")
    accepts = deed == "accept"
    grounds = Grounds(volumes, mode, cut_and_seen if accepts else gone_on)

    def run(here: World) -> Accepted:
        return accept(here) if accepts else put(here, jsonl(*WHOLE[:4]))

    first = grounds.fresh()
    calls = asked_of(lambda: run(first), grounds.hook)
    for number, call in enumerate(calls):
        here = grounds.fresh()
        held: list[int] = []

        def begin(here: World = here, held: list[int] = held) -> None:
            held.append(os.open(here.live, os.O_WRONLY | os.O_APPEND))

        with hooked(at_call(number, begin, grounds.hook)), suppress(Locked):
            run(here)
        if not held:
            continue  # it took a step less this time
        os.write(held[0], jsonl(*late))
        os.close(held[0])
        with hooked(grounds.hook):
            here.keep()
            here.keep()
        where = f"opened at {number} of {len(calls)}: {call[0]} {[Path(path).name for path in call[1]]}"
        assert late[0] in lines_of(here.kept), where
        assert names_of_ours(here.profile, here.root) == [], where


@pytest.mark.accepts("SEAL-5", "FAULT-1")
def test_killed_before_any_change_of_it_nothing_is_lost(volumes: tuple[Path, Path], mode: str) -> None:
    grounds = Grounds(volumes, mode, gone_on)
    here = grounds.fresh()
    calls = asked_of(lambda: put(here, jsonl(*WHOLE[:4])), grounds.hook)
    for number, call in enumerate(calls):
        where = f"killed at {number} of {len(calls)}: {call[0]} {[Path(path).name for path in call[1]]}"
        here = grounds.fresh()
        killed_at(number, lambda here=here: put(here, jsonl(*WHOLE[:4])), grounds.hook)
        with hooked(grounds.hook):
            here.keep()
            assert lines_of(here.kept) in (WHOLE, WHOLE[:4]), where
            assert lines_of(here.live) in (WHOLE, WHOLE[:4]), where
            assert sealed_at(here, SEALED_AT + 60) == WHOLE, where
            here.keep()
            assert names_of_ours(here.profile, here.root) == [], where
            put(here, jsonl(*WHOLE[:4]))
            assert lines_of(here.live) == lines_of(here.kept) == WHOLE[:4], where
