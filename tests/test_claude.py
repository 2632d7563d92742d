"""Claude: the names that it gives to folders, what of a profile is a session's, and who runs it."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from keeper import claude
from keeper.errors import Refused
from tests.build import session_id
from tests.chat import put
from tests.conftest import Needs

S, T = session_id(1), session_id(2)

# --- folder names (FIT-3, KEEP-15) --------------------------------------------------------------------------

A190 = "a" * 190
NESTED = "nested-" * 27


@pytest.mark.accepts("KEEP-15", "FIT-3")
@pytest.mark.parametrize(
    ("cwd", "name"),
    [
        ("/srv/demo/proj", "-srv-demo-proj"),
        ("/a/b-c", "-a-b-c"),
        ("/a/b_c", "-a-b-c"),
        ("/a/b/c", "-a-b-c"),
        ("/a/.claude/worktrees/wt1", "-a--claude-worktrees-wt1"),
        ("/Case/Kept9", "-Case-Kept9"),
        ("/é/ü", "----"),
        ("/😀", "---"),
        ("/٣/ⅷ/ａ", "------"),
        ("/\ud83d", "--"),
        (f"/srv/demo/{A190}", f"-srv-demo-{A190}"),
    ],
)
def test_a_folder_has_one_name_up_to_200_units(cwd: str, name: str) -> None:
    assert claude.folder_names(cwd) == (name,)


# What the rule of the CLI gives (measured: docs/claude-on-disk.md), computed by the JavaScript that it is.
HASHED = [
    (f"/srv/demo/{A190}a", f"-srv-demo-{A190}-tim6p0"),
    ("/srv/demo/" + "nested/" * 28 + "é", f"-srv-demo-{NESTED}n-6boeys"),
    ("/srv/demo/" + "x_y.z/" * 40, "-srv-demo-" + "x-y-z-" * 31 + "x-y--cdf10t"),
    ("/srv/demo/" + "😀" * 96, "-srv-demo-" + "-" * 190 + "-8ao5uj"),
    ("/srv/demo/" + "b" * 240, "-srv-demo-" + "b" * 190 + "-2zh6m3"),
]


@pytest.mark.accepts("FIT-3", "KEEP-15")
@pytest.mark.parametrize(("cwd", "hashed"), HASHED, ids=["201", "207", "250", "astral", "b"])
def test_a_longer_one_has_two_the_hashed_one_first(cwd: str, hashed: str) -> None:
    names = claude.folder_names(cwd)
    assert names[0] == hashed
    assert len(names) == 2
    assert len(names[1]) == len(cwd.encode("utf-16-le")) // 2
    assert names[1][:200] == hashed[:200]
    assert set(names[1]) <= set("abcdefghijklmnopqrstuvwxyz-")


@pytest.mark.accepts("FIT-3")
def test_the_versions_between_the_names_are_told_apart_as_numbers() -> None:
    order = ["1.0.124", "2.0.9", "2.0.76", "2.1.9", "2.1.45", "2.1.50", "2.1.110", "2.1.328"]
    assert sorted(order, key=claude.version_of) == order
    assert claude.version_of("2.1.45 (Claude Code)") == claude.FULL_LONG_NAMES
    assert claude.version_of(None) == claude.version_of("next") == ()
    assert claude.newest_version(["2.1.9", None, "2.1.45", "junk"]) == (2, 1, 45)
    assert claude.newest_version([]) == ()


# --- session ids (RESTORE-12) -------------------------------------------------------------------------------


@pytest.mark.accepts("RESTORE-12")
@pytest.mark.parametrize(
    "text",
    [
        "", "..", "../../x", "/", S[:-1], S + "0", S + "\n", "\n" + S, S[:-1] + "\0", S[:-1] + "g", S.replace("-", "_"),
        S[:8] + "/" + S[9:], "." * 36, "-" * 36, "０" + S[1:], S[:-1] + "०",
        f"{{{S}}}", S.replace("-", ""), S + ".jsonl",
    ],
)  # fmt: skip
def test_a_session_id_is_a_uuid_and_nothing_that_looks_like_one(text: str) -> None:
    assert not claude.is_session(text)
    with pytest.raises(Refused) as refused:
        claude.check_session(text)
    assert refused.value.exit_code == 8


def test_a_uuid_is_one_in_either_case() -> None:
    for text in (S, "3F6C0A52-8D1E-4B7A-9C55-0E2F1A7B9D10", "00000000-0000-0000-0000-000000000000"):
        assert claude.check_session(text) == text


# --- what a profile has of a session (KEEP-21, KEEP-9) ------------------------------------------------------


@pytest.mark.accepts("KEEP-21", "KEEP-14", "KEEP-19")
def test_a_survey_finds_all_that_is_a_sessions_and_nothing_of_anothers(profile: Path) -> None:
    one, two = profile / "projects" / "-one", profile / "projects" / "-two"
    wanted = [
        one / f"{S}.jsonl", two / f"{S}.jsonl", one / f"{S}.ccr-tip.json", one / f"{S}.precompact.json",
        one / f"{S}.desktop-released.json", one / f"{S}.jsonl.superseded-1700000000000",
    ]  # fmt: skip
    for path in [*wanted, one / f"{T}.jsonl", one / "notes.txt", one / "sessions-index.json", one / f"{S}x.jsonl"]:
        put(path, b"{}\n")
    put(one / S / "tool-results" / "a.txt", b"a")
    put(one / ".keeper-0123456789ab.tmp", b"ours")
    put(one / f"{S}.jsonl.tmp.123", b"in flight")
    agent = put(one / "agent-0f3.jsonl", b"{}\n")
    history = put(profile / "file-history" / S / "a@v1", b"a").parent
    tasks = put(profile / "tasks" / S / "1.json", b"a").parent
    todo = put(profile / "todos" / f"{S}-agent-{T}.json", b"a")
    put(profile / "todos" / f"{T}-agent-{S}.json", b"a")

    for survey in (claude.survey(profile), claude.survey(profile, only=S)):
        found = survey.footprints[S]
        assert sorted([*found.transcripts, *found.beside]) == sorted(wanted)
        assert found.companions == [one / S]
        assert sorted(found.extras) == [("file-history", history), ("tasks", tasks), ("todos", todo)]
        assert survey.agents == (agent,)
    assert list(claude.survey(profile, only=S).footprints) == [S]
    assert set(claude.survey(profile).footprints) == {S, T}
    assert sorted(claude.places(profile, S)) == sorted(wanted[:2])


@pytest.mark.accepts("KEEP-9")
def test_what_is_behind_a_link_is_not_the_profiles_but_for_a_linked_project(profile: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    for name in (f"{S}.jsonl", f"{T}.jsonl"):
        put(elsewhere / name, b"{}\n")
    put(elsewhere / "companion" / "a.txt", b"a")
    put(elsewhere / "history" / S / "a@v1", b"a")
    project = profile / "projects" / "-p"
    project.mkdir()
    (project / f"{S}.jsonl").symlink_to(elsewhere / f"{S}.jsonl")
    (project / S).symlink_to(elsewhere / "companion")
    os.mkfifo(project / f"{session_id(3)}.jsonl")
    (profile / "file-history").mkdir()
    (profile / "file-history" / T).symlink_to(elsewhere / "history" / S)
    (profile / "projects" / "-linked").symlink_to(elsewhere)
    (profile / "projects" / "loop").symlink_to("loop")
    (profile / "projects" / "dangling").symlink_to("nowhere")
    found = claude.survey(profile).footprints
    assert {str(path.relative_to(profile)) for one in found.values() for path in one.transcripts} == {
        f"projects/-linked/{S}.jsonl", f"projects/-linked/{T}.jsonl",
    }  # fmt: skip
    assert [one.companions or one.extras for one in found.values() if one.companions or one.extras] == []
    assert claude.places(profile, S) == [profile / "projects" / "-linked" / f"{S}.jsonl"]


def test_a_profile_without_projects_has_nothing(tmp_path: Path) -> None:
    assert claude.survey(tmp_path / "none").footprints == {}
    put(tmp_path / "file" / "projects", b"a file")
    assert claude.survey(tmp_path / "file").footprints == {}
    assert claude.places(tmp_path / "none", S) == []


@pytest.mark.accepts("KEEP-13")
def test_a_profile_is_told_from_a_transcripts_path() -> None:
    assert claude.profile_of(Path(f"/home/u/.claude/projects/-p/{S}.jsonl")) == Path("/home/u/.claude")
    assert claude.profile_of(Path(f"/home/u/elsewhere/-p/{S}.jsonl")) is None
    assert claude.profile_of(Path(f"{S}.jsonl")) is None


# --- who runs it (KEEP-13) ----------------------------------------------------------------------------------


def process(proc: Path, pid: str, argv: list[bytes], environ: list[bytes]) -> None:
    put(proc / pid / "cmdline", b"".join(word + b"\0" for word in argv))
    put(proc / pid / "environ", b"".join(entry + b"\0" for entry in environ))


@pytest.mark.accepts("KEEP-13")
@pytest.mark.parametrize(
    ("argv", "is_claude"),
    [
        ([b"claude"], True),
        ([b"/usr/local/bin/claude", b"--resume", b"x"], True),
        ([b"node", b"/usr/bin/claude"], True),
        ([b"/usr/bin/node", b"/usr/lib/node_modules/@anthropic-ai/claude-code/cli.js", b"-p"], True),
        ([b"bash", b"-c", b"claude"], False),
        ([b"claudette"], False),
        ([b""], False),
        ([], False),
    ],
)
def test_a_running_claude_is_told_by_its_argv(tmp_path: Path, argv: list[bytes], is_claude: bool) -> None:
    process(tmp_path, "100", argv, [b"HOME=/home/u", b"CLAUDE_CONFIG_DIR=/home/u/.claude-work"])
    process(tmp_path, "self", [b"claude"], [b"CLAUDE_CONFIG_DIR=/not/a/pid"])
    wanted = [Path("/home/u/.claude-work")] if is_claude else []
    assert claude.running_profiles(tmp_path) == wanted


@pytest.mark.accepts("KEEP-13")
def test_each_profile_is_named_once_and_what_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    for pid, place in (("1", b"/a"), ("2", b"/b"), ("3", b"/a"), ("4", b"/\xff")):
        process(tmp_path, pid, [b"claude"], [b"XCLAUDE_CONFIG_DIR=/no", b"CLAUDE_CONFIG_DIR=" + place])
    put(tmp_path / "5" / "cmdline", b"claude\0")
    (tmp_path / "6").mkdir()
    assert set(claude.running_profiles(tmp_path)) == {Path("/a"), Path("/b"), Path(os.fsdecode(b"/\xff"))}


@pytest.fixture
def of_another_user(needs: Needs) -> Iterator[subprocess.Popen[bytes]]:
    needs.root()
    child = subprocess.Popen(
        ["claude", "60"], executable=needs.command("sleep"), user=65534, env={"CLAUDE_CONFIG_DIR": "/another/users"}
    )
    yield child
    child.kill()
    child.wait()


@pytest.mark.alone
@pytest.mark.accepts("KEEP-13", "BOTH-5")
def test_another_users_claude_is_nobody_to_us(of_another_user: subprocess.Popen[bytes]) -> None:
    assert of_another_user.poll() is None
    assert Path("/another/users") not in claude.running_profiles()


# --- how to resume (RESTORE-10) -----------------------------------------------------------------------------


@pytest.mark.accepts("RESTORE-10")
def test_the_line_to_resume_with_is_quoted_for_a_shell() -> None:
    default = Path("/home/u/.claude")
    line = claude.resume_command(S, "/a b/$x", Path("/p q"), default, None)
    assert line == f"cd '/a b/$x' && CLAUDE_CONFIG_DIR='/p q' claude --resume {S}"
    assert claude.resume_command(S, None, default, default, None) == f"claude --resume {S}"
