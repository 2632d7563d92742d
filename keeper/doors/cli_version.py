"""Which Claude Code CLI is installed: asked of the program itself, and only where an answer depends on it."""

from __future__ import annotations

import re

ASK_S = 10


def installed_version() -> str:
    """The version of the `claude` on PATH, "" where there is none or it does not say within 10 s."""
    import shutil
    import subprocess  # both only where a long path asks: the fast doors pay for every import

    program = shutil.which("claude")
    if program is None:
        return ""
    try:
        done = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=ASK_S, stdin=subprocess.DEVNULL, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    match = re.match(r"\d+\.\d+\.\d+", done.stdout.strip())
    return match[0] if match else ""
