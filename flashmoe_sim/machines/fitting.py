"""A machine from anchors, such as the rows of a published table: every number with interval, source and condition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import NamedTuple

import numpy as np

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.errors import Conflict, Incomplete, unknown_name
from flashmoe_sim.machines.anchors import Anchor
from flashmoe_sim.machines.attention_rates import with_attention
from flashmoe_sim.machines.equations import UNKNOWNS, Fit, fit
from flashmoe_sim.machines.estimates import estimate
from flashmoe_sim.machines.keys import MEASURED_SPREAD
from flashmoe_sim.machines.machine import Anchors, Compute, Host, Link, Machine, Quantity, Storage
from flashmoe_sim.machines.rows import read_rows

DISAGREES = 3  # standard deviations
CONTRADICTS = 1.5  # times the measured time of a token, or its inverse
OPEN = 10  # times the value
FIRST_FILLS = 0.25  # how much two streamed runs' shares of first fills must differ to determine their time


class Contradiction(Conflict):
    """No machine ran all of the anchors."""


class Origin(NamedTuple):
    """Where the numbers of a fitted machine come from: the command that repeats the fit, and its sources."""

    command: str
    sources: Sequence[str]


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted machine, how it was fitted, and what the user should know about it."""

    machine: Machine
    fit: Fit
    anchors: tuple[Anchor, ...]
    notes: tuple[str, ...]


def fit_rows(
    table: str | Path,
    selectors: Sequence[str],
    *,
    name: str,
    command: str,
    model: str,
    top_k: int | None = None,
    parameters: Sequence[str] = (),
) -> Fitted:
    """Fit a machine on rows of a table, each selected by a `COLUMN=VALUE`; see `read_rows`.

    The GPU computes unless the rows' condition contains `-ngl 0`.
    Raises BadInput whenever `fit_anchors` does, for fewer than two rows, and for errors in the table.
    """
    check_parameters(parameters)
    geometry = load_model(model)
    check_number(selectors)
    anchors = read_rows(table, selectors, geometry, top_k=top_k)
    return fit_anchors(
        anchors,
        geometry,
        parameters,
        gpu="-ngl 0" not in anchors[0].condition,
        unified=False,
        condition=anchors[0].condition,
        name=name,
        origin=Origin(command, [f"{table}: {selector}" for selector in selectors]),
    )


def fit_anchors(
    anchors: Sequence[Anchor],
    model: ModelGeometry | None,
    parameters: Sequence[str],
    *,
    gpu: bool,
    unified: bool,
    condition: str,
    name: str,
    origin: Origin,
) -> Fitted:
    """Fit a machine on anchors.

    model: that all of them ran. parameters: to fit beside those that need no further anchors. gpu: whether it computes.
    condition: under which the anchors ran. name: of the machine.
    Raises BadInput for anchors that contradict each other, or do not identify the parameters.
    """
    found = fit([one for anchor in anchors for one in anchor.observations], _chosen(anchors, parameters, model))
    _refuse_contradictions(found, anchors)
    provenance = Anchors(
        tuple(origin.sources),
        model.name if model else "a model that was not given",
        date.today().isoformat(),
        origin.command,
        model.routed_bytes if model else None,
    )
    machine = fitted_machine(
        found, anchors, name=name, gpu=gpu, unified=unified, condition=condition, provenance=provenance
    )
    return Fitted(machine, found, tuple(anchors), (*_open_ends(found), *_disagreements(found)))


def check_parameters(parameters: Sequence[str]) -> None:
    """Raise BadInput for a parameter that cannot be fitted."""
    for parameter in parameters:
        if parameter not in UNKNOWNS:
            raise unknown_name("parameter", parameter, UNKNOWNS)


def check_number(anchors: Sequence[str]) -> None:
    """Raise BadInput for fewer than two anchors, and for a duplicate."""
    if len(anchors) < 2:
        raise Incomplete(
            f"{len(anchors)} anchor{'s' * (len(anchors) != 1)}; expected two or more: the speed of one run does not "
            "separate the time of layers from the time of misses; give a streamed and an all-hit run"
        )
    for anchor in anchors:
        if anchors.count(anchor) > 1:
            raise Conflict(f"{anchor}: given twice; give another anchor")


def _chosen(anchors: Sequence[Anchor], wanted: Sequence[str], model: ModelGeometry | None) -> list[str]:
    """The parameters to fit, in the order of the table of unknowns."""
    chosen = {"layer_us", "read_gb_s", *wanted}
    if any(anchor.uploads for anchor in anchors):
        chosen.add("pinned_gb_s")
    elif any(anchor.primed for anchor in anchors) or _differ_in_first_fills(anchors):
        chosen.add(FIRST_TOUCH)
    if any(anchor.stalled for anchor in anchors) and any(anchor.installs is None for anchor in anchors):
        chosen.add("resume_us")
    top_ks = {anchor.top_k for anchor in anchors}
    if "weights_gb_s" in chosen and (model is None or model.dense_bytes is None):
        raise Incomplete(
            f"weights_gb_s: {model.name if model else 'the model'} does not record its dense weights, which "
            "every token reads; give its GGUF as --model"
        )
    if len(top_ks) > 1 and "weights_gb_s" not in chosen:
        raise Conflict(
            f"the anchors use {listed(top_ks)} experts a token, which take different times to compute; "
            "give anchors of one top-k, or --parameter weights_gb_s to fit that, too"
        )
    return [name for name in UNKNOWNS if name in chosen]


def _differ_in_first_fills(anchors: Sequence[Anchor]) -> bool:
    shares = [one.installs.first_bytes / one.installs.bytes_read for one in anchors if one.installs is not None]
    return bool(shares) and max(shares) - min(shares) > FIRST_FILLS


def listed(values: Iterable[int]) -> str:
    """The different numbers, ascending: `4 and 8`."""
    return " and ".join(map(str, sorted(set(values))))


def _open_ends(found: Fit) -> Iterator[str]:
    for parameter in found.parameters:
        lo, value, _ = found.interval(parameter)
        if parameter == FIRST_TOUCH and not takes_time(found, parameter):
            yield f"{parameter}: filling a slot for the first time took no longer than another install; left out"
        elif UNKNOWNS[parameter].is_rate and lo * OPEN < value:
            yield (
                f"{parameter}: the anchors hardly tell its time from zero, so its interval has no upper end; "
                "it needs anchors further apart"
            )


def _refuse_contradictions(found: Fit, anchors: Sequence[Anchor]) -> None:
    residuals = dict(zip((one.name for one in found.observations), found.residual.tolist(), strict=True))
    for anchor in anchors:
        host_s = anchor.layers * anchor.call_s
        fitted_s = (1 / anchor.tok_s - host_s) * (1 + residuals[f"{anchor.name}: token"]) + host_s
        if not 1 / CONTRADICTS < fitted_s * anchor.tok_s < CONTRADICTS:
            fitted = f"{1 / fitted_s:.3g}" if fitted_s else "no time at all"
            raise Contradiction(
                f"{anchor.name}: {anchor.tok_s:g} tok/s measured, but {fitted} fitted: the anchors contradict each "
                "other, as runs do with a warm and a cold page cache, or while other programs ran; fit runs of one kind"
            )


def _disagreements(found: Fit) -> Iterator[str]:
    for one, residual in zip(found.observations, found.residual, strict=True):
        if abs(residual) > DISAGREES * one.relative_sd:
            yield (
                f"{one.name} took {one.seconds:.4g} s, {one.seconds * (1 + residual):.4g} s fitted: further off than "
                "its error allows; the anchors may differ in what the page cache held"
            )


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
