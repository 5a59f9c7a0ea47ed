"""One run of the runtime, and the folder it leaves."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flashmoe_sim.geometry.gguf import read_gguf
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.errors import BadInput, SimError
from flashmoe_sim.machines.runs import MAX_BYTES, Run, read_run
from native_bridge.cache import Cache, model_files
from native_bridge.end_tokens import go_on_flags
from native_bridge.generated import generated_by
from native_bridge.host import machine_name, temperature_c
from native_bridge.modes import ORACLES
from native_bridge.outcome import ROUTED_CALLS, failure
from native_bridge.page_cache import total_bytes
from native_bridge.process import Finished, Terminated, run_child, sigterm_raises
from native_bridge.request import RunRequest, arguments, check_request
from native_bridge.run_folder import (
    LOG,
    REPLAY,
    STDOUT,
    TRACE,
    finish,
    put,
    refuse_folder,
    reserve,
    unpack,
    whole_calls,
    work_folder,
)
from native_bridge.runtime import Runtime

SETTINGS = ("LLAMA_FLASH_MOE_", "GGML_", "CUDA_VISIBLE_DEVICES")  # of the environment, that change what it does


def run_once(
    request: RunRequest,
    *,
    runtime: Runtime,
    model: Path,
    sidecar: Path | None,
    folder: Path,
    replay: Path | None = None,
    timeout_s: float = 3600.0,
    cache: Cache | None = None,
    force: bool = False,
    progress: Callable[[float, int], None] | None = None,
) -> Run:
    """Run the runtime once, and write run.json, log.txt, trace.jsonl.gz and text.txt into `folder`.

    replay: the folder of the run that an oracle mode replays. cache: what is done to the page cache before the run.
    progress: called with the seconds and the routed calls so far. The folder appears when the run is over.
    Raises BadInput before anything is started where the request cannot be done or the folder exists without force.
    Raises SimError where the run fails: its log, what there is of its trace and `failed` in run.json are in the folder.
    """
    geometry, model = read_gguf(model), model_files(model)[0]
    check_request(request, geometry, sidecar=sidecar, replay=replay)
    request = going_on(request, model)
    if request.mode not in runtime.modes:
        raise BadInput(f"{runtime.path}: has no mode {request.mode}; it has {', '.join(runtime.modes) or 'none'}")
    refuse_folder(folder, force=force)
    with sigterm_raises(), work_folder(folder) as work:
        if request.mode in ORACLES:
            assert replay is not None
            unpack(replay, work / REPLAY)
        command = command_of(request, runtime, model=model, sidecar=sidecar)
        document = _document(request, command, runtime, geometry, model, sidecar, replay)
        reserve(work, document)
        failed = None
        try:
            with (cache or Cache("as-is")).before(request, geometry, model=model, sidecar=sidecar) as cgroup:
                finished = run_child(
                    command,
                    output=work / LOG,
                    stdout=work / STDOUT,
                    timeout_s=timeout_s,
                    environment=_environment(),
                    folder=work,
                    watch=_Watch(work / TRACE, progress).look if progress else None,
                    cgroup=cgroup,
                    most_bytes=MAX_BYTES,
                )
        except SimError as error:
            if isinstance(error, (BadInput, Terminated)) or not (work / LOG).exists():
                raise
            finished, failed = Finished(1, 0.0, timed_out=False), str(error).replace(f"{work}/", "")
        log = (work / LOG).read_bytes().decode("utf-8", "replace")
        calls = whole_calls(work / TRACE)
        failed = failed or failure(request, finished, log, calls=calls, model=geometry)
        if failed is None and cache is not None:
            failed = cache.after(request, geometry, finished, log)
        document |= {"rc": finished.code, "seconds": round(finished.seconds, 3), "read_bytes": finished.read_bytes}
        document["tokens"] = _generated(work, log, calls) if failed is None else None
        document["temperature"]["after"] = temperature_c()
        document["cache"] = (cache or Cache("as-is")).facts()
        if failed is not None:
            document["failed"] = failed
        finish(work, document, request.prompt)
        put(work, folder)
    if failed is not None:
        raise SimError(f"{folder}: {request.mode}: {failed}")
    return read_run(folder)


def _generated(work: Path, log: str, calls: int | None) -> int | None:
    """Tokens that the run generated, by its own trace, or by as much of another as it replayed."""
    if calls is not None:
        return generated_by(work / TRACE, calls)
    replayed = ROUTED_CALLS.findall(log)
    return generated_by(work / REPLAY, int(replayed[-1])) if replayed and (work / REPLAY).exists() else None


def going_on(request: RunRequest, model: Path) -> RunRequest:
    """The request with the flags by which its text goes on to the last token: an oracle must not outlive its trace."""
    return replace(request, go_on=go_on_flags(model))


def command_of(request: RunRequest, runtime: Runtime, *, model: Path, sidecar: Path | None) -> list[str]:
    """The runtime's program and its arguments. model: the first of its files."""
    trace = REPLAY if request.mode in ORACLES else TRACE
    words = arguments(request, model=model.absolute(), sidecar=sidecar and sidecar.absolute(), trace=trace)
    return [str(runtime.path), *words]


def settings_of_environment() -> dict[str, str]:
    """The variables that change what the runtime does, by name."""
    return {key: value for key, value in sorted(_environment().items()) if key.startswith(SETTINGS)}


class _Watch:
    """Counts the lines of a trace that grows."""

    def __init__(self, trace: Path, progress: Callable[[float, int], None]) -> None:
        self.trace = trace
        self.progress = progress
        self.read = self.calls = 0

    def look(self, seconds: float) -> None:
        if self.trace.exists():
            with self.trace.open("rb") as stream:
                stream.seek(self.read)
                new = stream.read(1 << 22)
            self.read += len(new)
            self.calls += new.count(b"\n")
        self.progress(seconds, self.calls)


def _environment() -> dict[str, str]:
    """Ours, but for what would give the runtime flags that nobody sees."""
    return {key: value for key, value in os.environ.items() if not key.startswith("LLAMA_ARG_")}


def _document(
    request: RunRequest,
    command: list[str],
    runtime: Runtime,
    geometry: ModelGeometry,
    model: Path,
    sidecar: Path | None,
    replay: Path | None,
) -> dict[str, Any]:
    return {
        "rc": None,
        "mode": request.mode,
        "bank": request.bank,
        "ubatch": request.ubatch,
        "batch": request.batch,
        "topk": request.top_k,
        "n_predict": request.n_predict,
        "threads": request.threads,
        "prompt": request.prompt,
        "extra": request.further,
        "replay_of": replay.name if replay is not None and request.mode in ORACLES else None,
        "prompt_file": str(request.prompt_file) if request.prompt_file is not None else None,
        "flags": list(request.extra),
        "command": command,
        "environment": settings_of_environment(),
        "runtime": runtime.facts(),
        "model": {
            "path": str(model.absolute()),
            "bytes": total_bytes(model_files(model)),
            "arch": geometry.arch,
            "quant": geometry.quant,
            "layers": len(geometry.layers),
            "experts": max(layer.n_experts for layer in geometry.layers.values()),
            "top_k": geometry.top_k,
            "sidecar": str(sidecar.absolute()) if sidecar is not None else None,
        },
        "machine": machine_name(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "temperature": {"before": temperature_c()},
    }
