"""Audit: proves a chat's kept files and its seals against each other, to the last byte, and repairs what it may.

It promises that one flipped bit in a kept file or a seal is told with its file and record (SEAL-4). An audit reads
only; `repair` builds a damaged file again from its seal, and a damaged seal from its file, under the chat's lock. It
refuses to decide where neither proves out: then both stay, and it is told again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from keeper import files
from keeper.errors import KeeperError
from keeper.files import regular
from keeper.transcripts import pair, prove, seal
from keeper.transcripts.chat import Chat
from keeper.transcripts.frame import Bad
from keeper.transcripts.kept import Change
from keeper.transcripts.mirror import Mirror
from keeper.transcripts.records import uuid_of
from keeper.transcripts.seal import Sealed
from keeper.transcripts.vault import Vault
from keeper.transcripts.verdict import Verdict, judge_sealed
from keeper.transcripts.versions import Version, digest_of, proven, told_by

SEALS = "the next keep of it seals it, or, where it is swept, of all: `keeper keep`"
CUTS = "the next keep of it cuts it off, or, where it is swept, of all: `keeper keep`"
OWN = ("seal", "aside", "swap")
"""The folders of a chat that hold no kept files."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that an audit tells. `proven`: it is damage; else it only waits for the next keep."""

    file: str
    record: str
    kind: str
    proven: bool


def kept_labels(chat: Chat) -> list[str]:
    """The labels of all kept files of a chat."""
    errors: list[KeeperError] = []
    found = []
    for _, label in files.walk(chat.path, "", errors):
        label = label.removeprefix("/")
        own = label == "chat.json" or ((label.endswith(".live") or ".live-" in label) and "/" not in label)
        if label.split("/")[0] not in OWN and not own and not os.path.basename(label).startswith("."):
            found.append(label)
    return found


def sealed_labels(chat: Chat) -> list[str]:
    """The labels of all transcripts that have a seal, whether or not they stand there."""
    try:
        names = sorted(os.listdir(chat.seals))
    except FileNotFoundError:
        return []
    paths = [f"{chat.seals}/{name}" for name in names if name.endswith(".jsonl.seal") or ".jsonl." in name]
    plain = [os.fsdecode(unquote_to_bytes(os.path.basename(path).removesuffix(".seal"))) for path in paths]
    found = [(path, seal.label_of(path) or name) for path, name in zip(paths, plain, strict=True)]
    return [label for path, label in found if label and chat.seal(label) == path]


def audit(chat: Chat) -> Iterator[Finding]:
    """What does not prove out, or is not sealed yet."""
    labels = kept_labels(chat)
    for label in dict.fromkeys([*labels, *sealed_labels(chat)]):
        if label.endswith(".jsonl"):
            yield from _transcript(chat, label)
    yield from _others(chat, {label for label in labels if not label.endswith(".jsonl")})


def _transcript(chat: Chat, label: str) -> Iterator[Finding]:
    sealed = seal.read(chat.seal(label))
    own = os.path.relpath(chat.seal(label), chat.path)
    if any(bad.kind == "torn" for bad in sealed.bad):
        yield Finding(own, "", f"an unfinished frame at its end: {CUTS}", False)
    damaged = [bad for bad in sealed.bad if bad.kind != "torn"]
    if damaged:
        more = f", and {len(damaged) - 1} places more" if len(damaged) > 1 else ""
        cure = "`keeper verify --repair` seals the kept file anew"
        kind = f"the seal is damaged at byte {damaged[0].at}, {damaged[0].kind}{more}: {cure}"
        yield Finding(own, _first_hole(sealed), kind, True)
    try:
        kept = files.read(f"{chat.path}/{label}")
    except FileNotFoundError:
        cure = "`keeper verify --repair` brings it back from its seal"
        yield Finding(label, "", f"the kept transcript is missing: {cure}", True)
        return
    whole = kept.rfind(b"\n") + 1
    if sealed.last is None:
        if whole:
            yield Finding(label, "", f"not sealed yet: {SEALS}", False)
        return
    if sealed.holes is None and kept.startswith(bytes(sealed.content)):
        if whole > len(sealed.content):
            yield Finding(label, "", f"{whole - len(sealed.content)} bytes not sealed yet: {SEALS}", False)
        return
    known = sealed.whole_lines()
    found = judge_sealed(known, kept, "/" not in label)
    if found.verdict is Verdict.DAMAGED:
        restore = "" if "/" in label else f"`keeper restore {label[:-6]}` or "
        cure = f"{restore}`keeper verify --repair` brings them back from the seal"
        kind = f"{found.lacks} sealed records are gone or changed: {cure}"
        yield Finding(label, _first_gone(known, kept), kind, True)
    elif found.verdict is Verdict.TOMBSTONED:
        yield Finding(label, "", f"Claude took {found.lacks} records out in place: {SEALS}", False)
    elif sealed.holes is None:
        yield Finding(label, "", f"folded and not sealed yet: {SEALS}", False)


def _first_hole(sealed: Sealed) -> str:
    if sealed.holes is None:  # the frames from there on are not to be read
        return f"line {sealed.content.count(10) + 1}"
    return f"line {sealed.content.count(10, 0, sealed.holes.index(1)) + 1}"


def _first_gone(sealed: bytes, kept: bytes) -> str:
    """The first sealed record that kept has not: its uuid, or the number of its line."""
    have = iter(kept.split(b"\n"))
    for number, line in enumerate(sealed.split(b"\n")[:-1], 1):
        if line not in have:
            return uuid_of(line) or f"line {number}"
    return ""


def _others(chat: Chat, labels: set[str]) -> Iterator[Finding]:
    own = os.path.relpath(chat.versions, chat.path)
    latest: dict[str, Version] = {}
    stamps: set[int] = set()
    for at, found, _, named in proven(chat.versions):
        if isinstance(found, Bad):
            if found.kind == "torn":
                yield Finding(own, "", f"an unfinished frame at its end: {CUTS}", False)
            else:
                cure = "`keeper verify --repair` seals the kept files anew"
                yield Finding(own, named, f"the seal is damaged at byte {at}, {found.kind}: {cure}", True)
            continue
        about = told_by(at, found)
        if about.version is not None:
            latest[about.label] = about.version
        elif about.stamp:
            stamps.add(about.stamp)
    for label, version in latest.items():
        yield from _other(chat, label, version, stamps)
    for label in sorted(labels - latest.keys()):
        yield Finding(label, "", f"not sealed yet: {SEALS}", False)


def _other(chat: Chat, label: str, version: Version, stamps: set[int]) -> Iterator[Finding]:
    cure = "`keeper verify --repair` brings it back from the seal"
    path = f"{chat.path}/{label}"
    seen = regular(path)
    if seen is None:
        yield Finding(label, "", f"the kept file is missing: {cure}", True)
        return
    fd = files.open_read(path)
    try:
        digest, size = digest_of(fd, path)
    finally:
        os.close(fd)
    if digest == version.digest:
        return
    if size < version.size:
        yield Finding(label, "", f"cut short in place, {version.size} bytes were sealed: {cure}", True)
    elif size == version.size and seen.st_mtime_ns in (version.mtime_ns, *stamps):
        yield Finding(label, "", f"not what was sealed, though its time is: {cure}", True)
    else:
        yield Finding(label, "", f"another version than was sealed: {SEALS}", False)


def repair(vault: Vault, name: str, now: float) -> None:
    """Build what is damaged in a chat again: a kept file from its seal, a seal from its kept file. What the damaged
    file had of its own is merged by the next keep."""
    chat = vault.chat(name)
    with vault.lock(name):
        mirror = Mirror(vault, chat, now, thorough=True)
        mirror.seals.renew()
        for label in dict.fromkeys([*kept_labels(chat), *sealed_labels(chat), *mirror.seals.versions.latest]):
            if label.endswith(".jsonl"):
                mirror.folders(label)
                mirror.seals.transcript(label, _prove(vault, mirror, label))
            else:
                mirror.prove_other(label)
        mirror.seals.flush()


def _prove(vault: Vault, mirror: Mirror, label: str) -> Change:
    """Build a kept transcript again where it is damaged; where live is the very inode it is healed too."""
    main = "/" not in label
    for live in _lives(vault, mirror.chat, label):
        if os.path.samefile(live, f"{mirror.chat.path}/{label}"):
            outcome = pair.keep(mirror.pair(live, label, main), pair.Known(), mirror.left_of(label))
            return outcome.change
    prove.prove(mirror.pair("", label, main))
    return Change.JOINED


def _lives(vault: Vault, chat: Chat, label: str) -> list[str]:
    """Where the transcript with this label lives, as far as `chat.json` tells; none where it is swept or not kept."""
    facts = vault.facts(chat)
    if facts is None or regular(f"{chat.path}/{label}") is None:
        return []
    paths = [f"{facts.profile}/projects/{told.project}/{label}" for told in facts.sessions.values()]
    return [path for path in dict.fromkeys(paths) if regular(path) is not None]
