"""The model that anyone makes on paper: active bytes over the bandwidth of where they lie."""

from __future__ import annotations

from flashmoe_sim.machines.compose import GPU_SHARE
from flashmoe_sim.timeline.models._in_ram import InRam
from flashmoe_sim.timeline.models.mapped import Mapped
from reports.field.rows import FieldRow
from reports.field.serving import Way


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
