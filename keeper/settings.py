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

KEYS = frozenset({"vault", "profiles", "policy", "exclude", "keep_for", "max_size"})
CONDITIONS = ("cwd", "project", "title", "session", "entrypoint", "profile", "preset", "tag")
"""What a rule may ask of a chat, each with a glob."""
Conditions = tuple[tuple[str, str], ...]
_TIMES = {"d": 86_400, "w": 7 * 86_400, "m": 30 * 86_400, "y": 365 * 86_400}
_SIZES = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}


@dataclass(frozen=True, slots=True)
class Settings:
    """Where things are. All paths absolute; `profiles` in the order in which they are looked at.

    `default_profile` is the one that Claude uses when nothing is said (`~/.claude`); `named_profile` the one that
    the environment names (`CLAUDE_CONFIG_DIR`), if any. `policy` is that of all chats of which none was said.
    `exclude` are the file's rules, conditions by name; `keep_for_s` and `max_size_bytes` bound the vault (0: nothing).
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
    exclude: tuple[Conditions, ...] = ()
    keep_for_s: int = 0
    max_size_bytes: int = 0


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
        exclude=_exclude(table, config, home),
        keep_for_s=_amount(table, config, "keep_for", _TIMES, "90d, 12w, 6m or 2y"),
        max_size_bytes=_amount(table, config, "max_size", _SIZES, "500MB or 20GB"),
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


def _exclude(table: dict[str, object], config: Path, home: str) -> tuple[Conditions, ...]:
    value = table.get("exclude", [])
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise Usage(f"{config}: `exclude` must be tables of conditions", 'write [[exclude]], then cwd = "~/secret/**"')
    return tuple(conditions(item, str(config), home) for item in value)


def conditions(table: Mapping[str, object], where: str, home: str, here: str = "") -> Conditions:
    """A rule's globs by the name of the condition; `~` is `home`, `.` is `here`. Raises Usage where that is no rule:
    one without a condition would meet every chat, and one with a `.` that is nowhere meets none."""
    unknown = sorted(set(table) - set(CONDITIONS))
    globs = [value for value in table.values() if isinstance(value, str) and value]
    if unknown or not table or len(globs) != len(table):
        what = f"of {', '.join(unknown)}" if unknown else "without a glob"
        raise Usage(
            f"{where}: a rule {what} cannot be", f"the conditions are: {', '.join(CONDITIONS)}; each has a glob"
        )
    found = {name: _glob(name, str(table[name]), home, here) for name in CONDITIONS if name in table}
    for name, glob in found.items():
        if name in ("cwd", "profile") and {".", ".."} & set(glob.split("/")):
            raise Usage(
                f"{where}: {name} = {glob!r} meets nothing", "write the whole path: a rule has no `.` and no `..`"
            )
    return tuple(found.items())


def _glob(name: str, value: str, home: str, here: str) -> str:
    if name not in ("cwd", "profile"):
        return value
    if value == "~" or value.startswith("~/"):
        value = home + value[1:]
    if here and value.split("/")[0] in (".", ".."):
        value = os.path.normpath(f"{here}/{value}")
    return _as_named(value.rstrip("/") or "/")


def _as_named(glob: str) -> str:
    """The same with the brackets quoted of the folders that are called so (`app/[id]`)."""
    parts = glob.split("/")
    for at, part in enumerate(parts):
        if any(char in part for char in "*?[") and not os.path.isdir("/".join(glob.split("/")[: at + 1])):
            break
        parts[at] = part.replace("[", "[[]")
    return "/".join(parts)


def _amount(table: dict[str, object], config: Path, key: str, units: Mapping[str, int], example: str) -> int:
    """A number with its unit; 0 where none is said."""
    value = table.get(key, "")
    if value == "":
        return 0
    text = value.replace(" ", "").upper() if isinstance(value, str) else ""
    number = text.rstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    unit = units.get(text[len(number) :], units.get(text[len(number) :].lower()))
    try:
        amount = int(float(number) * unit) if unit else 0
    except (ValueError, OverflowError):
        amount = 0
    if amount <= 0:
        raise Usage(f"{config}: `{key}` is {value!r}, which is none", f"write it as {example}")
    return amount
