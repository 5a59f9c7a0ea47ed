"""What a borrowed trace does to the choice of `sim recommend`: the written table is that of today."""

from __future__ import annotations

import polars as pl

from flashmoe_sim.geometry.named import named_model
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.residency.workload import prepare
from flashmoe_sim.systems.told import told
from flashmoe_sim.trace.load import load_trace
from reports.field import borrowed


def test_a_row_of_the_table_is_computed_again() -> None:
    """On this laptop the choice of the right engine comes with a cache that is too small."""
    model, trace = named_model("qwen3-30b-a3b"), load_trace("qwen3-30b-mlx")
    on = told(workload=prepare(trace, model), model=None, machine=load_machine("laptop-ddr4"))
    assert on.workload is not None
    own = borrowed.chosen(on.workload, on.case, on.systems)
    theirs = borrowed.chosen(borrowed.made(model, trace), on.case, on.systems, borrowed=True)
    for row in pl.read_csv(borrowed.TABLE).iter_rows(named=True):
        if (row["model"], row["machine"], row["lender"]) == ("qwen3-30b-a3b", "laptop-ddr4", "qwen3-30b-mlx"):
            choice = row["choice"]
            assert (own[choice].spec, theirs[choice].spec) == (row["own_setting"], row["setting"])
            lost = borrowed.loss(on.workload, on.case, theirs[choice], own[choice])
            assert round(lost, 4) == row["loss"]


def test_choices_from_borrowed_traces_lose_little() -> None:
    rows = pl.read_csv(borrowed.TABLE)
    assert {row["model"] for row in rows.iter_rows(named=True)} == set(borrowed.RECORDED)
    first = rows.filter(pl.col("choice") == "first")
    assert (~first["same_system"]).sum() <= 0.1 * len(first)
    assert first["loss"].quantile(0.9) == 0
