"""The real CLI for a test: offline, in the pinned versions, with nothing left behind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Needs
from tests.lab import install, namespace, screen
from tests.lab.cli import Cli
from tests.lab.namespace import Lab

SESSION = "00000001-0000-4000-8000-000000000001"
OTHER = "00000002-0000-4000-8000-000000000002"


@pytest.fixture(scope="session")
def one_lab(needs: Needs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A namespace with the stub API, for this worker's whole run."""
    if lack := namespace.missing():
        needs.lacking(lack, "run scripts/test as root, or allow user namespaces")
    with Lab(tmp_path_factory.mktemp("lab")) as lab:
        yield lab


@pytest.fixture
def lab(one_lab: Lab) -> Iterator[Lab]:
    """The same for one test, which fails if it leaves a process in it."""
    yield one_lab
    left = one_lab.end_all()
    assert not left, f"left behind: {left}"


@pytest.fixture(params=install.PINNED)
def version(request: pytest.FixtureRequest) -> str:
    """Each pinned version in turn; `@pytest.mark.parametrize("version", […])` chooses."""
    return str(request.param)


@pytest.fixture
def cli(lab: Lab, version: str, needs: Needs, home: Path, tmp_path: Path) -> Cli:
    """The CLI in the home where `run_keeper` looks, with a working directory of its own."""
    needs.claude(version)
    return Cli(lab, version, home, tmp_path / "work")


@pytest.fixture
def terminal(needs: Needs) -> None:
    """For tests that have the CLI on a terminal."""
    if lack := screen.missing():
        needs.lacking(lack, "scripts/test installs it as root")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Alone: a keep of all profiles in another test would take the profile of the CLI that runs here for one."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.alone)
