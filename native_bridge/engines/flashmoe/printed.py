"""The counters of a prediction in the lines of a log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flashmoe_sim.geometry.model import LayerGeometry
from flashmoe_sim.io.sizes import GIB, MIB
from native_bridge.engines.flashmoe.log.summary import AHEAD, COUNTERS, RESIDENT_PRIME
from native_bridge.engines.run_log import Lines

SHOWN_LAYERS = 8  # the log has the layers with the longest installs
FROM_RAM = "resident-packed"
NEED_A_MODEL = ("install", RESIDENT_PRIME)
_FAMILIES = {
    "gate_up": "ffn_gate_up_exps",
    "gate": "ffn_gate_exps",
    "up": "ffn_up_exps",
    "down": "ffn_down_exps",
}


@dataclass(frozen=True)
class Counted:
    """The work of one layer: the routed calls, or the experts made resident ahead of them.

    filled: slots that hold an expert at the end. geometry: None if no model is known.
    """

    layer: int
    calls: int
    refs: int
    requests: int
    misses: int
    cold: int
    filled: int
    geometry: LayerGeometry | None

    @property
    def bytes_read(self) -> int:
        return self.misses * self.geometry.expert_bytes if self.geometry else 0


def routed_lines(layers: Sequence[Counted], *, source: str, io_split: int) -> Lines:
    """The log's lines on a run's routed calls. source: the log's name for where installs come from."""
    values = _counters(layers, unit_bytes=GIB, source=source, io_split=io_split)
    lines: Lines = {"routed": {"src": source, **_line("routed", values)}, "residency": _line("residency", values)}
    if any(one.bytes_read for one in layers):
        lines["install"] = {
            name: f"{sum(one.misses * _family(one, family) for one in layers) / GIB:.2f}"
            for name, family in _FAMILIES.items()
        }
    for one in layers:
        values = _counters([one], unit_bytes=MIB, source=source, io_split=io_split)
        lines[f"layer {one.layer}"] = _line("layer", values)
    return lines


def ahead_line(layers: Sequence[Counted], *, source: str, io_split: int) -> dict[str, str]:
    """The log's line on experts made resident ahead of the routed calls."""
    return _line(AHEAD[0], _counters(layers, unit_bytes=GIB, source=source, io_split=io_split))


def overlap_values(*, right: int, predicted: int, asked: int, compared: int) -> dict[str, str]:
    """The log's values on the accuracy of predictions. compared: the calls that had one."""
    return {
        "overlap": f"{right}/{predicted}",
        "precision": _percent(right, predicted),
        "coverage": _percent(right, asked),
        "layers": str(compared),
    }


def prime_line(installs: Mapping[int, int], geometry: Mapping[int, LayerGeometry] | None) -> dict[str, str]:
    """The log's line on installs before the run; installs: by layer number."""
    line = {"installs": str(sum(installs.values()))}
    if geometry is not None:
        read = sum(number * geometry[layer].expert_bytes for layer, number in installs.items())
        line["bytes"] = f"{read / GIB:.2f}"
    return line


def _line(kind: str, values: Mapping[str, str]) -> dict[str, str]:
    """The counters that a line of the log has; without a model some are unknown."""
    return {key: values[key] for key in COUNTERS[kind] if key in values}


def _counters(layers: Sequence[Counted], *, unit_bytes: int, source: str, io_split: int) -> dict[str, str]:
    """The counters of these layers together. Bytes and reads need a model; from RAM a tensor family is one copy."""
    calls, requests = sum(one.calls for one in layers), sum(one.requests for one in layers)
    misses, cold = sum(one.misses for one in layers), sum(one.cold for one in layers)
    values = {
        "calls": str(calls),
        "refs": str(sum(one.refs for one in layers)),
        "uniq": str(requests),
        "hit": _percent(requests - misses, requests),
        "miss": str(misses),
        "miss/call": f"{misses / calls if calls else 0:.2f}",
        "cold": str(cold),
        "evict": str(misses - cold),
        "peak": str(sum(one.filled for one in layers)),
    }
    models = [(one.misses, one.geometry) for one in layers if one.geometry]
    if len(models) < len(layers):
        return values
    moved = sum(
        number * (len(model.family_bytes) if source == FROM_RAM else model.read_ops(io_split=io_split))
        for number, model in models
    )
    pread, rcopy = (0, moved) if source == FROM_RAM else (moved, 0)
    read = sum(one.bytes_read for one in layers)
    return values | {"bytes": f"{read / unit_bytes:.2f}", "pread": str(pread), "rcopy": str(rcopy)}


def _family(one: Counted, family: str) -> int:
    return one.geometry.family_bytes.get(family, 0) if one.geometry else 0


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole if whole else 0:.1f}"
