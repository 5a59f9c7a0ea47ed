"""How many tokens a run generated: no log says so, but its routed calls do."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path

import numpy as np

from flashmoe_sim.trace.phases import find_phases
from flashmoe_sim.trace.routing import PHASE_DECODE, RoutingTrace

_SHAPE = re.compile(rb'"layer":(\d+),"n_expert_used":(\d+),"n_tokens":(\d+)')


def generated(trace: RoutingTrace) -> int | None:
    """Tokens that a run with this trace generated; None if its prompt cannot be found.

    Each but the last was decoded; an end-of-text token counts too.
    """
    phases = find_phases(trace)
    return None if phases is None else int((phases.phase == PHASE_DECODE).sum()) + 1


def generated_by(trace: Path, calls: int | None) -> int | None:
    """The same from the first `calls` lines of a trace file, all if None: without compiled kernels, and slow."""
    with trace.open("rb") as lines:
        found = [shape.groups() for line in islice(lines, calls) if (shape := _SHAPE.search(line))]
    shapes = np.array(found, np.int64).reshape(-1, 3)
    if not len(shapes):
        return None
    layer, used, tokens = shapes.T
    offset = np.cumsum([0, *(used * tokens)])
    of_calls = RoutingTrace(
        layer.astype(np.int16), tokens.astype(np.int32), offset, np.zeros(int(offset[-1]), np.int16), {}
    )
    return generated(of_calls)
