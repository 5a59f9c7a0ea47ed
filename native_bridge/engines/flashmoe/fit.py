"""A machine fitted on recorded runs: which of them can be its anchors, what each shows, and the fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.errors import Conflict, Incomplete, Malformed, Missing, Unsupported
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.anchors import SPEED_SD, Anchor, Installs
from flashmoe_sim.machines.fitting import Fitted, Origin, fit_anchors, listed
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.workload import Setup, prepare
from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.trace.phases import find_phases
from flashmoe_sim.trace.routing import PHASE_DECODE
from native_bridge.engines.flashmoe.modes import MODES
from native_bridge.engines.run_log import Routed
from native_bridge.engines.runs import Run

SETTINGS = (
    *("n_gpu_layers", "cache-io-split", "async-upload", "parallel-reads", "mixed-slot-buffer", "cpu-vis-writes"),
    *("gpu-bank", "ds2/kimi-gpu-bank"),
)
IO_SPLIT = "cache-io-split"
BATCHED_READS = "batched reads"  # parallel reads with an io-split
PRIME_SD = 0.1  # filling a whole bank at once took 4 to 33% less than filling it while decoding
LEAST_INSTALL_SD = 0.01  # however equal the layers of one run are, another run would differ by this
ANCHOR_MODES = tuple(name for name, mode in MODES.items() if mode.kind in ("resident", "streamed", "all-hit"))


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
    condition = f"{ran} {runs[0].threads} threads, top-{listed(anchor.top_k for anchor in anchors)}"
    fitted = fit_anchors(
        anchors,
        model,
        parameters,
        gpu=bool(backend) or uploads,
        unified=backend == "metal",
        condition=condition
        + (f", io-split {listed(splits)}" if splits else "")
        + "".join(f", {one}" for one in orders),
        name=name,
        origin=Origin(command, [str(run.folder) for run in runs]),
    )
    return replace(fitted, notes=(*fitted.notes, _host_bank_note(host_bank))) if host_bank else fitted


def _host_bank_note(names: Sequence[str]) -> str:
    """A note on seconds fitted on runs whose slots were in host memory."""
    return (
        f"{', '.join(names)}: by the log the slots are in the host's memory: nothing goes over the link, and the CPU "
        "computes the experts, whatever layers are on the GPU; the machine is of such runs alone"
    )


def refuse_two_machines(runs: Sequence[Run], *, io_split_may_differ: bool = False) -> None:
    """Raise BadInput, naming the setting, if two runs differ in a setting that affects times, besides bank and top-k.

    An unrecorded setting matches any value.
    """
    first_of_state = {run.cache: run for run in reversed(runs) if run.cache}
    if len(first_of_state) > 1:
        raise Conflict(
            f"{first_of_state['cold'].folder} is a cold run and {first_of_state['warm'].folder} a warm one: reads from "
            "storage and from the page cache take different times; fit each kind by itself"
        )
    first_of_setting: dict[str, tuple[str, Run]] = {}
    for run in runs:
        for setting, value in _settings(run):
            if setting in (IO_SPLIT, BATCHED_READS) and io_split_may_differ:
                continue
            first, other = first_of_setting.setdefault(setting, (value, run))
            if first != value:
                raise Conflict(
                    f"{run.folder}: {setting} is {value}, but {first} in {other.folder}: "
                    "the anchors come from two machines or builds; fit each by itself"
                )
    sized = [(run.install_bytes, run) for run in runs if run.install_bytes is not None]
    for (least, most), run in sized:
        for (other_least, other_most), other in sized:
            if least > other_most:
                raise Conflict(
                    f"{run.folder}: an install has {(least + most) / 2:,.0f} bytes, but "
                    f"{(other_least + other_most) / 2:,.0f} in {other.folder}: "
                    "the anchors come from two models; fit each by itself"
                )


def _settings(run: Run) -> Iterator[tuple[str, str]]:
    yield "engine", run.engine.name
    yield "threads", str(run.threads)
    yield "backend", run.log.backend or "none that the log names"
    if run.flags is not None:
        yield "flags", " ".join(run.flags) or "none"
    if run.log.gpu_layers is not None:
        yield "layers on the GPU", str(run.log.gpu_layers[0])
    if run.log.placement.bank:
        yield "bank in", " and ".join(run.log.placement.bank)
    for setting in SETTINGS:
        if setting in run.log.settings:
            yield setting, run.log.settings[setting]
    if run.log.routed is not None and run.log.routed.batched_reads is not None:
        yield BATCHED_READS, "on" if run.log.routed.batched_reads else "off"
    if run.log.routed is not None and run.log.routed.misses:
        yield "the order of installs", run.log.routed.execution
    if run.environment is not None:
        yield "environment", " ".join(f"{key}={value}" for key, value in sorted(run.environment.items())) or "empty"
    yield from run.place.items()


def anchors_of(runs: Sequence[Run], model: ModelGeometry | None) -> list[Anchor]:
    """The runs as anchors.

    model: of all runs; without it, bytes and reads per install come from the log.
    Raises BadInput for a run of another model, a run without misses in its log, and if the number of layers or experts
    per token is unknown.
    """
    names = [run.folder.name for run in runs]
    anchors = [
        _anchor(run, model, name=name if names.count(name) == 1 else str(run.folder))
        for run, name in zip(runs, names, strict=True)
    ]
    layers = max(anchor.layers for anchor in anchors)
    for anchor, run in zip(anchors, runs, strict=True):
        if 1 / anchor.tok_s <= layers * anchor.call_s:
            raise Malformed(
                f"{run.folder / 'log.txt'}: topk, resolve, slotwr and other take {layers * anchor.call_s:.4g} s a "
                f"token, the whole token {1 / anchor.tok_s:.4g} s; the log is damaged; run it again"
            )
    native = max((anchor.top_k for anchor, run in zip(anchors, runs, strict=True) if not run.top_k), default=0)
    anchors = [replace(anchor, layers=layers, top_k=anchor.top_k or native) for anchor in anchors]
    if any(anchor.uploads for anchor in anchors):
        anchors = [replace(anchor, primed=None) for anchor in anchors]
    work = [
        (run.mode, run.bank, anchor.top_k, anchor.misses, anchor.stalled, anchor.reads)
        for run, anchor in zip(runs, anchors, strict=True)
    ]
    times = Counter(work)
    anchors = [replace(anchor, repeats=times[done]) for anchor, done in zip(anchors, work, strict=True)]
    if not layers or not all(anchor.top_k for anchor in anchors):
        unknown = "the experts of a token" if layers else "the layers"
        raise Incomplete(f"{runs[0].folder}: no trace among the anchors gives {unknown}; give --model")
    return anchors


def _anchor(run: Run, model: ModelGeometry | None, *, name: str) -> Anchor:
    log, routed = run.log, run.log.routed
    if run.mode not in ANCHOR_MODES:
        raise Unsupported(f"{run.folder}: mode {run.mode} cannot be an anchor; known: {', '.join(ANCHOR_MODES)}")
    if run.log.reads_ahead:
        raise Unsupported(
            f"{run.folder}: --moe-{run.log.reads_ahead}: its time includes prefetches; give a run without"
        )
    if run.log.bypass:
        raise Unsupported(f"{run.folder}: {run.log.bypass}: it computed no routed expert; give a run without")
    anchor = Anchor(
        name=name,
        tok_s=log.decode_tok_s,
        layers=len(model.layers) if model else 0,
        top_k=run.top_k or (model.top_k if model else 0),
        call_s=routed.call_s if routed else 0.0,
    )
    if routed is not None and routed.misses:
        anchor = _streamed(anchor, run, routed, model)
    anchor = replace(anchor, primed=_primed(run, model))
    if model is not None and model.streamed_bytes is not None and anchor.top_k:
        anchor = replace(anchor, weight_bytes=model.token_cycle_bytes(top_k=anchor.top_k) + model.streamed_bytes)
    return anchor


def _primed(run: Run, model: ModelGeometry | None) -> Installs | None:
    """The installs that filled the bank of an all-hit run; None if there were none, or they were uploaded to a GPU."""
    prime, routed = run.log.prime, run.log.routed
    if prime is None or routed is None or not prime.installs or prime.upload_ms or not prime.install_ms:
        return None
    bytes_read, reads = prime.bytes_read, 0.0
    if model is not None:
        layers = list(model.layers.values())
        bytes_read = prime.installs * sum(layer.expert_bytes for layer in layers) / len(layers)
        reads_each = sum(layer.read_ops(io_split=routed.chunks) for layer in layers) / len(layers)
        reads = prime.installs * reads_each
    return Installs(
        count=prime.installs,
        bytes_read=bytes_read,
        first_bytes=bytes_read,
        reads=reads,
        read_s=prime.install_ms / 1e3,
        upload_s=0.0,
        relative_sd=PRIME_SD,
    )


def _streamed(anchor: Anchor, run: Run, routed: Routed, model: ModelGeometry | None) -> Anchor:
    """The anchor with its decoded tokens' misses, from a replay of its own trace, which must agree with the log."""
    if run.trace is None:
        raise Missing(f"{run.folder}: no trace.jsonl.gz, which has the misses of its tokens; record one (--moe-trace)")
    trace = load_trace(run.trace)
    workload = prepare(trace, model)
    setup = Setup(Bank(slots=run.bank), contract="runtime", io_split=routed.chunks)
    replayed = replay(workload, setup, record=True)
    counts, stream = replayed.counts.total(), replayed.stream
    assert stream is not None
    if counts["misses"] != routed.misses:
        raise Conflict(
            f"{run.trace}: a replay of it misses {counts['misses']:,} times, the log {routed.misses:,}: "
            "the trace belongs to another run or bank; record it again"
        )
    phases = find_phases(trace)
    steps = 0 if phases is None else int((phases.phase == PHASE_DECODE).sum())
    if phases is None or not steps:
        raise Incomplete(f"{run.trace}: it does not show which steps are decode; record a longer run")
    decoded = phases.of_calls(trace) == PHASE_DECODE
    row = np.searchsorted(trace.layers, trace.layer)
    if workload.layer_geometry is not None:
        size = np.array([layer.expert_bytes for layer in workload.layer_geometry], np.float64)[row]
        reads = np.array([layer.read_ops(io_split=routed.chunks) for layer in workload.layer_geometry])[row]
        _check_bytes(run, routed, counts["bytes_read"], counts["read_ops"])
    else:
        least, most = run.install_bytes or (0.0, 0.0)
        size = np.full(trace.calls, (least + most) / 2)
        reads = np.full(trace.calls, routed.reads / routed.misses)
    read_s = (routed.install_ms - routed.upload_ms) / 1e3
    if read_s <= 0:
        raise Unsupported(
            f"{run.folder / 'log.txt'}: install={routed.install_ms} ms, upload={routed.upload_ms} ms: nothing is "
            "left for reading; give a run that waits for its reads"
        )
    error = run.install_error
    return replace(
        anchor,
        layers=anchor.layers or len(trace.layers),
        top_k=anchor.top_k or trace.top_k,
        misses=float(stream.misses[decoded].sum() / steps),
        bytes_read=float((stream.misses * size)[decoded].sum() / steps),
        first_bytes=float((stream.cold * size)[decoded].sum() / steps),
        reads=float((stream.misses * reads)[decoded].sum() / steps),
        stalled=float((stream.misses > 0)[decoded].sum() / steps),
        installs=Installs(
            count=routed.misses,
            bytes_read=float((stream.misses * size).sum()),
            first_bytes=float((stream.cold * size).sum()),
            reads=float((stream.misses * reads).sum()),
            read_s=read_s,
            upload_s=routed.upload_ms / 1e3,
            relative_sd=SPEED_SD if error is None else max(error, LEAST_INSTALL_SD),
        ),
    )


def _check_bytes(run: Run, routed: Routed, bytes_read: int, reads: int) -> None:
    if abs(bytes_read - routed.bytes_read) > 0.0051 * GIB:
        raise Conflict(
            f"{run.folder / 'log.txt'}: {routed.bytes_read / GIB:.2f} GiB in {routed.misses:,} installs, but the "
            f"model's experts make it {bytes_read / GIB:.2f}; give the model it ran (--model)"
        )
    if reads != routed.reads:
        raise Conflict(
            f"{run.folder / 'log.txt'}: {routed.reads:,} reads, but the model and io-split {routed.io_split} make it "
            f"{reads:,}; give the model it ran (--model)"
        )
