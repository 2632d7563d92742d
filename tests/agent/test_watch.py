"""The watch tells of every name that comes, goes or moves in a profile, and of nothing that an append does."""

import os
import shutil
import threading
from pathlib import Path

import pytest

from keeper import disk
from keeper.agent import inotify
from keeper.agent.hint import MASS, Listener, subject
from keeper.agent.trouble import SHOWN_S, Trouble, carried
from keeper.agent.watch import Hint
from tests.agent.heard import Heard, threads_but, watching
from tests.agent.limits import watches_of
from tests.build import live_path, session_id, write_live
from tests.lab.waiting import eventually

ONE, TWO = session_id(1), session_id(2)
CWD, OTHER = "/srv/one", "/srv/two"


@pytest.mark.accepts("AGENT-1")
def test_a_new_transcript_is_told_of_by_its_session(profile: Path) -> None:
    write_live(profile, CWD, ONE, b"{}\n")
    with watching(profile) as heard:
        path = write_live(profile, CWD, TWO, b"{}\n")
        assert heard.wait_for(TWO, "made") == Hint(profile, TWO, "made", str(path))
        assert not heard.told(ONE, "made")


@pytest.mark.accepts("AGENT-1")
def test_a_files_name_is_told_by_the_thread_that_reads_whatever_the_others_wait_for(profile: Path) -> None:
    path = write_live(profile, CWD, ONE, b"{}\n")
    with watching(profile) as heard:
        ears = heard.watch._ears
        assert ears is not None
        with ears._observer._lock:  # held, it hands nothing on
            write_live(profile, CWD, TWO, b"{}\n")
            path.unlink()
            heard.wait_for(TWO, "made")
            heard.wait_for(ONE, "gone")
        heard.settle()
        assert [hint.kind for hint in heard.hints] == ["made", "gone"]


@pytest.mark.accepts("AGENT-1")
@pytest.mark.parametrize("before", ["refused", "forgotten"])
def test_a_folder_that_is_heard_anew_is_told_once(profile: Path, before: str) -> None:
    late = str(profile / "late")
    told: list[str | None] = []
    handler = Listener(profile, late, f"{profile}/todos", lambda hint: told.append(hint.session), lambda *_: None)
    ears = inotify.Ears()
    try:
        if before == "refused":
            with pytest.raises(OSError, match="No such file"):
                ears.hear(late, False, handler)
            os.mkdir(late)
        else:
            os.mkdir(late)
            ears.forget(ears.hear(late, False, handler))
        ears.hear(late, False, handler)
        Path(late, f"{ONE}-agent-{ONE}.json").touch()
        Path(late, f"{TWO}-agent-{TWO}.json").touch()
        eventually("both", lambda: len(told) >= 2)
        assert told == [ONE, TWO]
    finally:
        ears.close()


@pytest.mark.accepts("AGENT-1")
def test_a_new_project_folder_is_told_of_too_since_what_comes_at_once_in_it_may_bring_no_event(profile: Path) -> None:
    with watching(profile) as heard:
        write_live(profile, CWD, ONE, b"{}\n")
        heard.wait_for(ONE, "made")
        assert {hint.session for hint in heard.hints} == {ONE, None}


@pytest.mark.accepts("AGENT-1")
@pytest.mark.parametrize(
    "name",
    [
        f"projects/-srv-one/{ONE}/subagents/agent-a1.jsonl",
        f"projects/-srv-one/{ONE}/tool-results/b1.txt",
        f"projects/-srv-one/{ONE}.jsonl.superseded-1",
        f"file-history/{ONE}/a1@v1",
        f"tasks/{ONE}/1.json",
        f"todos/{ONE}-agent-{ONE}.json",
    ],
)
@pytest.mark.parametrize("folders", ["there before", "made with it"])
def test_each_part_of_a_footprint_is_told_of_when_it_comes_and_when_it_goes(
    profile: Path, name: str, folders: str
) -> None:
    path = profile / name
    if folders == "there before":
        path.parent.mkdir(parents=True, exist_ok=True)
    with watching(profile) as heard:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        eventually("a hint", lambda: heard.hints)
        heard.tick()  # a root that is new is watched from here on, and looked at whole
        eventually("a hint for it", lambda: heard.told(ONE, "made") or heard.told(None, "all"))
        heard.hints.clear()
        path.unlink()
        heard.wait_for(ONE, "gone")


@pytest.mark.accepts("AGENT-1")
def test_a_deletion_a_recreation_and_a_move_are_told_of(profile: Path) -> None:
    path = write_live(profile, CWD, ONE, b"{}\n")
    other = live_path(profile, ONE, OTHER)
    other.parent.mkdir()
    with watching(profile) as heard:
        path.unlink()
        heard.wait_for(ONE, "gone")
        path.write_bytes(b"{}\n")
        heard.wait_for(ONE, "made")
        path.rename(other)
        assert heard.wait_for(ONE, "moved").path == str(other)


@pytest.mark.accepts("AGENT-1")
def test_a_transcript_moved_out_of_the_profile_is_gone_and_holds_up_nothing_behind_it(
    profile: Path, tmp_path: Path
) -> None:
    """watchdog waits half a second for the other half of the move, and all later events of that tree wait with it."""
    path = write_live(profile, CWD, ONE, b"{}\n")
    with watching(profile) as heard:
        path.rename(tmp_path / "out.jsonl")
        heard.wait_for(ONE, "gone")
    assert inotify.InotifyMoveEventGrouper.delay == inotify.MOVE_WAIT_S <= 0.025


def test_one_session_renamed_to_another_is_told_of_both(profile: Path) -> None:
    path = write_live(profile, CWD, ONE, b"{}\n")
    with watching(profile) as heard:
        path.rename(live_path(profile, TWO, CWD))
        heard.wait_for(ONE, "gone")
        heard.wait_for(TWO, "made")


@pytest.mark.accepts("AGENT-1")
def test_a_project_folder_moved_in_tells_of_its_sessions_and_one_moved_out_of_the_whole_profile(
    profile: Path, tmp_path: Path
) -> None:
    folder = write_live(profile, CWD, ONE, b"{}\n").parent
    folder.rename(tmp_path / "away")
    with watching(profile) as heard:
        (tmp_path / "away").rename(folder)
        heard.wait_for(ONE, "made")
        write_live(profile, CWD, TWO, b"{}\n")
        heard.wait_for(TWO, "made")
        folder.rename(tmp_path / "away")
        heard.wait_for(None, "gone")


@pytest.mark.accepts("AGENT-3")
def test_an_append_costs_no_event(profile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_live(profile, CWD, ONE, b"{}\n")
    raw: list[object] = []
    whole = inotify.Instance.handle_event
    monkeypatch.setattr(
        inotify.Instance, "handle_event", lambda self, event: (raw.append(event), whole(self, event))
    )  # fmt: skip
    with watching(profile) as heard:
        for number in range(500):
            with path.open("ab") as file:
                file.write(b'{"n":%d}\n' % number)
        path.read_bytes()
        os.utime(path)
        path.chmod(0o640)
        write_live(profile, CWD, TWO, b"{}\n")
        heard.wait_for(TWO, "made")
        assert len(raw) == 1


@pytest.mark.accepts("AGENT-3")
def test_what_the_watches_cost_is_what_the_kernel_says(profile: Path) -> None:
    for number in range(1, 21):
        write_live(profile, f"/srv/p{number}", session_id(number), b"{}\n")
        (live_path(profile, session_id(number), f"/srv/p{number}").with_suffix("") / "subagents").mkdir(parents=True)
    with watching(profile) as heard:
        cost = heard.watch.cost()
        # The profile, projects/, and of each project its folder, the companion and what that holds.
        assert cost.watches == watches_of() == 2 + 20 * 3
        assert cost.limit == int(Path("/proc/sys/fs/inotify/max_user_watches").read_text("ascii"))
        assert 1_000 * cost.watches < cost.bytes < 4_000 * cost.watches
        shutil.rmtree(profile / "projects" / "-srv-p1")
        eventually("the watches of what is gone to be gone", lambda: heard.watch.cost().watches == 2 + 19 * 3)
        assert watches_of() == 2 + 19 * 3


def test_the_exchange_of_a_swap_is_no_news(profile: Path) -> None:
    path = write_live(profile, CWD, ONE, b"{}\n")
    ours = path.parent / ".keeper-1a2b.tmp"
    with watching(profile) as heard:
        ours.write_bytes(b"{}\n{}\n")
        disk.exchange(path, ours)
        ours.unlink()
        heard.settle()
        assert heard.hints == []


def test_what_belongs_to_no_session_is_no_news(profile: Path) -> None:
    (profile / "projects" / "-srv-one").mkdir()
    with watching(profile) as heard:
        (profile / "settings.json").touch()
        (profile / "projects" / ".DS_Store").touch()
        (profile / "projects" / "-srv-one" / "memory").mkdir()
        (profile / "projects" / "-srv-one" / "memory" / "MEMORY.md").touch()
        heard.settle()
        assert heard.hints == []


def test_an_agents_transcript_of_the_older_kind_is_told_of_as_the_whole_profile(profile: Path) -> None:
    (profile / "projects" / "-srv-one").mkdir()
    with watching(profile) as heard:
        (profile / "projects" / "-srv-one" / "agent-1a2b.jsonl").touch()
        heard.wait_for(None, "made")


@pytest.mark.accepts("AGENT-1")
def test_projects_that_comes_after_the_start_is_watched_from_the_next_tick_on(home: Path) -> None:
    profile = home / ".claude"
    profile.mkdir()
    with watching(profile) as heard:
        assert heard.watch.troubles() == ()
        write_live(profile, CWD, ONE, b"{}\n")
        heard.wait_for(None, "made")
        heard.tick(0)
        heard.wait_for(None, "all")
        write_live(profile, CWD, TWO, b"{}\n")
        heard.wait_for(TWO, "made")


def test_a_profile_that_comes_after_the_start_is_watched_from_the_next_tick_on(home: Path) -> None:
    profile = home / ".claude"
    with watching(profile) as heard:
        assert heard.watch.troubles() == ()
        write_live(profile, CWD, ONE, b"{}\n")
        heard.tick()
        heard.wait_for(None, "all")
        write_live(profile, CWD, TWO, b"{}\n")
        heard.wait_for(TWO, "made")


def test_the_start_tells_of_nothing_that_was_there(profile: Path) -> None:
    write_live(profile, CWD, ONE, b"{}\n")
    with watching(profile) as heard:
        heard.tick()
        heard.settle()
        assert heard.hints == []


# --- links ----------------------------------------------------------------------------------------------


@pytest.mark.accepts("KEEP-9")
@pytest.mark.parametrize("made", ["before the start", "while it watches"])
def test_a_linked_project_folder_is_watched_under_its_name_in_the_profile(
    profile: Path, tmp_path: Path, made: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    link = profile / "projects" / "-srv-one"
    if made == "before the start":
        link.symlink_to(elsewhere)
    with watching(profile) as heard:
        if made == "while it watches":
            link.symlink_to(elsewhere)
            heard.wait_for(None, "made")
            heard.tick(0)
            heard.wait_for(None, "all")
        (elsewhere / f"{ONE}.jsonl").touch()
        assert heard.wait_for(ONE, "made").path == str(link / f"{ONE}.jsonl")
        assert heard.watch.troubles() == ()


def test_a_link_that_leads_elsewhere_from_now_on_is_followed_there_and_a_removed_one_no_more(
    profile: Path, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    link = profile / "projects" / "-srv-one"
    link.symlink_to(first)
    with watching(profile) as heard:
        link.unlink()
        link.symlink_to(second)
        heard.wait_for(None, "gone")
        heard.tick(0)
        (second / f"{ONE}.jsonl").touch()
        heard.wait_for(ONE, "made")
        link.unlink()
        eventually("the link's end", lambda: [hint.kind for hint in heard.hints if not hint.session].count("gone") == 2)
        heard.tick()
        (second / f"{TWO}.jsonl").touch()
        (first / f"{TWO}.jsonl").touch()
        heard.settle()
        assert not heard.told(TWO, "made")
        assert str(link) not in [root.path for root in heard.watch._roots]


def test_what_a_link_leads_to_is_found_when_it_comes_later(profile: Path, tmp_path: Path) -> None:
    link = profile / "projects" / "-srv-one"
    link.symlink_to(tmp_path / "later")
    with watching(profile) as heard:
        (tmp_path / "later").mkdir()
        heard.tick(61)
        heard.wait_for(None, "all")
        (tmp_path / "later" / f"{ONE}.jsonl").touch()
        heard.wait_for(ONE, "made")


def test_a_link_that_loops_or_leads_up_is_not_followed(profile: Path) -> None:
    (profile / "projects" / "-loop").symlink_to(profile / "projects" / "-loop")
    (profile / "projects" / "-up").symlink_to(profile)
    (profile / "projects" / "-root").symlink_to("/")
    with watching(profile) as heard:
        assert heard.watch.cost().watches == 2


def test_a_profile_whose_projects_are_linked_is_watched(home: Path, tmp_path: Path) -> None:
    profile = home / ".claude"
    profile.mkdir()
    (tmp_path / "data").mkdir()
    (profile / "projects").symlink_to(tmp_path / "data")
    with watching(profile) as heard:
        path = write_live(profile, CWD, ONE, b"{}\n")
        assert heard.wait_for(ONE, "made").path == str(path)


# --- many at once, several profiles, the end --------------------------------------------------------------


@pytest.mark.accepts("AGENT-4")
def test_a_mass_deletion_is_one_named_event_beside_the_single_hints(profile: Path) -> None:
    sessions = [session_id(number) for number in range(1, 1001)]
    for session in sessions:
        write_live(profile, CWD, session, b"{}\n")
    folder = live_path(profile, ONE, CWD).parent
    with watching(profile) as heard:
        for half in (sessions[:500], sessions[500:]):
            for session in half:
                (folder / f"{session}.jsonl").unlink()
            eventually("the last", lambda half=half: heard.told(half[-1], "gone"))
            heard.tick()
            assert not heard.told(None, "mass")  # it may go on
        heard.tick()
        assert [hint.count for hint in heard.hints if hint.kind == "mass"] == [1000]
        assert {hint.session for hint in heard.hints if hint.kind == "gone"} == set(sessions)
        heard.tick()
        heard.tick()
        assert sum(hint.kind == "mass" for hint in heard.hints) == 1


@pytest.mark.accepts("AGENT-4")
def test_a_mass_that_a_tick_falls_into_is_counted_whole(profile: Path) -> None:
    sessions = [session_id(number) for number in range(1, MASS + 21)]
    for session in sessions:
        write_live(profile, CWD, session, b"{}\n")
    with watching(profile) as heard:
        for part in (sessions[:60], sessions[60:]):
            for session in part:
                live_path(profile, session, CWD).unlink()
            heard.wait_for(part[-1], "gone")
            heard.tick()
        heard.tick()
        assert [hint.count for hint in heard.hints if hint.kind == "mass"] == [MASS + 20]


@pytest.mark.accepts("AGENT-4")
def test_few_that_go_are_no_mass(profile: Path) -> None:
    sessions = [session_id(number) for number in range(1, MASS)]
    for session in sessions:
        write_live(profile, CWD, session, b"{}\n")
    with watching(profile) as heard:
        for session in sessions:
            live_path(profile, session, CWD).unlink()
        eventually("the last", lambda: heard.told(sessions[-1], "gone"))
        heard.tick()
        heard.tick()
        assert not heard.told(None, "mass")


def test_one_session_in_two_profiles_is_told_of_the_one_where_it_came(profile: Path, home: Path) -> None:
    other = home / ".claude-work"
    (other / "projects").mkdir(parents=True)
    with watching(profile, other) as heard:
        write_live(other, CWD, ONE, b"{}\n")
        assert heard.wait_for(ONE, "made").profile == other
        assert {hint.profile for hint in heard.hints} == {other}


def test_a_profile_learnt_later_is_told_of_whole_and_one_that_is_dropped_no_more(profile: Path, home: Path) -> None:
    other = home / ".claude-work"
    (other / "projects").mkdir(parents=True)
    with watching(profile) as heard:
        heard.watch.set_profiles([profile, other])
        assert [hint.profile for hint in heard.hints if hint.kind == "all"] == [other]
        write_live(other, CWD, ONE, b"{}\n")
        heard.wait_for(ONE, "made")
        heard.watch.set_profiles([profile])
        write_live(other, CWD, TWO, b"{}\n")
        heard.settle()
        assert not heard.told(TWO, "made")
        assert heard.watch.cost().watches == watches_of()


def test_two_profiles_that_link_one_folder_both_hear_of_it_until_each_is_dropped(
    profile: Path, home: Path, tmp_path: Path
) -> None:
    other = home / ".claude-work"
    (other / "projects").mkdir(parents=True)
    (tmp_path / "shared").mkdir()
    for each in (profile, other):
        (each / "projects" / "-srv-one").symlink_to(tmp_path / "shared")
    with watching(profile, other) as heard:
        (tmp_path / "shared" / f"{ONE}.jsonl").touch()
        eventually("both", lambda: {h.profile for h in heard.hints if h.session == ONE} == {profile, other})
        heard.watch.set_profiles([profile])
        assert heard.watch.troubles() == ()
        (tmp_path / "shared" / f"{TWO}.jsonl").touch()
        eventually("one", lambda: any(h.session == TWO and h.profile == profile for h in heard.hints))
        heard.tick()
        assert heard.lasting() == {}


def test_nothing_is_left_of_a_watch_that_was_stopped(profile: Path) -> None:
    write_live(profile, CWD, ONE, b"{}\n")
    threads, descriptors = set(threading.enumerate()), set(os.listdir("/proc/self/fd"))
    heard = Heard(profile)
    heard.watch.start()
    assert threads_but(threads)
    heard.watch.stop()
    assert threads_but(threads) == []
    assert set(os.listdir("/proc/self/fd")) <= descriptors
    heard.watch.stop()


# --- what is decided without a file system ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "session"),
    [
        ("projects", ""),
        ("projects/-srv", ""),
        (f"projects/-srv/{ONE}.jsonl", ONE),
        (f"projects/-srv/{ONE}/x/y/z", ONE),
        ("projects/-srv/agent-1.jsonl", ""),
        ("projects/-srv/sessions-index.json", None),
        (f"file-history/{ONE}", ONE),
        (f"tasks/{ONE}/1.json", ONE),
        ("tasks/1.json", None),
        ("todos", ""),
        (f"todos/{ONE}-agent-{TWO}.json", ONE),
        (f"shell-snapshots/{ONE}.sh", None),
        ("", None),
    ],
)
def test_a_path_is_about(path: str, session: str | None) -> None:
    assert subject(path.split("/")) == session


@pytest.mark.accepts("AGENT-2")
def test_a_trouble_that_comes_and_goes_is_told_as_one_and_forgotten_after_a_while() -> None:
    key = ("overflow", "")
    first = carried({}, {key: "x"}, 10)
    assert first == {key: Trouble("overflow", "x", 10)}
    calm = carried(first, {}, 11)
    assert calm == {key: Trouble("overflow", "x", 10, until=11)}
    again = carried(calm, {key: "x"}, 20)
    assert again == {key: Trouble("overflow", "x", 10)}
    assert carried(carried(again, {}, 21), {}, 21 + SHOWN_S) == {}
