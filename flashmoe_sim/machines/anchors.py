"""Recorded runs as anchors of a fit: what a decoded token of each did, and the equations that follow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import hypot, sqrt
from pathlib import Path

import numpy as np

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.fit import Observation
from flashmoe_sim.machines.run_log import MODES_WITHOUT_SLOTS, Routed
from flashmoe_sim.machines.runs import Run
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.residency.workload import prepare
from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.trace.phases import find_phases
from flashmoe_sim.trace.routing import PHASE_DECODE

# Repeats of one configuration on one machine gave 24.4 and 23.6 tokens a second, and others differed by more.
SPEED_SD = 0.05
SPEED_STEP = 0.1  # tokens a second, of the speeds that are printed
PRIME_SD = 0.1  # filling a whole bank at once took 4 to 33 % less than filling it while decoding
LEAST_INSTALL_SD = 0.01  # however evenly the layers of one run installed, another run would differ by this
ANCHOR_MODES = (*MODES_WITHOUT_SLOTS, "slot-bank", "oracle-all-hit")


@dataclass(frozen=True)
class Installs:
    """Installs of a run together, and how long they took without and for uploads.

    first_bytes: what of bytes_read went to slots that had held nothing yet.
    relative_sd: of both times, by how evenly the layers installed.
    """

    count: int
    bytes_read: float
    first_bytes: float
    reads: float
    read_s: float
    upload_s: float
    relative_sd: float


@dataclass(frozen=True)
class Anchor:
    """A run, or the row of a table, whose speed is known.

    misses, bytes_read, first_bytes, reads: of one decoded token; first_bytes as in `Installs`. stalled: those of its
    routed calls that missed. weight_bytes: what it streams through the unit that computes, experts and all else; None
    where the model does not tell. call_s: the host's time for a routed call. installs: those that routed calls waited
    for; primed: those by which an all-hit run filled its bank in RAM before the first. layers, top_k: 0 where neither
    the run nor a model tells. repeats: of the same work among the anchors, itself included. condition: as a table
    states it, empty for a run.
    """

    name: str
    tok_s: float
    layers: int
    top_k: int
    misses: float = 0.0
    bytes_read: float = 0.0
    first_bytes: float = 0.0
    reads: float = 0.0
    stalled: float = 0.0
    weight_bytes: float | None = None
    call_s: float = 0.0
    installs: Installs | None = None
    primed: Installs | None = None
    repeats: int = 1
    condition: str = ""

    @property
    def uploads(self) -> bool:
        """Whether its installs went on into the memory of a GPU."""
        return self.installs is not None and self.installs.upload_s > 0

    @property
    def observations(self) -> list[Observation]:
        """Its equations: the time of a token without the host's, and where installs were timed, that of all of them.

        Repeats together weigh as one anchor: they are alike in what a fit does not know, which no number of them makes
        smaller.
        """
        token = _terms(self, upload=self.uploads) | {"layer_us": self.layers * 1e-6, "resume_us": self.stalled * 1e-6}
        if self.weight_bytes is not None:
            token["weights_gb_s"] = self.weight_bytes / 1e9
        token_s = 1 / self.tok_s - self.layers * self.call_s
        rounding = SPEED_STEP / sqrt(12) / self.tok_s
        found = [Observation(f"{self.name}: token", token_s, hypot(SPEED_SD, rounding), token, of="token")]
        for what, all_ in (("reads", self.installs), ("prime", self.primed)):
            if all_ is not None:
                read = _terms(all_, upload=False)
                found.append(Observation(f"{self.name}: {what}", all_.read_s, all_.relative_sd, read, of=what))
        if self.installs is not None and self.uploads:
            terms = {"pinned_gb_s": self.installs.bytes_read / 1e9}
            took, relative_sd = self.installs.upload_s, self.installs.relative_sd
            found.append(Observation(f"{self.name}: uploads", took, relative_sd, terms, of="uploads"))
        return [replace(one, relative_sd=one.relative_sd * sqrt(self.repeats)) for one in found]


def _terms(of: Anchor | Installs, *, upload: bool) -> dict[str, float]:
    moved = {
        "read_gb_s": of.bytes_read / 1e9,
        "first_touch_gb_s": of.first_bytes / 1e9,
        "request_us": of.reads * 1e-6,
    }
    return moved | ({"pinned_gb_s": of.bytes_read / 1e9} if upload else {})


def anchors_of(runs: Sequence[Run], model: ModelGeometry | None) -> list[Anchor]:
    """The runs as anchors.

    model: that all of them ran; without it, bytes and reads of an install are what the log tells.
    Raises BadInput for a run of another model, one that does not tell its misses, and where nothing tells how many
    layers or experts of a token there are.
    """
    names = [run.folder.name for run in runs]
    anchors = [
        _anchor(run, model, name=name if names.count(name) == 1 else str(run.folder))
        for run, name in zip(runs, names, strict=True)
    ]
    layers = max(anchor.layers for anchor in anchors)
    for anchor, run in zip(anchors, runs, strict=True):
        if 1 / anchor.tok_s <= layers * anchor.call_s:
            raise BadInput(
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
        raise BadInput(f"{runs[0].folder}: no trace among the anchors tells {unknown}; give --model")
    return anchors


def find_run_model(runs: Sequence[Run], given: str | None) -> ModelGeometry | None:
    """The model given, else that of a run's manifest.json, else what its run.json names; None where there is none.

    Raises BadInput where the runs are of models whose experts differ.
    """
    if given is not None:
        return load_model(given)
    sources: dict[Path, Run] = {}
    for run in runs:
        if source := manifest_of(run) or run.model:
            sources.setdefault(source, run)
    models = {source: load_model(source) for source in sources}
    first = next(iter(models), None)
    if first is None:
        return None
    for source, model in models.items():
        if model.layers != models[first].layers:
            raise BadInput(
                f"{source}: bytes per expert or layers differ from those of {sources[first].folder}: "
                "the anchors are of two models; fit each by itself"
            )
    return models[first]


def manifest_of(run: Run) -> Path | None:
    """The manifest.json in a run's folder or beside it."""
    places = (run.folder / "manifest.json", run.folder.parent / "manifest.json")
    return next((place for place in places if place.is_file()), None)


def _anchor(run: Run, model: ModelGeometry | None, *, name: str) -> Anchor:
    log, routed = run.log, run.log.routed
    if run.mode not in ANCHOR_MODES:
        raise BadInput(f"{run.folder}: mode {run.mode} cannot be an anchor; known: {', '.join(ANCHOR_MODES)}")
    if run.prefetch:
        raise BadInput(f"{run.folder}: --moe-{run.prefetch}: its time has reads ahead in it; give a run without")
    if run.bypass:
        raise BadInput(f"{run.folder}: {run.bypass}: it computed no routed expert; give a run without")
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
    if model is not None and model.dense_bytes is not None and anchor.top_k:
        anchor = replace(anchor, weight_bytes=model.token_cycle_bytes(top_k=anchor.top_k) + model.dense_bytes)
    return anchor


def _primed(run: Run, model: ModelGeometry | None) -> Installs | None:
    """What filled the bank of an all-hit run; None where nothing did, or it went on into the memory of a GPU."""
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
    """With the misses of its decoded tokens, from a replay of its own trace that must count what the log does."""
    if run.trace is None:
        raise BadInput(
            f"{run.folder}: no trace.jsonl.gz, which tells the misses of its tokens; record one (--moe-trace)"
        )
    trace = load_trace(run.trace)
    workload = prepare(trace, model)
    setup = Setup(Bank(slots=run.bank), contract="runtime", io_split=routed.chunks)
    replayed = replay(workload, setup, record=True)
    counts, stream = replayed.counts.total(), replayed.stream
    assert stream is not None
    if counts["misses"] != routed.misses:
        raise BadInput(
            f"{run.trace}: a replay of it misses {counts['misses']:,} times, the log {routed.misses:,}: "
            "the trace is of another run, or of another bank; record it again"
        )
    phases = find_phases(trace)
    steps = 0 if phases is None else int((phases.phase == PHASE_DECODE).sum())
    if phases is None or not steps:
        raise BadInput(f"{run.trace}: nothing tells which steps are decode; record a longer run")
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
        raise BadInput(
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
        raise BadInput(
            f"{run.folder / 'log.txt'}: {routed.bytes_read / GIB:.2f} GiB in {routed.misses:,} installs, but the "
            f"model's experts make it {bytes_read / GIB:.2f}; give the model it ran (--model)"
        )
    if reads != routed.reads:
        raise BadInput(
            f"{run.folder / 'log.txt'}: {routed.reads:,} reads, but the model and io-split {routed.io_split} make it "
            f"{reads:,}; give the model it ran (--model)"
        )
