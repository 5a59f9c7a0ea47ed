"""The documentation as a site, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import polars as pl
import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from polars.testing import assert_frame_equal

from flashmoe_sim.machines.table import PRESETS
from reports.models.page import LEAST_TOK_S, MODELS, PAGE, RESULTS, answers, markdown, rounded
from tests.report.browser import Browser, chromium, needs_browser

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of mkdocs
ROOT = Path(__file__).parents[1]
MOST_BYTES = 1_000_000
SHOWN = "[...document.querySelectorAll('table.long tbody tr')].filter(row => !row.hidden)"


@pytest.fixture(scope="module")
def committed() -> pl.DataFrame:
    return pl.read_csv(RESULTS, infer_schema_length=None)


class Quiet(SimpleHTTPRequestHandler):
    """Serves files and logs nothing."""

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    """With room for all that a browser asks at once."""

    request_queue_size = 64


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the site; every link between pages, and to a file outside of docs/, leads somewhere."""
    folder = str(tmp_path_factory.mktemp("site"))
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=folder, strict=True))
    with Server(("127.0.0.1", 0), partial(Quiet, directory=folder)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def test_every_model_has_an_answer_on_every_machine(committed: pl.DataFrame) -> None:
    asked = {(model, machine) for model in MODELS for machine in PRESETS}
    answered = {(row["model"].partition(":")[0], row["machine"]) for row in committed.iter_rows(named=True)}
    assert answered == asked
    assert len(committed) == len(asked)


@pytest.mark.parametrize(("model", "machine"), [("gpt-oss-20b", "m3-16"), ("olmoe-1b-7b", "laptop-ddr4")])
def test_answers_are_those_of_today(committed: pl.DataFrame, model: str, machine: str) -> None:
    stored = committed.filter(pl.col("model").str.starts_with(f"{model}:") & (pl.col("machine") == machine))
    fresh = rounded(answers(model, (machine,)))
    assert_frame_equal(stored, fresh, check_dtypes=False, rel_tol=1e-3)


def test_the_page_has_the_committed_answers(committed: pl.DataFrame) -> None:
    assert PAGE.read_text("utf-8") == markdown(committed), "run python -m reports.models"


@needs_browser
@pytest.mark.parametrize("page", ["", "reference/models/", "guides/recommend/"])
def test_pages_ask_nobody_else_and_complain_about_nothing(site: str, browser: Browser, page: str) -> None:
    browser.requested()
    browser.driver.get(site + page)
    assert browser.complaints() == []
    assert [url for url in browser.requested() if url.startswith("http") and not url.startswith(site)] == []
    assert browser.run("return document.documentElement.outerHTML.length") < MOST_BYTES


@needs_browser
def test_the_site_has_a_search(site: str, browser: Browser) -> None:
    browser.driver.get(f"{site}search.html?q=victim")
    browser.wait("return document.querySelectorAll('#mkdocs-search-results article').length > 0")
    assert "victim" in browser.run("return document.querySelector('#mkdocs-search-results').textContent").lower()


def test_a_row_of_the_models_counts_mapped_files_and_owns_up_to_a_guess() -> None:
    """Slow ones have no row, and cards come before Macs."""
    known = {"gpu_bytes": 8 << 30, "ram_bytes": 0, "held_bytes": 10 << 30, "setting": "placed", "command": "a | b"}
    rows = [
        {"machine": machine, "model": model, "tok_s": tok_s, "tok_s_lo": least, "tok_s_hi": most} | known
        for machine, model, tok_s, least, most in (
            ("m1-8", "apple", 5.0, 2.0, 9.0),
            ("rtx-3060", "wide", 2.345, 0.5, 12.34),
            ("rtx-3060", "slow", 0.0121, 0.001, 0.08),
            ("rtx-3060", "fast", 43.71, 20.0, 98.7),
        )
    ]
    shown = [
        [cell.strip() for cell in line.split(" | ")]
        for line in markdown(pl.DataFrame(rows)).splitlines()
        if "| placed |" in line
    ]
    assert [(row[0].strip("| "), *row[1:6]) for row in shown] == [
        ("rtx-3060", "fast", "44", "20-99", "8.0", "10.0"),
        ("rtx-3060", "wide", "2.3", "0.5-12, a guess", "8.0", "10.0"),
        ("m1-8", "apple", "5", "2-9", "8.0", "10.0"),
    ]


@needs_browser
def test_rows_are_found_and_sorted(site: str, browser: Browser, committed: pl.DataFrame) -> None:
    runs = committed.filter(pl.col("tok_s") >= LEAST_TOK_S)
    page = f"{site}reference/models/"
    browser.driver.get(page)
    browser.wait(f"return {SHOWN}.length === {len(runs)}")
    field = browser.driver.find_element("css selector", "input[type=search]:not([name])")
    field.send_keys("gpt-oss-120b")
    of_model = runs.filter(pl.col("model").str.starts_with("gpt-oss-120b"))
    assert browser.run(f"return {SHOWN}.length") == len(of_model)
    heading = browser.driver.find_element("xpath", "//table//th[contains(., 'tok/s')]/button")
    for order, name in ((-1, "descending"), (1, "ascending")):
        heading.click()
        speeds = [float(cell) for cell in browser.run(f"return {SHOWN}.map(row => row.cells[2].textContent)")]
        assert speeds == sorted(speeds, key=lambda speed: order * speed)
        assert browser.run("return document.querySelector('th[aria-sort]').ariaSort") == name
    browser.driver.get(f"{page}#rows=RTX%203060%2012%20GB%20gpt-oss-20b")
    browser.wait(f"return {SHOWN}.length === 1")
    browser.driver.get(f"{page}#rows=gpt-oss-120b%20rtx-4090")
    browser.wait(f"return {SHOWN}.length === 1")
    assert browser.complaints() == []
