"""The vault's own life: what is forgotten stays so, what is merely missing is not forgotten, nobody else may look."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from keeper.errors import ChatGone, KeeperError, NotKept, Refused, VaultUnavailable
from keeper.transcripts.forget import forget
from keeper.transcripts.index import Index, IndexLost, Row
from keeper.transcripts.keep import Keeper, Options
from keeper.transcripts.vault import Vault
from keeper.transcripts.verify import verify
from tests import build
from tests.build import append, jsonl, talk, write_live
from tests.conftest import Needs, Ran
from tests.seam import World, before, calls_of, hooked, in_child, lines_of, state_of, world
from tests.volumes import tmpfs

CWD = build.CWD


@pytest.fixture
def here(profile: Path, vault_home: Path, tmp_path: Path) -> World:
    return world(profile, vault_home, tmp_path / "state")


def with_sessions(here: World, count: int) -> list[World]:
    """So many kept sessions, each with a companion."""
    views = [here.about(build.session_id(number)) for number in range(1, count + 1)]
    for view in views:
        write_live(view.profile, CWD, view.session, jsonl(*talk("ab", session=view.session)))
        (view.companion / "tool-results").mkdir(parents=True)
        (view.companion / "tool-results" / "x.txt").write_bytes(b"out")
    here.keep_all()
    assert all(view.kept.exists() for view in views)
    return views


def tombstones(here: World) -> bytes:
    path = here.root / "tombstones.jsonl"
    return path.read_bytes() if path.exists() else b""


def notes_of(here: World) -> str:
    vault = here.vault()
    Keeper(vault, time.time())
    return " ".join(vault.notes)


# ------------------------------------------------------------------ forgotten by command


@pytest.mark.accepts("KEEP-11")
def test_forget_removes_every_kept_byte_and_a_keep_does_not_bring_them_back(
    profile: Path, vault_home: Path, run_keeper: Callable[..., Ran]
) -> None:
    session = build.session_id(1)
    canary = "the words of the person"
    live = write_live(profile, CWD, session, jsonl(build.prompt("a", None, canary), *talk("bc", parent="a")))
    (live.with_suffix("") / "tool-results").mkdir(parents=True)
    (live.with_suffix("") / "tool-results" / "x.txt").write_text(canary)
    (profile / "tasks" / session).mkdir(parents=True)
    (profile / "tasks" / session / "1.json").write_text(canary)
    assert run_keeper("keep").code == 0
    write_live(profile, CWD, session, jsonl(build.prompt("a", None, canary), *talk("xy", parent="a")))
    assert run_keeper("keep").code == 0
    was = state_of(profile)

    ran = run_keeper("forget", session, "--json")
    assert (ran.code, ran.json["forgotten"][0]["sessions"]) == (0, [session])
    assert not (vault_home / "chats" / session).exists()
    assert not [path for path in vault_home.rglob("*") if path.is_file() and canary.encode() in path.read_bytes()]
    assert state_of(profile) == was, "forget touched a live file"
    assert run_keeper("keep", session, "--json").json["kept"][0]["verdict"] == "forgotten"
    assert run_keeper("keep").code == 0
    assert run_keeper("keep", live).code == 0
    assert not (vault_home / "chats" / session).exists()
    assert run_keeper("restore", session).code == 4
    assert run_keeper("list", "--json").json["chats"] == []


@pytest.mark.accepts("KEEP-11")
def test_adopt_keeps_again_what_was_forgotten(here: World) -> None:
    (view,) = with_sessions(here, 1)
    forget(here.vault(), view.session, time.time())
    assert view.keep(Options(adopt=True)).action == "linked"
    append(view.live, jsonl(*talk("cd", parent="b")))
    view.keep()
    assert len(lines_of(view.kept)) == 4
    forget(here.vault(), view.session, time.time())
    assert view.keep().verdict == "forgotten"


@pytest.mark.accepts("KEEP-11")
def test_a_keep_that_was_queued_before_the_forget_does_not_bring_the_folder_back(here: World) -> None:
    (view,) = with_sessions(here, 1)
    append(view.live, jsonl(*talk("cd", parent="b")))
    queued = Keeper(here.vault(), time.time())
    assert queued._row(str(here.profile), view.session) is not None
    forget(here.vault(), view.session, time.time())
    answer = queued.session(here.profile, view.session)
    queued.finish()
    assert answer is not None
    assert answer.verdict == "forgotten"
    assert not view.chat.exists()
    assert here.vault().rows() == []


@pytest.mark.accepts("KEEP-11")
def test_a_forget_between_a_keep_and_the_rows_of_its_run_leaves_no_row(here: World) -> None:
    write_live(here.profile, CWD, here.session, jsonl(*talk("ab")))
    keeper = Keeper(here.vault(), time.time())
    keeper.session(here.profile, here.session)
    forget(here.vault(), here.session, time.time())
    keeper.finish()
    assert not here.chat.exists()
    here.keep()
    assert here.vault().rows() == []
    assert not here.chat.exists()


@pytest.mark.accepts("KEEP-11", "KEEP-10")
def test_a_forget_during_a_keep_waits_for_it_and_then_all_is_gone(here: World) -> None:
    """Another process forgets while the keep stands between two folder levels of the companion."""
    (view,) = with_sessions(here, 1)
    (view.companion / "deep" / "er").mkdir(parents=True)
    (view.companion / "deep" / "er" / "y.txt").write_bytes(b"out")
    begun: list[subprocess.Popen[bytes]] = []
    code = (
        "import sys, time\n"
        "from tests.seam import world\nfrom pathlib import Path\nfrom keeper.transcripts.forget import forget\n"
        "here = world(*map(Path, sys.argv[1:4]))\n"
        "print('ready', flush=True)\n"
        "forget(here.vault(), sys.argv[4], time.time())\n"
    )
    places = [here.profile, here.root, here.settings.state_home]

    def start() -> None:
        forgetter = subprocess.Popen([sys.executable, "-c", code, *places, view.session], stdout=subprocess.PIPE)
        begun.append(forgetter)
        assert forgetter.stdout is not None
        forgetter.stdout.readline()

    with hooked(before("mkdir", start, "deep/er")):
        view.keep()
    (forgetter,) = begun
    assert forgetter.wait() == 0
    assert forgetter.stdout is not None
    forgetter.stdout.close()
    assert not view.chat.exists()
    assert view.keep().verdict == "forgotten"
    assert not view.chat.exists()


@pytest.mark.accepts("KEEP-11")
def test_forget_of_what_is_not_kept_says_so_and_of_two_asks(here: World, tmp_path: Path) -> None:
    with pytest.raises(NotKept):
        forget(here.vault(), build.session_id(9), time.time())
    with pytest.raises(Refused):
        forget(here.vault(), "../../x", time.time())
    other = world(tmp_path / "second-profile", here.root, here.settings.state_home)
    for view in (here, other):
        write_live(view.profile, CWD, view.session, jsonl(*talk("ab")))
        view.keep()
    with pytest.raises(Refused):
        forget(here.vault(), here.session, time.time())
    forget(here.vault(), here.session, time.time(), str(other.profile))
    assert here.keep().verdict == "same"
    assert other.keep().verdict == "forgotten"


# ------------------------------------------------------------------ removed by hand


@pytest.mark.accepts("KEEP-11")
def test_a_folder_that_a_hand_removed_counts_as_forgotten_until_it_is_adopted(
    profile: Path, vault_home: Path, run_keeper: Callable[..., Ran]
) -> None:
    sessions = [build.session_id(number) for number in (1, 2)]
    for session in sessions:
        write_live(profile, CWD, session, jsonl(*talk("ab", session=session)))
    assert run_keeper("keep").code == 0
    shutil.rmtree(vault_home / "chats" / sessions[0])
    for _ in range(2):
        kept = run_keeper("keep", "--json").json["kept"]
        assert {one["session"]: one["verdict"] for one in kept} == {sessions[0]: "forgotten", sessions[1]: "same"}
        assert not (vault_home / "chats" / sessions[0]).exists()
    assert run_keeper("keep", sessions[0], "--adopt", "--json").json["kept"][0]["action"] == "linked"
    assert run_keeper("keep", sessions[0], "--json").json["kept"][0]["verdict"] == "same"


@pytest.mark.accepts("KEEP-11")
def test_a_hand_that_removes_the_folder_before_any_step_of_a_keep_is_obeyed(here: World) -> None:
    """Also between two folder levels: whatever the keep does next, the folder is not there again."""

    def prepared(number: int) -> World:
        view = here.about(build.session_id(number))
        write_live(view.profile, CWD, view.session, jsonl(*talk("ab", session=view.session)))
        view.keep()
        (view.companion / "deep" / "er").mkdir(parents=True)
        (view.companion / "deep" / "er" / "y.txt").write_bytes(b"out")
        (view.companion / "deep" / "er" / "agent-z.jsonl").write_bytes(jsonl(*talk("pq")))
        write_live(view.profile, CWD, view.session, jsonl(*talk("cd", session=view.session, parent="b")))
        return view

    with_sessions(here, 1)
    count = len(calls_of(prepared(900).keep))
    assert count > 20
    for number in range(count):
        view = prepared(1000 + number)
        seen: list[str] = []

        def remove(call: str, paths: tuple[str, ...], view: World = view, seen: list[str] = seen) -> None:
            seen.append(call)
            if len(seen) == number + 1:  # noqa: B023
                shutil.rmtree(view.chat)

        with hooked(remove), suppress(ChatGone):
            view.keep()
        assert not view.chat.exists(), f"back again after change {number} ({seen[number]})"
        assert view.keep().verdict == "forgotten"
        shutil.rmtree(view.live.parent)


@pytest.mark.accepts("KEEP-2", "KEEP-11")
def test_a_removed_folder_whose_lock_is_held_stops_no_other_keep(here: World) -> None:
    views = with_sessions(here, 3)
    shutil.rmtree(views[0].chat)
    append(views[1].live, jsonl(*talk("cd", parent="b", session=views[1].session)))
    hasty = replace(views[1], settings=replace(here.settings, lock_wait_s=0.05))
    with here.vault().lock(views[0].session):
        assert hasty.keep().verdict == "same"
        assert len(lines_of(views[1].kept)) == 4
    assert here.keep_all()[views[0].session].verdict == "forgotten"


# ------------------------------------------------------------------ missing, and not forgotten


@pytest.mark.accepts("KEEP-11")
@pytest.mark.parametrize(("count", "gone"), [(3, 2), (12, 2), (12, 7), (60, 6)])
def test_many_folders_that_are_missing_at_once_are_a_named_state_and_no_forgetting(
    here: World, count: int, gone: int
) -> None:
    views = with_sessions(here, count)
    for view in views[:gone]:
        shutil.rmtree(view.chat)
    assert f"{gone} of {count} chat folders are missing" in notes_of(here)
    answers = here.keep_all()
    assert all(answer.error is None for answer in answers.values())
    assert all(view.kept.samefile(view.live) for view in views)
    assert tombstones(here) == b""


def missing_of(here: World) -> set[str]:
    """The sessions whose chats' folders are gone, as a later run knows them."""
    with here.vault() as vault:
        return {row.session for row in vault.missing()}


@pytest.mark.accepts("KEEP-11")
def test_chats_that_went_many_at_once_stay_a_named_state_until_they_are_back_or_forgotten(
    here: World, tmp_path: Path
) -> None:
    views = with_sessions(here, 6)
    lost, lives = views[:3], views[3:5]
    backup = tmp_path / "backup"
    for view in [*lost, *lives]:
        shutil.copytree(view.chat, backup / view.session)
        shutil.rmtree(view.chat)
    for view in lost:
        view.live.unlink()
    for _ in range(3):
        here.keep_all()
        assert missing_of(here) == {view.session for view in lost}, "what lives is kept anew"
    with pytest.raises(NotKept, match="was kept, and its folder is gone"):
        lost[0].restore()
    with here.vault() as vault:
        assert {fault.session for fault in verify(vault, []).faults} == {view.session for view in lost}
        forget(vault, lost[0].session, time.time())
    assert missing_of(here) == {view.session for view in lost[1:]}
    shutil.copytree(backup / lost[1].session, lost[1].chat)
    assert missing_of(here) == {lost[2].session}
    lost[1].restore()
    assert lines_of(lost[1].live) == lines_of(lost[1].kept)
    here.keep_all()
    assert missing_of(here) == {lost[2].session}


@pytest.mark.accepts("KEEP-11")
@pytest.mark.parametrize("what", ["chats", "chats emptied", "locks"])
def test_a_vault_that_lost_a_part_of_itself_keeps_on(here: World, what: str) -> None:
    views = with_sessions(here, 3)
    shutil.rmtree(here.root / what.split()[0])
    if what == "chats emptied":
        (here.root / "chats").mkdir(mode=0o700)
    answers = here.keep_all()
    assert all(answer.error is None for answer in answers.values())
    assert all(view.kept.samefile(view.live) for view in views)
    assert tombstones(here) == b""


@pytest.mark.accepts("KEEP-11")
@pytest.mark.parametrize("command", [["keep"], ["restore"], ["list"], ["status"], ["verify"], ["forget"]])
def test_a_vault_whose_volume_is_not_mounted_is_refused_and_never_made_anew(
    needs: Needs, profile: Path, tmp_path: Path, run_keeper: Callable[..., Ran], command: list[str]
) -> None:
    session = build.session_id(1)
    live = write_live(profile, CWD, session, jsonl(*talk("ab")))
    env = {"KEEPER_HOME": str(tmp_path / "volume" / "vault")}
    with tmpfs(needs, tmp_path / "volume"):
        assert run_keeper("keep", env=env).code == 0
    append(live, jsonl(*talk("cd", parent="b")))
    words = [*command, session] if command[0] in ("restore", "forget") else command
    ran = run_keeper(*words, env=env)
    assert ran.code == 1
    assert "mounted" in ran.err
    assert list((tmp_path / "volume").iterdir()) == []
    assert lines_of(live) == talk("abcd")


@pytest.mark.accepts("KEEP-11", "KEEP-18")
def test_a_vault_from_a_backup_is_taken_on_and_nothing_is_forgotten(here: World, tmp_path: Path) -> None:
    """Everything as it was at the backup, the links broken into files of their own; two chats are younger than that."""
    views = with_sessions(here, 3)
    subprocess.run(["cp", "-a", here.root, tmp_path / "backup"], check=True)
    younger = [here.about(build.session_id(number)) for number in (11, 12)]
    for view in younger:
        write_live(view.profile, CWD, view.session, jsonl(*talk("ab", session=view.session)))
    append(views[0].live, jsonl(*talk("cd", parent="b", session=views[0].session)))
    here.keep_all()
    shutil.rmtree(here.root)
    subprocess.run(["cp", "-a", tmp_path / "backup", here.root], check=True)
    here.keep_all()
    assert all(view.kept.samefile(view.live) for view in [*views, *younger])
    assert all((view.kept_companion / "tool-results" / "x.txt").samefile(
        view.companion / "tool-results" / "x.txt") for view in views)  # fmt: skip
    assert tombstones(here) == b""
    assert here.keep_all()[here.session].action == "none"


@pytest.mark.accepts("KEEP-11")
def test_chats_from_an_older_backup_under_a_newer_index_are_not_forgotten(here: World, tmp_path: Path) -> None:
    views = with_sessions(here, 2)
    subprocess.run(["cp", "-a", here.root / "chats", tmp_path / "backup"], check=True)
    younger = here.about(build.session_id(11))
    write_live(younger.profile, CWD, younger.session, jsonl(*talk("ab", session=younger.session)))
    here.keep_all()
    shutil.rmtree(here.root / "chats")
    (tmp_path / "backup").rename(here.root / "chats")
    assert "nothing is forgotten" in notes_of(here)
    here.keep_all()
    assert all(view.kept.samefile(view.live) for view in [*views, younger])
    assert tombstones(here) == b""


@pytest.mark.accepts("KEEP-18")
def test_a_copied_vault_is_noticed_and_relinked(here: World, tmp_path: Path) -> None:
    (view,) = with_sessions(here, 1)
    agent = view.companion / "subagents" / "agent-1.jsonl"
    agent.parent.mkdir()
    agent.write_bytes(jsonl(*talk("pq")))
    here.keep_all()
    here.root.rename(tmp_path / "original")
    subprocess.run(["cp", "-a", tmp_path / "original", here.root], check=True)
    shutil.rmtree(tmp_path / "original")
    assert not view.kept.samefile(view.live)
    answer = view.keep()
    assert (answer.action, answer.files) == ("relinked", 2)
    assert view.kept.samefile(view.live)
    assert (view.kept_companion / "subagents" / "agent-1.jsonl").samefile(agent)
    assert (view.kept_companion / "tool-results" / "x.txt").samefile(view.companion / "tool-results" / "x.txt")


@pytest.mark.accepts("KEEP-18")
def test_a_profile_from_a_backup_is_relinked_and_what_it_lacks_is_kept(here: World, tmp_path: Path) -> None:
    """Timeshift put the profile back: the live files are older copies of what kept holds."""
    (view,) = with_sessions(here, 1)
    subprocess.run(["cp", "-a", here.profile, tmp_path / "backup"], check=True)
    append(view.live, jsonl(*talk("cd", parent="b")))
    here.keep_all()
    shutil.rmtree(here.profile)
    (tmp_path / "backup").rename(here.profile)
    here.keep_all()
    assert lines_of(view.kept) == talk("abcd")
    view.restore()
    assert lines_of(view.live) == talk("abcd")
    assert view.kept.samefile(view.live)


@pytest.mark.accepts("KEEP-11")
@pytest.mark.parametrize("damage", ["lost", "emptied", "no database", "cut short", "another schema", "a folder"])
def test_a_lost_or_broken_index_is_built_anew_and_nothing_is_forgotten(here: World, damage: str) -> None:
    views = with_sessions(here, 3)
    index = here.root / "state.db"
    if damage == "another schema":
        with sqlite3.connect(index) as connection:
            connection.execute("DROP TABLE session")
            connection.execute("CREATE TABLE session (a)")
        connection.close()
    elif damage == "cut short":
        index.write_bytes(index.read_bytes()[:5000])
    elif damage == "no database":
        index.write_bytes(b"something else entirely " * 100)
    else:
        index.unlink()
        if damage == "emptied":
            index.touch()
        elif damage == "a folder":
            index.mkdir()
    append(views[0].live, jsonl(*talk("cd", parent="b", session=views[0].session)))
    views[1].live.unlink()
    answers = here.keep_all()
    assert all(answer.error is None for answer in answers.values())
    assert len(lines_of(views[0].kept)) == 4
    assert views[1].restore().action == "restored"
    assert tombstones(here) == b""
    if damage != "a folder":
        assert sorted(row.session for row in here.vault().rows()) == sorted(view.session for view in views)


@pytest.mark.accepts("KEEP-11")
def test_a_lost_index_and_a_lost_folder_together_forget_nothing(here: World) -> None:
    views = with_sessions(here, 2)
    (here.root / "state.db").unlink()
    shutil.rmtree(views[0].chat)
    here.keep_all()
    assert views[0].kept.samefile(views[0].live)
    assert tombstones(here) == b""


@pytest.mark.accepts("KEEP-11", "KEEP-17")
def test_an_index_that_cannot_be_written_stops_no_keep_and_buries_a_folder_once(here: World) -> None:
    """One folder was removed by hand, and the index is on a full disk."""
    views = with_sessions(here, 3)
    shutil.rmtree(views[0].chat)

    def fail(call: str, paths: tuple[str, ...]) -> None:
        if call == "commit":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for number in range(2):
        append(views[1].live, jsonl(*talk([f"n{number}"], parent="b", session=views[1].session)))
        with hooked(fail):
            answers = here.keep_all()
        assert answers[views[0].session].verdict == "forgotten"
        assert answers[views[1].session].error is None
        assert len(lines_of(views[1].kept)) == 3 + number
    assert tombstones(here).count(b"\n") == 1


@pytest.mark.accepts("KEEP-11")
def test_an_index_of_a_newer_keeper_is_told_or_built_anew_and_stops_with_no_traceback(
    here: World, run_keeper: Callable[..., Ran], profile: Path
) -> None:
    views = with_sessions(here, 3)
    shutil.rmtree(views[0].chat)
    connection = sqlite3.connect(here.root / "state.db")
    connection.execute("PRAGMA user_version = 99")
    connection.commit()
    connection.close()
    ran = run_keeper("keep")
    assert "Traceback" not in ran.err
    assert views[1].kept.samefile(views[1].live)


@pytest.mark.accepts("KEEP-11")
def test_a_chat_that_is_buried_because_a_hand_removed_it_is_told_with_the_word_that_brings_it_back(
    profile: Path, vault_home: Path, run_keeper: Callable[..., Ran]
) -> None:
    sessions = [build.session_id(number) for number in (1, 2)]
    for session in sessions:
        write_live(profile, CWD, session, jsonl(*talk("ab", session=session)))
    assert run_keeper("keep").code == 0
    shutil.rmtree(vault_home / "chats" / sessions[0])
    ran = run_keeper("keep")
    assert sessions[0] in ran.err
    assert "--adopt" in ran.err


@pytest.mark.accepts("KEEP-11")
def test_a_torn_line_among_the_tombstones_costs_no_other(here: World) -> None:
    views = with_sessions(here, 3)
    forget(here.vault(), views[0].session, time.time())
    with (here.root / "tombstones.jsonl").open("ab") as stream:
        stream.write(b'{"chat":"torn')
    forget(here.vault(), views[1].session, time.time())
    answers = here.keep_all()
    told = {answers[view.session].verdict for view in views[:2]}
    assert told == {"forgotten"}
    assert answers[views[2].session].verdict == "same"


@pytest.mark.accepts("KEEP-10", "KEEP-11")
def test_a_chat_that_another_process_makes_during_a_look_for_missing_ones_is_not_buried(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_sessions(here, 1)
    other = here.about(build.session_id(2))
    write_live(other.profile, CWD, other.session, jsonl(*talk("ab", session=other.session)))
    for name in ("chat_names", "rows"):
        real = getattr(Vault, name)
        once: list[int] = []

        def racing(self: Vault, *args: object, real: Callable[..., object] = real, once: list[int] = once) -> object:
            found = real(self, *args)
            if not once:
                once.append(1)
                assert in_child(other.keep) == 0
            return found

        with monkeypatch.context() as patch:
            patch.setattr(Vault, name, racing)
            Keeper(here.vault(), time.time())
        assert tombstones(here) == b""
        assert other.keep().verdict == "same"
        forget(here.vault(), other.session, time.time())
        (here.root / "tombstones.jsonl").unlink()


@pytest.mark.accepts("KEEP-11")
def test_the_vault_is_refused_where_its_id_is_gone(here: World) -> None:
    with_sessions(here, 1)
    (here.root / "id").unlink()
    with pytest.raises(VaultUnavailable):
        here.keep()
    assert isinstance(VaultUnavailable("x"), KeeperError)


# ------------------------------------------------------------------ the user's alone


@pytest.mark.accepts("KEEP-16")
@pytest.mark.parametrize("umask", ["000", "022", "077"])
@pytest.mark.parametrize("volume", ["same", "other"])
def test_folders_are_0700_and_files_0600_whatever_the_umask(
    umask: str, volume: str, profile: Path, vault_home: Path, second_volume: Path, cli_env: dict[str, str]
) -> None:
    session = build.session_id(1)
    root = vault_home if volume == "same" else second_volume / "vault"
    live = write_live(profile, CWD, session, jsonl(*talk("abcd")))
    live.chmod(0o640)
    (live.with_suffix("") / "tool-results").mkdir(parents=True)
    (live.with_suffix("") / "tool-results" / "x.txt").write_bytes(b"out")

    def run(*words: str) -> None:
        line = f'umask {umask}; exec "$0" -m keeper "$@"'
        subprocess.run(
            ["sh", "-c", line, sys.executable, *words],
            env={**cli_env, "KEEPER_HOME": str(root)}, check=True, capture_output=True,
        )  # fmt: skip

    run("keep", "--profile", str(profile))
    write_live(profile, CWD, session, jsonl(*talk("xy", parent="a")))
    run("keep", "--profile", str(profile))
    write_live(profile, CWD, session, jsonl(*talk("z", parent="d")))
    run("keep", "--profile", str(profile))
    second = write_live(profile, CWD, build.session_id(2), jsonl(*talk("ab", session=build.session_id(2))))
    run("keep", "--profile", str(profile))
    run("forget", second.stem)
    run("restore", session)
    linked = {path.stat().st_ino for path in profile.rglob("*") if path.is_file()}
    state_home = Path(cli_env["XDG_STATE_HOME"]) / "keeper"
    seen = 0
    for place in (root, state_home):
        for path in [place, *place.rglob("*")]:
            mode = stat.S_IMODE(path.lstat().st_mode)
            if path.is_dir():
                assert oct(mode) == "0o700", path
            elif path.stat().st_ino not in linked or volume == "other":
                assert oct(mode) == "0o600", path
                seen += 1
    assert seen > 5


@pytest.mark.accepts("KEEP-16")
def test_a_linked_file_keeps_the_mode_that_claude_gave_it(here: World) -> None:
    write_live(here.profile, CWD, here.session, jsonl(*talk("ab"))).chmod(0o644)
    here.keep()
    assert stat.S_IMODE(here.kept.stat().st_mode) == 0o644
    assert stat.S_IMODE(here.root.stat().st_mode) == 0o700


@pytest.mark.accepts("KEEP-16")
def test_no_word_of_a_transcript_stands_in_any_message_or_in_the_index(
    profile: Path, vault_home: Path, run_keeper: Callable[..., Ran], cli_env: dict[str, str]
) -> None:
    canary = "Zwiebelkuchen"
    session = build.session_id(1)
    live = write_live(
        profile, CWD, session, jsonl(build.prompt("a", None, canary), build.meta("custom-title", customTitle=canary))
    )
    outputs = [run_keeper("keep")]
    append(live, b'{"broken ' + canary.encode() + b"\n" + canary.encode())
    outputs += [run_keeper("keep", "--json"), run_keeper("verify"), run_keeper("verify", "--json")]
    write_live(profile, CWD, session, jsonl(build.answer("z", "y", canary), build.answer("a", None, canary)))
    outputs += [run_keeper("keep"), run_keeper("status"), run_keeper("status", "--json"), run_keeper("reindex")]
    outputs += [run_keeper("restore", session), run_keeper("restore", session, "--json")]
    (vault_home / "chats" / session / "chat.json").write_text(f'{{"{canary}')
    (vault_home / "state.db").write_text(canary)
    outputs += [run_keeper("keep"), run_keeper("verify"), run_keeper("status"), run_keeper("forget", session)]
    for ran in outputs:
        assert canary not in ran.err
        assert canary not in ran.text
    told = [vault_home / "state.db", vault_home / "tombstones.jsonl", *Path(cli_env["XDG_STATE_HOME"]).rglob("*")]
    assert not [path for path in told if path.is_file() and canary.encode() in path.read_bytes()]


@pytest.mark.accepts("KEEP-16", "RESTORE-12")
@pytest.mark.parametrize("name", ["../../x", "..", ".", "a/b", "", "-x", ".hidden", "a" * 129, "a\n", "ä", "a..b"])
def test_a_name_that_could_leave_its_folder_is_no_chats_name(here: World, name: str) -> None:
    with pytest.raises(Refused):
        here.vault().chat(name)
    write_live(here.profile, CWD, here.session, jsonl(*talk("ab")))
    with pytest.raises(Refused):
        here.keep(Options(chat=name))
    assert os.listdir(here.root / "chats") == []


def test_rows_that_are_shared_are_read_anew_once_anybody_has_written(vault_home: Path) -> None:
    vault_home.mkdir(parents=True, exist_ok=True)
    index, other = Index(vault_home / "state.db"), Index(vault_home / "state.db")
    one, two, three = (Row(f"c{n}", f"s{n}", "/p", "", "", "link", "", "", 0.0, 0.0) for n in range(3))
    index.write(put=[one])
    with index.sharing():
        first = index.rows()
        first.clear()
        with index.sharing():
            assert index.rows() == [one]
        assert index._shared is not None, "the outer one goes on"
        index.write(put=[two])
        assert index.rows() == [one, two], "its own"
        other.write(put=[three])
        assert index.rows() == [one, two, three], "another's"
        (vault_home / "state.db").unlink()
        index.close()
        with pytest.raises(IndexLost):
            index.rows()
