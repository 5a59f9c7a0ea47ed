"""The page of models larger than RAM says what the predictions are."""

from __future__ import annotations

import math
from statistics import median

import pytest

pytest.importorskip("gguf")

from reports.paging.page import PAGE, markdown, rows


def test_the_page_of_models_larger_than_ram() -> None:
    """Also within the errors of the models of which no run was given."""
    found = [*rows()]
    assert PAGE.read_text() == markdown(found), "run python -m reports.paging"
    others = [row for row in found if row.run.model != "small-experts" and row.found.tok_s]
    factors = [math.exp(abs(math.log((row.found.tok_s or 0) / row.tok_s))) for row in others]
    assert len(others) == 29
    assert median(factors) < 1.4
    assert max(factors) < 2
    read = [(row.found.storage_bytes_per_token or 0) / row.read_bytes for row in others if row.reads]
    assert median(abs(one - 1) for one in read) < 0.2
