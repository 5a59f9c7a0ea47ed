"""A machine fitted on recorded runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.machines.fitting import Fitted, Origin, fit_anchors
from native_bridge.engines.flashmoe.anchors import anchors_of
from native_bridge.engines.runs import Run


def fit(
    runs: Sequence[Run], model: ModelGeometry | None, *, name: str, command: str, parameters: Sequence[str]
) -> Fitted:
    """Fit a machine on runs of a model; see `fit_runs`."""
    anchors = anchors_of(runs, model)
    backend = next((run.log.backend for run in runs if run.log.backend), "")
    splits = {run.log.routed.io_split for run in runs if run.log.routed}
    uploads = any(anchor.uploads for anchor in anchors)
    host_bank = [run.folder.name for run in runs if run.log.host_bank_of_gpu]
    orders = sorted({run.log.routed.execution for run in runs if run.log.routed and run.log.routed.misses})
    ran = backend or ("a GPU" if uploads else "the CPU")
    ran += " computes, its experts on the CPU," if host_bank else " computes,"
    condition = f"{ran} {runs[0].threads} threads, top-{_list(anchor.top_k for anchor in anchors)}"
    fitted = fit_anchors(
        anchors,
        model,
        parameters,
        gpu=bool(backend) or uploads,
        unified=backend == "metal",
        condition=condition + (f", io-split {_list(splits)}" if splits else "") + "".join(f", {one}" for one in orders),
        name=name,
        origin=Origin(command, [str(run.folder) for run in runs]),
    )
    return replace(fitted, notes=(*fitted.notes, _host_bank_note(host_bank))) if host_bank else fitted


def _list(values: Iterable[int]) -> str:
    return " and ".join(map(str, sorted(set(values))))


def _host_bank_note(names: Sequence[str]) -> str:
    """A note on seconds fitted on runs whose slots were in host memory."""
    return (
        f"{', '.join(names)}: by the log the slots are in the host's memory: nothing goes over the link, and the CPU "
        "computes the experts, whatever layers are on the GPU; the machine is of such runs alone"
    )
