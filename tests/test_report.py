"""The report: what it tells is so, its file is the user's alone, and what stands in it cannot get out of its place."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import json
import os
import re
import stat
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keeper.report.facts import AT_RISK, LIVE, RESCUED, Session
from keeper.report.growth import POINTS, growth, losses
from keeper.report.page import embedded
from keeper.transcripts.index import Row
from tests.build import CWD, append, jsonl, meta, session_id, talk, write_live
from tests.chat import DAY_S, everything, write_whole
from tests.conftest import Ran

Command = Callable[..., Ran]


def told(page: bytes) -> Any:
    """The block of JSON, as a browser finds it."""
    text = page.decode("ascii", "strict") if page.isascii() else page.decode()
    (block,) = re.findall(r'<script type="application/json" id="data">(.*?)</script', text, re.DOTALL)
    return json.loads(block)


def report(run_keeper: Command) -> Any:
    done = run_keeper("report", "--output", "-")
    assert (done.code, done.err) == (0, "")
    return told(done.out)


def titled(profile: Path, number: int, title: str, cwd: str = CWD) -> Path:
    session = session_id(number)
    records = [*talk("abcd", session, cwd=cwd), meta("custom-title", customTitle=title, sessionId=session)]
    return write_live(profile, cwd, session, jsonl(*records))


# --- what it tells ------------------------------------------------------------------------------------------


def test_each_chat_is_live_at_risk_or_rescued(profile: Path, run_keeper: Command) -> None:
    paths = [titled(profile, number, f"chat {number}") for number in range(1, 6)]
    assert run_keeper("keep").code == 0
    for path, days in zip(paths, (0, 29, 31, 40, 5), strict=True):
        os.utime(path, (time.time() - days * DAY_S,) * 2)
    paths[3].unlink()
    paths[4].unlink()
    page = report(run_keeper)
    rows = sorted(page["sessions"], key=lambda row: row["id"])
    assert [row["title"] for row in rows] == [f"chat {number}" for number in range(1, 6)]
    assert [row["state"] for row in rows] == [LIVE, LIVE, AT_RISK, RESCUED, RESCUED]
    assert [row["swept"] for row in rows] == [False, False, False, True, False]
    assert [row["gone"] is not None for row in rows] == [False, False, False, True, True]
    assert [row["records"] for row in rows] == [5] * 5
    assert sorted((one["chats"], one["swept"]) for one in page["losses"]) == [(1, False), (1, True)]
    (known,) = page["profiles"]
    assert (known["path"], known["days"], known["live"], known["unkept"]) == (str(profile), 30.0, 3, 0)


def test_a_chat_that_came_back_is_live_again(profile: Path, run_keeper: Command) -> None:
    path = titled(profile, 1, "a")
    assert run_keeper("keep").code == 0
    path.unlink()
    assert report(run_keeper)["sessions"][0]["state"] == RESCUED
    assert run_keeper("restore", session_id(1)).code == 0
    assert report(run_keeper)["sessions"][0]["state"] == LIVE


def test_when_a_chat_was_used_its_records_say_and_not_a_restore(profile: Path, run_keeper: Command) -> None:
    path = titled(profile, 1, "a")
    assert run_keeper("keep").code == 0
    path.unlink()
    assert run_keeper("restore", session_id(1)).code == 0
    written = datetime(2026, 1, 1, tzinfo=UTC).timestamp()  # as tests.build writes it
    assert path.stat().st_mtime - written > DAY_S
    assert report(run_keeper)["sessions"][0]["last"] == written


def test_what_a_link_shares_costs_nothing_until_the_live_file_goes(profile: Path, run_keeper: Command) -> None:
    path = titled(profile, 1, "a")
    size = path.stat().st_size
    assert run_keeper("keep").code == 0
    before = report(run_keeper)
    assert before["growth"][-1][1:] == [size, 0]
    assert before["bytes"]["shared"] == size
    path.unlink()
    after = report(run_keeper)
    assert after["growth"][-1][1:] == [0, size]
    assert after["bytes"]["shared"] == 0
    assert after["bytes"]["own"] == before["bytes"]["own"] + size


def test_a_copy_shares_nothing(profile: Path, second_volume: Path, run_keeper: Command) -> None:
    size = titled(profile, 1, "a").stat().st_size
    env = {"KEEPER_HOME": str(second_volume / "vault")}
    assert run_keeper("keep", env=env).code == 0
    page = told(run_keeper("report", "--output", "-", env=env).out)
    assert (page["bytes"]["shared"], page["growth"][-1][1:]) == (0, [0, size])


def test_the_growth_is_the_seals(profile: Path, run_keeper: Command) -> None:
    path = titled(profile, 1, "a")
    first = path.stat().st_size
    assert run_keeper("keep").code == 0
    append(path, jsonl(*talk("ef", session_id(1), parent="d")))
    assert run_keeper("keep").code == 0
    curve = report(run_keeper)["growth"]
    assert curve[0][1:] == [first, 0]
    assert curve[-1][1:] == [path.stat().st_size, 0]


def test_what_the_agent_remembers_is_on_it_and_an_agent_that_does_not_run_is_said(
    profile: Path, vault_home: Path, run_keeper: Command
) -> None:
    titled(profile, 1, "a")
    assert run_keeper("keep").code == 0
    events = [{"what": "sweep", "when": 5.0, "text": "3 chats", "chats": 3}]
    spells = [{"what": "watch", "why": "overflow", "since": 1.0, "until": 2.0}]
    runs = [{"since": 0.5, "until": 9.0, "why": ""}]
    (vault_home / "past.json").write_text(json.dumps({"events": events, "spells": spells, "runs": runs}))
    page = report(run_keeper)
    assert page["past"] == {"events": events, "spells": spells, "runs": runs}
    assert page["agent"]["running"] is False


def test_no_vault_yet_is_a_page_too_and_makes_none(vault_home: Path, run_keeper: Command) -> None:
    assert report(run_keeper)["sessions"] == []
    assert not vault_home.exists()


@pytest.mark.accepts("BOTH-5")
def test_a_report_changes_neither_vault_nor_profile(profile: Path, vault_home: Path, run_keeper: Command) -> None:
    write_whole(profile, session_id(1))
    assert run_keeper("keep").code == 0
    before = everything(profile), everything(vault_home)
    assert run_keeper("report").code == 0
    assert run_keeper("status", "--openmetrics").code == 0
    assert (everything(profile), everything(vault_home)) == before


# --- its file -----------------------------------------------------------------------------------------------


def test_the_file_is_the_users_alone_and_its_place_is_said(
    profile: Path, cli_env: dict[str, str], tmp_path: Path, run_keeper: Command
) -> None:
    titled(profile, 1, "a")
    assert run_keeper("keep").code == 0
    place = Path(cli_env["XDG_STATE_HOME"]) / "keeper" / "report.html"
    done = run_keeper("report")
    assert done.text.startswith(f"{place}: 1 sessions.")
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    answer = run_keeper("report", "--output", tmp_path / "x.html", "--json").json
    assert answer == {
        "schema": 1, "page": str(tmp_path / "x.html"), "sessions": 1, "bytes": (tmp_path / "x.html").stat().st_size,
    }  # fmt: skip
    assert run_keeper("report", "--output", tmp_path / "x.html").code == 0, "an earlier one is replaced"
    assert run_keeper("report", "--output", "-", "--json").code == 2


def test_the_page_says_that_it_holds_titles(run_keeper: Command) -> None:
    assert b"holds the titles of your chats" in run_keeper("report", "--output", "-").out


@pytest.mark.parametrize("words", [["forget", session_id(1)], ["exclude", "add", "--session", session_id(1), "--yes"]])
def test_the_title_of_what_is_forgotten_or_excluded_does_not_stay_in_the_usual_place(
    profile: Path, cli_env: dict[str, str], run_keeper: Command, words: list[str]
) -> None:
    titled(profile, 1, "a secret")
    titled(profile, 2, "another")
    assert run_keeper("keep").code == 0
    place = Path(cli_env["XDG_STATE_HOME"]) / "keeper" / "report.html"
    assert run_keeper("report").code == 0
    assert b"a secret" in place.read_bytes()
    assert run_keeper(*words).code == 0
    assert not place.exists()
    assert run_keeper("report").code == 0
    assert b"another" in place.read_bytes()
    assert b"a secret" not in place.read_bytes()


# --- what cannot get out of its place -----------------------------------------------------------------------


class _Tags(html.parser.HTMLParser):
    """The tags of a page, as a parser finds them."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.comments: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)


def tags(page: bytes) -> _Tags:
    found = _Tags()
    found.feed(page.decode())
    return found


HOSTILE = ["</script><img src=x onerror=a()>", "<!--<script>", "]]>", "{{style}}", "&lt;b&gt;", "'\"`\\\u2028\u2029"]


def test_a_hostile_title_or_directory_is_a_text_in_the_data_and_nothing_else(
    profile: Path, run_keeper: Command
) -> None:
    plain = run_keeper("report", "--output", "-").out
    for number, title in enumerate(HOSTILE, 1):
        titled(profile, number, title, cwd=f"/srv/{title.replace('/', '')}")
    assert run_keeper("keep").code == 0
    done = run_keeper("report", "--output", "-")
    assert tags(done.out).tags == tags(plain).tags
    assert tags(done.out).comments == tags(plain).comments
    found = {row["id"]: row["title"] for row in told(done.out)["sessions"]}
    shown = [found[session_id(number)] for number in range(1, len(HOSTILE) + 1)]
    assert shown[:5] == HOSTILE[:5]
    assert shown[5] == "'\"`\\\ufffd\ufffd"


@given(st.text() | st.sampled_from(HOSTILE))
def test_any_text_comes_out_of_the_block_as_it_went_in(text: str) -> None:
    block = embedded({text: [text]})
    assert not set(block) & set("<>&")
    assert block.isascii()
    assert json.loads(block) == {text: [text]}


def test_no_character_turns_the_text_beside_it(profile: Path, run_keeper: Command) -> None:
    titled(profile, 1, "invoice \u202egnp.exe \u2066x", cwd="/srv/\u202eabc")
    titled(profile, 2, "Z" * 10_000)
    assert run_keeper("keep").code == 0
    first, second = sorted(report(run_keeper)["sessions"], key=lambda row: row["id"])
    assert first["title"] == "invoice \ufffdgnp.exe \ufffdx"
    assert first["cwd"] == "/srv/\ufffdabc"
    assert len(second["title"]) == 80


def test_the_policy_lets_run_and_load_just_what_stands_in_the_file(run_keeper: Command) -> None:
    page = run_keeper("report", "--output", "-").out
    found = tags(page)
    text = page.decode()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in (style, script)]
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{digests[0]}'; script-src 'sha256-{digests[1]}'; "
        "base-uri 'none'; form-action 'none'"
    )
    assert {name for name, _ in found.attributes} & {"src", "href", "srcset", "style", "onclick", "action"} == set()
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org/2000/svg)", style + script)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|Function\(", script)


# --- growth, pure -------------------------------------------------------------------------------------------


def session(
    *grew: tuple[float, int], gone: float | None = None, mode: str = "link", swept: bool = True, profile: str = "/p"
) -> Session:
    row = Row("c", "s", profile, "-p", "/p", mode, "", "", 0.0, 0.0)
    size = grew[-1][1] if grew else 0
    return Session(row, LIVE if gone is None else RESCUED, "keep", size, 0.0, None, gone, swept, grew)


def test_the_curve_ends_with_all_there_is_and_every_step_on_it_is_a_sum() -> None:
    chats = [
        session((0, 100), (50, 150)),
        session((10, 1000), gone=60),
        session((20, 7), mode="copy"),
        session((30, 9), (40, 4), mode="split"),
    ]
    curve = growth(chats, 100.0)
    assert len(curve) == POINTS
    assert (curve[0].time, curve[0].shared, curve[0].own) == (0, 100, 0)
    assert (curve[-1].time, curve[-1].shared, curve[-1].own) == (100.0, 150, 1011)
    (before,) = [one for one in curve if 59 < one.time < 60][-1:]
    assert (before.shared, before.own) == (1150, 11)


def test_what_is_told_of_a_later_time_than_now_counts_now() -> None:
    assert growth([session((0, 5), (900, 9))], 100.0)[-1].shared == 9
    assert growth([], 100.0) == []


def test_what_goes_within_a_minute_went_at_once_by_profile_and_by_kind() -> None:
    chats = [session(gone=100.0 + number) for number in range(5)]
    chats += [session(gone=102.5, swept=False), session(gone=103.0, profile="/q"), session(gone=300.0), session()]
    assert [(one.time, one.profile, one.chats, one.swept) for one in losses(chats)] == [
        (100.0, "/p", 5, True), (102.5, "/p", 1, False), (103.0, "/q", 1, True), (300.0, "/p", 1, True),
    ]  # fmt: skip
