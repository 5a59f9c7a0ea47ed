"""How a model computes its routed experts, as far as engines ask: by architecture, model and file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib import resources

from flashmoe_sim.io.errors import Malformed, shown


@dataclass(frozen=True, kw_only=True)
class Graph:
    """How a model computes its routed experts, as far as engines ask; None for what is not known.

    activation: as llama.cpp names it: silu, gelu, swiglu-oai, relu-sqr, situ. gated: an expert has a gate.
    biases: experts have biases. fused: gate and up are one tensor in this file. groups: expert groups; 0 or 1: none.
    scales: a scale per expert beside its weights. weights_first: routing weights are applied before the experts.
    clamped: the values between the matrices are clamped.
    """

    activation: str | None = None
    gated: bool | None = None
    biases: bool | None = None
    fused: bool | None = None
    groups: int | None = None
    scales: bool | None = None
    weights_first: bool | None = None
    clamped: bool | None = None

    def narrowed(self, own: Graph) -> Graph:
        """This graph with everything that `own` knows."""
        known = {item.name: getattr(own, item.name) for item in fields(own) if getattr(own, item.name) is not None}
        return replace(self, **known)


UNKNOWN = Graph()


def graph_of(arch: str, own: Graph = UNKNOWN) -> Graph:
    """The graph of an architecture, narrowed by the facts of a model or file; an unknown one brings nothing."""
    return graphs().get(arch, UNKNOWN).narrowed(own)


@cache
def graphs() -> dict[str, Graph]:
    """The table of architectures, by llama.cpp's names."""
    text = resources.files("flashmoe_sim.geometry").joinpath("graphs.toml").read_text("utf-8")
    return {arch: read_graph(f"graphs.toml: {arch}", table) for arch, table in tomllib.loads(text).items()}


def read_graph(where: str, table: Mapping[str, object]) -> Graph:
    """A graph from a table with its `source`.

    Raises BadInput for a missing source and for anything that Graph does not have, or not as this type.
    """
    if not isinstance(table.get("source"), str) or not table["source"]:
        raise Malformed(
            f"source is {shown(table.get('source'))}; expected repository path:line@commit",
            where=where,
            advice="add where this was read",
        )
    types = {item.name: str(item.type).partition(" ")[0] for item in fields(Graph)}
    own = {name: value for name, value in table.items() if name != "source"}
    for name, value in own.items():
        if type(value).__name__ != types.get(name):
            expected = f"{name} as {types[name]}" if name in types else f"one of {', '.join(types)}"
            raise Malformed(f"{name} is {shown(value)}; expected {expected}", where=where, advice="correct the entry")
    return Graph(**own)  # type: ignore[arg-type]
