"""Hooks: puts keeper's hooks into a profile's settings.json, and takes them out again.

It promises that everybody else's bytes stay where they are and as they are, that taking out gives back the very bytes
that were there before where nobody has changed the file since, and that the file is whole-old or whole-new at every
instant. It refuses a file that is no JSON (Claude Code reads nothing of it either), and one that changes meanwhile.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from keeper import disk, files
from keeper.doors.hook import EVENTS, WAIT_S
from keeper.doors.json_text import Member, Node, drop, insert, parse, put
from keeper.errors import KeeperError, NoExchange, Refused
from keeper.retention import MANAGED, administered

BACKUP = ".before-keeper"
"""Behind the file's name: as it was before keeper's hooks."""
OFF = "disableAllHooks"
HOOKED = "hooked.json"
"""In the state's folder: the profiles that keeper's hooks were put into, so that they can be taken out of each, also by
a shell that names another, and with neither settings nor vault."""
PLUGIN = Path(__file__).resolve().parent / "plugin"
"""The same hooks as a plugin of Claude Code: `claude --plugin-dir`."""
CALL = "PYTHONPATH= PYTHONHOME= {} hook >/dev/null 2>&1 || exit 0"
"""Whatever program answers to that name, and whatever Python a project's environment would have it load: Claude takes
no word of it into the conversation."""
_CALLS = "|".join(re.escape(call.format('"$k"')) for call in (CALL, "{} hook 2>/dev/null || exit 0"))
_OURS = re.compile(rf'k=.+; \[ -x "\$k" \] \|\| k=keeper; ({_CALLS})', re.DOTALL)
"""Ours, those of older keepers too."""


def command(program: str) -> str:
    """What Claude's shell is given: keeper where it stood, else the one on PATH; with neither it ends with 0."""
    return f'k={shlex.quote(program)}; [ -x "$k" ] || k=keeper; ' + CALL.format('"$k"')


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of one file that is decided and not yet made. `before` and `after` are its bytes, None: no such file.
    `backs_up`: as it was before, it goes into the backup; `restores`: the backup goes, since it is what comes back."""

    file: str
    what: str
    before: bytes | None
    after: bytes | None
    backs_up: bool = False
    restores: bool = False


@dataclass(frozen=True, slots=True)
class Hooked:
    """How a profile stands: the events at which Claude calls keeper, those that lack, and whose word it is that Claude
    calls no hook of the user's ("" where nobody's)."""

    profile: str
    file: str
    events: tuple[str, ...]
    missing: tuple[str, ...]
    disabled: str


@dataclass(frozen=True, slots=True)
class _Ours:
    """One hook of keeper's, with all that it stands in."""

    root: Node
    hooks: Member
    event: Member
    group: Member
    commands: Node
    hook: Member


# --- deciding ------------------------------------------------------------------------------------------


def file_of(profile: Path) -> str:
    """The user's settings of a profile; where that is a link (dotfiles), the file that it leads to."""
    return os.path.realpath(profile / "settings.json")


def status(profile: Path, managed: Sequence[Path] = MANAGED) -> Hooked:
    """How a profile's settings stand, below an administrator's. Raises Refused where they do not read."""
    file = file_of(profile)
    root = _root(_text(_read(file), file), file)
    found = {one.event.key for one in _ours(root)}
    events = tuple(event for event in EVENTS if event in found)
    missing = tuple(event for event in EVENTS if event not in found)
    own = f"`{OFF}` in {file}" if root.value.get(OFF) is True else ""
    return Hooked(str(profile), file, events, missing, own or administered((OFF, "allowManagedHooksOnly"), managed))


def install(profile: Path, program: str) -> Edit | None:
    """The edit that has Claude call keeper at every event; None where it does so already. Raises Refused."""
    file = file_of(profile)
    before, said = _read(file), command(program)
    ours = next(_ours(_root(_text(before, file), file)), None)
    first, unchanged = _first(before, file, ours)
    after = _with_hooks(first if unchanged else before, file, said)
    if after == before:
        return None
    backs_up = before is not None and ours is None
    aside = f" (as it is now: {file}{BACKUP})" if backs_up else ""
    what = f"have Claude Code call `keeper hook`: {len(EVENTS)} hooks in {file}{aside}"
    return Edit(file, what, before, after, backs_up)


def remove(profile: Path) -> Edit | None:
    """The edit that takes keeper's hooks out; None where there are none. Raises Refused."""
    file = file_of(profile)
    before = _read(file)
    ours = next(_ours(_root(_text(before, file), file)), None)
    if before is None or ours is None:
        return None
    first, unchanged = _first(before, file, ours)
    if unchanged:
        if first is None:
            return Edit(file, f"remove {file}: it holds keeper's hooks alone", before, None)
        back = f"take keeper's hooks out of {file}: back to the bytes that it had before"
        return Edit(file, back, before, first, restores=True)
    rest = f" (others have changed it since; as it was before: {file}{BACKUP})" if first is not None else ""
    return Edit(file, f"take keeper's hooks out of {file}{rest}", before, _without_hooks(before, file))


def _first(before: bytes | None, file: str, ours: _Ours | None) -> tuple[bytes | None, bool]:
    """The file as it was before keeper's hooks, and whether these are all that has changed since."""
    first = None
    with suppress(Refused):
        if ours is None:
            return None, False
        first = _read(file + BACKUP)
        return first, _with_hooks(first, file, ours.hook.node.value["command"]) == before
    return first, False


def _read(file: str) -> bytes | None:
    try:
        return files.read(file)
    except FileNotFoundError:
        if os.path.lexists(file) and not os.path.isfile(file):
            raise _no_settings(file, "it is no regular file") from None
        return None


def _text(data: bytes | None, file: str) -> str:
    """A file's text; no file and nothing but blanks count for an empty object, as Claude takes them."""
    try:
        text = (data or b"").decode()
    except UnicodeDecodeError as error:
        raise _no_settings(file, f"it is no UTF-8 ({error.reason} at byte {error.start})") from error
    return text if text.strip("\ufeff \t\r\n") else "{}\n"


def _root(text: str, file: str) -> Node:
    """The settings, in the shape that Claude asks for as far as hooks go. Raises Refused."""
    try:
        root = parse(text)
    except ValueError as error:
        raise _no_settings(file, f"it is no JSON ({error})") from error
    if not isinstance(root.value, dict):
        raise _no_settings(file, "it is no JSON object")
    hooks = root.child("hooks")
    if hooks is not None and not isinstance(hooks.value, dict):
        raise _no_settings(file, "its `hooks` is no object")
    for event in hooks.members if hooks else ():
        if not isinstance(event.node.value, list):
            raise _no_settings(file, f"its hooks of {event.key} are no list")
    return root


def _no_settings(file: str, why: str) -> Refused:
    return Refused(f"{file}: {why}", "mend it: Claude Code does not take it as it is; keeper has changed nothing")


def _ours(root: Node) -> Iterator[_Ours]:
    """Keeper's hooks in these settings."""
    hooks = next((one for one in reversed(root.members) if one.key == "hooks"), None)
    for event in hooks.node.members if hooks else ():
        for group in event.node.members:
            commands = group.node.child("hooks")
            for hook in commands.members if commands else ():
                said = hook.node.child("command")
                if hooks and commands and said and isinstance(said.value, str) and _OURS.fullmatch(said.value):
                    yield _Ours(root, hooks, event, group, commands, hook)


def _with_hooks(before: bytes | None, file: str, said: str) -> bytes:
    """A file's bytes with a hook of this command at every event."""
    text = _text(before, file)
    handler = {"type": "command", "command": said, "timeout": WAIT_S}
    group = {"hooks": [handler]}
    for event in EVENTS:
        root = _root(text, file)
        hooks = root.child("hooks")
        entries = hooks.child(event) if hooks else None
        ours = next((one for one in _ours(root) if one.event.key == event), None)
        if ours is not None:
            if ours.hook.node.value != handler:
                text = put(text, ours.hook.node, handler)
        elif hooks is None:
            text = insert(text, root, {event: [group]}, "hooks")
        elif entries is None:
            text = insert(text, hooks, [group], event)
        else:
            text = insert(text, entries, group)
    return text.encode()


def _without_hooks(before: bytes, file: str) -> bytes:
    """A file's bytes without any hook of keeper's, and without the lists that nothing else was in."""
    text = _text(before, file)
    while (one := next(_ours(_root(text, file)), None)) is not None:
        if len(one.commands.members) > 1:
            text = drop(text, one.commands, one.hook)
        elif len(one.event.node.members) > 1:
            text = drop(text, one.event.node, one.group)
        elif len(one.hooks.node.members) > 1:
            text = drop(text, one.hooks.node, one.event)
        else:
            text = drop(text, one.root, one.hooks)
    return text.encode()


# --- where they are ------------------------------------------------------------------------------------


def noted(state: Path) -> list[Path]:
    """The profiles that were noted. A note that does not read is none."""
    with suppress(OSError, KeeperError, ValueError):
        told = json.loads(files.read(state / HOOKED))
        return [Path(one) for one in told if isinstance(one, str)] if isinstance(told, list) else []
    return []


def note(state: Path, profile: Path, hooked: bool = True) -> None:
    """Note that this profile has keeper's hooks, or has them no longer. Raises DiskError."""
    before = noted(state)
    after = [one for one in before if one != profile] + [profile] * hooked
    if set(after) == set(before):
        return
    if not after:
        disk.unlink(state / HOOKED)
        return
    disk.ensure_dir(state)
    disk.write_file(state / HOOKED, json.dumps([str(one) for one in after]).encode())


# --- doing ---------------------------------------------------------------------------------------------


def make(edit: Edit) -> None:
    """Make the change, durable. Raises Refused where the file is not as it was when it was decided, and DiskError."""
    if _read(edit.file) != edit.before:
        raise _changed(edit.file)
    if edit.backs_up and edit.before is not None:
        disk.write_file(edit.file + BACKUP, edit.before)
    if edit.after is None:
        disk.unlink(edit.file)
    elif edit.before is None:
        disk.ensure_dir(os.path.dirname(edit.file))
        _make_new(edit.file, edit.after)
    else:
        _exchange(edit.file, edit.before, edit.after)
    if edit.restores:
        disk.unlink(edit.file + BACKUP)
    disk.sync_dir(os.path.dirname(edit.file))


def _changed(file: str) -> Refused:
    return Refused(f"{file} was changed by another meanwhile: left as that one has it", "run it again")


def _beside(file: str) -> str:
    return f"{os.path.dirname(file)}/.keeper-{os.urandom(6).hex()}.tmp"


def _make_new(file: str, after: bytes) -> None:
    new = _beside(file)
    disk.write_new(new, [after])
    try:
        disk.move(new, file)
    except FileExistsError:
        disk.unlink(new)
        raise _changed(file) from None


def _exchange(file: str, before: bytes, after: bytes) -> None:
    """The file has the new bytes, with its mode and owner; what came out for them must be what was read."""
    new = _beside(file)
    like = files.open_read(file)
    try:
        disk.write_new(new, [after], like=like)
    finally:
        os.close(like)
    try:
        disk.exchange(new, file)
    except NoExchange:
        disk.replace(new, file)
        return
    except FileNotFoundError:
        disk.unlink(new)
        raise _changed(file) from None
    changed = files.read(new) != before
    if changed:
        disk.exchange(new, file)
    disk.unlink(new)
    if changed:
        raise _changed(file)
