"""What a `claude` command line is about to resume."""

import pytest

from keeper.doors.flags import BARE, NEWEST, ONE, PLAIN, read
from tests.build import session_id

ID = session_id(1)


@pytest.mark.parametrize(
    ("line", "kind", "value", "at"),
    [
        ("", PLAIN, "", -1),
        ("fix the bug", PLAIN, "", -1),
        ("-p hello --model opus", PLAIN, "", -1),
        (f"--resume {ID}", ONE, ID, 0),
        (f"--resume={ID}", ONE, ID, 0),
        (f"-r {ID}", ONE, ID, 0),
        (f"-r{ID}", ONE, ID, 0),
        (f"-pr {ID}", ONE, ID, 0),
        (f"-p hello --resume {ID} --fork-session", ONE, ID, 2),
        ("-r title", ONE, "title", 0),
        ("--resume", BARE, "", 0),
        ("--resume --verbose", BARE, "", 0),
        ("--verbose -r", BARE, "", 1),
        ("--resume=", BARE, "", 0),
        ("-c", NEWEST, "", 0),
        ("--continue", NEWEST, "", 0),
        ("-pc hello", NEWEST, "", 0),
        ("-cp hello", NEWEST, "", 0),
        ("-c --fork-session", NEWEST, "", 0),
        (f"-c --resume {ID}", ONE, ID, 1),
        ("-dc", PLAIN, "", -1),  # a filter of --debug's
        (f"-- --resume {ID}", PLAIN, "", -1),
        (f"--resume-session-at {ID}", PLAIN, "", -1),
        (f"--session-id {ID}", PLAIN, "", -1),
    ],
)
@pytest.mark.accepts("RESTORE-7")
def test_the_command_line(line: str, kind: str, value: str, at: int) -> None:
    asked = read(line.split())
    assert (asked.kind, asked.value, asked.at) == (kind, value, at)


@pytest.mark.parametrize("value", [ID, ID.upper(), f"/home/x/.claude/projects/-w/{ID}.jsonl", f"{ID}.jsonl"])
def test_a_value_that_names_a_session(value: str) -> None:
    assert read(["--resume", value]).session().lower() == ID


@pytest.mark.parametrize(
    "value",
    ["my title", "../../x", ID[:-1], f"{ID}0", f"../{ID}", ID.replace("-", "0"), f"{ID[:8]}0{ID[9:]}", "a.jsonl"],
)
def test_a_value_that_names_none(value: str) -> None:
    assert read(["--resume", value]).session() == ""
