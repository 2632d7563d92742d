"""Every case of fixtures/merge holds for `merge()` and for the command, byte for byte."""

import json
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from keeper.transcripts.merge import merge

SUITE = Path(__file__).parents[2] / "fixtures" / "merge"
TABLE = SUITE.parents[1] / "docs" / "acceptance.md"


@dataclass(frozen=True, slots=True)
class Case:
    """One folder of the suite."""

    place: Path

    def bytes_of(self, name: str) -> bytes:
        return (self.place / f"{name}.jsonl").read_bytes()

    @property
    def says(self) -> dict[str, Any]:
        return tomllib.loads((self.place / "case.toml").read_text(encoding="utf-8"))

    @property
    def torn(self) -> list[str]:
        return [self.says["torn"]] if "torn" in self.says else []


CASES = [pytest.param(Case(place), id=place.name) for place in sorted(SUITE.iterdir())]


@pytest.mark.accepts("MERGE-13")
@pytest.mark.parametrize("case", CASES)
def test_the_case_holds_for_merge(case: Case) -> None:
    found = merge(case.bytes_of("kept"), case.bytes_of("live"))
    assert found.data == case.bytes_of("want")
    assert [fragment.decode() for fragment in found.torn] == case.torn
    assert list(found.variants) == case.says.get("variants", [])
    again = merge(found.data, case.bytes_of("live"))
    assert (again.data, again.added, again.variants, again.torn) == (found.data, 0, (), ())


@pytest.mark.accepts("MERGE-13")
@pytest.mark.parametrize("case", CASES)
def test_the_case_holds_for_the_command(case: Case, run_keeper: Callable[..., Any]) -> None:
    before = case.bytes_of("kept"), case.bytes_of("live")
    ran = run_keeper("merge", case.place / "kept.jsonl", case.place / "live.jsonl")
    assert ran.code == 0, ran.err
    assert ran.out == case.bytes_of("want")
    assert all(uuid in ran.err for uuid in case.says.get("variants", []))
    assert (case.bytes_of("kept"), case.bytes_of("live")) == before


@pytest.mark.accepts("MERGE-13")
def test_the_plan_of_the_command_says_what_the_merge_holds(run_keeper: Callable[..., Any]) -> None:
    def plan(name: str) -> dict[str, Any]:
        place = SUITE / name
        answer = run_keeper("merge", place / "kept.jsonl", place / "live.jsonl", "--plan", "--json")
        assert answer.code == 0, answer.err
        found: dict[str, Any] = json.loads(answer.out)
        return found

    found = plan("two-versions-of-two-and-a-tail")
    assert (found["kept"], found["live"], found["merged"], found["added"]) == (3, 4, 6, 3)
    assert len(found["variants"]) == 2
    assert plan("torn-both")["torn"] == 1
    assert plan("torn-kept-completed")["torn"] == 0


@pytest.mark.accepts("MERGE-13")
def test_the_suite_has_a_reason_and_known_ids_for_each_of_its_cases() -> None:
    assert len(CASES) >= 40
    known = TABLE.read_text(encoding="utf-8")
    told = set()
    for place in sorted(SUITE.iterdir()):
        says = Case(place).says
        assert {path.name for path in place.iterdir()} == {"kept.jsonl", "live.jsonl", "want.jsonl", "case.toml"}
        assert set(says) <= {"why", "ids", "torn", "variants"}, place.name
        assert says["why"] and "\n" not in says["why"], place.name
        assert says["ids"] and all(f"- {one} " in known for one in says["ids"]), place.name
        told |= set(says["ids"])
    assert told >= {f"MERGE-{number}" for number in range(1, 13)}
