"""The setups to compare with: other policies in the same banks, on the same calls."""

from __future__ import annotations

from dataclasses import replace

from flashmoe_sim.policies.base import EvictingPolicy, Policy, ScheduledPolicy
from flashmoe_sim.policies.min_ import Min
from flashmoe_sim.prefetchers.none import NoPrefetch
from flashmoe_sim.residency.workload import Setup, Workload


def ceiling_setup(workload: Workload, setup: Setup) -> Setup | None:
    """The setup of the best possible policy in the same banks: min with bypass, with requests of the same meaning.

    None for a bank in bytes shared by experts of different sizes, for which no fast way to the optimum is known.
    """
    if not setup.bank.in_slots and shared_by_unequal_experts(workload, setup):
        return None
    return comparable_setup(setup, Min())


def shared_by_unequal_experts(workload: Workload, setup: Setup) -> bool:
    """Whether one bank serves layers whose experts differ in size."""
    return setup.scope == "global" and len(set(workload.expert_bytes or ())) > 1


def comparable_setup(setup: Setup, policy: Policy) -> Setup:
    """The setup that counts `policy` for comparison with `setup`.

    It is event-atomic, which accepts calls of any size, or sequential if `setup` is, so that requests mean the same.
    Both begin with the same experts.
    """
    if isinstance(policy, EvictingPolicy) and isinstance(setup.policy, EvictingPolicy) and not policy.sees:
        policy = replace(policy, warm=setup.policy.warm)
    contract = "sequential" if setup.contract == "sequential" else "atomic"
    return replace(setup, policy=policy, contract=contract, prefetch=NoPrefetch())


def optimum_known(workload: Workload, setup: Setup) -> bool:
    """Whether `min` in these banks bounds the hits of `setup`'s policy.

    It does not if experts of different sizes share a bank in bytes, nor for a pooled policy, which measures even a bank
    of slots in bytes, nor for one that shares the banks of all layers out by use.
    """
    if setup.scope == "layer" and setup.policy.by_budget and isinstance(setup.policy, ScheduledPolicy):
        return False
    in_bytes = not setup.bank.in_slots or setup.policy.pooled
    return not (in_bytes and shared_by_unequal_experts(workload, setup))
