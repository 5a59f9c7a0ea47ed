"""Many runs of one model and prompt: every mode at every bank, with repeats, one after the other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flashmoe_sim.geometry.gguf import read_gguf
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.errors import BadInput, SimError, unknown_name
from native_bridge.cache import Cache, model_files
from native_bridge.engines.base import Mode, RunRequest, Runtime
from native_bridge.engines.read import read_run
from native_bridge.engines.runs import Run
from native_bridge.engines.table import ENGINES
from native_bridge.fixture.sidecar import write_sidecar
from native_bridge.host import machine_name
from native_bridge.process import Terminated
from native_bridge.run import command_of, going_on, run_once, settings_of_environment
from native_bridge.run_folder import FLAGS, refuse_folder


@dataclass(frozen=True)
class Planned:
    """A planned run, its folder, and the folder of the run that it replays. name: shared with its repeats."""

    name: str
    request: RunRequest
    folder: Path
    replay: Path | None


def run_name(request: RunRequest, mode: Mode) -> str:
    """The name of a run's folder among runs of one model and prompt. mode: the request's."""
    parts = [f"{request.mode}{request.bank}" if mode.traced else request.mode]
    parts += [f"bank{request.bank}"] if mode.kind == "prefetched" else []
    parts += [f"ub{request.ubatch}"] if request.ubatch > 1 else []
    parts += [f"topk{request.top_k}"] if request.top_k else []
    parts += [request.prefetch] if request.prefetch is not None else []
    parts += [f"split{request.io_split}"] if request.io_split is not None and mode.sidecar else []
    return "-".join(parts)


def requests_of(
    names: Sequence[str],
    banks: Sequence[int],
    model: ModelGeometry,
    make: Callable[[str, int], RunRequest],
    *,
    modes: Mapping[str, Mode],
) -> list[RunRequest]:
    """A request for each mode and bank; one for each mode that has no bank, which is every expert.

    names: of the modes. make: the request of a mode and a bank. modes: of the engine.
    Raises BadInput if there is no bank for a mode that needs one.
    """
    experts = max(layer.n_experts for layer in model.layers.values())
    banked = {name for name, mode in modes.items() if mode.banked}
    if not banks and (needing := [name for name in names if name in banked]):
        raise BadInput(f"mode {needing[0]} needs a bank; give --bank, such as --bank 16,32")
    return [make(mode, bank) for mode in names for bank in (banks if mode in banked else (experts,))]


def plan(
    requests: Sequence[RunRequest],
    out: Path,
    *,
    modes: Mapping[str, Mode],
    repeat: int = 1,
    replay: Path | None = None,
) -> list[Planned]:
    """The runs in order: all requests once, then all again, so that a machine that slows down affects all equally.

    A mode that replays is given the streamed run of the same bank and repeat, or of the largest bank; or the folder
    given. modes: of the engine. Raises BadInput for a mode that is not among them.
    """
    for request in requests:
        if request.mode not in modes:
            raise unknown_name("mode", request.mode, [name for name, mode in modes.items() if mode.offered])
    inorder = sorted(requests, key=lambda request: modes[request.mode].replays)
    planned = []
    for number in range(1, repeat + 1):
        suffix = f"-rep{number}" if repeat > 1 else ""
        for request in inorder:
            mode = modes[request.mode]
            source = replay if mode.replays else None
            if mode.replays and source is None and (of := _replayed(request, inorder, modes)) is not None:
                source = out / f"{run_name(of, modes[of.mode])}{suffix}"
            name = run_name(request, mode)
            planned.append(Planned(name, request, out / f"{name}{suffix}", source))
    return planned


def _replayed(request: RunRequest, requests: Sequence[RunRequest], modes: Mapping[str, Mode]) -> RunRequest | None:
    streamed = [other for other in requests if modes[other.mode].kind == "streamed"]
    same = [other for other in streamed if other.bank == request.bank]
    return next(iter(same or sorted(streamed, key=lambda other: -other.bank)), None)


def check_plan(
    planned: Sequence[Planned],
    *,
    runtime: Runtime,
    model: Path,
    sidecar: Path | None,
    cache: str,
    force: bool,
    write_sidecar_to: Path | None = None,
) -> ModelGeometry:
    """The model's geometry. Raises BadInput if any of the runs could not be started, before the first one is.

    write_sidecar_to: a folder that gets the model's sidecar after all checks, if it has none.
    """
    geometry, engine = read_gguf(model), ENGINES[runtime.engine]
    ours = {one.folder for one in planned}
    sidecar = sidecar or write_sidecar_to
    follows = write_sidecar_to is not None and not (write_sidecar_to / "manifest.json").exists()
    for one in planned:
        engine.check_request(one.request, geometry, sidecar=sidecar, replay=one.replay, sidecar_follows=follows)
        engine.check_flags(one.request.extra, runtime.flags)
        if one.request.mode not in runtime.modes:
            raise BadInput(f"{runtime.path}: has no mode {one.request.mode}; it has {', '.join(runtime.modes)}")
        there = None if force else what_is_there(one, runtime=runtime, model=model, sidecar=sidecar, cache=cache)
        refuse_folder(one.folder, force=force or there is not None)
        if one.replay is not None and one.replay not in ours:
            _check_replay(one.request, one.replay)
    if follows and any(engine.modes[one.request.mode].sidecar for one in planned):
        assert sidecar is not None
        write_sidecar(model, sidecar)
    return geometry


def what_is_there(one: Planned, *, runtime: Runtime, model: Path, sidecar: Path | None, cache: str) -> str | None:
    """`run` or `failed`: what this very command left in a run's folder; None for nothing or anything else."""
    try:
        document = json.loads((one.folder / FLAGS).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    first = model_files(model)[0]
    wanted = {
        "command": command_of(going_on(one.request, runtime, first), runtime, model=first, sidecar=sidecar),
        "environment": settings_of_environment(ENGINES[runtime.engine], one.request),
        "machine": machine_name(),
        "replay_of": one.replay.name if one.replay is not None else None,
    }
    same = all(document.get(key) == value for key, value in wanted.items())
    for key, value in (("cache", ("state", cache)), ("runtime", ("commit", runtime.commit))):
        same = same and isinstance(document.get(key), dict) and value in document[key].items()
    if not same:
        return None
    return "failed" if document.get("failed") is not None else "run"


def _check_replay(request: RunRequest, folder: Path) -> None:
    """Refuse the replay of a run with other routing: the runtime would stop in the middle."""
    run = read_run(folder)
    prompt = run.document.get("prompt")
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
    """Each run, or why it failed, as soon as it is over; one that replays a failed run is not started.

    Without force, existing runs of the same command are read, and its failed ones are made again. After a run that
    cannot be started, whose outcome is a BadInput, no other is started.
    """
    failed: dict[Path, SimError] = {}
    for one in planned:
        outcome: Run | SimError
        there = None if force else what_is_there(one, runtime=runtime, model=model, sidecar=sidecar, cache=cache)
        if one.replay in failed:
            outcome = SimError(f"{one.folder}: not started: {one.replay.name}, which it replays, failed")
        elif there == "run":
            outcome = read_run(one.folder)
        else:
            again = force or there == "failed"
            outcome = _run(one, runtime, model, sidecar, timeout_s, cache, again, progress)
        if isinstance(outcome, SimError):
            failed[one.folder] = outcome
        yield one, outcome
        if isinstance(outcome, BadInput):
            return


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
    except Terminated:
        raise
    except BadInput as error:
        return BadInput(f"{one.folder}: not started: {error}; then give the same command: it goes on from this run")
    except SimError as error:
        return error
