"""No speed that cannot be: on every preset, whatever the model, policy and execution model.

The bounds are worked out here from bytes alone. Memory streams what is computed at the rates of the GPU and the CPU
together, at best; and what memory cannot hold comes from storage at least once, at the best rate of its reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import cycle, pairwise

import numpy as np
import pytest

from flashmoe_sim import api
from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.geometry.named import named_models
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.machines.table import PRESETS
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.residency.replay import Replayed, replay
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.sweep.plan import plan_setups
from flashmoe_sim.timeline.assemble import Conditions, DoesNotFit, price, weigh
from flashmoe_sim.timeline.from_rates import made_work, page_cache_share
from flashmoe_sim.timeline.from_replay import time_replay
from flashmoe_sim.timeline.models.base import ExecutionModel
from flashmoe_sim.timeline.models.table import EXECUTION_MODELS, parse_execution
from flashmoe_sim.timeline.run import simulate
from flashmoe_sim.trace.cut import cut

GIB = 2**30
ROUNDING = 1 + 1e-9
EVERY_MODEL = pytest.mark.parametrize("name", EXECUTION_MODELS)


@dataclass(frozen=True)
class Needs:
    """What a run asks of any machine: bytes streamed to compute, and distinct bytes among its experts."""

    streamed_bytes: float
    touched_bytes: float


def memory_bytes(machine: Machine) -> float:
    """RAM beside what the system takes, and the memory of a GPU that has its own."""
    own = machine.gpu.memory_gib.value if machine.gpu and machine.gpu.memory_gib and not machine.unified else 0.0
    return (machine.memory.ram_gib.value - machine.memory.reserve_gib.value + own) * GIB


def least_s(needs: Needs, machine: Machine, read_sizes: Sequence[int]) -> float:
    """Seconds below which no run is."""
    units = [unit.weights_gb_s for unit in (machine.gpu, machine.cpu) if unit is not None]
    streams = sum(rate.value for rate in units if rate is not None) * 1e9
    storage, lanes = machine.storage, range(1, int(machine.storage.lanes.value) + 1)
    reads = max(size * depth / storage.chunk_s(size, depth) for size in read_sizes for depth in lanes)
    missing = max(needs.touched_bytes - memory_bytes(machine), 0.0)
    return max(needs.streamed_bytes / streams, missing / reads)


@cache
def workload() -> Workload:
    whole = api.load_trace("gpt-oss-120b")
    return prepare(cut(whole.trace, steps=(0, 24)), whole.geometry)


@cache
def needs_of_trace() -> Needs:
    of, trace = workload(), workload().trace
    size = dict(zip(trace.layers, of.expert_bytes or (), strict=True))
    calls = [
        (int(layer), set(trace.expert[begin:end].tolist()))
        for layer, (begin, end) in zip(trace.layer, pairwise(trace.offset), strict=True)
    ]
    steps = trace.calls / len(trace.layers)
    streamed = sum(len(asked) * size[layer] for layer, asked in calls) + steps * of.geometry.streamed_bytes
    touched = {(layer, expert) for layer, asked in calls for expert in asked}
    return Needs(streamed, sum(size[layer] for layer, _ in touched))


@cache
def replays() -> list[Replayed]:
    """Every policy, under the contract that takes them all, in a bank of an eighth of the experts."""
    setups = plan_setups(16, policy="all", contract="atomic")
    return [replay(workload(), setup, record=True) for setup in setups]


@EVERY_MODEL
def test_every_policy_on_a_third_of_the_presets(name: str) -> None:
    execution, of = parse_execution(name), workload()
    assert of.geometry is not None
    sizes = [size for layer in of.layer_geometry for size in (layer.expert_bytes, *layer.family_bytes.values())]
    ran = 0
    for number, machine in enumerate(map(load_machine, PRESETS)):
        for replayed in replays()[number % 3 :: 3]:
            setup, held = replayed.setup, replayed.counts.resident_bytes or 0
            needed = (of.geometry.routed_bytes if name == "resident" else held) + (of.geometry.dense_bytes or 0)
            try:
                timed = time_replay(of, replayed, machine, Conditions(execution), interval=False)
            except DoesNotFit:
                own = machine.gpu.memory_gib.value if machine.gpu and machine.gpu.memory_gib else np.inf
                assert needed > min(memory_bytes(machine), own * GIB)
                continue
            except BadInput:
                assert refused(execution, machine, setup.policy.name)
                continue
            ran += 1
            assert not refused(execution, machine, setup.policy.name)
            assert needed <= memory_bytes(machine)
            least = least_s(needs_of_trace(), machine, sizes)
            assert timed.timing.total_s * ROUNDING >= least, (machine.name, setup.policy.spec)
    assert ran


def refused(execution: ExecutionModel, machine: Machine, policy: str) -> bool:
    """Whether a policy keeps a bank that the model does not have, or a unit is missing that has to compute."""
    no_bank = not execution.has_bank and policy != "demand"
    two_lanes = execution.in_place and execution.has_bank
    return no_bank or (two_lanes and machine.gpu is None) or (execution.in_place and machine.cpu is None)


@EVERY_MODEL
def test_every_named_model_on_a_third_of_the_presets(name: str) -> None:
    """Rates instead of traces: none, half or all requests miss a bank of an eighth of the experts, a model each."""
    execution, steps, ran = parse_execution(name), 4, 0
    first = list(EXECUTION_MODELS).index(name)
    for number, (model, share) in enumerate(zip(named_models(), cycle([0.0, 0.5, 1.0]), strict=False), first):
        geometry = load_model(model)
        assert geometry.top_k is not None
        conditions = Conditions(execution)
        layers = tuple(geometry.layers.values())
        weights = weigh(geometry, layers, conditions)
        if weights.dense_bytes is None:
            continue
        bank = Bank(slots=max(min(layer.n_experts for layer in layers) // 8, 1))
        used = sum(layer.expert_bytes for layer in layers) * geometry.top_k
        needs = Needs(steps * (used + sum(weights.dense_bytes)), 0.0)
        for machine in map(load_machine, list(PRESETS)[number % 3 :: 3]):
            try:
                cached = page_cache_share(geometry, weights, machine, conditions, bank, "here")
                costs = price(weights, machine, conditions, io_split=4)
            except BadInput:
                continue
            work = made_work(
                layers=len(layers),
                top_k=geometry.top_k,
                misses_per_call=share * geometry.top_k,
                page_cache_share=cached,
                steps=steps,
            )
            ran += 1
            sizes = [size for layer in layers for size in (layer.expert_bytes, *layer.family_bytes.values())]
            per_row = np.bincount(work.row, work.misses - work.warm, len(layers))
            stored = float(per_row @ np.array([layer.expert_bytes for layer in layers], np.float64))
            # what a call reads from storage cannot be in memory, which is as full as page_cache_share has it
            least = least_s(needs, machine, sizes)
            if execution.reads:
                least = max(least, least_s(Needs(0.0, stored + memory_bytes(machine)), machine, sizes))
            assert simulate(work, costs, execution).total_s * ROUNDING >= least, (machine.name, model)
    assert ran
