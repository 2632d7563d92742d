"""Entry: the program `keeper`: what Claude or a resume waits for goes straight to its door, all else through click.

`keeper hook` ends with 0 whatever happens, says nothing to Claude, and what fails is one line in the log.
"""

from __future__ import annotations

import os
import sys

LOG = "hook.log"
LOG_BYTES = 1 << 18
"""A log of that size becomes the older one, and what was the older one goes."""


def main() -> None:
    """Run the command that was called."""
    words = sys.argv[1:]
    if words == ["hook"]:
        os._exit(hook())  # Claude waits, and nothing of ours waits for what the interpreter tidies up at its end
    sessions = [word for word in words[1:] if word != "--json"]
    if words[:1] == ["restore"] and sessions and not any(word.startswith("-") for word in sessions):
        sys.exit(restore(sessions, as_json="--json" in words))
    from keeper.cli.main import main as command_line

    command_line()


def restore(sessions: list[str], as_json: bool) -> int:
    """`keeper restore SESSION…` as the command line does it, without what that loads; the exit code."""
    from keeper.cli.ends import ended

    def run() -> int:
        from keeper.cli.answers import by_the_agent

        code = by_the_agent(sessions[0], as_json) if len(sessions) == 1 else None
        if code is None:
            from keeper.cli.put_back import put_back

            code = put_back(sessions, as_json)
        return code

    return ended(run)


def hook() -> int:
    """`keeper hook`: 0, and nothing on stdout or stderr."""
    data = b""
    try:
        from keeper.doors.hook import handle

        data = sys.stdin.buffer.read() if sys.stdin else b""
        handle(data, os.environ)
    except BaseException as error:  # noqa: BLE001 – Claude must never pay for what fails here, whatever it is
        _log(error, data)
    return 0


def _log(error: BaseException, data: bytes) -> None:
    """One line: when, at which event, of which session, what, and the cure. No word of the payload else."""
    try:
        import json
        import time

        from keeper import disk, homes
        from keeper.errors import KeeperError

        what, cure = str(error), getattr(error, "cure", None)
        if not isinstance(error, KeeperError):
            at = error.__traceback__
            while at is not None and at.tb_next is not None:
                at = at.tb_next
            place = f" ({os.path.basename(at.tb_frame.f_code.co_filename)}:{at.tb_lineno})" if at else ""
            what = f"{type(error).__name__}: {what}{place}"
        about = ""
        try:
            payload = json.loads(data)
            about = "".join(f" {payload[name]}"[:60] for name in ("hook_event_name", "session_id") if name in payload)
        except (ValueError, TypeError, RecursionError):
            pass
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        line = " ".join(f"{now}{about}: {what}{f' – {cure}' if cure else ''}".split())
        folder = homes.state(os.environ)
        disk.ensure_dir(folder)
        log = f"{folder}/{LOG}"
        if os.path.exists(log) and os.path.getsize(log) > LOG_BYTES:
            disk.replace(log, f"{log}.1")
        disk.append(log, f"{line}\n".encode("utf-8", "backslashreplace"), make=True, sync=False)
    except BaseException:  # noqa: BLE001 – with the log gone too there is nobody left to tell
        return
