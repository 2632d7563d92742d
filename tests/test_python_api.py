"""The Python door: a host keeps and restores in its own process, with the command's answers as values."""

import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import keeper
from keeper.errors import DiskError, KeeperError, NotKept, Refused, VaultUnavailable
from tests.build import CWD, append, jsonl, session_id, talk, write_live
from tests.chat import everything, files, kept_path, sweep, write_whole

S, T = session_id(1), session_id(2)
A, B, C, D = talk("abcd", S)


@pytest.mark.accepts("RESTORE-1", "KEEP-1")
def test_keep_and_restore_are_the_two_verbs(profile: Path, vault_home: Path, cli_env: dict[str, str]) -> None:
    live = write_whole(profile, S)
    before = files(profile)
    (kept,) = keeper.keep(S, environ=cli_env)
    assert (kept.session, kept.chat, kept.profile, kept.action) == (S, S, str(profile), "linked")
    sweep(profile)
    answer = keeper.restore(S, environ=cli_env)
    assert (answer.session, answer.live, answer.action, answer.records) == (S, str(live), "restored", 4)
    assert answer.resume == f"cd {CWD} && claude --resume {S}"
    assert answer.resumable is True
    assert files(profile) == before
    assert kept_path(vault_home, S).samefile(live)


@pytest.mark.accepts("RESTORE-3")
def test_restore_folds_as_the_command_does(profile: Path, cli_env: dict[str, str]) -> None:
    live = write_live(profile, CWD, S, jsonl(A, B))
    keeper.keep(S, environ=cli_env)
    live.unlink()
    append(live, jsonl(C))
    assert keeper.restore(S, environ=cli_env).verdict == "partial"
    assert live.read_bytes() == jsonl(A, B, C)
    live.unlink()
    append(live, jsonl(A, B, *talk("xy", S, parent="b")))
    cut = live.read_bytes()
    assert keeper.restore(S, environ=cli_env).verdict == "diverged"
    assert live.read_bytes() == cut
    keeper.restore(S, environ=cli_env, full=True)
    assert live.read_bytes() == jsonl(A, B, C, *talk("xy", S, parent="b"))


def test_failures_are_the_classes_of_keeper_errors(profile: Path, cli_env: dict[str, str], vault_home: Path) -> None:
    for call in (keeper.keep, keeper.restore):
        for text in ("../../x", S[:-1] + "\0", ""):
            with pytest.raises(Refused):
                call(text, environ=cli_env)
        with pytest.raises(NotKept):
            call(T, environ=cli_env)
    write_live(profile, CWD, S, jsonl(A, B))
    keeper.keep(S, environ=cli_env)
    vault_home.rename(vault_home.with_name("unmounted"))
    for call in (keeper.keep, keeper.restore):
        with pytest.raises(VaultUnavailable):
            call(S, environ=cli_env)


def test_a_restore_of_nothing_creates_nothing(tmp_path: Path, cli_env: dict[str, str]) -> None:
    before = everything(tmp_path)
    with pytest.raises(NotKept):
        keeper.restore(S, environ=cli_env)
    assert everything(tmp_path) == before


def test_every_failure_has_an_exit_code_and_a_sentence() -> None:
    def below(kind: type[KeeperError]) -> set[type[KeeperError]]:
        return {kind}.union(*(below(one) for one in kind.__subclasses__()))

    assert {kind.exit_code for kind in below(KeeperError)} == {1, 2, 3, 4, 5, 6, 7, 8}
    drawn = sys.modules["keeper.errors"].__doc__ or ""
    for kind in below(KeeperError):
        assert f"{kind.__name__} " in drawn
        assert f" {kind.exit_code} " in next(one for one in drawn.splitlines() if f"{kind.__name__} " in one) + " "
    assert issubclass(DiskError, KeeperError)


@pytest.mark.accepts("KEEP-13")
def test_the_environment_given_is_the_one_that_claude_is_given(
    profile: Path, home: Path, tmp_path: Path, cli_env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host's own environment names another profile and another vault."""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "hosts-own"))
    monkeypatch.setenv("KEEPER_HOME", str(tmp_path / "hosts-vault"))
    live = write_live(home / "theirs", CWD, S, jsonl(A, B))
    environ = {**cli_env, "CLAUDE_CONFIG_DIR": str(home / "theirs")}
    (kept,) = keeper.keep(S, environ=environ)
    assert kept.profile == str(home / "theirs")
    live.unlink()
    assert keeper.restore(S, environ=environ).live == str(live)
    assert not (tmp_path / "hosts-vault").exists()


def test_without_one_it_is_this_processs(
    profile: Path, vault_home: Path, cli_env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in cli_env.items():
        monkeypatch.setenv(name, value)
    live = write_live(profile, CWD, S, jsonl(A, B))
    keeper.keep(S)
    live.unlink()
    assert keeper.restore(S).live == str(live)
    assert kept_path(vault_home, S).samefile(live)


@pytest.mark.accepts("KEEP-13")
@pytest.mark.parametrize("kind", ["string", "path", "relative", "link"])
def test_a_profile_may_be_named_in_any_way_and_is_one(
    home: Path, cli_env: dict[str, str], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(home)
    (home / "link").symlink_to("theirs")
    live = write_live(home / "theirs", CWD, S, jsonl(A, B))
    named: str | Path = {
        "string": str(home / "theirs"), "path": home / "theirs", "relative": "theirs", "link": home / "link",
    }[kind]  # fmt: skip
    (kept,) = keeper.keep(S, profile=named, environ=cli_env)
    assert kept.profile == str(home / "theirs")
    live.unlink()
    assert keeper.restore(S, profile=named, environ=cli_env).live == str(live)


def test_a_host_may_name_the_chat_and_tag_it(profile: Path, vault_home: Path, cli_env: dict[str, str]) -> None:
    live = write_live(profile, CWD, S, jsonl(A, B))
    (kept,) = keeper.keep(S, chat="host-7", tags=("one",), environ=cli_env)
    assert kept.chat == "host-7"
    live.unlink()
    assert keeper.restore(S, environ=cli_env).chat == "host-7"
    with pytest.raises(Refused):
        keeper.keep(S, chat="../x", environ=cli_env)


@pytest.mark.accepts("RESTORE-10")
def test_a_relative_directory_is_the_hosts(
    profile: Path, tmp_path: Path, cli_env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_live(profile, CWD, S, jsonl(A, B))
    keeper.keep(S, environ=cli_env)
    sweep(profile)
    (tmp_path / "proj").mkdir()
    monkeypatch.chdir(tmp_path)
    assert keeper.restore(S, cwd="proj", environ=cli_env).cwd == str(tmp_path / "proj")


def test_the_package_is_a_shop_window_that_costs_nothing_to_look_at(tmp_path: Path) -> None:
    script = "import sys, keeper; print(sorted(m for m in sys.modules if m.startswith('keeper'))); print(dir(keeper))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=True)
    loaded, shown = done.stdout.splitlines()
    assert loaded == "['keeper']"
    assert shown == str(["__version__", "keep", "restore"])
    with pytest.raises(AttributeError):
        keeper.nonsense  # noqa: B018


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(keeper.__file__).parent / "py.typed").exists()


def test_answers_are_frozen_values(profile: Path, cli_env: dict[str, str]) -> None:
    write_live(profile, CWD, S, jsonl(A, B))
    for answer in (keeper.keep(S, environ=cli_env)[0], keeper.restore(S, environ=cli_env)):
        assert fields(answer)
        assert not hasattr(answer, "__dict__")
        with pytest.raises(AttributeError):
            answer.session = T  # type: ignore[misc]


def test_no_descriptor_stays_open_behind_it(profile: Path, cli_env: dict[str, str]) -> None:
    """A host keeps and restores for weeks in one process."""
    live = write_whole(profile, S)
    keeper.keep(S, environ=cli_env)

    counts = []
    for number in range(4):
        sweep(profile)
        append(write_live(profile, CWD, S, b""), jsonl(*talk(f"{number}", S, parent="d")))
        keeper.restore(S, environ=cli_env)
        keeper.keep(S, environ=cli_env)
        counts.append(descriptors())
    assert counts == [counts[0]] * 4
    assert live.exists()


def descriptors() -> int:
    """How many descriptors this process has, but the one that the count itself takes."""
    return len(os.listdir("/proc/self/fd")) - 1
