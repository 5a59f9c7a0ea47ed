"""`sim trace speculate`: a trace as speculative decoding would route it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from flashmoe_sim.options import option, option_field
from flashmoe_sim.verbs.base import Stages, stage
from flashmoe_sim.verbs.trace_file import TraceFile, WrittenTrace

if TYPE_CHECKING:
    from flashmoe_sim.verbs.given import Load


@dataclass(frozen=True, kw_only=True)
class Speculate(TraceFile):
    """Write a trace whose decode steps verify drafted tokens.

    Raises BadInput for a number of tokens or a probability that cannot be, and for an unknown kind of rejected token.
    """

    reads: ClassVar[bool] = True
    help: ClassVar[str] = """Write a trace as speculative decoding would route it.

    A decode step and the K drafted tokens after it become one step, whose calls request the union of their experts.
    With --accept the next step begins at the first token that was not accepted. The result's tokens are those computed,
    rejected ones included: compare total misses, which are for the same text, not misses per token.

    \b
    Example:  sim trace speculate python-256 --draft 3 --out drafted.parquet
    """

    trace: str = field(kw_only=False, metadata=option("TRACE", "", positional=True))
    draft: int = field(metadata=option("K", "Tokens drafted before each decode step."))
    accept: float = option_field(
        1.0, "P", "Probability that a drafted token is accepted, given that those before it were."
    )
    rejected: str = option_field(
        "random",
        "WHAT",
        "Experts assumed for a rejected token. random: those of a random step (pessimistic); next: those of "
        "the true token (optimistic).",
    )
    seed: int = option_field(0, "N", "Seed of the random draws.")

    def run(self, stages: Stages | None = None, load: Load | None = None) -> WrittenTrace:
        """Make the trace, and write it."""
        from flashmoe_sim.trace.load import load_trace
        from flashmoe_sim.trace.speculate import speculate

        trace = (load or load_trace)(self.trace)
        stage(stages, "speculating")
        made = speculate(trace, draft=self.draft, accept=self.accept, rejected=self.rejected, seed=self.seed)
        return WrittenTrace(self.write(made, stages), [note for note in made.notes if note not in trace.notes])
