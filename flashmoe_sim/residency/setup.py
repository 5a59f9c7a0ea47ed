"""Everything beside the trace that determines the result of a replay."""

from __future__ import annotations

from dataclasses import dataclass, field

from flashmoe_sim.geometry.model import MAX_IO_SPLIT
from flashmoe_sim.io.errors import OutOfRange, Unsupported, unknown_name
from flashmoe_sim.io.notes import Note
from flashmoe_sim.policies.bank import Bank, Scope
from flashmoe_sim.policies.base import ALL_CONTRACTS, STAMPS, EvictingPolicy, Policy, ScheduledPolicy, check_kernels
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.prefetchers.base import PastOnly, Prefetcher
from flashmoe_sim.prefetchers.none import NoPrefetch

FIXED_SLOT_CONTRACTS = ("runtime", "protected")
MOST_COST_US = 1_000_000


@dataclass(frozen=True)
class Setup:
    """The configuration of one replay; the combination is checked when it is made.

    scope: one bank per layer, or one for all layers.
    io_split: the most chunks in which one tensor family of an expert is read (the runtime's `--moe-cache-io-split`).
    Raises BadInput for a policy or predictor that is undefined under the contract or lacks functions.
    """

    bank: Bank
    policy: Policy = field(default=Lru())
    contract: str = "protected"
    prefetch: Prefetcher = field(default=NoPrefetch())
    scope: Scope = "layer"
    io_split: int = 4

    def __post_init__(self) -> None:
        if self.contract not in ALL_CONTRACTS:
            raise unknown_name("contract", self.contract, ALL_CONTRACTS)
        if self.scope not in ("layer", "global"):
            raise unknown_name("scope", self.scope, ("layer", "global"))
        if reason := why_not(self.policy, self.contract, self.prefetch):
            raise Unsupported(reason)
        if isinstance(self.policy, EvictingPolicy):
            check_kernels(type(self.policy))
        for chosen in (self.policy, self.prefetch):
            if not 0 <= getattr(chosen, "cost_us", 0) <= MOST_COST_US:
                raise OutOfRange(f"{chosen.spec}: expected 0 to {MOST_COST_US:,} microseconds in a routed call")
        if not 1 <= self.io_split <= MAX_IO_SPLIT:
            raise OutOfRange(f"io-split {self.io_split}: expected 1 to {MAX_IO_SPLIT} chunks, as the runtime takes")

    @property
    def decide_s(self) -> float:
        """Host time of the decisions of a routed call."""
        return 1e-6 * (getattr(self.policy, "cost_us", 0.0) + self.prefetch.cost_us)

    @property
    def minor_share(self) -> float:
        """The share of its bytes that a miss of a minor expert reads."""
        rule = self.policy.minor_rule
        return 1.0 if rule is None else rule.read_share

    @property
    def fixed_slots(self) -> bool:
        """Whether the banks have a fixed number of slots, each of which fits any expert of the pool."""
        return isinstance(self.policy, EvictingPolicy) and self.contract in FIXED_SLOT_CONTRACTS


def why_not(policy: Policy, contract: str, prefetch: Prefetcher) -> Note | None:
    """Why these cannot be combined under the contract, with a code for the rule; None if they can."""
    for kind, chosen in (("policy", policy), ("predictor", prefetch)):
        if contract not in chosen.contracts:
            use = f"use --contract {' or '.join(chosen.contracts)}"
            text = f"{kind} {chosen.name} is undefined under the contract {contract}; {use}"
            return Note(f"{kind} under {contract}: {use}", text)
    if contract == "runtime" and isinstance(policy, EvictingPolicy) and policy.stamp != STAMPS[0]:
        return Note(
            "stamp",
            f"policy {policy.spec}: the runtime stamps experts in the order of their first reference; "
            "use --contract protected or atomic for another order",
        )
    if not isinstance(prefetch, NoPrefetch) and not isinstance(policy, EvictingPolicy):
        return Note("no installs", f"predictor {prefetch.name} cannot work: policy {policy.name} never installs a miss")
    if policy.sees and policy.reads_profile is not None:
        return Note(
            "sees",
            f"policy {policy.spec} sees the {policy.sees[0]} of each reference, which no profile has; leave out warm=",
        )
    return None


def why_not_on_disk(setup: Setup) -> Note | None:
    """Why a setup takes memory that grows with the length of a trace, with a code for the rule; None if it does not."""
    policy, prefetch = setup.policy, setup.prefetch
    instead = "leave out --in-chunks, or replay a part (`sim trace cut`)"
    if isinstance(policy, ScheduledPolicy):
        return Note("plan in chunks", f"policy {policy.spec} plans over all steps in memory; {instead}")
    if not isinstance(prefetch, NoPrefetch | PastOnly):
        return Note("predictor in chunks", f"predictor {prefetch.spec} keeps all predictions in memory; {instead}")
    return None
