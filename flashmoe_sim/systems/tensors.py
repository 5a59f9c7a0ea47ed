"""The names of a model's routed tensors in a GGUF file, and where a pattern of overrides puts them."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable

from flashmoe_sim.geometry.families import ROUTED_FAMILIES
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.errors import BadInput


def routed_tensors(model: ModelGeometry) -> dict[int, list[str]]:
    """The names of the routed weights of each layer, such as blk.3.ffn_up_exps.weight.

    Raises BadInput for a model whose tensor families are not known by GGUF's names.
    """
    names = {}
    for number, layer in model.layers.items():
        if unknown := [family for family in layer.family_bytes if family not in ROUTED_FAMILIES]:
            raise BadInput(
                f"{model.name}: the tensor {unknown[0]!r} has no name in GGUF; give a GGUF file or a named model"
            )
        names[number] = [f"blk.{number}.{family}.weight" for family in layer.family_bytes]
    return names


def cpu_pattern(model: ModelGeometry, layers: Iterable[int]) -> str:
    """The override that puts the experts of exactly these layers on the CPU; checked against every tensor's name."""
    numbers = sorted(layers)
    pattern = rf"blk\.({'|'.join(map(str, numbers))})\.ffn_(gate|up|down|gate_up)_exps=CPU"
    assert on_cpu(model, pattern) == set(numbers), pattern
    return pattern


def on_cpu(model: ModelGeometry, overrides: str, *, gpus: int = 1) -> set[int]:
    """The layers whose experts an argument of `-ot` puts on the CPU; see `overridden`."""
    return {layer for layer, buffer in overridden(model, overrides, gpus=gpus).items() if buffer == "CPU"}


def overridden(model: ModelGeometry, overrides: str, *, gpus: int = 1) -> dict[int, str]:
    """Where an argument of `-ot` puts the experts of each layer: CPU, CUDA0, CUDA1 ..., or empty if it does not say.

    Commas separate the overrides, and the first `=` separates pattern and buffer; the first pattern found in a name
    decides, and a tensor that matches none stays on the GPU of its layer, which is CUDA0 if there is only one.
    Raises BadInput for an invalid pattern, a buffer that the machine does not have, and a layer that is split.
    Source: llama.cpp 0eca4d490, common/arg.cpp:248 and src/llama-model-loader.cpp:1161. Patterns are ECMAScript's there
    and Python's here; the ones people write mean the same in both.
    """
    rules, cards = [], [f"CUDA{gpu}" for gpu in range(gpus)]
    for override in overrides.split(","):
        pattern, equals, buffer = override.partition("=")
        if not equals or buffer not in ("CPU", *cards):
            raise BadInput(f"-ot {override!r}: expected a pattern, = and CPU or {' or '.join(cards)}")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)  # about syntax that a later Python may read differently
                rules.append((re.compile(pattern, re.ASCII), buffer))
        except (re.error, OverflowError, RecursionError) as error:
            raise BadInput(f"-ot {override!r}: is not a pattern ({error}); write for example exps=CPU") from None
    found = {}
    unsaid = cards[0] if gpus == 1 else ""
    for number, names in routed_tensors(model).items():
        buffers = {next((buffer for rule, buffer in rules if rule.search(name)), unsaid) for name in names}
        if len(buffers) > 1:
            where = "on the CPU" if "CPU" in buffers else "on one GPU"
            part = f"puts only a part of the experts of layer {number} {where}"
            raise BadInput(f"-ot {overrides!r}: {part}; name all of them or none")
        found[number] = buffers.pop()
    return found
