"""The names of a model's routed tensors in a GGUF file, and where a pattern of overrides puts them."""

from __future__ import annotations

import re
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


def on_cpu(model: ModelGeometry, overrides: str) -> set[int]:
    """The layers whose experts an argument of `-ot` puts on the CPU.

    Commas part the overrides and the first `=` its pattern from the buffer; the first pattern found in a name decides,
    and a tensor that none is found in stays on the GPU.
    Raises BadInput for a pattern that is none, a buffer beside CPU and CUDA0, and a layer that is split between them.
    Source: llama.cpp 0eca4d490, common/arg.cpp:248 and src/llama-model-loader.cpp:1161. Patterns are ECMAScript's there
    and Python's here, which read the ones people write alike.
    """
    rules = []
    for override in overrides.split(","):
        pattern, equals, buffer = override.partition("=")
        if not equals or buffer not in ("CPU", "CUDA0"):
            raise BadInput(f"-ot {override!r}: expected a pattern, = and CPU or CUDA0")
        try:
            rules.append((re.compile(pattern, re.ASCII), buffer))
        except re.error as error:
            raise BadInput(f"-ot {override!r}: is no pattern ({error})") from None
    found = set()
    for number, names in routed_tensors(model).items():
        buffers = {next((buffer for rule, buffer in rules if rule.search(name)), "CUDA0") for name in names}
        if len(buffers) > 1:
            raise BadInput(f"-ot {overrides!r}: puts only a part of the experts of layer {number} on the CPU")
        if buffers == {"CPU"}:
            found.add(number)
    return found
