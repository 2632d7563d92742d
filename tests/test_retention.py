"""Retention: the smallest period of all settings, whose file that is, and what the next sweep takes."""

import os
from pathlib import Path

import pytest

from keeper.retention import DAY_S, EARLY_S, LATE_S, Retention, Source, forecast, last_sweep, retention, sources
from tests.chat import put


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    return tmp_path / "profile"


@pytest.fixture
def proj(tmp_path: Path) -> Path:
    return tmp_path / "proj"


def says(file: Path, days: object) -> Path:
    return put(file, f'{{"cleanupPeriodDays": {days}, "env": {{}}}}'.encode())


def of(profile: Path, *cwds: Path, managed: tuple[Path, ...] = ()) -> Retention:
    return retention(profile, map(str, cwds), managed)


@pytest.mark.parametrize(("said", "days"), [("2.0", 2), ("2e0", 2), ("2.5", 30), ("1e400", 30), ("true", 30)])
def test_a_number_is_whole_as_javascript_takes_it(profile: Path, said: str, days: float) -> None:
    says(profile / "settings.json", said)
    found = of(profile)
    assert (found.days, bool(found.odd)) == (days, days == 30)


def test_without_any_word_it_is_claudes_own(profile: Path, proj: Path) -> None:
    assert of(profile, proj) == Retention(30.0, "", ())
    put(profile / "settings.json", b'{"hooks": {}}')
    assert of(profile, proj) == Retention(30.0, "", ())


@pytest.mark.accepts("POLICY-6")
def test_the_users_own_word_holds_where_no_project_has_one(profile: Path, proj: Path) -> None:
    own = says(profile / "settings.json", 60)
    assert of(profile, proj) == Retention(60.0, str(own))


@pytest.mark.accepts("POLICY-6")
def test_one_project_sweeps_all_so_the_smallest_counts_with_its_file(profile: Path, tmp_path: Path) -> None:
    says(profile / "settings.json", 60)
    small = says(tmp_path / "a" / ".claude" / "settings.json", 2)
    says(tmp_path / "b" / ".claude" / "settings.json", 5)
    assert of(profile, tmp_path / "b", tmp_path / "a", tmp_path / "gone") == Retention(2.0, str(small))


@pytest.mark.accepts("POLICY-6")
def test_a_project_that_says_more_does_not_speak_for_the_others(profile: Path, proj: Path) -> None:
    own = says(profile / "settings.json", 2)
    says(proj / ".claude" / "settings.json", 60)
    assert of(profile, proj) == Retention(2.0, str(own))


@pytest.mark.accepts("POLICY-6")
def test_the_local_word_of_a_project_wins_over_its_shared_one(profile: Path, proj: Path) -> None:
    says(proj / ".claude" / "settings.json", 2)
    says(proj / ".claude" / "settings.local.json", 40)
    assert of(profile, proj) == Retention(30.0, "")
    local = says(proj / ".claude" / "settings.local.json", 1)
    assert of(profile, proj) == Retention(1.0, str(local))


@pytest.mark.accepts("POLICY-6")
def test_an_administrators_word_wins_over_all(profile: Path, proj: Path, tmp_path: Path) -> None:
    says(profile / "settings.json", 5)
    says(proj / ".claude" / "settings.local.json", 1)
    whole = says(tmp_path / "etc" / "managed-settings.json", 90)
    assert of(profile, proj, managed=(tmp_path / "etc",)) == Retention(90.0, str(whole))
    says(tmp_path / "etc" / "managed-settings.d" / "10-a.json", 80)
    last = says(tmp_path / "etc" / "managed-settings.d" / "20-b.json", 70)
    assert of(profile, proj, managed=(tmp_path / "etc",)) == Retention(70.0, str(last))


@pytest.mark.accepts("POLICY-6")
@pytest.mark.parametrize("value", ["0", "-1", "2.5", '"7"', "true", "null", "[1]", "7"])
def test_a_value_that_is_no_number_of_days_counts_for_nothing_and_is_named(
    profile: Path, proj: Path, value: str
) -> None:
    own = says(profile / "settings.json", 60)
    odd = says(proj / ".claude" / "settings.json", value)
    wanted = Retention(7.0, str(odd)) if value == "7" else Retention(60.0, str(own), (str(odd),))
    assert of(profile, proj) == wanted


@pytest.mark.parametrize("data", [b"{broken", b"[]", b"7", b"\xff\xfe", b"[" * 100_000, b""])
def test_a_file_that_is_no_json_object_is_named(profile: Path, data: bytes) -> None:
    odd = put(profile / "settings.json", data)
    assert of(profile) == Retention(30.0, "", (str(odd),))


def test_a_linked_file_is_read_and_what_is_none_is_passed(profile: Path, proj: Path, tmp_path: Path) -> None:
    """People keep their settings elsewhere; a FIFO would wait for ever."""
    profile.mkdir()
    own = says(tmp_path / "dotfiles" / "claude.json", 3)
    (profile / "settings.json").symlink_to(own)
    (proj / ".claude").mkdir(parents=True)
    os.mkfifo(proj / ".claude" / "settings.json")
    (proj / ".claude" / "settings.local.json").mkdir()
    assert of(profile, proj) == Retention(3.0, str(profile / "settings.json"))
    assert retention(profile, ["", "relative"], ()) == Retention(3.0, str(profile / "settings.json"))


@pytest.mark.accepts("POLICY-6", "FIT-9")
def test_every_file_that_has_a_word_is_listed_the_strongest_first_with_what_is_wrong_with_it(
    profile: Path, proj: Path, tmp_path: Path
) -> None:
    own = says(profile / "settings.json", 60)
    zero, odd = says(proj / ".claude" / "settings.local.json", 0), says(proj / ".claude" / "settings.json", 2.5)
    other = put(tmp_path / "other" / ".claude" / "settings.json", b"{broken")
    put(tmp_path / "silent" / ".claude" / "settings.json", b"{}")
    whole = says(tmp_path / "etc" / "managed-settings.json", 90)
    cwds = [str(proj), str(tmp_path / "other"), str(tmp_path / "silent"), str(proj), "relative"]
    assert sources(profile, cwds, (tmp_path / "etc",)) == (
        Source(str(whole), "managed", 90.0),
        Source(str(own), "user", 60.0),
        Source(str(zero), "local", None, "zero", str(proj)),
        Source(str(odd), "project", None, "odd", str(proj)),
        Source(str(other), "project", None, "unreadable", str(tmp_path / "other")),
    )


def test_the_settings_of_a_home_that_is_worked_in_are_the_users_and_listed_once(tmp_path: Path) -> None:
    own = says(tmp_path / ".claude" / "settings.json", 60)
    assert sources(tmp_path / ".claude", [str(tmp_path)], ()) == (Source(str(own), "user", 60.0),)


# --- the next sweep -----------------------------------------------------------------------------------------

NOW = 1_800_000_000.0


@pytest.mark.accepts("POLICY-6")
@pytest.mark.parametrize(
    ("last", "started", "earliest"),
    [
        (None, [], EARLY_S),
        (NOW - 2 * DAY_S, [], EARLY_S),
        (NOW - DAY_S + 60, [], 60.0),
        (NOW - 3600, [], LATE_S),
        (NOW - 3600, [NOW - 100], LATE_S - 100),
        (NOW - 3600, [NOW - 10_000], 0.0),
        (NOW - 3600, [0.0], 0.0),
    ],
)
def test_the_next_sweep_begins_no_earlier(last: float | None, started: list[float], earliest: float) -> None:
    assert forecast({}, 30, last, started, NOW).earliest == NOW + earliest


@pytest.mark.accepts("POLICY-6")
def test_it_takes_what_is_past_the_period_by_then_the_oldest_first() -> None:
    live = {"young": NOW - DAY_S, "old": NOW - 31 * DAY_S, "older": NOW - 50 * DAY_S, "now": NOW - 30 * DAY_S + 2}
    told = forecast(live, 30, None, [], NOW)
    assert told.chats == ("older", "old", "now")
    assert told.due["young"] == NOW + 29 * DAY_S
    assert told.due["old"] == NOW - DAY_S


def test_the_last_sweep_is_told_by_the_time_of_its_mark(profile: Path) -> None:
    assert last_sweep(profile) is None
    mark = put(profile / ".last-cleanup", b"2026-01-01T00:00:00.000Z")
    os.utime(mark, (NOW, NOW))
    assert last_sweep(profile) == NOW
