"""`keeper doctor`: what it tells of a home as it stands, in text and in one JSON object, and that it says no word of a
transcript."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.build import CWD, jsonl, session_id, talk, write_live
from tests.chat import DAY_S, put
from tests.conftest import Ran
from tests.seam import World
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

    subprocess.run(period["cure"], shell=True, check=True)
    assert json.loads(small.read_bytes()) == {"cleanupPeriodDays": 36500, "model": "x"}
    after = run_keeper("doctor", "--json").json
    assert (after["retention"]["days"], after["sweep"]["chats"]) == (60, [])
    assert {one["state"] for one in [*of(after, "retention"), *of(after, "sweep")]} == {"ok"}
