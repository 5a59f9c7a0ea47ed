"""What a borrowed trace does to the choice of `sim recommend`: the written table is that of today."""

from __future__ import annotations

import polars as pl

from flashmoe_sim.geometry.named import named_model
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.residency.workload import prepare
from flashmoe_sim.systems.borrow import made_like
from flashmoe_sim.systems.resolve import resolve
from flashmoe_sim.trace.load import load_trace
from reports.field import borrowed


def test_a_row_of_the_table_is_computed_again() -> None:
    """On this laptop the choice of the right engine comes with a cache that is too small."""
    model_name = "qwen3-30b-a3b"
    model, trace = named_model(model_name), load_trace("qwen3-30b-mlx")
    on = resolve(workload=prepare(trace, model), model=None, machine=load_machine("laptop-ddr4"))
    assert on.workload is not None
    own = borrowed.chosen(on.workload, on.case, on.systems)
    theirs = borrowed.chosen(made_like(["qwen3-30b-mlx"], model), on.case, on.systems, borrowed=True)
    rows = pl.read_csv(borrowed.TABLE).filter(model=model_name, machine="laptop-ddr4", lender="qwen3-30b-mlx")
    assert rows["choice"].to_list() == ["first", "fastest"]
    for row in rows.iter_rows(named=True):
        choice = row["choice"]
        assert (own[choice].spec, theirs[choice].spec) == (row["own_setting"], row["setting"])
        assert round(borrowed.loss(on.workload, on.case, theirs[choice], own[choice]), 4) == row["loss"]


def test_choices_from_borrowed_traces_lose_little() -> None:
    rows = pl.read_csv(borrowed.TABLE)
    assert {row["model"] for row in rows.iter_rows(named=True)} == set(borrowed.RECORDED)
    first = rows.filter(pl.col("choice") == "first")
    assert (~first["same_system"]).sum() <= 0.1 * len(first)
    assert first["loss"].quantile(0.9) == 0
