"""`keeper hooks`: Claude Code's hooks call keeper, by each profile's settings file."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import click

from keeper import files, settings
from keeper.cli import out
from keeper.cli.parts import Do, Part, Step, carry_out, dry_run_option, yes_option
from keeper.doors import hooks as door
from keeper.doors.hook import EVENTS
from keeper.errors import KeeperError
from keeper.settings import Settings
from keeper.transcripts.places import profiles_of
from keeper.transcripts.vault import Vault


def program() -> str:
    """Where this keeper stands, by a name that outlives an update: no link is followed."""
    called = os.path.abspath(sys.argv[0])
    if os.path.basename(called) == "keeper" and os.path.isfile(called) and os.access(called, os.X_OK):
        return called
    beside = os.path.join(os.path.dirname(os.path.abspath(sys.executable)), "keeper")
    return beside if os.access(beside, os.X_OK) else os.path.abspath(shutil.which("keeper") or beside)


def _profiles(values: Settings) -> list[Path]:
    """The profiles that are known; the one in use counts before Claude has made it."""
    try:
        with Vault.open(values, make=False) as vault:
            known = profiles_of(vault)
    except (KeeperError, OSError) as error:
        told = files.told(error, values.vault)
        out.warn(f"{told.message}: only the profiles of the settings, and those with keeper's hooks, are looked at")
        known = [profile for profile in values.profiles if profile.is_dir()]
    noted = [profile for profile in door.noted(values.state_home) if profile.is_dir()]
    return list(dict.fromkeys([*values.profiles[:1], *known, *noted]))


def _steps(values: Settings, decide: Callable[[Path], door.Edit | None], hooked: bool) -> list[Step]:
    steps: dict[str, Step] = {}
    for profile in _profiles(values):
        file = door.file_of(profile)
        if file in steps:
            continue  # two profiles with one file (dotfiles)
        try:
            edit = decide(profile)
        except (KeeperError, OSError) as error:
            told = files.told(error, profile)
            steps[file] = Step(f"cannot be done: {told.message}", fails=told)
            continue
        if edit is not None:
            steps[file] = Step(edit.what, _making(edit, values.state_home, profile, hooked))
    return list(steps.values())


def _making(edit: door.Edit, state: Path, profile: Path, hooked: bool) -> Do:
    def make() -> Sequence[str]:
        if hooked:
            door.note(state, profile)
        door.make(edit)
        if not hooked:
            door.note(state, profile, False)
        return [f"{edit.file}: done"]

    return make


def _install(values: Settings) -> list[Step]:
    here = program()
    return _steps(values, lambda profile: door.install(profile, here), True)


def _remove(values: Settings) -> list[Step]:
    return _steps(values, door.remove, False)


def _advice(values: Settings) -> list[str]:
    found = [_stands(profile) for profile in _profiles(values)]
    return [f"{one['file']}: {_off(one)}" for one in found if one["disabled"]]


PART = Part("hooks", _install, _remove, _advice)


@click.command()
@click.argument("action", type=click.Choice(["install", "remove", "status"]))
@dry_run_option
@yes_option
@out.json_option
def hooks(action: str, dry_run: bool, yes: bool, as_json: bool) -> int:
    """Have Claude Code call keeper at each turn's end and its other events, take that back, or say how it stands.

    They go into the settings.json of each profile, where everybody else's hooks and the formatting stay as they are.

    Example: keeper hooks install --dry-run
    """
    if action != "status":
        return carry_out([PART], action == "remove", dry_run, yes, as_json)
    found = [_stands(profile) for profile in _profiles(settings.load(os.environ))]
    if as_json:
        out.say_json({"profiles": found, "plugin": str(door.PLUGIN)})
        return 0
    for one in found:
        out.say(f"{one['file']}: {_words(one)}")
    lacks = "" if shutil.which("keeper") else " (it calls the keeper on PATH; there is none: it would keep nothing)"
    out.say(f"the same as a plugin: claude --plugin-dir {door.PLUGIN}{lacks}")
    return 0


def _stands(profile: Path) -> dict[str, object]:
    """How a profile stands, also one whose settings do not read."""
    try:
        return {**asdict(door.status(profile)), "error": None}
    except (KeeperError, OSError) as error:
        empty = door.Hooked(str(profile), door.file_of(profile), (), EVENTS, "")
        return {**asdict(empty), "error": files.told(error, profile).message}


def _words(one: dict[str, object]) -> str:
    if one["error"]:
        return str(one["error"])
    missing = one["missing"]
    lacks = ", ".join(missing) if isinstance(missing, tuple) else ""
    state = f"installed, but for {lacks}" if one["events"] and lacks else "not installed" if lacks else "installed"
    return f"{state}, but {_off(one)}" if one["disabled"] else state


def _off(one: dict[str, object]) -> str:
    return f"Claude Code calls none of your hooks: {one['disabled']} is true"
