"""What a policy is: frozen parameters and, if it evicts, the kernels that the replay loops inline.

A *pool* is what one policy instance manages: the bank of one layer, or one bank for all layers. Its experts are *keys*
(the expert number in a layer's pool; layer and expert together in a global pool), its places are *slots*.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from inspect import signature
from types import FunctionType
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import Malformed, UnknownName
from flashmoe_sim.outside import place_of_function
from flashmoe_sim.parameters import Choices, Limits, check, spec_of
from flashmoe_sim.policies.minor import MinorRule, parse_minor
from flashmoe_sim.trace.routing import RoutingTrace
from flashmoe_sim.trace.seen import SEEN

NEVER = np.iinfo(np.int32).max
CONTRACT_MEANINGS = {
    "runtime": "as the patched llama.cpp runtime counts, slot aliasing included",
    "protected": "no expert of a call evicts another one of it",
    "atomic": "a call is served as a whole, and what exceeds the bank streams through",
    "sequential": "one reference after another, as in an ordinary cache",
}
ALL_CONTRACTS = tuple(CONTRACT_MEANINGS)
REPLAYED = "trace"  # a warm start from the replayed trace itself
STAMPS = ("first", "last", "hits-first", "reverse", "hits-first-sorted")

State = tuple[NDArray[Any], ...]


@dataclass(frozen=True, eq=False)
class PoolShape:
    """What a policy may know about its pool before the run.

    slots: the slots its state arrays need; some contracts use more during a call than the bank holds.
    capacity: experts the bank holds between calls, at least 1; for a bank in bytes, the most it could hold.
    keys: number of experts in the pool.
    offset: i64 [calls + 1], where each call's references begin. step: i32 [calls + 1], the step of each call, then the
        number of steps.
    key_row: i32 [keys], the place of each key's layer among the layers of the trace.
    layer: the number of its layer, -1 for a bank of all layers.
    """

    slots: int
    capacity: int
    keys: int
    offset: NDArray[np.int64]
    step: NDArray[np.int32]
    key_row: NDArray[np.int32]
    layer: int = -1


def on_call(state: State, step: int, row: int, tokens: int) -> None:
    """A routed call of step `step` begins. A function may take the first two arguments only.

    row: the place of its layer among the layers of the trace. tokens: how many it has; none for the experts of a warm
    start.
    """


def on_miss(state: State, key: int, now: int) -> None:
    """The expert `key` was requested and is not resident; nothing has been evicted for it yet."""


def admits(state: State, key: int, now: int) -> bool:
    """Whether to install the missing `key` at all; called once per miss, after `on_miss`."""
    return True


def on_hit(state: State, slot: int, key: int, now: int, upcoming: int) -> None:
    """The expert `key` in `slot` was used.

    now: a counter that grows with every use in the pool.
    upcoming: where the next routed call that requests `key` does so, as a reference number of the pool, or NEVER.
    """


def on_install(state: State, slot: int, key: int, now: int, upcoming: int) -> None:
    """The expert `key` was put into `slot`, which may have held another."""


def choose_victim(state: State, slot_key: NDArray[np.int32], blocked: NDArray[np.int64], mark: int) -> int:
    """The slot to evict: one with `slot_key[slot] >= 0` and `blocked[slot] != mark`, or -1 if there is none.

    slot_key: i32, the key in each slot, -1 if empty.
    """
    return -1


def on_evict(state: State, slot: int, key: int) -> None:
    """The expert `key` left `slot`, which may stay empty."""


def declines(state: State, slot: int, key: int, now: int, upcoming: int) -> bool:
    """Whether to serve the missing `key` without installing it, rather than evict the victim in `slot`."""
    return False


HOOKS = {
    function.__name__: tuple(signature(function).parameters)
    for function in (on_call, on_miss, admits, on_hit, on_install, choose_victim, on_evict, declines)
}
SEEING = ("on_miss", "admits", "on_hit", "on_install", "declines")
REQUIRED_HOOKS = {"on_hit", "on_install", "choose_victim"}
TEXTBOOK = ("lru", "min", "most-requested")
DECISIONS = {"kernels", "bypass", "allocate", "pinned", "order", "schedule"}


@dataclass(frozen=True)
class Policy:
    """A policy's parameters, and the properties that hold for all parameter values.

    The first line of a policy's docstring is its entry in `sim policy list`.
    hindsight: whether it knows future requests.
    textbook: the textbook rule behind all its decisions, for which one pass counts many sizes:
        one of TEXTBOOK (`most-requested` also needs an `order`, as in `Static`). Empty for any other rule; a subclass
        that overrides the decisions does not inherit it.
    has_bank: whether it keeps any experts.
    by_routing: whether its hits depend on the routing.
    pooled: whether a diagnosis treats it as one bank for all layers, whatever the scope.
    by_budget: whether it treats a bank as one budget for all layers.
    preloaded: whether its first residents are loaded before the run.
    sees: what it sees of each reference beside the expert; see `EvictingPolicy`.
    names_profile: the parameter that names the profile of `reads_profile`.
    most_uses: how many uses of one bank its counters can hold, if a long trace may have more.
    execution: the execution model of the engine that uses it; the default when its runs are timed.
    limits, choices: of parameters: the least and the most, or the words, that a value may be.
    """

    name: ClassVar[str]
    contracts: ClassVar[tuple[str, ...]] = ALL_CONTRACTS
    ties: ClassVar[str] = "none possible"
    source: ClassVar[str] = ""
    hindsight: ClassVar[bool] = False
    textbook: ClassVar[str] = ""
    has_bank: ClassVar[bool] = True
    by_routing: ClassVar[bool] = True
    pooled: ClassVar[bool] = False
    by_budget: ClassVar[bool] = False
    preloaded: ClassVar[bool] = False
    sees: ClassVar[tuple[str, ...]] = ()
    names_profile: ClassVar[str] = ""
    most_uses: ClassVar[int | None] = None
    execution: ClassVar[str] = "split-install"
    limits: ClassVar[Limits] = {}
    choices: ClassVar[Choices] = {}

    def __post_init__(self) -> None:
        check("policy", self, self.limits, self.choices)

    def __init_subclass__(cls) -> None:
        if "textbook" not in vars(cls) and DECISIONS & vars(cls).keys():
            cls.textbook = ""
        if cls.textbook not in ("", *TEXTBOOK):
            raise Malformed(
                f"policy {cls.__name__}: textbook is {cls.textbook!r}; expected one of {', '.join(TEXTBOOK)}"
            )

    @property
    def reads_profile(self) -> str | None:
        """The profile whose requests it counts before the run: empty for the replayed trace, None for no profile."""
        return None

    @property
    def minor_rule(self) -> MinorRule | None:
        """What a miss of a minor expert costs, if it is not what all misses cost."""
        return None

    @property
    def spec(self) -> str:
        """The name with all parameters that differ from their defaults, as written on the command line."""
        return spec_of(self)

    def contents(self) -> dict[str, Any]:
        """The contents of files named by parameters, by parameter; ids cover them instead of the paths."""
        return {}


OnePolicy = str | Policy | type[Policy]


def by_name(*kernels: Any) -> dict[str, Any]:
    """Functions that are called as the hooks that they are; `on_use` is both `on_hit` and `on_install`."""
    hooks = {kernel.__name__: kernel for kernel in kernels}
    use = hooks.pop("on_use", None)
    return hooks if use is None else hooks | {"on_hit": use, "on_install": use}


@dataclass(frozen=True)
class EvictingPolicy(Policy, ABC):
    """A policy that installs misses and chooses victims.

    kernels: `on_hit`, `on_install`, `choose_victim`, and any of `on_call`, `on_miss`, `on_evict`, `admits` and
        `declines`: functions with the signatures above that numba can compile. Under every contract they are called in
        the order of the references.
    sees: what functions see of the reference beside the expert; trace/seen.py explains the names. A function of SEEING
        takes all of them, in this order, after the parameters above, or none. A predicted expert has the weight 0, a
        rank after all choices, and the rest of the call after which it was predicted.
    bypass: whether a miss may be evicted again in the call that installed it (`declines`).
    stamp: the order of use within a call: by `first` reference (the patched runtime), by `last` reference
        (BigMoeOnEdge), `hits-first` (the runtime's cache estimator), `hits-first-sorted` with the misses by number
        (llama.cpp's own cache), or `reverse`, in which the router's first choice is used last.
    warm: the profile whose most requested experts are in the bank before the first call: `trace` for the replayed trace
        (hindsight), `first-N` for its first N steps, or the file or bundled name of another trace. Empty for an empty
        bank.
    cost_us: host time that its decisions take in every routed call, in microseconds. Counts do not change.
    minor: a rule that makes misses cheaper if the router chose the expert late or gave it little weight. `drop@4`
        neither reads nor computes experts of rank 4 and later (0 is the first choice), `substitute@4` computes a
        resident one instead, `half@4` reads half the bytes; `drop@0.05` goes by gate weight. It needs a trace with gate
        weights. Its effect on the text is not known.
    """

    kernels: ClassVar[dict[str, Any]]
    bypass: ClassVar[bool] = False
    names_profile: ClassVar[str] = "warm"
    stamp: str = "first"
    warm: str = field(default="", kw_only=True)
    cost_us: float = field(default=0.0, kw_only=True)
    minor: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stamp not in STAMPS:
            raise UnknownName(f"policy {self.name}: stamp={self.stamp!r} is not one of {', '.join(STAMPS)}")
        if self.minor:
            parse_minor(self.minor)

    @property
    def reads_profile(self) -> str | None:
        return "" if self.warm == REPLAYED else self.warm or None

    @property
    def minor_rule(self) -> MinorRule | None:
        return parse_minor(self.minor) if self.minor else None

    @abstractmethod
    def allocate(self, shape: PoolShape) -> State:
        """New state arrays for a pool."""


def takes_seen(kind: type[EvictingPolicy], hook: str) -> bool:
    """Whether a class's function for a hook takes what the class `sees`."""
    return bool(kind.sees) and hook in SEEING and len(_parameters(kind, hook)) > len(HOOKS[hook])


def arguments_of(kind: type[EvictingPolicy], hook: str) -> tuple[str, ...]:
    """The names of what a class's function for a hook is called with."""
    if hook == "on_call" and len(_parameters(kind, hook)) == 2:
        return HOOKS[hook][:2]
    return HOOKS[hook] + (kind.sees if takes_seen(kind, hook) else ())


def _parameters(kind: type[EvictingPolicy], hook: str) -> tuple[str, ...]:
    kernel = kind.kernels.get(hook)
    return tuple(signature(getattr(kernel, "py_func", kernel)).parameters) if kernel else ()


@cache
def check_kernels(kind: type[EvictingPolicy]) -> None:
    """Raise BadInput if a class's `kernels` are not functions that a replay loop can call, or it sees the unknown."""
    name, kernels, sees = kind.name, getattr(kind, "kernels", {}), kind.sees
    if not isinstance(sees, tuple) or len(set(sees)) < len(sees) or not set(sees) <= SEEN.keys():
        raise Malformed(f"policy {name}: sees is {sees!r}; expected a tuple of some of {', '.join(SEEN)}")
    if not isinstance(kernels, Mapping):
        raise Malformed(f"policy {name}: its `kernels` are a {type(kernels).__name__}; expected functions by name")
    if missing := REQUIRED_HOOKS - kernels.keys():
        raise Malformed(f"policy {name}: its `kernels` lack {', '.join(sorted(missing))}")
    if unknown := kernels.keys() - HOOKS.keys():
        raise Malformed(f"policy {name}: its `kernels` have {', '.join(sorted(unknown))}; known: {', '.join(HOOKS)}")
    for hook, kernel in kernels.items():
        function = getattr(kernel, "py_func", kernel)
        if not isinstance(function, FunctionType):
            raise Malformed(f"policy {name}: {hook} is a {type(kernel).__name__}; expected a function")
        seen = sees if takes_seen(kind, hook) else ()
        try:
            signature(function).bind(*arguments_of(kind, hook))
            fits = not seen or tuple(signature(function).parameters)[len(HOOKS[hook]) :] == seen
        except TypeError:
            fits = False
        if not fits:
            raise Malformed(
                f"policy {name}: {place_of_function(function)}: {hook} takes {signature(function)}; "
                f"expected ({', '.join((*HOOKS[hook], *(sees if hook in SEEING else ())))})"
            )


@dataclass(frozen=True)
class Candidates:
    """What a pinning policy chooses from; lists have one entry per layer of the trace.

    counts: i64 [experts], requests of each expert in the profile.
    first_seen: i64 [experts], numbers in the order of the experts' first requests.
    slots: slots of each layer's bank.
    expert_bytes: bytes per expert; 1 if no geometry is known, so that a budget counts experts.
    budget_bytes: the capacity of all banks together, in the unit of `expert_bytes`.
    """

    counts: Sequence[NDArray[np.int64]]
    first_seen: Sequence[NDArray[np.int64]]
    slots: Sequence[int]
    expert_bytes: Sequence[int]
    budget_bytes: int

    @property
    def banks(self) -> LayerBanks:
        """The banks of all layers, for kernels."""
        n_experts = [len(counts) for counts in self.counts]
        return LayerBanks(np.cumsum([0, *n_experts]), np.minimum(self.slots, n_experts))


class LayerBanks(NamedTuple):
    """The banks of all layers, if each has its own.

    first_key: i64 [layers + 1], where the keys of each layer begin, and their end. slots: i64 [layers], no more than
    the layer has experts.
    """

    first_key: NDArray[np.int64]
    slots: NDArray[np.int64]


@dataclass(frozen=True)
class PinningPolicy(Policy, ABC):
    """A policy whose residents never change during the run; its misses are served without installing."""

    preloaded: ClassVar[bool] = True

    @abstractmethod
    def pinned(self, candidates: Candidates) -> list[NDArray[np.bool_]]:
        """For every layer, which experts are resident: bool [experts]."""


@dataclass(frozen=True)
class ProfiledPolicy(PinningPolicy, ABC):
    """A pinning policy that chooses by the requests in a profile.

    profile: if empty, the replayed trace; if `first-N`, its first N steps; else the file or bundled name of another
        trace.
    """

    names_profile: ClassVar[str] = "profile"
    profile: str = ""

    @property
    def reads_profile(self) -> str | None:
        return self.profile


@dataclass(frozen=True)
class ScheduledPolicy(Policy, ABC):
    """A policy whose residents change between steps; its misses are served without installing, for example on the CPU.

    A call is looked up among the residents at the beginning of its step, so only `atomic` describes it. Experts that
    come in between steps count as prefetched.
    budget_unit: a bank in bytes is rounded down to a multiple of this.
    """

    contracts: ClassVar[tuple[str, ...]] = ("atomic",)
    execution: ClassVar[str] = "hot-cold"
    budget_unit: ClassVar[int] = 1

    @abstractmethod
    def schedule(
        self, trace: RoutingTrace, key: NDArray[np.uint32], candidates: Candidates
    ) -> Iterator[tuple[int, NDArray[np.bool_]]]:
        """The residents in each stretch of calls: the call that begins it, and bool [keys].

        key: u32 [references], experts numbered on from layer to layer of `trace.layers`.
        Stretches begin where steps do. The first begins with call 0, and its residents are loaded before the run; one
        that begins with `trace.calls` holds what is left after the last step.
        """

    def uses_bank(self, n_tokens: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Which calls use the bank at all, by their tokens: bool [calls]; the others miss everything."""
        return np.ones(len(n_tokens), np.bool_)

    def slots_taken(self, candidates: Candidates, held: NDArray[np.int64]) -> NDArray[np.int64]:
        """The slots that each layer's bank allocates, i64 [layers], when it holds `held` experts."""
        return np.minimum(candidates.slots, [len(counts) for counts in candidates.counts]).astype(np.int64)
