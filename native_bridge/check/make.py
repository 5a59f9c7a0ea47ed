"""The runs of a comparison, made with a real runtime: every mode, on one model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from flashmoe_sim.geometry.gguf import read_gguf
from flashmoe_sim.io.errors import SimError
from native_bridge.engines.table import ENGINES, find_runtime
from native_bridge.fixture import bundled_model
from native_bridge.host import physical_cores
from native_bridge.repeats import check_plan, plan, run_all

PROMPT = (
    "Every layer of the model keeps a few of its experts in a bank of slots, and reads the others when a token asks "
    "for them. What was read replaces what was not asked for in the longest time. A run is compared call by call."
)
TOKENS = 100
TIMEOUT_S = 3600.0
CACHE = "warm"


@dataclass(frozen=True)
class Made:
    """Folders of runs, in order, and the model file that they ran."""

    folders: list[Path]
    model: Path


@contextmanager
def made_runs(
    runtime: str | None,
    *,
    model: str | None,
    sidecar: Path | None,
    runs: Path | None,
    threads: int | None,
    gpu_layers: str | None,
    force: bool,
    tell: Callable[[str], None],
) -> Iterator[Made]:
    """Make the runs, and keep them in `runs`, or only until the block ends.

    runtime: a llama-cli; None for the one that FLASHMOE_RUNTIME names. model: a GGUF file; by default the bundled one.
    sidecar: its folder; by default one is written beside the runs. threads: for computing; by default the physical
        cores. gpu_layers: like the runtime's `-ngl`. tell: called with a line before the runs.
    Raises BadInput for impossible runs, and SimError if a run fails.
    """
    described = find_runtime(runtime)
    engine = ENGINES[described.engine]
    path = bundled_model() if model is None else Path(model)
    with TemporaryDirectory(prefix="flashmoe-check-") as temporary:
        place = runs or Path(temporary)
        geometry = read_gguf(path)
        threads = threads or physical_cores()
        requests = engine.comparison(geometry, prompt=PROMPT, n_predict=TOKENS, threads=threads, gpu_layers=gpu_layers)
        planned = plan(requests, place, modes=engine.modes)
        check_plan(
            planned,
            runtime=described,
            model=path,
            sidecar=sidecar,
            cache=CACHE,
            force=force,
            write_sidecar_to=None if sidecar else place / "sidecar",
        )
        sidecar = sidecar or place / "sidecar"
        tell(f"{len(planned)} runs of {geometry.name}, {'kept in ' + str(place) if runs else 'not kept (--runs)'}")
        outcomes = run_all(
            planned, runtime=described, model=path, sidecar=sidecar, timeout_s=TIMEOUT_S, cache=CACHE, force=force
        )
        for _, outcome in outcomes:
            if isinstance(outcome, SimError):
                raise outcome
        yield Made([one.folder for one in planned], path)
