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
from keeper.files import regular
from keeper.transcripts.activity import last_activity, last_record
from keeper.transcripts.audit import OWN
from keeper.transcripts.chat import Chat
from keeper.transcripts.head import owned_agents
from keeper.transcripts.index import Row
from keeper.transcripts.mirror import parts
from keeper.transcripts.sole import has_all, is_sole
from keeper.transcripts.vault import Vault

Count = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Usage:
    """One chat; sizes in bytes. `sole`: kept files that Claude has no more, or (but for the chat's own transcripts)
    less of; `shared`: files that have a name outside the chat as well; `seal`: the sealed copies; `aside`: older
    versions and fragments, what is in flight, `chat.json`; `frees`: what is gone with the chat. `lacking` tells that
    Claude has no live transcript of it, or one with less; `last` is its last activity in unix seconds (0: nothing of
    it can be read)."""

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
    living, found = Living(vault), []
    for count, (name, rows) in enumerate(chats.items()):
        one = usage_of(vault, name, rows, living, now)
        if one is not None:
            found.append(one)
        if progress is not None:
            progress(count + 1, len(chats))
    return sorted(found, key=lambda one: (-one.sole, -one.frees, one.chat))


class Living:
    """What lives, by profile, as it was found when it was first asked for."""

    def __init__(self, vault: Vault) -> None:
        self._profiles = vault.settings.profiles
        self._found: dict[str, dict[str, Footprint]] = {}

    def of(self, row: Row) -> Footprint:
        """All that its profile holds of a session, or the first that has it where no row tells whose it is."""
        for profile in [row.profile] if row.profile else map(str, self._profiles):
            if profile not in self._found:
                self._found[profile] = _living(Path(profile))
            if row.session in self._found[profile]:
                return self._found[profile][row.session]
        return Footprint(row.session)


def _living(profile: Path) -> dict[str, Footprint]:
    survey = claude.survey(profile)
    for session, paths in owned_agents(survey.agents).items():
        survey.footprints.setdefault(session, Footprint(session)).beside += paths
    return survey.footprints


def usage_of(
    vault: Vault, name: str, rows: list[Row], living: Living, now: float, whole: bool = False
) -> Usage | None:  # fmt: skip
    """One chat of these rows; None where nothing is there. With `whole` transcripts are compared to their ends."""
    chat, footprints = vault.chat(name), [living.of(row) for row in rows]
    lives = dict(_lives(footprints))
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
        elif not _is_live(chat, label.removeprefix("/"), lives, seen):
            sums["sole"] += seen.st_size
    if not inodes:
        return None
    return Usage(
        chat.name, rows[0].profile, tuple(row.session for row in rows), rows[0].cwd,
        max((last_used(chat, *of, now) for of in zip(rows, footprints, strict=True)), default=0.0),
        any(is_sole(vault, row, whole) for row in rows),
        shared=sum(size for names, links, size in inodes.values() if links > names),
        frees=sum(size for names, links, size in inodes.values() if links <= names),
        **sums,
    )  # fmt: skip


def last_used(chat: Chat, row: Row, footprint: Footprint, now: float) -> float:
    """The last activity of a session, by what is kept and by what lives: a recreated file is not yet in the vault."""
    kept = chat.kept(row.session)
    seen = [kept, *(path for path in map(str, footprint.transcripts) if not _one_file(kept, path))]
    return max(last_record(path, now) for path in seen) or last_activity(kept, now)


def _one_file(one: str, other: str) -> bool:
    try:
        return os.path.samestat(os.lstat(one), os.lstat(other))
    except OSError:
        return False


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


def _is_live(chat: Chat, label: str, lives: dict[str, str], kept: os.stat_result) -> bool:
    """Whether what is kept under that label lives too, itself or below a folder that does; of what is no transcript of
    the chat's own, whether no less of it does. Of a second link to a live file its inode tells."""
    if "/" not in label and ".live" in label:
        return kept.st_nlink > 1
    parent, below = label, ""
    while parent:
        if parent in lives:
            live = f"{lives[parent]}{below}"
            seen = regular(live)
            if "/" in label and label.endswith(".jsonl"):
                return has_all(live, f"{chat.path}/{label}", chat.seal(label), False)
            return seen is not None and (seen.st_size >= kept.st_size or "/" not in label)
        parent, _, name = parent.rpartition("/")
        below = f"/{name}{below}"
    return False
