"""Ground: what keeper stands on: volumes, watches, room, modes, the clock.

Pure: facts in, checks out. It promises the line for a shell where a limit of the kernel is in the way. It refuses to
call a thing a failure that keeper has another way for.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator

from keeper.doctor.check import Check, at, fail, many, ok, size, some, span, warn
from keeper.doctor.facts import Facts

SPARE = 64 << 20
"""So much room is wanted on the vault's volume beside what is still to be kept."""
SEAL_SHARE = 0.3
"""A seal takes at most this part of what it seals, before it is packed."""
FEW_FILES = 1_000
FUTURE_S = 60.0
HALF = 2
"""A limit is raised before more than half of it is used up."""
DEFAULT_WATCHES, DEFAULT_INSTANCES, DEFAULT_QUEUE = 524_288, 1_024, 16_384
WITHOUT = {
    "link": "kept are copies, and a sweep takes what was written since the last keep",
    "exchange": "a live file is replaced in two steps instead of one",
    "lease": "an old inode is held for 60 s instead of until nobody writes",
    "events": "it is polled, every few seconds",
}
"""What is done where a volume lacks that."""


def checks(facts: Facts, shared: Callable[[str], bool]) -> Iterator[Check]:
    """`shared`: whether a volume of that type is changed behind this machine."""
    if facts.settings_error:
        yield fail("config", facts.settings_error, f"${{EDITOR:-vi}} {shlex.quote(facts.settings_file)}")
    if facts.vault.made and not facts.vault.error:
        yield from _volumes(facts, shared)
        yield _room(facts)
        yield from _modes(facts)
    yield from _trials(facts)
    yield from _inotify(facts)
    yield _clock(facts)


def _volumes(facts: Facts, shared: Callable[[str], bool]) -> Iterator[Check]:
    vault = facts.vault
    if shared(vault.kind):
        detail = f"{vault.path} is on a volume of type {vault.kind}: its locks and its index are others' to break; "
        detail += "put the vault on a disk of this machine"
        yield warn("network", detail, f"findmnt -T {shlex.quote(vault.path)}")
    for profile in facts.profiles:
        if shared(profile.kind):
            detail = f"{profile.path} is on a volume of type {profile.kind}, which others change without an event here"
            yield warn("network", f"{detail}: {WITHOUT['events']}", "keeper doctor --probe")
        if profile.device == vault.device:
            yield ok("volume", f"{profile.path} and {vault.path} are on one volume: kept are links")
        else:
            detail = f"{profile.path} and {vault.path} are on two volumes: {WITHOUT['link']}"
            places = f"{shlex.quote(profile.path)} {shlex.quote(vault.path)}"
            yield warn("volume", detail, f"df {places}")


def _room(facts: Facts) -> Check:
    vault = facts.vault
    copies = any(profile.device != vault.device for profile in facts.profiles)
    waits = sum(one.lag or one.size * (not one.kept) for profile in facts.profiles for one in profile.live)
    need = int(waits * (SEAL_SHARE + copies)) + SPARE
    where = shlex.quote(vault.path)
    if vault.read_only:
        return fail("space", f"the volume of {vault.path} is mounted read-only", f"findmnt -T {where}")
    if vault.free < need:
        make = fail if vault.free < SPARE else warn
        return make("space", f"{size(vault.free)} free at {vault.path}, {size(need)} wanted", f"df -h {where}")
    if vault.free_files is not None and vault.free_files < FEW_FILES:
        return warn("space", f"{vault.free_files} more files can be made at {vault.path}", f"df -i {where}")
    return ok("space", f"{size(vault.free)} free at {vault.path}, {size(need)} wanted")


def _modes(facts: Facts) -> Iterator[Check]:
    vault = facts.vault
    where = shlex.quote(vault.path)
    if vault.foreign:
        detail = f"{some(vault.foreign)}: not yours; no keep of yours can rely on it"
        yield fail("modes", detail, f'sudo chown -R "$(id -un)" {where}')
    elif vault.closed:
        names = " ".join(map(shlex.quote, vault.closed[:20]))
        yield fail("modes", f"{some(vault.closed)}: no keep can write there", f"chmod u+rwx {names}")
    elif vault.mode & 0o077:
        detail = f"{vault.path} has mode {vault.mode:04o}: others can read what is kept"
        yield fail("modes", detail, f"chmod 700 {where}")
    elif vault.open_folders:
        detail = f"{many(len(vault.open_folders), 'name')} in the vault open to others: {some(vault.open_folders)}"
        yield warn("modes", detail, f"chmod go-rwx {' '.join(map(shlex.quote, vault.open_folders[:20]))}")
    else:
        yield ok("modes", f"{vault.path} is yours alone")


def _trials(facts: Facts) -> Iterator[Check]:
    for one in facts.trials or ():
        if one.what == "write":
            yield fail("write", f"{one.folder}: {one.why}", f"ls -ld {shlex.quote(one.folder)}")
        elif not one.why:
            yield ok(one.what, f"works in {one.folder}")
        elif one.what in WITHOUT:
            yield warn(
                one.what, f"{one.folder}: {one.why}; {WITHOUT[one.what]}", f"findmnt -T {shlex.quote(one.folder)}"
            )
        else:
            yield ok(one.what, f"{one.folder}: {one.why}; a copy takes its room, a link none")


def _inotify(facts: Facts) -> Iterator[Check]:
    told = facts.inotify
    folders = sum(profile.folders for profile in facts.profiles)
    need = max(folders, facts.doors.agent.watches)
    yield from _limit("watches", "user_watches", told.watches, need, told.used_watches, DEFAULT_WATCHES)
    yield from _limit("instances", "user_instances", told.instances, 1, told.used_instances, DEFAULT_INSTANCES)
    # Watches that are set anew bring an event for each folder, all at once.
    yield from _limit("queue", "queued_events", told.queue, folders, 0, DEFAULT_QUEUE)


def _limit(name: str, key: str, limit: int | None, need: int, used: int, usual: int) -> Iterator[Check]:
    if limit is None:
        return
    line = f"fs.inotify.max_{key}"
    told = f"{line} is {limit}: {need} wanted" + (f", others of yours use {used}" if used else "")
    enough = max(usual, 1 << (HALF * (need + used)).bit_length())
    cure = f"echo {line}={enough} | sudo tee /etc/sysctl.d/60-keeper-{name}.conf && sudo sysctl --system"
    if need + used > limit:
        yield warn(f"inotify {name}", f"{told}; what is not watched is polled", cure)
    elif need + used > limit // HALF and name != "instances":
        yield warn(f"inotify {name}", f"{told}: little is left", cure)
    else:
        yield ok(f"inotify {name}", told)


def _clock(facts: Facts) -> Check:
    now = facts.now
    ahead = [one for profile in facts.profiles for one in profile.live if one.changed > now + FUTURE_S]
    if now < facts.vault.born - FUTURE_S:
        detail = f"it is {at(now)} by this machine, and the vault was made {at(facts.vault.born)}: the clock is behind"
        return fail("clock", detail, "timedatectl")
    if ahead:
        newest = max(one.changed for one in ahead)
        detail = f"{many(len(ahead), 'live chat')} with times in the future, the latest {at(newest)}: the clock was "
        detail += (
            f"set back, or is behind; `claude --continue` takes them first: {some([one.session for one in ahead])}"
        )
        return warn("clock", detail, "timedatectl")
    jumps = [event for event in facts.doors.agent.events if event.what == "clock" and now - event.when < 86_400]
    if jumps:
        detail = f"the clock was set, or the machine slept, {span(now - jumps[-1].when)} ago: all was looked at anew"
        return ok("clock", detail)
    return ok("clock", f"{at(now)}, no file is from the future")
