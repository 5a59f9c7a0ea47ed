"""A real browser for tests of pages."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

SWITCHES = (
    "headless",
    "no-sandbox",
    "disable-gpu",
    "disable-dev-shm-usage",
    "no-first-run",
    "disable-background-networking",
    "disable-component-update",
    "disable-sync",
    "hide-scrollbars",
)
LUMINANCE = """
const [r, g, b] = getComputedStyle(arguments[0])[arguments[1]].match(/[0-9.]+/g).map(one => one / 255)
  .map(one => one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
return 0.2126 * r + 0.7152 * g + 0.0722 * b;
"""
LONG_LABELS = """
for (const one of document.querySelectorAll('.strip li > span:first-child'))
  (one.querySelector('a') ?? one).textContent = 'RTX 5090 + '.repeat(8);
"""
CUT_OFF = """
const { clientWidth: width } = document.documentElement;
return [...arguments[0].querySelectorAll('*')].filter(one => {
    if (one.matches('.strip span > a')) return false; // its span cuts it, and ends it with an ellipsis
    const box = one.getBoundingClientRect();
    return box.width && (box.left < 0 || box.right > width + 0.5);
  })
  .map(one => `${one.tagName} ${one.className}: ${one.textContent.trim().slice(0, 60)}`);
"""  # what is beyond the page's edges, whether or not it can be scrolled to
MISSING = not (shutil.which("chromium") and shutil.which("chromedriver"))
needs_browser = pytest.mark.skipif(MISSING, reason="needs chromium and chromedriver: ./dev extras")


class Browser:
    """Opens pages and looks at them."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, page: Path, *, scheme: str = "light", width: int = 1000, scripts: bool = True) -> None:
        """Open a page and wait until its figures are drawn. scheme: of colours, `light` or `dark`.

        scripts: whether the page's own run; without them it is loaded, whenever `get` returns.
        """
        self.command("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
        self.prefer(scheme)
        self.messages()  # forget what pages before it said
        self.events()
        self.driver.get(page.as_uri())
        if scripts:
            self.wait(f"return document.documentElement.dataset.drawn === '{scheme}'")
            return
        self.until(lambda: "Page.loadEventFired" in {event["method"] for event in self.events()})
        self.command("Emulation.setScriptExecutionDisabled", value=False)  # for what is asked; the page's have not run

    def prefer(self, scheme: str) -> None:
        self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def wait(self, condition: str) -> None:
        self.until(lambda: self.run(condition))

    def until(self, holds: Callable[[], Any]) -> None:
        from selenium.webdriver.support.wait import WebDriverWait

        WebDriverWait(self.driver, 60, 0.05).until(lambda _: holds())

    def command(self, name: str, **arguments: Any) -> Any:
        return self.driver.execute_cdp_cmd(name, arguments)

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def messages(self) -> list[str]:
        """What the console has."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def complaints(self) -> list[str]:
        """The warnings and errors that the console has."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("WARNING", "SEVERE")]

    def requested(self) -> set[str]:
        """The addresses that were requested, but for those of data in the page."""
        sent = [event for event in self.events() if event["method"] == "Network.requestWillBeSent"]
        asked = {event["params"]["request"]["url"] for event in sent}
        return {url for url in asked if not url.startswith("data:")}

    def events(self) -> list[dict[str, Any]]:
        """What the network and the page did since this was asked last."""
        return [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]


@contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """A browser without a window and with a profile of its own."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for switch in SWITCHES:
        options.add_argument(f"--{switch}")
    options.add_argument(f"--user-data-dir={profile}")
    options.binary_location = shutil.which("chromium") or "chromium"
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
