"""A line per routed call of one token: its layer, then its experts, with blanks between them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from flashmoe_sim.trace.calls import uniform_top_k
from flashmoe_sim.trace.lines import Skipped, numbered_lines, trace_name
from flashmoe_sim.trace.requests import DEFAULTS, ReadOptions
from flashmoe_sim.trace.routing import RoutingTrace, infer_n_experts
from flashmoe_sim.trace.source import open_bytes


def read(path: Path, options: ReadOptions = DEFAULTS) -> RoutingTrace:
    """Read a trace. Raises BadInput with the line number for a malformed line, unless lenient."""
    skipped, calls = Skipped(path, lenient=options.lenient), []
    with open_bytes(path) as stream:
        for number, line in numbered_lines(stream, path=path, progress=options.progress):
            try:
                calls.append([int(word) for word in line.split()])
            except ValueError:
                skipped.line(number, "not a line of numbers")
    layer = np.array([call[0] for call in calls], np.int16)
    expert = np.array([one for call in calls for one in call[1:]], np.int16)
    offset = np.cumsum([0, *(len(call) - 1 for call in calls)])
    n_tokens = np.ones(len(calls), np.int32)
    return RoutingTrace(
        layer=layer,
        n_tokens=n_tokens,
        offset=offset,
        expert=expert,
        n_experts=infer_n_experts(np.repeat(layer, np.diff(offset)), expert),
        top_k=uniform_top_k(offset, n_tokens),
        format="words",
        name=trace_name(path),
        notes=skipped.notes(),
    )
