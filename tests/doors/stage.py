"""A stand-in for Claude Code behind the shim: it tells how it was started, and may sweep at once as old versions do."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import Ran

CODE = 7
"""What the stand-in ends with."""

PLAY = """#!/bin/sh
printf '%s\\0' "$0" "$@" >{told}/argv
cat /proc/$$/environ >{told}/env # as it was given: a shell has not all of it
pwd >{told}/cwd
echo $$ >{told}/pid
{{ cd {profile}/projects && ls -d -- */*.jsonl; }} >{told}/live 2>/dev/null
{more}
echo started
exit {code}
"""


@dataclass(frozen=True, slots=True)
class Stage:
    """One home with the shim and the stand-in on PATH."""

    home: Path
    work: Path
    told: Path
    shim: Path
    real: Path
    env: Mapping[str, str]

    def claude(self, *words: str, cwd: Path | None = None, **env: str) -> Ran:
        """Type `claude …` with nothing on stdin."""
        done = subprocess.run(
            ["claude", *words], env={**self.env, **env}, cwd=cwd or self.work, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=60, check=False,
        )  # fmt: skip
        return Ran(done.returncode, done.stdout, done.stderr.decode())

    def argv(self) -> list[str]:
        """What the stand-in was started with, without its own name."""
        return (self.told / "argv").read_text().split("\0")[1:-1]

    def environ(self) -> dict[str, str]:
        lines = (self.told / "env").read_text().split("\0")[:-1]
        return dict(line.split("=", 1) for line in lines)

    def live(self) -> list[str]:
        """The transcripts that lay in the profile when it started."""
        return [Path(line).stem for line in (self.told / "live").read_text().splitlines()]

    def started(self) -> bool:
        return (self.told / "argv").exists()

    def change(self, old: str, new: str) -> None:
        """Edit the shim as a machine on which something is amiss would have it."""
        text = self.shim.read_text()
        assert old in text
        self.shim.write_text(text.replace(old, new))

    def python(self, path: Path | str) -> None:
        """Have the shim call another interpreter."""
        (line,) = [one for one in self.shim.read_text().splitlines() if one.startswith("_keeper_python=")]
        self.change(line, f"_keeper_python={shlex.quote(str(path))}")


def program(path: Path, told: Path, profile: Path, more: str = "") -> Path:
    """Write the stand-in there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(PLAY.format(told=shlex.quote(str(told)), profile=shlex.quote(str(profile)), more=more, code=CODE))
    path.chmod(0o755)
    return path


def build(
    run_keeper: Callable[..., Ran], cli_env: dict[str, str], home: Path, tmp_path: Path, version: str = "2.1.328",
    more: str = "",
) -> Stage:  # fmt: skip
    """The shim installed, and a stand-in of that version as the native installer has it."""
    done = run_keeper("shim", "install", "--json")
    assert done.code == 0, done.err
    told, work = tmp_path / "told", tmp_path / "work"
    for folder in (told, work):
        folder.mkdir()
    real = program(home / ".local/share/claude/versions" / version, told, home / ".claude", more)
    bin = home / ".local" / "bin"
    bin.mkdir()
    (bin / "claude").symlink_to(real)
    shim = Path(done.json["path"])
    env = {name: value for name, value in cli_env.items() if name != "CLAUDE_CONFIG_DIR"}
    env["PATH"] = os.pathsep.join([str(shim.parent), str(bin), env["PATH"]])
    return Stage(home, work, told, shim, real, env)
