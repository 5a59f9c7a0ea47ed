"""Sets of runs: one that compares every mode, and the fewest that determine a machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flashmoe_sim.geometry.model import ModelGeometry
from native_bridge.engines.base import RunRequest

OTHER_IO_SPLIT = 1  # beside the runtime's own


def comparison(model: ModelGeometry, **options: Any) -> list[RunRequest]:
    """Every mode: streamed with a small, a medium and a full bank, with reads ahead, and all resident modes."""
    experts = max(layer.n_experts for layer in model.layers.values())
    small, middle = max(model.top_k, experts // 5), max(model.top_k, 3 * experts // 8)
    banked = [("slot-bank", small), ("slot-bank", middle), ("slot-bank", experts), ("resident-slot-bank", middle)]
    all_resident = [("stock", experts), ("resident-bank", experts), ("oracle-all-hit", experts)]

    def make(mode: str, bank: int, prefetch: str | None = None) -> RunRequest:
        return RunRequest(mode, bank, prefetch=prefetch, **options)

    modes = dict.fromkeys([*banked, *all_resident, ("oracle-prefetch", middle)])
    return [
        *(make(mode, bank) for mode, bank in modes),
        make("slot-bank", middle, "temporal"),
        make("slot-bank", middle, "predict-prev"),
    ]


def calibration(
    model: ModelGeometry, *, bank: int | None, parameters: Sequence[str] = (), **options: Any
) -> list[RunRequest]:
    """The fewest runs that determine a machine: two streamed ones, and a replay with every expert resident.

    bank: slots of the first streamed run; by default a fifth of the experts, so that it misses often. The second has
    one for every expert, so that each install fills a slot for the first time. parameters: `request_us` also needs the
    first with another io-split, and `weights_gb_s` a run with half the top-k.
    """
    experts = max(layer.n_experts for layer in model.layers.values())
    slots = max(model.top_k, experts // 5) if bank is None else bank

    def make(mode: str, bank: int, *, io_split: int | None = None, top_k: int = 0) -> RunRequest:
        return RunRequest(mode, bank, io_split=io_split, top_k=top_k, **options)

    requests = [make("slot-bank", each) for each in sorted({slots, experts})]
    requests.append(make("oracle-all-hit", experts))
    if "request_us" in parameters:
        requests.append(make("slot-bank", slots, io_split=OTHER_IO_SPLIT))
    if "weights_gb_s" in parameters:
        requests.append(make("stock", experts, top_k=max(1, model.top_k // 2)))
    return requests
