"""How soon experts come back."""

from __future__ import annotations

from flashmoe_sim.report.figures.style import Chart
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.trace.routing import RoutingTrace


def reuse_distances(trace: RoutingTrace | Workload) -> Chart:
    """Histogram of LRU stack distances, and the hit rate of an LRU bank of that many slots under `atomic`.

    Raises BadInput for a trace without calls.
    """
    raise NotImplementedError
