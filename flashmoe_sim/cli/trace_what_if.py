"""`sim trace merge`, `speculate` and `synth`: workloads made from recorded traces, or without a recording."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace

import click

from flashmoe_sim.cli.common import json_option, lenient_option, message
from flashmoe_sim.cli.options import of_verb
from flashmoe_sim.cli.trace_out import TraceWriter, report_written, writes_trace
from flashmoe_sim.cli.workload import read_trace
from flashmoe_sim.verbs.merge import Merge
from flashmoe_sim.verbs.speculate import Speculate
from flashmoe_sim.verbs.synth import Synth


@click.command(short_help="Several traces as one: batched, together, in a row, in turns.")
@of_verb(Merge)
@writes_trace()
@lenient_option
@json_option
def merge(asked: Merge, *, writer: TraceWriter, lenient: bool, as_json: bool) -> None:
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

    read = {name: read_trace(name, lenient=lenient) for name in dict.fromkeys(asked.traces)}
    if len({trace.name for trace in read.values()}) < len(read):
        read = {name: trace.with_(name=name) for name, trace in read.items()}
    parts = [read[name] for name in asked.traces]
    with working("merging") as progress:
        merged = asked.run(parts, progress)
    report_written(writer.write(merged), as_json=as_json)
    known = notes_of(parts)
    writer.say(note for note in merged.notes if note not in known)


@click.command(short_help="Speculative decoding: several tokens verified in one step.")
@of_verb(Speculate)
@writes_trace()
@lenient_option
@json_option
def speculate(asked: Speculate, *, writer: TraceWriter, lenient: bool, as_json: bool) -> None:
    """Write a trace as speculative decoding would route it.

    A decode step and the K drafted tokens after it become one step, whose calls request the union of their experts.
    With --accept the next step begins at the first token that was not accepted. The result's tokens are those computed,
    rejected ones included: compare total misses, which are for the same text, not misses per token.

    \b
    Example:  sim trace speculate python-256 --draft 3 --out drafted.parquet
    """
    from flashmoe_sim.cli.progress import working

    loaded = read_trace(str(asked.trace), lenient=lenient)
    with working("speculating"):
        made = replace(asked, trace=loaded).run()
    report_written(writer.write(made), as_json=as_json)
    writer.say(note for note in made.notes if note not in loaded.notes)


@click.command(short_help="A trace from a hit curve, a profile, or chance.")
@of_verb(Synth)
@writes_trace()
@lenient_option
@json_option
def synth(asked: Synth, *, writer: TraceWriter, lenient: bool, as_json: bool) -> None:
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

    if asked.curve is not None and not isinstance(asked.curve, Mapping):
        points = read_hit_points(asked.curve)
        if 0 < (most := max(points.values())) <= 0.01:
            message(
                f"{asked.curve}: hits {most:.2%} at most; a column hit_pct is in per cent, a column hit_rate is 0 to 1"
            )
        asked = replace(asked, curve=points)
    if asked.like is not None:
        asked = replace(asked, like=read_trace(str(asked.like), lenient=lenient))
    with working("making a trace") as progress:
        found = asked.run(progress)
    made = found.workload.trace
    fit = {} if found.fit is None else {"fit": asdict(found.fit)}
    report_written({**writer.write(made), "notes": list(made.notes), **fit}, as_json=as_json)
    writer.say(made.notes)
