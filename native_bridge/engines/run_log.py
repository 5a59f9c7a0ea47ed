"""The content of a run's log as values: its settings, counts and times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from flashmoe_sim.geometry.model import MAX_IO_SPLIT

Lines = dict[str, dict[str, str]]  # counters, by the beginning of their line


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
    install_ms, which includes upload_ms. The switches at the end are None if the log does not tell.
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
    cold_installs: int
    evictions: int
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
    """One layer; the log has the eight with the longest installs. bytes_read: rounded to 0.01 MiB."""

    layer: int
    misses: int
    bytes_read: float
    install_ms: float


@dataclass(frozen=True)
class Prime:
    """The installs before the replay of a trace. bytes_read: rounded to 0.01 GiB."""

    installs: int
    bytes_read: float
    total_ms: float
    install_ms: float
    upload_ms: float


@dataclass(frozen=True)
class DeviceMemory:
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
    model_buffers: where the weights are, a place (`CPU_Mapped`, `CUDA0`) for each buffer. bank_contexts: buffers of
        slots. They are allocated after all others and are the last of them.
    memory: at the end of the run.
    """

    follows_layers: bool | None = None
    bank_contexts: int = 0
    model_buffers: tuple[str, ...] = ()
    memory: tuple[DeviceMemory, ...] = ()

    @property
    def bank(self) -> tuple[str, ...]:
        """Where the slots are, by the names of their buffers; empty if no line says."""
        if not 0 < self.bank_contexts <= len(self.model_buffers):
            return ()
        return tuple(dict.fromkeys(self.model_buffers[-self.bank_contexts :]))

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
    in lower case; empty if no line names one. prime: of `oracle-all-hit`. lines: the counters, as printed.
    prefetched: experts that were read ahead. build: as printed. gpu_layers: on the GPU, of how many. placement: where
    its memory is. unread: lines about Flash-MoE that were not understood. failure: what went wrong, in the runtime's
    words if it has any; None for a run that ended well. overflow: where it was a bank too small. exhausted: where it
    was a trace that ended before its replay did. reads_ahead: its prefetch mode, by the engine's name, or empty.
    unknown: why its counts cannot be predicted, or empty.
    bypass: the flag that left its routed experts out, or empty. lanes: of an engine that counts the uses of each
    expert, by layer.
    """

    prompt_tok_s: float
    decode_tok_s: float
    settings: Mapping[str, str]
    backend: str
    routed: Routed | None = None
    prime: Prime | None = None
    layers: tuple[LayerLine, ...] = ()
    lines: Lines = field(default_factory=dict)
    prefetched: int = 0
    build: str = ""
    gpu_layers: tuple[int, int] | None = None
    placement: Placement = field(default_factory=Placement)
    unread: tuple[str, ...] = ()
    failure: str | None = None
    overflow: Overflow | None = None
    exhausted: Exhausted | None = None
    reads_ahead: str = ""
    bypass: str = ""
    unknown: str = ""
    lanes: tuple[LayerLanes, ...] = ()

    @property
    def on_gpu(self) -> bool:
        """Whether it computed layers on a GPU; without a line on their number, whether a line names a GPU."""
        return self.gpu_layers[0] > 0 if self.gpu_layers is not None else bool(self.backend)

    @property
    def host_bank_of_gpu(self) -> bool:
        """Whether a GPU computed layers but the CPU computed the experts, whose slots were in host memory."""
        return self.on_gpu and self.placement.bank_in_host is True
