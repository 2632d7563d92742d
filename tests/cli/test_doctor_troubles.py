"""`keeper doctor` where something cannot be looked at, or is not as it should be: it tells all that can be told, calls
nothing lost or well that it could not see, and its cures are lines that run and mend."""

from __future__ import annotations

import errno
import json
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from keeper import disk
from keeper.doctor import gather, look, probe
from keeper.doctor.facts import Trial
from keeper.transcripts.vault import Vault
from tests.build import CWD, jsonl, live_path, session_id, talk, write_live
from tests.chat import DAY_S, put
from tests.conftest import Needs, Ran
from tests.damage import cut_lines
from tests.seam import World, names_of_ours
from tests.seam import world as world_of

Command = Callable[..., Ran]
S, T = session_id(1), session_id(2)


@pytest.fixture
def here(profile: Path, vault_home: Path, home: Path) -> World:
    """Two chats that are kept, a day old."""
    found = world_of(profile, vault_home, home / ".local" / "state" / "keeper")
    for session in (S, T):
        path = write_live(profile, CWD, session, jsonl(*talk("abcd", session)))
        os.utime(path, (time.time() - DAY_S,) * 2)
    found.keep_all()
    return found


def of(answer: dict[str, Any], name: str) -> list[dict[str, str]]:
    return [check for check in answer["checks"] if check["name"] == name]


def failures(answer: dict[str, Any]) -> set[str]:
    """The names of what fails, but for the agent, of which none runs here."""
    return {check["name"] for check in answer["checks"] if check["state"] == "fail"} - {"agent"}


# --- keeper's own settings ----------------------------------------------------------------------------------


@pytest.mark.parametrize("line", ["keep_for = 90", "broken [", "unknown = 1", "profiles = 3"])
def test_settings_that_do_not_read_fail_alone_and_no_kept_chat_is_called_lost(
    here: World, run_keeper: Command, home: Path, line: str
) -> None:
    config = put(home / ".config" / "keeper" / "config.toml", line.encode())
    put(here.profile / "settings.json", b'{"cleanupPeriodDays": 2}')
    done = run_keeper("doctor", "--json")
    (check,) = of(done.json, "config")
    assert (done.code, failures(done.json), check["cure"]) == (1, {"config"}, f"${{EDITOR:-vi}} {config}")
    assert "cannot be told" in of(done.json, "capture")[0]["detail"]
    assert (done.json["retention"]["days"], done.json["lost"]) == (2, [])
    assert set(done.json["sweep"]["due"]) == {S, T}, "what can be told is told"


# --- a vault that cannot be looked at, or written to ---------------------------------------------------------


def loop(path: Path) -> None:
    """Nobody can look at it, root neither."""
    path.rename(f"{path}.away")
    path.symlink_to(path.name)


@pytest.mark.parametrize("name", ["chats", "tombstones.jsonl", "removals.jsonl", "rules.jsonl", "id", "state.db"])
def test_whatever_of_the_vault_cannot_be_read_the_rest_is_told_and_nothing_is_called_lost(
    here: World, run_keeper: Command, name: str
) -> None:
    if not (here.root / name).exists():
        put(here.root / name, b"")
    loop(here.root / name)
    put(here.profile / "history.jsonl", json.dumps({"display": "x", "sessionId": S}).encode())
    live_path(here.profile, S).unlink()
    done = run_keeper("doctor", "--json")
    assert {"checks", "retention", "sweep", "lost", "profiles"} <= done.json.keys(), done.err
    assert done.json["lost"] == []
    if name != "state.db":  # the index is built from the folders
        assert failures(done.json) == {"capture", "vault"}
        assert done.json["sweep"]["due"].keys() == {T}


def test_a_folder_of_the_vault_that_is_anothers_fails_with_the_line_that_takes_it_back(
    here: World, run_keeper: Command, needs: Needs
) -> None:
    needs.root()
    for place in (here.chat, here.root / "chats", here.root):
        os.chown(place, os.geteuid() + 1, -1)
        answer = run_keeper("doctor", "--json").json
        (check,) = of(answer, "modes")
        assert (failures(answer), str(place) in check["detail"]) == ({"capture", "modes"}, True)
        subprocess.run(check["cure"].replace("sudo ", ""), shell=True, check=True)
        assert failures(run_keeper("doctor", "--json").json) == set()


def test_a_folder_of_the_vault_that_no_keep_can_write_to_fails(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.access
    for place in (here.root, here.root / "chats", here.chat):
        denied = str(place)
        monkeypatch.setattr(os, "access", lambda path, mode, no=denied: str(path) != no and real(path, mode))
        with Vault.open(here.settings, make=False) as vault:
            assert gather.vault_facts(vault, vault.rows(), False, (), lambda folder: "").closed == (denied,)


# --- a profile that cannot be looked at ---------------------------------------------------------------------


@pytest.mark.parametrize("which", ["projects", "project"])
def test_a_profile_that_cannot_be_listed_fails_and_is_not_one_in_which_nothing_lives(
    here: World, run_keeper: Command, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    folder = here.profile / "projects" if which == "projects" else live_path(here.profile, S).parent
    real = os.scandir

    def scandir(path: Any) -> Any:
        if str(path) == str(folder):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with Vault.open(here.settings, make=False) as vault:
        (one, *_) = gather.profiles(vault, vault.rows(), [], lambda folder: "", time.time())
    assert str(folder) in one.unread


def test_a_profile_whose_transcripts_lie_behind_a_loop_fails(here: World, run_keeper: Command) -> None:
    loop(here.profile / "projects")
    answer = run_keeper("doctor", "--json").json
    assert failures(answer) >= {"capture", "sweep"}
    assert not [check for check in answer["checks"] if "no chat lives" in check["detail"]]
    assert {one["state"] for one in run_keeper("list", "--json").json["chats"]} == {"untold"}


# --- cures that run and mend --------------------------------------------------------------------------------

ODD = [
    b'{"cleanupPeriodDays": "2, maybe", "env": {"A": "cleanupPeriodDays"}}',
    b'{\n  "cleanupPeriodDays":\n    2\n}',
    b'{"env": {"cleanupPeriodDays": 7}, "cleanupPeriodDays": [1, {"a": "}"}], "z": 1}',
    b'{"cleanupPeriodDays": 9, "cleanupPeriodDays": 0}',
    b'{"cleanupPeriodDays": 2.0}',
    b'{"disableAllHooks":\n true, "cleanupPeriodDays": 1e0}',
    b'\xef\xbb\xbf{"cleanupPeriodDays": null}\n',
]


@pytest.mark.accepts("FIT-9")
@pytest.mark.parametrize("data", ODD)
def test_mend_sets_the_value_and_no_other_byte_whatever_stands_in_the_file(
    here: World, run_keeper: Command, tmp_path: Path, data: bytes
) -> None:
    real = put(tmp_path / "dotfiles" / "settings.json", data)
    real.chmod(0o640)
    file = here.profile / "settings.json"
    file.symlink_to(real)
    lines = {check["cure"] for check in run_keeper("doctor", "--json").json["checks"] if "--mend" in check["cure"]}
    assert lines
    for line in lines:
        assert run_keeper(*shlex.split(line)[1:]).code == 0
    before, after = json.loads(data.decode("utf-8-sig")), json.loads(real.read_bytes().decode("utf-8-sig"))
    assert after == {**before, "cleanupPeriodDays": 36500, **({"disableAllHooks": False} if b"Hooks" in data else {})}
    assert (file.is_symlink(), real.stat().st_mode & 0o777) == (True, 0o640)
    assert sorted(os.listdir(real.parent)) == ["settings.json"]
    answer = run_keeper("doctor", "--json").json
    assert not [check for check in answer["checks"] if "--mend" in check["cure"]]


def test_mend_refuses_what_is_no_object_and_leaves_alone_what_has_no_such_key(
    run_keeper: Command, tmp_path: Path
) -> None:
    for data in (b"[1]", b"{broken", b"\xff", b""):
        file = put(tmp_path / "a.json", data)
        assert (run_keeper("doctor", "--mend", file).code, file.read_bytes()) == (8, data)
    assert run_keeper("doctor", "--mend", tmp_path / "none.json").code == 8
    file = put(tmp_path / "b.json", b'{"model": "x"}')
    assert run_keeper("doctor", "--mend", file, "--json").json["changed"] is False
    assert file.read_bytes() == b'{"model": "x"}'


def test_a_doubled_chat_is_told_with_its_two_files_and_what_to_do_ends_it(here: World, run_keeper: Command) -> None:
    other = here.profile / "projects" / "-other" / f"{S}.jsonl"
    other.parent.mkdir()
    shutil.copyfile(live_path(here.profile, S), other)
    assert run_keeper("keep").code == 0
    (check,) = of(run_keeper("doctor", "--json").json, "doubled")
    assert check["cure"] == "", "which of them goes a person has to say"
    assert f"{live_path(here.profile, S)}, {other} (the newest last)" in check["detail"]
    assert "keeper doctor" in run_keeper("status").text
    other.unlink()
    assert run_keeper("keep").code == 0
    assert of(run_keeper("doctor", "--json").json, "doubled") == []


def test_a_folder_that_was_removed_while_its_chat_lives_comes_back_by_any_cure_of_the_page(
    here: World, run_keeper: Command
) -> None:
    for number in range(10, 30):
        write_live(here.profile, CWD, session_id(number), jsonl(*talk("ab", session_id(number))))
    here.keep_all()
    shutil.rmtree(here.chat)
    for check in run_keeper("doctor", "--json").json["checks"]:
        if check["state"] == "fail" and check["cure"].startswith("keeper keep"):
            for line in check["cure"].split("; "):
                assert run_keeper(*shlex.split(line)[1:]).code == 0
    answer = run_keeper("doctor", "--json").json
    assert (of(answer, "missing"), of(answer, "forgotten"), failures(answer)) == ([], [], set())
    assert of(answer, "capture")[0]["detail"].startswith("22 of 22 live chats kept")


# --- the days -----------------------------------------------------------------------------------------------


@pytest.mark.accepts("POLICY-6", "FIT-9")
def test_zero_days_where_a_version_wipes_by_them_count_in_every_figure(
    here: World, run_keeper: Command, tmp_path: Path
) -> None:
    file = put(here.profile / "settings.json", b'{"cleanupPeriodDays": 0}')
    write_live(here.profile, CWD, session_id(3), jsonl(*talk("ab", session_id(3), version="2.1.85")))
    here.keep_all()
    answer = run_keeper("doctor", "--json").json
    assert (answer["retention"]["days"], answer["retention"]["file"]) == (0, str(file))
    assert of(answer, "retention") == [], "no other period is called well beside it"
    for session in answer["sweep"]["chats"]:
        assert answer["sweep"]["due"][session] < answer["sweep"]["earliest"]
    risks = run_keeper("list", "--at-risk", "--json").json
    assert {one["session"] for one in risks["chats"]} == {S, T, session_id(3)}
    assert all(one["due"] <= risks["sweeps"][0]["earliest"] for one in risks["chats"])


def test_the_profiles_of_a_page_that_cannot_tell_the_vault_are_judged_as_any(here: World) -> None:
    with Vault.open(here.settings, make=False) as vault:
        (one, *_) = gather.profiles(vault, None, [], lambda folder: "", time.time())
    assert {live.kept for live in one.live} == {None}
    assert {live.session for live in one.live} == {S, T}


def test_a_chat_that_nobody_can_read_is_one_that_the_next_sweep_takes(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`chown -R` of the vault gives the live files away too: they are the same."""

    def unread(path: str, session: str) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr(look, "read_head", unread)
    with Vault.open(here.settings, make=False) as vault:
        (one, *_) = gather.profiles(vault, None, [], lambda folder: "", time.time() + 40 * DAY_S)
    assert set(one.forecast.chats) == {S, T}


@pytest.mark.parametrize("swept", [True, False])
def test_a_kept_file_that_is_gone_from_its_folder_fails_and_the_cure_gives_it_back(
    here: World, run_keeper: Command, swept: bool
) -> None:
    whole = here.kept.read_bytes()
    if swept:
        live_path(here.profile, S).unlink()
        here.keep_all()
    here.kept.unlink()
    (check,) = of(run_keeper("doctor", "--json").json, "kept")
    assert (check["state"], S in check["detail"]) == ("fail", True)
    run_keeper(*shlex.split(check["cure"])[1:])
    assert here.kept.read_bytes() == whole
    assert of(run_keeper("doctor", "--json").json, "kept") == []


def test_a_trial_in_a_vault_that_cannot_be_written_to_fails_and_is_no_matter_of_links(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = disk.write_new

    def denied(name: Path, *more: Any, **options: Any) -> None:
        if Path(name).parent == here.root:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(name))
        real(name, *more, **options)

    monkeypatch.setattr(disk, "write_new", denied)
    assert list(probe.trials(here.profile, here.root, lambda folder: None)) == [
        Trial("write", str(here.root), "Permission denied")
    ]
    assert names_of_ours(here.profile, here.root) == []


@pytest.mark.accepts("KEEP-13")
def test_a_profile_that_only_what_is_kept_of_it_tells_of_is_looked_at_too(
    here: World, run_keeper: Command, home: Path
) -> None:
    other = home / ".claude-2"
    write_live(other, CWD, session_id(5), jsonl(*talk("ab", session_id(5))))
    assert run_keeper("keep", "--profile", other).code == 0
    answer = run_keeper("doctor", "--json").json
    assert {one["profile"] for one in answer["profiles"]} == {str(here.profile), str(other)}
    assert session_id(5) in answer["sweep"]["due"]


def test_a_session_that_two_profiles_have_is_cured_where_it_is_ill(
    here: World, run_keeper: Command, home: Path
) -> None:
    other = home / ".claude-2"
    live = write_live(other, CWD, S, jsonl(*talk("abcd", S)))
    assert run_keeper("keep", "--profile", other).code == 0
    whole = live.read_bytes()
    cut_lines(live, 1)
    assert run_keeper("keep", "--profile", other).code == 0
    (check,) = of(run_keeper("doctor", "--json").json, "damaged")
    assert check["cure"] == f"keeper restore {S} --profile {other} --full"
    assert f"keeper accept {S} --profile {other}" in check["detail"]
    assert f"`{check['cure']}`" in run_keeper("status").text
    assert run_keeper(*shlex.split(check["cure"])[1:]).code == 0
    assert live.read_bytes() == whole
    assert of(run_keeper("doctor", "--json").json, "damaged") == []
