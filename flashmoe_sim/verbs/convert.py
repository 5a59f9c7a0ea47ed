"""`sim trace convert`: a trace in another format."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from flashmoe_sim.options import option
from flashmoe_sim.verbs.base import Stages
from flashmoe_sim.verbs.trace_file import SecondTraceFile, WrittenTrace

if TYPE_CHECKING:
    from flashmoe_sim.verbs.given import Load, LoadLong


@dataclass(frozen=True, kw_only=True)
class Convert(SecondTraceFile):
    """Write a trace in another format."""

    reads: ClassVar[bool] = True
    help: ClassVar[str] = """Write a trace as Parquet (keeps everything) or in the runtime's JSONL layout.

    From the runtime's JSONL or Parquet to Parquet, memory use does not grow with the length of the trace.
    """

    trace: str = field(kw_only=False, metadata=option("TRACE", "", positional=True))

    def run(
        self, stages: Stages | None = None, load: Load | None = None, load_long: LoadLong | None = None
    ) -> WrittenTrace:
        """Write it, a store while it is read."""
        from flashmoe_sim.trace.load import load_trace, open_long

        if self.format == "parquet":
            with (load_long or open_long)(self.trace) as long:
                return WrittenTrace(self.write_long(long))
        return WrittenTrace(self.write((load or load_trace)(self.trace), stages))
