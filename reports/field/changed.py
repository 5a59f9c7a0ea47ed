"""Whether a change made the predictions of the field better or worse: two tables of results, machine by machine.

git show COMMIT:reports/field/residuals.csv >before.csv
python -m reports.field.changed before.csv
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from reports.field.residuals import TABLE, on_parts

DRAWS, SEED = 4000, 1


class Changed(NamedTuple):
    """Median errors before and after on the same rows, and the difference with its 90% interval over machines.

    better, worse: machines by their own median error.
    """

    rows: int
    machines: int
    before: float
    after: float
    lo: float
    hi: float
    better: int
    worse: int


def changed(before: pl.DataFrame, after: pl.DataFrame) -> Changed:
    """Compare the errors on the rows that both tables answer.

    Rows of a machine move together, so the bootstrap draws machines.
    """
    then = before.select("id", pl.col("tok_s").alias("then"))
    both = after.select("id", "machine_id", "measured_tok_s", pl.col("tok_s").alias("now")).join(then, on="id")
    both = both.drop_nulls()
    errors = np.abs(both.select(pl.col("then", "now") / pl.col("measured_tok_s") - 1).to_numpy())
    _, of = np.unique(both["machine_id"].to_numpy(), return_inverse=True)
    rows = [np.flatnonzero(of == number) for number in range(of.max() + 1)]
    rng = np.random.default_rng(SEED)
    draws = []
    for _ in range(DRAWS):
        drawn = np.concatenate([rows[number] for number in rng.integers(0, len(rows), len(rows))])
        draws.append(np.subtract(*np.median(errors[drawn], axis=0)[::-1]))
    own = np.array([np.subtract(*np.median(errors[some], axis=0)[::-1]) for some in rows])
    then_error, now_error = map(float, np.median(errors, axis=0))
    lo, hi = map(float, np.quantile(draws, [0.05, 0.95]))
    better, worse = int((own < 0).sum()), int((own > 0).sum())
    return Changed(len(both), len(rows), then_error, now_error, lo, hi, better, worse)


def main(before: Path) -> None:
    """Print one line."""
    found = changed(*(on_parts(pl.read_csv(table)) for table in (before, TABLE)))
    print(
        f"{found.before:.1%} before, {found.after:.1%} now on {found.rows} rows of {found.machines} machines; "
        f"difference {100 * found.lo:+.1f} to {100 * found.hi:+.1f} points (90%); "
        f"{found.better} machines better, {found.worse} worse"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
