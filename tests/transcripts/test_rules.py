"""Rules: what a glob meets, and that all conditions of a rule must be met."""

from __future__ import annotations

from pathlib import Path

import pytest

from keeper.errors import Usage
from keeper.settings import CONDITIONS, conditions
from keeper.transcripts.rules import Rule, Subject, first_met, matches, path_fits


@pytest.mark.accepts("POLICY-1")
@pytest.mark.parametrize(
    ("glob", "path", "met"),
    [
        ("/home/u/secret/**", "/home/u/secret", True),
        ("/home/u/secret/**", "/home/u/secret/a", True),
        ("/home/u/secret/**", "/home/u/secret/a/b/c", True),
        ("/home/u/secret/**", "/home/u/secrets", False),
        ("/home/u/secret/**", "/home/u", False),
        ("/home/u/secret", "/home/u/secret", True),
        ("/home/u/secret", "/home/u/secret/a", False),
        ("/home/u/secret/*", "/home/u/secret/a", True),
        ("/home/u/secret/*", "/home/u/secret/a/b", False),
        ("/home/u/secret/*", "/home/u/secret", False),
        ("/home/*/secret", "/home/u/secret", True),
        ("/home/*/secret", "/home/u/v/secret", False),
        ("/home/**/secret", "/home/secret", True),
        ("/home/**/secret", "/home/u/v/secret", True),
        ("/home/**/secret/**", "/home/u/v/secret/w", True),
        ("/home/**/secret/**/x", "/home/u/secret/secret/y/x", True),
        ("**", "/anything/at/all", True),
        ("/**", "/", True),
        ("/", "/", True),
        ("/", "/a", False),
        ("optchat-*", "/srv/optchat-7", True),
        ("optchat-*", "/srv/optchat-7/sub", False),
        ("optchat-*/**", "/srv/optchat-7/sub", True),
        ("optchat-*", "/srv/my-optchat-7", False),
        ("/Home/u", "/home/u", False),
        ("/home/?", "/home/u", True),
        ("/home/[uv]", "/home/v", True),
        ("/home/[!uv]", "/home/v", False),
        ("/a.c", "/abc", False),
        ("/srv/äö*", "/srv/äöü", True),
    ],
)
def test_a_path_meets_a_glob_as_a_person_expects(glob: str, path: str, met: bool) -> None:
    assert path_fits(glob, path) is met


@pytest.mark.accepts("POLICY-1")
def test_a_folder_is_met_by_each_name_that_leads_to_it(tmp_path: Path) -> None:
    (tmp_path / "real" / "secret").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for glob in (f"{tmp_path}/link/secret/**", f"{tmp_path}/real/secret/**"):
        for cwd in (f"{tmp_path}/link/secret", f"{tmp_path}/real/secret", f"{tmp_path}/real/secret/deep"):
            assert matches("cwd", glob, cwd)
    assert not matches("cwd", f"{tmp_path}/link/secret/**", f"{tmp_path}/real")


@pytest.mark.accepts("POLICY-1")
def test_the_root_alone_is_met_by_the_root_alone_under_whatever_name(tmp_path: Path) -> None:
    (tmp_path / "root").symlink_to("/")
    for glob in ("/", str(tmp_path / "root"), "//"):
        assert matches("cwd", glob, "/"), glob
        for cwd in ("/home/u/shop", "/srv", str(tmp_path)):
            assert not matches("cwd", glob, cwd), (glob, cwd)
    assert not path_fits("", "/srv")
    assert matches("cwd", f"{tmp_path}/root/**", "/srv/x")
    assert matches("cwd", "/*", "/srv")
    assert not matches("cwd", "/*", "/srv/x")


@pytest.mark.accepts("POLICY-1")
@pytest.mark.parametrize(
    ("glob", "word", "met"),
    [
        ("optchat-*", "optchat-7", True),
        ("optchat-*", "OptChat-7", False),
        ("*secret/plan*", "the secret/plan of all", True),
        ("*plan", "a plan of all", False),
        ("a?c", "abc", True),
        ("", "", True),
    ],
)
def test_other_words_meet_a_glob_whole_and_with_its_case(glob: str, word: str, met: bool) -> None:
    assert matches("title", glob, word) is met


KNOWN = Subject.of(
    ["bot", "preset:optchat-fast"],
    session=["s-1"], profile=["/home/u/.claude"], project=["-home-u-secret"], title=["A Title"],
    cwd=["/home/u/secret", ""], entrypoint=["sdk-ts"],
)  # fmt: skip
MET = {
    "cwd": "/home/u/secret/**", "project": "-home-u-*", "title": "A *", "session": "s-*", "entrypoint": "sdk-*",
    "profile": "/home/u/.claude", "preset": "optchat-*", "tag": "bot",
}  # fmt: skip


@pytest.mark.accepts("POLICY-1")
@pytest.mark.parametrize("name", CONDITIONS)
def test_each_condition_is_asked_of_what_it_is_about(name: str) -> None:
    assert first_met([Rule.of({name: MET[name]})], KNOWN) == Rule.of({name: MET[name]})
    assert first_met([Rule.of({name: "no such"})], KNOWN) is None
    assert first_met([Rule.of({name: "**"})], Subject.of()) is None, "what is not known meets nothing"


@pytest.mark.accepts("POLICY-1")
@pytest.mark.parametrize("name", CONDITIONS)
def test_all_conditions_of_a_rule_must_be_met(name: str) -> None:
    assert first_met([Rule.of(MET)], KNOWN) is not None
    assert first_met([Rule.of({**MET, name: "another"})], KNOWN) is None


def test_a_rule_without_a_condition_meets_nothing() -> None:
    assert first_met([Rule.of({})], KNOWN) is None


def test_the_first_rule_that_is_met_is_the_one_that_is_told() -> None:
    rules = [Rule.of({"tag": "none"}), Rule.of({"tag": "bot"}), Rule.of({"session": "s-1"})]
    assert first_met(rules, KNOWN) == rules[1]
    assert str(Rule.of({"tag": "bot", "cwd": "/a"})) == "cwd=/a tag=bot"


@pytest.mark.accepts("POLICY-1")
def test_a_folder_whose_name_has_brackets_is_met_by_its_name_and_no_other_is(tmp_path: Path) -> None:
    (tmp_path / "[app]" / "sub").mkdir(parents=True)
    for said in (f"{tmp_path}/[app]/**", f"{tmp_path}/[app]/*", f"{tmp_path}/[app]/sub"):
        (told,) = conditions({"cwd": said}, "here", "/home/u")
        assert matches(*told, f"{tmp_path}/[app]/sub"), told
        assert not matches(*told, f"{tmp_path}/a/sub"), told
    (told,) = conditions({"cwd": f"{tmp_path}/[ab]/**"}, "here", "/home/u")
    assert matches(*told, f"{tmp_path}/a/sub"), "no folder is called so"


@pytest.mark.accepts("POLICY-1")
def test_a_dot_is_where_the_command_is_given_and_in_a_file_it_is_refused(tmp_path: Path) -> None:
    here = f"{tmp_path}/shop"
    for said, path in (
        (".", here),
        ("./sub", f"{here}/sub"),
        ("../other", f"{tmp_path}/other"),
        ("./**", f"{here}/x/y"),
    ):
        (told,) = conditions({"cwd": said}, "keeper exclude", "/home/u", here)
        assert matches(*told, path), said
        assert not matches(*told, str(tmp_path)), said
        with pytest.raises(Usage):
            conditions({"cwd": said}, "keeper.toml", "/home/u")
    with pytest.raises(Usage):
        conditions({"cwd": "/srv/../x"}, "keeper exclude", "/home/u", here)
    assert conditions({"title": "."}, "keeper.toml", "/home/u") == (("title", "."),)
