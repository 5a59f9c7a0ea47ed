"""The page of models larger than RAM says what the predictions are."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import median

import pytest

pytest.importorskip("gguf")

from reports.paging.page import PAGE, markdown, rows

README = Path(__file__).parents[1] / "README.md"


def test_the_page_of_models_larger_than_ram() -> None:
    """README says the same, and models of which no run was given are within bounds."""
    found = [*rows()]
    assert PAGE.read_text() == markdown(found), "run python -m reports.paging"
    known = [row for row in found if row.found.tok_s and not row.given]
    off = [abs(math.log((row.found.tok_s or 0) / row.tok_s)) for row in known]
    inside = sum((row.found.tok_s_lo or 0) <= row.tok_s <= (row.found.tok_s_hi or 0) for row in known)
    cells = f"{len(known)} | {math.expm1(median(off)):.0%} | {inside / len(known):.0%}"
    assert f"| [models in less and less RAM](reports/paging/README.md) | {cells} |" in README.read_text()
    others = [row for row in found if row.run.model != "small-experts" and row.found.tok_s]
    factors = [math.exp(abs(math.log((row.found.tok_s or 0) / row.tok_s))) for row in others]
    assert len(others) == 29
    assert median(factors) < 1.4
    assert max(factors) < 2
    read = [(row.found.storage_bytes_per_token or 0) / row.read_bytes for row in others if row.reads]
    assert median(abs(one - 1) for one in read) < 0.2
