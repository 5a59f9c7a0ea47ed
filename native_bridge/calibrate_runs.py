"""The runs of a calibration, made with a real runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from flashmoe_sim.geometry.gguf import read_gguf
from flashmoe_sim.io.errors import BadInput, SimError
from flashmoe_sim.io.sizes import size
from native_bridge.check.make import PROMPT, TIMEOUT_S, Made
from native_bridge.engines.table import ENGINES, find_runtime
from native_bridge.fixture import bundled_model
from native_bridge.host import free_ram_bytes, physical_cores
from native_bridge.repeats import check_plan, plan, run_all, run_name


def make_anchors(
    runtime: str | None,
    *,
    model: str | None,
    sidecar: Path | None,
    place: Path,
    bank: int | None,
    cache: str,
    repeat: int,
    tokens: int,
    threads: int | None,
    gpu_layers: str | None,
    parameters: Sequence[str],
    force: bool,
    tell: Callable[[str], None],
) -> Made:
    """Make the runs of `calibration`, each `repeat` times in turns, and keep them in `place`.

    tell: called with a line before the runs. Raises BadInput for impossible runs, such as an all-hit run of a model
    whose experts do not fit into memory, and SimError if a run fails.
    """
    described = find_runtime(runtime)
    engine = ENGINES[described.engine]
    path = bundled_model() if model is None else Path(model)
    geometry = read_gguf(path)
    needed = geometry.routed_bytes + (geometry.dense_bytes or 0)
    if needed > free_ram_bytes():
        raise BadInput(
            f"{path}: its weights take {size(needed)} for the run whose experts are all resident, and "
            f"{size(free_ram_bytes())} of memory are free; give a smaller model: the machine is fitted, not it"
        )
    requests = engine.calibration(
        geometry,
        prompt=PROMPT,
        n_predict=tokens,
        bank=bank,
        threads=threads or physical_cores(),
        gpu_layers=gpu_layers,
        parameters=parameters,
    )
    if cache == "cold" and any(not engine.modes[request.mode].slots for request in requests):
        raise BadInput(
            "--parameter weights_gb_s makes a run of stock, whose experts are read while it decodes if the page cache "
            "is cold; give --cache warm"
        )
    planned = plan(requests, place, modes=engine.modes, repeat=repeat)
    check_plan(
        planned,
        runtime=described,
        model=path,
        sidecar=sidecar,
        cache=cache,
        force=force,
        write_sidecar_to=None if sidecar else place / "sidecar",
    )
    sidecar = sidecar or place / "sidecar"
    names = ", ".join(run_name(request, engine.modes[request.mode]) for request in requests)
    times = f", {repeat} times in turns" if repeat > 1 else ""
    tell(f"{len(planned)} runs of {geometry.name} in {place}, page cache {cache}: {names}{times}")
    outcomes = run_all(
        planned, runtime=described, model=path, sidecar=sidecar, timeout_s=TIMEOUT_S, cache=cache, force=force
    )
    for _, outcome in outcomes:
        if isinstance(outcome, SimError):
            raise outcome
    return Made([one.folder for one in planned], path)
