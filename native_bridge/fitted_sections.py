"""A fitted machine for the terminal and for `--json`: its numbers, their anchors and the error on each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from flashmoe_sim.io.sections import Section, Table
from flashmoe_sim.io.sizes import plain
from flashmoe_sim.machines.anchors import Anchor
from flashmoe_sim.machines.equations import Equation
from flashmoe_sim.machines.fitting import Fitted
from flashmoe_sim.machines.machine import Quantity


def sections(fitted: Fitted) -> list[Section]:
    """What was fitted, on which anchors, and the error on each."""
    machine = fitted.machine
    numbers = [
        (path, plain(quantity.value), ends(quantity), ", ".join(_from(fitted, parameter)))
        for parameter, path, quantity in _quantities(fitted)
    ]
    call = machine.host.call_us
    if call.value:
        timed = [anchor for anchor in fitted.anchors if anchor.call_s]
        timed = [anchor for anchor in timed if anchor.misses] or timed
        numbers.append(("host.call_us", plain(call.value), ends(call), ", ".join(anchor.name for anchor in timed)))
    residuals = []
    for anchor, one, residual in _observed(fitted):
        measured, again, unit = _shown(anchor, one, residual)
        error = f"{round(again / measured - 1, 3) + 0.0:+.1%}"
        residuals.append((anchor.name, unit, plain(measured), plain(again), error))
    columns = [(machine.name, "left"), ("fitted", "right"), ("90% interval", "right"), ("on", "left")]
    headings = [("anchor", "left"), ("of", "left"), ("measured", "right"), ("fitted", "right"), ("error", "right")]
    notes = [f"note: {note}" for note in fitted.notes]
    return [Section("", (Table(columns, numbers), Table(headings, residuals), *notes))]


def document(fitted: Fitted, out: Path) -> dict[str, Any]:
    """The same for --json."""
    found = fitted.fit
    spread = found.draws.std(axis=0)
    centred = (found.draws - found.draws.mean(axis=0)) / np.where(spread == 0, 1, spread)
    return {
        "out": str(out),
        "machine": asdict(fitted.machine),
        "fitted": [
            {"parameter": parameter, "path": path, "value": quantity.value, "lo": quantity.lo, "hi": quantity.hi}
            | {"anchors": _from(fitted, parameter)}
            for parameter, path, quantity in _quantities(fitted)
        ],
        "correlation": (centred.T @ centred / len(centred)).tolist(),
        "anchors": [
            {"name": anchor.name, "tok_s": anchor.tok_s, "layers": anchor.layers, "top_k": anchor.top_k}
            | {"misses_per_token": anchor.misses, "bytes_per_token": anchor.bytes_read}
            for anchor in fitted.anchors
        ],
        "residuals": [
            {"anchor": anchor.name, "of": one.of, "measured_s": one.seconds}
            | {"fitted_s": one.seconds * (1 + residual), "relative": residual, "relative_sd": one.relative_sd}
            for anchor, one, residual in _observed(fitted)
        ],
        "notes": list(fitted.notes),
    }


def ends(quantity: Quantity) -> str:
    """The interval of a number."""
    return f"{plain(quantity.lo)} to {plain(quantity.hi)}"


def _quantities(fitted: Fitted) -> list[tuple[str, str, Quantity]]:
    """Parameter, path and quantity of each fitted number."""
    quantities = fitted.machine.quantities()
    return [
        (parameter, path, quantity)
        for parameter in fitted.fit.parameters
        for path, quantity in quantities
        if path.endswith(f".{parameter}") and not path.startswith("link.request")
    ]


def _from(fitted: Fitted, parameter: str) -> list[str]:
    """The anchors that determine a parameter."""
    return [anchor.name for anchor in fitted.anchors if any(one.terms.get(parameter) for one in anchor.observations)]


def _observed(fitted: Fitted) -> Iterator[tuple[Anchor, Equation, float]]:
    pairs = [(anchor, one) for anchor in fitted.anchors for one in anchor.observations]
    for (anchor, one), residual in zip(pairs, fitted.fit.residual, strict=True):
        yield anchor, one, float(residual)


def _shown(anchor: Anchor, one: Equation, residual: float) -> tuple[float, float, str]:
    """Measured value, fitted value and unit of an equation, for display."""
    if one.of == "token":
        host_s = anchor.layers * anchor.call_s
        return anchor.tok_s, 1 / (one.seconds * (1 + residual) + host_s), "tok/s"
    installs = anchor.primed if one.of == "prime" else anchor.installs
    assert installs is not None
    each_ms = one.seconds / installs.count * 1e3
    return each_ms, each_ms * (1 + residual), f"ms an install, {one.of}"
