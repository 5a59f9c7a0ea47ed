"""Seconds in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashmoe_sim.cli.common import print_table
from flashmoe_sim.io.cells import pairs
from flashmoe_sim.io.numbers import three
from flashmoe_sim.io.sizes import size

if TYPE_CHECKING:
    from flashmoe_sim.machines.machine import Machine
    from flashmoe_sim.timeline.timed import Timed

LEAST_SHARE = 0.0005


def speed(tok_s: float | None, lo: float | None = None, hi: float | None = None) -> str:
    """`8.1 tok/s (7.6 to 8.7)`."""
    if tok_s is None:
        return "-"
    interval = "" if lo is None or hi is None else f" ({three(lo)} to {three(hi)})"
    return f"{three(tok_s)} tok/s{interval}"


BOTTLENECKS = {
    "compute": "computing: layers, experts, finding slots",
    "upload": "uploads and installs",
    "read": "reads",
    "cpu": "misses computed on the CPU",
    "none": "nothing",
}


def print_timing(timed: Timed, machine: Machine, *, execution: str, bottleneck: str) -> None:
    """Print speed, steps, and where a token's time goes."""
    from flashmoe_sim.timeline.names import PART_WORDS

    timing = timed.timing
    rows = [("decode", speed(timing.tok_s, timed.tok_s_lo, timed.tok_s_hi))]
    if timing.warm_up_tok_s is not None:
        rows.append(("  while the bank fills", speed(timing.warm_up_tok_s)))
        rows.append(("  then", speed(timing.steady_tok_s)))
    if timing.prompt_tok_s is not None:
        rows.append(("prompt", speed(timing.prompt_tok_s)))
    steps = [ms for ms in (timing.step_ms_p50, timing.step_ms_p95, timing.step_ms_p99) if ms is not None]
    if steps:
        rows.append(("a step, P50 / P95 / P99", " / ".join(map(three, steps)) + " ms"))
    per_token = sum(timing.part_ms_per_token.values())
    if timing.part_ms_per_token:
        rows.append(("a token", f"{three(per_token)} ms"))
    for name, ms in timing.part_ms_per_token.items():
        if ms > LEAST_SHARE * per_token:
            rows.append((f"  {PART_WORDS[name]}", f"{three(ms)} ms  ({ms / per_token:.0%})"))
    rows.append(("what holds it back most", BOTTLENECKS[bottleneck]))
    rows.append(("read from storage", size(timed.storage_bytes)))
    rows.append(("read from the page cache", size(timed.page_cache_bytes)))
    title = f"on {machine.name}: {machine.title}; {execution}"
    caption = "in brackets the 90% interval: the machine, the luck of the trace, and the spread between runs"
    print_table(pairs(rows, title=title, caption="; ".join((caption, *machine.notes))))
