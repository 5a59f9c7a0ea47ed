"""What each part of a prediction is worth."""

from __future__ import annotations

from pathlib import Path

from reports.field import by_part
from reports.field.predict import raw_of
from reports.field.prior import HitCurve
from reports.field.rows import read_rows
from tests.field.builders import DEFAULTS, write

CURVES = {kind: HitCurve(2.0, 1.0, 0.5) for kind in ("lru", "hindsight", "held-out")}


def test_a_part_counts_the_rows_that_it_changes(tmp_path: Path) -> None:
    """A deep row is slower than an empty one; a shallow one, and one on equal cards, tell nothing."""
    deep = {"id": "deep", "context": "65536", "varies": "context", "series": "s"}
    path = write(tmp_path / "rows.csv", DEFAULTS | deep, DEFAULTS | {"id": "shallow"})
    first, second = (raw_of(row, CURVES) for row in read_rows(path))
    without, alike = (by_part.PARTS[name] for name in list(by_part.PARTS)[:2])
    assert first.blind is not None
    empty = without(first, CURVES)
    assert empty is not None
    assert empty > 1.1 * first.blind.tok_s
    assert without(second, CURVES) is None
    assert alike(second, CURVES) is None
