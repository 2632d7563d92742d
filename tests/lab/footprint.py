"""What a conversation has in a profile: every file, with its bytes."""

from __future__ import annotations

import shutil
from pathlib import Path

from .cli import Cli

EXTRAS = ("file-history", "tasks")


def files(cli: Cli, session: str) -> dict[str, bytes]:
    """Path inside the profile → bytes, of transcript, companion and extras; lock files have no content."""
    found = {}
    for root in _roots(cli, session):
        for file in [root] if root.is_file() else sorted(root.rglob("*")):
            if file.is_file() and file.name != ".lock":
                found[str(file.relative_to(cli.profile))] = file.read_bytes()
    return found


def everything(cli: Cli) -> list[Path]:
    """All files and folders of the profile, the deepest first."""
    return sorted(cli.profile.rglob("*"), reverse=True)


def delete(cli: Cli, session: str) -> None:
    """Delete it whole, as by hand."""
    for root in _roots(cli, session):
        if root.is_dir():
            shutil.rmtree(root)
        else:
            root.unlink()


def _roots(cli: Cli, session: str) -> list[Path]:
    projects = [place for name in (session, f"{session}.jsonl") for place in cli.profile.glob(f"projects/*/{name}")]
    extras = [cli.profile / part / session for part in EXTRAS]
    return [root for root in projects + extras if root.exists()]
