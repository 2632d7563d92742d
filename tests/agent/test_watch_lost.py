"""Every way in which events can be lost is set off, told as a trouble, polled while it lasts, and cured."""

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from keeper.agent import inotify, watch
from tests.agent import limits
from tests.agent.heard import Heard, threads_but, watching
from tests.build import session_id, write_live
from tests.conftest import Needs
from tests.lab.waiting import eventually

ONE, TWO, THREE = session_id(1), session_id(2), session_id(3)
CWD, OTHER = "/srv/one", "/srv/two"


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    """No thread and no descriptor outlives a watch, whatever befell it."""
    threads, descriptors = set(threading.enumerate()), len(os.listdir("/proc/self/fd"))
    yield
    assert threads_but(threads) == []
    assert len(os.listdir("/proc/self/fd")) <= descriptors


def is_whole_again(heard: Heard, profile: Path, session: str = THREE) -> None:
    """The profile was told of whole, nothing is wrong any more, and a new transcript is heard."""
    heard.wait_for(None, "all")
    heard.hints.clear()
    heard.tick()
    assert heard.lasting() == {}
    assert heard.watch.polled() == ()
    write_live(profile, CWD, session, b"{}\n")
    heard.wait_for(session, "made")


# --- more than the queue holds ----------------------------------------------------------------------------


@pytest.fixture
def short_queue(needs: Needs, profile: Path) -> Iterator[Heard]:
    """A watch whose first instance holds few events at a time, over more folders than these."""
    for number in range(10, 110):
        (profile / "projects" / f"-srv-{number}").mkdir()
    with limits.queue(needs, 32):
        heard = Heard(profile)
        heard.watch.start()
    try:
        yield heard
    finally:
        heard.watch.stop()


def overflow(heard: Heard, profile: Path) -> None:
    """Make names faster than they are read, until the kernel drops some."""
    instance = heard.watch._ears.instance  # type: ignore[union-attr]

    def overflown() -> bool:
        folder = profile / "projects" / "-srv-10"
        for number in range(2000):
            (folder / f"x{number}").touch()
        shutil.rmtree(folder)
        folder.mkdir()
        return instance.overflowed

    eventually("an overflow", overflown)


@pytest.mark.alone
@pytest.mark.accepts("AGENT-2", "AGENT-1")
def test_an_overflow_is_told_and_cured_by_watching_all_anew(short_queue: Heard, profile: Path) -> None:
    heard = short_queue
    overflow(heard, profile)
    heard.tick()
    assert "overflow" in heard.lasting()
    heard.wait_for(None, "all")
    heard.tick()
    assert heard.lasting() == {}
    assert heard.cured() == {"overflow"}
    # What came while events were lost is watched too.
    (profile / "projects" / "-srv-10" / f"{ONE}.jsonl").touch()
    heard.wait_for(ONE, "made")


@pytest.mark.alone
@pytest.mark.accepts("AGENT-2")
def test_an_overflow_does_not_bring_the_next_one(short_queue: Heard, profile: Path) -> None:
    """watchdog's own cure takes all watches away one by one, with an event for each: over more folders than the queue
    holds it overflows again, and again."""
    heard = short_queue
    overflow(heard, profile)
    instance = heard.watch._ears.instance  # type: ignore[union-attr]
    folder = profile / "projects" / "-srv-11"
    made: list[str] = []

    def is_heard() -> bool:
        """Whether any was, since the one made right now is not read yet: what the queue drops is never told."""
        told = any(heard.told(session, "made") for session in made)
        made.append(session_id(100 + len(made)))
        (folder / made[-1]).touch()
        return told

    eventually("what is left of the overflow to be read", is_heard)
    instance.overflowed = False
    for number in range(1, 31):
        (folder / session_id(number)).touch()
        heard.wait_for(session_id(number), "made")
    assert not instance.overflowed


@pytest.mark.alone
@pytest.mark.accepts("AGENT-2")
def test_overflows_one_after_another_are_one_trouble_and_polled_between_the_cures(needs: Needs, profile: Path) -> None:
    with limits.queue(needs, 16), watching(profile) as heard:
        (profile / "projects" / "-srv-10").mkdir()
        cures = since = 0
        for _ in range(20):
            overflow(heard, profile)
            ears = heard.watch._ears
            heard.tick(0.5)
            cures += heard.watch._ears is not ears
            (trouble,) = (trouble for trouble in heard.watch.troubles() if trouble.what == "overflow")
            assert since in (0, trouble.since)
            since = trouble.since  # type: ignore[assignment]
            assert heard.watch._ears is not ears or heard.watch.polled() == (profile,)
        assert 2 <= cures <= 5


# --- limits -----------------------------------------------------------------------------------------------


def eight_chats(profile: Path) -> list[Path]:
    """Eight chats in as many project folders: with the profile and projects/ that is ten folders to watch."""
    return [write_live(profile, f"/srv/p{number}", session_id(number), b"{}\n") for number in range(1, 9)]


@pytest.mark.accepts("AGENT-2", "AGENT-3")
@limits.apart
def test_folders_past_the_watch_limit_are_told_and_polled_while_there_is_no_room(needs: Needs, profile: Path) -> None:
    eight_chats(profile)
    limits.watches(5)
    with watching(profile) as heard:
        assert heard.watch.cost().watches == 5
        for _ in range(30):
            assert "5 folders" in heard.lasting()["watch limit"]
            assert "max_user_watches" in heard.lasting()["watch limit"]
            assert heard.watch.polled() == (profile,)
            heard.tick()
        assert not heard.told(None, "all")  # nothing was watched anew in vain


@pytest.mark.accepts("AGENT-2")
@limits.apart
def test_a_folder_that_the_limit_left_out_is_heard_of_after_the_limit_is_raised(needs: Needs, profile: Path) -> None:
    chats = eight_chats(profile)
    limits.watches(5)
    with watching(profile) as heard:
        limits.watches(1000)
        eventually("the cure", lambda: (heard.tick(), heard.lasting() == {})[1])
        assert heard.watch.cost().watches == 10
        assert heard.told(None, "all")
        assert heard.watch.polled() == ()
        for path in chats:
            path.unlink()
            heard.wait_for(path.stem, "gone")


@pytest.mark.accepts("AGENT-2")
@limits.apart
def test_where_more_is_refused_than_is_listed_every_profile_is_polled(
    needs: Needs, profile: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inotify, "MOST_REFUSED", 3)
    monkeypatch.setattr(watch, "MOST_REFUSED", 3)
    eight_chats(profile)
    other = home / ".claude-work"
    (other / "projects").mkdir(parents=True)
    limits.watches(4)
    with watching(other, profile) as heard:
        assert "3 folders" in heard.lasting()["watch limit"]
        assert heard.watch.polled() == (other, profile)


@pytest.mark.accepts("AGENT-2")
@limits.apart
def test_a_folder_refused_while_it_watches_is_told_at_the_next_tick(needs: Needs, profile: Path) -> None:
    (profile / "projects" / "-srv-two").mkdir()
    limits.watches(3)
    with watching(profile) as heard:
        assert heard.watch.polled() == ()
        write_live(profile, CWD, ONE, b"{}\n")
        (profile / "projects" / "-srv-two" / f"{TWO}.jsonl").touch()
        heard.wait_for(TWO, "made")
        heard.tick()
        assert "1 folder " in heard.lasting()["watch limit"]
        assert heard.watch.polled() == (profile,)


@pytest.mark.accepts("AGENT-2")
@limits.apart
def test_a_folder_past_the_limit_that_is_removed_is_no_trouble_any_more(needs: Needs, profile: Path) -> None:
    path = write_live(profile, CWD, ONE, b"{}\n")
    limits.watches(2)
    with watching(profile) as heard:
        assert "1 folder " in heard.lasting()["watch limit"]
        shutil.rmtree(path.parent)
        eventually("the end of it", lambda: (heard.tick(), heard.lasting() == {})[1])
        assert not heard.told(None, "all")


@pytest.mark.accepts("AGENT-2")
@limits.apart
def test_no_watch_at_all_is_told_and_polled(needs: Needs, profile: Path) -> None:
    limits.watches(0)
    with watching(profile) as heard:
        assert "watch limit" in heard.lasting()
        assert heard.watch.polled() == (profile,)
        limits.watches(1000)
        heard.tick(5)
        is_whole_again(heard, profile)


@pytest.mark.accepts("AGENT-2")
@limits.apart
def test_no_instance_is_told_and_polled_and_asked_for_again(needs: Needs, profile: Path) -> None:
    limits.instances(0)
    with watching(profile) as heard:
        assert "max_user_instances" in heard.lasting()["instance limit"]
        heard.tick()
        assert "instance limit" in heard.lasting()
        assert heard.watch.polled() == (profile,)
        assert heard.watch.cost().watches == 0
        limits.instances(10)
        heard.tick()
        is_whole_again(heard, profile)
        assert heard.cured() == {"instance limit"}


def test_a_folder_that_cannot_be_read_is_told_and_stops_no_other(
    profile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel refuses nothing to root: the answer that others get is played, as watchdog gets it (-1)."""
    shut = write_live(profile, CWD, ONE, b"{}\n").parent
    whole = inotify.InotifyFD.add_callback
    monkeypatch.setattr(
        inotify.InotifyFD,
        "add_callback",
        lambda self, path, *rest: -1 if path == os.fsencode(shut) else whole(self, path, *rest),
    )
    with watching(profile) as heard:
        assert "unreadable" in heard.lasting()
        assert heard.watch.polled() == ()
        write_live(profile, OTHER, TWO, b"{}\n")
        heard.wait_for(TWO, "made")


# --- roots ------------------------------------------------------------------------------------------------


@pytest.mark.accepts("AGENT-2", "AGENT-1")
@pytest.mark.parametrize("how", ["removed", "renamed"])
@pytest.mark.parametrize("name", ["projects", ""])
def test_a_root_that_is_gone_is_told_while_it_is_and_watched_when_it_is_back(
    profile: Path, tmp_path: Path, how: str, name: str
) -> None:
    write_live(profile, CWD, ONE, b"{}\n")
    root = profile / name
    with watching(profile) as heard:
        if how == "removed":
            shutil.rmtree(root)
        else:
            root.rename(tmp_path / "away")
        heard.tick()
        assert str(root) in heard.lasting()["root gone"]
        assert heard.watch.polled() == (profile,)
        if how == "renamed":
            heard.hints.clear()
            folder = tmp_path / "away" if name else tmp_path / "away" / "projects"
            (folder / "-srv-one" / f"{TWO}.jsonl").touch()
            heard.tick()
            assert not heard.told(TWO, "made")
        (profile / "projects").mkdir(parents=True)
        heard.hints.clear()
        heard.tick()
        is_whole_again(heard, profile)
        assert "root gone" in heard.cured()


@pytest.mark.accepts("AGENT-2", "AGENT-1")
@pytest.mark.parametrize("how", ["removed", "renamed"])
def test_a_root_replaced_between_two_ticks_is_watched_anew_and_looked_at(
    profile: Path, tmp_path: Path, how: str
) -> None:
    write_live(profile, CWD, ONE, b"{}\n")
    with watching(profile) as heard:
        (profile / "projects").rename(tmp_path / "away")
        if how == "removed":
            shutil.rmtree(tmp_path / "away")
        write_live(profile, CWD, TWO, b"{}\n")
        told = {
            "root replaced",
            "watch ended",
        }  # by whichever is seen first; the new folder may have the old one's number
        eventually("a trouble", lambda: heard.tick() or told & set(heard.lasting()))
        is_whole_again(heard, profile)


def test_a_root_that_nothing_hangs_on_may_go_and_come(profile: Path) -> None:
    (profile / "todos").mkdir()
    with watching(profile) as heard:
        (profile / "todos").rmdir()
        heard.tick()
        assert heard.lasting() == {}
        (profile / "todos").mkdir()
        heard.tick()
        (profile / "todos" / f"{ONE}-agent-{ONE}.json").touch()
        heard.wait_for(ONE, "made")


def test_roots_that_come_and_go_gather_no_books(profile: Path) -> None:
    with watching(profile) as heard:
        for _ in range(5):
            (profile / "projects").rmdir()
            heard.tick()
            (profile / "projects").mkdir()
            heard.tick()
        assert len(heard.watch._ears.instance._groups) == 2  # type: ignore[union-attr]


# --- what breaks inside -----------------------------------------------------------------------------------


@pytest.mark.accepts("AGENT-2")
def test_a_hint_that_nobody_took_ends_nothing_and_is_made_good_at_the_next_tick(profile: Path) -> None:
    with watching(profile) as heard:
        heard.refuses = MemoryError
        write_live(profile, CWD, ONE, b"{}\n")
        eventually("the refusal", lambda: heard.watch._lost)
        heard.tick()  # refused again
        assert "MemoryError" in heard.lasting()["hint not taken"]
        heard.refuses = None
        heard.tick()
        assert "hint not taken" in heard.lasting()
        is_whole_again(heard, profile)


@pytest.mark.accepts("AGENT-2")
def test_the_reading_thread_outlives_what_watchdog_raises_over_a_folder_moved_out_and_made_anew(
    profile: Path, tmp_path: Path
) -> None:
    folder = profile / "projects" / "-srv-one"
    folder.mkdir()
    with watching(profile) as heard:
        instance = heard.watch._ears.instance  # type: ignore[union-attr]
        folder.rename(tmp_path / "away")
        heard.wait_for(None, "gone")
        folder.mkdir()
        heard.settle()
        folder.rmdir()
        heard.settle()
        (tmp_path / "away").rmdir()
        eventually("the failure", lambda: instance.failures)
        write_live(profile, OTHER, ONE, b"{}\n")
        heard.wait_for(ONE, "made")  # it reads on
        heard.tick()
        assert "KeyError" in heard.lasting()["watch ended"]
        is_whole_again(heard, profile)


def test_a_watch_over_folders_moved_out_made_anew_and_removed_ends_with_nothing_left(
    profile: Path, tmp_path: Path
) -> None:
    """What was moved out stands in watchdog's books without a name, and taking it out raises, once for each."""
    folders = [profile / "projects" / f"-srv-{number}" for number in range(6)]
    for folder in folders:
        folder.mkdir()
    with watching(profile) as heard:
        for folder in folders:
            folder.rename(tmp_path / folder.name)
            heard.settle()
            folder.mkdir()
            heard.settle()
            folder.rmdir()
            heard.settle()


@pytest.mark.accepts("AGENT-2", "AGENT-1")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("which", ["dispatcher", "reader", "emitter"])
def test_a_thread_that_ends_is_told_and_replaced(profile: Path, which: str) -> None:
    with watching(profile) as heard:
        ears = heard.watch._ears
        assert ears is not None
        if which == "dispatcher":
            ears._observer.event_queue.put(None)
            eventually("its end", lambda: not ears._observer.is_alive())
        elif which == "reader":
            ears.instance._stopped_event.set()
            write_live(profile, OTHER, ONE, b"{}\n")
            eventually("its end", lambda: not ears.instance.is_alive())
        else:
            (emitter,) = (emitter for emitter in ears._observer.emitters if emitter.watch.is_recursive)
            emitter.stop()
            eventually("its end", lambda: not emitter.is_alive())
        heard.tick()
        assert "watch ended" in heard.lasting()
        is_whole_again(heard, profile)


@pytest.mark.accepts("AGENT-8")
def test_a_volume_without_events_is_told_and_polled_and_what_comes_is_heard_all_the_same(profile: Path) -> None:
    with watching(profile, silent=lambda folder: f"{folder} is on a volume of type 9p") as heard:
        assert "9p" in heard.lasting()["no events"]
        assert heard.watch.polled() == (profile,)
        heard.tick()
        assert heard.watch.polled() == (profile,)
        write_live(profile, CWD, ONE, b"{}\n")
        heard.wait_for(ONE, "made")
