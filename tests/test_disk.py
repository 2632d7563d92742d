"""A folder that cannot be made is told as one, and asked for no more often than that takes."""

from pathlib import Path

import pytest

from keeper import disk
from keeper.errors import DiskError


@pytest.mark.parametrize("place", ["/proc/keeper", "/proc/keeper/below"])
def test_a_place_whose_volume_says_that_its_parent_is_gone_is_a_failure(place: str) -> None:
    """As /proc and some automounts do."""
    with pytest.raises(DiskError, match="cannot make the folder /proc/keeper"):
        disk.ensure_dir(place)


def test_a_link_that_leads_nowhere_in_a_folders_place_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "vault").symlink_to(tmp_path / "away")
    for place in (tmp_path / "vault", tmp_path / "vault" / "chats"):
        with pytest.raises(DiskError, match=f"cannot make the folder {tmp_path}/vault: File exists"):
            disk.ensure_dir(place)
    (tmp_path / "away").mkdir()
    disk.ensure_dir(tmp_path / "vault" / "chats" / "s")
    assert (tmp_path / "away" / "chats" / "s").is_dir()
