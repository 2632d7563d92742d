"""Facts: what a doctor goes by: what was found of the vault, the profiles, the ways in and the machine.

Values alone. They hold names, sizes and times, and no word of a transcript.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from keeper.retention import Forecast, Retention, Source
from keeper.transcripts.describe import State


@dataclass(frozen=True, slots=True)
class Told:
    """Something that the agent tells: a trouble with its reason, or an event; `when` in unix seconds."""

    what: str
    why: str
    when: float


@dataclass(frozen=True, slots=True)
class Agent:
    """The agent of this vault. `silent`: its process lives and does not answer. `last` is when one wrote its state
    last, None where none ever ran; `hooked` when a hook last asked it, None where none has since it started."""

    running: bool = False
    silent: bool = False
    pid: int = 0
    since: float = 0.0
    ready: bool = False
    last: float | None = None
    hooked: float | None = None
    degraded: tuple[Told, ...] = ()
    events: tuple[Told, ...] = ()
    polled: tuple[str, ...] = ()
    watches: int = 0


@dataclass(frozen=True, slots=True)
class Hooks:
    """A profile's hooks: the events at which Claude calls keeper, those that lack, whose word turns them off; `error`
    where its settings do not read."""

    profile: str
    file: str
    events: tuple[str, ...]
    missing: tuple[str, ...]
    disabled: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Shim:
    """The `claude` on PATH."""

    path: str
    installed: bool
    current: bool
    first: bool
    real: str
    advice: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Service:
    """The unit. `active` is what systemd says, "" where there is none; `ends`: it ends with the last login."""

    systemd: bool
    path: str
    installed: bool
    active: str
    ends: bool = False


@dataclass(frozen=True, slots=True)
class Doors:
    """The ways in, as the command has found them. `hook_log` is when a hook last failed."""

    agent: Agent
    hooks: tuple[Hooks, ...]
    shim: Shim
    service: Service
    hook_log: float | None = None
    hook_log_file: str = ""


@dataclass(frozen=True, slots=True)
class Live:
    """A live transcript. `kept`: its inode, or all that the last keep saw of it, is in the vault; `chat`: it is no
    noise; `forgotten`: it lies under a tombstone, `excluded`: under a rule or past a bound, `missing`: the folder of
    its chat is gone from the vault. `kept` is None where the vault cannot be looked at. `lag`: bytes that are not
    sealed, or not copied; `sealed` when it was last sealed (0: never); `verdict` what a look without writing makes of
    it where no keep has been since, with how many records it lacks."""

    session: str
    profile: str
    path: str
    changed: float
    born: float
    size: int
    kept: bool | None = True
    chat: bool = True
    forgotten: bool = False
    excluded: bool = False
    missing: bool = False
    lag: int = 0
    sealed: float = 0.0
    verdict: str = ""
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Lost:
    """A session that a profile's history names, and of which there is no file anywhere."""

    session: str
    profile: str
    prompts: int
    last: float


@dataclass(frozen=True, slots=True)
class Profile:
    """One profile: its settings, its sweeps, what lives in it, what is gone. `path` is the profile, `history` the file
    that has the prompts; `versions` are those of the CLIs that wrote to it of late; `unread` why not all of it could be
    looked at ("": it could)."""

    path: str
    live: tuple[Live, ...]
    retention: Retention
    sources: tuple[Source, ...]
    last_sweep: float | None
    forecast: Forecast
    history: str = ""
    lost: tuple[Lost, ...] = ()
    versions: tuple[str, ...] = ()
    device: int = 0
    kind: str = ""
    folders: int = 0
    unread: str = ""


@dataclass(frozen=True, slots=True)
class VaultFacts:
    """The vault. `made`: there is one; `error` where it cannot be used, or (`unknown`) nobody knows which it is.
    `foreign` are names in it that are another user's, `closed` folders that are yours and that you cannot write to,
    `open_folders` those that others may look into; `missing` the chats whose folders are gone, `bare` the
    sessions whose kept file alone is, `forgotten` those that a
    hand's removal has forgotten and that live; `leaves` are the newest leaves of what live lacks, `places` where what
    has two names lives, the newest last, both by session."""

    path: str
    made: bool = True
    error: str = ""
    unknown: bool = False
    index_lost: bool = False
    chats: int = 0
    missing: tuple[str, ...] = ()
    bare: tuple[str, ...] = ()
    forgotten: tuple[str, ...] = ()
    states: tuple[State, ...] = ()
    leaves: dict[str, str] = field(default_factory=dict)
    places: dict[str, tuple[str, ...]] = field(default_factory=dict)
    foreign: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    mode: int = 0o700
    open_folders: tuple[str, ...] = ()
    device: int = 0
    kind: str = ""
    free: int = 0
    free_files: int | None = None
    read_only: bool = False
    born: float = 0.0


@dataclass(frozen=True, slots=True)
class Inotify:
    """The kernel's limits (None: not told), and what others of this user's processes use of them."""

    watches: int | None = None
    instances: int | None = None
    queue: int | None = None
    used_watches: int = 0
    used_instances: int = 0


@dataclass(frozen=True, slots=True)
class Trial:
    """What a trial on the real volumes gave: `what` was tried in which folder, and why it does not go ("": it does)."""

    what: str
    folder: str
    why: str


@dataclass(frozen=True, slots=True)
class Seen:
    """What a sweep depends on: the profiles, and the CLIs on PATH, path and version."""

    profiles: tuple[Profile, ...]
    installed: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """All of it, at one time. `installed` are the CLIs on PATH: path and version. `trials` is None where none was
    asked for. `settings_error` is why keeper's own settings do not read, `settings_file` where
    they stand."""

    now: float
    vault: VaultFacts
    profiles: tuple[Profile, ...]
    doors: Doors
    inotify: Inotify = Inotify()
    installed: tuple[tuple[str, str], ...] = ()
    trials: tuple[Trial, ...] | None = None
    settings_error: str = ""
    settings_file: str = ""
