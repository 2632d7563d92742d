"""The recorded payloads of hooks name no machine but the one that they are told of."""

import re
from pathlib import Path

import pytest

RECORDED = sorted((Path(__file__).resolve().parents[2] / "fixtures" / "hooks").glob("*.json"))


@pytest.mark.parametrize("place", RECORDED, ids=lambda place: place.stem)
def test_a_recording_names_no_machine(place: Path) -> None:
    text = place.read_text()
    paths = set(re.findall(r'"(/[^"\s]*)', text))
    assert {path for path in paths if not path.startswith("/srv/demo/")} <= {"/compact", "/clear", "/exit"}
