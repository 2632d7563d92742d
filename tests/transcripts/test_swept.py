"""Swept: what a killed run left unsealed of chats that were swept since, the next pass seals, once."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from keeper.agent.work import Work
from keeper.transcripts import seal, swept
from keeper.transcripts.keep import Keeper
from keeper.transcripts.sealer import Behind, Sealer
from keeper.transcripts.verify import verify
from tests.build import CWD, append, jsonl, prompt, session_id, talk, write_live
from tests.chat import put, sweep
from tests.damage import seal_of
from tests.seam import World, changes_of, killed_at, world


@pytest.fixture
def here(profile: Path, vault_home: Path, tmp_path: Path) -> World:
    found = world(profile, vault_home, tmp_path / "state")
    write_live(found.profile, CWD, found.session, jsonl(*talk("ab")))
    put(found.companion / "tool-results" / "x.txt", b"out\n")
    put(found.companion / "subagents" / "agent-1.jsonl", jsonl(*talk("st")))
    return found


def link_only(here: World) -> None:
    """A pass that is stopped before its sealing (`keep --no-seal`)."""
    vault = here.vault()
    keeper = Keeper(vault, time.time())
    keeper.profile(here.profile)
    keeper.finish()
    vault.index.close()


def unsealed(here: World) -> list[str]:
    vault = here.vault()
    found = verify(vault)
    vault.index.close()
    assert found.faults == ()
    return [note.file for note in found.notes]


@pytest.mark.accepts("SEAL-1", "KEEP-5")
def test_a_swept_chat_that_no_run_sealed_is_sealed_by_the_next_pass_and_then_left_alone(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    link_only(here)
    sweep(here.profile)
    assert len(unsealed(here)) == 3
    here.keep_all()
    assert unsealed(here) == []
    assert bytes(seal.read(str(seal_of(here))).content) == jsonl(*talk("ab"))
    monkeypatch.setattr(Sealer, "transcript", None)  # its row tells so from now on
    assert changes_of(here.keep_all) == []


@pytest.mark.accepts("SEAL-1")
@pytest.mark.parametrize("what", ["a line", "another file", "a subagent's line"])
def test_so_is_what_alone_was_not_sealed_of_one(here: World, what: str) -> None:
    here.keep_all()
    if what == "a line":
        append(here.live, jsonl(prompt("c", "b")))
    elif what == "another file":
        put(here.companion / "tool-results" / "y.txt", b"more\n")
    else:
        append(here.companion / "subagents" / "agent-1.jsonl", jsonl(prompt("u", "t")))
    link_only(here)
    sweep(here.profile)
    assert len(unsealed(here)) == 1
    here.keep_all()
    assert unsealed(here) == []


@pytest.mark.accepts("SEAL-1")
def test_the_agents_reconcile_does_so_too(here: World) -> None:
    link_only(here)
    sweep(here.profile)
    Work(here.settings, lambda: False, lambda note: None).reconcile()
    assert unsealed(here) == []


@pytest.mark.accepts("SEAL-1", "KEEP-8")
def test_wherever_a_pass_is_killed_what_it_kept_is_sealed_once_it_is_swept(
    profile: Path, vault_home: Path, tmp_path: Path
) -> None:
    for number in range(1000):
        here = world(profile / str(number), vault_home / str(number), tmp_path / f"state-{number}")
        write_live(here.profile, CWD, here.session, jsonl(*talk("ab")))
        put(here.companion / "tool-results" / "x.txt", b"out\n")
        put(here.companion / "subagents" / "agent-1.jsonl", jsonl(*talk("st")))
        killed = killed_at(number, here.keep_all)
        sweep(here.profile)
        here.keep_all()
        here.keep_all()
        assert unsealed(here) == [], f"killed at its change number {number}"
        if not killed:
            break
    assert number > 10


def test_one_that_lives_again_and_grows_is_looked_at_again_when_it_is_swept(here: World) -> None:
    here.keep_all()
    sweep(here.profile)
    here.keep_all()
    here.restore()
    put(here.companion / "tool-results" / "y.txt", b"more\n")
    link_only(here)
    sweep(here.profile)
    assert unsealed(here) == [f"{here.session}/tool-results/y.txt"]
    here.keep_all()
    assert unsealed(here) == []


@pytest.mark.accepts("SEAL-4")
def test_what_is_damaged_of_a_swept_one_is_told_as_before_and_stays_as_it_is(here: World) -> None:
    here.keep_all()
    sweep(here.profile)
    kept, other = here.kept, here.kept_companion / "tool-results" / "x.txt"
    kept.write_bytes(jsonl(*talk("a")))
    other.write_bytes(b"")
    vault = here.vault()
    versions = Path(vault.chat(here.session).versions)
    for rot in (b"", b"rot"):
        versions.write_bytes(rotten := versions.read_bytes()[:40] + rot + versions.read_bytes()[40 + len(rot) :])
        here.keep_all()
        here.keep_all()
        assert (kept.read_bytes(), other.read_bytes()) == (jsonl(*talk("a")), b"")
        assert versions.read_bytes() == rotten
        assert len(verify(vault).faults) == 2
        put(here.kept_companion / "tool-results" / "y.txt", b"more\n")
    vault.index.close()


def test_one_that_another_holds_is_the_next_passes(here: World) -> None:
    link_only(here)
    sweep(here.profile)
    vault = here.vault()
    (row,) = vault.rows(here.session)
    behind: Behind = {}
    with here.vault().lock(here.session):
        assert swept.look(vault, [row], behind, time.time()) == []
    assert behind == {}
    assert swept.look(vault, [row], behind, time.time()) == []
    assert list(behind) == [here.session]
    assert swept.look(vault, [replace(row, chat=session_id(9))], {}, time.time()) == [], "its folder is gone"
    vault.index.close()
