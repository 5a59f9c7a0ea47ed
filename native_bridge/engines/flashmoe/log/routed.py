"""The runtime's counts and times over all routed calls, and for one layer."""

from __future__ import annotations

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.io.sizes import GIB, MIB
from native_bridge.engines.flashmoe.log.text import Fields
from native_bridge.engines.run_log import LayerLine, Routed


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
            f"{residency.place}: {misses} misses in {calls} calls, but the summary says {shown} a call; "
            "the log mixes two runs; run it again"
        )
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
        upload_ms=of.number("upload"),
        slotwr_ms=of.number("slotwr"),
        other_ms=of.number("other"),
        io_split=of.count("iosplit"),
        cold_installs=cold,
        evictions=evicted,
        parallel_reads=of.switch("preads"),
        batched_reads=of.switch("batchrd"),
    )


def layer_of(place: str, line: str) -> LayerLine:
    """One line `layer=…`."""
    of = Fields(place, line)
    return LayerLine(of.count("layer"), of.count("miss"), of.number("bytes") * MIB, of.number("install"))
