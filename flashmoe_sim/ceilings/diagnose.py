"""Is it the policy or the working set? All questions about one setup, and one verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from flashmoe_sim.ceilings.gap import Gap, HalfGap, MissSplit, gap_to_min, half_gap, split_misses
from flashmoe_sim.ceilings.larger import LargerBank, larger_bank, most_tries
from flashmoe_sim.ceilings.popularity import Nulls, Stationarity, nulls_of, stationarity_of
from flashmoe_sim.ceilings.regime import Cliff, Regime, cliff_of, regime_of
from flashmoe_sim.io.errors import Unsupported
from flashmoe_sim.notebook import InNotebook
from flashmoe_sim.policies.base import EvictingPolicy
from flashmoe_sim.prefetchers.none import NoPrefetch
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.workload import Setup, Workload

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
    verdict: MissVerdict
    regime: Regime
    cliff: Cliff | None
    nulls: Nulls
    stationarity: Stationarity | None
    split: MissSplit
    gap: Gap
    lookahead: HalfGap | None
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


class _Replays:
    """Counts the replays of a diagnosis part by part, of at most so many in each."""

    def __init__(self, parts: Sequence[int], progress: Callable[[int, int], None] | None) -> None:
        self._done, self._total, self._ends = 0, sum(parts), accumulate(parts)
        self._progress = progress

    def one(self) -> None:
        self._tell(self._done + 1)

    def part(self) -> None:
        """A part is over, however many it took."""
        self._tell(next(self._ends))

    def _tell(self, done: int) -> None:
        self._done = done
        if self._progress:
            self._progress(done, self._total)


def diagnose(
    workload: Workload, setup: Setup, *, seed: int = 1, progress: Callable[[int, int], None] | None = None
) -> Diagnosis:
    """Explain what `setup` misses on the workload, and what would help.

    A pooled policy has one bank for all layers, whatever the scope.
    seed: of the null traces. progress: called with the replays done and the most there can be.
    Raises BadInput for a setup with a predictor, or with a bank that does not fit the model or hold the largest call.
    """
    if not isinstance(setup.prefetch, NoPrefetch):
        raise Unsupported(f"predictor {setup.prefetch.name}: a diagnosis is of a policy alone; leave the predictor out")
    if setup.policy.pooled:
        setup = replace(setup, scope="global")
    searches = (most_tries(max(workload.n_experts)), most_tries(len(np.unique(workload.trace.steps))))
    replays = _Replays((1, 2, *searches, 2, 4), progress)
    own = replay(workload, setup, record=not isinstance(setup.policy, EvictingPolicy))
    replays.part()
    total = own.counts.total()
    gap = gap_to_min(workload, own)
    replays.part()
    split = split_misses(workload, own, gap)
    cliff = cliff_of(workload, setup)
    larger = larger_bank(workload, own, replayed=replays.one)
    replays.part()
    lookahead = half_gap(workload, setup, gap, replayed=replays.one)
    replays.part()
    nulls = nulls_of(workload, setup, hit_rate=total["hit_rate"], seed=seed)
    replays.part()
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
        nulls=nulls,
        stationarity=stationarity_of(workload, setup),
        split=split,
        gap=gap,
        lookahead=lookahead,
        larger=larger,
    )


MOST = 0.5
MANY_ALIASED = 0.01


@dataclass(frozen=True)
class MissVerdict:
    """kind: the first that applies. text: one or two sentences with the numbers.

    `none`: nothing is missed.
    `aliasing`: 1% of the requests or more are aliased.
    `cliff`: one bank for all layers holds less than a token cycle, and the same policy hits more than twice as much
        with the same memory in banks per layer.
    `first-uses`: at least half of the misses are compulsory. Here and below, misses changed by aliasing are left out,
        and experts loaded ahead count as missed. `unknown`: the optimum is unknown.
    `policy`, `working-set`: at least half are the policy's, or capacity.
    `mixed`: no part has half.

    If the bank has aliased references, the text of any verdict ends with them.
    """

    kind: str
    text: str


def verdict_of(
    setup: Setup,
    total: dict[str, Any],
    split: MissSplit,
    gap: Gap,
    cliff: Cliff | None,
    larger: LargerBank,
    lookahead: HalfGap | None,
) -> MissVerdict:
    """Judge by the answers to all questions; total: the counts of the setup."""
    if not split.misses:
        return MissVerdict("none", "Nothing is missed.")
    kind, text = _cause(setup, split, gap, larger, lookahead)
    if cliff is not None and cliff.below and (cliff.layer_hit_rate or 0) > 2 * total["hit_rate"]:
        kind, text = "cliff", _cliff(setup, total, cliff)
    if not split.aliased_refs:
        return MissVerdict(kind, text)
    aliasing = _aliasing(total, larger)
    if split.aliased_refs >= MANY_ALIASED * total["requests"]:
        return MissVerdict("aliasing", f"{aliasing} {text}")
    return MissVerdict(kind, f"{text} {aliasing}")


def _cause(setup: Setup, split: MissSplit, gap: Gap, larger: LargerBank, lookahead: HalfGap | None) -> tuple[str, str]:
    missed = f"{gap.policy:,} misses" if not gap.loaded_ahead else f"{gap.policy:,} experts missed or loaded ahead"
    if gap.contract != setup.contract:
        missed += f" (under {gap.contract})"
    if split.compulsory >= MOST * gap.policy:
        return "first-uses", (
            f"{split.compulsory:,} of {missed} are first uses, which no policy avoids in a bank that starts empty; "
            "loading before the run or prefetching does, and a longer run has a smaller share of them."
        )
    if split.capacity is None or split.policy is None:
        return "unknown", (
            f"{split.compulsory:,} of {missed} are first uses; the policy's share of the rest is unknown if experts of "
            "different sizes share a bank of bytes. Use a bank for each layer, or one in slots."
        )
    more = f"--bank {larger.halves} halves the misses of {setup.policy.spec}"
    if larger.halves is None:
        more = f"no bank halves the misses: {larger.full_misses:,} remain with every expert in it"
    share = f"{split.policy / gap.policy:.0%}"
    if split.policy >= MOST * gap.policy:
        assert gap.victim_choice is not None
        assert gap.admission is not None
        by = "its choice of victims" if gap.victim_choice >= gap.admission else "declining experts that are used late"
        ahead = ""
        if lookahead is not None:
            steps = "step" if lookahead.steps == 1 else f"{lookahead.steps:,} steps"
            ahead = f"; a policy that sees only the next {steps} gets half of what better victims gain"
        return "policy", f"min in the same bank would avoid {share} of {missed}, mostly by {by}{ahead}."
    if split.capacity >= MOST * gap.policy:
        return "working-set", (
            f"Of {missed}, {gap.minimum:,} remain under the optimum (min): a better policy avoids {share} at most; "
            f"{more}."
        )
    return "mixed", (
        f"Of {missed}, {split.compulsory:,} are first uses, {split.capacity:,} more are missed by min too, and "
        f"{split.policy:,} are the policy's; {more}."
    )


def _cliff(setup: Setup, total: dict[str, Any], cliff: Cliff) -> str:
    unit = "slots" if setup.bank.in_slots or setup.fixed_slots else "bytes"
    return (
        f"One bank of {cliff.bank:,} {unit} for all layers holds less than the {cliff.cycle:,} of one token, and hits "
        f"{total['hit_rate']:.1%}: experts are evicted before their layer comes round again. --bank {cliff.enough} "
        f"holds them; a bank for each layer hits {cliff.layer_hit_rate:.1%} with the same memory."
    )


def _aliasing(total: dict[str, Any], larger: LargerBank) -> str:
    where = f"none are at --bank {larger.unaliased}" if larger.unaliased else "--contract protected avoids it"
    return (
        f"Slot aliasing: {total['aliased_refs']:,} requests ({total['aliased_refs'] / total['requests']:.1%}) are "
        f"computed with the weights of another expert; {where}."
    )
