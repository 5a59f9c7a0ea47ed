"""`sim predict`: seconds where only hit rates are known."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flashmoe_sim.cli.common import json_option, percent, print_json, print_table
from flashmoe_sim.cli.machine_options import condition_options, machine_option
from flashmoe_sim.cli.workload import io_split_option, model_option

if TYPE_CHECKING:
    from flashmoe_sim.timeline.from_rates import Predicted


@click.command(name="predict", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--hit-rate", metavar="R,R", help="Hit rates of the bank: 0.588, or 58.8%.")
@click.option(
    "--table",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A CSV file with a column misses_per_call, hit_pct or hit_rate, and maybe bank, topk and tok_s.",
)
@model_option
@machine_option
@click.option(
    "--bank",
    metavar="N",
    help="Slots of each layer (64), or bytes of all together (8GiB); without it a bank takes none.",
)
@click.option(
    "--topk",
    type=click.IntRange(1),
    metavar="K",
    help="Experts a token; by default as many as the model was trained with.",
)
@io_split_option
@condition_options
@json_option
def command(
    hit_rate: str | None,
    table: Path | None,
    model: str | None,
    machine: str | None,
    bank: str | None,
    topk: int | None,
    io_split: int,
    execution: str | None,
    dense: str | None,
    kv: str | None,
    direct_io: bool,
    hot: bool,
    as_json: bool,
) -> None:
    """Predict how fast a model decodes on a machine, from published hit rates.

    There need be no trace: work is made that misses as often. Where the table has the measured speed, the signed error
    stands beside it. Misses are read as the patched runtime does by default (split-install) unless --execution says
    otherwise.

    \b
    Example:  sim predict --model qwen3.5-35b-a3b --machine m5-max-128 \\
                  --hit-rate 58.8%,72.8% --topk 4 --bank 32
    """
    from flashmoe_sim.sweep.predictions import predict_as_told

    told = predict_as_told(
        hit_rate=hit_rate,
        table=table,
        model=model,
        machine=machine,
        bank=bank,
        top_k=topk,
        io_split=io_split,
        execution=execution,
        dense=dense,
        kv=kv,
        direct_io=direct_io,
        hot=hot,
    )
    geometry, runs_on, execution_name = told.geometry, told.machine, told.conditions.execution.name
    if as_json:
        rows = [row.as_row() | {"ms_per_token_by_part": row.timing.part_ms_per_token} for row in told.rows]
        print_json({"model": geometry.name, "machine": runs_on.name, "execution": execution_name, "rows": rows})
        return
    _print(told.rows, title=f"{geometry.name} on {runs_on.name}: {runs_on.title}; {execution_name}")


def _print(found: list[Predicted], *, title: str) -> None:
    measured = any(row.rate.measured_tok_s is not None for row in found)
    columns = [("bank", "right"), ("top-k", "right"), ("hit %", "right"), ("misses/call", "right")]
    columns += [("page cache %", "right"), ("tok/s", "right"), ("90 %", "right")]
    columns += [("measured", "right"), ("error", "right")] if measured else []
    rows = []
    for row in found:
        cells = [
            "-" if row.rate.bank is None else str(row.rate.bank),
            str(row.top_k),
            percent(1 - row.misses_per_call / row.top_k),
            f"{row.misses_per_call:.2f}",
            percent(row.page_cache_share),
            f"{row.tok_s:.3g}",
            f"{row.tok_s_lo:.3g}-{row.tok_s_hi:.3g}",
        ]
        rows.append([*cells, *_measured(row)] if measured else cells)
    print_table(
        columns, rows, title=title, caption="page cache: of the misses, if all experts outside the bank are alike"
    )


def _measured(row: Predicted) -> list[str]:
    rate, error = row.rate, row.error
    if error is None:
        return ["-", "-"]
    ends: Any = (rate.tok_s_lo, rate.tok_s_hi)
    speed = f"{rate.tok_s:g}" if rate.tok_s is not None else f"{ends[0]:g}-{ends[1]:g}"
    return [speed, f"{error:+.1%}"]
