"""Plain twins of the counting kernels: slow, obvious, and required to agree exactly."""

from __future__ import annotations

from collections import OrderedDict

from flashmoe_sim.trace.routing import RoutingTrace


def calls_of(trace: RoutingTrace, layer: int) -> list[tuple[int, int, list[int]]]:
    """(call, tokens, experts) of a layer."""
    bounds = trace.offset.tolist()
    return [
        (call, int(trace.n_tokens[call]), trace.expert[bounds[call] : bounds[call + 1]].tolist())
        for call in range(trace.calls)
        if trace.layer[call] == layer
    ]


def reuse_distances(trace: RoutingTrace, layer: int) -> tuple[list[int], int]:
    """Distances of the repeated requests, sorted, and the number of first uses: an LRU stack as an ordered dict."""
    stack: OrderedDict[int, None] = OrderedDict()
    distances, first_uses = [], 0
    for _, _, experts in calls_of(trace, layer):
        union = list(dict.fromkeys(experts))
        recent = list(reversed(stack))
        for expert in union:
            if expert in stack:
                distances.append(recent.index(expert))
            else:
                first_uses += 1
        for expert in union:
            stack[expert] = None
            stack.move_to_end(expert)
    return sorted(distances), first_uses


def lru_hits(trace: RoutingTrace, layer: int, slots: int) -> int:
    """Hits of an LRU bank that is looked up for a whole call and may stream what does not fit."""
    bank: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for _, _, experts in calls_of(trace, layer):
        union = list(dict.fromkeys(experts))
        hits += sum(expert in bank for expert in union)
        for expert in union:
            bank[expert] = None
            bank.move_to_end(expert)
        while len(bank) > slots:
            bank.popitem(last=False)
    return hits


def overlap(trace: RoutingTrace, layer: int) -> tuple[int, int]:
    """(shared, compared) experts of consecutive tokens."""
    shared = compared = 0
    previous: set[int] | None = None
    for _, tokens, experts in calls_of(trace, layer):
        if not experts:
            continue
        if tokens < 1 or len(experts) % tokens:
            previous = None
            continue
        width = len(experts) // tokens
        for begin in range(0, len(experts), width):
            token = set(experts[begin : begin + width])
            if previous is not None:
                shared, compared = shared + len(token & previous), compared + len(token)
            previous = token
    return shared, compared


def aliased(trace: RoutingTrace) -> list[int]:
    """Per call, distinct experts whose slot already belongs to another distinct expert of the call."""
    assert trace.slot is not None
    counts = []
    for call in range(trace.calls):
        owner: dict[int, int] = {}
        seen: set[int] = set()
        count = 0
        for reference in range(trace.offset[call], trace.offset[call + 1]):
            expert, slot = int(trace.expert[reference]), int(trace.slot[reference])
            if expert in seen:
                continue
            seen.add(expert)
            count += owner.setdefault(slot, expert) != expert
        counts.append(count)
    return counts


def repeats(trace: RoutingTrace) -> list[int]:
    """Per call, references that name an expert again within one token."""
    counts = []
    for call in range(trace.calls):
        experts = trace.expert[trace.offset[call] : trace.offset[call + 1]].tolist()
        tokens = int(trace.n_tokens[call])
        width = len(experts) // tokens if tokens and len(experts) % tokens == 0 else 0
        parts = [experts[begin : begin + width] for begin in range(0, len(experts), width)] if width else []
        counts.append(sum(len(part) - len(set(part)) for part in parts))
    return counts
