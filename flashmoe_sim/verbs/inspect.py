"""`sim trace inspect`: width of calls, skew, reuse and overlap of a trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from flashmoe_sim.io.cells import Column, count, rate, table
from flashmoe_sim.io.numbers import parse_numbers
from flashmoe_sim.io.sections import Section, Table
from flashmoe_sim.options import option, option_field
from flashmoe_sim.question import IN_CHUNKS
from flashmoe_sim.verbs.base import Stages, Verb, stage

if TYPE_CHECKING:
    from flashmoe_sim.trace.routing import RoutingTrace
    from flashmoe_sim.trace.statistics import LayerStatistics, TraceStatistics
    from flashmoe_sim.verbs.given import Load

LAYER_ROWS = 12


@dataclass(frozen=True, eq=False)
class Inspected:
    """A trace and its statistics."""

    trace: RoutingTrace
    statistics: TraceStatistics


@dataclass(frozen=True, kw_only=True)
class Inspect(Verb[Inspected]):
    """Describe a trace."""

    reads: ClassVar[bool] = True
    help: ClassVar[str] = "Describe a trace: width of its calls, skew, reuse, overlap."

    trace: str = field(kw_only=False, metadata=option("TRACE", "", positional=True))
    banks: Sequence[int] | None = option_field(
        None,
        "N,N",
        "Compare unions with these bank sizes, in slots.",
        flag="--bank",
        parse=partial(parse_numbers, option="--bank"),
    )
    all_layers: bool = option_field(False, "", "A row for every layer, instead of ranges of layers.")
    in_chunks: bool = field(default=False, metadata=IN_CHUNKS)

    def run(self, stages: Stages | None = None, load: Load | None = None) -> Inspected:
        """Read the trace, and count."""
        from flashmoe_sim.trace.load import load_on_disk, load_trace
        from flashmoe_sim.trace.statistics import inspect

        if load is None:
            trace = (load_on_disk if self.in_chunks else load_trace)(self.trace)
        else:
            trace = load(self.trace, in_chunks=self.in_chunks)
        return Inspected(trace, inspect(trace, banks=self.banks or (), progress=stage(stages, "counting")))

    def document(self, found: Inspected) -> dict[str, Any]:
        """What `--json` prints."""
        return {**found.trace.identity, "notes": found.trace.notes, **asdict(found.statistics)}

    def sections(self, found: Inspected) -> list[Section]:
        """The whole trace, its calls in banks, and its layers."""
        statistics = found.statistics
        compared = [_banks(statistics)] if statistics.banks else []
        layers = _layers(statistics, all_layers=self.all_layers)
        return [Section("", (_summary(found.trace, statistics), *compared, layers))]


def _summary(trace: RoutingTrace, statistics: TraceStatistics) -> Table:
    """A summary of a whole trace."""
    from flashmoe_sim.trace.seen import QUESTIONS, SEEN

    union, reuse = statistics.union, statistics.reuse
    prompt = "" if statistics.prompt_share is None else f"{rate(statistics.prompt_share)} of them prompt"
    inferred = "" if statistics.phases_recorded or statistics.prompt_share is None else " (inferred)"
    known = "" if statistics.n_experts_known else " (inferred from the largest id)"
    experts = sorted({layer.n_experts for layer in statistics.layers})
    steps = "" if statistics.steps is None else f"in {statistics.steps:,} step{'' if statistics.steps == 1 else 's'} "
    rows = [
        ("calls", f"{statistics.calls:,}", f"{steps}of {len(statistics.layers)} layers"),
        ("tokens", f"{statistics.tokens:,}", prompt + inferred),
        ("experts per token", count(statistics.top_k or None), f"of {', '.join(map(str, experts))}{known}"),
        ("references", f"{statistics.refs:,}", f"{statistics.requests:,} requests (distinct in their call)"),
        ("union, mean", f"{union.mean:.2f}", f"p50 {union.p50}, p99 {union.p99}, most {union.max} (the smallest bank)"),
        ("top 10% of experts", rate(statistics.top_decile_share), "of the requests of their layer"),
        ("entropy", f"{statistics.normalised_entropy:.3f}", "of the requests; 1 is uniform"),
        (
            "reuse distance, p50",
            count(reuse.p50),
            f"p90 {count(reuse.p90)}, p99 {count(reuse.p99)}",
        ),
        ("first uses", f"{reuse.first_uses:,}", "cold in any bank"),
        ("token overlap", rate(statistics.overlap), "of a token's experts were used by the previous token"),
    ]
    for what, has, every in (
        ("policies see", statistics.seen, list(SEEN)),
        ("it allows", statistics.allows, list(QUESTIONS)),
    ):
        absent = ", ".join(one for one in every if one not in has)
        rows.append((what, "", ", ".join(has) + ("; " * bool(has) + f"not {absent}" if absent else "")))
    if statistics.aliased_refs is not None:
        rows.append(("aliased", f"{statistics.aliased_refs:,}", "references computed in another expert's slot"))
    return Table([(trace.name, "left"), ("", "right"), (trace.format, "left")], rows)


def _banks(statistics: TraceStatistics) -> Table:
    """The unions compared with the given bank sizes."""
    columns: list[Column] = [
        ("bank", "right", lambda bank: count(bank.slots)),
        ("union/slots p50", "right", lambda bank: f"{bank.union_over_slots_p50:.2f}"),
        ("p99", "right", lambda bank: f"{bank.union_over_slots_p99:.2f}"),
        ("most", "right", lambda bank: f"{bank.union_over_slots_max:.2f}"),
        ("calls over", "right", lambda bank: count(bank.calls_over)),
    ]
    return table(columns, statistics.banks)


def _layers(statistics: TraceStatistics, *, all_layers: bool) -> Table:
    """A row for each range of layers, or for each layer."""
    layers = statistics.layers
    size = 1 if all_layers else -(-len(layers) // LAYER_ROWS)
    rows = [_layers_row(layers[begin : begin + size]) for begin in range(0, len(layers), size)]
    headings = ("calls", "used", "union", "most", "top 10%", "entropy", "reuse 50/90", "overlap")
    caption = "Rows are means over the layers of a range; --all-layers shows each." if size > 1 else ""
    columns = [("layer", "right"), *((heading, "right") for heading in headings)]
    return Table(columns, rows, caption=caption, dispensable=("calls", "entropy", "most"))


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
        rate(mean([layer.top_decile_share for layer in layers])),
        rounded([layer.normalised_entropy for layer in layers], 3),
        f"{rounded([layer.reuse.p50 for layer in layers])}/{rounded([layer.reuse.p90 for layer in layers])}",
        rate(mean([layer.overlap for layer in layers])),
    )
