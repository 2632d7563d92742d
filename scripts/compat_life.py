"""What keeper assumes of the CLI's hooks and of its clean-up, asked of the CLI alone."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from compat_trial import ALLOWED, CALLS, Answers, Trial
from compat_trial import session as an_id
from record_hooks import RECORDER, settings

from keeper.doors.hook import EVENTS, profile_of
from tests.lab.cli import Cli, age
from tests.lab.waiting import TimedOut, eventually, quiet

SOON_S = 15.0
AT_LAST_S = 640.0
"""The clean-up that waits does so for ten minutes (604 to 610 s were seen)."""
TIMER_S = 5.0
"""The clean-up that has a timer comes no earlier; the one at the start is over by then."""


def hooks(trial: Trial) -> Answers:
    """Which hooks are called, and with what."""
    cli, one, gone = trial.home("hooks").cli, an_id(20), an_id(21)
    recorder = cli.home / "recorder"
    Path(f"{recorder}.d").mkdir(parents=True)
    recorder.write_text(RECORDER)
    recorder.chmod(0o755)
    cli.set(**settings(str(recorder)))
    cli.say(f"WORD=one\n{CALLS}\n@@say done", "--session-id", one, *ALLOWED)
    cli.say("WORD=two @@say heard two", "--resume", one)
    cli.run("-p", "/compact", "--resume", one)
    before = len(_payloads(recorder))
    cli.run("-p", "hi", "--resume", gone)
    found = _payloads(recorder)

    lacking = [event for event in EVENTS if event not in {payload["hook_event_name"] for payload in found}]
    yield "hooks", f"no {', '.join(lacking)}" if lacking else f"all {len(EVENTS)}"
    wrong = sorted({why for payload in found for why in _wrong(payload, cli)})
    yield "payload", "; ".join(wrong) or "as read"
    started = [one for one in found[:before] if one["hook_event_name"] == "SessionStart"]
    at_resume = [payload["session_id"] for payload in started if payload["source"] == "resume"]
    thrown = bool(at_resume) and not cli.places(at_resume[0])
    yield "start at a resume", "its id" if at_resume[:1] == [one] else "an id without a file" if thrown else "?"
    late = [payload["session_id"] for payload in found[before:] if payload["hook_event_name"] == "SessionStart"]
    yield "start of a missing", "called" if gone in late else "not called"


def _payloads(recorder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(Path(f"{recorder}.d").glob("*.json"))]


def _wrong(payload: dict[str, Any], cli: Cli) -> list[str]:
    """What keeper could not read in a payload."""
    event = payload["hook_event_name"]
    also = {"SessionStart": ("source",), "SessionEnd": ("reason",)}.get(event, ())
    wrong = [f"{event} has no {key}" for key in ("session_id", "transcript_path", "cwd", *also) if key not in payload]
    path = payload.get("transcript_path", "")
    if profile_of(path) != os.path.realpath(cli.profile):
        wrong.append(f"{event} names a transcript elsewhere")
    if os.path.basename(path) != f"{payload.get('session_id')}.jsonl":
        wrong.append(f"{event} names another session's transcript")
    return wrong


def sweeps(trial: Trial) -> Answers:
    """When the clean-up runs, and what it takes."""
    cli = trial.home("sweeps").cli
    planted = _plant(cli)
    old, older = planted["40 days"], planted["31 days"]
    began = time.time()
    with cli.at(cli.home / "elsewhere").talk() as talk:
        talk.turn("@@say hi")
        try:
            eventually("the clean-up", lambda: not old.exists(), SOON_S)
        except TimedOut:
            if not trial.patient:
                yield "sweep", f"not in {SOON_S:.0f} s"
                return
            eventually("the clean-up", lambda: not old.exists(), AT_LAST_S)
        after_s = old.parent.stat().st_mtime - began
        yield "sweep", _when(after_s)
        eventually("all of it", lambda: not older.exists(), SOON_S)
        eventually("its end", lambda: time.time() - max(one.stat().st_mtime for one in _folders(cli)) > 1.0, SOON_S)
    stays = [name for name in ("29 days", "a day") if not planted[name].exists()]
    yield "swept by", f"{' and '.join(stays)} gone too" if stays else "time, 30 days"
    yield "its companion", "stays" if planted["companion"].exists() else "goes too"


def _when(after_s: float) -> str:
    if after_s < TIMER_S:
        return "at the start"
    return "after 5 s" if after_s < 3 * TIMER_S else f"after {round(after_s / 60)} min"


def _folders(cli: Cli) -> list[Path]:
    return [cli.profile / "projects" / name for name in ("-one", "-two")]


def _plant(cli: Cli) -> dict[str, Path]:
    """Transcripts of several ages in two projects; the one of 40 days has a fresh companion."""
    one, two = _folders(cli)
    found: dict[str, Path] = {}
    for number, (name, folder, days) in enumerate(
        (("a day", one, 1), ("29 days", one, 29), ("31 days", one, 31), ("fresh", two, 0), ("40 days", two, 40))
    ):
        folder.mkdir(parents=True, exist_ok=True)
        found[name] = folder / f"{an_id(30 + number)}.jsonl"
        found[name].write_text(_line(an_id(30 + number), an_id(40 + number)))
        age(found[name], days=days)
    found["companion"] = found["40 days"].with_suffix("") / "tool-results" / "fresh.txt"
    found["companion"].parent.mkdir(parents=True)
    found["companion"].write_text("fresh\n")
    return found


def _line(session: str, uuid: str) -> str:
    """A prompt as the CLI would have written it; without a time 2.0.76 ends at its start."""
    record = {
        "parentUuid": None,
        "isSidechain": False,
        "userType": "external",
        "cwd": "/",
        "sessionId": session,
        "version": "2.0.0",
        "gitBranch": "",
        "type": "user",
        "message": {"role": "user", "content": "hi"},
        "uuid": uuid,
        "timestamp": "2025-01-01T00:00:00.000Z",
    }
    return json.dumps(record) + "\n"


def nothing_kept(trial: Trial) -> Answers:
    """What `cleanupPeriodDays: 0` does to what is written."""
    cli, one = trial.home("nothing").cli, an_id(50)
    cli.set(cleanupPeriodDays=0)
    cli.run("-p", "WORD=one @@say heard", "--session-id", one)
    try:
        quiet(cli.transcript(one))
    except TimedOut:
        yield "0 days", "none written"
    else:
        yield "0 days", "written"
