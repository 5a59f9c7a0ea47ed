"""`sim trace`: inspect, lint, convert, cut, combine and make routing traces."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flashmoe_sim.cli.commands import of_verb
from flashmoe_sim.cli.common import echo, force_option, json_option, lenient_option, message, print_json, print_result
from flashmoe_sim.cli.trace_import import import_
from flashmoe_sim.cli.trace_out import SecondTraceFile, TraceFile, report_written
from flashmoe_sim.cli.workload import read_long, read_trace
from flashmoe_sim.io.cells import Column, count, rate, table
from flashmoe_sim.io.errors import SimError
from flashmoe_sim.io.numbers import parse_numbers
from flashmoe_sim.io.sections import Table
from flashmoe_sim.verbs.cut import Cut
from flashmoe_sim.verbs.merge import Merge
from flashmoe_sim.verbs.speculate import Speculate
from flashmoe_sim.verbs.synth import Synth

if TYPE_CHECKING:
    from flashmoe_sim.trace.lint import Finding
    from flashmoe_sim.trace.routing import RoutingTrace
    from flashmoe_sim.trace.statistics import LayerStatistics, TraceStatistics

LAYER_ROWS = 12
trace_argument = click.argument("trace", metavar="TRACE")


@click.group(name="trace")
def command() -> None:
    """Inspect, lint, convert, import, cut, combine and make routing traces.

    TRACE is a file, a bundled name, or - for stdin. Its content decides the format: the runtime's JSONL, or any with
    layer and experts in each line; responses of vLLM and SGLang; recordings of SGLang, Megatron-LM and llama.cpp
    tracers; token pairs; route CSV; grouped pairs; CSV with the columns layer and expert; or this program's Parquet
    store. Files may be compressed with gzip or zstd. `import` takes arrays and any table.
    """


@command.command(short_help="The traces that ship with the program.")
@json_option
def catalog(as_json: bool) -> None:
    """List the bundled traces with their size; every TRACE argument takes their names."""
    from flashmoe_sim.trace.bundled import catalog as bundled

    documents = [{**asdict(entry), "path": str(entry.path)} for entry in bundled().values()]
    rows = [
        (one.name, f"{one.tokens:,}", str(one.layers), str(one.experts), str(one.top_k), one.what)
        for one in bundled().values()
    ]
    sizes = [(heading, "right") for heading in ("tokens", "layers", "experts", "top-k")]
    columns = [("name", "left"), *sizes, ("what it is", "left")]
    made = Table(columns, rows, caption="--json adds licences and sources", dispensable=("top-k", "layers"))
    print_result({"traces": documents}, made, as_json=as_json)


_list = copy(catalog)  # every other table of names is called so
_list.hidden = True
command.add_command(_list, "list")


@command.command(short_help="Width of calls, skew, reuse, overlap.")
@trace_argument
@click.option("--bank", "banks", default="", metavar="N,N", help="Compare unions with these bank sizes, in slots.")
@click.option("--all-layers", is_flag=True, help="A row for every layer, instead of ranges of layers.")
@click.option("--in-chunks", is_flag=True, help="For traces larger than memory: unpack TRACE into temporary files.")
@lenient_option
@json_option
def inspect(trace: str, banks: str, all_layers: bool, in_chunks: bool, lenient: bool, as_json: bool) -> None:
    """Describe a trace: width of its calls, skew, reuse, overlap."""
    from flashmoe_sim.cli.progress import working
    from flashmoe_sim.trace.statistics import inspect as describe

    sizes = parse_numbers(banks, "--bank") if banks else []
    loaded = read_trace(trace, lenient=lenient, in_chunks=in_chunks)
    with working("counting") as progress:
        statistics = describe(loaded, banks=sizes, progress=progress)
    compared = [_banks(statistics)] if statistics.banks else []
    tables = (_summary(loaded, statistics), *compared, _layers(statistics, all_layers=all_layers))
    print_result({**_identity(loaded), "notes": loaded.notes, **asdict(statistics)}, *tables, as_json=as_json)


@command.command(short_help="Errors and oddities of a trace; exit 1 on an error.")
@trace_argument
@click.option(
    "--model", metavar="SPEC", help="Check the ids against this model: a manifest, sidecar folder, GGUF file or name."
)
@lenient_option
@json_option
def lint(trace: str, model: str | None, lenient: bool, as_json: bool) -> None:
    """Report errors and oddities of a trace; exit 1 on an error."""
    from flashmoe_sim.cli.progress import working
    from flashmoe_sim.trace.lint import lint as check

    n_experts = None
    if model:
        from flashmoe_sim.geometry.load import load_model

        n_experts = {number: layer.n_experts for number, layer in load_model(model).layers.items()}
    loaded = read_trace(trace, lenient=lenient, notes=False)
    with working("checking") as progress:
        findings = check(loaded, n_experts=n_experts, progress=progress)
    document = {**_identity(loaded), "findings": [asdict(finding) for finding in findings]}
    print_result(document, _found(loaded, findings), as_json=as_json)
    if errors := sum(finding.severity == "error" for finding in findings):
        raise SimError(f"{trace}: {errors} error{'' if errors == 1 else 's'} found")


@command.command(short_help="Write a trace as Parquet or in the runtime's layout.")
@trace_argument
@of_verb(SecondTraceFile, "writer")
@lenient_option
@json_option
def convert(trace: str, *, writer: TraceFile, lenient: bool, as_json: bool) -> None:
    """Write a trace as Parquet (keeps everything) or in the runtime's JSONL layout.

    From the runtime's JSONL or Parquet to Parquet, memory use does not grow with the length of the trace.
    """
    if writer.format == "parquet":
        with read_long(trace, lenient=lenient) as long:
            report_written(writer.write_long(long), as_json=as_json)
        return
    report_written(writer.write(read_trace(trace, lenient=lenient)), as_json=as_json)


@command.command(short_help="A part of a trace: fewer ranks, layers or steps.")
@of_verb(Cut)
@of_verb(SecondTraceFile, "writer")
@lenient_option
@json_option
def cut(question: Cut, *, writer: TraceFile, lenient: bool, as_json: bool) -> None:
    """Write a part of a trace: fewer ranks, layers or steps."""
    loaded = read_trace(str(question.trace), lenient=lenient)
    report_written(writer.write(replace(question, trace=loaded).run()), as_json=as_json)


@command.command(short_help="Write the uses of each expert, for a hot cache.")
@trace_argument
@click.argument("out", type=click.Path(path_type=Path))
@force_option
@lenient_option
@json_option
def profile(trace: str, out: Path, force: bool, lenient: bool, as_json: bool) -> None:
    """Write the profile JSON of a trace, for systems with --moe-hot-cache and for the policy hot-profile.

    \b
    Example: sim trace profile prose-256 p.json
             sim sweep --bank 64 --policy hot-profile:profile=p.json \\
                 --contract atomic prose-256
    """
    from flashmoe_sim.io.whole import refuse_existing
    from flashmoe_sim.trace.perf_profile import write_perf_profile

    refuse_existing(out, force=force)
    loaded = read_trace(trace, lenient=lenient)
    write_perf_profile(loaded, out, force=force)
    if as_json:
        print_json({"out": str(out), "layers": len(loaded.layers), "refs": loaded.refs, "bytes": out.stat().st_size})
        return
    echo(f"{out}: {len(loaded.layers)} layers, {loaded.refs:,} references, {out.stat().st_size:,} bytes")


@command.command(short_help="Several traces as one: batched, together, in a row, in turns.")
@of_verb(Merge)
@of_verb(TraceFile, "writer")
@lenient_option
@json_option
def merge(question: Merge, *, writer: TraceFile, lenient: bool, as_json: bool) -> None:
    """Write several traces of one model as one workload.

    --concurrency is a server under load. Its requests are the sequences of the traces, in order; each step decodes the
    next token of all running requests, in one call per layer, which requests the union of their experts.

    --how union decodes the traces together from the first step to the last. TRACE may be given more than once;
    --stagger then keeps the copies from requesting the same experts. A trace drops out at its end: to avoid that,
    concat it with itself first, or cut the others.

    \b
    Examples:  sim trace merge python-256 prose-256 cpp-256 --concurrency 2 \\
               --out served.parquet
               sim trace merge python-256 prose-256 --how union --out two.parquet
    """
    from flashmoe_sim.cli.progress import working
    from flashmoe_sim.trace.merge import notes_of

    read = {name: read_trace(name, lenient=lenient) for name in dict.fromkeys(question.traces)}
    if len({trace.name for trace in read.values()}) < len(read):
        read = {name: trace.with_(name=name) for name, trace in read.items()}
    parts = [read[name] for name in question.traces]
    with working("merging") as progress:
        merged = question.run(parts, progress)
    report_written(writer.write(merged), as_json=as_json)
    known = notes_of(parts)
    writer.say(note for note in merged.notes if note not in known)


@command.command(short_help="Speculative decoding: several tokens verified in one step.")
@of_verb(Speculate)
@of_verb(TraceFile, "writer")
@lenient_option
@json_option
def speculate(question: Speculate, *, writer: TraceFile, lenient: bool, as_json: bool) -> None:
    """Write a trace as speculative decoding would route it.

    A decode step and the K drafted tokens after it become one step, whose calls request the union of their experts.
    With --accept the next step begins at the first token that was not accepted. The result's tokens are those computed,
    rejected ones included: compare total misses, which are for the same text, not misses per token.

    \b
    Example:  sim trace speculate python-256 --draft 3 --out drafted.parquet
    """
    from flashmoe_sim.cli.progress import working

    loaded = read_trace(str(question.trace), lenient=lenient)
    with working("speculating"):
        made = replace(question, trace=loaded).run()
    report_written(writer.write(made), as_json=as_json)
    writer.say(note for note in made.notes if note not in loaded.notes)


@command.command(short_help="A trace from a hit curve, a profile, or chance.")
@of_verb(Synth)
@of_verb(TraceFile, "writer")
@lenient_option
@json_option
def synth(question: Synth, *, writer: TraceFile, lenient: bool, as_json: bool) -> None:
    """Make a trace from what is known about a workload.

    With --curve, LRU hits as often as the points say, within half a percentage point (contract atomic, a bank for each
    layer). A curve that stops rising below 100% belongs to a short run: its largest banks miss only first uses, whose
    number is limited. --tokens and --prompt, or else --curve-tokens, must then match that run. For other policies the
    trace says little: no expert stays popular in it.

    With --like, experts are as popular, and recur in the next token as often, as in TRACE, for any number of tokens;
    with --model, in that model's layers. With --null they are drawn by chance: only where real routing differs from it
    can a policy gain.

    \b
    Example:  sim trace synth --curve 16:0.588,32:0.728,64:0.818 --tokens 500 \\
              --model qwen3.5-35b-a3b:ud-iq2_m --topk 4 --out made.parquet
    """
    from flashmoe_sim.cli.progress import working
    from flashmoe_sim.trace.hit_points import read_hit_points

    if question.curve is not None and not isinstance(question.curve, Mapping):
        points = read_hit_points(question.curve)
        if 0 < (most := max(points.values())) <= 0.01:
            message(
                f"{question.curve}: hits {most:.2%} at most; a column hit_pct is in per cent, a column hit_rate is 0 "
                "to 1"
            )
        question = replace(question, curve=points)
    if question.like is not None:
        question = replace(question, like=read_trace(str(question.like), lenient=lenient))
    with working("making a trace") as progress:
        found = question.run(progress)
    made = found.workload.trace
    fit = {} if found.fit is None else {"fit": asdict(found.fit)}
    report_written({**writer.write(made), "notes": list(made.notes), **fit}, as_json=as_json)
    writer.say(made.notes)


command.add_command(import_)


def _identity(trace: RoutingTrace) -> dict[str, Any]:
    return {"trace": trace.name, "format": trace.format, "content_id": trace.content_id}


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


def _found(trace: RoutingTrace, findings: tuple[Finding, ...]) -> Table:
    """The findings of `sim trace lint`."""
    rows = []
    for finding in findings:
        sentences = [finding.message]
        if finding.call is not None and finding.severity != "info":
            sentences.append(f"first at call {finding.call:,}, step {finding.step:,}, layer {finding.layer}")
        if finding.advice:
            sentences.append(finding.advice)
        rows.append((finding.severity, finding.code, " ".join(f"{text[0].upper()}{text[1:]}." for text in sentences)))
    return Table([("", "left"), ("", "left"), (f"{trace.name} ({trace.format})", "left")], rows)
