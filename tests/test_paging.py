"""The page of models larger than RAM says what the predictions are."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import median

import pytest

pytest.importorskip("gguf")

from reports.paging.page import PAGE, around, markdown, rows

README = Path(__file__).parents[1] / "README.md"


def test_the_page_of_models_larger_than_ram() -> None:
    """README says the same, and models of which no run was given are within bounds."""
    found = [*rows()]
    assert PAGE.read_text() == markdown(found), "run python -m reports.paging"
    known = [(row, row.found) for row in found if row.found and not row.given]
    off = [abs(math.log(one.tok_s / row.tok_s)) for row, one in known]
    inside = sum(one.lo <= row.tok_s <= one.hi for row, one in known)
    cells = f"{len(known)} | {math.expm1(median(off)):.0%} | {inside / len(known):.0%}"
    assert f"| [models in less and less RAM](reports/paging/README.md) | {cells} |" in README.read_text()
    others = [(row, one) for row, one in known if row.run.model != "small-experts"]
    factors = [math.exp(abs(math.log(one.tok_s / row.tok_s))) for row, one in others]
    assert len(others) == 29
    assert median(factors) < 1.4
    assert max(factors) < 2
    for bank in (False, True):
        read = [one.read_bytes / row.read_bytes for row, one in known if row.reads and bool(row.run.bank) == bank]
        assert median(abs(each - 1) for each in read) < 0.1


def test_what_page_faults_read() -> None:
    found = [one.read_bytes / expected for one, expected in around()]
    assert len(found) == 36
    assert sorted(abs(each - 1) for each in found)[27] < 0.05  # three in four
    assert all(0.8 < each < 1.2 for each in found)
