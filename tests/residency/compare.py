"""Whether a replay equals its plain twin in everything: counts, install stream, slots and contents."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from flashmoe_sim.io.errors import OutOfRange
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.hot_profile import request_starts
from flashmoe_sim.prefetchers.base import Prefetcher
from flashmoe_sim.prefetchers.table import parse_prefetcher
from flashmoe_sim.residency.replay import Replayed
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.trace.phases import find_phases
from flashmoe_sim.trace.routing import PHASE_PROMPT, RoutingTrace
from tests.policies.naive.hot import StepKinds
from tests.residency import naive
from tests.residency.builders import COLUMNS, Call, geometry_of, run, trace_of

STREAM = ("requests", "hits", "misses", "cold", "evictions", "aliased", "bypassed", "minor", "prefetch_issued")
FIXED_SLOTS = ("runtime", "protected")


def workload_of(
    calls: Sequence[Call], n_experts: Mapping[int, int], expert_bytes: Mapping[int, int] | None = None
) -> Workload:
    geometry = None if expert_bytes is None else geometry_of(expert_bytes, n_experts)
    return prepare(trace_of(calls, n_experts), geometry)


def assert_twins(
    workload: Workload,
    bank: Bank,
    policy: str,
    contract: str,
    *,
    scope: str = "layer",
    prefetch: str = "none",
) -> None:
    """The replay and its twin agree, or both refuse because a call does not fit."""
    trace = workload.trace
    layers = trace.layers
    expert_bytes = None if workload.expert_bytes is None else dict(zip(layers, workload.expert_bytes, strict=True))
    calls = calls_of(trace)
    predictions = predictions_of(parse_prefetcher(prefetch), trace)
    try:
        twin = naive.replay(
            calls,
            contract=contract,
            policy=policy,
            n_experts=trace.n_experts,
            slots=bank.slots,
            budget_bytes=bank.budget_bytes,
            expert_bytes=expert_bytes,
            scope=scope,
            predictions=predictions,
            request_starts=request_starts(trace).tolist(),
            kinds=kinds_of(trace),
        )
    except naive.Overflow:
        with pytest.raises(OutOfRange, match="slot-bank overflow") as refused:
            run(workload, bank, policy, contract, scope=scope, prefetch=prefetch)
        _assert_names_a_call(str(refused.value), calls)
        return
    result = run(workload, bank, policy, contract, scope=scope, prefetch=prefetch, record=True)
    _assert_equal(result, twin, trace, contract=contract, pinning=policy in naive.PINNING)
    unrecorded = run(workload, bank, policy, contract, scope=scope, prefetch=prefetch)
    assert unrecorded.slot is None
    assert unrecorded.stream is None
    assert unrecorded.hit is None
    assert np.array_equal(unrecorded.counts.table, result.counts.table)
    assert [keys.tolist() for keys in unrecorded.contents] == [keys.tolist() for keys in result.contents]


def _assert_names_a_call(message: str, calls: Sequence[Call]) -> None:
    """The error names a call that does not fit, its requests, the bank, and how many slots would do."""
    number, asked, holds, largest = map(
        int, re.search(r"call (\d+) of .* for (\d+) distinct .* holds (\d+): .* needs (\d+) slots", message).groups()
    )
    unions = [len(set(experts)) for _, experts, _ in calls]
    assert unions[number] == asked > holds
    assert largest == max(unions)


def _assert_equal(result: Replayed, twin: naive.Result, trace: RoutingTrace, *, contract: str, pinning: bool) -> None:
    layers = trace.layers
    counted = [{name: int(row[column]) for name, column in COLUMNS.items()} for row in result.counts.table]
    assert counted == [{name: twin.table[layer][name] for name in COLUMNS} for layer in layers]

    for name in STREAM:
        assert getattr(result.stream, name).tolist() == [call[name] for call in twin.stream], name

    ahead = result.stream.ahead
    layer = [layers[row] for row in ahead.row]
    in_bytes = not result.setup.bank.in_slots and contract == "atomic"  # of which `cold` is an estimate
    columns = ahead.after, layer, ahead.expert, ahead.used, [0] * len(layer) if in_bytes else ahead.cold
    found = zip(*(np.asarray(column).tolist() for column in columns), strict=True)
    expected = [[*read[:-1], 0] for read in twin.reads] if in_bytes else twin.reads
    assert sorted(map(list, found)) == sorted(expected)
    assert (np.diff(ahead.after) >= 0).all()

    if contract in FIXED_SLOTS and not pinning:
        assert result.slot.tolist() == [slot for call in twin.slots for slot in call]
    else:
        assert result.slot is None

    assert result.hit.tolist() == [hit for call in twin.hits for hit in call]

    experts = [(layer, expert) for layer in layers for expert in range(trace.n_experts[layer])]
    if result.setup.scope == "global":
        assert [experts[key] for key in result.contents[0]] == sorted(twin.contents[-1])
        assert len(result.contents) == 1
    else:
        found = [[(layer, key) for key in keys] for layer, keys in zip(layers, result.contents, strict=True)]
        assert found == [sorted(twin.contents[layer]) for layer in layers]


def predictions_of(predictor: Prefetcher, trace: RoutingTrace) -> list[tuple[int, int, list[int]]]:
    """Call after which, layer and experts of every prediction."""
    found = predictor.predict(trace)
    bounds = zip(found.offset[:-1], found.offset[1:], strict=True)
    experts = [found.expert[begin:end].tolist() for begin, end in bounds]
    return list(zip(found.after.tolist(), [trace.layers[row] for row in found.row], experts, strict=True))


def kinds_of(trace: RoutingTrace) -> StepKinds:
    """What a trace says of its steps."""
    phases = find_phases(trace)
    _, first = np.unique(trace.steps, return_index=True)
    text = () if trace.sequence is None else trace.sequence[first].tolist()
    return (
        StepKinds((phases.phase == PHASE_PROMPT).tolist(), text, phases.warm_up_steps)
        if phases
        else StepKinds((), text)
    )


def calls_of(trace: RoutingTrace) -> list[Call]:
    bounds = zip(trace.offset[:-1], trace.offset[1:], strict=True)
    experts = [trace.expert[begin:end].tolist() for begin, end in bounds]
    return list(zip(trace.layer.tolist(), experts, trace.n_tokens.tolist(), strict=True))
