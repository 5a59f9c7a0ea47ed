"""The seconds that a token of a prompt takes on paper, by part."""

from __future__ import annotations

import math
import re

from flashmoe_sim.geometry.named import named_models
from flashmoe_sim.machines.machine import Compute, Machine
from flashmoe_sim.systems.base import Case
from flashmoe_sim.systems.placed import PlacedLayers
from flashmoe_sim.systems.placed_ik import PlacedIk
from flashmoe_sim.systems.strata import CHOSEN
from flashmoe_sim.timeline.attention import operations
from flashmoe_sim.timeline.models.prefill_copy import PrefillCopy
from reports.field.depth import ASSUMED, SPARSE
from reports.field.predict import Raw
from reports.field.prompt import Prompt, prompt_of
from reports.field.rows import FieldRow
from reports.field.serving import LOADED

PARTS = ("gpu", "padding", "cpu", "weights", "cpu_weights", "copy", "storage", "attention", "layer")
PADDED = 16  # tokens more for each expert that is used, before fitting: kernels compute whole tiles
# The CPU's arithmetic grows with the cube root of its bandwidth: servers have more channels than faster cores.
OPERATIONS_A_BYTE, CPU_BYTES_S = 100.0, 50e9
LAYER_S = 1e-4
ALIKE = 0.6  # n tokens of a text use as many experts as n to this power that choose by chance
ASSUMED_TIMES = 10.0  # operations of attention with an indexer, over those of what it stands for
KT_COPIES_FROM = 1000
SPARSE_PROMPTS = (*SPARSE, "ds4")  # engines whose prompts compute with the tokens that an indexer chooses
_PACKED = re.compile(r"-rtr|_R[48]\b")


def part_seconds(raw: Raw) -> dict[str, float]:
    """Seconds a token of a row's prompt, by part, as if each rate were reached; empty without a price.

    gpu: arithmetic. padding: the same for tiles that are not full. weights: reading them, once for a batch. copy: to
    the GPU, of experts in RAM, if the batch is large enough for the engine; else the CPU computes them.
    """
    way = raw.way
    if way is None or raw.blind is None:
        return {}
    machine, model, entry, prompt = way.machine, way.model, named_models()[way.name], prompt_of(raw.row)
    unit = machine.gpu or machine.cpu
    assert unit is not None
    n, experts = prompt.batch, max(layer.n_experts for layer in model.layers.values())
    dense, routed = 2e9 * entry.dense_params_b, 2e9 * entry.routed_params_b * model.top_k / entry.experts
    used = distinct_share(experts=experts, top_k=model.top_k, tokens=n)
    used_bytes, layers = used * model.routed_bytes, len(model.layers)
    found = dict.fromkeys(PARTS, 0.0)
    found["attention"] = _attention_operations(raw, prompt) / unit.operations_s
    found["layer"] = layers * LAYER_S / n
    if machine.gpu is None:
        far, on_unit = float(way.far_layers > 0), 1.0
        found["cpu"] = (dense + routed) / _cpu_operations_s(unit)
    else:
        far = way.far_layers / layers * (1 - way.share)
        by_cpu = far > 0 and _on_cpu(raw.row, Case(model, machine), n)
        on_unit, own = 1 - far, 1 - far if by_cpu else 1.0
        found["gpu"] = (dense + own * routed) / unit.operations_s
        found["padding"] = own * routed * PADDED * used * experts / (n * model.top_k) / unit.operations_s
        if by_cpu and machine.cpu is not None:
            found["cpu"] = far * routed / _cpu_operations_s(machine.cpu)
            found["cpu_weights"] = far * used_bytes / _bytes_s(machine.cpu) / n
        elif machine.link is not None:
            pinned = LOADED.search(raw.row.flags) or "llama.cpp" not in raw.row.engine
            rate = machine.link.pinned_gb_s if pinned else machine.link.pageable_gb_s  # of a mapped file
            found["copy"] = far * used_bytes / (1e9 * rate.value) / n
    found["weights"] = ((model.streamed_bytes or 0) + on_unit * used_bytes) / _bytes_s(unit) / n
    found["storage"] = far * (1 - _in_ram(raw, far)) * used_bytes / _stored_bytes_s(machine) / n
    return found


def distinct_share(*, experts: int, top_k: int, tokens: int) -> float:
    """The share of a layer's experts that consecutive tokens use.

    Bundled traces of five models have 8 to 512 tokens use as many as n ** 0.48 to n ** 0.93 that choose by chance.
    """
    return 1 - float((1 - top_k / experts) ** (tokens**ALIKE))


def _bytes_s(unit: Compute) -> float:
    assert unit.weights_gb_s is not None
    return 1e9 * unit.weights_gb_s.value


def _stored_bytes_s(machine: Machine) -> float:
    return 1e9 * machine.storage.read_gb_s.value


def _cpu_operations_s(unit: Compute) -> float:
    return OPERATIONS_A_BYTE * math.cbrt(_bytes_s(unit) * CPU_BYTES_S**2)


def _on_cpu(row: FieldRow, case: Case, batch: int) -> bool:
    """Whether the CPU computes the experts in RAM."""
    system = PlacedIk() if "ik_llama" in row.engine else PlacedLayers()
    if _PACKED.search(row.flags + row.quant) or batch < system.copy_from_tokens(case):
        return True
    if row.engine.startswith("ktransformers kt-kernel"):
        return batch < KT_COPIES_FROM
    return row.engine.startswith("ktransformers")


def _in_ram(raw: Raw, far: float) -> float:
    """The share of the experts that are not on the GPU that RAM holds; a mapped file's pages on the GPU can go."""
    assert raw.way is not None
    share = raw.way.ram_share
    return min(share / far, 1.0) if isinstance(raw.way.execution, PrefillCopy) and far > 0 else share


def _attention_operations(raw: Raw, prompt: Prompt) -> float:
    assert raw.way is not None
    attention = raw.way.model.attention
    if attention is None:
        return 0.0
    depth = prompt.depth + prompt.tokens // 2
    if raw.row.engine.startswith(SPARSE_PROMPTS):
        depth = min(depth, CHOSEN)
    every = sum(layer.attended(depth) * operations(layer) for layer in attention.layers)
    return every * (ASSUMED_TIMES if attention == ASSUMED else 1.0)
