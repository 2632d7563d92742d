"""What the agent does with a vault: a first pass over many chats, a glance, a pass that is stopped, no room to seal."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest

from keeper import claude, files
from keeper.agent import work
from keeper.agent.condition import Condition
from keeper.agent.growth import Growth
from keeper.agent.journal import Journal
from keeper.agent.policy import SETTLE_S, Policy
from keeper.agent.queue import Queue, Task
from keeper.agent.run import Agent
from keeper.agent.service import Notify
from keeper.agent.work import Pass, Stopped, Work
from keeper.agent.workers import Workers
from keeper.errors import KeeperError, Locked
from keeper.settings import Settings
from keeper.transcripts import glance as glancing
from keeper.transcripts import titles
from keeper.transcripts.index import Index
from keeper.transcripts.vault import RELATIVE_WAIT_S, Vault
from tests.agent.running import until
from tests.build import CWD, append, jsonl, meta, session_id, talk, write_live
from tests.seam import World, lines_of, world

MANY = 60


@pytest.fixture
def here(profile: Path, vault_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(claude, "running_profiles", lambda *_: [])
    return world(profile, vault_home, tmp_path / "state")


@pytest.fixture
def views(here: World) -> list[World]:
    """Many chats that nobody has kept yet."""
    found = [here.about(session_id(n), f"/srv/p{n % 7}") for n in range(1, MANY + 1)]
    for one in found:
        write_live(one.profile, one.cwd, one.session, jsonl(*talk("abc", one.session)))
    return found


def sealed(view: World) -> bool:
    return (view.chat / "seal" / f"{view.session}.jsonl.seal").exists()


def at_work(here: World, stop: bool = False) -> tuple[Work, list[str]]:
    told: list[str] = []
    return Work(here.settings, lambda: stop, told.append), told


@pytest.mark.accepts("AGENT-1")
def test_a_first_pass_over_many_links_them_all_before_it_seals_any_and_says_how_far_it_is(
    here: World, views: list[World]
) -> None:
    mine, _ = at_work(here)
    seen: list[tuple[int, int]] = []

    def linked() -> None:
        assert all(view.kept.samefile(view.live) for view in views)
        assert not any(sealed(view) for view in views)

    mine._go_on = lambda: seen.append(mine.sealing) if mine.sealing else None  # type: ignore[method-assign]
    done = mine.reconcile(linked)
    assert (done.sessions, done.changed, done.failures, done.unsealed) == (MANY, MANY, (), ())
    assert all(sealed(view) for view in views)
    assert seen == [(count, MANY) for count in range(1, MANY + 1)]
    assert mine.sealing is None
    again = mine.reconcile()
    assert (again.sessions, again.changed) == (MANY, 0)


def test_where_the_volume_has_no_room_for_seals_all_is_linked_and_that_is_told(
    here: World, views: list[World], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, _ = at_work(here)
    monkeypatch.setattr(work, "SPARE", 1000)
    monkeypatch.setattr(work.os, "statvfs", lambda _: SimpleNamespace(f_bavail=1, f_frsize=1024))
    done = mine.reconcile()
    assert "too little room" in done.unsealed[0][1]
    assert all(view.kept.samefile(view.live) for view in views)
    assert not any(sealed(view) for view in views)
    monkeypatch.undo()
    monkeypatch.setattr(claude, "running_profiles", lambda *_: [])
    assert mine.reconcile().unsealed == ()
    assert all(sealed(view) for view in views)


@pytest.mark.accepts("AGENT-6")
def test_a_pass_that_is_stopped_has_made_durable_what_it_did_and_the_next_one_does_the_rest(
    here: World, views: list[World]
) -> None:
    mine, _ = at_work(here)
    turns: list[int] = []

    def stop() -> bool:
        turns.append(1)
        return len(turns) > MANY // 2

    mine.stop = stop
    with pytest.raises(Stopped):
        mine.reconcile()
    kept = [view for view in views if view.kept.exists()]
    assert 0 < len(kept) < MANY
    assert {row.session for row in here.vault().rows()} == {view.session for view in kept}
    mine.stop = lambda: False
    assert mine.reconcile().changed == MANY - len(kept)
    assert all(view.kept.samefile(view.live) for view in views)


@pytest.mark.accepts("AGENT-6", "POLICY-3")
@pytest.mark.parametrize("deed", ["rules", "bounds"])
def test_rules_and_bounds_are_stopped_between_two_chats(deed: str, here: World, views: list[World]) -> None:
    for view in views:
        view.keep()
    mine, _ = at_work(here)
    rule = (("cwd", "/srv/**"),)
    mine.settings = replace(here.settings, exclude=(rule,) if deed == "rules" else (), keep_for_s=1)
    turns: list[int] = []

    def stop() -> bool:
        turns.append(1)
        return len(turns) > MANY // 2

    mine.stop = stop
    policy = Policy(mine, Condition(Journal(time.monotonic), mine.let_go), here.settings.config)
    (policy.exclude if deed == "rules" else policy.plan)()
    assert len(turns) == MANY // 2 + 1
    assert policy.condition.troubles() == []
    left = {view.session for view in views if view.kept.exists()}
    assert len(left) == (MANY - len(turns) if deed == "rules" else MANY)
    mine.stop = lambda: False
    (policy.exclude if deed == "rules" else policy.plan)()
    assert [one["what"] for one in policy.condition.events] == ["excluded" if deed == "rules" else "prune"]
    assert policy.condition.events[0]["text"].startswith(f"{len(left)} chats")


@pytest.mark.accepts("AGENT-1")
def test_a_pass_that_waits_for_a_lock_is_not_taken_for_one_that_costs_much(here: World, views: list[World]) -> None:
    """Its price says how soon the next one comes."""
    mine, _ = at_work(here)
    mine.settings = replace(here.settings, lock_wait_s=0.7)
    with here.vault().lock(views[0].session):
        done = mine.reconcile()
    assert [session for session, _ in done.failures] == [views[0].session]
    assert done.cpu_s < done.seconds - 0.5


@pytest.mark.accepts("AGENT-9")
def test_a_glance_over_what_is_kept_reads_no_file_and_asks_once_for_each(
    here: World, views: list[World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What makes a start quick: one listing a folder, one stat a chat beside the listing's own, nothing opened."""
    mine, _ = at_work(here)
    mine.reconcile()
    asked: Counter[str] = Counter()
    regular = files.regular

    def counted(path: str) -> os.stat_result | None:
        asked[os.fspath(path)] += 1
        return regular(path)

    monkeypatch.setattr(glancing, "regular", counted)
    monkeypatch.setattr(files, "open_read", None)
    found = mine.glances()
    assert [seen.unkept for seen in found.values()] == [()]
    assert (len(asked), set(asked.values())) == (MANY, {1})
    assert {session for seen in found.values() for session in seen.live} == {view.session for view in views}


@pytest.mark.accepts("AGENT-1")
def test_a_glance_names_what_is_new_another_inode_or_grown_where_kept_is_a_copy(
    here: World, views: list[World]
) -> None:
    mine, _ = at_work(here)
    mine.reconcile()
    new = here.about(session_id(99))
    write_live(new.profile, CWD, new.session, jsonl(*talk("ab", new.session)))
    other = views[3]
    other.live.unlink()
    write_live(other.profile, other.cwd, other.session, jsonl(*talk("z", other.session)))
    append(views[4].live, jsonl(*talk("d", views[4].session, parent="c")))
    (found,) = mine.glances().values()
    assert set(found.unkept) == {new.session, other.session}


@pytest.mark.accepts("KEEP-2")
def test_one_chats_slow_keep_delays_no_other(here: World, views: list[World], monkeypatch: pytest.MonkeyPatch) -> None:
    mine, _ = at_work(here)
    queue, ended = Queue(time.monotonic), threading.Event()
    condition = Condition(Journal(time.monotonic), mine.let_go)
    workers = Workers(queue, mine, Growth(), condition, ended.is_set)
    slow, gate = views[0], threading.Event()
    keep = Work.keep

    def keeps(self: Work, profile: str, session: str) -> object:
        if session == slow.session:
            gate.wait(20)
        return keep(self, profile, session)

    monkeypatch.setattr(Work, "keep", keeps)
    workers.start()
    try:
        for view in views:
            queue.add(Task(str(view.profile), view.session))
        until(lambda: all(view.kept.exists() for view in views[1:]), "all the others are kept")
        assert not slow.kept.exists()
        gate.set()
        until(lambda: sealed(slow), "it is kept too")
    finally:
        gate.set()
        ended.set()
        queue.close()


@pytest.mark.accepts("AGENT-2")
def test_a_keep_that_raises_what_nobody_expected_is_told_and_ends_no_worker(
    here: World, views: list[World], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, _ = at_work(here)
    queue, ended = Queue(time.monotonic), threading.Event()
    condition = Condition(Journal(time.monotonic), mine.let_go)
    workers = Workers(queue, mine, Growth(), condition, ended.is_set)
    keep = Work.keep

    def keeps(self: Work, profile: str, session: str) -> object:
        if session == views[0].session:
            raise RuntimeError("odd")
        return keep(self, profile, session)

    monkeypatch.setattr(Work, "keep", keeps)
    workers.start()
    try:
        for _ in range(5):
            queue.add(Task(str(here.profile), views[0].session))
            until(lambda: not len(queue), "it was tried")
        assert "RuntimeError: odd" in condition.troubles()[0]["why"]
        for view in views[1:]:
            queue.add(Task(str(view.profile), view.session))
        until(lambda: all(sealed(view) for view in views[1:]), "all the others are kept")
        until(lambda: condition.troubles() == [], "it is well again")
    finally:
        ended.set()
        queue.close()


@pytest.fixture
def whole_reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each time that all of the index's rows are read."""
    found: list[str] = []
    read = Index._read

    def counted(self: Index, query: str, values: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
        if query.endswith(" FROM session"):
            found.append(query)
        return read(self, query, values)

    monkeypatch.setattr(Index, "_read", counted)
    return found


@pytest.mark.accepts("AGENT-1")
def test_a_reconcile_reads_the_rows_of_the_index_once(agent: Agent, views: list[World], whole_reads: list[str]) -> None:
    agent.reconcile()
    assert all(sealed(view) for view in views)
    whole_reads.clear()
    agent.reconcile()
    assert len(whole_reads) == 1
    whole_reads.clear()
    views[0].keep_all()
    assert len(whole_reads) > 1, "nobody else takes rows for those of now"


@pytest.fixture
def agent(here: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    monkeypatch.setenv("HOME", str(here.profile.parent))
    found = Agent(lambda: here.settings, Notify(""))
    yield found
    found.ended = True
    found.watch.stop()
    found.queue.close()
    found.asks.close()


@pytest.mark.accepts("AGENT-2")
@pytest.mark.parametrize("met", ["a lock that is a folder", "a folder's name that is no UTF-8"])
def test_a_session_whose_keep_fails_in_a_worker_and_in_a_pass_is_one_trouble_until_it_is_well(
    met: str, agent: Agent, here: World
) -> None:
    live = write_live(here.profile, here.cwd, here.session, jsonl(*talk("ab", here.session)))
    bad = here.root / "locks" / f"{here.session}.lock"
    if met.startswith("a lock"):
        bad.mkdir(parents=True)
    else:
        bad = live.parent.rename(os.fsdecode(os.fsencode(live.parent) + b"\xff"))
    told = []
    for _ in range(2):
        agent.workers._keep(Task(str(here.profile), here.session))
        told.append(agent.condition.troubles())
        agent.reconcile()
        told.append(agent.condition.troubles())
    assert [[(one["what"], one["why"]) for one in each] for each in told] == [
        [(f"keep: {here.session}", told[0][0]["why"])]
    ] * 4
    assert str(bad) in told[0][0]["why"] or "UTF-8" in told[0][0]["why"]
    agent.jobs.start()
    agent.again_due = 0.0
    soon: list[str] = []
    agent.jobs.soon = soon.append  # type: ignore[method-assign]
    agent._again(time.monotonic())
    assert soon == ["rules", "reconcile"], "what a pass met it looks at again soon"
    agent.jobs.stop()
    if bad.parent.name == "locks":
        bad.rmdir()
    else:
        bad.rename(live.parent)
    agent.reconcile()
    assert agent.condition.troubles() == []
    assert not agent.failing


@pytest.mark.accepts("POLICY-2", "AGENT-6")
def test_a_reload_leaves_the_rules_to_a_job_and_one_that_failed_is_tried_again(
    agent: Agent, here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    did: list[str] = []
    monkeypatch.setattr(agent.jobs, "soon", did.append)
    monkeypatch.setattr(Work, "exclude", lambda *_, **__: did.append("in the loop") or ([], {}))
    agent._do({"settings"})
    assert did == ["rules", "reconcile"]
    agent.load = refuse
    agent._do({"settings"})
    assert [one["what"] for one in agent.condition.troubles()] == ["settings"]
    agent.load = lambda: here.settings
    now = time.monotonic()
    agent.policy.clock = lambda: now + SETTLE_S + 1
    assert agent.policy.rewritten(), "though nobody has written to the file"
    agent._do({"settings"})
    assert agent.condition.troubles() == []
    assert not agent.policy.rewritten()


def refuse() -> Settings:
    raise KeeperError("it cannot be read", "make it readable")


@pytest.mark.accepts("POLICY-2")
def test_what_the_rules_left_is_tried_again_soon_and_no_lock_is_waited_for_long(
    agent: Agent, here: World, views: list[World], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float | None] = []
    for view in views[:2]:
        view.keep()
    agent.work.settings = replace(here.settings, exclude=((("cwd", "/srv/**"),),))

    def refused(_: object, chat: str, wait_s: float | None = None) -> NoReturn:
        waits.append(wait_s)
        raise Locked(f"{chat} is held", "wait")

    with monkeypatch.context() as patched:
        patched.setattr(Vault, "lock", refused)
        for _ in range(2):
            agent.policy.exclude()
    assert waits == [RELATIVE_WAIT_S] * 4
    assert [one["what"] for one in agent.condition.troubles()] == [f"policy: {view.session}" for view in views[:2]]
    soon: list[str] = []
    monkeypatch.setattr(agent.jobs, "soon", soon.append)
    agent.again_due = 0.0
    agent._again(time.monotonic())
    assert soon == ["rules", "reconcile"]
    agent.policy.exclude()
    assert agent.condition.troubles() == []
    assert not any(view.kept.exists() for view in views[:2])


@pytest.mark.accepts("POLICY-3", "POLICY-1", "AGENT-1")
@pytest.mark.parametrize("why", ["pruned", "excluded"])
@pytest.mark.parametrize("days", [2, 200])
def test_what_is_not_kept_is_told_by_its_next_line_however_long_it_was_quiet(
    why: str, days: int, agent: Agent, here: World
) -> None:
    rules = ((("title", "optchat-*"),),) if why == "excluded" else ()
    agent.work.settings = replace(here.settings, exclude=rules, keep_for_s=86_400 if why == "pruned" else 0)
    live = write_live(here.profile, CWD, here.session, jsonl(*talk("ab", here.session)))
    append(live, jsonl(meta("custom-title", customTitle="optchat-1", sessionId=here.session)))
    then = now = time.time()
    os.utime(live, (then - days * 86_400, then - days * 86_400))
    answer = agent.workers.keep(str(here.profile), here.session)
    assert answer is not None
    assert answer.verdict == why
    for _ in range(3):
        agent.growth.grown(now)  # the first one may tell it once more: nobody knows what came before the keep
        now += 61
    assert agent.growth.grown(now) == []
    append(live, jsonl(meta("custom-title", customTitle="other", sessionId=here.session)))
    assert agent.growth.grown(now + 61) == [(str(here.profile), here.session)]
    agent.work.settings = here.settings
    kept = agent.workers.keep(str(here.profile), here.session)
    assert kept is not None
    assert kept.action == "linked"
    agent.growth.grown(now + 122)
    agent.growth.grown(now + 2 * 86_400)
    assert len(agent.growth) == 0, "what is kept costs nothing once it is quiet"


@pytest.mark.accepts("POLICY-3", "AGENT-1")
def test_what_a_pass_over_everything_did_not_keep_is_told_by_its_next_line_too(agent: Agent, here: World) -> None:
    agent.settings = agent.work.settings = replace(here.settings, keep_for_s=86_400)
    live = write_live(here.profile, CWD, here.session, jsonl(*talk("ab", here.session)))
    os.utime(live, (1e9, 1e9))
    agent.reconcile()
    for number in range(3):
        agent.eyes.glance()
        assert agent.growth.grown(time.time() + 61 * number) == []
    append(live, jsonl(*talk("ef", here.session, parent="b")))
    agent.eyes.glance()
    assert agent.growth.grown(time.time() + 300) == [(str(here.profile), here.session)]


@pytest.mark.accepts("POLICY-1")
def test_a_title_rule_makes_no_turn_read_the_whole_transcript_again(
    agent: Agent, here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent.work.settings = replace(here.settings, exclude=((("title", "optchat-*"),),))
    live = write_live(here.profile, CWD, here.session, jsonl(*talk("abcd", here.session)))
    whole = live.stat().st_size
    ask = {"do": "keep", "profile": str(here.profile), "session": here.session}
    assert agent.answers.to(ask)["ok"]
    begun: list[int] = []
    more = titles._more
    monkeypatch.setattr(titles, "_more", lambda known, data: begun.append(known.size) or more(known, data))
    append(live, jsonl(*talk("ef", here.session, parent="d")))
    assert agent.answers.to(ask)["ok"]
    assert set(begun) == {whole}
    append(live, jsonl(meta("custom-title", customTitle="optchat-1", sessionId=here.session)))
    assert agent.answers.to(ask)["action"] == "removed"


@pytest.mark.accepts("POLICY-3")
def test_the_bounds_are_looked_at_once_the_first_look_over_everything_is_through(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    did: list[str] = []
    monkeypatch.setattr(agent.jobs, "soon", did.append)
    monkeypatch.setattr(agent.work, "reconcile", lambda _: did.append("looked") or Pass(0, 0, (), 0.0, 0.0))
    for _ in range(3):
        agent.reconcile()
    assert did == ["looked", "prune", "looked", "looked"]


@pytest.mark.accepts("AGENT-2")
def test_a_profile_that_cannot_be_looked_at_is_a_trouble_of_its_own(agent: Agent, here: World) -> None:
    refused = Pass(0, 0, ((str(here.profile), "cannot read it"), (here.session, "cannot keep it")), 0.0, 0.0)
    agent._passed(refused)
    assert {one["what"]: one["why"] for one in agent.condition.troubles()} == {
        f"look: {here.profile}": "cannot read it",
        f"keep: {here.session}": "cannot keep it",
    }


def test_a_restore_for_a_door_puts_back_what_is_kept(here: World, views: list[World]) -> None:
    mine, _ = at_work(here)
    mine.reconcile()
    view = views[5]
    wanted = lines_of(view.live)
    view.live.unlink()
    assert mine.restore(str(view.profile), view.session).verdict == "absent"
    assert lines_of(view.live) == wanted


@pytest.mark.accepts("AGENT-3")
def test_a_file_that_is_no_chat_yet_is_told_by_one_glance_and_not_by_each(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(here.profile.parent))
    agent = Agent(lambda: here.settings, Notify(""))
    live = write_live(here.profile, CWD, here.session, b"")
    try:
        assert [task.session for task in agent.eyes.glance()] == [here.session]
        assert agent.eyes.glance() == []
        append(live, jsonl(*talk("a", here.session)))
        assert [task.session for task in agent.eyes.glance()] == [here.session]
    finally:
        agent.asks.close()


@pytest.mark.accepts("AGENT-2")
def test_a_great_many_troubles_are_told_with_their_number(here: World) -> None:
    mine, _ = at_work(here)
    condition = Condition(Journal(time.monotonic), mine.let_go)
    for number in range(5000):
        condition.trouble(f"keep: {number}", "x" * 1000)
    told = condition.troubles()
    assert (len(told), told[-1]["why"]) == (51, "and 4950 more")
