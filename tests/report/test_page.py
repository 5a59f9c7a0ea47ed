"""The page of a report in a real browser: drawn, inert, and readable by everybody."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flashmoe_sim.cli.main import main
from flashmoe_sim.io.sections import Command, Figure, Section, Table, Verdict
from flashmoe_sim.report.page import MOST_BYTES, html
from flashmoe_sim.schema import frame
from flashmoe_sim.sweep.ledger import Ledger
from tests.report.browser import Browser, needs_browser
from tests.support import document

HOSTILE = ("<script>alert(1)</script>", "</script><script>alert(2)</script>", '"><img src=x onerror=alert(3)>', "<!--")


def calls() -> Iterator[str]:
    """40 tokens of 3 layers with 24 experts, 2 a token, as the runtime writes them."""
    chance = random.Random(1)
    for seq in range(120):
        experts = chance.sample(range(24), 2)
        yield (
            json.dumps(
                {"seq": seq, "layer": seq % 3, "n_expert_used": 2, "n_tokens": 1, "experts": experts, "slots": [0, 1]}
            )
            + "\n"
        )


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of a trace whose name is markup."""
    folder = tmp_path_factory.mktemp("results")
    trace = folder / f"{HOSTILE[2].replace('/', '')}.jsonl"
    trace.write_text("".join(calls()))
    words = ["--bank", "8,16,24", "--policy", "lru,fifo", "--contract", "atomic"]
    assert main(["sweep", str(trace), *words, "--out", str(folder / "out")]) == 0
    return folder


@pytest.fixture(scope="module")
def page(results: Path) -> Path:
    trace = next(results.glob("*.jsonl"))
    assert main(["report", str(results / "out"), str(trace), "--out", str(results / "report.html")]) == 0
    return results / "report.html"


def ledger_rows(results: Path) -> list[dict[str, Any]]:
    with Ledger(results / "out") as ledger:
        return ledger.rows()


def test_addresses_in_sentences_are_links() -> None:
    page = html("T", [Section("A", ("Its address: https://example.org/a_b", "not <https://example.org/c>"))])
    assert '<a href="https://example.org/a_b" rel="noopener noreferrer">https://example.org/a_b</a>' in page
    assert "&lt;<a" in page


@needs_browser
def test_figures_are_drawn_without_network_and_complaints(browser: Browser, page: Path) -> None:
    browser.requested()
    browser.open(page)
    assert browser.run("return document.querySelectorAll('figure').length") == 5
    assert browser.run("return document.querySelectorAll('figure .chart svg').length") == 5
    assert browser.messages() == []
    assert browser.requested() == {page.as_uri()}
    assert page.stat().st_size < MOST_BYTES < 3_000_000


@needs_browser
def test_numbers_are_those_of_the_ledger(browser: Browser, page: Path, results: Path) -> None:
    browser.open(page)
    cells = "row => [...row.cells].map(cell => cell.textContent)"
    table = browser.run(f"return [...document.querySelectorAll('#hit-curves tbody tr')].map({cells})")
    shown = {(bank, policy): numbers[:3] for bank, policy, *numbers in table}
    rows = ledger_rows(results)
    assert len(rows) == len(shown) == 6
    for row in rows:
        hits, best = (f"{100 * row[name]:.1f}" for name in ("hit_rate", "best_hit_rate"))
        assert shown[row["bank"], row["policy"]] == [hits, best, f"{row['misses']:,}"]


@needs_browser
def test_names_do_not_become_markup(browser: Browser, tmp_path: Path) -> None:
    """In titles, sentences, tables, commands, captions, figures and their tooltips."""
    from flashmoe_sim.report.figures import hit_curves

    rows = [
        {"trace": name, "trace_id": name, "policy": other, "contract": "atomic", "prefetch": "none", "scope": "layer"}
        | {"bank": bank, "hit_rate": 0.5, "best_hit_rate": 0.6, "resident_bytes": 1}
        for name in HOSTILE[:1]
        for other in HOSTILE
        for bank in ("8", "16")
    ]
    text = " ".join(HOSTILE)
    numbers = Table(((text, "left"),), ((text,),))
    figure = Figure("hits", hit_curves(frame(rows)), text, numbers)
    section = Section(text, (text, f"`{text}` and `", Verdict(text), Command(text), numbers, figure))
    path = tmp_path / "page.html"
    path.write_text(html(text, [section, section.__class__("more", (text,))]))
    browser.open(path)
    assert browser.messages() == []
    assert browser.run("return document.querySelectorAll('img:not(.still), iframe, [onerror]').length") == 0
    assert browser.run("return [...document.scripts].map(one => one.type)") == ["application/json"] * 2 + ["", ""]
    assert browser.run("return document.querySelector('h1').textContent") == text
    assert browser.run("return document.querySelector('p').textContent") == text
    assert HOSTILE[0] in browser.run("return document.querySelector('.chart').textContent")
    point = "document.querySelector('.chart .mark-symbol path')"
    browser.run(f"{point}.dispatchEvent(new MouseEvent('mousemove', {{bubbles: true, clientX: 9, clientY: 9}}))")
    assert (
        browser.run("return document.querySelectorAll('#vg-tooltip-element script, #vg-tooltip-element img').length")
        == 0
    )
    assert browser.messages() == []


@needs_browser
def test_it_follows_the_scheme_of_its_reader(browser: Browser, page: Path) -> None:
    browser.open(page, scheme="dark")
    colours = "const of = getComputedStyle(document.body); return [of.color, of.backgroundColor]"
    label = "return document.querySelector('.chart svg .role-axis-label text').getAttribute('fill')"
    dark = [*browser.run(colours), browser.run(label)]
    browser.prefer("light")
    browser.wait("return document.documentElement.dataset.drawn === 'light'")
    assert len(set(zip(dark, [*browser.run(colours), browser.run(label)], strict=True))) == 3
    assert dark[1] == "rgb(23, 24, 26)"
    assert browser.run("return document.querySelectorAll('figure .chart svg').length") == 5


@needs_browser
def test_a_phone_does_not_scroll_sideways(browser: Browser, page: Path) -> None:
    browser.open(page, width=360)
    assert browser.run("return document.documentElement.scrollWidth") == 360
    assert (
        browser.run("return Math.max(...[...document.querySelectorAll('.chart svg')].map(one => one.clientWidth))")
        <= 360
    )


@needs_browser
def test_prose_in_a_table_keeps_to_the_width_of_the_text(browser: Browser, tmp_path: Path) -> None:
    """Only numbers and names that do not fit reach into the margin."""
    columns = [("", "left"), ("90%", "right"), ("meaning", "left")]
    rows = [("lookahead-16, prefetched", f"{'1' * digits}", "The same, one call ahead. " * 5) for digits in (9, 90)]
    for row, wider in zip(rows, (False, True), strict=True):
        path = tmp_path / "table.html"
        path.write_text(html("A page", [Section("A page", (Table(columns, [row]),))]))
        browser.open(path, width=1280, scripts=False)
        widths = "['table', 'h1'].map(name => document.querySelector(name).getBoundingClientRect().width)"
        table, text = browser.run(f"return {widths}")
        assert (table > text) == wider


@needs_browser
def test_every_table_of_numbers_is_reached_by_keyboard(browser: Browser, page: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.open(page)
    reached = set()
    for _ in range(40):
        browser.driver.switch_to.active_element.send_keys(Keys.TAB)
        if browser.run("return document.activeElement.tagName") == "SUMMARY":
            reached.add(browser.run("return document.activeElement.closest('figure').id"))
    assert reached == set(browser.run("return [...document.querySelectorAll('figure')].map(one => one.id)"))
    browser.run("document.querySelector('summary').focus()")
    browser.driver.switch_to.active_element.send_keys(Keys.ENTER)
    assert browser.run("return document.querySelector('details').open")
    assert browser.run("return document.querySelector('details table').offsetHeight") > 0


@needs_browser
def test_names_in_a_legend_choose_lines(browser: Browser, tmp_path: Path) -> None:
    """By a click and by the keyboard; a second one takes the line away, and without any all are shown."""
    from selenium.webdriver.common.keys import Keys

    from flashmoe_sim.report.figures import hit_curves
    from flashmoe_sim.report.figures.style import PALETTES

    policies = [f"p{number}" for number in range(7)]
    rows = [
        {"trace": "t", "trace_id": "1", "policy": policy, "contract": "atomic", "prefetch": "none", "scope": "layer"}
        | {"bank": bank, "hit_rate": 0.5, "best_hit_rate": 0.6, "resident_bytes": 1}
        for policy in policies
        for bank in ("8", "16")
    ]
    path = tmp_path / "page.html"
    path.write_text(html("t", [Section("t", (Figure("hits", hit_curves(frame(rows)), "caption"),))]))
    browser.open(path)
    names = {name.text: name for name in browser.driver.find_elements("css selector", '[class*="_legend_labels"] text')}
    assert list(names) == policies

    def shown() -> list[str]:
        lines = "[...document.querySelectorAll('.chart .mark-line path[opacity=\"1\"]')]"
        strokes = browser.run(f"return {lines}.map(line => line.getAttribute('stroke'))")
        return [policies[PALETTES["light"].lines.index(stroke)] for stroke in strokes]

    assert shown() == policies
    names["p2"].click()
    assert shown() == ["p2"]
    browser.run("arguments[0].focus()", names["p4"])
    browser.driver.switch_to.active_element.send_keys(Keys.ENTER)
    assert shown() == ["p2", "p4"]
    browser.driver.switch_to.active_element.send_keys(Keys.SPACE)
    assert shown() == ["p2"]
    names["p2"].click()
    assert shown() == policies
    assert browser.run("return document.querySelector('.hint').offsetHeight") > 0
    assert browser.messages() == []


@needs_browser
def test_figures_without_scripts(browser: Browser, page: Path) -> None:
    browser.open(page, scripts=False)
    shown = "[...document.querySelectorAll('.still')].filter(one => one.naturalWidth * one.offsetHeight > 0)"
    browser.wait(f"return {shown}.length === 5")
    assert browser.run("return document.querySelectorAll('.chart svg').length") == 0


def test_a_page_that_would_be_too_large_has_fewer_pictures(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = page.read_text()
    assert text.count('class="still"') == 5
    monkeypatch.setattr("flashmoe_sim.report.page.MOST_BYTES", len(text.encode()) - 50_000)
    again = page.with_name("smaller.html")
    trace = next(page.parent.glob("*.jsonl"))
    assert main(["report", str(page.parent / "out"), str(trace), "--out", str(again)]) == 0
    assert again.stat().st_size < len(text.encode()) - 50_000
    assert again.read_text().count('class="still"') < 5


def test_results_without_a_ledger_or_a_trace(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sent").mkdir()
    shutil.copy(results / "out" / "results.parquet", tmp_path / "sent")
    out = tmp_path / "report.html"
    answer = document(capsys, "report", str(tmp_path / "sent"), "--out", str(out))
    assert answer["path"] == str(out)
    assert answer["bytes"] == out.stat().st_size
    assert [one["title"] for one in answer["sections"]][1:] == [
        "How often a bank hits",
        "What would add more",
        "What this rests on",
    ]
    assert "add the trace that was swept" in out.read_text()
