"""What a doctor makes of facts: each thing that is wrong is a check with its state, its words and the line that cures
it; and how the facts are read where no command stands in between."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest

from keeper.cli.main import group
from keeper.doctor import history, judge, machine
from keeper.doctor.chats import NAMES
from keeper.doctor.check import FAIL, OK, WARN, Check, worst_first
from keeper.doctor.facts import (
    Agent,
    Doors,
    Facts,
    Hooks,
    Inotify,
    Live,
    Lost,
    Profile,
    Service,
    Shim,
    Told,
    Trial,
    VaultFacts,
)
from keeper.doors.hook import EVENTS
from keeper.retention import DAY_S, Retention, Source, forecast
from keeper.transcripts.describe import State
from keeper.transcripts.verdict import Verdict
from tests.build import session_id
from tests.chat import put

NOW = 1_800_000_000.0
S, T, U = session_id(1), session_id(2), session_id(3)
SETTINGS = "/home/a/.claude/settings.json"
WELL_AGENT = Agent(True, pid=77, since=NOW - DAY_S, ready=True, hooked=NOW - 60, watches=12)
WELL_HOOKS = Hooks("/home/a/.claude", SETTINGS, EVENTS, ())
WELL_SHIM = Shim("/home/a/shim/claude", True, True, True, "/usr/bin/claude")
WELL_SERVICE = Service(True, "/home/a/units/keeper.service", True, "active")


def live(session: str = S, days: float = 1, **more: Any) -> Live:
    """A live chat that is kept and sealed, last changed so many days ago."""
    then = NOW - days * DAY_S
    path = f"/home/a/.claude/projects/p/{session}.jsonl"
    return replace(Live(session, "/home/a/.claude", path, then, then, 1_000, sealed=then), **more)


def profile(*lives: Live, days: float = 60, sources: Iterable[Source] | None = None, **more: Any) -> Profile:
    """A profile whose user has said 60 days, as its sources say else."""
    told = (Source(SETTINGS, "user", 60.0),) if sources is None else tuple(sources)
    file = next((one.file for one in told if one.days == days), "")
    times = {one.session: one.changed for one in lives}
    plan = forecast(times, days, NOW - 60, [], NOW)
    found = Profile(
        "/home/a/.claude", lives, Retention(days, file), told, NOW - 60, plan, "/home/a/.claude/history.jsonl"
    )
    return replace(found, **{"device": 1, "kind": "ext4", "versions": ("2.1.328",), "folders": 9, **more})


def facts(*lives: Live, **more: Any) -> Facts:
    """All is well, but for what is said."""
    doors = Doors(WELL_AGENT, (WELL_HOOKS,), WELL_SHIM, WELL_SERVICE)
    vault = VaultFacts(
        "/home/a/vault", chats=3, device=1, kind="ext4", free=1 << 40, free_files=1 << 20, born=NOW - 9e6
    )
    well = Facts(NOW, vault, (profile(*lives),), doors, Inotify(1 << 19, 1 << 10, 1 << 14))
    return replace(well, **more)


def doors(**more: Any) -> Doors:
    return replace(facts().doors, **more)


def vault(**more: Any) -> VaultFacts:
    return replace(facts().vault, **more)


def judged(found: Facts) -> list[Check]:
    return judge.checks(found, lambda kind: kind in ("nfs4", "9p"))


def only(found: Facts, name: str) -> Check:
    (check,) = [one for one in judged(found) if one.name == name]
    return check


def wrong(found: Facts) -> list[tuple[str, str]]:
    """Name and state of all that is not as it should be."""
    return [(check.name, check.state) for check in judged(found) if check.state != OK]


# --- the whole ----------------------------------------------------------------------------------------------


def test_where_all_is_well_nothing_is_told_but_that_and_the_exit_code_is_0() -> None:
    found = judged(facts(live(), live(T, 20)))
    assert {check.state for check in found} == {OK}
    assert judge.exit_code(found) == 0
    names = ["capture", "agent", "hooks", "shim", "service", "vault", "retention", "sweep", "claude", "volume", "space"]
    assert [check.name for check in found][: len(names)] == names


def test_a_warning_alone_is_no_failure_and_a_failure_is_one_whatever_else_is_well() -> None:
    assert judge.exit_code([Check("a", OK, ""), Check("b", WARN, "")]) == 0
    assert judge.exit_code([Check("a", OK, ""), Check("b", FAIL, "")]) == 1


def test_the_worst_comes_first_and_each_kind_in_the_order_in_which_it_was_found() -> None:
    given = [Check("a", OK, ""), Check("b", WARN, ""), Check("c", FAIL, ""), Check("d", WARN, ""), Check("e", FAIL, "")]
    assert [check.name for check in worst_first(given)] == ["c", "e", "b", "d", "a"]


# --- capture ------------------------------------------------------------------------------------------------


def test_a_live_chat_without_a_kept_copy_is_a_failure_with_how_long_whatever_runs() -> None:
    found = facts(live(), live(T, 3, kept=False), live(U, 2 / 24, kept=False))
    check = only(found, "capture")
    assert (check.state, check.cure) == (FAIL, "keeper keep")
    assert check.detail.startswith(f"2 live chats of 3 not kept, or not to their end; the newest, {U}, for 2 hours")


def test_one_that_is_new_a_forgotten_one_and_noise_are_none() -> None:
    new = live(T, 0, kept=False)
    assert only(facts(live(), new), "capture").detail.startswith("1 of 2 live chats kept, 1 new one on the way")
    for left in (live(T, 3, kept=False, forgotten=True), live(T, 3, kept=False, excluded=True)):
        assert wrong(facts(live(), left)) == []
    assert wrong(facts(live(), live(T, 3, kept=False, chat=False))) == []


def test_what_grew_and_is_not_sealed_is_told_once_it_cannot_be_on_its_way() -> None:
    assert wrong(facts(live(days=1 / 1440, lag=500))) == []
    check = only(facts(live(days=2, lag=5_000, sealed=NOW - 3 * DAY_S)), "capture")
    assert check.state == WARN
    assert "5 KiB" in check.detail
    assert S in check.detail


@pytest.mark.parametrize(
    ("agent", "hooks", "state", "says", "cure"),
    [
        (Agent(last=NOW - DAY_S), WELL_HOOKS, WARN, "hooks alone keep", "systemctl --user restart keeper.service"),
        (Agent(), WELL_HOOKS, WARN, "no agent has run for this vault yet", "systemctl"),
        (Agent(), replace(WELL_HOOKS, events=(), missing=EVENTS), FAIL, "no hook keeps instead", "systemctl"),
        (Agent(), replace(WELL_HOOKS, missing=("Stop",)), FAIL, "no hook keeps instead", "systemctl"),
        (Agent(), replace(WELL_HOOKS, disabled="`disableAllHooks` in /x"), FAIL, "no hook keeps", "systemctl"),
        (Agent(silent=True, pid=9), WELL_HOOKS, FAIL, "process 9 runs and does not answer", "kill 9; systemctl"),
        (replace(WELL_AGENT, ready=False), WELL_HOOKS, WARN, "first look", ""),
    ],
)
def test_an_agent_that_does_not_run_is_told_with_what_keeps_instead(
    agent: Agent, hooks: Hooks, state: str, says: str, cure: str
) -> None:
    check = only(facts(doors=doors(agent=agent, hooks=(hooks,))), "agent")
    assert check.state == state
    assert says in check.detail
    assert check.cure.startswith(cure)


@pytest.mark.parametrize(
    ("what", "state"),
    [
        (f"keep: {S}", FAIL),
        ("look: /home/a", FAIL),
        ("reconcile", FAIL),
        ("pass: stuck", FAIL),
        ("watch: overflow", WARN),
        ("seal: room", WARN),
        ("settings", WARN),
    ],
)
def test_each_trouble_of_the_agent_is_told_with_its_reason_and_since_when(what: str, state: str) -> None:
    agent = replace(WELL_AGENT, degraded=(Told(what, "the reason", NOW - 3600), Told("watch: x", "other", NOW)))
    first, _ = [check for check in judged(facts(doors=doors(agent=agent))) if check.name == "agent"]
    assert first.state == state
    assert what in first.detail
    assert "the reason" in first.detail
    assert "degraded since 20" in first.detail


@pytest.mark.accepts("AGENT-4")
def test_a_mass_deletion_of_the_last_day_is_one_named_check_and_an_older_one_is_history() -> None:
    def at(when: float) -> list[tuple[str, str]]:
        event = Told("mass deletion", "1000 names went at once from /home/a/.claude", when)
        return wrong(facts(doors=doors(agent=replace(WELL_AGENT, events=(event,)))))

    assert at(NOW - 3600) == [("mass deletion", WARN)]
    assert at(NOW - 2 * DAY_S) == []


@pytest.mark.parametrize(
    ("hooks", "says", "cure"),
    [
        (replace(WELL_HOOKS, events=(), missing=EVENTS), "no hook of keeper's", "keeper hooks install"),
        (replace(WELL_HOOKS, missing=("Stop", "PreCompact")), "lacks Stop, PreCompact", "keeper hooks install"),
        (replace(WELL_HOOKS, disabled=f"`disableAllHooks` in {SETTINGS}"), "disableAllHooks", "keeper doctor --mend"),
        (replace(WELL_HOOKS, disabled="`allowManagedHooksOnly` in /etc/x.json"), "allowManaged", "grep -n allowM"),
        (replace(WELL_HOOKS, events=(), missing=EVENTS, error="is no JSON"), "is no JSON", "python3 -m json.tool"),
    ],
)
def test_hooks_that_are_not_called_are_told_with_what_puts_them_in(hooks: Hooks, says: str, cure: str) -> None:
    check = only(facts(doors=doors(hooks=(hooks,))), "hooks")
    assert check.state == WARN
    assert says in check.detail
    assert check.cure.startswith(cure)


def test_hooks_that_stand_there_and_do_not_call_are_told() -> None:
    """A Claude that ran before they were put in calls none."""
    uncalled = replace(WELL_AGENT, hooked=None)
    quiet = facts(live(days=0.1), doors=doors(agent=uncalled))
    assert only(quiet, "hooks").state == WARN
    long_ago = replace(WELL_AGENT, hooked=NOW - 0.5 * DAY_S)
    assert only(facts(live(days=0.1), doors=doors(agent=long_ago)), "hooks").state == WARN
    assert only(facts(live(days=2), doors=doors(agent=uncalled)), "hooks").state == OK, "nobody wrote since"
    assert only(facts(live(days=0.1)), "hooks").state == OK


def test_a_hook_that_failed_today_is_told_by_its_log() -> None:
    found = facts(doors=doors(hook_log=NOW - 60, hook_log_file="/home/a/state/hook.log"))
    assert only(found, "hook log").cure == "tail -n 5 /home/a/state/hook.log"
    assert wrong(facts(doors=doors(hook_log=NOW - 3 * DAY_S))) == []


@pytest.mark.parametrize(
    ("shim", "cure"),
    [
        (replace(WELL_SHIM, installed=False), "keeper shim install"),
        (replace(WELL_SHIM, real=""), "keeper shim status"),
        (replace(WELL_SHIM, first=False, advice=("put this",)), 'export PATH=/home/a/shim:"$PATH"'),
        (replace(WELL_SHIM, current=False), "keeper shim install"),
    ],
)
def test_a_shim_that_is_not_used_is_told(shim: Shim, cure: str) -> None:
    check = only(facts(doors=doors(shim=shim)), "shim")
    assert (check.state, check.cure) == (WARN, cure)


@pytest.mark.parametrize(
    ("service", "agent", "state", "cure"),
    [
        (Service(False, "", False, ""), WELL_AGENT, OK, ""),
        (Service(False, "", False, ""), Agent(), WARN, "keeper run"),
        (replace(WELL_SERVICE, installed=False, active="inactive"), WELL_AGENT, WARN, "keeper service install"),
        (replace(WELL_SERVICE, active="failed"), Agent(), FAIL, "systemctl --user restart keeper.service"),
        (replace(WELL_SERVICE, active="inactive"), WELL_AGENT, OK, ""),
        (replace(WELL_SERVICE, ends=True), WELL_AGENT, WARN, "loginctl enable-linger"),
    ],
)
def test_what_starts_the_agent_is_told(service: Service, agent: Agent, state: str, cure: str) -> None:
    check = only(facts(doors=doors(service=service, agent=agent)), "service")
    assert (check.state, check.cure) == (state, cure)


# --- sweeps -------------------------------------------------------------------------------------------------

PROJECT = Source("/proj/x/.claude/settings.json", "project", 2.0, "", "/proj/x")
USER = Source(SETTINGS, "user", 60.0)


@pytest.mark.accepts("POLICY-6")
@pytest.mark.parametrize(
    ("sources", "days", "state", "says"),
    [
        (
            [USER, PROJECT],
            2,
            FAIL,
            "2 days by /proj/x/.claude/settings.json, beside your own 60: a Claude started in /p",
        ),
        ([PROJECT], 2, FAIL, "beside Claude's default of 30"),
        ([USER, replace(PROJECT, scope="local")], 2, FAIL, "2 days by /proj/x"),
        ([replace(USER, days=2.0), replace(PROJECT, days=2.0)], 2, WARN, f"2 days by your own {SETTINGS}"),
        ([replace(USER, days=30.0)], 30, OK, "30 days by your own"),
        ([Source("/etc/m.json", "managed", 7.0)], 7, WARN, "7 days by an administrator's /etc/m.json"),
        ([], 30, OK, "30 days, Claude's default"),
    ],
)
def test_the_smallest_period_is_told_with_its_file_and_fails_where_nobody_chose_it_for_all(
    sources: list[Source], days: float, state: str, says: str
) -> None:
    check = only(facts(profiles=(profile(days=days, sources=sources),)), "retention")
    assert check.state == state
    assert says in check.detail
    assert check.cure.startswith("keeper doctor --mend ") == (state != OK)


@pytest.mark.accepts("FIT-9", "POLICY-6")
@pytest.mark.parametrize(("version", "state"), [("2.1.328", WARN), ("2.1.85", FAIL), ("2.1.92", WARN)])
def test_a_period_of_0_is_always_warned_of_and_a_large_number_offered(version: str, state: str) -> None:
    zero = Source(PROJECT.file, "project", None, "zero", "/proj/x")
    found = facts(profiles=(profile(live(), sources=[USER, zero], versions=(version,)),))
    check = only(found, "retention 0")
    assert check.state == state
    assert "up to 2.1.85 Claude wipes every chat of every project" in check.detail
    assert zero.file in check.detail
    assert check.cure == f"keeper doctor --mend {zero.file}"
    told = judge.answer(found, judged(found))
    wipes = state == FAIL
    assert (told["retention"]["days"], told["sweep"]["chats"]) == ((0, [S]) if wipes else (60, []))
    assert told["retention"]["file"] == (zero.file if wipes else SETTINGS)


def test_a_value_that_is_none_and_a_file_that_does_not_read_are_told() -> None:
    odd, broken = Source("/work/o.json", "local", None, "odd"), Source("/work/b.json", "project", None, "unreadable")
    found = [
        check for check in judged(facts(profiles=(profile(sources=[USER, odd, broken]),))) if check.name == "settings"
    ]
    assert [(check.state, check.cure.split()[0]) for check in found] == [(WARN, "keeper"), (WARN, "python3")]
    assert ["/work/o.json" in found[0].detail, "/work/b.json" in found[1].detail] == [True, True]


@pytest.mark.accepts("POLICY-6")
def test_the_next_sweep_is_a_failure_where_it_takes_what_is_not_kept_and_a_warning_where_all_is() -> None:
    old, older = live(S, 70), live(T, 80)
    kept = facts(live(U), older, old)
    assert only(kept, "sweep").state == WARN
    assert "takes 2 chats of 3, all of them kept" in only(kept, "sweep").detail
    told = judge.answer(kept, [])["sweep"]
    assert (told["chats"], told["kept"]) == ([T, S], {T: True, S: True})
    assert told["due"][U] == NOW + 59 * DAY_S
    at_risk = only(facts(live(U), older, replace(old, kept=False)), "sweep")
    assert (at_risk.state, at_risk.cure) == (FAIL, "keeper keep")
    assert S in at_risk.detail
    assert T not in at_risk.detail
    assert only(facts(replace(old, kept=False, forgotten=True)), "sweep").state == WARN
    none = only(facts(live()), "sweep")
    assert "takes none of 1 chat, the first is due in 59 days" in none.detail


@pytest.mark.accepts("RESTORE-9")
def test_chats_that_are_lost_are_counted_with_where_their_prompts_are() -> None:
    gone = (Lost(S, "/home/a/.claude", 3, NOW), Lost(T, "/home/a/.claude", 1, 0.0))
    found = facts(profiles=(profile(lost=gone),))
    check = only(found, "lost")
    assert (check.state, check.cure) == (WARN, f"keeper resume {S} --prompts")
    for part in ("2 chats", "4 prompts", "/home/a/.claude/history.jsonl", S, T):
        assert part in check.detail
    assert [one["session"] for one in judge.answer(found, [])["lost"]] == [S, T]


@pytest.mark.parametrize(
    ("wrote", "installed", "state", "says"),
    [
        (("2.1.328",), (), OK, "in use: 2.1.328"),
        (("2.1.40", "2.1.328"), (), WARN, "2.1.40, beside 2.1.328: up to 2.1.40 a sweep runs the moment it starts"),
        (("2.1.328",), (("/opt/claude", "2.0.76"),), WARN, "2.0.76 (/opt/claude), beside 2.1.328"),
        (("2.1.9",), (), WARN, "2.1.9: up to"),
    ],
)
def test_a_version_that_sweeps_as_it_starts_is_told(
    wrote: tuple[str, ...], installed: tuple[tuple[str, str], ...], state: str, says: str
) -> None:
    check = only(facts(profiles=(profile(versions=wrote),), installed=installed), "claude")
    assert check.state == state
    assert says in check.detail


# --- chats --------------------------------------------------------------------------------------------------


@pytest.mark.accepts("SEAL-7")
def test_damage_is_named_with_what_was_lost_when_and_the_command_that_folds_it_back() -> None:
    damaged = State(S, "damaged", 5, "2026-01-02T03:04:05+00:00", f"keeper restore {S} --full")
    other = replace(damaged, session=T, lost=1)
    found = [one for one in judged(facts(vault=vault(states=(damaged, other)))) if one.name == "damaged"]
    assert [(one.state, one.cure) for one in found] == [(FAIL, damaged.cure), (FAIL, other.cure)]
    for part in (S, "5 records", "2026-01-02T03:04:05", f"keeper accept {S}"):
        assert part in found[0].detail


@pytest.mark.accepts("SEAL-7")
def test_damage_that_no_keep_has_met_yet_is_named_too_and_once() -> None:
    seen = live(verdict="damaged", lost=2)
    check = only(facts(seen), "damaged")
    assert (check.state, check.cure) == (FAIL, f"keeper keep {S}; keeper restore {S} --full")
    assert "2 records" in check.detail
    noted = State(S, "damaged", 5, "2026-01-02", f"keeper restore {S} --full")
    assert only(facts(seen, vault=vault(states=(noted,))), "damaged").cure == noted.cure


@pytest.mark.parametrize(
    ("state", "name", "told", "cure"),
    [
        (Verdict.PARTIAL, "stub", WARN, f"keeper restore {S}"),
        (Verdict.EMPTY, "empty", WARN, f"keeper restore {S}"),
        (Verdict.WAITING, "waiting", WARN, f"keeper restore {S}"),
        (Verdict.BEHIND, "behind", WARN, f"keeper restore {S}"),
        (Verdict.THINNED, "thinned", WARN, f"keeper restore {S} --full"),
        (Verdict.TRIMMED, "trimmed", OK, f"keeper restore {S} --full"),
        (Verdict.DIVERGED, "diverged", WARN, f"keeper restore {S} --branch leaf-1 && keeper accept {S}"),
        (Verdict.DOUBLED, "doubled", WARN, ""),
        (Verdict.UNMERGEABLE, "unmergeable", OK, ""),
    ],
)
def test_each_state_of_a_chat_is_named_with_the_command_that_mends_it(
    state: Verdict, name: str, told: str, cure: str
) -> None:
    stored = vault(states=(State(S, str(state)),), leaves={S: "leaf-1"}, places={S: ("/p/a", "/p/b")})
    check = only(facts(vault=stored), name)
    assert (check.state, check.cure) == (told, cure)
    assert S in check.detail
    if state not in (Verdict.DIVERGED, Verdict.DOUBLED):
        assert only(facts(live(verdict=str(state))), name).cure == cure
        assert only(facts(live(verdict=str(state)), vault=stored), name).cure == cure, "it is told once"


def test_every_verdict_that_is_a_state_has_words() -> None:
    without = {Verdict.ABSENT, Verdict.SAME, Verdict.AHEAD, Verdict.TOMBSTONED}
    for state in set(Verdict) - without:
        found = [check for check in judged(facts(vault=vault(states=(State(S, str(state)),)))) if S in check.detail]
        assert len(found) == 1, state


def test_a_vault_that_cannot_be_used_is_a_failure_and_nothing_is_said_of_what_it_holds() -> None:
    lost = vault(error="the vault is not there: mount it")
    found = facts(live(days=70, kept=False), vault=lost)
    assert [(check.name, check.state, check.cure) for check in judged(found) if check.state == FAIL] == [
        ("capture", FAIL, ""),
        ("vault", FAIL, ""),
    ]
    assert "mount it" in only(found, "vault").detail
    assert only(found, "sweep").state == WARN


def test_where_nobody_knows_which_vault_it_is_the_settings_alone_fail() -> None:
    doubt = VaultFacts("", made=False, error="which vault it is cannot be told: x", unknown=True)
    told = live(days=70, kept=None)
    found = facts(told, vault=doubt, settings_error="x", settings_file="/home/a/k.toml", doors=doors(agent=Agent()))
    assert [check.name for check in judged(found) if check.state == FAIL] == ["config"]
    assert only(found, "config").cure == "${EDITOR:-vi} /home/a/k.toml"
    assert judge.answer(found, [])["sweep"]["kept"] == {S: None}


def test_a_profile_that_cannot_be_looked_at_is_a_failure_and_not_one_in_which_nothing_lives() -> None:
    found = facts(profiles=(profile(unread="cannot use /home/a/.claude/projects"),))
    assert wrong(found) == [("capture", FAIL), ("sweep", FAIL)]


def test_a_live_chat_whose_folder_is_missing_is_one_failure_and_no_cure_on_the_page_has_it_forgotten() -> None:
    gone = live(days=70, kept=False, missing=True)
    others = [live(session_id(number)) for number in range(10, 30)]
    one = facts(gone, live(T, 70, kept=False), *others, vault=vault(missing=(S,), chats=20))
    assert only(one, "missing") == Check(
        "missing", FAIL, f"{S}: the folder was removed by hand; the next keep forgets it, though it lives: {S}",
        f"keeper keep --adopt {S} --profile /home/a/.claude",
    )  # fmt: skip
    assert "1 live chat of 21 not kept" in only(one, "capture").detail, "and the other one has another cure"
    assert S not in only(one, "sweep").detail
    many = facts(gone, live(T, 70, kept=False), *others, vault=vault(missing=(S, T, U), chats=2))
    assert only(many, "missing").state == FAIL
    for found in (one, many):
        assert not [check.name for check in judged(found) if check.cure == "keeper keep"]


def test_the_same_id_in_two_profiles_is_kept_only_where_both_are_and_due_when_the_first_is() -> None:
    here, there = profile(live(days=3)), profile(live(days=5, kept=False), path="/home/a/.claude-2")
    for profiles in ((here, there), (there, here)):
        told = judge.answer(facts(profiles=profiles), [])["sweep"]
        assert told["due"] == {S: NOW + 55 * DAY_S}
    swept = (replace(here, forecast=forecast({S: 0.0}, 1, NOW, [], NOW)), there)
    swept = (swept[0], replace(there, forecast=swept[0].forecast))
    for profiles in (swept, swept[::-1]):
        assert judge.answer(facts(profiles=profiles), [])["sweep"]["kept"] == {S: False}


def test_a_state_of_a_session_that_several_chats_have_is_told_with_the_profile_that_tells_it_apart() -> None:
    for state in (Verdict.BEHIND, Verdict.DIVERGED, Verdict.DAMAGED):
        mine = State(S, str(state), cure=f"keeper restore {S} --profile '/p q' --full", profile="/p q")
        check = only(facts(vault=vault(states=(mine,), leaves={S: "b"})), NAMES.get(state, str(state)))
        for line in (check.cure, *check.detail.split("`")[1::2]):
            assert f"{S} --profile '/p q'" in line


@pytest.mark.parametrize(
    ("given", "name", "state", "cure"),
    [
        ({"made": False}, "vault", WARN, "keeper keep"),
        ({"index_lost": True}, "index", WARN, "keeper reindex"),
        ({"missing": (S,)}, "missing", WARN, ""),
        ({"missing": (S, T)}, "missing", FAIL, ""),
        ({"missing": tuple(map(session_id, range(6))), "chats": 500}, "missing", FAIL, ""),
        ({"missing": (S, T), "chats": 500}, "missing", WARN, ""),
        ({"closed": ("/home/a/vault/chats",)}, "modes", FAIL, "chmod u+rwx /home/a/vault/chats"),
        ({"closed": ("/home/a/vault/chats",)}, "capture", FAIL, ""),
        ({"foreign": ("/home/a/vault/chats",)}, "capture", FAIL, ""),
        ({"foreign": ("/home/a/vault/chats",)}, "modes", FAIL, 'sudo chown -R "$(id -un)" /home/a/vault'),
        ({"mode": 0o750}, "modes", FAIL, "chmod 700 /home/a/vault"),
        ({"open_folders": ("/home/a/vault/chats/x",)}, "modes", WARN, "chmod go-rwx /home/a/vault/chats/x"),
        ({"free": 1 << 20}, "space", FAIL, "df -h /home/a/vault"),
        ({"read_only": True}, "space", FAIL, "findmnt -T /home/a/vault"),
        ({"free_files": 3}, "space", WARN, "df -i /home/a/vault"),
        ({"free_files": None}, "space", OK, ""),
        ({"device": 2}, "volume", WARN, "df /home/a/.claude /home/a/vault"),
        ({"kind": "nfs4"}, "network", WARN, "findmnt -T /home/a/vault"),
        ({"born": NOW + 3600}, "clock", FAIL, "timedatectl"),
    ],
)
def test_what_is_wrong_with_the_vault_is_told(given: dict[str, Any], name: str, state: str, cure: str) -> None:
    check = only(facts(vault=vault(**given)), name)
    assert (check.state, check.cure) == (state, cure)


def test_room_is_wanted_for_what_is_still_to_be_kept() -> None:
    waits = live(kept=False, size=1 << 30, days=0)
    assert only(facts(waits, vault=vault(free=200 << 20)), "space").state == WARN
    assert only(facts(waits, vault=vault(free=500 << 20)), "space").state == OK
    assert only(facts(waits, vault=vault(free=500 << 20, device=2)), "space").state == WARN, "a copy takes its own room"


def test_files_from_the_future_tell_of_a_clock_that_was_set_back() -> None:
    check = only(facts(live(), live(T, -2)), "clock")
    assert check.state == WARN
    assert T in check.detail
    assert S not in check.detail


# --- the machine --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "name", "state"),
    [
        (Inotify(8, 9, 9), "inotify watches", WARN),
        (Inotify(100, 9, 99, used_watches=95), "inotify watches", WARN),
        (Inotify(100, 9, 99, used_watches=60), "inotify watches", WARN),
        (Inotify(100, 9, 99, used_watches=20), "inotify watches", OK),
        (Inotify(100, 9, 99, used_instances=9), "inotify instances", WARN),
        (Inotify(100, 9, 99, used_instances=8), "inotify instances", OK),
        (Inotify(100, 9, 8), "inotify queue", WARN),
    ],
)
def test_a_limit_of_the_kernel_is_held_against_need_with_the_line_that_raises_it(
    limits: Inotify, name: str, state: str
) -> None:
    check = only(facts(inotify=limits), name)
    assert check.state == state
    key = {"watches": "user_watches", "instances": "user_instances", "queue": "queued_events"}[name.split()[1]]
    assert f"fs.inotify.max_{key} is" in check.detail
    if state == WARN:
        assert f"fs.inotify.max_{key}=" in check.cure
        assert check.cure.endswith(
            "| sudo tee /etc/sysctl.d/60-keeper-" + name.split()[1] + ".conf && sudo sysctl --system"
        )


def test_limits_that_nobody_tells_are_no_finding() -> None:
    assert not [check for check in judged(facts(inotify=Inotify())) if check.name.startswith("inotify")]


@pytest.mark.parametrize(
    ("what", "state"),
    [("link", WARN), ("exchange", WARN), ("lease", WARN), ("events", WARN), ("reflink", OK), ("write", FAIL)],
)
def test_what_a_volume_refused_is_told_with_what_is_done_instead(what: str, state: str) -> None:
    check = only(facts(trials=(Trial(what, "/home/a/.claude", "Operation not supported"),)), what)
    assert check.state == state
    assert "Operation not supported" in check.detail


def test_the_kernel_is_asked_for_its_limits_and_the_users_processes_for_what_they_use(tmp_path: Path) -> None:
    for name, number in (("max_user_watches", 5), ("max_user_instances", 6), ("max_queued_events", 7)):
        put(tmp_path / "limits" / name, b"%d\n" % number)
    for pid in (11, 12):
        put(tmp_path / "proc" / str(pid) / "fdinfo" / "3", b"pos:\t0\ninotify wd:1 ino:2\ninotify wd:2 ino:3\n")
        (tmp_path / "proc" / str(pid) / "fd").mkdir()
        (tmp_path / "proc" / str(pid) / "fd" / "3").symlink_to("anon_inode:inotify")
        (tmp_path / "proc" / str(pid) / "fd" / "4").symlink_to("/dev/null")
    (tmp_path / "proc" / "self").mkdir()
    assert machine.inotify(99, tmp_path / "proc", tmp_path / "limits") == Inotify(5, 6, 7, 4, 2)
    assert machine.inotify(12, tmp_path / "proc", tmp_path / "limits") == Inotify(5, 6, 7, 2, 1)
    assert machine.inotify(99, tmp_path / "none", tmp_path / "none") == Inotify()


# --- cures --------------------------------------------------------------------------------------------------

ILL = [
    facts(live(days=70, kept=False), live(T, 3, lag=9), live(U, 1, verdict="damaged")),
    facts(doors=doors(agent=Agent(), hooks=(replace(WELL_HOOKS, events=(), missing=EVENTS),))),
    facts(doors=doors(service=Service(False, "", False, ""), agent=Agent(), shim=replace(WELL_SHIM, installed=False))),
    facts(doors=doors(service=replace(WELL_SERVICE, installed=False), agent=Agent(silent=True, pid=3))),
    facts(doors=doors(agent=replace(WELL_AGENT, polled=("/p",), events=(Told("mass deletion", "x", NOW),)))),
    facts(live(days=0.1), doors=doors(agent=replace(WELL_AGENT, hooked=None), shim=replace(WELL_SHIM, real=""))),
    facts(vault=vault(made=False)),
    facts(vault=vault(states=(State(S, "diverged"), State(T, "doubled")))),
    facts(live(forgotten=True), vault=vault(index_lost=True, forgotten=(S,))),
    facts(profiles=(profile(lost=(Lost(S, "/p", 1, 0.0),), kind="9p"),)),
    *(
        facts(vault=vault(states=(State(S, str(state), cure=f"keeper restore {S}"),), leaves={S: "b"}))
        for state in Verdict
    ),
]


def test_every_command_of_keepers_own_that_a_cure_names_is_one_with_these_options() -> None:
    seen = set()
    for check in [check for found in ILL for check in judged(found)]:
        for part in re.split("; | && ", check.cure):
            words = shlex.split(part)
            if words[:1] == ["keeper"]:
                context = click.Context(group, info_name="keeper")
                name, command, rest = group.resolve_command(context, words[1:])
                assert command is not None
                command.make_context(name, list(rest), parent=context)
                seen.add(name)
    assert seen >= {"keep", "restore", "hooks", "shim", "service", "run", "doctor", "resume", "reindex", "accept"}


def test_whatever_is_wrong_has_a_cure_unless_it_passes_by_itself() -> None:
    without = {check.name for found in ILL for check in judged(found) if check.state != OK and not check.cure}
    assert without == {"doubled", "diverged"}, "what only a person can choose, or no branch is found of"


# --- Claude's own lists -------------------------------------------------------------------------------------


@pytest.mark.accepts("RESTORE-9")
def test_the_history_tells_sessions_directories_and_counts_and_what_is_no_prompt_counts_for_nothing(
    tmp_path: Path,
) -> None:
    entries: list[Any] = [
        {"display": "one", "project": "/proj/x", "sessionId": S, "timestamp": 1_000},
        {"display": "two", "project": "/work/y", "sessionId": S, "timestamp": 3_000},
        {"display": "/exit", "project": "/work/z", "sessionId": T, "timestamp": 2_000},
        {"display": "three", "project": "/proj/x", "sessionId": U},
        {"display": "four", "sessionId": "../../x"},
        {"display": "five", "project": 7, "sessionId": None, "timestamp": True},
        [S],
    ]
    put(tmp_path / "history.jsonl", b"\n".join(json.dumps(one).encode() for one in entries) + b"\ntorn " + S.encode())
    told = history.read(tmp_path)
    assert (told.prompts, told.last) == ({S: 2, U: 1}, {S: 3.0})
    assert told.cwds == ("/proj/x", "/work/y", "/work/z")
    assert history.lost(tmp_path, told, {U}) == (Lost(S, str(tmp_path), 2, 3.0),)
    assert history.read(tmp_path / "none") == history.History({}, {}, ())


@pytest.mark.parametrize(
    "data", [b"{broken", b"[]", b'{"projects": []}', b'{"projects": {"relative": {}}}', b"[" * 99_999]
)
def test_a_settings_file_of_claudes_that_names_no_directory_tells_none(tmp_path: Path, data: bytes) -> None:
    assert history.projects(put(tmp_path / ".claude.json", data)) == ()
    assert history.projects(tmp_path / "none") == ()
    assert history.projects(put(tmp_path / "b.json", b'{"projects": {"/proj/x": {}, "/work/y": {}}}')) == (
        "/proj/x",
        "/work/y",
    )
