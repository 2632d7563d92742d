"""Nothing touches the network, nothing runs as another user, and what keeper makes is the user's alone."""

from __future__ import annotations

import ast
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.build import CWD, append, jsonl, session_id, talk, write_live
from tests.conftest import Needs, Ran

PACKAGE = Path(__file__).resolve().parent.parent / "keeper"
NETWORK = set("socket ssl http urllib.request urllib3 requests httpx aiohttp ftplib smtplib xmlrpc asyncio".split())
ON_THIS_MACHINE = {"wire.py", "agent/asks.py", "agent/server.py", "agent/service.py"}
"""They speak by the socket of a family that does not leave the machine."""
OTHER_USERS = set("setuid setgid seteuid setegid setreuid setregid setresuid setresgid setgroups initgroups".split())
PROGRAMS = set("sudo su doas pkexec setpriv runuser".split())

# Run in the profile's folder, which is named, since a keep of all would take in any Claude that runs on this machine.
TOUR = [
    ["keep", "--profile", "."], ["keep", "--profile", ".", "--json"], ["list"], ["list", "--json"],
    ["show", session_id(1)], ["status"], ["verify"], ["export", session_id(1)], ["reindex"],
    ["restore", session_id(1)], ["restore", "--all"], ["restore", session_id(1), "--through", "b"],
    ["restore", session_id(1), "--repaired"], ["report"], ["status", "--openmetrics"],
    ["forget", session_id(2)], ["--help"], ["--version"],
]  # fmt: skip


def ends(words: list[str]) -> int:
    """The code that a command ends with here: no agent runs."""
    return 5 if words == ["status"] else 0


def tour(profile: Path) -> None:
    """Something for every command to work on."""
    for number in (1, 2):
        live = write_live(profile, CWD, session_id(number), jsonl(*talk("ab", session=session_id(number))))
        (live.with_suffix("") / "tool-results").mkdir(parents=True, exist_ok=True)
        result = live.with_suffix("") / "tool-results" / "x.txt"
        result.write_bytes(b"out")
        result.chmod(0o600)  # a linked file keeps the mode that Claude gave it


@pytest.mark.accepts("BOTH-5")
def test_no_module_imports_what_speaks_to_the_network_or_becomes_another_user() -> None:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Attribute):
                names = [node.attr] if node.attr in OTHER_USERS else []
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                names = [node.value] if node.value in PROGRAMS else []
            if str(path.relative_to(PACKAGE)) in ON_THIS_MACHINE and names == ["socket"]:
                continue
            if isinstance(node, ast.Attribute) and node.attr.startswith("AF_") and node.attr != "AF_UNIX":
                names = [*names, "socket"]
            wrong = [one for one in names if one in NETWORK | OTHER_USERS | PROGRAMS or one.split(".")[0] in NETWORK]
            found += [f"{path.relative_to(PACKAGE)}:{node.lineno}: {one}" for one in wrong]  # type: ignore[attr-defined]
    assert found == []


@pytest.mark.accepts("BOTH-5")
def test_no_command_opens_a_socket_or_changes_its_user(
    needs: Needs, profile: Path, cli_env: dict[str, str], tmp_path: Path
) -> None:
    strace = needs.strace()
    tour(profile)
    log = tmp_path / "strace.log"
    calls = "socket,connect,bind,sendto,sendmsg,accept,accept4,listen,setuid,setgid,setresuid,setresgid,setreuid"
    for words in TOUR:
        done = subprocess.run(
            [strace, "-f", "-qq", "-o", log, "-e", f"trace={calls},setregid,setgroups,execve",
             sys.executable, "-m", "keeper", *words],
            env=cli_env, cwd=profile, capture_output=True, check=False,
        )  # fmt: skip
        assert done.returncode == ends(words), (words, done.stderr)
        seen = [one for one in log.read_text("utf-8", "replace").splitlines() if "+++" not in one]
        others = [one for one in seen if not re.search(r"\bexecve\(|\(AF_UNIX,|sa_family=AF_UNIX", one)]
        assert others == [], words
        assert len([one for one in seen if "= 0" in one]) == 1, f"{words} starts another program"


@pytest.mark.accepts("BOTH-5")
def test_every_command_works_where_there_is_no_network_at_all(
    needs: Needs, profile: Path, cli_env: dict[str, str]
) -> None:
    needs.root()
    unshare = needs.command("unshare")
    tried = subprocess.run([unshare, "-n", "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        needs.lacking("network namespaces", "", unavoidable=tried.stderr.strip())
    tour(profile)
    for words in TOUR:
        done = subprocess.run(
            [unshare, "-n", sys.executable, "-m", "keeper", *words],
            env=cli_env,
            cwd=profile,
            capture_output=True,
            check=False,
        )
        assert done.returncode == ends(words), (words, done.stderr)


@pytest.mark.accepts("BOTH-5", "KEEP-16")
def test_what_keeper_makes_belongs_to_the_user_and_is_open_to_nobody_else(
    profile: Path, vault_home: Path, cli_env: dict[str, str], run_keeper: Callable[..., Ran]
) -> None:
    tour(profile)
    assert run_keeper("keep").code == 0
    live = write_live(profile, CWD, session_id(1), jsonl(*talk("c", parent="b", session=session_id(1))))
    append(live, jsonl(*talk("d", parent="c", session=session_id(1))))
    assert run_keeper("keep").code == 0
    assert run_keeper("forget", session_id(2)).code == 0
    seen = 0
    for place in (vault_home, Path(cli_env["XDG_STATE_HOME"]) / "keeper"):
        for path in [place, *place.rglob("*")]:
            status = path.lstat()
            assert status.st_uid == os.geteuid(), path
            assert not status.st_mode & 0o077, path
            assert stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode), path
            seen += 1
    assert seen > 10


@pytest.mark.accepts("BOTH-5")
def test_nothing_is_made_outside_the_vault_the_state_folder_and_the_profile(
    profile: Path, vault_home: Path, cli_env: dict[str, str], run_keeper: Callable[..., Ran], tmp_path: Path
) -> None:
    tour(profile)
    for words in TOUR:
        assert run_keeper(*words, cwd=profile).code == ends(words), words
    shutil.rmtree(vault_home)
    shutil.rmtree(Path(cli_env["XDG_STATE_HOME"]) / "keeper")
    left = [path for path in tmp_path.rglob("*") if path.is_file() and not path.is_relative_to(profile)]
    assert left == []
