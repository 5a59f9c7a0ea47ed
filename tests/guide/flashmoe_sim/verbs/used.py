"""`sim used`: how many experts a trace uses in each layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from flashmoe_sim.io.sections import Column, Section, percent, table
from flashmoe_sim.options import MODEL, option, option_field
from flashmoe_sim.verbs.base import Verb

if TYPE_CHECKING:
    from flashmoe_sim.trace.statistics import TraceStatistics
    from flashmoe_sim.verbs.given import Model, Trace


@dataclass(frozen=True, kw_only=True)
class Used(Verb["TraceStatistics"]):
    """Count the experts that a trace uses in each layer."""

    reads: ClassVar[bool] = True
    help: ClassVar[str] = """Count the experts that TRACE uses in each layer.

    TRACE is a file, or a name from `sim trace catalog`.
    """

    trace: Trace = field(kw_only=False, metadata=option("TRACE", "", positional=True))
    model: Model | None = field(default=None, metadata=MODEL)
    least: int = option_field(0, "N", "Only layers that use at least N experts.", least=0)

    def run(self, progress: Callable[[int, int], None] | None = None) -> TraceStatistics:
        """Count them."""
        from flashmoe_sim.trace.statistics import inspect
        from flashmoe_sim.verbs.given import workload_of

        return inspect(workload_of(self.trace, self.model).trace)

    def document(self, found: TraceStatistics) -> dict[str, Any]:
        """What `--json` prints."""
        layers = [layer for layer in found.layers if layer.distinct >= self.least]
        return {"layers": [{"layer": layer.layer, "used": layer.distinct} for layer in layers]}

    def sections(self, found: TraceStatistics) -> list[Section]:
        """A row for each layer."""
        columns: list[Column] = [
            ("layer", "right", lambda layer: str(layer.layer)),
            ("used", "right", lambda layer: str(layer.distinct)),
            ("of all %", "right", lambda layer: percent(layer.distinct / layer.n_experts)),
        ]
        rows = [layer for layer in found.layers if layer.distinct >= self.least]
        return [Section("Experts in use", (table(columns, rows),))]
