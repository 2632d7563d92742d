"""Ends: how a command ends: what it answers is its exit code, and a failure is told and ends with that of its class.

It promises one line that says what failed and one that says the cure, and that Ctrl-C ends with 130. It refuses to load
anything before something fails.
"""

from __future__ import annotations

import os
import sys

from keeper.errors import KeeperError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

INTERRUPTED = 130


def ended(command: Callable[[], object]) -> int:
    """The exit code of the command, which is run here."""
    try:
        code = command()
    except KeyboardInterrupt:
        print(file=sys.stderr)  # behind the terminal's ^C
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has enough; the interpreter must not try to flush into the closed pipe at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (KeeperError, OSError) as error:
        from keeper.cli.out import say_error
        from keeper.files import told

        return say_error(told(error, os.getcwd()), "--json" in sys.argv[1:])
    return code if isinstance(code, int) else 0
