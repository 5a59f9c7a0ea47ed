"""What an estimator of speeds is asked and answers; and two of them: this program, and bytes over bandwidth."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from flashmoe_sim.field.asked import AskedRow
from flashmoe_sim.field.engines import attended
from flashmoe_sim.field.machine import part_in
from flashmoe_sim.field.rows import FieldRow
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.geometry.named import file_bytes, named_models
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.belief import published_times
from flashmoe_sim.machines.machine import Machine, Quantity
from flashmoe_sim.machines.parts import Part

DEEPEST = 8192  # tokens in the context; other estimators cannot be told of more
Question: TypeAlias = dict[str, Any]


class OneEstimate(NamedTuple):
    """What was asked for, with an interval if there is one, or why there is none.

    value: a decode speed in tokens a second; or GiB of a GPU, if its memory was asked for.
    """

    value: float | None = None
    lo: float | None = None
    hi: float | None = None
    why_not: str = ""


def told(row: FieldRow, model: ModelGeometry, machine: Machine) -> Question:
    """What every estimator is told of a row, as far as it can be told: model, bytes, machine, and how it was run.

    Sizes in GiB, rates in GB/s, weights in billions; None for what nobody knows.
    """
    return {
        "id": row.id,
        "strategy": row.strategy,
        "model": model.base_name,
        "quant": model.quant,
        **_sizes(model),
        **_of_machine(row, machine),
    }


def untold(row: FieldRow, machine: Machine, *, drafts: bool) -> str:
    """Why other estimators cannot be told a row; empty if they can."""
    if not machine.gpus == machine.machines == machine.sockets == 1:
        return "several GPUs, sockets or machines, of which it cannot be told"
    if drafts:
        return "drafts, of which it cannot be told"
    return f"more than {DEEPEST:,} tokens in the context, of which it cannot be told" if attended(row) > DEEPEST else ""


def _sizes(model: ModelGeometry) -> dict[str, float]:
    """Of all weights, and of those that a token uses: billions, and GiB."""
    named = named_models()[model.base_name]
    dense_b, routed_b = named.dense_params_b, named.routed_params_b
    return {
        "experts": named.experts,
        "top_k": named.top_k,
        "moe_layers": len(model.layers),
        "total_b": dense_b + routed_b + named.table_params_b,
        "active_b": dense_b + routed_b * named.top_k / named.experts,
        "file_gib": file_bytes(model) / GIB,
        "active_gib": ((model.dense_bytes or 0) + model.token_cycle_bytes()) / GIB,
    }


def _of_machine(row: FieldRow, machine: Machine) -> dict[str, float | str | bool | None]:
    """What the row, or the data sheet of a part that it names, says."""
    card = part_in(row.gpu, ("gpu", "chip")) or part_in(row.cpu, ("chip",))
    memory = machine.memory
    of_card = None if card is None else card.numbers.get("bandwidth_gb_s")
    return {
        "gpu": "" if machine.gpu is None else row.gpu or (card.title if card else ""),
        "gpu_gib": None if machine.gpu is None or machine.unified else row.gpu_vram_gib or _size(card, machine),
        "gpu_gb_s": None if machine.gpu is None else row.gpu_mem_gb_s or _value(of_card),
        "ram_gib": None if memory is None else memory.ram_gib.value,
        "ram_gb_s": row.ram_gb_s or (None if memory is None else _value(memory.bandwidth_gb_s)),
        "pcie_gb_s": None if machine.link is None else _value(machine.link.pinned_gb_s),
        "ssd_gb_s": row.ssd_gb_s or machine.storage.read_gb_s.value,
        "unified": machine.unified,
    }


def _size(card: Part | None, machine: Machine) -> float | None:
    """GiB on the box of a card."""
    of_card = None if card is None else card.numbers.get("memory_gib")
    return _value(of_card) or (None if machine.gpu is None else _value(machine.gpu.memory_gib))


def _value(quantity: Quantity | None) -> float | None:
    return None if quantity is None else quantity.value


def bytes_over_bandwidth(question: Question) -> OneEstimate:
    """What calculators do: the bytes of a token over the bandwidth of where they are, filling the GPU first."""
    gpu_gb_s, ram_gb_s, file_gib = question["gpu_gb_s"], question["ram_gb_s"], question["file_gib"]
    if question["gpu"] and gpu_gb_s is None:
        return OneEstimate(why_not="the bandwidth of the GPU is not known")
    on_gpu = min((question["gpu_gib"] or question["ram_gib"]) / file_gib, 1.0) if question["gpu"] else 0.0
    in_ram = 0.0 if question["unified"] and question["gpu"] else min(question["ram_gib"] / file_gib, 1.0 - on_gpu)
    places = ((on_gpu, gpu_gb_s), (in_ram, ram_gb_s), (1.0 - on_gpu - in_ram, question["ssd_gb_s"]))
    seconds = sum(question["active_gib"] * GIB / 1e9 * share / rate for share, rate in places if share > 0)
    return OneEstimate(1.0 / seconds)


def ours(asked: AskedRow) -> tuple[OneEstimate, OneEstimate]:
    """What the commands answer; and the same on paper, without what published speeds say of the engine."""
    found = asked.answer()
    if found.tok_s is None:
        refused = OneEstimate(why_not=found.why_not)
        return refused, refused
    answered = OneEstimate(found.tok_s, found.tok_s_lo, found.tok_s_hi)
    return answered, on_paper(found.tok_s, asked.whose.system)


def on_paper(tok_s: float, system: str) -> OneEstimate:
    """The speed of the parts, without what published speeds say of the engine."""
    return OneEstimate(tok_s / published_times(system))
