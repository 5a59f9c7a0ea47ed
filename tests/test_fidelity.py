"""The fidelity report says what the program predicts today."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
from polars.testing import assert_frame_equal

from reports.fidelity import figures, page
from reports.fidelity.measure import FOLDER, RESULTS, all_groups, frame, shown_run

PAGE = (FOLDER / "README.md").read_text()


def test_predictions_are_those_of_today() -> None:
    """The phone's scales come from an optimiser, so the last digits may differ between machines."""
    stored, fresh = pl.read_csv(RESULTS), frame(all_groups())
    words = [name for name, dtype in stored.schema.items() if dtype == pl.String]
    assert_frame_equal(stored.select(words), fresh.select(words).cast(pl.String), check_dtypes=False)
    numbers = [name for name in stored.columns if name not in words]
    assert_frame_equal(stored.select(numbers), fresh.select(numbers), check_exact=False, rel_tol=2e-3, abs_tol=2e-3)


def test_page_is_made_of_today() -> None:
    """All but the digits of figures, which the test above compares."""
    assert _wordless(page.markdown(all_groups())) == _wordless(PAGE), "run ./dev report"


def _wordless(text: str) -> str:
    return " ".join(re.sub(r"[0-9.,]+", "0", text).split())


def test_figures_of_the_page_are_drawn(tmp_path: Path) -> None:
    figures.draw(all_groups(), shown_run(), tmp_path)
    shown = set(re.findall(r"\]\((\w+\.png)\)", PAGE))
    assert {path.name for path in tmp_path.iterdir()} == shown == {path.name for path in FOLDER.glob("*.png")}
