"""Whether a volume tells of what happens in it: asked of its type, and of a file made there."""

import os
import threading
from pathlib import Path

import pytest

from keeper.agent import volume
from keeper.errors import DiskError
from tests.agent import fuse, limits
from tests.agent.heard import Heard, watching
from tests.build import session_id, write_live
from tests.conftest import Needs

MOUNTS = """\
21 1 8:1 / / rw,relatime - ext4 /dev/vda rw
30 21 0:40 / /mnt/c rw,noatime shared:3 - 9p C:\\134 rw,dirsync
31 21 0:41 / /home/a rw - nfs4 server:/a rw
32 31 0:42 / /home/a/with\\040blank rw - fuse.sshfs a@b: rw
33 21 0:43 / /over rw - nfs server:/b rw
34 33 0:44 / /over rw - xfs /dev/vdb rw
"""


@pytest.mark.accepts("AGENT-8")
@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/srv/x", "ext4"),
        ("/mnt/c", "9p"),
        ("/mnt/c/Users", "9p"),
        ("/mnt/cc", "ext4"),
        ("/home/a/.claude", "nfs4"),
        ("/home/a/with blank/x", "fuse.sshfs"),
        ("/over/x", "xfs"),
    ],
)
def test_the_type_of_a_volume_is_that_of_the_mount_which_is_seen_there(folder: str, kind: str) -> None:
    assert volume.type_of(folder, MOUNTS) == kind


def test_a_table_of_mounts_that_cannot_be_read_tells_no_type() -> None:
    assert volume.type_of("/srv", "") == ""
    assert volume.type_of("/srv", "rubbish\n1 2 - \n - \n") == ""


@pytest.mark.accepts("AGENT-8")
@pytest.mark.parametrize("kind", ["9p", "nfs", "nfs4", "cifs", "fuse", "fuse.sshfs", "drvfs", "virtiofs"])
def test_a_volume_that_others_can_change_does_not_tell(kind: str) -> None:
    assert volume.is_shared(kind)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "tmpfs", "overlay", "fuseblk", "zfs", ""])
def test_a_volume_of_this_machine_tells(kind: str) -> None:
    assert not volume.is_shared(kind)


@pytest.mark.accepts("AGENT-8")
def test_a_folder_of_this_machine_tells_and_keeps_nothing_of_the_trial(profile: Path) -> None:
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    assert volume.silent(str(profile)) is None
    assert os.listdir(profile) == ["projects"]
    assert threading.active_count() == threads
    assert len(os.listdir("/proc/self/fd")) <= descriptors


@pytest.mark.accepts("AGENT-8")
def test_a_volume_where_the_file_of_the_trial_brings_no_event_is_silent(
    profile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(volume, "EVENT_WAIT_S", 0.2)
    why = volume.silent(str(profile), make=lambda name: None)
    assert why is not None
    assert "brings no events" in why


def test_a_folder_that_takes_no_file_is_no_reason_against_its_volume(profile: Path) -> None:
    def full(name: str) -> None:
        raise DiskError("full", Path(name), Path("/"))

    assert volume.silent(str(profile), make=full) is None
    assert volume.silent(str(profile / "missing")) is None


@limits.apart
def test_a_machine_that_gives_no_instance_is_no_reason_against_the_volume(needs: Needs, profile: Path) -> None:
    limits.instances(0)
    assert volume.silent(str(profile)) is None


@pytest.mark.accepts("AGENT-8")
def test_a_profile_on_a_fuse_volume_is_polled(needs: Needs, home: Path) -> None:
    with fuse.volume(needs, home / "mounted") as place:
        why = volume.silent(str(place))
        assert why is not None
        assert "fuse.keeper" in why
        with watching(place, silent=volume.silent) as heard:
            assert "fuse.keeper" in heard.lasting()["no events"]
            assert heard.watch.polled() == (place,)


@pytest.mark.accepts("AGENT-8")
def test_a_profile_on_a_volume_of_this_machine_is_not_polled_and_does_not_hear_the_trial(profile: Path) -> None:
    with watching(profile, silent=volume.silent) as heard:
        assert heard.watch.polled() == ()
        write_live(profile, "/srv/one", session_id(1), b"{}\n")
        heard.wait_for(session_id(1), "made")
        assert {hint.session for hint in heard.hints} == {session_id(1), None}


@pytest.mark.accepts("AGENT-8")
def test_a_volume_is_asked_once_however_many_roots_are_on_it(profile: Path) -> None:
    asked: list[str] = []
    for name in ("tasks", "todos"):
        (profile / name).mkdir()
    heard = Heard(profile, silent=lambda folder: asked.append(folder))  # type: ignore[func-returns-value]
    heard.watch.start()
    heard.watch.stop()
    assert asked == [str(profile)]
