"""What happens on the disk of `powercut.py` until the power goes: a Claude that writes chats and ill-treats them, and
keeper, which is asked to keep, restore and forget them.

Each answer of keeper's is turned into demands (`Demand`): the lines and files that must be there from now on, and
each is marked in the recording. What Claude does syncs nothing; a demand on a live file ends before Claude touches it.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID

from keeper.settings import Settings
from keeper.transcripts.accept import accept
from keeper.transcripts.audit import repair
from keeper.transcripts.branch import up_to, write_copy
from keeper.transcripts.forget import forget
from keeper.transcripts.keep import Keeper, Options
from keeper.transcripts.ledger import Kept
from keeper.transcripts.mass import restore_all
from keeper.transcripts.records import read
from keeper.transcripts.restore import Restored, Restorer, Want
from keeper.transcripts.vault import Vault
from keeper.transcripts.verify import verify
from tests.build import append, jsonl, meta, session_id, talk, write_live
from tests.chat import put
from tests.seam import World, hooked, lines_of

Lines = tuple[bytes, ...]
Files = dict[str, bytes]
Told = tuple[str | None, tuple[str, ...]]

CWDS = ("/srv/demo/proj", "/srv/demo/other")
SIZES = (12, 200, 2_000, 9_000, 70_000)
_SYNC_FILE_RANGE_WRITE = 2
_libc = ctypes.CDLL(None)
_fsync = os.fsync


@dataclass(frozen=True, slots=True)
class Demand:
    """What must be there after a cut. By session: the kept lines in order, the live ones where a restore answered for
    them, what no other file can tell again (whose fork it is, the host's tags), the kept companion files by label, the
    live ones that a restore put back by path, the lines that an `accept` let go of. Then the sessions that are
    forgotten for good, those whose forget had begun, of which nothing is demanded, and those that Claude changes in
    place."""

    kept: dict[str, Lines] = field(default_factory=dict)
    live: dict[str, Lines] = field(default_factory=dict)
    told: dict[str, Told] = field(default_factory=dict)
    files: dict[str, Files] = field(default_factory=dict)
    beside: dict[str, Files] = field(default_factory=dict)
    dropped: dict[str, frozenset[bytes]] = field(default_factory=dict)
    forgotten: frozenset[str] = frozenset()
    forgetting: frozenset[str] = frozenset()
    hurt: frozenset[str] = frozenset()


class Acknowledged(Exception):
    """keeper answered for what it does not have, with the power on: no cut is needed to see it."""


def settings(profile: Path, volume: Path) -> Settings:
    """keeper's places on that volume; it waits for no lock, since it is alone there."""
    return Settings(
        volume / "vault", volume / "state", volume / "keeper.toml", (profile,), profile, lock_wait_s=0.0
    )  # fmt: skip


def cwd_of(session: str) -> str:
    """The directory of a session: every other one has the same."""
    return CWDS[int(session[:8], 16) % 2]


def kept_files(chat: Path, session: str) -> Files:
    """Label → bytes of the companion files and extras that a chat keeps of its session."""
    found = {}
    for top in (chat / session, chat / "extras"):
        for path in sorted(top.rglob("*")):
            if path.is_file():
                found[str(path.relative_to(chat))] = path.read_bytes()
    return found


def live_files(here: World) -> Files:
    """Path below the profile → bytes of the live companion files of a session."""
    there = (path for path in sorted(here.companion.rglob("*")) if path.is_file())
    return {str(path.relative_to(here.profile)): path.read_bytes() for path in there}


def _without(demanded: dict[str, Any], sessions: Sequence[str]) -> dict[str, Any]:
    return {session: what for session, what in demanded.items() if session not in sessions}


def told_of(chat: Path, session: str) -> Told | None:
    """What `chat.json` tells of the session: the session that it was forked from, the tags; None where it does not."""
    try:
        facts = json.loads((chat / "chat.json").read_bytes())
        return facts["sessions"][session]["forked_from"], tuple(facts["tags"])
    except (OSError, ValueError, KeyError):
        return None


def lives(world: World, session: str) -> list[Path]:
    """The live transcripts of a session."""
    return sorted((world.profile / "projects").glob(f"*/{session}.jsonl"))


def one_live_file_each(world: World, sessions: Iterable[str]) -> None:
    """Of two live files of one session a person takes one away; keeper, which has both by now, would ask which."""
    for session in sessions:
        for path in lives(world, session)[1:]:
            path.unlink()


def repaired(world: World, demand: Demand) -> int:
    """Repair what `verify` tells of the chats that Claude was changing in place; how many.

    A cut in the middle of that may leave a file its old size and time and take bytes out of its middle. No keep sees
    it, since a keep looks at the end; `verify` must tell it, and `--repair` mend it.
    """
    with world.vault() as vault:
        told = [session for session in sorted(demand.hurt) if verify(vault, [session]).faults]
        for session in told:
            repair(vault, session, time.time())
    return len(told)


def uuids_of(lines: Sequence[bytes]) -> list[str]:
    """The uuids of these records, of those that have one."""
    return [one.uuid for line in lines if (one := read(line)) is not None and one.uuid is not None]


class Story:
    """One recorded run. `mark` notes the number of a demand (its place in `demands`) on the recorder."""

    def __init__(
        self,
        world: World,
        rng: random.Random,
        mark: Callable[[int], None],
        demand: Demand,
        count: int,
        disturbed: bool,
    ) -> None:
        self.world = world
        self.rng = rng
        self._mark = mark
        self.demand = demand
        self.demands: list[Demand] = []
        self.disturbed = disturbed
        self.written: dict[str, list[bytes]] = {session: list(lines) for session, lines in demand.kept.items()}
        self.last: dict[str, str | None] = {}
        self.count = count
        self.mark()

    # ------------------------------------------------------------------ demands

    def mark(self, **changed: object) -> None:
        """The demand with these fields changed holds from here on."""
        self.demand = replace(self.demand, **changed)  # type: ignore[arg-type]
        self.demands.append(self.demand)
        self._mark(len(self.demands) - 1)

    def about(self, session: str) -> World:
        return self.world.about(session, cwd_of(session))

    def acknowledged(self, *sessions: str, live: bool = False, beside: bool = False) -> None:
        """keeper has answered for these sessions: what it keeps of them now, it keeps; so for the live transcript
        (`live`), and for the companion files where all of them were put back (`beside`). Raises Acknowledged where what
        is kept is not all that Claude wrote."""
        kept, files, lives = dict(self.demand.kept), dict(self.demand.files), dict(self.demand.live)
        all_told, others = dict(self.demand.told), dict(self.demand.beside)
        for session in sessions:
            here = self.about(session)
            kept[session] = tuple(self.whole(lines_of(here.kept), session))
            files[session] = kept_files(here.chat, session)
            told = told_of(here.chat, session)
            if told is None:
                raise Acknowledged(f"{session}: its chat.json does not tell of it")
            all_told[session] = told
            if live:
                lives[session] = tuple(lines_of(here.live))
            if beside:
                others[session] = live_files(here)
        hurt = self.demand.hurt - {*sessions}
        self.mark(kept=kept, files=files, live=lives, beside=others, told=all_told, hurt=hurt)

    def whole(self, lines: list[bytes], session: str) -> list[bytes]:
        counts = Counter(lines)
        wrong = [line[:80] for line in self.written[session] if counts[line] != 1]
        if wrong:
            raise Acknowledged(f"{session}: {len(wrong)} lines are not kept once, the first {wrong[0]!r}")
        return lines

    def claude_touches(self, *sessions: str) -> None:
        """From here on the live files of these sessions are what Claude makes of them."""
        self.mark(live=_without(self.demand.live, sessions), beside=_without(self.demand.beside, sessions))

    def claude_hurts(self, session: str) -> None:
        """From here on Claude changes the live files of this session in place, and with them the kept ones."""
        self.claude_touches(session)
        self.mark(hurt=self.demand.hurt | {session})

    @property
    def chats(self) -> list[str]:
        """The sessions that are kept."""
        return sorted(self.demand.kept)

    def some(self, most: int = 3) -> list[str]:
        """A few of the kept sessions that are live."""
        there = [session for session in self.chats if self.about(session).live.exists()]
        return self.rng.sample(there, min(len(there), self.rng.randint(1, most)))

    # ------------------------------------------------------------------ what Claude does

    def turn(self, session: str, count: int = 2) -> list[bytes]:
        """Records of a turn, hung on the last one, of all sizes."""
        records = []
        for number in range(count):
            uuid = self.uuid()
            (record,) = talk([uuid], session, self.last.get(session), cwd_of(session))
            text = self.rng.randbytes(self.rng.choice(SIZES) // 2).hex()
            records.append(record.replace(b'"prompt ', b'"' + text.encode() + b" prompt ", 1))
            self.last[session] = uuid
            if number % 2:
                records.append(meta("last-prompt", lastPrompt=text[:40], leafUuid=uuid, sessionId=session))
        return records

    def uuid(self) -> str:
        return str(UUID(int=self.rng.getrandbits(128)))

    def says(self, session: str, count: int = 2) -> None:
        """A turn, as Claude appends it: a record or a few at a time."""
        records = self.turn(session, count)
        path = self.about(session).live
        while records:
            batch = [records.pop(0) for _ in range(min(len(records), self.rng.randint(1, 3)))]
            append(path, jsonl(*batch))
            self.written[session] += batch

    def new_id(self, cwd: str = "") -> str:
        """A session id that is free (of a session in that directory)."""
        self.count += 1
        while cwd and cwd_of(session_id(self.count)) != cwd:
            self.count += 1
        return session_id(self.count)

    def begins(self) -> str:
        """A new session with companion files and extras, live alone."""
        session = self.new_id()
        live = self.about(session).live
        self.written[session] = []
        live.parent.mkdir(parents=True, exist_ok=True)
        self.says(session, self.rng.randint(1, 6))
        project, profile = live.parent, self.world.profile
        put(project / session / "tool-results" / "toolu_1.txt", self.text())
        put(project / session / "later" / "versions" / "deep.bin", self.rng.randbytes(300))
        put(profile / "file-history" / session / "de5f4b6f867ced73@v1", self.text())
        put(profile / "tasks" / session / "1.json", b'{"subject":"look"}')
        put(profile / "todos" / f"{session}-agent-{session}.json", b"[]")
        self.agent_says(session)
        return session

    def text(self) -> bytes:
        return self.rng.randbytes(self.rng.choice(SIZES)).hex().encode() + b"\n"

    def agent_says(self, session: str) -> None:
        """A subagent's turn."""
        path = self.about(session).companion / "subagents" / "agent-a1.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        append(path, jsonl(*talk([self.uuid(), self.uuid()], session, cwd=cwd_of(session))))

    def again(self, session: str, records: Iterable[bytes]) -> None:
        """The live file is deleted and made anew."""
        self.claude_touches(session)
        write_live(self.world.profile, cwd_of(session), session, jsonl(*records))

    # ------------------------------------------------------------------ what keeper is asked

    def keep(self, *sessions: str, tags: tuple[str, ...] = ()) -> None:
        for session in sessions:
            with self.disturbance():
                self.about(session).keep(Options(tags=tags))
            self.acknowledged(session)

    def keep_all(self, *new: str) -> None:
        """A pass over the profile: answered when all is kept, and sealed behind the answer."""
        with self.vault() as vault:
            keeper = Keeper(vault, time.time())
            with self.disturbance():
                answers = keeper.profile(self.world.profile)
                keeper.finish()
            self.without_errors(answers)
            self.acknowledged(*[s for s in (*self.chats, *new) if s not in self.demand.forgetting])
            with self.disturbance():
                keeper.seal()

    def without_errors(self, answers: Sequence[Kept | Restored]) -> None:
        for answer in answers:
            if answer.error:
                raise Acknowledged(f"{answer.session}: {answer.error}")

    def restore(self, session: str, swept: bool = False) -> None:
        with self.disturbance():
            self.about(session).restore()
        self.acknowledged(session, live=True, beside=swept)

    def restore_all(self, swept: bool = False) -> None:
        with self.vault() as vault, self.disturbance():
            answers = restore_all(Restorer(vault, time.time_ns(), Want()), vault.rows())
        self.without_errors(answers)
        self.acknowledged(*self.chats, live=True, beside=swept)

    def accept(self, session: str) -> None:
        """What live is becomes the truth: from the answer on what it lacks is in no file but the seal. The live file
        is still Claude's, and no restore has answered for it."""
        before = self.demand.kept[session]
        truth = tuple(lines_of(self.about(session).live))
        asked = set(truth)
        self.mark(kept={**self.demand.kept, session: tuple(line for line in before if line in asked)})
        with self.vault() as vault, self.disturbance():
            accept(vault, session, time.time_ns())
        self.written[session] = list(truth)
        self.acknowledged(session)
        self.mark(dropped={**self.demand.dropped, session: frozenset(before) - asked})

    def copy(self, session: str) -> None:
        """A copy of the chat under a new id, up to its last record."""
        new = self.new_id(cwd_of(session))
        record = uuids_of(self.demand.kept[session])[-1]
        with self.vault() as vault, self.disturbance():
            write_copy(Restorer(vault, time.time_ns(), Want()), session, new, up_to(session, record))
        self.written[new] = lines_of(self.about(new).live)
        self.last[new] = record
        self.acknowledged(session, new, live=True)

    def forget(self, session: str) -> None:
        names = ("kept", "live", "told", "files", "beside", "dropped")
        changed = {name: _without(getattr(self.demand, name), (session,)) for name in names}
        self.mark(**changed, forgetting=self.demand.forgetting | {session})
        with self.vault() as vault, self.disturbance():
            forget(vault, session, time.time())
        self.mark(forgotten=self.demand.forgotten | {session})

    def vault(self) -> Vault:
        return self.world.vault()

    # ------------------------------------------------------------------ what else writes on the volume

    def disturbance(self) -> AbstractContextManager[None]:
        """While keeper works, the kernel writes back what it likes, and another program syncs a file of its own, which
        commits what keeper is in the middle of."""

        def step(call: str, paths: tuple[str, ...]) -> None:
            chance = self.rng.random()
            if self.disturbed and chance < 0.06:
                self.bystander_syncs()
            elif self.disturbed and chance < 0.12 and paths:
                write_back(paths[0])

        return hooked(step)

    def bystander_syncs(self) -> None:
        fd = os.open(self.world.root.parent / "bystander", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(fd, b"x")
            _fsync(fd)
        finally:
            os.close(fd)


def write_back(path: str) -> None:
    """Have the kernel write a file's bytes to the device, as it does after a while; nothing is flushed."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return
    try:
        _libc.sync_file_range(fd, ctypes.c_int64(0), ctypes.c_int64(0), _SYNC_FILE_RANGE_WRITE)
    finally:
        os.close(fd)
