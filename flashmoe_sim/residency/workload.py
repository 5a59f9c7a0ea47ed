"""What is replayed: a trace and its model, cut into pools once for many replays; and everything beside the trace."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.content import hash_of
from flashmoe_sim.geometry.load import is_model_file, is_path, load_model
from flashmoe_sim.geometry.model import MAX_IO_SPLIT, OF_ENGINES, LayerGeometry, ModelGeometry
from flashmoe_sim.geometry.named import is_name
from flashmoe_sim.geometry.names import means_model
from flashmoe_sim.geometry.recordings import source_of_run
from flashmoe_sim.io.errors import Conflict, Incomplete, OutOfRange, Unsupported, Unusable, unknown_name
from flashmoe_sim.io.notes import Note
from flashmoe_sim.outside import blaming
from flashmoe_sim.policies.bank import Bank, Scope
from flashmoe_sim.policies.base import ALL_CONTRACTS, STAMPS, EvictingPolicy, Policy, ScheduledPolicy, check_kernels
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.prefetchers.base import PastOnly, Prefetcher
from flashmoe_sim.prefetchers.none import NoPrefetch
from flashmoe_sim.residency.ahead import Ahead, by_pool, nothing_ahead
from flashmoe_sim.residency.counts import added
from flashmoe_sim.residency.own_rules import check_predictions
from flashmoe_sim.residency.pool import Pool, build_pools
from flashmoe_sim.residency.profile import Profile, content_of, find_profile
from flashmoe_sim.trace.bundled import catalog, find_trace
from flashmoe_sim.trace.check import ask_first_id, check_trace, largest_experts
from flashmoe_sim.trace.load import run_folder
from flashmoe_sim.trace.routing import RoutingTrace, blocks, frozen

ALIKE, ALIKE_FILE = 0.9, 0.75  # of a bundled trace's name, or a file's: a slip of the pen


@dataclass(frozen=True, eq=False)
class Workload:
    """A trace with the model's expert counts, and the geometry of the layers it uses.

    geometry: None if no model was given and the trace does not record expert sizes.
    """

    trace: RoutingTrace
    geometry: ModelGeometry | None
    # results for some predictor, profile or part of the pools, shared by threads
    _ahead: dict[tuple[Prefetcher, Scope], list[Ahead]] = field(default_factory=dict, init=False)
    _working: dict[tuple[Prefetcher, Scope], Lock] = field(default_factory=dict, init=False)
    _profiles: dict[str, Profile] = field(default_factory=dict, init=False)
    _unions: dict[tuple[Scope, range], NDArray[np.int64]] = field(default_factory=dict, init=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """A workload is pickled as its trace and model; the rest is computed again by the receiver."""
        return Workload, (self.trace.with_(), self.geometry)

    def of_file(self, geometry: ModelGeometry) -> Workload:
        """The same trace with another file of the same model; what is worked out of the trace alone is shared."""
        other = Workload(self.trace, geometry)
        for name in ("_ahead", "_working", "_profiles", "_unions"):
            object.__setattr__(other, name, getattr(self, name))
        vars(other).update({name: vars(self)[name] for name in ("layer_pools", "global_pools") if name in vars(self)})
        return other

    @cached_property
    def content_id(self) -> str:
        """A hash of all that a replay can read; workloads read from equal files have equal hashes."""
        read = [self.trace.content_id, self.trace.n_experts_known, self.trace.recorded, self.geometry]
        return hash_of(read, without={ModelGeometry: OF_ENGINES})

    def __repr__(self) -> str:
        model = self.geometry.name if self.geometry else "unknown model"
        return f"<Workload {self.trace.name}: {self.trace.tokens:,} tokens, {len(self.trace.layers)} layers ({model})>"

    @cached_property
    def layer_pools(self) -> list[Pool]:
        return build_pools(self.trace, scope="layer")

    @cached_property
    def global_pools(self) -> list[Pool]:
        return build_pools(self.trace, scope="global")

    def pools(self, scope: Scope) -> list[Pool]:
        """One pool per layer in the order of `trace.layers`, or one for all."""
        return self.layer_pools if scope == "layer" else self.global_pools

    def ahead(self, prefetcher: Prefetcher, scope: Scope) -> list[Ahead]:
        """A predictor's predictions for each of `pools(scope)`; computed once."""
        key = (prefetcher, scope)
        with self._working.setdefault(key, Lock()):  # no two threads compute the same
            if key not in self._ahead:
                pools = self.pools(scope)
                if isinstance(prefetcher, NoPrefetch):
                    self._ahead[key] = [nothing_ahead(pool) for pool in pools]
                else:
                    with blaming("predictor", prefetcher):
                        predictions = prefetcher.predict(self.trace)
                        check_predictions(prefetcher, predictions, self.trace)
                        self._ahead[key] = by_pool(predictions, pools, len(self.trace.layers))
            return self._ahead[key]

    def forget_ahead(self, prefetcher: Prefetcher, scope: Scope) -> None:
        """Free what `ahead` keeps for a predictor that is no longer needed."""
        self._ahead.pop((prefetcher, scope), None)

    def profile(self, policy: Policy) -> Profile:
        """The profile that a policy reads, by default the trace; read once.

        Raises BadInput for a profile that cannot be read or does not match the model.
        """
        source = policy.reads_profile or ""
        if source not in self._profiles:
            self._profiles[source] = find_profile(source, self.trace, self.layer_pools)
        return self._profiles[source]

    @cached_property
    def layer_geometry(self) -> tuple[LayerGeometry, ...] | None:
        """The geometry of each layer of `trace.layers`."""
        return None if self.geometry is None else tuple(self.geometry.layers[layer] for layer in self.trace.layers)

    def knows_itself(self, policy: Policy) -> bool:
        """Whether a policy's profile is of another file, but of this very trace: it then knows what is to come."""
        if not policy.reads_profile or policy.reads_profile.startswith("first-"):
            return False
        return self.profile(policy).content == content_of(self.layer_pools)

    @cached_property
    def expert_bytes(self) -> tuple[int, ...] | None:
        """Bytes of one expert of each layer of `trace.layers`."""
        return None if self.layer_geometry is None else tuple(layer.expert_bytes for layer in self.layer_geometry)

    @cached_property
    def n_experts(self) -> tuple[int, ...]:
        """Experts of each layer of `trace.layers`."""
        return tuple(self.trace.n_experts[layer] for layer in self.trace.layers)

    def unions(self, scope: Scope, part: range) -> NDArray[np.int64]:
        """How many calls of some of `pools(scope)` request 0, 1, 2, … distinct experts; counted once."""
        key = (scope, part)
        if key not in self._unions:
            counted = np.zeros(0, np.int64)
            for requests in (self.pools(scope)[number].requests for number in part):
                for block in blocks(len(requests)):
                    counted = added(counted, np.bincount(requests[block]).astype(np.int64))
            self._unions[key] = frozen(counted)
        return self._unions[key]


def prepare(trace: RoutingTrace, geometry: ModelGeometry | None = None, *, checked: bool = False) -> Workload:
    """Check that `trace` can come from the model `geometry`, and combine them.

    Without a geometry, expert sizes recorded in the trace are used. checked: whether `check_trace` had no objection.
    Raises BadInput for an empty or unsound trace (see `check_trace`), and for a layer, expert number or top-k that the
    model does not have.
    """
    if not trace.refs:
        raise Incomplete(f"{trace.name}: no routed calls in it; record or convert the trace again")
    if not checked:
        check_trace(trace, where=trace.name or "trace")
    if geometry is None:
        if trace.expert_bytes is None:
            return Workload(trace, None)
        return Workload(trace, _recorded_geometry(trace))
    largest = largest_experts(trace)
    for layer in trace.layers:
        if layer not in geometry.layers:
            known = f"{min(geometry.layers)}..{max(geometry.layers)}"
            raise Conflict(
                f"{trace.name}: routes layer {layer}, but {geometry.name} has MoE layers {known}; "
                "give the model that was traced"
            )
        has = geometry.layers[layer].n_experts
        if largest[layer] >= has:
            raise Conflict(
                f"{trace.name}: layer {layer} asks for expert {largest[layer]}, "
                f"but {geometry.name} has {has} experts there; give the model that was traced"
                + ask_first_id(trace, refused=int(largest[layer]), experts=has)
            )
    if geometry.top_k and trace.top_k > geometry.top_k:
        raise Conflict(
            f"{trace.name}: uses {trace.top_k} experts a token, but {geometry.name} routes at most {geometry.top_k}; "
            "give the model that was traced"
        )
    n_experts = {layer: geometry.layers[layer].n_experts for layer in trace.layers}
    return Workload(trace.with_(n_experts=n_experts, n_experts_known=True), geometry)


def names_model(trace: object) -> bool:
    """Whether what is given as a trace is a model's name or file, and no bundled trace."""
    if not isinstance(trace, str) or trace in catalog():
        return False
    if os.path.lexists(trace):
        return is_model_file(trace)
    folder, sign, _ = trace.partition("/")
    if sign and os.path.isdir(folder or sign):  # a path, no repository
        return trace.endswith((".gguf", "config.json"))
    return is_name(trace) or (not get_close_matches(trace, catalog(), n=1, cutoff=ALIKE) and means_model(trace))


def means_model_not_trace(trace: object) -> bool:
    """Whether what stands for a trace or a model is a model, or is more likely one: no file, and no slip of a trace's.

    A verb that needs only one of them then speaks of models.
    """
    if names_model(trace):
        return True
    if not isinstance(trace, str) or trace in ("", "-", *catalog()) or os.path.lexists(trace) or is_path(trace):
        return False
    slip = get_close_matches(trace, catalog(), n=1, cutoff=ALIKE)
    return (is_name(slip[0]) if slip else True) and not get_close_matches(trace, _here(), n=1, cutoff=ALIKE_FILE)


def _here() -> list[str]:
    try:
        return os.listdir()
    except OSError:
        return []


def find_geometry(trace: str | Path, model: str | Path | None) -> ModelGeometry | None:
    """The geometry of a trace: from the given model, else the catalogue's, else the run's; None without any."""
    several = str(trace).split(",")
    if (
        len(several) > 1
        and not os.path.lexists(trace)
        and all(one in catalog() or os.path.isfile(one) for one in several)
    ):
        raise Unusable(f"{trace}: several traces in one word; give them with spaces between: {' '.join(several)}")
    if names_model(trace):
        raise Unusable(f"{trace}: is a model, not a trace; give --model {trace}, and a trace of it")
    _, bundled = find_trace(trace)
    model = model or (bundled.model if bundled else None)
    if model is None and (folder := run_folder(trace)) is not None:
        model = source_of_run(folder)
    return None if model is None else load_model(model)


def _recorded_geometry(trace: RoutingTrace) -> ModelGeometry:
    assert trace.expert_bytes is not None
    layers = {
        layer: LayerGeometry(trace.n_experts[layer], {"expert": trace.expert_bytes[layer]}) for layer in trace.layers
    }
    return ModelGeometry(name=trace.name, layers=layers, top_k=trace.top_k, source="recorded in the trace")


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
