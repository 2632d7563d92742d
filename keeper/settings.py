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

from keeper import homes
from keeper.errors import Usage

KEYS = frozenset({"vault", "profiles", "policy"})


@dataclass(frozen=True, slots=True)
class Settings:
    """Where things are. All paths absolute; `profiles` in the order in which they are looked at.

    `default_profile` is the one that Claude uses when nothing is said (`~/.claude`); `named_profile` the one that
    the environment names (`CLAUDE_CONFIG_DIR`), if any. `policy` is that of all chats of which none was said.
    """

    vault: Path
    state_home: Path
    config: Path
    profiles: tuple[Path, ...]
    default_profile: Path
    named_profile: Path | None = None
    lock_wait_s: float = 30.0
    claude_path: str = ""
    policy: str = "keep"


def load(environ: Mapping[str, str]) -> Settings:
    """The settings that this environment and its `keeper.toml` give.

    Raises Usage where the file cannot be read, is no TOML or holds what is not known (the file is named).
    """
    home = homes.user(environ)
    config = Path(homes.config(environ))
    table = _table(config)
    named = _profile(environ.get("CLAUDE_CONFIG_DIR"), home)
    default = Path(os.path.realpath(f"{home}/.claude"))
    listed = tuple(_listed(table, config, home))
    profiles = dict.fromkeys([*([named] if named else [default]), *listed])
    vault = homes.named_vault(environ) or _vault(table, config, home) or homes.default_vault(environ)
    return Settings(
        vault=Path(vault),
        state_home=Path(homes.state(environ)),
        config=config,
        profiles=tuple(profiles),
        default_profile=default,
        named_profile=named,
        claude_path=environ.get("PATH", ""),
        policy=_policy(table, config),
    )


def _profile(value: str | None, home: str) -> Path | None:
    """A profile by its one name, links resolved: two names must not make two profiles of one."""
    return Path(os.path.realpath(homes.absolute(value, home))) if value else None


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


def _listed(table: dict[str, object], config: Path, home: str) -> list[Path]:
    value = table.get("profiles", [])
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise Usage(f"{config}: `profiles` must be a list of folders", 'write profiles = ["~/.claude-work"]')
    return [path for item in value if (path := _profile(item, home)) is not None]


def _vault(table: dict[str, object], config: Path, home: str) -> str | None:
    value = table.get("vault")
    if value is not None and not (isinstance(value, str) and value):
        raise Usage(f"{config}: `vault` must be a folder", 'write vault = "~/keeper"')
    return homes.absolute(value, home) if value else None


def _policy(table: dict[str, object], config: Path) -> str:
    value = table.get("policy", "keep")
    if value not in ("keep", "resident"):
        raise Usage(f"{config}: `policy` is that of all chats", 'write policy = "keep", or "resident"')
    return str(value)
