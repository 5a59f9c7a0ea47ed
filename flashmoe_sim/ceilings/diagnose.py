"""Is it the policy or the working set? All questions about one setup, and one verdict."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from flashmoe_sim.ceilings.gap import Gap, gap_to_min
from flashmoe_sim.ceilings.larger import LargerBank, larger_bank
from flashmoe_sim.ceilings.lookahead import Lookahead, half_gap
from flashmoe_sim.ceilings.nulls import Nulls, nulls_of
from flashmoe_sim.ceilings.regime import Cliff, Regime, cliff_of, regime_of
from flashmoe_sim.ceilings.split import MissSplit, split_misses
from flashmoe_sim.ceilings.stationarity import Stationarity, stationarity_of
from flashmoe_sim.ceilings.verdict import Verdict, verdict_of
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.notebook import InNotebook
from flashmoe_sim.policies.base import EvictingPolicy
from flashmoe_sim.prefetchers.none import NoPrefetch
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.residency.workload import Workload

if TYPE_CHECKING:
    import polars


@dataclass(frozen=True, repr=False)
class Diagnosis(InNotebook):
    """What one setup misses on one trace, and why; None if a question has no answer.

    trace, policy, contract, scope, bank: what was diagnosed. hit_rate: hits / requests.
    cliff: only for one bank for all layers. lookahead: None if the policy leaves min:forced nothing to gain.
    """

    trace: str
    policy: str
    contract: str
    scope: str
    bank: str
    requests: int
    hits: int
    misses: int
    hit_rate: float
    verdict: Verdict
    regime: Regime
    cliff: Cliff | None
    nulls: Nulls
    stationarity: Stationarity | None
    split: MissSplit
    gap: Gap
    lookahead: Lookahead | None
    larger: LargerBank

    @property
    def heading(self) -> str:
        setup = f"{self.trace}: {self.policy}, bank {self.bank}, contract {self.contract}"
        return f"{setup}. {self.verdict.kind.replace('-', ' ')}: {self.verdict.text}"

    def table(self) -> polars.DataFrame:
        """The misses by their cause; `policy` is null if the optimum is not known."""
        import polars

        split = self.split
        causes = {
            "first uses": split.compulsory,
            "capacity": split.capacity,
            "policy": split.policy,
            "aliasing": split.conflict,
            "loaded ahead": -split.loaded_ahead,
            "all": self.misses,
        }
        return polars.DataFrame({"cause": list(causes), "misses": list(causes.values())})

    def to_dict(self) -> dict[str, Any]:
        """The same as nested dictionaries, as printed by `sim diagnose --json`."""
        return asdict(self)


def diagnose(workload: Workload, setup: Setup, *, seed: int = 1) -> Diagnosis:
    """Explain what `setup` misses on the workload, and what would help.

    A pooled policy has one bank for all layers, whatever the scope.
    seed: of the null traces.
    Raises BadInput for a setup with a predictor, or with a bank that does not fit the model or hold the largest call.
    """
    if not isinstance(setup.prefetch, NoPrefetch):
        raise BadInput(f"predictor {setup.prefetch.name}: a diagnosis is of a policy alone; leave the predictor out")
    if setup.policy.pooled:
        setup = replace(setup, scope="global")
    own = replay(workload, setup, record=not isinstance(setup.policy, EvictingPolicy))
    total = own.counts.total()
    gap = gap_to_min(workload, own)
    split = split_misses(workload, own, gap)
    cliff = cliff_of(workload, setup)
    larger = larger_bank(workload, own)
    lookahead = half_gap(workload, setup, gap)
    return Diagnosis(
        trace=workload.trace.name,
        policy=setup.policy.spec,
        contract=setup.contract,
        scope=setup.scope,
        bank=str(setup.bank),
        requests=total["requests"],
        hits=total["hits"],
        misses=total["misses"],
        hit_rate=total["hit_rate"],
        verdict=verdict_of(setup, total, split, gap, cliff, larger, lookahead),
        regime=regime_of(workload, setup),
        cliff=cliff,
        nulls=nulls_of(workload, setup, hit_rate=total["hit_rate"], seed=seed),
        stationarity=stationarity_of(workload, setup),
        split=split,
        gap=gap,
        lookahead=lookahead,
        larger=larger,
    )
