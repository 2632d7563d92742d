"""Handed: a restore handed to the agent of the vault, which has the core loaded, as no door in front of a person has.

It promises an answer only of what is done and whole: for anything else the door does it by itself, and says why it
cannot. It refuses to load the core.
"""

from __future__ import annotations

import os

from keeper import homes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

AGENT_S = 4.0
"""So long the agent may take for a restore; the shim waits for 10 s in all."""


def vault_of(environ: Mapping[str, str]) -> str:
    """The vault as environment and settings file have it. Raises Usage where the file does not read."""
    vault = homes.named_vault(environ)
    if vault is None and os.path.lexists(homes.config(environ)):
        from keeper import settings

        vault = str(settings.load(environ).vault)
    return vault or homes.default_vault(environ)


def restore(vault: str, session: str, profile: str = "") -> dict[str, object] | None:
    """What the agent says of the session that it has put back (the fields of Restored), in its `profile` where one is
    said; None where no agent runs, is too slow, or could not."""
    from keeper import wire

    answer = wire.ask(vault, {"do": "restore", "session": session, "profile": profile}, AGENT_S)
    if answer is None or answer.pop("ok", None) is not True:
        return None
    return answer
