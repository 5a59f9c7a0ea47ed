"""The content of a trace that is read in chunks: its ids, and checks that it does not change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np

from flashmoe_sim.content import ArrayParts
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.trace.check import PER_CALL, PER_REFERENCE
from flashmoe_sim.trace.chunk import Chunk, Last, LongTrace, steps_after, whole
from flashmoe_sim.trace.routing import RECORDED, RoutingTrace


@dataclass(frozen=True, eq=False)
class ReadHead(Chunk):
    """The head of a long trace that was read to its end, with the ids of the whole trace.

    parts: hashes of the whole trace's arrays. longest_refs: references of the longest chunk.
    """

    parts: Mapping[str, ArrayParts] = field(default_factory=dict, kw_only=True)
    longest_refs: int = field(default=0, kw_only=True)

    @property
    def all_calls(self) -> int:
        return self.parts["layer"].length

    @property
    def all_refs(self) -> int:
        return self.parts["expert"].length

    @property
    def recorded(self) -> dict[str, Any]:
        return {name: self.parts.get(name) for name in RECORDED}

    @cached_property
    def content_id(self) -> str:
        return self._all.content_id

    @cached_property
    def routing_id(self) -> str:
        return self._all.routing_id

    @property
    def _all(self) -> RoutingTrace:
        parts: dict[str, Any] = dict(self.parts)
        return whole(self).with_(**parts)


class Content:
    """Hashes a long trace while it is read once to the end, as `trace`."""

    def __init__(self, trace: LongTrace) -> None:
        self.trace = LongTrace(trace.head, lambda: self._hashed(trace))
        names = [name for name in (*PER_CALL, *PER_REFERENCE) if name != "step"]
        arrays = {name: getattr(trace.head, name) for name in (*names, "offset")}
        self._parts = {name: ArrayParts(array.dtype) for name, array in arrays.items() if array is not None}
        self._parts["step"] = ArrayParts(np.dtype(np.int32))
        self._longest_refs = 0

    @property
    def head(self) -> ReadHead:
        """The head of the whole trace, after it was read."""
        own = {item.name: getattr(self.trace.head, item.name) for item in fields(Chunk)}
        return ReadHead(**own, parts=self._parts, longest_refs=self._longest_refs)

    @property
    def content_id(self) -> str:
        """`RoutingTrace.content_id` of the whole trace, after it was read."""
        return self.head.content_id

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
            self._longest_refs = max(self._longest_refs, chunk.refs)
            if chunk.calls:
                last = Last(int(chunk.layer[-1]), int(arrays["step"][-1]), last.calls + chunk.calls)


def unchanged(trace: LongTrace, head: ReadHead) -> LongTrace:
    """The same long trace; reading it to the end raises BadInput if its arrays no longer match `head`."""

    def read() -> Iterator[Chunk]:
        content = Content(trace)
        yield from content.trace.read()
        if _hashes(content.head) != _hashes(head):
            raise BadInput(
                f"{trace.head.name}: changed since it was read first; run it again when nothing writes to it"
            )

    return LongTrace(trace.head, read)


def _hashes(head: ReadHead) -> dict[str, Any]:
    return {name: part.plain() for name, part in head.parts.items()}
