"""`sim trace synth`: a workload made without a recording."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from flashmoe_sim.cli.common import force_option, json_option, lenient_option, message
from flashmoe_sim.cli.trace_out import report_written, to_option, trace_writer
from flashmoe_sim.cli.trace_what_if import out_option
from flashmoe_sim.cli.workload import read_trace


@click.command(
    short_help="A trace from a hit curve, a profile, or chance.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--curve",
    metavar="POINTS",
    help="LRU hit rates by slots of a layer: 16:0.588,32:72.8%, or a published table with a column bank or slots, "
    "and one hit_pct or hit_rate.",
)
@click.option(
    "--curve-tokens",
    type=int,
    metavar="R",
    help="Tokens of the run behind the curve, prompt included; default: as many as the trace has.",
)
@click.option("--like", metavar="TRACE", help="Imitate the popularity and the token overlap of this trace.")
@click.option(
    "--null",
    metavar="KIND",
    help="uniform: every expert equally likely; shuffled: the calls of --like, each layer's in another order.",
)
@click.option("--model", metavar="SPEC", help="The model, for layers, experts and top-k.")
@click.option("--layers", type=int, metavar="L", help="Without a model: the number of layers.")
@click.option("--experts", type=int, metavar="N", help="Without a model: the experts per layer.")
@click.option("--topk", "top_k", type=int, metavar="K", help="Experts per token, if not the model's.")
@click.option("--tokens", type=int, metavar="T", help="Tokens to decode; with --like as many as TRACE has.")
@click.option("--prompt", default=0, metavar="P", help="Prompt tokens before them, also one per call.")
@click.option("--seed", default=1, show_default=True, metavar="N", help="Seed of the random draws.")
@out_option
@to_option
@force_option
@lenient_option
@json_option
def synth(
    *,
    curve: str | None,
    curve_tokens: int | None,
    like: str | None,
    null: str | None,
    model: str | None,
    layers: int | None,
    experts: int | None,
    top_k: int | None,
    tokens: int | None,
    prompt: int,
    seed: int,
    out: Path,
    to: str | None,
    force: bool,
    lenient: bool,
    as_json: bool,
) -> None:
    """Make a trace from what is known about a workload.

    With --curve, LRU hits as often as the points say, within half a percentage point (contract atomic, a bank for each
    layer). A curve that stops rising below 100 % belongs to a short run: its largest banks miss only first uses, whose
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
    from flashmoe_sim.geometry.shape import find_shape
    from flashmoe_sim.trace.hit_points import read_hit_points
    from flashmoe_sim.trace.synth import synthesize

    write = trace_writer(out, to, force=force)
    points = None if curve is None else read_hit_points(curve)
    if points and 0 < max(points.values()) <= 0.01:
        most = max(points.values())
        message(f"{curve}: hits {most:.2%} at most; a column hit_pct is in per cent, a column hit_rate is 0 to 1")
    source = None if like is None else read_trace(like, lenient=lenient)
    with working("making a trace") as progress:
        made, fit = synthesize(
            curve=points,
            like=source,
            null=null,
            shape=find_shape(model, layers=layers, n_experts=experts, top_k=top_k),
            tokens=tokens,
            prompt=prompt,
            curve_tokens=curve_tokens,
            seed=seed,
            progress=progress,
        )
    written: dict[str, Any] = {**write(made), "notes": list(made.notes)}
    report_written(written if fit is None else {**written, "fit": asdict(fit)}, as_json=as_json)
    for note in made.notes:
        message(f"{out}: {note}")
