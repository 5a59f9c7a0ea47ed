"""`sim trace synth`: a workload made without a recording."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace

import click

from flashmoe_sim.cli.common import json_option, lenient_option, message
from flashmoe_sim.cli.options import of_verb
from flashmoe_sim.cli.trace_out import TraceWriter, report_written, writes_trace
from flashmoe_sim.cli.workload import read_trace
from flashmoe_sim.verbs.synth import Synth


@click.command(
    short_help="A trace from a hit curve, a profile, or chance.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
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
