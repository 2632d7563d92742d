"""Guards that no other test would miss: what the kernel is asked before an answer, how long a name is held where no
lease can tell, what a file's name may have become between look and reading."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from keeper import disk, files
from keeper.errors import DiskError
from keeper.transcripts import held, pair, swap
from keeper.transcripts.mirror import Mirror
from tests.build import CWD, append, jsonl, session_id, talk, write_live
from tests.conftest import ALONE_ON_THE_MACHINE, Needs
from tests.seam import World, before, hooked, lines_of, world

A, B, C, D = talk("abcd")
(E,) = talk("e", parent="d")


@pytest.fixture
def here(tmp_path: Path) -> World:
    (tmp_path / "profile" / "projects").mkdir(parents=True)
    return world(tmp_path / "profile", tmp_path / "vault", tmp_path / "state")


@pytest.mark.accepts("KEEP-2")
@pytest.mark.parametrize("volume", ["same", "other"])
def test_the_kernel_has_synced_what_a_keep_answers_for(
    volume: str,
    needs: Needs,
    profile: Path,
    vault_home: Path,
    second_volume: Path,
    cli_env: dict[str, str],
    tmp_path: Path,
) -> None:
    strace = needs.strace()
    root = vault_home if volume == "same" else second_volume / "vault"
    session = session_id(1)
    live = write_live(profile, CWD, session, jsonl(A, B))
    log = tmp_path / "strace.log"
    traced = [strace, "-f", "-y", "-o", log, "-e", "trace=fsync,fdatasync,syncfs"]
    for more in (b"", jsonl(C), jsonl(D)):
        if more:
            append(live, more)
        done = subprocess.run(
            [*traced, sys.executable, "-m", "keeper", "keep", session, "--profile", str(profile)],
            env={**cli_env, "KEEPER_HOME": str(root)}, check=False, capture_output=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        synced = [line for line in log.read_text().splitlines() if line.endswith("= 0")]
        assert any(f"{session}.jsonl>" in line for line in synced), "the kept transcript was not synced"
        if not more:
            assert any(line.split("<")[1].startswith(f"{root}/chats/{session}>") for line in synced), "nor its folder"
            assert any(f"{root}/chats>" in line for line in synced), "nor the folder that names the chat"


@pytest.mark.accepts("SWAP-2")
@pytest.mark.parametrize(("age_s", "held_on"), [(5.0, True), (held.SETTLED_S + 5.0, False)])
def test_where_no_lease_can_tell_an_old_file_keeps_its_name_for_a_minute(
    age_s: float, held_on: bool, here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "nobody_writes", lambda fd: None)
    monkeypatch.setattr(swap, "LEASE_WAIT_S", 0.01)
    live = write_live(here.profile, CWD, here.session, jsonl(A, B))
    here.keep()
    live.unlink()
    write_live(here.profile, CWD, here.session, jsonl(C, D))
    now = time.time()
    monkeypatch.setattr(held.time, "time", lambda: now + age_s)
    answer = here.keep()
    assert lines_of(here.kept) == [A, B, C, D]
    assert (answer.waiting > 0) is held_on


@pytest.mark.accepts("SWAP-2", "SWAP-5")
def test_a_line_that_came_after_the_last_round_keeps_its_name_though_its_writer_is_gone(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swap, "ROUNDS", 1)
    live = write_live(here.profile, CWD, here.session, jsonl(A, B))
    here.keep()
    live.unlink()
    write_live(here.profile, CWD, here.session, jsonl(C, D))

    def write() -> None:
        append(here.live, jsonl(E))

    with hooked(before("exchange", write)):
        assert here.keep().waiting > 0
    assert E not in lines_of(here.kept)
    here.keep()
    assert lines_of(here.kept) == [A, B, C, D, E] == lines_of(here.live)


@pytest.mark.accepts("KEEP-16")
def test_even_a_umask_that_takes_all_leaves_the_user_his_vault(
    profile: Path, vault_home: Path, cli_env: dict[str, str]
) -> None:
    vault_home.mkdir(mode=0o755)
    write_live(profile, CWD, session_id(1), jsonl(A, B))
    done = subprocess.run(
        ["sh", "-c", 'umask 0777; exec "$0" -c "$1" keep', sys.executable, ALONE_ON_THE_MACHINE],
        env={**cli_env, "KEEPER_HOME": str(vault_home)}, check=False, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    linked = {path.stat().st_ino for path in profile.rglob("*.jsonl")}
    for path in [vault_home, *vault_home.rglob("*")]:
        mode = stat.S_IMODE(path.lstat().st_mode)
        if path.is_dir():
            assert oct(mode) == "0o700", path
        elif path.stat().st_ino not in linked:
            assert oct(mode) == "0o600", path


@pytest.mark.accepts("KEEP-9")
@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_what_is_no_regular_file_is_not_opened_whatever_its_name_was_a_moment_ago(kind: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"somebody else's")
    name = tmp_path / "name.jsonl"
    if kind == "link":
        name.symlink_to(secret)
    elif kind == "fifo":
        os.mkfifo(name)
    else:
        name.mkdir()
    with pytest.raises(FileNotFoundError):
        files.read(name)


@pytest.mark.accepts("KEEP-9", "KEEP-11")
def test_what_is_forgotten_is_removed_without_following_a_link(tmp_path: Path) -> None:
    """A chat's folder that somebody moved elsewhere, with a link in its place, and a link deep inside a folder."""
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "mine.txt").write_bytes(b"mine")
    tree = tmp_path / "tree"
    deep = tree
    for _ in range(60):
        deep = deep / "level"
    deep.mkdir(parents=True)
    (deep / "kept.txt").write_bytes(b"kept")
    (deep / "link").symlink_to(precious)
    link = tmp_path / "chat"
    link.symlink_to(precious)
    with pytest.raises(DiskError):
        disk.remove_tree(link)
    disk.remove_tree(tree)
    assert (precious / "mine.txt").read_bytes() == b"mine"
    assert not tree.exists()


@pytest.mark.accepts("KEEP-9", "KEEP-11")
def test_a_folder_that_a_link_replaces_while_it_is_removed_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "mine.txt").write_bytes(b"mine")
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    real = os.open

    def swapped(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path == "sub":
            (tree / "sub").rmdir()
            (tree / "sub").symlink_to(precious)
        return real(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(disk.os, "open", swapped)
    disk.remove_tree(tree)
    assert (precious / "mine.txt").read_bytes() == b"mine"
    assert not tree.exists()


@pytest.mark.accepts("RESTORE-4", "SWAP-6")
def test_a_second_link_that_was_made_within_a_restore_is_read_before_it_goes(here: World) -> None:
    """Cut back, so split by the restore's own keep; written to, deleted and made anew before its fold."""
    live = write_live(here.profile, CWD, here.session, jsonl(A, B, C, D))
    here.keep()
    live.unlink()
    write_live(here.profile, CWD, here.session, jsonl(A, B))
    (late,) = talk("z", parent="b")

    vault = here.vault()
    with vault, vault.lock(here.session):
        mirror = Mirror(vault, vault.chat(here.session), time.time())
        one = mirror.pair(str(here.live), f"{here.session}.jsonl", main=True)
        outcome = pair.keep(one, pair.Known(), [])
        assert outcome.action in ("split", "none")
        append(here.live, jsonl(late))
        here.live.unlink()
        write_live(here.profile, CWD, here.session, jsonl(A, B))
        pair.restore(one, outcome, False, time.time_ns())
    here.keep()
    assert late in lines_of(here.kept)
