"""Answers: what `keeper restore` says of one session, whoever put it back: the agent, or this process.

It refuses to load the core: where an agent runs, a person waits for no more than its answer.
"""

from __future__ import annotations

import os
import sys

from keeper.cli import out

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def by_the_agent(session: str, as_json: bool) -> int | None:
    """Have the agent put it back, and tell it; the exit code. None where there is none, where it could not, and where
    a person is to be asked something: then it is for this process."""
    from keeper.doors import handed

    answer = handed.restore(handed.vault_of(os.environ), session)
    if answer is None or (answer.get("branch") and sys.stdin.isatty() and sys.stdout.isatty()):
        return None
    out.say_json(answer) if as_json else say(answer)
    return int(str(answer["exit_code"]))


def say(answer: Mapping[str, Any]) -> None:
    """The fields of a Restored, for a person."""
    files = f", {answer['files']} other files" if answer["files"] else ""
    records = f", {answer['records']} records" if answer["records"] is not None else ""
    out.say(f"{answer['session']}  {answer['verdict']}: {answer['action']}{records}{files}")
    for warning in answer["warnings"]:
        out.warn(warning)
    if answer["error"]:
        out.warn(f"{answer['session']}: {answer['error']}")
    if answer["resume"]:
        out.say(f"  resume with: {answer['resume']}")
