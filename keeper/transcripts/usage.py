"""Usage: what each chat takes of the volume, and what of it Claude has no more.

It promises that bytes which a link shares with a file outside the chat are told apart from those that removing the chat
would free (POLICY-5). It refuses to read more of a transcript than its end.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from keeper import claude, files
from keeper.claude import Footprint
from keeper.errors import KeeperError
from keeper.transcripts.activity import last_activity
from keeper.transcripts.audit import OWN
from keeper.transcripts.chat import Chat
from keeper.transcripts.exclude import is_sole
from keeper.transcripts.head import owned_agents
from keeper.transcripts.index import Row
from keeper.transcripts.mirror import parts
from keeper.transcripts.vault import Vault

Count = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Usage:
    """One chat; sizes in bytes. `sole`: kept files that Claude has no more; `shared`: files that have a name outside
    the chat as well; `seal`: the sealed copies; `aside`: older versions and fragments, what is in flight, `chat.json`;
    `frees`: what is gone with the chat. `lacking` tells that Claude has no live transcript of it, or one with less;
    `last` is its last activity in unix seconds (0: nothing of it can be read)."""

    chat: str
    profile: str
    sessions: tuple[str, ...]
    cwd: str
    last: float
    lacking: bool
    sole: int
    shared: int
    seal: int
    aside: int
    frees: int


def usage(vault: Vault, now: float, progress: Count | None = None) -> list[Usage]:
    """Every kept chat, the one with most that Claude has no more first."""
    chats: dict[str, list[Row]] = {}
    for row in vault.rows():
        chats.setdefault(row.chat, []).append(row)
    living: dict[str, dict[str, Footprint]] = {}
    found = []
    for count, (name, rows) in enumerate(chats.items()):
        profile = rows[0].profile
        if profile not in living:
            living[profile] = _living(Path(profile))
        one = _of(vault, vault.chat(name), rows, living[profile], now)
        if one is not None:
            found.append(one)
        if progress is not None:
            progress(count + 1, len(chats))
    return sorted(found, key=lambda one: (-one.sole, -one.frees, one.chat))


def _living(profile: Path) -> dict[str, Footprint]:
    survey = claude.survey(profile)
    for session, paths in owned_agents(survey.agents).items():
        survey.footprints.setdefault(session, Footprint(session)).beside += paths
    return survey.footprints


def _of(vault: Vault, chat: Chat, rows: list[Row], living: dict[str, Footprint], now: float) -> Usage | None:
    lives = dict(_lives(living.get(row.session, Footprint(row.session)) for row in rows))
    inodes: dict[tuple[int, int], tuple[int, int, int]] = {}
    sums = dict.fromkeys(("sole", "seal", "aside"), 0)
    errors: list[KeeperError] = []
    for path, label in files.walk(chat.path, "", errors):
        try:
            seen = os.lstat(path)
        except FileNotFoundError:
            continue
        key = (seen.st_dev, seen.st_ino)
        names = inodes.get(key, (0, 0, 0))[0]
        inodes[key] = names + 1, seen.st_nlink, seen.st_size
        if names:
            continue
        kind = _kind(label.removeprefix("/"))
        if kind:
            sums[kind] += seen.st_size
        elif not _is_live(label.removeprefix("/"), lives, seen.st_nlink):
            sums["sole"] += seen.st_size
    if not inodes:
        return None
    last = max((last_activity(chat.kept(row.session), now) for row in rows), default=0.0)
    return Usage(
        chat.name, rows[0].profile, tuple(row.session for row in rows), rows[0].cwd, last,
        any(is_sole(vault, row) for row in rows),
        shared=sum(size for names, links, size in inodes.values() if links > names),
        frees=sum(size for names, links, size in inodes.values() if links <= names),
        **sums,
    )  # fmt: skip


def _kind(label: str) -> str:
    """Which of keeper's own files it is, "" where it is one that Claude had."""
    top = label.split("/")[0]
    if top == "seal":
        return "seal"
    return "aside" if top in OWN or label == "chat.json" or os.path.basename(label).startswith(".") else ""


def _lives(footprints: Iterable[Footprint]) -> Iterable[tuple[str, str]]:
    for footprint in footprints:
        for path in footprint.transcripts[:1]:
            yield f"{footprint.session}.jsonl", str(path)
        for part in parts(footprint):
            yield part.label, part.live


def _is_live(label: str, lives: dict[str, str], links: int) -> bool:
    """Whether what is kept under that label lives too: itself, or below a folder that does. Of a second link to a live
    file its inode tells."""
    if "/" not in label and ".live" in label:
        return links > 1
    parent, below = label, ""
    while parent:
        if parent in lives:
            return os.path.lexists(f"{lives[parent]}{below}")
        parent, _, name = parent.rpartition("/")
        below = f"/{name}{below}"
    return False
