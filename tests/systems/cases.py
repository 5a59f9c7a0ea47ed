"""Small models and machines for the tests of systems."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from flashmoe_sim.geometry.graph import Graph
from flashmoe_sim.geometry.model import LayerGeometry, ModelGeometry
from flashmoe_sim.io.sizes import GIB, MIB
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.machine import Machine, Quantity
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.trace.bundled import catalog
from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.trace.routing import RoutingTrace
from flashmoe_sim.trace.synth_like import alike
from flashmoe_sim.trace.synth_shape import Shape

FAMILIES = {"ffn_gate_exps": MIB, "ffn_up_exps": MIB, "ffn_down_exps": 2 * MIB}


def model(*, layers: range = range(2, 6), experts: int = 16, top_k: int = 2, arch: str = "qwen35moe") -> ModelGeometry:
    """Four layers from number 2 on, of 16 experts of 4 MiB; 1 GiB of dense weights."""
    of = dict.fromkeys(layers, LayerGeometry(experts, FAMILIES))
    return ModelGeometry("small", of, top_k, "made", arch=arch, dense_bytes=GIB)


def machine(
    name: str = "rtx-3090", *, gpu_gib: float | None = None, ram_gib: float | None = None, gpus: int = 1
) -> Machine:
    """A preset with other sizes of memory. gpu_gib: of all GPUs together."""
    found = replace(load_machine(name), gpus=gpus)
    if gpu_gib is not None:
        assert found.gpu is not None
        found = replace(found, gpu=replace(found.gpu, memory_gib=_size(gpu_gib)))
    if ram_gib is not None:
        assert found.memory is not None
        found = replace(found, memory=replace(found.memory, ram_gib=_size(ram_gib), reserve_gib=_size(0.5)))
    return found


def _size(gib: float) -> Quantity:
    return Quantity(gib, gib, gib, "made", "made")


def case(
    name: str = "rtx-3090", *, gpu_gib: float | None = None, ram_gib: float | None = None, gpus: int = 1, **of: Any
) -> Case:
    return Case(model(**of), machine(name, gpu_gib=gpu_gib, ram_gib=ram_gib, gpus=gpus))


def workload(of: ModelGeometry, *, tokens: int = 64) -> Workload:
    """A made trace of the model."""
    n_experts = tuple((number, layer.n_experts) for number, layer in of.layers.items())
    return prepare(_made(n_experts, of.top_k, tokens), of)


@cache
def _made(n_experts: tuple[tuple[int, int], ...], top_k: int, tokens: int) -> RoutingTrace:
    source = load_trace(next(iter(catalog())))
    return alike(source, shape=Shape("made", dict(n_experts), top_k), tokens=tokens)[0]


def shape_of(system: System, otherwise: tuple[int, int]) -> tuple[int, int]:
    """Layers and experts of the only model that a system runs, or others."""
    shape = None if system.facts is None else system.facts.shape
    return otherwise if shape is None else (shape.layers, shape.experts)


def served_by(system: System, of: ModelGeometry) -> ModelGeometry:
    """The model with an architecture and in a quantization that the system's engine serves."""
    facts = system.facts
    if facts is None:
        return of
    quant = facts.formats.quants[0] if facts.formats.quants else of.quant
    return replace(of, name="served", arch=facts.archs.served[0], quant=quant, graph=Graph())
