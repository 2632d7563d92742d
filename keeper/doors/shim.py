"""Shim: installs and removes the `claude` on PATH that has keeper put back what is resumed, and finds the real one.

It promises one file in a folder of its own, outside the vault, which starts Claude whatever becomes of Python and of
keeper (RESTORE-13). It refuses to touch a `claude` that is not its own, and anybody's shell files: it says which line
to add.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files as resources
from pathlib import Path

from keeper import disk, files
from keeper.doors.cli_version import version_of_files
from keeper.errors import Refused

MARK = b"#!/bin/sh\n# keeper-shim "
_SHELL_FILES = {"bash": "~/.bashrc", "zsh": "~/.zshrc", "fish": "~/.config/fish/config.fish"}


@dataclass(frozen=True, slots=True)
class Stands:
    """How the shim stands. `current`: it is what `install` would write; `first`: `claude` on this PATH is it; `real` is
    the program that it starts, "" where there is none; `advice` are the lines that a person should act on."""

    path: str
    installed: bool
    current: bool
    first: bool
    real: str
    version: str
    advice: tuple[str, ...]


def place(environ: Mapping[str, str]) -> Path:
    """Where the shim stands: `$XDG_DATA_HOME/keeper-shim/claude`."""
    base = environ.get("XDG_DATA_HOME", "")
    home = Path(environ.get("HOME") or Path.home())
    return (Path(base) if base.startswith("/") else home / ".local" / "share") / "keeper-shim" / "claude"


def text() -> bytes:
    """The shim as this keeper writes it: it calls the Python that runs now."""
    source = resources("keeper.doors").joinpath("shim.sh").read_bytes()
    return source.replace(b"@PYTHON@", shlex.quote(sys.executable).encode())


def install(environ: Mapping[str, str]) -> Stands:
    """The shim is there and current, whole-old or whole-new at every instant. Raises Refused, DiskError."""
    path = place(environ)
    if os.path.lexists(path) and not is_shim(str(path)):
        raise Refused(f"{path} is not keeper's: it was left as it is", "move it away, then run it again")
    if not _is_current(path):
        disk.ensure_dir(path.parent)
        new = f"{path.parent}/.claude.{os.urandom(4).hex()}.tmp"
        disk.write_new(new, [text()])
        disk.set_mode(new, 0o755)
        disk.replace(new, path)
        disk.sync_dir(path.parent)
    return status(environ)


def remove(environ: Mapping[str, str]) -> Stands:
    """The shim is gone, and its folder where nothing else stands in it."""
    path = place(environ)
    if os.path.lexists(path) and not is_shim(str(path)):
        raise Refused(f"{path} is not keeper's: it was left as it is", "remove it by hand, if it is to go")
    disk.unlink(path)
    disk.remove_dir(path.parent)
    return status(environ)


def status(environ: Mapping[str, str]) -> Stands:
    """How the shim stands for this environment."""
    path = place(environ)
    installed = is_shim(str(path))
    found = next(iter(_on_path(environ)), "")
    first = bool(found) and is_shim(found)
    real = real_claude(environ)
    advice = []
    if not installed:
        advice = [] if not first else [f"a copy of the shim is on PATH: {found}"]
    elif not first:
        advice = [
            _path_line(environ, path.parent),
            "then open a new terminal (an alias named claude would still go first)",
        ]
    if installed and not _is_current(path):
        advice.append("it is of another keeper or Python: `keeper shim install` renews it")
    if not real:
        advice.append("there is no claude on PATH: install Claude Code, or name it in KEEPER_CLAUDE")
    version = version_of_files(real) if real else ""
    return Stands(str(path), installed, installed and _is_current(path), first, real, version, tuple(advice))


def _path_line(environ: Mapping[str, str], folder: Path) -> str:
    shell = os.path.basename(environ.get("SHELL", ""))
    where = _SHELL_FILES.get(shell, "~/.profile")
    if shell == "fish":
        return f"put this at the end of {where}: fish_add_path --prepend --move {shlex.quote(str(folder))}"
    return f'put this at the end of {where}: export PATH={shlex.quote(str(folder))}:"$PATH"'


def _is_current(path: Path) -> bool:
    try:
        return files.read(path) == text() and os.access(path, os.X_OK)
    except (FileNotFoundError, NotADirectoryError):
        return False


def is_shim(path: str) -> bool:
    """Whether that file, or what it is a link to, is a shim of keeper's."""
    try:
        with open(path, "rb") as stream:
            return stream.read(len(MARK)) == MARK
    except OSError:
        return False


def real_claude(environ: Mapping[str, str]) -> str:
    """The program that the shim starts, found as the shim finds it; "" where there is none."""
    named = environ.get("KEEPER_CLAUDE", "")
    if named and _runs(named):
        return named
    before, behind, passed = "", "", False
    for path in _on_path(environ):
        if is_shim(path):
            passed = True
        elif passed:
            behind = behind or path
        else:
            before = before or path
    home = environ.get("HOME", "")
    own = [path for path in (f"{home}/.local/bin/claude", f"{home}/.claude/local/claude") if _runs(path)]
    return behind or before or (own[0] if own else "")


def _on_path(environ: Mapping[str, str]) -> list[str]:
    """Every `claude` on PATH, in its order."""
    folders = environ.get("PATH", "").split(":")
    paths = [f"{folder or '.'}/claude" for folder in folders]
    return [path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)]


def _runs(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK) and not is_shim(path)
