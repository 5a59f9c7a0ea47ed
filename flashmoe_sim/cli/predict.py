"""`sim predict`: seconds if only hit rates are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from flashmoe_sim.cli.common import json_option, message, print_json, print_table, say
from flashmoe_sim.cli.options import of_verb
from flashmoe_sim.io.cells import UNKNOWN, Column, brief_interval, decimals, percent, speed, table
from flashmoe_sim.verbs.predict import Predict

if TYPE_CHECKING:
    from flashmoe_sim.sweep.predictions import Unfit
    from flashmoe_sim.timeline.from_rates import Predicted
    from flashmoe_sim.timeline.rates import Rate


@click.command(name="predict")
@of_verb(Predict)
@json_option
def command(asked: Predict, *, as_json: bool) -> None:
    """Predict how fast a model decodes on a machine, from published hit rates.

    No trace is needed: a synthetic workload misses as often. If the table has a measured speed, the signed error
    follows it. Misses are read like in the patched runtime (split-install) unless --execution says otherwise. A table
    is CSV, with commas, semicolons or tabs, or markdown; a row says if it does not fit the machine.

    \b
    Example:  sim predict --model qwen3.5-35b-a3b:ud-iq2_m --machine m5-max-128 \\
                  --hit-rate 58.8%,72.8% --topk 4 --bank 32
    """
    predicted = asked.run()
    for note in predicted.notes:
        message(f"{asked.table}: {note}")
    geometry, runs_on, execution_name = predicted.geometry, predicted.machine, predicted.conditions.execution.name
    if as_json:
        rows = [row.as_row() | {"ms_per_token_by_part": _parts(row)} for row in predicted.rows]
        found = {"model": geometry.name, "machine": runs_on.name, "execution": execution_name, "rows": rows}
        print_json(found | {"notes": list(runs_on.notes)})
        return
    title = f"{geometry.name} on {runs_on.name}: {runs_on.title}; {execution_name}"
    _print(predicted.rows, lines=asked.table is not None, title=title, notes=runs_on.notes)


def _parts(row: Predicted | Unfit) -> dict[str, float] | None:
    from flashmoe_sim.timeline.from_rates import Predicted

    return row.timing.part_ms_per_token if isinstance(row, Predicted) else None


def _print(found: list[Predicted | Unfit], *, lines: bool, title: str, notes: tuple[str, ...]) -> None:
    """lines: whether the rates come from lines of a table, shown by number if several have the same bank and top-k."""
    rows = [row.as_row() | {"rate": row.rate} for row in found]
    columns: list[Column] = [
        ("bank", "right", lambda row: row["bank"] or UNKNOWN),
        ("top-k", "right", lambda row: str(row["top_k"])),
        ("hit %", "right", _hits),
        ("misses/call", "right", lambda row: decimals(row["misses_per_call"])),
        ("page cache %", "right", lambda row: percent(row.get("page_cache_share"))),
        ("tok/s", "right", lambda row: speed(row.get("tok_s"))),
        (
            "90%",
            "right",
            lambda row: "does not fit" if row["does_not_fit"] else brief_interval(row["tok_s_lo"], row["tok_s_hi"]),
        ),
    ]
    if lines and len({(row["bank"], row["top_k"]) for row in rows}) < len(rows):
        columns.insert(0, ("line", "right", lambda row: row["rate"].where.rpartition(" ")[2]))
    if any(row["measured_tok_s"] is not None for row in rows):
        columns += [("measured", "right", lambda row: _measured(row["rate"])), ("error", "right", _error)]
    caption = "page cache: its share of the misses if all experts outside the bank are alike"
    print_table(table(columns, rows, title=title, caption="; ".join((caption, *notes))))
    for row in rows:
        if row["does_not_fit"] is not None:
            say(f"does not fit: {row['does_not_fit']}", indent=2)


def _hits(row: dict[str, Any]) -> str:
    return percent(row["hit_rate"] if row["hit_rate"] is not None else 1 - row["misses_per_call"] / row["top_k"])


def _measured(rate: Rate) -> str:
    if rate.measured_tok_s is None:
        return UNKNOWN
    return f"{rate.tok_s:g}" if rate.tok_s is not None else f"{rate.tok_s_lo:g}-{rate.tok_s_hi:g}"


def _error(row: dict[str, Any]) -> str:
    return UNKNOWN if row.get("error") is None else f"{row['error']:+.1%}"
