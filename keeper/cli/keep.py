"""`keeper keep`: live into the vault, for named sessions or for every profile."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import click

from keeper import claude
from keeper.cli import out
from keeper.cli.exclude import put_in, take_out
from keeper.errors import KeeperError, Usage
from keeper.transcripts.keep import Keeper, Options, keep_session
from keeper.transcripts.ledger import Kept
from keeper.transcripts.places import profiles_of
from keeper.transcripts.policy import EXCLUDE, POLICIES
from keeper.transcripts.rules import Rule
from keeper.transcripts.vault import Vault


@click.command()
@click.argument("what", nargs=-1, metavar="[SESSION|PATH]...")
@click.option("--profile", type=click.Path(file_okay=False, path_type=Path), help="Only this profile.")
@click.option("--adopt", is_flag=True, help="Keep again what was forgotten.")
@click.option("--tag", "tags", multiple=True, help="Tag the chat (for a host's rules).")
@click.option("--chat", help="Name the chat (for a host that has its own ids).")
@click.option(
    "--policy",
    type=click.Choice(POLICIES),
    help="From now on: put back before a resume, keep from sweeps too, or neither.",
)
@click.option("--no-seal", is_flag=True, help="Of all sessions: link only, and leave the sealing to the next keep.")
@out.json_option
def keep(
    what: tuple[str, ...], profile: Path | None, adopt: bool, tags: tuple[str, ...], chat: str | None,
    policy: str | None, no_seal: bool, as_json: bool,
) -> int:  # fmt: skip
    """Keep sessions: by id, by a transcript's path, or all of every known profile. A session is answered once it is
    sealed; all of a profile once they are linked and durable, and sealed after that.

    Example: keeper keep 3f6c0a52-8d1e-4b7a-9c55-0e2f1a7b9d10
    """
    options = Options(adopt, chat, tags, policy=policy or "")
    if (adopt or chat or policy) and len(what) != 1:
        raise Usage("--adopt, --chat and --policy go with one session", "name the session, or its transcript's path")
    if tags and not what:
        raise Usage("--tag goes with the sessions that it is about", "name them")
    profile = claude.effective(profile) if profile else None
    if profile is not None and not (profile / "projects").is_dir():
        raise Usage(f"{profile} is no profile: it has no folder `projects`", "name a Claude configuration directory")
    vault = out.open_vault(make=True)
    if policy:
        rule = _rule_of(what[0], profile)
        if policy == EXCLUDE:
            return put_in(vault, rule, False, as_json)
        take_out(vault, rule)
    run = _Run(vault, options, seal=not no_seal)
    if what:
        answers = [answer for item in what for answer in run.safely(item, profile, len(what) == 1)]
    else:
        answers = run.all([profile] if profile else profiles_of(vault))
    out.notes(vault)
    if as_json:
        out.say_json({"kept": [asdict(answer) for answer in answers]})
    else:
        _say(answers)
    return _code(answers) if run.seal() else _code(answers) or 3


def _rule_of(item: str, profile: Path | None) -> Rule:
    """The rule that meets one session alone, by its id or its transcript's path."""
    path = Path(item).absolute()
    own = claude.profile_of(path) if path.suffix == ".jsonl" else None
    session = claude.check_session(path.stem if path.suffix == ".jsonl" else item)
    whose = own or profile
    return Rule.of({"session": session, **({"profile": str(whose)} if whose else {})})


class _Run:
    """One call of the command: the passes that it made are sealed after they were answered."""

    def __init__(self, vault: Vault, options: Options, seal: bool) -> None:
        self.vault = vault
        self.options = options
        self.wanted = seal
        self.passes: list[Keeper] = []

    def safely(self, item: str, profile: Path | None, alone: bool) -> list[Kept]:
        """One of several that fails is told in its answer, and stops no other."""
        try:
            return self.named(item, profile)
        except KeeperError as error:
            if alone:
                raise
            return [Kept(item, "", error=error.message, cure=error.cure, exit_code=error.exit_code)]

    def named(self, item: str, profile: Path | None) -> list[Kept]:
        """One word of the call: a session id, a transcript, or a profile's folder."""
        if claude.is_session(item):
            return keep_session(self.vault, item, out.now(), self.options, profile)
        path = Path(item).absolute()
        if path.suffix == ".jsonl" and claude.is_session(path.stem):
            own = claude.profile_of(path)
            if own is None:
                raise Usage(
                    f"{path} lies in no profile", "a transcript is <profile>/projects/<project>/<session>.jsonl"
                )
            return keep_session(self.vault, path.stem, out.now(), self.options, own)
        if (path / "projects").is_dir():
            return self.all([claude.effective(path)])
        claude.check_session(item)
        return []

    def all(self, profiles: list[Path]) -> list[Kept]:
        """Every session of these profiles."""
        answers = []
        with self.vault.index.sharing(), out.progress("keeping") as progress:
            keeper = Keeper(self.vault, out.now(), replace(self.options, chat=None))
            self.passes.append(keeper)
            for profile in profiles:
                answers += keeper.profile(profile, progress)
            keeper.finish()
        return answers

    def seal(self) -> bool:
        """What the passes kept is sealed. Whether all was: a chat that could not be is told, and is the next keep's."""
        before = len(self.vault.notes)
        for keeper in self.passes if self.wanted else ():
            with out.progress("sealing") as progress:
                keeper.seal(progress)
        for note in self.vault.notes[before:]:
            out.warn(note)
        return len(self.vault.notes) == before


def _say(answers: list[Kept]) -> None:
    for answer in answers:
        if answer.error:
            out.warn(f"{answer.session}: {answer.error}")
            if answer.cure:
                out.warn(f"  cure: {answer.cure}")
        elif answer.action != "none" or answer.warnings:
            more = f", {answer.added} lines" if answer.added else ""
            more += f", {answer.files} other files" if answer.files else ""
            out.say(f"{answer.session}  {answer.verdict}: {answer.action}{more}")
            for warning in answer.warnings:
                out.warn(f"{answer.session}: {warning}")
    for answer in answers:
        if answer.verdict == "forgotten":
            out.warn(f"{answer.session} is forgotten: `keeper keep --adopt {answer.session}` keeps it again")
        elif answer.verdict == "excluded" and len(answers) == 1 and answer.action == "none":
            out.warn(f"{answer.session}: {answer.warnings[0]}: nothing of it is kept")
        elif answer.verdict == "pruned" and len(answers) == 1:
            out.warn(f"{answer.session} is {answer.warnings[0]}")
    actions = Counter(_done(answer) for answer in answers)
    same = actions.pop("none", 0)
    done = ", ".join(f"{count} {action}" for action, count in sorted(actions.items())) or "nothing new"
    out.say(f"{len(answers)} sessions: {done}; {same} unchanged")


def _done(answer: Kept) -> str:
    if answer.error:
        return "failed"
    return answer.verdict if answer.verdict in ("forgotten", "excluded", "pruned") else answer.action


def _code(answers: list[Kept]) -> int:
    failed = [answer for answer in answers if answer.error]
    if not failed:
        return 0
    return failed[0].exit_code if len(failed) == len(answers) == 1 else 3
