"""Homes: where the settings file, the vault and the state are by an environment: names alone, nothing is looked at.

It is the rule that `settings.load` follows, for the doors that stand in front of a person and cannot pay for the rest
of it. It promises absolute names. It refuses to load anything.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def user(environ: Mapping[str, str]) -> str:
    """The user's home."""
    return environ.get("HOME") or os.path.expanduser("~")


def absolute(value: str, home: str) -> str:
    """A folder as a person writes it."""
    if value == "~" or value.startswith("~/"):
        value = home + value[1:]
    return os.path.abspath(value)


def base(environ: Mapping[str, str], name: str, default: str) -> str:
    """A base directory of the XDG specification; a relative value is to be ignored, says the specification."""
    value = environ.get(name, "")
    return value if value.startswith("/") else f"{user(environ)}/{default}"


def config(environ: Mapping[str, str]) -> str:
    """The settings file, there or not."""
    named = environ.get("KEEPER_CONFIG")
    if named:
        return absolute(named, user(environ))
    return f"{base(environ, 'XDG_CONFIG_HOME', '.config')}/keeper/keeper.toml"


def state(environ: Mapping[str, str]) -> str:
    """The folder of what this machine notes."""
    return f"{base(environ, 'XDG_STATE_HOME', '.local/state')}/keeper"


def named_vault(environ: Mapping[str, str]) -> str | None:
    """The vault that the environment names; it goes before the settings file's."""
    named = environ.get("KEEPER_HOME")
    return absolute(named, user(environ)) if named else None


def default_vault(environ: Mapping[str, str]) -> str:
    """The vault where neither environment nor settings file names one."""
    return f"{base(environ, 'XDG_DATA_HOME', '.local/share')}/keeper"
