"""Slot aliasing, as the runtime's traces, logs and texts show it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.trace.statistics import aliased_by_call
from native_bridge.engines.read import read_run

DATA = Path(__file__).parents[2] / "data"
RUNS = DATA / "runs"
WRITTEN: list[dict[str, Any]] = [
    json.loads(line) for line in (DATA / "aliasing" / "runs.jsonl").read_text().splitlines()
]
WHOLE_UNION = ("prose-temporal-bank16", "prose-temporal-bank24", "prose-predict-prev-bank24")


def written(**which: object) -> list[dict[str, Any]]:
    return [run for run in WRITTEN if all(run[key] == value for key, value in which.items())]


def aliased(run: str) -> int:
    return int(aliased_by_call(load_trace(RUNS / run / "trace.jsonl.gz")).sum())


@pytest.mark.parametrize("bank", [12, 16, 24, 32, 48, 64])
def test_runs_made_again_counted_the_same(bank: int) -> None:
    (run,) = written(bank=bank, ubatch=1, temperature=0.8)
    trace = load_trace(RUNS / f"prose-bank{bank}" / "trace.jsonl.gz")
    assert (run["calls"], run["aliased_refs"]) == (trace.calls, aliased(f"prose-bank{bank}"))


@pytest.mark.parametrize("run", WHOLE_UNION)
def test_what_is_prefetched_are_the_aliased_experts(run: str) -> None:
    assert read_run(RUNS / run).log.prefetched == aliased(run) > 0


def test_the_first_expert_of_a_call_is_never_aliased() -> None:
    log = read_run(RUNS / "prose-predict-top1-bank24").log
    assert (log.prefetched, aliased("prose-predict-top1-bank24")) == (0, 534)
    assert "predict-top1-prev" in log.lines


@pytest.mark.parametrize("temperature", [0, 0.8])
@pytest.mark.parametrize("ubatch", [1, 2, 4, 8])
def test_a_bank_of_every_expert_writes_what_stock_writes(temperature: float, ubatch: int) -> None:
    (stock,) = written(mode="stock", ubatch=ubatch, temperature=temperature)
    (full,) = written(bank=64, ubatch=ubatch, temperature=temperature)
    assert (full["text"], full["aliased_refs"]) == (stock["text"], 0)


def test_without_aliasing_the_text_is_the_same_and_with_much_of_it_another() -> None:
    for run in written(mode="slot-bank"):
        (stock,) = written(mode="stock", ubatch=run["ubatch"], temperature=run["temperature"])
        if run["text"] == stock["text"]:
            assert run["aliased_refs"] < 10
        else:
            assert run["aliased_refs"] > 0


@pytest.mark.parametrize("temperature", [0, 0.8])
def test_wider_micro_batches_alias_more(temperature: float) -> None:
    shares = [run["aliased_refs"] / run["requests"] for run in written(bank=40, temperature=temperature)]
    assert shares == sorted(set(shares))
    assert len(shares) == 4
