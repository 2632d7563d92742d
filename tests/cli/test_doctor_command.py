"""`keeper doctor`: what it tells of a home as it stands, in text and in one JSON object, and that it says no word of a
transcript."""

from __future__ import annotations

import errno
import json
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from keeper.agent import state as agent_state
from keeper.doctor import probe
from keeper.doctor.facts import Trial
from tests.agent.running import running, until
from tests.build import CWD, append, jsonl, live_path, meta, prompt, session_id, talk, write_live
from tests.chat import DAY_S, everything, put
from tests.conftest import Ran
from tests.damage import cut_lines
from tests.seam import World, calls_of, failing, hooked, names_of_ours
from tests.seam import world as world_of

Command = Callable[..., Ran]

S, T, U, NEVER = session_id(1), session_id(2), session_id(3), session_id(9)
CANARY = "canary-7f3a"


@pytest.fixture
def here(profile: Path, vault_home: Path, home: Path) -> World:
    profile.mkdir(exist_ok=True)
    return world_of(profile, vault_home, home / ".local" / "state" / "keeper")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    place = tmp_path / "work" / "alpha"
    place.mkdir(parents=True)
    return place


def lives(profile: Path, session: str, days: float, cwd: str = CWD) -> Path:
    """A live chat that was last changed so many days ago."""
    path = write_live(profile, cwd, session, jsonl(*talk("abcd", session, cwd=cwd)))
    then = time.time() - days * DAY_S
    os.utime(path, (then, then))
    return path


def of(answer: dict[str, Any], name: str) -> list[dict[str, str]]:
    """The checks of that name."""
    return [check for check in answer["checks"] if check["name"] == name]


# --- the sweep (POLICY-6, FIT-9) ----------------------------------------------------------------------------


@pytest.mark.accepts("POLICY-6")
def test_a_project_that_sweeps_all_after_two_days_is_named_with_what_the_next_sweep_takes(
    here: World, project: Path, run_keeper: Command
) -> None:
    own = put(here.profile / "settings.json", b'{"cleanupPeriodDays": 60}')
    small = put(project / ".claude" / "settings.json", b'{\n  "cleanupPeriodDays": 2,\n  "model": "x"\n}\n')
    lives(here.profile, S, 3, str(project))
    lives(here.profile, T, 5)
    lives(here.profile, U, 1)
    here.keep_all()
    lives(here.profile, NEVER, 4)
    done = run_keeper("doctor", "--json")
    answer = done.json
    assert (done.code, answer["schema"]) == (1, 1)
    assert (answer["retention"]["days"], answer["retention"]["file"]) == (2, str(small))
    told = [(one["scope"], one["days"], one["file"]) for one in answer["retention"]["sources"]]
    assert told == [("user", 60, str(own)), ("project", 2, str(small))]
    assert answer["sweep"]["chats"] == [T, NEVER, S]
    assert answer["sweep"]["kept"] == {T: True, NEVER: False, S: True}
    assert answer["sweep"]["due"].keys() == {S, T, U, NEVER}
    assert abs(answer["sweep"]["earliest"] - time.time()) < 120
    (period,), (sweep,) = of(answer, "retention"), of(answer, "sweep")
    assert (period["state"], sweep["state"]) == ("fail", "fail")
    for part in ("2 days", str(small), "60", "every project"):
        assert part in period["detail"]
    assert NEVER in sweep["detail"] and sweep["cure"] == "keeper keep"

    text = run_keeper("doctor").text
    assert str(small) in text and "takes 3 chats of 4" in text

    assert run_keeper(*shlex.split(period["cure"])[1:]).code == 0
    assert small.read_bytes() == b'{\n  "cleanupPeriodDays": 36500,\n  "model": "x"\n}\n'
    after = run_keeper("doctor", "--json").json
    assert (after["retention"]["days"], after["sweep"]["chats"]) == (60, [])
    assert {one["state"] for one in [*of(after, "retention"), *of(after, "sweep")]} == {"ok"}


@pytest.mark.accepts("FIT-9", "POLICY-6")
def test_zero_days_are_warned_of_and_the_cure_sets_a_large_number(
    here: World, project: Path, run_keeper: Command
) -> None:
    zero = put(project / ".claude" / "settings.local.json", b'{"cleanupPeriodDays": 0}')
    lives(here.profile, S, 1, str(project))
    (check,) = of(run_keeper("doctor", "--json").json, "retention 0")
    assert (check["state"], str(zero) in check["detail"]) == ("warn", True)
    assert zero.read_bytes() == b'{"cleanupPeriodDays": 0}', "keeper writes no settings of Claude's"
    assert run_keeper(*shlex.split(check["cure"])[1:]).code == 0
    assert json.loads(zero.read_bytes()) == {"cleanupPeriodDays": 36500}
    assert of(run_keeper("doctor", "--json").json, "retention 0") == []


@pytest.mark.accepts("POLICY-6")
def test_a_project_is_known_by_what_lives_by_the_history_and_by_claudes_own_list(
    here: World, tmp_path: Path, run_keeper: Command
) -> None:
    names = ["lives", "typed", "listed", "beside"]
    for days, name in enumerate(names, 3):
        put(tmp_path / name / ".claude" / "settings.json", b'{"cleanupPeriodDays": %d}' % days)
    lives(here.profile, S, 1, str(tmp_path / "lives"))
    put(here.profile / "history.jsonl", json.dumps({"display": "x", "project": str(tmp_path / "typed")}).encode())
    put(here.profile / ".claude.json", json.dumps({"projects": {str(tmp_path / "listed"): {}}}).encode())
    beside = {"projects": {str(tmp_path / "beside"): {}}}  # the default profile's own list is not in it
    put(here.profile.parent / ".claude.json", json.dumps(beside).encode())
    told = run_keeper("doctor", "--json").json["retention"]
    assert {one["days"] for one in told["sources"]} == {3, 4, 5, 6}
    assert (told["days"], told["file"]) == (3, str(tmp_path / "lives" / ".claude" / "settings.json"))


# --- chats --------------------------------------------------------------------------------------------------


@pytest.mark.accepts("SEAL-7")
def test_damage_is_named_with_its_loss_its_time_and_the_command_and_that_command_mends_it(
    here: World, run_keeper: Command
) -> None:
    live = lives(here.profile, S, 0)
    here.keep_all()
    cut_lines(live, 1)
    (unmet,) = of(run_keeper("doctor", "--json").json, "damaged")
    assert (unmet["state"], "3 records" in unmet["detail"]) == ("fail", True), "no keep has met it yet"
    here.keep_all()
    done = run_keeper("doctor", "--json")
    (check,) = of(done.json, "damaged")
    (state,) = run_keeper("status", "--json").json["states"]
    assert done.code == 1
    for part in (S, "3 records", state["when"], f"keeper accept {S}"):
        assert part in check["detail"]
    text = " ".join(run_keeper("doctor").text.split())
    assert f"FAIL damaged: {S}: 3 records" in text
    assert f"$ {check['cure']}" in text
    assert run_keeper(*shlex.split(check["cure"])[1:]).code == 0
    assert of(run_keeper("doctor", "--json").json, "damaged") == []


@pytest.mark.accepts("SEAL-7")
def test_the_cure_of_damage_that_no_keep_has_met_mends_it_too(here: World, run_keeper: Command) -> None:
    live = lives(here.profile, S, 0)
    here.keep_all()
    whole = live.read_bytes()
    cut_lines(live, 1)
    (check,) = of(run_keeper("doctor", "--json").json, "damaged")
    for words in check["cure"].split("; "):
        assert run_keeper(*shlex.split(words)[1:]).code == 0
    assert live.read_bytes() == whole
    assert of(run_keeper("doctor", "--json").json, "damaged") == []


def test_a_stub_and_a_file_that_lacks_the_newest_are_seen_before_a_keep_sees_them(
    here: World, run_keeper: Command
) -> None:
    for session in (S, T):
        lives(here.profile, session, 1)
    here.keep_all()
    write_live(here.profile, CWD, S, b'{"type":"mode","mode":"default"}\n')
    write_live(here.profile, CWD, T, jsonl(*talk("ab", T)))
    answer = run_keeper("doctor", "--json").json
    for name, session in (("stub", S), ("behind", T)):
        (check,) = of(answer, name)
        assert (check["state"], check["cure"]) == ("warn", f"keeper restore {session}")
        assert run_keeper(*shlex.split(check["cure"])[1:]).code == 0
    assert [of(run_keeper("doctor", "--json").json, name) for name in ("stub", "behind")] == [[], []]
    assert live_path(here.profile, T).read_bytes() == jsonl(*talk("abcd", T))


def test_the_other_branch_of_a_diverged_chat_is_offered_by_its_leaf(here: World, run_keeper: Command) -> None:
    lives(here.profile, S, 1)
    here.keep_all()
    write_live(here.profile, CWD, S, jsonl(*talk("ab", S), *talk("xy", S, parent="b")))
    here.keep_all()
    (check,) = of(run_keeper("doctor", "--json").json, "diverged")
    branch, accept = check["cure"].split(" && ")
    assert branch == f"keeper restore {S} --branch d"
    made = run_keeper(*shlex.split(branch)[1:], "--json").json
    assert made["records"] == 4
    assert run_keeper(*shlex.split(accept)[1:]).code == 0
    assert of(run_keeper("doctor", "--json").json, "diverged") == []


def test_chats_without_a_kept_copy_are_told_until_they_are_kept(here: World, run_keeper: Command) -> None:
    lives(here.profile, S, 1)
    here.keep_all()
    lives(here.profile, T, 0.5)
    write_live(here.profile, CWD, U, b"")
    (check,) = of(run_keeper("doctor", "--json").json, "capture")
    assert (check["state"], check["cure"]) == ("fail", "keeper keep")
    assert f"1 live chat of 2 not kept, or not to their end; the newest, {T}, for 12 hours" in check["detail"]
    assert run_keeper("keep").code == 0
    (check,) = of(run_keeper("doctor", "--json").json, "capture")
    assert (check["state"], check["detail"][:25]) == ("ok", "2 of 2 live chats kept, s")


def test_a_file_that_has_more_than_is_kept_is_not_kept_and_an_unfinished_line_waits_for_nobody(
    here: World, run_keeper: Command
) -> None:
    for session in (S, T):
        lives(here.profile, session, 1)
    here.keep_all()
    append(live_path(here.profile, T), b'{"type":"user","uuid":"torn')
    os.utime(live_path(here.profile, T), (time.time() - DAY_S,) * 2)
    assert of(run_keeper("doctor", "--json").json, "capture")[0]["state"] == "ok"
    write_live(here.profile, CWD, S, jsonl(*talk("abcdef", S)))
    os.utime(live_path(here.profile, S), (time.time() - DAY_S,) * 2)
    (check,) = of(run_keeper("doctor", "--json").json, "capture")
    assert (check["state"], f"1 live chat of 2 not kept, or not to their end; the newest, {S}" in check["detail"]) == (
        "fail",
        True,
    )


def test_what_grew_and_nobody_sealed_is_told(here: World, run_keeper: Command) -> None:
    live = lives(here.profile, S, 1)
    here.keep_all()
    append(live, jsonl(*talk("ef", S, parent="d")))
    os.utime(live, (time.time() - DAY_S,) * 2)
    (check,) = of(run_keeper("doctor", "--json").json, "capture")
    assert (check["state"], S in check["detail"]) == ("warn", True)
    assert run_keeper("keep").code == 0
    assert of(run_keeper("doctor", "--json").json, "capture")[0]["state"] == "ok"


@pytest.mark.accepts("POLICY-1")
def test_what_a_rule_excludes_or_a_plan_has_pruned_is_no_failure_missing_or_lost(
    here: World, run_keeper: Command, home: Path
) -> None:
    lives(here.profile, S, 1, "/srv/secret")
    lives(here.profile, T, 100)
    here.keep_all()
    rows = (here.root / "state.db").read_bytes()
    assert run_keeper("exclude", "add", "--cwd", "/srv/secret", "--yes").code == 0
    lives(here.profile, U, 1, "/srv/secret")
    (here.root / "state.db").write_bytes(rows)  # as one leaves it that was killed before it dropped the row
    answer = run_keeper("doctor", "--json").json
    assert (of(answer, "capture")[0]["state"], of(answer, "missing")) == ("ok", [])
    put(home / ".config" / "keeper" / "config.toml", b'keep_for = "90d"\n')
    assert run_keeper("prune", "--apply").code == 0
    answer = run_keeper("doctor", "--json").json
    assert (of(answer, "capture")[0]["state"], of(answer, "missing")) == ("ok", [])
    assert answer["sweep"]["kept"] == {T: False}
    (sweep,) = of(answer, "sweep")
    assert (sweep["state"], "0 kept, 1 not to be" in sweep["detail"]) == ("warn", True)
    for session in (S, T):
        (path,) = here.profile.glob(f"projects/*/{session}.jsonl")
        path.unlink()
    typed = [{"display": "a prompt", "sessionId": session} for session in (S, T, NEVER)]
    put(here.profile / "history.jsonl", b"\n".join(json.dumps(one).encode() for one in typed))
    assert [one["session"] for one in run_keeper("doctor", "--json").json["lost"]] == [NEVER]


def test_a_folder_that_a_hand_removed_is_told_before_and_after_it_counts_as_forgotten(
    here: World, run_keeper: Command
) -> None:
    for session in (S, T):
        lives(here.profile, session, 1)
    here.keep_all()
    assert run_keeper("forget", T).code == 0
    shutil.rmtree(here.root / "chats" / S)
    (missing,) = of(run_keeper("doctor", "--json").json, "missing")
    here.keep_all()
    (forgotten,) = of(run_keeper("doctor", "--json").json, "forgotten")
    assert {one["cure"] for one in (missing, forgotten)} == {f"keeper keep --adopt {S} --profile {here.profile}"}
    assert missing["state"] == "fail", "it lives, and nothing of it is kept"
    assert T not in forgotten["detail"], "that was meant"
    assert run_keeper(*shlex.split(forgotten["cure"])[1:]).code == 0
    assert of(run_keeper("doctor", "--json").json, "forgotten") == []


@pytest.mark.accepts("KEEP-16")
def test_folders_of_the_vault_that_are_open_to_others_are_told_and_closed_by_the_cure(
    here: World, run_keeper: Command
) -> None:
    lives(here.profile, S, 1)
    here.keep_all()
    for place, state in ((here.chat, "warn"), (here.root / "state.db", "warn"), (here.root, "fail")):
        place.chmod(0o755)
        (check,) = of(run_keeper("doctor", "--json").json, "modes")
        assert (check["state"], str(place) in check["detail"]) == (state, True)
        subprocess.run(check["cure"], shell=True, check=True)
        assert of(run_keeper("doctor", "--json").json, "modes")[0]["state"] == "ok"


def test_the_version_that_wrote_of_late_is_told_and_one_of_long_ago_is_not(here: World, run_keeper: Command) -> None:
    write_live(here.profile, CWD, S, jsonl(*talk("ab", S, version="2.1.9")))
    old = write_live(here.profile, CWD, T, jsonl(*talk("ab", T, version="2.0.14")))
    os.utime(old, (time.time() - 45 * DAY_S,) * 2)
    (check,) = of(run_keeper("doctor", "--json", env={"PATH": "/usr/bin:/bin"}).json, "claude")
    assert (check["state"], check["detail"][:11]) == ("warn", "2.1.9: up t")


def test_what_was_forgotten_is_no_failure_of_the_capture(here: World, run_keeper: Command) -> None:
    lives(here.profile, S, 1)
    here.keep_all()
    assert run_keeper("forget", S).code == 0
    assert of(run_keeper("doctor", "--json").json, "capture")[0]["state"] == "ok"


@pytest.mark.accepts("RESTORE-9")
def test_a_chat_that_is_lost_is_counted_and_one_that_lives_is_kept_or_was_forgotten_is_not(
    here: World, run_keeper: Command
) -> None:
    for session in (S, T):
        lives(here.profile, session, 1)
    here.keep_all()
    live_path(here.profile, T).unlink()
    lives(here.profile, U, 1)
    forgotten = session_id(4)
    gone = lives(here.profile, forgotten, 1)
    assert [run_keeper(*words).code for words in (["keep", forgotten], ["forget", forgotten])] == [0, 0]
    gone.unlink()
    names = (S, T, U, forgotten, NEVER, NEVER)
    typed = [{"display": "a prompt", "sessionId": session, "timestamp": 1} for session in names]
    put(here.profile / "history.jsonl", b"\n".join(json.dumps(one).encode() for one in typed))
    answer = run_keeper("doctor", "--json").json
    assert [(one["session"], one["prompts"]) for one in answer["lost"]] == [(NEVER, 2)]
    (check,) = of(answer, "lost")
    assert (check["state"], str(here.profile / "history.jsonl") in check["detail"]) == ("warn", True)
    assert run_keeper(*shlex.split(check["cure"])[1:]).text == "a prompt\na prompt\n"


# --- what it goes by ----------------------------------------------------------------------------------------


def test_a_home_without_a_vault_or_a_profile_is_told_so_and_stays_as_it_is(
    run_keeper: Command, home: Path, profile: Path
) -> None:
    shutil.rmtree(profile)
    before = everything(home)
    done = run_keeper("doctor", "--probe", "--json")
    assert (done.code, done.err) == (1, "")
    assert of(done.json, "vault")[0]["cure"] == "keeper keep"
    assert of(done.json, "volume") == of(done.json, "write") == []
    assert done.json["retention"] == {"days": 30, "file": "", "profile": str(profile), "sources": []}
    assert done.json["sweep"]["chats"] == []
    assert everything(home) == before


def test_nothing_is_written_also_where_the_index_is_lost(here: World, run_keeper: Command, home: Path) -> None:
    lives(here.profile, S, 1)
    here.keep_all()
    (here.root / "state.db").write_bytes(b"no index")
    append(here.live, jsonl(*talk("ef", S, parent="d")))
    before = everything(home), everything(here.profile), everything(here.root)
    done = run_keeper("doctor", "--json")
    assert (everything(home), everything(here.profile), everything(here.root)) == before
    assert of(done.json, "index")[0]["cure"] == "keeper reindex"
    assert of(done.json, "capture")[0]["state"] == "ok", "what the folders tell is enough"


def test_a_vault_that_is_not_mounted_is_a_failure_and_no_chat_is_called_lost(
    here: World, run_keeper: Command, tmp_path: Path
) -> None:
    lives(here.profile, S, 40)
    here.keep_all()
    live_path(here.profile, S).unlink()
    put(here.profile / "history.jsonl", json.dumps({"display": "x", "sessionId": S}).encode())
    here.root.rename(tmp_path / "away")
    done = run_keeper("doctor", "--json")
    assert done.code == 1
    assert "is its volume mounted" in of(done.json, "vault")[0]["detail"]
    assert (of(done.json, "lost"), done.json["lost"]) == ([], [])


def test_settings_that_do_not_read_are_a_failure_and_stop_no_other_check(
    here: World, run_keeper: Command, home: Path
) -> None:
    lives(here.profile, S, 1)
    here.keep_all()
    put(home / ".config" / "keeper" / "config.toml", b"vault = [")
    answer = run_keeper("doctor", "--json").json
    assert of(answer, "config")[0]["state"] == "fail"
    assert (of(answer, "capture")[0]["state"], of(answer, "volume")) == ("warn", []), "nobody knows which vault it is"
    assert {"retention", "sweep", "hooks", "shim", "clock"} <= {check["name"] for check in answer["checks"]}


@pytest.mark.accepts("AGENT-4")
def test_a_running_agent_and_a_hook_that_has_called_it_are_told(
    here: World, run_keeper: Command, cli_env: dict[str, str]
) -> None:
    live = lives(here.profile, S, 0)
    with running(cli_env) as agent:
        until(lambda: agent.status()["live"] == 1, "it has looked")
        answer = run_keeper("doctor", "--json").json
        assert (of(answer, "agent")[0]["state"], of(answer, "capture")[0]["state"]) == ("ok", "ok")
        assert str(agent.status()["pid"]) in of(answer, "agent")[0]["detail"]
        assert run_keeper("hooks", "install", "--yes").code == 0
        assert "called last" not in of(run_keeper("doctor", "--json").json, "hooks")[0]["detail"]
        payload = {"hook_event_name": "Stop", "session_id": S, "transcript_path": str(live)}
        assert run_keeper("hook", stdin=json.dumps(payload).encode()).code == 0
        hooks = of(run_keeper("doctor", "--json").json, "hooks")[0]
        assert (hooks["state"], "called last" in hooks["detail"]) == ("ok", True)
        shutil.rmtree(here.profile / "projects")
        for number in range(10, 140):
            lives(here.profile, session_id(number), 0)
        until(lambda: agent.status()["live"] >= 130, "it has met them")
        shutil.rmtree(here.profile / "projects")
        until(lambda: any(one["what"] == "mass deletion" for one in agent.status()["events"]), "it has seen them go")
        (mass,) = of(run_keeper("doctor", "--json").json, "mass deletion")
        assert (mass["state"], mass["cure"]) == ("warn", "keeper restore --all --dry-run")
    (stopped,) = of(run_keeper("doctor", "--json").json, "agent")
    assert "no agent since 20" in stopped["detail"]


@pytest.mark.parametrize(("boot", "silent"), [("", True), ("another", False)])
def test_a_process_of_another_boot_that_has_the_agents_number_is_not_taken_for_it(
    here: World, run_keeper: Command, boot: str, silent: bool
) -> None:
    lives(here.profile, S, 1)
    here.keep_all()
    who = asdict(agent_state.who(time.time()))
    put(here.root / "agent.json", json.dumps({"who": {**who, "boot": boot or who["boot"]}}).encode())
    (check,) = of(run_keeper("doctor", "--json").json, "agent")
    assert ("does not answer" in check["detail"]) is silent


def test_an_agent_that_lives_and_does_not_answer_is_told(
    here: World, run_keeper: Command, cli_env: dict[str, str]
) -> None:
    with running(cli_env) as agent:
        pid = agent.status()["pid"]
        (here.root / "agent.sock").unlink()
        os.kill(pid, signal.SIGSTOP)
        try:
            (check,) = of(run_keeper("doctor", "--json").json, "agent")
        finally:
            os.kill(pid, signal.SIGCONT)
    assert (check["state"], f"process {pid} runs and does not answer" in check["detail"]) == ("fail", True)


# --- the trial ----------------------------------------------------------------------------------------------

TRIED = ["link", "exchange", "lease", "reflink", "events"]


def test_a_probe_tries_the_real_volumes_and_leaves_nothing(here: World, run_keeper: Command) -> None:
    lives(here.profile, S, 1)
    here.keep_all()
    names = [sorted(map(str, place.rglob("*"))) for place in (here.profile, here.root)]
    assert not [name for name in TRIED if of(run_keeper("doctor", "--json").json, name)], "only where it is asked for"
    answer = run_keeper("doctor", "--probe", "--json").json
    states = {name: of(answer, name)[0]["state"] for name in TRIED}
    assert states == dict.fromkeys(TRIED, "ok")
    assert [sorted(map(str, place.rglob("*"))) for place in (here.profile, here.root)] == names
    assert names_of_ours(here.profile, here.root) == []


def test_a_vault_on_another_volume_is_told_and_so_is_the_link_that_failed(
    profile: Path, second_volume: Path, home: Path, run_keeper: Command
) -> None:
    other = world_of(profile, second_volume / "vault", home / ".local" / "state" / "keeper")
    lives(profile, S, 1)
    other.keep_all()
    answer = run_keeper("doctor", "--probe", "--json", env={"KEEPER_HOME": str(other.root)}).json
    assert (of(answer, "volume")[0]["state"], of(answer, "link")[0]["state"]) == ("warn", "warn")
    assert "cross-device" in of(answer, "link")[0]["detail"]
    assert of(answer, "capture")[0]["state"] == "ok"
    assert names_of_ours(profile, other.root) == []


def test_a_trial_that_fails_in_the_middle_leaves_nothing(here: World) -> None:
    here.profile.joinpath("projects").mkdir(exist_ok=True)
    here.root.mkdir()

    def tried() -> list[Trial]:
        return list(probe.trials(here.profile, here.root, lambda folder: "none"))

    calls = calls_of(tried)
    assert {call for call, _ in calls} == {"create", "write", "link", "clone", "exchange"}
    for number in range(len(calls)):
        with hooked(failing(number, errno.EIO, forever=True)):
            found = tried()
        assert any("Input/output error" in one.why for one in found)
        assert everything(here.profile / "projects").keys() == {"."}
        assert everything(here.root).keys() == {"."}


# --- for a person -------------------------------------------------------------------------------------------


@pytest.mark.accepts("KEEP-16")
def test_no_word_of_a_transcript_a_title_or_a_prompt_is_said(
    here: World, project: Path, run_keeper: Command, home: Path
) -> None:
    for session in (S, T, U):
        said = prompt("a", None, f"{CANARY} prompt", session)
        lines = [
            *talk("bcd", session, parent="a"),
            meta("custom-title", customTitle=f"{CANARY} title", sessionId=session),
        ]
        path = write_live(here.profile, CWD, session, jsonl(said, *lines))
        os.utime(path, (time.time() - 40 * DAY_S,) * 2)
    here.keep_all()
    cut_lines(live_path(here.profile, S), 1)
    write_live(here.profile, CWD, T, jsonl(prompt("a", None, f"{CANARY} prompt", T), *talk("xy", T, parent="a")))
    append(live_path(here.profile, U), f"{CANARY} torn".encode())
    write_live(here.profile, CWD, NEVER, jsonl(prompt("a", None, f"{CANARY} new", NEVER)))
    typed = {"display": f"{CANARY} typed", "sessionId": session_id(8), "project": str(project)}
    put(here.profile / "history.jsonl", json.dumps(typed).encode())
    put(here.profile / "settings.json", json.dumps({"env": {"A": CANARY}, "cleanupPeriodDays": CANARY}).encode())
    for words in (["doctor"], ["doctor", "--json"], ["doctor", "--probe"]):
        for when in ("before a keep", "after it"):
            done = run_keeper(*words)
            assert done.code == 1
            assert CANARY not in done.text + done.err, (words, when)
            here.keep_all() if when == "before a keep" else None
    assert CANARY in live_path(here.profile, NEVER).read_text()


def test_it_is_read_at_80_columns_the_worst_first_each_with_its_cure_on_a_line_of_its_own(
    here: World, run_keeper: Command
) -> None:
    lives(here.profile, S, 40)
    here.keep_all()
    done = run_keeper("doctor")
    answer = run_keeper("doctor", "--json").json
    lines = done.text.splitlines()
    for line in lines:
        assert len(line) <= 80 or line.startswith("      $ ") or len(line.split()) == 1 or "/" in line.split()[-1]
    heads = [line.split(":")[0].split(maxsplit=1) for line in lines[:-1] if not line.startswith("      ")]
    assert heads == [[check["state"].upper().replace("OK", "ok"), check["name"]] for check in answer["checks"]]
    order = ["fail", "warn", "ok"]
    states = [check["state"] for check in answer["checks"]]
    assert states == sorted(states, key=order.index)
    assert [line[8:] for line in lines if line.startswith("      $ ")] == [
        check["cure"] for check in answer["checks"] if check["cure"]
    ]
    counts = ", ".join(f"{states.count(state)} {state}" for state in order)
    assert lines[-1] == f"{len(states)} checks: {counts}"
