"""Lineage: a fork is its own chat, and tells which conversation it was taken from."""

import itertools
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from keeper import files
from keeper.transcripts.forget import forget
from keeper.transcripts.keep import Keeper
from tests import build
from tests.build import CWD, append, jsonl, meta, session_id, talk, write_live
from tests.conftest import Ran
from tests.seam import World
from tests.seam import world as world_of

Command = Callable[..., Ran]

S, F, G, H = (session_id(number) for number in range(1, 5))
VERSIONS = sorted(path.name for path in build.REAL.iterdir() if path.is_dir())


@pytest.fixture
def world(profile: Path, vault_home: Path, home: Path) -> World:
    return world_of(profile, vault_home, home / ".local" / "state" / "keeper")


def write(world: World, session: str, data: bytes) -> Path:
    """A live file that is born later than all before it: the clock of a file system ticks every few milliseconds."""
    time.sleep(0.02)
    return write_live(world.profile, CWD, session, data)


def parents(world: World) -> dict[str, str | None]:
    """Session → the one it was forked from, as chat.json has it, of every chat."""
    vault = world.vault()
    told = {}
    for name in vault.chat_names():
        facts = vault.facts(vault.chat(name))
        assert facts is not None
        told |= {session: one.forked_from for session, one in facts.sessions.items()}
    return told


def families(copied: str = "") -> dict[str, bytes]:
    """S; F forked from it after b; G forked from F after f; H forked from S after d.

    `copied`: the session id that stands on copied records: the fork's own ("", from 2.1.110 on and in 2.0.14), or
    the original's ("original": 2.0.76 to 2.1.61).
    """

    def of(own: str, *chains: tuple[str, str]) -> bytes:
        records: list[bytes] = []
        parent = None
        for session, names in chains:
            records += talk(names, session if copied else own, parent)
            parent = names[-1]
        return jsonl(*records)

    return {
        S: of(S, (S, "abcdxy")),
        F: of(F, (S, "ab"), (F, "efpq")),
        G: of(G, (S, "ab"), (F, "ef"), (G, "gh")),
        H: of(H, (S, "abcd"), (H, "ij")),
    }


WANT = {S: None, F: S, G: F, H: S}


@pytest.mark.accepts("KEEP-12", "FIT-6")
@pytest.mark.parametrize("order", list(itertools.permutations((S, F, G, H))), ids=lambda o: "".join(s[7] for s in o))
def test_forks_and_forks_of_forks_name_their_parent_in_whatever_order_they_are_kept(
    world: World, order: tuple[str, ...]
) -> None:
    """Born in their order, as on the machine where they were made; kept one by one."""
    data = families("original" if order[0] == H else "")
    for session in (S, F, G, H):
        write(world, session, data[session])
    for session in order:
        world.about(session).keep()
    assert parents(world) == WANT


@pytest.mark.accepts("KEEP-12")
@pytest.mark.parametrize("copied", ["", "original"], ids=["own ids throughout", "the original's id on the copied head"])
def test_a_first_pass_over_all_tells_the_same(world: World, run_keeper: Command, copied: str) -> None:
    for session, data in families(copied).items():
        write(world, session, data)
    assert run_keeper("keep").code == 0
    assert parents(world) == WANT
    told = {chat["session"]: chat["forked_from"] for chat in run_keeper("list", "--json").json["chats"]}
    assert told == WANT


@pytest.mark.accepts("KEEP-12")
@pytest.mark.parametrize("order", [(F, S), (G, F, S), (H, F, G, S)], ids=lambda o: "".join(s[7] for s in o))
def test_the_original_id_on_a_copied_head_tells_the_parent_whatever_the_times_of_birth(
    world: World, order: tuple[str, ...]
) -> None:
    """A profile that was copied to a new machine: every file was born in the copier's order."""
    data = families("original")
    for session in order:
        write(world, session, data[session])
    world.keep_all()
    assert parents(world) == {session: WANT[session] for session in order}


@pytest.mark.accepts("KEEP-12", "KEEP-4")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("how", ["one pass", "the fork first", "the original first"])
def test_a_fork_of_the_real_cli_has_a_folder_of_its_own_with_its_own_conversation_alone(
    world: World, version: str, how: str
) -> None:
    original = str(build.real(version, "forked")["session"])
    (fork,) = set(build.real(version, "forked")["resumed"]) - {original}
    for session in (original, fork):
        write(world, session, build.real_live(version, "forked", session))
    if how == "one pass":
        world.keep_all()
    else:
        for session in (fork, original) if how == "the fork first" else (original, fork):
            world.about(session).keep()
    assert parents(world) == {original: None, fork: original}
    for session in (original, fork):
        folder = world.root / "chats" / session
        assert sorted(path.name for path in folder.iterdir()) == [f"{session}.jsonl", "chat.json", "seal"]
        assert (folder / f"{session}.jsonl").read_bytes() == build.real_live(version, "forked", session)


@pytest.mark.accepts("KEEP-12")
def test_a_fork_whose_original_is_gone_from_the_profile_still_finds_it_in_the_vault(world: World) -> None:
    data = families()
    path = write(world, S, data[S])
    world.keep()
    path.unlink()
    write(world, F, data[F])
    world.keep_all()
    assert parents(world) == {S: None, F: S}


@pytest.mark.accepts("KEEP-12")
def test_a_fold_or_a_restore_makes_no_original_younger_than_its_fork(world: World) -> None:
    data = families()
    path = write(world, S, data[S])
    write(world, F, data[F])
    world.keep()
    path.unlink()
    build.append(path, jsonl(*talk("zw", S, parent="y")))
    world.keep()
    assert path.stat().st_mtime_ns
    world.about(F).keep()
    assert parents(world) == {S: None, F: S}


@pytest.mark.accepts("KEEP-12")
def test_a_lost_index_changes_no_lineage(world: World) -> None:
    data = families()
    for session in (S, F, H):
        write(world, session, data[session])
    world.keep_all()
    os.unlink(world.root / "state.db")
    write(world, G, data[G])
    world.keep_all()
    assert parents(world) == WANT


@pytest.mark.accepts("KEEP-12")
@pytest.mark.parametrize("more", [{G}, {H}, {G, H}], ids=lambda more: "".join(sorted(s[7] for s in more)))
def test_an_original_that_was_forgotten_stays_told(world: World, more: set[str]) -> None:
    data = families()
    for session in (S, F, G, H):
        write(world, session, data[session])
    for session in (S, F):
        world.about(session).keep()
    forget(world.vault(), S, time.time())
    for session in sorted(more):
        world.about(session).keep()
    told = parents(world)
    assert told[F] == S
    assert G not in more or told[G] == F


@pytest.mark.accepts("KEEP-12")
def test_conversations_that_share_no_record_have_no_lineage(world: World) -> None:
    write(world, S, jsonl(*talk("abcd", S)))
    write(world, F, jsonl(*talk("pqrs", F)))
    world.keep_all()
    assert parents(world) == {S: None, F: None}


@pytest.mark.accepts("KEEP-12", "KEEP-13")
def test_no_parent_is_looked_for_in_another_profile(world: World, home: Path) -> None:
    data = families()
    other = world_of(home / "other", world.root, world.settings.state_home)
    write(world, S, data[S])
    write(other, F, data[F])
    world.keep()
    other.about(F).keep()
    assert parents(world) == {S: None, F: None}


@pytest.mark.accepts("KEEP-12")
def test_a_cleared_session_is_no_fork(world: World) -> None:
    for version in VERSIONS:
        build.copy_real(version, "cleared", world.profile)
        world.keep_all()
    assert set(parents(world).values()) == {None}


@pytest.mark.accepts("KEEP-12", "KEEP-15")
def test_a_session_that_was_kept_with_a_line_that_tells_nothing_is_told_of_once_others_do(world: World) -> None:
    """An agent keeps a file with its first line, and a fork's may be metadata alone."""
    write_live(world.profile, CWD, world.session, jsonl(*talk("ab", session=world.session)))
    world.keep()
    fork = world.about(session_id(2))
    live = write_live(fork.profile, CWD, fork.session, jsonl(meta("mode", mode="default", sessionId=fork.session)))
    fork.keep()
    facts = fork.vault().facts(fork.vault().chat(fork.session))
    assert facts is not None
    assert (facts.sessions[fork.session].cwd, facts.sessions[fork.session].forked_from) == ("", None)
    append(live, jsonl(*talk("ab", session=fork.session), *talk("c", session=fork.session, parent="b")))
    fork.keep()
    facts = fork.vault().facts(fork.vault().chat(fork.session))
    assert facts is not None
    assert (facts.sessions[fork.session].cwd, facts.sessions[fork.session].forked_from) == (CWD, world.session)
    (row,) = fork.vault().rows(fork.session)
    assert (row.cwd, row.head) == (CWD, "a")


def test_of_two_that_were_born_in_one_tick_of_the_clock_one_alone_is_told_as_the_others_fork(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "born", lambda *_: 1_700_000_000.0)  # a home put back by cp: every file of one moment
    for session, names in ((S, "abcd"), (F, "abxy")):
        write_live(world.profile, CWD, session, jsonl(*talk(names, session)))
    world.keep_all()
    assert parents(world) == {S: None, F: S}


@pytest.mark.accepts("KEEP-13")
def test_a_profile_whose_name_is_no_utf_8_stops_no_other(world: World, tmp_path: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/.cla\xffude"))
    vault = world.vault()
    keeper = Keeper(vault, time.time())
    for profile, session in ((odd, S), (world.profile, F)):
        write_live(profile, CWD, session, jsonl(*talk("ab", session)))
    told = {answer.session: answer for profile in (odd, world.profile) for answer in keeper.profile(profile)}
    keeper.finish()
    keeper.seal()
    assert (told[F].error, told[F].action) == (None, "linked")
    assert (world.root / "chats" / F / "seal" / f"{F}.jsonl.seal").exists()
    assert [row.session for row in world.vault().rows()] == [F]
    assert told[S].error
