"""`sim trace import`: recordings that lack some information."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from flashmoe_sim.io.errors import Conflict, Incomplete, Malformed
from flashmoe_sim.io.sizes import parse_numbers
from flashmoe_sim.options import LENIENT, option, option_field
from flashmoe_sim.verbs.base import Stages
from flashmoe_sim.verbs.trace_file import TraceFile, WrittenTrace

if TYPE_CHECKING:
    from flashmoe_sim.trace.requests import Hints
    from flashmoe_sim.trace.routing import RoutingTrace
    from flashmoe_sim.verbs.given import Load, Model

HINTS = (
    "prefill_chunk",
    "prompt_tokens",
    "phase",
    "start",
    "moe_layers",
    "n_layers",
    "top_k",
    "missing",
    "shared",
    "axes",
    "array",
    "weights_array",
)
OF_TABLES = ("where", "no_header", "call_by", "layer_from_name", "first_id", "records")


def _axes(text: str) -> tuple[str, ...]:
    return tuple(axis.strip() for axis in text.split(","))


@dataclass(frozen=True, kw_only=True)
class ImportTrace(TraceFile):
    """Write a recording as a trace."""

    help: ClassVar[str] = """Write a recording of an engine as a trace, and say what was assumed.

    Most files need none of these options, and every command reads them directly. Arrays need --prompt-tokens or
    --phase, SGLang's responses --model or --top-k. --columns reads any CSV, JSON lines or Parquet: fields are layer,
    expert, step, call, rank, weight, phase, request, n_tokens, position and time.

    \b
    Examples:  sim trace import a.npy --prompt-tokens 118 --out a.parquet
               sim trace import log.csv --columns layer=blk,expert=e,step=pos \\
                   --out log.parquet
    """

    files: tuple[str, ...] = field(kw_only=False, metadata=option("FILE...", "", positional=True))
    prefill_chunk: int | None = option_field(None, "N", "Prompt tokens that one pass reads.", least=1)
    prompt_tokens: int | None = option_field(None, "P", "Tokens of the prompt, only for arrays.", least=0)
    phase: str | None = option_field(None, "", "All tokens are prompt, or all decoded.", choices=("prompt", "decode"))
    start: int | None = option_field(None, "S", "Prompt tokens before the first row.", least=0)
    model: Model | None = option_field(None, "SPEC", "The model, for its routed layers, experts and top-k.")
    moe_layers: Sequence[int] | None = option_field(
        None, "3-60", "The numbers of the routed layers.", parse=partial(parse_numbers, option="--moe-layers")
    )
    n_layers: int | None = option_field(None, "L", "Number of layers, for an array without its shape.", least=1)
    top_k: int | None = option_field(None, "K", "Experts per token, if the file does not say.", least=1)
    missing: int | None = option_field(None, "ID", "Another id that means no routing; negative ids always do.")
    shared: Sequence[int] | None = option_field(
        None,
        "ID,ID",
        "Ids of shared experts, which are dropped from every token.",
        parse=partial(parse_numbers, option="--shared"),
    )
    axes: Sequence[str] | None = option_field(
        None,
        "A,B,C",
        "The axes of an array, in order: token, layer, k, and request if it has one.",
        parse=_axes,
    )
    array: str | None = option_field(None, "NAME", "The array with the experts, if there are several.")
    weights_array: str | None = option_field(None, "NAME", "The array with their gate weights.")
    columns: str | None = option_field(
        None, "F=C,F=C", "The meaning of a table's columns: layer=blk,expert=e,step=pos."
    )
    where: str | None = option_field(None, "C=TEXT", "Read only rows of a table with this text in the column.")
    no_header: bool = option_field(False, "", "The first line of a CSV is a row; its columns are 0, 1, 2.")
    call_by: str | None = option_field(
        None, "", "How the rows of a table divide into calls.", choices=("step,layer", "run")
    )
    layer_from_name: str | None = option_field(None, "REGEX", "Find the layer's number in the name of a table's file.")
    first_id: int | None = option_field(None, "N", "The first expert's id in a table, if not 0.", least=0)
    records: str | None = option_field(None, "KEY", "The key of a JSON document under which a table's rows are.")
    lenient: bool = field(default=False, metadata=LENIENT)

    def check(self) -> None:
        """Raise BadInput also for options of tables without --columns."""
        super().check()
        if self.columns is None and (odd := [name for name in OF_TABLES if getattr(self, name)]):
            raise Incomplete(f"--{odd[0].replace('_', '-')} belongs to --columns; give both")

    def run(self, stages: Stages | None = None, load: Load | None = None) -> WrittenTrace:
        """Read the recording, and write it."""
        from flashmoe_sim.geometry.recordings import hints_of
        from flashmoe_sim.trace.check import ASK, always_used, ask_shared, begins_at_1
        from flashmoe_sim.trace.load import load_trace
        from flashmoe_sim.verbs.given import model_of

        given = {name: getattr(self, name) for name in HINTS if getattr(self, name) is not None}
        given = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
        trace = self._read(hints_of(model_of(self.model), **given), given, load or load_trace)
        trace = trace.with_(name=self.out.name.removesuffix(self.suffix))
        notes = [*trace.notes, *([f"no layer asks for expert 0: {ASK}"] if begins_at_1(trace) else [])]
        if (shared := always_used(trace)) is not None:
            notes.append(ask_shared(shared))
        return WrittenTrace({**self.write(trace, stages), "notes": notes}, notes)

    def _read(self, hints: Hints, given: dict[str, Any], load: Load) -> RoutingTrace:
        """The trace of one file of a known format, of the ranks of a recorder, or of the parts of a table."""
        from flashmoe_sim.trace.formats import FORMATS, find_format

        files = [Path(file) for file in self.files]
        if self.columns is not None:
            from flashmoe_sim.trace.requests import ReadOptions
            from flashmoe_sim.trace.table import read_table
            from flashmoe_sim.trace.table_columns import Columns

            table = Columns(
                columns=_pairs(self.columns, "--columns"),
                where=_pair(self.where, "--where") if self.where else None,
                header=not self.no_header,
                call_by=self.call_by or "step,layer",
                layer_from_name=self.layer_from_name,
                first_id=self.first_id or 0,
                records=self.records,
            )
            return read_table(files, table, ReadOptions(lenient=self.lenient, hints=hints))
        if len(files) > 1:
            from flashmoe_sim.trace.sglang_pt import read_ranks

            if any(find_format(file).name != "sglang-pt" for file in files):
                raise Conflict("several files are ranks of SGLang's recorder, or with --columns parts of a table")
            return read_ranks(files)
        file = self.files[0]
        trace = load(file, lenient=self.lenient, notes=False, hints=hints)
        if given and not FORMATS[trace.format].takes_hints:
            odd = next(iter(given)).replace("_", "-")
            raise Conflict(f"{file}: {trace.format} needs no options; leave --{odd} out")
        return trace


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
