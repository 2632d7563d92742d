"""Restore: which chat is meant by an id, of which profile, and where in it the transcript goes."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from keeper.claude import folder_names
from keeper.errors import KeeperError, NotKept, Refused
from keeper.transcripts.forget import forget
from keeper.transcripts.keep import Options, keep_session
from keeper.transcripts.restore import Restored, Restorer, Want
from tests import build
from tests.build import CWD, folder, jsonl, live_path, session_id, talk, write_live
from tests.chat import everything, files, kept_path, put, sweep, write_whole
from tests.conftest import Needs, Ran
from tests.seam import World, calls_of, hooked, in_child
from tests.seam import before as at
from tests.seam import world as world_of

Command = Callable[..., Ran]

S, OTHER = session_id(1), session_id(2)
A, B, C, D, E = talk("abcde", S)
X = talk("x", S, parent="b")[0]


@pytest.fixture
def world(profile: Path, vault_home: Path, home: Path) -> World:
    """The profile and the vault of the command, for calls from here."""
    return world_of(profile, vault_home, home / ".local" / "state" / "keeper")


def restore(world: World, want: Want | None = None, session: str = S) -> Restored:
    return Restorer(world.vault(), time.time_ns(), want or Want()).session(session)


def keep_anew(world: World, data: bytes, chat: str | None = None) -> Path:
    """A new live file of these bytes, kept, in the host's chat if one is named, and swept."""
    path = write_live(world.profile, CWD, S, data)
    world.keep(Options(chat=chat))
    path.unlink()
    return path


# --- by session id, wherever it is kept (RESTORE-5) ---------------------------------------------------------


@pytest.mark.accepts("RESTORE-5")
def test_a_session_kept_only_in_a_hosts_chat_is_found_by_its_own_id(
    world: World, profile: Path, run_keeper: Command
) -> None:
    path = write_whole(profile, S)
    before = files(profile)
    done = run_keeper("keep", S, "--chat", "host-7", "--json")
    assert (done.code, done.json["kept"][0]["chat"]) == (0, "host-7")
    sweep(profile)
    done = run_keeper("restore", S, "--json")
    assert (done.code, done.json["chat"], done.json["live"]) == (0, "host-7", str(path))
    assert files(profile) == before
    assert sorted(name.name for name in (world.root / "chats").iterdir()) == ["host-7"]


@pytest.mark.accepts("RESTORE-5")
@pytest.mark.parametrize(
    ("own", "host", "want"),
    [
        (jsonl(A, B), jsonl(A, B, C, D), jsonl(A, B, C, D)),
        (jsonl(A, B, C, D), jsonl(A, B), jsonl(A, B, C, D)),
        (jsonl(A, B), jsonl(C, D), jsonl(A, B, C, D)),
        (jsonl(A, B), jsonl(A, B), jsonl(A, B)),
    ],
    ids=["the host's is newer", "the host's is older", "the host's is a tail", "equal"],
)
def test_several_chats_that_keep_one_session_are_folded(world: World, own: bytes, host: bytes, want: bytes) -> None:
    keep_anew(world, own)
    path = keep_anew(world, host, "host-7")
    restore(world)
    assert path.read_bytes() == want
    sweep(world.profile)
    restore(world)
    assert path.read_bytes() == want


@pytest.mark.accepts("RESTORE-5")
def test_the_other_files_of_several_chats_come_back_together(world: World, profile: Path) -> None:
    keep_anew(world, jsonl(A, B))
    write_whole(profile, S, jsonl(A, B, C, D))
    before = files(profile)
    world.keep(Options(chat="host-7"))
    sweep(profile)
    restore(world)
    assert files(profile) == before


@pytest.mark.accepts("RESTORE-5")
@pytest.mark.parametrize("way", ["one", "all"])
def test_chats_that_contradict_each_other_are_refused_aloud_and_nothing_is_made(
    world: World, profile: Path, run_keeper: Command, way: str
) -> None:
    path = keep_anew(world, jsonl(A, B, C))
    keep_anew(world, jsonl(A, B, X), "host-7")
    done = run_keeper("restore", S) if way == "one" else run_keeper("restore", "--all", "--json")
    assert done.code == (8 if way == "one" else 3)
    said = done.err if way == "one" else done.text
    assert "contradict" in said
    assert S in said
    assert "host-7" in said
    assert not path.exists()
    assert kept_path(world.root, S).read_bytes() == jsonl(A, B, C)
    assert kept_path(world.root, S, "host-7").read_bytes() == jsonl(A, B, X)


@pytest.mark.accepts("RESTORE-5")
def test_a_dry_run_folds_no_candidates(world: World) -> None:
    keep_anew(world, jsonl(A, B))
    keep_anew(world, jsonl(A, B, C, D), "host-7")
    before = everything(world.root / "chats")
    restore(world, Want(dry_run=True))
    assert everything(world.root / "chats") == before


@pytest.mark.accepts("RESTORE-5")
def test_a_session_is_found_through_the_index_not_by_a_walk_of_the_vault(
    world: World, cli_env: dict[str, str], needs: Needs, tmp_path: Path
) -> None:
    for number in range(1, 41):
        session = session_id(number)
        write_live(world.profile, CWD, session, jsonl(*talk("abcd", session)))
    world.keep_all()
    sweep(world.profile)
    log = tmp_path / "calls"
    python = [sys.executable, "-m", "keeper", "restore", S]
    done = subprocess.run(
        [needs.strace(), "-f", "-e", "trace=%file,getdents64", "-y", "-o", log, *python], env=cli_env, cwd=tmp_path
    )
    assert done.returncode == 0
    calls = log.read_text().splitlines()
    chats = str(world.root / "chats")
    assert any(f"{chats}/{S}/" in call for call in calls), "the trace shows nothing"
    others = {session_id(number) for number in range(2, 41)}
    assert [call for call in calls if any(f"{chats}/{other}" in call for other in others)] == []
    assert [call for call in calls if "getdents64" in call and f"<{chats}>" in call] == []


@pytest.mark.accepts("RESTORE-5", "RESTORE-17")
@pytest.mark.parametrize("index", ["missing", "broken", "empty"])
@pytest.mark.parametrize("chat", [None, "host-7"])
def test_it_is_found_with_a_lost_index_too_and_that_is_said(
    world: World, run_keeper: Command, index: str, chat: str | None
) -> None:
    path = keep_anew(world, jsonl(A, B), chat)
    state = world.root / "state.db"
    state.unlink()
    if index != "missing":
        state.write_bytes(b"no database at all\n" * 100 if index == "broken" else b"")
    done = run_keeper("restore", S)
    assert (done.code, path.read_bytes()) == (0, jsonl(A, B))
    assert "index" in done.err


@pytest.mark.accepts("RESTORE-5")
def test_a_lost_chat_json_does_not_stop_a_restore(world: World) -> None:
    path = keep_anew(world, jsonl(A, B))
    (world.chat / "chat.json").write_bytes(b"{garbled")
    restore(world)
    assert path.read_bytes() == jsonl(A, B)


# --- several profiles (KEEP-13, RESTORE-5) ------------------------------------------------------------------


@pytest.fixture
def work(home: Path) -> Path:
    """A second profile."""
    place = home / ".claude-work"
    (place / "projects").mkdir(parents=True)
    return place


@pytest.fixture
def both(world: World, work: Path) -> World:
    """The world with settings that name both profiles."""
    return replace(world, settings=replace(world.settings, profiles=(world.profile, work)))


OURS, THEIRS = jsonl(A, B, C, D), jsonl(*talk("pqrs", S))


@pytest.mark.accepts("KEEP-13", "RESTORE-5")
def test_one_session_id_in_two_profiles_is_two_chats_never_mixed(
    world: World, profile: Path, work: Path, home: Path, run_keeper: Command
) -> None:
    put(home / ".config" / "keeper" / "config.toml", b'profiles = ["~/.claude-work"]\n')
    ours, theirs = write_live(profile, CWD, S, OURS), write_live(work, CWD, S, THEIRS)
    assert run_keeper("keep").code == 0
    chats = run_keeper("list", "--json").json["chats"]
    assert {(chat["session"], chat["profile"]) for chat in chats} == {(S, str(profile)), (S, str(work))}
    assert len({chat["chat"] for chat in chats}) == 2
    assert {Path(chat["kept"]).read_bytes() for chat in chats} == {OURS, THEIRS}
    shutil.rmtree(ours.parent)
    shutil.rmtree(theirs.parent)

    before = everything(home)
    refused = run_keeper("restore", S)
    assert refused.code == 8
    assert str(profile) in refused.err
    assert str(work) in refused.err
    assert "--profile" in refused.err
    assert everything(home) == before

    assert run_keeper("restore", S, "--profile", work).code == 0
    assert (theirs.read_bytes(), ours.exists()) == (THEIRS, False)
    assert run_keeper("restore", S, "--profile", profile).code == 0
    assert (theirs.read_bytes(), ours.read_bytes()) == (THEIRS, OURS)
    assert run_keeper("export", S).code == 8
    assert run_keeper("export", S, "--profile", work).out == THEIRS


@pytest.mark.accepts("KEEP-13", "RESTORE-5")
@pytest.mark.parametrize("then", ["swept", "recreated"])
def test_what_a_killed_first_keep_left_of_one_profile_is_never_anothers(both: World, work: Path, then: str) -> None:
    ours, theirs = write_live(both.profile, CWD, S, OURS), write_live(work, CWD, S, THEIRS)
    both.vault()
    both.chat.mkdir(mode=0o700)
    os.link(theirs, both.kept)  # so far came the keep of theirs
    theirs.unlink()
    if then == "recreated":
        write_live(work, CWD, S, jsonl(*talk("uv", S)))

    for _ in range(2):
        both.keep_all()
        restore(both, Want(profile=both.profile))
        assert ours.read_bytes() == OURS
        kept = {name: data for name, data in files(both.root / "chats").items() if name.endswith(f"/{S}.jsonl")}
        assert sorted(kept.values()) == [OURS, THEIRS]
    if then == "recreated":
        restore(both, Want(profile=work))
    else:  # whose it is nothing tells while nothing of it lives: it stays in the vault, and nobody is given it
        with pytest.raises(NotKept):
            restore(both, Want(profile=work))
    assert ours.read_bytes() == OURS


@pytest.mark.accepts("KEEP-13", "RESTORE-5")
def test_a_chat_that_a_host_names_never_takes_two_profiles_files(both: World, work: Path) -> None:
    write_live(both.profile, CWD, S, OURS)
    write_live(work, CWD, S, THEIRS)
    try:
        keep_session(both.vault(), S, time.time(), Options(chat="host-7"))
    except KeeperError as error:
        assert error.exit_code == 8
    kept = [data for name, data in files(both.root / "chats").items() if name.endswith(f"{S}.jsonl")]
    assert [data for data in kept if data not in (OURS, THEIRS)] == []
    rows = both.vault().rows()
    assert len({(row.chat, row.profile) for row in rows}) == len({row.chat for row in rows})


@pytest.mark.accepts("KEEP-13")
def test_a_hosts_chat_of_one_profile_is_not_given_to_another(both: World, work: Path) -> None:
    write_live(both.profile, CWD, S, OURS)
    write_live(work, CWD, OTHER, jsonl(*talk("pq", OTHER)))
    keep_session(both.vault(), S, time.time(), Options(chat="host-7"), both.profile)
    try:
        keep_session(both.vault(), OTHER, time.time(), Options(chat="host-7"), work)
    except KeeperError as error:
        assert error.exit_code == 8
    facts = both.vault().facts(both.vault().chat("host-7"))
    assert facts is not None
    assert facts.profile == str(both.profile), "the chat went over to the other profile"


@pytest.mark.accepts("KEEP-13")
@pytest.mark.parametrize("way", ["transcript's path", "profile's folder", "--profile", "CLAUDE_CONFIG_DIR", "settings"])
def test_a_profile_is_learnt_and_stays_the_chats_own(
    work: Path, home: Path, run_keeper: Command, profile: Path, way: str
) -> None:
    path = write_live(work, CWD, S, OURS)
    env: dict[str, str | None] = {}
    words: list[str] = []
    if way == "transcript's path":
        words = [str(path)]
    elif way == "profile's folder":
        words = [str(work)]
    elif way == "--profile":
        words = [S, "--profile", str(work)]
    elif way == "CLAUDE_CONFIG_DIR":
        env = {"CLAUDE_CONFIG_DIR": str(work)}
    else:
        put(home / ".config" / "keeper" / "config.toml", f'profiles = ["{work}"]\n'.encode())
    assert run_keeper("keep", *words, env=env).code == 0
    (chat,) = run_keeper("list", "--json").json["chats"]
    assert (chat["session"], chat["profile"]) == (S, str(work))

    later = write_live(work, CWD, OTHER, jsonl(*talk("abcd", OTHER)))
    (home / ".config" / "keeper" / "config.toml").unlink(missing_ok=True)
    assert run_keeper("keep").code == 0
    assert kept_path(Path(chat["kept"]).parents[2], OTHER).samefile(later), "the profile is known from then on"

    shutil.rmtree(path.parent)
    answer = run_keeper("restore", S, "--json", env={"CLAUDE_CONFIG_DIR": None}).json
    assert (answer["profile"], answer["live"], path.read_bytes()) == (str(work), str(path), OURS)
    assert files(profile) == {}


@pytest.mark.accepts("KEEP-13")
@pytest.mark.parametrize("other", ["a link", "dots", "a trailing slash"])
def test_one_profile_under_two_names_is_one_profile(
    home: Path, profile: Path, run_keeper: Command, world: World, other: str
) -> None:
    (home / "link").symlink_to(profile)
    name = {"a link": f"{home}/link", "dots": f"{home}/x/../.claude", "a trailing slash": f"{profile}/"}[other]
    path = write_live(profile, CWD, S, OURS)
    assert run_keeper("keep").code == 0
    assert run_keeper("keep", env={"CLAUDE_CONFIG_DIR": name}).code == 0
    assert run_keeper("keep", "--profile", name).code == 0
    assert run_keeper("keep", f"{name}/projects/{folder(CWD)}/{S}.jsonl").code == 0
    assert len(run_keeper("list", "--json").json["chats"]) == 1
    path.unlink()
    done = run_keeper("restore", S, "--profile", name)
    assert (done.code, path.exists()) == (0, True), done.err


@contextmanager
def claude_at(home: Path, argv: list[str], executable: str, **environ: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process with that argv and that environment."""
    process = subprocess.Popen(argv, executable=executable, env={"HOME": str(home), **environ})
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.alone
@pytest.mark.accepts("KEEP-13")
@pytest.mark.parametrize("form", ["claude", "/opt/claude/bin/claude", "node cli.js"])
def test_a_profile_is_learnt_from_a_claude_that_runs(
    work: Path, home: Path, profile: Path, tmp_path: Path, run_keeper: Command, form: str
) -> None:
    write_live(work, CWD, S, OURS)
    sleep, python = shutil.which("sleep"), sys.executable
    assert sleep
    script = put(tmp_path / "claude-code" / "cli.js", b"import time; time.sleep(60)\n")
    argv, executable = ([form, "60"], sleep) if form != "node cli.js" else (["node", str(script)], python)
    with claude_at(home, argv, executable, CLAUDE_CONFIG_DIR=str(work)) as process:
        wait_for_argv(process, argv)
        assert run_keeper("keep", sees_running=True).code == 0
    (chat,) = run_keeper("list", "--json").json["chats"]
    assert chat["profile"] == str(work)


@pytest.mark.alone
@pytest.mark.accepts("KEEP-13")
def test_a_claude_that_runs_without_the_variable_has_the_profile_in_its_home(
    work: Path, home: Path, tmp_path: Path, run_keeper: Command
) -> None:
    """keeper's own environment names another profile, so `~/.claude` is not looked at by default."""
    theirs = tmp_path / "their-home"
    write_live(theirs / ".claude", CWD, S, OURS)
    sleep = shutil.which("sleep")
    assert sleep
    with claude_at(theirs, ["claude", "60"], sleep) as process:
        wait_for_argv(process, ["claude", "60"])
        assert run_keeper("keep", env={"CLAUDE_CONFIG_DIR": str(work)}, sees_running=True).code == 0
    (chat,) = run_keeper("list", "--json").json["chats"]
    assert chat["profile"] == str(theirs / ".claude")


@pytest.mark.alone
@pytest.mark.accepts("KEEP-13")
def test_a_process_that_is_no_claude_teaches_nothing(work: Path, home: Path, run_keeper: Command) -> None:
    write_live(work, CWD, S, OURS)
    sleep = shutil.which("sleep")
    assert sleep
    with claude_at(home, ["notclaude", "60"], sleep, CLAUDE_CONFIG_DIR=str(work)) as process:
        wait_for_argv(process, ["notclaude", "60"])
        assert run_keeper("keep", sees_running=True).code == 0
    assert run_keeper("list", "--json").json["chats"] == []


def wait_for_argv(process: subprocess.Popen[bytes], argv: list[str]) -> None:
    """Until the process has become the program: between fork and exec it is still a copy of this one."""
    for _ in range(1000):
        if Path(f"/proc/{process.pid}/cmdline").read_bytes() == b"".join(word.encode() + b"\0" for word in argv):
            return
        time.sleep(0.01)
    pytest.fail("the process did not start")


# --- where it goes (RESTORE-10, KEEP-19) --------------------------------------------------------------------


@pytest.mark.accepts("RESTORE-10", "KEEP-19")
def test_a_transcript_that_claude_moves_and_moves_back_is_one_chat_all_the_while(
    world: World, profile: Path, run_keeper: Command
) -> None:
    here = write_whole(profile, S)
    there = live_path(profile, S, f"{CWD}/.claude/worktrees/wt1")
    there.parent.mkdir(parents=True)

    def move(source: Path, target: Path) -> None:
        source.rename(target)
        source.with_suffix("").rename(target.with_suffix(""))

    def seen() -> tuple[int, str, str]:
        (chat,) = run_keeper("list", "--json").json["chats"]
        return len(list((world.root / "chats").iterdir())), chat["project"], chat["live"]

    for path, other in ((here, there), (there, here), (here, there)):
        world.keep()
        assert seen() == (1, path.parent.name, str(path))
        assert world.restore().live == str(path)
        move(path, other)
        assert world.restore().live == str(other), "a restore right after the move, without a keep"
        assert not path.exists()
        assert not path.with_suffix("").exists()
    assert files(profile / "projects" / there.parent.name).keys() >= {f"{S}.jsonl", f"{S}/later/versions/deep.bin"}


@pytest.mark.accepts("KEEP-19", "RESTORE-10")
def test_doubled_both_are_kept_and_neither_is_touched(world: World, profile: Path, run_keeper: Command) -> None:
    here = write_live(profile, CWD, S, jsonl(A, B, C))
    world.keep()
    there = write_live(profile, "/srv/demo/other", S, jsonl(A, B, X))
    before = [(path.stat().st_ino, path.read_bytes()) for path in (here, there)]
    done = run_keeper("keep", S, "--json")
    assert (done.code, done.json["kept"][0]["verdict"]) == (0, "doubled")
    assert set(world.kept.read_bytes().splitlines()) == {A, B, C, X}

    refused = run_keeper("restore", S)
    assert refused.code == 8
    assert "--cwd" in refused.err
    for cwd, path in ((CWD, here), ("/srv/demo/other", there)):
        answer = run_keeper("restore", S, "--cwd", cwd, "--json").json
        assert (answer["verdict"], answer["live"]) == ("doubled", str(path))
    assert [(path.stat().st_ino, path.read_bytes()) for path in (here, there)] == before
    assert len(list((world.root / "chats").iterdir())) == 1

    there.unlink()
    assert run_keeper("restore", S, "--json").json["live"] == str(here)
    assert here.read_bytes().splitlines()[:3] == [A, B, C]


@pytest.mark.accepts("KEEP-19")
def test_a_restore_makes_no_second_live_file_whatever_directory_it_is_asked_from(world: World, profile: Path) -> None:
    here = write_live(profile, CWD, S, jsonl(A, B))
    world.keep()
    answer = restore(world, Want(cwd="/srv/demo/other"))
    assert answer.live == str(here)
    assert [name for name in files(profile) if name.endswith(f"{S}.jsonl")] == [str(here.relative_to(profile))]


@pytest.mark.accepts("RESTORE-10")
@pytest.mark.parametrize("version", ["2.1.197", "2.1.328"])
def test_after_a_worktree_and_a_sweep_folder_and_directory_of_the_answer_fit_each_other(
    world: World, profile: Path, version: str
) -> None:
    """CLIs up to 2.1.222 look for a session in the folder of the directory they are started in, and nowhere else."""
    build.copy_real(version, "relocated", profile)
    world = world.about(str(build.real(version, "relocated")["session"]))
    world.keep()
    sweep(profile)
    answer = world.restore()
    assert folder(answer.cwd) == answer.project == Path(answer.live).parent.name
    assert f"cd {answer.cwd} " in answer.resume


@pytest.mark.accepts("RESTORE-10")
def test_a_directory_that_is_gone_is_said_and_stops_nothing(world: World, tmp_path: Path) -> None:
    cwd = tmp_path / "proj"
    path = write_live(world.profile, str(cwd), S, jsonl(*talk("ab", S, cwd=str(cwd))))
    world.keep()
    path.unlink()
    answer = world.restore()
    assert path.exists()
    assert any(str(cwd) in warning for warning in answer.warnings)
    cwd.mkdir()
    assert not any(str(cwd) in warning for warning in world.restore().warnings)


@pytest.mark.accepts("RESTORE-10")
def test_a_swept_session_goes_where_it_is_going_to_be_resumed(world: World, tmp_path: Path) -> None:
    path = keep_anew(world, jsonl(A, B))
    real = tmp_path / "elsewhere"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    answer = restore(world, Want(cwd=str(tmp_path / "link")))
    assert answer.live == str(live_path(world.profile, S, str(real))), "Claude takes the real path"
    assert answer.cwd == str(real)
    assert Path(answer.live).exists()
    assert not path.exists()


CLAUDE = """#!/bin/sh
if [ "$1" = --version ]; then echo "$VERSION (Claude Code)"; exit; fi
printf '%s\\n' "$PWD" "${CLAUDE_CONFIG_DIR:-$HOME/.claude}" "$@"
"""


@pytest.fixture
def claude_bin(tmp_path: Path) -> Path:
    """A folder with a `claude` that says what it was started with, and `$VERSION` for its version."""
    program = put(tmp_path / "bin" / "claude", CLAUDE.encode())
    program.chmod(0o755)
    return program.parent


@pytest.mark.accepts("RESTORE-10")
@pytest.mark.parametrize("name", [".claude", "claude work", "it's; $(touch owned)"])
@pytest.mark.parametrize("shell", ["unset", "another profile", "this profile"])
def test_the_line_to_resume_with_starts_claude_in_that_directory_with_that_profile(
    home: Path, tmp_path: Path, claude_bin: Path, run_keeper: Command, name: str, shell: str
) -> None:
    profile, cwd = home / name, tmp_path / "a proj's $HOME"
    cwd.mkdir()
    path = write_live(profile, str(cwd), S, jsonl(*talk("ab", S, cwd=str(cwd))))
    assert run_keeper("keep", path).code == 0
    path.unlink()
    named = {"unset": None, "another profile": str(home / "other"), "this profile": str(profile)}[shell]
    line = run_keeper("restore", S, "--json", env={"CLAUDE_CONFIG_DIR": named}).json["resume"]
    env = {"HOME": str(home), "PATH": f"{claude_bin}:{os.defpath}"} | ({"CLAUDE_CONFIG_DIR": named} if named else {})
    done = subprocess.run(["sh", "-c", line], env=env, cwd=home, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [str(cwd), str(profile), "--resume", S], done.stderr
    assert path.exists()


# --- long directories (FIT-3) -------------------------------------------------------------------------------

LONG = "/srv/demo/" + "/".join(["nested_directory"] * 13)
FULL, HASHED = folder(LONG), folder(LONG)[:200]


@pytest.mark.accepts("FIT-3")
@pytest.mark.parametrize(
    ("version", "hashed"), [("2.0.76", False), ("2.1.45", False), ("2.1.50", True), ("2.1.328", True)]
)
@pytest.mark.parametrize("kept_in", ["full", "hashed"])
@pytest.mark.parametrize("way", ["--cwd", "recorded", "--all"])
def test_a_session_of_a_long_directory_goes_where_the_cli_in_use_looks(
    profile: Path,
    claude_bin: Path,
    run_keeper: Command,
    world: World,
    version: str,
    hashed: bool,
    kept_in: str,
    way: str,
) -> None:
    names = folder_names(LONG)
    assert (names[0][:200], names[1]) == (HASHED, FULL)
    path = profile / "projects" / names[kept_in == "full"] / f"{S}.jsonl"
    path.parent.mkdir(parents=True)
    build.append(path, jsonl(*talk("ab", S, cwd=LONG)))
    world.keep()
    shutil.rmtree(path.parent)
    words = {"--cwd": [S, "--cwd", LONG], "recorded": [S], "--all": ["--all"]}[way]
    env = {"PATH": f"{claude_bin}:{os.defpath}", "VERSION": version}
    done = run_keeper("restore", *words, env=env)
    assert done.code == 0, done.err
    assert list(files(profile)) == [f"projects/{names[not hashed]}/{S}.jsonl"]


@pytest.mark.accepts("FIT-3")
@pytest.mark.parametrize("kind", ["a short link to it", "few characters of two units"])
def test_a_directory_is_long_by_what_claude_counts(
    profile: Path, tmp_path: Path, claude_bin: Path, run_keeper: Command, world: World, kind: str
) -> None:
    """Claude counts the UTF-16 units of the real path."""
    more = 220 - len(str(tmp_path))
    name = "d" * more if kind == "a short link to it" else "😀" * 30 + "/" + "😀" * ((more - 60) // 2)
    real = tmp_path / name
    real.mkdir(parents=True)
    link = tmp_path / "s"
    link.symlink_to(real)
    path = write_live(profile, CWD, S, jsonl(A, B))
    world.keep()
    path.unlink()
    env = {"PATH": f"{claude_bin}:{os.defpath}", "VERSION": "2.1.45"}
    cwd = link if kind == "a short link to it" else real
    answer = run_keeper("restore", S, "--cwd", cwd, "--json", env=env).json
    assert answer["project"] == folder_names(str(real))[1]


@pytest.mark.accepts("FIT-3")
def test_no_claude_is_asked_where_the_directory_is_short(
    profile: Path, claude_bin: Path, run_keeper: Command, world: World
) -> None:
    (claude_bin / "claude").write_text("#!/bin/sh\ntouch asked\n")
    path = keep_anew(world, jsonl(A, B))
    env = {"PATH": f"{claude_bin}:{os.defpath}"}
    assert run_keeper("restore", S, env=env).code == 0
    assert run_keeper("restore", S, "--cwd", CWD, env=env).code == 0
    assert path.exists()
    assert not (claude_bin.parent / "asked").exists()


@pytest.mark.accepts("FIT-3")
@pytest.mark.parametrize("answer", ["#!/bin/sh\nexit 1\n", "#!/bin/sh\necho what\n", "no program at all", None])
def test_a_claude_that_does_not_tell_its_version_stops_no_restore(
    profile: Path, claude_bin: Path, run_keeper: Command, world: World, answer: str | None
) -> None:
    (claude_bin / "claude").write_text(answer) if answer else (claude_bin / "claude").unlink()
    path = profile / "projects" / FULL / f"{S}.jsonl"
    path.parent.mkdir(parents=True)
    build.append(path, jsonl(*talk("ab", S, cwd=LONG)))
    world.keep()
    path.unlink()
    assert run_keeper("restore", S, env={"PATH": f"{claude_bin}:{os.defpath}"}).code == 0
    assert path.exists(), "the folder that there is"


# --- ids (RESTORE-12) ---------------------------------------------------------------------------------------

IDS = {
    "up": "../../x",
    "root": "/etc/passwd",
    "dots": "..",
    "dot": ".",
    "empty": "",
    "word": "latest",
    "percent": "%2e%2e%2fx",
    "no hex": "0000000g-0000-4000-8000-000000000001",
    "underscores": "00000001_0000_4000_8000_000000000001",
    "no dashes": "00000001000040008000000000000001aaaa",
    "slash in it": "00000001-0000-4000-8000/000000000001",
    "36 dots": "." * 36,
    "up at the end": "00000001-0000-4000-8000-000000000/..",
    "full width": "０0000001-0000-4000-8000-00000000000",
    "newline": f"{S}\n",
    "blank": f" {S}",
    "longer": f"{S}0",
    "braces": f"{{{S}}}",
    "file": f"{S}.jsonl",
}


@pytest.mark.accepts("RESTORE-12")
@pytest.mark.parametrize("text", IDS.values(), ids=IDS)
def test_what_is_no_session_id_is_refused_before_it_becomes_a_path(world: World, home: Path, text: str) -> None:
    write_live(world.profile, CWD, S, jsonl(A, B))
    world.keep()
    before = everything(home), everything(world.root)
    with pytest.raises(Refused):
        restore(world, session=text)
    with pytest.raises(Refused):
        keep_session(world.vault(), text, time.time())
    assert (everything(home), everything(world.root)) == before


@pytest.mark.accepts("RESTORE-12")
@pytest.mark.parametrize("text", ["../../x", "/etc/passwd", "", IDS["slash in it"]])
@pytest.mark.parametrize("command", ["restore", "keep", "export"])
@pytest.mark.parametrize("made", [True, False], ids=["a vault", "no vault"])
def test_the_command_refuses_it_with_8_and_creates_nothing(
    tmp_path: Path, world: World, run_keeper: Command, text: str, command: str, made: bool
) -> None:
    if made:
        write_live(world.profile, CWD, S, jsonl(A, B))
        world.keep()
    before = everything(tmp_path)
    done = run_keeper(command, text)
    assert (done.code, done.out) == (8, b"")
    assert "Traceback" not in done.err
    if made:
        assert everything(tmp_path) == before
    assert not (tmp_path.parent / "x").exists()


@pytest.mark.accepts("RESTORE-12")
def test_a_nul_in_an_id_is_refused(world: World) -> None:
    write_live(world.profile, CWD, S, jsonl(A, B))
    world.keep()
    with pytest.raises(Refused):
        restore(world, session=S[:-1] + "\0")


@pytest.mark.accepts("RESTORE-12")
@pytest.mark.parametrize("made", [True, False], ids=["a vault", "no vault"])
def test_a_session_that_was_never_kept_is_4_and_nothing_is_created(
    tmp_path: Path, world: World, run_keeper: Command, made: bool
) -> None:
    if made:
        write_live(world.profile, CWD, S, jsonl(A, B))
        world.keep()
    before = everything(tmp_path)
    done = run_keeper("restore", OTHER)
    assert (done.code, done.out) == (4, b"")
    assert OTHER in done.err
    assert everything(tmp_path) == before


@pytest.mark.accepts("RESTORE-12")
@pytest.mark.parametrize("chat", ["../x", "a/b", "..", "", ".hidden", "x" * 200, "a..b"])
def test_a_chats_name_is_checked_before_it_becomes_a_path(
    tmp_path: Path, world: World, run_keeper: Command, chat: str
) -> None:
    write_live(world.profile, CWD, S, jsonl(A, B))
    world.keep()
    before = everything(tmp_path)
    done = run_keeper("keep", S, "--chat", chat)
    assert done.code == 8, done.text
    assert everything(tmp_path) == before


@pytest.mark.accepts("KEEP-11", "RESTORE-12")
@pytest.mark.parametrize("swept", [False, True], ids=["live there", "live swept"])
def test_a_chat_whose_forget_was_killed_is_not_given_back_and_goes_at_the_next_run(world: World, swept: bool) -> None:
    path = write_live(world.profile, CWD, S, jsonl(A, B))
    world.keep()

    def forget_it() -> None:
        forget(world.vault(), S, time.time())

    assert killed_before(forget_it, "replace")
    assert world.kept.exists(), "nothing was left to be given back"
    if swept:
        path.unlink()
    with pytest.raises(NotKept):
        restore(world)
    assert path.exists() is not swept
    world.keep_all()
    assert not world.chat.exists()


def killed_before(run: Callable[[], None], name: str) -> bool:
    """Run in a process of its own that is killed before the first change of that name."""

    def child() -> None:
        with hooked(at(name, lambda: os.kill(os.getpid(), signal.SIGKILL))):
            run()

    return in_child(child) == -signal.SIGKILL


# --- several at once, and what a dry run leaves -------------------------------------------------------------


def test_one_of_several_sessions_that_is_not_kept_does_not_stop_the_others(world: World, run_keeper: Command) -> None:
    path = keep_anew(world, jsonl(A, B))
    done = run_keeper("restore", OTHER, S, "--json")
    assert (done.code, path.exists()) == (3, True), done.err
    assert [(one["session"], one["exit_code"]) for one in done.json["sessions"]] == [(OTHER, 4), (S, 0)]


@pytest.mark.parametrize("live", [None, b"", jsonl(A), jsonl(C), jsonl(A, B, C, D), jsonl(A, B) + b'{"uuid":"c'])
@pytest.mark.parametrize("gone", [False, True], ids=["", "a chat's folder gone"])
def test_a_dry_run_tells_what_a_restore_would_do_and_does_nothing(
    tmp_path: Path, world: World, profile: Path, run_keeper: Command, live: bytes | None, gone: bool
) -> None:
    write_live(profile, CWD, OTHER, jsonl(*talk("abcd", OTHER)))
    world.about(OTHER).keep()
    path = keep_anew(world, jsonl(A, B))
    if live is not None:
        build.append(path, live)
    if gone:
        shutil.rmtree(world.root / "chats" / OTHER)
    before = everything(tmp_path)
    told = run_keeper("restore", S, "--dry-run", "--json")
    assert told.code == 0, told.err
    assert everything(tmp_path) == before
    done = run_keeper("restore", S, "--json").json
    assert told.json["verdict"].replace("ahead", "same") == done["verdict"].replace("ahead", "same")
    want = {"restored": "would restore", "folded": "would fold", "none": "none", "relinked": "none"}
    assert told.json["action"] == want[done["action"]]
    assert (told.json["live"], told.json["resume"]) == (done["live"], done["resume"])


@pytest.mark.parametrize("words", [["--through", "b"], ["--repaired"]])
def test_a_dry_run_of_a_copy_makes_none(tmp_path: Path, world: World, run_keeper: Command, words: list[str]) -> None:
    keep_anew(world, jsonl(A, B))
    before = everything(tmp_path)
    done = run_keeper("restore", S, *words, "--dry-run")
    assert done.code in (0, 2)
    assert everything(tmp_path) == before


def test_a_restore_of_a_whole_chat_changes_times_and_nothing_else(world: World) -> None:
    write_live(world.profile, CWD, S, jsonl(A, B))
    world.keep()
    world.restore()
    assert {call for call, _ in calls_of(world.restore)} <= {"touch", "sync"}


def test_what_is_kept_of_nobody_is_said_to_be_gone(world: World) -> None:
    with pytest.raises(NotKept, match="nothing is kept"):
        restore(world)
