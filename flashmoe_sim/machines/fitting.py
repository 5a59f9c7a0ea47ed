"""A machine from anchors: recorded runs of one machine, or rows of a published table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.errors import BadInput, unknown_name
from flashmoe_sim.machines.agree import refuse_two_machines
from flashmoe_sim.machines.anchors import Anchor, anchors_of, find_run_model
from flashmoe_sim.machines.fit import Fit, fit
from flashmoe_sim.machines.fitted_machine import FIRST_TOUCH, fitted_machine, takes_time
from flashmoe_sim.machines.machine import Anchors, Machine
from flashmoe_sim.machines.rows import read_rows
from flashmoe_sim.machines.runs import read_run
from flashmoe_sim.machines.unknowns import UNKNOWNS

DISAGREES = 3  # standard deviations
CONTRADICTS = 1.5  # times the measured time of a token, or its inverse
OPEN = 10  # times the value
FIRST_FILLS = 0.25  # by which shares of installs must differ that two streamed runs tell what first fills take


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted machine, how it was fitted, and what a person should know of it."""

    machine: Machine
    fit: Fit
    anchors: tuple[Anchor, ...]
    notes: tuple[str, ...]


def fit_runs(
    folders: Sequence[str | Path], *, name: str, command: str, model: str | None = None, parameters: Sequence[str] = ()
) -> Fitted:
    """Fit a machine on folders of recorded runs.

    name: of the machine. command: that fits it again. model: that the runs ran; by default that of a manifest.json with
    the runs or beside them. parameters: to fit beside those that need no further runs.
    Raises BadInput for runs that cannot be used, are of different machines, or do not tell what is to be fitted.
    """
    _check_parameters(parameters)
    runs = [read_run(folder) for folder in folders]
    _check_number([str(run.folder.resolve()) for run in runs])
    refuse_two_machines(runs, io_split_may_differ="request_us" in parameters)
    geometry = find_run_model(runs, model)
    anchors = anchors_of(runs, geometry)
    backend = next((run.log.backend for run in runs if run.log.backend), "")
    splits = {run.log.routed.io_split for run in runs if run.log.routed}
    host_bank = [run.folder.name for run in runs if run.log.host_bank_of_gpu]
    orders = sorted({run.log.routed.execution for run in runs if run.log.routed and run.log.routed.misses})
    ran = backend or ("a GPU" if _uploads(anchors) else "the CPU")
    ran += " computes, its experts on the CPU," if host_bank else " computes,"
    condition = f"{ran} {runs[0].threads} threads, top-{_list(anchor.top_k for anchor in anchors)}"
    fitted = _fitted(
        anchors,
        _chosen(anchors, parameters, geometry),
        name=name,
        gpu=bool(backend) or _uploads(anchors),
        unified=backend == "metal",
        condition=condition + (f", io-split {_list(splits)}" if splits else "") + "".join(f", {one}" for one in orders),
        provenance=_provenance([str(run.folder) for run in runs], geometry, command),
    )
    return replace(fitted, notes=(*fitted.notes, _host_bank_note(host_bank))) if host_bank else fitted


def _host_bank_note(names: Sequence[str]) -> str:
    """What to know of seconds fitted on runs whose slots were in the memory of the host."""
    return (
        f"{', '.join(names)}: by the log the slots are in the host's memory: nothing goes over the link, and the CPU "
        "computes the experts, whatever layers are on the GPU; the machine is of such runs alone"
    )


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
    """Fit a machine on rows of a table, each chosen by a `COLUMN=VALUE`; see `read_rows`.

    The GPU computes unless the condition of the rows has `-ngl 0` in it.
    Raises BadInput as `fit_runs` does, and for what is wrong with the table.
    """
    _check_parameters(parameters)
    geometry = load_model(model)
    _check_number(selectors)
    anchors = read_rows(table, selectors, geometry, top_k=top_k)
    return _fitted(
        anchors,
        _chosen(anchors, parameters, geometry),
        name=name,
        gpu="-ngl 0" not in anchors[0].condition,
        unified=False,
        condition=anchors[0].condition,
        provenance=_provenance([f"{table}: {selector}" for selector in selectors], geometry, command),
    )


def _check_parameters(parameters: Sequence[str]) -> None:
    for parameter in parameters:
        if parameter not in UNKNOWNS:
            raise unknown_name("parameter", parameter, UNKNOWNS)


def _check_number(anchors: Sequence[str]) -> None:
    if len(anchors) < 2:
        raise BadInput(
            f"{len(anchors)} anchor{'s' * (len(anchors) != 1)}; expected two or more: the speed of one run does not "
            "tell what its layers take from what its misses take; give a streamed and an all-hit run"
        )
    for anchor in anchors:
        if anchors.count(anchor) > 1:
            raise BadInput(f"{anchor}: given twice; give another anchor")


def _chosen(anchors: Sequence[Anchor], asked: Sequence[str], model: ModelGeometry | None) -> list[str]:
    """What is fitted, in the order of the table of unknowns."""
    chosen = {"layer_us", "read_gb_s", *asked}
    if _uploads(anchors):
        chosen.add("pinned_gb_s")
    elif any(anchor.primed for anchor in anchors) or _differ_in_first_fills(anchors):
        chosen.add(FIRST_TOUCH)
    if any(anchor.stalled for anchor in anchors) and any(anchor.installs is None for anchor in anchors):
        chosen.add("resume_us")
    top_ks = {anchor.top_k for anchor in anchors}
    if "weights_gb_s" in chosen and (model is None or model.dense_bytes is None):
        raise BadInput(
            f"weights_gb_s: {model.name if model else 'the model'} does not tell its weights outside the routed "
            "experts, which every token streams; give its GGUF as --model"
        )
    if len(top_ks) > 1 and "weights_gb_s" not in chosen:
        raise BadInput(
            f"the anchors use {_list(top_ks)} experts a token, which take different times to compute; "
            "give anchors of one top-k, or --parameter weights_gb_s to fit that, too"
        )
    return [name for name in UNKNOWNS if name in chosen]


def _uploads(anchors: Sequence[Anchor]) -> bool:
    return any(anchor.uploads for anchor in anchors)


def _differ_in_first_fills(anchors: Sequence[Anchor]) -> bool:
    shares = [one.installs.first_bytes / one.installs.bytes_read for one in anchors if one.installs is not None]
    return bool(shares) and max(shares) - min(shares) > FIRST_FILLS


def _list(values: Iterable[int]) -> str:
    return " and ".join(map(str, sorted(set(values))))


def _provenance(anchors: Sequence[str], model: ModelGeometry | None, command: str) -> Anchors:
    name = model.name if model else "a model that was not given"
    return Anchors(tuple(anchors), name, date.today().isoformat(), command, model.routed_bytes if model else None)


def _fitted(
    anchors: Sequence[Anchor],
    parameters: Sequence[str],
    *,
    name: str,
    gpu: bool,
    unified: bool,
    condition: str,
    provenance: Anchors,
) -> Fitted:
    found = fit([one for anchor in anchors for one in anchor.observations], parameters)
    _refuse_contradictions(found, anchors)
    machine = fitted_machine(
        found, anchors, name=name, gpu=gpu, unified=unified, condition=condition, provenance=provenance
    )
    return Fitted(machine, found, tuple(anchors), (*_open_ends(found), *_disagreements(found)))


def _open_ends(found: Fit) -> Iterator[str]:
    for parameter in found.parameters:
        lo, value, _ = found.interval(parameter)
        if parameter == FIRST_TOUCH and not takes_time(found, parameter):
            yield f"{parameter}: filling a slot for the first time took no longer than another install; left out"
        elif UNKNOWNS[parameter].is_rate and lo * OPEN < value:
            yield (
                f"{parameter}: the anchors hardly tell its time from none, so that its interval is open upwards; "
                "it needs anchors further apart"
            )


def _refuse_contradictions(found: Fit, anchors: Sequence[Anchor]) -> None:
    residuals = dict(zip((one.name for one in found.observations), found.residual.tolist(), strict=True))
    for anchor in anchors:
        host_s = anchor.layers * anchor.call_s
        fitted_tok_s = 1 / ((1 / anchor.tok_s - host_s) * (1 + residuals[f"{anchor.name}: token"]) + host_s)
        if not 1 / CONTRADICTS < fitted_tok_s / anchor.tok_s < CONTRADICTS:
            raise BadInput(
                f"{anchor.name}: {anchor.tok_s:g} tok/s measured, but {fitted_tok_s:.3g} fitted: the anchors "
                "contradict each other, as runs with a warm and a cold page cache do; fit runs of one kind"
            )


def _disagreements(found: Fit) -> Iterator[str]:
    for one, residual in zip(found.observations, found.residual, strict=True):
        if abs(residual) > DISAGREES * one.relative_sd:
            yield (
                f"{one.name} took {one.seconds:.4g} s, {one.seconds * (1 + residual):.4g} s fitted: further off than "
                "its error allows; the anchors may differ in what the page cache held"
            )
