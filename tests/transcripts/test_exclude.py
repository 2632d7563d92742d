"""Excluded: a keep under way when the rule comes leaves nothing behind; a removal that is cut short is finished."""

from __future__ import annotations

import errno
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from keeper.transcripts.exclude import Exclusion
from keeper.transcripts.keep import Keeper, Options
from keeper.transcripts.rules import Rule
from tests.build import CWD, append, jsonl, session_id, talk, write_live
from tests.chat import write_whole
from tests.seam import World, failing, hooked, killed_at, names_of_ours, state_of, world

SECRET = Rule.of({"cwd": f"{CWD}/**"})


@pytest.fixture
def here(profile: Path, vault_home: Path, tmp_path: Path) -> World:
    return world(profile, vault_home, tmp_path / "state")


def exclude(here: World, rule: Rule = SECRET) -> list[str]:
    """What `keeper exclude add --yes` does; the chats that went."""
    vault = here.vault()
    exclusion = Exclusion(vault)
    exclusion.say("add", rule, time.time())
    gone = exclusion.apply()
    vault.index.close()
    return [one.chat for one in gone]


def include(here: World, rule: Rule = SECRET) -> None:
    Exclusion(here.vault()).say("remove", rule, time.time())


def traces(here: World, session: str) -> list[str]:
    """Whatever of the vault has the session's name or a line of it, but for the locks and the log of what went."""
    found = []
    for path in here.root.rglob("*"):
        named = session in path.name and path.suffix != ".lock"
        if named or (path.is_file() and path.suffix == ".jsonl" and b"prompt a" in path.read_bytes()):
            found.append(str(path.relative_to(here.root)))
    return found


def in_flight(here: World, keep: Callable[[World], object], ready: Callable[[World], object]) -> None:
    """At each step of a keep a rule is added by another one, who then waits for the lock, as processes do."""
    first = here.about(session_id(900))
    ready(first)
    keep(first)  # which makes the vault
    exclude(here)
    include(here)
    for number in range(100):
        view = here.about(session_id(1000 + number))
        ready(view)
        said = threading.Event()
        steps, others = [0], list[threading.Thread]()

        def add(said: threading.Event = said) -> None:
            exclusion = Exclusion(here.vault())
            exclusion.say("add", SECRET, time.time())
            said.set()
            exclusion.apply()

        def hook(
            call: str, paths: tuple[str, ...], number: int = number, steps: list[int] = steps,
            others: list[threading.Thread] = others, said: threading.Event = said,
            add: Callable[[], None] = add,
        ) -> None:  # fmt: skip
            if others and threading.current_thread() is others[0]:
                return
            steps[0] += 1
            if steps[0] == number + 1:
                others.append(threading.Thread(target=add))
                others[0].start()
                said.wait()
                time.sleep(0.02)  # so that it looks for chats while this one is half made

        with hooked(hook):
            keep(view)
        if not others:
            break
        others[0].join()
        assert traces(here, view.session) == [], f"left behind by a keep that was at its step {number}"
        assert here.vault().rows() == []
        include(here)
        assert view.keep().action == "linked", f"not kept again after step {number}"
        exclude(here)
        include(here)
    assert number > 10, "there were fewer steps than a keep has"


@pytest.mark.accepts("POLICY-2", "KEEP-10")
def test_a_first_keep_in_flight_leaves_nothing_behind_at_whatever_step_the_rule_comes(here: World) -> None:
    def ready(view: World) -> None:
        write_live(view.profile, CWD, view.session, jsonl(*talk("abcd", view.session)))
        (view.companion / "tool-results").mkdir(parents=True)
        (view.companion / "tool-results" / "x.txt").write_bytes(b"out")

    in_flight(here, lambda view: view.keep(), ready)


@pytest.mark.accepts("POLICY-2", "KEEP-10")
def test_a_later_keep_in_flight_leaves_nothing_behind_either(here: World) -> None:
    def ready(view: World) -> None:
        write_live(view.profile, CWD, view.session, jsonl(*talk("abcd", view.session)))
        view.keep()
        write_live(view.profile, CWD, view.session, jsonl(*talk("xy", view.session, parent="d")))

    in_flight(here, lambda view: view.keep(), ready)


@pytest.mark.accepts("POLICY-2", "KEEP-11")
def test_a_chat_that_went_before_its_rows_were_written_counts_as_excluded_and_not_as_removed_by_hand(
    here: World,
) -> None:
    write_live(here.profile, CWD, here.session, jsonl(*talk("ab")))
    keeper = Keeper(here.vault(), time.time())
    keeper.session(here.profile, here.session)
    assert exclude(here) == [here.session]
    keeper.finish()
    assert here.vault().rows() == []
    include(here)
    assert here.keep().action == "linked"
    assert not (here.root / "tombstones.jsonl").exists()


@pytest.mark.accepts("POLICY-2", "KEEP-11")
def test_a_forgotten_chat_stays_so_when_a_rule_that_met_it_is_gone(here: World) -> None:
    from keeper.transcripts.forget import forget

    write_live(here.profile, CWD, here.session, jsonl(*talk("ab")))
    here.keep()
    forget(here.vault(), here.session, time.time())
    exclude(here)
    assert here.keep(Options(adopt=True)).verdict == "excluded"
    include(here)
    assert here.keep().verdict == "forgotten"
    assert here.keep(Options(adopt=True)).action == "linked"


@pytest.mark.accepts("POLICY-2", "FAULT-1")
def test_a_removal_that_is_killed_anywhere_is_brought_to_its_end_by_the_next_run(here: World) -> None:
    def ready(number: int) -> World:
        view = here.about(session_id(number))
        write_whole(view.profile, view.session)
        view.keep()
        append(view.live, jsonl(*talk("ef", view.session, parent="d")))
        view.keep()
        return view

    number, killed = 0, True
    while killed:
        view = ready(100 + number)
        was = state_of(here.profile)
        killed = killed_at(number, lambda: exclude(here))
        view.keep()
        Keeper(here.vault(), time.time())
        if Exclusion(here.vault()).rules():
            assert traces(here, view.session) == [], f"left behind by a kill at step {number}"
        assert state_of(here.profile) == was, f"a live file was touched, with a kill at step {number}"
        include(here)
        view.keep()
        assert view.kept.samefile(view.live), f"not kept again after a kill at step {number}"
        exclude(here)
        include(here)
        view.live.unlink()
        number += 1
    assert number > 9


@pytest.mark.accepts("POLICY-2", "FAULT-4")
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_removal_that_the_disk_refuses_is_noted_and_done_by_the_next_run(here: World, code: int) -> None:
    def run() -> list[str]:
        vault = here.vault()
        Exclusion(vault).apply()
        return vault.notes

    write_whole(here.profile, here.session)
    here.keep()
    Exclusion(here.vault()).say("add", SECRET, time.time())
    was = state_of(here.profile)
    number = 0
    while True:
        calls = 0

        def hook(call: str, paths: tuple[str, ...]) -> None:
            nonlocal calls
            calls += 1

        with hooked(failing(number, code, hook)):
            notes = run()
        if calls <= number and not notes:
            break
        assert state_of(here.profile) == was
        Keeper(here.vault(), time.time())
        assert traces(here, here.session) == [], f"still there after a failure of step {number}"
        include(here)
        here.keep()
        assert here.kept.samefile(here.live), f"not kept again after a failure of step {number}"
        Exclusion(here.vault()).say("add", SECRET, time.time())
        number += 1
    assert number > 5
    assert names_of_ours(here.profile) == []


@pytest.mark.accepts("POLICY-2")
def test_one_chat_whose_lock_is_held_stops_no_other_and_goes_by_the_next_run(here: World) -> None:
    one, two = here.about(session_id(1)), here.about(session_id(2))
    for view in (one, two):
        write_live(view.profile, CWD, view.session, jsonl(*talk("ab", view.session)))
        view.keep()
    hasty = world(here.profile, here.root, here.settings.state_home, lock_wait_s=0.05)
    with here.vault().lock(one.session):
        assert exclude(hasty) == [two.session]
        assert one.kept.exists()
    here.keep_all()
    assert not one.chat.exists()


@pytest.mark.accepts("POLICY-1")
def test_a_continuation_that_alone_is_excluded_costs_the_chat_that_it_goes_on_with_nothing(here: World) -> None:
    """CLI 1.0.124: a file none of whose records carries its own id goes on with the session that they name."""
    whole, more = here, here.about(session_id(2))
    write_live(here.profile, CWD, whole.session, jsonl(*talk("ab", whole.session)))
    whole.keep()
    exclude(here, Rule.of({"session": more.session}))
    write_live(here.profile, CWD, more.session, jsonl(*talk("cd", whole.session, parent="b")))
    assert more.keep().verdict == "excluded"
    assert whole.kept.exists()
    exclude(here, Rule.of({"session": whole.session}))
    assert not whole.chat.exists()
    assert more.keep().verdict == "excluded"
    include(here, Rule.of({"session": more.session}))
    assert more.keep().verdict == "excluded", "it goes on with one that is excluded"
    assert traces(here, more.session) == []


@pytest.mark.accepts("POLICY-1")
def test_subagents_and_extras_of_an_excluded_chat_are_not_kept_on_their_own(here: World) -> None:
    exclude(here)
    write_whole(here.profile, here.session)
    was = state_of(here.profile)
    here.keep_all()
    assert traces(here, here.session) == []
    here.live.unlink()
    here.keep_all()
    assert traces(here, here.session) == []
    assert {path: what for path, what in was.items() if path != str(here.live)} == state_of(here.profile)


@pytest.mark.accepts("POLICY-1", "KEEP-11")
def test_a_kept_transcript_that_a_killed_keep_told_nothing_of_is_judged_by_its_own_records(here: World) -> None:
    write_live(here.profile, CWD, here.session, jsonl(*talk("ab")))
    here.keep()
    (here.chat / "chat.json").unlink()
    (here.root / "state.db").unlink()
    here.live.unlink()
    assert exclude(here) == [here.session]
    assert traces(here, here.session) == []


@pytest.mark.accepts("POLICY-1", "RESTORE-2")
def test_a_mass_restore_gives_an_excluded_chat_of_the_same_project_no_new_time(here: World) -> None:
    from keeper.transcripts.mass import restore_all
    from keeper.transcripts.restore import Restorer, Want

    kept, out = here.about(session_id(1)), here.about(session_id(2))
    for view in (kept, out):
        write_whole(view.profile, view.session)
    exclude(here, Rule.of({"session": out.session}))
    kept.keep()
    was = state_of(out.live, out.companion)
    kept.live.unlink()
    vault = here.vault()
    restorer = Restorer(vault, time.time_ns(), Want())
    assert [one.action for one in restore_all(restorer, vault.rows())] == ["restored"]
    assert kept.live.exists()
    assert state_of(out.live, out.companion) == was


@pytest.mark.accepts("KEEP-11", "POLICY-2")
def test_a_folder_that_a_hand_removes_is_forgotten_though_its_chat_was_excluded_once_and_the_index_lost(
    here: World,
) -> None:
    for number in range(1, 20):
        view = here.about(session_id(number))
        write_live(view.profile, CWD if number == 1 else "/srv/open", view.session, jsonl(*talk("ab", view.session)))
    here.keep_all()
    exclude(here)
    include(here)
    assert here.keep().action == "linked"
    (here.root / "state.db").unlink()
    here.keep_all()
    shutil.rmtree(here.chat)
    assert here.keep_all()[here.session].verdict == "forgotten"


@pytest.mark.accepts("POLICY-3", "FAULT-1")
@pytest.mark.parametrize("call", ["mkdir", "replace"])
def test_the_log_tells_of_no_removal_that_could_not_be_done(here: World, call: str) -> None:
    write_live(here.profile, CWD, here.session, jsonl(*talk("ab")))
    here.keep()
    Exclusion(here.vault()).say("add", SECRET, time.time())

    def refuse(name: str, paths: tuple[str, ...]) -> None:
        if name == call and any("/going" in path for path in paths):
            raise OSError(errno.EDQUOT, "no room")

    for _ in range(2):
        vault = here.vault()
        with hooked(refuse):
            assert Exclusion(vault).apply() == []
        assert here.kept.is_file()
        assert vault.removals.read() == here.vault().removals.read() == []
    assert [one.chat for one in Exclusion(vault).apply()] == [here.session]
    assert [one["chat"] for one in vault.removals.read()] == [here.session]
