"""One run of the runtime, and the folder it leaves."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from flashmoe_sim.geometry.gguf import read_gguf
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.errors import BadInput, SimError, Unsupported, shortened
from flashmoe_sim.io.provenance import program
from native_bridge.cache import Cache, model_files
from native_bridge.engines.base import Engine, RunRequest, Runtime
from native_bridge.engines.read import MAX_BYTES, read_run, without_text
from native_bridge.engines.runs import Run, generated_by
from native_bridge.engines.table import ENGINES, UNNAMED
from native_bridge.host import machine_name, temperature_c
from native_bridge.page_cache import total_bytes
from native_bridge.process import KEPT_BYTES, Around, Finished, TerminatedRun, run_child, sigterm_raises
from native_bridge.run_folder import (
    LOG,
    REPLAY,
    STDOUT,
    TRACE,
    calls_without_slots,
    finish,
    put,
    refuse_folder,
    reserve,
    text_of,
    unpack,
    whole_calls,
    work_folder,
)

SHOWN = 200  # letters of what the runtime said


class Loaded(NamedTuple):
    """A runtime, and the files that it loads. model: the first of its files."""

    runtime: Runtime
    model: Path
    sidecar: Path | None = None

    def command(self, request: RunRequest) -> list[str]:
        """The runtime's program and its arguments."""
        engine, sidecar = ENGINES[self.runtime.engine], self.sidecar and self.sidecar.absolute()
        trace = REPLAY if engine.modes[request.mode].replays else TRACE
        return engine.command(request, self.runtime, model=self.model.absolute(), sidecar=sidecar, trace=trace)


def run_once(
    request: RunRequest,
    loaded: Loaded,
    *,
    folder: Path,
    replay: Path | None = None,
    timeout_s: float = 3600.0,
    cache: Cache | None = None,
    force: bool = False,
    progress: Callable[[float, int], None] | None = None,
) -> Run:
    """Run the runtime once, and write run.json, log.txt, trace.jsonl.gz and text.txt into `folder`.

    replay: the folder of the run that an oracle mode replays. cache: prepares the page cache before the run.
    progress: called with the seconds and the routed calls so far. The folder appears when the run is over.
    Raises BadInput before anything is started if the request cannot be done or the folder exists without force.
    Raises SimError if the run fails: its log, its partial trace and `failed` in run.json are in the folder.
    """
    runtime, sidecar = loaded.runtime, loaded.sidecar
    engine = ENGINES[runtime.engine]
    geometry, model = read_gguf(loaded.model), model_files(loaded.model)[0]
    loaded = loaded._replace(model=model)
    engine.check_request(request, geometry, sidecar=sidecar, replay=replay)
    request = going_on(request, runtime, model)
    check_mode(request, runtime)
    refuse_folder(folder, force=force)
    with sigterm_raises(), work_folder(folder) as work:
        if engine.modes[request.mode].replays:
            assert replay is not None
            unpack(replay, work / REPLAY)
        command = loaded.command(request)
        document = _document(request, command, loaded, geometry, replay)
        reserve(work, document)
        failed = None
        try:
            with (cache or Cache("as-is")).before(
                request, engine.modes[request.mode], geometry, model=model, sidecar=sidecar
            ) as cgroup:
                finished = run_child(
                    command,
                    output=work / LOG,
                    stdout=work / STDOUT,
                    timeout_s=timeout_s,
                    around=Around(_environment(engine), work, cgroup),
                    watch=_Watch(work / TRACE, progress).look if progress else None,
                    most_bytes=MAX_BYTES,
                )
        except SimError as error:
            if isinstance(error, (BadInput, TerminatedRun)) or not (work / LOG).exists():
                raise
            finished, failed = Finished(1, 0.0, timed_out=False), str(error).replace(f"{work}/", "")
        said = (text_of(work, request.prompt) or b"").decode("utf-8", "replace")
        log = without_text((work / LOG).read_bytes().decode("utf-8", "replace"), said)
        calls = whole_calls(work / TRACE)
        failed = failed or _failure(
            engine, request, finished, log, calls=calls, beside=calls_without_slots(work / TRACE), model=geometry
        )
        if failed is None and cache is not None:
            failed = cache.after(engine, request, geometry, finished, log)
        document |= {"rc": finished.code, "seconds": round(finished.seconds, 3), "read_bytes": finished.read_bytes}
        document["tokens"] = _generated(work, engine, request, log, calls) if failed is None else None
        document["temperature"]["after"] = temperature_c()
        document["cache"] = (cache or Cache("as-is")).facts()
        if failed is not None:
            document["failed"] = failed
        finish(work, document, request.prompt)
        put(work, folder)
    if failed is not None:
        raise SimError(f"{folder}: {request.mode}: {failed}")
    return read_run(folder)


def _failure(
    engine: Engine,
    request: RunRequest,
    finished: Finished,
    log: str,
    *,
    calls: int | None,
    beside: int,
    model: ModelGeometry,
) -> str | None:
    """Why the run is unusable, or None if it went well.

    log: without the generated text. calls: complete routed calls in its trace, None if it wrote none. beside: how many
    of them used no slots; its log does not count them.
    """
    if finished.timed_out:
        return f"stopped after {finished.seconds:.0f} s, its time limit; {_last(engine, log)}"
    if finished.flooded:
        return f"it printed more than {MAX_BYTES >> 20} MiB and was ended; log.txt has the first {KEPT_BYTES >> 20} MiB"
    if refused := engine.refusal(request, log, calls=calls, model=model):
        return refused
    if finished.code < 0:
        return f"it was ended by {_signal(-finished.code)}; {_last(engine, log)}"
    if not log.strip():
        return f"it printed nothing and ended with code {finished.code}; is it a llama-cli?"
    if finished.code != 0:
        return f"it ended with code {finished.code}; {_last(engine, log)}"
    try:
        read = engine.read_log(log, mode=request.mode, where="log.txt", extra=request.extra)
    except BadInput as error:
        if complaint := engine.complaint(log):
            return f"it said: {_shown(complaint)}"
        return f"its log is unknown; is it of another version of the engine? {error}"
    counted = None if read.routed is None else read.routed.calls
    traced = (calls or 0) - beside
    if engine.modes[request.mode].traced and counted is not None and traced < counted:
        return f"its trace has {traced} of {counted} routed calls; the disk may be full: free space and run again"
    if engine.modes[request.mode].traced and counted is not None and traced > counted:
        return (
            f"its trace has {traced} routed calls through slots, but its log counts {counted}; is it of another "
            "version of the engine?"
        )
    return None


def _signal(number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
    hints = {
        "SIGILL": " (an instruction that this processor does not have: see `sim bridge doctor`)",
        "SIGKILL": " (out of memory?)",
        "SIGXFSZ": " (a file grew over its limit)",
    }
    return f"{name}{hints.get(name, '')}"


def _last(engine: Engine, log: str) -> str:
    """Its error message, else its last line."""
    if complaint := engine.complaint(log):
        return f"it said: {_shown(complaint)}"
    lines = [line for line in log.splitlines() if line.strip()]
    return f"its last line: {_shown(lines[-1])}" if lines else "it printed nothing"


def _shown(line: str) -> str:
    clean = " ".join("".join(letter if letter.isprintable() else " " for letter in line).split())
    return shortened(clean, SHOWN)


def _generated(work: Path, engine: Engine, request: RunRequest, log: str, calls: int | None) -> int | None:
    """The number of generated tokens, from the calls in its own trace, or in the one that it replayed."""
    if calls is not None:
        return generated_by(work / TRACE, calls)
    routed = engine.read_log(log, mode=request.mode, where=LOG, extra=request.extra).routed
    return generated_by(work / REPLAY, routed.calls) if routed is not None and (work / REPLAY).exists() else None


def check_mode(request: RunRequest, runtime: Runtime) -> None:
    """Raise BadInput if this build does not have the mode."""
    if request.mode not in runtime.modes:
        raise Unsupported(f"{runtime.path}: has no mode {request.mode}; it has {', '.join(runtime.modes) or 'none'}")


def going_on(request: RunRequest, runtime: Runtime, model: Path) -> RunRequest:
    """The request with flags that make its text go on to the last token: an oracle must not outlive its trace."""
    return replace(request, go_on=ENGINES[runtime.engine].go_on_flags(model))


def settings_of_environment(engine: Engine) -> dict[str, str]:
    """The variables that change an engine's behaviour in a run, by name."""
    variables = sorted(_environment(engine).items())
    return {key: value for key, value in variables if key.startswith(engine.switches)}


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


def _environment(engine: Engine) -> dict[str, str]:
    """Our environment without variables that would add hidden flags to the runtime."""
    return {key: value for key, value in os.environ.items() if not key.startswith(engine.dropped)}


def _document(
    request: RunRequest, command: list[str], loaded: Loaded, geometry: ModelGeometry, replay: Path | None
) -> dict[str, Any]:
    runtime, model, sidecar = loaded
    engine = ENGINES[runtime.engine]
    named = {} if engine.name == UNNAMED else {"engine": engine.name}
    return named | {
        "rc": None,
        "mode": request.mode,
        "bank": request.bank,
        "ubatch": request.ubatch,
        "batch": request.batch,
        "topk": request.top_k,
        "n_predict": request.n_predict,
        "threads": request.threads,
        "prompt": request.prompt,
        "extra": engine.further(request),
        "replay_of": replay.name if replay is not None and engine.modes[request.mode].replays else None,
        "prompt_file": str(request.prompt_file) if request.prompt_file is not None else None,
        "flags": list(request.extra),
        "command": command,
        "environment": settings_of_environment(engine),
        "program": program(),
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
