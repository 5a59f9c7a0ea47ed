"""The site that answers, in a real browser: what it says is what the command says, for everybody, and if it breaks."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import polars as pl
import pytest

from flashmoe_sim.report.card import AnswerCard
from reports.models.answers import RESULTS, answers, card_in
from reports.models.machines import CARDS, DRIVE, MODELS, computers, groups
from reports.models.page import PAGE, markdown
from reports.models.site import LEAST_TOK_S, OTHERWISE, build
from tests.report.browser import LUMINANCE, Browser, chromium, needs_browser
from tests.support import document

MOST_BYTES = 6_000_000
ASKED = 60
FEW = ("gpt-oss-120b", "gpt-oss-20b", "qwen3-30b-a3b", "glm-4.5-air")
CHEAP = (  # to ask again
    "gpt-oss-120b",
    "gpt-oss-20b",
    "qwen3-30b-a3b",
    "mixtral-8x7b",
    "olmoe-1b-7b",
    "granite-4.0-h-tiny",
    "lfm2-8b-a1b",
    "phi-3.5-moe",
    "llama-4-scout",
    "deepseek-v2-lite",
)
SHOWN = "document.documentElement.dataset.shown"
TEXT = "return document.querySelector(arguments[0])?.textContent.trim() ?? null"
CONTROLS = "[...document.querySelectorAll('#choose select, #choose input, #choose button, .card button, .card pre, a')]"


@pytest.fixture(scope="module")
def table() -> pl.DataFrame:
    return pl.read_parquet(RESULTS)


@pytest.fixture(scope="module")
def site(table: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site with a few of its models, which is made in no time."""
    folder = tmp_path_factory.mktemp("answers")
    build(folder, table.filter(pl.col("model").is_in(FEW)))
    return folder / "index.html"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def address(site: Path, **chosen: str) -> str:
    return f"{site.as_uri()}#{urlencode(chosen)}"


def chosen(model: str, computer: str) -> dict[str, str]:
    """The parts of a link that asks the same."""
    card, *parts = computer.split(" + ")
    if DRIVE not in parts:
        return {"model": model, "on": computer}
    return {
        "model": model,
        "on": card if card in CARDS else "none",
        "ram": parts[0],
        "gib": parts[1].removesuffix("GiB"),
    }


def show(browser: Browser, where: str) -> None:
    browser.driver.get("about:blank")
    browser.driver.get(where)
    browser.wait(f"return {SHOWN}")


def text(browser: Browser, selector: str) -> str | None:
    found: str | None = browser.run(TEXT, selector)
    return found


def questions() -> list[tuple[str, tuple[str, ...]]]:
    """Models in turn on computers from the whole table; several of a card at once, which share replays."""
    of_cards = [group[1::2] for group in groups() if len(group) > 1]
    alone = [group for group in groups() if len(group) == 1]
    return list(zip(itertools.cycle(CHEAP), [*of_cards[::3], *alone[::2]], strict=False))


def test_every_model_has_an_answer_on_every_computer(table: pl.DataFrame) -> None:
    asked = set(itertools.product(MODELS, computers()))
    assert set(table.select("model", "machine").iter_rows()) == asked
    assert len(table) == len(asked)
    assert (len(MODELS), len(CARDS)) >= (25, 26)


def test_the_page_of_the_docs_is_a_corner_of_it(table: pl.DataFrame) -> None:
    assert PAGE.read_text("utf-8") == markdown(table), "run python -m reports.models"


@needs_browser
def test_sixty_questions_have_the_answers_of_the_command(table: pl.DataFrame, tmp_path: Path, browser: Browser) -> None:
    build(tmp_path, table)
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < MOST_BYTES
    site, number = tmp_path / "index.html", 0
    for model, group in questions():
        for computer, row in zip(group, answers(model, group), strict=True):
            show(browser, address(site, **chosen(model, computer)))
            number += 1
            if row.get("card") is None or row["tok_s"] < LEAST_TOK_S:
                says = "It does not run" if row.get("card") is None else "too slow to use"
                assert says in (text(browser, ".card .likely") or ""), (model, computer)
                continue
            _same(browser, card_in(row))
    assert number >= ASKED


def _same(browser: Browser, card: AnswerCard) -> None:
    assert text(browser, ".card .title") == card.title
    assert text(browser, ".card .speed b") == card.speed, card.asked
    assert text(browser, ".card .likely b") == card.likely, card.asked
    assert browser.run("return [...document.querySelectorAll('[data-copy]')].map(one => one.dataset.copy)") == [
        line for _, line in card.lines
    ]
    assert text(browser, ".card footer code") == card.asked


@needs_browser
def test_a_question_typed_into_a_terminal_has_the_same_answer(
    site: Path, browser: Browser, capsys: pytest.CaptureFixture[str]
) -> None:
    advised = document(capsys, "recommend", "gpt-oss-20b", "--machine", "rtx-4060 + ddr5-5600x2 + 32GiB + nvme-gen4")
    show(browser, address(site, model="gpt-oss-20b", on="rtx-4060", gib="32", ram="ddr5-5600x2"))
    assert browser.run("return document.querySelector('[data-copy]').dataset.copy") == advised["best"]["command"]
    assert text(browser, ".card .speed b") == f"{advised['best']['tok_s']:.0f}"


@needs_browser
def test_it_asks_for_its_own_data_only_and_complains_of_nothing(site: Path, browser: Browser) -> None:
    browser.requested()
    browser.messages()
    show(browser, address(site, model="gpt-oss-20b"))
    assert browser.messages() == []
    asked = {url.partition("#")[0] for url in browser.requested() if url.startswith(("file:", "http"))}
    assert asked == {site.as_uri()} | {
        (site.parent / "data" / f"{one}.js").as_uri() for one in ("gpt-oss-20b", "speeds")
    }


@needs_browser
@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("gpt-oss 20b on a 4090, 64 GB DDR5", {"model": "gpt-oss-20b", "on": "rtx-4090", "ram": "ddr5-5600x2"}),
        ("Qwen3-30B-A3B on NVIDIA GeForce RTX 4060 Ti 16GB with 32gb", {"on": "rtx-4060-ti-16gb", "gib": "32"}),
        ("glm 4.5 air M4 Max 128GB", {"model": "glm-4.5-air", "on": "m4-max-128"}),
        ("rx7900xtx 128GB ddr4", {"on": "rx-7900-xtx", "gib": "128", "ram": "ddr4-3200x2"}),
        ("gpt-oss-120b on a DGX Spark", {"model": "gpt-oss-120b", "on": "gb10-128"}),
    ],
)
def test_what_is_typed_is_understood(site: Path, browser: Browser, typed: str, wanted: dict[str, str]) -> None:
    show(browser, address(site, model="gpt-oss-120b"))
    _type(browser, typed)
    got = browser.run(
        "return Object.fromEntries(['model','on','gib','ram'].map(name => [name, document.forms[0][name].value]))"
    )
    assert {name: got[name] for name in wanted} == wanted
    assert browser.run("return document.getElementById('note').hidden")


@needs_browser
@pytest.mark.parametrize(
    ("typed", "named"),
    [
        ("gpt-oss-20b on a 3060 Ti", "ti"),
        ("qwen3 32b on a 3060", "qwen"),
        ("rtx 3060 48gb", "48 GB"),
        ("m4 max 36gb", "36 GB"),
    ],
)
def test_what_it_does_not_hold_is_said(site: Path, browser: Browser, typed: str, named: str) -> None:
    """A card or a model is never taken for another one."""
    show(browser, address(site, model="gpt-oss-120b"))
    before = text(browser, ".card .title")
    _type(browser, typed)
    said = text(browser, "#note") or ""
    assert "does not hold" in said
    assert named in said
    assert text(browser, ".card .title") == before


def _type(browser: Browser, words: str) -> None:
    field = browser.driver.find_element("name", "typed")
    field.clear()
    field.send_keys(words + "\n")
    browser.wait(f"return !document.getElementById('note').hidden || {SHOWN} === location.hash")


@needs_browser
def test_a_link_from_another_day_is_answered_with_a_sentence(site: Path, browser: Browser) -> None:
    show(browser, address(site, model="gpt-9", on="rtx-9090", gib="64"))
    said = text(browser, "#note") or ""
    assert "does not hold gpt-9, rtx-9090" in said
    assert text(browser, ".card .speed b")


@needs_browser
@pytest.mark.parametrize("name", list(OTHERWISE))
def test_another_choice_has_its_command(site: Path, browser: Browser, name: str) -> None:
    value, label = list(OTHERWISE[name].items())[1]
    show(browser, address(site, model="gpt-oss-20b", **{name: value}))
    said = text(browser, "#note") or ""
    assert f"does not hold {label}" in said
    assert value in (text(browser, "#note code") or "")
    assert (text(browser, "#note code") or "").startswith("sim recommend gpt-oss-20b --machine ")


@needs_browser
def test_rows_name_their_files_where_files_differ(site: Path, browser: Browser, table: pl.DataFrame) -> None:
    file = pl.col("file").str.split(":").list.last()
    for model in ("glm-4.5-air", "gpt-oss-20b"):
        show(browser, address(site, model=model))
        there = pl.col("machine").str.ends_with(f"ddr4-3200x2 + 64GiB + {DRIVE}") | ~pl.col("machine").str.contains(
            DRIVE
        )
        shown = there & (pl.col("tok_s") >= LEAST_TOK_S)
        files = Counter(table.filter((pl.col("model") == model) & shown).select(file).to_series())
        said = browser.run("return [...document.querySelectorAll('#cards th small')].map(one => one.textContent)")
        named = Counter(one.partition("; ")[0] for one in said if "; " in one)
        assert named == (files if len(files) > 1 else Counter())
        assert len(said) == files.total()
        assert ("Files differ" in (text(browser, "#with-what") or "")) == bool(named)


@needs_browser
@pytest.mark.parametrize(("on", "said"), [("rtx-3060", True), ("m4-16", False), ("rtx-5090", False)])
def test_an_answer_that_reads_the_drive_says_that_no_system_was_named(
    site: Path, browser: Browser, on: str, said: bool
) -> None:
    show(browser, address(site, model="gpt-oss-20b" if on == "rtx-5090" else "gpt-oss-120b", on=on, gib="32"))
    below = text(browser, ".card .below") or ""
    assert ("No operating system was named" in below) == said
    if said:
        line = text(browser, ".card .below code") or ""
        assert line == (text(browser, ".card footer code") or "").removesuffix("'") + " + windows'"
        assert "`" not in below


@needs_browser
@pytest.mark.parametrize("damage", ["missing", "cut off", "changed"])
def test_damaged_data_are_a_sentence(table: pl.DataFrame, tmp_path: Path, browser: Browser, damage: str) -> None:
    build(tmp_path, table.filter(pl.col("model").is_in(["gpt-oss-120b", "gpt-oss-20b"])))
    piece = tmp_path / "data" / "gpt-oss-20b.js"
    whole = piece.read_text()
    if damage == "missing":
        piece.unlink()
    else:
        piece.write_text(whole[: len(whole) // 2] if damage == "cut off" else f"{whole[:400]}AAAA{whole[404:]}")
    show(browser, address(tmp_path / "index.html", model="gpt-oss-20b"))
    assert "data/gpt-oss-20b.js did not load" in (text(browser, "#note") or "")
    assert "sim recommend gpt-oss-20b" in (text(browser, "#note code") or "")
    assert text(browser, ".card .speed b")


@needs_browser
def test_without_scripts_there_is_an_answer(site: Path, browser: Browser) -> None:
    browser.open(site, scripts=False)
    assert text(browser, ".card .title") == "gpt-oss-120b:mxfp4 on NVIDIA GeForce RTX 3060 12 GB"
    assert "needs JavaScript" in (text(browser, "noscript") or "")
    assert browser.run("return document.getElementById('choose').offsetParent === null")


@needs_browser
@pytest.mark.parametrize("width", [360, 390, 768, 1280])
def test_it_fits_every_screen(site: Path, browser: Browser, width: int) -> None:
    browser.command("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
    show(browser, address(site, model="gpt-oss-120b"))
    assert browser.run("return document.documentElement.scrollWidth") == width
    heights = f"{CONTROLS}.filter(one => one.tagName !== 'A').map(one => one.getBoundingClientRect().height)"
    assert browser.run(f"return {heights}.filter(height => height && height < 24).length") == 0


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out(site: Path, browser: Browser, scheme: str) -> None:
    browser.prefer(scheme)
    show(browser, address(site, model="gpt-oss-120b"))
    papers = "getComputedStyle(document.body).backgroundColor"
    assert browser.run(f"return {papers}") == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(23, 24, 26)")
    paper = browser.run(LUMINANCE, browser.driver.find_element("tag name", "body"), "backgroundColor")
    for one in browser.driver.find_elements("css selector", "#tables a, #tables small, .top p, #choose label"):
        ink = browser.run(LUMINANCE, one, "color")
        assert (max(ink, paper) + 0.05) / (min(ink, paper) + 0.05) >= 4.5


@needs_browser
def test_it_is_for_keyboards_and_readers(site: Path, browser: Browser) -> None:
    show(browser, address(site, model="gpt-oss-120b"))
    assert browser.run("return document.querySelectorAll('h1').length") == 1
    assert browser.run("return document.documentElement.lang") == "en"
    unnamed = "one => !(one.labels?.length || one.textContent.trim() || one.ariaLabel)"
    assert browser.run(f"return {CONTROLS}.filter({unnamed}).length") == 0
    assert browser.run(f"return {CONTROLS}.filter(one => one.tabIndex < 0).length") == 0
    levels = browser.run("return [...document.querySelectorAll('h1,h2,h3,h4')].map(one => Number(one.tagName[1]))")
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


@needs_browser
def test_both_tables_lead_to_their_answers(site: Path, browser: Browser, table: pl.DataFrame) -> None:
    show(browser, address(site, model="gpt-oss-120b", on="rtx-4090"))
    rows = "[...document.querySelectorAll('#models tbody tr')]"
    speeds = [float(cell) for cell in browser.run(f"return {rows}.map(row => row.querySelector('b').textContent)")]
    assert speeds == sorted(speeds, reverse=True)
    machine = "rtx-4090 + ddr4-3200x2 + 64GiB + nvme-gen4"
    there = (pl.col("machine") == machine) & pl.col("model").is_in(FEW)
    fast = table.filter(there & (pl.col("tok_s") >= LEAST_TOK_S))
    assert len(speeds) == len(fast)
    link = browser.driver.find_element("css selector", "#cards tbody a")
    name = re.sub(r",.*", "", link.text)
    browser.run("arguments[0].click()", link)
    browser.wait(f"return {SHOWN} === location.hash")
    assert name.split()[-1] in (text(browser, ".card .title") or "")
