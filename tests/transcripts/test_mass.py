"""Mass: after a mass loss a person puts back all that is kept, in its order, and may be interrupted."""

import os
import pty
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

from keeper.cli import restore as command
from keeper.transcripts.mass import restore_all
from keeper.transcripts.restore import Restored, Restorer, Want
from tests import build
from tests.build import CWD, jsonl, session_id, talk, write_live
from tests.chat import age, everything, files, kept_path, sweep, write_whole
from tests.conftest import Ran
from tests.seam import World, before, calls_of, hooked, killed_at, names_of_ours
from tests.seam import world as world_of

Command = Callable[..., Ran]


@pytest.fixture
def world(profile: Path, vault_home: Path, home: Path) -> World:
    """The profile and the vault of the command, for calls from here."""
    return world_of(profile, vault_home, home / ".local" / "state" / "keeper")


def put_back(world: World, want: Want | None = None) -> list[Restored]:
    vault = world.vault()
    return restore_all(Restorer(vault, time.time_ns(), want or Want()), vault.rows())


def chats(world: World, count: int, cwd: str = CWD, first: int = 1) -> list[Path]:
    """So many chats of one directory, each a day newer than the one before; the ids are in no order of time."""
    paths = []
    for number in range(count):
        session = session_id(first + (number * 7) % count)
        path = write_live(world.profile, cwd, session, jsonl(*talk("abcd", session, cwd=cwd)))
        then = time.time() - (200 - number) * 86_400
        os.utime(path, (then, then))
        paths.append(path)
    return paths


def in_order(folder: Path) -> list[str]:
    """The transcripts of a project folder as `--continue` sees them, the newest last."""
    return [path.name for path in sorted(folder.glob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns)]


@pytest.mark.accepts("RESTORE-11", "RESTORE-1")
def test_all_comes_back_after_a_mass_loss_with_its_companions_and_extras(
    world: World, profile: Path, run_keeper: Command
) -> None:
    for number in range(1, 8):
        write_whole(profile, session_id(number))
    before = files(profile)
    assert run_keeper("keep").code == 0
    sweep(profile)
    asked = time.time()
    done = run_keeper("restore", "--all", "--json")
    assert done.code == 0, done.err
    assert sorted(one["session"] for one in done.json["sessions"]) == [session_id(n) for n in range(1, 8)]
    assert {one["action"] for one in done.json["sessions"]} == {"restored"}
    assert files(profile) == before
    for number in range(1, 8):
        session = session_id(number)
        assert kept_path(world.root, session).samefile(build.live_path(profile, session))
    for name in before:
        assert (profile / name).stat().st_mtime >= asked - 10, f"{name} is past its retention still"


@pytest.mark.accepts("RESTORE-11", "RESTORE-3")
def test_what_is_there_already_is_folded_or_left(world: World, run_keeper: Command) -> None:
    paths = chats(world, 5)
    world.keep_all()
    records = {path: talk("abcd", path.stem) for path in paths}
    paths[0].unlink()
    paths[1].unlink()
    build.append(paths[1], b"")
    paths[2].unlink()
    build.append(paths[2], jsonl(*talk("ef", paths[2].stem, parent="d")))
    build.append(paths[3], jsonl(*talk("ef", paths[3].stem, parent="d")))
    paths[4].unlink()
    build.append(paths[4], jsonl(*records[paths[4]][:2]))
    assert run_keeper("restore", "--all").code == 0
    longer = {paths[2], paths[3]}
    for path in paths:
        want = talk("abcdef" if path in longer else "abcd", path.stem)
        assert path.read_bytes() == jsonl(*want), paths.index(path)


@pytest.mark.accepts("RESTORE-2", "RESTORE-11")
@pytest.mark.parametrize("lost", [range(6), range(3), range(3, 6), (1, 4), (5,), (0,)], ids=str)
def test_the_order_of_times_within_a_project_stays(world: World, lost: range) -> None:
    """`--continue` takes the newest: which one that is must not change, whoever of them was swept."""
    paths = chats(world, 6)
    world.keep_all()
    for number in lost:
        paths[number].unlink()
    put_back(world)
    assert in_order(paths[0].parent) == [path.name for path in paths]
    times = [path.stat().st_mtime_ns for path in paths]
    assert all(later - earlier >= 1_000_000 for earlier, later in pairwise(times)), "Claude counts milliseconds"


@pytest.mark.accepts("RESTORE-2", "RESTORE-11")
def test_a_chat_that_is_not_kept_and_not_lost_keeps_its_place_in_the_order(world: World) -> None:
    paths = chats(world, 5)
    world.keep_all()
    unknown = write_live(world.profile, CWD, session_id(90), jsonl(*talk("ab", session_id(90))))
    between = (paths[2].stat().st_mtime_ns + paths[3].stat().st_mtime_ns) // 2
    os.utime(unknown, ns=(between, between))
    newest = write_live(world.profile, CWD, session_id(91), jsonl(*talk("ab", session_id(91))))
    for path in paths:
        path.unlink()
    put_back(world)
    want = [*paths[:3], unknown, *paths[3:], newest]
    assert in_order(newest.parent) == [path.name for path in want]


@pytest.mark.accepts("RESTORE-2", "RESTORE-11")
def test_a_project_where_nothing_was_lost_is_not_reordered_either(world: World) -> None:
    mine, others = chats(world, 3), chats(world, 3, "/srv/demo/other", first=20)
    world.keep_all()
    mine[1].unlink()
    put_back(world)
    assert in_order(mine[0].parent) == [path.name for path in mine]
    assert in_order(others[0].parent) == [path.name for path in others]


@pytest.mark.accepts("RESTORE-11", "RESTORE-2")
def test_killed_in_the_middle_and_run_again_it_completes_in_the_same_order(tmp_path: Path, second_volume: Path) -> None:
    world = world_of(second_volume / "profile", second_volume / "vault", second_volume / "state")

    def begin() -> list[Path]:
        for used in (world.profile, world.root, world.settings.state_home):
            shutil.rmtree(used, ignore_errors=True)
        paths = chats(world, 4)
        put_a_tool_result(world, paths[2].stem)
        world.keep_all()
        unknown = write_live(world.profile, CWD, session_id(90), jsonl(*talk("ab", session_id(90))))
        os.utime(unknown, ns=(paths[1].stat().st_mtime_ns + 1,) * 2)
        for path in paths:
            path.unlink()
        return [*paths[:2], unknown, *paths[2:]]

    begin()
    calls = calls_of(lambda: put_back(world))
    numbers = [number for number, (call, _) in enumerate(calls) if call != "sync"]
    assert len(numbers) > 8
    for number in numbers:
        paths = begin()
        assert killed_at(number, lambda: put_back(world))
        put_back(world)
        assert in_order(paths[0].parent) == [path.name for path in paths], f"killed at {calls[number]}"
        assert all(path.read_bytes() for path in paths)
        assert names_of_ours(world.profile, world.root) == []


def put_a_tool_result(world: World, session: str) -> None:
    folder = world.profile / "projects" / "-srv-demo-proj" / session / "tool-results"
    folder.mkdir(parents=True)
    (folder / "toolu_1.txt").write_bytes(b"output")


@pytest.mark.accepts("RESTORE-11")
def test_the_command_killed_by_a_signal_and_run_again_completes(
    world: World, cli_env: dict[str, str], tmp_path: Path, run_keeper: Command
) -> None:
    paths = chats(world, 12)
    world.keep_all()
    shutil.rmtree(paths[0].parent)
    script = (
        "import os, signal, sys\n"
        "from keeper import disk\n"
        "from keeper.cli.main import main\n"
        "links = 0\n"
        "def hook(call, paths):\n"
        "    global links\n"
        "    links += call == 'link'\n"
        "    if links == 6: os.kill(os.getpid(), signal.SIGKILL)\n"
        "disk.hook = hook\n"
        "sys.argv = ['keeper', 'restore', '--all']\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], env=cli_env, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == -9, done.stderr
    assert 0 < sum(path.exists() for path in paths) < len(paths)
    again = run_keeper("restore", "--all", "--json")
    assert again.code == 0, again.err
    assert in_order(paths[0].parent) == [path.name for path in paths]


@pytest.mark.accepts("RESTORE-11")
def test_ctrl_c_ends_it_with_130_and_the_next_run_completes(
    world: World, cli_env: dict[str, str], tmp_path: Path, run_keeper: Command
) -> None:
    paths = chats(world, 6)
    world.keep_all()
    shutil.rmtree(paths[0].parent)
    script = (
        "import os, signal, sys\n"
        "from keeper import disk\n"
        "from keeper.cli.main import main\n"
        "disk.hook = lambda call, paths: call == 'link' and os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.argv = ['keeper', 'restore', '--all']\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=cli_env, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 130
    assert "Traceback" not in done.stderr
    assert run_keeper("restore", "--all").code == 0
    assert in_order(paths[0].parent) == [path.name for path in paths]


@pytest.mark.accepts("RESTORE-11")
def test_only_the_chats_of_one_directory_come_back_when_asked(
    world: World, tmp_path: Path, run_keeper: Command
) -> None:
    real = tmp_path / "proj"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    mine, others = chats(world, 3, str(real)), chats(world, 3, "/srv/demo/other", first=20)
    world.keep_all()
    for way, where in ((str(real), None), ("proj", tmp_path), (".", real), (str(tmp_path / "link"), None)):
        sweep(world.profile)
        done = run_keeper("restore", "--all", "--cwd", way, "--json", cwd=where)
        assert done.code == 0, done.err
        assert {one["session"] for one in done.json["sessions"]} == {path.stem for path in mine}, way
        assert all(path.exists() for path in mine)
        assert not any(path.exists() for path in others)


@pytest.mark.accepts("RESTORE-11")
def test_nothing_comes_back_that_nobody_asked_for(world: World, run_keeper: Command) -> None:
    paths = chats(world, 4)
    world.keep_all()
    shutil.rmtree(paths[0].parent)
    assert run_keeper("keep").code == 0
    assert run_keeper("list").code == 0
    assert run_keeper("restore", paths[2].stem).code == 0
    assert [path.exists() for path in paths] == [False, False, True, False]


@pytest.mark.accepts("RESTORE-11")
def test_a_session_that_fails_stops_no_other_and_the_code_is_3(world: World, run_keeper: Command) -> None:
    paths = chats(world, 4)
    world.keep_all()
    for path in paths:
        path.unlink()
    paths[1].mkdir()
    done = run_keeper("restore", "--all", "--json")
    assert done.code == 3
    failed = [one for one in done.json["sessions"] if one["error"]]
    assert [one["session"] for one in failed] == [paths[1].stem]
    assert failed[0]["exit_code"] != 0
    assert [path.is_file() for path in paths] == [True, False, True, True]


@pytest.mark.accepts("RESTORE-11")
def test_a_dry_run_tells_all_and_does_nothing(world: World, tmp_path: Path, run_keeper: Command) -> None:
    paths = chats(world, 4)
    world.keep_all()
    paths[0].unlink()
    before = everything(tmp_path)
    done = run_keeper("restore", "--all", "--dry-run", "--json")
    assert done.code == 0
    assert everything(tmp_path) == before
    told = {one["session"]: one["action"] for one in done.json["sessions"]}
    assert told == {path.stem: "would restore" if path == paths[0] else "none" for path in paths}


@pytest.mark.accepts("RESTORE-4", "RESTORE-11")
def test_a_transcript_that_appears_right_before_its_link_is_folded(world: World) -> None:
    paths = chats(world, 3)
    world.keep_all()
    for path in paths:
        path.unlink()
    tail = jsonl(*talk("ef", paths[1].stem, parent="d"))
    with hooked(before("link", lambda: build.append(paths[1], tail), str(paths[1]))):
        put_back(world)
    assert paths[1].read_bytes() == jsonl(*talk("abcdef", paths[1].stem))
    assert all(path.exists() for path in paths)


@pytest.mark.accepts("RESTORE-11")
def test_what_was_written_to_a_split_file_and_an_unfinished_line_are_seen_to_here_too(world: World) -> None:
    split, torn = chats(world, 2)
    world.keep_all()
    split.unlink()
    build.append(split, jsonl(*talk("abcd", split.stem)[:3]))
    world.keep_all()
    build.append(split, jsonl(*talk("e", split.stem, parent="c")))
    build.append(torn, b'{"type":"user","uu')
    split.unlink()
    torn.unlink()
    put_back(world)
    assert split.read_bytes() == jsonl(*talk("abcd", split.stem), *talk("e", split.stem, parent="c"))
    assert torn.read_bytes() == jsonl(*talk("abcd", torn.stem))


@pytest.mark.accepts("RESTORE-11")
def test_on_another_volume_it_copies(profile: Path, second_volume: Path) -> None:
    world = world_of(profile, second_volume / "vault", second_volume / "state")
    paths = chats(world, 4)
    world.keep_all()
    shutil.rmtree(paths[0].parent)
    put_back(world)
    assert in_order(paths[0].parent) == [path.name for path in paths]
    assert {path.read_bytes() for path in paths} == {jsonl(*talk("abcd", path.stem)) for path in paths}
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths} == {0o600}


@pytest.mark.accepts("RESTORE-11", "FIT-6")
def test_both_files_of_a_continued_chat_come_back(world: World, run_keeper: Command) -> None:
    first = write_live(world.profile, CWD, session_id(1), jsonl(*talk("abcd", session_id(1))))
    second = write_live(world.profile, CWD, session_id(2), jsonl(*talk("ef", session_id(1), parent="d")))
    world.keep_all()
    shutil.rmtree(first.parent)
    assert run_keeper("restore", "--all").code == 0
    assert first.exists()
    assert second.exists()


@pytest.mark.accepts("RESTORE-11")
def test_progress_is_shown_on_a_terminal_and_only_there(
    world: World, cli_env: dict[str, str], tmp_path: Path, run_keeper: Command
) -> None:
    paths = chats(world, 30)
    world.keep_all()
    shutil.rmtree(paths[0].parent)
    piped = run_keeper("restore", "--all")
    assert (piped.code, piped.err) == (0, "")
    shutil.rmtree(paths[0].parent)
    env = {**cli_env, "TERM": "xterm-256color"}
    code, out, shown = on_a_terminal([sys.executable, "-m", "keeper", "restore", "--all", "--json"], env, tmp_path)
    assert code == 0
    assert b"restoring" in shown
    assert b"100%" in shown
    assert out.startswith(b"{"), "stdout is the answer's alone"
    assert b"\x1b" not in out


def on_a_terminal(argv: list[str], env: dict[str, str], cwd: Path) -> tuple[int, bytes, bytes]:
    """Run with stderr on a terminal: exit code, stdout, what the terminal was sent."""
    master, slave = pty.openpty()
    process = subprocess.Popen(argv, env=env, cwd=cwd, stdin=slave, stdout=subprocess.PIPE, stderr=slave)
    os.close(slave)
    shown: list[bytes] = []

    def read() -> None:
        while True:
            try:
                part = os.read(master, 1 << 16)
            except OSError:  # the last writer has closed it
                return
            if not part:
                return
            shown.append(part)

    reader = threading.Thread(target=read)
    reader.start()
    out, _ = process.communicate(timeout=60)
    reader.join(timeout=60)
    os.close(master)
    return process.returncode, out, b"".join(shown)


@pytest.mark.accepts("RESTORE-11")
def test_many_live_chats_are_told_to_slow_the_cli(
    world: World, cli_env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command.SLOW == 1000
    monkeypatch.setattr(command, "SLOW", 5)
    paths = [*chats(world, 5), *chats(world, 4, "/srv/demo/other", first=20)]
    world.keep_all()
    sweep(world.profile)
    runner = CliRunner(env=cli_env)
    few = runner.invoke(command.restore, ["--all", "--cwd", "/srv/demo/other"])
    assert (few.exit_code, "slow" in few.stdout) == (0, False)
    many = runner.invoke(command.restore, ["--all"])
    assert (many.exit_code, "9 live chats slow" in many.stdout) == (0, True)
    assert all(path.exists() for path in paths)


def test_a_kept_file_long_past_its_retention_comes_back_with_the_time_of_now(world: World) -> None:
    paths = chats(world, 2)
    world.keep_all()
    age(world.root / "chats")
    shutil.rmtree(paths[0].parent)
    asked = time.time()
    put_back(world)
    assert min(path.stat().st_mtime for path in paths) > asked - 10


@pytest.mark.accepts("SEAL-1", "RESTORE-11")
@pytest.mark.parametrize("how", ["cut", "rewritten at one length"])
def test_one_that_was_damaged_in_place_before_it_was_swept_comes_back_as_it_was_sealed(world: World, how: str) -> None:
    paths = chats(world, 3)
    world.keep_all()
    whole = [path.read_bytes() for path in paths]
    if how == "cut":
        os.truncate(paths[1], whole[1].index(b"\n") + 1)
    else:
        with paths[1].open("r+b") as file:
            file.seek(len(whole[1]) - 40)
            file.write(bytes(39))
    sweep(world.profile)
    assert [answer.error for answer in put_back(world)] == [None] * 3
    assert [path.read_bytes() for path in paths] == whole


@pytest.mark.accepts("RESTORE-4")
def test_one_of_a_few_that_lives_elsewhere_by_now_is_not_put_beside_itself(world: World) -> None:
    (path,) = chats(world, 1)
    world.keep_all()
    moved = path.parent.with_name("-srv-elsewhere") / path.name
    moved.parent.mkdir()
    path.rename(moved)
    vault = world.vault()
    restorer = Restorer(vault, time.time_ns(), Want(profile=world.profile))
    (answer,) = restore_all(restorer, vault.rows(path.stem), stamps={path.stem: time.time_ns()})
    vault.index.close()
    assert answer.live == str(moved)
    assert not path.exists()
