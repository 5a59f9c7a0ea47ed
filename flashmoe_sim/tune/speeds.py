"""Speeds in words."""

from __future__ import annotations

from flashmoe_sim.io.sizes import three
from flashmoe_sim.systems.compare import Compared


def speed(one: Compared) -> str:
    """`12.1 tok/s (90%: 10.2 to 14)`, with the interval if it is known."""
    return _with_interval(one.tok_s, one.tok_s_lo, one.tok_s_hi)


def prompt_speed(one: Compared) -> str:
    """The same for the prompt."""
    return _with_interval(one.prompt_tok_s, one.prompt_tok_s_lo, one.prompt_tok_s_hi)


def _with_interval(tok_s: float | None, lo: float | None, hi: float | None) -> str:
    if tok_s is None:
        return "no speed"
    if lo is None or hi is None:
        return f"{three(tok_s)} tok/s"
    return f"{three(tok_s)} tok/s (90%: {three(lo)} to {three(hi)})"
