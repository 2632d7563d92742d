"""Out: how answers reach a person or a program: text, or one JSON object with `"schema": 1`.

It promises that `--json` prints one object and nothing else on stdout. It refuses progress where nobody looks: bars
are for a terminal.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from keeper.errors import KeeperError, Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TextIO, TypeVar

    from keeper.transcripts.vault import Vault

    Decorated = TypeVar("Decorated", bound=Callable[..., Any])

Progress = Callable[[int, int], None]
_bars: list[Callable[[], None]] = []


def json_option(command: Decorated) -> Decorated:
    """The option `--json` of a command."""
    import click  # the form of `restore` that a person waits for goes without

    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(command)


def open_vault(make: bool = False) -> Vault:
    """The vault that the settings file and the environment name."""
    from keeper import settings
    from keeper.transcripts.vault import Vault

    return Vault.open(settings.load(os.environ), make=make)


def now() -> float:
    """The clock, read at the door and handed down."""
    return time.time()


def when(unix_s: float) -> str:
    """A time for a person, in the zone of the place."""
    return datetime.fromtimestamp(unix_s).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def iso(unix_s: float) -> str:
    """A time for a program: ISO, UTC, to the second."""
    return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="seconds")


def time_ns(text: str) -> int:
    """A time that a person gives: ISO (local where no zone is said), or how long ago: 90m, 2h, 3d. In ns."""
    unit = {"s": 1, "m": 60, "h": 3600, "d": 86400}.get(text[-1:])
    try:
        if unit and text[:-1].isdecimal():
            found = time.time_ns() - int(text[:-1]) * unit * 10**9
        else:
            since = datetime.fromisoformat(text).astimezone() - datetime.fromtimestamp(0, UTC)
            found = since // timedelta(microseconds=1) * 1000
        if not 0 <= found < 2**63:
            raise ValueError
        return found
    except (ValueError, OverflowError) as error:
        raise Usage(f"{text} is no time", "say it as 2026-11-30T14:00, or as 90m, 2h, 3d (ago)") from error


def say_json(answer: dict[str, Any]) -> None:
    """One object, its schema first."""
    import orjson

    whole = {"schema": 1, **answer}
    try:
        data = orjson.dumps(whole, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    except TypeError:
        # A name that is no UTF-8, a record's id with a lone surrogate: escaped as JSON can.
        data = json.dumps(whole, indent=2).encode() + b"\n"
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _shown(text: str) -> str:
    """A text as a terminal may have it: what is no UTF-8 is escaped, and so are control characters of names."""
    clean = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(char if char.isprintable() or char in "\n\t" else repr(char)[1:-1] for char in clean)


def _line(text: str, stream: TextIO | None) -> None:
    """A line, at once; what the stream's encoding has not is escaped. Nothing where the stream is closed."""
    if stream is None:
        return
    try:
        print(text, file=stream, flush=True)
    except UnicodeEncodeError:
        print(text.encode(stream.encoding, "backslashreplace").decode(stream.encoding), file=stream, flush=True)


def say(text: str) -> None:
    """A line for a person."""
    _line(_shown(text), sys.stdout)


def page(texts: Iterable[str]) -> None:
    """Lines for a person, by their PAGER where there is a terminal to leaf through."""
    if sys.stdout.isatty():
        import click

        click.echo_via_pager(f"{_shown(text)}\n" for text in texts)
    else:
        for text in texts:
            say(text)


def size(count: int) -> str:
    """Bytes for a person."""
    value, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 999.5 or unit == "TB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if value >= 99.5 or unit == "B" else f"{value:.1f} {unit}"


def warn(text: str) -> None:
    """A line for a person, on stderr."""
    _line(f"keeper: {_shown(text)}", sys.stderr)


def say_error(error: KeeperError, as_json: bool) -> int:
    """Tell a failure and its cure; returns its exit code."""
    warn(error.message)
    if error.cure:
        _line(f"  cure: {error.cure}", sys.stderr)
    if as_json:
        say_json({"error": error.message, "cure": error.cure, "exit": error.exit_code})
    return error.exit_code


def notes(vault: Vault) -> None:
    """The named states that opening the vault met."""
    for note in dict.fromkeys(vault.notes):
        warn(note)


@contextmanager
def progress(label: str) -> Iterator[Progress | None]:
    """A bar on a terminal, None in a pipe."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        _bars.append(bar.stop)
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def end_progress() -> None:
    """Take away what another thread still shows: nobody else would give the cursor back."""
    while _bars:
        _bars.pop()()
