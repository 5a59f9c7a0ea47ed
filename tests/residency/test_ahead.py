"""Predictions as the replay loops take them, and how right they were, against the plain twin."""

from __future__ import annotations

import numpy as np
import pytest

from flashmoe_sim.policies.base import NEVER
from flashmoe_sim.prefetchers.base import Predictions
from flashmoe_sim.prefetchers.table import WITHOUT_FILE, parse_prefetcher
from flashmoe_sim.residency import tally
from flashmoe_sim.residency.ahead import by_pool, compare
from flashmoe_sim.residency.workload import prepare
from tests.prefetchers import naive
from tests.prefetchers.test_twins import random_trace
from tests.residency.builders import run, totals, trace_of
from tests.residency.compare import workload_of

SPECS = [*WITHOUT_FILE, "oracle-w:steps=2", "synthetic:extra=3:steps=3", "eam:reach=2"]


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("scope", ["layer", "global"])
def test_predictions_by_pool(spec: str, scope: str) -> None:
    """Every prediction stands before the right call of its pool, with its experts and where each is used next."""
    for seed in range(20):
        workload = prepare(random_trace(seed))
        trace, predictor = workload.trace, parse_prefetcher(spec)
        calls, made = naive.seen_calls(trace), naive.predictions(predictor, trace)
        uses = naive.next_uses(calls, made)
        keys = [(layer, expert) for layer in trace.layers for expert in range(trace.n_experts[layer])]
        pools = workload.pools(scope)
        for number, (pool, ahead) in enumerate(
            zip(pools, by_pool(predictor.predict(trace), pools, len(trace.layers)), strict=True)
        ):
            own = [
                (after, layer, experts, use)
                for (after, layer, experts), use in zip(made, uses, strict=True)
                if scope == "global" or layer == trace.layers[number]
            ]
            found, upcoming = [], []
            for i in range(len(ahead.row)):
                of_this = slice(ahead.offset[i], ahead.offset[i + 1])
                layer = trace.layers[ahead.row[i]]
                named = [keys[key] if scope == "global" else (layer, int(key)) for key in ahead.key[of_this]]
                assert all(one == layer for one, _ in named)
                after = set(ahead.after[of_this].tolist()) or {own[i][0]}
                found += [(one, layer, [expert for _, expert in named]) for one in after]
                for reference in ahead.upcoming[of_this]:
                    place = None if reference == NEVER else int(pool.reference[reference])
                    upcoming.append(place)
            assert found == [one[:3] for one in own]
            expected = [use and int(trace.offset[use[0]]) + use[1] for *_, of_one in own for use in of_one]
            assert upcoming == expected
            assert ahead.turn[0] == 0
            assert ahead.turn[-1] == len(own)
            for place in range(len(pool.call) + 1):
                before = int(pool.call[place]) if place < len(pool.call) else trace.calls
                since = int(pool.call[place - 1]) if place else -1
                own_turn = ahead.after[ahead.offset[ahead.turn[place]] : ahead.offset[ahead.turn[place + 1]]]
                assert ((own_turn >= since) & (own_turn < before)).all()


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("scope", ["layer", "global"])
def test_precision_and_recall(spec: str, scope: str) -> None:
    for seed in range(20):
        workload = prepare(random_trace(seed))
        trace, predictor = workload.trace, parse_prefetcher(spec)
        calls, made = naive.seen_calls(trace), naive.predictions(predictor, trace)
        targets = range(len(calls)) if predictor.hindsight else None
        twin = naive.accuracy(calls, made, targets)
        counts = run(workload, 1, prefetch=spec, scope=scope).counts
        for row, counted, layer in zip(counts.by_layer(), counts.table, trace.layers, strict=True):
            expected = twin[layer]
            assert (counted[tally.PREDICTED], counted[tally.PREDICTED_RIGHT]) == (expected.predicted, expected.right)
            requests = sum(len(set(call.experts)) for call in calls if call.layer == layer)
            predicted, right = expected.predicted, expected.right
            assert row["prefetch_precision"] == (right / predicted if predicted else None)
            assert row["prefetch_recall"] == (right / requests if predicted and requests else None)


def test_the_latest_prediction_counts_unless_a_call_is_named() -> None:
    """Before the second call of layer 0, {1} and then {2, 3} are predicted; the call requests 1 and 2.

    The latest alone is compared: one of its two experts is right, and so is one of the call's two. The first call had
    none. Where they name their calls, {1} is compared with that call and {2, 3} with the first, which requests 0.
    """
    trace = trace_of([(0, [0], 1), (1, [0], 1), (0, [1, 2], 1)], 4)
    after, row = np.array([0, 1]), np.array([0, 0], np.int32)
    offset, expert = np.array([0, 1, 3]), np.array([1, 2, 3], np.int16)
    for target, predicted, right in ((None, 2, 1), (np.array([2, 0]), 1 + 2, 1)):
        workload = prepare(trace)
        predictions = Predictions(after, row, offset, expert, target)
        for pools in (workload.layer_pools, workload.global_pools):
            ahead = by_pool(predictions, pools, 2)
            counts = np.zeros((2, tally.N_COLUMNS), np.int64)
            for pool, one in zip(pools, ahead, strict=True):
                compare(pool.key, pool.offset, pool.row, one.meant, one.offset, one.key, pool.keys, counts)
            assert counts[:, tally.PREDICTED].tolist() == [predicted, 0]
            assert counts[:, tally.PREDICTED_RIGHT].tolist() == [right, 0]


def test_a_prediction_never_gives_up_what_it_names_itself() -> None:
    """0 is read first and 1 beside it. After the second call 2 and 0 are named: 2 takes the place of 1, not of 0."""
    workload = workload_of([(0, [0], 1), (0, [1], 1), (0, [2, 0], 1)], {0: 4})
    for contract in ("protected", "atomic"):
        counted = totals(run(workload, 2, "lru", contract, prefetch="oracle-1"))
        assert (counted["prefetch_issued"], counted["misses"]) == (3, 0)
