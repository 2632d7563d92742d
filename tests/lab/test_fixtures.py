"""The files that the CLI wrote are what their README and scenario.json say, small, and of no machine."""

import json
import re
from pathlib import Path

import make_fixtures
import pytest

from tests.lab import install

ROOT = make_fixtures.OUT
SCENARIOS = sorted(place.parent for place in ROOT.glob("*/*/scenario.json"))


def named(place: Path) -> str:
    return f"{place.parent.name}-{place.name}"


def test_both_pinned_versions_have_every_scenario_that_they_can_play() -> None:
    played = {(place.parent.name, place.name) for place in SCENARIOS}
    names = {scenario.__name__ for scenario in make_fixtures.SCENARIOS}
    assert {(v, n) for v in install.PINNED for n in names} - played == {(install.NODE_20_PICK, "trimmed")}


@pytest.mark.parametrize("place", SCENARIOS, ids=named)
def test_a_scenario_is_what_it_says(place: Path) -> None:
    told = json.loads((place / "scenario.json").read_text())
    assert (told["cli"], told["scenario"]) == (place.parent.name, place.name)
    assert f"| {place.name} |" in (ROOT / "README.md").read_text(), "not in the README"
    live = {file.stem for file in place.glob("projects/*/*.jsonl")}
    assert live == set(told["resumed"])
    assert told["session"] in live
    for kept in place.glob("kept/*"):
        assert kept.stem == told["session"]


@pytest.mark.parametrize("place", SCENARIOS, ids=named)
def test_every_line_is_a_record_of_the_cli_that_it_is_filed_under(place: Path) -> None:
    transcripts = list(place.rglob("*.jsonl"))
    versions = set()
    for transcript in transcripts:
        raw = transcript.read_bytes()
        assert raw.endswith(b"\n")
        versions |= {json.loads(line).get("version") for line in raw.splitlines()} - {None}
    assert versions == {place.parent.name}


def test_the_fixtures_stay_small_and_name_no_machine() -> None:
    files = [file for file in ROOT.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 1_500_000
    for file in files:
        assert not re.search(rb"/root\b|(?<!/srv/demo)/home/\w|/tmp/pytest|/tmp/tmp", file.read_bytes()), file


def test_a_line_without_vendor_text_keeps_the_clis_bytes() -> None:
    own = b'{"uuid":"u", "type":"user","message":{"content":"caf\\u00e9"}}'
    assert make_fixtures.scrub_line(own) == own
    prompt = "x" * 500
    vendor = json.dumps({"type": "attachment", "text": prompt, "uuid": "u"}).encode()
    assert json.loads(make_fixtures.scrub_line(vendor)) == {
        "type": "attachment",
        "text": "<elided 500 chars>",
        "uuid": "u",
    }
