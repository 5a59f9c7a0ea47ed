"""Which experts are used: by rank, and over time."""

from __future__ import annotations

from flashmoe_sim.report.figures.style import Chart
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.trace.routing import RoutingTrace


def popularity(trace: RoutingTrace | Workload) -> Chart:
    """Share of the requests that go to the most requested experts, by how many: a faint line a layer, and their mean.

    Raises BadInput for a trace without calls.
    """
    raise NotImplementedError


def drift(trace: RoutingTrace | Workload, *, windows: int = 20) -> Chart:
    """How much of each part's hot set was hot in the first part, and in the part before.

    The hot set is the tenth of each layer's experts that the part requests most. windows: parts of equally many steps.
    Raises BadInput for a trace of fewer than 2 steps.
    """
    raise NotImplementedError
