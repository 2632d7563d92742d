"""`keeper merge`: two transcripts folded by record, on stdout."""

from __future__ import annotations

import sys

import click

from keeper import files
from keeper.cli import out
from keeper.errors import Usage
from keeper.transcripts.merge import merge as fold


@click.command()
@click.argument("kept", type=click.Path())
@click.argument("live", type=click.Path())
@click.option("--plan", is_flag=True, help="Say what the merge would hold, and print no bytes of it.")
@out.json_option
def merge(kept: str, live: str, plan: bool, as_json: bool) -> int:
    """Fold LIVE into KEPT by record; the merged bytes go to stdout, neither file is touched.

    Example: keeper merge kept.jsonl live.jsonl > merged.jsonl
    """
    ours, theirs = _bytes(kept), _bytes(live)
    merged = fold(ours, theirs)
    if plan or as_json:
        answer = {
            "kept": ours.count(b"\n"),
            "live": theirs.count(b"\n"),
            "merged": len(merged.lines),
            "added": merged.added,
            "variants": list(merged.variants),
            "torn": len(merged.torn),
        }
        if as_json:
            out.say_json(answer)
        else:
            out.say(", ".join(f"{name} {value}" for name, value in answer.items()))
        return 0
    sys.stdout.buffer.write(merged.data)
    sys.stdout.buffer.flush()
    for uuid in merged.variants:
        out.warn(f"record {uuid} stands in two versions: both are in the merge")
    for fragment in merged.torn:
        out.warn(f"an unfinished last line of {kept} ({len(fragment)} bytes) is in no complete line: left out")
    if merged.waiting:
        out.warn(f"the last line of {live} ({len(merged.waiting)} bytes) is unfinished: it waits, and is left out")
    return 0


def _bytes(path: str) -> bytes:
    try:
        return files.read(path)
    except FileNotFoundError as error:
        raise Usage(f"{path} is no file", "give two transcripts") from error
