"""How replay time grows with tokens, layers and bank sizes, for every policy that runs under the contract atomic.

Run it with `python -m tests.benchmarks.bench_growth`. It prints, for every policy, nanoseconds per reference and bank
size, and for each axis the exponent of its growth: the slope of log time over log size, 1 if time is proportional
and 0 if all bank sizes come from one pass. Times are CPU seconds of one thread, the least of a few rounds after one
that compiles and fills caches. The last lines are a whole sweep of all these policies on one core, scaled up from the
longest of the short traces; `--full` measures it instead.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np

from flashmoe_sim.policies.bank import Bank, parse_banks
from flashmoe_sim.policies.table import POLICIES, parse_policy
from flashmoe_sim.residency.many import plan_jobs
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.residency.workload import Workload
from tests.benchmarks.bench_replay import TOP_K, router

ROUNDS = 3
TOKENS = (2_000, 4_000, 8_000, 16_000)
LAYERS = (2, 4, 8, 16)
SIZES = (2, 4, 8, 16)
FEW_LAYERS, FEW_TOKENS = LAYERS[0], TOKENS[0]
FULL_TOKENS, FULL_LAYERS, FULL_BANKS, GOAL_SECONDS = 12_000, 60, "16..256", 60
CONTRACT = "atomic"


def policies() -> list[str]:
    return [name for name, policy in POLICIES.items() if CONTRACT in policy.contracts]


def once(workload: Workload, policy: str, banks: Sequence[Bank]) -> float:
    """CPU seconds of one thread for all banks, with the passes shared as a sweep shares them."""
    setups = [Setup(bank, parse_policy(policy), CONTRACT) for bank in banks]
    begin = time.thread_time()
    for job in plan_jobs(workload, setups):
        job()
    return time.thread_time() - begin


def seconds(workload: Workload, policy: str, banks: Sequence[Bank]) -> float:
    """The least of a few runs, after one that is not counted."""
    once(workload, policy, banks)
    return min(once(workload, policy, banks) for _ in range(ROUNDS))


def exponent(sizes: Sequence[int], times: Sequence[float]) -> float:
    """The slope of a straight line through the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def spread(number: int) -> list[Bank]:
    """That many bank sizes, evenly over 16 to 256: their mean is always 136."""
    return [Bank(slots=round(16 + (place + 0.5) * 240 / number)) for place in range(number)]


def growth() -> dict[str, float]:
    """Print a row per policy; returns the CPU seconds per reference of each at the banks of the whole sweep."""
    banks = parse_banks(FULL_BANKS)
    longer = [Workload(router(tokens, layers=FEW_LAYERS), None) for tokens in TOKENS]
    deeper = [Workload(router(FEW_TOKENS, layers=layers), None) for layers in LAYERS]
    largest = longer[-1].trace.refs
    print(f"contract {CONTRACT}, banks {FULL_BANKS}; exponents over {TOKENS[0]:,} to {TOKENS[-1]:,} tokens, ", end="")
    print(f"{LAYERS[0]} to {LAYERS[-1]} layers, {SIZES[0]} to {SIZES[-1]} bank sizes")
    print(f"{'policy':20}{'ns/ref/size':>12}{'tokens':>9}{'layers':>9}{'sizes':>9}")
    each, logs = {}, []
    for policy in policies():
        by_tokens = [seconds(workload, policy, banks) for workload in longer]
        by_layers = [seconds(workload, policy, banks) for workload in deeper]
        by_sizes = [seconds(longer[1], policy, spread(number)) for number in SIZES]
        each[policy] = by_tokens[-1] / largest
        slopes = (exponent(TOKENS, by_tokens), exponent(LAYERS, by_layers), exponent(SIZES, by_sizes))
        logs.append((by_tokens, by_layers, by_sizes))
        print(f"{policy:20}{each[policy] / len(banks) * 1e9:12.1f}" + "".join(f"{slope:9.2f}" for slope in slopes))
    together = [np.sum(times, axis=0).tolist() for times in zip(*logs, strict=True)]
    slopes = [exponent(axis, times) for axis, times in zip((TOKENS, LAYERS, SIZES), together, strict=True)]
    mean = sum(each.values()) / len(each) / len(banks) * 1e9
    print(f"{'all together':20}{mean:12.1f}" + "".join(f"{slope:9.2f}" for slope in slopes))
    return each


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--full", action="store_true", help="run the whole sweep instead of scaling it up")
    full = parser.parse_args().full
    each, banks = growth(), parse_banks(FULL_BANKS)
    if full:
        workload = Workload(router(FULL_TOKENS, layers=FULL_LAYERS, seed=2), None)
        times = {policy: once(workload, policy, banks) for policy in each}  # the first also cuts the trace into pools
    else:
        times = {policy: FULL_TOKENS * FULL_LAYERS * TOP_K * per_reference for policy, per_reference in each.items()}
    slowest = sorted(times, key=times.__getitem__, reverse=True)[:3]
    print(
        f"\n{len(each)} policies x {len(banks)} sizes on {FULL_TOKENS:,} tokens x {FULL_LAYERS} layers, one core, "
        f"{'measured' if full else 'scaled up'}: {sum(times.values()):.1f} s   goal {GOAL_SECONDS} s"
    )
    print("  of that " + ", ".join(f"{policy} {times[policy]:.1f} s" for policy in slowest))


if __name__ == "__main__":
    main()
