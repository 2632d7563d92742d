"""The pages of docs/ that tell a person what to type: all of it is run, and does and prints what they say."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import click
import demo
import pytest

from keeper.cli.main import group
from keeper.transcripts import seal
from keeper.transcripts.frame import Frame, walk
from tests import pages
from tests.conftest import Needs

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = ["install", "first-rescue", "restore-by-hand", "exclude", "move-the-vault", "backup", "uninstall"]
NEVER = "0d5c1a9e-7b1f-4a63-9d0a-3c1f6f0e8b77"


@pytest.fixture
def stage(tmp_path: Path) -> demo.Stage:
    """A home with one conversation of forty days ago, as scripts/demo.py makes it."""
    stage = demo.Stage(tmp_path / "home")
    stage.home.mkdir(mode=0o700)
    demo.converse(stage)
    (stage.home / "keeper").symlink_to(ROOT)
    (stage.home / ".local" / "bin").mkdir(parents=True)
    return stage


def meanwhile(stage: demo.Stage) -> dict[str, str]:
    """What others do between two commands of a page, by the name that the pages give it."""
    anew = f"import sys; sys.path.insert(0, {str(ROOT / 'scripts')!r}); import demo, pathlib\n"
    anew += "demo.converse(demo.Stage(pathlib.Path(sys.argv[1])))"
    whole = [str(place) for place in stage.footprint]
    told = {"display": "find the race in the queue", "sessionId": NEVER, "project": str(stage.cwd), "timestamp": 1}
    return {
        "sweep": f"rm -r {shlex.join(whole)}; rmdir {shlex.quote(str(stage.project))}",
        "keep": "keeper keep",
        "anew": f"rm -r shop && {shlex.join([sys.executable, '-c', anew, str(stage.home)])}",
        "claude": "printf '#!/bin/sh\n' >.local/bin/claude && chmod +x .local/bin/claude"
        """ && echo '{"model": "opus"}' >.claude/settings.json""",
        "history": f"echo {shlex.quote(json.dumps(told))} >>.claude/history.jsonl",
    }


def environment(stage: demo.Stage) -> dict[str, str]:
    return {
        "PATH": f"{Path(sys.executable).parent}:{stage.home}/.local/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "HOME": str(stage.home),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "TERM": "dumb",
        "COLUMNS": "300",
    }


@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_tells_to_type_does_and_prints_what_it_says(
    name: str, stage: demo.Stage, needs: Needs, request: pytest.FixtureRequest
) -> None:
    others = meanwhile(stage)
    page = list(pages.blocks((DOCS / f"{name}.md").read_text("utf-8")))
    wanted = {need for block in page for need in block.needs}
    assert wanted <= {"systemd", "restic", "volume"}
    if "restic" in wanted:
        needs.command("restic")
    other = request.getfixturevalue("second_volume") if "volume" in wanted else None
    there = [block.with_meanwhile(others) for block in page]
    with pages.own_groups() if "systemd" in wanted else nullcontext([]) as groups:
        if "systemd" in wanted and not groups:
            needs.lacking("control groups for a systemd of the test's own", "", unavoidable="not root, or none here")
        try:
            told = pages.run(there, stage.home, environment(stage), groups, other)
        except pages.NoManager as why:
            needs.lacking("a systemd of the test's own", "", unavoidable=str(why))
    assert len(told) > 2
    if faults := [found for one in told if (found := one.differs())]:
        pytest.fail("\n\n".join(faults), pytrace=False)


def test_the_readme_lists_the_pages_that_are_run_and_no_other_page_asks_to_be() -> None:
    tasks = re.search(r"^## Tasks\n(.*?)^## ", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert tasks is not None
    assert re.findall(r"\(docs/([a-z-]+)\.md\) \|", tasks[1]) == PAGES
    asking = {
        path.stem
        for path in DOCS.glob("*.md")
        if re.search(r"^<!-- (needs|meanwhile|file):", path.read_text("utf-8"), re.MULTILINE)
    }
    assert asking == set(PAGES)


# --- the recipe for a seal -----------------------------------------------------------------------------------


@pytest.fixture
def unseal(needs: Needs, tmp_path: Path) -> Callable[[Path], tuple[int, bytes]]:
    """The script of restore-by-hand.md; its exit code and what it wrote."""
    needs.command("zstd")
    found = list(pages.blocks((DOCS / "restore-by-hand.md").read_text("utf-8")))
    (text,) = [block.text for block in found if block.file == "unseal"]
    script, out = tmp_path / "unseal", tmp_path / "out"
    script.write_text(text, "utf-8")

    def run(path: Path) -> tuple[int, bytes]:
        done = subprocess.run(["sh", script, path, out], capture_output=True, text=True, check=False)
        assert done.stderr == "" or done.returncode == 1
        return done.returncode, out.read_bytes()

    return run


def seals(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Seals of every kind that keeper writes: of turns (each packed with what is before it), of one that does not pack,
    with something taken out in the middle, and one whose frames were joined."""
    live, path = tmp_path / "live", tmp_path / "a.seal"
    last = None
    for number in range(70):
        more = "".join(f'{{"uuid":"{number}-{line}","text":"a turn like any other"}}\n' for line in range(number * 3))
        with live.open("ab") as stream:
            stream.write(f"{number} {os.urandom(20).hex() if number % 7 else ''}\n{more}".encode())
        with live.open("rb") as stream:
            last = seal.grow(str(path), last, stream.fileno(), 10**18 + number * 10**9, label="a")
    yield "turns", path
    lines = live.read_bytes().splitlines(keepends=True)
    seal.splice(str(path), seal.read(str(path)), b"".join(lines[:50] + lines[90:-20]), 2 * 10**18)
    yield "splice", path
    assert seal.repack(str(path), str(tmp_path / "beside"))
    yield "joined", path


def test_what_a_seal_holds_can_be_had_with_a_shell_and_zstd_alone(
    tmp_path: Path, unseal: Callable[[Path], tuple[int, bytes]]
) -> None:
    kinds = set()
    for kind, path in seals(tmp_path):
        frames = [frame for _, frame in walk(str(path))]
        kinds |= {
            (bool(f.prefix), bool(f.flags), bool(f.removed), bool(f.marked)) for f in frames if isinstance(f, Frame)
        }
        sealed = bytes(seal.read(str(path)).content)
        assert (kind, unseal(path)) == (kind, (0, sealed))
    assert all(any(one[place] for one in kinds) for place in range(4)), kinds


def test_the_recipe_says_where_a_damaged_seal_ceases_to_read(
    tmp_path: Path, unseal: Callable[[Path], tuple[int, bytes]]
) -> None:
    _, path = next(seals(tmp_path))
    whole = bytes(seal.read(str(path)).content)
    data = bytearray(path.read_bytes())
    places = [at for at, _ in walk(str(path))]
    data[places[40]] ^= 1
    path.write_bytes(data)
    code, found = unseal(path)
    assert code == 1
    assert found and whole.startswith(found)


# --- the pages and the commands ------------------------------------------------------------------------------


def test_a_page_whose_claim_does_not_hold_is_told(tmp_path: Path) -> None:
    text = "```console\n$ echo one two\none …\n$ echo one\ntwo\n$ false\n$ (exit 3)  # exits 3\n```\n"
    told = pages.run(list(pages.blocks(text)), tmp_path, {"PATH": os.environ["PATH"]})
    assert [bool(one.differs()) for one in told] == [False, True, True, False]
    assert "the page claims\ntwo\nand it says\none" in told[1].differs()
    assert "exits 1" in told[2].differs()


def words() -> Iterator[tuple[str, str]]:
    """Each `keeper …` that a page names in code, with the page."""
    for path in [ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "CHANGELOG.md", *sorted(DOCS.glob("*.md"))]:
        if path.name == "acceptance.md":
            continue  # what must hold, done or not
        text = path.read_text("utf-8")
        fenced = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        spans = re.findall(r"`([^`]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
        for line in [*spans, *(line for block in fenced for line in block.splitlines())]:
            for part in re.split(r"[|;&]{1,2}|\s#\s", " ".join(line.split())):
                if found := re.match(r"(?:\$ )?(?:\w+=\S+ )*(?:\S*/)?keeper ([a-z][^<>]*)", part.strip()):
                    yield path.name, found[1].replace("\\", "")


def unknown(line: str) -> list[str]:
    """The commands and options of a line that keeper does not have."""
    command: click.Command = group
    context = click.Context(group, info_name="keeper")
    given, _, _ = line.partition(" -- ")
    strange, options = [], []
    for word in given.replace("[", " ").replace("]", " ").replace("{", " ").replace("}", " ").split():
        if word.startswith("-"):
            options.append(word.partition("=")[0].strip("'\"`.,:;)…"))
        elif isinstance(command, click.Group) and re.fullmatch(r"[a-z-]+", word):
            found = command.get_command(context, word)
            strange += [] if found else [word]
            command = found or click.Command("none")
    known = {name for param in command.params for name in (*param.opts, *param.secondary_opts)} | {"--help", "-h"}
    return strange + [option for option in options if option not in known | {"--", "-", ""}]


def test_no_page_names_a_command_or_an_option_that_there_is_not() -> None:
    found = list(words())
    assert len(found) > 80
    assert [(page, line, strange) for page, line in found if (strange := unknown(line))] == []


def test_a_command_or_option_that_there_is_not_would_be_told() -> None:
    assert unknown("resurrect SESSION") == ["resurrect"]
    assert unknown("exclude forget") == ["forget"]
    assert unknown("restore SESSION --at 2d [--in-place] --hard") == ["--hard"]
    assert unknown("resume SESSION -- --fork-session") == []
