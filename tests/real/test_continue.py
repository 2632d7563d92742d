"""`--continue` takes the newest conversation; what is put back beside it does not become that."""

import shutil
from collections.abc import Callable

import pytest

from tests.conftest import Ran
from tests.lab import stories
from tests.lab.cli import Cli, age
from tests.real.conftest import OTHER as OLDER
from tests.real.conftest import SESSION as NEWER

Keeper = Callable[..., Ran]
pytestmark = pytest.mark.accepts("FAULT-7", "RESTORE-2", "RESTORE-11")
ELSEWHERE = "00000003-0000-4000-8000-000000000003"


def two_kept(cli: Cli, keeper: Keeper) -> None:
    """Two conversations of one project and one of another, all kept.

    The older one by its time was begun later and has the higher id: neither order may stand in for that of the times.
    """
    stories.plain(cli, NEWER, "newer")
    stories.plain(cli, OLDER, "older")
    stories.plain(cli.at(cli.home / "elsewhere"), ELSEWHERE, "elsewhere")
    age(cli.transcript(OLDER), days=2)
    age(cli.transcript(NEWER), days=1)
    assert keeper("keep").code == 0


def continued(cli: Cli, prompt: str = "@@recall") -> tuple[str, ...]:
    return cli.say(prompt, "--continue").history.words


def test_restore_all_of_others_does_not_change_what_continue_takes(cli: Cli, run_keeper: Keeper) -> None:
    two_kept(cli, run_keeper)
    cli.transcript(OLDER).unlink()
    shutil.rmtree(cli.project(cli.home / "elsewhere"))
    assert continued(cli) == ("newer",)

    assert run_keeper("restore", "--all").code == 0
    assert cli.transcript(OLDER).exists()
    assert cli.transcript(ELSEWHERE, cli.home / "elsewhere").exists()
    assert continued(cli) == ("newer",)


def test_after_a_mass_loss_continue_takes_what_it_took_before(cli: Cli, run_keeper: Keeper) -> None:
    two_kept(cli, run_keeper)
    shutil.rmtree(cli.profile / "projects")

    assert run_keeper("restore", "--all").code == 0
    assert continued(cli) == ("newer",)


def test_what_is_restored_by_name_is_what_continue_takes(cli: Cli, run_keeper: Keeper) -> None:
    two_kept(cli, run_keeper)
    cli.transcript(OLDER).unlink()

    assert run_keeper("restore", OLDER).code == 0
    assert continued(cli) == ("older",)
