"""Which Claude Code CLI is installed: told by its files or by itself, and only where an answer depends on it."""

from __future__ import annotations

import os
import re

from keeper import files

ASK_S = 10
_LEVELS = 4
"""So many folders above the program its package.json may stand."""


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


def version_of_files(program: str) -> str:
    """The version of an installed `claude`, told by where it stands: `versions/2.1.328` of the native installer, or
    the npm package around it. "" where neither tells; nothing is started."""
    path = os.path.realpath(program)
    if match := re.fullmatch(r".*/versions/(\d+\.\d+\.\d+)", path):
        return match[1]
    folder = os.path.dirname(path)
    for _ in range(_LEVELS):
        try:
            package = files.read(f"{folder}/package.json")
        except OSError:
            folder = os.path.dirname(folder)
            continue
        match_package = re.search(rb'"version"\s*:\s*"(\d+\.\d+\.\d+)', package)
        named = re.search(rb'"name"\s*:\s*"@anthropic-ai/claude-code', package)
        return match_package[1].decode() if match_package and named else ""
    return ""
