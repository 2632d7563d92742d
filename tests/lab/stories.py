"""Conversations that several tests have the CLI hold."""

from __future__ import annotations

import json
from dataclasses import dataclass

from .cli import Cli
from .stub_api import Asked
from .waiting import quiet

SUBAGENT = {
    "description": "look around",
    "prompt": '@@tool Bash {"command":"echo in-the-subagent"}\n@@say the subagent is done',
    "subagent_type": "general-purpose",
    "run_in_background": False,
}


@dataclass(frozen=True, slots=True)
class Story:
    """What a later request must show of a conversation, if nothing of it was lost."""

    words: tuple[str, ...]
    marks: tuple[str, ...] = ()
    """Texts that only a tool's result holds (a shell made them)."""

    def then(self, *words: str) -> Story:
        """The same with later turns."""
        return Story(self.words + words, self.marks)

    def lost(self, history: Asked) -> str:
        """What a request does not show of it: every turn, in order and once, every tool result; "" if all."""
        if history.words != self.words:
            return f"told {self.words}, shown {history.words}"
        return ", ".join(f"no {mark}" for mark in self.marks if mark not in history.text)


def with_tools(cli: Cli, session: str) -> Story:
    """Four turns, two processes: parallel tool calls, an output in a file of its own, a subagent, a task."""
    allowed = ("--allowedTools", "Bash,Agent,Task,TaskCreate")
    task = json.dumps({"subject": "look", "description": "look around"})
    with cli.talk("--session-id", session, *allowed) as talk:
        talk.turn('WORD=first\n@@pair looking ||| Bash {"command":"echo tool-$((6*7))"}\n@@say one')
        talk.turn('WORD=second\n@@tool Bash {"command":"seq 1 9000"}\n@@say two')
        talk.turn(f"WORD=third\n@@tool Agent {json.dumps(SUBAGENT)}\n@@say three")
        quiet(cli.transcript(session))
    fourth = f'WORD=fourth\n@@tool Bash {{"command":"echo tool-$((7*7))"}}\n@@tool TaskCreate {task}\n@@say four'
    cli.say(fourth, "--resume", session, *allowed)
    return Story(("first", "second", "third", "fourth"), ("tool-42", "tool-49"))


def plain(cli: Cli, session: str, *words: str) -> Story:
    """A turn a word, in one process."""
    with cli.talk("--session-id", session) as talk:
        for word in words:
            talk.turn(f"WORD={word} @@say heard {word}")
        quiet(cli.transcript(session))
    return Story(words)
