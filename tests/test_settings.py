"""Settings: the environment wins over the file, the file over the defaults; what is not known is said."""

from pathlib import Path

import pytest

from keeper.errors import Usage
from keeper.settings import load
from tests.chat import put

HOME = {"HOME": "/home/u"}


def config(tmp_path: Path, text: str | bytes) -> dict[str, str]:
    """An environment whose settings file holds this."""
    path = put(tmp_path / "keeper.toml", text if isinstance(text, bytes) else text.encode())
    return {**HOME, "KEEPER_CONFIG": str(path)}


def test_the_defaults_follow_the_xdg_specification() -> None:
    told = load(HOME)
    assert told.vault == Path("/home/u/.local/share/keeper")
    assert told.state_home == Path("/home/u/.local/state/keeper")
    assert told.config == Path("/home/u/.config/keeper/keeper.toml")
    assert told.profiles == (Path("/home/u/.claude"),)
    assert (told.default_profile, told.named_profile) == (Path("/home/u/.claude"), None)


def test_xdg_directories_are_taken_where_they_are_absolute() -> None:
    xdg = {"XDG_DATA_HOME": "/d", "XDG_STATE_HOME": "/s", "XDG_CONFIG_HOME": "/c"}
    told = load({**HOME, **xdg})
    assert (told.vault, told.state_home, told.config) == (
        Path("/d/keeper"),
        Path("/s/keeper"),
        Path("/c/keeper/keeper.toml"),
    )
    assert load({**HOME, **{name: f"relative{value}" for name, value in xdg.items()}}) == load(HOME)
    assert load({**HOME, **dict.fromkeys(xdg, "")}) == load(HOME)


def test_the_environment_wins_over_the_file_and_the_file_over_the_default(tmp_path: Path) -> None:
    environ = config(tmp_path, 'vault = "/from/file"\n')
    assert load(environ).vault == Path("/from/file")
    assert load({**environ, "KEEPER_HOME": "/from/environment"}).vault == Path("/from/environment")
    assert load({**environ, "KEEPER_HOME": ""}).vault == Path("/from/file")
    assert load({**environ, "XDG_DATA_HOME": "/d"}).vault == Path("/from/file")


@pytest.mark.accepts("KEEP-13")
def test_profiles_are_the_one_in_use_and_those_of_the_file_each_once(tmp_path: Path) -> None:
    environ = config(tmp_path, 'profiles = ["~/.claude-work", "/srv/claude", "~/.claude", "~/.claude-work"]\n')
    work, srv, own = Path("/home/u/.claude-work"), Path("/srv/claude"), Path("/home/u/.claude")
    assert load(environ).profiles == (own, work, srv)
    named = load({**environ, "CLAUDE_CONFIG_DIR": "/srv/claude"})
    assert named.profiles == (srv, work, own)
    assert (named.named_profile, named.default_profile) == (srv, own)
    assert load({**HOME, "CLAUDE_CONFIG_DIR": "~/x"}).profiles == (Path("/home/u/x"),)


@pytest.mark.accepts("KEEP-13")
def test_a_profile_is_taken_by_its_real_name(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "claude"
    real.mkdir(parents=True)
    (tmp_path / ".claude").symlink_to(real)
    told = load({"HOME": str(tmp_path), "CLAUDE_CONFIG_DIR": f"{tmp_path}/x/../dotfiles/claude/"})
    assert told.profiles == (real,)
    assert told.default_profile == told.named_profile == real


def test_a_relative_path_is_one_of_where_keeper_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load({**HOME, "KEEPER_HOME": "vault"}).vault == tmp_path / "vault"


@pytest.mark.parametrize(
    "text",
    [
        "vaults = '/x'", "vault = 3", "vault = ''", "profiles = '/x'", "profiles = [1]", "profiles = ['']", "= broken",
        b"vault = '\xff'",
    ],
)  # fmt: skip
def test_a_file_that_does_not_fit_is_a_usage_error_that_names_it(tmp_path: Path, text: str | bytes) -> None:
    with pytest.raises(Usage) as raised:
        load(config(tmp_path, text))
    assert str(tmp_path / "keeper.toml") in raised.value.message
    assert raised.value.cure
    assert raised.value.exit_code == 2


def test_a_file_that_cannot_be_read_is_said_and_one_that_is_not_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(Usage, match=r"folder\.toml"):
        load({**HOME, "KEEPER_CONFIG": str(tmp_path / "folder.toml")})
    put(tmp_path / "file", b"")
    for missing in ("none.toml", "file/none.toml"):
        assert load({**HOME, "KEEPER_CONFIG": str(tmp_path / missing)}).vault == load(HOME).vault


def test_settings_are_frozen() -> None:
    with pytest.raises(AttributeError):
        load(HOME).vault = Path("/x")  # type: ignore[misc]
