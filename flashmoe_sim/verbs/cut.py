"""`sim trace cut`: a part of a trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from flashmoe_sim.io.errors import Incomplete, Malformed, OutOfRange
from flashmoe_sim.io.numbers import parse_numbers
from flashmoe_sim.options import option, option_field
from flashmoe_sim.verbs.base import Stages
from flashmoe_sim.verbs.trace_file import SecondTraceFile, WrittenTrace

if TYPE_CHECKING:
    from flashmoe_sim.verbs.given import Load


def _steps(text: str) -> tuple[int | None, int | None]:
    """A range of steps: A:B, A: or :B."""
    begin, colon, end = (part.strip() for part in text.partition(":"))
    if not colon or any(part and not part.isdecimal() for part in (begin, end)) or len(begin + end) > 18:
        raise Malformed(f"--steps {text!r}: expected A:B, for example 10:500, or 10: or :500")
    first, last = int(begin) if begin else None, int(end) if end else None
    if first is not None and last is not None and last <= first:
        raise OutOfRange(f"--steps {text!r}: keeps nothing; B must be greater than A")
    return first, last


@dataclass(frozen=True, kw_only=True)
class Cut(SecondTraceFile):
    """Write a trace with fewer ranks, layers or steps.

    Raises BadInput if nothing is to be cut, or nothing would be left.
    """

    reads: ClassVar[bool] = True
    help: ClassVar[str] = "Write a part of a trace: fewer ranks, layers or steps."

    trace: str = field(kw_only=False, metadata=option("TRACE", "", positional=True))
    top_k: int | None = option_field(None, "K", "Keep the first K ranks of every token.", flag="--topk")
    layers: Sequence[int] | None = option_field(
        None, "0-11,20", "Keep these layers.", parse=partial(parse_numbers, option="--layers")
    )
    steps: tuple[int | None, int | None] | None = option_field(
        None, "A:B", "Keep the steps from A up to, not including, B; either can be left out.", parse=_steps
    )

    def __post_init__(self) -> None:
        if self.top_k is None and self.layers is None and self.steps is None:
            raise Incomplete("nothing to cut; give --topk, --layers or --steps")

    def run(self, stages: Stages | None = None, load: Load | None = None) -> WrittenTrace:
        """Cut the trace, and write it."""
        from flashmoe_sim.trace.cut import cut
        from flashmoe_sim.trace.load import load_trace

        trace = (load or load_trace)(self.trace)
        part = cut(trace, top_k=self.top_k, layers=self.layers, steps=self.steps)
        return WrittenTrace(self.write(part, stages))
