"""`sim trace speculate`: a trace as speculative decoding would route it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flashmoe_sim.options import option, option_field

if TYPE_CHECKING:
    from flashmoe_sim.trace.routing import RoutingTrace
    from flashmoe_sim.verbs.given import Trace


@dataclass(frozen=True, kw_only=True)
class Speculate:
    """A trace whose decode steps verify drafted tokens.

    Raises BadInput for a number of tokens or a probability that cannot be, and for an unknown kind of rejected token.
    """

    trace: Trace = field(kw_only=False, metadata=option("TRACE", "", positional=True))
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

    def run(self) -> RoutingTrace:
        """Make the trace."""
        from flashmoe_sim.trace.speculate import speculate
        from flashmoe_sim.verbs.given import workload_of

        trace = workload_of(self.trace).trace
        return speculate(trace, draft=self.draft, accept=self.accept, rejected=self.rejected, seed=self.seed)
