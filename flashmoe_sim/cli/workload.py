"""The options that say which trace, which model and which setup, shared by the verbs that replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from flashmoe_sim.cli.common import message

if TYPE_CHECKING:
    from flashmoe_sim.residency.setup import Setup
    from flashmoe_sim.residency.workload import Workload
    from flashmoe_sim.trace.routing import RoutingTrace

trace_argument = click.argument("trace", metavar="TRACE")
model_option = click.option(
    "--model", metavar="SPEC", help="What an expert costs: a manifest, sidecar folder, GGUF file or name."
)
contract_option = click.option(
    "--contract",
    default="protected",
    show_default=True,
    metavar="C",
    help="When residency is looked up and what may be a victim: protected, atomic, sequential, or runtime, which is "
    "the patched runtime with its slot aliasing.",
)
scope_option = click.option(
    "--scope",
    default="layer",
    show_default=True,
    metavar="S",
    help="layer: a bank for each layer; global: one for all.",
)
PREDICTORS = "none, temporal, predict-prev, predict-top1, hot, markov, next-layer, eam, synthetic, oracle-1, oracle-w"
prefetch_option = click.option(
    "--prefetch", default="none", show_default=True, metavar="F", help=f"Predictor: {PREDICTORS}."
)
prefetches_option = click.option(
    "--prefetch", default="none", show_default=True, metavar="F,F", help=f"Predictors, or all: {PREDICTORS}."
)
io_split_option = click.option(
    "--io-split",
    default=4,
    show_default=True,
    metavar="N",
    help="Most chunks one tensor family of an expert is read in.",
)


def setup_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--model`, `--contract`, `--scope` and `--io-split`."""
    for option in (io_split_option, scope_option, contract_option, model_option):
        function = option(function)
    return function


def bank_meaning(setup: Setup) -> str:
    """What the number of a bank counts."""
    if setup.bank.slots is not None:
        return "slots of each layer" if setup.scope == "layer" else "slots of each layer, in one bank"
    return "bytes, shared equally by the layers" if setup.scope == "layer" else "bytes of one bank for all layers"


def slots_hint(trace: RoutingTrace, contract: str) -> str:
    """What a table of a trace with recorded slots adds to its caption, unless it reproduces the recording engine."""
    if trace.slot is None or contract == "runtime":
        return ""
    return "slots are recorded: --contract runtime reproduces the counts of their engine"


def read_trace(trace: str, *, lenient: bool = False, notes: bool = True) -> RoutingTrace:
    """Read what TRACE means, with progress; the reader's notes go to stderr where `notes`."""
    from flashmoe_sim.cli.progress import reading
    from flashmoe_sim.trace.bundled import find_trace
    from flashmoe_sim.trace.load import load_trace

    with reading(find_trace(trace)[0]) as progress:
        loaded = load_trace(trace, lenient=lenient, progress=progress)
    for note in loaded.notes if notes else ():
        message(f"{trace}: {note}")
    return loaded


def load_workload(trace: str, model: str | None, *, lenient: bool = False) -> Workload:
    """The trace with its model: the one given, else that of the catalogue, else what the trace itself tells."""
    from flashmoe_sim.residency.workload import find_geometry, prepare

    geometry = find_geometry(trace, model)
    return prepare(read_trace(trace, lenient=lenient), geometry)
