"""Before: what the `claude` shim has done before Claude starts; all that it must know is the exit code.

It promises a line, not a traceback, for whatever fails, and silence where all went well. It refuses to load the core
where an agent does the work: it stands in front of a person.
"""

from __future__ import annotations

import os
import sys

from keeper.doors import flags

DONE, CHOOSE, FAILED = 0, 10, 11
"""Start Claude; ask the person first; start Claude, what failed has been said."""
AGENT_S = 4.0
"""So long the agent may take for a restore; the shim waits for 10 s in all."""
AGENT_STATUS_S = 0.5
LOCK_S = 5.0
"""So long a chat that another process holds is waited for: the shim's own limit would not say what it was."""


def main(words: list[str]) -> int:
    """`before REAL ARGS…` keeps and restores; `choose REAL ARGS…` asks, and prints the flag's place and the session."""
    verb, real, *rest = words
    try:
        return choose(rest) if verb == "choose" else before(real, rest)
    except KeyboardInterrupt:
        return FAILED
    except Exception as error:  # noqa: BLE001  # whatever it is: Claude starts
        say(f"{told(error)}; starting claude all the same", choosing=verb == "choose")
        return FAILED


def before(real: str, words: list[str]) -> int:
    """Keep what is there, put back what these arguments resume."""
    from keeper import settings

    asked = flags.read(words)
    values = settings.load(os.environ)
    profile = values.named_profile or values.default_profile
    session = asked.session()
    vault = str(values.vault)
    if session and _agent_restores(vault, session, str(profile), words):
        return DONE
    agent = not session and agent_keeps(vault)
    if agent and asked.kind in (flags.PLAIN, flags.ONE):
        return DONE
    from dataclasses import replace

    from keeper.doors import resume

    start = resume.Start(replace(values, lock_wait_s=LOCK_S), profile, os.getcwd(), real)
    lines, choose = resume.before(start, asked, agent)
    for line in lines:
        say(line)
    return CHOOSE if choose else DONE


def choose(words: list[str]) -> int:
    """Ask which conversation of this directory is meant; nothing is printed where Claude's own list is wanted."""
    from keeper import settings
    from keeper.doors import resume

    values = settings.load(os.environ)
    profile = values.named_profile or values.default_profile
    session = resume.ask(resume.Start(values, profile, os.getcwd(), ""), own_list=True)
    if session:
        print(flags.read(words).at, session, flush=True)
    return DONE


def _agent_restores(vault: str, session: str, profile: str, words: list[str]) -> bool:
    from keeper import wire

    request: dict[str, object] = {"do": "restore", "session": session, "profile": profile, "argv": words}
    answer = wire.ask(vault, request, AGENT_S)
    return answer is not None and answer.get("ok") is True


def agent_keeps(vault: str) -> bool:
    """Whether an agent runs that has lost sight of nothing."""
    from keeper import wire

    answer = wire.ask(vault, {"do": "status"}, AGENT_STATUS_S)
    return answer is not None and answer.get("running") is True and not answer.get("degraded")


def told(error: Exception) -> str:
    """What an exception says, on one line."""
    message = getattr(error, "message", None) or f"{type(error).__name__}: {error}"
    cure = getattr(error, "cure", None)
    return " ".join(f"{message} ({cure})".split() if cure else str(message).split())


def say(line: str, choosing: bool = False) -> None:
    """A line for the person: the shim has turned our stdout to its stderr, but where it waits for a choice on it."""
    stream = sys.stderr if choosing else sys.stdout
    stream.buffer.write(f"keeper: {line}\n".encode(errors="backslashreplace"))
    stream.flush()
