"""Settings: TOML file and environment, read once at the door into one frozen value.

It promises that the environment wins over the file and the file over the defaults, and that a key which it does
not know is an error that names the file. It refuses to be read again further down: below the doors the value is
handed on, and nothing else looks at the environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from keeper.errors import Usage

KEYS = frozenset({"vault", "profiles"})


@dataclass(frozen=True, slots=True)
class Settings:
    """Where things are. All paths absolute; `profiles` in the order in which they are looked at.

    `default_profile` is the one that Claude uses when nothing is said (`~/.claude`); `named_profile` the one that
    the environment names (`CLAUDE_CONFIG_DIR`), if any.
    """

    vault: Path
    state_home: Path
    config: Path
    profiles: tuple[Path, ...]
    default_profile: Path
    named_profile: Path | None = None
    lock_wait_s: float = 30.0
    claude_path: str = ""


def load(environ: Mapping[str, str]) -> Settings:
    """The settings that this environment and its `keeper.toml` give.

    Raises Usage where the file cannot be read, is no TOML or holds what is not known (the file is named).
    """
    home = Path(environ.get("HOME") or Path.home())
    config = _path(environ.get("KEEPER_CONFIG"), home)
    if config is None:
        config = _xdg(environ, "XDG_CONFIG_HOME", home / ".config") / "keeper" / "keeper.toml"
    table = _table(config)
    named = _profile(environ.get("CLAUDE_CONFIG_DIR"), home)
    default = Path(os.path.realpath(home / ".claude"))
    listed = tuple(_listed(table, config, home))
    profiles = dict.fromkeys([*([named] if named else [default]), *listed])
    vault = _path(environ.get("KEEPER_HOME"), home) or _vault(table, config, home)
    return Settings(
        vault=vault or _xdg(environ, "XDG_DATA_HOME", home / ".local" / "share") / "keeper",
        state_home=_xdg(environ, "XDG_STATE_HOME", home / ".local" / "state") / "keeper",
        config=config,
        profiles=tuple(profiles),
        default_profile=default,
        named_profile=named,
        claude_path=environ.get("PATH", ""),
    )


def _xdg(environ: Mapping[str, str], name: str, default: Path) -> Path:
    """A base directory of the XDG specification; a relative value is to be ignored, says the specification."""
    value = environ.get(name, "")
    return Path(value) if value.startswith("/") else default


def _path(value: str | None, home: Path) -> Path | None:
    if not value:
        return None
    if value == "~" or value.startswith("~/"):
        value = str(home) + value[1:]
    return Path(os.path.abspath(value))


def _profile(value: str | None, home: Path) -> Path | None:
    """A profile by its one name, links resolved: two names must not make two profiles of one."""
    path = _path(value, home)
    return None if path is None else Path(os.path.realpath(path))


def _table(config: Path) -> dict[str, object]:
    try:
        text = config.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise Usage(f"cannot read the settings file {config}: {error.strerror}", "make it readable") from error
    import tomllib  # only where there is a file: the fast doors pay for every import

    try:
        table: dict[str, object] = tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Usage(f"{config} is no TOML: {error}", "mend the line that it names") from error
    unknown = sorted(set(table) - KEYS)
    if unknown:
        raise Usage(
            f"{config} has a key that keeper does not know: {', '.join(unknown)}",
            f"the keys are: {', '.join(sorted(KEYS))}",
        )
    return table


def _listed(table: dict[str, object], config: Path, home: Path) -> list[Path]:
    value = table.get("profiles", [])
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise Usage(f"{config}: `profiles` must be a list of folders", 'write profiles = ["~/.claude-work"]')
    return [path for item in value if (path := _profile(item, home)) is not None]


def _vault(table: dict[str, object], config: Path, home: Path) -> Path | None:
    value = table.get("vault")
    if value is not None and not (isinstance(value, str) and value):
        raise Usage(f"{config}: `vault` must be a folder", 'write vault = "~/keeper"')
    return _path(value, home)
