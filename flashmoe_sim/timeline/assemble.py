"""From stage 1 to stage 2: a recorded replay becomes work, and a machine with a model becomes costs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf
from operator import mul
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.budget import MemoryBudget, own_memory
from flashmoe_sim.drafts import Drafts
from flashmoe_sim.geometry.model import DEFAULT_TYPE, STATE_BYTES, Attention, LayerGeometry, ModelGeometry
from flashmoe_sim.io.errors import Conflict, Incomplete, TooLarge
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines import arithmetic
from flashmoe_sim.machines.attention_rates import CPU
from flashmoe_sim.machines.estimates import estimate
from flashmoe_sim.machines.machine import WEIGHT_BYTES, Compute, Machine, Storage
from flashmoe_sim.residency.loops import UNREAD
from flashmoe_sim.residency.replay import Replayed
from flashmoe_sim.residency.stream import distinct
from flashmoe_sim.residency.workload import Setup, Workload
from flashmoe_sim.timeline.attention_cost import NOTHING, AttentionCost, attention_cost, depth_unknown
from flashmoe_sim.timeline.models.base import NEVER, ExecutionModel
from flashmoe_sim.timeline.models.split_install import SplitInstall
from flashmoe_sim.timeline.page_cache import warm_reads
from flashmoe_sim.timeline.work import Costs, Work
from flashmoe_sim.trace.join import drafted_of, phases_of

DELTA_NETS, USUAL_STATE_BYTES = ("qwen3next", "qwen35moe"), 2 << 20  # of a layer of Qwen3-Next and Qwen3.5
SENT_BYTES = 4  # of a number between machines
_WORKS: WeakKeyDictionary[Replayed, dict[tuple[int, bool], Work]] = WeakKeyDictionary()


class DoesNotFit(TooLarge):
    """The bank, dense weights and context do not fit the machine's memory."""


@dataclass(frozen=True)
class Conditions:
    """How a model runs on a machine, as far as stage 1 does not need to know.

    dense_bytes: weights outside the routed experts; None to use the model's or the trace's.
    kv_bytes: memory of the context. depth: tokens in the context before the run. kv_type: of its keys and values.
    drafts: what drafts the tokens that a pass of the workload verifies; None for none. program: the engine, whose
    kernels the CPU runs. attended: the most tokens of the context that attention reads; 0 for all.
    direct_io: reads bypass the page cache. hot: the storage is throttled. checked: whether a system has checked that a
    GPU with its own memory holds what it keeps.
    """

    execution: ExecutionModel = field(default_factory=SplitInstall)
    dense_bytes: int | None = None
    kv_bytes: int = 0
    direct_io: bool = False
    hot: bool = False
    checked: bool = False
    depth: int = 0
    kv_type: str = DEFAULT_TYPE
    drafts: Drafts | None = None
    program: str = arithmetic.LLAMA_CPP
    attended: int = 0


@dataclass(frozen=True, eq=False)
class Weights:
    """The sizes of a model's layers, in the order of the costs' rows.

    dense_bytes: bytes of each layer that every token streams beside routed experts; None if unknown.
    routed_bytes: bytes of all experts of the model. embedding_bytes: a table of which a token reads one row.
    attention: what the layers keep of the context; None if unknown. quant: the types of the experts' weights.
    dense_weight_bytes: of one weight beside them, in the mean; None if unknown. graph_s, graph_bytes: how much longer
    a layer takes on a GPU, and what it reads as long, by its architecture and engine. graph_cpu_s: on a CPU.
    hidden: numbers of a token that pass from layer to layer; 0 if unknown.
    """

    name: str
    layers: tuple[LayerGeometry, ...]
    dense_bytes: tuple[float, ...] | None
    routed_bytes: int
    embedding_bytes: int = 0
    attention: Attention | None = None
    quant: str = ""
    dense_weight_bytes: float | None = None
    graph_s: float = 0.0
    graph_bytes: float = 0.0
    graph_cpu_s: float = 0.0
    hidden: int = 0

    def budget(self, machine: Machine, conditions: Conditions) -> MemoryBudget:
        """The memories of a machine, and what the model uses of them beside routed experts."""
        return MemoryBudget.of(
            machine,
            dense_bytes=round(sum(self.dense_bytes or ())) + self.embedding_bytes,
            embedding_bytes=self.embedding_bytes,
            kv_bytes=conditions.kv_bytes,
            drafter_bytes=0 if conditions.drafts is None else conditions.drafts.kept_bytes,
        )


def work_of(workload: Workload, replay: Replayed, *, page_cache_bytes: int, loaded: bool = False) -> Work:
    """The work of a recorded replay on a machine whose page cache has this many bytes.

    loaded: every expert that fits in RAM was read into it before the run. It is kept as long as the replay, which is
    of this workload only.
    """
    known = _WORKS.setdefault(replay, {})
    if workload.expert_bytes is not None:  # a cache that holds all experts is as good as a larger one
        page_cache_bytes = min(page_cache_bytes, sum(map(mul, workload.expert_bytes, workload.n_experts)))
    key = page_cache_bytes, loaded
    if key not in known:
        known[key] = _work_of(workload, replay, page_cache_bytes=page_cache_bytes, loaded=loaded)
    return known[key]


def _work_of(workload: Workload, replay: Replayed, *, page_cache_bytes: int, loaded: bool) -> Work:
    assert replay.stream is not None
    trace, stream = workload.trace, replay.stream
    phase = phases_of(trace)
    held = np.zeros(trace.calls, np.int32)
    if replay.in_ram is not None:
        assert replay.hit is not None
        held = distinct(trace, replay.in_ram)
        replay = replace(replay, hit=replay.hit | replay.in_ram)
    if page_cache_bytes and workload.expert_bytes is not None:
        served = warm_reads(workload, replay, capacity_bytes=page_cache_bytes, loaded=loaded)
        warm, ahead_warm = served.warm, served.ahead_warm
    else:
        warm, ahead_warm = np.zeros(trace.calls, np.int32), np.zeros(len(stream.ahead.after), np.uint8)
    refs, requests, misses = np.diff(trace.offset).astype(np.int32), stream.requests, stream.misses
    policy = replay.setup.policy
    if (rule := policy.minor_rule) is not None:
        if rule.reads and len(stream.ahead.after):
            raise Conflict(f"policy {policy.spec}: reads of half the bytes are not timed beside reads ahead; drop one")
        misses = misses if rule.reads else misses - stream.minor
        if rule.kind == "drop":
            assert replay.hit is not None
            of_call = np.repeat(np.arange(trace.calls), refs)
            refs = refs - np.bincount(of_call[replay.hit == UNREAD], minlength=trace.calls).astype(np.int32)
            requests = requests - stream.minor
    return Work(
        row=trace.row,
        step=stream.step,
        n_tokens=stream.n_tokens,
        n_text=trace.text,
        drafted=drafted_of(trace, phase),
        refs=refs,
        requests=requests,
        misses=misses,
        warm=warm + held,
        cold=stream.cold,
        installs=stream.misses - stream.bypassed,
        phase=phase,
        ahead_after=stream.ahead.after,
        ahead_row=stream.ahead.row,
        ahead_warm=ahead_warm,
        ahead_cold=stream.ahead.cold,
        ahead_used=stream.ahead.used,
    )


def costs_of(workload: Workload, setup: Setup, machine: Machine, conditions: Conditions) -> Costs:
    """The seconds of each kind of work on `machine`, for the layers of the workload; see `price`."""
    return priced(weights_of(workload, conditions), setup, machine, conditions)


def priced(
    weights: Weights, setup: Setup, machine: Machine, conditions: Conditions, *, read_share: float = 1.0
) -> Costs:
    """`price`, with the host time of the decisions about a bank, where there is one."""
    costs = price(weights, machine, conditions, io_split=setup.io_split, read_share=read_share)
    execution = conditions.execution
    if not setup.decide_s or not execution.has_bank or not execution.reads:
        return costs
    return replace(costs, call_s=costs.call_s + setup.decide_s, hit_call_s=costs.hit_call_s + setup.decide_s)


@lru_cache(maxsize=2)
def weights_of(workload: Workload, conditions: Conditions) -> Weights:
    """The sizes of the workload's layers, from the conditions, the model or the trace.

    Raises BadInput if the size of an expert is unknown, or if the trace lacks layers of its model: the seconds of a
    token need them all. Only the last may be missing, since a layer that drafts tokens is in the model's file and never
    routed.
    """
    trace, layers = workload.trace, workload.layer_geometry
    if layers is None:
        raise Incomplete(f"{trace.name}: seconds need the size of an expert; give --model")
    geometry = workload.geometry
    assert geometry is not None
    modelled = sorted(geometry.layers)
    if [*trace.layers] not in (modelled, modelled[:-1]):
        raise Incomplete(
            f"{trace.name}: has {len(layers)} of the {len(modelled)} MoE layers of {geometry.name}, and seconds "
            "of a token need them all; give a trace of all layers, or leave --machine out to count only"
        )
    recorded = trace.dense_bytes
    if recorded is not None and conditions.dense_bytes is None:
        dense_bytes = tuple(recorded[layer] for layer in trace.layers)
        return replace(weigh(geometry, layers, conditions), name=trace.name, dense_bytes=dense_bytes, embedding_bytes=0)
    return weigh(geometry, layers, conditions)


def weigh(geometry: ModelGeometry, layers: tuple[LayerGeometry, ...], conditions: Conditions) -> Weights:
    """The sizes of a model's layers; the dense bytes of the conditions, else of the model, are shared equally."""
    if conditions.dense_bytes is not None:
        geometry = replace(geometry, dense_bytes=conditions.dense_bytes)
    streamed = geometry.streamed_bytes
    in_steps = any(name in conditions.program for name in arithmetic.KERNELS)
    return Weights(
        name=geometry.name,
        layers=layers,
        dense_bytes=None if streamed is None else (streamed / len(layers),) * len(layers),
        routed_bytes=geometry.routed_bytes,
        embedding_bytes=0 if streamed is None else (geometry.dense_bytes or 0) - streamed,
        attention=geometry.attention,
        quant=geometry.quant,
        dense_weight_bytes=geometry.dense_weight_bytes,
        graph_s=estimate("graph.gpu_s", geometry.arch).value * in_steps,
        graph_bytes=estimate("graph.gpu_bytes", geometry.arch).value * in_steps,
        graph_cpu_s=estimate("graph.cpu_s", geometry.arch).value * in_steps * _state_share(geometry),
        hidden=hidden_of(geometry),
    )


def _state_share(geometry: ModelGeometry) -> float:
    """Of the state of a gated delta net whose steps on a CPU are known, what one of this model has; 1 for others.

    0 if its state is unknown.
    """
    if geometry.arch not in DELTA_NETS:
        return 1.0
    layers = () if geometry.attention is None else geometry.attention.layers
    return min(max((layer.state for layer in layers), default=0) * STATE_BYTES / USUAL_STATE_BYTES, 1.0)


def hidden_of(geometry: ModelGeometry) -> int:
    """Numbers of a token that pass from layer to layer; 0 if unknown."""
    return 0 if geometry.widths is None else geometry.widths.hidden


class _Sizes(NamedTuple):
    """Sizes of reads: all layers together have few. place: of each read in `sizes`."""

    sizes: list[int]
    place: NDArray[np.intp]

    @classmethod
    def of(cls, size_bytes: NDArray[np.float64]) -> _Sizes:
        sizes, place = np.unique(np.maximum(np.rint(size_bytes), 1).astype(np.int64), return_inverse=True)
        return cls(sizes.tolist(), place.reshape(size_bytes.shape))

    def seconds(self, seconds: Callable[[int], list[float]]) -> NDArray[np.float64]:
        """Seconds of a read of each size at every depth, f64 [*sizes, lanes]."""
        return np.array([seconds(size) for size in self.sizes])[self.place]


@dataclass(frozen=True, eq=False)
class _Reads:
    """The reads of one expert of each layer, the same on every machine. expert_bytes: of a whole expert."""

    expert_bytes: NDArray[np.float64]
    chunks: NDArray[np.int32]
    chunk_bytes: NDArray[np.float64]
    of_chunks: _Sizes
    family_bytes: NDArray[np.float64]
    family_chunks: NDArray[np.int32]
    family_chunk_bytes: NDArray[np.float64]
    of_family_chunks: _Sizes


@lru_cache(maxsize=4)
def _reads_of(weights: Weights, io_split: int, read_share: float) -> _Reads:
    expert_bytes = np.array([layer.expert_bytes for layer in weights.layers], np.float64)
    chunks = np.array([layer.read_ops(io_split=io_split) for layer in weights.layers], np.int32)
    family_bytes, family_chunks = _families(weights.layers, io_split=io_split)
    family_bytes *= read_share
    chunk_bytes, family_chunk_bytes = read_share * expert_bytes / chunks, family_bytes / np.maximum(family_chunks, 1)
    return _Reads(
        expert_bytes,
        chunks,
        chunk_bytes,
        _Sizes.of(chunk_bytes),
        family_bytes,
        family_chunks,
        family_chunk_bytes,
        _Sizes.of(family_chunk_bytes),
    )


class _Served(NamedTuple):
    """How long storage and the page cache serve reads, as in `Costs`."""

    chunk_s: NDArray[np.float64]
    warm_chunk_s: NDArray[np.float64]
    family_chunk_s: NDArray[np.float64]
    family_warm_chunk_s: NDArray[np.float64]


@lru_cache(maxsize=16)  # most draws of a machine change nothing that reads depend on
def _served(
    reads: _Reads, storage: Storage, copy_gb_s: float | None, least_s: float, in_place: bool, direct_io: bool, hot: bool
) -> _Served:
    lanes = range(1, max(int(storage.lanes.value), 1) + 1)

    def warm_s(size_bytes: int) -> list[float]:
        return [
            0.0 if in_place else max(_copy_s(copy_gb_s, size_bytes * depth), least_s * size_bytes * depth)
            for depth in lanes
        ]

    def read_s(size_bytes: int) -> list[float]:
        least = [least_s * size_bytes * depth for depth in lanes] if direct_io else warm_s(size_bytes)
        return [
            max(storage.chunk_s(size_bytes, depth, hot=hot), least_s * size_bytes * depth, at_least)
            for depth, at_least in zip(lanes, least, strict=True)
        ]

    return _Served(
        reads.of_chunks.seconds(read_s),
        reads.of_chunks.seconds(warm_s),
        reads.of_family_chunks.seconds(read_s),
        reads.of_family_chunks.seconds(warm_s),
    )


def price(
    weights: Weights, machine: Machine, conditions: Conditions, *, io_split: int, read_share: float = 1.0
) -> Costs:
    """The seconds of each kind of work on `machine`, for the layers of a model.

    read_share: of an expert's bytes, what a miss reads, uploads or computes with on the CPU.
    A model that is resident through the ordinary loader has no slots for the host to resolve.
    If storage and GPU share one memory and reads overlap with compute, the bytes read slow the computing by the time
    that the memory needs for them, and are read no faster than that. Reads through the page cache are copied out of it,
    so they are no faster than those that it serves. A CPU computes experts no faster than its cores do arithmetic.
    Raises BadInput if the machine lacks what the execution model or computing needs, or the model's dense bytes are
    unknown.
    """
    layers, execution = weights.layers, conditions.execution
    unit = machine.gpu or machine.cpu
    if unit is None:
        raise Incomplete(f"machine {machine.name} has neither [gpu] nor [cpu]; add one to its file")
    if unit.weights_gb_s is None:
        _check_fitted(weights, machine)
    if weights.dense_bytes is None and unit.weights_gb_s is not None:
        raise Incomplete(
            f"{weights.name}: does not record its dense weights, which every token reads; "
            "give them (--dense 5GiB), or a GGUF or a named model as --model"
        )
    dense_bytes = np.array(weights.dense_bytes or (0.0,) * len(layers))
    reads = _reads_of(weights, 1 if machine.storage.by_faults else io_split, read_share)
    expert_bytes, read_bytes, family_bytes = reads.expert_bytes, read_share * reads.expert_bytes, reads.family_bytes
    weight_bytes = arithmetic.weight_bytes(weights.quant)
    dense_weight_bytes = weights.dense_weight_bytes or max(weight_bytes, WEIGHT_BYTES)
    cold_expert_s, cold_knee = np.zeros(len(layers)), 1.0
    execution.check(machine, direct_io=conditions.direct_io)
    most_gb_s = arithmetic.most_gb_s(machine, weights.quant, conditions.program)
    if execution.in_place:
        assert machine.cpu is not None
        cold_expert_s = _streamed(machine.cpu, read_bytes, most_gb_s)
        cold_knee = arithmetic.knee_tokens(machine.cpu, weight_bytes)
    if on_cpu := execution.experts_on_cpu or machine.gpu is None:
        assert machine.cpu is not None
        expert_s = _streamed(machine.cpu, expert_bytes, most_gb_s)
    else:
        expert_s = _streamed(unit, expert_bytes)
    least_s, memory_s = 0.0, np.zeros(len(layers))  # per byte, per expert
    if machine.unified and execution.beside_compute and machine.memory is not None:
        least_s = 1 / (machine.memory.bandwidth_gb_s.value * 1e9)
        memory_s = read_bytes * least_s
    family_upload_s = _upload_s(machine, execution, family_bytes)
    copy_gb_s = None if machine.memory is None else machine.memory.copy_gb_s.value
    served = _served(
        reads, machine.storage, copy_gb_s, least_s, execution.in_place, conditions.direct_io, conditions.hot
    )
    call_s = machine.host.call_us.value * 1e-6
    layer_s = unit.layer_us.value * 1e-6
    computes_in_layer = unit.weights_gb_s is None  # then a fit put the time of computing there
    if machine.gpu is not None:
        layer_s += weights.graph_s + _streamed_s(machine.gpu, weights.graph_bytes)
    elif not computes_in_layer:
        layer_s += weights.graph_cpu_s
    attention = attention_of(weights, machine, conditions)

    return Costs(
        dense_s=_streamed(unit, dense_bytes) + layer_s * computes_in_layer,
        layer_s=layer_s * (not computes_in_layer),
        expert_s=expert_s,
        cold_expert_s=cold_expert_s,
        dense_knee_tokens=arithmetic.knee_tokens(unit, dense_weight_bytes),
        knee_tokens=arithmetic.knee_tokens(unit, weight_bytes),
        cold_knee_tokens=cold_knee,
        added_from=NEVER if on_cpu else round(estimate("gpu.added_from").value),
        padded_tokens=estimate("gpu.padded_tokens", machine.api).value,
        chunks=reads.chunks,
        chunk_s=served.chunk_s,
        warm_chunk_s=served.warm_chunk_s,
        fill_s=_fill_s(machine, execution, reads.chunk_bytes),
        upload_s=family_upload_s.sum(axis=1),
        family_chunks=reads.family_chunks,
        family_chunk_s=served.family_chunk_s,
        family_warm_chunk_s=served.family_warm_chunk_s,
        family_fill_s=_fill_s(machine, execution, reads.family_chunk_bytes),
        family_upload_s=family_upload_s,
        memory_s=memory_s,
        attention_s=attention.read_s / len(layers),
        attention_token_s=attention.token_s / len(layers),
        call_s=call_s * (execution.host_calls != "none"),
        hit_call_s=call_s * (execution.host_calls == "all"),
        install_s=machine.host.install_us.value * 1e-6,
        resume_s=0.0 if machine.host.resume_us is None else machine.host.resume_us.value * 1e-6,
        merge_s=0.0,  # included in host.call_us, since the systems with two lanes report both together
        step_s=_hops_s(machine, weights.hidden),
        draft_s=_draft_s(unit, conditions),
        verify_times=1.0 if execution.few_as_one else estimate("drafts.verify_times").value,
        verify_call_s=0.0 if conditions.drafts is None else conditions.drafts.call_us * 1e-6,
    )


def _hops_s(machine: Machine, hidden: int) -> float:
    """Seconds in which a token's numbers of 32 bits pass to each machine after the first, and back to it."""
    if (network := machine.network) is None:
        return 0.0
    sent_s = 2 * SENT_BYTES * hidden / (network.rate_gb_s.value * 1e9)
    return (machine.machines - 1) * (network.hop_us.value * 1e-6 + sent_s)


def _draft_s(unit: Compute, conditions: Conditions) -> float:
    """Seconds in which a token is drafted on the computing unit."""
    drafts = conditions.drafts
    if drafts is None:
        return 0.0
    return _streamed_s(unit, drafts.token_bytes) + drafts.layers * unit.layer_us.value * 1e-6


def attention_of(weights: Weights, machine: Machine, conditions: Conditions) -> AttentionCost:
    """What attention to the tokens in the context costs, of all layers.

    Raises BadInput if the model or the machine does not say what it takes.
    """
    if not conditions.depth:
        return NOTHING
    if weights.attention is None:
        raise depth_unknown(conditions.depth, weights.name)
    section, unit, api = ("gpu", machine.gpu, machine.api) if machine.gpu is not None else (CPU, machine.cpu, CPU)
    assert unit is not None
    if unit.attention_gb_s is None:
        raise Incomplete(f"--depth {conditions.depth}: machine {machine.name} has no {section}.attention_gb_s; add it")
    depth = min(conditions.depth, conditions.attended) if conditions.attended else conditions.depth
    return attention_cost(weights.attention, depth, unit, api=api, kv_type=conditions.kv_type)


def _check_fitted(weights: Weights, machine: Machine) -> None:
    """Raise BadInput unless layer_us of `machine` includes the time to compute this model.

    Only a machine fitted on runs of the model includes it; on any other, computing would take no time.
    """
    section = "gpu" if machine.gpu is not None else "cpu"
    if machine.anchors is None:
        raise Incomplete(
            f"machine {machine.name}: {section}.weights_gb_s is missing, so computing would take no time; add the rate "
            "(an estimate may have a wide lo and hi), or fit the machine: sim machine fit, sim bridge calibrate"
        )
    if machine.anchors.routed_bytes not in (None, weights.routed_bytes):
        raise Conflict(
            f"machine {machine.name}: was fitted on {machine.anchors.model}, and its {section}.layer_us holds what "
            f"computing that takes, not {weights.name}; fit it on runs of this model, or with --parameter weights_gb_s"
        )


def page_cache_bytes(
    workload: Workload, setup: Setup, replay: Replayed, machine: Machine, conditions: Conditions
) -> int:
    """Bytes that the machine's page cache can hold beside the bank of a replay; see `room_for_pages`.

    If every expert is resident, the experts take the place of the bank.
    """
    weights = weights_of(workload, conditions)
    assert workload.geometry is not None
    resident = not conditions.execution.reads
    return room_for_pages(
        weights,
        machine,
        conditions,
        bank="of every expert" if resident else str(setup.bank),
        bank_bytes=workload.geometry.routed_bytes if resident else replay.counts.resident_bytes or 0,
    )


def room_for_pages(weights: Weights, machine: Machine, conditions: Conditions, *, bank: str, bank_bytes: int) -> int:
    """Bytes that the page cache of a machine can hold beside a bank, the dense weights and the context.

    A GPU with its own memory holds the bank, the dense weights and the context; only the last two if the CPU computes
    the experts. bank: the bank's text, for messages.
    A machine whose memory is unknown has no page cache: what it served is part of the read rate.
    Raises DoesNotFit if they do not fit, unless a system has checked that they do.
    """
    if machine.memory is None:
        return 0
    budget = weights.budget(machine, conditions)
    if budget.gpu == "own" and conditions.execution.experts_on_cpu:
        return max((budget.ram_bytes or 0) - bank_bytes, 0) * (not conditions.direct_io)
    checked = conditions.checked and budget.gpu == "own"
    if bank_bytes > budget.left_bytes and not checked:
        dense_gib, context_gib = budget.dense_bytes / GIB, budget.kv_bytes / GIB
        raise DoesNotFit(
            f"bank {bank}: {bank_bytes / GIB:.1f} GiB of slots, {dense_gib:.1f} GiB of dense weights and "
            f"{context_gib:.1f} GiB of context do not fit {machine.name}, which has {budget.room}",
            advice=_largest_bank(weights, budget.left_bytes, bank),
        )
    return 0 if conditions.direct_io else budget.page_bytes(bank_bytes)


def _largest_bank(weights: Weights, room: float, bank: str) -> str:
    """Advice for a bank that does not fit; in slots if the bank is in slots, else in whole MiB."""
    largest = f"{max(int(room) >> 20, 0)}MiB"
    if bank.isdigit():
        sizes = range(1, int(bank))
        most = bisect_right(
            sizes,
            room,
            key=lambda slots: sum(layer.expert_bytes * min(slots, layer.n_experts) for layer in weights.layers),
        )
        largest = str(most)
    if largest in ("0", "0MiB"):
        return "no bank fits; give another --machine"
    return f"the largest bank that fits is --bank {largest}; give that or another --machine"


def _families(layers: tuple[LayerGeometry, ...], *, io_split: int) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Bytes and reads of every tensor family of an expert, both [rows, families]; 0 if a layer has fewer families."""
    shape = len(layers), max((len(layer.family_bytes) for layer in layers), default=0)
    size_bytes, reads = np.zeros(shape), np.zeros(shape, np.int32)
    for row, layer in enumerate(layers):
        size_bytes[row, : len(layer.family_bytes)] = list(layer.family_bytes.values())
        reads[row, : len(layer.family_bytes)] = layer.family_reads(io_split=io_split)
    return size_bytes, reads


def _streamed(unit: Compute, size_bytes: NDArray[np.float64], most_gb_s: float = inf) -> NDArray[np.float64]:
    """Seconds to stream weights through a unit; 0 if its time per call includes them."""
    if unit.weights_gb_s is None:
        return np.zeros(len(size_bytes))
    return size_bytes / (min(unit.weights_gb_s.value, most_gb_s) * 1e9)


def _streamed_s(unit: Compute, size_bytes: float) -> float:
    """Seconds in which a unit streams weights of one size."""
    return float(_streamed(unit, np.array([size_bytes], np.float64))[0])


def _copy_s(copy_gb_s: float | None, size_bytes: float) -> float:
    return 0.0 if copy_gb_s is None else size_bytes / (copy_gb_s * 1e9)


def _fill_s(machine: Machine, execution: ExecutionModel, chunk_bytes: NDArray[np.float64]) -> NDArray[np.float64]:
    """How much longer a read takes if it fills a slot for the first time; only if the bank is in RAM."""
    rate = machine.host.first_touch_gb_s
    in_ram = execution.experts_on_cpu or not own_memory(machine)
    if rate is None or not in_ram or not execution.has_bank or execution.in_place:
        return np.zeros(chunk_bytes.shape)
    return chunk_bytes / (rate.value * 1e9)


def _upload_s(machine: Machine, execution: ExecutionModel, size_bytes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Seconds to bring a tensor family of an expert to where it is computed; 0 if it has no bytes.

    Over the link, or copied within the memory if the model does that.
    """
    if execution.experts_on_cpu:
        return np.zeros(size_bytes.shape)
    if machine.link is None:
        if machine.memory is not None and execution.copies(machine):
            return size_bytes / (machine.memory.copy_gb_s.value * 1e9)
        return np.zeros(size_bytes.shape)
    rate = execution.link_rate(machine.link)
    return (size_bytes > 0) * machine.link.request_us.value * 1e-6 + size_bytes / (rate.value * 1e9)
