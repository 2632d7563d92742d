"""Before: what the `claude` shim has done before Claude starts; all that it must know is the exit code.

It promises a line, not a traceback, for whatever fails, and silence where all went well. It refuses to load the core
where an agent does the work: it stands in front of a person.
"""

from __future__ import annotations

import os
import signal
import sys

from keeper import homes
from keeper.doors import flags, handed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from keeper.doors.resume import Start

DONE, CHOOSE, FAILED = 0, 10, 11
"""Start Claude; ask the person first; start Claude, what failed has been said."""
AGENT_STATUS_S = 0.5
LOCK_S = 5.0
"""So long a chat that another process holds is waited for: the shim's own limit would not say what it was."""


def main(words: list[str]) -> int:
    """`before REAL ARGS…` keeps and restores; `choose REAL ARGS…` asks, and prints the flag's place and the session;
    `keep REAL` is what `before` leaves behind."""
    verb, real, *rest = words
    # `timeout` has us in the background, where a terminal set to `stty tostop` would stop us at our first line.
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        if verb == "keep":
            return keep(real)
        return choose(rest) if verb == "choose" else before(real, rest)
    except KeyboardInterrupt:
        return FAILED
    except Exception as error:  # noqa: BLE001  # whatever it is: Claude starts
        say(f"{told(error)}; starting claude all the same", choosing=verb == "choose")
        return FAILED


def before(real: str, words: list[str]) -> int:
    """Keep what is there, put back what these arguments resume."""
    asked = flags.read(words)
    vault, profile = _places()
    session = asked.session()
    agent = agent_keeps(vault, profile)
    if agent and (asked.kind == flags.PLAIN or (session and _agent_restores(vault, session, profile))):
        return DONE
    from keeper.doors import resume

    lines, choose = resume.before(_start(real), asked, agent)
    for line in lines:
        say(line)
    return CHOOSE if choose else DONE


def _places() -> tuple[str, str]:
    """The vault, and the profile that Claude is about to use, as the settings have them."""
    home = homes.user(os.environ)
    profile = homes.absolute(os.environ.get("CLAUDE_CONFIG_DIR") or f"{home}/.claude", home)
    return handed.vault_of(os.environ), os.path.realpath(profile)


def choose(words: list[str]) -> int:
    """Ask which conversation of this directory is meant; nothing is printed where Claude's own list is wanted."""
    from keeper.doors import resume

    session = resume.ask(_start(""), own_list=True)
    if session:
        print(flags.read(words).at, session, flush=True)
    return DONE


def keep(real: str) -> int:
    """Keep and seal what the profile has."""
    from keeper.doors import resume

    resume.keep_now(_start(real))
    return DONE


def _start(real: str) -> Start:
    from dataclasses import replace
    from pathlib import Path

    from keeper import settings
    from keeper.doors import resume

    values = replace(settings.load(os.environ), lock_wait_s=LOCK_S)
    return resume.Start(values, Path(_places()[1]), os.getcwd(), real)


def _agent_restores(vault: str, session: str, profile: str) -> bool:
    answer = handed.restore(vault, session, profile)
    if answer is None:
        return False
    warnings = answer.get("warnings")
    for line in warnings if isinstance(warnings, list) else ():
        say(f"{line}")
    return True


def agent_keeps(vault: str, profile: str) -> bool:
    """Whether an agent runs that is through with its first look, has lost sight of nothing, and knows the profile."""
    from keeper import wire

    answer = wire.ask(vault, {"do": "status"}, AGENT_STATUS_S)
    if answer is None or answer.get("running") is not True or not answer.get("ready") or answer.get("degraded"):
        return False
    profiles = answer.get("profiles")
    return not isinstance(profiles, list) or profile in profiles


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
