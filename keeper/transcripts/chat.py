"""Chat: one conversation's folder in the vault: the names in it, and what its `chat.json` tells.

It promises that every path into a chat's folder is made here. It refuses to touch the disk but to list the folder.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace

import orjson
from blake3 import blake3

from keeper.claude import is_session
from keeper.transcripts.held import label_name


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """What a chat's `chat.json` tells of one of its sessions. `born` is unix seconds of its first file,
    `gaps` the parents that its records name and no file holds; `damaged` is when records were last found cut from the
    live file in place (0: never), `lost` how many that were; `entrypoint` is how its Claude was started, `deleted` when
    its live file was found deleted by other hands than a sweep's (0: never; a later time of kept makes it void)."""

    project: str
    cwd: str
    mode: str
    born: float = 0.0
    head: str = ""
    forked_from: str | None = None
    cleared_from: str | None = None
    continues: str | None = None
    gaps: tuple[str, ...] = ()
    damaged: float = 0.0
    lost: int = 0
    entrypoint: str = ""
    deleted: float = 0.0


@dataclass(frozen=True, slots=True)
class Facts:
    """A chat's `chat.json`: whose it is, its sessions with their lineage, its policy ("" where none was said) and the
    host's tags."""

    chat: str
    profile: str
    policy: str = ""
    tags: tuple[str, ...] = ()
    sessions: dict[str, SessionFacts] = field(default_factory=dict)

    def with_session(self, session: str, facts: SessionFacts) -> Facts:
        """The same with this session's facts put in."""
        return replace(self, sessions={**self.sessions, session: facts})


@dataclass(frozen=True, slots=True)
class Chat:
    """The folder of one conversation in the vault, and the names in it."""

    name: str
    path: str

    def kept(self, session: str) -> str:
        """The kept transcript."""
        return f"{self.path}/{session}.jsonl"

    def live_link(self, label: str) -> str:
        """Mode split: the second link to the live inode of the file kept under this label (its path in the chat)."""
        return f"{self.path}/{label_name(label.removesuffix('.jsonl'))}.live"

    def names(self) -> list[str]:
        """What stands in the folder; nothing where it is gone."""
        try:
            return sorted(os.listdir(self.path))
        except FileNotFoundError:
            return []

    def sessions(self) -> list[str]:
        """The sessions whose kept transcripts stand in the folder."""
        return [name[:-6] for name in self.names() if name.endswith(".jsonl") and is_session(name[:-6])]

    @property
    def facts_file(self) -> str:
        """`chat.json`."""
        return f"{self.path}/chat.json"

    @property
    def facts_begun(self) -> str:
        """A `chat.json` that is being written; one that stays a killed run began (`disk.write_file`)."""
        return f"{self.path}/.chat.json.tmp"

    @property
    def swap(self) -> str:
        """Inodes that are looked at or in flight; every one has a name here until its lines are safe."""
        return f"{self.path}/swap"

    @property
    def seals(self) -> str:
        """The sealed copies."""
        return f"{self.path}/seal"

    def seal(self, label: str) -> str:
        """The seal of the transcript that is kept under this label."""
        return f"{self.seals}/{label_name(label)}.seal"

    @property
    def versions(self) -> str:
        """The seal of all other kept files."""
        return f"{self.seals}/files.seal"

    @property
    def aside(self) -> str:
        """Torn fragments, older versions, variants: nothing is thrown away."""
        return f"{self.path}/aside"


def marked(name: str, profile: str) -> str:
    """A chat's name with its profile's mark: another profile has a chat of the plain one."""
    return f"{name}@{blake3(profile.encode()).hexdigest(4)}"


def written(facts: Facts) -> bytes:
    """A `chat.json` as it stands on the disk."""
    table = {
        "schema": 1,
        "chat": facts.chat,
        "profile": facts.profile,
        "policy": facts.policy,
        "tags": list(facts.tags),
        "sessions": facts.sessions,  # orjson writes dataclasses as objects
    }
    return orjson.dumps(table, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def told(name: str, data: bytes) -> Facts | None:
    """What a `chat.json` tells of the chat of that name; None where it does not read."""
    try:
        table = orjson.loads(data)
        sessions = {
            str(key): SessionFacts(**{**value, "gaps": tuple(value.get("gaps", ()))})
            for key, value in table["sessions"].items()
            if is_session(key)
        }
        return Facts(name, str(table["profile"]), str(table["policy"]), tuple(map(str, table["tags"])), sessions)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
