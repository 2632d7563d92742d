"""Page: one HTML file about all that is kept, which needs nothing but a browser.

It promises that no text of anybody's becomes markup or script: it stands in a block of JSON without a single `<`, the
page's own script puts it on the page as text, and the page's policy lets nothing run or load but that script and that
style, by their digests. It refuses the network: that policy names no source at all.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

from keeper import __version__
from keeper.report.facts import Gathered, Progress, Session
from keeper.report.growth import growth, losses
from keeper.transcripts.describe import Described, describe, printable
from keeper.transcripts.vault import Vault

MARK = b"<!doctype html>\n<!-- keeper report -->"
"""What such a file begins with."""
AT_ONCE = 100
"""So many transcripts are read between two words about how far it is."""
_HERE = Path(__file__).parent


def page(
    vault: Vault, seen: Gathered, agent: Mapping[str, Any], past: Mapping[str, Any], progress: Progress | None = None
) -> bytes:
    """The whole file. `agent` is the agent's status, `past` its history, as `agent.past.read` tells it."""
    style, script = ((_HERE / f"page.{kind}").read_text("utf-8") for kind in ("css", "js"))
    policy = (
        f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}; base-uri 'none'; "
        "form-action 'none'"
    )
    told = _told(seen, {(one.chat, one.session): one for one in _described(vault, seen, progress)}, agent, past)
    parts = {"policy": policy, "style": style, "script": script, "data": embedded(_clean(told))}
    template = (_HERE / "page.html").read_text("utf-8")
    # One pass over the template alone: what is put in is never looked through for marks.
    return re.sub(r"\{\{(\w+)\}\}", lambda mark: parts[mark[1]], template).encode()


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def embedded(told: object) -> str:
    """JSON that no HTML parser can find an end, a tag or a comment in, and that is ASCII."""
    text = json.dumps(told, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _clean(told: Any) -> Any:
    """Every text in it without characters that turn or hide what stands beside them."""
    if isinstance(told, str):
        return printable(told)
    if isinstance(told, Mapping):
        return {key: _clean(value) for key, value in told.items()}
    return [_clean(value) for value in told] if isinstance(told, list | tuple) else told


def _described(vault: Vault, seen: Gathered, progress: Progress | None) -> Iterator[Described]:
    rows = [one.row for one in seen.sessions]
    for start in range(0, len(rows), AT_ONCE):
        yield from describe(vault, rows[start : start + AT_ONCE])
        if progress is not None:
            progress(min(start + AT_ONCE, len(rows)), len(rows))


def _told(
    seen: Gathered, described: Mapping[tuple[str, str], Described], agent: Mapping[str, Any], past: Mapping[str, Any]
) -> dict[str, Any]:
    profiles = [
        {
            "path": one.path, "there": one.there, "days": one.days, "file": one.file, "odd": one.odd,
            "lastSweep": one.last_sweep, "nextSweep": one.earliest, "live": len(one.due), "unkept": len(one.unkept),
        }
        for one in seen.profiles
    ]  # fmt: skip
    places = {one.path: place for place, one in enumerate(seen.profiles)}
    return {
        "made": seen.now,
        "version": __version__,
        "vault": seen.vault,
        "missing": seen.missing,
        "agent": {key: agent.get(key) for key in ("running", "since", "degraded")},
        "profiles": profiles,
        "bytes": {kind: sum(getattr(one, kind) for one in seen.bytes.values()) for kind in ("shared", "own", "seals")},
        "sessions": [_row(one, described.get((one.row.chat, one.row.session)), places) for one in seen.sessions],
        "growth": [[round(one.time), one.shared, one.own] for one in growth(seen.sessions, seen.now)],
        "losses": [{**asdict(one), "profile": places[one.profile]} for one in losses(seen.sessions)],
        "past": {kind: past[kind] for kind in ("runs", "spells", "events")},
    }


def _row(one: Session, known: Described | None, places: Mapping[str, int]) -> dict[str, Any]:
    row = one.row
    return {
        "id": row.session,
        "chat": "" if row.chat == row.session else row.chat,
        "title": known.title if known else "",
        "cwd": row.cwd or row.project,
        "profile": places[row.profile],
        "state": one.stands,
        "verdict": row.state,
        "policy": one.policy,
        "records": known.records if known else None,
        "bytes": one.size,
        "last": one.last,
        "due": one.due,
        "gone": one.gone,
        "swept": one.swept,
    }
