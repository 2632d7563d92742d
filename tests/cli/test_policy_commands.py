"""`keeper exclude`, `prune`, `du`: what a person says of what is kept, and what it does at once."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.build import CWD, append, jsonl, meta, prompt, session_id, talk, write_live
from tests.chat import everything, put, sweep, write_whole
from tests.conftest import Ran
from tests.terminal import Terminal

S, T = session_id(1), session_id(2)
CANARY = b"the words of the person"
Keeper = Callable[..., Ran]


def canaries(vault: Path) -> list[Path]:
    return [path for path in vault.rglob("*") if path.is_file() and CANARY in path.read_bytes()]


@pytest.mark.accepts("POLICY-1", "POLICY-2")
def test_a_chat_that_a_new_rule_meets_goes_at_once_and_is_kept_again_once_the_rule_is_gone(
    profile: Path, vault_home: Path, run_keeper: Keeper
) -> None:
    data = jsonl(prompt("a", None, CANARY.decode(), session=S), *talk("bc", S, parent="a"))
    live = write_whole(profile, S, data)
    put(live.with_suffix("") / "tool-results" / "canary.txt", CANARY)
    put(profile / "tasks" / S / "2.json", CANARY)
    other = write_whole(profile, T, cwd="/srv/open")
    assert run_keeper("keep").code == 0
    write_live(profile, CWD, S, jsonl(prompt("a", None, CANARY.decode(), session=S), *talk("xy", S, parent="a")))
    assert run_keeper("keep").code == 0
    assert canaries(vault_home)
    was = everything(profile)

    ran = run_keeper("exclude", "add", "--cwd", f"{CWD}/**", "--yes", "--json")
    assert ran.code == 0, ran.err
    assert [one["sessions"] for one in ran.json["removed"]] == [[S]]
    assert not (vault_home / "chats" / S).exists()
    assert not canaries(vault_home)
    assert everything(profile) == was, "a live file was touched"
    for words in (["keep"], ["keep", S], ["keep", str(live)]):
        assert run_keeper(*words).code == 0
        assert not (vault_home / "chats" / S).exists()
    assert [one["session"] for one in run_keeper("list", "--json").json["chats"]] == [T]
    assert (vault_home / "chats" / T / f"{T}.jsonl").samefile(other)
    assert everything(profile) == was, "a live file was touched"

    assert run_keeper("exclude", "remove", "--cwd", f"{CWD}/**").code == 0
    assert run_keeper("keep", S, "--json").json["kept"][0]["action"] == "linked"
    assert (vault_home / "chats" / S / f"{S}.jsonl").samefile(profile / "projects" / live.parent.name / live.name)


@pytest.mark.accepts("POLICY-1")
def test_of_a_chat_that_was_excluded_before_it_came_nothing_is_made(
    profile: Path, vault_home: Path, run_keeper: Keeper
) -> None:
    assert run_keeper("exclude", "add", "--project", "-srv-demo-*").code == 0
    live = write_whole(profile, S)
    was = everything(profile)
    for words in (["keep"], ["keep", S]):
        assert run_keeper(*words).code == 0
    assert [path for path in vault_home.rglob("*") if S in path.name] == []
    assert everything(profile) == was
    append(live, jsonl(*talk("ef", S, parent="d")))
    assert run_keeper("keep", S, "--json").json["kept"][0]["verdict"] == "excluded"
    assert [path for path in vault_home.rglob("*") if S in path.name] == []


@pytest.mark.accepts("POLICY-2")
def test_sole_copies_are_named_and_nothing_goes_without_a_yes(
    profile: Path, vault_home: Path, run_keeper: Keeper
) -> None:
    write_whole(profile, S)
    write_whole(profile, T)
    assert run_keeper("keep").code == 0
    sweep(profile)
    write_whole(profile, T)
    was = everything(vault_home)
    for more in ([], ["--json"]):
        ran = run_keeper("exclude", "add", "--cwd", CWD, *more)
        assert ran.code == 8
        assert S in ran.err
        assert T not in ran.err
        assert everything(vault_home) == was
    assert run_keeper("exclude", "list", "--json").json["rules"] == []
    assert run_keeper("exclude", "add", "--cwd", CWD, "--yes").code == 0
    assert list((vault_home / "chats").iterdir()) == []


@pytest.mark.accepts("BOTH-4", "POLICY-1")
def test_an_excluded_session_resumes_from_its_live_file_and_nothing_claims_a_kept_copy(
    profile: Path, vault_home: Path, run_keeper: Keeper
) -> None:
    live = write_whole(profile, S)
    assert run_keeper("keep").code == 0
    assert run_keeper("exclude", "add", "--session", S).code == 0
    was = everything(profile)
    ran = run_keeper("restore", S, "--json")
    assert ran.code == 0, ran.err
    assert (ran.json["verdict"], ran.json["action"], ran.json["live"]) == ("excluded", "none", str(live))
    assert (ran.json["records"], ran.json["resumable"], ran.json["chat"]) == (4, True, "")
    assert ran.json["resume"].endswith(f"claude --resume {S}")
    assert "excluded by the rule session=" in run_keeper("restore", S).err
    assert run_keeper("restore", "--all").code == 0
    assert everything(profile) == was, "a restore touched an excluded chat"
    assert run_keeper("list", "--json").json["chats"] == []
    assert run_keeper("status", "--json").json["vault"]["chats"] == 0
    assert run_keeper("show", S).code == 4
    sweep(profile)
    gone = run_keeper("restore", S)
    assert gone.code == 4
    assert "removed from the vault, by the rule session=" in gone.err


@pytest.mark.accepts("POLICY-1", "POLICY-2")
def test_a_hosts_tag_excludes_at_once_and_without_a_question(
    profile: Path, vault_home: Path, run_keeper: Keeper
) -> None:
    assert run_keeper("exclude", "add", "--tag", "bot-*").code == 0
    live = write_whole(profile, S)
    assert run_keeper("keep").code == 0
    live.unlink()  # the vault's is the sole copy now
    ran = run_keeper("keep", "--tag", "bot-7", S, "--json")
    assert (ran.code, ran.json["kept"][0]["verdict"], ran.json["kept"][0]["action"]) == (0, "excluded", "removed")
    assert not (vault_home / "chats" / S).exists()
    write_whole(profile, S)
    assert run_keeper("keep").code == 0
    assert not (vault_home / "chats" / S).exists(), "the tag is remembered though its chat is gone"
    assert run_keeper("exclude", "remove", "--tag", "bot-*").code == 0
    assert run_keeper("keep").code == 0
    assert b'"bot-7"' in (vault_home / "chats" / S / "chat.json").read_bytes()


@pytest.mark.accepts("POLICY-1")
def test_a_tag_is_given_before_there_is_a_file_and_holds_when_it_comes(
    profile: Path, vault_home: Path, run_keeper: Keeper
) -> None:
    assert run_keeper("exclude", "add", "--preset", "optchat-*").code == 0
    for session, tag in ((S, "preset:optchat-fast"), (T, "preset:own")):
        ran = run_keeper("keep", "--tag", tag, session, "--json")
        assert (ran.code, ran.json["kept"][0]["action"]) == (0, "tagged")
    write_whole(profile, S)
    write_whole(profile, T)
    assert run_keeper("keep").code == 0
    assert [path.name for path in (vault_home / "chats").iterdir()] == [T]
    assert b'"preset:own"' in (vault_home / "chats" / T / "chat.json").read_bytes()
    assert run_keeper("keep", "--tag", "x").code == 2, "no tag for everything by mistake"


@pytest.mark.accepts("POLICY-1", "POLICY-2")
def test_what_is_known_only_later_is_judged_when_it_is_known(
    profile: Path, vault_home: Path, run_keeper: Keeper
) -> None:
    assert run_keeper("exclude", "add", "--title", "optchat-*").code == 0
    assert run_keeper("exclude", "add", "--cwd", "/srv/secret/**").code == 0
    titled = write_live(profile, CWD, S, jsonl(*talk("ab", S)))
    late = write_live(profile, CWD, T, jsonl(meta("mode", mode="default", sessionId=T)))
    assert run_keeper("keep").code == 0
    assert {path.name for path in (vault_home / "chats").iterdir()} == {S, T}
    append(titled, jsonl(meta("custom-title", customTitle="optchat-7", sessionId=S)))
    append(late, jsonl(*talk("cd", T, cwd="/srv/secret/deep")))
    ran = run_keeper("keep", S, T, "--json")
    assert [(one["verdict"], one["action"]) for one in ran.json["kept"]] == [("excluded", "removed")] * 2
    assert list((vault_home / "chats").iterdir()) == []
    append(titled, jsonl(meta("ai-title", aiTitle="A talk", sessionId=S)))
    assert run_keeper("keep", S, "--json").json["kept"][0]["verdict"] == "excluded", "a host's title still holds"
    append(titled, jsonl(meta("custom-title", customTitle="mine", sessionId=S)))
    assert run_keeper("keep", S, "--json").json["kept"][0]["action"] == "linked"


@pytest.mark.accepts("POLICY-1", "POLICY-2")
def test_rules_of_the_settings_file_hold_as_those_of_the_command_and_are_never_written(
    profile: Path, vault_home: Path, cli_env: dict[str, str], run_keeper: Keeper
) -> None:
    write_whole(profile, S)
    write_whole(profile, T, jsonl(*talk("ab", T, cwd=f"{profile.parent}/secret/x")), cwd=f"{profile.parent}/secret/x")
    assert run_keeper("keep").code == 0
    sweep(profile)
    text = b'# mine\n[[exclude]]\ncwd = "~/secret/**"\nentrypoint = "cli"\n\n[[exclude]]\ncwd = "~/secret/**"\n'
    config = put(Path(cli_env["KEEPER_CONFIG"]), text)
    assert run_keeper("keep").code == 0
    assert [path.name for path in (vault_home / "chats").iterdir()] == [S], "at once, without a question"
    told = run_keeper("exclude", "list", "--json").json["rules"]
    assert [one["rule"].get("cwd") for one in told] == [f"{profile.parent}/secret/**"] * 2
    assert {one["origin"] for one in told} == {str(config)}
    assert run_keeper("exclude", "remove", "--cwd", "~/secret/**").code == 8
    assert config.read_bytes() == text
    for broken in (b"[[exclude]]\n", b'[[exclude]]\nname = "x"\n', b"[[exclude]]\ncwd = 3\n", b'exclude = "x"\n'):
        put(config, broken)
        assert run_keeper("keep").code == 2
        assert [path.name for path in (vault_home / "chats").iterdir()] == [S]


@pytest.mark.parametrize("words", [["add"], ["add", "--cwd", ""], ["remove"], ["add", "--name", "x"]])
def test_a_rule_without_a_condition_is_refused(words: list[str], run_keeper: Keeper) -> None:
    assert run_keeper("exclude", *words).code == 2


def test_a_rule_that_is_not_there_cannot_be_removed(run_keeper: Keeper) -> None:
    assert run_keeper("exclude", "add", "--cwd", "/a").code == 0
    assert run_keeper("exclude", "add", "--cwd", "/a", "--json").json["new"] is False
    assert run_keeper("exclude", "remove", "--cwd", "/b").code == 4
    assert run_keeper("exclude", "remove", "--cwd", "/a").code == 0
    assert run_keeper("exclude", "list", "--json").json["rules"] == []


@pytest.mark.accepts("BOTH-4", "POLICY-1")
def test_no_report_takes_an_excluded_chat_for_one_that_is_not_kept_yet(
    profile: Path, vault_home: Path, run_keeper: Keeper
) -> None:
    def told() -> tuple[str, int, list[str]]:
        doctor = run_keeper("doctor", "--json").json["checks"]
        (capture,) = [one["state"] for one in doctor if one["name"] == "capture"]
        lines = run_keeper("status", "--openmetrics").text.splitlines()
        (unkept,) = [line for line in lines if line.startswith("keeper_unkept_sessions{")]
        risk = run_keeper("list", "--at-risk", "--json").json["chats"]
        return capture, int(float(unkept.split()[-1])), [one["policy"] for one in risk]

    write_whole(profile, T, cwd="/srv/open")
    assert run_keeper("keep").code == 0
    write_whole(profile, S)
    assert told() == ("fail", 1, ["keep", "keep"]), "so it would be told if it were to be kept"
    assert run_keeper("exclude", "add", "--session", S).code == 0
    state, unkept, policies = told()
    assert (state, unkept, sorted(policies)) == ("ok", 0, ["exclude", "keep"])


@pytest.mark.accepts("POLICY-1")
def test_a_rule_that_is_not_applied_yet_lets_nothing_be_put_back(
    profile: Path, cli_env: dict[str, str], vault_home: Path, run_keeper: Keeper
) -> None:
    for session in (S, T):
        write_whole(profile, session)
    assert run_keeper("keep").code == 0
    sweep(profile)
    live = write_live(profile, CWD, T, jsonl(*talk("ab", T)))
    was = everything(profile)
    put(Path(cli_env["KEEPER_CONFIG"]), f'[[exclude]]\ncwd = "{CWD}"\n'.encode())
    gone = run_keeper("restore", S)
    assert gone.code == 4
    assert "excluded by the rule" in gone.err
    assert run_keeper("restore", T, "--json").json["verdict"] == "excluded"
    assert run_keeper("restore", "--all", "--json").json["sessions"] == []
    assert everything(profile) == was
    assert live.read_bytes() == jsonl(*talk("ab", T))


@pytest.mark.accepts("POLICY-1")
def test_a_hook_of_an_excluded_session_makes_nothing_and_fails_at_nothing(
    profile: Path, cli_env: dict[str, str], vault_home: Path, run_keeper: Keeper
) -> None:
    assert run_keeper("exclude", "add", "--entrypoint", "sdk-*").code == 0
    live = write_live(profile, CWD, S, jsonl(prompt("a", None, session=S, entrypoint="sdk-cli")))
    for event in ("SessionStart", "UserPromptSubmit", "Stop", "SessionEnd"):
        payload = {"hook_event_name": event, "session_id": S, "transcript_path": str(live), "cwd": CWD}
        assert run_keeper("hook", stdin=json.dumps(payload).encode()).code == 0
    assert not (Path(cli_env["XDG_STATE_HOME"]) / "keeper" / "hook.log").exists()
    assert [path for path in vault_home.rglob("*") if S in path.name] == []


@pytest.mark.accepts("POLICY-2")
@pytest.mark.parametrize(("key", "code", "left"), [("n", 130, [S]), ("y", 0, [])])
def test_on_a_terminal_a_person_is_asked_for_sole_copies(
    key: str, code: int, left: list[str], profile: Path, cli_env: dict[str, str], vault_home: Path, tmp_path: Path,
    run_keeper: Keeper,
) -> None:  # fmt: skip
    write_whole(profile, S)
    assert run_keeper("keep").code == 0
    sweep(profile)
    words = [sys.executable, "-m", "keeper", "exclude", "add", "--cwd", CWD]
    with Terminal(words, cli_env, tmp_path) as terminal:
        terminal.wait(f"sole copy: {S}")
        terminal.wait("Go on")
        terminal.type(f"{key}\n")
        assert terminal.ended() == code
    assert [path.name for path in (vault_home / "chats").iterdir()] == left
    assert len(run_keeper("exclude", "list", "--json").json["rules"]) == (key == "y")
