"""`keeper list` and `keeper show` for a person: what is chosen, in which order, how wide, what stands around a talk."""

import errno
import json
import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from keeper import claude, settings
from keeper.transcripts.describe import describe
from keeper.transcripts.vault import Vault
from tests.build import jsonl, meta, prompt, session_id, talk, write_live
from tests.conftest import Ran
from tests.seam import world
from tests.terminal import Terminal

Command = Callable[..., Ran]
SHOP, API, TOOLS = "/srv/shop", "/srv/shop/api", "/srv/shopping"
A, B, C, D = (session_id(number) for number in range(1, 5))


def used(data: bytes, days: float) -> bytes:
    """The transcript, with records of so many days ago."""
    then = datetime.fromtimestamp(time.time() - days * 86_400, UTC).isoformat(timespec="milliseconds")
    return data.replace(b"2026-01-01T00:00:00.000Z", then.replace("+00:00", "Z").encode())


@pytest.fixture
def chats(profile: Path, vault_home: Path, home: Path) -> Path:
    """Four kept chats of three directories, used 1, 5, 9 and 20 days ago by their records, while their files' times are
    the other way round, as restores leave them; C is swept."""
    told = (
        (A, SHOP, 1, jsonl(*talk("abcd", A, cwd=SHOP), meta("custom-title", customTitle="Vouchers"))),
        (B, API, 5, jsonl(prompt("e", None, "Why is the tax off by a cent?", B, cwd=API))),
        (C, TOOLS, 9, jsonl(*talk("pq", C, cwd=TOOLS))),
        (D, SHOP, 20, jsonl(*talk("rstuvw", D, cwd=SHOP))),
    )
    for session, cwd, days, data in told:
        path = write_live(profile, cwd, session, used(data, days))
        os.utime(path, (time.time() - (21 - days) * 86_400,) * 2)
    world(profile, vault_home, home / ".local" / "state" / "keeper").keep_all()
    next(profile.glob(f"projects/*/{C}.jsonl")).unlink()
    return profile


def listed(run_keeper: Command, *words: object) -> str:
    """The chats of an answer, by their letters."""
    names = {A: "A", B: "B", C: "C", D: "D"}
    return "".join(names[one["session"]] for one in run_keeper("list", *words, "--json").json["chats"])


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("--cwd", SHOP), "DA"),
        (("--below", SHOP), "DBA"),
        (("--below", f"{SHOP}/"), "DBA"),
        (("--below", "/"), "DCBA"),
        (("--state", "swept"), "C"),
        (("--state", "swept", "--state", "live"), "DCBA"),
        (("--state", "damaged"), ""),
        (("--since", "6d"), "BA"),
        (("--until", "6d"), "DC"),
        (("--since", "10d", "--until", "2d"), "CB"),
        (("--text", "VOUCH"), "A"),
        (("--text", "prompt a"), "A"),
        (("--text", "tax", "--text", "cent"), "B"),
        (("--text", "tax", "--text", "voucher"), ""),
        (("--sort", "records"), "BCAD"),
        (("--sort", "records", "--reverse"), "DACB"),
        (("--sort", "title"), "CDAB"),
        (("--sort", "cwd"), "DABC"),
        (("--reverse",), "ABCD"),
    ],
)
def test_list_narrows_and_sorts(chats: Path, run_keeper: Command, words: tuple[str, ...], found: str) -> None:
    assert listed(run_keeper, *words) == found


def test_list_puts_the_chats_of_a_directory_together_the_newest_last(chats: Path, run_keeper: Command) -> None:
    lines = run_keeper("list").text.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == [TOOLS, C, API, B, SHOP, D, A]
    assert "4 sessions" in lines[-1] and "1 of them kept alone" in lines[-1]
    flat = run_keeper("list", "--sort", "bytes").text
    assert SHOP not in flat


def test_list_fits_80_columns_of_a_terminal_and_cuts_nothing_in_a_pipe(
    profile: Path, vault_home: Path, home: Path, cli_env: dict[str, str], run_keeper: Command
) -> None:
    title = "a title of 老 wide 字 letters that goes on and on for more than is left"
    write_live(profile, SHOP, A, jsonl(*talk("ab", A, cwd=SHOP), meta("custom-title", customTitle=title)))
    world(profile, vault_home, home / ".local" / "state" / "keeper").keep_all()
    assert title in run_keeper("list").text
    with Terminal([sys.executable, "-m", "keeper", "list"], {**cli_env, "COLUMNS": "80"}, home) as terminal:
        terminal.wait("1 sessions")
        shown = next(line for line in terminal.seen.splitlines() if A in line)
    wide = sum(2 if char in "老字" else 1 for char in shown.rstrip())
    assert (wide <= 80, shown.rstrip().endswith("…"), "a title of" in shown) == (True, True, True)


def test_show_tells_where_a_talk_came_from_and_what_came_of_it(
    profile: Path, vault_home: Path, home: Path, run_keeper: Command
) -> None:
    write_live(profile, SHOP, A, jsonl(*talk("abcd", A, cwd=SHOP)))
    keep = world(profile, vault_home, home / ".local" / "state" / "keeper")
    keep.keep_all()
    write_live(profile, SHOP, B, jsonl(*talk("abxy", B, cwd=SHOP)))
    keep.keep_all()
    write_live(profile, SHOP, C, jsonl(*talk("abxz", C, cwd=SHOP)))
    keep.keep_all()

    def lineage(session: str) -> list[tuple[str, str, bool, int]]:
        (one,) = run_keeper("show", session, "--json").json["chats"]
        return [(near["session"], near["how"], near["after"], near["steps"]) for near in one["lineage"]]

    assert lineage(A) == [(B, "forked", True, 1)]
    assert lineage(B) == [(A, "forked", False, 1), (C, "forked", True, 1)]
    assert lineage(C) == [(B, "forked", False, 1), (A, "forked", False, 2)]
    text = run_keeper("show", B).text
    assert f"fork of   {A}" in text
    assert f"forked to {C}" in text


def test_show_names_variants_and_shows_the_end_of_a_talk(profile: Path, run_keeper: Command) -> None:
    first, *rest = talk("abcd", A, cwd=SHOP)
    other = json.dumps({**json.loads(first), "extra": 1}).encode()
    path = write_live(profile, SHOP, A, jsonl(first, other, *rest))
    assert run_keeper("keep", path).code == 0
    (told,) = run_keeper("show", A, "--json", "--last", "2").json["chats"]
    assert (told["variants"], [one["uuid"] for one in told["conversation"]], told["earlier"]) == (
        {json.loads(first)["uuid"]: 2}, [json.loads(one)["uuid"] for one in rest[-2:]], 3,
    )  # fmt: skip
    text = run_keeper("show", A, "--last", "1").text
    assert "stands in 2 forms" in text
    assert "4 earlier records are not shown" in text
    assert "prompt a" in run_keeper("show", A).text
    assert run_keeper("show", A, "--last", "0", "--json").json["chats"][0]["conversation"] == []


def test_show_on_a_terminal_goes_through_the_pager(
    chats: Path, home: Path, tmp_path: Path, cli_env: dict[str, str]
) -> None:
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\nsed 's/^/paged: /'\n")
    pager.chmod(0o700)
    with Terminal([sys.executable, "-m", "keeper", "show", A], {**cli_env, "PAGER": str(pager)}, home) as terminal:
        terminal.wait("answer d")
        assert "paged: " in terminal.seen


def test_list_and_show_tell_the_newest_records_own_time_as_du_does_whatever_a_restore_makes_of_the_files(
    chats: Path, run_keeper: Command
) -> None:
    assert run_keeper("restore", C).code == 0
    by_list = {one["session"]: one["last"] for one in run_keeper("list", "--json").json["chats"]}
    by_du = {name: one["last"] for one in run_keeper("du", "--json").json["chats"] for name in one["sessions"]}
    assert {name: datetime.fromisoformat(last).timestamp() for name, last in by_list.items()} == pytest.approx(
        {name: int(last) for name, last in by_du.items()}
    )
    assert "9 d ago" in run_keeper("show", C).text
    assert C in run_keeper("list", "--until", "8d").text


@pytest.mark.parametrize("broken", ["projects", "project"])
def test_a_chat_is_not_called_swept_where_its_profile_or_its_projects_folder_cannot_be_looked_at(
    chats: Path, run_keeper: Command, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = chats / "projects" if broken == "projects" else next(chats.glob(f"projects/*/{A}.jsonl")).parent
    real = os.scandir

    def scandir(path: str) -> object:
        if str(path) == str(folder):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path)

    rows = run_keeper("list", "--json").json["chats"]
    monkeypatch.setattr(os, "scandir", scandir)
    found = claude.survey(chats)
    assert [str(error.filename) for error in found.failures] == [str(folder)]
    with Vault.open(
        settings.load({"HOME": str(chats.parent), "KEEPER_HOME": rows[0]["kept"].partition("/chats/")[0]})
    ) as vault:
        states = {one.session: one.state for one in describe(vault, vault.rows())}
    assert (states[A], states[D]) == ("untold", "untold")


@pytest.mark.accepts("POLICY-6")
def test_list_at_risk_names_what_the_next_sweep_takes_kept_or_not(
    chats: Path, tmp_path: Path, run_keeper: Command
) -> None:
    project = tmp_path / "project"
    (project / ".claude").mkdir(parents=True)
    new = session_id(9)
    path = write_live(chats, str(project), new, jsonl(prompt("n", None, "never kept", new, cwd=str(project))))
    os.utime(path, (time.time() - 3 * 86_400,) * 2)
    assert run_keeper("list", "--at-risk", "--json").json["chats"] == []

    (project / ".claude" / "settings.json").write_text('{"cleanupPeriodDays": 2}')
    told = run_keeper("list", "--at-risk", "--json").json
    assert {one["session"]: one["state"] for one in told["chats"]} == {A: "live", B: "live", new: "unkept"}
    (sweep,) = told["sweeps"]
    assert (sweep["days"], sweep["file"], sweep["due"]) == (2, str(project / ".claude" / "settings.json"), 3)
    due = {one["session"]: one["due"] for one in told["chats"]}
    assert due[A] < due[B] < due[new] < sweep["earliest"]
    (unkept,) = (one for one in told["chats"] if one["session"] == new)
    assert (unkept["title"], unkept["live"], unkept["kept"], unkept["chat"]) == ("never kept", str(path), "", "")
    text = run_keeper("list", "--at-risk", "--state", "unkept").text
    assert (new in text, B in text, "2 days" in text) == (True, False, True)
