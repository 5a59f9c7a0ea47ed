"""A machine from folders of recorded runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flashmoe_sim.machines.fitting import Fitted, check_number, check_parameters
from native_bridge.engines.read import find_run_model, read_run


def fit_runs(
    folders: Sequence[str | Path], *, name: str, command: str, model: str | None = None, parameters: Sequence[str] = ()
) -> Fitted:
    """Fit a machine on folders of recorded runs, with the engine of the first.

    name: of the machine. command: repeats the fit. model: of the runs; by default from a manifest.json with the runs or
    beside them. parameters: to fit beside those that need no further runs.
    Raises BadInput for runs that cannot be used, come from different machines, or do not identify the parameters.
    """
    check_parameters(parameters)
    runs = [read_run(folder) for folder in folders]
    check_number([str(run.folder.resolve()) for run in runs])
    engine = runs[0].engine
    engine.refuse_two_machines(runs, io_split_may_differ="request_us" in parameters)
    geometry = find_run_model(runs, model)
    return engine.fit(runs, geometry, name=name, command=command, parameters=parameters)
