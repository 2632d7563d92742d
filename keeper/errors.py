"""The tree of failures: every way in which keeper says no, with its exit code and its cure.

    KeeperError                 1   something failed; the message says what, `cure` says what to do
    ├── Usage                   2   the call's words are off (a bad option, a bad settings file)
    ├── Partial                 3   done in part: some sessions worked, some did not
    ├── NotKept                 4   nothing is kept under that name
    ├── AgentDown               5   the agent is not running
    ├── Locked                  6   another process holds the chat or the vault
    ├── VaultDamaged            7   the vault holds something that does not prove out
    ├── Refused                 8   asked for something that could lose or expose data
    ├── VaultUnavailable        1   the vault is not there (not mounted?): nothing is made anew
    ├── ChatGone                1   the chat's folder vanished while it was being written
    └── DiskError               1   a system call failed: path, volume and cure are named
        ├── NoLinks             1   the volume refuses hard links, or the other name is on another volume
        └── NoExchange          1   the volume cannot exchange two names

It promises that the exit code stands on the class, so that no caller keeps a table of its own. It refuses
transcript text: a message names files, sessions and records' ids, never what they say.
"""

from __future__ import annotations

from pathlib import Path


class KeeperError(Exception):
    """The base of all: `message` for a person, `cure` (what to do about it) where there is one."""

    exit_code = 1

    def __init__(self, message: str, cure: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.cure = cure


class Usage(KeeperError):
    """The words of the call, or of a settings file, are off."""

    exit_code = 2


class Partial(KeeperError):
    """Done in part: what failed is named in the message, the rest is done."""

    exit_code = 3


class NotKept(KeeperError):
    """Nothing is kept under that name."""

    exit_code = 4


class AgentDown(KeeperError):
    """The agent is not running."""

    exit_code = 5


class Locked(KeeperError):
    """Another process holds what is needed."""

    exit_code = 6


class VaultDamaged(KeeperError):
    """Something in the vault does not prove out."""

    exit_code = 7


class Refused(KeeperError):
    """Not done, since doing it could lose, mix or expose something."""

    exit_code = 8


class VaultUnavailable(KeeperError):
    """The vault that this machine knows is not at its place; it is never made anew over that."""


class ChatGone(KeeperError):
    """The chat's folder vanished while it was being written: somebody removed it."""


class DiskError(KeeperError):
    """A system call failed. `path` is what it was about, `volume` the mount point that it is on."""

    def __init__(self, message: str, path: Path, volume: Path, cure: str | None = None) -> None:
        super().__init__(message, cure)
        self.path = path
        self.volume = volume


class NoLinks(DiskError):
    """No hard link can be made there: another volume, a volume without links, or too many links."""


class NoExchange(DiskError):
    """The volume has no exchange of two names."""
