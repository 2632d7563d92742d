"""One live file beside its kept one: linked, copied, relinked, never cut short; no write where nothing is new."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from keeper.errors import Locked, NotKept
from tests import build
from tests.build import append, jsonl, meta, prompt, talk, write_live
from tests.conftest import Needs, Ran
from tests.seam import World, before, calls_of, changes_of, hooked, lines_of, names_of_ours, refusing, state_of, world

CWD = build.CWD
A, B, C, D = talk("abcd")
NO_LINKS = [errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP]
LONG = 3_000_000


@pytest.fixture
def here(profile: Path, vault_home: Path, tmp_path: Path) -> World:
    return world(profile, vault_home, tmp_path / "state")


@pytest.fixture
def apart(profile: Path, second_volume: Path, tmp_path: Path) -> World:
    """The vault stands on another volume than the profile."""
    return world(profile, second_volume / "vault", tmp_path / "state")


# ------------------------------------------------------------------ mode link


@pytest.mark.accepts("KEEP-1")
def test_the_kept_path_is_the_live_inode_and_later_lines_are_seen_through_it(
    profile: Path, vault_home: Path, run_keeper: Callable[..., Ran]
) -> None:
    session = build.session_id(1)
    live = write_live(profile, CWD, session, jsonl(A, B))
    ran = run_keeper("keep", session, "--json")
    assert (ran.code, ran.json["kept"][0]["action"], ran.json["kept"][0]["mode"]) == (0, "linked", "link")
    kept = vault_home / "chats" / session / f"{session}.jsonl"
    assert kept.samefile(live)
    append(live, jsonl(C))
    assert lines_of(kept) == [A, B, C]
    live.unlink()
    assert lines_of(kept) == [A, B, C]


@pytest.mark.accepts("KEEP-1")
def test_no_byte_of_a_linked_transcript_is_written(here: World) -> None:
    write_live(here.profile, CWD, here.session, jsonl(A, B))
    written = [paths for call, paths in calls_of(here.keep) if call in ("write", "append", "create")]
    assert [path for paths in written for path in paths if path.endswith(".jsonl")] == []


@pytest.mark.accepts("KEEP-4")
def test_a_recreated_tail_is_folded_and_both_names_are_one_inode_again(
    profile: Path, vault_home: Path, run_keeper: Callable[..., Ran]
) -> None:
    session = build.session_id(1)
    write_live(profile, CWD, session, jsonl(A, B))
    assert run_keeper("keep").code == 0
    live = write_live(profile, CWD, session, jsonl(C, D))
    ran = run_keeper("keep", "--json")
    assert (ran.code, ran.json["kept"][0]["verdict"], ran.json["kept"][0]["added"]) == (0, "partial", 2)
    kept = vault_home / "chats" / session / f"{session}.jsonl"
    assert lines_of(live) == [A, B, C, D]
    assert kept.samefile(live)
    assert names_of_ours(profile, vault_home) == []


@pytest.mark.accepts("KEEP-5", "KEEP-18")
def test_an_equal_file_on_another_inode_is_relinked_and_not_rewritten(here: World) -> None:
    write_live(here.profile, CWD, here.session, jsonl(A, B))
    here.keep()
    before_it = state_of(write_live(here.profile, CWD, here.session, jsonl(A, B)))
    calls = calls_of(here.keep)
    assert here.kept.samefile(here.live)
    assert state_of(here.live) == before_it
    assert [paths for call, paths in calls if call in ("write", "append") and ".jsonl" in paths[0]] == []


@pytest.mark.accepts("KEEP-6")
@pytest.mark.parametrize("data", [b"", meta("mode", mode="plan") + b"\n", jsonl(A), A[:40], jsonl(B)])
def test_kept_is_never_cut_short_by_what_live_has_become(here: World, data: bytes) -> None:
    write_live(here.profile, CWD, here.session, jsonl(A, B, C))
    here.keep()
    write_live(here.profile, CWD, here.session, data)
    here.keep()
    assert [line for line in lines_of(here.kept) if line in (A, B, C)] == [A, B, C]


@pytest.mark.accepts("KEEP-6")
@pytest.mark.parametrize("data", [b"", jsonl(A), A[:40]])
def test_a_copy_is_never_cut_short_either(apart: World, data: bytes) -> None:
    write_live(apart.profile, CWD, apart.session, jsonl(A, B, C))
    apart.keep()
    write_live(apart.profile, CWD, apart.session, data)
    apart.keep()
    assert lines_of(apart.kept) == [A, B, C]


@pytest.mark.accepts("KEEP-4", "KEEP-6")
def test_what_was_appended_to_a_split_live_file_is_kept_though_it_is_swept_before_the_next_keep(here: World) -> None:
    write_live(here.profile, CWD, here.session, jsonl(A, B, C, D))
    here.keep()
    write_live(here.profile, CWD, here.session, jsonl(A, *talk("xy", parent="a")))
    assert here.keep().action == "split"
    late = prompt("late", "y")
    append(here.live, jsonl(late))
    here.live.unlink()
    here.keep()
    assert lines_of(here.kept).count(late) == 1


@pytest.mark.accepts("KEEP-4", "RESTORE-3")
def test_what_was_appended_to_a_split_live_file_and_swept_is_put_back_by_a_restore_alone(here: World) -> None:
    write_live(here.profile, CWD, here.session, jsonl(A, B, C, D))
    here.keep()
    write_live(here.profile, CWD, here.session, jsonl(A, *talk("xy", parent="a")))
    here.keep()
    late = prompt("late", "y")
    append(here.live, jsonl(late))
    here.live.unlink()
    here.restore()
    assert lines_of(here.live).count(late) == 1
    assert here.kept.samefile(here.live)


# ------------------------------------------------------------------ nothing to do


@pytest.mark.accepts("KEEP-5")
@pytest.mark.parametrize("where", ["here", "apart"])
def test_a_second_keep_changes_nothing_at_all(where: str, request: pytest.FixtureRequest) -> None:
    view: World = request.getfixturevalue(where)
    write_live(view.profile, CWD, view.session, jsonl(A, B))
    (view.companion / "tool-results").mkdir(parents=True)
    (view.companion / "tool-results" / "x.txt").write_bytes(b"out")
    (view.companion / "agent-1.jsonl").write_bytes(jsonl(*talk("st")))
    view.keep()
    found = state_of(view.profile, view.root)
    assert changes_of(view.keep) == []
    assert changes_of(view.keep_all) == []
    assert state_of(view.profile, view.root) == found


@pytest.mark.accepts("KEEP-5")
@pytest.mark.parametrize("volume", ["same", "other"])
def test_the_kernel_sees_no_write_and_the_index_opened_for_reading_only(
    volume: str, needs: Needs, profile: Path, vault_home: Path, second_volume: Path, cli_env: dict[str, str],
    tmp_path: Path,
) -> None:  # fmt: skip
    strace = needs.strace()
    session = build.session_id(1)
    root = vault_home if volume == "same" else second_volume / "vault"
    live = write_live(profile, CWD, session, jsonl(A, B))
    (live.with_suffix("") / "tool-results").mkdir(parents=True)
    (live.with_suffix("") / "tool-results" / "x.txt").write_bytes(b"out")
    keep = [sys.executable, "-m", "keeper", "keep", "--profile", profile]
    env = {**cli_env, "KEEPER_HOME": str(root)}
    subprocess.run(keep, env=env, check=True, capture_output=True)
    log = tmp_path / "strace.log"
    wanted = "openat,open,creat,link,linkat,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,truncate,utimensat"
    traced = [strace, "-f", "-o", log, "-e", f"trace={wanted},symlinkat,mknodat,fchmodat"]
    subprocess.run([*traced, *keep], env=env, check=True, capture_output=True)
    text = log.read_text("utf-8", "replace")
    ours = [one for one in text.splitlines() if (str(root) in one or str(profile) in one) and "= -1 " not in one]
    assert any("state.db" in one for one in ours), "the trace shows no look at the index"
    opened = [one for one in ours if re.search(r"\bopen(at)?\(", one)]
    assert [one for one in opened if re.search(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC", one) and ".lock" not in one] == []
    assert [one for one in ours if one not in opened] == [], "something was linked, renamed, removed or stamped"


# ------------------------------------------------------------------ mode copy


@pytest.mark.accepts("KEEP-3")
def test_on_another_volume_the_lines_are_copied_beside_and_renamed(
    profile: Path, second_volume: Path, run_keeper: Callable[..., Ran]
) -> None:
    session = build.session_id(1)
    live = write_live(profile, CWD, session, jsonl(A, B))
    ran = run_keeper("keep", session, "--json", env={"KEEPER_HOME": str(second_volume / "vault")})
    assert (ran.code, ran.json["kept"][0]["action"], ran.json["kept"][0]["mode"]) == (0, "copied", "copy")
    kept = second_volume / "vault" / "chats" / session / f"{session}.jsonl"
    assert kept.read_bytes() == live.read_bytes()
    assert kept.stat().st_mode & 0o777 == 0o600
    assert names_of_ours(profile, second_volume) == []


@pytest.mark.accepts("KEEP-3")
def test_a_copy_gets_its_final_name_only_when_it_is_whole_and_on_the_disk(apart: World) -> None:
    write_live(apart.profile, CWD, apart.session, jsonl(A, B))
    calls = calls_of(apart.keep)
    ((place, (new, _)),) = [
        (place, paths) for place, (call, paths) in enumerate(calls) if call == "replace" and paths[1] == str(apart.kept)
    ]
    assert Path(new).parent == apart.chat / "swap"
    done = [call for call, paths in calls[:place] if paths[0] == new]
    assert done[:2] == ["create", "write"]
    assert "sync" in done


@pytest.mark.accepts("KEEP-3")
def test_the_next_keep_on_another_volume_copies_the_new_tail_only(apart: World) -> None:
    write_live(apart.profile, CWD, apart.session, jsonl(A, B))
    apart.keep()
    inode = apart.kept.stat().st_ino
    append(apart.live, jsonl(C))
    calls = changes_of(apart.keep)
    assert apart.kept.stat().st_ino == inode
    assert [call for call, paths in calls if paths[0] == str(apart.kept)] == ["append", "touch"]
    assert not [paths for call, paths in calls if call in ("create", "write") and ".jsonl" in paths[0]]
    assert lines_of(apart.kept) == [A, B, C]


@pytest.mark.accepts("KEEP-3", "SEAL-3")
def test_a_tail_costs_its_own_bytes_and_not_the_files(
    needs: Needs, profile: Path, second_volume: Path, cli_env: dict[str, str], tmp_path: Path
) -> None:
    strace = needs.strace()
    session = build.session_id(1)
    live = write_live(profile, CWD, session, jsonl(A, prompt("long", "a", "x" * LONG)))
    keep = [sys.executable, "-m", "keeper", "keep", "--profile", profile]
    env = {**cli_env, "KEEPER_HOME": str(second_volume / "vault")}
    subprocess.run(keep, env=env, check=True, capture_output=True)
    append(live, jsonl(C))
    log = tmp_path / "strace.log"
    traced = [strace, "-f", "-yy", "-s", "0", "-o", log, "-e", "trace=read,pread64,preadv,mmap,write,pwrite64,sendfile"]
    subprocess.run([*traced, *keep], env=env, check=True, capture_output=True)
    about = [one for one in log.read_text("utf-8", "replace").splitlines() if f"{session}.jsonl" in one]
    moved = {"read": 0, "write": 0, "read seal": 0, "write seal": 0}
    for one in about:
        kind = "write" if "write" in one.split("(")[0] else "read"
        kind += " seal" if f"{session}.jsonl.seal" in one else ""
        moved[kind] += max(0, int(one.rpartition("= ")[2].split()[0]))
    assert moved["write"] == len(C) + 1
    # A seal packs a turn with the 128 KiB before it, whatever the file's size (SEAL-3).
    assert len(C) < moved["read"] < 192 * 1024, "the known part was read again"
    assert moved["read seal"] < 16 * 1024
    assert 0 < moved["write seal"] < 1024


@pytest.mark.accepts("KEEP-3", "KEEP-4")
def test_a_file_recreated_with_the_same_size_on_the_same_inode_number_is_looked_at(apart: World) -> None:
    """Volumes hand out a freed inode number at once; here the file is rewritten, so that it surely is the same."""
    other = A.replace(b'"uuid":"a"', b'"uuid":"z"').replace(b"prompt a", b"prompt z")
    live = write_live(apart.profile, CWD, apart.session, jsonl(A))
    apart.keep()
    apart.keep()
    live.write_bytes(jsonl(other))
    apart.keep()
    assert lines_of(apart.kept) in ([A, other], [other, A])


@pytest.mark.accepts("KEEP-3")
def test_an_unfinished_line_is_not_copied_before_it_is_finished(apart: World) -> None:
    live = write_live(apart.profile, CWD, apart.session, jsonl(A) + B[:50])
    apart.keep()
    assert lines_of(apart.kept) == [A]
    assert apart.kept.read_bytes().endswith(b"\n")
    append(live, B[50:] + b"\n" + C[:10])
    apart.keep()
    assert apart.kept.read_bytes() == jsonl(A, B)


@pytest.mark.accepts("KEEP-3")
def test_a_live_file_of_another_volume_that_was_rewritten_before_its_end_is_not_taken_for_a_longer_one(
    apart: World,
) -> None:
    live = write_live(apart.profile, CWD, apart.session, jsonl(A, B, C))
    apart.keep()
    live.write_bytes(jsonl(A, D.replace(b'"parentUuid":"c"', b'"parentUuid":"a"'), prompt("e", "d"), prompt("f", "e")))
    apart.keep()
    kept = lines_of(apart.kept)
    assert [one for one in kept if one in (A, B, C)] == [A, B, C]
    assert prompt("f", "e") in kept


@pytest.mark.accepts("KEEP-3", "KEEP-4")
def test_a_fold_over_two_volumes_gives_both_names_the_same_bytes(apart: World) -> None:
    write_live(apart.profile, CWD, apart.session, jsonl(A, B))
    apart.keep()
    write_live(apart.profile, CWD, apart.session, jsonl(C, D))
    assert apart.keep().action == "folded"
    assert lines_of(apart.live) == lines_of(apart.kept) == [A, B, C, D]
    assert names_of_ours(apart.profile, apart.root) == []
    assert changes_of(apart.keep) == []


@pytest.mark.accepts("KEEP-3")
@pytest.mark.parametrize("code", NO_LINKS, ids=errno.errorcode.get)
def test_a_volume_that_refuses_links_is_kept_by_copies(here: World, code: int) -> None:
    write_live(here.profile, CWD, here.session, jsonl(A, B))
    (here.companion / "tool-results").mkdir(parents=True)
    (here.companion / "tool-results" / "x.txt").write_bytes(b"out")
    with hooked(refusing("link", code)):
        answer = here.keep()
        assert (answer.action, answer.mode) == ("copied", "copy")
        assert not here.kept.samefile(here.live)
        assert (here.kept_companion / "tool-results" / "x.txt").read_bytes() == b"out"
        append(here.live, jsonl(C))
        assert here.keep().action == "copied"
        assert lines_of(here.kept) == [A, B, C]
        write_live(here.profile, CWD, here.session, jsonl(D))
        assert here.keep().action == "folded"
        assert lines_of(here.kept) == lines_of(here.live) == [A, B, C, D]
        here.live.unlink()
        assert here.restore().action == "restored"
        assert lines_of(here.live) == [A, B, C, D]
        here.keep()
    assert names_of_ours(here.profile, here.root) == []


@pytest.mark.accepts("KEEP-5")
@pytest.mark.parametrize("code", NO_LINKS, ids=errno.errorcode.get)
def test_nothing_is_written_again_on_a_volume_that_refuses_links(here: World, code: int) -> None:
    write_live(here.profile, CWD, here.session, jsonl(A, B))
    (here.companion / "tool-results").mkdir(parents=True)
    (here.companion / "tool-results" / "x.txt").write_bytes(b"out")
    (here.companion / "agent-1.jsonl").write_bytes(jsonl(*talk("st")))
    refuse = refusing("link", code)
    with hooked(refuse):
        here.keep()
    found = state_of(here.profile, here.root)
    with hooked(refuse):
        here.keep()
    assert state_of(here.profile, here.root) == found


@pytest.mark.accepts("KEEP-3", "KEEP-18")
def test_once_links_are_possible_again_a_copy_becomes_the_live_inode(here: World) -> None:
    write_live(here.profile, CWD, here.session, jsonl(A, B))
    with hooked(refusing("link", errno.EMLINK)):
        here.keep()
    append(here.live, jsonl(C))
    here.keep()
    append(here.live, jsonl(D))
    here.keep()
    assert lines_of(here.kept) == [A, B, C, D]


@pytest.mark.accepts("KEEP-3")
def test_the_lock_is_one_chats(here: World) -> None:
    """While one chat is held, another is kept, and the held one is told to be locked."""
    write_live(here.profile, CWD, here.session, jsonl(A))
    other = here.about(build.session_id(2))
    write_live(other.profile, CWD, other.session, jsonl(*talk("pq", session=other.session)))
    here.keep()
    hasty = replace(here, settings=replace(here.settings, lock_wait_s=0.05))
    with here.vault().lock(here.session):
        with pytest.raises(Locked):
            hasty.keep()
        assert other.keep().action == "linked"


@pytest.mark.accepts("KEEP-2", "KEEP-12")
def test_a_parent_is_kept_while_its_forks_chat_is_held(here: World) -> None:
    """The fork was kept first, and is to learn now whose it is; whoever holds it holds up nobody."""
    write_live(here.profile, CWD, here.session, jsonl(*talk("abc")))
    fork = here.about(build.session_id(2))
    write_live(fork.profile, CWD, fork.session, jsonl(*talk("abxy", session=fork.session)))
    fork.keep()
    with here.vault().lock(fork.session):
        hasty = replace(here, settings=replace(here.settings, lock_wait_s=0.05))
        assert hasty.keep().action == "linked"


# ------------------------------------------------------------------ races between look and deed


@pytest.mark.accepts("KEEP-10", "RESTORE-4")
def test_a_file_recreated_while_its_facts_are_written_is_not_taken_for_the_one_that_was_looked_at(apart: World) -> None:
    other = A.replace(b'"uuid":"a"', b'"uuid":"z"').replace(b"prompt a", b"prompt z")
    write_live(apart.profile, CWD, apart.session, jsonl(A))

    def recreate() -> None:
        write_live(apart.profile, CWD, apart.session, jsonl(other))

    with hooked(before("create", recreate, "chat.json")):
        apart.keep()
    apart.keep()
    assert sorted(lines_of(apart.kept)) == sorted([A, other])


@pytest.mark.accepts("KEEP-10")
def test_a_first_keep_whose_file_goes_before_the_link_leaves_nothing_behind(here: World) -> None:
    write_live(here.profile, CWD, here.session, jsonl(A))
    with hooked(before("link", here.live.unlink)), pytest.raises(NotKept):
        here.keep()
    assert not here.chat.exists()
    assert here.vault().rows() == []


@pytest.mark.accepts("KEEP-9")
@pytest.mark.parametrize("where", ["here", "apart"])
def test_a_link_that_takes_the_live_name_at_the_last_moment_is_not_kept(
    where: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    view: World = request.getfixturevalue(where)
    secret = tmp_path / "secret"
    secret.write_bytes(jsonl(prompt("secret", None, "not for the vault")))
    write_live(view.profile, CWD, view.session, jsonl(A))

    def swap() -> None:
        view.live.unlink()
        view.live.symlink_to(secret)

    with hooked(before("link", swap)), pytest.raises(NotKept):
        view.keep()
    assert not any(b"not for the vault" in path.read_bytes() for path in view.root.rglob("*") if path.is_file())
    assert os.readlink(view.live) == str(secret)


@pytest.mark.accepts("KEEP-9")
@pytest.mark.parametrize("where", ["here", "apart"])
def test_a_link_that_takes_a_companion_files_name_at_the_last_moment_is_not_kept(
    where: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    view: World = request.getfixturevalue(where)
    secret = tmp_path / "secret"
    secret.write_bytes(b"not for the vault")
    write_live(view.profile, CWD, view.session, jsonl(A))
    view.companion.mkdir()
    live = view.companion / "x.txt"
    for text in (b"x", b"x, longer"):
        live.unlink(missing_ok=True)
        live.write_bytes(text)

        def swap() -> None:
            live.unlink()
            live.symlink_to(secret)

        with hooked(before("link", swap, "x.txt")):
            view.keep()
        assert not any(b"not for the vault" in path.read_bytes() for path in view.root.rglob("*") if path.is_file())
        live.unlink()
        live.write_bytes(text)
        view.keep()
    assert (view.kept_companion / "x.txt").read_bytes() == b"x, longer"
