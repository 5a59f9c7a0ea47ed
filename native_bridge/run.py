"""One run of the runtime, and the folder it leaves."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flashmoe_sim.errors import BadInput, SimError
from flashmoe_sim.geometry.gguf import read_gguf
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.machines.runs import Run, read_run
from native_bridge.cache import Cache
from native_bridge.host import machine_name, temperature_c
from native_bridge.modes import ORACLES
from native_bridge.outcome import failure
from native_bridge.process import Finished, run_child
from native_bridge.request import RunRequest, arguments, check_request
from native_bridge.runtime import Runtime

LOG, TRACE, REPLAY, STDOUT, TEXT, FLAGS = "log.txt", "trace.jsonl", "replay.jsonl", "stdout", "text.txt", "run.json"
OURS = frozenset((LOG, TRACE, f"{TRACE}.gz", TEXT, FLAGS))
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
    geometry = read_gguf(model)
    check_request(request, geometry, sidecar=sidecar, replay=replay)
    if request.mode not in runtime.modes:
        raise BadInput(f"{runtime.path}: has no mode {request.mode}; it has {', '.join(runtime.modes) or 'none'}")
    refuse_folder(folder, force=force)
    with _work_folder(folder) as work:
        if request.mode in ORACLES:
            assert replay is not None
            _unpack(replay, work / REPLAY)
        trace = REPLAY if request.mode in ORACLES else TRACE
        words = arguments(request, model=model.absolute(), sidecar=sidecar and sidecar.absolute(), trace=trace)
        command = [str(runtime.path), *words]
        document = _document(request, command, runtime, geometry, model, sidecar, replay)
        failed = None
        try:
            with (cache or Cache("as it is")).before(request, geometry, model=model, sidecar=sidecar) as cgroup:
                finished = run_child(
                    command,
                    output=work / LOG,
                    stdout=work / STDOUT,
                    timeout_s=timeout_s,
                    environment=_environment(),
                    folder=work,
                    watch=_Watch(work / TRACE, progress).look if progress else None,
                    cgroup=cgroup,
                )
        except SimError as error:
            if not (work / LOG).exists() or isinstance(error, BadInput):
                raise  # nothing ran
            finished, failed = Finished(1, 0.0, timed_out=False), str(error)
        log = (work / LOG).read_bytes().decode("utf-8", "replace")
        calls = _whole_calls(work / TRACE)
        failed = failed or failure(request, finished, log, calls=calls, model=geometry)
        if failed is None and cache is not None:
            failed = cache.after(request, geometry, finished, log)
        document |= {"rc": finished.code, "seconds": round(finished.seconds, 3), "read_bytes": finished.read_bytes}
        document["temperature"]["after"] = temperature_c()
        document["cache"] = (cache or Cache("as it is")).facts()
        if failed is not None:
            document["failed"] = failed
        _finish(work, document, request.prompt)
        _put(work, folder)
    if failed is not None:
        raise SimError(f"{folder}: {request.mode}: {failed}")
    return read_run(folder)


def refuse_folder(folder: Path, *, force: bool) -> None:
    """Raise BadInput where the folder of a run exists without force, or holds what no run left."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise BadInput(f"{folder}: is not a folder; choose another name for the run")
    others = sorted(path.name for path in folder.iterdir() if path.name not in OURS)
    if others:
        raise BadInput(f"{folder}: holds {others[0]}, which no run wrote; choose another folder")
    if any(folder.iterdir()) and not force:
        raise BadInput(f"{folder}: exists; give --force to overwrite it")


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
        "command": command,
        "environment": {key: value for key, value in sorted(_environment().items()) if key.startswith(SETTINGS)},
        "runtime": runtime.facts(),
        "model": {
            "path": str(model.absolute()),
            "bytes": model.stat().st_size,
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


@contextmanager
def _work_folder(folder: Path) -> Iterator[Path]:
    """A hidden folder beside the run's, gone at the end unless it was renamed."""
    work = folder.absolute().with_name(f".{folder.name}.{os.getpid()}.part")
    try:
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
    except OSError as error:
        raise BadInput(f"{folder}: cannot be written ({error.strerror}); choose another place for the run") from None
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _unpack(replay: Path, target: Path) -> None:
    trace = next((path for path in (replay / f"{TRACE}.gz", replay / TRACE) if path.is_file()), None)
    if trace is None:
        raise BadInput(f"{replay}: has no {TRACE}.gz to replay; give the folder of a run of slot-bank")
    try:
        with gzip.open(trace) if trace.suffix == ".gz" else trace.open("rb") as packed, target.open("wb") as plain:
            shutil.copyfileobj(packed, plain)
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(f"{trace}: cannot be unpacked ({error}); run slot-bank again, or free the disk") from None


def _whole_calls(trace: Path) -> int | None:
    """The lines of the trace, of which one that was not finished is cut off."""
    if not trace.exists():
        return None
    lines = whole = 0
    with trace.open("r+b") as stream:
        while block := stream.read(1 << 22):
            lines += block.count(b"\n")
            if (last := block.rfind(b"\n")) >= 0:
                whole = stream.tell() - len(block) + last + 1
        stream.truncate(whole)
    return lines


def _finish(work: Path, document: dict[str, Any], prompt: str) -> None:
    """The trace packed, the text apart, run.json last; on a full disk the trace stays as it is."""
    text = _text((work / STDOUT).read_bytes() if (work / STDOUT).exists() else b"", prompt.encode())
    for name in (STDOUT, REPLAY):
        (work / name).unlink(missing_ok=True)
    trace, packed = work / TRACE, work / f"{TRACE}.gz"
    try:
        if trace.exists():
            with trace.open("rb") as plain, packed.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, 0) as stream:
                shutil.copyfileobj(plain, stream)
            trace.unlink()
        if text is not None:
            (work / TEXT).write_bytes(text)
    except OSError:
        packed.unlink(missing_ok=True)
    try:
        (work / FLAGS).write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise SimError(f"{work}: run.json cannot be written ({error.strerror}); free the disk and run again") from None


def _text(stdout: bytes, prompt: bytes) -> bytes | None:
    """What was generated: after the echo of the prompt, up to the line of the speeds."""
    _, echo, rest = stdout.partition(b"\n> " + prompt + b"\n\n")
    text, speeds, _ = rest.rpartition(b"\n\n[ Prompt: ")
    return text if echo and speeds else None


def _put(work: Path, folder: Path) -> None:
    """The finished folder under its name; what was there was a run's, and may be overwritten."""
    try:
        if folder.exists():
            shutil.rmtree(folder)
        work.rename(folder)
    except OSError as error:
        raise SimError(f"{folder}: cannot be written ({error.strerror}); choose another folder") from None
