"""The page docs/compatibility.md: reads the rows that stand in it, and writes it anew with others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from compat_assumed import GROUPS, OLDEST, Column, Group, drifted

from keeper.claude import version_of

PAGE = Path(__file__).resolve().parents[1] / "docs" / "compatibility.md"
Rows = dict[str, dict[str, str]]
"""Version → column → answer."""

HEAD = f"""# Which versions of Claude Code keeper works with

Every published version from {OLDEST} on. `scripts/compat.py --write VERSION …` asks the real CLI, offline, what keeper
assumes of it, and writes this page: what was seen stands here, nothing else. An answer in **bold** is one that keeper
was not ready for when it was asked: a drift. – is what could not be seen in the time that its question takes.

Up to 1.0.117 every resume copies the history into a new id under new uuids. What such a CLI wrote is kept and restored
by its own id, never folded, and said to be so. What comes before 1.0.22 wrote no transcripts as files: not supported.

The versions between those that stand here answer as their neighbours, or as one of the two; the facts, and where the
code uses them, are in [claude-on-disk.md](claude-on-disk.md).
"""


def render(rows: Rows) -> str:
    """The whole page."""
    parts = [HEAD]
    for group in GROUPS:
        parts.append("\n".join(_group(group, rows)))
    return "\n".join(parts) + "\n"


def _group(group: Group, rows: Rows) -> Iterator[str]:
    yield f"## {group.name}"
    yield ""
    yield f"| version | {' | '.join(column.name for column in group.columns)} |"
    yield "| --- " * (len(group.columns) + 1) + "|"
    for version in sorted(rows, key=version_of):
        wrong = drifted(version, rows[version])
        cells = [_cell(rows[version].get(column.name, "?"), column.name in wrong) for column in group.columns]
        yield f"| {version} | {' | '.join(cells)} |"
    yield ""
    for column in group.columns:
        yield f"- **{column.name}**: {column.means}{_differs(column)}"
    yield ""


def _cell(answer: str, wrong: bool) -> str:
    return f"**{answer}**" if wrong else answer


def _differs(column: Column) -> str:
    """Which versions differ from the newest, and what keeper does about it."""
    if not column.does:
        return ""
    spans = []
    for era in column.eras[:-1]:
        if era.answer != column.eras[-1].answer:
            spans.append(f"*{era.answer}*: " + _span(era.since, era.until))
    return f" ({'; '.join(spans)}.) {column.does}"


def _span(since: str, until: str) -> str:
    if since == until:
        return f"{since} alone of those tried"
    return f"up to {until}" if since == OLDEST else f"{since} to {until}"


def read(page: Path = PAGE) -> Rows:
    """The rows of a page; none where there is no page yet."""
    rows: Rows = {}
    names: list[str] = []
    for line in page.read_text("utf-8").splitlines() if page.exists() else []:
        if not line.startswith("| "):
            continue
        cells = [re.sub(r"^\*\*(.*)\*\*$", r"\1", cell.strip()) for cell in line.strip("|").split("|")]
        if cells[0] == "version":
            names = cells[1:]
        elif version_of(cells[0]):
            rows.setdefault(cells[0], {}).update(zip(names, cells[1:], strict=True))
    return rows


def write(rows: Rows, page: Path = PAGE) -> None:
    page.write_text(render(rows), "utf-8")
