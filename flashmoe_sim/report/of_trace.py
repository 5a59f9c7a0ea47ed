"""The sections on a trace: which layers miss, which experts are used, how soon they recur."""

from __future__ import annotations

import numpy as np

from flashmoe_sim.io.cells import count, percent
from flashmoe_sim.io.sections import Figure, Part, Section, Table
from flashmoe_sim.report.figures import drift, misses_by_layer, popularity, reuse_distances
from flashmoe_sim.report.material import Material
from flashmoe_sim.report.of_rows import MOST_TRACES
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.schema import LAYER_COLUMNS, frame
from flashmoe_sim.trace.routing import RoutingTrace
from flashmoe_sim.trace.statistics import count_layers, hot_set_drift

SHARES = (0.01, 0.05, 0.1, 0.25, 0.5)  # of the experts
POPULARITY = (
    "the share of the requests that the most requested experts get, by how many of them. The further a line bends "
    "left, the more a small bank of the right experts holds; on the diagonal all are alike."
)
DRIFT = (
    "how many of the experts that are hot in a part of the trace (the most requested tenth of each layer) were hot in "
    "its first part, and in the part before. Where lines fall, a bank that was filled once goes stale."
)
REUSE = (
    "how many other experts of the layer are requested before an expert comes back. A bank under LRU holds what comes "
    "back within its slots, so the line is its hit rate where calls are served as a whole (contract atomic)."
)


def layers(found: Material) -> Section:
    """Misses by layer and size, for the policy that is looked at closely."""
    if found.close is None or not found.close.layers:
        return Section("", ())
    rows, first = found.close.layers, found.close.layers[0]
    banks = list(dict.fromkeys(row["bank"] for row in rows))
    missed = {(row["layer"], row["bank"]): row["misses"] / max(row["requests"], 1) for row in rows}
    numbers = Table(
        (("layer", "right"), *((f"bank {bank}", "right") for bank in banks)),
        tuple(
            (str(layer), *(percent(missed.get((layer, bank))) for bank in banks))
            for layer in dict.fromkeys(row["layer"] for row in rows)
        ),
    )
    caption = f"{first['trace']}, {first['policy']}: the share of each layer's requests that miss, for every bank size."
    return Section(
        "Which layers miss", (Figure("misses-by-layer", misses_by_layer(frame(rows, LAYER_COLUMNS)), caption, numbers),)
    )


def use(found: Material) -> Section:
    """For each trace, the skew of expert use, and whether the same experts stay hot."""
    parts: list[Part] = []
    for end, workload in _shown(found):
        trace = workload.trace
        numbers = _popularity(workload)
        parts.append(Figure(f"popularity{end}", popularity(workload), _caption(trace, end, POPULARITY), numbers))
        if len(np.unique(trace.steps)) > 1:
            parts.append(Figure(f"drift{end}", drift(workload), _caption(trace, end, DRIFT), _drift(workload)))
    return Section("Which experts are used", (*parts, *_left_out(found)))


def reuse(found: Material) -> Section:
    """How soon experts come back, in each trace."""
    parts: list[Part] = []
    for end, workload in _shown(found):
        caption, numbers = _caption(workload.trace, end, REUSE), _reuse(workload)
        parts.append(Figure(f"reuse-distances{end}", reuse_distances(workload), caption, numbers))
    return Section("How soon experts come back", (*parts, *_left_out(found)))


def _caption(trace: RoutingTrace, end: str, reading: str) -> str:
    """How to read a figure, said once."""
    return f"{trace.name}: {reading}" if end in ("", "-1") else f"{trace.name}, read as above."


def _shown(found: Material) -> list[tuple[str, Workload]]:
    """The traces that have figures, each with the end of their names."""
    shown = list(found.workloads.values())[:MOST_TRACES]
    return [("" if len(shown) == 1 else f"-{number}", one) for number, one in enumerate(shown, start=1)]


def _left_out(found: Material) -> list[str]:
    names = [one.trace.name for one in found.workloads.values()][MOST_TRACES:]
    return [f"Without a figure: {', '.join(names)}."] if names else []


def _popularity(workload: Workload) -> Table:
    rows = []
    for one in count_layers(workload.trace):
        most = np.sort(one.requests)[::-1].cumsum()
        shares = [most[max(1, round(share * len(most))) - 1] / max(most[-1], 1) for share in SHARES]
        rows.append((str(one.layer), count(int(np.count_nonzero(one.requests))), *map(percent, shares)))
    heads = (("layer", "right"), ("experts used", "right"), *((f"top {share:.0%}", "right") for share in SHARES))
    return Table(heads, tuple(rows))


def _reuse(workload: Workload) -> Table:
    """The hits of an LRU bank by slots, at sizes that double."""
    counted = count_layers(workload.trace)
    distances = np.zeros(max(one.n_experts for one in counted), np.int64)
    for one in counted:
        distances[: one.n_experts] += one.reuse
    requests = sum(int(one.requests.sum()) for one in counted)
    upto = distances.cumsum()
    sizes = [2**power for power in range(len(upto).bit_length()) if 2**power < len(upto)] + [len(upto)]
    rows = [(count(slots), count(int(upto[slots - 1])), percent(upto[slots - 1] / requests)) for slots in sizes]
    firsts = sum(one.first_uses for one in counted)
    rows.append(("first uses", count(firsts), percent(firsts / requests)))
    return Table((("slots", "right"), ("requests that come back within", "right"), ("%", "right")), tuple(rows))


def _drift(workload: Workload) -> Table:
    found = hot_set_drift(workload.trace)
    parts = zip(found.first_step, found.last_step, found.of_previous, found.of_first, strict=True)
    rows = [(f"{first} to {last}", percent(before), percent(at_first)) for first, last, before, at_first in parts]
    rows.append(("by chance", percent(found.chance), percent(found.chance)))
    heads = (("steps", "left"), ("hot in the part before, %", "right"), ("hot in the first part, %", "right"))
    return Table(heads, tuple(rows))
