"""Watch: tells where in the profiles to look, and says so when it cannot.

It knows no vault and yields hints, never truth. It promises that each way in which events can be lost (an overflow,
the watch limit also for a folder deep below, no instance, a root that went or was replaced, a watch that ended, a hint
that nobody took, a volume without events) is a trouble with its reason until it is cured, that the profile is to be
polled meanwhile, and that a cure is followed by a hint for the whole profile: first the watches, then the look. It
refuses to follow a link, but for a project folder that a person linked (KEEP-9), and to watch what an append does.

What watchdog does with all this, as measured, stands in `inotify`.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from watchdog.observers.api import ObservedWatch

from keeper import claude
from keeper.agent import volume
from keeper.agent.hint import Hint, Listener, Storm
from keeper.agent.inotify import MOST_REFUSED, Ears
from keeper.agent.trouble import REFUSALS, Found, Pause, Trouble, carried, refusal

__all__ = ["Cost", "Hint", "Trouble", "Watch"]

LINKS_S = 60.0
"""How often linked project folders are looked for without an event: what a link leads to may come later."""
WATCH_BYTES = 1_800
"""What a watched folder costs: measured 0.7 kB here and 0.1 kB in the kernel, which also holds its inode (1 kB)."""

_LIMIT = "/proc/sys/fs/inotify/max_user_watches"
_TOPS = (("", False), ("projects", True), ("file-history", True), ("tasks", True), ("todos", False))


@dataclass(frozen=True, slots=True)
class Cost:
    """What the watches cost: their number, how many the kernel allows this user (None: not told), bytes of memory."""

    watches: int
    limit: int | None
    bytes: int


@dataclass(slots=True)
class _Root:
    """A folder to watch, by its name in the profile. `missed`: its absence is a trouble, once it was there."""

    profile: Path
    path: str
    recursive: bool
    missed: bool = False
    real: str = ""
    place: tuple[int, int] | None = None
    watch: ObservedWatch | None = None
    silent: str | None = None


class Watch:
    """Watches profiles. `put` takes each hint, at once and from any thread; `clock` is monotonic, in seconds.

    `start`, `tick`, `set_profiles` and `stop` are the agent's to call; a tick is due about once a second and after
    each hint without a session. After `start` the agent looks at everything: no hint tells of what was there before.
    """

    def __init__(
        self,
        profiles: Sequence[Path],
        put: Callable[[Hint], None],
        clock: Callable[[], float],
        silent: Callable[[str], str | None] = volume.silent,
    ) -> None:
        self._put, self._clock, self._silent = put, clock, silent
        self._lock = threading.RLock()  # never taken where an event arrives
        self._counting = threading.Lock()  # files and folders arrive by two threads
        self._ears: Ears | None = None
        self._roots: list[_Root] = []
        self._links_due: dict[Path, float] = {}
        self._storms: dict[Path, Storm] = {}
        self._lost: dict[Path, str] = {}
        self._rebuild, self._room = Pause(60.0), Pause(10.0)
        self._refused: tuple[int, list[tuple[Path, str, int, int]]] = (0, [])
        self._troubles: dict[tuple[str, str], Trouble] = {}
        self._polled: tuple[Path, ...] = ()
        self._told: dict[int, str | None] = {}
        self._profiles: tuple[Path, ...] = ()
        self._add(profiles)

    def start(self) -> None:
        """Watch all there is to watch. Raises nothing: what could not be watched is a trouble."""
        with self._lock:
            self._mend(hints=False)

    def tick(self) -> None:
        """See whether all that is watched still is, cure what can be cured, tell what that was about."""
        with self._lock:
            self._mend()

    def stop(self) -> None:
        """No event, thread or watch is left."""
        with self._lock:
            self._close()
            self._polled, self._troubles = (), {}

    def set_profiles(self, profiles: Sequence[Path]) -> None:
        """These are watched from now on; a new one is told of by a hint for all of it."""
        with self._lock:
            for root in [root for root in self._roots if root.profile not in profiles]:
                self._drop(root)
            self._add(profiles)
            self._mend()

    def troubles(self) -> tuple[Trouble, ...]:
        """What is wrong, and for a while what was."""
        return tuple(self._troubles.values())

    def polled(self) -> tuple[Path, ...]:
        """The profiles whose events cannot be relied on now: to be looked at every few seconds."""
        return self._polled

    def cost(self) -> Cost:
        ears = self._ears
        watches = ears.instance.watches if ears is not None else 0
        limit = None
        with suppress(OSError, ValueError), open(_LIMIT, encoding="ascii") as file:
            limit = int(file.read())
        return Cost(watches, limit, watches * WATCH_BYTES)

    # --- one tick ------------------------------------------------------------------------------------------

    def _mend(self, hints: bool = True) -> None:
        now = self._clock()
        found: Found = {}
        polled: set[Path] = set()
        anew: set[Path] = set()
        self._lend_ears(now, found, polled)
        for root in list(self._roots):
            self._look(root, found, polled, anew)
        for profile in self._profiles:
            if now >= self._links_due.get(profile, now):
                self._look_for_links(profile, found, polled, anew)
                self._links_due[profile] = now + LINKS_S
        self._ask_for_room(now, found, polled)
        for profile in list(self._lost):
            name = self._lost.pop(profile)
            found["hint not taken", str(profile)] = f"a hint for {profile} was not taken: {name}"
            anew.add(profile)
        self._troubles = carried(self._troubles, found, now)
        self._polled = tuple(profile for profile in self._profiles if profile in polled)
        if hints:
            for profile in self._profiles:
                if profile in anew:
                    self._tell(Hint(profile, None, "all", str(profile)))
                if size := self._storms[profile].sum_up():
                    self._tell(Hint(profile, None, "mass", str(profile), size))

    def _lend_ears(self, now: float, found: Found, polled: set[Path]) -> None:
        """An instance that hears all: kept, or made anew where events were lost."""
        ears = self._ears
        if ears is not None:
            if ears.instance.overflowed:
                found["overflow", ""] = "more happened at once than the kernel's queue holds: some events are lost"
            if failure := ears.failure():
                found["watch ended", ""] = f"the watch ended: {failure}"
            if not found:
                return
            if not self._rebuild.due(now):
                polled.update(self._profiles)
                return
            self._rebuild.again(now)
            self._close()
        try:
            self._ears = Ears()
        except (OSError, RuntimeError) as error:
            found["instance limit", ""] = (
                f"the kernel gives no inotify instance ({error}): end programs that watch files, or raise "
                "fs.inotify.max_user_instances (sysctl) or the limit of open files (ulimit -n)"
            )
            polled.update(self._profiles)

    def _look(self, root: _Root, found: Found, polled: set[Path], anew: set[Path]) -> None:
        """See that a root is watched as it stands now."""
        ears = self._ears
        if ears is None:
            return
        place = _place(root.path)
        if root.watch is not None and (place != root.place or not ears.hears(root.watch)):
            self._forget(root)
            if place == root.place:
                found["watch ended", root.path] = f"the watch of {root.path} ended by itself"
            elif place is not None:
                found["root replaced", root.path] = f"{root.path} was replaced by another folder"
        if place is None:
            if root.missed and root.place is not None:
                found["root gone", root.path] = f"{root.path} is gone: nothing below it can be kept until it is back"
                polled.add(root.profile)
            return
        if root.watch is None:
            self._hear(ears, root, place)
            anew.add(root.profile)
        if root.watch is None or root.silent is not None:
            polled.add(root.profile)
        if root.silent is not None:
            found["no events", str(root.profile)] = f"{root.silent}: it is polled"

    def _hear(self, ears: Ears, root: _Root, place: tuple[int, int]) -> None:
        root.real = os.path.realpath(root.path)
        listener = Listener(root.profile, root.real, root.path, self._pass_on, self._lost.__setitem__)
        # What the kernel refuses stands in the instance's own list; what was replaced meanwhile the next tick sees.
        with suppress(OSError, RuntimeError):
            root.watch = ears.hear(root.real, root.recursive, listener)
        root.place = place
        if place[0] not in self._told:
            self._told[place[0]] = self._silent(root.real)
        root.silent = self._told[place[0]]

    def _look_for_links(self, profile: Path, found: Found, polled: set[Path], anew: set[Path]) -> None:
        """Each linked project folder is a root of its own: no link below a root is followed."""
        linked = {
            entry.path
            for entry in claude.projects(profile)
            if entry.is_symlink() and not _leads_up(entry.path, profile)
        }
        for root in [root for root in self._roots if root.profile == profile and _is_link_root(root)]:
            if root.path not in linked:
                self._drop(root)
            linked.discard(root.path)
        for path in sorted(linked):
            self._roots.append(root := _Root(profile, path, recursive=True))
            self._look(root, found, polled, anew)

    def _ask_for_room(self, now: float, found: Found, polled: set[Path]) -> None:
        """What the kernel refused to watch is polled; once it takes more, everything is watched anew."""
        instance = self._ears.instance if self._ears is not None else None
        if instance is None or not instance.refused:
            self._refused = (0, [])
            return
        due = self._room.due(now) and self._rebuild.due(now)
        if due:
            self._room.again(now)
            for path in list(instance.refused):
                if not os.path.isdir(path):
                    instance.refused.pop(path, None)
            one_each = {code: path for path, code in instance.refused.copy().items()}
            if any(instance.would_take(path) for path in one_each.values()):
                self._rebuild.again(now)
                self._close()  # the next tick begins anew; until then all is as it was found
        if due or self._refused[0] != len(instance.refused):
            self._refused = len(instance.refused), self._refusals(instance.refused.copy())
        for profile, path, code, count in self._refused[1]:
            found[REFUSALS.get(code, "not watched"), path] = refusal(code, count, path)
            if code != errno.EACCES:  # what cannot be watched cannot be read either
                polled.add(profile)
        if self._refused[0] >= MOST_REFUSED:
            polled.update(self._profiles)  # not all of them are listed

    def _refusals(self, refused: dict[str, int]) -> list[tuple[Path, str, int, int]]:
        """How many folders of each root the kernel refused, by errno."""
        counts: Counter[tuple[Path, str, int]] = Counter()
        for root in self._roots:
            for path, code in refused.items():
                if path == root.real or (root.recursive and path.startswith(f"{root.real}/")):
                    counts[root.profile, root.path, code] += 1
        return [(*key, count) for key, count in counts.items()]

    # --- where events arrive -------------------------------------------------------------------------------

    def _pass_on(self, hint: Hint) -> None:
        if hint.kind == "gone" and (storm := self._storms.get(hint.profile)) is not None:
            with self._counting:
                storm.passed += 1
        if hint.session is None:
            self._links_due[hint.profile] = 0.0
        self._put(hint)

    def _tell(self, hint: Hint) -> None:
        try:
            self._put(hint)
        except Exception as error:  # noqa: BLE001  told as a trouble, and tried again at the next tick
            self._lost[hint.profile] = type(error).__name__

    # --- roots ---------------------------------------------------------------------------------------------

    def _add(self, profiles: Sequence[Path]) -> None:
        for profile in profiles:
            if profile in self._profiles:
                continue
            self._storms[profile] = Storm()
            for name, recursive in _TOPS:
                path = str(profile / name)
                self._roots.append(_Root(profile, path, recursive, missed=name in ("", "projects")))
        self._profiles = tuple(profiles)

    def _drop(self, root: _Root) -> None:
        self._forget(root)
        self._roots.remove(root)

    def _forget(self, root: _Root) -> None:
        """End the root's watch, unless another root has the same: two profiles may share a folder by links."""
        watch, root.watch = root.watch, None
        if self._ears is not None and watch is not None and all(other.watch != watch for other in self._roots):
            self._ears.forget(watch)

    def _close(self) -> None:
        if self._ears is not None:
            self._ears.close()
            self._ears = None
        for root in self._roots:
            root.watch = None


def _place(path: str) -> tuple[int, int] | None:
    """Which folder the name stands for, None where it is none."""
    try:
        seen = os.stat(path)
    except OSError:
        return None
    return (seen.st_dev, seen.st_ino) if stat.S_ISDIR(seen.st_mode) else None


def _is_link_root(root: _Root) -> bool:
    return os.path.dirname(root.path) == str(root.profile / "projects")


def _leads_up(link: str, profile: Path) -> bool:
    """Whether a link leads to a folder that holds the profile: its watch would be one of half the machine."""
    return profile.is_relative_to(os.path.realpath(link))
