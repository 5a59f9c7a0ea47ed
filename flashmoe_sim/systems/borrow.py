"""A trace for a model without a recording, made like recordings of others in its shape; and speeds at every depth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.geometry.recordings import find_shape
from flashmoe_sim.machines.estimates import estimate
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.systems.compare import Replays, at_setting
from flashmoe_sim.trace.bundled import catalog, find_trace
from flashmoe_sim.trace.kept import kept
from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.trace.routing import RoutingTrace
from flashmoe_sim.trace.synth_like import alike
from flashmoe_sim.trace.synth_shape import Shape

ENOUGH_TOKENS = 512  # of a recording that is imitated alone
MOST_LIKE, ALSO_LIKE = "gpt-oss-120b", "deepseek-v2-lite"  # the recordings of large models with four kinds of work
FEW_EXPERTS = 64  # models with so few spread their work as evenly as the second


def bundled(model: ModelGeometry) -> tuple[Workload, str] | None:
    """The bundled trace of this very model, and a note that says so; None if there is none."""
    own = next((name for name, entry in catalog().items() if entry.model == model.base_name), None)
    if own is None:
        return None
    note = f"the bundled trace {own} is used; your own work may route differently: `sim trace capture`"
    return prepare(load_trace(own), model), note


def borrow(model: ModelGeometry) -> tuple[Workload, str]:
    """A synthetic trace of the model, and a note on what it was made from.

    Experts are as popular, and recur as soon, as in the recordings that `lenders` names.
    """
    names = lenders(model)
    whose = names[0] if len(names) == 1 else f"{names[0]} and, for a third, {names[1]}"
    note = (
        f"no trace of {model.name} is at hand: popularity and overlap come from {whose}, and the intervals are wider; "
        "record one with `sim trace capture`"
    )
    return made_like(names, model), note


def made_like(sources: Sequence[str], model: ModelGeometry) -> Workload:
    """A synthetic trace of the model. Its popularity and overlap are those of a bundled trace, or lie between two."""
    shape = find_shape(model)
    assert shape is not None
    return prepare(_alike(tuple(sources), tuple(sorted(shape.n_experts.items())), shape.top_k), model)


@lru_cache(maxsize=8)
def _alike(sources: tuple[str, ...], n_experts: tuple[tuple[int, int], ...], top_k: int) -> RoutingTrace:
    """The same for every quantization of a model."""
    shape = Shape("borrowed", dict(n_experts), top_k)
    share = estimate("text.first_lender").value

    def make() -> RoutingTrace:
        trace, *others = map(load_trace, sources)
        return alike(trace, shape=shape, other=others[0] if others else None, share=share)[0]

    made = kept([find_trace(source)[0] for source in sources], shape, share, make)
    return made.with_(name=f"like {' and '.join(sources)}")


def lenders(model: ModelGeometry) -> tuple[str, ...]:
    """The bundled traces that a trace of this model imitates: the longest of its own shape, else one or two others.

    A short one is not imitated: most of its misses are first uses, and chance looks like popularity.
    """
    experts = [layer.n_experts for layer in model.layers.values()]
    shape = len(experts), max(experts)
    recorded = [one for one in catalog().values() if (one.layers, one.experts) == shape and one.tokens >= ENOUGH_TOKENS]
    if recorded:
        return (max(recorded, key=lambda one: one.tokens).name,)
    if model.arch == "gpt-oss":
        return (MOST_LIKE,)
    return (ALSO_LIKE,) if max(experts) <= FEW_EXPERTS else (MOST_LIKE, ALSO_LIKE)


SHARES = (0, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 1)  # of the context


def by_depth(
    workload: Workload,
    case: Case,
    systems: Sequence[System],
    *,
    borrowed: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> list[dict[str, Any]]:
    """schema.BY_DEPTH: rows of each system, in order of the depth.

    The room for the context is the same at every depth, so only what attention reads changes. Empty if the case has no
    context, or what attention of its model reads is not known.
    """
    if not case.context or case.model.attention is None:
        return []
    depths = sorted({round(share * case.context) for share in SHARES})
    rows, replays = [], Replays()
    for number, system in enumerate(systems):
        for place, depth in enumerate(depths):
            if progress is not None:
                progress(number * len(depths) + place, len(systems) * len(depths))
            one = at_setting(workload, replace(case, depth=depth), system, borrowed=borrowed, replays=replays)
            speed = {"tok_s": one.tok_s, "tok_s_lo": one.tok_s_lo, "tok_s_hi": one.tok_s_hi}
            rows.append({"setting": system.spec, "depth": depth} | speed)
    return rows
