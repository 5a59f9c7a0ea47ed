"""What every estimator is asked: published speeds, and what their rows tell of model, machine and placement."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import polars as pl

from flashmoe_sim.field.asked import Traces, asked_of
from flashmoe_sim.field.machine import part_in
from flashmoe_sim.field.rows import FieldRow, source_of
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.geometry.named import file_bytes, named_models
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.machine import Machine, Quantity
from flashmoe_sim.machines.parts import Part
from reports.field import residuals
from reports.field.report import judged_rows

TABLE = Path(__file__).with_name("questions.csv")
DEEPEST = 8192  # tokens in the context: no other estimator is told of more


def questions() -> list[dict[str, Any]]:
    """The questions, as they are kept."""
    return pl.read_csv(TABLE, infer_schema_length=None).to_dicts()


def seal() -> str:
    """The name of the questions and of what was measured: another set, or a row changed, has another name."""
    return hashlib.sha256(TABLE.read_bytes()).hexdigest()[:16]


def table() -> pl.DataFrame:
    """A line for each row of the field report that every estimator can be told: one GPU or none, and no drafts."""
    asked = set(residuals.on_parts(pl.read_csv(residuals.TABLE, infer_schema_length=None))["id"])
    traces, lines = Traces(), []
    for row in judged_rows():
        if row.id not in asked:
            continue
        of = asked_of(row, traces)
        machine, model = of.case.machine, of.case.model
        if machine.gpus == machine.machines == machine.sockets == 1 and not of.case.drafts and of.case.depth <= DEEPEST:
            lines.append(
                {
                    "id": row.id,
                    "source": source_of(row),
                    "strategy": row.strategy,
                    "model": model.base_name,
                    "quant": model.quant,
                    **_sizes(model),
                    **_told(row, machine),
                    "tok_s": row.decode_tok_s,
                }
            )
    return pl.DataFrame(lines, infer_schema_length=None).with_columns(pl.selectors.float().round_sig_figs(4))


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


def _told(row: FieldRow, machine: Machine) -> dict[str, float | str | bool | None]:
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


def write() -> None:
    table().write_csv(TABLE)
