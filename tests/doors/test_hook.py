"""`keeper hook`: what Claude's hooks tell is kept before the hook ends, and whatever fails costs Claude nothing."""

import json
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from keeper import wire
from keeper.doors import hook
from keeper.settings import load
from keeper.transcripts.vault import Vault
from tests.build import CWD, append, jsonl, session_id, talk, write_live
from tests.conftest import Ran
from tests.seam import calls_of

ROOT = Path(__file__).resolve().parents[2]
RECORDED = {place.stem: json.loads(place.read_text()) for place in sorted((ROOT / "fixtures/hooks").glob("*.json"))}
CALLS = [pytest.param(call, id=f"{v}-{n}") for v, calls in RECORDED.items() for n, call in enumerate(calls)]
S, T = session_id(1), session_id(2)
Keeper = Callable[..., Ran]


def payload(event: str, transcript: Path, **more: object) -> bytes:
    told = {"session_id": transcript.stem, "transcript_path": str(transcript), "cwd": CWD, "hook_event_name": event}
    return json.dumps({**told, **more}).encode()


def log_of(home: Path) -> str:
    log = home / ".local/state/keeper/hook.log"
    return log.read_text() if log.exists() else ""


def is_silent(ran: Ran) -> bool:
    return (ran.code, ran.out, ran.err) == (0, b"", "")


@pytest.fixture
def kept(vault_home: Path) -> Callable[[str], Path]:
    return lambda session: vault_home / "chats" / session / f"{session}.jsonl"


# --- kept before it ends -------------------------------------------------------------------------------


@pytest.mark.accepts("KEEP-2")
@pytest.mark.parametrize("event", hook.EVENTS)
def test_every_event_keeps_and_seals_before_the_hook_ends(
    event: str, run_keeper: Keeper, profile: Path, home: Path, kept: Callable[[str], Path]
) -> None:
    live = write_live(profile, CWD, S, jsonl(*talk("abc")))
    assert is_silent(run_keeper("hook", stdin=payload(event, live)))
    assert kept(S).samefile(live)
    assert (kept(S).parent / "seal" / f"{S}.jsonl.seal").stat().st_size > 0
    assert log_of(home) == ""
    append(live, jsonl(*talk("de", parent="c")))
    assert is_silent(run_keeper("hook", stdin=payload(event, live)))
    shown = run_keeper("verify", S, "--json")
    assert shown.code == 0, shown.text


@pytest.mark.accepts("KEEP-2")
def test_what_the_turn_end_hook_waits_for_is_on_the_disk_when_it_ends(
    profile: Path, cli_env: dict[str, str], kept: Callable[[str], Path]
) -> None:
    live = write_live(profile, CWD, S, jsonl(*talk("abc")))
    seal = kept(S).parent / "seal" / f"{S}.jsonl.seal"
    calls = calls_of(lambda: hook.handle(payload("Stop", live), cli_env))
    synced = {paths[0] for call, paths in calls if call == "sync"}
    assert {str(kept(S)), str(kept(S).parent), str(seal), str(seal.parent)} <= synced


@pytest.mark.accepts("KEEP-2")
def test_a_slow_keep_of_one_chat_delays_no_hook_of_another(
    run_keeper: Keeper, profile: Path, cli_env: dict[str, str], kept: Callable[[str], Path]
) -> None:
    slow, other = (write_live(profile, CWD, one, jsonl(*talk("abc", one))) for one in (S, T))
    run_keeper("hook", stdin=payload("Stop", slow))
    append(slow, jsonl(*talk("de", S, parent="c")))
    with Vault.open(load(cli_env)) as vault, vault.lock(S):
        assert is_silent(run_keeper("hook", stdin=payload("Stop", other), timeout_s=hook.WAITS_S / 2))
        assert kept(T).samefile(other)


@pytest.mark.accepts("KEEP-13")
def test_the_profile_is_the_one_that_the_transcript_lies_in_whatever_the_environment_names(
    run_keeper: Keeper, profile: Path, tmp_path: Path, vault_home: Path
) -> None:
    other = tmp_path / "other-profile"
    here, there = write_live(profile, CWD, S, jsonl(*talk("ab"))), write_live(other, CWD, S, jsonl(*talk("xy")))
    for live in (here, there):
        assert is_silent(run_keeper("hook", stdin=payload("Stop", live)))
    told = {one["profile"]: Path(one["kept"]) for one in run_keeper("list", "--json").json["chats"]}
    assert set(told) == {str(profile), str(other)}
    assert told[str(profile)].samefile(here)
    assert told[str(other)].samefile(there)
    assert len(list((vault_home / "chats").iterdir())) == 2


@pytest.mark.accepts("KEEP-13")
def test_a_profile_under_two_names_is_one(run_keeper: Keeper, profile: Path, tmp_path: Path, vault_home: Path) -> None:
    (tmp_path / "link").symlink_to(profile)
    live = write_live(profile, CWD, S, jsonl(*talk("ab")))
    for name in (live, tmp_path / "link" / live.relative_to(profile)):
        assert is_silent(run_keeper("hook", stdin=payload("Stop", name)))
    assert [chat.name for chat in (vault_home / "chats").iterdir()] == [S]
    assert [one["profile"] for one in run_keeper("list", "--json").json["chats"]] == [str(profile)]


@pytest.mark.parametrize("call", CALLS)
def test_what_the_real_cli_tells_is_understood(
    call: dict[str, Any], profile: Path, home: Path, run_keeper: Keeper, kept: Callable[[str], Path]
) -> None:
    """Every payload that the CLI was heard to send, with its transcript where there was one."""
    told = call["payload"]
    live = profile / Path(told["transcript_path"]).relative_to("/srv/demo/home/.claude")
    assert set(told) >= {"cwd", "hook_event_name", "session_id", "transcript_path"}
    if call["transcript_there"]:
        live.parent.mkdir(parents=True)
        live.write_bytes(jsonl(*talk("ab", live.stem)))
    assert is_silent(run_keeper("hook", stdin=json.dumps({**told, "transcript_path": str(live)}).encode()))
    assert kept(live.stem).exists() is call["transcript_there"]
    may_lack = told["hook_event_name"] in hook.BEFORE_A_FILE
    assert log_of(home).count("\n") == (not call["transcript_there"] and not may_lack)


def test_the_recorded_payloads_name_every_event_that_keeper_asks_for() -> None:
    assert {version.split(".")[0] for version in RECORDED} == {"1", "2"}
    for calls in RECORDED.values():
        told = {call["payload"]["hook_event_name"] for call in calls}
        assert told <= set(hook.EVENTS)
    assert {call["payload"]["hook_event_name"] for call in RECORDED["2.1.328"]} == set(hook.EVENTS)


# --- the agent is asked first --------------------------------------------------------------------------


@contextmanager
def agent(vault: Path, answer: dict[str, object] | None) -> Iterator[list[dict[str, Any]]]:
    """Something that answers at the agent's address; None: it hangs up."""
    asked: list[dict[str, Any]] = []
    vault.mkdir(exist_ok=True)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(vault / wire.NAME))
        server.listen()

        def serve() -> None:
            line, _ = server.accept()
            with line:
                asked.append(json.loads(wire.receive(line)))
                if answer is not None:
                    line.sendall(json.dumps(answer).encode() + b"\n")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield asked
        thread.join(10)


def test_a_running_agent_does_the_work(run_keeper: Keeper, profile: Path, home: Path, vault_home: Path) -> None:
    live = write_live(profile, CWD, S, jsonl(*talk("ab")))
    with agent(vault_home, {"ok": True, "sealed": True, "chat": S}) as asked:
        assert is_silent(run_keeper("hook", stdin=payload("Stop", live)))
    told = {"do": "keep", "session": S, "profile": str(profile), "transcript": str(live), "event": "Stop"}
    assert asked == [told]
    assert not (vault_home / "chats").exists()
    assert log_of(home) == ""


def test_the_agent_is_asked_at_the_vault_that_the_settings_file_names(
    run_keeper: Keeper, profile: Path, tmp_path: Path, cli_env: dict[str, str]
) -> None:
    live = write_live(profile, CWD, S, jsonl(*talk("ab")))
    config = Path(cli_env["KEEPER_CONFIG"])
    config.parent.mkdir(parents=True)
    config.write_text(f'vault = "{tmp_path}/named"\n')
    with agent(tmp_path / "named", {"ok": True, "chat": S}) as asked:
        assert is_silent(run_keeper("hook", stdin=payload("Stop", live), env={"KEEPER_HOME": None}))
    assert len(asked) == 1


def test_an_agent_that_hangs_up_leaves_the_work_to_the_hook(
    run_keeper: Keeper, profile: Path, vault_home: Path, kept: Callable[[str], Path]
) -> None:
    live = write_live(profile, CWD, S, jsonl(*talk("ab")))
    with agent(vault_home, None):
        assert is_silent(run_keeper("hook", stdin=payload("Stop", live)))
    assert kept(S).samefile(live)


@pytest.mark.accepts("RESTORE-13")
@pytest.mark.parametrize("event", ["UserPromptSubmit", "Stop"])
def test_an_agent_that_hangs_is_waited_for_no_longer_than_its_event_allows(
    event: str, profile: Path, vault_home: Path, cli_env: dict[str, str], kept: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    assert 2 * hook.IN_FRONT_S < 2 * hook.WAITS_S < hook.WAIT_S
    live = write_live(profile, CWD, S, jsonl(*talk("ab")))
    monkeypatch.setattr(hook, "IN_FRONT_S", 0.2)
    monkeypatch.setattr(hook, "WAITS_S", 0.3)
    waits: list[float] = []
    monkeypatch.setattr(wire, "ask", lambda *given, ask=wire.ask: waits.append(given[2]) or ask(*given))
    vault_home.mkdir()
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(vault_home / wire.NAME))
        silent.listen()
        assert hook.handle(payload(event, live), cli_env)["did"] == "kept"
    assert kept(S).samefile(live)
    assert waits == [0.2 if event == "UserPromptSubmit" else 0.3]


def test_what_the_agent_could_not_do_is_a_line_in_the_log(
    run_keeper: Keeper, profile: Path, home: Path, vault_home: Path
) -> None:
    live = write_live(profile, CWD, S, jsonl(*talk("ab")))
    with agent(vault_home, {"ok": False, "error": "no space on /srv", "cure": "free some"}):
        assert is_silent(run_keeper("hook", stdin=payload("Stop", live)))
    assert log_of(home).endswith(f"Stop {S}: no space on /srv – free some\n")
    assert log_of(home).count("\n") == 1


def test_the_way_to_the_agent_loads_none_of_what_makes_a_start_slow(cli_env: dict[str, str], profile: Path) -> None:
    live = write_live(profile, CWD, S, jsonl(*talk("ab")))
    code = (
        "import os, sys; from keeper import wire; wire.ask = lambda *_: {'ok': True, 'chat': 'c'}\n"
        "from keeper.cli import entry; assert entry.hook() == 0; print(*sorted(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={**cli_env, "PYTHONPATH": str(ROOT)}, input=payload("Stop", live),
        capture_output=True, check=True,
    )  # fmt: skip
    loaded = set(done.stdout.decode().split())
    assert loaded & {"click", "orjson", "blake3", "sqlite3", "dataclasses", "pathlib", "ctypes", "inspect"} == set()
    ours = {name for name in loaded if name.startswith("keeper")}
    told = {"", ".cli", ".cli.entry", ".doors", ".doors.hook", ".homes", ".wire"}
    assert ours == {f"keeper{name}" for name in told}


# --- never a word to Claude, never a failure ----------------------------------------------------------


@pytest.mark.accepts("RESTORE-13")
@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"null", b"\xff\xfe\0", b'{"session_id": 7}', b"[" * 100_000,
     b'{"session_id":"../../x","transcript_path":"/x","hook_event_name":"Stop"}',
     b'{"session_id":"/../../../../../../../../../../../x/","transcript_path":"/x","hook_event_name":"SessionStart"}'],
)  # fmt: skip
def test_rubbish_on_stdin_is_one_line_in_the_log_and_nothing_else(
    data: bytes, run_keeper: Keeper, home: Path, vault_home: Path
) -> None:
    assert is_silent(run_keeper("hook", stdin=data))
    assert log_of(home).count("\n") == 1
    assert "is no hook payload" in log_of(home)
    assert not vault_home.exists()


def broken_version(vault: Path, state: Path) -> None:
    (vault / "VERSION").write_text("99\n")


def unmounted(vault: Path, state: Path) -> None:
    shutil.rmtree(vault)


def a_file_for_a_vault(vault: Path, state: Path) -> None:
    shutil.rmtree(vault)
    vault.write_text("no folder")


@pytest.mark.accepts("RESTORE-13")
@pytest.mark.parametrize("damage", [broken_version, unmounted, a_file_for_a_vault])
@pytest.mark.parametrize("event", ["SessionStart", "Stop", "SessionEnd"])
def test_a_vault_that_cannot_be_used_costs_one_line_in_the_log(
    event: str, damage: Callable[[Path, Path], None], run_keeper: Keeper, profile: Path, home: Path, vault_home: Path
) -> None:
    live = write_live(profile, CWD, S, jsonl(*talk("ab")))
    assert is_silent(run_keeper("hook", stdin=payload(event, live)))
    damage(vault_home, home)
    append(live, jsonl(*talk("cd", parent="b")))
    before = live.read_bytes()
    assert is_silent(run_keeper("hook", stdin=payload(event, live)))
    assert log_of(home).count("\n") == 1
    assert f"{event} {S}: " in log_of(home)
    assert live.read_bytes() == before


@pytest.mark.accepts("RESTORE-13")
def test_a_full_disk_costs_one_line_in_the_log(
    run_keeper: Keeper, profile: Path, home: Path, second_volume: Path, needs: Any
) -> None:
    small = second_volume / "small"
    small.mkdir()
    subprocess.run([needs.command("mount"), "-t", "tmpfs", "-o", "size=64k", "full", small], check=True)
    try:
        (small / "filler").write_bytes(b"")
        with open(small / "filler", "wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(b"x" * 4096)
            except OSError:
                pass
        live = write_live(profile, CWD, S, jsonl(*talk("ab")))
        ran = run_keeper("hook", stdin=payload("Stop", live), env={"KEEPER_HOME": str(small / "vault")})
        assert is_silent(ran)
        assert log_of(home).count("\n") == 1
        assert "No space left" in log_of(home) or "free some space" in log_of(home)
    finally:
        subprocess.run([needs.command("umount"), "-l", small], check=True)


@pytest.mark.accepts("RESTORE-13")
def test_a_bad_settings_file_costs_one_line_in_the_log(
    run_keeper: Keeper, profile: Path, home: Path, cli_env: dict[str, str]
) -> None:
    live = write_live(profile, CWD, S, jsonl(*talk("ab")))
    config = Path(cli_env["KEEPER_CONFIG"])
    config.parent.mkdir(parents=True)
    config.write_text("vault = [")
    assert is_silent(run_keeper("hook", stdin=payload("Stop", live)))
    assert (log_of(home).count("\n"), str(config) in log_of(home)) == (1, True)


@pytest.mark.accepts("RESTORE-13")
def test_a_transcript_that_is_gone_is_one_line_and_no_chat(
    run_keeper: Keeper, profile: Path, home: Path, vault_home: Path
) -> None:
    gone = profile / "projects" / "-srv-demo-proj" / f"{S}.jsonl"
    assert is_silent(run_keeper("hook", stdin=payload("SessionEnd", gone, reason="other")))
    assert (log_of(home).count("\n"), S in log_of(home)) == (1, True)
    assert list((vault_home / "chats").iterdir()) == []


@pytest.mark.accepts("RESTORE-13")
def test_closed_streams_a_log_that_cannot_be_written_and_a_broken_keeper_change_nothing(
    cli_env: dict[str, str], profile: Path, home: Path
) -> None:
    live = write_live(profile, CWD, S, jsonl(*talk("ab")))
    environ = {**cli_env, "PYTHONPATH": str(ROOT), "PY": sys.executable}
    state = home / ".local" / "state"
    state.mkdir(parents=True)
    (state / "keeper").write_text("a file where the state folder should be")
    broken = "import sys; sys.modules['keeper.doors.hook'] = None; from keeper.cli import entry; sys.exit(entry.hook())"
    for command in ('"$PY" -m keeper hook >&- 2>&-', '"$PY" -m keeper hook <&-', f'"$PY" -c "{broken}"'):
        done = subprocess.run(
            ["sh", "-c", command], env=environ, input=payload("Stop", live), capture_output=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), command


def test_the_log_is_bounded(run_keeper: Keeper, home: Path) -> None:
    folder = home / ".local/state/keeper"
    folder.mkdir(parents=True)
    (folder / "hook.log").write_bytes(b"an old line\n" * 30_000)
    for _ in range(2):
        run_keeper("hook", stdin=b"{")
    assert log_of(home).count("\n") == 2
    assert sorted(place.name for place in folder.iterdir()) == ["hook.log", "hook.log.1"]


def test_a_person_who_tries_a_payload_is_told_what_was_done(run_keeper: Keeper, profile: Path) -> None:
    live = write_live(profile, CWD, S, jsonl(*talk("ab")))
    ran = run_keeper("hook", "--json", stdin=payload("Stop", live))
    assert ran.json == {"schema": 1, "event": "Stop", "session": S, "did": "kept", "chat": S}


def test_the_profile_is_told_as_keeper_claude_tells_it(tmp_path: Path) -> None:
    from keeper import claude

    (tmp_path / "link").symlink_to(tmp_path / "p")
    here = ("p/projects/x/y.jsonl", "link/projects/x/y.jsonl", "p/../p/projects/x/y", "a/b/c.jsonl")
    for path in (*(f"{tmp_path}/{name}" for name in here), "/x/y.jsonl", "/projects/x/y.jsonl", "c.jsonl"):
        found = claude.profile_of(Path(path))
        assert hook.profile_of(path) == (str(found) if found else ""), path
