"""What must hold of every predictor, on every trace."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

from flashmoe_sim.prefetchers.table import PREFETCHERS, WITHOUT_FILE, parse_prefetcher
from flashmoe_sim.residency import tally
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.trace.routing import RoutingTrace
from tests.prefetchers.test_twins import SPECS, random_trace
from tests.residency.builders import one_layer, random_calls, run, totals, trace_of
from tests.residency.compare import predictions_of
from tests.residency.test_twins import random_workload

SEEDS = range(12)
ORACLES = ("oracle-1", "oracle-w", "oracle-w:steps=2", "oracle-w:steps=5", "synthetic:recall=1.0:steps=3")
PREDICTING = [name for name in WITHOUT_FILE if name != "none"]


def accuracy(workload: Workload, spec: str) -> tuple[float | None, float | None]:
    """Precision and recall, which no bank has a say in."""
    row = run(workload, 1, prefetch=spec).counts.total()
    return row["prefetch_precision"], row["prefetch_recall"]


def cut_after(trace: RoutingTrace, call: int) -> RoutingTrace:
    """The trace as it stands when `call` has just been recorded."""
    end = int(trace.offset[call + 1])
    return trace.with_(
        layer=trace.layer[: call + 1],
        n_tokens=trace.n_tokens[: call + 1],
        offset=trace.offset[: call + 2],
        expert=trace.expert[:end],
        step=trace.steps[: call + 1],
    )


@pytest.mark.parametrize("spec", ORACLES)
def test_the_truth_is_all_right(spec: str) -> None:
    """From the first call on: what has no call before it is predicted before the run."""
    for seed in SEEDS:
        assert accuracy(prepare(random_trace(seed)), spec) == (1, 1)


@pytest.mark.parametrize("spec", [spec for spec in SPECS if not parse_prefetcher(spec).hindsight])
def test_no_predictor_sees_the_future(spec: str) -> None:
    """What it predicted by the end of a call is the same if nothing follows.

    What follows says only whether a step ends with the call; and the model, so that all layers must have been seen.
    """
    predictor = parse_prefetcher(spec)
    for seed in SEEDS:
        trace = random_trace(seed).with_(top_k=2)
        whole = predictions_of(predictor, trace)
        all_seen = max(np.flatnonzero(trace.layer == layer)[0] for layer in trace.layers)
        for call in range(all_seen, trace.calls):
            ends = call + 1 == trace.calls or trace.steps[call + 1] != trace.steps[call]
            past = [one for one in whole if one[0] < call + ends]
            cut = predictions_of(predictor, cut_after(trace, call))
            assert [one for one in cut if one[0] < call + ends] == past


def test_who_knows_the_future_says_so() -> None:
    assert {name for name in PREFETCHERS if PREFETCHERS[name].hindsight} == {"synthetic", "oracle-1", "oracle-w"}


def test_a_synthetic_predictor_of_the_whole_truth_is_the_oracle() -> None:
    for seed in SEEDS:
        for steps in (1, 2):
            workload = random_workload(seed)
            specs = (f"synthetic:recall=1.0:steps={steps}:seed={seed}", f"oracle-w:steps={steps}")
            drawn, true = (predictions_of(parse_prefetcher(spec), workload.trace) for spec in specs)
            assert drawn == [(after, layer, list(dict.fromkeys(experts))) for after, layer, experts in true]
            for slots in range(1, max(workload.n_experts) + 1):
                drawn, true = (run(workload, slots, prefetch=spec).counts.table for spec in specs)
                assert np.array_equal(drawn, true)


@pytest.mark.parametrize("recall", [0.05, 0.5, 0.9])
@pytest.mark.parametrize("extra", [0, 3])
def test_a_synthetic_predictor_is_as_good_as_asked(recall: float, extra: int) -> None:
    """Right ones are a binomial number of requests, and are allowed five of its standard deviations; wrong ones exact.

    The trace has 64 experts and 8 of them a call, so that there is always space for 3 wrong ones.
    """
    rng = np.random.default_rng(11)
    trace = trace_of(random_calls(rng, n_experts=64, layers=4, steps=300, width=8), 64)
    table = run(trace, 8, prefetch=f"synthetic:recall={recall}:extra={extra}").counts.table.sum(axis=0)
    requests, predicted, right = (int(table[n]) for n in (tally.REQUESTS, tally.PREDICTED, tally.PREDICTED_RIGHT))
    assert requests == 4 * 300 * 8
    assert abs(right - recall * requests) < 5 * sqrt(requests * recall * (1 - recall))
    assert predicted - right == 4 * 300 * extra


def test_wrong_experts_are_equally_likely() -> None:
    """Of 2,000 calls for expert 2 of five, each of the others is named first in a quarter: five deviations allowed."""
    trace = trace_of(one_layer([[2]] * 2000), 5)
    named = [experts[0] for _, _, experts in predictions_of(parse_prefetcher("synthetic:recall=0:extra=2"), trace)]
    assert set(named) == {0, 1, 3, 4}
    for expert in (0, 1, 3, 4):
        assert abs(named.count(expert) - 500) < 5 * sqrt(2000 * 1 / 4 * 3 / 4)


@pytest.mark.parametrize("prefetch", PREDICTING)
@pytest.mark.parametrize("contract", ["runtime", "protected", "atomic"])
def test_what_is_read_ahead_is_used_or_wasted(contract: str, prefetch: str) -> None:
    for seed in SEEDS:
        workload = random_workload(seed)
        least = 1 if contract == "atomic" else max(int(pool.requests.max()) for pool in workload.layer_pools)
        for slots in range(least, min(workload.n_experts) + 1):
            for scope in ("layer", "global"):
                row = totals(run(workload, slots, "lru", contract, prefetch=prefetch, scope=scope))
                assert row["prefetch_issued"] == row["prefetch_useful"] + row["prefetch_wasted"]
                assert row["prefetch_late"] <= row["prefetch_useful"] <= row["hits"]


@pytest.mark.parametrize("prefetch", PREDICTING)
def test_a_bank_of_everything_reads_each_expert_once(prefetch: str) -> None:
    """Nothing is evicted, so that demand misses and reads ahead together are the experts requested or predicted."""
    for seed in SEEDS:
        workload = random_workload(seed)
        trace = workload.trace
        asked = {
            (trace.layer[call], e)
            for call in range(trace.calls)
            for e in trace.expert[slice(*trace.offset[call : call + 2])]
        }
        named = {(layer, e) for _, layer, experts in predictions_of(parse_prefetcher(prefetch), trace) for e in experts}
        row = totals(run(workload, max(workload.n_experts), prefetch=prefetch))
        assert row["misses"] + row["prefetch_issued"] == len(asked | named)
        if prefetch in ("oracle-1", "oracle-w"):
            assert row["misses"] == 0


@pytest.mark.parametrize("contract", ["protected", "atomic"])
@pytest.mark.parametrize("scope", ["layer", "global"])
def test_the_next_call_read_ahead_misses_nothing(contract: str, scope: str) -> None:
    """In any bank that holds a call. Under `runtime` aliasing throws out what was just read, which is its repairs."""
    for seed in SEEDS:
        workload = random_workload(seed)
        largest = max(int(pool.requests.max()) for pool in workload.layer_pools)
        for slots in range(largest, min(workload.n_experts) + 1):
            row = totals(run(workload, slots, "lru", contract, prefetch="oracle-1", scope=scope))
            assert (row["misses"], row["prefetch_late"]) == (0, row["prefetch_issued"])
