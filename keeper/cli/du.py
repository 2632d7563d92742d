"""`keeper du`: what the vault holds that Claude no longer does, and what a link shares."""

from __future__ import annotations

from dataclasses import asdict

import click

from keeper.cli import out
from keeper.transcripts.usage import usage

SIZES = ("sole", "shared", "seal", "aside", "frees")
_WIDE = 80


@click.command()
@out.json_option
def du(as_json: bool) -> int:
    """Say what each chat takes: `sole`, what Claude has no more; `shared`, what is one file with Claude's, and costs
    nothing; the seals; what was set aside; and what removing the chat would free.

    Example: keeper du
    """
    vault = out.open_vault()
    with out.progress("measuring") as progress:
        found = usage(vault, out.now(), progress)
    totals = {name: sum(getattr(one, name) for one in found) for name in SIZES}
    out.notes(vault)
    if as_json:
        out.say_json({"chats": [asdict(one) for one in found], "totals": totals})
        return 0
    out.say("".join(f"{name:>8} " for name in SIZES) + " last        chat      cwd")
    for one in found:
        sizes = "".join(f"{out.size(getattr(one, name)):>8} " for name in SIZES)
        line = f"{sizes} {out.when(one.last)[:10]}  {one.chat[:8]}  "
        out.say(line + _tail(one.cwd, _WIDE - len(line)))
    out.say("".join(f"{out.size(totals[name]):>8} " for name in SIZES) + f" {len(found)} chats")
    return 0


def _tail(text: str, wide: int) -> str:
    """The end of a path tells more than its beginning."""
    return text if len(text) <= wide else f"…{text[1 - wide :]}"
