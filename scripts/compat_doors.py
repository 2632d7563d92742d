"""Whether keeper's deeds and doors do with the CLI what they promise, end to end."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from pathlib import Path

from compat_trial import (
    ALLOWED,
    CALLS,
    LONG_OUTPUT,
    Answers,
    Home,
    Trial,
    agents_beside,
    records,
    transcripts,
    two_turns,
)
from compat_trial import session as an_id
from record_hooks import settings

from tests.lab import footprint, stories
from tests.lab.cli import age
from tests.lab.screen import Screen
from tests.lab.waiting import TimedOut, eventually, quiet
from tests.real.through_shim import ThroughShim

ONE_TWO = stories.Story(("one", "two"))


def restores(trial: Trial) -> Answers:
    """Kept by a link, deleted with all that belongs to it, put back, resumed and forked."""
    home, one = trial.home("restores"), an_id(60)
    cli = home.cli
    cli.say(f"WORD=one\n{CALLS}\n{LONG_OUTPUT}\n@@say done", "--session-id", one, *ALLOWED)
    home.keeper("keep", one)
    cli.say("WORD=two @@say heard two", "--resume", one)
    linked = home.kept(one).samefile(quiet(cli.transcript(one)))
    yield "kept", "linked" if linked else "not the live file"
    home.keeper("keep", one)
    files = {**footprint.files(cli, one), **{str(path): path.read_bytes() for path in agents_beside(cli, one)}}
    for path in agents_beside(cli, one):
        path.unlink()
    footprint.delete(cli, one)
    home.keeper("restore", one)
    again = {**footprint.files(cli, one), **{str(path): path.read_bytes() for path in agents_beside(cli, one)}}
    lost = sorted(Path(name).name for name in files if again.get(name) != files[name])
    lost += [why] if (why := _lost(ONE_TWO, home, one)) else []
    yield "restored", f"without {', '.join(lost)}" if lost else "whole"
    fork = cli.resume(one, "--fork-session", prompt="WORD=three @@recall")
    yield "its fork", ONE_TWO.then("three").lost(fork.history) or "whole"


def folds(trial: Trial) -> Answers:
    """Deleted under a running process, and folded with what that wrote since."""
    home, one = trial.home("folds"), an_id(61)
    live = home.cli.transcript(one)
    with home.cli.talk("--session-id", one) as talk:
        talk.turn("WORD=a @@say heard a")
        quiet(live)
        home.keeper("keep", one)
        live.unlink()
        talk.turn("WORD=b @@say heard b")
        quiet(live)
        home.keeper("keep", one)
        folded = home.kept(one).samefile(live)
        talk.turn("WORD=c @@say heard c")
        quiet(live)
    home.keeper("restore", one)
    yield "recreated", _lost(stories.Story(("a", "b", "c")), home, one) or ("folded" if folded else "not one file")


def by_hook(trial: Trial) -> Answers:
    """Kept by the CLI's own hooks, with no agent and no other command."""
    home, one = trial.home("by_hook"), an_id(62)
    words = [f"{name}={shlex.quote(value)}" for name, value in home.environment().items() if name != "PATH"]
    home.cli.set(**settings(" ".join(["env", *words, shlex.quote(sys.executable), "-m", "keeper", "hook"])))
    two_turns(home.cli, one)
    yield "keeper hook", "kept" if home.kept(one).samefile(home.cli.transcript(one)) else "not kept"
    home.cli.transcript(one).unlink()
    home.keeper("restore", one)
    home.cli.set()
    chats = [path.name for path in (home.vault / "chats").iterdir()]
    if chats != [one]:
        yield "keeper hook", f"{len(chats)} chats"
    elif lost := _lost(ONE_TWO, home, one):
        yield "keeper hook", lost


def by_shim(trial: Trial) -> Answers:
    """Plain `claude --resume` with the shim first on PATH: of what is gone, and of what its own clean-up would take."""
    home, one, past = trial.home("by_shim"), an_id(63), an_id(64)
    cli = home.cli
    home.keeper("shim", "install")
    shimmed = ThroughShim(cli.lab, cli.version, cli.home, cli.cwd, cli.extra, tuple(home.environment().items()))
    live = two_turns(cli, one)
    home.keeper("keep", one)
    live.unlink()
    done = shimmed.resume(one, prompt="WORD=three @@recall")
    yield (
        "shim",
        (done.err or "asked nothing") if not done.requests else ONE_TWO.then("three").lost(done.history) or "whole",
    )

    live = two_turns(cli, past)
    age(live)
    (cli.profile / ".last-cleanup").unlink(missing_ok=True)
    done = shimmed.resume(past)
    lost = (done.err or "asked nothing") if not done.requests else ONE_TWO.lost(done.history)
    yield "shim, past retention", lost or ("whole" if live.exists() else "swept")


def clears(trial: Trial) -> Answers:
    """What /clear does in a process without a terminal, and how it is kept."""
    home, one = trial.home("clears"), an_id(15)
    with home.cli.talk("--session-id", one) as talk:
        talk.turn("WORD=before @@say heard before")
        talk.turn("/clear")
        after = talk.turn("WORD=after @@say heard after").session
        quiet(home.cli.transcript(after))
    yield "/clear in a stream", "same id" if after == one else "new id"
    for session in {one, after}:
        home.keeper("keep", session)
    chats = sorted(path.name for path in (home.vault / "chats").iterdir())
    yield "cleared", {1: "one chat", 2: "two chats"}.get(len(chats), str(chats))


def typed(trial: Trial) -> Answers:
    """Where an interactive resume goes on; deleted with all others, what was typed comes back with its session."""
    home, one = trial.home("typed"), an_id(14)
    cli = home.cli
    live, seen = two_turns(cli, one), ""

    def there() -> list[Path]:
        return [path for path in cli.profile.glob("projects/*/*.jsonl") if b"heard typed" in path.read_bytes()]

    with contextlib.suppress(TimedOut), Screen(cli, "--resume", one) as screen:
        try:
            screen.wait("(?m)^[❯>]")
            screen.type("WORD=typed @@say heard typed")
            eventually("the turn", lambda: any(_answered(path) for path in there()), 40.0)
        except TimedOut as why:
            seen = f"{why}: {screen.seen()}"
    assert there(), seen
    yield "typed --resume", "same file" if live in there() else "another file"
    home.keeper("keep", *(str(path) for path in transcripts(cli)))
    for path in transcripts(cli):
        path.unlink()
    home.keeper("restore", one)
    yield "typed turn", "back" if there() else "lost"


def _answered(path: Path) -> bool:
    return any(one.get("type") == "assistant" and "heard typed" in json.dumps(one) for one in records(path))


def _lost(story: stories.Story, home: Home, session: str) -> str:
    done = home.cli.resume(session)
    return story.lost(done.history) if done.requests else done.err or f"code {done.code}"
