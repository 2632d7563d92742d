"""`keeper doctor`: what works, what is at risk, and the command that cures each."""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from keeper import claude, files, homes, settings, wire
from keeper.agent import service, volume
from keeper.agent import state as agent_state
from keeper.cli import out, run
from keeper.cli.entry import LOG
from keeper.doctor import facts as told
from keeper.doctor import gather, judge, machine, probe
from keeper.doctor.check import OK, STATES, Check
from keeper.doors import hooks as hooks_door
from keeper.doors import shim as shim_door
from keeper.doors.cli_version import version_of_files
from keeper.doors.hook import EVENTS
from keeper.doors.mend import mended
from keeper.errors import KeeperError, Usage
from keeper.settings import Settings
from keeper.transcripts.vault import Vault

WIDE = 80
STATUS_S = 5.0


@click.command()
@click.option("--probe", "tries", is_flag=True, help="Try link, exchange, lease, reflink and events on your volumes.")
@click.option(
    "--mend", type=click.Path(path_type=Path), metavar="FILE",
    help="Set in this settings file of Claude's what a check warns of: cleanupPeriodDays to 36500, disableAllHooks to "
    "false, each where it stands; no other byte changes.",
)  # fmt: skip
@out.json_option
def doctor(tries: bool, mend: Path | None, as_json: bool) -> int:
    """Say what works, what is at risk and what to do about it, the worst first. Exits 1 where something fails. Writes
    nothing but, with --probe, small files of keeper's own names, which are taken away again, and with --mend the file
    that you name.

    Example: keeper doctor --probe
    """
    if mend is not None:
        return _mend(mend, as_json)
    values, error = _settings()
    found = _facts(values, error, tries)
    checks = judge.checks(found, volume.is_shared)
    if as_json:
        out.say_json(judge.answer(found, checks))
    else:
        for line in _lines(checks):
            out.say(line)
    return judge.exit_code(checks)


# ------------------------------------------------------------------ what a person reads


def _lines(checks: list[Check]) -> Iterator[str]:
    """A check a paragraph, its cure on a line of its own that is not broken, so that it can be copied."""
    for check in checks:
        state = check.state if check.state == OK else check.state.upper()
        words = f"{state:<4}  {check.name}: {check.detail}"
        yield textwrap.fill(words, WIDE, subsequent_indent=" " * 6, break_long_words=False, break_on_hyphens=False)
        if check.cure:
            yield f"      $ {check.cure}"
    count = {one: sum(check.state == one for check in checks) for one in STATES}
    yield f"{len(checks)} checks: {count['fail']} fail, {count['warn']} warn, {count['ok']} ok"


# ------------------------------------------------------------------ what it goes by


def _mend(file: Path, as_json: bool) -> int:
    """Looks at nothing else: this is the cure of one check."""
    edit = mended(file)
    if edit is not None:
        hooks_door.make(edit)
    if as_json:
        out.say_json({"file": str(file), "changed": edit is not None})
    else:
        out.say(f"{edit.what}: done" if edit is not None else f"{file}: nothing in it is to be mended")
    return 0


def _settings() -> tuple[Settings, Usage | None]:
    """A settings file that does not read is a finding, and stops no other."""
    try:
        return settings.load(os.environ), None
    except Usage as error:
        return settings.load({**os.environ, "KEEPER_CONFIG": os.devnull}), error


def seen(vault: Vault, now: float) -> told.Seen:
    """What the next sweeps depend on."""
    rows, _ = gather.rows_of(vault)
    installed = tuple(_installed(os.environ.get("PATH", "")))
    return told.Seen(gather.profiles(vault, rows, claude.running(), _kind, now, installed), installed)


def _facts(values: Settings, error: Usage | None, tries: bool) -> told.Facts:
    now = out.now()
    installed = tuple(_installed(os.environ.get("PATH", "")))
    profiles, kept = _kept(values, error, installed, now)
    agent = _agent(values.vault) if not kept.unknown else told.Agent()
    trials = None
    if tries:
        root = values.vault if kept.made and not kept.error else None
        there = [path for profile in profiles if os.path.isdir(path := Path(profile.path))]
        trials = tuple(one for profile in there for one in probe.trials(profile, root, volume.silent))
    return told.Facts(
        now=now,
        vault=kept,
        profiles=profiles,
        doors=_doors(values, agent, profiles),
        inotify=machine.inotify(but=agent.pid),
        installed=installed,
        trials=trials,
        settings_error=_words(error) if error else "",
        settings_file=homes.config(os.environ) if error else "",
    )


def _kept(
    values: Settings, error: Usage | None, installed: tuple[tuple[str, str], ...], now: float
) -> tuple[tuple[told.Profile, ...], told.VaultFacts]:
    """What is found of the profiles and of the vault; where that cannot be used, or nobody knows which it is, the
    profiles by themselves."""
    running = claude.running()
    alone = Vault(values.vault, values)
    if error is None:
        try:
            with Vault.open(values, make=False) as vault:
                rows, index_lost = gather.rows_of(vault)
                profiles = gather.profiles(vault, rows, running, _kind, now, installed)
                return profiles, gather.vault_facts(vault, rows, index_lost, profiles, _kind)
        except (KeeperError, OSError) as failed:
            kept = told.VaultFacts(str(values.vault), error=_words(files.told(failed, values.vault)))
    else:
        kept = told.VaultFacts("", made=False, error=f"which vault it is cannot be told: {error.message}", unknown=True)
    return gather.profiles(alone, None, running, _kind, now, installed), kept


def _words(error: KeeperError) -> str:
    """An error with its cure, which is for a person and no line for a shell."""
    return f"{error.message}: {error.cure}" if error.cure else error.message


def _kind(folder: str) -> str:
    try:
        mounts = Path(volume.MOUNTS).read_text("utf-8", "surrogateescape")
    except OSError:
        return ""
    return volume.type_of(os.path.realpath(folder), mounts)


def _agent(root: Path) -> told.Agent:
    """What the agent says of itself, or what the last one has left."""
    answer: dict[str, Any] | None = wire.ask(str(root), {"do": "status"}, STATUS_S)
    if answer is not None and answer.get("running"):
        return told.Agent(
            running=True,
            pid=answer["pid"],
            since=answer["since"],
            ready=bool(answer["ready"]),
            hooked=answer.get("hooked"),
            degraded=tuple(told.Told(one["what"], one["why"], one["since"]) for one in answer["degraded"] or ()),
            events=_events(answer),
            polled=tuple(answer["polled"]),
            watches=answer["watches"]["count"],
        )
    try:
        left = agent_state.read(root)
    except (KeeperError, OSError):
        return told.Agent()  # of the vault that cannot be looked at a check tells
    who = left.get("who") or {}
    pid = int(who.get("pid") or 0)
    here = who.get("boot") == agent_state.boot_id() and who.get("host") == os.uname().nodename
    alive = here and bool(who.get("started")) and agent_state.start_of(pid) == who["started"]
    last = os.stat(root / agent_state.FILE).st_mtime if left else None
    return told.Agent(silent=alive, pid=pid if alive else 0, last=last, events=_events(left))


def _events(answer: dict[str, Any]) -> tuple[told.Told, ...]:
    return tuple(told.Told(one["what"], one["text"], one["when"]) for one in answer.get("events") or ())


def _doors(values: Settings, agent: told.Agent, profiles: tuple[told.Profile, ...]) -> told.Doors:
    stands = shim_door.status(os.environ)
    unit = run.of_user().status()
    systemd = shutil.which("systemctl") is not None and service.BOOTED.is_dir()
    log = values.state_home / LOG
    return told.Doors(
        agent=agent,
        hooks=tuple(_hooks(Path(profile.path)) for profile in profiles),
        shim=told.Shim(stands.path, stands.installed, stands.current, stands.first, stands.real, stands.advice),
        service=told.Service(systemd, str(unit.path), unit.installed, unit.active, service.ends_with_login()),
        hook_log=log.stat().st_mtime if log.exists() else None,
        hook_log_file=str(log),
    )


def _hooks(profile: Path) -> told.Hooks:
    try:
        one = hooks_door.status(profile)
    except (KeeperError, OSError) as error:
        why = files.told(error, profile).message
        return told.Hooks(str(profile), hooks_door.file_of(profile), (), EVENTS, error=why)
    return told.Hooks(one.profile, one.file, one.events, one.missing, one.disabled)


def _installed(path: str) -> Iterator[tuple[str, str]]:
    """Every `claude` on PATH but the shim, with its version as its files tell it."""
    for folder in dict.fromkeys(path.split(":")):
        program = f"{folder or '.'}/claude"
        if os.path.isfile(program) and os.access(program, os.X_OK) and not shim_door.is_shim(program):
            yield program, version_of_files(program)
