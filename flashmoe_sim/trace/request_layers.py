"""Which of the model's layers a routing array has, and whether its ids belong to the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.trace.calls import ID_MAX
from flashmoe_sim.trace.cut import shown_layers
from flashmoe_sim.trace.first_id import ask_first_id
from flashmoe_sim.trace.routing import RoutingTrace

if TYPE_CHECKING:
    from flashmoe_sim.trace.requests import Hints


def layer_numbers(count: int, *, moe_only: bool, hints: Hints, where: str) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """The model's number of each layer of an array, -1 for a layer to leave out; and notes on what was assumed."""
    known = hints.moe_layers or (tuple(sorted(hints.model)) if hints.model else None)
    if count > ID_MAX + 1:
        raise BadInput(f"{where}: {count:,} layers; expected at most {ID_MAX + 1:,}: the axes are in another order")
    every = np.arange(count)
    if known is None:
        if not moe_only:
            return every, ()
        return every, (
            f"only routed layers are recorded; they are numbered 0-{count - 1}; "
            "give --model or --moe-layers for the model's own numbers",
        )
    if len(known) == count:
        return np.array(known), ()
    if not moe_only and max(known) < count:
        return np.where(np.isin(every, known), every, -1) if hints.moe_layers else every, ()
    raise BadInput(
        f"{where}: {count} layers, but the model routes in {len(known)}: {shown_layers(known)}; "
        "check --model or --moe-layers"
    )


def check_layers(layers: NDArray[np.int64], hints: Hints, *, where: str) -> None:
    """Raise BadInput if a layer with routing is not a routed layer of the model."""
    if hints.model and (other := sorted(set(layers.tolist()) - set(hints.model))):
        raise BadInput(
            f"{where}: layers {shown_layers(other)} are routed, but the model routes in {shown_layers(hints.model)}; "
            "check --model and the sizes of the array"
        )


def check_ids(trace: RoutingTrace, name: str) -> None:
    """Raise BadInput for an id that its layer does not have, naming the first."""
    experts = np.array([trace.n_experts[layer] for layer in trace.layers])
    if int(trace.expert.max()) < experts.min():
        return
    limit = np.repeat(experts[np.searchsorted(trace.layers, trace.layer)], np.diff(trace.offset))
    at = int((trace.expert >= limit).argmax())
    if trace.expert[at] >= limit[at]:
        call = int(np.searchsorted(trace.offset, at, side="right")) - 1
        raise BadInput(
            f"{name}: expert {trace.expert[at]} in layer {trace.layer[call]}, which has {limit[at]} in the model, "
            "counted from 0; check --model and the sizes of the array"
            + ask_first_id(trace, refused=int(trace.expert.max()), experts=int(limit[at]))
        )
