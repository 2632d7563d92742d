"""What only a terminal has: an edit that /rewind can take back, also after the conversation was put back."""

import json
from collections.abc import Callable

import pytest

from tests.conftest import Ran
from tests.lab import footprint
from tests.lab.cli import Cli
from tests.lab.screen import Screen
from tests.lab.waiting import eventually
from tests.real.conftest import SESSION

Keeper = Callable[..., Ran]


@pytest.mark.accepts("FAULT-7", "RESTORE-1", "KEEP-21")
@pytest.mark.usefixtures("terminal")
def test_an_edit_can_be_rewound_after_the_conversation_was_deleted_and_restored(cli: Cli, run_keeper: Keeper) -> None:
    cli.cwd.mkdir()
    edited = cli.cwd / "a.txt"
    edited.write_text("before\n")
    read = json.dumps({"file_path": str(edited)})
    edit = json.dumps({"file_path": str(edited), "old_string": "before", "new_string": "after"})
    with Screen(cli, "--session-id", SESSION, "--permission-mode", "acceptEdits") as screen:
        screen.wait("❯")
        screen.paste(f"WORD=edit\n@@tool Read {read}\n@@tool Edit {edit}\n@@say edited")
        screen.wait("● edited")
        screen.leave()
    before = footprint.files(cli, SESSION)
    assert any(name.startswith("file-history/") for name in before)

    assert run_keeper("keep").code == 0
    footprint.delete(cli, SESSION)
    assert run_keeper("restore", SESSION).code == 0
    assert footprint.files(cli, SESSION) == before
    assert edited.read_text() == "after\n"

    with Screen(cli, "--resume", SESSION) as screen:
        screen.wait("● edited")
        screen.rewind()
        eventually("the edit to be taken back", lambda: edited.read_text() == "before\n")
