"""What may happen to a file in place, on the inode that every hard link shares, and when a keep looks at it."""

from __future__ import annotations

import os
from pathlib import Path

from keeper.transcripts.keep import Options, keep_session
from keeper.transcripts.ledger import Kept
from tests.build import jsonl
from tests.seam import Call, Deed, Hook, World, hooked, lines_of


def write_over(path: Path, data: bytes) -> None:
    """Opened with O_TRUNC and written anew, as an editor or a careless program does."""
    inode = path.stat().st_ino
    path.write_bytes(data)
    assert path.stat().st_ino == inode


def overwrite(path: Path, at: int, data: bytes) -> None:
    """Bytes in the middle (or from the end on) changed, the rest left."""
    fd = os.open(path, os.O_WRONLY)
    try:
        assert os.pwrite(fd, data, at) == len(data)
    finally:
        os.close(fd)


def cut_lines(path: Path, count: int) -> None:
    """Truncated to its first lines."""
    os.truncate(path, len(jsonl(*lines_of(path)[:count])))


def flip(path: Path, at: int, bit: int) -> None:
    """One bit rots: the file's time tells nothing of it."""
    seen = path.stat()
    (byte,) = path.read_bytes()[at : at + 1]
    overwrite(path, at, bytes([byte ^ 1 << bit]))
    os.utime(path, ns=(seen.st_mtime_ns, seen.st_mtime_ns))


def take_out(path: Path, *lines: bytes) -> None:
    """As Claude takes out an answer that it asks for anew: cut off where the record begins, the rest written again."""
    for line in lines:
        data = path.read_bytes()
        at = data.rindex(line + b"\n")
        rest = data[at + len(line) + 1 :]
        os.truncate(path, at)
        overwrite(path, at, rest)


def keep_at(here: World, now: float, options: Options | None = None) -> Kept:
    """Keep the session at a time of the test's own choice."""
    vault = here.vault()
    try:
        (answer,) = keep_session(vault, here.session, now, options, here.profile)
        return answer
    finally:
        vault.index.close()


def asked_of(run: Deed, hook: Hook) -> list[Call]:
    """The changes that a run asks for, in order, those among them that `hook` refuses: as `at_call` counts them."""
    found: list[Call] = []

    def note(call: str, paths: tuple[str, ...]) -> None:
        found.append((call, paths))
        hook(call, paths)

    with hooked(note):
        run()
    return found


def seal_of(here: World) -> Path:
    """The seal of the session's transcript."""
    return here.chat / "seal" / f"{here.session}.jsonl.seal"


def other_seal(here: World) -> Path:
    """The seal of all other files of the chat."""
    return here.chat / "seal" / "files.seal"
