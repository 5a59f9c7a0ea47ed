"""A row's predicted speed, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass, replace

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.machines.compose import GPU_SHARE
from flashmoe_sim.timeline.models._in_ram import InRam
from flashmoe_sim.timeline.models.mapped import Mapped
from reports.field.depth import ASSUMED, attended, kv_type_of
from reports.field.machine import built_of
from reports.field.model import model_of
from reports.field.price import Context, Priced, priced
from reports.field.prior import HitCurve
from reports.field.rows import FieldRow
from reports.field.serving import RowParts, Way, way_of
from reports.field.settings import settings_of


@dataclass(frozen=True, eq=False)
class Raw:
    """A row priced before any factor; why: there is no price, if so.

    informed: the price with the row's own hit rate; None if it says none that counts.
    """

    row: FieldRow
    way: Way | None = None
    informed: Priced | None = None
    blind: Priced | None = None
    naive: float | None = None
    naive_informed: float | None = None
    why: str = ""
    notes: tuple[str, ...] = ()


def raw_of(row: FieldRow, curves: dict[str, HitCurve]) -> Raw:
    """A row priced with its machine's own numbers."""
    try:
        model, built = model_of(row), built_of(row)
        model = replace(model, attention=model.attention or ASSUMED)
        settings = settings_of(row, moe_layers=len(model.layers))
        way = way_of(RowParts(row, model, built.machine, settings))
        context = Context(attended(row), kv_type_of(row))
        blind = priced(way, curves, hit_rate=None, context=context)
        informed = None
        if settings.hit_rate is not None and way.kind not in ("none", "uniform"):
            informed = priced(way, curves, hit_rate=settings.hit_rate, context=context)
        return Raw(
            row,
            way,
            informed,
            blind,
            naive_tok_s(row, way, hit_rate=None),
            None if informed is None else naive_tok_s(row, way, hit_rate=settings.hit_rate),
            notes=built.notes,
        )
    except BadInput as error:
        return Raw(row, why=str(error).removeprefix(f"{row.where}: "))


def naive_tok_s(row: FieldRow, way: Way, *, hit_rate: float | None) -> float:
    """Tokens a second if bytes are all that matters, and every expert is as likely as any other."""
    machine, model = way.machine, way.model
    layers = len(model.layers)
    active = model.top_k * model.routed_bytes / sum(layer.n_experts for layer in model.layers.values())
    far_bytes = active * way.far_layers
    hit = (0.0 if way.kind == "none" else way.share) if hit_rate is None else hit_rate
    missed = far_bytes * (1 - min(hit, 1.0))
    in_ram = min(way.ram_share / max(1 - way.share, 1e-9), 1.0)
    ram_gb_s = machine.memory.bandwidth_gb_s.value if machine.memory is not None else 50.0
    near_gb_s = ram_gb_s
    if machine.gpu is not None and machine.gpu.weights_gb_s is not None:
        near_gb_s = row.gpu_mem_gb_s or machine.gpu.weights_gb_s.value / GPU_SHARE[1]
    near = (model.streamed_bytes or 0) + active * layers
    seconds = 0.0
    if isinstance(way.execution, InRam | Mapped):
        near -= missed
        seconds += missed / ram_gb_s + missed * (1 - in_ram) / machine.storage.read_gb_s.value
    else:
        seconds += missed * (1 - in_ram) / machine.storage.read_gb_s.value
        seconds += missed / (machine.link.pinned_gb_s.value if machine.link is not None else ram_gb_s)
    return 1e9 / (seconds + near / near_gb_s)
