"""What a row says of its run: slots, cache, residents, layers on the CPU."""

from __future__ import annotations

import re

from flashmoe_sim.field.engines import placed_by_fit
from flashmoe_sim.field.model import model_of
from flashmoe_sim.field.rows import FieldRow
from flashmoe_sim.io.sizes import UNITS
from flashmoe_sim.systems.published import PublishedRun

_NUMBER = r"(\d[\d,]*(?:\.\d+)?)"
_SIZE = rf"{_NUMBER} ?([KMG]i?B)\b"
_SLOTS = re.compile(rf"~?{_NUMBER} (projection |LRU )?slots/layer")
_CAP = re.compile(rf"\bcap {_NUMBER}")
_OF_A_LAYER = re.compile(rf"~?{_NUMBER} of {_NUMBER} (?:experts/layer|per layer)")
_SHARE_OF_A_LAYER = re.compile(rf"{_NUMBER} % of {_NUMBER} experts/layer")
_EXPERTS = re.compile(rf"~?{_NUMBER}(?: of {_NUMBER})? experts\b(?!/layer)(?: of {_NUMBER}| \(of {_NUMBER}\))?")
_GPU_AND_RAM = re.compile(rf"GPU {_NUMBER} \+ RAM {_NUMBER} slots")
_TOTAL_SLOTS = re.compile(rf"\((?:\D*)?{_NUMBER} slots\b")
_VRAM_AND_RAM = re.compile(rf"{_NUMBER} VRAM \+ {_NUMBER} RAM pinned")
_SHARE = re.compile(rf"~?{_NUMBER} %(?! of \d)")
_STATIC = re.compile(rf"{_NUMBER} % static")
_CACHE = re.compile(rf"(?:^|\(|, )~?{_SIZE}(?! (?:pinned RAM|RAM|pin\b|total|VRAM total))")


def run_of(row: FieldRow) -> PublishedRun:
    """A row for the system that ran. Raises BadInput if its model is unknown, or its numbers contradict the model."""
    text, model = row.slots_per_layer_or_cache_gib, model_of(row)
    return PublishedRun(
        where=row.where,
        engine=row.engine,
        build=row.engine_version_or_pr,
        strategy="n_cpu_moe" if placed_by_fit(row) else row.strategy,
        flags=row.flags,
        model=model,
        slots_per_layer=_slots(text),
        cache_bytes=_bytes(_CACHE.search(text)),
        residents=_residents(text),
        resident_share=None if _STATIC.search(text) else _share(text),
        cpu_layers=_cpu_layers(row, moe_layers=row.moe_layers or len(model.layers)),
    )


def _slots(text: str) -> int | None:
    """Slots of experts; an expert has three projections, so slots of projections hold a third as many."""
    if match := _SLOTS.search(text):
        return round(_value(match[1]) / (3 if match[2] == "projection " else 1))
    match = _OF_A_LAYER.search(text) or _CAP.search(text)
    return round(_value(match[1])) if match else None


def _residents(text: str) -> int | None:
    found = (pattern.search(text) for pattern in (_GPU_AND_RAM, _VRAM_AND_RAM, _EXPERTS, _TOTAL_SLOTS))
    match = next(filter(None, found), None)
    return int(_value(match[1])) if match else None


def _share(text: str) -> float | None:
    if text == "all":
        return 1.0
    if match := _SHARE_OF_A_LAYER.search(text):
        return _value(match[1]) / 100
    if match := _OF_A_LAYER.search(text):
        return _value(match[1]) / _value(match[2])
    if match := _EXPERTS.search(text):
        total = next((number for number in match.groups()[1:] if number), None)
        if total:
            return _value(match[1]) / _value(total)
    match = _SHARE.search(text)
    return _value(match[1]) / 100 if match else None


def _cpu_layers(row: FieldRow, *, moe_layers: int) -> int | None:
    """Layers with their experts on the CPU; an average of several runs is rounded."""
    if row.experts_on_cpu_layers.lower() == "all":
        return moe_layers
    match = re.match(rf"~?{_NUMBER}", row.experts_on_cpu_layers)
    return round(_value(match[1])) if match else None


def _bytes(match: re.Match[str] | None) -> int | None:
    return None if match is None else round(_value(match[1]) * UNITS[match[2]])


def _value(text: str) -> float:
    return float(text.replace(",", ""))
