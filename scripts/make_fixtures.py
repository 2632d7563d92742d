#!/usr/bin/env python3
"""Has the real CLI write the scenarios of `fixtures/claude`, scrubs what it wrote and saves it.

    scripts/make_fixtures.py [--only SCENARIO] [VERSION …]     (no version: the pinned ones)

Promises: every file comes from the CLI, under /srv/demo, which is made for it and removed. A line with
nothing to elide keeps the CLI's bytes; in the others vendor text is replaced by `<elided N chars>`. Each
live transcript is resumed from its scrubbed copy; `scenario.json` notes what the stub API was shown then.

Refuses: to start where /srv/demo exists, and to save a file that names anything of this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from tests.lab import install  # noqa: E402
from tests.lab.cli import Cli  # noqa: E402
from tests.lab.namespace import Lab, missing  # noqa: E402
from tests.lab.screen import Screen  # noqa: E402
from tests.lab.waiting import eventually, quiet  # noqa: E402

DEMO = Path("/srv/demo")
OUT = REPOSITORY / "fixtures" / "claude"
FOOTPRINT = ("projects", "file-history", "tasks")
OURS = frozenset(
    {
        "user",
        "assistant",
        "system",
        "queue-operation",
        "last-prompt",
        "custom-title",
        "agent-name",
        "ai-title",
    }
)
OURS_LIMIT, VENDOR_LIMIT = 400, 80
"""Strings over so many characters are elided: in records that carry our own words, and in all others."""
GC_LIMIT_BYTES = 5 << 20


@dataclass(slots=True)
class Stage:
    """The place where one scenario plays, and what was kept of it on the way."""

    lab: Lab
    version: str
    number: int
    kept: list[Path] = field(default_factory=list)

    @property
    def session(self) -> str:
        return session_id(self.number)

    @property
    def cli(self) -> Cli:
        return Cli(self.lab, self.version, DEMO / "home", DEMO / "proj")

    @property
    def live(self) -> Path:
        return self.cli.transcript(self.session)

    def keep(self) -> None:
        """Link the live file aside, as a keeper would."""
        aside = DEMO / "kept" / self.live.name
        aside.parent.mkdir(exist_ok=True)
        os.link(quiet(self.live), aside)
        self.kept.append(aside)


def session_id(number: int) -> str:
    return f"{number:08d}-0000-4000-8000-{number:012d}"


def tools(stage: Stage) -> None:
    """Two processes: parallel tool calls, a file read, and an output so long that it goes to tool-results."""
    (stage.cli.cwd / "notes.txt").write_text("alpha\n")
    read = json.dumps({"file_path": str(stage.cli.cwd / "notes.txt")})
    first = f'WORD=main1\n@@pair looking ||| Bash {{"command":"echo hi"}}\n@@tool Read {read}\n@@say done one'
    stage.cli.say(first, "--session-id", stage.session, "--allowedTools", "Bash,Read")
    second = 'WORD=main2\n@@tool Bash {"command":"seq 1 7000"}\n@@say done two'
    stage.cli.say(second, "--resume", stage.session, "--allowedTools", "Bash")


def subagent(stage: Stage) -> None:
    """A subagent with a tool call of its own."""
    task = {
        "description": "sub task",
        "prompt": '@@tool Bash {"command":"echo in-sub"}\n@@say subdone',
        "subagent_type": "general-purpose",
    }
    prompt = f"WORD=agent\n@@tool Agent {json.dumps(task)}\n@@say launched"
    stage.cli.say(prompt, "--session-id", stage.session, "--allowedTools", "Agent,Task,Bash")


def compacted(stage: Stage) -> None:
    """Two turns, /compact, one more turn: each in a process of its own."""
    stage.cli.say("WORD=pre1 @@say a1", "--session-id", stage.session)
    for prompt in ("WORD=pre2 @@say a2", "/compact", "WORD=post @@say a3"):
        stage.cli.say(prompt, "--resume", stage.session)


def recreated(stage: Stage) -> None:
    """Two turns, the live file deleted under the process (kept/ holds it), two more turns: live is a tail."""
    with stage.cli.talk("--session-id", stage.session) as talk:
        talk.turn("WORD=before1 @@say b1")
        talk.turn("WORD=before2 @@say b2")
        stage.keep()
        stage.live.unlink()
        talk.turn("WORD=after1 @@say c1")
        talk.turn("WORD=after2 @@say c2")
        quiet(stage.live)


def stub(stage: Stage) -> None:
    """A turn on a terminal, live deleted (kept/ holds it), /exit: live is the metadata written on leaving."""
    with Screen(stage.cli, "--session-id", stage.session) as screen:
        screen.wait("❯")
        screen.type("WORD=stub @@say one")
        screen.wait("● one")
        stage.keep()
        stage.live.unlink()
        screen.leave()
    quiet(stage.live)


def stub_renamed(stage: Stage) -> None:
    """The same with /rename instead of /exit: live holds the command's records, no prompt and no answer."""
    with Screen(stage.cli, "--session-id", stage.session) as screen:
        screen.wait("❯")
        screen.type("WORD=stub @@say one")
        screen.wait("● one")
        stage.keep()
        stage.live.unlink()
        screen.type("/rename kept-chat")
        screen.wait("(?i)renamed")
        quiet(stage.live)


def cut_back(stage: Stage) -> None:
    """Three turns (kept/ holds them); live cut back to the first, then continued by the CLI: two branches."""
    stage.cli.say("WORD=w1 @@say a1", "--session-id", stage.session)
    first_turn = quiet(stage.live).read_bytes()
    stage.cli.say("WORD=w2 @@say a2", "--resume", stage.session)
    stage.cli.say("WORD=w3 @@say a3", "--resume", stage.session)
    stage.keep()
    stage.live.unlink()
    stage.live.write_bytes(first_turn)
    stage.cli.say("WORD=new @@say n", "--resume", stage.session)


def new_root(stage: Stage) -> None:
    """Two turns, live deleted (kept/ holds it), `--session-id` of the old id: an empty start under it."""
    stage.cli.say("WORD=old1 @@say a1", "--session-id", stage.session)
    stage.cli.say("WORD=old2 @@say a2", "--resume", stage.session)
    stage.keep()
    stage.live.unlink()
    stage.cli.say("WORD=fresh @@say f1", "--session-id", stage.session)


def forked(stage: Stage) -> None:
    """One turn, a fork with a turn of its own, one more turn of the original."""
    stage.cli.say("WORD=orig1 @@say o1", "--session-id", stage.session)
    fork = ("--fork-session", "--session-id", session_id(stage.number * 10))
    stage.cli.say("WORD=forked @@say f1", "--resume", stage.session, *fork)
    stage.cli.say("WORD=orig2 @@say o2", "--resume", stage.session)


def cleared(stage: Stage) -> None:
    """One process: a turn, /clear, a turn. Two sessions, two files."""
    with stage.cli.talk("--session-id", stage.session) as talk:
        talk.turn("WORD=c1 @@say x")
        talk.turn("/clear")
        talk.turn("WORD=c2 @@say y")


def two_writers(stage: Stage) -> None:
    """Two processes resume one session and take turns: two branches, interleaved."""
    stage.cli.say("WORD=base @@say b", "--session-id", stage.session)
    with stage.cli.talk("--resume", stage.session) as one, stage.cli.talk("--resume", stage.session) as other:
        one.turn("WORD=a1 @@say a1")
        other.turn("WORD=b1 @@say b1")
        one.turn("WORD=a2 @@say a2")
        other.turn("WORD=b2 @@say b2")


def relocated(stage: Stage) -> None:
    """A turn, then EnterWorktree: 2.1.328 moves the transcript to the worktree's folder, 2.1.197 does not."""
    author = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
    for words in (("init", "-q", "."), (*author, "commit", "-q", "--allow-empty", "-m", "x")):
        subprocess.run(["git", *words], cwd=stage.cli.cwd, check=True)
    stage.cli.say("WORD=w1 @@say one", "--session-id", stage.session)
    stage.cli.say('WORD=w2\n@@tool EnterWorktree {"name":"wt1"}\n@@say inside', "--resume", stage.session)


def interactive(stage: Stage) -> None:
    """On a terminal: a turn, /rename, an edit, /rewind to before it, a turn on the new branch."""
    edited = stage.cli.cwd / "a.txt"
    edited.write_text("v1\n")
    read = json.dumps({"file_path": str(edited)})
    edit = json.dumps({"file_path": str(edited), "old_string": "v1", "new_string": "v2"})
    with Screen(stage.cli, "--session-id", stage.session, "--permission-mode", "acceptEdits") as screen:
        screen.wait("❯")
        screen.type("WORD=i1 @@say one")
        screen.wait("● one")
        screen.type("/rename fixture arch")
        screen.wait("(?i)renamed")
        screen.paste(f"WORD=i2\n@@tool Read {read}\n@@tool Edit {edit}\n@@say edited")
        screen.wait("● edited")
        quiet(stage.live)
        screen.rewind()
        eventually("the edit to be taken back", lambda: edited.read_text() == "v1\n")
        screen.rub_out()
        screen.type("WORD=i3 @@say after")
        screen.wait("● after")
        screen.leave()


def trimmed(stage: Stage) -> None:
    """Over 5 MiB, /compact with the CLI's own trimming on: live is what it left, kept/ what stood before."""
    cli = stage.cli.with_env(CLAUDE_CODE_TRANSCRIPT_LOCAL_GC="1")
    with cli.talk("--session-id", stage.session) as talk:
        talk.turn("WORD=g1 @@say a1")
        turn = 0
        while quiet(stage.live, 0.2).stat().st_size <= GC_LIMIT_BYTES:
            turn += 1
            talk.turn(f"WORD=fill{turn} @@fill 1500000")
        stage.keep()
        inode = stage.live.stat().st_ino
        talk.turn("/compact")
        eventually("another inode", lambda: stage.live.stat().st_ino != inode)
        talk.turn("WORD=g2 @@say a2")
        quiet(stage.live)


SCENARIOS: tuple[Callable[[Stage], None], ...] = (
    tools,
    subagent,
    compacted,
    recreated,
    forked,
    cleared,
    two_writers,
    relocated,
    interactive,
    stub,
    stub_renamed,
    cut_back,
    new_root,
    trimmed,
)
SINCE = {"trimmed": (2, 1, 328)}
"""What a scenario needs at least; the others play on both pinned versions."""


def scrub_line(line: bytes) -> bytes:
    """Elide vendor text in one record; a record without any keeps its bytes."""
    try:
        record = json.loads(line)
    except ValueError:
        return line
    limit = OURS_LIMIT if record.get("type") in OURS else VENDOR_LIMIT
    scrubbed = _scrub(record, limit)
    if scrubbed == record:
        return line
    return json.dumps(scrubbed, ensure_ascii=False, separators=(",", ":")).encode()


def _scrub(value: Any, limit: int) -> Any:
    if isinstance(value, dict):
        return {k: {} if k == "input_schema" else _scrub(v, limit) for k, v in value.items()}
    if isinstance(value, list):
        return [_scrub(item, limit) for item in value]
    if not isinstance(value, str):
        return value
    value = re.sub(r"\bLinux \d+\.\d+\S*", "Linux 6.1.0", value)
    if len(value) <= limit and "<system-reminder>" not in value:
        return value
    head = value[:200] if value.startswith("<persisted-output>") else ""  # It names the file in tool-results.
    return f"{head}<elided {len(value) - len(head)} chars>"


def save(stage: Stage, out: Path) -> list[Path]:
    """Copy the footprint, scrubbed; answer the files."""
    shutil.rmtree(out, ignore_errors=True)
    copies = [(file, out / "kept" / file.name) for file in stage.kept]
    for part in FOOTPRINT:
        for file in sorted((stage.cli.profile / part).rglob("*")):
            if file.is_file() and file.name != ".lock":
                copies.append((file, out / part / file.relative_to(stage.cli.profile / part)))
    for source, target in copies:
        target.parent.mkdir(parents=True, exist_ok=True)
        raw = source.read_bytes()
        if source.suffix == ".jsonl":
            raw = b"\n".join(scrub_line(line) for line in raw.split(b"\n"))
        _refuse_traces(stage, target, raw)
        target.write_bytes(raw)
    return [target for _, target in copies]


def _refuse_traces(stage: Stage, target: Path, raw: bytes) -> None:
    for trace in (str(Path.home()), str(REPOSITORY), str(stage.lab.folder), os.uname().nodename):
        if trace.encode() in raw:
            raise SystemExit(f"{target} would name this machine: {trace}")


def resumed(stage: Stage, out: Path) -> dict[str, list[str] | None]:
    """The words that the stub API is shown when a saved live transcript is resumed; None if refused."""
    shown: dict[str, list[str] | None] = {}
    for number, transcript in enumerate(sorted((out / "projects").glob("*/*.jsonl"))):
        cli = Cli(stage.lab, stage.version, DEMO / f"again{number}", stage.cli.cwd)
        place = cli.transcript(transcript.stem)
        place.parent.mkdir(parents=True)
        shutil.copy(transcript, place)
        done = cli.resume(transcript.stem)
        shown[transcript.stem] = list(done.history.words) if done.code == 0 else None
    return shown


def play(lab: Lab, version: str, number: int, scenario: Callable[[Stage], None]) -> None:
    name = scenario.__name__
    out = OUT / version / name
    DEMO.mkdir(parents=True)
    try:
        stage = Stage(lab, version, number)
        stage.cli.environment()  # Makes home and cwd.
        scenario(stage)
        files = save(stage, out)
        about = {
            "cli": version,
            "scenario": name,
            "about": " ".join((scenario.__doc__ or "").split()),
            "session": stage.session,
            "resumed": resumed(stage, out),
        }
        (out / "scenario.json").write_text(json.dumps(about, indent=2) + "\n")
        print(
            f"{version}  {name:12} {len(files)} files, {sum(f.stat().st_size for f in files):,} bytes",
            flush=True,
        )
        print(f"{'':21}{about['resumed']}", flush=True)
    finally:
        shutil.rmtree(DEMO)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("versions", nargs="*", metavar="VERSION")
    parser.add_argument("--only", metavar="SCENARIO")
    chosen = parser.parse_args()
    if DEMO.exists():
        raise SystemExit(f"{DEMO} exists; it is made and removed by this script, so move yours away")
    for version in chosen.versions or install.PINNED:
        install.install(version)
        if lack := missing():
            raise SystemExit(f"this machine lacks {lack}")
        with tempfile.TemporaryDirectory() as folder, Lab(Path(folder)) as lab:
            for number, scenario in enumerate(SCENARIOS, 1):
                needed = SINCE.get(scenario.__name__, ())
                new_enough = tuple(map(int, version.split("."))) >= needed
                if new_enough and chosen.only in (None, scenario.__name__):
                    play(lab, version, number, scenario)


if __name__ == "__main__":
    main()
