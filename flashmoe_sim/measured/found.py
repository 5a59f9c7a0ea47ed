"""What a reader of one format finds in a file."""

from __future__ import annotations

from dataclasses import dataclass, field

from flashmoe_sim.measured.value import Measured

FEW_DECODED, FEW_PROMPT = 16, 64  # tokens below which a timing says little


@dataclass(frozen=True)
class Found:
    """The measurements of a file.

    left_out: one line for each that is there and no use, such as a mean over requests.
    """

    measured: list[Measured] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def enough(self, tokens: int, where: str, *, prompt: bool) -> bool:
        """Whether a timing has enough tokens; if not, it is left out with a line that says so."""
        least, kind = (FEW_PROMPT, "prompt") if prompt else (FEW_DECODED, "answer")
        if tokens < least:
            self.left_out.append(f"{where}: the {kind} has {tokens} tokens; at least {least} say how fast it was")
        return tokens >= least
