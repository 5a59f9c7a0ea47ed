"""Predicted settings, run by the real runtime in turns, and judged."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

from flashmoe_sim.geometry.gguf import read_gguf
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.errors import BadInput, SimError
from flashmoe_sim.systems.base import System
from native_bridge.check.counts import check_counts
from native_bridge.check.folder import open_folders
from native_bridge.check.make import PROMPT, TIMEOUT_S, TOKENS
from native_bridge.engines.base import Runtime
from native_bridge.engines.runs import Run
from native_bridge.engines.table import ENGINES, find_runtime
from native_bridge.host import physical_cores
from native_bridge.repeats import Planned, check_plan, run_all
from native_bridge.verified import Claim, Measured, Verified

LEAST_ROUNDS = 3  # fewer cannot tell an order from chance


def verify(
    claims: Sequence[tuple[System, float, float, float]],
    *,
    runtime: str | None,
    model: Path,
    sidecar: Path | None = None,
    place: Path | None = None,
    prompt: str = PROMPT,
    tokens: int = TOKENS,
    threads: int | None = None,
    gpu_layers: str | None = None,
    cache: str = "warm",
    rounds: int = LEAST_ROUNDS,
    timeout_s: float = TIMEOUT_S,
    force: bool = False,
    tell: Callable[[str], None] | None = None,
    progress: Callable[[Planned, float, int], None] | None = None,
) -> Verified:
    """Run the settings that were predicted, each once a round, and compare.

    Each round begins with another setting than the one before, so that a machine that slows down affects all equally.

    claims: each a system with its decode speed and the ends of its 90 % interval, tokens a second (`Claim`); the
    recommended one first. runtime: a patched llama-cli; None for the one that FLASHMOE_RUNTIME names. model: the GGUF
    file. sidecar: its folder; by default one is written beside the runs. place: where the runs are kept; by default
    nowhere. threads: for computing; by default the physical cores. gpu_layers: like the runtime's `-ngl`, for systems
    that do not set it. tell: called with a line before the runs. progress: as for `run_all`.

    A run that fails is in the result. Raises BadInput, before any run, for a system that the runtime cannot run.
    """
    given = [Claim(*claim) for claim in claims]
    if not given or len({claim.system.spec for claim in given}) < len(given):
        raise BadInput(f"{len(given)} settings to verify; expected one or more, each once")
    if rounds < LEAST_ROUNDS:
        raise BadInput(f"{rounds} rounds do not give an order; expected {LEAST_ROUNDS} or more")
    described, geometry = find_runtime(runtime), read_gguf(model)
    with nullcontext(str(place)) if place else TemporaryDirectory(prefix="flashmoe-verify-") as folder:
        options = {
            "prompt": prompt,
            "n_predict": tokens,
            "threads": threads or physical_cores(),
            "gpu_layers": gpu_layers,
        }
        planned = _planned(given, described, geometry, Path(folder), rounds=rounds, cache=cache, options=options)
        beside = None if sidecar else Path(folder) / "sidecar"
        check_plan(
            planned,
            runtime=described,
            model=model,
            sidecar=sidecar,
            cache=cache,
            force=force,
            write_sidecar_to=beside,
        )
        if tell is not None:
            names = ", ".join(claim.system.spec for claim in given)
            kept = f"kept in {place}" if place else "not kept"
            tell(f"{rounds} rounds of {names} with {geometry.name}, page cache {cache}; {kept}")
        outcomes: dict[str, list[Run | SimError]] = {claim.system.spec: [] for claim in given}
        for one, outcome in run_all(
            planned,
            runtime=described,
            model=model,
            sidecar=sidecar or beside,
            timeout_s=timeout_s,
            cache=cache,
            force=force,
            progress=progress,
        ):
            if isinstance(outcome, BadInput):
                raise outcome
            outcomes[one.name].append(outcome)
        settings = tuple(_measured(claim, outcomes[claim.system.spec], str(model)) for claim in given)
    return Verified(settings, geometry.name, cache, rounds)


def _planned(
    claims: Sequence[Claim],
    runtime: Runtime,
    model: ModelGeometry,
    place: Path,
    *,
    rounds: int,
    cache: str,
    options: dict[str, object],
) -> list[Planned]:
    """The runs in order; the first setting of a round is the last one of the next."""
    engine, once = ENGINES[runtime.engine], []
    for claim in claims:
        request = engine.request_of(claim.system, model, runtime, **options)
        if cache == "cold" and not engine.modes[request.mode].slots:
            raise BadInput(
                f"system {claim.system.spec}: maps its experts, which are read while it decodes if the page cache is "
                "cold; leave it out, or give --cache warm"
            )
        once.append((claim.system.spec, request))
    planned = []
    for number in range(rounds):
        first = number % len(once)
        for spec, request in once[first:] + once[:first]:
            folder = place / f"{re.sub(r'[^A-Za-z0-9.]+', '-', spec)}-rep{number + 1}"
            planned.append(Planned(spec, request, folder, None))
    return planned


def _measured(claim: Claim, outcomes: Sequence[Run | SimError], model: str) -> Measured:
    """A setting with its runs, one per round, whose counts are compared with the simulator's."""
    runs = [run for run in outcomes if isinstance(run, Run)]
    checked = []
    if runs:
        among = open_folders([run.folder for run in runs], model=model)
        checked = [check_counts(folder, among) for folder in among.given]
    routed = [run.log.routed for run in runs if run.log.routed is not None]
    requests = sum(one.requests for one in routed)
    return Measured(
        claim,
        tuple(run.log.decode_tok_s if isinstance(run, Run) else None for run in outcomes),
        1 - sum(one.misses for one in routed) / requests if requests else None,
        sum(one.slots + one.counters for one in checked),
        tuple(str(each) for one in checked for each in ([one.unlike] if one.unlike else one.differences)),
        tuple(str(error) for error in outcomes if isinstance(error, SimError)),
    )
