"""`sim trace catalog`, `inspect` and `lint`: the bundled traces; what is in a trace, and what is odd in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from flashmoe_sim.io.errors import SimError
from flashmoe_sim.io.sections import Column, Section, Table, count, rate, table
from flashmoe_sim.io.sizes import parse_numbers
from flashmoe_sim.options import option, option_field
from flashmoe_sim.question import IN_CHUNKS
from flashmoe_sim.verbs.base import Stages, Verb, stage

if TYPE_CHECKING:
    from flashmoe_sim.trace.bundled import BundledTrace
    from flashmoe_sim.trace.lint import Finding
    from flashmoe_sim.trace.routing import RoutingTrace
    from flashmoe_sim.trace.statistics import LayerStatistics, TraceStatistics
    from flashmoe_sim.verbs.given import Load, Model


@dataclass(frozen=True)
class TraceCatalog(Verb["list[BundledTrace]"]):
    """The bundled traces."""

    help: ClassVar[str] = "List the bundled traces with their size; every TRACE argument takes their names."

    def run(self) -> list[BundledTrace]:
        """The traces in the order of the catalogue."""
        from flashmoe_sim.trace.bundled import catalog

        return list(catalog().values())

    def document(self, found: list[BundledTrace]) -> dict[str, Any]:
        """What `--json` prints."""
        return {"traces": [{**asdict(entry), "path": str(entry.path)} for entry in found]}

    def sections(self, found: list[BundledTrace]) -> list[Section]:
        """A row for each trace."""
        rows = [
            (one.name, f"{one.tokens:,}", str(one.layers), str(one.experts), str(one.top_k), one.what) for one in found
        ]
        sizes = [(heading, "right") for heading in ("tokens", "layers", "experts", "top-k")]
        columns = [("name", "left"), *sizes, ("what it is", "left")]
        caption = "--json adds licences and sources"
        return [Section("", (Table(columns, rows, caption=caption, dispensable=("top-k", "layers")),))]


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


@dataclass(frozen=True, eq=False)
class Linted:
    """A trace and what was found in it."""

    trace: RoutingTrace
    findings: tuple[Finding, ...]


@dataclass(frozen=True, kw_only=True)
class Lint(Verb[Linted]):
    """Find errors and oddities of a trace."""

    reads: ClassVar[bool] = True
    help: ClassVar[str] = "Report errors and oddities of a trace; exit 1 on an error."

    trace: str = field(kw_only=False, metadata=option("TRACE", "", positional=True))
    model: Model | None = option_field(
        None, "SPEC", "Check the ids against this model: a manifest, sidecar folder, GGUF file or name."
    )

    def run(self, stages: Stages | None = None, load: Load | None = None) -> Linted:
        """Read the trace, and check it."""
        from flashmoe_sim.trace.lint import lint
        from flashmoe_sim.trace.load import load_trace
        from flashmoe_sim.verbs.given import model_of

        model = model_of(self.model)
        n_experts = None if model is None else {number: layer.n_experts for number, layer in model.layers.items()}
        trace = load_trace(self.trace) if load is None else load(self.trace, notes=False)
        return Linted(trace, lint(trace, n_experts=n_experts, progress=stage(stages, "checking")))

    def document(self, found: Linted) -> dict[str, Any]:
        """What `--json` prints."""
        return {**found.trace.identity, "findings": [asdict(finding) for finding in found.findings]}

    def sections(self, found: Linted) -> list[Section]:
        """A row for each finding."""
        return [Section("", (_found(found.trace, found.findings),))]

    def failures(self, found: Linted) -> list[SimError]:
        """How many errors there are, if any."""
        errors = sum(finding.severity == "error" for finding in found.findings)
        return [SimError(f"{self.trace}: {errors} error{'' if errors == 1 else 's'} found")] if errors else []


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}{'' if text.endswith('?') else '.'}"


def _found(trace: RoutingTrace, findings: tuple[Finding, ...]) -> Table:
    """A row for each finding."""
    rows = []
    for finding in findings:
        sentences = [finding.message]
        if finding.call is not None and finding.severity != "info":
            sentences.append(f"first at call {finding.call:,}, step {finding.step:,}, layer {finding.layer}")
        if finding.advice:
            sentences.append(finding.advice)
        rows.append((finding.severity, finding.code, " ".join(map(_sentence, sentences))))
    return Table([("", "left"), ("", "left"), (f"{trace.name} ({trace.format})", "left")], rows)
