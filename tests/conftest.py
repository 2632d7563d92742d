"""What every test may use: an isolated profile and vault, the `keeper` command in them, a second volume, and
the machine's own means, whose lack is named in the summary instead of being passed over."""

import ctypes
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import hypothesis
import pytest

from tests.lab import install

CI = os.environ.get("CI", "").lower() in ("1", "true", "yes")
LACKS = "this machine lacks "
CLONE_NEWNS = 0x00020000

# derandomize: the same examples on every run, so that a red run stays red. No deadline: no test times.
hypothesis.settings.register_profile("ci", derandomize=True, print_blob=True, deadline=None)
hypothesis.settings.register_profile("dev", deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if CI else "dev"))


# --- the machine ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Needs:
    """Asks the machine for what a test cannot do without.

    What is missing is named: the test is skipped with that name, and fails with it where CI is set, since
    scripts/test installs all of it there. `unavoidable` gives the reason why a machine may lack it even then.
    """

    def lacking(self, name: str, cure: str, *, unavoidable: str | None = None) -> NoReturn:
        reason = f"{LACKS}{name}: {unavoidable or cure}"
        if CI and unavoidable is None:
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)

    def root(self) -> None:
        if os.geteuid() != 0:
            self.lacking("root", "run scripts/test as root")

    def command(self, name: str, *, unavoidable: str | None = None) -> Path:
        found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
        if found is None:
            self.lacking(name, "scripts/test installs it as root", unavoidable=unavoidable)
        return Path(found)

    def strace(self) -> Path:
        """strace, tried once: a sandbox may have the program and still refuse ptrace."""
        found = self.command("strace")
        tried = subprocess.run([found, "-o", os.devnull, "true"], capture_output=True, check=False)
        if tried.returncode != 0:
            self.lacking("strace", tried.stderr.decode(errors="replace").strip() or "ptrace is refused")
        return found

    def mounts(self) -> None:
        """From here on this process and its children have their mounts to themselves, and these end with them,
        however they end: a run that is killed leaves none behind."""
        self.root()
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(CLONE_NEWNS) != 0:
            self.lacking("mounts", os.strerror(ctypes.get_errno()))
        subprocess.run([self.command("mount"), "--make-rprivate", "/"], check=True)

    def claude(self, version: str = install.NEWEST) -> Path:
        """The real Claude Code of that version."""
        if not install.installed(version):
            self.lacking(f"Claude Code {version}", f"python -m tests.lab.install {version} puts it in place")
        return install.binary(version)


@pytest.fixture(scope="session")
def needs() -> Needs:
    return Needs()


@pytest.fixture(scope="session")
def tmpfs(needs: Needs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A tmpfs of its own for this run; `second_volume` hands out folders of it."""
    needs.mounts()
    place = tmp_path_factory.mktemp("second-volume")
    # Sized: a test that runs away must fill this volume, not the machine's memory.
    made = subprocess.run(
        [needs.command("mount"), "-t", "tmpfs", "-o", "size=1g,mode=0700", "keeper-tests", place],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode != 0:
        needs.lacking("mounts", made.stderr.strip())
    try:
        yield place
    finally:
        # Lazily: a test that failed may still have a file open there; the mount namespace ends with this process.
        subprocess.run([needs.command("umount"), "-l", place], check=True)


@pytest.fixture
def second_volume(tmpfs: Path) -> Iterator[Path]:
    """A fresh folder on another volume than tmp_path: a hard link to it fails with EXDEV."""
    place = tmpfs / f"t{len(os.listdir(tmpfs))}-{os.urandom(4).hex()}"
    place.mkdir()
    yield place
    shutil.rmtree(place)


# --- the keeper command in a home of its own ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command left behind: its exit code, its bytes on stdout, its words on stderr."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode("utf-8")

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    place = tmp_path / "home"
    place.mkdir(mode=0o700)
    return place


@pytest.fixture
def profile(home: Path) -> Path:
    """An empty Claude configuration directory, the one that the command takes for its own."""
    place = home / ".claude"
    (place / "projects").mkdir(parents=True, mode=0o700)
    return place


@pytest.fixture
def vault_home(tmp_path: Path) -> Path:
    """Where the vault will be, on the profile's volume; not made yet."""
    return tmp_path / "vault"


@pytest.fixture
def cli_env(tmp_path: Path, home: Path, profile: Path, vault_home: Path) -> dict[str, str]:
    """The whole environment of the command: nothing of the user's own reaches it, nothing of it the user."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "TERM": "dumb",
        "NO_COLOR": "1",
        "COLUMNS": "120",
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": str(home),
        "KEEPER_HOME": str(vault_home),
        "KEEPER_CONFIG": str(home / ".config" / "keeper" / "config.toml"),
        "CLAUDE_CONFIG_DIR": str(profile),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_DATA_HOME": str(home / ".local" / "share"),
        "XDG_STATE_HOME": str(home / ".local" / "state"),
        "XDG_RUNTIME_DIR": str(tmp_path / "run"),
    }


ALONE_ON_THE_MACHINE = """
import sys
from keeper import claude
claude.running = lambda *_: []
sys.argv[0] = "keeper"
from keeper.cli.entry import main
main()
"""


@pytest.fixture
def run_keeper(cli_env: dict[str, str], tmp_path: Path) -> Callable[..., Ran]:
    """`run_keeper("restore", session, "--json")` runs the real command and waits for it.

    env: entries put over the isolated environment (None takes one out); stdin: bytes; cwd: where it runs;
    sees_running: whether it learns profiles from the Claude processes of this machine, which are not the test's.
    """

    def run(
        *args: str | Path,
        env: dict[str, str | None] | None = None,
        stdin: bytes = b"",
        cwd: Path | None = None,
        timeout_s: float = 120,
        sees_running: bool = False,
    ) -> Ran:
        merged = {**cli_env, **(env or {})}
        program = ["-m", "keeper"] if sees_running else ["-c", ALONE_ON_THE_MACHINE]
        done = subprocess.run(
            [sys.executable, *program, *map(os.fspath, args)],
            env={name: value for name, value in merged.items() if value is not None},
            input=stdin,
            cwd=cwd or tmp_path,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr.decode("utf-8", errors="replace"))

    return run


# --- which tests run together, and what the run says at its end -----------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--alone",
        choices=("only", "without"),
        help="run only the tests marked alone, or all but these (scripts/test does both, in turn)",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = config.getoption("--alone")
    if wanted is None:
        return
    chosen = [item for item in items if (item.get_closest_marker("alone") is not None) == (wanted == "only")]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen


def pytest_report_header() -> str:
    user = "root" if os.geteuid() == 0 else "not root"
    return f"machine: {platform.machine()}, Linux {platform.release()}, {user}{', CI' if CI else ''}"


def _said(report: pytest.TestReport) -> str:
    """What a test failed or was passed over with; of a skip it is the last of place, line and reason."""
    return str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else report.longreprtext


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Names every test that lacked something of the machine, with what it lacked."""
    lacked = [
        f"{report.nodeid}: {line[line.index(LACKS) + len(LACKS) :].strip()}"
        for outcome in ("skipped", "failed", "error")
        for report in terminalreporter.stats.get(outcome, [])
        for line in _said(report).splitlines()[:3]
        if LACKS in line
    ]
    if lacked:
        terminalreporter.section("what this machine lacks")
        for line in sorted(set(lacked)):
            terminalreporter.write_line(line)
