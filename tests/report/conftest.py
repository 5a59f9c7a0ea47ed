"""What several tests of pages need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.report.browser import Browser, chromium


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("profile")) as opened:
        yield opened
