"""Routed calls in which misses of minor experts read fewer bytes than the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.residency.replay import Replayed
from flashmoe_sim.timeline.costs import Costs
from flashmoe_sim.timeline.work import Work

_PARTS = 840  # of a call's misses; whole numbers of up to eight misses
_OF_READS = (
    *("cold_expert_s", "chunk_s", "warm_chunk_s", "fill_s", "upload_s", "memory_s"),
    *("family_chunk_s", "family_warm_chunk_s", "family_fill_s", "family_upload_s"),
)
_OF_ROWS = (*_OF_READS, "dense_s", "expert_s", "chunks", "family_chunks")


@dataclass(frozen=True, eq=False)
class SmallerReads:
    """Work in which some misses read a share of an expert's bytes; each share of such misses has its own rows of costs.

    All misses of a call take as long as its whole and its smaller reads do in the mean. The page cache keeps experts
    whole, and a resident expert takes as long to compute as one that was read whole.

    work: the same work, its rows grouped by the share of such misses; the rows of calls without any come first.
    minor: f64 [shares], that share, ascending from 0. read_share: f64 [calls], the part of its misses' bytes that a
    call reads. of_minor: the part of an expert's bytes that such a miss reads.
    """

    work: Work
    minor: NDArray[np.float64]
    read_share: NDArray[np.float64]
    of_minor: float

    @classmethod
    def of(cls, work: Work, replay: Replayed, *, layers: int) -> Self | None:
        """None if all misses read all bytes."""
        rule, stream = replay.setup.policy.minor_rule, replay.stream
        if rule is None or not rule.reads:
            return None
        assert stream is not None
        parts = np.rint(_PARTS * stream.minor / np.maximum(work.misses, 1)).astype(np.int64)
        shares, place = np.unique(np.append(0, parts), return_inverse=True)
        row = (work.row + layers * place[1:]).astype(np.int32)
        read_share = 1 - (1 - rule.read_share) * parts / _PARTS
        return cls(replace(work, row=row), shares / _PARTS, read_share, rule.read_share)

    def costs(self, at: Callable[[float], Costs]) -> Costs:
        """The costs of the rows. at: the costs of layers whose misses read this share of their bytes."""
        whole, small = at(1.0), at(self.of_minor)

        def rows(name: str) -> NDArray[Any]:
            of_whole, of_small = getattr(whole, name), getattr(small, name)
            if name not in _OF_READS:
                return np.concatenate([of_whole] * len(self.minor))
            return np.concatenate([(1 - share) * of_whole + share * of_small for share in self.minor])

        values: dict[str, Any] = {name: rows(name) for name in _OF_ROWS}
        return replace(whole, **values)
