"""The tables of `sim trace inspect` and `sim trace lint`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashmoe_sim.cli.common import print_table
from flashmoe_sim.io.cells import Column, count, table
from flashmoe_sim.io.sections import Table

if TYPE_CHECKING:
    from flashmoe_sim.trace.lint import Finding
    from flashmoe_sim.trace.routing import RoutingTrace
    from flashmoe_sim.trace.statistics import LayerStatistics, TraceStatistics

LAYER_ROWS = 12


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}%"


def shown(value: float | None) -> str:
    """A number with thousands separators; - for None."""
    return "-" if value is None else f"{value:,}"


def print_summary(trace: RoutingTrace, statistics: TraceStatistics) -> None:
    """A summary of a whole trace."""
    from flashmoe_sim.trace.seen import SEEN

    union, reuse = statistics.union, statistics.reuse
    prompt = "" if statistics.prompt_share is None else f"{_percent(statistics.prompt_share)} of them prompt"
    inferred = "" if statistics.phases_recorded or statistics.prompt_share is None else " (inferred)"
    known = "" if statistics.n_experts_known else " (inferred from the largest id)"
    experts = sorted({layer.n_experts for layer in statistics.layers})
    steps = "" if statistics.steps is None else f"in {statistics.steps:,} step{'' if statistics.steps == 1 else 's'} "
    rows = [
        ("calls", f"{statistics.calls:,}", f"{steps}of {len(statistics.layers)} layers"),
        ("tokens", f"{statistics.tokens:,}", prompt + inferred),
        ("experts per token", shown(statistics.top_k or None), f"of {', '.join(map(str, experts))}{known}"),
        ("references", f"{statistics.refs:,}", f"{statistics.requests:,} requests (distinct in their call)"),
        ("union, mean", f"{union.mean:.2f}", f"p50 {union.p50}, p99 {union.p99}, most {union.max} (the smallest bank)"),
        ("top 10% of experts", _percent(statistics.top_decile_share), "of the requests of their layer"),
        ("entropy", f"{statistics.normalised_entropy:.3f}", "of the requests; 1 is uniform"),
        (
            "reuse distance, p50",
            shown(reuse.p50),
            f"p90 {shown(reuse.p90)}, p99 {shown(reuse.p99)}",
        ),
        ("first uses", f"{reuse.first_uses:,}", "cold in any bank"),
        ("token overlap", _percent(statistics.overlap), "of a token's experts were used by the previous token"),
    ]
    absent = ", ".join(name for name in SEEN if name not in statistics.seen)
    rows.append(("policies see", "", ", ".join(statistics.seen) + (f"; not {absent}" if absent else "")))
    if statistics.aliased_refs is not None:
        rows.append(("aliased", f"{statistics.aliased_refs:,}", "references computed in another expert's slot"))
    print_table(Table([(trace.name, "left"), ("", "right"), (trace.format, "left")], rows))


def print_banks(statistics: TraceStatistics) -> None:
    """The unions compared with the given bank sizes."""
    columns: list[Column] = [
        ("bank", "right", lambda bank: count(bank.slots)),
        ("union/slots p50", "right", lambda bank: f"{bank.union_over_slots_p50:.2f}"),
        ("p99", "right", lambda bank: f"{bank.union_over_slots_p99:.2f}"),
        ("most", "right", lambda bank: f"{bank.union_over_slots_max:.2f}"),
        ("calls over", "right", lambda bank: count(bank.calls_over)),
    ]
    print_table(table(columns, statistics.banks))


def print_layers(statistics: TraceStatistics, *, all_layers: bool) -> None:
    """A row for each range of layers, or for each layer."""
    layers = statistics.layers
    size = 1 if all_layers else -(-len(layers) // LAYER_ROWS)
    rows = [_layers_row(layers[begin : begin + size]) for begin in range(0, len(layers), size)]
    headings = ("calls", "used", "union", "most", "top 10%", "entropy", "reuse 50/90", "overlap")
    caption = "Rows are means over the layers of a range; --all-layers shows each." if size > 1 else ""
    columns = [("layer", "right"), *((heading, "right") for heading in headings)]
    print_table(Table(columns, rows, caption=caption, dispensable=("calls", "entropy", "most")))


def _layers_row(layers: tuple[LayerStatistics, ...]) -> tuple[str, ...]:
    def mean(values: list[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return sum(known) / len(known) if known else None

    def rounded(values: list[float | None], digits: int = 0) -> str:
        average = mean(values)
        return "-" if average is None else f"{average:,.{digits}f}"

    first, last = layers[0].layer, layers[-1].layer
    return (
        f"{first}-{last}" if last > first else str(first),
        rounded([layer.calls for layer in layers]),
        rounded([layer.distinct for layer in layers]),
        rounded([layer.union.mean for layer in layers], 2),
        str(max(layer.union.max for layer in layers)),
        _percent(mean([layer.top_decile_share for layer in layers])),
        rounded([layer.normalised_entropy for layer in layers], 3),
        f"{rounded([layer.reuse.p50 for layer in layers])}/{rounded([layer.reuse.p90 for layer in layers])}",
        _percent(mean([layer.overlap for layer in layers])),
    )


def print_findings(trace: RoutingTrace, findings: tuple[Finding, ...]) -> None:
    """The findings of `sim trace lint`."""
    rows = []
    for finding in findings:
        sentences = [finding.message]
        if finding.call is not None and finding.severity != "info":
            sentences.append(f"first at call {finding.call:,}, step {finding.step:,}, layer {finding.layer}")
        if finding.advice:
            sentences.append(finding.advice)
        rows.append((finding.severity, finding.code, " ".join(f"{text[0].upper()}{text[1:]}." for text in sentences)))
    print_table(Table([("", "left"), ("", "left"), (f"{trace.name} ({trace.format})", "left")], rows))
