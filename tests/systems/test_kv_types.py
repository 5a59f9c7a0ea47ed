"""Types of keys and values: an engine that has no flag for one refuses it, and the others print it."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace

import pytest

from flashmoe_sim.geometry.attention import CACHE_TYPES
from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.io.errors import BadInput, Unsupported
from flashmoe_sim.systems.base import Case
from flashmoe_sim.systems.strata import KV_WORDS
from flashmoe_sim.systems.table import SYSTEMS
from tests.systems.cases import machine

CARD = machine("rtx-3090", gpu_gib=24, ram_gib=64)
MAC = machine("m3-max-48")


def asked(name: str, kv_type: str) -> tuple[Case, str]:
    """The case, and the line with which a system starts there."""
    model = load_model("qwen3-30b-a3b:q4_k_m")
    system = SYSTEMS[name]()
    case = Case(model, MAC if system.own_gpu is False else CARD, context=8192, kv_bytes=1 << 29, kv_type=kv_type)
    with suppress(BadInput):
        system = system.sized(case)
    return case, system.started(case).line


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("kv_type", ["q8_0", "q4_0", "q5_1"])
def test_a_type_is_in_the_line_or_refused(name: str, kv_type: str) -> None:
    case, line = asked(name, kv_type)
    reason = SYSTEMS[name]().why_not_kv_type(case)
    if kv_type in SYSTEMS[name]().kv_types:
        assert reason == ""
        flags = {
            "strata": f"--kv {KV_WORDS.get(kv_type, kv_type)}",
            "ollama-layers": f"OLLAMA_KV_CACHE_TYPE={kv_type}",
        }.get(name, f"-ctk {kv_type} -ctv {kv_type}")
        assert flags in line
        assert not re.search(r"q[458]_|int8", asked(name, "f16")[1])
    else:
        assert reason.endswith(f"leave out --kv-type {kv_type}")
        assert SYSTEMS[name]().why_not_kv_type(replace(case, kv_type="f16")) == ""


def test_what_is_refused_says_which_it_takes() -> None:
    case, _ = asked("imp", "q8_0")
    with pytest.raises(Unsupported, match=r"keep keys and values in f16 only; leave out --kv-type q8_0"):
        SYSTEMS["imp"]().check(replace(case, machine=machine("rtx-5090", ram_gib=64)))
    assert SYSTEMS["ds4"]().kv_types == SYSTEMS["big-moe-on-edge"]().kv_types == ("f16",)
    case, _ = asked("strata", "q5_0")
    assert SYSTEMS["strata"]().why_not_kv_type(case) == (
        "is known to keep keys and values in f16, q8_0 or q4_0 only; leave out --kv-type q5_0"
    )


def test_types_are_those_that_a_context_may_have() -> None:
    for system in SYSTEMS.values():
        assert set(system().kv_types) <= set(CACHE_TYPES)
