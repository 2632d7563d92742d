"""Start states of the kill sweep: what a profile and a vault look like before the run that is killed."""

import errno
import os
import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from urllib.parse import unquote

from keeper.transcripts import seal
from keeper.transcripts.frame import Frame, walk
from keeper.transcripts.keep import keep_session
from tests.build import answer, append, boundary, jsonl, meta, prompt, session_id, talk, write_live
from tests.chat import put, sweep, write_whole
from tests.seam import World, hooked, in_child

Lines = dict[str, set[bytes]]
ELSEWHERE = "/srv/demo/other"


KEEP = ("keep",)
RESTORE = ("restore", session_id(1))
ACCEPT = ("accept", session_id(1))
COPY_AT = ("restore", session_id(1), "--at", "1h")
PUT_AT = (*COPY_AT, "--in-place")


@dataclass(frozen=True, slots=True)
class State:
    """`make` builds it, and answers lines that no file shows any more. `commands` are those that are killed in it.

    `folds`: a restore leaves every record that is known under the live name. `leaf`: the record that Claude wrote last,
    where that is not the live file's last.
    """

    name: str
    make: Callable[[World], Lines | None]
    commands: tuple[tuple[str, ...], ...] = (KEEP, RESTORE)
    folds: bool = True
    leaf: str = ""


def base() -> list[bytes]:
    return [meta("mode", mode="normal"), *talk("abcdefgh"), meta("last-prompt", leafUuid="h", lastPrompt="prompt g")]


def _live(world: World, *records: bytes, session: str = "") -> None:
    write_live(world.profile, world.cwd, session or world.session, jsonl(*records))


def _kept(world: World) -> None:
    _live(world, *base())
    world.keep()


def _new(world: World) -> None:
    _live(world, *base())


def _grown(world: World) -> None:
    _kept(world)
    append(world.live, jsonl(*talk("ij", parent="h")))


def _replaced(world: World, *records: bytes) -> None:
    """Deleted and made again with these records alone."""
    _kept(world)
    _live(world, *records)


def _continued(world: World) -> None:
    """Cut short and gone on with: a keep splits."""
    _replaced(world, *base()[:5], *talk("xy", parent="d"))


def _compacted(world: World) -> None:
    after = [boundary("e", "d"), *talk("fghi", parent="e")]
    _live(world, *talk("abcd"), *after)
    world.keep()
    _live(world, *after)


def _torn(world: World) -> None:
    _kept(world)
    append(world.live, talk("ij", parent="h")[0][:70])


def _whole(world: World) -> None:
    write_whole(world.profile, world.session)


def _swept(world: World) -> None:
    _whole(world)
    world.keep()
    _sweep(world)


def _sweep(world: World) -> None:
    sweep(world.profile)
    (world.profile / "projects").mkdir()


def _companion(world: World) -> None:
    """Other files have changed: a subagent's transcript was made again, an output is longer, one is new."""
    _whole(world)
    world.keep()
    agent = world.companion / "subagents" / "agent-a1.jsonl"
    agent.unlink()
    of_agent = {"isSidechain": True, "agentId": "a1"}
    put(agent, jsonl(prompt("s3", "s2", **of_agent), answer("s4", "s3", **of_agent)))
    put(world.companion / "tool-results" / "toolu_1.txt", b"a longer output\n" * 80)
    put(world.companion / "tool-results" / "toolu_2.txt", b"another\n")


def _split(world: World, swept: bool) -> None:
    """In mode split, with records that only live holds; and the same, swept."""
    _continued(world)
    world.keep()
    append(world.live, jsonl(*talk("zw", parent="y")))
    if swept:
        _sweep(world)


def _doubled(world: World) -> None:
    _new(world)
    write_live(world.profile, ELSEWHERE, world.session, jsonl(*base()[:5], *talk("xy", parent="d")))


def _killed(world: World, gone: bool) -> None:
    """A keep was killed right after its exchange; a line came late; and live may be gone since."""
    _replaced(world, *talk("ij", parent="h"))
    late = os.open(world.live, os.O_WRONLY | os.O_APPEND)
    exchanged = False

    def kill(call: str, paths: tuple[str, ...]) -> None:
        nonlocal exchanged
        if exchanged:
            os.kill(os.getpid(), signal.SIGKILL)
        exchanged = call == "exchange"

    in_child(lambda: _hooked_keep(world, kill))
    os.write(late, jsonl(*talk("k", parent="j")))
    os.close(late)
    if gone:
        world.live.unlink()


def _stepped(world: World) -> None:
    """A keep on a volume without exchange was killed while live had stepped aside."""
    _replaced(world, *talk("ij", parent="h"))

    def kill(call: str, paths: tuple[str, ...]) -> None:
        if call == "exchange":
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        if call == "move" and paths[1] == str(world.live):
            os.kill(os.getpid(), signal.SIGKILL)

    in_child(lambda: _hooked_keep(world, kill))


def _hooked_keep(world: World, hook: Callable[[str, tuple[str, ...]], None]) -> None:
    with hooked(hook):
        world.keep()


def _in_place(world: World, keep_bytes: int, more: tuple[bytes, ...] = ()) -> Lines:
    """Kept and sealed, then the live file is cut in place to so many bytes, and these records are written to it."""
    _kept(world)
    lines, _ = known(world)
    os.truncate(world.live, keep_bytes)
    append(world.live, jsonl(*more))
    return lines


def _history(world: World) -> None:
    """Sealed two hours ago and once more since."""
    _new(world)
    vault = world.vault()
    keep_session(vault, world.session, time.time() - 7200, None, world.profile)
    vault.index.close()
    append(world.live, jsonl(*talk("ij", parent="h")))
    world.keep()


def _many(world: World) -> None:
    """Four chats: one new, one grown, one swept, one made again."""
    for number in (2, 3, 4):
        session = session_id(number)
        _live(world, *talk([f"{number}{name}" for name in "abcd"], session), session=session)
    world.keep_all()
    _new(world)
    append(world.about(session_id(2)).live, jsonl(*talk(["2e", "2f"], session_id(2), "2d")))
    world.about(session_id(3)).live.unlink()
    _live(world, *talk(["4e", "4f"], session_id(4), "4d"), session=session_id(4))


HALF = len(jsonl(*base()[:5]))
STUB = (meta("mode", mode="plan"), meta("custom-title", customTitle="t"))

STATES = (
    State("new", _new, (KEEP,)),
    State("grown", _grown),
    State("recreated", lambda world: _replaced(world, *talk("ij", parent="h"))),
    State("stub", lambda world: _replaced(world, *STUB)),
    State("empty", _replaced),
    State("shortened", lambda world: _replaced(world, *base()[:5]), leaf="h"),
    State("continued", _continued, (KEEP, RESTORE, ACCEPT), folds=False),
    State("compacted", _compacted, folds=False),
    State("torn", _torn, folds=False),
    State("whole", _whole, (KEEP,)),
    State("swept", _swept, leaf="d"),
    State("companion", _companion),
    State("split", partial(_split, swept=False), folds=False),
    State("split and swept", partial(_split, swept=True), leaf="w"),
    State("doubled", _doubled, (KEEP,)),
    State("killed", partial(_killed, gone=False), leaf="k"),
    State("killed and swept", partial(_killed, gone=True), leaf="k"),
    State("stepped aside", _stepped, leaf="j"),
    State("truncated", partial(_in_place, keep_bytes=HALF), (KEEP, RESTORE, ACCEPT), leaf="h"),
    State("truncated in a line", partial(_in_place, keep_bytes=HALF + 40), leaf="h"),
    State("rewritten", partial(_in_place, keep_bytes=0, more=STUB), (KEEP, RESTORE, ACCEPT), leaf="h"),
    State("history", _history, (COPY_AT, PUT_AT), folds=False),
    State("many", _many, (KEEP, ("restore", "--all"))),
)


# ------------------------------------------------------------------ what is known, what is kept


def known(world: World) -> tuple[Lines, set[bytes]]:
    """All whole lines of every transcript that live or the vault holds, by the transcript's name; and all else that
    must not go: other files, and unfinished lines."""
    lines: Lines = {}
    others: set[bytes] = set()
    for root in (world.profile, world.root / "chats"):
        for path in root.rglob("*"):
            if not path.is_file() or path.name in ("chat.json", ".chat.json.tmp"):
                continue
            name = _transcript(world, path.name)
            if not name:
                if path.parent.name != "swap":
                    others.add(path.read_bytes())
                continue
            *whole, tail = path.read_bytes().split(b"\n")
            lines.setdefault(name, set()).update(whole)
            if tail:
                others.add(tail)
    return lines, others


def _transcript(world: World, name: str) -> str:
    """The transcript whose lines a file of that name holds, or nothing."""
    if name.endswith(".jsonl"):
        return name
    if name.startswith(".keeper-"):
        return f"{world.session}.jsonl"
    if ".live" in name:
        return os.path.basename(unquote(name.partition(".live")[0])) + ".jsonl"
    if "~" in name:
        return os.path.basename(unquote(name.rpartition("~")[0]))
    return ""


def append_two(world: World, leaf: str) -> tuple[str, set[bytes]]:
    """A live Claude goes on: the transcript's name and the lines. One behind an unfinished line is one line with it."""
    live = world.live
    before = live.read_bytes() if live.exists() else b""
    uuids = re.findall(rb'"uuid":"(\w+)"[^\n]*\}\n', before)
    parent = leaf or (uuids[-1].decode() if uuids else "h")
    two = [prompt("n1", parent, session=world.session), answer("n2", "n1", session=world.session)]
    live.parent.mkdir(parents=True, exist_ok=True)
    append(live, jsonl(*two))
    tail = before[before.rfind(b"\n") + 1 :]
    return live.name, {tail + two[0], two[1]}


def kept_lines(world: World, name: str) -> list[bytes]:
    """The lines of a kept transcript."""
    found = [path for path in (world.root / "chats").rglob(name) if not {"swap", "aside"} & set(path.parts)]
    return [line for path in found for line in path.read_bytes().split(b"\n")[:-1]]


def sealed_lines(world: World) -> set[bytes]:
    """Every line that the session's seal ever had."""
    path = str(world.chat / "seal" / f"{world.session}.jsonl.seal")
    times = {frame.time_ns for _, frame in walk(path) if isinstance(frame, Frame)}
    return {line for time_ns in times for line in seal.read(path, time_ns).whole_lines().split(b"\n")}
