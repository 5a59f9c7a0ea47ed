"""A hot cache filled from a profile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import ceil
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.content import hash_of
from flashmoe_sim.io.errors import Conflict, Incomplete
from flashmoe_sim.parameters import Choices, Limits
from flashmoe_sim.policies._perf_profile import LayerProfile, read_profile
from flashmoe_sim.policies.base import Candidates, ScheduledPolicy
from flashmoe_sim.trace.counting import count_requests
from flashmoe_sim.trace.phases import find_phases
from flashmoe_sim.trace.routing import PHASE_DECODE, PHASE_PROMPT, RoutingTrace

RANKED = ("flat", "balanced")
TIMED = ("pressure", "smooth", "time")
FILLS = ("none", "random")
FILL_SEED = 0x6D6F65
RANK, MOST_HITS = 1_000_000, 999_999
HOT_SHARE = 0.05
DRAWS = np.uint64(1 << 32)  # the numbers of std::mt19937


@dataclass(frozen=True)
class HotProfile(ScheduledPolicy):
    """Load a profile's best experts into one budget for all layers; the CPU computes misses.

    Experts are chosen by score, then layer, then number; one that does not fit is skipped. The first expert of a layer
    costs two slots, since each layer's cache has a spare slot that stays empty. Under either scope the budget is the
    total of all banks, rounded down to MiB if it is in bytes.

    profile: the JSON file, with the schema llama.cpp.moe_layer_opt_perf.v1 or llama.cpp.moe_layer_perf.v1. If empty:
    the requests of the trace itself, in hindsight and without times.

    weighting: how experts are scored: `flat`, `balanced`, `pressure`, `smooth` or `time`. With `flat`, the best of
    every layer come first, then the second best of each; `balanced` counts places from a layer's last, so that a layer
    comes earlier the more experts it uses. `pressure`, `smooth` and `time` multiply an expert's hits by a weight of its
    layer, add 5% of its hits in the hot cache, and round to a whole number. The weight follows the wait for the CPU
    (`pressure`), the same in a gentler form (`smooth`), or the time of the whole layer (`time`; its wait if the profile
    lacks that time).

    fill: what fills the remaining room: `none`, or `random`, all other experts in the system's fixed random order. The
    system left it empty before June 2026.

    curve: the strength of those weights, 0 to 1.

    update_rate: share of the residents that may be exchanged after each request, rounded up; 0: none. In each layer,
    the request's best absent experts are paired with the residents that they would displace, worst first; the pairs
    that gain most are exchanged, for equal gains those with the lower layer, then the lower expert. The request is
    scored by its own counts, with the weights of the profile. A request ends where another text begins (`sequence`),
    or, if the trace does not say, where a prompt follows decoding; after the last request nothing is exchanged.
    Exchanged experts count as prefetched.
    """

    name: ClassVar[str] = "hot-profile"
    ties: ClassVar[str] = "lower layer, then lower expert number"
    source: ClassVar[str] = "a fork of llama.cpp with --moe-hot-cache: its operating page and weighting"
    hindsight: ClassVar[bool] = True
    by_budget: ClassVar[bool] = True
    preloaded: ClassVar[bool] = True
    budget_unit: ClassVar[int] = 2**20
    limits: ClassVar[Limits] = {"curve": (0, 1), "update_rate": (0, 1)}
    choices: ClassVar[Choices] = {"weighting": RANKED + TIMED, "fill": FILLS}

    profile: str = ""
    weighting: str = "flat"
    curve: float = 0.5
    update_rate: float = 0.0
    fill: str = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        layers = self._layers  # read before anything runs
        if self.weighting in TIMED:
            needs = f"policy hot-profile: weighting={self.weighting} needs the times of a profile"
            if not self.profile:
                raise Incomplete(f"{needs}; give profile=FILE, or weighting=flat or balanced")
            if not any(map(self._measure, layers.values())):
                raise Incomplete(f"{needs}, and {self.profile} has none; take one in mode full, or weighting=flat")

    @cached_property
    def _layers(self) -> dict[int, LayerProfile]:
        """The layers of the profile, read once; none without one."""
        return read_profile(Path(self.profile)) if self.profile else {}

    @cached_property
    def _content(self) -> str:
        return hash_of(self._layers)

    def contents(self) -> dict[str, Any]:
        return {"profile": self._content}

    def schedule(
        self, trace: RoutingTrace, key: NDArray[np.uint32], candidates: Candidates
    ) -> Iterator[tuple[int, NDArray[np.bool_]]]:
        key_row = np.repeat(np.arange(len(candidates.counts)), [len(counts) for counts in candidates.counts])
        hits, hot = np.concatenate(candidates.counts), np.zeros(len(key_row), np.int64)
        weight = np.ones(len(candidates.counts))
        if self.profile:
            hits, hot = self._counts(trace)
            measured = [self._measure(self._layers[one]) if one in self._layers else 0.0 for one in trace.layers]
            weight = layer_weights(self.weighting, self.curve, measured)
        score = scores(self.weighting, hits, hot, key_row, weight)
        resident = pack(score, key_row, candidates, fill=self.fill == "random")
        yield 0, resident
        begin = 0
        for end in request_starts(trace).tolist() if self.update_rate else ():
            hits = np.zeros(len(key_row), np.int64)
            last_call, first = np.full((2, len(key_row)), -1, np.int64)
            count_requests(trace.offset[begin : end + 1], key, last_call, first, np.zeros(end - begin, np.int32), hits)
            score = scores(self.weighting, hits, hits * resident, key_row, weight)
            exchange(resident, score, key_row, self.update_rate)
            yield end, resident
            begin = end

    def slots_taken(self, candidates: Candidates, held: NDArray[np.int64]) -> NDArray[np.int64]:
        return held + (held > 0)

    def _measure(self, layer: LayerProfile) -> float:
        return (self.weighting == "time" and layer.moe_time) or layer.pressure

    def _counts(self, trace: RoutingTrace) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Hits and hot hits of every key; raises BadInput if the profile is for another model."""
        first_key = dict(
            zip(trace.layers, np.cumsum([0, *(trace.n_experts[one] for one in trace.layers)]), strict=False)
        )
        hits, hot = np.zeros((2, sum(trace.n_experts[one] for one in trace.layers)), np.int64)
        for number, layer in self._layers.items():
            if number not in first_key:
                raise Conflict(
                    f"{self.profile}: has layer {number}, which {trace.name} never routes; "
                    "give a profile of the model that was traced"
                )
            if max(layer.hits) >= trace.n_experts[number]:
                raise Conflict(
                    f"{self.profile}: layer {number} has expert {max(layer.hits)}, but {trace.name} has "
                    f"{trace.n_experts[number]} experts there; give a profile of the model that was traced"
                )
            for into, counts in ((hits, layer.hits), (hot, layer.hot_hits)):
                for expert, count in counts.items():
                    into[first_key[number] + expert] = count
        return hits, hot


def layer_weights(weighting: str, curve: float, measured: list[float]) -> NDArray[np.float64]:
    """The weight of each layer, f64 [layers], from its pressure or its time; 0 means unknown."""
    weight = np.ones(len(measured))
    p = np.array(measured)
    known = p > 0
    if weighting in RANKED or not known.any():
        return weight
    if weighting == "pressure":
        relative = 1 + curve * (p / p[known].mean() - 1)
        return np.where(known, np.clip(relative, 1 - 0.3 * curve, 1 + 0.6 * curve), weight)
    low, high = p[known].min(), p[known].max()
    if weighting == "smooth":
        p10, p90 = np.quantile(p[known], (0.1, 0.9))
        low, high = (p10, p90) if p10 < p90 else (low, high)
    if low == high:
        return weight
    place = np.clip((p - low) / (high - low), 0, 1)
    if weighting == "smooth":
        return np.where(known, 1 + 0.3 * curve * np.sqrt(place), weight)
    return np.where(known, 1 - 0.6 * curve + 1.4 * curve * place, weight)


def scores(
    weighting: str,
    hits: NDArray[np.int64],
    hot: NDArray[np.int64],
    key_row: NDArray[np.int64],
    weight: NDArray[np.float64],
) -> NDArray[np.int64]:
    """The score of each key, i64 [keys], 0 if it has no hits; `hot` counts the hits that found it in the cache."""
    if weighting in TIMED:
        rounded = np.floor(hits * weight[key_row] + HOT_SHARE * hot + 0.5).astype(np.int64)
        return np.where(hits > 0, np.maximum(rounded, 1), 0)
    order = np.lexsort((-hits, key_row))  # stable: equal hits stay in the order of their numbers
    rank = np.empty(len(hits), np.int64)
    rank[order] = np.arange(len(hits)) - np.searchsorted(key_row, key_row)
    ranked = np.bincount(key_row[hits > 0], minlength=len(weight))
    ranks = np.full(len(weight), ranked.max()) if weighting == "flat" else ranked
    return np.where(hits > 0, (ranks[key_row] - rank) * RANK + np.minimum(hits, MOST_HITS), 0)


def pack(
    score: NDArray[np.int64], key_row: NDArray[np.int64], candidates: Candidates, *, fill: bool = False
) -> NDArray[np.bool_]:
    """The best keys that fit the budget, bool [keys]; with `fill`, then others in the system's random order."""
    resident = np.zeros(len(score), np.bool_)
    opened = [False] * len(candidates.expert_bytes)
    left, least = candidates.budget_bytes, min(candidates.expert_bytes)

    def take(keys: NDArray[np.int64], left: int) -> int:
        taken = []
        for key, row in zip(keys.tolist(), key_row[keys].tolist(), strict=True):
            if left < least:
                break
            cost = candidates.expert_bytes[row] * (1 if opened[row] else 2)
            if cost <= left:
                left -= cost
                opened[row] = True
                taken.append(key)
        resident[taken] = True
        return left

    left = take(np.argsort(-score, kind="stable")[: np.count_nonzero(score)], left)
    if fill and left >= least:
        others = np.flatnonzero(~resident)
        take(others[shuffled(len(others), seed=FILL_SEED)], left)
    return resident


def exchange(
    resident: NDArray[np.bool_], score: NDArray[np.int64], key_row: NDArray[np.int64], update_rate: float
) -> None:
    """Exchange residents, bool [keys], for keys with better scores."""
    pairs = []
    for keys in np.split(np.arange(len(score)), np.flatnonzero(np.diff(key_row)) + 1):
        ranked = keys[np.argsort(-score[keys], kind="stable")]
        best = ranked[: np.count_nonzero(resident[keys])]
        best = best[score[best] > 0]
        better = best[~resident[best]]
        displaced = keys[resident[keys] & ~np.isin(keys, best)]
        displaced = displaced[np.argsort(score[displaced], kind="stable")]
        pairs += [
            (int(score[old] - score[new]), int(new), int(old)) for new, old in zip(better, displaced, strict=False)
        ]
    most = ceil(update_rate * np.count_nonzero(resident))
    for _, new, old in sorted(pairs)[:most]:
        resident[new], resident[old] = True, False


def request_starts(trace: RoutingTrace) -> NDArray[np.int64]:
    """The first call of every request but the first, i64 [requests - 1], from the trace's sequences or phases."""
    _, first = np.unique(trace.steps, return_index=True)
    begins = np.zeros(len(first) - 1, np.bool_)
    if trace.sequence is not None:
        text = trace.sequence[first]
        begins = text[1:] != text[:-1]
    elif (phases := find_phases(trace)) is not None:
        begins = (phases.phase[1:] == PHASE_PROMPT) & (phases.phase[:-1] == PHASE_DECODE)
    return first[1:][begins]


@lru_cache(maxsize=16)
def shuffled(n: int, *, seed: int) -> NDArray[np.int64]:
    """0 to n - 1 as libstdc++'s std::shuffle orders them, i64 [n]; `seed` seeds std::mt19937.

    If n squared fits in 32 bits, each number drawn provides two places to swap with.
    """
    if n * n >= DRAWS:
        partner = _below(np.arange(2, n + 1), seed=seed)
    else:
        single = np.array([2] if n > 1 and n % 2 == 0 else [], np.int64)
        pairs = np.arange(1 + len(single), n, 2)
        drawn = _below(np.concatenate([single, (pairs + 1) * (pairs + 2)]), seed=seed)
        both = np.stack(np.divmod(drawn[len(single) :], pairs + 2), axis=1)
        partner = np.concatenate([drawn[: len(single)], both.reshape(-1)])
    order = list(range(n))
    for i, other in enumerate(partner.tolist(), 1):
        order[i], order[other] = order[other], order[i]
    shuffle = np.array(order, np.int64)
    shuffle.flags.writeable = False  # of all who ask for it
    return shuffle


def _below(n: NDArray[np.int64], *, seed: int) -> NDArray[np.int64]:
    """For each n in turn a number from 0 to n - 1: the high half of a product of n and the next number drawn.

    Draws whose low half would cause a bias are rejected, and the next one is taken.
    """
    of, state = n.astype(np.uint64), np.random.RandomState(seed)
    drawn = np.zeros(0, np.uint64)
    while True:
        more = state.randint(0, int(DRAWS), len(n) - len(drawn), np.uint32)
        drawn = np.append(drawn, more.astype(np.uint64))
        product = drawn * of
        biased = np.flatnonzero(product % DRAWS < DRAWS % of)
        if not len(biased):
            return (product // DRAWS).astype(np.int64)
        drawn = np.delete(drawn, biased[0])
