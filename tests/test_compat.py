"""What keeper assumes of the CLI, asked of the real one, and the page that tells the answers of every version."""

from pathlib import Path

import compat
import compat_assumed
import compat_page
import pytest
from compat_assumed import COLUMNS, GROUPS, OLDEST, QUESTIONS, Column, Era

from keeper.claude import version_of
from tests.conftest import Needs
from tests.lab import install, namespace, screen

ROWS = compat_page.read()
GENERATIONS = (OLDEST, "2.0.14", "2.0.76", "2.1.15", "2.1.61", "2.1.110", "2.1.158", *install.PINNED)
"""Each has something that no other has on disk."""


@pytest.mark.alone
@pytest.mark.timeout(600)
@pytest.mark.accepts("FIT-1")
def test_the_newest_version_here_is_as_keeper_assumes(needs: Needs) -> None:
    for lack in (namespace.missing(), screen.missing()):
        if lack:
            needs.lacking(lack, "run scripts/test as root")
    here = [one.name for one in install.cache().glob("*") if install.VERSION.fullmatch(one.name)]
    newest = max(here, key=version_of, default=install.NEWEST)
    needs.claude(newest)
    with compat.place_alone() as place:
        answers, why_not = compat.ask(newest, QUESTIONS, place)
    assert why_not == []
    assert compat_assumed.drifted(newest, answers) == {}
    assert set(answers) == {column.name for column in COLUMNS}


@pytest.mark.accepts("FIT-1")
def test_the_page_has_every_generation_and_none_drifted() -> None:
    assert set(GENERATIONS) <= set(ROWS)
    assert {version: wrong for version in ROWS if (wrong := compat_assumed.drifted(version, ROWS[version]))} == {}


def test_the_page_is_as_the_script_writes_it() -> None:
    assert compat_page.PAGE.read_text("utf-8") == compat_page.render(ROWS), "scripts/compat.py --write renews it"


def test_a_page_is_read_as_it_was_written(tmp_path: Path) -> None:
    rows = {
        version: {column.name: f"{column.name} of {version}" for column in COLUMNS} for version in ("2.1.9", "2.1.10")
    }
    compat_page.write(rows, page := tmp_path / "page.md")
    assert compat_page.read(page) == rows
    assert list(compat_page.read(page)) == ["2.1.9", "2.1.10"]


def test_an_answer_that_keeper_is_not_ready_for_is_named_and_stands_out() -> None:
    rows = {"2.1.328": {**{column.name: column.assumed("2.1.328")[0] for column in COLUMNS}, "append": "rewritten"}}
    assert compat_assumed.drifted("2.1.328", rows["2.1.328"]) == {"append": "rewritten, assumed by path"}
    assert "| **rewritten** |" in compat_page.render(rows)


@pytest.mark.parametrize(
    ("version", "assumed"),
    [
        ("1.0.117", ()),
        ("1.0.124", ("old",)),
        ("2.0.0", ("old",)),
        ("2.0.9", ("old",)),
        ("2.0.10", ("old", "new")),
        ("2.0.11", ("new",)),
        ("2.1.400", ("new",)),
    ],
)
def test_between_two_eras_either_answer_is_as_assumed(version: str, assumed: tuple[str, ...]) -> None:
    column = Column("some", "Something.", (Era("old", until="2.0.9"), Era("new", "2.0.11")))
    assert column.assumed(version) == assumed


def test_every_column_says_what_it_means_and_what_keeper_does_where_versions_differ() -> None:
    for column in COLUMNS:
        assert column.means.endswith("."), column.name
        assert bool(column.does) == (len(column.eras) > 1), column.name
        assert all(one.until for one in column.eras[:-1]), column.name
        assert not column.eras[-1].until, column.name
        bounds = [version_of(bound) for era in column.eras for bound in (era.since, era.until or "9.9.9")]
        assert bounds == sorted(bounds), column.name


def test_a_group_of_columns_has_a_name_of_its_own() -> None:
    assert len({group.name for group in GROUPS}) == len(GROUPS)
    assert len({column.name for column in COLUMNS}) == len(COLUMNS)
