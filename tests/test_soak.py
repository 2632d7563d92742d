"""The agent lives through kills, sweeps and writers: a short run of scripts/soak.py, and the judge that counts."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import soak

from tests.build import jsonl, prompt, session_id

LINES = [prompt(name, None) for name in "abcd"]


@pytest.mark.accepts("FAULT-2", "AGENT-1")
def test_writers_sweeps_and_kills_of_the_agent_lose_double_and_reorder_nothing(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, soak.__file__, "--seconds", "15", "--writers", "8", "--kills", "1", "3", "--rate", "10"],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"[1-9]\d* sweeps, [1-9]\d* kills: 0 lost, 0 doubled, 0 out of order", ran.stdout), ran.stdout


@pytest.mark.parametrize(
    ("kept", "told"),
    [
        (LINES, soak.Told(0, 0, 0)),
        (LINES[:3], soak.Told(1, 0, 0)),
        ([*LINES, LINES[1]], soak.Told(0, 1, 1)),
        ([LINES[1], LINES[0], *LINES[2:]], soak.Told(0, 0, 1)),
        ([], soak.Told(4, 0, 0)),
    ],
)
def test_the_judge_counts(kept: list[bytes], told: soak.Told, tmp_path: Path) -> None:
    chat = soak.Chat(tmp_path / "live", session_id(1), lines=LINES)
    place = tmp_path / "chats" / chat.session / f"{chat.session}.jsonl"
    place.parent.mkdir(parents=True)
    place.write_bytes(jsonl(*kept))
    assert soak.judge([chat], tmp_path) == told
