"""The tensor families of routed experts, and what a set of layers lacks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from flashmoe_sim.geometry.model import LayerGeometry

GATE_UP = "ffn_gate_up_exps"
ROUTED_FAMILIES = ("ffn_gate_exps", "ffn_up_exps", GATE_UP, "ffn_down_exps")
MAX_LAYER = 2**15 - 1
MAX_EXPERTS = 2**15


def ordered(family_bytes: Mapping[str, int]) -> dict[str, int]:
    """The same families in the order of ROUTED_FAMILIES."""
    return {family: family_bytes[family] for family in ROUTED_FAMILIES if family in family_bytes}


def ranges(numbers: Iterable[int]) -> str:
    """Numbers as ranges: `0-5, 8, 11`."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in spans)


def missing_notes(layers: Mapping[int, LayerGeometry], *, first_layer: int | None = None) -> tuple[str, ...]:
    """What is missing compared with the rest: layers between the first and the last, families of a layer.

    first_layer: the first layer that should be present; by default the first that is.
    """
    notes = []
    start = min(layers) if first_layer is None else min(first_layer, *layers)
    if gaps := set(range(start, max(layers))) - set(layers):
        notes.append(f"no routed experts in layers {ranges(gaps)}: dense layers, or left out")
    without: dict[str, list[int]] = {}
    for number, layer in layers.items():
        fused = GATE_UP in layer.family_bytes
        needed = (GATE_UP, "ffn_down_exps") if fused else ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")
        for family in needed:
            if family not in layer.family_bytes:
                without.setdefault(family, []).append(number)
    for family, numbers in without.items():
        where = "any layer" if len(numbers) == len(layers) else f"layers {ranges(numbers)}"
        notes.append(f"partial: no {family} in {where}, so an expert costs more than is counted here")
    return tuple(notes)
