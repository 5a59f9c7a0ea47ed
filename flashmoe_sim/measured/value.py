"""One measured speed, with what its file says of the run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from flashmoe_sim.io.errors import BadInput, shown

MOST_DECODE, MOST_PROMPT = 1e5, 1e7  # tokens a second that no machine reaches
MOST_TOKENS = 10**8


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A speed that somebody measured. What the file does not say is empty or None.

    where: file and place, for messages. engine: the program that ran; empty if given by hand. system: as `parse_system`
    reads it; empty if the file does not say where the experts were. unplaced: why the system is empty.
    model: its name or file. quant: its quantization, such as Q4_K_M. depth: tokens in the context before the first
    timed one. prompt: whether a prompt was timed rather than decoding. tokens: timed in each repeat. sd: standard
    deviation over repeats, relative to tok_s. settings: others, such as threads and ubatch.
    """

    where: str
    engine: str = ""
    system: str = ""
    unplaced: str = ""
    model: str = ""
    model_bytes: int | None = None
    quant: str = ""
    depth: int = 0
    prompt: bool = False
    tokens: int | None = None
    tok_s: float
    sd: float | None = None
    settings: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        most = MOST_PROMPT if self.prompt else MOST_DECODE
        if not (math.isfinite(self.tok_s) and 0 < self.tok_s <= most):
            kind = "prompt" if self.prompt else "decode"
            raise BadInput(
                f"{kind} speed of {shown(self.tok_s)} tok/s; expected more than 0, and at most {most:,.0f}",
                where=self.where,
                advice="measure it again, or leave it out",
            )


def missing(measured: Measured) -> str:
    """One line that says what to ask of the user, or empty if the system is known."""
    if measured.system:
        return ""
    why = measured.unplaced or "does not say where the experts were"
    speed = f"{measured.tok_s:.4g}" + (f" depth={measured.depth}" if measured.depth else "")
    speed += " prompt" if measured.prompt else ""
    examples = f'--measured "all-gpu={speed}" or "placed:cpu_layers=N={speed}"'
    return f"{measured.where}: {why}; give it by hand: {examples}"


def distinct(measured: Iterable[Measured]) -> list[Measured]:
    """Each measurement once, in order: equal but for `where`, as when a file is given twice or copied."""
    found: dict[Measured, Measured] = {}
    for one in measured:
        found.setdefault(replace(one, where=""), one)
    return list(found.values())
