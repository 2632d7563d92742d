"""`keeper prune`: what is past `keep_for` and `max_size`: a plan, and with --apply its doing."""

from __future__ import annotations

from dataclasses import asdict

import click

from keeper.cli import out
from keeper.errors import Partial, Usage
from keeper.transcripts.prune import Item, Plan, Pruned, carry_out, plan
from keeper.transcripts.vault import Vault


@click.command()
@click.option("--apply", "apply_", is_flag=True, help="Do what the plan says; without it nothing is done.")
@click.option("--dry-run", is_flag=True, help="The plan alone, as without any option.")
@click.option("--sole-copies", is_flag=True, help="With --apply: those too that Claude has no file of any more.")
@click.option("--log", is_flag=True, help="What went from the vault until now, by a plan or by a rule.")
@out.json_option
def prune(apply_: bool, dry_run: bool, sole_copies: bool, log: bool, as_json: bool) -> int:
    """Show which chats are past the settings' bounds, `keep_for` and `max_size`, and with --apply remove them from the
    vault. Claude's own files stay; what only the vault has goes with --sole-copies alone.

    Example: keeper prune --apply
    """
    if sole_copies and not apply_:
        raise Usage("--sole-copies goes with --apply", "look at the plan first: `keeper prune`")
    if apply_ and (dry_run or log):
        raise Usage("--apply does, --dry-run and --log only show", "say one of them")
    vault = out.open_vault()
    if log:
        return _log(vault, as_json)
    with out.progress("measuring") as progress:
        found = plan(vault, out.now(), progress)
    done = None
    if apply_:
        with out.progress("pruning") as progress:
            done = carry_out(vault, found, sole_copies, out.now(), progress)
    out.notes(vault)
    if as_json:
        out.say_json(_told(vault, found, done))
    else:
        _say(vault, found, done)
    left = [why for _, why in done.stayed if not why.startswith("a sole copy")] if done else []
    return Partial.exit_code if left else 0


def _told(vault: Vault, found: Plan, done: Pruned | None) -> dict[str, object]:
    bounds = {"keep_for_s": vault.settings.keep_for_s, "max_size_bytes": vault.settings.max_size_bytes}
    answer: dict[str, object] = {"bounds": bounds, **asdict(found), "applied": done is not None}
    if done is not None:
        stayed = [{"chat": chat, "why": why} for chat, why in done.stayed]
        answer |= {"removed": [asdict(one) for one in done.removed], "stayed": stayed}
    return answer


def _say(vault: Vault, found: Plan, done: Pruned | None) -> None:
    settings = vault.settings
    if not settings.keep_for_s and not settings.max_size_bytes:
        out.say(f"neither `keep_for` nor `max_size` is set in {settings.config}: all is kept")
        return
    if done is None:
        for item in found.items:
            out.say(_line(item))
    for chat, why in done.stayed if done else ():
        out.say(f"{chat}  stays: {why}")
    sole = sum(item.sole for item in found.items)
    freed = sum(item.frees for item in found.items)
    if done is not None:
        freed = sum(one.bytes for one in done.removed)
        out.say(f"{len(done.removed)} chats removed from the vault; Claude's own files were not touched")
        return
    bound = settings.max_size_bytes
    out.say(f"{len(found.items)} chats, {out.size(freed)} to free; {sole} of them are sole copies")
    if bound and found.after > bound:
        out.say(f"the vault takes {out.size(found.after)} then, still over {out.size(bound)}: the rest is in use")
    if found.items:
        out.say("nothing was removed yet: `keeper prune --apply` does it (--sole-copies)")


def _line(item: Item) -> str:
    sole = "SOLE COPY" if item.sole else ""
    return (
        f"{item.chat[:36]:<36}  {out.when(item.last)[:10]}  {item.why:<8}  {out.size(item.frees):>8}  {sole}".rstrip()
    )


def _log(vault: Vault, as_json: bool) -> int:
    entries = vault.removals.read()
    if as_json:
        out.say_json({"log": entries})
        return 0
    for one in entries:
        sole = "  sole copy" if one.get("sole") else ""
        out.say(
            f"{out.when(float(one.get('at') or 0))}  {one.get('chat')}  by the {one.get('by')} {one.get('why')}{sole}"
        )
    out.say(f"{len(entries)} chats went")
    return 0
