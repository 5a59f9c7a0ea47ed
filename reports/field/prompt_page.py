"""The part of the page on prompts."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from reports.field import printed_page, prompt_fit
from reports.field.predict import Raw
from reports.field.prompt_fit import TOLD, UNTOLD, Prompts, fitted, left_out, line_of, with_spread
from reports.field.prompt_parts import PARTS
from reports.field.scores import Score, naive_score
from reports.field.tune import engine_of
from reports.pages import joined, table

TABLE = Path(__file__).with_name("prompts.csv")
WITHOUT = "without_machine_tok_s"
LEAST_ROWS = 3
HEAD = """A prompt's token takes the sum of these seconds: arithmetic on the GPU; tiles of its kernels that are not
full; arithmetic on the CPU; weights, which each unit reads once a micro-batch; experts copied to the GPU or read from
storage; attention; and a fixed time of every layer. Each is computed from the machine, the model and the micro-batch,
and has one fitted factor. Smaller factors are fitted for the GPU's interface, the CPU's kernels and the engine. All are
drawn towards none, so that an engine with two rows changes little. A row without the length of its prompt counts as 512
tokens, or as 24 if it streams from storage; such rows have their own, wider interval.
"""
LAWS = """What the rows say beyond their errors: more than half of a prompt's arithmetic at the usual micro-batch of
512 goes into tiles that are not full, since an expert of 256 gets 16 tokens of the batch; so larger micro-batches pay
twice, by fewer copies and by fuller tiles.
"""


def tune(raws: Sequence[Raw]) -> None:
    """Fit the factors on rows with a prompt speed; write them, and what each row gets without its machine."""
    lines = [line for raw in raws if (line := line_of(raw)) is not None]
    left = left_out(lines)
    found = with_spread(fitted(lines), lines, left)
    prompt_fit.save(found)
    rows = {raw.row.id: raw.row for raw in raws}
    table = []
    for line in lines:
        row, tok_s = rows[line.row_id], left[line.row_id]
        width = found.interval(line)[1] / found.tok_s(line)
        table.append(
            {
                "id": row.id,
                "strategy": row.strategy,
                "engine": engine_of(row),
                "machine_id": line.machine,
                "length": line.length,
                "measured_tok_s": row.prompt_tok_s,
                "on_paper_tok_s": 1 / sum(line.seconds),
                "tok_s": found.tok_s(line),
                "without_machine_tok_s": tok_s,
                "without_machine_lo": tok_s / width,
                "without_machine_hi": tok_s * width,
            }
        )
    pl.DataFrame(table).with_columns(pl.selectors.float().round_sig_figs(4)).write_csv(TABLE)


def section(rows: pl.DataFrame, printed: pl.DataFrame, found: Prompts) -> str:
    """Errors of all rows, and by strategy and engine; what is fitted; and errors of what the commands print."""
    factors = ", ".join(f"{name.replace('_', ' ')} {math.exp(found.factors[name]):.2f}" for name in PARTS)
    fits = (
        f"The parts are fitted to be {factors} times as long as on paper. [prompts.toml](prompts.toml) has all "
        "factors, [prompts.csv](prompts.csv) every row."
    )
    groups = (by_group(rows, key) for key in ("strategy", "engine"))
    return joined(HEAD, overall(rows), *groups, fits, LAWS, as_printed(printed))


def as_printed(rows: pl.DataFrame) -> str:
    """How good the prompt speeds of the commands are, which nothing was fitted to but their interval."""
    one = naive_score(rows.select("tok_s", "measured_tok_s").rows())
    inside = printed_page.inside(rows)
    width, machines = statistics.median(rows["hi"] / rows["lo"]), rows["machine_id"].n_unique()
    return (
        "`sim recommend --objective prompt` times a prompt by replaying one through the timeline, and fits nothing but "
        f"the spread of its interval. Asked so, {one.rows} answers for rows on {machines} machines have a median error "
        f"of {one.error:.0%}; {one.within_2:.0%} are within a factor of two, and {inside:.0%} inside the printed "
        f"interval, whose ends are a factor of {width:.0f} apart in the median. "
        "[prompts_printed.csv](prompts_printed.csv) has them."
    )


def overall(rows: pl.DataFrame) -> str:
    """A line for each way to judge, and for rows that tell their prompt's length or do not."""
    ways = (
        ("with all rows", rows, "tok_s"),
        ("without its machine", rows, WITHOUT),
        ("of these, the length is told", rows.filter(length=TOLD), WITHOUT),
        ("the length is not told", rows.filter(length=UNTOLD), WITHOUT),
    )
    cells = []
    for what, some, column in ways:
        one = scored(some, column)
        inside = f"{one.covered:.0%}" if column == WITHOUT else ""
        cells.append((what, one.rows, f"{one.error:.1%}", f"{one.within_2:.0%}", inside))
    return table(("prompts", "rows", "median error", "within 2x", "in the interval"), cells, left=None)


def by_group(rows: pl.DataFrame, key: str) -> str:
    """A line for each strategy or engine with at least LEAST_ROWS rows."""
    cells = []
    groups = [some for _, some in rows.group_by(key, maintain_order=True) if len(some) >= LEAST_ROWS]
    for some in sorted(groups, key=len, reverse=True):
        one, machines = scored(some, WITHOUT), some["machine_id"].n_unique()
        shares = (f"{share:.0%}" for share in (one.error, one.within_2, one.covered))
        cells.append((some[key][0], one.rows, machines, *shares))
    return table((key, "rows", "machines", "median error", "within 2x", "in the interval"), cells, left=None)


def scored(rows: pl.DataFrame, column: str) -> Score:
    """Errors of a column of predictions."""
    base = naive_score(rows.select(column, "measured_tok_s").rows())
    return replace(base, covered=printed_page.inside(rows, "without_machine_"))
