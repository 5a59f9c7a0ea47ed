"""The documentation as a site, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

from tests.report.browser import LUMINANCE, Browser, chromium, needs_browser

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of mkdocs
ROOT = Path(__file__).parents[1]
MOST_BYTES = 1_000_000
PAGES = ("", "reference/models/", "reference/systems/", "guides/recommend/")


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
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("HOMEPAGE", "../index.html")
        build(load_config(str(ROOT / "mkdocs.yml"), site_dir=folder, strict=True))
    with Server(("127.0.0.1", 0), partial(Quiet, directory=folder)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@needs_browser
@pytest.mark.parametrize("page", PAGES)
def test_pages_ask_nobody_else_and_complain_about_nothing(site: str, browser: Browser, page: str) -> None:
    browser.requested()
    browser.driver.get(site + page)
    assert browser.complaints() == []
    assert [url for url in browser.requested() if url.startswith("http") and not url.startswith(site)] == []
    assert browser.run("return document.documentElement.outerHTML.length") < MOST_BYTES


@needs_browser
def test_the_site_has_a_search(site: str, browser: Browser) -> None:
    browser.driver.get(f"{site}?q=victim")
    browser.wait("return document.querySelectorAll('.md-search-result__item').length > 0")
    assert "victim" in browser.run("return document.querySelector('.md-search-result__list').textContent").lower()


@needs_browser
@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("width", [390, 1280])
def test_pages_follow_the_dark_and_fit_the_screen(site: str, browser: Browser, page: str, width: int) -> None:
    browser.command("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
    browser.prefer("dark")
    browser.driver.get(site + page)
    paper, ink = (
        browser.run(LUMINANCE, browser.driver.find_element("tag name", "body"), name)
        for name in ("backgroundColor", "color")
    )
    assert (ink + 0.05) / (paper + 0.05) >= 7
    assert browser.run("return document.documentElement.scrollWidth") == width


@needs_browser
@pytest.mark.parametrize("page", PAGES)
def test_the_name_of_the_project_leads_to_the_page_that_answers(site: str, browser: Browser, page: str) -> None:
    browser.driver.get(site + page)
    levels = "../" * (page.count("/") + 1)
    for place in (".md-logo", ".md-nav--primary .md-nav__title a"):
        assert (
            browser.run("return document.querySelector(arguments[0]).getAttribute('href')", place)
            == f"{levels}index.html"
        )


@needs_browser
@pytest.mark.parametrize("width", [768, 1280])
def test_lines_of_code_are_cut_between_words_and_copied_whole(site: str, browser: Browser, width: int) -> None:
    browser.command("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
    browser.driver.get(f"{site}guides/compare/")
    blocks = "const blocks = [...document.querySelectorAll('pre > code')]; "
    assert browser.run(f"{blocks}return blocks.filter(one => one.scrollWidth > one.clientWidth).length") == 0
    assert browser.run(f"{blocks}return blocks.filter(one => one.innerText !== one.textContent).length") == 0
    words = "[...document.querySelectorAll('pre > code > span')]"
    assert browser.run(f"return {words}.some(one => one.textContent === '--moe-hot-cache-max-mib')")
