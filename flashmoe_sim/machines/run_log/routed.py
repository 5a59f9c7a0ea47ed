"""What the runtime counted and timed over all routed calls, and of one layer."""

from __future__ import annotations

import re
from dataclasses import dataclass

from flashmoe_sim.geometry.model import MAX_IO_SPLIT
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.io.sizes import GIB, MIB
from flashmoe_sim.machines.run_log.text import Fields

_SOURCE = re.compile(r"\b(?:src|source)=([A-Za-z]\S*)")


@dataclass(frozen=True)
class Routed:
    """Sums over all routed calls. Times are milliseconds, as the log has them.

    misses: exact, cold installs and evictions together. bytes_read: rounded to 0.01 GiB by the log.
    reads: reads from the sidecar (sidecar_reads) and copies from packed RAM (packed_copies). source_ms: over all
    reading threads; what a call waited for is install_ms, which upload_ms is part of. source: where installs come from,
    in the runtime's words (`pread-slot-bank`, `resident-packed`, `oracle-all-hit`, `oracle-prefetch`). hit_percent: of
    the requests, rounded to 0.1. misses_a_call: rounded to 0.01. The switches at the end are None where the log does
    not tell.
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
    source_ms: float
    upload_ms: float
    slotwr_ms: float
    trace_ms: float
    other_ms: float
    io_split: int
    source: str
    hit_percent: float
    misses_a_call: float
    cold_installs: int
    evictions: int
    sidecar_reads: int
    packed_copies: int
    async_upload: bool | None
    parallel_reads: bool | None
    batched_reads: bool | None
    mixed_buffer: bool | None
    cpu_visible_writes: bool | None

    @property
    def chunks(self) -> int:
        """Most chunks that a read was cut into: the runtime takes any io-split, and cuts into at most 8."""
        return min(max(self.io_split, 1), MAX_IO_SPLIT)

    @property
    def execution(self) -> str:
        """The execution model of its installs, by the switches that the log has; an unrecorded switch is off."""
        if not self.parallel_reads:
            return "split-install"
        return "parallel-install" if self.batched_reads or self.io_split > 1 else "async-upload"

    @property
    def call_s(self) -> float:
        """Seconds of the host thread a routed call, but for installs and writing the trace."""
        return (self.topk_ms + self.resolve_ms + self.slotwr_ms + self.other_ms) / 1e3 / self.calls


@dataclass(frozen=True)
class LayerLine:
    """One layer; the log has the eight that installed longest. bytes_read: rounded to 0.01 MiB.

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


def routed_of(place: str, line: str, residency_place: str, residency_line: str) -> Routed:
    """The sums of the two lines `routed` and `residency`, which must agree."""
    of, residency = Fields(place, line), Fields(residency_place, residency_line)
    cold, evicted, calls = residency.count("cold"), residency.count("evict"), of.count("calls")
    misses = cold + evicted
    if calls == 0:
        raise BadInput(f"{of.place}: calls=0: nothing was routed; run it again")
    shown = of.number("miss/call")
    if abs(misses / calls - shown) > 0.005 + 1e-9:
        raise BadInput(
            f"{residency.place}: {misses} misses in {calls} calls, but the summary tells {shown} a call; "
            "the log is of two runs; run it again"
        )
    source = _SOURCE.search(line)
    return Routed(
        calls=calls,
        refs=of.count("refs"),
        requests=of.count("uniq"),
        misses=misses,
        bytes_read=of.number("bytes") * GIB,
        reads=of.count("pread") + of.count("rcopy"),
        topk_ms=of.number("topk"),
        resolve_ms=of.number("resolve"),
        install_ms=of.number("install"),
        source_ms=of.number("source"),
        upload_ms=of.number("upload"),
        slotwr_ms=of.number("slotwr"),
        trace_ms=of.number("trace"),
        other_ms=of.number("other"),
        io_split=of.count("iosplit"),
        source=source[1] if source else "",
        hit_percent=of.number("hit"),
        misses_a_call=shown,
        cold_installs=cold,
        evictions=evicted,
        sidecar_reads=of.count("pread"),
        packed_copies=of.count("rcopy"),
        async_upload=of.switch("async"),
        parallel_reads=of.switch("preads"),
        batched_reads=of.switch("batchrd"),
        mixed_buffer=of.switch("mixbuf"),
        cpu_visible_writes=of.switch("cpuvis"),
    )


def layer_of(place: str, line: str) -> LayerLine:
    """One line `layer=…`."""
    of = Fields(place, line)
    return LayerLine(
        layer=of.count("layer"),
        calls=of.count("calls"),
        requests=of.count("uniq"),
        misses=of.count("miss"),
        bytes_read=of.number("bytes") * MIB,
        install_ms=of.number("install"),
        hit_percent=of.number("hit"),
        cold_installs=of.count("cold"),
        evictions=of.count("evict"),
        peak=of.count("peak"),
    )
