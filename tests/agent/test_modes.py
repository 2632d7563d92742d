"""What keeper makes is the user's alone, whatever the umask: its files 0600, its folders 0700, the socket too."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from loguru import logger

from keeper.agent.journal import open_log
from tests.agent.running import running, until
from tests.build import append, jsonl, session_id, talk, write_live
from tests.conftest import Ran

ONE, TWO, THREE = session_id(1), session_id(2), session_id(3)


@pytest.fixture
def no_umask() -> Iterator[None]:
    """Whatever is made has the mode that was asked for, and no bit less: the children's as well."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(*places: Path, but: frozenset[int] = frozenset()) -> dict[str, str]:
    """Whatever is neither a folder of 0700 nor a file of 0600; inodes in `but` are others'."""
    found = {}
    for place in places:
        for path in [place, *place.rglob("*")]:
            seen = path.lstat()
            wanted = 0o700 if stat.S_ISDIR(seen.st_mode) else 0o600
            if stat.S_IMODE(seen.st_mode) != wanted and seen.st_ino not in but:
                found[str(path)] = oct(seen.st_mode)
    return found


@pytest.mark.accepts("KEEP-16")
def test_under_a_umask_that_takes_nothing_all_that_keeper_makes_is_the_users_alone(
    cli_env: dict[str, str], profile: Path, run_keeper: Callable[..., Ran], no_umask: None
) -> None:
    vault, state_home = Path(cli_env["KEEPER_HOME"]), Path(cli_env["XDG_STATE_HOME"]) / "keeper"
    lives = [write_live(profile, "/srv/new", one, jsonl(*talk("ab", one))) for one in (ONE, TWO, THREE)]

    def hook(event: str, session: str, **more: str) -> None:
        payload = {"hook_event_name": event, "session_id": session, "transcript_path": str(live_of[session]), **more}
        assert run_keeper("hook", stdin=json.dumps(payload).encode()).code == 0

    live_of = dict(zip((ONE, TWO, THREE), lives, strict=True))
    with running(cli_env) as agent:
        until(lambda: agent.keeps(THREE, lives[2]), "all is kept")
        append(lives[0], jsonl(*talk("cd", ONE, parent="b")))
        hook("Stop", ONE)
        hook("SessionEnd", ONE, reason="clear")
        assert run_keeper("hook", stdin=b"no payload").code == 0
        assert run_keeper("exclude", "add", "--session", TWO, "--yes").code == 0
        assert run_keeper("forget", THREE).code == 0
        write_live(profile, "/srv/new", ONE, jsonl(*talk("xy", ONE, parent="a")))
        assert run_keeper("keep").code == 0
        assert run_keeper("restore", ONE).code == 0
        assert run_keeper("report").code == 0
        until(lambda: agent.status()["queued"] == 0, "nothing is under way")
        linked = frozenset(path.stat().st_ino for path in profile.rglob("*.jsonl"))
        assert modes(vault, state_home, but=linked) == {}
        there = {path.name for path in [*vault.rglob("*"), *state_home.rglob("*")]}
        wanted = {"agent.sock", "agent.lock", "agent.log", "agent.json", "hook.log", "report.html", "rules.jsonl"}
        wanted |= {"state.db", "tombstones.jsonl", "removals.jsonl", "chat.json", f"{ONE}.lock", f"{ONE}.jsonl.seal"}
        assert wanted <= there, "the walk has seen them"
    assert modes(vault, state_home, but=linked) == {}


@pytest.mark.accepts("KEEP-16")
def test_a_log_is_the_users_alone_also_one_that_was_turned_over_or_that_an_older_keeper_made(
    tmp_path: Path, no_umask: None
) -> None:
    folder = tmp_path / "state"
    folder.mkdir(0o700)
    (folder / "agent.log").write_text("older\n")
    (folder / "agent.log").chmod(0o644)
    open_log(folder, to_stderr=False)
    try:
        for _ in range(5):
            logger.info("x" * 1_000_000)
    finally:
        logger.remove()
    assert len(list(folder.iterdir())) > 1
    assert modes(folder) == {}


@pytest.mark.accepts("KEEP-16")
def test_a_log_makes_its_folder_for_the_user_alone(tmp_path: Path, no_umask: None) -> None:
    open_log(tmp_path / "made" / "state", to_stderr=False)
    logger.remove()
    assert modes(tmp_path / "made") == {}
