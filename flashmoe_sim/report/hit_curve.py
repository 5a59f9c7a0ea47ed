"""Hit rate and bytes per token against the bank, with the best any policy could do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999", "#8c564b", "#17becf")
MARKERS = "osD^vP*Xh"
MOST_TRACES = 20
MOST_TICKS = 12


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw results, rows of schema.RESULT_COLUMNS, as a PNG: a pair of panels for each of the first 20 traces.

    Rows of several machines have the same counts: those of the first are drawn.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = [row for row in rows if row["machine"] == rows[0]["machine"]]
    traces = list(dict.fromkeys((row["trace_id"], row["trace"]) for row in rows))
    shown = traces[:MOST_TRACES]
    figure = Figure(figsize=(10, 4.2 * len(shown)), layout="constrained")
    FigureCanvasAgg(figure)
    if len(shown) < len(traces):
        figure.suptitle(f"the first {len(shown)} of {len(traces)} traces")
    panels = figure.subplots(len(shown), 2, squeeze=False)
    for (left, right), trace in zip(panels, shown, strict=True):
        of_trace = [row for row in rows if (row["trace_id"], row["trace"]) == trace]
        on_demand = "" if all(row["prefetch"] == "none" for row in of_trace) else "on demand "
        contracts = ", ".join(dict.fromkeys(row["contract"] for row in of_trace))
        _curves(left, of_trace, "hit_rate", "best_hit_rate", 100)
        left.set(title=trace[1], ylabel="hit rate, %", ylim=(0, 102))
        if any(row["bytes_per_token"] is None for row in of_trace):
            _curves(right, of_trace, "misses_per_token", None, 1)
            right.set(ylabel=f"experts read {on_demand}per token")
        else:
            unit, scale = _unit(max(row["bytes_per_token"] for row in of_trace))
            _curves(right, of_trace, "bytes_per_token", "best_bytes_per_token", 1 / scale)
            right.set(ylabel=f"{unit} read {on_demand}per token")
        right.set(title=f"replay contract: {contracts}", ylim=(0, None))
        for panel in (left, right):
            panel.grid(color="#dddddd", linewidth=0.6)
            panel.spines[["top", "right"]].set_visible(False)
        columns = 1 + len(left.lines) // 12
        legend = left.legend(frameon=False, loc="lower right", ncols=columns, fontsize="small" if columns > 1 else None)
        legend.set_in_layout(False)  # however long it is, the panel keeps its size
    figure.savefig(path, dpi=144)


def _curves(panel: Any, rows: list[dict[str, Any]], column: str, best: str | None, scale: float) -> None:
    banks = list(dict.fromkeys(row["bank"] for row in rows))
    for number, line in enumerate(dict.fromkeys((row["policy"], row["prefetch"]) for row in rows)):
        points = {row["bank"]: row[column] * scale for row in rows if (row["policy"], row["prefetch"]) == line}
        panel.plot(
            [banks.index(bank) for bank in points],
            list(points.values()),
            color=COLOURS[number % len(COLOURS)],
            marker=MARKERS[number % len(MARKERS)],
            markersize=4,
            label=" + ".join(name for name in line if name != "none"),
        )
    ceiling = {row["bank"]: row[best] * scale for row in rows if best and row[best] is not None}
    if ceiling:
        places = [banks.index(bank) for bank in ceiling]
        panel.plot(
            places, list(ceiling.values()), color="black", linestyle="--", label="optimum from an empty bank (min)"
        )
    every = -(-len(banks) // MOST_TICKS)
    panel.set_xticks(range(0, len(banks), every), banks[::every])
    panel.set_xlabel("bank, slots per layer" if banks[0].isdigit() else "bank, all layers")


def _unit(largest: float) -> tuple[str, float]:
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if largest >= 1 << power:
            return unit, float(1 << power)
    return "bytes", 1.0
