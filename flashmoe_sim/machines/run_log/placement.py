"""What the runtime prints of the memory that it takes: where the weights, the bank and the context are."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from flashmoe_sim.machines.run_log.text import NUMBER, WHOLE

_LOADING = re.compile(r"\S+: loading model tensors, this can take a while")
_BANK = re.compile(r"\S+: preparing virtual context with \d+ tensors via \S+ \(projected ")
_MAPPED = re.compile(
    rf"\S+: Flash-MoE sparse virtual-bank mapping reserved {NUMBER} GiB for \d+ routed tensors via (\S+)"
)
_BUFFER = re.compile(rf"\S+: +(\S+) +(model|output|compute|KV|RS) buffer size = +{NUMBER} MiB")
_FOLLOWS_LAYERS = "Flash-MoE GPU-bank placement is enabled in this build"
_ON_HOST = "slot-bank routed expert tensors are using CPU/host-backed virtual buffers in this build"
_ASYNC = re.compile(
    rf"\S+: Flash-MoE async slot uploads enabled for device (\S+) with {WHOLE} pinned buffers of {NUMBER} MiB each"
)
_DEVICE_MEMORY = re.compile(
    rf"llama_memory_breakdown_print: \| +- (\S+) \(.*\) +\| +{WHOLE} = +{WHOLE} \+ +\( *{WHOLE} = "
    rf"+{WHOLE} \+ +{WHOLE} \+ +{WHOLE}\) \+ +\d+ \|"
)
_OTHER_MEMORY = re.compile(
    rf"llama_memory_breakdown_print: \| +- (\S+) +\| +{WHOLE} = +{WHOLE} \+ +{WHOLE} \+ +{WHOLE} +\|"
)
_MEMORY = "llama_memory_breakdown_print: | memory breakdown [MiB] |"
_ROUTED_ON = re.compile(r"flash_moe_log_routed_backends: node=\S+ backend=(\S+) src0=")


@dataclass(frozen=True)
class Buffer:
    """Memory of one kind (`model`, `output`, `compute`, `KV`, `RS`) in one place (`CPU_Mapped`, `CUDA0`)."""

    kind: str
    place: str
    mib: float


@dataclass(frozen=True)
class Memory:
    """What the runtime took of a device or of the host (`Host`) at the end of a run; whole MiB.

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
    """What the log says of it; the runtime says most of it only with `-lv 3`.

    follows_layers: whether the build puts the bank where the layers are (else the host); None if no line says.
    mapped: the buffer types that memory was reserved for. They are what was asked for, not what was got.
    bank_contexts: buffers of slots. They are allocated after all others and are the last of the kind `model`.
    async_uploads: devices with asynchronous uploads. memory: at the end of the run. routed_on: by backend, the matrix
    products of routed experts that it computed; only with LLAMA_FLASH_MOE_BACKEND_TRACE.
    """

    follows_layers: bool | None = None
    mapped: tuple[str, ...] = ()
    bank_contexts: int = 0
    buffers: tuple[Buffer, ...] = ()
    async_uploads: tuple[str, ...] = ()
    memory: tuple[Memory, ...] = ()
    routed_on: dict[str, int] = field(default_factory=dict)

    @property
    def bank(self) -> tuple[str, ...]:
        """Where the slots are, by the names of their buffers; empty if no line says."""
        model = [buffer.place for buffer in self.buffers if buffer.kind == "model"]
        if not 0 < self.bank_contexts <= len(model):
            return ()
        return tuple(dict.fromkeys(model[-self.bank_contexts :]))

    @property
    def bank_in_host(self) -> bool | None:
        """Whether all slots are in the memory of the host, where the CPU computes them; None if no line says."""
        if self.bank:
            return all(place.startswith("CPU") or place.endswith("_Host") for place in self.bank)
        return True if self.follows_layers is False else None


def take_placement(placement: Placement, line: str) -> Placement | None:
    """With what one line says; None for a line of no known kind."""
    if found := _BUFFER.fullmatch(line):
        buffer = Buffer(found[2], found[1], float(found[3]))
        return replace(placement, buffers=(*placement.buffers, buffer))
    if _LOADING.match(line):
        return replace(placement, buffers=(), bank_contexts=0, mapped=())
    if _BANK.match(line):
        return replace(placement, bank_contexts=placement.bank_contexts + 1)
    if found := _MAPPED.fullmatch(line):
        return replace(placement, mapped=(*placement.mapped, found[2]))
    if _FOLLOWS_LAYERS in line:
        return replace(placement, follows_layers=True)
    if _ON_HOST in line:
        return replace(placement, follows_layers=False)
    if found := _ASYNC.fullmatch(line):
        return replace(placement, async_uploads=(*placement.async_uploads, found[1]))
    if found := _ROUTED_ON.match(line):
        counts = placement.routed_on | {found[1]: placement.routed_on.get(found[1], 0) + 1}
        return replace(placement, routed_on=counts)
    if _MEMORY in line:
        return replace(placement, memory=())
    if memory := _memory(line):
        return replace(placement, memory=(*placement.memory, memory))
    return None


def _memory(line: str) -> Memory | None:
    if found := _DEVICE_MEMORY.fullmatch(line):
        total, free, _, model, context, compute = map(int, found.groups()[1:])
        return Memory(found[1], model, context, compute, total, free)
    if found := _OTHER_MEMORY.fullmatch(line):
        _, model, context, compute = map(int, found.groups()[1:])
        return Memory(found[1], model, context, compute)
    return None
