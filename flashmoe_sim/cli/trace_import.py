"""`sim trace import`: recordings that lack some information."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from flashmoe_sim.cli.commands import of_verb
from flashmoe_sim.cli.common import json_option, lenient_option
from flashmoe_sim.cli.trace_out import TraceFile, report_written
from flashmoe_sim.cli.workload import read_trace
from flashmoe_sim.io.errors import Conflict, Malformed
from flashmoe_sim.io.numbers import parse_numbers

ABOUT_TABLES = ("where", "no_header", "call_by", "layer_from_name", "first_id", "records")


@click.command("import", short_help="Convert recordings of engines and tools, and state what was assumed.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@of_verb(TraceFile, "writer")
@click.option("--prefill-chunk", type=click.IntRange(1), metavar="N", help="Prompt tokens that one pass reads.")
@click.option("--prompt-tokens", type=click.IntRange(0), metavar="P", help="Tokens of the prompt, only for arrays.")
@click.option("--phase", type=click.Choice(["prompt", "decode"]), help="All tokens are prompt, or all decoded.")
@click.option("--start", type=click.IntRange(0), metavar="S", help="Prompt tokens before the first row.")
@click.option("--model", metavar="SPEC", help="The model, for its routed layers, experts and top-k.")
@click.option("--moe-layers", metavar="3-60", help="The numbers of the routed layers.")
@click.option(
    "--n-layers", type=click.IntRange(1), metavar="L", help="Number of layers, for an array without its shape."
)
@click.option("--top-k", type=click.IntRange(1), metavar="K", help="Experts per token, if the file does not say.")
@click.option("--missing", type=int, metavar="ID", help="Another id that means no routing; negative ids always do.")
@click.option("--shared", metavar="ID,ID", help="Ids of shared experts, which are dropped from every token.")
@click.option(
    "--axes", metavar="A,B,C", help="The axes of an array, in order: token, layer, k, and request if it has one."
)
@click.option("--array", metavar="NAME", help="The array with the experts, if there are several.")
@click.option("--weights-array", metavar="NAME", help="The array with their gate weights.")
@click.option("--columns", metavar="F=C,F=C", help="The meaning of a table's columns: layer=blk,expert=e,step=pos.")
@click.option("--where", metavar="C=TEXT", help="Read only rows of a table with this text in the column.")
@click.option("--no-header", is_flag=True, help="The first line of a CSV is a row; its columns are 0, 1, 2.")
@click.option("--call-by", type=click.Choice(["step,layer", "run"]), help="How the rows of a table divide into calls.")
@click.option("--layer-from-name", metavar="REGEX", help="Find the layer's number in the name of a table's file.")
@click.option("--first-id", type=click.IntRange(0), metavar="N", help="The first expert's id in a table, if not 0.")
@click.option("--records", metavar="KEY", help="The key of a JSON document under which a table's rows are.")
@lenient_option
@json_option
def import_(files: tuple[str, ...], *, writer: TraceFile, lenient: bool, as_json: bool, **given: Any) -> None:
    """Write a recording of an engine as a trace, and say what was assumed.

    Most files need none of these options, and every command reads them directly. Arrays need --prompt-tokens or
    --phase, SGLang's responses --model or --top-k. --columns reads any CSV, JSON lines or Parquet: fields are layer,
    expert, step, call, rank, weight, phase, request, n_tokens, position and time.

    \b
    Examples:  sim trace import a.npy --prompt-tokens 118 --out a.parquet
               sim trace import log.csv --columns layer=blk,expert=e,step=pos \\
                   --out log.parquet
    """
    from flashmoe_sim.geometry.hints import hints_of
    from flashmoe_sim.geometry.load import load_model
    from flashmoe_sim.trace.check import ASK, always_used, ask_shared, begins_at_1
    from flashmoe_sim.trace.formats import find_format

    columns = given.pop("columns")
    about = {name: given.pop(name) for name in ABOUT_TABLES}
    model = given.pop("model")
    if columns is None and (odd := [name for name in ABOUT_TABLES if about[name]]):
        raise click.UsageError(f"--{odd[0].replace('_', '-')} belongs to --columns; give both")
    if columns is None and len(files) > 1 and any(find_format(Path(file)).name != "sglang-pt" for file in files):
        raise click.UsageError("several files are ranks of SGLang's recorder, or with --columns parts of a table")
    if given["moe_layers"] is not None:
        given["moe_layers"] = tuple(parse_numbers(given["moe_layers"], "--moe-layers"))
    if given["shared"] is not None:
        given["shared"] = tuple(parse_numbers(given["shared"], "--shared"))
    if given["axes"] is not None:
        given["axes"] = tuple(axis.strip() for axis in given["axes"].split(","))
    hints = hints_of(load_model(model) if model else None, **{k: v for k, v in given.items() if v is not None})
    if columns is None and len(files) > 1:
        from flashmoe_sim.trace.sglang_pt import read_ranks

        trace = read_ranks([Path(file) for file in files])
    elif columns is None:
        trace = read_trace(files[0], lenient=lenient, notes=False, hints=hints)
        _check_used(files[0], trace.format, given)
    else:
        from flashmoe_sim.trace.requests import ReadOptions
        from flashmoe_sim.trace.table import read_table
        from flashmoe_sim.trace.table_columns import Columns

        table = Columns(
            columns=_pairs(columns, "--columns"),
            where=_pair(about["where"], "--where") if about["where"] else None,
            header=not about["no_header"],
            call_by=about["call_by"] or "step,layer",
            layer_from_name=about["layer_from_name"],
            first_id=about["first_id"] or 0,
            records=about["records"],
        )
        trace = read_table([Path(file) for file in files], table, ReadOptions(lenient=lenient, hints=hints))
    written = writer.write(trace.with_(name=writer.name))
    notes = [*trace.notes, *([f"no layer asks for expert 0: {ASK}"] if begins_at_1(trace) else [])]
    if (shared := always_used(trace)) is not None:
        notes.append(ask_shared(shared))
    report_written({**written, "notes": notes}, as_json=as_json)
    writer.say(notes)


def _check_used(file: str, format: str, given: dict[str, Any]) -> None:
    from flashmoe_sim.trace.formats import FORMATS

    if not FORMATS[format].takes_hints and (odd := [name for name, value in given.items() if value is not None]):
        raise Conflict(f"{file}: {format} needs no options; leave --{odd[0].replace('_', '-')} out")


def _pairs(text: str, option: str) -> dict[str, str]:
    pairs = [_pair(part, option) for part in text.split(",")]
    if len(found := dict(pairs)) < len(pairs):
        names = [name for name, _ in pairs]
        raise Conflict(f"{option} {text!r}: names {next(n for n in names if names.count(n) > 1)} twice; name it once")
    return found


def _pair(text: str, option: str) -> tuple[str, str]:
    name, sign, value = (part.strip() for part in text.partition("="))
    if not (name and sign and value):
        raise Malformed(f"{option} {text!r}: expected NAME=COLUMN, for example layer=blk")
    return name, value
