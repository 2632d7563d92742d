#!/usr/bin/env python3
"""Has the real CLI call a hook that writes down what it was given, and saves that under `fixtures/hooks`.

    scripts/record_hooks.py [VERSION …]     (no version: the pinned ones and 1.0.124)

Promises: `fixtures/hooks/<version>.json` is the list of all that the CLI handed to the six hooks which keeper asks
for, in the order in which they were called: the payload, whether its transcript was there then, and the names of the
CLI's own variables in the hook's environment. The folder that it ran in is told as /srv/demo.

Refuses: to save what names anything else of this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from keeper.doors.hook import EVENTS  # noqa: E402
from tests.lab import install  # noqa: E402
from tests.lab.cli import Cli, folder_name  # noqa: E402
from tests.lab.namespace import Lab, missing  # noqa: E402
from tests.lab.screen import Screen  # noqa: E402
from tests.lab.waiting import quiet  # noqa: E402

OUT = REPOSITORY / "fixtures" / "hooks"
ONE, OTHER, LOST = (f"{n:08d}-0000-4000-8000-{n:012d}" for n in (1, 2, 3))

RECORDER = """#!/bin/sh
at=$(date +%s%N)
cat > "$0.d/$at.json"
path=$(sed -n 's/.*"transcript_path":"\\([^"]*\\)".*/\\1/p' "$0.d/$at.json")
[ -e "$path" ] && : > "$0.d/$at.there"
env | sed -n 's/^\\(CLAUDE[A-Z_]*\\)=.*/\\1/p' | sort > "$0.d/$at.env"
exit 0
"""


def settings(command: str, timeout_s: int = 60) -> dict[str, Any]:
    """A settings.json that has this command called for every event that keeper asks for."""
    entry = [{"hooks": [{"type": "command", "command": command, "timeout": timeout_s}]}]
    return {"hooks": dict.fromkeys(EVENTS, entry)}


def printed(cli: Cli) -> None:
    """Without a terminal: a turn with a tool, a resume with a subagent, a resume of what is not there."""
    cli.say('WORD=one\n@@tool Bash {"command":"echo hi"}\n@@say done', "--session-id", ONE, "--allowedTools", "Bash")
    task = {"description": "look", "prompt": "@@say subdone", "subagent_type": "general-purpose"}
    name = "Task" if cli.version == install.THROW_AWAY_IDS else "Agent"
    prompt = f"WORD=two\n@@tool {name} {json.dumps(task)}\n@@say launched"
    cli.say(prompt, "--resume", ONE, "--allowedTools", "Agent,Task")
    cli.run("-p", "hi", "--resume", LOST)


def typed(cli: Cli) -> None:
    """On a terminal: two turns, /compact, /clear, a turn, /exit; then a resume without a prompt."""
    with Screen(cli, "--session-id", OTHER) as screen:
        screen.wait("❯|>")
        for word in ("one", "two"):  # 2.1.197 does not compact less
            screen.type(f"WORD={word} @@say heard {word}")
            screen.wait(f"● heard {word}")
        screen.type("/compact")
        screen.wait("(?i)compacted")
        screen.type("/clear")
        screen.wait("❯|>")
        screen.type("WORD=after @@say heard after")
        screen.wait("● heard after")
        screen.leave()
    with Screen(cli, "--resume", OTHER) as screen:
        screen.wait("❯|>")
        screen.leave()


def record(lab: Lab, version: str, root: Path) -> list[dict[str, Any]]:
    """Everything that the hooks were given, told as of /srv/demo."""
    cli = Cli(lab, version, root / "home", root / "proj")
    recorder = root / "recorder"
    Path(f"{recorder}.d").mkdir(parents=True)
    recorder.write_text(RECORDER)
    recorder.chmod(0o755)
    cli.environment()
    cli.set(**settings(str(recorder)))
    printed(cli)
    if version != install.THROW_AWAY_IDS:
        typed(cli)
    for project in (cli.profile / "projects").iterdir():
        for transcript in project.glob("*.jsonl"):
            quiet(transcript)
    found = []
    for place in sorted(Path(f"{recorder}.d").glob("*.json")):
        found.append(
            {
                "payload": json.loads(place.read_text()),
                "transcript_there": place.with_suffix(".there").exists(),
                "environment": place.with_suffix(".env").read_text().split(),
            }
        )
    text = json.dumps(found, indent=2, ensure_ascii=False)
    text = text.replace(str(root), "/srv/demo").replace(folder_name(root), "-srv-demo")
    for trace in (str(Path.home()), str(REPOSITORY), str(lab.folder), os.uname().nodename, str(root.parent)):
        if trace in text and trace != "/":
            raise SystemExit(f"what {version} told would name this machine: {trace}")
    told: list[dict[str, Any]] = json.loads(text)
    return told


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0], epilog="Example: scripts/record_hooks.py 2.1.328"
    )
    parser.add_argument("versions", nargs="*", metavar="VERSION")
    if lack := missing():
        raise SystemExit(f"this machine lacks {lack}")
    for version in parser.parse_args().versions or (*install.PINNED, install.THROW_AWAY_IDS):
        install.install(version)
        with tempfile.TemporaryDirectory() as folder, Lab(Path(folder) / "lab") as lab:
            told = record(lab, version, Path(folder) / "demo")
        OUT.mkdir(exist_ok=True)
        (OUT / f"{version}.json").write_text(json.dumps(told, indent=2, ensure_ascii=False) + "\n")
        print(f"{version}  {len(told)} calls: {', '.join(one['payload']['hook_event_name'] for one in told)}")


if __name__ == "__main__":
    main()
