"""The real CLI as a person has it who types `claude` with keeper's shim first on PATH."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import Ran
from tests.lab import install
from tests.lab.cli import Cli

Keeper = Callable[..., Ran]


@dataclass(frozen=True, slots=True)
class ThroughShim(Cli):
    """The same CLI, started by the shim; `keeper` is what the shim and keeper get of an environment."""

    keeper: tuple[tuple[str, str], ...] = ()

    def environment(self) -> dict[str, str]:
        bin = self.home / "bin"
        if not bin.is_dir():
            bin.mkdir()
            (bin / "claude").symlink_to(install.binary(self.version))
        plain = super(ThroughShim, self).environment()
        return {**dict(self.keeper), **plain, "PATH": f"{shim_of(self.home).parent}:{bin}:{plain['PATH']}"}

    def argv(self, *arguments: str) -> list[str]:
        return [str(shim_of(self.home)), *arguments]


def shim_of(home: Path) -> Path:
    return home / ".local" / "share" / "keeper-shim" / "claude"


def installed(cli: Cli, run_keeper: Keeper, cli_env: dict[str, str]) -> ThroughShim:
    """Put the shim in place, and answer the CLI behind it."""
    done = run_keeper("shim", "install", "--json")
    assert done.code == 0, done.err
    assert done.json["path"] == str(shim_of(cli.home))
    names = ("KEEPER_HOME", "KEEPER_CONFIG", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME")
    ours = tuple((name, cli_env[name]) for name in names)
    return ThroughShim(cli.lab, cli.version, cli.home, cli.cwd, cli.extra, ours)
