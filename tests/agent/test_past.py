"""What the agent remembers over time: runs, spells of trouble, events, counts, bounded, in the vault."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from keeper.agent.condition import Condition
from keeper.agent.journal import Journal
from keeper.agent.past import FILE, LIMIT, UNKNOWN, Past, read
from tests.agent.running import running, until
from tests.conftest import Ran


@pytest.fixture
def condition() -> Condition:
    return Condition(Journal(time.monotonic), lambda: None)


def begun(vault: Path, now: float = 100.0) -> Past:
    past = Past()
    past.begin(vault, now)
    return past


def test_a_trouble_is_a_spell_from_when_it_was_met_until_it_is_cured(condition: Condition) -> None:
    condition.trouble("watch: overflow", "too many events")
    (spell,) = condition.past.spells
    assert (spell["what"], spell["why"], spell["until"]) == ("watch", "too many events", None)
    condition.cured("watch: overflow")
    assert spell["until"] >= spell["since"]


def test_many_troubles_of_one_kind_are_one_spell_until_the_last_is_cured(condition: Condition) -> None:
    for name in "abc":
        condition.trouble(f"keep: {name}", f"{name} does not read")
    condition.trouble("seal: a", "no room")
    condition.cured("keep: a")
    condition.cured("keep: c")
    assert [(one["what"], one["until"]) for one in condition.past.spells] == [("keep", None), ("seal", None)]
    condition.cured("keep: b")
    assert [one["until"] is None for one in condition.past.spells] == [False, True]
    assert condition.past.counts["spells"] == 2


def test_what_a_killed_run_left_open_ends_by_the_next_start(tmp_path: Path) -> None:
    past = begun(tmp_path, 100.0)
    past.begun("watch", "overflow", 110.0)
    past.write()
    again = begun(tmp_path, 500.0)
    assert again.runs == [
        {"since": 100.0, "until": 500.0, "why": UNKNOWN},
        {"since": 500.0, "until": None, "why": ""},
    ]
    assert again.spells == [{"what": "watch", "why": "overflow", "since": 110.0, "until": 500.0}]
    assert again.counts == {"spells": 1, "spell seconds": 390.0}


def test_a_clean_end_closes_the_run_and_what_lasted(tmp_path: Path) -> None:
    past = begun(tmp_path, 100.0)
    past.begun("watch", "overflow", 110.0)
    past.end(200.0)
    past.write()
    told = read(tmp_path)
    assert told["runs"] == [{"since": 100.0, "until": 200.0, "why": ""}]
    assert told["spells"][0]["until"] == 200.0


def test_what_was_told_before_the_run_had_begun_stands_behind_what_earlier_runs_told(tmp_path: Path) -> None:
    first = begun(tmp_path)
    first.event("sweep", "3 chats", 120.0, 3)
    first.end(130.0)
    first.write()
    past = Past()
    past.begun("state", "no room", 140.0)
    past.begin(tmp_path, 141.0)
    past.write()
    told = read(tmp_path)
    assert [one["what"] for one in told["spells"]] == ["state"]
    assert told["spells"][0]["until"] is None, "it lasts: this run met it"
    assert told["counts"] == {"sweep events": 1, "sweep chats": 3, "spells": 1}


def test_many_events_of_one_kind_push_out_no_other_kinds(tmp_path: Path) -> None:
    past = begun(tmp_path)
    past.event("sweep", "the only one", 1.0, 7)
    for number in range(3 * LIMIT):
        past.event("keep", f"event {number}", float(number), 1)
        past.begun("watch", f"spell {number}", float(number))
        past.ended("watch", number + 0.5)
    past.write()
    told = read(tmp_path)
    kinds = [one["what"] for one in told["events"]]
    assert (kinds.count("sweep"), kinds.count("keep"), len(told["spells"])) == (1, LIMIT, LIMIT)
    assert told["events"][-1]["text"] == f"event {3 * LIMIT - 1}"
    assert told["counts"]["keep events"] == 3 * LIMIT


def test_runs_are_bounded_too(tmp_path: Path) -> None:
    for number in range(LIMIT + 5):
        past = begun(tmp_path, float(number))
        past.end(number + 0.5)
        past.write()
    told = read(tmp_path)
    assert len(told["runs"]) == LIMIT
    assert told["runs"][-1]["since"] == LIMIT + 4


def test_nothing_is_written_where_nothing_was_told(tmp_path: Path) -> None:
    past = begun(tmp_path)
    past.write()
    before = (tmp_path / FILE).stat()
    past.write()
    assert (tmp_path / FILE).stat().st_ino == before.st_ino
    past.event("clock", "set", 1.0, 1)
    past.write()
    assert (tmp_path / FILE).stat().st_ino != before.st_ino


def test_what_could_not_be_written_is_written_when_it_can(tmp_path: Path) -> None:
    vault = tmp_path / "vault"
    past = begun(vault)
    with pytest.raises(FileNotFoundError):
        past.write()
    vault.mkdir()
    past.write()
    assert read(vault)["runs"]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"runs": 3, "counts": [], "events": [{"when": "x"}]}', '{"spells": [{"what": 1}], "runs": [4]}'],
)
def test_what_does_not_read_is_not_there(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    assert read(tmp_path) == {"runs": [], "spells": [], "events": [], "counts": {}}
    assert len(begun(tmp_path).runs) == 1


def test_the_agent_writes_down_its_runs_and_its_spells(
    cli_env: dict[str, str], vault_home: Path, profile: Path, home: Path, run_keeper: Callable[..., Ran]
) -> None:
    config = home / ".config" / "keeper" / "config.toml"
    config.parent.mkdir(parents=True)
    with running(cli_env) as agent:
        config.write_text("vault = ")
        agent.send(signal.SIGHUP)
        until(lambda: read(vault_home)["spells"], "the settings that do not read are a spell")
        config.write_text("")
        agent.send(signal.SIGHUP)
        until(lambda: read(vault_home)["spells"][0]["until"], "it is over")
        assert read(vault_home)["runs"][0]["until"] is None
        agent.end()
    told = json.loads((vault_home / FILE).read_bytes())
    assert (vault_home / FILE).stat().st_mode & 0o077 == 0
    assert told["spells"][0]["what"] == "settings"
    assert told["runs"][0]["until"] >= told["runs"][0]["since"]
    with running(cli_env) as agent:
        until(lambda: len(read(vault_home)["runs"]) == 2, "the second run is told")
