"""What a miss of a minor expert costs: one that the router chose late, or gave little weight."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import Malformed, OutOfRange

READ_SHARE = {"drop": 0.0, "substitute": 0.0, "half": 0.5}  # of an expert's bytes
EXPECTED = (
    "expected drop@4, substitute@4 or half@4: experts of rank 4 and later, 0 being the router's first choice; or "
    "drop@0.05: experts with a smaller gate weight"
)


@dataclass(frozen=True)
class MinorRule:
    """A rule for misses of minor experts; their hits are hits as ever.

    kind: `drop`: the expert is neither read nor computed. `substitute`: it is not read, and an expert that is resident
        is computed in its place. `half`: it is read, and kept, at half the bytes.
    by: `rank` or `weight`, as trace/seen.py has them. limit: the first minor rank, or the least weight that is not
        minor.
    """

    kind: str
    by: str
    limit: float

    @property
    def read_share(self) -> float:
        """The share of an expert's bytes that such a miss reads."""
        return READ_SHARE[self.kind]

    @property
    def reads(self) -> bool:
        """Whether such a miss is read and installed."""
        return self.read_share > 0

    def why_none(self, top_k: int) -> str:
        """Why no expert of a trace with so many experts a token is minor; empty if some may be, or if they vary (0)."""
        if self.by == "weight" or not 0 < top_k <= self.limit:
            return ""
        return f"no expert is minor: the ranks of {top_k} experts a token end at {top_k - 1}"

    def holds(self, seen: NDArray[Any]) -> NDArray[np.bool_]:
        """Whether experts are minor, by their ranks or their weights."""
        minor: NDArray[np.bool_] = seen >= self.limit if self.by == "rank" else seen < self.limit
        return minor


@cache
def parse_minor(text: str) -> MinorRule:
    """A rule from words such as `drop@4`. Raises BadInput for anything else."""
    found = re.fullmatch(rf"({'|'.join(READ_SHARE)})@(?:(\d{{1,4}})|(\d?\.\d+))", text)
    if found is None:
        raise Malformed(f"minor {text!r}: {EXPECTED}")
    kind, rank, weight = found.groups()
    if rank is not None and int(rank) < 1:
        raise OutOfRange(f"minor {text!r}: the router's first choice is not minor; {EXPECTED}")
    if rank is not None:
        return MinorRule(kind, "rank", int(rank))
    if not 0 < float(weight) < 1:
        raise OutOfRange(f"minor {text!r}: a gate weight lies between 0 and 1; {EXPECTED}")
    return MinorRule(kind, "weight", float(weight))
