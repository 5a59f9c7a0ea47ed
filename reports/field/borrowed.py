"""How often a borrowed trace changes what `sim recommend` would choose, and what that loses on the recorded trace.

`python -m reports.field.borrowed` writes borrowed.csv, in two minutes; `./dev report` puts it on the page.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from flashmoe_sim.geometry.named import named_model
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.systems.borrow import ALSO_LIKE, MOST_LIKE, made_like
from flashmoe_sim.systems.compare import at_setting
from flashmoe_sim.systems.resolve import resolve
from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.tune.objective import Objective
from flashmoe_sim.tune.proof import first, pick
from flashmoe_sim.tune.search import search
from reports.pages import joined, table

TABLE = Path(__file__).with_name("borrowed.csv")
RECORDED = {
    "gpt-oss-120b": "gpt-oss-120b",
    "deepseek-v2-lite": "deepseek-v2-lite",
    "qwen3-30b-a3b": "qwen3-30b-mlx",
}
TWO = f"{MOST_LIKE} and {ALSO_LIKE}"
LENDERS = {name: [name] for name in (*RECORDED.values(), "gemma-4-26b-phone")} | {TWO: [MOST_LIKE, ALSO_LIKE]}
MACHINES = ("rtx-3060", "rtx-4090", "m3-16", "m3-max-48", "m4-32", "laptop-ddr4", "strix-halo-128", "phone-ufs4")
INTRO = """Without a trace, popularity and overlap are borrowed from other models. Here models with a recorded trace
borrow from others, one by one and as a model without a recording does, and from their own recording, on {machines}
presets. The choice from the borrowed trace is timed on the recorded one, beside the choice that the recorded one leads
to: *first* is the one that `sim recommend` names, *fastest* the fastest engine, whatever shows its speed. Machines on
which that is the whole model on the GPU are left out. `python -m reports.field.borrowed` makes
[borrowed.csv](borrowed.csv).
"""


def rows() -> Iterator[dict[str, Any]]:
    """A row for each model, machine and lender whose choice depends on the trace, for the first and the fastest choice.

    first: the one that `sim recommend` names, by proof; fastest: of all systems, whatever shows it.
    """
    for name, recorded in RECORDED.items():
        model, trace = named_model(name), load_trace(recorded)
        traces = {lender: made_like(names, model) for lender, names in LENDERS.items()}
        for machine in MACHINES:
            on = resolve(workload=prepare(trace, model), model=None, machine=load_machine(machine))
            assert on.workload is not None
            own = chosen(on.workload, on.case, on.systems)
            for lender, borrowed in traces.items():
                print(name, machine, lender, file=sys.stderr)
                theirs = chosen(borrowed, on.case, on.systems, borrowed=True)
                for choice, setting in own.items():
                    if setting.name == "all-gpu":
                        continue
                    yield {
                        "model": name,
                        "machine": machine,
                        "lender": lender,
                        "choice": choice,
                        "own_setting": setting.spec,
                        "setting": theirs[choice].spec,
                        "same_system": theirs[choice].name == setting.name,
                        "loss": loss(on.workload, on.case, theirs[choice], setting),
                    }


def chosen(workload: Workload, case: Case, systems: list[System], *, borrowed: bool = False) -> dict[str, System]:
    """The first choice of `sim recommend`, and the fastest setting of all."""
    found = [one.best for one in search(workload, case, systems, borrowed=borrowed).systems]
    choices = {"first": first(found, case, Objective()), "fastest": pick(found, Objective())}
    return {choice: one.system for choice, one in choices.items() if one is not None}


def loss(workload: Workload, case: Case, setting: System, own: System) -> float:
    """The share of its speed that a workload loses by a setting instead of its own; 1 if it does not run."""
    speeds = [at_setting(workload, case, one, interval=False).tok_s or 0.0 for one in (setting, own)]
    return 1 - speeds[0] / speeds[1]


def section(found: pl.DataFrame) -> str:
    """How often the choice changes, and what that loses."""
    cells = []
    own = pl.col("lender").replace({trace: model for model, trace in RECORDED.items()}) == pl.col("model")
    two = pl.col("lender") == TWO
    for choice, rows_of in found.group_by("choice", maintain_order=True):
        for what, some in (
            ("another model", rows_of.filter(~own & ~two)),
            ("two models", rows_of.filter(two)),
            ("its own recording", rows_of.filter(own)),
        ):
            lost = sorted(some["loss"].to_list())
            other = f"{np.mean(~some['same_system'].to_numpy()):.0%}"
            losses = (statistics.median(lost), lost[math.ceil(0.9 * len(lost)) - 1], lost[-1])
            cells.append((choice[0], what, len(some), other, *(f"{loss:.1%}" for loss in losses)))
    head = ("choice", "the trace is from", "cases", "another system", "loss: median", "nine in ten at most", "most")
    return joined(INTRO.format(machines=len(MACHINES)), table(head, cells, left=None))


if __name__ == "__main__":
    pl.DataFrame(list(rows()), infer_schema_length=None).with_columns(pl.col("loss").round(4)).write_csv(TABLE)
