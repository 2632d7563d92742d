"""Resident: what a sweep would take gets new times, what it took comes back, what others deleted stays deleted."""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from keeper.agent.condition import Condition
from keeper.agent.hint import Hint
from keeper.agent.journal import Journal
from keeper.agent.resident import Resident
from keeper.agent.work import Work
from keeper.transcripts.exclude import Exclusion
from keeper.transcripts.glance import Live
from keeper.transcripts.keep import Options
from keeper.transcripts.rules import Rule
from tests.build import CWD, jsonl, session_id, talk, write_live
from tests.chat import DAY_S, age, files, put, sweep, write_whole
from tests.conftest import Ran
from tests.seam import World, calls_of, failing, hooked, killed_at, names_of_ours, refusing
from tests.seam import world as world_of


@pytest.fixture
def world(profile: Path, vault_home: Path, home: Path) -> World:
    return world_of(profile, vault_home, home / ".local" / "state" / "keeper")


class Agent:
    """The part of the agent that is meant here, turned by hand."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.work = Work(world.settings, lambda: False, lambda note: None)
        self.condition = Condition(Journal(time.monotonic), self.work.let_go)
        self.clock = 1000.0
        self.left: list[tuple[str, str]] = []
        self.resident = Resident(self.work, self.condition, lambda *key: self.left.append(key), lambda: self.clock)

    def look(self) -> None:
        """The hourly look; moments after a storm it would know too much."""
        self.clock += 60
        self.resident.reconcile()
        self.turn()

    def told_gone(self, *paths: Path) -> None:
        """The watch says that these sessions' names went."""
        for path in paths:
            self.resident.gone(str(self.world.profile), path.stem[:36])
        self.turn()

    def turn(self) -> None:
        self.resident.turn()
        self.resident.tell()
        assert [one for one in self.condition.troubles() if one["what"] == "resident"] == []

    def events(self, what: str) -> list[str]:
        return [one["text"] for one in self.condition.events if one["what"] == what]


@pytest.fixture
def agent(world: World) -> Agent:
    return Agent(world)


def chats(world: World, count: int, *, days: float = 40, cwd: str = CWD, first: int = 1) -> list[Path]:
    """So many resident chats, kept, the first one `days` old and each an hour newer; ids in no order of time."""
    paths = []
    for number in range(count):
        session = session_id(first + (number * 7) % count)
        paths.append(write_live(world.profile, cwd, session, jsonl(*talk("abcd", session, cwd=cwd))))
        keep(world, session)
        set_age(paths[-1], days - number / 24)
    return paths


def keep(world: World, session: str, policy: str = "resident") -> None:
    world.about(session).keep(Options(policy=policy))


def set_age(path: Path, days: float) -> None:
    then = time.time() - days * DAY_S
    os.utime(path, (then, then), follow_symlinks=False)


def days_old(path: Path) -> float:
    return (time.time() - path.stat().st_mtime) / DAY_S


def in_order(*paths: Path) -> bool:
    """Each is newer than the one before, by a millisecond at least: Claude compares these."""
    times = [path.stat().st_mtime_ns for path in paths]
    return all(later - earlier >= 1_000_000 for earlier, later in pairwise(times))


# --- back ---------------------------------------------------------------------------------------------------


@pytest.mark.accepts("POLICY-4", "RESTORE-11")
def test_a_swept_chat_comes_back_whole_at_once_and_safe_from_the_next_sweep(world: World, agent: Agent) -> None:
    live = write_whole(world.profile, world.session)
    keep(world, world.session)
    before = files(world.profile)
    age(world.profile)
    sweep(world.profile)
    agent.told_gone(live)
    assert files(world.profile) == before
    assert live.samefile(world.kept)
    for name in before:
        assert days_old(world.profile / name) < 1, f"{name} goes with the next sweep"
    assert agent.events("sweep") == ["1 chats that a sweep took were put back"]


@pytest.mark.accepts("POLICY-4")
def test_what_a_sweep_took_while_no_agent_ran_the_first_look_puts_back(world: World, agent: Agent) -> None:
    paths = chats(world, 4)
    sweep(world.profile)
    agent.look()
    assert in_order(*paths)
    assert all(days_old(path) < 1 for path in paths)


@pytest.mark.accepts("POLICY-4")
@pytest.mark.parametrize("policy", ["keep", "exclude"])
def test_a_chat_of_another_policy_is_left_to_the_sweep(world: World, agent: Agent, policy: str) -> None:
    (live,) = chats(world, 1)
    keep(world, live.stem, policy)
    set_age(live, 40)
    agent.look()
    assert days_old(live) > 39
    live.unlink()
    agent.told_gone(live)
    agent.look()
    assert not live.exists()
    assert agent.condition.events == []


@pytest.mark.accepts("POLICY-4", "RESTORE-11")
def test_what_one_sweep_takes_a_file_at_a_time_comes_back_in_its_old_order(world: World, agent: Agent) -> None:
    paths = chats(world, 12)
    for number in (7, 2, 11, 0, 5):
        paths[number].unlink()
        agent.told_gone(paths[number])
        agent.clock += 0.1
    shutil.rmtree(paths[0].parent)
    agent.told_gone(*paths)
    assert in_order(*paths)


@pytest.mark.accepts("POLICY-4", "RESTORE-11")
def test_what_comes_back_in_the_same_instant_has_its_old_order_too(
    world: World, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = chats(world, 8)
    now = time.time_ns()
    monkeypatch.setattr("keeper.agent.rescue.time.time_ns", lambda: now)
    for path in paths:
        path.unlink()
    agent.told_gone(*paths[:4])
    agent.told_gone(*paths[4:])
    assert in_order(*paths)


@pytest.mark.accepts("POLICY-4")
def test_a_split_chat_is_judged_by_the_time_of_the_file_that_lived(world: World, agent: Agent) -> None:
    (live,) = chats(world, 1)
    live.unlink()
    write_live(world.profile, CWD, live.stem, jsonl(*talk("ab", live.stem)))
    keep(world, live.stem)
    assert not live.samefile(world.kept)
    set_age(live, 40)
    os.utime(world.kept)
    live.unlink()
    agent.told_gone(live)
    assert live.read_bytes() == jsonl(*talk("abcd", live.stem))


@pytest.mark.accepts("POLICY-4", "RESTORE-2")
def test_chats_that_nobody_swept_keep_their_place_among_those_that_come_back(world: World, agent: Agent) -> None:
    swept = chats(world, 3, days=40)
    between = write_live(world.profile, CWD, session_id(90), jsonl(*talk("ab", session_id(90))))
    os.utime(between, ns=(swept[1].stat().st_mtime_ns + 60 * 10**9,) * 2)
    newest = write_live(world.profile, CWD, session_id(91), jsonl(*talk("ab", session_id(91))))
    told = newest.stat().st_mtime_ns
    for path in swept:
        path.unlink()
    agent.told_gone(*swept)
    assert in_order(*swept[:2], between, swept[2], newest)
    assert newest.stat().st_mtime_ns == told, "what is newer needs no new time"


@pytest.mark.accepts("POLICY-1", "POLICY-4")
def test_one_that_a_rule_came_to_meet_since_the_last_look_keeps_its_time_too(world: World, agent: Agent) -> None:
    oldest, excluded, newest = chats(world, 3)
    agent.look()
    for number, path in enumerate((oldest, excluded, newest)):
        set_age(path, 40 - number)
    rules = Exclusion(world.vault())
    rules.say("add", Rule.of({"session": excluded.stem}), time.time())
    assert [one.chat for one in rules.apply()] == [excluded.stem]
    before = excluded.stat().st_mtime_ns
    oldest.unlink()
    agent.clock += 60
    agent.told_gone(oldest)
    assert oldest.exists()
    assert in_order(oldest, newest)
    assert days_old(oldest) < 1
    assert excluded.stat().st_mtime_ns == before
    rules.say("remove", Rule.of({"session": excluded.stem}), time.time())
    set_age(oldest, 40)
    oldest.unlink()
    agent.clock += 60
    agent.told_gone(oldest)
    assert in_order(oldest, excluded, newest), "without the rule it moves along"


@pytest.mark.accepts("POLICY-4")
def test_an_excluded_chat_keeps_its_time(world: World, agent: Agent) -> None:
    oldest, excluded, newest = chats(world, 3)
    keep(world, excluded.stem, "exclude")
    before = excluded.stat().st_mtime_ns
    oldest.unlink()
    newest.unlink()
    agent.look()
    assert in_order(oldest, newest)
    assert excluded.stat().st_mtime_ns == before


@pytest.mark.accepts("POLICY-4", "RESTORE-11")
def test_killed_anywhere_in_the_middle_and_started_again_all_is_back_in_its_order(
    tmp_path: Path, second_volume: Path
) -> None:
    world = world_of(second_volume / "profile", second_volume / "vault", second_volume / "state")

    def begin() -> list[Path]:
        for used in (world.profile, world.root, world.settings.state_home):
            shutil.rmtree(used, ignore_errors=True)
        paths = chats(world, 4)
        other = write_live(world.profile, CWD, session_id(90), jsonl(*talk("ab", session_id(90))))
        os.utime(other, ns=(paths[1].stat().st_mtime_ns + 10**9,) * 2)
        for path in paths:
            path.unlink()
        return [*paths[:2], other, *paths[2:]]

    begin()
    calls = calls_of(lambda: Agent(world).look())
    assert sum(call == "link" for call, _ in calls) == 4
    for number, (call, _) in enumerate(calls):
        paths = begin()
        assert killed_at(number, lambda: Agent(world).look())
        Agent(world).look()
        assert all(path.exists() for path in paths), f"killed at {calls[number]}"
        assert in_order(*paths), f"killed at {calls[number]}"
        assert all(days_old(path) < 1 for path in paths)
        assert names_of_ours(world.profile) == []
        assert not (world.root / "resident.json").exists(), call


@pytest.mark.accepts("POLICY-4")
def test_what_cannot_be_put_back_now_is_a_trouble_and_the_next_look_tries_again(world: World, agent: Agent) -> None:
    (live,) = chats(world, 1)
    shutil.rmtree(live.parent)
    put(live.parent, b"somebody's file")
    agent.told_gone(live)
    assert [one["what"] for one in agent.condition.troubles()] == [f"put back: {live.stem}"]
    live.parent.unlink()
    agent = Agent(world)
    agent.look()
    assert live.exists()
    assert agent.condition.troubles() == []


@pytest.mark.accepts("POLICY-4", "FAULT-4")
@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES])
def test_after_any_change_that_failed_the_next_look_has_all_back_in_its_order(
    tmp_path: Path, second_volume: Path, code: int
) -> None:
    world = world_of(second_volume / "profile", second_volume / "vault", second_volume / "state")

    def begin() -> list[Path]:
        for used in (world.profile, world.root, world.settings.state_home):
            shutil.rmtree(used, ignore_errors=True)
        paths = chats(world, 3)
        sweep(world.profile)
        return paths

    begin()
    calls = calls_of(lambda: Agent(world).look())
    for number, call in enumerate(calls):
        paths = begin()
        agent = Agent(world)
        agent.clock += 60
        agent.resident.reconcile()
        with hooked(failing(number, code)):
            agent.resident.turn()
        agent.look()
        assert all(path.exists() for path in paths), f"{call} failed"
        assert in_order(*paths), f"{call} failed"
        assert agent.condition.troubles() == [], f"{call} failed"


@pytest.mark.accepts("POLICY-4", "FAULT-4")
def test_on_a_full_volume_it_comes_back_too(world: World, agent: Agent) -> None:
    """It takes a link and no room; the plan that cannot be noted is only for a run that is killed."""
    first, second = chats(world, 2)
    sweep(world.profile)
    with hooked(refusing("create", errno.ENOSPC)):
        agent.told_gone(first, second)
    assert in_order(first, second)


@pytest.mark.accepts("POLICY-4")
def test_on_another_volume_it_comes_back_too(profile: Path, second_volume: Path) -> None:
    world = world_of(profile, second_volume / "vault", second_volume / "state")
    paths = chats(world, 3)
    for path in paths:
        set_age(world.about(path.stem).kept, days_old(path))
        path.unlink()
    agent = Agent(world)
    agent.told_gone(*paths)
    assert in_order(*paths)
    assert {path.read_bytes() for path in paths} == {jsonl(*talk("abcd", path.stem)) for path in paths}


@pytest.mark.accepts("POLICY-4")
def test_on_another_volume_what_a_sweep_took_while_no_agent_ran_is_judged_by_the_age_that_it_has(
    profile: Path, second_volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy does not tell when the live file's name went: what was not told of may have been a sweep."""
    world = world_of(profile, second_volume / "vault", second_volume / "state")
    write_whole(profile, world.session)
    age(profile, 3)
    keep(world, world.session)
    stays = world.about(session_id(2))
    write_whole(profile, stays.session)
    age(profile, 3)
    keep(world, stays.session)
    set_age(world.kept, 3)
    world.live.unlink()
    result = stays.companion / "tool-results" / "toolu_1.txt"
    result.unlink()
    now = time.time_ns()
    monkeypatch.setattr("keeper.agent.rescue.time.time_ns", lambda: now + 30 * int(DAY_S) * 10**9)
    Agent(world).look()
    assert world.live.exists()
    assert not result.exists(), "under a transcript that stays there is time enough to be told"


@pytest.mark.accepts("POLICY-4", "KEEP-6")
def test_a_chat_that_was_moved_by_claude_is_not_gone(world: World, agent: Agent) -> None:
    (live,) = chats(world, 1)
    there = world.profile / "projects" / "-srv-demo-proj--worktree"
    there.mkdir()
    moved = live.rename(there / live.name)
    agent.told_gone(live)
    assert not live.exists()
    assert moved.exists()


@pytest.mark.accepts("POLICY-4", "KEEP-11")
def test_a_forgotten_chat_does_not_come_back(world: World, agent: Agent, run_keeper: Callable[..., Ran]) -> None:
    first, second = chats(world, 2)
    agent.look()
    for path in (first, second):
        set_age(path, 40)
        path.unlink()
    vault = world.vault()
    vault.bury(first.stem, first.stem, str(world.profile), "forget", time.time())
    agent.told_gone(first, second)
    assert (first.exists(), second.exists()) == (False, True)
    assert agent.events("sweep") == ["1 chats that a sweep took were put back"]
    assert agent.events("deleted") == []


@pytest.mark.accepts("POLICY-4", "AGENT-1")
def test_the_queue_of_keeps_gets_what_went_and_was_not_put_back_and_nothing_else(world: World, agent: Agent) -> None:
    swept, moved, unkept = chats(world, 3)
    keep(world, unkept.stem, "keep")
    agent.look()

    def hears(kind: str, path: Path) -> bool:
        return agent.resident.hears(Hint(world.profile, path.stem, kind, str(path)))

    for path in (swept, moved, unkept):
        set_age(path, 40)
    swept.unlink()
    (world.profile / "projects" / "-elsewhere").mkdir()
    moved.rename(world.profile / "projects" / "-elsewhere" / moved.name)
    assert [hears("gone", path) for path in (swept, moved, unkept)] == [True, True, False]
    assert not hears("made", moved)
    agent.turn()
    assert agent.left == [(str(world.profile), moved.stem)]
    assert hears("made", swept), "a name that was put back"
    agent.clock += 60
    agent.told_gone(moved)
    assert not hears("made", swept), "a name that somebody made"


# --- deleted on purpose -------------------------------------------------------------------------------------


@pytest.mark.accepts("POLICY-4")
def test_a_deliberate_deletion_is_told_once_with_its_cure_and_never_undone(world: World, agent: Agent) -> None:
    (live,) = chats(world, 1, days=10)
    live.unlink()
    agent.told_gone(live)
    agent.told_gone(live)
    (text,) = agent.events("deleted")
    assert f"`keeper restore {live.stem}`" in text
    assert CWD in text
    agent.look()
    later = Agent(world)
    later.look()
    assert later.condition.events == []
    assert not live.exists()


@pytest.mark.accepts("POLICY-4")
def test_a_deliberate_deletion_stays_one_when_its_time_is_past_the_retention(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked, unseen = chats(world, 2, days=10)
    linked.unlink()
    Agent(world).told_gone(linked)
    unseen.unlink()  # no agent ran: the kept name of the same file tells when
    now = time.time_ns()
    monkeypatch.setattr("keeper.agent.rescue.time.time_ns", lambda: now + 60 * int(DAY_S) * 10**9)
    agent = Agent(world)
    agent.look()
    assert (linked.exists(), unseen.exists()) == (False, False)
    assert len(agent.events("deleted")) == 1


@pytest.mark.accepts("POLICY-4")
def test_a_deletion_after_a_restore_by_hand_is_judged_anew(world: World, run_keeper: Callable[..., Ran]) -> None:
    (live,) = chats(world, 1, days=10)
    live.unlink()
    agent = Agent(world)
    agent.told_gone(live)
    assert run_keeper("restore", live.stem).code == 0
    set_age(live, 5)
    live.unlink()
    agent.told_gone(live)
    assert len(agent.events("deleted")) == 1, "older than what was told: the same deletion as far as anyone can tell"
    assert run_keeper("restore", live.stem).code == 0
    live.unlink()
    agent.told_gone(live)
    assert len(agent.events("deleted")) == 2
    assert not live.exists()


@pytest.mark.accepts("POLICY-4")
def test_many_deliberate_deletions_are_one_event(world: World, agent: Agent) -> None:
    paths = chats(world, 12, days=10)
    shutil.rmtree(paths[0].parent)
    agent.told_gone(*paths)
    (text,) = agent.events("deleted")
    assert text.startswith(f"12 chats of {CWD} were deleted")
    assert not paths[0].parent.exists()


@pytest.mark.accepts("POLICY-4")
def test_on_another_volume_a_deliberate_deletion_is_told_by_the_time_that_was_seen(
    profile: Path, second_volume: Path
) -> None:
    world = world_of(profile, second_volume / "vault", second_volume / "state")
    (live,) = chats(world, 1, days=3)
    set_age(world.kept, 40)
    agent = Agent(world)
    seen = live.stat()
    agent.resident.saw(profile, {live.stem: Live(str(live), seen.st_size, seen.st_mtime_ns)})
    live.unlink()
    agent.told_gone(live)
    assert not live.exists()
    assert len(agent.events("deleted")) == 1


@pytest.mark.accepts("POLICY-4", "POLICY-6")
def test_a_project_with_a_short_retention_makes_it_a_sweep(world: World, agent: Agent, tmp_path: Path) -> None:
    """Read again before a person is blamed: the setting may be newer than the last look."""
    (live,) = chats(world, 1, days=3, cwd=str(tmp_path / "proj"))
    (other,) = chats(world, 1, days=3, first=50)
    agent.look()
    put(tmp_path / "proj" / ".claude" / "settings.json", b'{"cleanupPeriodDays": 2}')
    other.unlink()
    agent.told_gone(other)
    assert other.exists()
    agent.look()
    assert days_old(live) < 1, "three of two days: it is freshened"


@pytest.mark.accepts("POLICY-4")
def test_what_is_seen_to_have_gone_without_an_event_is_looked_at(world: World, agent: Agent) -> None:
    """A volume without events, or an overflow: two looks tell the difference."""
    (live,) = chats(world, 1)
    seen = live.stat()
    agent.resident.saw(world.profile, {live.stem: Live(str(live), seen.st_size, seen.st_mtime_ns)})
    live.unlink()
    agent.resident.saw(world.profile, {})
    agent.turn()
    assert live.exists()


# --- tool results under a transcript that stays -------------------------------------------------------------


@pytest.mark.accepts("POLICY-4", "RESTORE-3")
def test_a_swept_tool_result_of_a_chat_that_stays_comes_back(world: World, agent: Agent) -> None:
    live = write_whole(world.profile, world.session)
    keep(world, world.session)
    set_age(live, 1)
    result = world.companion / "tool-results" / "toolu_1.txt"
    agents = world.companion / "subagents" / "agent-a1.jsonl"
    data = result.read_bytes()
    shutil.rmtree(result.parent)
    shutil.rmtree(world.profile / "file-history" / world.session)
    agents.unlink()  # nothing that a sweep takes from under a transcript that stays
    agent.told_gone(live)
    assert result.read_bytes() == data
    assert days_old(result) < 1
    assert len(list((world.profile / "file-history" / world.session).iterdir())) == 2
    assert not agents.exists()


@pytest.mark.accepts("POLICY-4")
def test_a_tool_result_that_somebody_removed_stays_away(world: World, agent: Agent) -> None:
    live = write_whole(world.profile, world.session)
    age(world.profile, 3)
    keep(world, world.session)
    result = world.companion / "tool-results" / "toolu_1.txt"
    result.unlink()
    agent.told_gone(live)
    agent.look()
    assert not result.exists()


@pytest.mark.accepts("POLICY-4")
def test_what_the_same_sweep_takes_of_a_chat_that_is_back_already_comes_back_too(world: World, agent: Agent) -> None:
    """It removes the whole companion of a transcript that it took, however fresh its files."""
    live = write_whole(world.profile, world.session)
    keep(world, world.session)
    age(world.profile)
    before = files(world.profile)
    live.unlink()
    agent.told_gone(live)
    shutil.rmtree(world.companion)
    shutil.rmtree(world.profile / "tasks")
    agent.told_gone(live)
    assert files(world.profile) == before


@pytest.mark.accepts("POLICY-4")
def test_nothing_is_put_through_a_companion_that_is_a_link(world: World, agent: Agent, tmp_path: Path) -> None:
    live = write_whole(world.profile, world.session)
    keep(world, world.session)
    set_age(live, 1)
    shutil.rmtree(world.companion)
    (tmp_path / "elsewhere").mkdir()
    world.companion.symlink_to(tmp_path / "elsewhere")
    agent.told_gone(live)
    assert list((tmp_path / "elsewhere").iterdir()) == []


# --- before the cutoff --------------------------------------------------------------------------------------


@pytest.mark.accepts("POLICY-4", "RESTORE-2")
def test_what_is_half_way_to_the_cutoff_gets_a_new_time_in_its_order(world: World, agent: Agent) -> None:
    old = chats(world, 3, days=20)
    unkept = write_live(world.profile, CWD, session_id(90), jsonl(*talk("ab", session_id(90))))
    os.utime(unkept, ns=(old[1].stat().st_mtime_ns + 60 * 10**9,) * 2)
    (young,) = chats(world, 1, days=2, first=50)
    told = young.stat().st_mtime_ns
    agent.look()
    assert in_order(*old[:2], unkept, old[2], young)
    assert all(days_old(path) < 3 for path in old)
    assert young.stat().st_mtime_ns == told
    times = [path.stat().st_mtime_ns for path in old]
    agent.look()
    assert [path.stat().st_mtime_ns for path in old] == times, "once is enough"


@pytest.mark.accepts("POLICY-4")
def test_all_that_a_sweep_judges_by_its_own_time_is_freshened(world: World, agent: Agent) -> None:
    write_whole(world.profile, world.session)
    keep(world, world.session)
    age(world.profile, 29)
    agent.look()
    judged = [world.live, world.companion / "tool-results" / "toolu_1.txt"]
    judged += [world.profile / kind / world.session for kind in ("file-history", "tasks")]
    judged += list((world.profile / "todos").iterdir()) + list(world.live.parent.glob("*.jsonl"))
    assert {path.name: days_old(path) < 15 for path in judged} == {path.name: True for path in judged}


@pytest.mark.accepts("POLICY-4")
def test_a_sweep_that_had_judged_before_the_new_time_was_set_is_still_a_sweep(world: World, agent: Agent) -> None:
    (live,) = chats(world, 1, days=31)
    agent.look()
    live.unlink()
    agent.told_gone(live)
    assert live.exists()


@pytest.mark.accepts("POLICY-4")
def test_on_another_volume_a_deletion_after_a_new_time_is_a_deliberate_one(profile: Path, second_volume: Path) -> None:
    world = world_of(profile, second_volume / "vault", second_volume / "state")
    (live,) = chats(world, 1, days=31)
    set_age(world.kept, 31)
    agent = Agent(world)
    agent.look()
    assert days_old(live) < 1
    agent.clock += 60
    live.unlink()
    agent.told_gone(live)
    assert not live.exists()


# --- whose policy it is -------------------------------------------------------------------------------------


@pytest.mark.accepts("POLICY-4")
def test_a_chat_of_an_editor_is_resident_and_one_of_a_shell_is_not(world: World, agent: Agent) -> None:
    paths = {}
    for number, entrypoint in enumerate(("cli", "sdk-cli", "claude-vscode", "claude-desktop"), 1):
        session = session_id(number)
        records = [{**json.loads(line), "entrypoint": entrypoint} for line in talk("abcd", session)]
        data = jsonl(*(json.dumps(record).encode() for record in records))
        paths[entrypoint] = write_live(world.profile, CWD, session, data)
        world.about(session).keep()
        set_age(paths[entrypoint], 40)
    sweep(world.profile)
    agent.look()
    assert {name: path.exists() for name, path in paths.items()} == {
        "cli": False, "sdk-cli": False, "claude-vscode": True, "claude-desktop": True,
    }  # fmt: skip


@pytest.mark.accepts("POLICY-4")
def test_two_hundred_swept_chats_come_back_together_in_their_order(tmp_path: Path, second_volume: Path) -> None:
    world = world_of(second_volume / "profile", second_volume / "vault", second_volume / "state")
    paths = []
    for number in range(200):
        session = session_id(number + 1)
        paths.append(write_live(world.profile, f"/srv/p{number % 5}", session, jsonl(*talk("ab", session))))
        set_age(paths[-1], 60 - number / 24)
    world.keep_all()
    for path in paths:
        facts = world.root / "chats" / path.stem / "chat.json"
        facts.write_bytes(facts.read_bytes().replace(b'"policy": ""', b'"policy": "resident"'))
    sweep(world.profile)
    agent = Agent(world)
    agent.told_gone(*paths)
    for project in range(5):
        assert in_order(*paths[project::5])
    assert agent.events("sweep") == ["200 chats that a sweep took were put back"]


@pytest.mark.accepts("POLICY-4")
@pytest.mark.parametrize("others", [False, True])
def test_one_that_comes_back_is_made_durable_by_its_folder_unless_other_files_came_with_it(
    world: World, agent: Agent, others: bool
) -> None:
    """The volume's barrier waits for what everybody writes, and the next one that was swept waits behind it."""
    (live,) = chats(world, 1, days=40)
    if others:
        put(live.with_suffix("") / "tool-results" / "x.txt", b"out\n")
        keep(world, live.stem)
        shutil.rmtree(live.with_suffix(""))
    live.unlink()
    agent.resident.gone(str(world.profile), live.stem)
    synced = [paths for call, paths in calls_of(agent.turn) if call == "sync"]
    assert live.exists()
    assert ((str(live.parent),) in synced) is not others
