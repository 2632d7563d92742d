"""The `claude` on PATH: what is resumed is there before Claude starts, and Claude starts whatever fails."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import chat
from tests.agent.running import running, until
from tests.build import append, jsonl, session_id, talk, write_live
from tests.conftest import Needs, Ran
from tests.doors.stage import CODE, Stage, build, program
from tests.lab.waiting import eventually
from tests.terminal import Terminal

ONE, TWO, NEVER = session_id(1), session_id(2), session_id(9)
Keeper = Callable[..., Ran]


@pytest.fixture
def stage(run_keeper: Keeper, cli_env: dict[str, str], home: Path, profile: Path, tmp_path: Path) -> Stage:
    return build(run_keeper, cli_env, home, tmp_path)


@pytest.fixture
def swept(stage: Stage, profile: Path, run_keeper: Keeper) -> dict[str, bytes]:
    """Two conversations of one directory, kept and swept; what the newer one had."""
    chat.write_whole(profile, TWO, cwd=str(stage.work))
    write_live(profile, str(stage.work), ONE, jsonl(*talk("abcd", ONE, cwd=str(stage.work))))
    then = time.time() - 35 * chat.DAY_S
    os.utime(profile / "projects" / _folder(stage.work) / f"{ONE}.jsonl", (then, then))
    assert run_keeper("keep").code == 0
    before = {name: data for name, data in chat.files(profile).items() if ONE in name}
    chat.sweep(profile)
    return before


def _folder(cwd: Path) -> str:
    return "".join(c if c.isalnum() else "-" for c in str(cwd))


FORMS = [
    ["--resume", ONE], ["-r", ONE], [f"--resume={ONE}"], [f"-r{ONE}"], ["-p", "hello", "--resume", ONE],
    ["-pr", ONE, "hello"], ["--resume", ONE, "--fork-session"], ["--fork-session", "-r", ONE],
    ["--continue"], ["-c"], ["-pc", "hello"], ["-c", "--fork-session"],
]  # fmt: skip


@pytest.mark.parametrize("words", FORMS, ids=" ".join)
@pytest.mark.accepts("RESTORE-7", "RESTORE-11")
def test_what_is_resumed_is_there_when_claude_starts_and_nothing_else_is(
    stage: Stage, swept: dict[str, bytes], profile: Path, words: list[str]
) -> None:
    ran = stage.claude(*words)
    assert (ran.code, ran.text, ran.err) == (CODE, "started\n", "")
    assert stage.argv() == words
    assert stage.live() == [ONE]
    assert swept.items() <= chat.files(profile).items()


def test_a_transcripts_path_names_its_session(stage: Stage, swept: dict[str, bytes], profile: Path) -> None:
    path = profile / "projects" / _folder(stage.work) / f"{ONE}.jsonl"
    stage.claude("--resume", str(path))
    assert stage.live() == [ONE]


@pytest.mark.parametrize("words", [[], ["hello"], ["-r", "a title"], ["--resume"], ["-p", "--", "--resume", ONE]])
@pytest.mark.accepts("RESTORE-11")
def test_what_names_no_conversation_puts_none_back(stage: Stage, swept: dict[str, bytes], words: list[str]) -> None:
    ran = stage.claude(*words)
    assert (ran.code, ran.err, stage.argv(), stage.live()) == (CODE, "", words, [])


@pytest.mark.accepts("RESTORE-13")
def test_claude_has_the_same_arguments_environment_directory_process_and_exit_code(
    stage: Stage, swept: dict[str, bytes]
) -> None:
    words = ["-r", ONE, "", "two\nlines", "it's", '"$HOME"', "*", "\\", "--", "-c"]
    odd = {"EMPTY": "", "LINES_": "a\nb", "KEEPER_X": "1", "PWD": str(stage.work), "IFS_": ":", "real": "x", "pid": "y"}
    env = {**stage.env, **odd}
    process = subprocess.Popen(
        ["claude", *words], env=env, cwd=stage.work, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    out, _ = process.communicate()
    assert (process.returncode, out) == (CODE, "started\n")
    assert stage.argv() == words
    shells_own = {"_", "SHLVL", "OLDPWD", "_KEEPER_BEEN"}
    seen = stage.environ()
    assert {name: value for name, value in seen.items() if name not in shells_own} == env
    assert (stage.told / "cwd").read_text().strip() == str(stage.work)
    assert int((stage.told / "pid").read_text()) == process.pid


@pytest.mark.accepts("RESTORE-13")
def test_claude_has_what_no_shell_has_a_name_for(stage: Stage) -> None:
    """dash and busybox drop it, exported functions of bash first of all."""
    odd = {
        "BASH_FUNC_module%%": "() {  eval \"$(lmod 'a' $*)\"\n echo \\\\ `x`\n}\n",
        "npm_config_//registry/:_authToken": "t=t", "a.b": "",
        "-u": "x", "it's": "'", "ü": "ä", "1": "one", "two words": " x ", "*": "*",
        "$(touch x)": "$(touch x)",
    }  # fmt: skip
    for words in (["hello", "two words", ""], ["--version"]):
        assert stage.claude(*words, **odd).code == CODE
        assert stage.argv() == words
        assert odd.items() <= stage.environ().items()
    assert list(stage.work.iterdir()) == []


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.accepts("RESTORE-13")
def test_claude_starts_with_any_of_its_streams_closed(stage: Stage, swept: dict[str, bytes], closed: str) -> None:
    words = ["sh", "-c", f'exec claude "$@" {closed}', "sh", "-r", ONE]
    done = subprocess.run(words, env=stage.env, cwd=stage.work, capture_output=True, check=False)
    assert (done.returncode, stage.argv(), stage.live()) == (CODE, ["-r", ONE], [ONE])


@pytest.mark.parametrize("shell", ["dash", "bash --posix", "busybox sh"])
@pytest.mark.accepts("RESTORE-13")
def test_claude_starts_where_nobody_reads_any_more_what_keeper_has_to_say(
    stage: Stage, needs: Needs, shell: str
) -> None:
    name, *more = shell.split()
    found = needs.command(name, unavoidable="not every machine has every shell")
    _no_python(stage, stage.work)
    for gone in (False, True):
        ours, theirs = os.pipe()
        said = b""
        if gone:
            os.close(ours)
        done = subprocess.run(
            [found, *more, stage.shim, "hello"], env=stage.env, cwd=stage.work, stderr=theirs, check=False
        )
        os.close(theirs)
        if not gone:
            said = os.read(ours, 4096)
            os.close(ours)
        assert (done.returncode, stage.argv()) == (CODE, ["hello"])
        assert said.count(b"\n") == (0 if gone else 1)


@pytest.mark.accepts("RESTORE-13")
def test_a_signal_to_the_process_is_claudes(stage: Stage, profile: Path) -> None:
    program(stage.real, stage.told, profile, more="kill -TERM $$; sleep 10")
    assert stage.claude("hello").code == -signal.SIGTERM


def _no_python(stage: Stage, vault: Path) -> None:
    stage.python("/nowhere/bin/python")


def _a_python_that_fails(stage: Stage, vault: Path) -> None:
    broken = stage.told / "python"
    broken.write_text("#!/bin/sh\necho Fatal Python error >&2\necho more of it >&2\nexit 1\n")
    broken.chmod(0o755)
    stage.python(broken)


def _a_python_without_keeper(stage: Stage, vault: Path) -> None:
    bare = stage.told / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    bare.chmod(0o755)
    stage.python(bare)


def _a_vault_that_is_no_folder(stage: Stage, vault: Path) -> None:
    shutil.rmtree(vault)
    vault.write_bytes(b"no folder")


def _a_vault_that_is_not_mounted(stage: Stage, vault: Path) -> None:
    shutil.rmtree(vault)


def _a_vault_of_another_version(stage: Stage, vault: Path) -> None:
    (vault / "VERSION").write_bytes(b"99\n")


def _a_settings_file_that_is_no_toml(stage: Stage, vault: Path) -> None:
    config = Path(stage.env["KEEPER_CONFIG"])
    config.parent.mkdir(parents=True)
    config.write_text("vault = [")


def _a_chat_that_another_process_holds(stage: Stage, vault: Path) -> None:
    stage.change("_keeper_limit=10", "_keeper_limit=2")
    holder = "import fcntl,sys,time; f=open(sys.argv[1]); fcntl.flock(f, 2); print('held', flush=True); time.sleep(60)"
    lock = vault / "locks" / f"{ONE}.lock"
    process = subprocess.Popen([sys.executable, "-c", holder, lock], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    _HOLDERS.append(process)


def _a_keeper_that_hangs(stage: Stage, vault: Path) -> None:
    hangs = stage.told / "python"
    hangs.write_text("#!/bin/sh\nexec sleep 60\n")
    hangs.chmod(0o755)
    stage.python(hangs)
    stage.change("_keeper_limit=10", "_keeper_limit=1")


_HOLDERS: list[subprocess.Popen[bytes]] = []


@pytest.fixture(autouse=True)
def no_holder_stays() -> Iterator[None]:
    yield
    while _HOLDERS:
        with _HOLDERS.pop() as process:
            process.kill()


FAILURES = [
    (_no_python, "/nowhere/bin/python"),
    (_a_python_that_fails, "failed (1)"),
    (_a_python_without_keeper, "failed (12)"),
    (_a_vault_that_is_no_folder, "{vault}"),
    (_a_vault_that_is_not_mounted, "mounted"),
    (_a_vault_of_another_version, "version 99"),
    (_a_settings_file_that_is_no_toml, "no TOML"),
    (_a_chat_that_another_process_holds, "within 2 s"),
    (_a_keeper_that_hangs, "within 1 s"),
]


@pytest.mark.parametrize(("amiss", "why"), [pytest.param(*one, id=one[0].__name__.strip("_")) for one in FAILURES])
@pytest.mark.accepts("RESTORE-13")
def test_whatever_fails_claude_starts_and_one_line_says_so(
    stage: Stage, swept: dict[str, bytes], vault_home: Path, amiss: Callable[[Stage, Path], None], why: str
) -> None:
    amiss(stage, vault_home)
    ran = stage.claude("-r", ONE, "two words")
    assert (ran.code, ran.text) == (CODE, "started\n")
    assert stage.argv() == ["-r", ONE, "two words"]
    (line,) = ran.err.splitlines()
    assert line.startswith("keeper: ")
    assert why.format(vault=vault_home) in line


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox sh"])
@pytest.mark.accepts("RESTORE-13")
def test_any_shell_may_be_sh(stage: Stage, swept: dict[str, bytes], needs: Needs, shell: str) -> None:
    name, *more = shell.split()
    found = needs.command(name, unavoidable="not every machine has every shell")
    words = [found, *more, stage.shim, "-r", ONE, "", "two\nlines"]
    for lines in (0, 1):
        if lines:
            _a_keeper_that_hangs(stage, stage.work)
        done = subprocess.run(words, env=stage.env, cwd=stage.work, capture_output=True, text=True, check=False)
        assert (done.returncode, stage.argv()) == (CODE, ["-r", ONE, "", "two\nlines"])
        assert len(done.stderr.splitlines()) == lines, done.stderr
        assert stage.live() == [ONE]


@pytest.mark.accepts("RESTORE-13")
def test_ctrl_c_ends_keepers_part_and_claude_starts(stage: Stage, swept: dict[str, bytes]) -> None:
    hangs = stage.told / "python"
    hangs.write_text(f"#!/bin/sh\necho here >{stage.told}/hangs\nexec sleep 60\n")
    hangs.chmod(0o755)
    stage.python(hangs)
    with Terminal(["claude", "-r", ONE], stage.env, stage.work) as terminal:
        eventually("keeper's part", (stage.told / "hangs").exists)
        terminal.type("\x03")
        terminal.wait("started")
        assert terminal.ended() == CODE
        assert "keeper: stopped, starting claude" in terminal.seen
    assert stage.argv() == ["-r", ONE]


@pytest.mark.accepts("RESTORE-9")
def test_a_terminal_that_stops_what_writes_from_the_background_stops_no_line_of_keepers(
    stage: Stage, swept: dict[str, bytes]
) -> None:
    with Terminal(["sh", "-c", "stty tostop; exec claude -r " + NEVER], stage.env, stage.work) as terminal:
        terminal.wait("started")
        assert terminal.ended() == CODE
    assert "never kept" in terminal.seen
    assert "not done" not in terminal.seen


@pytest.mark.parametrize(
    "words", [["--version"], ["-v"], ["--help"], ["mcp", "list"], ["update"], ["purge"], ["doctor"]], ids=" ".join
)
def test_what_starts_no_conversation_costs_nothing(stage: Stage, words: list[str]) -> None:
    stage.python("/nowhere/bin/python")
    ran = stage.claude(*words)
    assert (ran.code, ran.err, stage.argv()) == (CODE, "", words)


# --- the real one


@pytest.mark.accepts("RESTORE-13")
def test_the_shim_takes_no_link_to_itself_and_no_copy_of_itself_for_the_real_one(stage: Stage, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("linked", "hard", "copied", "folder")]
    for folder in folders[:3]:
        folder.mkdir()
    (folders[0] / "claude").symlink_to(stage.shim)
    (folders[1] / "claude").hardlink_to(stage.shim)
    shutil.copy(stage.shim, folders[2] / "claude")
    folders[3].symlink_to(stage.shim.parent)
    for first in folders:
        path = os.pathsep.join([str(first), *map(str, folders), stage.env["PATH"]])
        (stage.told / "argv").unlink(missing_ok=True)
        ran = stage.claude("hello", PATH=path)
        assert (ran.code, ran.err, stage.argv()) == (CODE, "", ["hello"])


def test_another_programs_shim_before_it_is_passed_and_one_behind_it_is_started(
    stage: Stage, tmp_path: Path, profile: Path
) -> None:
    before, behind = tmp_path / "before", tmp_path / "behind"
    before.mkdir()
    (before / "claude").write_text(f'#!/bin/sh\nexec {stage.shim} "$@"\n')  # by its place, or by a search of its own
    (before / "claude").chmod(0o755)
    other = program(behind / "claude", tmp_path / "told", profile, more="echo behind")
    path = os.pathsep.join([str(before), str(stage.shim.parent), str(other.parent), stage.env["PATH"]])
    ran = stage.claude("hello", PATH=path)
    assert (ran.code, ran.text, ran.err) == (CODE, "behind\nstarted\n", "")


WRAPPER = """#!/bin/sh
echo round >>{rounds}
[ "$(wc -l <{rounds})" -gt 40 ] && exit 99
me=$(readlink -f "$0")
IFS=:
for folder in $PATH; do
  it=$folder/claude
  [ -x "$it" ] && [ "$(readlink -f "$it")" != "$me" ] && {start}
done
"""
"""Another tool's, which starts the first `claude` that is not itself."""


@pytest.mark.parametrize("start", ['exec "$it" "$@"', '{ "$it" "$@"; exit; }'], ids=["exec", "fork"])
@pytest.mark.parametrize("place", ["behind", "before", "named", "first by its path"])
@pytest.mark.accepts("RESTORE-13")
def test_a_wrapper_that_starts_the_first_claude_but_itself_does_not_keep_claude_from_starting(
    stage: Stage, swept: dict[str, bytes], tmp_path: Path, place: str, start: str
) -> None:
    stage.change("_keeper_deep=12", "_keeper_deep=3")
    rounds, folder = tmp_path / "rounds", tmp_path / "wrapper"
    folder.mkdir()
    wrapper = folder / "claude"
    text = WRAPPER.format(rounds=rounds, start=start)
    path = [str(folder), stage.env["PATH"]]
    if place == "behind":
        path = [str(stage.shim.parent), *path]
    if place == "first by its path":
        text = text.replace("for folder in $PATH", f"for folder in {stage.shim.parent}")
        path[1] = stage.env["PATH"].replace(f"{stage.shim.parent}:", "")
    wrapper.write_text(text)
    wrapper.chmod(0o755)
    named = {"KEEPER_CLAUDE": str(wrapper)} if place == "named" else {}
    for words in (["-r", ONE], ["--version"]):
        rounds.unlink(missing_ok=True)
        ran = stage.claude(*words, PATH=os.pathsep.join(path), **named)
        assert (ran.code, ran.text, ran.err, stage.argv()) == (CODE, "started\n", "", words)
        assert len(rounds.read_text().splitlines()) <= (2 if "exec" in start else 5)
    assert stage.live() == [ONE]


@pytest.mark.accepts("RESTORE-13", "RESTORE-7")
def test_a_claude_that_claude_starts_is_a_start_of_its_own(
    stage: Stage, swept: dict[str, bytes], profile: Path
) -> None:
    nests = f'[ "$1" = nest ] && {{ claude -r {ONE}; exit; }}'
    stage.real.write_text(stage.real.read_text().replace("#!/bin/sh\n", f"#!/bin/sh\n{nests}\n", 1))
    ran = stage.claude("nest")
    assert (ran.code, ran.text, ran.err) == (CODE, "started\n", "")
    assert (stage.argv(), stage.live()) == (["-r", ONE], [ONE])


@pytest.mark.parametrize("memory", ["x", "1", "1:", ":1:", "$$:08:/x:", "1:99999999999999999999:/x:", "1:1"])
def test_a_memory_that_is_none_of_the_shims_means_nothing(stage: Stage, memory: str) -> None:
    ran = stage.claude("hello", _KEEPER_BEEN=memory)
    assert (ran.code, ran.err, stage.argv()) == (CODE, "", ["hello"])


def test_the_real_one_may_be_named(stage: Stage, tmp_path: Path, profile: Path) -> None:
    other = program(tmp_path / "any name", tmp_path / "told", profile, more="echo named")
    assert stage.claude("hello", KEEPER_CLAUDE=str(other)).text == "named\nstarted\n"
    for wrong in ("/nowhere/claude", str(stage.shim), str(tmp_path)):
        ran = stage.claude("hello", KEEPER_CLAUDE=wrong)
        assert ran.text == "started\n"
        assert len(ran.err.splitlines()) == 1
        assert wrong in ran.err


def test_a_native_install_is_found_that_is_not_on_path(stage: Stage) -> None:
    ran = stage.claude("hello", PATH=f"{stage.shim.parent}:/usr/bin:/bin")
    assert (ran.code, stage.argv()) == (CODE, ["hello"])


def test_without_any_claude_it_says_so_as_a_shell_would(stage: Stage) -> None:
    shutil.rmtree(stage.home / ".local" / "bin")
    ran = stage.claude("hello", PATH=f"{stage.shim.parent}:/usr/bin:/bin")
    assert ran.code == 127
    assert len(ran.err.splitlines()) == 1


# --- what it keeps, and what it finds


AT_ONCE = "rm -rf {projects}"


@pytest.mark.parametrize("version", ["2.1.40", "1.0.124", "unknown"])
@pytest.mark.accepts("FIT-7")
def test_a_claude_that_sweeps_the_moment_it_starts_takes_nothing_that_was_not_kept_before(
    run_keeper: Keeper, cli_env: dict[str, str], home: Path, profile: Path, vault_home: Path, tmp_path: Path,
    version: str,
) -> None:  # fmt: skip
    """No agent; nothing of either conversation was ever kept."""
    stage = build(run_keeper, cli_env, home, tmp_path, version, AT_ONCE.format(projects=profile / "projects" / "*"))
    chat.write_whole(profile, ONE, cwd=str(stage.work))
    chat.write_whole(profile, TWO, cwd="/srv/elsewhere")
    before = chat.files(profile)
    assert stage.claude("--resume", ONE).code == CODE
    for session in (ONE, TWO):
        assert run_keeper("restore", session).code == 0
    back = chat.files(profile)
    assert before.items() <= back.items()


@pytest.mark.accepts("KEEP-22")
def test_a_start_of_a_claude_that_sweeps_later_keeps_the_profile_behind_it(
    stage: Stage, profile: Path, vault_home: Path
) -> None:
    chat.write_whole(profile, ONE, cwd=str(stage.work))
    assert stage.claude("hello").code == CODE
    kept = chat.kept_path(vault_home, ONE)
    eventually(
        "the keep", lambda: kept.exists() and (vault_home / "chats" / ONE / "seal" / f"{ONE}.jsonl.seal").exists()
    )
    assert kept.samefile(profile / "projects" / _folder(stage.work) / f"{ONE}.jsonl")


@pytest.mark.accepts("RESTORE-3", "RESTORE-7", "RESTORE-2")
def test_a_conversation_that_was_recreated_is_whole_before_it_is_resumed(
    stage: Stage, profile: Path, run_keeper: Keeper
) -> None:
    whole = talk("abcdef", ONE, cwd=str(stage.work))
    live = write_live(profile, str(stage.work), ONE, jsonl(*whole[:4]))
    assert run_keeper("keep").code == 0
    live.unlink()
    append(live, jsonl(*whole[4:]))
    chat.age(profile)
    asked = time.time()
    stage.claude("-r", ONE, "--fork-session")
    assert live.read_bytes() == jsonl(*whole)
    assert live.stat().st_mtime >= asked - 1


@pytest.mark.accepts("RESTORE-9")
def test_what_was_never_kept_and_is_gone_is_said_to_be_gone_with_what_history_holds_of_it(
    stage: Stage, swept: dict[str, bytes], profile: Path
) -> None:
    entries = [("first thing", NEVER), ("of another", ONE), ("second thing", NEVER)]
    lines = [json.dumps({"display": text, "project": "/w", "sessionId": session}) for text, session in entries]
    (profile / "history.jsonl").write_text("\n".join(lines) + "\n")
    before = chat.files(profile)
    ran = stage.claude("-r", NEVER)
    assert (ran.code, stage.argv()) == (CODE, ["-r", NEVER])
    (line,) = ran.err.splitlines()
    assert "never kept" in line
    assert f"2 of its prompts: `keeper resume {NEVER} --prompts`" in line
    assert "thing" not in line
    assert chat.files(profile) == before


@pytest.mark.accepts("KEEP-13", "RESTORE-5")
def test_the_profile_is_the_one_that_claude_is_given(
    stage: Stage, swept: dict[str, bytes], profile: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    (other / "projects").mkdir(parents=True)
    ran = stage.claude("-r", ONE, CLAUDE_CONFIG_DIR=str(other))
    assert str(profile) in ran.err
    assert chat.files(other) == {}
    assert stage.live() == []


def test_continue_takes_what_lives_and_leaves_what_was_deleted_by_hand(
    stage: Stage, profile: Path, run_keeper: Keeper
) -> None:
    """A sweep takes the oldest first: of two, the older one lives, so the newer one was no sweep's."""
    for session, days in ((ONE, 1), (TWO, 3)):
        live = write_live(profile, str(stage.work), session, jsonl(*talk("abcd", session, cwd=str(stage.work))))
        os.utime(live, (then := time.time() - days * chat.DAY_S, then))
    assert run_keeper("keep").code == 0
    (live.parent / f"{ONE}.jsonl").unlink()
    asked = time.time()
    ran = stage.claude("-c")
    assert stage.live() == [TWO]
    assert live.stat().st_mtime >= asked - 1
    assert f"keeper restore {ONE}" in ran.err
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize("module", ["keeper/__init__", "orjson", "typing", "sitecustomize"])
@pytest.mark.accepts("RESTORE-7", "KEEP-22")
def test_the_modules_of_a_project_do_not_go_before_keepers(
    stage: Stage, swept: dict[str, bytes], profile: Path, vault_home: Path, tmp_path: Path, module: str
) -> None:
    chat.write_whole(profile, NEVER, cwd=str(stage.work))
    file = tmp_path / "project" / f"{module}.py"
    file.parent.mkdir(parents=True)
    file.write_text("print('of the project')\nraise ImportError('built for another Python')\n")
    ran = stage.claude("-r", ONE, PYTHONPATH=str(tmp_path / "project"), PYTHONHOME="/nowhere")
    assert (ran.code, ran.text, ran.err) == (CODE, "started\n", "")
    assert ONE in stage.live()
    assert stage.environ()["PYTHONPATH"] == str(tmp_path / "project")
    eventually("the keep behind the start", chat.kept_path(vault_home, NEVER).exists)


# --- with an agent


@contextmanager
def agent(vault: Path, answers: dict[str, dict[str, object]]) -> Iterator[list[dict[str, object]]]:
    """Something that answers as an agent would; what it was asked."""
    asked: list[dict[str, object]] = []
    server = socket.socket(socket.AF_UNIX)
    folder = os.open(vault, os.O_PATH)
    server.bind(f"/proc/self/fd/{folder}/agent.sock")
    os.close(folder)
    server.listen()

    def serve() -> None:
        while True:
            try:
                line, _ = server.accept()
            except OSError:
                return
            with line:
                request = json.loads(line.recv(65536))
                asked.append(request)
                line.sendall(json.dumps(answers.get(str(request["do"]), {"ok": False})).encode() + b"\n")

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield asked
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()


RUNS: dict[str, object] = {"running": True, "pid": 1, "ready": 1.0, "degraded": None}


def test_where_an_agent_runs_it_restores_and_the_core_is_not_loaded(
    stage: Stage, swept: dict[str, bytes], vault_home: Path, profile: Path
) -> None:
    done = {"ok": True, "warnings": ["there is another branch"]}
    with agent(vault_home, {"restore": done, "status": RUNS}) as asked:
        ran = stage.claude("-p", "hello", "-r", ONE)
        assert (ran.code, ran.err) == (CODE, "keeper: there is another branch\n")
        request = asked[-1]
        assert [one["do"] for one in asked] == ["status", "restore"]
        assert (request["do"], request["session"], request["profile"]) == ("restore", ONE, str(profile))
        asked.clear()
        assert stage.claude("hello").code == CODE
        assert [one["do"] for one in asked] == ["status"]
        program = (
            "import sys; from keeper.doors.before import main; code = main(sys.argv[1:])\n"
            "print(code, *sorted(sys.modules))"
        )
        words = [sys.executable, "-P", "-c", program, "before", stage.real, "hello"]
        ran = subprocess.run(words, env=stage.env, cwd=stage.work, capture_output=True, text=True, check=True)
        code, *loaded = ran.stdout.split()
    assert code == "0"
    assert {name for name in loaded if name.startswith("keeper")} == {
        "keeper", "keeper.doors", "keeper.doors.before", "keeper.doors.flags", "keeper.doors.handed", "keeper.homes",
        "keeper.wire",
    }  # fmt: skip
    assert not {"dataclasses", "pathlib", "typing"} & set(loaded)


@pytest.mark.accepts("RESTORE-7", "KEEP-22")
def test_the_agent_restores_what_is_resumed_and_keeps_what_claude_then_writes(
    stage: Stage, swept: dict[str, bytes], cli_env: dict[str, str], profile: Path, vault_home: Path
) -> None:
    """Cold resume and a fork of it: no hook, and the sessions were not there when the agent came."""
    live = profile / "projects" / _folder(stage.work) / f"{ONE}.jsonl"
    fork = jsonl(*talk("abcd", TWO, cwd=str(stage.work)), *talk("ef", NEVER, parent="d", cwd=str(stage.work)))
    (stage.told / "fork").write_bytes(fork)
    forks = f"cp {stage.told}/fork {live.parent}/{NEVER}.jsonl"
    program(stage.real, stage.told, profile, more=forks)
    broken = stage.told / "no.toml"
    broken.write_text("vault = [")
    with running(cli_env) as keeper_runs:
        # With these settings the shim could not do it by itself.
        ran = stage.claude("-r", ONE, "--fork-session", KEEPER_CONFIG=str(broken))
        assert (ran.code, ran.err, stage.live()) == (CODE, "", [ONE])
        assert swept.items() <= chat.files(profile).items()
        until(lambda: keeper_runs.keeps(NEVER, live.parent / f"{NEVER}.jsonl"), "the fork is kept")
        assert keeper_runs.keeps(ONE, live)


@pytest.mark.accepts("RESTORE-7")
def test_where_the_agent_cannot_the_shim_does_it_by_itself(
    stage: Stage, swept: dict[str, bytes], vault_home: Path
) -> None:
    with agent(vault_home, {"restore": {"ok": False, "error": "no"}, "status": RUNS}):
        assert stage.claude("-r", ONE).err == ""
        assert stage.live() == [ONE]


@pytest.mark.parametrize(
    "state",
    [
        {"degraded": [{"what": "watch", "why": "limit"}]},
        {"ready": None},
        {"profiles": ["/another"]},
        {"running": False},
    ],
    ids=lambda state: next(iter(state)),
)
@pytest.mark.accepts("FIT-7")
def test_an_agent_that_may_not_have_kept_all_is_not_relied_on(
    run_keeper: Keeper, cli_env: dict[str, str], home: Path, profile: Path, vault_home: Path, tmp_path: Path,
    state: dict[str, object],
) -> None:  # fmt: skip
    stage = build(run_keeper, cli_env, home, tmp_path, "2.1.40", AT_ONCE.format(projects=profile / "projects" / "*"))
    chat.write_whole(profile, ONE, cwd=str(stage.work))
    assert run_keeper("keep").code == 0
    chat.write_whole(profile, TWO, cwd=str(stage.work))
    with agent(vault_home, {"status": {**RUNS, **state}, "restore": {"ok": True}}):
        assert stage.claude("-r", ONE).code == CODE
    assert chat.kept_path(vault_home, TWO).exists()


# --- put in place, and taken away


def test_it_stands_in_a_folder_of_its_own_outside_the_vault_and_goes_without_a_trace(
    stage: Stage, run_keeper: Keeper, home: Path
) -> None:
    assert [path.name for path in stage.shim.parent.iterdir()] == ["claude"]
    assert stage.shim == home / ".local" / "share" / "keeper-shim" / "claude"
    told = run_keeper("shim", "status", "--json", env={"PATH": stage.env["PATH"]}).json
    assert (told["installed"], told["current"], told["first"], told["advice"]) == (True, True, True, [])
    assert (told["real"], told["version"]) == (str(home / ".local/bin/claude"), "2.1.328")
    seen = chat.everything(stage.shim.parent)
    assert run_keeper("shim", "install").code == 0
    assert chat.everything(stage.shim.parent) == seen, "written again"
    assert run_keeper("shim", "remove").code == 0
    assert not stage.shim.parent.exists()
    assert run_keeper("shim", "remove").code == 0


@pytest.mark.parametrize(
    ("shell", "file", "word"),
    [("bash", ".bashrc", "export"), ("zsh", ".zshrc", "export"), ("fish", "config.fish", "fish_add")],
)
def test_where_it_is_not_first_on_path_the_line_to_add_is_shown(
    stage: Stage, run_keeper: Keeper, home: Path, shell: str, file: str, word: str
) -> None:
    path = os.pathsep.join([str(home / ".local/bin"), str(stage.shim.parent)])
    told = run_keeper("shim", "status", "--json", env={"PATH": path, "SHELL": f"/bin/{shell}"}).json
    assert told["first"] is False
    assert file in told["advice"][0]
    assert f"{word}" in told["advice"][0]
    assert str(stage.shim.parent) in told["advice"][0]
    assert not list(home.glob(".*rc"))


def test_an_old_one_is_renewed_and_a_strangers_is_left_alone(stage: Stage, run_keeper: Keeper) -> None:
    stage.change("_keeper_limit=10", "_keeper_limit=99")
    assert run_keeper("shim", "status", "--json").json["current"] is False
    assert run_keeper("shim", "install", "--json").json["current"] is True
    assert "_keeper_limit=10" in stage.shim.read_text()
    stage.shim.write_text("#!/bin/sh\necho mine\n")
    for action in ("install", "remove"):
        assert run_keeper("shim", action).code == 8
    assert stage.shim.read_text() == "#!/bin/sh\necho mine\n"
