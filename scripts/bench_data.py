"""Makes the input of `bench.py` (transcripts and profiles as Claude Code writes them), and tells what a run changed.

It promises the same bytes for the same seed, records of 1 to 3 KB, and folders and modes as Claude Code makes them.
"""

import os
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson

PROJECTS = 20
FIXTURES = Path(__file__).resolve().parent.parent / "fixtures" / "claude"
WORDS = (
    "the a of to in is it that for on with as be this was not are by from at or we if so when then there here "
    "build test file line path error value return import def class self none true false round sum total list "
    "cart refund invoice voucher worker queue retry timeout socket stream buffer index table column row merge "
    "record session transcript keeper vault link inode volume folder lock stamp verdict swap seal agent hook"
).split()


class Scribe:
    """Writes records. Its text is cut from one pool, so that making it costs little and it still compresses as text."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        words = self.random.choices(WORDS, k=200_000)
        self.pool = " ".join(
            word + self.random.choice(("", "", "", "", ".", ",", "()", "\n", ' "x"')) for word in words
        )

    def uuid(self) -> str:
        """A version 4 uuid."""
        bits = f"{self.random.getrandbits(128):032x}"
        return f"{bits[:8]}-{bits[8:12]}-4{bits[13:16]}-a{bits[17:20]}-{bits[20:]}"

    def text(self, size: int) -> str:
        """About so many characters."""
        start = self.random.randrange(len(self.pool) - size)
        return self.pool[start : start + size]

    def records(self, session: str, cwd: str) -> Iterator[bytes]:
        """The lines of a transcript, without end: prompt, tool call, tool result, answer; each hangs on the last."""
        parent = None
        turn = 0
        while True:
            for kind in ("prompt", "call", "result", "answer"):
                uuid = self.uuid()
                yield self.record(session, cwd, kind, parent, uuid, turn)
                parent = uuid
                turn += 1

    def record(self, session: str, cwd: str, kind: str, parent: str | None, uuid: str, turn: int) -> bytes:
        """One record of 1 to 3 KB."""
        text = self.text(self.random.randint(600, 2500))
        content: object = text
        if kind == "call":
            call = {"command": text[:500], "description": text[500:]}
            content = [{"type": "tool_use", "id": f"toolu_{uuid[:8]}", "name": "Bash", "input": call}]
        elif kind == "result":
            content = [{"tool_use_id": f"toolu_{uuid[:8]}", "type": "tool_result", "content": text}]
        elif kind == "answer":
            content = [{"type": "text", "text": text}]
        role = "user" if kind in ("prompt", "result") else "assistant"
        line = {
            "parentUuid": parent, "isSidechain": False, "userType": "external", "cwd": cwd, "sessionId": session,
            "version": "2.1.328", "gitBranch": "main", "type": role, "message": {"role": role, "content": content},
            "uuid": uuid, "timestamp": f"2026-03-{1 + turn % 28:02}T{turn // 3600 % 24:02}:{turn // 60 % 60:02}:"
            f"{turn % 60:02}.{self.random.randrange(1000):03}Z",
        }  # fmt: skip
        return orjson.dumps(line) + b"\n"

    def transcript(self, session: str, cwd: str, size: int) -> bytes:
        """Whole records, about `size` bytes of them, at least one."""
        lines = []
        for line in self.records(session, cwd):
            lines.append(line)
            size -= len(line)
            if size <= 0:
                return b"".join(lines)
        raise AssertionError  # records() has no end


def sharing_half(seed: int, size: int) -> tuple[bytes, bytes]:
    """Two transcripts of `size` bytes each of which half is in both: runs of shared and of own records in turn."""
    scribe = Scribe(seed)
    session = scribe.uuid()
    kept: list[bytes] = []
    live: list[bytes] = []
    counts = [0, 0]
    records = scribe.records(session, "/home/ada/shop")
    while min(counts) < size:
        for sides in ((kept, live), (kept,), (live,)):
            for _ in range(scribe.random.randint(2, 20)):
                line = next(records)
                for side in sides:
                    side.append(line)
                    counts[side is live] += len(line)
    return b"".join(kept), b"".join(live)


def without_uuid(count: int) -> tuple[bytes, bytes]:
    """Two files of `count` lines that carry no uuid; every second line is in both, in order."""
    shared = [b'{"type":"progress","step":%d,"message":"still at it"}\n' % number for number in range(count)]
    kept = [shared[n] if n % 2 else b'{"type":"progress","kept":%d}\n' % n for n in range(count)]
    live = [shared[n] if n % 2 else b'{"type":"progress","live":%d}\n' % n for n in range(count)]
    return b"".join(kept), b"".join(live)


def all_alike(count: int) -> tuple[bytes, bytes]:
    """The worst of lines without a uuid: one and the same `count` times, behind a record that is each file's own."""
    line = b'{"type":"progress","message":"still at it"}\n'
    first = b'{"type":"user","uuid":"%s"}\n'
    return first % b"kept" + line * count, first % b"live" + line * count


def opposite(count: int) -> tuple[bytes, bytes]:
    """Two files of the same `count` records with uuids, the one in the other's opposite order."""
    lines = [b'{"type":"user","uuid":"%08d-0000-4000-a000-000000000000","message":"x"}\n' % n for n in range(count)]
    return b"".join(lines), b"".join(reversed(lines))


SHAPES = {"without a uuid": without_uuid, "all alike": all_alike, "in opposite order": opposite}


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile of Claude Code on the disk. `bytes` and `files` count all of it."""

    path: Path
    sessions: tuple[str, ...]
    bytes: int
    files: int

    @property
    def projects(self) -> Path:
        return self.path / "projects"

    def transcript(self, number: int) -> Path:
        """Where the transcript of the numbered session lives."""
        return self.projects / project_name(number) / f"{self.sessions[number]}.jsonl"

    def rewrite(self, number: int, size: int) -> Path:
        """Gives the numbered session another transcript, of about so many bytes; returns where it lies."""
        path = self.transcript(number)
        path.write_bytes(Scribe(size).transcript(path.stem, cwd(number), size))
        return path

    def sweep(self, away: Path) -> None:
        """Takes all that Claude Code's clean-up takes, out of the way, where it waits for its removal."""
        self.projects.rename(away)


def cwd(number: int) -> str:
    """Where the numbered session is held."""
    return f"/home/ada/p{number % PROJECTS}"


def project_name(number: int) -> str:
    return cwd(number).replace("/", "-")


def profile(path: Path, chats: int, size: int, companions: bool, seed: int = 7) -> Profile:
    """A profile of so many chats, `size` bytes in all: most small, a few large, as they are where Claude Code is used.

    With `companions` each has a folder of two or three files (a tool result, a subagent with its meta file), which
    take a fifth of the bytes.
    """
    scribe = Scribe(seed)
    shares = [scribe.random.paretovariate(1.3) for _ in range(chats)]
    scale = size * (0.8 if companions else 1.0) / sum(shares)
    sessions = []
    total = files = 0
    for number, share in enumerate(shares):
        session = scribe.uuid()
        sessions.append(session)
        project = path / "projects" / project_name(number)
        project.mkdir(parents=True, exist_ok=True)
        found = {project / f"{session}.jsonl": scribe.transcript(session, cwd(number), round(share * scale))}
        if companions:
            found |= companion(scribe, project / session, session, cwd(number), size // 5 // chats, number % 2 == 0)
        for name, data in found.items():
            write(name, data)
            total += len(data)
        files += len(found)
    return Profile(path, tuple(sessions), total, files)


def companion(scribe: Scribe, folder: Path, session: str, cwd: str, size: int, third: bool) -> dict[Path, bytes]:
    """What Claude Code leaves beside a transcript: path and bytes of two files, or of three."""
    agent = f"agent-a{scribe.uuid()[:8]}"
    found = {
        folder / "tool-results" / f"b{scribe.uuid()[:8]}.txt": scribe.text(size // 2).encode(),
        folder / "subagents" / f"{agent}.jsonl": scribe.transcript(session, cwd, size // 2),
    }
    if third:
        found[folder / "subagents" / f"{agent}.meta.json"] = b'{"agentType":"general-purpose"}'
    return found


def write(name: Path, data: bytes) -> None:
    name.parent.mkdir(parents=True, exist_ok=True)
    with open(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
        stream.write(data)


def append_turn(transcript: Path) -> None:
    """What Claude Code does at the end of a turn: one write of about 8 kB at the file's end."""
    scribe = Scribe(transcript.stat().st_size)
    lines = scribe.transcript(transcript.stem, transcript.parent.name.replace("-", "/"), 8000)
    with open(transcript, "ab", buffering=0) as stream:
        stream.write(lines)


def cut_back(transcript: Path) -> None:
    """The live file, written anew without its last record: what mode split comes from."""
    whole = transcript.read_bytes()
    transcript.unlink()
    write(transcript, whole[: whole.rfind(b"\n", 0, -1) + 1])


# ---------------------------------------------------------------------- what a run changed

CHANGES = re.compile(
    r"(?:f?(?:truncate|chmod|chown|setxattr|removexattr)|fallocate|fchmodat2?|fchownat|lchown|lsetxattr|link(?:at)?"
    r"|unlink(?:at)?|rename(?:at2?)?|mkdir(?:at)?|rmdir|symlink(?:at)?|mknod(?:at)?|utimensat|p?writev?(?:64)?"
    r"|copy_file_range|sendfile)\("
)
TRACED = "%file,write,pwrite64,writev,pwritev,ftruncate,fchmod,fchown,fallocate,fsetxattr,copy_file_range,sendfile"
OPENS = re.compile(r"(?:openat2?|open|creat)\(.*(?:O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_APPEND)")


def changes(trace: str, profile: Path, vault: Path) -> dict[str, int]:
    """The calls of an strace (with -y) that change, or open for changing, what lies in either folder, by its part.

    A call that failed changed nothing.
    """
    found = dict.fromkeys(("kept", "live", "seals", "index", "elsewhere in the vault", "locks"), 0)
    places = {
        f"{vault}/chats": "kept", f"{vault}/seals": "seals", f"{vault}/state.db": "index", f"{vault}/locks": "locks",
        f"{vault}": "elsewhere in the vault", f"{profile}": "live",
    }  # fmt: skip
    for line in trace.splitlines():
        call = line.partition(" ")[2].lstrip()
        if (CHANGES.match(call) or OPENS.match(call)) and " = -1 E" not in call:
            part = next((part for place, part in places.items() if place in call), None)
            if part is not None:
                found[part] += 1
    return found


def snapshot(folder: Path) -> dict[str, tuple[int, ...]]:
    """Every name below the folder with what a change would show in. Lock files, which are opened, count like all."""
    found = {}
    for place, folders, names in os.walk(folder):
        for name in [*folders, *names, "."]:
            seen = os.lstat(f"{place}/{name}")
            found[f"{place}/{name}"] = (
                seen.st_ino,
                seen.st_nlink,
                seen.st_mode,
                seen.st_size,
                seen.st_mtime_ns,
                seen.st_ctime_ns,
            )
    return found
