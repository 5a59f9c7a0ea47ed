"""The table of systems: one line each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashmoe_sim.io.lazy import LazyTable

if TYPE_CHECKING:
    from flashmoe_sim.systems.base import System

SYSTEMS: LazyTable[type[System]] = LazyTable(
    __package__,
    {
        "all-gpu": "all_gpu:AllGpu",
        "cpu": "cpu:Cpu",
        "placed": "placed:PlacedLayers",
        "whole-layers": "whole_layers:WholeLayers",
        "ollama-layers": "whole_layers:OllamaLayers",
        "cached": "cached:Cached",
        "qvac": "qvac:Qvac",
        "placed-ik": "placed_ik:PlacedIk",
        "cpu-ik": "cpu_ik:CpuIk",
        "slot-bank": "slot_bank:SlotBank",
        "flash-moe": "flash_moe:FlashMoe",
        "hot-window": "hot_window:HotWindowSlots",
        "hot-cache": "hot_cache:HotCache",
        "slot-remap": "slot_remap:SlotRemap",
        "bounded-insert": "bounded_insert:BoundedInsert",
        "static-profile": "static_profile:StaticProfile",
        "ktransformers": "ktransformers:KTransformers",
        "imp": "imp:Imp",
        "nvmoe": "nvmoe:Nvmoe",
        "crow": "crow:Crow",
        "big-moe-on-edge": "big_moe_on_edge:BigMoeOnEdge",
        "turbofieldfare": "turbo_fieldfare:TurboFieldfare",
        "strata": "strata:Strata",
        "neurall": "neurall:Neurall",
        "moe-cache": "moe_cache:MoeCache",
        "ds4": "ds4:Ds4",
        "mlx": "mlx:Mlx",
        "slotstream": "slotstream:Slotstream",
        "colibri": "colibri:Colibri",
        "freetoken": "freetoken:FreeToken",
    },
)


def parse_system(text: str) -> System:
    """A system from `slot-bank`, `slot-bank:slots=64` or `my_module:MySystem`."""
    from flashmoe_sim.parameters import parse
    from flashmoe_sim.systems.base import System

    return parse("system", text, SYSTEMS, System)
