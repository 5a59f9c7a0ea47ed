"""Every policy at every bank size, of layers of 8 to 512 experts: equal to its plain twin in everything.

Plain twins are slow: all of it takes hours of one core. `FLASHMOE_EVERY_SIZE=all` runs all of it, and a part of it
always runs: every size of 8 experts, and of the others those at which regions of a bank change their size.
"""

from __future__ import annotations

import os
from functools import cache

import numpy as np
import pytest

from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.residency.workload import Workload
from tests.residency.builders import random_calls
from tests.residency.compare import assert_twins, workload_of
from tests.residency.test_twins import PAIRS

ALL = os.environ.get("FLASHMOE_EVERY_SIZE") == "all"
EXPERTS = (8, 64, 128, 256, 384, 512) if ALL else (8, 128)
TOP_K = 4


@cache
def workload(n_experts: int) -> Workload:
    """One layer, enough calls to fill most of a bank of everything, and then as many again of fewer experts."""
    rng = np.random.default_rng(n_experts)
    steps = n_experts // TOP_K + 16
    calls = random_calls(rng, n_experts=n_experts, steps=steps, width=TOP_K)
    calls += random_calls(rng, n_experts=max(n_experts // 2, TOP_K), steps=steps // 2, width=TOP_K)
    return workload_of(calls, {0: n_experts})


def sizes(n_experts: int) -> list[int]:
    every = range(1, n_experts + 1)
    if n_experts == EXPERTS[0] or ALL:
        return list(every)
    return sorted({1, 2, 10, 20, n_experts - 1, n_experts} & set(every))


@pytest.mark.parametrize("n_experts", EXPERTS)
@pytest.mark.parametrize(("contract", "policy"), PAIRS)
def test_every_size(contract: str, policy: str, n_experts: int) -> None:
    for slots in sizes(n_experts):
        assert_twins(workload(n_experts), Bank(slots=slots), policy, contract)
