"""A faster part, and more RAM, is never slower: seeded checks on machines, models and setups drawn at random.

`python -m tests.timeline.faster 20905` makes that many, and prints those that broke.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from flashmoe_sim import api
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.machines.table import PRESETS
from flashmoe_sim.residency.replay import Replayed, replay
from flashmoe_sim.residency.workload import Setup, Workload, prepare
from flashmoe_sim.sweep.plan import plan_setup
from flashmoe_sim.timeline.assemble import Conditions
from flashmoe_sim.timeline.from_replay import time_replay
from flashmoe_sim.timeline.models.base import ExecutionModel
from flashmoe_sim.timeline.models.table import EXECUTION_MODELS, parse_execution
from flashmoe_sim.trace.cut import cut

SEED = 1
STEPS = 24
TRACES = ("gpt-oss-120b", "deepseek-v2-lite", "qwen3-30b-phone")
POLICIES = ("lru", "lfu-decay", "static", "hot-window", "min", "demand")
PREFETCHES = ("none", "none", "none", "oracle-1", "next-layer")
NOT_A_PART = ("storage.lanes", "storage.hot_share")  # more reads in flight share the drive
EXACT = 1 + 1e-9
# Reads beside computing slow it, all of it while any of them lasts: in a shorter time more, so that what is computed
# between two reads may end later by a hair.
BESIDE = 1 + 1e-3


@dataclass(frozen=True)
class Check:
    """One part of a machine made faster, and the seconds of a run before and after; `most` that it may take of them."""

    label: str
    before_s: float
    after_s: float
    most: float

    @property
    def holds(self) -> bool:
        return self.after_s <= self.before_s * self.most


def check(number: int) -> Check | None:
    """The check of that number; None if what was drawn does not go together."""
    rng = np.random.default_rng([SEED, number])
    trace, policy, prefetch = (str(rng.choice(names)) for names in (TRACES, POLICIES, PREFETCHES))
    share, contract = int(rng.choice([8, 4, 2])), str(rng.choice(["atomic", "protected"]))
    execution = parse_execution(str(rng.choice(list(EXECUTION_MODELS))))
    policy = policy if execution.has_bank else "demand"
    conditions = Conditions(execution, direct_io=bool(rng.random() < 0.2))
    machine = _machine(rng)
    path, faster = _faster(machine, rng)
    if machine == faster or _may_be_slower(execution, prefetch, path):
        return None
    try:
        source, _, replayed = _replayed(trace, policy, prefetch, share, contract)
        before, after = (
            time_replay(source, replayed, on, conditions, interval=False).timeline.total_s for on in (machine, faster)
        )
    except BadInput:
        return None
    was, is_now = (dict(on.quantities())[path].value for on in (machine, faster))
    label = f"{number}: {trace}, {policy}, {prefetch}, 1/{share}, {contract}, {execution.name}, {machine.name}, "
    label += f"{path} {was:g} to {is_now:g}"
    return Check(label, before, after, BESIDE if machine.unified and execution.beside_compute else EXACT)


def _machine(rng: np.random.Generator) -> Machine:
    """A preset, or one whose numbers are up to four times as large or as small."""
    machine: Machine = load_machine(str(rng.choice(PRESETS)))
    if rng.random() < 0.5:
        for path, quantity in machine.quantities():
            if path not in NOT_A_PART:
                machine = machine.varied(path, quantity.value * 4 ** rng.uniform(-1, 1))
    return machine


def _faster(machine: Machine, rng: np.random.Generator) -> tuple[str, Machine]:
    """One number of the machine made better by a little or by much."""
    known = {path: quantity.value for path, quantity in machine.quantities() if path not in NOT_A_PART}
    path, by = str(rng.choice(list(known))), float(rng.choice([1.05, 1.3, 2, 10, 1000]))
    less_is_better = path.endswith("_us") or path == "memory.reserve_gib"
    return path, machine.varied(path, known[path] / by if less_is_better else known[path] * by)


def _may_be_slower(execution: ExecutionModel, prefetch: str, path: str) -> bool:
    """Reads ahead in the background come earlier if a processor is faster, and then break off one that is under way."""
    return prefetch != "none" and execution.in_background and path.startswith(("gpu", "cpu", "host"))


@cache
def _workload(name: str) -> Workload:
    whole = api.load_trace(name)
    return prepare(cut(whole.trace, steps=(0, STEPS)), whole.geometry)


@cache
def _replayed(trace: str, policy: str, prefetch: str, share: int, contract: str) -> tuple[Workload, Setup, Replayed]:
    source: Any = _workload(trace)
    setup = plan_setup(min(source.n_experts) // share, policy=policy, contract=contract, prefetch=prefetch)
    return source, setup, replay(source, setup, record=True)


def main(checks: int) -> int:
    """Make that many checks, and print what broke."""
    made, broken, number = 0, 0, 0
    while made < checks:
        found = check(number)
        number += 1
        if found is None:
            continue
        made += 1
        if not found.holds:
            broken += 1
            print(
                f"{found.label}: {found.before_s:g} to {found.after_s:g} s, {found.after_s / found.before_s - 1:+.3g}"
            )
    print(f"{made} checks of {number} drawn, {broken} broken")
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
