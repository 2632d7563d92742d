"""`keeper setup`: hooks, shim and service in place by one command, and away again by one."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Sequence

import click

from keeper.agent.service import RUNS, ends_with_login
from keeper.cli import hooks, out, run
from keeper.cli.parts import Part, Step, carry_out, dry_run_option, yes_option
from keeper.doors import shim
from keeper.settings import Settings


def _shim(values: Settings) -> list[Step]:
    stands = shim.status(os.environ)
    if stands.installed and stands.current:
        return []
    return [Step(f"write {stands.path}, a `claude` that puts back what is resumed", _put_shim)]


def _put_shim() -> Sequence[str]:
    return [f"{shim.install(os.environ).path}: done"]


def _no_shim(values: Settings) -> list[Step]:
    stands = shim.status(os.environ)
    return [Step(f"remove {stands.path}", _take_shim)] if stands.installed else []


def _take_shim() -> Sequence[str]:
    return [f"{shim.remove(os.environ).path}: gone"]


def _shim_advice(values: Settings) -> Sequence[str]:
    return shim.status(os.environ).advice


def _service(values: Settings) -> list[Step]:
    mine, text = run.of_user(), run.text()
    stands = mine.status()
    same = stands.installed and mine.path.read_text("utf-8", "replace") == text
    if shutil.which("systemctl") is None or (same and stands.active in RUNS):
        return []
    return [Step(f"write {mine.path}, and start the agent by systemd", lambda: mine.install(text))]


def _no_service(values: Settings) -> list[Step]:
    mine = run.of_user()
    return [Step(f"stop the agent, and remove {mine.path}", mine.remove)] if mine.status().installed else []


def _service_advice(values: Settings) -> Sequence[str]:
    if shutil.which("systemctl") is not None:
        if not (run.of_user().status().installed and ends_with_login()):
            return ()
        return ["the agent ends with your last login: `loginctl enable-linger` has it stay, for a Claude that does"]
    here = shlex.quote(hooks.program())
    return [f"no systemd here: have `{here} run` started with your session, in whatever way this machine has"]


PARTS = (
    hooks.PART,
    Part("shim", _shim, _no_shim, _shim_advice),
    Part("service", _service, _no_service, _service_advice),
)
"""In the order in which they are put in place; they are taken away the other way round."""


@click.command()
@click.option("--undo", is_flag=True, help="Take away what setup has put in place.")
@dry_run_option
@yes_option
@out.json_option
def setup(undo: bool, dry_run: bool, yes: bool, as_json: bool) -> int:
    """Have Claude Code call keeper, `claude` put back what is resumed, and the agent run; --undo takes all of it back.
    What it will do is shown first. Other people's hooks and the formatting of their files stay as they are.

    Example: keeper setup --dry-run
    """
    return carry_out(PARTS, undo, dry_run, yes, as_json)
