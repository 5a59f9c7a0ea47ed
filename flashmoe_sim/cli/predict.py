"""`sim predict`: seconds if only hit rates are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from flashmoe_sim.cli.common import json_option, message, print_json, print_table, wrapped
from flashmoe_sim.cli.options import of_verb
from flashmoe_sim.io.cells import brief_interval, percent
from flashmoe_sim.io.numbers import three
from flashmoe_sim.io.sections import Table
from flashmoe_sim.verbs.predict import Predict

if TYPE_CHECKING:
    from flashmoe_sim.sweep.predictions import Unfit
    from flashmoe_sim.timeline.from_rates import Predicted
    from flashmoe_sim.timeline.rates import Rate


@click.command(name="predict", context_settings={"help_option_names": ["-h", "--help"]})
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
    alike = [(row.as_row()["bank"], row.as_row()["top_k"]) for row in found]
    numbered = lines and len(set(alike)) < len(found)
    measured = any(row.rate.measured_tok_s is not None for row in found)
    columns = [("line", "right")] if numbered else []
    columns += [("bank", "right"), ("top-k", "right"), ("hit %", "right"), ("misses/call", "right")]
    columns += [("page cache %", "right"), ("tok/s", "right"), ("90%", "right")]
    columns += [("measured", "right"), ("error", "right")] if measured else []
    rows, reasons = [], []
    for row in found:
        known = row.as_row()
        fits = known["does_not_fit"] is None
        misses, hit_rate = known["misses_per_call"], known["hit_rate"]
        cells = [row.rate.where.rpartition(" ")[2]] if numbered else []
        cells += [
            known["bank"] or "-",
            str(known["top_k"]),
            percent(hit_rate if hit_rate is not None else 1 - misses / known["top_k"]),
            "-" if misses is None else f"{misses:.2f}",
            percent(known.get("page_cache_share")),
            three(known["tok_s"]) if fits else "-",
            brief_interval(known["tok_s_lo"], known["tok_s_hi"]) if fits else "does not fit",
        ]
        rows.append([*cells, *_measured(row.rate, known.get("error"))] if measured else cells)
        if not fits:
            reasons.append(known["does_not_fit"])
    caption = "page cache: its share of the misses if all experts outside the bank are alike"
    print_table(Table(columns, rows, title=title, caption="; ".join((caption, *notes))))
    for reason in reasons:
        click.echo(wrapped(f"does not fit: {reason}", indent=2))


def _measured(rate: Rate, error: float | None) -> list[str]:
    if rate.measured_tok_s is None:
        return ["-", "-"]
    ends: Any = (rate.tok_s_lo, rate.tok_s_hi)
    speed = f"{rate.tok_s:g}" if rate.tok_s is not None else f"{ends[0]:g}-{ends[1]:g}"
    return [speed, "-" if error is None else f"{error:+.1%}"]
