"""Inotify: one instance of watchdog's, made to tell what watchdog keeps to itself.

It promises that an overflow, a folder that the kernel would not watch, and a failure inside watchdog are told here,
and that one close ends every thread and watch of it. A file's name that comes or goes is handed on by the thread that
reads, without watchdog's two further ones: each turn of a thread is one more to wait for, and takes the interpreter
from the thread that puts back what a sweep took. It cures nothing: `watch` does, by an instance anew.

Measured with watchdog 7.1.0 on Linux 6.18, each held by a test:
- An overflow is told to a logger alone. watchdog's own cure takes all watches away in the thread that reads; each one
  brings an event, so a tree of more folders than the queue holds overflows again, without end: 300 folders and a queue
  of 64 cost half a core and over 100 log lines a second. So its cure is never run.
- ENOSPC is swallowed for every folder but the root; of EACCES not even the call tells: it takes -1 for a watch.
- A project folder that is moved out stays watched under its old name. Made anew there, and both removed, it is a
  KeyError that ends the thread which reads; observer and emitters live on, and no event ever comes again.
- A move out is told after 500 ms, and everything behind it in that tree waits as long.
- The observer lives on after its root is gone; the emitter ends. A root that is renamed tells of itself under its old
  name for ever. A link as root is watched itself, not what it points to, and no link below is followed.
- An exception in a handler ends the thread that dispatches.
"""

from __future__ import annotations

import errno
import logging
import os
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from watchdog.events import (
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers.api import BaseObserver, ObservedWatch
from watchdog.observers.inotify import InotifyEmitter, InotifyWatchGroup
from watchdog.observers.inotify_c import (
    CallbackId,
    InotifyConstants,
    InotifyEvent,
    InotifyFD,
    Mask,
    WatchCallback,
    WatchDescriptor,
)
from watchdog.observers.inotify_move_event_grouper import InotifyMoveEventGrouper

EVENTS: list[type[FileSystemEvent]] = [
    *(FileCreatedEvent, FileDeletedEvent, FileMovedEvent),
    *(DirCreatedEvent, DirDeletedEvent, DirMovedEvent),
]
"""Names that come and go. Nothing that an append does is in it: no open, write, close or attribute (AGENT-3)."""

MOVE_WAIT_S = 0.02
"""How long one half of a move waits for the other. Both halves of one are nearly always read at once; a pair that is
not told as one is told as a name that went and one that came, which is as good a hint."""

MOST_REFUSED = 10_000
"""So many refused folders are listed by name; where there are as many, there may be more."""

_NAME = InotifyConstants.IN_CREATE | InotifyConstants.IN_DELETE
_GONE_MEANWHILE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
_PROBE = CallbackId(0)


class Nobody:
    """Hears events, and does nothing about them."""

    def on_event(self, event: InotifyEvent) -> None: ...

    def on_watch_deleted(self, wd: WatchDescriptor) -> None: ...

    def on_queue_overflow(self) -> None: ...


@dataclass
class Group(InotifyWatchGroup):
    """The watches of one root. What is more than a file's name that comes or goes (a folder, half a move) takes
    watchdog's way: it brings watches, or waits for its other half."""

    handlers: Sequence[FileSystemEventHandler] = ()

    def on_event(self, event: InotifyEvent) -> None:
        mask = event.mask
        if not mask & _NAME or mask & InotifyConstants.IN_ISDIR:
            super().on_event(event)
            return
        with self._lock:
            folder = self._active_callbacks_by_watch.get(event.wd) if self._is_active else None
        if folder is not None:
            kind = FileDeletedEvent if mask & InotifyConstants.IN_DELETE else FileCreatedEvent
            told = kind(os.fsdecode(os.path.join(folder, event.name)))
            for handler in self.handlers:
                handler.dispatch(told)


class Emitter(InotifyEmitter):
    """As watchdog's own, over such a group. `handlers` are those of each watch."""

    def __init__(
        self, *args: Any, handlers: Mapping[ObservedWatch, Sequence[FileSystemEventHandler]], **named: Any
    ) -> None:
        super().__init__(*args, **named)
        self._handlers = handlers

    def on_thread_start(self) -> None:
        self._inotify = Group(
            self._inotify_fd,
            os.fsencode(self.watch.path),
            self.get_event_mask_from_filter(),
            self.watch.is_recursive,
            handlers=self._handlers[self.watch],
        )


class Instance(InotifyFD):
    """The kernel's side: one descriptor, one thread that reads it. Raises OSError (EMFILE) where none is to be had."""

    def __init__(self) -> None:
        super().__init__()
        self.overflowed = False
        self.failures: deque[str] = deque(maxlen=8)
        self.refused: dict[str, int] = {}
        self._watched: set[int] = set()
        self._groups: dict[int, InotifyWatchGroup] = {}

    @property
    def watches(self) -> int:
        return len(self._watched)

    def add_callback(self, path: bytes, mask: Mask, callback: WatchCallback, id_: CallbackId) -> WatchDescriptor:
        """As watchdog's own, and notes what the kernel refused; raises OSError for EACCES too."""
        if isinstance(callback, InotifyWatchGroup):
            self._groups[id(callback)] = callback
        try:
            return self._add(path, mask, callback, id_)
        except OSError as error:
            if error.errno not in _GONE_MEANWHILE and len(self.refused) < MOST_REFUSED:
                self.refused[os.fsdecode(path)] = error.errno or 0
            raise

    def _add(self, path: bytes, mask: Mask, callback: WatchCallback, id_: CallbackId) -> WatchDescriptor:
        wd = super().add_callback(path, mask, callback, id_)
        if wd == -1:
            with self._lock:
                self._watch_for_wd.pop(wd, None)
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fsdecode(path))
        self._watched.add(wd)
        return wd

    def would_take(self, path: str) -> bool:
        """Whether the kernel would watch now what it refused."""
        try:
            wd = self._add(os.fsencode(path), InotifyConstants.IN_CREATE, Nobody(), _PROBE)
        except OSError as error:
            return error.errno in _GONE_MEANWHILE
        self.remove_callbacks([(wd, _PROBE)])
        return True

    def handle_event(self, event: InotifyEvent) -> None:
        """As watchdog's own, but for the overflow; what it raises would end the thread that reads."""
        if event.is_queue_overflow:
            self.overflowed = True
            return
        if event.is_ignored:
            self._watched.discard(event.wd)
        try:
            super().handle_event(event)
        except Exception as error:  # noqa: BLE001  whatever watchdog raises, later events must be read
            self.failures.append(type(error).__name__)

    def prune(self) -> None:
        """Forget the groups that watch nothing any more."""
        self._groups = {key: group for key, group in self._groups.items() if group.is_active}

    def close(self) -> None:
        """Everything of it ends, also where watchdog's books are in disorder and it raises over them."""
        with suppress(Exception):
            super().close()
        for group in list(self._groups.values()):
            # Each try that raises has taken the entry that it raised over out of the books.
            for _ in range(self.watches + 1):
                with suppress(Exception):
                    group.deactivate()
                    break
        self._groups.clear()
        self._watched.clear()


class Ears:
    """An instance with watchdog's observer over it. Raises OSError where no instance is to be had."""

    def __init__(self) -> None:
        # Whatever watchdog logs is told here as a state; without a handler it would go to stderr.
        logging.getLogger("watchdog").addHandler(_SILENT)
        InotifyMoveEventGrouper.delay = MOVE_WAIT_S
        self.instance = Instance()
        self.instance.start()
        self._handlers: dict[ObservedWatch, list[FileSystemEventHandler]] = {}
        self._observer = BaseObserver(Emitter, inotify_fd=self.instance, handlers=self._handlers)
        self._observer.start()

    def hear(self, folder: str, recursive: bool, handler: FileSystemEventHandler) -> ObservedWatch:
        """Hear of names below the folder, which is no link. Raises OSError where it cannot be watched at all."""
        # Before the first event can come. A watch that is heard twice is equal to the one before, and has one group.
        handlers = self._handlers.setdefault(ObservedWatch(folder, recursive=recursive, event_filter=EVENTS), [])
        handlers.append(handler)
        try:
            return self._observer.schedule(handler, folder, recursive=recursive, event_filter=EVENTS)
        except (OSError, RuntimeError):
            handlers.remove(handler)
            raise

    def forget(self, watch: ObservedWatch) -> None:
        """Hear no more of it; one that ended by itself is no failure."""
        self._handlers.pop(watch, None)
        with suppress(Exception):
            self._observer.unschedule(watch)
        self.instance.prune()

    def hears(self, watch: ObservedWatch) -> bool:
        """Whether the thread of that watch lives; it ends when its folder is removed."""
        return any(emitter.watch == watch and emitter.is_alive() for emitter in list(self._observer.emitters))

    def failure(self) -> str | None:
        """What ended or broke inside, None where all is well."""
        if self.instance.failures:
            return f"watchdog raised {self.instance.failures[-1]}"
        if not self.instance.is_alive():
            return "the thread that reads the events ended"
        return None if self._observer.is_alive() else "the thread that hands on the events ended"

    def close(self, wait_s: float = 2.0) -> None:
        """End it all. The instance first: it takes all watches at once, without an event for each."""
        self.instance.stop()
        with suppress(Exception):
            self._observer.stop()
        for thread in (self.instance, self._observer):
            with suppress(RuntimeError):
                thread.join(wait_s)


_SILENT = logging.NullHandler()
