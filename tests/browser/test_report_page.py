"""The report in a real browser: what is drawn, what a person does with it, and what a hostile title cannot do."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from tests.browser.chromium import Browser
from tests.build import CWD, jsonl, meta, session_id, talk, write_live
from tests.chat import DAY_S
from tests.conftest import Ran

Command = Callable[..., Ran]
Make = Callable[..., Path]

OWNED = "window.owned=1"
HOSTILE = [
    f"</script><img src=x onerror={OWNED}>",
    f"<svg onload={OWNED}>",
    f"<!--<script>{OWNED}//",
    f"</title></style></textarea><script>{OWNED}</script>",
    f"<a href=javascript:{OWNED}>x</a>",
    f"\"onmouseover={OWNED} '`${{{OWNED}}}",
    "</bdi></td></tr></table><h1>big</h1>",
]


@pytest.fixture
def make(profile: Path, vault_home: Path, tmp_path: Path, run_keeper: Command) -> Make:
    """`make(titles, cwds)`: a page about chats of these titles, and where it stands. Chat n was last used n days ago,
    the 31st and all later ones are swept but for every fifth."""

    def made(titles: list[str], cwds: list[str] | None = None, past: dict[str, Any] | None = None) -> Path:
        paths = []
        for number, title in enumerate(titles):
            cwd = cwds[number % len(cwds)] if cwds else CWD
            session = session_id(number + 1)
            names = [f"{number}-{place}" for place in range(2 + number % 7)]
            records = [*talk(names, session, cwd=cwd), meta("custom-title", customTitle=title, sessionId=session)]
            when = datetime.fromtimestamp(time.time() - number * DAY_S, UTC).isoformat(timespec="milliseconds")
            data = jsonl(*records).replace(b"2026-01-01T00:00:00.000Z", when.encode().replace(b"+00:00", b"Z"))
            paths.append(write_live(profile, cwd, session, data))
        for days, path in enumerate(paths):
            os.utime(path, (time.time() - days * DAY_S,) * 2)
        assert run_keeper("keep").code == 0
        for days, path in enumerate(paths):
            if days > 30 and days % 5:
                path.unlink()
        if past:
            (vault_home / "past.json").write_text(json.dumps(past))
        page = tmp_path / "report.html"
        assert run_keeper("report", "--output", page).code == 0
        return page

    return made


def many(count: int) -> list[str]:
    return [f"chat number-{number}" for number in range(count)]


LEFTS = """
return [...document.querySelectorAll('.title')].map(title => {
  const words = document.createRange();
  words.selectNodeContents(title);
  return words.getClientRects()[0].left;
});
"""


def counted(browser: Browser) -> str:
    return browser.one("#shown").text


# --- hostile texts ------------------------------------------------------------------------------------------


def test_a_hostile_title_is_shown_and_does_nothing(browser: Browser, make: Make) -> None:
    page = make(HOSTILE, [f"/srv/{title.replace('/', '')}" for title in HOSTILE])
    browser.open(page)
    assert browser.titles() == HOSTILE
    browser.run("for (const one of document.querySelectorAll('details')) one.open = true")
    for title in browser.all(".title"):
        title.click()
    assert browser.run("return window.owned") is None
    assert browser.driver.title == "keeper report"
    assert browser.all("img, iframe, object, a, h1:not(header h1), td script, option *") == []
    assert browser.run("return document.scripts.length") == 2
    assert browser.complaints() == []


def test_a_hostile_word_in_what_the_agent_remembers_does_nothing(browser: Browser, make: Make) -> None:
    now = time.time()
    past = {
        "runs": [{"since": now - 9, "until": None, "why": HOSTILE[0]}],
        "spells": [{"what": HOSTILE[1], "why": HOSTILE[0], "since": now - 5, "until": None}],
        "events": [{"what": HOSTILE[0], "when": now - 4, "text": HOSTILE[1], "chats": 3}],
    }
    browser.open(make(many(2), past=past))
    browser.run("for (const one of document.querySelectorAll('details')) one.open = true")
    lanes = browser.one("figure.whole").get_attribute("textContent") or ""
    assert HOSTILE[0] in lanes
    assert browser.run("return window.owned") is None
    assert browser.all("img") == []


def test_what_got_in_all_the_same_neither_runs_nor_loads(browser: Browser, make: Make) -> None:
    """The page's policy is the second wall: it is tried by putting in what the first one keeps out."""
    browser.open(make(many(2)))
    browser.run(
        "const put = document.createElement('div'); document.body.append(put);"
        f'put.innerHTML = \'<img src="http://127.0.0.1:9/a" onerror="{OWNED}">'
        '<link rel=stylesheet href="http://127.0.0.1:9/b"><style>body{display:none}</style>\';'
        "const code = document.createElement('script'); code.textContent = 'window.owned = 2'; put.append(code);"
        "fetch('http://127.0.0.1:9/c').catch(() => 0);"
    )
    time.sleep(0.3)
    assert browser.run("return window.owned") is None
    assert browser.run("return getComputedStyle(document.body).display") == "block"
    told = " ".join(browser.complaints())
    for kind in ("img-src", "style-src", "script-src", "connect-src"):
        assert kind in told, f"{kind} is not what stopped it"


def test_no_character_turns_what_stands_beside_it_and_a_long_title_breaks_nothing(browser: Browser, make: Make) -> None:
    page = make(["\u202e\u2066turned \u200f", "Z" * 10_000, "שלום עולם", "\t \n"], ["/srv/\u202eevil", "/" + "d" * 200])
    for width in (360, 1280):
        browser.open(page, width)
        text = browser.run("return document.body.textContent")
        assert not re.search("[\u200e\u200f\u202a-\u202e\u2066-\u2069]", text)
        assert browser.run("return document.documentElement.scrollWidth") <= width
        tall = browser.run("return Math.max(...[...document.querySelectorAll('#rows tr')].map(e => e.offsetHeight))")
        assert tall < 260
        lefts = browser.run(LEFTS)
        assert max(lefts) - min(lefts) < 6, "the words of every title begin, or end, at the cell's left"


@pytest.mark.accepts("BOTH-5")
def test_the_page_asks_for_nothing(browser: Browser, make: Make) -> None:
    page = make(many(40))
    browser.open(page)
    browser.run("for (const one of document.querySelectorAll('details')) one.open = true")
    browser.one("#text").send_keys("chat")
    browser.one("#theme label:nth-of-type(3)").click()
    assert browser.asked_for() == [page.as_uri()]


# --- the table ----------------------------------------------------------------------------------------------


def test_the_table_is_filtered_by_text_directory_and_state(browser: Browser, make: Make) -> None:
    page = make(["the Parser of dates", "a parser of words", "release notes", *many(40)], ["/srv/one", "/srv/two"])
    browser.open(page)
    assert counted(browser) == "43 chats"
    text = browser.one("#text")
    text.send_keys("PARSER of")
    assert browser.titles() == ["the Parser of dates", "a parser of words"]
    assert counted(browser) == "2 of 43 chats"
    text.send_keys(" words")
    assert browser.titles() == ["a parser of words"]
    text.send_keys(Keys.CONTROL, "a")
    text.send_keys(session_id(3))
    assert browser.titles() == ["release notes"]
    text.send_keys(Keys.CONTROL, "a")
    text.send_keys("no such words")
    assert (browser.titles(), counted(browser)) == ([], "0 of 43 chats")
    text.send_keys(Keys.CONTROL, "a", Keys.BACKSPACE)
    assert counted(browser) == "43 chats"

    cwd = Select(browser.one("#cwd"))
    assert [one.text for one in cwd.options] == ["All (2)", "/srv/one (22)", "/srv/two (21)"]
    cwd.select_by_value("/srv/two")
    assert counted(browser) == "21 of 43 chats"
    state = Select(browser.one("#state"))
    state.select_by_value("rescued")
    rows = [row.text for row in browser.all("#rows tr")]
    assert rows
    assert all("rescued" in row and "/srv/two" in row for row in rows)
    cwd.select_by_value("")
    assert [one.text for one in state.options] == [
        "All (43)", "Live (30)", "At risk (3)", "Rescued (10)", "Not as it should be (0)",
    ]  # fmt: skip
    assert counted(browser) == "10 of 43 chats"
    state.select_by_value("at risk")
    assert [one.text for one in browser.all("#rows .pill")] == ["at risk"] * 3


def test_the_table_is_sorted_by_its_heads_and_says_so(browser: Browser, make: Make) -> None:
    browser.open(make(["b 10", "a", "b 9"]))

    def order(head: str) -> tuple[list[str], str | None]:
        browser.one(f"#head-{head} button").click()
        others = browser.all(f"th[aria-sort]:not(#head-{head})")
        assert others == []
        return browser.titles(), browser.one(f"#head-{head}").get_attribute("aria-sort")

    assert browser.titles() == ["b 10", "a", "b 9"], "the one that was used last is the first"
    assert browser.one("#head-last").get_attribute("aria-sort") == "descending"
    assert order("title") == (["a", "b 9", "b 10"], "ascending")
    assert order("title") == (["b 10", "b 9", "a"], "descending")
    assert order("records") == (["b 9", "a", "b 10"], "descending")
    assert order("bytes")[1] == "descending"
    assert order("sweep") == (["b 9", "a", "b 10"], "ascending")
    assert order("last") == (["b 10", "a", "b 9"], "descending")
    Select(browser.one("#order")).select_by_value("records up")
    assert browser.titles() == ["b 10", "a", "b 9"]
    assert browser.one("#head-records").get_attribute("aria-sort") == "ascending"


def test_of_very_many_the_first_are_shown_and_the_rest_when_asked(browser: Browser, make: Make) -> None:
    browser.open(make(many(203)))
    assert (len(browser.titles()), counted(browser)) == (200, "203 chats")
    assert browser.one("#more").text == "Show the other 3"
    browser.one("#more").click()
    assert len(browser.titles()) == 203
    assert not browser.one("#more").is_displayed()
    browser.one("#text").send_keys("number-20")
    assert len(browser.titles()) == 4
    assert not browser.one("#more").is_displayed()


# --- the plots ----------------------------------------------------------------------------------------------


def test_each_plot_has_a_name_and_the_same_numbers_as_a_table(browser: Browser, make: Make) -> None:
    past = {"spells": [{"what": "watch", "why": "overflow", "since": time.time() - 7200, "until": time.time() - 3600}]}
    browser.open(make(many(43), past=past))
    names = [one.text for one in browser.all("figure h2")]
    assert names == ["Chats over time", "Vault growth", "Sweeps and degraded spells"]
    for name, plot in zip(names, browser.all("figure svg"), strict=True):
        assert plot.get_attribute("role") == "img"
        assert (plot.get_attribute("aria-label") or "").startswith(f"{name}. ")
    for summary in browser.all("summary"):
        summary.click()
    numbers = browser.run(
        "return [...document.querySelectorAll('#plot-chats-over-time tbody tr')]"
        ".map(row => [...row.cells].slice(1).map(cell => +cell.textContent))"
    )
    assert [sum(column) for column in zip(*numbers, strict=True)] == [30, 3, 10]
    heights = browser.run(
        "const of = kind => [...document.querySelectorAll(`#plot-chats-over-time rect.${kind}`)]"
        ".reduce((sum, one) => sum + +one.getAttribute('height'), 0); return ['live', 'risk', 'rescued'].map(of)"
    )
    assert [height / heights[0] for height in heights] == pytest.approx([1, 3 / 30, 10 / 30], rel=0.02)
    (spell,) = [row.text for row in browser.all("figure.whole tbody tr") if "overflow" in row.text]
    assert "Degraded 60 minutes watch: overflow" in " ".join(spell.split())
    assert len(browser.all("figure.whole rect.bad")) == 1
    swept = [row.text for row in browser.all("figure.whole tbody tr") if "old enough for a sweep" in row.text]
    assert [re.findall(r"(\d+) chats", row) for row in swept] == [["10"]]


def test_a_page_about_nothing_is_a_page(browser: Browser, tmp_path: Path, run_keeper: Command) -> None:
    page = tmp_path / "empty.html"
    assert run_keeper("report", "--output", page).code == 0
    browser.open(page)
    assert counted(browser) == "0 chats"
    assert len(browser.all("figure .none")) >= 2
    assert browser.complaints() == []


# --- how it looks -------------------------------------------------------------------------------------------

LIGHTNESS = """
const parts = (text) => text.match(/[\\d.]+/g).map(Number);
const bent = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
const light = ([r, g, b]) => [r, g, b].map(v => bent(v / 255))
  .reduce((sum, v, place) => sum + v * [0.2126, 0.7152, 0.0722][place], 0);
const under = (node) => { for (let one = node; one; one = one.parentElement) {
  const found = parts(getComputedStyle(one).backgroundColor); if (found.length < 4 || found[3]) return found; } };
return [...document.querySelectorAll(arguments[0])].map(node => {
  const style = getComputedStyle(node), own = node.namespaceURI.endsWith('svg') ? style.fill : style.color;
  const [one, other] = [light(parts(own)), light(under(node))].sort((a, b) => b - a);
  return [(one + 0.05) / (other + 0.05), node.textContent.slice(0, 40)];
});
"""


def ground(browser: Browser) -> int:
    """How bright the page is, of 255."""
    colour = browser.run("return getComputedStyle(document.body).backgroundColor")
    return sum(int(part) for part in re.findall(r"\d+", colour)[:3]) // 3


def test_the_page_follows_the_system_and_the_switch(browser: Browser, make: Make) -> None:
    page = make(many(3))
    browser.open(page, dark=False)
    assert ground(browser) > 220
    browser.prefer(dark=True)
    assert ground(browser) < 40
    system, light, dark = browser.all("#theme label")
    light.click()
    assert ground(browser) > 220
    browser.prefer(dark=False)
    dark.click()
    assert ground(browser) < 40
    system.click()
    assert ground(browser) > 220


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_text_can_be_read(browser: Browser, make: Make, dark: bool) -> None:
    browser.open(make(many(43)), dark=dark)
    browser.run("for (const one of document.querySelectorAll('details')) one.open = true")
    texts = "h1, h2, p, li, dt, dd, th button, td, .title, .under, svg text, summary, label, select, code, footer"
    found = browser.run(LIGHTNESS, texts)
    assert len(found) > 60
    assert [text for contrast, text in found if contrast < 4.5] == []


@pytest.mark.parametrize("width", [360, 760, 900, 1600])
def test_nothing_stands_out_of_the_window(browser: Browser, make: Make, width: int) -> None:
    browser.open(make(many(43), ["/srv/" + "a/long/way/" * 12]), width)
    assert browser.run("return document.documentElement.scrollWidth") <= width
    out = browser.run(
        "return [...document.querySelectorAll('main *, header *, footer *')].filter(e => { const r = "
        "e.getBoundingClientRect(); return r.width > 1 && r.height > 1 && (r.right > innerWidth + 1 || r.left < -1); })"
        ".map(e => e.tagName + '.' + e.getAttribute('class') + ' ' + e.textContent.slice(0, 30))"
    )
    assert out == []


def test_the_keyboard_reaches_all_that_can_be_done(browser: Browser, make: Make) -> None:
    browser.open(make(many(3)))
    seen = []
    for _ in range(22):
        browser.driver.switch_to.active_element.send_keys(Keys.TAB)
        seen.append(browser.run("const e = document.activeElement; return e.id || e.parentElement.id || e.tagName"))
    wanted = ["SUMMARY", "text", "cwd", "state", "order", "head-title", "head-bytes"]
    assert [one for one in wanted if one not in seen] == []
