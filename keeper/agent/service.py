"""Service: the systemd user unit, and what systemd is told by the process that it runs.

It promises one command each to install, remove and look, and that the same process runs without systemd: where no
notify socket is named, telling it is nothing. It refuses to touch a unit that is not keeper's.
"""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import socket
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from keeper import disk
from keeper.errors import KeeperError, Refused

UNIT = "keeper.service"
MARK = "# Written by keeper; `keeper service remove` takes it away again."
WATCHDOG_S = 120
NO_SYSTEMD = "there is no systemd here; `keeper run` does the same in the foreground"
RUNS = ("active", "activating", "reloading")
"""What systemd says of an agent that need not be started."""
STARTS_S = 120.0
"""systemd gives a start 90 s, and the end before it 10 s: it is for systemd to say that it failed."""
LINGERING = Path("/var/lib/systemd/linger")
BOOTED = Path("/run/systemd/system")


def unit(command: tuple[str, ...], environment: dict[str, str]) -> str:
    """The unit's text: `command` is run in the user's session, with these variables."""
    lines = [f'Environment="{name}={_escaped(value)}"' for name, value in sorted(environment.items())]
    return "\n".join(
        [
            MARK,
            "[Unit]",
            "Description=keeper: keeps Claude Code conversations",
            "Documentation=man:systemd.service(5)",
            "",
            "[Service]",
            "Type=notify",
            "NotifyAccess=main",
            f"ExecStart={' '.join(_quoted(word) for word in command)}",
            "ExecReload=kill -HUP $MAINPID",
            f"WatchdogSec={WATCHDOG_S}",
            "Restart=on-failure",
            "RestartSec=5",
            "TimeoutStopSec=10",
            "Nice=5",
            "IOSchedulingClass=best-effort",
            "IOSchedulingPriority=6",
            "UMask=0077",
            *lines,
            "",
            "[Install]",
            "WantedBy=default.target",
            "",
        ]
    )


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")


def _quoted(word: str) -> str:
    plain = word.replace("%", "%%").replace("$", "$$")
    return plain if shlex.quote(word) == word else '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'


@dataclass(frozen=True, slots=True)
class Status:
    """`installed`: the unit file stands and is keeper's; `active`: what systemd says, "" where there is none to ask."""

    path: Path
    installed: bool
    active: str


class Service:
    """The unit below `units`, the folder of the user's units (`$XDG_CONFIG_HOME/systemd/user`)."""

    def __init__(self, units: Path) -> None:
        self.units = units
        self.path = units / UNIT

    def install(self, text: str) -> list[str]:
        """Write the unit, and start the agent by it, one that runs by an older unit anew; what was done, a line each.

        Raises Refused where another's stands there, KeeperError where systemd does not start it.
        """
        self._only_ours()
        disk.ensure_dir(self.units)
        disk.write_file(self.path, text.encode())
        done = [f"wrote {self.path}"]
        if shutil.which("systemctl") is None:
            return [*done, NO_SYSTEMD]
        for words in (("daemon-reload",), ("enable", UNIT), ("restart", UNIT)):
            said = _systemctl(*words)
            if said:
                raise KeeperError(
                    f"{self.path} is written, but the agent is not started: systemctl --user {' '.join(words)}: {said}",
                    "run it again from a login of your own (su, sudo and a container have no systemd for you), or have "
                    "`keeper run` started in whatever way this machine has",
                )
            done.append(f"systemctl --user {' '.join(words)}: done")
        return done

    def remove(self) -> list[str]:
        """Stop it and take the unit away; what was done. Nothing where there is none."""
        self._only_ours()
        if not self.path.exists():
            return []
        said = _systemctl("disable", "--now", UNIT)
        disk.unlink(self.path)
        _systemctl("daemon-reload")
        return [f"systemctl --user disable --now {UNIT}: {said or 'done'}", f"removed {self.path}"]

    def status(self) -> Status:
        """What stands there, and what systemd says."""
        return Status(self.path, self._is_ours(), _systemctl("is-active", UNIT, answer=True))

    def _is_ours(self) -> bool:
        try:
            return self.path.read_text("utf-8", "replace").startswith(MARK)
        except OSError:
            return False

    def _only_ours(self) -> None:
        if self.path.exists() and not self._is_ours():
            raise Refused(f"{self.path} is a unit that keeper has not written", "move it away, or keep yours")


def ends_with_login() -> bool:
    """Whether systemd ends this user's services with the last login."""
    try:
        return BOOTED.is_dir() and not (LINGERING / pwd.getpwuid(os.getuid()).pw_name).exists()
    except (KeyError, OSError):
        return False


def _systemctl(*words: str, answer: bool = False) -> str:
    """What systemctl says to it: with `answer` its word, else its complaint, "" where it has none."""
    program = shutil.which("systemctl")
    if program is None:
        return "" if answer else NO_SYSTEMD
    try:
        ran = subprocess.run([program, "--user", *words], capture_output=True, text=True, timeout=STARTS_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return "" if answer else str(error)
    if answer:
        return ran.stdout.strip()
    return "" if ran.returncode == 0 else (ran.stderr.strip().splitlines() or ["it failed"])[-1]


class Notify:
    """systemd's notify socket; `address` as `NOTIFY_SOCKET` names it, "" where nobody listens."""

    def __init__(self, address: str) -> None:
        self.address = "\0" + address[1:] if address.startswith("@") else address

    def tell(self, *lines: str) -> None:
        """Send these; that nobody hears it stops nothing."""
        if self.address:
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
                line.sendto("\n".join(lines).encode(), self.address)
