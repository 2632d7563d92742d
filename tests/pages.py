"""Pages: runs what a page of docs/ tells a person to type, in a throw-away home, and holds what it prints against it.

A `console` block is commands (`$ `, continued by `> `) with what they print, where the page claims that: `…` stands for
anything within a line, a line of it alone for any number of lines. `# exits 5` behind a command is its exit code, which
is 0 else; `# until Ctrl-C` has it interrupted. What a reader does not see stands before a block as a comment:
`<!-- needs: restic -->`, what the machine must have for it; `<!-- meanwhile: … -->`, what others do before it;
`<!-- file: NAME -->`, that the block is what the page has the reader write to that file.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

HERE = "/home/me"
"""How a page calls the reader's home."""
_BLOCK = re.compile(r"((?:^<!-- .*? -->\n)*)^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SAID = re.compile(r"^<!-- (needs|meanwhile|file): (.*) -->$", re.MULTILINE)
_EXITS = re.compile(r"\s+# exits (\d+)")
_CTRL_C = re.compile(r"\s+# until Ctrl-C")
OTHER = "/mnt/other"
"""How a page calls another volume."""
MARK = "\x1e"

MANAGER = """
for group in $KEEPER_TEST_GROUPS; do echo $$ >"$group/cgroup.procs" || exit 97; done
# From a group that is not its own alone systemd would move every process of the machine.
grep -E '^(0:|[0-9]+:name=systemd):' /proc/self/cgroup | grep -qv keeper-test- && exit 97
mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system && mkdir -p -m 700 /run/user/0
export XDG_RUNTIME_DIR=/run/user/0
/lib/systemd/systemd --user >/dev/null 2>&1 &
manager=$!
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
  systemctl --user list-units >/dev/null 2>&1 && break
  sleep 0.2
done
systemctl --user list-units >/dev/null 2>&1 || exit 97
bash "$1"
code=$?
kill $manager
wait $manager
exit $code
"""
"""A user's systemd for one page, in mounts, processes and control groups of its own, which end with it."""
GROUPS = Path("/sys/fs/cgroup")


class NoManager(Exception):
    """This machine gives a page no systemd of its own."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A command as a page shows it, what it claims it to print, its exit code and the line where it stands."""

    command: str
    line: int
    code: int = 0
    claimed: tuple[str, ...] = ()
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class Block:
    """One block of a page that is run: its commands, or the file that it is."""

    needs: tuple[str, ...]
    meanwhile: tuple[str, ...]
    commands: tuple[Shown, ...] = ()
    file: str = ""
    text: str = ""

    def with_meanwhile(self, named: Mapping[str, str]) -> Block:
        """The same, with what others do said as commands."""
        return replace(self, meanwhile=tuple(named.get(name, name) for name in self.meanwhile))


@dataclass(slots=True)
class Told:
    """What a command did."""

    shown: Shown
    code: int | None = None
    said: list[str] = field(default_factory=list)

    def differs(self) -> str:
        """What of it is not as the page says; "" where all is."""
        codes = (0, 130) if self.shown.interrupted else (self.shown.code,)
        found = "\n".join(self.said)
        where = f"line {self.shown.line}: $ {self.shown.command}"
        if self.code not in codes:
            return f"{where}\nexits {self.code}, saying\n{found}"
        if self.shown.claimed and not re.fullmatch(claim(self.shown.claimed), "".join(f"{one}\n" for one in self.said)):
            claimed = "\n".join(self.shown.claimed)
            return f"{where}\nthe page claims\n{claimed}\nand it says\n{found}"
        return ""


@contextmanager
def own_groups() -> Iterator[list[Path]]:
    """Control groups for a page's systemd; none where this machine gives none."""
    if os.geteuid() != 0 or not os.access("/lib/systemd/systemd", os.X_OK):
        yield []
        return
    name = f"keeper-test-{os.getpid()}"
    roots = [root for root in (GROUPS / "unified", GROUPS / "systemd", GROUPS) if (root / "cgroup.procs").exists()]
    made = [root / name for root in roots]
    try:
        try:
            for group in made:
                group.mkdir()
        except OSError:
            made = []
        yield made
    finally:
        for group in (*GROUPS.glob(f"*/{name}"), *GROUPS.glob(name)):
            for place, folders, _ in os.walk(group, topdown=False):
                for folder in folders:
                    os.rmdir(f"{place}/{folder}")
            group.rmdir()


def claim(lines: tuple[str, ...]) -> str:
    """The pattern of what is claimed."""
    return "".join(
        r"(?:.*\n)*" if line == "…" else ".*".join(re.escape(part) for part in line.rstrip().split("…")) + r" *\n"
        for line in lines
    )


def blocks(text: str) -> Iterator[Block]:
    """What of a page is run, in its order."""
    for found in _BLOCK.finditer(text):
        comments, kind, inner = found.groups()
        said = [(one[1], one[2]) for one in _SAID.finditer(comments)]
        needs = tuple(word for name, value in said if name == "needs" for word in value.split(", "))
        meanwhile = tuple(value for name, value in said if name == "meanwhile")
        file = next((value for name, value in said if name == "file"), "")
        first = text.count("\n", 0, found.start(3)) + 1
        if kind == "console":
            yield Block(needs, meanwhile, tuple(_commands(inner, first)))
        elif file:
            yield Block(needs, meanwhile, file=file, text=inner)


def _commands(inner: str, first: int) -> Iterator[Shown]:
    command, at, claimed = "", 0, []
    for number, line in enumerate([*inner.splitlines(), "$ "], first):
        if line.startswith("$ "):
            if command:
                yield _shown(command, at, tuple(claimed))
            command, at, claimed = line[2:], number, []
        elif line.startswith("> ") and not claimed:
            command += f"\n{line[2:]}"
        else:
            claimed.append(line)


def _shown(command: str, line: int, claimed: tuple[str, ...]) -> Shown:
    code, interrupted = _EXITS.search(command), _CTRL_C.search(command)
    plain = _CTRL_C.sub("", _EXITS.sub("", command))
    return Shown(plain, line, int(code[1]) if code else 0, claimed, interrupted is not None)


def script(page: list[Block], home: Path) -> str:
    """The shell that types it all."""
    lines = [f"cd {shlex.quote(str(home))}", "exec 2>&1 </dev/null"]
    number = 0
    for block in page:
        lines += [f"( cd {shlex.quote(str(home))}\n{command}\n) >/dev/null || exit 99" for command in block.meanwhile]
        if block.file:
            lines.append(f"cat >{shlex.quote(block.file)} <<'{MARK}'\n{block.text}{MARK}")
        for shown in block.commands:
            command = shown.command
            if shown.interrupted:
                command = f"timeout --preserve-status --signal=INT 8 {command}"
            lines += [f"printf '{MARK}%s\\n' {number}", command, f"printf '{MARK}ended %s\\n' $?"]
            number += 1
    return "\n".join(lines) + "\n"


def run(
    page: list[Block], home: Path, env: Mapping[str, str], groups: Sequence[Path] = (), other: Path | None = None
) -> list[Told]:
    """Type it all; what each command did. `groups` are those for a systemd, `other` stands for /mnt/other."""
    typed = home.parent / "typed.sh"
    typed.write_text(script(page, home).replace(OTHER, str(other)), "utf-8")
    shell = ["bash", str(typed)]
    if groups:
        own = home.parent / "manager.sh"
        own.write_text(MANAGER, "utf-8")
        shell = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "bash", str(own), str(typed)]
    env = {**env, "KEEPER_TEST_GROUPS": " ".join(map(str, groups))}
    done = subprocess.run(shell, env=env, capture_output=True, text=True, timeout=240, check=False)
    if done.returncode == 97:
        raise NoManager(done.stderr)
    told = [Told(shown) for block in page for shown in block.commands]
    mangled = re.sub("[^A-Za-z0-9]", "-", str(home)), re.sub("[^A-Za-z0-9]", "-", HERE)
    current: Told | None = None
    for line in done.stdout.replace(str(home), HERE).replace(*mangled).replace(str(other), OTHER).split("\n"):
        begun = re.fullmatch(rf"(.*){MARK}(ended )?(\d+)", line)
        if begun is None:
            if current is not None:
                current.said.append(line.rstrip())
        elif begun[2]:
            if current is not None:
                current.said += [begun[1]] if begun[1] else []
                current.code, current = int(begun[3]), None
        else:
            current = told[int(begun[3])]
    assert done.returncode == 0, f"the page could not be run to its end: {done.returncode}: {done.stdout[-2000:]}"
    return told
