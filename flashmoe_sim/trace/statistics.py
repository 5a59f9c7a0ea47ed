"""Statistics of a trace: how wide its calls are, how skewed its experts, how soon they recur, how hot they stay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import Incomplete, OutOfRange
from flashmoe_sim.notebook import InNotebook
from flashmoe_sim.trace.check import largest_experts
from flashmoe_sim.trace.counting import LayerCounts, count_aliased, count_requests, fresh
from flashmoe_sim.trace.long_traces import parts_of
from flashmoe_sim.trace.phases import distinct_steps, find_phases
from flashmoe_sim.trace.routing import PHASE_PROMPT, RoutingTrace, blocks
from flashmoe_sim.trace.seen import QUESTIONS, SEEN, has

if TYPE_CHECKING:
    import polars


@dataclass(frozen=True)
class UnionSizes:
    """Distinct experts of a routed call, over the calls with tokens; zeros if there are none."""

    mean: float
    p50: int
    p99: int
    max: int


@dataclass(frozen=True)
class ReuseDistances:
    """Reuse distances of repeated requests (see `count_reuse`): an LRU bank of C slots hits those below C.

    The quantiles are None if nothing was requested twice. first_uses: requests that have no distance.
    """

    p50: int | None
    p90: int | None
    p99: int | None
    first_uses: int


@dataclass(frozen=True)
class LayerStatistics:
    """One layer. requests: distinct experts, summed over the calls. distinct: experts that occur at all.

    top_decile_share: share of the requests that go to the most requested 10% of the layer's experts (rounded up).
    normalised_entropy: of the requests over the layer's experts; 1 is uniform.
    overlap: share of a token's experts that the layer's previous token also used; None without consecutive tokens.
    """

    layer: int
    calls: int
    refs: int
    requests: int
    n_experts: int
    distinct: int
    union: UnionSizes
    top_decile_share: float
    normalised_entropy: float
    reuse: ReuseDistances
    overlap: float | None


@dataclass(frozen=True)
class BankUse:
    """The load on a bank size: union / slots over the calls with tokens, and calls whose union exceeds the slots."""

    slots: int
    union_over_slots_p50: float
    union_over_slots_p99: float
    union_over_slots_max: float
    calls_over: int


@dataclass(frozen=True, repr=False)
class TraceStatistics(InNotebook):
    """A whole trace; shares and entropy are means over the layers, weighted by requests.

    steps: None if they were not counted.
    aliased_refs: distinct experts of a call whose slot belongs to another one; None if no slots were recorded.
    prompt_share: share of the tokens that are prompt; None if unknown. phases_recorded: whether the phases were
    recorded rather than inferred. seen: what policies can see in the trace, and allows: what can be asked of it, both
    by the names of trace/seen.py.
    """

    calls: int
    refs: int
    requests: int
    tokens: int
    steps: int | None
    top_k: int
    n_experts_known: bool
    union: UnionSizes
    top_decile_share: float
    normalised_entropy: float
    reuse: ReuseDistances
    overlap: float | None
    aliased_refs: int | None
    prompt_share: float | None
    phases_recorded: bool
    seen: tuple[str, ...]
    allows: tuple[str, ...]
    banks: tuple[BankUse, ...]
    layers: tuple[LayerStatistics, ...]

    @property
    def heading(self) -> str:
        steps = "" if self.steps is None else f" in {self.steps:,} steps"
        return (
            f"{self.tokens:,} tokens: {self.calls:,} calls of {len(self.layers)} layers{steps}, top-{self.top_k or '?'}"
        )

    def table(self) -> polars.DataFrame:
        """A row per layer, with the unions and reuse distances as `union_max` and so on."""
        import polars

        return polars.DataFrame([_flat(asdict(layer)) for layer in self.layers])


def _flat(fields: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        flat |= {f"{name}_{part}": one for part, one in value.items()} if isinstance(value, dict) else {name: value}
    return flat


def inspect(
    trace: RoutingTrace, *, banks: Sequence[int] = (), progress: Callable[[int, int], None] | None = None
) -> TraceStatistics:
    """Exact statistics of a trace; banks: bank sizes in slots to compare the unions with.

    progress: called as calls are counted with how many are done, and of how many.
    Raises BadInput for a trace without calls or a bank smaller than 1.
    """
    check_asked(trace.name, trace.calls, banks)
    counted = count_layers(trace, progress)
    layers = [_layer_statistics(one) for one in counted]
    unions, reuse = np.zeros((2, max(one.n_experts for one in counted) + 1), np.int64)
    for one in counted:
        unions[: len(one.unions)] += one.unions
        reuse[: len(one.reuse)] += one.reuse
    weights = np.array([layer.requests for layer in layers], dtype=np.float64)
    compared = sum(one.compared for one in counted)
    prompt_share, recorded = _prompt_share(trace, counted)
    return TraceStatistics(
        calls=trace.calls,
        refs=trace.refs,
        requests=sum(layer.requests for layer in layers),
        tokens=max(one.tokens for one in counted),
        steps=len(distinct_steps(trace)),
        top_k=trace.top_k,
        n_experts_known=trace.n_experts_known,
        union=_union_sizes(unions),
        top_decile_share=_mean([layer.top_decile_share for layer in layers], weights),
        normalised_entropy=_mean([layer.normalised_entropy for layer in layers], weights),
        reuse=_reuse_distances(reuse, sum(layer.reuse.first_uses for layer in layers)),
        overlap=sum(one.shared for one in counted) / compared if compared else None,
        aliased_refs=None if trace.slot is None else sum(int(aliased_by_call(one).sum()) for one in parts_of(trace)),
        prompt_share=prompt_share,
        phases_recorded=recorded,
        seen=tuple(name for name in SEEN if has(trace, name)),
        allows=tuple(question for question, needed in QUESTIONS.items() if has(trace, needed)),
        banks=tuple(_bank_use(unions, slots) for slots in banks),
        layers=tuple(layers),
    )


def count_layers(trace: RoutingTrace, progress: Callable[[int, int], None] | None = None) -> list[LayerCounts]:
    """The counts of every layer of a trace.

    progress: called as calls are counted with how many are done, and of how many.
    """
    largest, done = largest_experts(trace), 0
    layers = [LayerCounts(layer, max(trace.n_experts.get(layer, 0), largest[layer] + 1)) for layer in trace.layers]
    for part in parts_of(trace):
        for view, counted in zip(part.by_layer, layers, strict=True):
            counted.add(view, part.n_tokens[view.call])
            done += len(view.call)
            if progress:
                progress(done, trace.calls)
    return layers


def check_asked(name: str, calls: int, banks: Sequence[int]) -> None:
    """Raise BadInput for a trace without calls or a bank smaller than 1."""
    if not calls:
        raise Incomplete(f"{name or 'trace'}: has no routed calls; nothing to describe")
    if any(slots < 1 for slots in banks):
        raise OutOfRange(f"a bank of {min(banks)} slots; expected at least 1")


def _layer_statistics(counted: LayerCounts) -> LayerStatistics:
    return LayerStatistics(
        layer=counted.layer,
        calls=counted.calls,
        refs=counted.refs,
        requests=int(counted.requests.sum()),
        n_experts=counted.n_experts,
        distinct=int(np.count_nonzero(counted.requests)),
        union=_union_sizes(counted.unions),
        top_decile_share=top_decile_share(counted.requests),
        normalised_entropy=normalised_entropy(counted.requests),
        reuse=_reuse_distances(counted.reuse, counted.first_uses),
        overlap=counted.shared / counted.compared if counted.compared else None,
    )


def top_decile_share(requests: NDArray[np.int64]) -> float:
    """Share of the requests that go to the most requested 10% of the experts, rounded up to a whole expert."""
    total = int(requests.sum())
    top = -(-len(requests) // 10)
    return float(np.sort(requests)[-top:].sum() / total) if total else 0.0


def normalised_entropy(requests: NDArray[np.int64]) -> float:
    """Entropy of the requests over the experts, as a share of the largest possible: 1 is uniform, 0 a single expert."""
    total = int(requests.sum())
    if len(requests) < 2 or not total:
        return 1.0
    share = requests[requests > 0] / total
    return float(-(share * np.log(share)).sum() / np.log(len(requests)))


def aliased_by_call(trace: RoutingTrace) -> NDArray[np.int32]:
    """Per call, the distinct experts whose slot already belongs to another distinct expert of the call, i32 [calls].

    Each is computed with the other's weights. All zero if no slots were recorded.
    """
    aliased = np.zeros(trace.calls, dtype=np.int32)
    if trace.slot is not None and trace.refs:
        seen, taken = fresh(int(trace.expert.max()) + 1), fresh(max(int(trace.slot.max()), 0) + 1)
        count_aliased(trace.offset, trace.expert, trace.slot, seen, taken, aliased)
    return aliased


def union_by_call(trace: RoutingTrace) -> NDArray[np.int32]:
    """Distinct experts of every call, i32 [calls]."""
    union = np.zeros(trace.calls, dtype=np.int32)
    experts = int(trace.expert.max(initial=0)) + 1
    requests = np.zeros(experts, dtype=np.int64)
    count_requests(trace.offset, trace.expert, fresh(experts), fresh(experts), union, requests)
    return union


def _union_sizes(calls: NDArray[np.int64]) -> UnionSizes:
    """calls: i64 [experts + 1], calls by their distinct experts."""
    asking = calls.copy()
    asking[0] = 0
    total = int(asking.sum())
    if not total:
        return UnionSizes(0.0, 0, 0, 0)
    p50, p99 = (_quantile(asking, percent) for percent in (50, 99))
    mean = int(asking @ np.arange(len(asking))) / total
    return UnionSizes(mean=mean, p50=p50, p99=p99, max=int(np.flatnonzero(asking)[-1]))


def _quantile(histogram: NDArray[np.int64], percent: int) -> int:
    """The smallest value that at least this share of the counted values does not exceed."""
    upto = np.cumsum(histogram)
    return int(np.searchsorted(upto, -(-percent * int(upto[-1]) // 100)))


def _reuse_distances(histogram: NDArray[np.int64], first_uses: int) -> ReuseDistances:
    if not histogram.any():
        return ReuseDistances(None, None, None, first_uses)
    p50, p90, p99 = (_quantile(histogram, percent) for percent in (50, 90, 99))
    return ReuseDistances(p50, p90, p99, first_uses)


def _mean(values: list[float], weights: NDArray[np.float64]) -> float:
    return float(np.average(values, weights=weights)) if weights.sum() else 0.0


def _bank_use(calls: NDArray[np.int64], slots: int) -> BankUse:
    sizes = _union_sizes(calls)
    return BankUse(slots, sizes.p50 / slots, sizes.p99 / slots, sizes.max / slots, int(calls[slots + 1 :].sum()))


def _prompt_share(trace: RoutingTrace, counted: Sequence[LayerCounts]) -> tuple[float | None, bool]:
    """Share of prompt tokens in the layer that saw the most tokens; None if phases or prompt tokens are unknown."""
    phases = find_phases(trace)
    if phases is None:
        return None, False
    busiest = max(counted, key=lambda one: one.tokens)
    prompt_tokens = 0
    for block in blocks(trace.calls):
        prompt, tokens = phases.of_calls(trace, block) == PHASE_PROMPT, trace.n_tokens[block]
        if (tokens[prompt & trace.has_refs[block]] == 0).any():
            return None, phases.recorded
        prompt_tokens += int(tokens[prompt & (trace.layer[block] == busiest.layer)].sum())
    return (prompt_tokens / busiest.tokens if trace.tokens else None), phases.recorded


@dataclass(frozen=True, eq=False)
class Drift:
    """How hot sets change between windows of equal numbers of steps.

    first_step, last_step: i64 [windows], the steps of each window, counted from 0.
    of_first, of_previous: f64 [windows], the share of each window's hot set that was hot in the first window, and in
        the window before; 1 for the first window itself. chance: the expected share for two random sets of this size.
    """

    first_step: NDArray[np.int64]
    last_step: NDArray[np.int64]
    of_first: NDArray[np.float64]
    of_previous: NDArray[np.float64]
    chance: float


def hot_set_drift(trace: RoutingTrace, *, windows: int = 20) -> Drift:
    """Compare the hot sets of windows: the tenth of each layer's experts, rounded up, that a window requests most.

    Among experts requested equally often, those with lower numbers are hot; one that is never requested is not.
    Raises BadInput for fewer than 2 windows, and for a trace with fewer than 2 steps.
    """
    steps, step = np.unique(trace.steps, return_inverse=True)
    if windows < 2:
        raise OutOfRange(f"{windows} windows: expected at least 2")
    if len(steps) < 2:
        raise Incomplete(f"{trace.name or 'trace'}: has {len(steps)} steps; expected at least 2 to see a change")
    ends = np.linspace(0, len(steps), min(windows, len(steps)) + 1).astype(np.int64)
    sizes, with_first, with_previous = np.zeros((3, len(ends) - 1), np.int64)
    experts = hot_experts = 0
    for view in trace.by_layer:
        n_experts = max(trace.n_experts.get(view.layer, 0), int(view.expert.max(initial=0)) + 1)
        most = -(-n_experts // 10)
        experts, hot_experts = experts + n_experts, hot_experts + most
        bounds = np.searchsorted(step[view.call], ends)
        hot = np.zeros((len(ends) - 1, n_experts), np.bool_)
        for window, (begin, end) in enumerate(pairwise(bounds)):
            requests, union = np.zeros(n_experts, np.int64), np.zeros(end - begin, np.int32)
            offset = view.offset[begin : end + 1]
            count_requests(offset, view.expert, fresh(n_experts), fresh(n_experts), union, requests)
            hot[window, np.argsort(-requests, kind="stable")[:most]] = True
            hot[window] &= requests > 0
        sizes += hot.sum(axis=1)
        with_first += (hot & hot[0]).sum(axis=1)
        with_previous += (hot & np.concatenate([hot[:1], hot[:-1]])).sum(axis=1)
    sizes = np.maximum(sizes, 1)
    return Drift(ends[:-1], ends[1:] - 1, with_first / sizes, with_previous / sizes, hot_experts / experts)
