"""What keeper assumes of how the CLI writes and reads its files, asked of the CLI alone."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from compat_trial import (
    ALLOWED,
    CALLS,
    LONG_OUTPUT,
    Answers,
    Trial,
    agents_beside,
    among,
    records,
    transcripts,
    two_turns,
    uuids,
)
from compat_trial import session as an_id

from keeper.claude import folder_names
from tests.lab.cli import Cli, age
from tests.lab.waiting import quiet

ODD = "a.b_c d-é☃😀"
LONG_UNITS = 230
"""Over the 200 from which a name is cut, and under the 255 that a file system allows one in full."""


def places(trial: Trial) -> Answers:
    """Where a transcript is written."""
    home = trial.home("places")
    for column, cwd in (("folder", home.cli.cwd / ODD), ("long path", _long(home.cli.cwd))):
        here = home.cli.at(cwd)
        one = an_id(1 if column == "folder" else 2)
        here.say("WORD=one @@say heard", "--session-id", one)
        (found,) = home.cli.places(one)
        names = dict(zip(folder_names(os.path.realpath(cwd)), ("by rule", "in full"), strict=False))
        said = names.get(found.parent.name, found.parent.name)
        yield column, said if column == "folder" else {"by rule": "hashed"}.get(said, said)


def _long(root: Path) -> Path:
    """A folder below whose path has LONG_UNITS characters."""
    rest = LONG_UNITS - len(str(root))
    return root / ("x" * (rest // 2 - 1)) / ("y" * (rest - rest // 2 - 1))


def writes(trial: Trial) -> Answers:
    """How a running process writes: by the name, whatever other names the file has, and anew where the name is gone."""
    cli, one = trial.home("writes").cli, an_id(3)
    live, link = cli.transcript(one), cli.home / "link.jsonl"
    with cli.talk("--session-id", one) as talk:
        talk.turn("WORD=w1 @@say heard w1")
        os.link(quiet(live), link)
        before = live.read_bytes()
        held = _held(cli, live)
        talk.turn("WORD=w2 @@say heard w2")
        after = quiet(live).read_bytes()
        appended = after.startswith(before) and b"heard w2" in after
        yield "append", "by path" if appended and not held else f"held open by {held}" if held else "rewritten"
        yield "link", "survives" if live.samefile(link) else "cut"
        live.unlink()
        talk.turn("WORD=w3 @@say heard w3")
        talk.turn("WORD=w4 @@say heard w4")
        quiet(live)
    old, tail = link.read_bytes(), live.read_bytes()
    known = set(uuids(records(live)))
    chain = [record for record in records(live) if record.get("uuid")]
    hangs = chain[0].get("parentUuid") in set(uuids(records(link))) - known
    anew = "tail only" if b"heard w2" not in tail and b"heard w4" in tail and hangs else "more than the tail"
    yield "deleted under it", anew
    yield from _read_back(cli, old, tail)


def _held(cli: Cli, path: Path) -> list[str]:
    """The processes of the lab that have the file open."""
    found = []
    for pid, words in cli.lab.inhabitants().items():
        with contextlib.suppress(OSError):
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    if os.path.samefile(descriptor, path):
                        found.append(f"{pid} {words[:40]}")
    return found


def _read_back(cli: Cli, old: bytes, tail: bytes) -> Answers:
    """Which of its turns a file shows when it is resumed, by what it holds and in which order."""
    lines = old.splitlines(keepends=True)
    spot = next(n for n, line in enumerate(lines) if b"WORD=w2" in line and b'"type":"user"' in line)
    variant = lines[spot].replace(b"WORD=w2", b"WORD=x2")
    without = b"".join(lines[:spot] + lines[spot + 1 :])
    twice = b"".join([*lines[: spot + 1], variant, *lines[spot + 1 :]])
    every = ("w1", "w2", "w3", "w4")

    words = _resumed(cli, 4, old + tail)
    yield "kept, then tail", "all" if among(words, every) else _part(words)
    words = _resumed(cli, 5, tail + old)
    yield "tail, then kept", "all" if among(words, every) else "a part"
    words = _resumed(cli, 6, without + tail)
    yield "a record missing", "bridged" if among(words, ("w1", "w3", "w4")) else "cuts off"
    words = _resumed(cli, 7, twice + tail)
    yield "a uuid twice", "the later" if among(words, ("w1", "x2", "w3")) and "w2" not in words else _part(words)
    _resumed(cli, 8, (old + tail).rstrip(b"\n"), keep=True)
    joined = [line for line in cli.transcript(an_id(8)).read_bytes().splitlines() if b'}{"' in line]
    yield "no last newline", "glued" if joined else "sealed"


def _part(words: tuple[str, ...]) -> str:
    return f"only {','.join(words) or 'nothing'}"


def _resumed(cli: Cli, number: int, data: bytes, keep: bool = False) -> tuple[str, ...]:
    """The words that a resume of these bytes shows."""
    path = cli.transcript(an_id(number))
    path.write_bytes(data.replace(an_id(3).encode(), an_id(number).encode()))
    done = cli.resume(an_id(number))
    words = done.history.words if done.requests else ()
    if not keep:
        path.unlink()
    return words


def companions(trial: Trial) -> Answers:
    """Where a subagent's records and a long output go."""
    cli, one = trial.home("companions").cli, an_id(9)
    cli.say(f"WORD=one\n{CALLS}\n{LONG_OUTPUT}\n@@say done", "--session-id", one, *ALLOWED)
    live = quiet(cli.transcript(one))
    if list(cli.companion(one).glob("subagents/agent-*.jsonl")):
        yield "subagents", "companion"
    elif agents_beside(cli, one):
        yield "subagents", "beside it"
    else:
        sidechain = any(record.get("isSidechain") for record in records(live))
        yield "subagents", "transcript" if sidechain else "nowhere"
    yield "long output", "companion" if list(cli.companion(one).glob("tool-results/*")) else "transcript"


def resumes(trial: Trial) -> Answers:
    """What a resume, a continue and a fork write, and which conversation they take."""
    home = trial.home("resumes")
    cli, one, gone = home.cli, an_id(10), an_id(11)
    live = two_turns(cli, one)
    yield "-p --resume", _same(cli, live, lambda: cli.say("WORD=r1 @@say heard r1", "--resume", one))

    before = set(cli.profile.glob("projects/*/*"))
    refused = cli.resume(gone)
    assert not refused.requests, "it asked the API"
    said = "refused" if refused.code == 1 and f"No conversation found with session ID: {gone}" in refused.err else "?"
    made = [one for one in set(cli.profile.glob("projects/*/*")) - before if one.suffix == ".jsonl"]
    yield "missing", f"{said}, a 0-byte file" if made and not any(one.stat().st_size for one in made) else said

    data = live.read_bytes()
    shared = set(uuids(records(live)))
    fork = cli.resume(one, "--fork-session", prompt="WORD=f1 @@say heard f1")
    assert fork.code == 0, fork.err
    (copy,) = [path for path in transcripts(cli) if path != live]
    quiet(copy)
    whole = among(fork.history.words, ("one", "two", "r1", "f1")) and shared & set(uuids(records(copy)))
    own = all(record.get("sessionId") in (None, copy.stem) for record in records(copy))
    ids = "own ids" if own else "the original's ids"
    yield (
        "--fork-session",
        ids if whole and live.read_bytes() == data else "not whole" if not whole else "original changed",
    )
    copy.unlink()

    elsewhere = cli.at(cli.home / "elsewhere").resume(one)
    yield "from elsewhere", "found" if elsewhere.code == 0 and elsewhere.requests else "not found"


def _same(cli: Cli, live: Path, deed: object) -> str:
    """Whether what is said next goes on in the same file."""
    inode, known = live.stat().st_ino, set(transcripts(cli))
    assert callable(deed)
    deed()
    quiet(live)
    new = set(transcripts(cli)) - known
    return "another file" if new else "same file" if live.stat().st_ino == inode else "another inode"


def continues(trial: Trial) -> Answers:
    """Which conversation `--continue` takes, and where it goes on."""
    cli, early, late = trial.home("continues").cli, an_id(12), an_id(13)
    live = two_turns(cli, early)
    yield "-p --continue", _same(cli, live, lambda: cli.say("WORD=c1 @@say heard c1", "--continue"))
    for path in transcripts(cli):
        if path != live:
            path.unlink()
    cli.say("WORD=late @@say heard late", "--session-id", late)
    age(quiet(cli.transcript(late)), days=1)
    words = cli.say("@@recall", "--continue").history.words
    yield "--continue takes", "newest time" if "one" in words else "by other means"
