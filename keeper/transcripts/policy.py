"""Policy: what is done for a chat beside keeping it: put back before a resume, or kept from the sweep, or nothing.

It promises the order of times among a project's chats, whichever of them get new ones: `--continue` takes the newest
(RESTORE-2, POLICY-4). It refuses to touch what is excluded, and to call a deletion a sweep that no sweep can have made.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass

from keeper.transcripts.chat import Facts

KEEP, RESIDENT, EXCLUDE = POLICIES = ("keep", "resident", "exclude")
"""Put back before a resume; kept from the sweep as well, and put back when swept all the same; neither."""

THROUGH_A_SHELL = frozenset({"", "cli", "sdk-cli"})
"""How Claude says that it was started from a command line, where keeper's own `claude` stands in front of it. Editors
and the desktop start theirs by its path."""

DAY_NS = 86_400 * 10**9
REST_NS = 2 * 3600 * 10**9
"""New times lie so far back, for nobody shall take the chat for one that is being written to."""
STEP_NS = 10_000_000
"""Between the times of two chats: Claude compares milliseconds."""


@dataclass(frozen=True, slots=True)
class Aged:
    """A chat of a project, live or about to be put back: when it was last changed, in ns."""

    session: str
    mtime_ns: int
    policy: str


def policy_of(facts: Facts | None, default: str) -> str:
    """The policy of a chat: what was said of it, else that it is out of the shell's reach, else the `default`."""
    if facts is None:
        return default
    if facts.policy:
        return facts.policy
    started = {told.entrypoint for told in facts.sessions.values()}
    return default if started <= THROUGH_A_SHELL else RESIDENT


def half_way_ns(now_ns: int, days: float) -> int:
    """A chat that was last changed before this is freshened: long before the cutoff, and seldom."""
    return now_ns - int(days * DAY_NS / 2)


def may_be_swept(mtime_ns: int, gone_ns: int, days: float) -> bool:
    """Whether a sweep can have taken at `gone_ns` what was last changed at `mtime_ns`."""
    return gone_ns - mtime_ns > days * DAY_NS


def fresh_times(chats: Iterable[Aged], need: Container[str], before_ns: int, now_ns: int) -> dict[str, int]:
    """New times in ns for the sessions of one project that `need` them, and for those that must move along, between
    them or just behind; the newest first. What is newer than these and than `before_ns` keeps its time, and all of them
    their order.
    """
    order = sorted(
        (chat for chat in chats if chat.policy != EXCLUDE), key=lambda chat: (chat.mtime_ns, chat.session), reverse=True
    )
    needy = [place for place, chat in enumerate(order) if chat.session in need]
    if not needy:
        return {}
    first = needy[0]
    while first and order[first - 1].mtime_ns < before_ns:
        first -= 1
    top_ns = order[first - 1].mtime_ns - STEP_NS if first else now_ns
    start_ns = min(top_ns, now_ns - REST_NS)
    end = needy[-1] + 1
    while end < len(order) and order[end].mtime_ns >= start_ns - (end - 1 - first) * STEP_NS:
        end += 1  # one that is older, and would be newer than what has new times
    moved = order[first:end]
    return {chat.session: start_ns - place * STEP_NS for place, chat in enumerate(moved)}
