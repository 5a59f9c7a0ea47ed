"""From a fit to a machine: every number with its interval, source and condition."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flashmoe_sim.io.errors import Incomplete
from flashmoe_sim.machines.anchors import Anchor
from flashmoe_sim.machines.attention import with_attention
from flashmoe_sim.machines.estimates import estimate
from flashmoe_sim.machines.fit import UNKNOWNS, Fit
from flashmoe_sim.machines.keys import MEASURED_SPREAD
from flashmoe_sim.machines.machine import Anchors, Compute, Host, Link, Machine, Quantity, Storage

# Work that takes less than this share of every anchor's time could be infinitely fast without a visible difference.
UNNOTICED = 1e-3
FIRST_TOUCH = "first_touch_gb_s"  # which a machine may lack


def fitted_machine(
    found: Fit,
    anchors: Sequence[Anchor],
    *,
    name: str,
    gpu: bool,
    unified: bool,
    condition: str,
    provenance: Anchors,
) -> Machine:
    """The machine with the fitted numbers, and everything else that its file needs.

    condition: under which the anchors ran: threads, backend, splits.
    Raises BadInput for a rate that takes no visible time in the anchors.
    """
    source = f"fitted on {', '.join(anchor.name for anchor in anchors)} with {provenance.model}"
    values = {
        parameter: _rate(found, parameter, source, condition)
        if UNKNOWNS[parameter].is_rate
        else Quantity(*_ordered(found.interval(parameter)), source, condition)
        for parameter in found.parameters
        if parameter != FIRST_TOUCH or takes_time(found, parameter)
    }
    knee = estimate("run.knee_tokens")
    unit = Compute(
        layer_us=values["layer_us"],
        knee_tokens=Quantity(*_ordered(knee.ends), "not determined by decoding", condition, True),
        weights_gb_s=values.get("weights_gb_s"),
    )
    none = "in storage.read_gb_s, which the whole time of an install was fitted to"
    machine = Machine(
        name=name,
        title=f"Fitted on {len(anchors)} anchors of {provenance.model}",
        unified=unified,
        storage=Storage(
            read_gb_s=values["read_gb_s"],
            request_us=values.get("request_us") or Quantity(0, 0, 0, none, condition),
            lanes=Quantity(1, 1, 1, "read_gb_s is the rate of all reading threads together", condition),
        ),
        host=Host(
            call_us=_call_us(anchors, condition),
            install_us=Quantity(0, 0, 0, none, condition),
            resume_us=values.get("resume_us"),
            first_touch_gb_s=values.get(FIRST_TOUCH),
        ),
        link=_link(values["pinned_gb_s"], condition) if "pinned_gb_s" in values else None,
        gpu=unit if gpu else None,
        cpu=None if gpu else unit,
        anchors=provenance,
    )
    return with_attention(machine)


def _ordered(interval: tuple[float, float, float]) -> tuple[float, float, float]:
    """From lo, value, hi to value, lo, hi, the order of a quantity, with a sensible number of digits."""
    lo, value, hi = (float(f"{number:.5g}") for number in interval)
    return value, lo, hi


def takes_time(found: Fit, parameter: str) -> bool:
    """Whether the anchors would differ visibly if a rate were infinitely fast."""
    return bool(found.value[found.parameters.index(parameter)] >= _least(found, parameter))


def _least(found: Fit, parameter: str) -> float:
    """Seconds per GB that would make no visible difference in the anchors."""
    terms = [(one.seconds, one.terms.get(parameter)) for one in found.observations]
    return UNNOTICED * min(seconds / units for seconds, units in terms if units)


def _rate(found: Fit, parameter: str, source: str, condition: str) -> Quantity:
    """GB/s from seconds per GB. An open interval ends where the anchors would no longer differ visibly."""
    column, least = found.parameters.index(parameter), _least(found, parameter)
    if not takes_time(found, parameter):
        raise Incomplete(
            f"{parameter}: the anchors with more of it are no slower, so nothing determines it; "
            f"give other anchors: it needs {UNKNOWNS[parameter].needs}"
        )
    draws = np.maximum(found.draws[:, column], least)
    lo, hi = np.quantile(1 / draws, [0.05, 0.95])
    if parameter == "read_gb_s":
        condition = f"the whole reading pool as the anchors saw it, page cache included; {condition}"
    value = 1 / float(found.value[column])
    return Quantity(*_ordered((min(float(lo), value), value, max(float(hi), value))), source, condition)


def _call_us(anchors: Sequence[Anchor], condition: str) -> Quantity:
    """The host's time for a routed call: the mean over the anchors that resolve slots."""
    streamed = [anchor for anchor in anchors if anchor.call_s and anchor.misses]
    timed = streamed or [anchor for anchor in anchors if anchor.call_s]
    if not timed:
        return Quantity(0, 0, 0, "in layer_us: the anchors do not separate it", condition)
    each = [anchor.call_s * 1e6 for anchor in timed]
    mean = sum(each) / len(each)
    lo, hi = min(*each, mean * MEASURED_SPREAD[0]), max(*each, mean * MEASURED_SPREAD[1])
    names = ", ".join(anchor.name for anchor in timed)
    return Quantity(
        *_ordered((lo, mean, hi)), f"topk, resolve, slotwr and other of the logs of {names}, a call", condition
    )


def _link(pinned: Quantity, condition: str) -> Link:
    unpinned = Quantity(
        pinned.value,
        pinned.value / 2,
        pinned.value,
        "taken as pinned_gb_s: the anchors do not determine it",
        condition,
        True,
    )
    return Link(pinned, unpinned, Quantity(0, 0, 0, "in pinned_gb_s", condition))
