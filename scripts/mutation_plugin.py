"""What pytest needs to know in a mutation run (scripts/mutation.py loads it with `-p`).

mutmut switches a mutant on by a variable of the environment and learns by calls within the process which tests touch
a function. A keeper that a test starts as a process of its own gets that variable and the mutated tree here, and its
test is counted as one that touches every function. The test that fails for a mutant is noted, and a test that took
too long ends the run as `timed out`, not as `killed`.
"""

import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from mutmut.state import state

SWITCH = "MUTANT_UNDER_TEST"
LOG = "KEEPER_MUTATION_LOG"
TREE = "KEEPER_MUTATION_TREE"
TIMED_OUT = 36
"""mutmut's exit code for it."""
STARTS_KEEPER = {"run_keeper", "cli_env"}

_plain = subprocess.Popen.__init__


def _mutant() -> str:
    name = os.environ.get(SWITCH, "")
    return name if "__mutmut_" in name else ""


def _popen(self: Any, *args: Any, **kwargs: Any) -> None:
    env = dict(os.environ if kwargs.get("env") is None else kwargs["env"])
    env[SWITCH] = _mutant()
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (os.environ[TREE], env.get("PYTHONPATH"))))
    # A module with all its mutants takes seconds to compile: once is enough.
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    env["PYTHONPYCACHEPREFIX"] = os.environ[TREE] + "-pycache"
    _plain(self, *args, **{**kwargs, "env": env})


subprocess.Popen.__init__ = _popen  # type: ignore[method-assign]

_slow: list[str] = []


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    if os.environ.get(SWITCH) == "stats" and STARTS_KEEPER.intersection(getattr(item, "fixturenames", ())):
        state()._stats.update(state().current_function_hashes)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed and _mutant():
        late = "from pytest-timeout" in report.longreprtext
        if late:
            _slow.append(report.nodeid)
        with open(os.environ[LOG], "a", encoding="utf-8") as log:
            log.write(f"{_mutant()}\t{report.nodeid}\n")


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    yield
    if _slow and session.exitstatus:
        session.exitstatus = TIMED_OUT
