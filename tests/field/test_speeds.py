"""The published speeds that stand beside an answer are those of the tables."""

from __future__ import annotations

import math

import polars as pl
import pytest

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.systems.compare import case_of
from flashmoe_sim.systems.table import parse_system
from flashmoe_sim.tune.others import MOST, SAME_FILE, TABLE, nearest, speeds_of_others
from reports.field import residuals, speeds
from reports.field.report import judged_rows

WRITTEN = pl.read_csv(TABLE)


def test_the_table_is_of_today(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every thirtieth row, which takes a second instead of a minute."""
    some = judged_rows()[::30]
    monkeypatch.setattr(speeds, "judged_rows", lambda: some)
    made = speeds.table()
    assert len(made) > 20
    assert made.join(WRITTEN, on=made.columns, how="semi", nulls_equal=True).height == len(made)
    lines = residuals.known(residuals.on_parts(pl.read_csv(residuals.TABLE)))
    assert len(WRITTEN) == len(lines)
    assert sorted(WRITTEN["tok_s"]) == pytest.approx(sorted(lines["measured_tok_s"]), rel=1e-3)


@pytest.mark.parametrize("model", ["gpt-oss-120b", "qwen3-30b-a3b", "qwen3-235b-a22b", "gpt-oss-20b"])
@pytest.mark.parametrize("machine", ["rtx-3090 + 64GiB", "m3-max-48", "epyc-9354 + 512GiB"])
def test_the_nearest_are_of_the_model_and_the_engine(model: str, machine: str) -> None:
    case = case_of(load_model(model), load_machine(machine), workload=None)
    for spec in ("placed", "placed-ik", "all-gpu", "cpu"):
        groups = nearest(parse_system(spec), case)
        assert len(groups) <= MOST
        size = {one.file_gib for one in groups for one in one.speeds}
        assert {one.model for group in groups for one in group.speeds} <= {model}
        assert not size or max(size) / min(size) < SAME_FILE**2
        alike = [one for one in speeds_of_others() if one.model == model and one.system == spec and not one.depth]
        mid = [one for one in alike if size and min(size) <= one.file_gib <= max(size) and not one.drafts]
        assert not mid or any(group.same for group in groups)


def test_the_same_card_comes_first() -> None:
    case = case_of(
        load_model("gpt-oss-120b"), load_machine("rtx-3090 + ryzen-5950x + ddr4-3200x2 + 64GiB"), workload=None
    )
    first = nearest(parse_system("placed"), case)[0]
    assert "3090" in first.on
    assert first.same
    assert all(math.isfinite(one.tok_s) and one.url.startswith("https://") for one in first.speeds)
