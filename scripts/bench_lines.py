"""The figures of `bench.py` as lines: printed, as JSON, and as the table of docs/performance.md."""

import json
import os
import platform
import re
import time
from dataclasses import asdict, dataclass
from pathlib import Path

PERFORMANCE = Path(__file__).resolve().parent.parent / "docs" / "performance.md"


@dataclass(frozen=True, slots=True)
class Line:
    """One figure. `limit` is its bound, the most (or with `at_least` the least) that it may be; None: only stated."""

    id: str
    what: str
    figure: float
    unit: str
    limit: float | None = None
    at_least: bool = False
    detail: str = ""

    @property
    def met(self) -> bool | None:
        if self.limit is None:
            return None
        return self.figure >= self.limit if self.at_least else self.figure <= self.limit

    def cells(self) -> tuple[str, ...]:
        """What is printed of it, by column."""
        verdict = {None: "stated", True: "ok", False: "MISSED"}[self.met]
        limit = "" if self.limit is None else f"{'≥' if self.at_least else '≤'} {_short(self.limit)}"
        return self.id, self.what, f"{_short(self.figure)} {self.unit}", limit, verdict, self.detail

    def __str__(self) -> str:
        name, what, figure, limit, verdict, detail = self.cells()
        return f"{name:<10}  {what:<69}  {figure:>13}  {limit:>5}  {verdict:<6}  {detail}".rstrip()


def _short(figure: float) -> str:
    return f"{figure:.0f}" if figure >= 100 or figure == int(figure) else f"{figure:.3g}"


def closing(lines: list[Line]) -> str:
    """The last line of a run."""
    met, missed = (sum(line.met is wanted for line in lines) for wanted in (True, False))
    return f"bench: {met} met, {missed} missed"


def as_json(lines: list[Line]) -> str:
    """One object with all that the lines say."""
    met, missed = (sum(line.met is wanted for line in lines) for wanted in (True, False))
    table = [{**asdict(line), "met": line.met} for line in lines]
    return json.dumps({"schema": 1, "lines": table, "met": met, "missed": missed}, indent=2)


def write(lines: list[Line], volume: str) -> None:
    """Puts the lines, as a table, into docs/performance.md between its marks. `volume` is the disk's file system."""
    told = f"{time.strftime('%Y-%m-%d')}, Python {platform.python_version()}, Linux {platform.release()}, "
    told += f"{os.cpu_count()} cores, {volume}. `{closing(lines)}`"
    rows = [("id", "what", "figure", "limit", "", "of which"), ("---",) * 6, *(line.cells() for line in lines)]
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    text = PERFORMANCE.read_text("utf-8")
    marks = re.compile(r"(?<=<!-- bench -->\n).*?(?=<!-- end of bench -->)", re.DOTALL)
    PERFORMANCE.write_text(marks.sub(lambda _: f"{told}\n\n{table}", text), "utf-8")
