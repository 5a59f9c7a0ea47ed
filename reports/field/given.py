"""What one measurement of your own is worth: rows answered after another row of their machine.

`python -m reports.field.given` writes given.csv, in a quarter of an hour; `./dev report` puts it on the page.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path

import polars as pl

from flashmoe_sim.cli.progress import working
from flashmoe_sim.field.engines import engine_of
from flashmoe_sim.field.rows import FieldRow
from reports.field import residuals
from reports.field.answers import Answer, answers
from reports.field.residuals import Score, score
from reports.pages import joined, table

TABLE = Path(__file__).with_name("given.csv")
SEED, MOST = 1, 4
INTRO = """Rows, at most four of a machine, are asked again after another one of it, drawn at random, as if its
owner had measured that one: `--measured` learns from it how fast the parts of the machine, the engine and the model's
kernels are. A given row that the machine cannot explain teaches nothing. [given.csv](given.csv) has every row; `python
-m reports.field FILE.csv --given GIVEN.csv` answers so.
"""
HEAD = ("the given row is", "rows", "median error", "within 2x", "inside", "ends apart")


def pairs(rows: list[FieldRow], answered: Collection[str]) -> list[tuple[FieldRow, FieldRow]]:
    """Rows with another one of their machine, at most MOST of each. answered: ids of rows that can be asked."""
    machines = defaultdict[str, list[FieldRow]](list)
    for row in rows:
        if row.machine_id and row.id in answered:
            machines[row.machine_id].append(row)
    drawn = random.Random(SEED)
    several = [drawn.sample(of, len(of)) for _, of in sorted(machines.items()) if len(of) > 1]
    return [(row, drawn.choice([other for other in of if other is not row])) for of in several for row in of[:MOST]]


def write(rows: list[FieldRow]) -> None:
    """Write the table."""
    asked, lines = pairs(rows, set(pl.read_csv(residuals.TABLE)["id"])), list[dict[str, object]]()
    with working("learning") as progress:
        for number, (row, given) in enumerate(asked, 1):
            before, after = (answers([row], some, prompts=False)[0] for some in ((), (given,)))
            if before.tok_s is not None and after.tok_s is not None:
                lines.append(_line(row, given, before, after))
            progress(number, len(asked))
    pl.DataFrame(lines).with_columns(pl.selectors.float().round_sig_figs(4)).write_csv(TABLE)


def _line(row: FieldRow, given: FieldRow, before: Answer, after: Answer) -> dict[str, object]:
    return {
        "id": row.id,
        "given": given.id,
        "machine_id": row.machine_id,
        "system": before.system,
        "same_engine": engine_of(row) == engine_of(given),
        "same_model": row.model.lower() == given.model.lower(),
        "measured_tok_s": row.decode_tok_s,
        "before_tok_s": before.tok_s,
        "before_lo": before.lo,
        "before_hi": before.hi,
        "tok_s": after.tok_s,
        "lo": after.lo,
        "hi": after.hi,
    }


def section(lines: pl.DataFrame) -> str:
    """Errors without a measurement and with one, by what it shares with the row; of rows that a system answers."""
    known = lines.filter(pl.col("system").is_not_null())
    before = known.select("measured_tok_s", *(pl.col(f"before_{name}").alias(name) for name in ("tok_s", "lo", "hi")))
    groups = {"none": before, "any of its machine": known}
    for model, engine in ((True, True), (False, True), (True, False), (False, False)):
        name = f"of {'its' if engine else 'another'} engine and {'its' if model else 'another'} model"
        groups[name] = known.filter(same_engine=engine, same_model=model)
    return joined(INTRO, table(HEAD, [(name, *cells(score(some))) for name, some in groups.items() if len(some)]))


def cells(of: Score) -> tuple[str, ...]:
    """A score as cells of a table."""
    return f"{of.rows}", f"{of.error:.0%}", f"{of.within_2:.0%}", f"{of.inside:.0%}", f"{of.apart:.1f}x"


if __name__ == "__main__":
    from reports.field.report import judged_rows

    write(judged_rows())
