"""Models with some of their routed experts removed, as REAP does: how many are left, by the size in a name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from flashmoe_sim.geometry.named import NamedModel, model_names

FITS = 0.02  # of the size that a name gives, which is rounded
# Shares of the experts that are removed: those published are twentieths and eighths (huggingface.co/cerebras, 0xSero).
_REMOVED = (*((part, 20) for part in range(1, 17)), *((part, 8) for part in range(1, 7)))


def experts_left(model: NamedModel, total_b: float) -> int:
    """How many experts a layer has in a model pruned to so many billions of weights, with or without its vision.

    0 if not exactly one number fits.
    """
    rest_b = model.dense_params_b + model.table_params_b
    each_b = model.routed_params_b / model.experts
    fitting = {
        count
        for part, of in _REMOVED
        for seeing_b in (0.0, model.vision_params_b)
        if abs(rest_b + seeing_b + each_b * (count := model.experts - model.experts * part // of) - total_b)
        <= FITS * total_b
    }
    return fitting.pop() if len(fitting) == 1 and min(fitting) >= model.top_k else 0


def with_experts(model: NamedModel, experts: int) -> NamedModel:
    """The dimensions with so many experts in a layer; their bytes come from recipes alone."""
    # transformers, with which experts are removed, loads no layers that only draft tokens, and so writes none.
    routers = len(model.layer_numbers) * (model.experts - experts) * model.hidden
    dense_b = model.dense_params_b - routers / 1e9
    return replace(
        model, title=f"{model.title}, {experts} experts", experts=experts, dense_params_b=dense_b, quants={}, drafting=0
    )


@cache
def families() -> Mapping[str, tuple[str, str]]:
    """The name and the model of a family with the weights of a token, without the size in all: `gemma4a4b`.

    Only if no other model of the family has as many.
    """
    found: dict[str, tuple[str, str]] = {}
    several = set()
    for name, model in model_names().items():
        *family, whole, active = ("", "", *name.split("-"))
        if not (whole.endswith("b") and whole[0].isdigit() and active.startswith("a")):
            continue
        key = "".join((*family, active))
        if key in found and found[key][1] != model:
            several.add(key)
        found[key] = (name, model)
    return {key: meaning for key, meaning in found.items() if key not in several}
