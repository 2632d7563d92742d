"""Shows keep, sweep and restore on a throw-away profile, with every command that it runs.

It promises to touch nothing of the user's own: home, profile and vault stand in one temporary folder, which
is gone when it ends. It exits 1 when a file did not come back as it was.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

SESSION = "5e0a7c1e-2b46-4c8e-9a53-d1f0b7e4a912"
AGE_DAYS = 40  # Claude Code sweeps after 30 days unless its settings say otherwise.

TURNS = (
    (
        "The total is a cent off when a voucher is used. Find out why.",
        ("Bash", {"command": "grep -rn 'round(' src/"}, "src/cart.py:41: total = round(net) + round(tax)\n"),
        "Net and tax are rounded one by one before they are added. Round the sum once instead.",
    ),
    (
        "Do that, and show me that the old case is right now.",
        ("Bash", {"command": "pytest -q tests/test_cart.py"}, "." * 400 + "\n400 passed in 2.31s\n"),
        "Done: src/cart.py rounds once. The voucher case gives 19.99, as it should.",
    ),
    (
        "Let a subagent look for the same mistake elsewhere.",
        ("Task", {"description": "Look for early rounding"}, "One more place: src/refund.py, line 17.\n"),
        "There is one more, in src/refund.py. I have mended it in the same way.",
    ),
)


def records(cwd: Path, begun: datetime) -> Iterator[dict[str, object]]:
    """The lines of a transcript of these turns, in the shape in which Claude Code writes them."""
    moment, parent = begun, None
    common = {
        "isSidechain": False,
        "userType": "external",
        "entrypoint": "cli",
        "cwd": str(cwd),
        "version": "2.1.328",
    }

    def message(kind: str, content: object) -> dict[str, object]:
        nonlocal moment, parent
        moment += timedelta(seconds=3)
        line = {
            "parentUuid": parent,
            **common,
            "sessionId": SESSION,
            "type": kind,
            "message": {"role": kind, "content": content},
            "uuid": str(uuid.uuid4()),
            "timestamp": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        }
        parent = line["uuid"]
        return line

    yield {"type": "mode", "mode": "normal", "sessionId": SESSION}
    for prompt, (tool, asked, answered), reply in TURNS:
        call = f"toolu_{uuid.uuid4().hex[:24]}"
        yield message("user", prompt)
        yield message("assistant", [{"type": "tool_use", "id": call, "name": tool, "input": asked}])
        yield message("user", [{"type": "tool_result", "tool_use_id": call, "content": answered}])
        yield message("assistant", [{"type": "text", "text": reply}])
        yield {"type": "last-prompt", "lastPrompt": prompt, "leafUuid": parent, "sessionId": SESSION}
    yield {"type": "custom-title", "customTitle": "a cent off", "sessionId": SESSION}


@dataclass(frozen=True, slots=True)
class Stage:
    """The throw-away home and what stands in it."""

    home: Path

    @property
    def profile(self) -> Path:
        return self.home / ".claude"

    @property
    def vault(self) -> Path:
        return self.home / ".local" / "share" / "keeper"

    @property
    def cwd(self) -> Path:
        return self.home / "shop"

    @property
    def project(self) -> Path:
        return self.profile / "projects" / re.sub("[^A-Za-z0-9]", "-", str(self.cwd))

    @property
    def transcript(self) -> Path:
        return self.project / f"{SESSION}.jsonl"

    @property
    def footprint(self) -> tuple[Path, Path, Path]:
        return self.transcript, self.project / SESSION, self.profile / "file-history" / SESSION

    def files(self) -> dict[str, bytes]:
        """Every file of the conversation that the profile holds, by its name there."""
        found = [path for place in self.footprint for path in (place, *place.rglob("*")) if path.is_file()]
        return {str(path.relative_to(self.profile)): path.read_bytes() for path in found}

    def keeper(self, *arguments: str) -> None:
        print(f"\n$ keeper {shlex.join(arguments)}", flush=True)
        done = subprocess.run(
            [sys.executable, "-m", "keeper", *arguments],
            env={
                "PATH": os.environ.get("PATH", os.defpath),
                "LANG": "C.UTF-8",
                "HOME": str(self.home),
                "CLAUDE_CONFIG_DIR": str(self.profile),
                "KEEPER_HOME": str(self.vault),
            },
            check=False,
        )
        if done.returncode != 0:
            sys.exit(f"keeper ended with {done.returncode}")


def converse(stage: Stage) -> None:
    """What Claude Code would have left: transcript, tool result, subagent, the edited file before."""
    stage.cwd.mkdir()
    lines = list(records(stage.cwd, datetime.now(UTC) - timedelta(days=AGE_DAYS)))
    agent = [{**line, "isSidechain": True, "agentId": "a3f9c2d481b7e605"} for line in lines[-6:-4]]
    transcript, companion, history = stage.footprint
    for path, text in (
        (transcript, "".join(json.dumps(line) + "\n" for line in lines)),
        (companion / "tool-results" / "b7kq20x1c.txt", "." * 40_000 + "\n400 passed in 2.31s\n"),
        (
            companion / "subagents" / "agent-a3f9c2d481b7e605.jsonl",
            "".join(json.dumps(r) + "\n" for r in agent),
        ),
        (companion / "subagents" / "agent-a3f9c2d481b7e605.meta.json", '{"agentType":"general-purpose"}'),
        (history / "9d2f40c7a1b3e586@v1", "total = round(net) + round(tax)\n"),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        path.chmod(0o600)
        long_ago = time.time() - AGE_DAYS * 86400
        os.utime(path, (long_ago, long_ago))


def sweep(stage: Stage) -> None:
    """Takes what Claude Code's own clean-up takes: the transcript, all beside it, the empty folder."""
    for place in stage.footprint:
        print(f"  swept  {place.relative_to(stage.profile)}{'/' if place.is_dir() else ''}")
        shutil.rmtree(place) if place.is_dir() else place.unlink()
    stage.project.rmdir()


def judge(stage: Stage, before: dict[str, bytes]) -> bool:
    """Prints what came back, and answers whether all of it did."""
    after = stage.files()
    kept = {path.stat().st_ino for path in stage.vault.rglob("*.jsonl")}
    now = time.time()
    verdicts = {
        f"{len(before)} files, {sum(map(len, before.values())):,} bytes, byte for byte": after == before,
        "the transcript in the profile and the one in the vault are one inode": stage.transcript.exists()
        and stage.transcript.stat().st_ino in kept,
        "its time is now, so the next sweep passes it by": stage.transcript.exists()
        and abs(now - stage.transcript.stat().st_mtime) < 60,
    }
    for claim, holds in verdicts.items():
        print(f"  {'yes' if holds else 'NO '}  {claim}")
    return all(verdicts.values())


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="keeper-demo-") as folder:
        stage = Stage(Path(folder).resolve())
        converse(stage)
        before = stage.files()
        print(f"A conversation of {AGE_DAYS} days ago, in a throw-away profile:")
        for name, data in before.items():
            print(f"  {len(data):>6}  {name}")
        stage.keeper("keep")
        print("\nClaude Code sweeps what is older than its retention:")
        sweep(stage)
        stage.keeper("restore", SESSION)
        print("\nIs it all there again?")
        whole = judge(stage, before)
    print("\nThe throw-away profile is gone. On your own: scripts/start")
    return 0 if whole else 1


if __name__ == "__main__":
    sys.exit(main())
