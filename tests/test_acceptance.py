"""The acceptance table and the marks of the tests fit each other, and scripts/acceptance.py reads both."""

import subprocess
import sys

import acceptance
import pytest

MARKED = '''
import pytest
pytestmark = pytest.mark.accepts("FAULT-6")

@pytest.mark.accepts("MERGE-1", "MERGE-2")
def test_a(): ...

@pytest.mark.accepts("KEEP-1")
class TestB:
    @pytest.mark.accepts("KEEP-2")
    async def test_c(self): ...

@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.accepts("SEAL-1"))])
@pytest.mark.timeout(3)
def test_d(x):
    """@pytest.mark.accepts("SWAP-1")"""
'''


def test_a_mark_is_found_on_a_file_a_class_a_function_and_a_parameter_set() -> None:
    found = {(mark.id, mark.test) for mark in acceptance.marks(MARKED, "tests/test_x.py")}
    assert found == {
        ("FAULT-6", "tests/test_x.py"),
        ("MERGE-1", "tests/test_x.py::test_a"),
        ("MERGE-2", "tests/test_x.py::test_a"),
        ("KEEP-1", "tests/test_x.py::TestB"),
        ("KEEP-2", "tests/test_x.py::TestB::test_c"),
        ("SEAL-1", "tests/test_x.py::test_d"),
    }


def test_a_mark_that_is_no_plain_string_is_refused() -> None:
    with pytest.raises(ValueError, match="plain strings"):
        list(acceptance.marks("@pytest.mark.accepts(NAME)\ndef test_a(): ...", "tests/test_x.py"))


def test_the_table_has_every_id_once_and_without_a_gap() -> None:
    ids = list(acceptance.statements(acceptance.TABLE.read_text("utf-8")))
    by_group: dict[str, list[str]] = {}
    for name in ids:
        by_group.setdefault(acceptance.group(name), []).append(name)
    assert ids == [f"{name}-{n}" for name, members in by_group.items() for n in range(1, len(members) + 1)]
    assert " ".join(f"{name} {len(members)}" for name, members in by_group.items()) == (
        "MERGE 13 KEEP 22 SEAL 7 SWAP 7 RESTORE 17 AGENT 9 POLICY 6 ARCH 17 NAME 17 SAVE 18 BOTH 5 FIT 10 FAULT 7"
    )


def test_an_id_that_stands_in_the_table_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="KEEP-1 stands in the table twice"):
        acceptance.statements("- KEEP-1 One.\n- KEEP-2 Two.\n- KEEP-1 Three.")


def test_every_id_in_a_mark_stands_in_the_table() -> None:
    known = acceptance.statements(acceptance.TABLE.read_text("utf-8"))
    assert [mark for mark in acceptance.all_marks() if mark.id not in known] == []


def test_ids_are_chosen_by_name_and_by_range_in_the_order_of_the_table() -> None:
    known = ["A-1", "A-2", "A-3", "B-1"]
    assert acceptance.chosen("B-1, A-2..A-3", known) == ["A-2", "A-3", "B-1"]
    with pytest.raises(KeyError, match="A-4"):
        acceptance.chosen("A-1..A-4", known)


def test_the_list_names_the_tests_and_what_has_none() -> None:
    lines = list(acceptance.list_tests(["A-1", "A-2"], {"A-1": ["t::one", "t::two"]}))
    assert [line.split(maxsplit=1) for line in lines[:2]] == [["A-1", "t::one, t::two"], ["A-2", "-"]]
    assert lines[-1] == "without a test (1 of 2): A-2"


def test_the_summary_counts_by_group_and_in_all() -> None:
    lines = list(acceptance.summarise(["A-1", "A-2", "B-1"], {"A-1": ["t"]}))
    assert [line.split() for line in lines] == [
        "A 1 of 2 without a test: A-2".split(),
        "B 0 of 1".split(),
        "in all 1 of 3 statements have a test".split(),
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--summary"], 0, " of 155 statements have a test"),
        (["--issue-ids", "MERGE-1..MERGE-13", "--summary"], 0, " of  13 statements have a test"),
        ([], 0, "without a test ("),
        (["--issue-ids", "MERGE-99"], 2, "not in docs/acceptance.md: MERGE-99"),
    ],
)
def test_the_script_answers(arguments: list[str], code: int, said: str) -> None:
    done = subprocess.run(
        [sys.executable, acceptance.__file__, *arguments], capture_output=True, text=True, check=False
    )
    assert (done.returncode, said in done.stdout + done.stderr) == (code, True)
