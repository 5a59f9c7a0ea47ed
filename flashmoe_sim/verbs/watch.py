"""`sim watch`: what banks would hit, while the trace is being written."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from flashmoe_sim.options import MODEL, option, option_field
from flashmoe_sim.question import SIZES, SeveralOptions

if TYPE_CHECKING:
    from flashmoe_sim.policies.bank import OneBank
    from flashmoe_sim.sweep.watch import Watcher
    from flashmoe_sim.verbs.given import Model


@dataclass(frozen=True, kw_only=True)
class Watch(SeveralOptions):
    """Count what banks hit in a trace that is still being written.

    Raises BadInput for unknown words, and for a policy that needs the whole trace.
    """

    trace: Path = field(kw_only=False, metadata=option("TRACE", "", positional=True))
    bank: OneBank = field(default="16..256", metadata=SIZES)
    model: Model | None = field(default=None, metadata=MODEL)
    window: int = option_field(
        256, "N", "Also count the last N tokens (at most an eighth more) separately.", least=1, most=1_000_000
    )
    every_s: float = option_field(
        1.0,
        "SECONDS",
        "Look for new calls this often; less often if looking takes more than 2% of a core.",
        flag="--every",
        least=0.1,
        most=3600,
    )
    once: bool = option_field(False, "", "Print the present state, and stop.")

    def begin(self, *, lenient: bool = False) -> Watcher:
        """A watcher that has not looked yet."""
        from flashmoe_sim.residency.growing import why_not_while_written
        from flashmoe_sim.sweep.plan import names_all, plan_sweep
        from flashmoe_sim.sweep.watch import Watcher
        from flashmoe_sim.verbs.given import model_of

        setups, _ = plan_sweep(self)
        if names_all(self.policy):
            setups = [setup for setup in setups if not why_not_while_written(setup)]
        return Watcher(self.trace, setups, geometry=model_of(self.model), window_tokens=self.window, lenient=lenient)
