"""`sim trace merge` and `sim trace speculate`: workloads made from recorded traces."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flashmoe_sim.cli.common import FiniteRange, force_option, json_option, lenient_option, message
from flashmoe_sim.cli.trace_out import report_written, to_option, trace_writer
from flashmoe_sim.cli.workload import read_trace, trace_argument
from flashmoe_sim.io.errors import BadInput

if TYPE_CHECKING:
    from flashmoe_sim.trace.routing import RoutingTrace

out_option = click.option(
    "--out", required=True, type=click.Path(path_type=Path), metavar="FILE", help="The file to write."
)


@click.command(short_help="Several traces as one: batched, together, in a row, in turns.")
@click.argument("traces", nargs=-1, required=True, metavar="TRACE...")
@click.option(
    "--concurrency",
    type=click.IntRange(1),
    metavar="C",
    help="As a server batches requests: at most C run at once, and the next one is admitted when one ends.",
)
@click.option(
    "--prefill-chunk",
    type=click.IntRange(1),
    metavar="N",
    help="With --concurrency: the most prompt tokens in a step, over all requests; default: prompts as recorded.",
)
@click.option(
    "--arrivals",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="With --concurrency: when each request arrives, in seconds, one per line; default: all wait at the start.",
)
@click.option(
    "--step-ms", type=FiniteRange(0, min_open=True), metavar="MS", help="With --arrivals: the time of a step."
)
@click.option(
    "--how",
    type=click.Choice(["union", "concat", "interleave"]),
    help="union: step i of all is one step; concat: one after another; interleave: --every steps of each in turn.",
)
@click.option(
    "--stagger",
    type=click.IntRange(0),
    metavar="STEPS",
    help="With union: begin each TRACE this many steps further on than the one before, and wrap around at its end.",
)
@click.option("--every", type=click.IntRange(1), metavar="STEPS", help="With interleave: steps per turn.")
@out_option
@to_option
@force_option
@lenient_option
@json_option
def merge(
    traces: tuple[str, ...],
    *,
    concurrency: int | None,
    prefill_chunk: int | None,
    arrivals: Path | None,
    step_ms: float | None,
    how: str | None,
    stagger: int | None,
    every: int | None,
    out: Path,
    to: str | None,
    force: bool,
    lenient: bool,
    as_json: bool,
) -> None:
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
    from flashmoe_sim.trace.arrivals import read_arrivals
    from flashmoe_sim.trace.batching import batched
    from flashmoe_sim.trace.merge import concat, interleave, notes_of, union

    if (how is None) == (concurrency is None):
        raise click.UsageError("give --concurrency for a server's batches, or --how union, concat or interleave")
    asked = "--concurrency" if how is None else f"--how {how}"
    if how is not None and (prefill_chunk or arrivals or step_ms):
        raise click.UsageError(f"--prefill-chunk, --arrivals and --step-ms belong to --concurrency, not {asked}")
    if (arrivals is None) != (step_ms is None):
        raise click.UsageError("--arrivals needs --step-ms" if arrivals else "--step-ms belongs to --arrivals")
    if how is not None and len(traces) < 2:
        raise click.UsageError("one trace only; give at least two to merge")
    if stagger is not None and how != "union":
        raise click.UsageError(f"--stagger belongs to --how union, not {how or asked}")
    if (every is None) == (how == "interleave"):
        raise click.UsageError(
            "--how interleave needs --every" if every is None else f"--every does not belong to {asked}"
        )
    write = trace_writer(out, to, force=force)
    arrivals_s = read_arrivals(arrivals) if arrivals else None
    read = {name: read_trace(name, lenient=lenient) for name in dict.fromkeys(traces)}
    if len({trace.name for trace in read.values()}) < len(read):
        read = {name: trace.with_(name=name) for name, trace in read.items()}
    parts = [read[name] for name in traces]
    with working("merging") as progress:
        if concurrency is not None:
            if len(parts) == 1 and (parts[0].sequence is None or len(set(parts[0].sequence.tolist())) == 1):
                raise BadInput(f"{traces[0]}: a single request; give a trace of several sequences, or more traces")
            merged = batched(
                parts,
                concurrency=concurrency,
                prefill_chunk=prefill_chunk,
                arrivals_s=arrivals_s,
                step_s=(step_ms or 0) / 1000,
                progress=progress,
            )
        elif how == "union":
            merged = union(parts, stagger=stagger or 0, progress=progress)
        else:
            merged = (
                concat(parts, progress=progress) if every is None else interleave(parts, every=every, progress=progress)
            )
    report_written(write(merged), as_json=as_json)
    _say_what_was_done(out, merged, notes_of(parts))


@click.command(short_help="Speculative decoding: several tokens verified in one step.")
@trace_argument
@click.option("--draft", required=True, type=int, metavar="K", help="Tokens drafted before each decode step.")
@click.option(
    "--accept",
    default=1.0,
    show_default=True,
    metavar="P",
    help="Probability that a drafted token is accepted, if those before it were.",
)
@click.option(
    "--rejected",
    default="random",
    show_default=True,
    metavar="WHAT",
    help="What stands in for a rejected token, which the trace lacks. random: a decode step of the trace, too unlike "
    "its neighbours; next: the true token at its place, too helpful.",
)
@click.option("--seed", default=0, show_default=True, metavar="N", help="Of the draws.")
@out_option
@to_option
@force_option
@lenient_option
@json_option
def speculate(
    trace: str,
    *,
    draft: int,
    accept: float,
    rejected: str,
    seed: int,
    out: Path,
    to: str | None,
    force: bool,
    lenient: bool,
    as_json: bool,
) -> None:
    """Write a trace as speculative decoding would route it.

    A decode step and the K drafted tokens after it become one step, whose calls request the union of their experts.
    With --accept the next step begins at the first token that was not accepted. The result's tokens are those computed,
    rejected ones included: compare total misses, which are for the same text, not misses per token.

    \b
    Example:  sim trace speculate python-256 --draft 3 --out drafted.parquet
    """
    from flashmoe_sim.cli.progress import working
    from flashmoe_sim.trace.speculate import speculate as speculated

    write = trace_writer(out, to, force=force)
    loaded = read_trace(trace, lenient=lenient)
    with working("speculating"):
        made = speculated(loaded, draft=draft, accept=accept, rejected=rejected, seed=seed)
    report_written(write(made), as_json=as_json)
    _say_what_was_done(out, made, loaded.notes)


def _say_what_was_done(out: Path, made: RoutingTrace, known: Sequence[str]) -> None:
    """Print the notes of the new trace, without those of its source traces."""
    for note in made.notes:
        if note not in known:
            message(f"{out}: {note}")
