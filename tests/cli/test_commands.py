"""The command line: each command answers in text and in one JSON object, says its example, and ends with its code."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import keeper
from tests.build import CWD, append, dated, jsonl, prompt, session_id, talk, write_live
from tests.chat import everything, kept_path, put, sweep, write_whole
from tests.conftest import Ran
from tests.seam import world

Command = Callable[..., Ran]

S, T, NEVER = session_id(1), session_id(2), session_id(9)
COMMANDS = ["keep", "restore", "accept", "list", "show", "export", "status", "merge", "forget", "verify", "reindex"]


@pytest.fixture
def kept(profile: Path, vault_home: Path, home: Path) -> Path:
    """Two kept chats; answers the first one's live transcript."""
    path = write_whole(profile, S)
    write_live(profile, CWD, T, jsonl(*talk("pqrs", T)))
    world(profile, vault_home, home / ".local" / "state" / "keeper").keep_all()
    return path


# --- help ---------------------------------------------------------------------------------------------------


def test_the_group_names_every_command_and_what_it_is_for(run_keeper: Command) -> None:
    done = run_keeper("--help")
    assert done.code == 0
    listed = re.findall(r"^  (\w+)  +(\S.*)", done.text, re.MULTILINE)
    assert [name for name, _ in listed if name in COMMANDS] == COMMANDS
    assert "Example:" in done.text


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_help_with_an_example_and_needs_no_vault_for_it(
    run_keeper: Command, vault_home: Path, command: str
) -> None:
    done = run_keeper(command, "--help")
    assert (done.code, done.err) == (0, "")
    assert f"Example: keeper {command}" in " ".join(done.text.split())
    assert not vault_home.exists()


def test_the_version_is_the_packages(run_keeper: Command) -> None:
    assert keeper.__version__ in run_keeper("--version").text


# --- one JSON object a command ------------------------------------------------------------------------------

KEPT = {"session", "profile", "chat", "project", "cwd", "verdict", "action", "mode", "added", "files", "warnings"}
RESTORED = {
    "session", "chat", "profile", "project", "cwd", "live", "verdict", "action", "records", "files", "resume",
    "resumable",
}  # fmt: skip
CHAT = {
    "chat", "session", "profile", "project", "cwd", "title", "state", "policy", "records", "bytes", "last", "live",
    "kept",
}  # fmt: skip

ANSWERS: list[tuple[list[str], set[str], str, set[str]]] = [
    (["keep"], {"kept"}, "kept", KEPT),
    (["keep", S], {"kept"}, "kept", KEPT),
    (["restore", S], RESTORED, "", set()),
    (["restore", S, "--dry-run"], RESTORED, "", set()),
    (["restore", S, T], {"sessions"}, "sessions", RESTORED),
    (["restore", "--all"], {"sessions"}, "sessions", RESTORED),
    (["restore", S, "--through", "b"], {"session", "source", "live", "records", "resume"}, "", set()),
    (["restore", S, "--repaired"], {"session", "source", "live", "records", "resume", "deeds"}, "", set()),
    (["list"], {"chats"}, "chats", CHAT),
    (["show", S], {"chats"}, "chats", CHAT | {"conversation", "aside"}),
    (["status"], {"agent", "vault"}, "", set()),
    (["status", "--openmetrics"], {"metrics"}, "", set()),
    (["report"], {"page", "sessions", "bytes"}, "", set()),
    (["forget", S], {"forgotten"}, "forgotten", {"chat", "sessions", "bytes"}),
    (["verify"], {"chats", "faults"}, "", set()),
    (["reindex"], {"rows"}, "", set()),
]


@pytest.mark.parametrize(("words", "keys", "rows", "row"), ANSWERS, ids=[" ".join(a[0])[:40] for a in ANSWERS])
def test_json_is_one_object_with_a_schema_and_the_keys_that_others_rely_on(
    kept: Path, run_keeper: Command, words: list[str], keys: set[str], rows: str, row: set[str]
) -> None:
    done = run_keeper(*words, "--json")
    assert done.code == (5 if words == ["status"] else 0), done.err
    answer: dict[str, Any] = json.loads(done.out)
    assert (next(iter(answer)), answer["schema"]) == ("schema", 1)
    assert set(answer) >= keys
    for one in answer[rows] if rows else []:
        assert set(one) >= row


@pytest.mark.parametrize(
    "words",
    [["restore", NEVER], ["restore", "../../x"], ["keep", NEVER], ["show", NEVER], ["forget", NEVER], ["keep", "../x"]],
    ids=" ".join,
)
def test_a_failure_is_told_on_stderr_and_as_an_object_with_its_code(
    kept: Path, run_keeper: Command, words: list[str]
) -> None:
    plain, answer = run_keeper(*words), run_keeper(*words, "--json")
    assert plain.code == answer.code == (8 if ".." in words[1] else 4)
    assert plain.out == b""
    assert plain.err.startswith("keeper: ")
    assert "cure:" in plain.err
    assert "Traceback" not in plain.err
    assert answer.json["exit"] == answer.code
    assert answer.json["error"] in plain.err


# --- exit codes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ["nonsense"], ["restore"], ["restore", S, "--all"], ["restore", "--nonsense"], ["keep", "--adopt"],
        ["keep", S, T, "--chat", "c"], ["forget"], ["merge"], ["merge", "/nowhere/a", "/nowhere/b"], ["export"],
        ["restore", S, T, "--through", "a"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_words_that_do_not_fit_are_2_and_do_nothing(
    tmp_path: Path, kept: Path, run_keeper: Command, words: list[str]
) -> None:
    before = everything(tmp_path)
    done = run_keeper(*words)
    assert (done.code, done.out) == (2, b"")
    assert done.err
    assert everything(tmp_path) == before


@pytest.mark.parametrize("words", [["list"], ["status"], ["verify"], ["reindex"], ["restore", "--all"]], ids=" ".join)
def test_where_nothing_was_ever_kept_it_says_so_and_makes_no_vault(
    vault_home: Path, home: Path, profile: Path, run_keeper: Command, words: list[str]
) -> None:
    before = everything(home)
    done = run_keeper(*words)
    assert (done.code, done.err) == (5 if words == ["status"] else 0, "")
    assert not vault_home.exists()
    assert everything(home) == before


@pytest.mark.parametrize("words", [["restore", S], ["list"], ["keep"]], ids=" ".join)
def test_a_vault_that_is_not_mounted_is_1_and_never_made_anew(
    kept: Path, vault_home: Path, run_keeper: Command, words: list[str]
) -> None:
    vault_home.rename(vault_home.with_name("unmounted"))
    done = run_keeper(*words)
    assert (done.code, done.out) == (1, b"")
    assert str(vault_home) in done.err
    assert "mount" in done.err
    assert not vault_home.exists()


def test_a_vault_of_a_later_version_is_7(kept: Path, vault_home: Path, run_keeper: Command) -> None:
    (vault_home / "VERSION").write_text("2\n")
    for words in (["restore", S], ["keep"], ["list"]):
        assert run_keeper(*words).code == 7


def test_a_chat_that_another_process_holds_is_6(
    kept: Path, vault_home: Path, cli_env: dict[str, str], tmp_path: Path
) -> None:
    holder = f"import fcntl,time;f=open({str(vault_home / 'locks' / f'{S}.lock')!r},'a');fcntl.flock(f,2);print();"
    process = subprocess.Popen([sys.executable, "-uc", holder + "time.sleep(60)"], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        script = (
            "import sys\nfrom keeper import settings\nfrom keeper.cli.main import main\nload = settings.load\n"
            "from dataclasses import replace\nsettings.load = lambda env: replace(load(env), lock_wait_s=0.1)\n"
            f"sys.argv = ['keeper', 'restore', {S!r}]\nmain()\n"
        )
        done = subprocess.run([sys.executable, "-c", script], env=cli_env, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 6, done.stderr
        assert "held by another process" in done.stderr
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_ctrl_c_is_130_without_a_traceback(kept: Path, cli_env: dict[str, str], tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\nfrom keeper import disk\nfrom keeper.cli.main import main\n"
        f"disk.hook = lambda call, paths: os.kill(os.getpid(), {int(signal.SIGINT)})\n"
        f"sys.argv = ['keeper', 'restore', {S!r}]\nmain()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], env=cli_env, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, "Traceback" in done.stderr) == (130, False)


def test_a_reader_that_has_enough_is_no_failure_worth_a_traceback(
    kept: Path, profile: Path, cli_env: dict[str, str], tmp_path: Path, run_keeper: Command
) -> None:
    path = write_live(profile, CWD, NEVER, jsonl(*talk("ab", NEVER), prompt("c", "b", "x" * (1 << 20), NEVER)))
    assert run_keeper("keep", path).code == 0
    line = f"{sys.executable} -m keeper export {NEVER} | head -c 10"
    done = subprocess.run(["sh", "-c", line], env=cli_env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (len(done.stdout), done.stderr) == (10, "")


def test_the_settings_files_faults_are_2_and_name_it(home: Path, run_keeper: Command) -> None:
    config = put(home / ".config" / "keeper" / "config.toml", b"vaults = 1\n")
    for words in (["list"], ["keep"], ["restore", S]):
        done = run_keeper(*words)
        assert done.code == 2
        assert str(config) in done.err


def test_no_words_of_a_conversation_reach_an_error_or_a_status(
    profile: Path, vault_home: Path, run_keeper: Command
) -> None:
    secret = "xyzzy-plugh"
    path = write_live(profile, CWD, S, jsonl(prompt("a", None, secret), prompt("e", "d", secret)))
    run_keeper("keep")
    path.unlink()
    append(path, jsonl(prompt("a", None, secret * 2), prompt("z", "q", secret)))
    append(path, b'{"uuid":"torn ' + secret.encode())
    said = [
        run_keeper(*words)
        for words in (
            ["keep"], ["restore", S], ["restore", S, "--through", "nothing"], ["verify"], ["status"], ["reindex"],
            ["status", "--json"], ["verify", "--json"], ["restore", S, "--json"], ["keep", "--json"],
        )
    ]  # fmt: skip
    assert [one for one in said if secret in one.text + one.err] == []
    for name in ("state.db", "tombstones.jsonl", f"chats/{S}/chat.json"):
        file = vault_home / name
        assert not file.exists() or secret.encode() not in file.read_bytes()


# --- keep ---------------------------------------------------------------------------------------------------


def test_keep_says_what_it_kept_and_the_second_time_that_nothing_is_new(profile: Path, run_keeper: Command) -> None:
    write_whole(profile, S)
    first, second = run_keeper("keep"), run_keeper("keep")
    assert (first.code, second.code) == (0, 0)
    assert f"{S}  ahead: linked" in first.text
    assert "1 sessions: 1 linked; 0 unchanged" in first.text
    assert second.text.strip() == "1 sessions: nothing new; 1 unchanged"


def test_keep_takes_ids_paths_and_profiles_together(profile: Path, home: Path, run_keeper: Command) -> None:
    one = write_live(profile, CWD, S, jsonl(*talk("ab", S)))
    write_live(profile, CWD, T, jsonl(*talk("ab", T)))
    write_live(home / "work", CWD, NEVER, jsonl(*talk("ab", NEVER)))
    done = run_keeper("keep", T, one, home / "work", "--json")
    assert done.code == 0
    assert [answer["session"] for answer in done.json["kept"]] == [T, S, NEVER]


def test_keep_of_a_tagged_chat_notes_the_tags(profile: Path, vault_home: Path, run_keeper: Command) -> None:
    write_live(profile, CWD, S, jsonl(*talk("ab", S)))
    assert run_keeper("keep", S, "--tag", "one", "--tag", "two").code == 0
    assert run_keeper("keep", S, "--tag", "two", "--tag", "three").code == 0
    told = json.loads((vault_home / "chats" / S / "chat.json").read_bytes())
    assert told["tags"] == ["one", "two", "three"]


def test_keep_of_many_with_one_that_fails_is_3_and_of_that_one_alone_its_own_code(
    kept: Path, profile: Path, vault_home: Path, run_keeper: Command
) -> None:
    """The chat's lock is a folder: keeper can open none."""
    lock = vault_home / "locks" / f"{T}.lock"
    lock.unlink()
    lock.mkdir()
    append(kept, jsonl(*talk("ef", S, parent="d")))
    write_live(profile, CWD, T, jsonl(*talk("tu", T, parent="s")))
    done = run_keeper("keep", "--json")
    assert done.code == 3
    assert {one["session"]: bool(one["error"]) for one in done.json["kept"]} == {S: False, T: True}
    alone = run_keeper("keep", T)
    assert (alone.code, str(lock) in alone.err) == (1, True)


# --- list, show, export, status -----------------------------------------------------------------------------


def test_list_tells_each_chats_state_and_is_ordered_by_last_use(
    kept: Path, profile: Path, vault_home: Path, run_keeper: Command
) -> None:
    append(kept, b'{"type":"custom-title","customTitle":"My \\u001b[31mtitle"}\n')
    append(kept, jsonl(*dated(0, prompt("now", "d", session=S))))
    first, last = run_keeper("list", "--json").json["chats"]
    assert (first["session"], last["session"]) == (T, S)
    assert (last["title"], last["state"], last["records"]) == ("My \ufffd[31mtitle", "live", 6)
    assert (last["bytes"], last["live"]) == (kept.stat().st_size, str(kept))
    assert last["kept"] == str(kept_path(vault_home, S))
    assert first["title"] == "prompt p"
    sweep(profile)
    chats = run_keeper("list", "--json").json["chats"]
    assert {(chat["state"], chat["live"]) for chat in chats} == {("swept", "")}
    assert "\x1b" not in run_keeper("list").text


def test_list_narrows_to_a_directory_and_a_profile(
    kept: Path, profile: Path, home: Path, tmp_path: Path, run_keeper: Command
) -> None:
    real = tmp_path / "proj"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    write_live(home / "work", str(real), NEVER, jsonl(*talk("ab", NEVER, cwd=str(real))))
    assert run_keeper("keep", home / "work").code == 0

    def listed(*words: str | Path, cwd: Path | None = None) -> set[str]:
        return {chat["session"] for chat in run_keeper("list", *words, "--json", cwd=cwd).json["chats"]}

    assert listed() == {S, T, NEVER}
    assert listed("--cwd", real) == listed("--cwd", ".", cwd=real) == listed("--cwd", tmp_path / "link") == {NEVER}
    assert listed("--profile", home / "work") == listed("--profile", "work", cwd=home) == {NEVER}
    assert listed("--profile", profile) == {S, T}
    assert listed("--cwd", "/nowhere") == set()


def test_show_tells_the_conversation_and_steers_no_terminal(profile: Path, run_keeper: Command) -> None:
    path = write_live(profile, CWD, S, jsonl(*talk("ab", S), prompt("c", "b", "bell \x07 and \x1b[2J", S)))
    assert run_keeper("keep", path).code == 0
    (shown,) = run_keeper("show", S, "--json").json["chats"]
    assert [(one["who"], one["text"]) for one in shown["conversation"]][:2] == [
        ("user", "prompt a"), ("assistant", "answer b"),
    ]  # fmt: skip
    text = run_keeper("show", S).text
    assert "prompt a" in text
    assert not {"\x07", "\x1b"} & set(text)
    assert str(path) in text


def test_export_gives_the_kept_bytes_and_nothing_else(profile: Path, run_keeper: Command) -> None:
    data = jsonl(b"\xff\x00 garbled\r", *talk("ab", S)) + b'{"torn'
    path = write_live(profile, CWD, S, data)
    assert run_keeper("keep", path).code == 0
    path.unlink()
    done = run_keeper("export", S)
    assert (done.code, done.out, done.err) == (0, data, "")
    assert run_keeper("export", NEVER).code == 4
    assert run_keeper("export", S, "--chat", "another").code == 4


def test_status_tells_what_the_vault_holds(kept: Path, vault_home: Path, run_keeper: Command) -> None:
    told = run_keeper("status", "--json").json
    size = sum(kept_path(vault_home, session).stat().st_size for session in (S, T))
    assert (told["vault"]["path"], told["vault"]["chats"], told["vault"]["bytes"]) == (str(vault_home), 2, size)
    assert told["agent"]["running"] is False
    assert set(told["agent"]) == {"running", "pid", "since", "degraded", "last"}


# --- merge --------------------------------------------------------------------------------------------------


def test_merge_writes_the_merged_bytes_and_touches_neither_file(tmp_path: Path, run_keeper: Command) -> None:
    a, b, c, d = talk("abcd", S)
    ours, theirs = put(tmp_path / "ours", jsonl(a, b)), put(tmp_path / "theirs", jsonl(a, c, d) + b'{"torn')
    before = everything(tmp_path)
    done = run_keeper("merge", ours, theirs)
    assert (done.code, done.out) == (0, jsonl(a, b, c, d))
    plan = run_keeper("merge", ours, theirs, "--plan", "--json").json
    assert plan == {"schema": 1, "kept": 2, "live": 3, "merged": 4, "added": 2, "variants": [], "torn": 0}
    told = run_keeper("merge", ours, theirs, "--plan")
    assert (told.code, b"prompt" in told.out) == (0, False)
    assert everything(tmp_path) == before


def test_merge_warns_of_two_versions_and_of_a_torn_end_on_stderr_alone(tmp_path: Path, run_keeper: Command) -> None:
    a, b = talk("ab", S)
    newer = b.replace(b"answer b", b"said anew")
    ours, theirs = put(tmp_path / "ours", jsonl(a, b) + b'{"torn'), put(tmp_path / "theirs", jsonl(a, newer))
    done = run_keeper("merge", ours, theirs)
    assert (done.code, done.out) == (0, jsonl(a, b, newer))
    assert "record b" in done.err
    assert "unfinished" in done.err
    plan = run_keeper("merge", ours, theirs, "--plan", "--json").json
    assert (plan["variants"], plan["torn"]) == (["b"], 1)


@pytest.mark.parametrize("kind", ["missing", "folder", "fifo"])
def test_merge_of_what_is_no_file_is_2(tmp_path: Path, run_keeper: Command, kind: str) -> None:
    ours = put(tmp_path / "ours", jsonl(*talk("ab", S)))
    theirs = tmp_path / "theirs"
    if kind == "folder":
        theirs.mkdir()
    elif kind == "fifo":
        os.mkfifo(theirs)
    assert run_keeper("merge", ours, theirs, timeout_s=20).code == 2


# --- forget, verify, reindex --------------------------------------------------------------------------------


@pytest.mark.accepts("KEEP-11")
def test_forget_removes_every_kept_byte_and_leaves_the_live_files(
    kept: Path, profile: Path, vault_home: Path, run_keeper: Command
) -> None:
    before = everything(profile)
    done = run_keeper("forget", S, "--json")
    assert (done.code, done.json["forgotten"][0]["sessions"]) == (0, [S])
    assert everything(profile) == before
    assert not (vault_home / "chats" / S).exists()
    assert [chat["session"] for chat in run_keeper("list", "--json").json["chats"]] == [T]
    assert run_keeper("restore", S).code == run_keeper("forget", S).code == run_keeper("show", S).code == 4
    assert run_keeper("keep").code == 0
    assert not (vault_home / "chats" / S).exists()
    assert run_keeper("keep", S, "--adopt").code == 0
    assert kept_path(vault_home, S).samefile(kept)


@pytest.mark.parametrize("name", ["../../x", "..", "", "/etc"])
def test_forget_of_what_is_no_name_is_refused(tmp_path: Path, kept: Path, run_keeper: Command, name: str) -> None:
    before = everything(tmp_path)
    assert run_keeper("forget", name).code == 8
    assert everything(tmp_path) == before


def test_verify_exits_7_and_names_what_is_not_whole(kept: Path, vault_home: Path, run_keeper: Command) -> None:
    assert run_keeper("verify").code == 0
    kept_path(vault_home, S).unlink()
    done = run_keeper("verify", "--json")
    assert done.code == 7
    (fault,) = done.json["faults"]
    assert set(fault) >= {"chat", "session", "file", "record", "kind"}
    assert (fault["chat"], fault["session"]) == (S, S)
    assert run_keeper("verify", T).code == 0
    assert S in run_keeper("verify").text


def test_verify_changes_nothing(tmp_path: Path, kept: Path, run_keeper: Command) -> None:
    before = everything(tmp_path)
    assert run_keeper("verify").code == 0
    assert everything(tmp_path) == before


@pytest.mark.parametrize("words", [["list"], ["show", S], ["export", S], ["status"], ["verify"]], ids=" ".join)
def test_who_only_asks_changes_nothing(tmp_path: Path, kept: Path, run_keeper: Command, words: list[str]) -> None:
    before = everything(tmp_path)
    assert run_keeper(*words).code == (5 if words == ["status"] else 0)
    assert everything(tmp_path) == before


@pytest.mark.accepts("RESTORE-17")
@pytest.mark.parametrize("index", ["missing", "broken"])
def test_reindex_builds_the_index_anew_from_the_folders(
    kept: Path, vault_home: Path, run_keeper: Command, index: str
) -> None:
    before = run_keeper("list", "--json").json
    state = vault_home / "state.db"
    state.unlink()
    if index == "broken":
        state.write_bytes(b"garbled" * 1000)
    done = run_keeper("reindex", "--json")
    assert (done.code, done.json["rows"]) == (0, 2)
    assert run_keeper("list", "--json").json == before
    assert run_keeper("verify").code == 0


def test_restore_tells_a_person_what_it_did_and_what_to_type(kept: Path, profile: Path, run_keeper: Command) -> None:
    sweep(profile)
    done = run_keeper("restore", S)
    first, *_, last = done.text.splitlines()
    assert first == f"{S}  absent: restored, 4 records, 10 other files"
    assert last == f"  resume with: cd {CWD} && claude --resume {S}"


def test_restore_is_there_when_it_answers(kept: Path, run_keeper: Command) -> None:
    kept.unlink()
    asked = time.time()
    assert run_keeper("restore", S, "--json").json["action"] == "restored"
    assert kept.stat().st_mtime >= asked - 0.1
