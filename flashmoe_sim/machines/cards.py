"""Several unlike GPUs as one: its rates are means over what each card serves."""

from __future__ import annotations

from collections.abc import Sequence

from flashmoe_sim.machines.machine import Card, Machine


def by_memory(cards: Sequence[Card]) -> list[float]:
    """The memory of each card, as its share of a model that is distributed so."""
    return [card.memory_gib for card in cards]


def factors(
    cards: Sequence[Card], *, read: Sequence[float], attended: Sequence[float], copied: Sequence[float]
) -> dict[str, float]:
    """How much faster than the first card all cards are if they serve a token one after another, by a quantity's path.

    read: each card's part of the weights that a token reads. attended: its part of the layers. copied: its part of the
    bytes that are copied to GPUs; if all are 0, the parts follow the memory.
    """
    rates = [card.weights_gb_s for card in cards]
    weights = mean_rate(rates, read) / rates[0]
    arithmetic = [card.weights_gb_s * card.knee_tokens for card in cards]
    links = [card.pinned_gb_s for card in cards]
    link = mean_rate(links, copied if any(copied) else by_memory(cards)) / links[0]
    return {
        "gpu.weights_gb_s": weights,
        "gpu.knee_tokens": mean_rate(arithmetic, read) / arithmetic[0] / weights,
        "gpu.attention_gb_s": mean_rate(rates, attended) / rates[0],
        "link.pinned_gb_s": link,
        "link.pageable_gb_s": link,
    }


def mean_rate(rates: Sequence[float], shares: Sequence[float]) -> float:
    """The rate of units that serve their shares one after another."""
    return sum(shares) / sum(share / rate for share, rate in zip(shares, rates, strict=True))


def distributed(
    machine: Machine, *, read: Sequence[float], attended: Sequence[float], copied: Sequence[float]
) -> Machine:
    """The machine with its unlike GPUs serving these parts, see `factors`, instead of parts by their memory."""
    shares = by_memory(machine.cards)
    before = factors(machine.cards, read=shares, attended=shares, copied=shares)
    after = factors(machine.cards, read=read, attended=attended, copied=copied)
    known = dict(machine.quantities())
    return machine.scaled({path: after[path] / before[path] for path in after if path in known})
