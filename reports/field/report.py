"""The report: every judged row priced, tuned, left out, and written down."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from reports.field import prior, tune
from reports.field.predict import Raw, raw_of
from reports.field.prior import KINDS, HitCurve
from reports.field.rows import FieldRow, read_rows
from reports.field.scores import Judged, all_tuned, counts, judged

FOLDER = Path(__file__).parent
ROWS = FOLDER.parents[1] / "data" / "published" / "field.csv"
RESULTS = FOLDER / "results.csv"


def judged_rows() -> list[FieldRow]:
    """The rows that count."""
    return [row for row in read_rows(ROWS) if counts(row)]


def raws_with(curves: dict[str, HitCurve]) -> list[Raw]:
    """Every row that counts, priced."""
    return [raw_of(row, curves) for row in judged_rows()]


def write(*, tune_again: bool) -> None:
    """Write the page, its table and its figures; with `tune_again` also what is tuned."""
    from reports.field import figures, page

    if tune_again:
        points = prior.all_points()
        curves = {kind: prior.fitted(points, kind) for kind in KINDS}
        tune.save(all_tuned(raws_with(curves), curves))
    found = tune.load()
    rows = judged(raws_with(found.curves), found.curves)
    frame(rows).write_csv(RESULTS)
    figures.draw(rows, FOLDER)
    (FOLDER / "README.md").write_text(page.markdown(rows, found), encoding="utf-8")
    print(f"field: wrote {FOLDER}", file=sys.stderr)


def frame(rows: Sequence[Judged]) -> pl.DataFrame:
    """A row for each judged row: measured, predicted in sample and left out, on paper, and why not."""
    table = []
    for one in rows:
        row = one.row
        table.append(
            {
                "id": row.id,
                "strategy": row.strategy,
                "engine": row.engine,
                "machine_id": row.machine_id,
                "series": row.series,
                "measured_tok_s": row.decode_tok_s,
                "tok_s": one.in_sample.tok_s,
                "without_series_tok_s": one.without_series.tok_s,
                "without_machine_tok_s": one.without_machine.tok_s,
                "without_machine_lo": one.without_machine.lo,
                "without_machine_hi": one.without_machine.hi,
                "without_hit_rate_tok_s": one.blind.tok_s,
                "on_paper_tok_s": one.naive,
                "why": one.in_sample.why,
            }
        )
    return pl.DataFrame(table, infer_schema_length=None).with_columns(pl.selectors.float().round_sig_figs(4))
