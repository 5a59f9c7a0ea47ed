"""`sim trace merge` and `sim trace speculate`: workloads made from recorded traces."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flashmoe_sim.cli.common import force_option, json_option, lenient_option, message
from flashmoe_sim.cli.trace_out import report_written, to_option, trace_writer
from flashmoe_sim.cli.workload import read_trace, trace_argument

if TYPE_CHECKING:
    from flashmoe_sim.trace.routing import RoutingTrace

out_option = click.option(
    "--out", required=True, type=click.Path(path_type=Path), metavar="FILE", help="Write the trace there."
)


@click.command(short_help="Several traces as one: together, in a row, in turns.")
@click.argument("traces", nargs=-1, required=True, metavar="TRACE...")
@click.option(
    "--how",
    required=True,
    type=click.Choice(["union", "concat", "interleave"]),
    help="union: step i of all is one step; concat: one after another; interleave: --every steps of each in turn.",
)
@click.option(
    "--stagger",
    type=click.IntRange(0),
    metavar="STEPS",
    help="With union: begin each TRACE this many steps further on than the one before, and go round at its end.",
)
@click.option("--every", type=click.IntRange(1), metavar="STEPS", help="With interleave: steps of a turn.")
@out_option
@to_option
@force_option
@lenient_option
@json_option
def merge(
    traces: tuple[str, ...],
    *,
    how: str,
    stagger: int | None,
    every: int | None,
    out: Path,
    to: str | None,
    force: bool,
    lenient: bool,
    as_json: bool,
) -> None:
    """Write several traces of one model as one workload.

    union is what a server with that many conversations at once decodes: a call has the tokens of all, and asks for the
    union of their experts. TRACE may be given more than once; --stagger then keeps the copies from asking for the same.
    A trace that has ended drops out: concat it with itself first to go on, or cut the others.

    \b
    Example:  sim trace merge python-256 prose-256 --how union --out two.parquet
    """
    from flashmoe_sim.trace.merge import concat, interleave, notes_of, union

    if len(traces) < 2:
        raise click.UsageError("one trace only; give at least two to merge")
    if stagger is not None and how != "union":
        raise click.UsageError(f"--stagger is of --how union, not {how}")
    if (every is None) == (how == "interleave"):
        raise click.UsageError("--how interleave needs --every" if every is None else f"--every is not of --how {how}")
    write = trace_writer(out, to, force=force)
    read = {name: read_trace(name, lenient=lenient) for name in dict.fromkeys(traces)}
    if len({trace.name for trace in read.values()}) < len(read):
        read = {name: trace.with_(name=name) for name, trace in read.items()}
    parts = [read[name] for name in traces]
    if how == "union":
        merged = union(parts, stagger=stagger or 0)
    else:
        merged = concat(parts) if every is None else interleave(parts, every=every)
    report_written(write(merged), as_json=as_json)
    _say_what_was_done(out, merged, notes_of(parts))


@click.command(short_help="Several tokens verified in one step.")
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
    help="What stands for a rejected token, which the trace lacks. random: a decode step of the trace, too unlike its "
    "neighbours; next: the true token at its place, too helpful.",
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

    A decode step and the K drafted tokens after it become one step, whose calls ask for the union of their experts.
    With --accept the next step begins at the first token that was not accepted. The result's tokens are those computed,
    rejected ones included: compare total misses, which are for the same text, not misses per token.

    \b
    Example:  sim trace speculate python-256 --draft 3 --out drafted.parquet
    """
    from flashmoe_sim.trace.speculate import speculate as speculated

    write = trace_writer(out, to, force=force)
    loaded = read_trace(trace, lenient=lenient)
    made = speculated(loaded, draft=draft, accept=accept, rejected=rejected, seed=seed)
    report_written(write(made), as_json=as_json)
    _say_what_was_done(out, made, loaded.notes)


def _say_what_was_done(out: Path, made: RoutingTrace, known: Sequence[str]) -> None:
    """The notes of the new trace, without those it has from the traces it is made of."""
    for note in made.notes:
        if note not in known:
            message(f"{out}: {note}")
