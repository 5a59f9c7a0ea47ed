"""What a row says of its settings: slots, cache, residents, layers on the CPU, hits."""

from __future__ import annotations

import re
from dataclasses import dataclass

from flashmoe_sim.io.sizes import UNITS
from reports.field.rows import FieldRow

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
_RAM = re.compile(rf"{_SIZE} (?:pinned RAM|RAM tier|RAM\b|pin\b)(?: \(~?{_NUMBER}\))?")
_CACHE = re.compile(rf"(?:^|\(|, )~?{_SIZE}(?! (?:pinned RAM|RAM|pin\b|total|VRAM total))")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings as told; None for what is not.

    slots_per_layer: of experts in a layer's bank. cache_bytes: of the cache, or of the experts in VRAM. ram_bytes: of
    a tier in RAM, or pinned there. residents, ram_residents: experts of all layers in the cache, and in that tier.
    resident_share: of all experts; static_share: of a part of them that never changes, beside the slots.
    cpu_layers: how many layers' experts the CPU computes, a fraction if it is an average. hit_rate: measured, 0 to 1.
    """

    slots_per_layer: float | None = None
    cache_bytes: int | None = None
    ram_bytes: int | None = None
    residents: int | None = None
    ram_residents: int | None = None
    resident_share: float | None = None
    static_share: float | None = None
    cpu_layers: float | None = None
    hit_rate: float | None = None


def settings_of(row: FieldRow, *, moe_layers: int | None = None) -> Settings:
    """The settings of a row. moe_layers: how many `all` layers are if the row does not say."""
    text = row.slots_per_layer_or_cache_gib
    residents, ram_residents = _residents(text)
    static = _STATIC.search(text)
    return Settings(
        slots_per_layer=_slots(text),
        cache_bytes=_cache(text),
        ram_bytes=_bytes(_RAM.search(text)),
        residents=residents,
        ram_residents=ram_residents,
        resident_share=None if static else _share(text),
        static_share=_value(static[1]) / 100 if static else None,
        cpu_layers=_cpu_layers(row, moe_layers=row.moe_layers or moe_layers),
        hit_rate=None if row.hit_rate_pct is None else row.hit_rate_pct / 100,
    )


def _slots(text: str) -> float | None:
    """Slots of experts; an expert has three projections, so slots of projections hold a third as many."""
    if match := _SLOTS.search(text):
        return _value(match[1]) / (3 if match[2] == "projection " else 1)
    if match := _OF_A_LAYER.search(text) or _CAP.search(text):
        return _value(match[1])
    return None


def _residents(text: str) -> tuple[int | None, int | None]:
    if match := _GPU_AND_RAM.search(text) or _VRAM_AND_RAM.search(text):
        return int(_value(match[1])), int(_value(match[2]))
    ram = _RAM.search(text)
    in_ram = int(_value(ram[3])) if ram and ram[3] else None
    if match := _EXPERTS.search(text) or _TOTAL_SLOTS.search(text):
        return int(_value(match[1])), in_ram
    return None, in_ram


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


def _cache(text: str) -> int | None:
    return _bytes(_CACHE.search(text))


def _cpu_layers(row: FieldRow, *, moe_layers: int | None) -> float | None:
    if row.experts_on_cpu_layers.lower() == "all":
        return None if moe_layers is None else float(moe_layers)
    match = re.match(rf"~?{_NUMBER}", row.experts_on_cpu_layers)
    return _value(match[1]) if match else None


def _bytes(match: re.Match[str] | None) -> int | None:
    return None if match is None else round(_value(match[1]) * UNITS[match[2]])


def _value(text: str) -> float:
    return float(text.replace(",", ""))
