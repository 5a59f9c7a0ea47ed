"""Many runs of one model and prompt: every mode at every bank, some times over, one after the other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from flashmoe_sim.errors import BadInput, SimError
from flashmoe_sim.geometry.gguf import read_gguf
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.machines.runs import Run, read_run
from native_bridge.cache import Cache
from native_bridge.modes import BANKED, ORACLES
from native_bridge.process import Terminated
from native_bridge.request import RunRequest, check_request
from native_bridge.run import run_once
from native_bridge.run_folder import FLAGS, refuse_folder
from native_bridge.runtime import Runtime


@dataclass(frozen=True)
class Planned:
    """A run to be made, its folder, and the folder of the run that it replays."""

    request: RunRequest
    folder: Path
    replay: Path | None


def requests_of(
    modes: Sequence[str], banks: Sequence[int], model: ModelGeometry, make: Callable[[str, int], RunRequest]
) -> list[RunRequest]:
    """A request for each mode and bank; one for each mode that has no bank, which is every expert.

    make: the request of a mode and a bank. Raises BadInput where there is no bank for a mode that needs one.
    """
    experts = max(layer.n_experts for layer in model.layers.values())
    if not banks and (needing := [mode for mode in modes if mode in BANKED]):
        raise BadInput(f"mode {needing[0]} needs a bank; give --bank, such as --bank 16,32")
    return [make(mode, bank) for mode in modes for bank in (banks if mode in BANKED else (experts,))]


def plan(requests: Sequence[RunRequest], out: Path, *, repeat: int = 1, replay: Path | None = None) -> list[Planned]:
    """The runs in order: all requests once, then all again, so that a machine that slows down slows all alike.

    An oracle replays the run of slot-bank of the same bank and repeat, or of the largest bank; or the folder given.
    """
    inorder = sorted(requests, key=lambda request: request.mode in ORACLES)
    planned = []
    for number in range(1, repeat + 1):
        suffix = f"-rep{number}" if repeat > 1 else ""
        for request in inorder:
            source = replay if request.mode in ORACLES else None
            if request.mode in ORACLES and source is None and (of := _replayed(request, inorder)) is not None:
                source = out / f"{of.name}{suffix}"
            planned.append(Planned(request, out / f"{request.name}{suffix}", source))
    return planned


def _replayed(request: RunRequest, requests: Sequence[RunRequest]) -> RunRequest | None:
    banked = [other for other in requests if other.mode == "slot-bank"]
    same = [other for other in banked if other.bank == request.bank]
    return next(iter(same or sorted(banked, key=lambda other: -other.bank)), None)


def check_plan(
    planned: Sequence[Planned], *, runtime: Runtime, model: Path, sidecar: Path | None, force: bool
) -> ModelGeometry:
    """The model's geometry. Raises BadInput where any of the runs could not be started, before the first one is."""
    geometry = read_gguf(model)
    ours = {one.folder for one in planned}
    for one in planned:
        check_request(one.request, geometry, sidecar=sidecar, replay=one.replay)
        if one.request.mode not in runtime.modes:
            raise BadInput(f"{runtime.path}: has no mode {one.request.mode}; it has {', '.join(runtime.modes)}")
        refuse_folder(one.folder, force=force)
        if one.replay is not None and one.replay not in ours:
            _check_replay(one.request, one.replay)
    return geometry


def _check_replay(request: RunRequest, folder: Path) -> None:
    """Refuse the replay of a run that routed something else: the runtime would end it in the middle."""
    run = read_run(folder)
    prompt = json.loads((folder / FLAGS).read_bytes()).get("prompt")
    wanted = {"ubatch": request.ubatch, "topk": request.top_k, "prompt": request.prompt, "tokens": request.n_predict}
    found = {"ubatch": run.ubatch, "topk": run.top_k, "prompt": prompt, "tokens": run.n_predict}
    if run.trace is None:
        raise BadInput(f"{folder}: has no trace to replay; give the folder of a run of slot-bank")
    if different := [key for key in wanted if wanted[key] != found[key]]:
        raise BadInput(
            f"{folder}: was run with another {' and another '.join(different)} than asked for here; an oracle replays "
            f"what was routed: give the same --{', --'.join(different)}"
        )


def run_all(
    planned: Sequence[Planned],
    *,
    runtime: Runtime,
    model: Path,
    sidecar: Path | None,
    timeout_s: float,
    cache: str,
    force: bool,
    progress: Callable[[Planned, float, int], None] | None = None,
) -> Iterator[tuple[Planned, Run | SimError]]:
    """Each run, or why it failed, as soon as it is over; one that replays a failed run is not started."""
    failed: dict[Path, SimError] = {}
    for one in planned:
        outcome: Run | SimError
        if one.replay in failed:
            outcome = SimError(f"{one.folder}: not started: {one.replay.name}, which it replays, failed")
        else:
            outcome = _run(one, runtime, model, sidecar, timeout_s, cache, force, progress)
        if isinstance(outcome, SimError):
            failed[one.folder] = outcome
        yield one, outcome


def _run(
    one: Planned,
    runtime: Runtime,
    model: Path,
    sidecar: Path | None,
    timeout_s: float,
    cache: str,
    force: bool,
    progress: Callable[[Planned, float, int], None] | None,
) -> Run | SimError:
    try:
        return run_once(
            one.request,
            runtime=runtime,
            model=model,
            sidecar=sidecar,
            folder=one.folder,
            replay=one.replay,
            timeout_s=timeout_s,
            cache=Cache(cache),
            force=force,
            progress=None if progress is None else lambda seconds, calls: progress(one, seconds, calls),
        )
    except (BadInput, Terminated):
        raise
    except SimError as error:
        return error
