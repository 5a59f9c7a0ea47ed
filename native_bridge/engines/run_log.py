"""The content of a run's log as values: its settings, counts and times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from flashmoe_sim.geometry.model import MAX_IO_SPLIT


@dataclass(frozen=True)
class Exhausted:
    """A routed call of this layer came after all `calls` of the trace that was replayed."""

    layer: int
    calls: int


@dataclass(frozen=True)
class Overflow:
    """A routed call of this layer requested more distinct experts than its bank has slots."""

    layer: int
    slots: int


@dataclass(frozen=True)
class Routed:
    """Sums over all routed calls. Times are milliseconds, as the log has them.

    misses: exact, cold installs and evictions together. bytes_read: rounded to 0.01 GiB by the log.
    reads: reads from the sidecar (sidecar_reads) and copies from packed RAM (packed_copies). A call's wait is
    install_ms, which includes upload_ms. source: where installs come from, in the runtime's words (`pread-slot-bank`,
    `resident-packed`, `oracle-all-hit`, `oracle-prefetch`). hit_percent: of the requests, rounded to 0.1.
    misses_a_call: rounded to 0.01. The switches at the end are None if the log does not tell.
    """

    calls: int
    refs: int
    requests: int
    misses: int
    bytes_read: float
    reads: int
    topk_ms: float
    resolve_ms: float
    install_ms: float
    upload_ms: float
    slotwr_ms: float
    other_ms: float
    io_split: int
    source: str
    hit_percent: float
    misses_a_call: float
    cold_installs: int
    evictions: int
    sidecar_reads: int
    packed_copies: int
    parallel_reads: bool | None
    batched_reads: bool | None

    @property
    def chunks(self) -> int:
        """The most chunks per read: the runtime accepts any io-split, but cuts into at most 8."""
        return min(max(self.io_split, 1), MAX_IO_SPLIT)

    @property
    def execution(self) -> str:
        """The execution model of its installs, by the switches that the log has; an unrecorded switch is off."""
        if not self.parallel_reads:
            return "split-install"
        return "parallel-install" if self.batched_reads or self.io_split > 1 else "async-upload"

    @property
    def call_s(self) -> float:
        """Seconds of the host thread per routed call, without installs and writing the trace."""
        return (self.topk_ms + self.resolve_ms + self.slotwr_ms + self.other_ms) / 1e3 / self.calls


@dataclass(frozen=True)
class LayerLine:
    """One layer; the log has the eight with the longest installs. bytes_read: rounded to 0.01 MiB.

    hit_percent: of the requests, rounded to 0.1. peak: most experts that were resident at once.
    """

    layer: int
    calls: int
    requests: int
    misses: int
    bytes_read: float
    install_ms: float
    hit_percent: float
    cold_installs: int
    evictions: int
    peak: int


@dataclass(frozen=True)
class Family:
    """The installs of one tensor family. bytes_read: rounded to 0.01 GiB by the log."""

    install_ms: float
    bytes_read: float


@dataclass(frozen=True)
class Prefetch:
    """The reads ahead. name: `prefetch`, or the predicting mode.

    requests: distinct experts that it wanted resident; misses: those that were not. calls: one per layer and
    micro-batch, and in `oracle-prefetch` per record and repair. hit_percent: rounded to 0.1. bytes_read: rounded to
    0.01 GiB.
    """

    name: str
    calls: int
    requests: int
    hit_percent: float
    misses: int
    bytes_read: float
    sidecar_reads: int
    packed_copies: int

    @property
    def reads(self) -> int:
        return self.sidecar_reads + self.packed_copies


@dataclass(frozen=True)
class Overlap:
    """Predictions against each layer's next call: of `predicted` experts, `right` were in it. Per cent rounded to 0.1.

    calls: calls that had a prediction.
    """

    name: str
    right: int
    predicted: int
    precision_percent: float
    coverage_percent: float
    calls: int


@dataclass(frozen=True)
class Prime:
    """The installs before the run: by a replay of a trace, or by a bank as large as the layer.

    bytes_read: rounded to 0.01 GiB. packed_copies: 0 if the log does not say.
    """

    installs: int
    bytes_read: float
    total_ms: float
    install_ms: float
    upload_ms: float
    packed_copies: int


@dataclass(frozen=True)
class Device:
    """A device that the log names.

    name: its maker's name. id: the runtime's name (`CUDA0`, `Vulkan1`, `Metal`). memory_mib: a CUDA device's own, or
    the maximum that Metal recommends. free_mib: when the model was loaded. unified: whether it shares the host's
    memory. Each is None if no line says so.
    """

    id: str
    name: str
    memory_mib: float | None = None
    free_mib: int | None = None
    unified: bool | None = None


@dataclass(frozen=True)
class Buffer:
    """Memory of one kind (`model`, `output`, `compute`, `KV`, `RS`) in one place (`CPU_Mapped`, `CUDA0`)."""

    kind: str
    place: str


@dataclass(frozen=True)
class Memory:
    """The runtime's memory on a device or on the host (`Host`) at the end of a run; whole MiB.

    total_mib, free_mib: of the device; None for the host.
    """

    place: str
    model_mib: int
    context_mib: int
    compute_mib: int
    total_mib: int | None = None
    free_mib: int | None = None


@dataclass(frozen=True)
class Placement:
    """Where the runtime put things; it prints most of this only with `-lv 3`.

    follows_layers: whether the build puts the bank where the layers are (else the host); None if no line says.
    bank_contexts: buffers of slots. They are allocated after all others and are the last of the kind `model`.
    memory: at the end of the run.
    """

    follows_layers: bool | None = None
    bank_contexts: int = 0
    buffers: tuple[Buffer, ...] = ()
    memory: tuple[Memory, ...] = ()

    @property
    def bank(self) -> tuple[str, ...]:
        """Where the slots are, by the names of their buffers; empty if no line says."""
        model = [buffer.place for buffer in self.buffers if buffer.kind == "model"]
        if not 0 < self.bank_contexts <= len(model):
            return ()
        return tuple(dict.fromkeys(model[-self.bank_contexts :]))

    @property
    def bank_in_host(self) -> bool | None:
        """Whether all slots are in the memory of the host, if the CPU computes them; None if no line says."""
        if self.bank:
            return all(place.startswith("CPU") or place.endswith("_Host") for place in self.bank)
        return True if self.follows_layers is False else None


@dataclass(frozen=True)
class LayerLanes:
    """References to each expert of a layer, by the lane that computed them. calls: number of the layer's calls."""

    layer: int
    calls: int
    hot: Mapping[int, int]
    cold: Mapping[int, int]


@dataclass(frozen=True)
class RunLog:
    """Everything read from the log of a run; fields that an engine's log lacks keep their defaults.

    routed: None in the modes that route nothing through slots.

    prompt_tok_s, decode_tok_s: 0 if a run failed. settings: as printed, empty in the mode `stock`. backend: a GPU's,
    in lower case; empty if no line names one. families: by name (`gate_up`, `gate`, `up`, `down`), empty if
    nothing was installed. prefetch: of `--moe-prefetch-temporal`, and the reads of `oracle-prefetch`; predict: of
    `--moe-predict-…`, which overlap judges. prime: of `oracle-all-hit`; resident_prime: of a bank from packed RAM that
    holds the layer. repairs: records that `oracle-prefetch` had to make resident again. build: as
    printed. gpu_layers: on the GPU, of how many. placement: where its memory is. unread: lines about Flash-MoE that
    were not understood. failure: what went wrong, in the runtime's words if it has any; None for a run that ended well.
    overflow: where it was a bank too small. exhausted: where it was a trace that ended before its replay did.
    reads_ahead: its prefetch mode, by the engine's name, or empty. bypass: the flag that left its routed experts out,
    or empty. lanes: of an engine that counts the uses of each expert, by layer.
    """

    prompt_tok_s: float
    decode_tok_s: float
    settings: Mapping[str, str]
    backend: str
    routed: Routed | None = None
    prime: Prime | None = None
    layers: tuple[LayerLine, ...] = ()
    families: Mapping[str, Family] = field(default_factory=dict)
    prefetch: Prefetch | None = None
    predict: Prefetch | None = None
    overlap: Overlap | None = None
    resident_prime: Prime | None = None
    repairs: int = 0
    build: str = ""
    devices: tuple[Device, ...] = ()
    gpu_layers: tuple[int, int] | None = None
    placement: Placement = field(default_factory=Placement)
    unread: tuple[str, ...] = ()
    failure: str | None = None
    overflow: Overflow | None = None
    exhausted: Exhausted | None = None
    reads_ahead: str = ""
    bypass: str = ""
    lanes: tuple[LayerLanes, ...] = ()

    @property
    def on_gpu(self) -> bool:
        """Whether it computed layers on a GPU; without a line on their number, whether a line names a GPU."""
        return self.gpu_layers[0] > 0 if self.gpu_layers is not None else bool(self.backend)

    @property
    def host_bank_of_gpu(self) -> bool:
        """Whether a GPU computed layers but the CPU computed the experts, whose slots were in host memory."""
        return self.on_gpu and self.placement.bank_in_host is True
