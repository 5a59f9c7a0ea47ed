"""The card of an answer in a real browser: the numbers of the command, for everybody, on a phone and in the dark."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

import pytest

from flashmoe_sim.cli.main import main
from flashmoe_sim.report.first_screen import number
from flashmoe_sim.tune.others import speeds_of_others
from tests.report.browser import CUT_OFF, LONG_LABELS, LUMINANCE, Browser, needs_browser
from tests.support import document

MACHINE = "rtx-3060 + ryzen-5600 + ddr4-3200x2 + 64GiB + nvme-gen4 + windows"
ASKED = ["recommend", "gpt-oss-120b", "--machine", MACHINE, "--system", "placed,moe-cache,all-gpu,cpu"]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("card") / "answer.html"
    assert main([*ASKED, "--save", str(path)]) == 0
    return path


def test_its_numbers_are_those_of_the_command(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    advised = document(capsys, *ASKED)
    best: dict[str, Any] = advised["best"]
    text = re.sub(r"<style>.*?</style>", "", page.read_text(), flags=re.DOTALL)
    card = text[text.index("<article") : text.index("</article>")]
    assert card.count("<h1") == text.count("<h1") == 1
    lo, mid, hi = (number(best[name]) for name in ("tok_s_lo", "tok_s", "tok_s_hi"))
    assert f'<p class="speed"><b>{mid}</b>' in card
    assert f"most likely <b>{lo} to {hi}</b>" in card
    assert f'content="{mid} tokens a second, most likely {lo} to {hi}, with ' in text
    plain = re.sub(r"</?span>", "", card)
    for row in (best, *(one for one in advised["systems"] if one["system"] == "placed")):
        assert row["command"] in plain
    urls = {one.url for one in speeds_of_others() if one.model == "gpt-oss-120b"}
    strip = card[card.index("<figure") : card.index("</figure>")]
    linked = set(re.findall(r'<a href="([^"]+)"', strip))
    assert len(linked) >= 2
    assert linked <= urls


def test_a_picture_stands_beside_it(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = page.with_suffix(".png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert struct.unpack(">2I", picture[16:24]) == (1200, 630)
    assert '<meta property="og:image" content="answer.png">' in page.read_text()
    assert main([*ASKED, "--save", str(page)]) == 2
    assert "answer.html" in capsys.readouterr().err


@needs_browser
def test_it_asks_for_nothing_and_complains_of_nothing(browser: Browser, page: Path) -> None:
    browser.requested()
    browser.open(page)
    assert browser.messages() == []
    asked = {url for url in browser.requested() if not url.startswith("chrome")}  # the browser's own first page
    assert asked == {page.as_uri()}


@needs_browser
@pytest.mark.parametrize("width", [360, 390, 768, 1280])
def test_it_never_scrolls_sideways(browser: Browser, page: Path, width: int) -> None:
    browser.open(page, width=width)
    assert browser.run("return document.documentElement.scrollWidth") == width
    browser.run(LONG_LABELS)
    assert browser.run(CUT_OFF, browser.run("return document.querySelector('.card')")) == []
    boxes = "[...document.querySelectorAll('.track')].map(one => one.getBoundingClientRect())"
    assert browser.run(f"return {boxes}.every(one => one.left >= 0 && one.right <= {width} && one.width > 100)")


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out(browser: Browser, page: Path, scheme: str) -> None:
    """4.5 to 1 at least, as WCAG 2 asks of small texts."""
    browser.open(page, scheme=scheme)
    paper = browser.run(LUMINANCE, browser.run("return document.body"), "backgroundColor")
    for one in browser.run("return [...document.querySelectorAll('.card p, .card h2, .card small, .card b, .card a')]"):
        ink = browser.run(LUMINANCE, one, "color")
        assert (max(ink, paper) + 0.05) / (min(ink, paper) + 0.05) >= 4.5, one.text


@needs_browser
def test_the_line_is_copied_and_the_strip_is_read_aloud(browser: Browser, page: Path) -> None:
    browser.open(page)
    buttons = browser.run("return [...document.querySelectorAll('[data-copy]')]")
    assert buttons
    for button in buttons:
        line = browser.run("return arguments[0].parentElement.previousElementSibling.textContent", button)
        assert button.get_attribute("data-copy") == line
    buttons[0].click()
    browser.wait("return document.querySelector('.card [role=status]').textContent !== ''")
    labels = browser.run("return [...document.querySelectorAll('.track[role=img]')].map(one => one.ariaLabel)")
    assert all("tokens a second" in label for label in labels)
    assert len(labels) >= 4


@needs_browser
def test_it_is_whole_without_scripts(browser: Browser, page: Path) -> None:
    browser.open(page, scripts=False)
    assert browser.run("return document.querySelector('.card .speed b').offsetHeight") > 50
    assert browser.run("return [...document.querySelectorAll('[data-copy]')].every(one => one.hidden)")
