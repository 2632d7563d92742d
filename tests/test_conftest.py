"""What a machine lacks is named: passed over at home, a failure in CI unless it was declared unavoidable."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Needs

ROOT = Path(__file__).resolve().parent.parent
LACKING = """
def test_it(needs):
    needs.command("no-such-program")

def test_no_fault_of_ours(needs):
    needs.command("no-such-program-either", unavoidable="this kernel has none")

def test_another():
    pass
"""


@pytest.mark.parametrize(("ci", "counts"), [("", "1 passed, 2 skipped"), ("true", "1 failed, 1 passed, 1 skipped")])
@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_lack_is_named_in_the_summary(tmp_path: Path, ci: str, counts: str, workers: str) -> None:
    (tmp_path / "test_sample.py").write_text(LACKING)
    plain = f"-n {workers} -p tests.conftest -p no:cacheprovider -c {os.devnull}".split()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plain, "--rootdir", tmp_path, tmp_path],
        cwd=ROOT,
        env={**os.environ, "CI": ci, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert counts in done.stdout
    lines = done.stdout.splitlines()
    assert "test_sample.py::test_it: no-such-program: scripts/test installs it as root" in lines
    assert "test_sample.py::test_no_fault_of_ours: no-such-program-either: this kernel has none" in lines
    assert done.returncode == (1 if ci else 0)


def test_the_second_volume_is_another_device(tmp_path: Path, second_volume: Path) -> None:
    (tmp_path / "a").touch()
    assert tmp_path.stat().st_dev != second_volume.stat().st_dev
    with pytest.raises(OSError, match="Invalid cross-device link"):
        os.link(tmp_path / "a", second_volume / "a")


def test_a_run_that_is_killed_leaves_no_mount(needs: Needs, tmp_path: Path) -> None:
    needs.root()
    (tmp_path / "test_sample.py").write_text(
        "import os\n"
        "def test_it(second_volume):\n"
        "    assert 'keeper-tests ' + str(second_volume.parent) in open('/proc/self/mounts').read()\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    plain = f"-p tests.conftest -p no:cacheprovider -c {os.devnull} --basetemp".split()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plain, tmp_path / "base", "--rootdir", tmp_path, tmp_path / "test_sample.py"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    assert done.returncode == -9
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()
