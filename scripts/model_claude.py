"""Claude, as the model plays it: what the CLI and its surroundings do to live files, and what each file ever had.

It promises that every line is told from every other by its bytes, that a file which was deleted under a live process
is made anew with its newest lines alone (its memory goes on), and that times are the model's own clock. It refuses to
know anything of keeper's but the names under which it keeps.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from fault_oracle import lines_of, of

from keeper.transcripts.chat import Chat
from tests.build import answer, boundary, jsonl, meta, prompt

SWEPT_AFTER_S = 30 * 86_400


@dataclass(slots=True)
class Script:
    """One transcript, and what is known of it: `memory` is the last uuid that its Claude wrote.

    `written` counts all whole lines that anybody ever wrote to it, `acked` those that a run of keeper's answered for,
    `owed` those that keeper has taken in hand and not answered for: it was killed, or a writer was not done. `free`
    were taken out by right. `gone`: Claude knows of no file. `others` are the session's live files in other projects,
    as they were when the run began.
    """

    name: str
    session: str
    live: Path
    chat: Path
    place: str
    main: bool = True
    memory: str | None = None
    gone: bool = True
    written: Counter[bytes] = field(default_factory=Counter)
    acked: dict[bytes, None] = field(default_factory=dict)
    owed: dict[bytes, None] = field(default_factory=dict)
    free: set[bytes] = field(default_factory=set)
    kept_before: list[bytes] = field(default_factory=list)
    own: list[bytes] = field(default_factory=list)
    others: dict[Path, bytes] = field(default_factory=dict)
    torn: bytes = b""
    rest: bytes = b""
    history: list[tuple[int, list[bytes]]] = field(default_factory=list)
    profile: Path | None = None

    @property
    def kept(self) -> Path:
        return self.chat / self.place

    @property
    def must(self) -> dict[bytes, None]:
        """What kept must have after a run that answers for it."""
        others = dict.fromkeys(line for data in self.others.values() for line in data.split(b"\n")[:-1])
        return {**self.acked, **self.owed, **dict.fromkeys(self.own), **others}

    @property
    def seal(self) -> Path:
        return Path(Chat(self.chat.name, str(self.chat)).seal(self.place))

    @property
    def beside(self) -> bool:
        """Whether it is a subagent's of the older layout, beside the sessions' own."""
        return not self.main and self.live.parent.parent.name == "projects"

    @property
    def elsewhere(self) -> list[Path]:
        """Its live files in other projects: one that moved unseen was put back where it had been."""
        if not self.main:
            return []
        with os.scandir(self.live.parents[1]) as folders:
            found = [Path(folder.path) / self.live.name for folder in folders]
        return [path for path in found if path != self.live and path.exists()]

    def begin(self) -> None:
        """What stands as a run begins."""
        self.own = lines_of(self.live)
        self.others = {path: path.read_bytes() for path in self.elsewhere}
        self.kept_before = lines_of(self.kept)

    def let_go(self) -> None:
        """Claude took the file away or cut it: what nobody had answered for is nobody's any more."""
        self.owed.clear()


@dataclass(slots=True)
class File:
    """A file of a session that is no transcript. `longest` is the longest version that keeper can have seen."""

    script: Script
    name: str
    history: bool
    longest: bytes = b""
    versions: list[bytes] = field(default_factory=list)

    @property
    def path(self) -> Path:
        if self.history:
            return self.script.live.parents[2] / "file-history" / self.script.session / self.name
        return self.script.live.with_suffix("") / "tool-results" / self.name

    @property
    def kept(self) -> Path:
        chat = self.script.chat
        if self.history:
            return chat / "extras" / "file-history" / self.script.session / self.name
        return chat / self.script.session / "tool-results" / self.name

    @property
    def now(self) -> bytes:
        return self.path.read_bytes() if self.path.exists() else b""

    def begin(self) -> None:
        """What stands now counts where it is longer than before. No keep looks at a history without a transcript."""
        if self.history and not self.script.live.exists():
            return
        self.longest = max(self.longest, self.now, key=len)


@dataclass(slots=True)
class Writer:
    """Another process that holds a transcript open and writes to that inode, whatever its names become. It goes on
    behind what it knew when it opened the file."""

    script: Script
    fd: int
    memory: str | None

    @property
    def data(self) -> bytes:
        return Path(f"/proc/self/fd/{self.fd}").read_bytes()

    @property
    def is_live(self) -> bool:
        """Whether the inode is the live file still."""
        live = self.script.live
        return live.exists() and os.path.samestat(live.stat(), os.fstat(self.fd))

    def write(self, claude: Claude) -> None:
        """A record behind what stands there. Where no name leads to the inode any more nobody can owe it."""
        claude.count += 1
        uuid = f"h{claude.count}"
        side = {} if self.script.main else {"isSidechain": True, "agentId": "a1"}
        tail = self.data.rpartition(b"\n")[2]
        data = (b"\n" if tail else b"") + jsonl(prompt(uuid, self.memory, session=self.script.session, **side))
        self.memory = uuid
        os.write(self.fd, data)
        whole = [line for line in (tail + data).split(b"\n") if line]
        self.script.written.update(whole)
        if not self.is_live:
            # What has no uuid is told by its place alone, and this file has another place for it now.
            self.script.written.update(line for line in self.data.split(b"\n") if not of(line).get("uuid"))
            if os.fstat(self.fd).st_nlink:
                self.script.owed.update(dict.fromkeys(whole))


@dataclass(slots=True)
class Claude:
    """All Claudes of the model: their clock, and the lines that they write."""

    now_ns: int
    newest_ns: int = 0
    newest: bool = True
    count: int = 0

    def tick(self) -> None:
        self.now_ns += 1_000_000_000
        self.newest = self.now_ns > self.newest_ns
        self.newest_ns = max(self.newest_ns, self.now_ns)

    def turns(self, script: Script, number: int) -> list[bytes]:
        """So many records behind what this Claude remembers: prompt, answer, tool use, result; then `last-prompt`."""
        lines = []
        for _ in range(number):
            self.count += 1
            uuid = f"r{self.count}"
            side = {} if script.main else {"isSidechain": True, "agentId": "a1"}
            make = answer if self.count % 2 else prompt
            lines.append(make(uuid, script.memory, session=script.session, **side))
            script.memory = uuid
        if script.main:
            lines.append(meta("last-prompt", leafUuid=script.memory, lastPrompt=f"p{self.count}"))
        return lines

    def header(self, script: Script) -> list[bytes]:
        """Records without uuid, as a resumed CLI writes them first."""
        self.count += 1
        told = {"mode": {"mode": f"m{self.count}"}, "custom-title": {"customTitle": f"t{self.count}"}}
        return [meta(type, **fields, sessionId=script.session) for type, fields in told.items()]

    # ------------------------------------------------------------------ writing

    def append(self, script: Script, lines: Iterable[bytes], torn: bytes = b"", glue: bool = False) -> None:
        """One batch: open by path, write, close. Behind a torn line an old CLI glues, a new one ends it first."""
        script.live.parent.mkdir(parents=True, exist_ok=True)
        before = script.live.read_bytes() if script.live.exists() else b""
        tail = before.rpartition(b"\n")[2]
        data = jsonl(*lines) + torn
        if tail and data and not glue:
            data = b"\n" + data
        with script.live.open("ab") as stream:
            stream.write(data)
        self.stamp(script.live)
        whole = (tail + data).split(b"\n")
        script.written.update(line for line in whole[:-1] if line)
        script.torn, script.gone = whole[-1], False

    def stamp(self, path: Path) -> None:
        os.utime(path, ns=(self.now_ns, self.now_ns))

    def recreate(self, script: Script, lines: Iterable[bytes], torn: bytes = b"") -> None:
        """Deleted and made anew, on another inode."""
        script.live.unlink(missing_ok=True)
        script.let_go()
        self.append(script, lines, torn)

    def rewrite(self, script: Script, data: bytes) -> None:
        """In place: the inode stays, and a link to it sees the same."""
        script.live.write_bytes(data)
        script.let_go()
        whole = data.split(b"\n")
        script.written.update(line for line in whole[:-1] if line)
        script.torn = whole[-1]
        self.stamp(script.live)

    def write_file(self, file: File, data: bytes) -> None:
        """On an inode of its own, its folders made where missing."""
        file.path.parent.mkdir(parents=True, exist_ok=True)
        file.path.unlink(missing_ok=True)
        file.path.write_bytes(data)
        file.versions.append(data)
        self.stamp(file.path)
        self.stamp(file.path.parent)

    def delete(self, script: Script) -> None:
        script.live.unlink(missing_ok=True)
        script.let_go()
        script.gone, script.torn = True, b""

    def branch(self, script: Script, at: int) -> list[bytes]:
        """The first lines, and a new turn on the last record among them."""
        lines = lines_of(script.live)
        cut = lines[: 1 + at % len(lines)] if lines else []
        script.memory = next((str(uuid) for line in reversed(cut) if (uuid := of(line).get("uuid"))), None)
        return [*cut, *self.turns(script, 2)]

    def compacted(self, script: Script) -> list[bytes]:
        """What Claude's own trimming leaves: a boundary, and what follows."""
        self.count += 1
        line = boundary(f"b{self.count}", script.memory, script.session)
        script.memory = f"b{self.count}"
        return [line, *self.turns(script, 2)]

    def without_answer(self, script: Script) -> tuple[bytes, list[bytes]] | None:
        """The last answer that nothing hangs on, and the lines without it; None where there is none."""
        lines = lines_of(script.live)
        parents = {of(line).get("parentUuid") for line in lines}
        for line in reversed(lines):
            fields = of(line)
            if fields.get("type") == "assistant" and fields.get("uuid") not in parents:
                return line, [one for one in lines if one != line]
        return None

    # ------------------------------------------------------------------ the sweep

    def old(self, path: Path) -> bool:
        return path.stat().st_mtime_ns < self.now_ns - SWEPT_AFTER_S * 1_000_000_000
