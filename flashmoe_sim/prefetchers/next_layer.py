"""The experts of the next layer that occur with those of this one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.prefetchers.markov import Markov


@dataclass(frozen=True)
class NextLayer(Markov):
    """After every call, prefetch the experts of the next layer that most often went with those of the call.

    A stand-in for speculation with the next layer's gate, for which a trace would need hidden states. Like `markov`, it
    learns while the trace runs, only from its past, but between neighbouring layers of the same step.
    width: experts prefetched; 0: as many as a token uses. Equal scores: the lower expert number.
    """

    name: ClassVar[str] = "next-layer"
    source: ClassVar[str] = "gate speculation of Eliseev & Mazur 2023 (arXiv 2312.17238), from co-activation"
    lead: ClassVar[str] = "one layer"

    def _links(self, row: NDArray[np.int32], ends: NDArray[np.bool_], earlier: int, layers: int) -> tuple[Any, Any]:
        follows = np.zeros(len(row), np.bool_)
        follows[1:] = row[1:] == row[:-1] + 1
        follows[earlier:] &= ~ends[:-1]
        source = np.where(follows, np.arange(len(row)) - 1, -1)
        return source, np.where(row + 1 < layers, row + 1, -1).astype(np.int32)
