"""The profile JSON of a hot expert cache: how often each expert was used, and where its layers lost time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import Any

from flashmoe_sim.io import strict_json
from flashmoe_sim.io.errors import Malformed, TooLarge, shown
from flashmoe_sim.io.files import regular_file_bytes, unreadable
from flashmoe_sim.trace.perf_profile import PERF_SCHEMA

SCHEMAS = (PERF_SCHEMA, "llama.cpp.moe_layer_perf.v1")
MOST_BYTES = 256 * 2**20
MOST_COUNT = 2**40
KIND = "a profile as --moe-layer-perf-out writes it"


@dataclass(frozen=True)
class LayerProfile:
    """What a profile records for one layer.

    hits: uses of each expert that was used at all. hot_hits: how many of them found it in the hot cache.
    pressure: how far the cold lane lags behind, in microseconds or slots a call; 0 if unknown.
    moe_time: microseconds a call; 0 if unknown.
    """

    hits: Mapping[int, int]
    hot_hits: Mapping[int, int]
    pressure: float
    moe_time: float


def read_profile(path: Path) -> dict[int, LayerProfile]:
    """The layers of a profile with at least one use, in ascending order of number.

    Uses come from `hot_experts` and `cold_experts`, or from `experts` if both are missing or empty.
    Raises BadInput, naming the layer, if the file is not a profile.
    """
    if regular_file_bytes(path, kind=KIND) > MOST_BYTES:
        raise TooLarge(f"{path}: more than {MOST_BYTES // 2**20} MiB; expected {KIND}; is this another file?")
    try:
        return _layers(path.read_bytes())
    except OSError as error:
        raise unreadable(path, error) from None
    except ValueError as error:
        raise Malformed(f"{path}: {error}") from None


@lru_cache(maxsize=2)
def _layers(content: bytes) -> dict[int, LayerProfile]:
    """The layers of a profile's content; a search asks for the same one many times.

    Raises ValueError, saying what is wrong with it.
    """
    try:
        document = strict_json.loads(content)
    except ValueError as error:
        raise ValueError(f"not JSON ({error}); expected {KIND}") from None
    if not isinstance(document, dict):
        raise _wrong("the document", document, "an object with `schema` and `layers`")
    if document.get("schema") not in SCHEMAS:
        raise _wrong("schema", document.get("schema"), " or ".join(SCHEMAS))
    layers = document.get("layers")
    if not isinstance(layers, list):
        raise _wrong("layers", layers, "a list of layers")
    found: dict[int, LayerProfile] = {}
    for index, layer in enumerate(layers):
        where = f"layers[{index}]"
        if not isinstance(layer, dict):
            raise _wrong(where, layer, "an object")
        number = layer.get("layer")
        if type(number) is not int or number < 0:
            raise _wrong(f"{where}: layer", number, "a layer number")
        if number in found:
            raise ValueError(f"{where}: layer {number} a second time; expected each layer once")
        hot, cold = (_counts(where, layer, name) for name in ("hot_experts", "cold_experts"))
        hits = {expert: hot.get(expert, 0) + cold.get(expert, 0) for expert in hot | cold}
        hits = hits or _counts(where, layer, "experts")
        if hits:
            moe_time = _number(where, layer, "total_moe_time_per_call_us")
            found[number] = LayerProfile(hits, hot, _pressure(where, layer), moe_time)
    if not found:
        raise ValueError(f"counts no use of any expert; expected {KIND} after a request; profile again")
    return dict(sorted(found.items()))


def _counts(where: str, layer: Mapping[str, Any], name: str) -> dict[int, int]:
    """The uses of each expert in a list of [id, count]; if an expert is listed twice, its counts add up."""
    pairs = layer.get(name, [])
    if not isinstance(pairs, list):
        raise _wrong(f"{where}: {name}", pairs, "a list of [expert, count]")
    uses: dict[int, int] = {}
    for pair in pairs:
        whole = isinstance(pair, list) and len(pair) == 2 and type(pair[0]) is type(pair[1]) is int
        if not whole or pair[0] < 0 or not 0 <= pair[1] <= MOST_COUNT:
            raise _wrong(f"{where}: {name}", pair, "[expert, count] in whole numbers")
        if pair[1]:
            uses[pair[0]] = uses.get(pair[0], 0) + pair[1]
    return uses


def _pressure(where: str, layer: Mapping[str, Any]) -> float:
    """The wait at the join, else the extra time of the cold lane, else the cold slots, all per call.

    The system has a fourth fallback, the wait per cold slot. It needs a wait and cold slots, so it is never reached.
    """
    wait, cold, hot = (
        _number(where, layer, f"parallel_{name}_time_per_call_us")
        for name in ("join_wait", "cold_lane_wall", "hot_lane_wall")
    )
    slots = _number(where, layer, "cold_slots_per_call")
    calls = _number(where, layer, "calls")
    if not slots and calls:
        slots = _number(where, layer, "cold_slots_total") / calls
    return wait or max(cold - hot, 0.0) or slots


def _number(where: str, layer: Mapping[str, Any], name: str) -> float:
    value = layer.get(name, 0)
    if type(value) not in (int, float) or not 0 <= value < inf:
        raise _wrong(f"{where}: {name}", value, "a number, 0 or more")
    return float(value)


def _wrong(what: str, value: Any, expected: str) -> ValueError:
    return ValueError(f"{what} is {shown(value)}; expected {expected}")
