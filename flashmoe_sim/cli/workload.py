"""The options that say which trace, which model and which setup, shared by the verbs that replay."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flashmoe_sim.cli.common import message
from flashmoe_sim.errors import BadInput

if TYPE_CHECKING:
    from flashmoe_sim.residency.setup import Setup
    from flashmoe_sim.residency.workload import Workload

trace_argument = click.argument("trace", metavar="TRACE")
model_option = click.option(
    "--model", metavar="SPEC", help="What an expert costs: a manifest, sidecar folder, GGUF file or name."
)
contract_option = click.option(
    "--contract",
    default="runtime",
    show_default=True,
    metavar="C",
    help="When residency is looked up and what may be a victim: runtime, protected, atomic or sequential.",
)
scope_option = click.option(
    "--scope",
    default="layer",
    show_default=True,
    metavar="S",
    help="layer: a bank for each layer; global: one for all.",
)
prefetch_option = click.option(
    "--prefetch",
    default="none",
    show_default=True,
    metavar="F",
    help="Predictor: none, temporal, predict-prev, predict-top1.",
)
io_split_option = click.option(
    "--io-split",
    default=4,
    show_default=True,
    metavar="N",
    help="Most chunks one tensor family of an expert is read in.",
)


def setup_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--model`, `--contract`, `--scope`, `--prefetch` and `--io-split`."""
    for option in (io_split_option, prefetch_option, scope_option, contract_option, model_option):
        function = option(function)
    return function


def bank_meaning(setup: Setup) -> str:
    """What the number of a bank counts."""
    if setup.bank.slots is not None:
        return "slots of each layer" if setup.scope == "layer" else "slots of each layer, in one bank"
    return "bytes, shared equally by the layers" if setup.scope == "layer" else "bytes of one bank for all layers"


def load_workload(trace: str, model: str | None, *, lenient: bool = False) -> Workload:
    """The trace (a file, or a name from the catalogue) with its model; the reader's notes go to stderr."""
    from flashmoe_sim.cli.progress import reading
    from flashmoe_sim.geometry.load import load_model
    from flashmoe_sim.residency.workload import prepare
    from flashmoe_sim.trace.bundled import catalog
    from flashmoe_sim.trace.load import load_trace

    path = Path(trace)
    known = catalog()
    is_name = re.fullmatch(r"[\w.-]+", trace) is not None and not os.path.lexists(path)
    bundled = known.get(trace) if is_name else None
    if bundled is not None:
        path, model = bundled.path, model or bundled.model
    elif is_name:
        raise BadInput(f"{trace}: no such file, nor a bundled trace; those are: {', '.join(known)}")
    geometry = load_model(model) if model else None
    with reading(path) as progress:
        loaded = load_trace(path, lenient=lenient, progress=progress)
    if bundled is not None:
        loaded = replace(loaded, name=bundled.name)
    for note in loaded.notes:
        message(f"{trace}: {note}")
    return prepare(loaded, geometry)
