"""The content id of a trace that is read in chunks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from flashmoe_sim.content import ArrayParts
from flashmoe_sim.trace.check import PER_CALL, PER_REFERENCE
from flashmoe_sim.trace.chunk import Chunk, Last, LongTrace, steps_after, whole
from flashmoe_sim.trace.routing import RECORDED


class Content:
    """Hashes a long trace while somebody reads it to the end, once, as `trace`."""

    def __init__(self, trace: LongTrace) -> None:
        self.trace = LongTrace(trace.head, lambda: self._hashed(trace))
        names = [name for name in (*PER_CALL, *PER_REFERENCE) if name not in (*RECORDED, "step")]
        arrays = {name: getattr(trace.head, name) for name in (*names, "offset")}
        self._parts = {name: ArrayParts(array.dtype) for name, array in arrays.items() if array is not None}
        self._parts["step"] = ArrayParts(np.dtype(np.int32))

    @property
    def content_id(self) -> str:
        """`RoutingTrace.content_id` of the whole trace, once it was read."""
        parts: dict[str, Any] = dict(self._parts)
        return whole(self.trace.head).with_(**parts).content_id

    def _hashed(self, trace: LongTrace) -> Iterator[Chunk]:
        parts, last, refs = self._parts, Last(), 0
        parts["offset"].add(np.zeros(1, np.int64))
        for chunk in trace.read():
            yield chunk
            arrays = {name: getattr(chunk, name) for name in parts}
            arrays |= {"offset": refs + chunk.offset[1:], "step": steps_after(chunk, last)}
            for name, array in arrays.items():
                parts[name].add(array)
            refs += chunk.refs
            if chunk.calls:
                last = Last(int(chunk.layer[-1]), int(arrays["step"][-1]), last.calls + chunk.calls)
