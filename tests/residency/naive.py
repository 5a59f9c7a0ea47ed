"""The plain twins of the replay loops: the contracts from their definitions, in lists and dicts.

Experts are pairs (layer, expert number), in a bank of one layer as in a global one. Time is counted in uses. Nothing
here is fast, and nothing here knows how the kernels do it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import inf

from tests.policies.naive import Expert, Next, Twin
from tests.policies.naive.hot import BoundedSwaps, Hot, HotProfile, HotWindow, ScoredSwaps, StepKinds
from tests.policies.naive.table import EVICTING
from tests.residency.builders import Call

# Of each prediction: the call after which it was made, -1 before the first; the layer; the experts.
Predicted = Sequence[tuple[int, int, Sequence[int]]]


class Overflow(Exception):
    """A miss found no slot."""


class WrongVictim(Exception):
    """A policy gave up a slot that may not go, or none: the number of the call, and what it gave up."""


USED = 3  # in an entry of Result.reads
PINNING = (
    "demand",
    "static",
    "static:ties_by=first-seen",
    "static:profile=first-2",
    "static:global",
    "static:global:profile=first-3",
    "placed",
    "placed:from_end=high",
)


# --- the result -------------------------------------------------------------------------------------------------------


@dataclass
class Minor:
    """of: of each call and reference, whether its expert is minor; none if empty. read: whether its misses are read."""

    of: Sequence[Sequence[bool]] = ()
    read: bool = True

    def has(self, number: int, place: int) -> bool:
        return bool(self.of) and self.of[number][place]


NONE_MINOR = Minor()


@dataclass
class Result:
    """table: columns of builders.COLUMNS of each layer. stream: the same of each call. slots, hits: of each reference,
    with 2 for a hit where it missed and was not read.

    contents: the experts held at the end, of each layer, or under -1 of the global bank.
    reads: after which call, layer, expert, call of the first use (or -1) and whether into free room, of everything that
        was read ahead.
    """

    table: dict[int, Counter[str]]
    stream: list[Counter[str]]
    slots: list[list[int]]
    hits: list[list[int]]
    contents: dict[int, set[Expert]]
    reads: list[list[int]]


@dataclass
class Bank:
    """capacity: what the contents may weigh. held: expert of each slot in use. where: slot of each resident.

    first: its first call. loaded: the experts that are there before it, in the order in which they come.
    """

    capacity: int
    policy: Twin
    first: int = 0
    loaded: Sequence[Expert] = ()
    held: dict[int, Expert] = field(default_factory=dict)
    where: dict[Expert, int] = field(default_factory=dict)
    fresh: dict[int, int] = field(default_factory=dict)  # slots read ahead into and not used since: which read
    freed: list[int] = field(default_factory=list)  # slots given up, the last on top
    opened: int = 0  # slots ever used
    now: int = 0  # uses so far, which is the time the policy is told

    def free_slot(self) -> int:
        """The slot freed last, else the next one never used."""
        if self.freed:
            return self.freed.pop()
        self.opened += 1
        return self.opened - 1

    def put(self, slot: int, expert: Expert) -> None:
        self.held[slot] = expert
        self.where[expert] = slot

    def drop(self, slot: int) -> None:
        expert = self.held.pop(slot)
        del self.where[expert]
        self.policy.evicted(slot, expert)

    def victim(self, held: list[tuple[int, Expert]], number: int) -> int:
        """The slot that the policy gives up at a call, of those that may go."""
        slot = self.policy.victim(held)
        if slot not in dict(held):
            raise WrongVictim(number, slot)
        return slot

    def candidates(self, allowed: Callable[[int], bool]) -> list[tuple[int, Expert]]:
        return [(slot, self.held[slot]) for slot in sorted(self.held) if allowed(slot)]


class Run:
    """What the contracts share: the trace as pairs, when everything is used next, the clock and the counts."""

    def __init__(self, calls: Sequence[Call], banks: Mapping[int, Bank], stamp: str = "first") -> None:
        self.calls = [[(layer, expert) for expert in experts] for layer, experts, _ in calls]
        self.layer = [layer for layer, _, _ in calls]
        self.tokens = [tokens for _, _, tokens in calls]
        self.layers = sorted(set(self.layer))
        self.stamp = stamp
        self.now = 0
        self.table: dict[int, Counter[str]] = {layer: Counter() for layer in self.layers}
        self.stream: list[Counter[str]] = [Counter() for _ in calls]
        self.slots: list[list[int]] = [[-1] * len(experts) for experts in self.calls]
        self.hits: list[list[int]] = [[0] * len(experts) for experts in self.calls]
        self.reads: list[list[int]] = []
        self.uses: dict[Expert, list[tuple[int, int]]] = defaultdict(list)
        for number, experts in enumerate(self.calls):
            for place, expert in enumerate(experts):
                self.uses[expert].append((number, place))
        self.step_of = [step for step, numbers in enumerate(self.steps()) for _ in numbers]
        for bank in banks.values():
            bank.policy.step_of = self.step_of
            if bank.loaded:
                self.load(bank)

    def begin(self, number: int, bank: Bank, *, tokens: int | None = None) -> None:
        """Tell a bank's policy that a call begins, of its own tokens if no others are given."""
        policy = bank.policy
        policy.number, policy.layer = number, self.layer[number]
        policy.tokens = self.tokens[number] if tokens is None else tokens
        policy.call(self.step_of[number])

    def load(self, bank: Bank) -> None:
        """What is there before the first call came by misses of one call before it, all of them admitted."""
        bank.policy.reference = 0
        self.begin(bank.first, bank, tokens=0)
        for left, expert in zip(range(len(bank.loaded), 0, -1), bank.loaded, strict=True):
            bank.now += 1
            bank.policy.missed(expert, bank.now)
            slot = bank.free_slot()
            bank.put(slot, expert)
            coming = next(iter(self.uses[expert]), (inf, left))  # used longer ago than anything later
            bank.policy.installed(slot, expert, bank.now, coming)

    def next_call(self, expert: Expert, number: int) -> Next:
        """The first reference to `expert` in the next call after `number` that requests it."""
        return next((use for use in self.uses[expert] if use[0] > number), (inf, -self.now))

    def next_reference(self, expert: Expert, number: int, place: int) -> Next:
        return next((use for use in self.uses[expert] if use > (number, place)), (inf, -self.now))

    def union(self, experts: Sequence[Expert], resident: Mapping[Expert, int]) -> list[Expert]:
        """The distinct experts of a call in the order in which they count as used."""
        backwards = list(dict.fromkeys(reversed(experts)))
        if self.stamp in ("last", "reverse"):
            return backwards if self.stamp == "reverse" else backwards[::-1]
        first = list(dict.fromkeys(experts))
        if self.stamp.startswith("hits-first"):
            missed = [one for one in first if one not in resident]
            missed = sorted(missed) if self.stamp == "hits-first-sorted" else missed
            return [one for one in first if one in resident] + missed
        return first

    def steps(self) -> list[list[int]]:
        """The calls of each step: one begins when the layer number does not increase."""
        steps: list[list[int]] = []
        for number, layer in enumerate(self.layer):
            if not steps or layer <= self.layer[number - 1]:
                steps.append([])
            steps[-1].append(number)
        return steps

    def count(self, number: int, **counted: int) -> None:
        """One routed call did this."""
        counted |= {"hits": counted["requests"] - counted["misses"]}
        self.stream[number].update(counted)
        whole = {"calls": 1, "refs": len(self.calls[number]), "full_hit_calls": int(not counted["misses"])}
        self.table[self.layer[number]].update(counted | whole)

    def read(self, after: int, expert: Expert, *, cold: bool = False) -> int:
        """An expert was read ahead, and into free room if `cold`; which read that is."""
        self.reads.append([after, *expert, -1, int(cold)])
        return len(self.reads) - 1

    def count_use(self, number: int, read: int) -> None:
        """A call hit an expert that was read ahead and is used for the first time."""
        self.reads[read][USED] = number
        late = self.reads[read][0] == number - 1
        self.table[self.layer[number]].update(prefetch_useful=1, prefetch_late=int(late))

    def count_prediction(self, after: int, layer: int, requests: int, misses: int) -> None:
        self.table[layer].update(prefetch_calls=1, prefetch_requests=requests, prefetch_issued=misses)
        self.stream[max(after, 0)].update(prefetch_issued=misses)

    def count_unused(self, banks: Mapping[int, Bank]) -> None:
        """What was read ahead and is still not used at the end."""
        for bank in banks.values():
            for slot in bank.fresh:
                self.table[bank.held[slot][0]].update(prefetch_wasted=1)

    def result(self, banks: Mapping[int, Bank]) -> Result:
        contents = {pool: set(bank.where) for pool, bank in banks.items()}
        return Result(self.table, self.stream, self.slots, self.hits, contents, self.reads)


# --- the contracts ----------------------------------------------------------------------------------------------------


def deferred(
    calls: Sequence[Call],
    banks: dict[int, Bank],
    *,
    protect: bool,
    predictions: Predicted = (),
    stamp: str = "first",
    minor: Minor = NONE_MINOR,
) -> Result:
    """The contracts `runtime` and, with `protect`, `protected`: tables are updated after the whole call is resolved."""
    run = Run(calls, banks, stamp)

    def resolve(number: int, experts: Sequence[Expert], bank: Bank, *, prefetching: bool) -> dict[str, int]:
        done = Counter[str]()
        given: dict[Expert, int] = {}
        reserved: set[int] = set()
        queue: dict[int, Expert] = {}
        unread: set[Expert] = set()
        if protect:
            reserved = {bank.where[expert] for expert in experts if expert in bank.where}
        for expert in run.union(experts, bank.where):
            done["requests"] += 1
            run.now += 1
            bank.now += 1
            coming = run.next_call(expert, number)
            if expert in bank.where:
                slot = bank.where[expert]
                if slot in queue:
                    done["aliased"] += 1
                    bank.policy.used(slot, queue[slot], bank.now, run.next_call(queue[slot], number))
                else:
                    bank.policy.used(slot, expert, bank.now, coming)
                if slot in bank.fresh and slot not in queue and not prefetching:
                    run.count_use(number, bank.fresh.pop(slot))
            else:
                done["misses"] += 1
                bank.policy.missed(expert, bank.now)
                if not prefetching and minor.has(number, experts.index(expert)):
                    done["minor"] += 1
                    if not minor.read:
                        done["bypassed"] += 1
                        unread.add(expert)
                        given[expert] = -1
                        continue
                empty = [slot for slot in range(bank.capacity) if slot not in bank.held and slot not in reserved]
                allowed = bank.candidates(lambda slot: slot not in reserved)
                if not empty and not allowed:
                    if prefetching:
                        done.subtract(["requests", "misses"])
                        break
                    raise Overflow(number)
                slot = empty[0] if empty else bank.victim(allowed, number)
                if not empty:
                    bank.policy.evicted(slot, bank.held[slot])
                bank.policy.installed(slot, expert, bank.now, coming)
                queue[slot] = expert
            reserved.add(slot)
            given[expert] = slot
        for slot, expert in queue.items():
            cold = slot not in bank.held
            if not cold:
                done["evictions"] += 1
                run.table[bank.held[slot][0]]["prefetch_wasted"] += slot in bank.fresh
                del bank.where[bank.held.pop(slot)]
            else:
                done["cold"] += 1
            bank.put(slot, expert)
            bank.fresh.pop(slot, None)
            if prefetching:
                bank.fresh[slot] = run.read(number, expert, cold=cold)
        if not prefetching:
            run.slots[number] = [given[expert] for expert in experts]
            run.hits[number] = [2 if one in unread else int(one not in queue.values()) for one in experts]
        return done

    def read_ahead(after: int) -> None:
        for made, layer, experts in predictions:
            if made == after:
                named = [(layer, expert) for expert in experts]
                bank = banks[layer if layer in banks else -1]
                bank.policy.ahead = after
                done = resolve(after, named, bank, prefetching=True)
                bank.policy.ahead = None
                run.count_prediction(after, layer, done["requests"], done["misses"])

    read_ahead(-1)
    for number, layer in enumerate(run.layer):
        bank = banks[layer if layer in banks else -1]
        run.begin(number, bank)
        done = resolve(number, run.calls[number], bank, prefetching=False)
        run.count(number, **{"requests": 0, "misses": 0, **done})
        read_ahead(number)
    run.count_unused(banks)
    return run.result(banks)


def atomic(
    calls: Sequence[Call],
    banks: dict[int, Bank],
    size: Mapping[int, int],
    *,
    predictions: Predicted = (),
    stamp: str = "first",
    minor: Minor = NONE_MINOR,
) -> Result:
    """The contract `atomic`: look the whole call up, serve it, then keep what fits.

    size: what an expert of a layer weighs. `forced` gives up what the call did not request first, and what it requested
    only when nothing else is left; `bypass` makes no difference between the two.
    """
    run = Run(calls, banks, stamp)

    def weight(bank: Bank) -> int:
        return sum(size[layer] for layer, _ in bank.where)

    def give_up(bank: Bank, slot: int) -> None:
        run.table[bank.held[slot][0]]["prefetch_wasted"] += slot in bank.fresh
        bank.fresh.pop(slot, None)
        bank.drop(slot)
        bank.freed.append(slot)

    def predict(after: int, layer: int, named: Sequence[Expert], bank: Bank) -> None:
        """Room is made for each expert before it is read, and never by what the prediction names."""
        kept = {expert for expert in named if expert in bank.where}
        misses, requests = 0, 0
        for expert in dict.fromkeys(named):
            run.now += 1
            bank.now += 1
            coming = run.next_call(expert, after)
            requests += 1
            if expert in bank.where:
                bank.policy.used(bank.where[expert], expert, bank.now, coming)
                continue
            bank.policy.missed(expert, bank.now)
            ends, displaced = False, False
            while weight(bank) + size[layer] > bank.capacity and not ends:
                others = [pair for pair in bank.candidates(lambda _: True) if pair[1] not in kept]
                slot = bank.victim(others, after) if others else -1
                ends = slot < 0 or (bank.policy.bypass and bank.policy.declines(slot, coming))
                if not ends:
                    displaced = True
                    give_up(bank, slot)
            if ends:
                requests -= 1
                break
            slot = bank.free_slot()
            bank.put(slot, expert)
            bank.policy.installed(slot, expert, bank.now, coming)
            bank.fresh[slot] = run.read(after, expert, cold=not displaced)
            kept.add(expert)
            misses += 1
        run.count_prediction(after, layer, requests, misses)

    def read_ahead(after: int) -> None:
        for made, layer, experts in predictions:
            if made == after:
                named = [(layer, expert) for expert in experts]
                bank = banks[layer if layer in banks else -1]
                bank.policy.ahead = after
                predict(after, layer, named, bank)
                bank.policy.ahead = None

    read_ahead(-1)
    for number, experts in enumerate(run.calls):
        layer = run.layer[number]
        bank = banks[layer if layer in banks else -1]
        before = dict(bank.where)
        union = run.union(experts, before)
        brought = {expert for expert in union if expert not in before}
        small = {expert for expert in brought if minor.has(number, experts.index(expert))}
        unread = set() if minor.read else small
        run.hits[number] = [2 if expert in unread else int(expert in before) for expert in experts]
        run.begin(number, bank)
        refused = set()
        for expert in union:
            run.now += 1
            bank.now += 1
            coming = run.next_call(expert, number)
            if expert in before:
                if before[expert] in bank.fresh:
                    run.count_use(number, bank.fresh.pop(before[expert]))
                bank.policy.used(before[expert], expert, bank.now, coming)
                continue
            bank.policy.missed(expert, bank.now)
            if expert in unread or not bank.policy.admits(expert, bank.now):
                refused.add(expert)
            else:
                slot = bank.free_slot()
                bank.put(slot, expert)
                bank.policy.installed(slot, expert, bank.now, coming)
        given_up = set()
        while sum(size[one[0]] for one in bank.where) > bank.capacity:
            everything = bank.candidates(lambda _: True)
            old = [pair for pair in everything if pair[1] not in union]
            slot = bank.victim(everything if bank.policy.bypass or not old else old, number)
            given_up.add(bank.held[slot])
            give_up(bank, slot)
        run.count(
            number,
            requests=len(union),
            misses=len(brought),
            cold=max(len(bank.where) - len(before), 0),
            evictions=len(given_up - brought),
            bypassed=len(given_up & brought | refused),
            minor=len(small),
        )
        read_ahead(number)
    run.count_unused(banks)
    return run.result(banks)


def sequential(
    calls: Sequence[Call], banks: dict[int, Bank], size: Mapping[int, int], minor: Minor = NONE_MINOR
) -> Result:
    """The contract `sequential`: every reference is looked up and admitted on its own.

    The newcomer takes the slot of the first that made room for it.
    """
    run = Run(calls, banks)
    for number, experts in enumerate(run.calls):
        layer = run.layer[number]
        bank = banks[layer if layer in banks else -1]
        done = Counter(requests=len(experts), misses=0)
        run.begin(number, bank)
        for place, expert in enumerate(experts):
            run.now += 1
            bank.now += 1
            coming = run.next_reference(expert, number, place)
            bank.policy.reference = place
            if expert in bank.where:
                run.hits[number][place] = 1
                bank.policy.used(bank.where[expert], expert, bank.now, coming)
                continue
            done["misses"] += 1
            bank.policy.missed(expert, bank.now)
            emptied: list[int] = []
            small = minor.has(number, place)
            done["minor"] += small
            unread = small and not minor.read
            run.hits[number][place] = 2 if unread else 0
            declined = unread or not bank.policy.admits(expert, bank.now)
            while sum(size[one[0]] for one in bank.where) + size[layer] > bank.capacity and not declined:
                slot = bank.victim(bank.candidates(lambda _: True), number)
                declined = not emptied and bank.policy.declines(slot, coming)
                if not declined:
                    bank.drop(slot)
                    emptied.append(slot)
            done["bypassed"] += declined
            if declined:
                continue
            done["evictions"] += len(emptied)
            done["cold"] += not emptied
            bank.freed += emptied[1:]
            slot = emptied[0] if emptied else bank.free_slot()
            bank.put(slot, expert)
            bank.policy.installed(slot, expert, bank.now, coming)
        run.count(number, **done)
    return run.result(banks)


def pinned(calls: Sequence[Call], pins: Mapping[int, set[Expert]], *, repeats: bool) -> Result:
    """Residents that never change, of each layer or under -1 of all; `repeats` where every reference is a request."""
    run = Run(calls, {})
    for number, experts in enumerate(run.calls):
        held = pins[run.layer[number] if run.layer[number] in pins else -1]
        asked = experts if repeats else list(dict.fromkeys(experts))
        run.hits[number] = [expert in held for expert in experts]
        misses = sum(expert not in held for expert in asked)
        run.count(number, requests=len(asked), misses=misses, bypassed=misses)
    contents = {pool: set(held) for pool, held in pins.items()}
    return Result(run.table, run.stream, run.slots, run.hits, contents, run.reads)


def scheduled(calls: Sequence[Call], hot: Hot, request_starts: Sequence[int], *, scope: str) -> Result:
    """Residents that change after steps; what comes is prefetched after the last call of its layer, and does not count
    before the first.

    request_starts: the first call of each request but the first.
    """
    run = Run(calls, {})
    last_call: dict[int, int] = {}
    held = hot.resident()
    fresh: dict[Expert, int] = {}
    for step in run.steps():
        for number in step:
            layer, _, tokens = calls[number]
            there = held if hot.uses(tokens) else set()
            asked = set(run.calls[number])
            run.hits[number] = [expert in there for expert in run.calls[number]]
            run.count(number, requests=len(asked), misses=len(asked - there), bypassed=len(asked - there))
            for expert in fresh.keys() & asked & there:
                run.table[layer].update(prefetch_useful=1)
                run.reads[fresh.pop(expert)][USED] = number
            last_call[layer] = number
        hot.after_step([calls[number] for number in step], request_ends=step[-1] + 1 in request_starts)
        after = hot.resident()
        for layer in run.layers:
            came = {one for one in after - held if one[0] == layer and layer in last_call}
            wasted = {one for one in fresh.keys() - after if one[0] == layer}
            run.table[layer].update(
                prefetch_calls=bool(came),
                prefetch_requests=len(came),
                prefetch_issued=len(came),
                prefetch_wasted=len(wasted),
            )
            if came:
                run.stream[last_call[layer]].update(prefetch_issued=len(came))
            fresh |= {one: run.read(last_call[layer], one) for one in came}
        fresh = {one: read for one, read in fresh.items() if one in after}
        held = after
    for layer, _ in fresh:
        run.table[layer].update(prefetch_wasted=1)
    contents = {layer: {one for one in held if one[0] == layer} for layer in run.layers}
    return Result(run.table, run.stream, run.slots, run.hits, contents if scope == "layer" else {-1: held}, run.reads)


# --- the whole: one call for every setup ------------------------------------------------------------------------------


def pins_of(
    calls: Sequence[Call],
    policy: str,
    *,
    slots: Mapping[int, int],
    size: Mapping[int, int],
    budget: int,
    n_experts: Mapping[int, int],
) -> dict[int, set[Expert]]:
    """The experts that a pinning policy keeps, by layer. `budget` is in the unit of `size`."""
    policy, _, first = policy.partition(":profile=first-")
    if first:
        calls = [calls[number] for step in Run(calls, {}).steps()[: int(first)] for number in step]
    requests = Counter((layer, expert) for layer, experts, _ in calls for expert in set(experts))
    asked = [(layer, expert) for layer in n_experts for expert in range(n_experts[layer]) if requests[layer, expert]]
    pins: dict[int, set[Expert]] = {layer: set() for layer in n_experts}
    if policy == "static:ties_by=first-seen":
        asked = list(dict.fromkeys((layer, expert) for layer, experts, _ in calls for expert in experts))
    if policy.startswith("static") and policy != "static:global":
        for layer in n_experts:  # sorted() keeps the order of equals: by number, or of the first request
            best = sorted((one for one in asked if one[0] == layer), key=lambda one: -requests[one])
            pins[layer] = set(best[: slots[layer]])
    if policy == "static:global":

        def worth(one: Expert) -> tuple[Fraction, int, int, int, int]:
            return Fraction(requests[one], size[one[0]]), requests[one], -size[one[0]], *one

        for one in sorted(asked, key=worth, reverse=True):
            if size[one[0]] <= budget:
                budget -= size[one[0]]
                pins[one[0]].add(one)
    if policy.startswith("placed"):
        for layer in sorted(n_experts, reverse=policy.endswith("high")):
            budget -= n_experts[layer] * size[layer]
            if budget < 0:
                break
            pins[layer] = {(layer, expert) for expert in range(n_experts[layer])}
    return pins


def loaded_first(
    calls: Sequence[Call], warm: str, layers: Sequence[int], weights: Mapping[int, int], room: int
) -> list[Expert]:
    """The experts of these layers that a warm start puts into a bank, the least requested first."""
    if warm.startswith("first-"):
        steps = Run(calls, {}).steps()[: int(warm.removeprefix("first-"))]
        calls = [calls[number] for step in steps for number in step]
    requests = Counter((layer, expert) for layer, experts, _ in calls for expert in set(experts) if layer in layers)
    chosen: list[Expert] = []
    for expert in sorted(requests, key=lambda one: (-requests[one], one)):
        room -= weights[expert[0]]
        if room < 0:
            break
        chosen.insert(0, expert)
    return chosen


def replay(
    calls: Sequence[Call],
    *,
    contract: str,
    policy: str,
    n_experts: Mapping[int, int],
    slots: int | None = None,
    budget_bytes: int | None = None,
    expert_bytes: Mapping[int, int] | None = None,
    scope: str = "layer",
    predictions: Predicted = (),
    request_starts: Sequence[int] = (),
    kinds: StepKinds | None = None,
    minor: Minor = NONE_MINOR,
) -> Result:
    """The twin of `flashmoe_sim.residency.replay.replay` for `slots` a layer, or `budget_bytes` for all.

    Raises Overflow if a contract with fixed slots has fewer of them than one call requests.
    """
    layers = sorted({layer for layer, _, _ in calls})
    n_experts = {layer: n_experts[layer] for layer in layers}
    policy, _, warm = policy.partition(":warm=")
    name, _, stamp = policy.partition(":stamp=")
    weights = dict(expert_bytes or dict.fromkeys(layers, 1))
    if slots is not None:
        each = {layer: min(slots, n_experts[layer]) for layer in layers}
        budget = sum(each[layer] * weights[layer] for layer in layers)
    else:
        assert budget_bytes is not None
        budget = budget_bytes
        each = {layer: budget // len(layers) // weights[layer] for layer in layers}
    if name in PINNING:
        pins = pins_of(calls, name, slots=each, size=weights, budget=budget, n_experts=n_experts)
        together: set[Expert] = set().union(*pins.values())
        return pinned(calls, pins if scope == "layer" else {-1: together}, repeats=contract == "sequential")

    if policy.startswith("bounded-swaps"):
        steps = [[calls[number] for number in step] for step in Run(calls, {}).steps()]
        parameters = dict(piece.split("=") for piece in policy.split(":")[1:])
        return scheduled(calls, BoundedSwaps(steps, weights, budget, n_experts, **parameters), (), scope=scope)

    if policy.startswith("scored-swaps"):
        steps = [[calls[number] for number in step] for step in Run(calls, {}).steps()]
        parameters = dict(piece.split("=") for piece in policy.split(":")[1:])
        return scheduled(calls, ScoredSwaps(steps, each, n_experts, **parameters), (), scope=scope)

    if policy.startswith("hot-"):
        name, *pieces = policy.split(":")
        parameters = dict(piece.split("=") for piece in pieces)
        whole = budget if slots is not None else budget - budget % 2**20
        steps = [[calls[number] for number in step] for step in Run(calls, {}).steps()]
        hot = HotWindow(steps, kinds or StepKinds(), each, n_experts, **parameters) if name == "hot-window" else None
        hot = hot or HotProfile(calls, weights, whole, n_experts=n_experts, **parameters)
        return scheduled(calls, hot, request_starts, scope=scope)

    fixed = contract in ("runtime", "protected")
    if slots is not None:
        weights = dict.fromkeys(layers, 1)
        capacity = each if scope == "layer" else {-1: sum(each.values())}
    elif scope == "layer":
        share = budget // len(layers)
        capacity = {layer: min(each[layer], n_experts[layer]) if fixed else share for layer in layers}
    elif fixed:
        capacity = {-1: min(budget // weights[layers[0]], sum(n_experts.values()))}
    else:
        capacity = {-1: budget}
    experts_of = {pool: [layer for layer in layers if pool in (layer, -1)] for pool in capacity}
    banks = {}
    for pool, room in capacity.items():
        lightest = 1 if fixed else min(weights[layer] for layer in experts_of[pool])
        most = min(room // lightest, sum(n_experts[layer] for layer in experts_of[pool]))
        banks[pool] = Bank(room, EVICTING[name](max(most, 1)))
        if warm:
            each = dict.fromkeys(layers, 1) if fixed else weights
            banks[pool].first = next(number for number, (layer, *_) in enumerate(calls) if pool in (layer, -1))
            banks[pool].loaded = loaded_first(calls, warm, experts_of[pool], each, room)
    if not fixed:
        if contract == "atomic":
            return atomic(calls, banks, weights, predictions=predictions, stamp=stamp or "first", minor=minor)
        return sequential(calls, banks, weights, minor)
    for number, (layer, experts, _) in enumerate(calls if contract == "protected" else []):
        if len(set(experts)) > capacity[layer if layer in capacity else -1]:
            raise Overflow(number)
    rules = {"protect": contract == "protected", "predictions": predictions, "stamp": stamp or "first"}
    return deferred(calls, banks, **rules, minor=minor)
