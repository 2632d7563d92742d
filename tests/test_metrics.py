"""The metrics: OpenMetrics that a parser of others takes, true numbers, nothing of what anybody wrote."""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from keeper import disk
from keeper.report.facts import Bytes, Gathered, Profile
from keeper.report.metrics import MARK, exposition
from keeper.report.output import put
from tests.agent.running import running
from tests.build import CWD, append, jsonl, meta, prompt, session_id, talk, write_live
from tests.chat import DAY_S, age, everything, kept_path, write_whole
from tests.conftest import Ran

Command = Callable[..., Ran]
CANARY = "canary-9b1d7c52"
NOTHING: dict[str, Any] = {"runs": [], "spells": [], "events": [], "counts": {}}


def samples(text: str) -> dict[str, float]:
    """Each sample's value, by its name; of those with a profile there is one."""
    return {sample.name: sample.value for family in families(text).values() for sample in family.samples}


def families(text: str) -> dict[str, Any]:
    return {family.name: family for family in text_string_to_metric_families(text)}


def metrics(run_keeper: Command) -> dict[str, float]:
    done = run_keeper("status", "--openmetrics")
    assert (done.code, done.err) == (0, "")
    return samples(done.text)


def test_a_parser_of_openmetrics_takes_them(profile: Path, run_keeper: Command) -> None:
    write_whole(profile, session_id(1))
    assert run_keeper("keep").code == 0
    done = run_keeper("status", "--openmetrics")
    found = families(done.text)
    assert done.text.endswith("# EOF\n")
    assert {family.type for family in found.values()} == {"info", "gauge", "counter"}
    assert all(family.documentation for family in found.values())
    for name, family in found.items():
        assert family.unit == next((unit for unit in ("seconds", "bytes") if name.endswith(f"_{unit}")), ""), name
        assert {label for sample in family.samples for label in sample.labels} <= {"profile", "version"}


def test_the_numbers_are_those_of_the_vault(profile: Path, vault_home: Path, run_keeper: Command) -> None:
    old, swept, new = (write_live(profile, CWD, session_id(n), jsonl(*talk("abcd", session_id(n)))) for n in (1, 2, 3))
    assert run_keeper("keep").code == 0
    for path, days in ((old, 40), (swept, 45)):
        os.utime(path, (time.time() - days * DAY_S,) * 2)
    swept.unlink()
    write_live(profile, CWD, session_id(4), jsonl(*talk("xy", session_id(4))))
    found = metrics(run_keeper)
    size = new.stat().st_size
    seals = sum(path.stat().st_size for path in vault_home.glob("chats/*/seal/*"))
    facts = sum(path.stat().st_size for path in vault_home.glob("chats/*/chat.json"))
    assert found["keeper_kept_sessions"] == 3
    assert found["keeper_live_sessions"] == 2
    assert found["keeper_at_risk_sessions"] == 1
    assert found["keeper_rescued_sessions"] == 1
    assert found["keeper_unkept_sessions"] == 1
    assert found["keeper_irregular_sessions"] == 0
    assert found["keeper_vault_shared_bytes"] == 2 * size
    assert found["keeper_vault_seal_bytes"] == seals > 0
    assert found["keeper_vault_own_bytes"] == size + seals + facts
    assert found["keeper_retention_seconds"] == 30 * DAY_S
    assert found["keeper_agent_running"] == 0
    assert "keeper_last_sweep_time_seconds" not in found, "none is known, and so none is told"


def test_a_second_name_within_the_vault_shares_nothing_with_claude(
    profile: Path, vault_home: Path, run_keeper: Command
) -> None:
    live = write_live(profile, CWD, session_id(1), jsonl(*talk("abcd", session_id(1))))
    assert run_keeper("keep").code == 0
    kept = kept_path(vault_home, session_id(1))
    (kept.parent / "swap").mkdir(exist_ok=True)
    os.link(kept, kept.parent / "swap" / "held")
    before = metrics(run_keeper)
    live.unlink()
    after = metrics(run_keeper)
    size = kept.stat().st_size
    assert (before["keeper_vault_shared_bytes"], after["keeper_vault_shared_bytes"]) == (size, 0)
    assert after["keeper_vault_own_bytes"] == before["keeper_vault_own_bytes"] + size


def test_what_was_forgotten_and_what_is_no_chat_does_not_wait_for_a_keep(profile: Path, run_keeper: Command) -> None:
    for number in (1, 2):
        write_live(profile, CWD, session_id(number), jsonl(*talk("ab", session_id(number))))
    assert run_keeper("keep").code == 0
    assert run_keeper("forget", session_id(1)).code == 0
    write_live(profile, CWD, session_id(3), jsonl(meta("summary", summary="x", leafUuid="y")))
    assert metrics(run_keeper)["keeper_unkept_sessions"] == 0
    write_live(profile, CWD, session_id(4), jsonl(*talk("ab", session_id(4))))
    assert metrics(run_keeper)["keeper_unkept_sessions"] == 1


def test_a_damaged_chat_and_a_shorter_retention_are_seen(profile: Path, run_keeper: Command) -> None:
    live = write_live(profile, CWD, session_id(1), jsonl(*talk("abcd", session_id(1))))
    assert run_keeper("keep").code == 0
    os.truncate(live, live.stat().st_size // 2)
    (profile / "settings.json").write_text('{"cleanupPeriodDays": 3}')
    age(profile / "projects", days=5)
    (profile / ".last-cleanup").touch()
    assert run_keeper("keep").code == 0
    found = metrics(run_keeper)
    assert found["keeper_irregular_sessions"] == 1
    assert found["keeper_at_risk_sessions"] == 1
    assert found["keeper_retention_seconds"] == 3 * DAY_S
    assert abs(found["keeper_last_sweep_time_seconds"] - (profile / ".last-cleanup").stat().st_mtime) < 0.01


def test_the_agents_are_told_while_it_runs_and_what_it_remembers_after(
    profile: Path, vault_home: Path, cli_env: dict[str, str], run_keeper: Command
) -> None:
    write_live(profile, CWD, session_id(1), jsonl(*talk("ab", session_id(1))))
    with running(cli_env) as agent:
        found = metrics(run_keeper)
        assert found["keeper_agent_running"] == 1
        assert found["keeper_agent_start_time_seconds"] == agent.status()["since"]
        assert found["keeper_agent_troubles"] == 0
        assert found["keeper_agent_watches"] > 0
        agent.end()
    told = json.loads((vault_home / "past.json").read_bytes())
    told["counts"] = {
        "sweep events": 2,
        "sweep chats": 9,
        "spells": 1,
        "spell seconds": 12.5,
        "mass deletion events": 1,
    }
    (vault_home / "past.json").write_text(json.dumps(told))
    found = metrics(run_keeper)
    assert found["keeper_agent_running"] == 0
    assert "keeper_agent_watches" not in found
    assert found["keeper_sweeps_total"] == 2
    assert found["keeper_put_back_chats_total"] == 9
    assert found["keeper_mass_deletions_total"] == 1
    assert found["keeper_degraded_spells_total"] == 1
    assert found["keeper_degraded_seconds_total"] == 12.5


@pytest.mark.accepts("BOTH-5")
def test_nothing_of_a_transcript_its_title_or_its_directory_is_in_them(profile: Path, run_keeper: Command) -> None:
    cwd = f"/srv/{CANARY}/proj"
    session = session_id(1)
    records = [*talk("ab", session, cwd=cwd), prompt("c", "b", CANARY, session, cwd)]
    write_live(profile, cwd, session, jsonl(*records, meta("custom-title", customTitle=CANARY, sessionId=session)))
    assert run_keeper("keep").code == 0
    assert CANARY in run_keeper("list").text, "it is there to be found"
    told = run_keeper("status", "--openmetrics").text
    assert CANARY not in told
    assert session not in told
    assert session not in run_keeper("status", "--openmetrics", "--json").text


def test_a_profiles_name_is_escaped_and_two_profiles_are_told_apart() -> None:
    names = ['/home/a "b"\\c\nd', "/home/\udcff"]
    profiles = tuple(map(Profile, names))
    seen = Gathered(1.5, "/v", profiles, (), {name: Bytes(3, 4, 2) for name in names}, 0, 0)
    found = families(exposition(seen, {"running": False}, NOTHING).decode())
    labels = [sample.labels["profile"] for sample in found["keeper_vault_own_bytes"].samples]
    assert labels == [names[0], r"/home/\xff"]


def test_a_vault_that_is_not_there_yet_has_no_sessions(vault_home: Path, run_keeper: Command) -> None:
    assert metrics(run_keeper)["keeper_kept_sessions"] == 0
    assert not vault_home.exists()


def test_the_docs_have_every_metric_and_no_other(profile: Path, cli_env: dict[str, str], run_keeper: Command) -> None:
    write_whole(profile, session_id(1))
    (profile / ".last-cleanup").touch()
    with running(cli_env):
        found = families(run_keeper("status", "--openmetrics").text)
    page = (Path(__file__).parent.parent / "docs" / "report.md").read_text("utf-8")
    told = dict(re.findall(r"^\| `(keeper_\w+)` \| (\w+)", page, re.MULTILINE))
    assert told == {name: family.type for name, family in found.items()}


# --- the file -----------------------------------------------------------------------------------------------


def test_a_file_is_written_whole_for_others_to_read(tmp_path: Path, profile: Path, run_keeper: Command) -> None:
    write_whole(profile, session_id(1))
    assert run_keeper("keep").code == 0
    output = tmp_path / "textfile" / "keeper.prom"
    output.parent.mkdir()
    for _ in range(2):
        done = run_keeper("status", "--openmetrics", "--output", output)
        assert (done.code, done.out, done.err) == (0, b"", "")
    assert stat.S_IMODE(output.stat().st_mode) == 0o644
    assert samples(output.read_text())["keeper_kept_sessions"] == 1
    assert [path.name for path in output.parent.iterdir()] == ["keeper.prom"]


def test_whoever_reads_the_file_meanwhile_sees_the_old_one_or_the_new_one(tmp_path: Path) -> None:
    path, old, new = tmp_path / "keeper.prom", MARK + b" old\n", MARK + b" new\n"
    put(path, old, MARK, 0o644)
    seen: list[tuple[str, bytes, int]] = []

    def look(call: str, names: tuple[Any, ...]) -> None:
        seen.append((call, path.read_bytes(), stat.S_IMODE(path.stat().st_mode)))

    disk.hook = look
    try:
        put(path, new, MARK, 0o644)
    finally:
        disk.hook = None
    assert {(data, mode) for _, data, mode in seen} == {(old, 0o644)}
    assert seen[-1][0] == "replace"
    assert path.read_bytes() == new


def test_what_fails_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "keeper.prom"
    put(path, MARK + b" old\n", MARK, 0o644)

    def full(call: str, names: tuple[Any, ...]) -> None:
        if call == "replace":
            raise OSError(28, "No space left on device")

    disk.hook = full
    try:
        with pytest.raises(Exception, match="No space left"):
            put(path, MARK + b" new\n", MARK, 0o644)
    finally:
        disk.hook = None
    assert path.read_bytes() == MARK + b" old\n"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kind", ["another file", "a link", "a folder"])
def test_nothing_but_an_earlier_one_is_replaced(
    tmp_path: Path, profile: Path, vault_home: Path, run_keeper: Command, kind: str
) -> None:
    write_whole(profile, session_id(1))
    assert run_keeper("keep").code == 0
    output = tmp_path / "out"
    if kind == "another file":
        append(output, b"mine\n")
    elif kind == "a link":
        output.symlink_to(kept_path(vault_home, session_id(1)))
    else:
        output.mkdir()
    before = everything(tmp_path)
    for words in (["status", "--openmetrics"], ["report"]):
        done = run_keeper(*words, "--output", output)
        assert done.code == 8, done.err
    assert everything(tmp_path) == before


def test_a_file_goes_with_the_metrics_only(tmp_path: Path, run_keeper: Command) -> None:
    assert run_keeper("status", "--output", tmp_path / "x").code == 2
    assert run_keeper("status", "--openmetrics", "--output", tmp_path / "no" / "x").code == 2
