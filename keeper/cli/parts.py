"""Parts: what `keeper setup` puts in place and takes away, and how: decided, shown, then done.

One part that cannot be done stops no other.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import click

from keeper import files, settings
from keeper.cli import out
from keeper.errors import KeeperError, Usage
from keeper.settings import Settings

Do = Callable[[], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that will be done: in words, and the doing, which answers with what a person should hear of it. `fails`
    is why it cannot be done, where that is known before: a dry run ends with it as well."""

    what: str
    do: Do = tuple
    fails: KeeperError | None = None


def _nothing(values: Settings) -> Sequence[str]:
    return ()


@dataclass(frozen=True, slots=True)
class Part:
    """A way in: what there is to do to have it in place, and to have it gone (nothing where it is so), and what is left
    for a person to do once it is in place."""

    name: str
    install: Callable[[Settings], Sequence[Step]]
    remove: Callable[[Settings], Sequence[Step]]
    advice: Callable[[Settings], Sequence[str]] = _nothing


dry_run_option = click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
yes_option = click.option("--yes", is_flag=True, help="Ask nothing on a terminal.")


def carry_out(parts: Sequence[Part], undo: bool, dry_run: bool, yes: bool, as_json: bool) -> int:
    """Decide, show, do; the exit code. On a terminal a person is asked in between."""
    values = _settings(undo)
    steps = [
        (part.name, step)
        for part in (reversed(parts) if undo else parts)
        for step in (part.remove if undo else part.install)(values)
    ]
    if not as_json:
        out.say("\n".join(f"{name}: {step.what}" for name, step in steps) or "nothing to do: it is so already")
    if steps and not (dry_run or yes or as_json) and sys.stdin.isatty() and not click.confirm("go on?", default=True):
        return 130
    done = [_done(name, step, values, dry_run) for name, step in steps]
    advice = [] if undo else [f"{part.name}: {line}" for part in parts for line in part.advice(values)]
    if as_json:
        out.say_json({"steps": done, "advice": advice})
    else:
        _say(done, advice)
    codes = [int(str(one["exit"])) for one in done]
    return 3 if any(codes) and not all(codes) else max(codes, default=0)


def _settings(undo: bool) -> Settings:
    """What was put in place must go also with a settings file that does not read."""
    try:
        return settings.load(os.environ)
    except Usage as error:
        if not undo:
            raise
        out.warn(f"{error.message}: done without it")
        return settings.load({**os.environ, "KEEPER_CONFIG": os.devnull})


def _done(name: str, step: Step, values: Settings, dry_run: bool) -> dict[str, object]:
    told: dict[str, object] = {"part": name, "what": step.what, "done": False, "said": [], "exit": 0}
    try:
        if step.fails is not None:
            raise step.fails
        if not dry_run:
            told.update(said=list(step.do()), done=True)
    except (KeeperError, OSError) as failed:
        error = files.told(failed, values.vault)
        told.update(error=error.message, cure=error.cure, exit=error.exit_code)
    return told


def _say(done: list[dict[str, object]], advice: list[str]) -> None:
    for one in done:
        said = one["said"]
        for line in said if isinstance(said, list) else ():
            out.say(f"{one['part']}: {line}")
        if "error" in one:
            out.warn(f"{one['part']}: {one['error']}")
            if one["cure"]:
                out.warn(f"  cure: {one['cure']}")
    for line in advice:
        out.say(line)
