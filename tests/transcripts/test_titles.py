"""Titles: a rule on them has a transcript read through once, whichever vault or thread of the process asks."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from keeper import files
from keeper.transcripts.rules import Rule
from keeper.transcripts.titles import Titles
from tests.build import CWD, append, jsonl, meta, prompt, talk, write_live
from tests.seam import World, world


def title(text: str) -> bytes:
    return jsonl(meta("custom-title", customTitle=text))


@pytest.fixture
def here(profile: Path, vault_home: Path, tmp_path: Path) -> World:
    plain = world(profile, vault_home, tmp_path / "state")
    rule = Rule.of({"title": "scratch-*"}).conditions
    return replace(plain, settings=replace(plain.settings, exclude=(rule,)))


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes each reading of a file took."""
    found: list[int] = []
    read_at = files.read_at

    def reads(fd: int, offset: int, name: str) -> bytes:
        data = read_at(fd, offset, name)
        found.append(len(data))
        return data

    monkeypatch.setattr(files, "read_at", reads)
    return found


@pytest.mark.accepts("SEAL-3", "POLICY-2")
def test_a_turn_costs_what_it_added_whichever_thread_keeps_it(here: World, taken: list[int]) -> None:
    write_live(here.profile, CWD, here.session, jsonl(*talk("abcd"), prompt("long", "d", "x" * 100_000)))
    answers = []

    def turn() -> None:
        answers.append(here.keep().action)  # by a vault of its own, as each answer of an agent's door is

    for number in range(4):
        append(here.live, jsonl(prompt(f"n{number}", "long")))
        one = threading.Thread(target=turn)
        one.start()
        one.join()
        if not number:
            assert max(taken) > 100_000
            taken.clear()
    assert len(answers) == 4
    assert max(taken) < 10_000, "the whole was read again"
    append(here.live, title("scratch-1"))
    turn()
    assert answers[-1] == "removed"


@pytest.mark.accepts("POLICY-1")
def test_a_tail_alone_is_read_only_of_the_file_whose_beginning_was(tmp_path: Path) -> None:
    titles, path = Titles(), tmp_path / "a.jsonl"
    path.write_bytes(title("one") + jsonl(prompt("a", None)))
    assert titles.of([str(path)]) == {"one"}
    other = title("two") + jsonl(prompt("b", None), prompt("c", "b"))
    inode = path.stat().st_ino
    path.write_bytes(other)  # as one that gets the number of an inode which is gone
    assert path.stat().st_ino == inode
    assert titles.of([str(path)]) == {"two"}
    for cut in range(1, 9):
        append(path, jsonl(prompt(f"p{cut}", None)))
        with open(path, "ab") as half:
            half.write(title(f"at {cut}")[:cut])
        assert titles.of([str(path)]) == ({"two"} if cut == 1 else {f"at {cut - 1}"})
        append(path, title(f"at {cut}")[cut:])
    assert titles.of([str(path)]) == {"at 8"}
    os.truncate(path, len(other))
    assert titles.of([str(path)]) == {"two"}
