"""Hook: a payload of Claude Code's hooks → the session is kept and sealed before this answers.

The running agent is asked first; without one the work is done here. It promises that the profile is the one that the
payload's transcript lies in (KEEP-13), that a rotation is noted, and that an id which never gets a file leaves nothing
(FIT-4). It refuses to load more than it needs, since Claude waits for it. What fails is raised: that it costs Claude
nothing is the caller's part.
"""

from __future__ import annotations

import json
import os

from keeper import homes, wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

EVENTS = ("SessionStart", "UserPromptSubmit", "Stop", "SubagentStop", "PreCompact", "SessionEnd")
"""What keeper asks Claude to call it for."""
BEFORE_A_FILE = ("SessionStart", "UserPromptSubmit")
"""At these the transcript may not be there yet."""
WAIT_S = 60
"""So long may a call take, by Claude's settings: without a word of ours some versions give SessionEnd 1.5 s."""
ROTATIONS = "rotations"
"""The folder of what is noted of a clear, in the state's."""
WAITS_S = 15.0
IN_FRONT_S = 3.0
"""How long the agent is waited for, and then, without its answer, the chat's lock: long where a turn has ended, short
where a person waits to begin one. Both together below WAIT_S: what cannot be had in that time is told in the log, and
kept at the next event."""


def handle(data: bytes, environ: Mapping[str, str]) -> dict[str, object]:
    """Do what the payload asks for: {event, session, did, chat}, durable and sealed when this returns.

    Raises Usage where it is no payload, and what a keep raises.
    """
    payload = _payload(data)
    event, session, transcript = payload["hook_event_name"], payload["session_id"], payload["transcript_path"]
    profile = profile_of(transcript)
    state = homes.state(environ)
    missed = _rotate(payload, session, profile, state, environ)
    chat = ""
    if event not in BEFORE_A_FILE or os.path.exists(transcript):
        chat = _keep(event, session, transcript, profile, environ)
    if chat and os.path.exists(f"{state}/{ROTATIONS}/{session}"):
        from keeper.doors import rotation

        rotation.settle(state, session, chat, environ)
    if missed is not None:
        raise missed
    return {"event": event, "session": session, "did": "kept" if chat else "nothing", "chat": chat}


def _rotate(
    payload: dict[str, str], session: str, profile: str, state: str, environ: Mapping[str, str]
) -> Exception | None:  # fmt: skip
    """Note what a clear ends or starts. A note that cannot be written must not cost the keep: it is told after."""
    clearing = payload["hook_event_name"] == "SessionEnd" and payload.get("reason") == "clear"
    cleared = payload["hook_event_name"] == "SessionStart" and payload.get("source") == "clear"
    if clearing or cleared:
        from keeper.doors import rotation
        from keeper.errors import KeeperError

        try:
            (rotation.ended if clearing else rotation.started)(state, environ, session, profile)
        except (KeeperError, OSError) as error:
            return error
    return None


def _keep(event: str, session: str, transcript: str, profile: str, environ: Mapping[str, str]) -> str:
    """Keep the session; the chat that it is kept in, "" where there is nothing of it yet."""
    answer = _by_the_agent(event, session, transcript, profile, environ) if profile else None
    answer = answer or _here(event, session, profile, environ)
    if not answer.get("ok"):
        from keeper.errors import KeeperError

        raise KeeperError(str(answer.get("error") or "the agent could not keep it"), _text(answer.get("cure")))
    return _text(answer.get("chat")) or ""


def profile_of(transcript: str) -> str:
    """The profile that a transcript's path lies in, "" where in none: what `claude.profile_of` says, told without
    loading it."""
    parts = transcript.rsplit("/", 3)
    return os.path.realpath(parts[0] or "/") if len(parts) == 4 and parts[1] == "projects" else ""


def _payload(data: bytes) -> dict[str, str]:
    """The payload's words. Raises Usage."""
    why = "it is no JSON"
    try:
        payload = json.loads(data)
        why = "it lacks hook_event_name, session_id or transcript_path"
        names = ("hook_event_name", "session_id", "transcript_path")
        if isinstance(payload, dict) and all(isinstance(payload.get(name), str) and payload[name] for name in names):
            if len(payload["session_id"]) == 36 and "/" not in payload["session_id"]:
                return payload
            why = "its session_id is none"
    except (ValueError, RecursionError):
        pass
    from keeper.errors import Usage

    raise Usage(
        f"what came on stdin is no hook payload: {why} ({len(data)} bytes)",
        "`keeper hook` is for Claude Code's hooks: `keeper hooks install` puts it there",
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _by_the_agent(
    event: str, session: str, transcript: str, profile: str, environ: Mapping[str, str]
) -> dict[str, object] | None:  # fmt: skip
    vault = homes.named_vault(environ)
    if vault is None and os.path.lexists(homes.config(environ)):
        from keeper import settings

        vault = str(settings.load(environ).vault)
    request: dict[str, object] = {
        "do": "keep", "session": session, "profile": profile, "transcript": transcript, "event": event,
    }  # fmt: skip
    return wire.ask(vault or homes.default_vault(environ), request, _patience_s(event))


def _patience_s(event: str) -> float:
    return IN_FRONT_S if event in BEFORE_A_FILE else WAITS_S


def _here(event: str, session: str, profile: str, environ: Mapping[str, str]) -> dict[str, object]:
    """Keep it in this process. A start that has no chat to keep yet is none to fail at."""
    import time
    from dataclasses import replace
    from pathlib import Path

    from keeper import settings
    from keeper.errors import NotKept
    from keeper.transcripts.keep import Options, keep_session
    from keeper.transcripts.vault import Vault

    values = replace(settings.load(environ), lock_wait_s=_patience_s(event))
    with Vault.open(values) as vault:
        try:
            answers = keep_session(vault, session, time.time(), Options(), Path(profile) if profile else None)
        except NotKept:
            if event in BEFORE_A_FILE:
                return {"ok": True}
            raise
    for answer in answers:
        if answer.error:
            return {"ok": False, "error": answer.error, "cure": answer.cure}
    return {"ok": True, "chat": answers[0].chat}
