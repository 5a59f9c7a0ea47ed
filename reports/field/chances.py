"""Which caches of a file's rows are likely faster than the same machine without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flashmoe_sim.tune.pays import Gains
from reports.field.gains import p_of, seen
from reports.field.outcome import Outcome
from reports.field.pairs import Pair, both_ways

DIGITS = 6


@dataclass(frozen=True)
class Chance:
    """A pair of rows, and the probability that the one with the cache is faster."""

    pair: Pair
    p: float

    def as_json(self) -> dict[str, Any]:
        """What `--pairs --json` prints of a pair."""
        return {"cache": self.pair.cached.id, "plain": self.pair.plain.id, "p": self.p}

    def as_text(self) -> str:
        """What `--pairs` prints of a pair."""
        return (
            f"{self.pair.cached.id}: faster than {self.pair.plain.id} with a probability of {self.p:.0%}; predicted "
            f"{self.pair.predicted:.3g} times as fast"
        )


def chances(found: Sequence[Outcome], gains: Gains) -> list[Chance]:
    """Every pair of predicted rows with and without a cache; no measured speed is used."""
    _, alone = both_ways(found)
    return [Chance(pair, round(p_of(gains, one), DIGITS)) for pair, one in zip(alone, seen(alone), strict=True)]
