"""Settings are found in the texts that people write them in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flashmoe_sim.field.asked import run_of
from tests.field.builders import row

GB, MIB, GIB = 10**9, 2**20, 2**30
SETTINGS: dict[str, dict[str, Any]] = {
    "": {},
    "64 slots/layer": {"slots_per_layer": 64},
    "~21 slots/layer": {"slots_per_layer": 21},
    "62 slots/layer (22362.62 MiB VRAM) + 32 GiB pinned RAM tier": {
        "slots_per_layer": 62,
        "cache_bytes": round(22362.62 * MIB),
    },
    "16 slots/layer (480 slots, 1.5 GiB)": {"slots_per_layer": 16, "cache_bytes": 1.5 * GIB, "residents": 480},
    "8 slots/layer; 7.6 GB VRAM total": {"slots_per_layer": 8},
    "12 projection slots/layer": {"slots_per_layer": 4},
    "about 100 of 288 per layer": {"slots_per_layer": 100, "resident_share": 100 / 288},
    "60 % static + 16 LRU slots/layer (+1.1 GiB)": {"slots_per_layer": 16},
    "194 slots/layer + 77.5 GB pin": {"slots_per_layer": 194},
    "cap 32; 750 VRAM + 307 RAM pinned": {"slots_per_layer": 32, "residents": 750},
    "GPU 239 + RAM 600 slots": {"residents": 239},
    "2.6 GiB (399 experts)": {"cache_bytes": round(2.6 * GIB), "residents": 399},
    "3072 MiB global (259 slots)": {"cache_bytes": 3072 * MIB, "residents": 259},
    "8192 MiB VRAM cache (18 % of experts)": {"cache_bytes": 8192 * MIB, "resident_share": 0.18},
    "6.8 GB VRAM (~1980 experts) + 30 GB RAM (~9216)": {
        "cache_bytes": 6.8 * GB,
        "residents": 1980,
    },
    "10 % of 512 experts/layer on GPU": {"resident_share": 0.1},
    "28 of 128 experts/layer on GPU": {"slots_per_layer": 28, "resident_share": 28 / 128},
    "4391 experts of 10240": {"residents": 4391, "resident_share": 4391 / 10240},
    "3595 experts of 10240 + lm_head 0.47 GB in VRAM": {"residents": 3595, "resident_share": 3595 / 10240},
    "~5159 experts (of 11008)": {"residents": 5159, "resident_share": 5159 / 11008},
    "13.3 GiB VRAM total, ~50 % residency": {"resident_share": 0.5},
    "32 GB": {"cache_bytes": 32 * GB},
    "all": {"resident_share": 1},
}


@pytest.mark.parametrize(("text", "expected"), SETTINGS.items(), ids=SETTINGS.keys())
def test_slots_and_caches_as_people_write_them(tmp_path: Path, text: str, expected: dict[str, Any]) -> None:
    run = run_of(row(tmp_path, slots_per_layer_or_cache_gib=text))
    assert run == replace(run_of(row(tmp_path)), **expected)


@pytest.mark.parametrize(
    ("text", "layers"), [("", None), ("43", 43), ("43.2", 43), ("0.0", 0), ("~20", 20), ("all", 48), ("some", None)]
)
def test_layers_on_the_cpu(tmp_path: Path, text: str, layers: int | None) -> None:
    assert run_of(row(tmp_path, experts_on_cpu_layers=text)).cpu_layers == layers


def test_all_layers_are_those_of_the_row(tmp_path: Path) -> None:
    assert run_of(row(tmp_path, experts_on_cpu_layers="all", moe_layers="40")).cpu_layers == 40
