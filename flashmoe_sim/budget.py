"""What a machine's memories hold: every term in bytes, in one value shared by checks, systems and tables."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from flashmoe_sim.geometry.model import DEFAULT_TYPE, ModelGeometry, check_context
from flashmoe_sim.io.errors import Conflict, Incomplete, OutOfRange, TooLarge
from flashmoe_sim.io.sizes import GIB, MIB, given_size, size
from flashmoe_sim.machines.estimates import estimate, estimates
from flashmoe_sim.machines.machine import Machine, Quantity

WIRED_STEP_MIB = 512
WIRED = "iogpu.wired_limit_mb"  # in a reason: a Mac could run it if this limit were raised


@dataclass(frozen=True)
class Term:
    """One term of a budget. where: `gpu` or `ram`. why: where its bytes come from, in a few words."""

    what: str
    where: str
    size_bytes: int
    why: str


@dataclass(frozen=True, kw_only=True)
class MemoryBudget:
    """The memories of a machine, and what a model uses of them beside routed experts, in bytes.

    gpu: `own` if it has its own memory, `shared` if it shares the RAM, `none`. gpu_memory_bytes: what the GPU can use;
    None if unknown. ram_bytes: RAM without the part that the system and other programs use, which is reserve_bytes;
    None if unknown. kv_bytes: the context. buffers_bytes: compute buffers. drafter_bytes: what drafts tokens.
    """

    gpu: str = "none"
    gpu_memory_bytes: int | None = None
    ram_bytes: int | None = None
    reserve_bytes: int = 0
    dense_bytes: int = 0
    kv_bytes: int = 0
    buffers_bytes: int = 0
    drafter_bytes: int = 0

    @classmethod
    def of(
        cls,
        machine: Machine,
        *,
        dense_bytes: int = 0,
        embedding_bytes: int = 0,
        kv_bytes: int = 0,
        buffers_bytes: int = 0,
        drafter_bytes: int = 0,
    ) -> MemoryBudget:
        """The budget of a model on a machine. embedding_bytes: of dense_bytes, what stays in RAM beside a GPU's own."""
        gpu, memory = machine.gpu, machine.memory
        if own_memory(machine):
            dense_bytes = max(dense_bytes - embedding_bytes, 0)
        share = None if gpu is None or gpu.memory_gib is None else round(gpu.memory_gib.value * GIB)
        ram = None if memory is None else round((memory.ram_gib.value - memory.reserve_gib.value) * GIB)
        return cls(
            gpu="none" if gpu is None else "own" if own_memory(machine) else "shared",
            gpu_memory_bytes=share,
            ram_bytes=ram,
            reserve_bytes=0 if memory is None or ram is None else round(memory.ram_gib.value * GIB) - ram,
            dense_bytes=dense_bytes,
            kv_bytes=kv_bytes,
            buffers_bytes=buffers_bytes,
            drafter_bytes=drafter_bytes,
        )

    @property
    def taken_bytes(self) -> int:
        """What the model uses beside routed experts."""
        return self.dense_bytes + self.kv_bytes + self.buffers_bytes + self.drafter_bytes

    @property
    def usable_ram_bytes(self) -> int:
        """RAM that a model can use; 0 if unknown."""
        return max(self.ram_bytes or 0, 0)

    @property
    def gpu_bytes(self) -> int:
        """GPU memory that a model can use; 0 without a GPU, and at most the usable RAM if it is shared."""
        if self.gpu == "none":
            return 0
        if self.gpu == "own":
            return self.gpu_memory_bytes or 0
        return min(
            self.usable_ram_bytes, self.usable_ram_bytes if self.gpu_memory_bytes is None else self.gpu_memory_bytes
        )

    @property
    def gpu_left_bytes(self) -> int:
        """GPU memory left beside the model; negative if it does not fit."""
        return self.gpu_bytes - self.taken_bytes

    @property
    def room_bytes(self) -> float:
        """The memory that holds the model and its bank: the GPU's own, else the RAM; inf if unknown."""
        room = self.gpu_memory_bytes if self.gpu == "own" else self.ram_bytes
        return math.inf if room is None else room

    @property
    def room(self) -> str:
        """That memory in words."""
        if self.gpu == "own":
            return f"{(self.gpu_memory_bytes or 0) / GIB:g} GiB on its GPU"
        if self.ram_bytes is None:
            return "an unknown memory"
        return (
            f"{(self.ram_bytes + self.reserve_bytes) / GIB:g} GiB less {self.reserve_bytes / GIB:g} GiB for the system"
        )

    @property
    def left_bytes(self) -> float:
        """What is left of that memory for a bank; negative if the rest does not fit."""
        return self.room_bytes - self.taken_bytes

    def page_bytes(self, bank_bytes: int) -> int:
        """RAM left for the page cache beside a bank of routed experts; 0 if the RAM is unknown."""
        if self.ram_bytes is None:
            return 0
        return self.ram_bytes - (0 if self.gpu == "own" else bank_bytes + self.taken_bytes)

    def terms(self) -> tuple[Term, ...]:
        """Every term: both memories, what the system and the model use of them, and what is left."""
        where = "gpu" if self.gpu == "own" else "ram"
        found = []
        if self.gpu == "own":
            found.append(Term("GPU memory", "gpu", self.gpu_bytes, "its own"))
        elif self.gpu == "shared":
            found.append(Term("GPU memory", "ram", self.gpu_bytes, "a share of the RAM"))
        if self.ram_bytes is not None:
            found.append(Term("RAM", "ram", self.ram_bytes + self.reserve_bytes, "all of it"))
            found.append(Term("system", "ram", self.reserve_bytes, "the system and other programs"))
        found += [
            Term("dense weights", where, self.dense_bytes, "read for every token"),
            Term("context", where, self.kv_bytes, "keys and values, or states"),
            Term("compute buffers", where, self.buffers_bytes, "of the engine"),
        ]
        if self.drafter_bytes:
            found.append(Term("drafter", where, self.drafter_bytes, "its weights, context and buffers"))
        if self.gpu != "none":
            found.append(Term("left on the GPU", where, max(self.gpu_left_bytes, 0), "for experts or a bank"))
        if self.ram_bytes is not None:
            found.append(Term("left in RAM", "ram", max(self.page_bytes(0), 0), "for experts, a bank or pages"))
        return tuple(found)


@dataclass(frozen=True)
class Context:
    """The requested context.

    tokens: 0 for none. kv_type: of its keys and values. given_bytes: its size, if it should not follow from the model.
    depth: how many of its tokens are already there.
    """

    tokens: int = 0
    kv_type: str = DEFAULT_TYPE
    given_bytes: int | None = None
    depth: int = 0

    @classmethod
    def of_options(
        cls,
        tokens: int | None = None,
        kv: str | int | None = None,
        kv_type: str | None = None,
        depth: int | None = None,
        *,
        default: int = 0,
    ) -> Context:
        """The context from words. default: its tokens if they are not given; at least `depth`.

        Raises BadInput for a negative number, an unknown type, an invalid size, and a depth beyond the context.
        """
        depth, size = depth or 0, None if kv is None else given_size("--kv", kv)
        chosen = max(default, depth) if tokens is None else tokens
        check_context(chosen, kv_type or DEFAULT_TYPE)
        if depth < 0:
            raise OutOfRange(f"--depth {depth}; expected a number of tokens from 0")
        if chosen < depth:
            raise Conflict(f"--depth {depth}: beyond --context {chosen}; give a context of at least {depth} tokens")
        return cls(chosen, kv_type or DEFAULT_TYPE, size, depth)

    def bytes_of(self, model: ModelGeometry | None) -> int:
        """Its bytes; raises BadInput if the model does not determine them."""
        if self.given_bytes is not None:
            return self.given_bytes
        if not self.tokens:
            return 0
        if model is None or model.attention is None:
            name = "the trace" if model is None else model.name
            raise Incomplete(
                f"--context {self.tokens}: {name} does not give the size of a context; give it, such as --kv 2GiB"
            )
        return model.attention.context_bytes(self.tokens, kv_type=self.kv_type)


def spare_bytes(machine: Machine) -> int:
    """GPU memory that a recommended setting leaves free: for a desktop on each GPU, and for the plan's error.

    A GPU that shares the RAM needs only the latter: its share is already less than the RAM.
    """
    gpu = machine.gpu
    if gpu is None or gpu.memory_gib is None:
        return 0
    error = round(estimate("memory.plan_error").value * gpu.memory_gib.value * GIB)
    return error + machine.gpus * round(estimate("memory.desktop_gib").value * GIB) * own_memory(machine)


def wired_limit_advice(machine: Machine, needed_bytes: int) -> str:
    """The command that raises the limit of a Mac's GPU to these bytes; empty if it is not needed, or not possible.

    By default the GPU may use two thirds of up to 32 GB of RAM, and three quarters of more; on macOS 26, Metal was seen
    to allow 84% of 128 GB (antirez/ds4 pull request 893). The limit holds until the next start.
    Source: `recommendedMaxWorkingSetSize` as llama.cpp logs it, which follows iogpu.wired_limit_mb (AlexsJones/llmfit
    pull request 754).
    """
    gpu, memory = machine.gpu, machine.memory
    if machine.api != "metal" or machine.machines > 1 or gpu is None or gpu.memory_gib is None or memory is None:
        return ""
    ram_gib = memory.ram_gib.value
    limit_mib = -(-needed_bytes // (WIRED_STEP_MIB * MIB)) * WIRED_STEP_MIB
    if needed_bytes <= gpu.memory_gib.value * GIB or limit_mib > most_wired_mib(machine):
        return ""
    command, most = f"sudo sysctl iogpu.wired_limit_mb={limit_mib}", f"{limit_mib * MIB / GIB:.1f} of {ram_gib:g} GiB"
    return f"`{command}` lets the GPU use {most} until the next start"


def most_wired_mib(machine: Machine) -> int:
    """The most that a Mac's GPU may be given of its RAM, in MiB; 0 if the RAM is unknown."""
    if machine.memory is None:
        return 0
    ram_gib = machine.memory.ram_gib.value
    keeps_gib = next(one for up_to, one in estimates("memory.mac_keeps_gib").items() if ram_gib <= float(up_to)).value
    return int((ram_gib - keeps_gib) * GIB // MIB)


def own_memory(machine: Machine) -> bool:
    """Whether there is a GPU with its own memory."""
    return machine.gpu is not None and machine.gpu.memory_gib is not None and not machine.unified


def with_reserve(machine: Machine, reserve_bytes: int) -> Machine:
    """The machine with this much RAM used by its system and other programs.

    Raises BadInput if its RAM is unknown, or not larger.
    """
    if machine.memory is None:
        raise Incomplete(f"--reserve {size(reserve_bytes)}: {machine.name} does not give its RAM; leave it out")
    ram_gib = machine.memory.ram_gib.value
    if reserve_bytes >= ram_gib * GIB:
        raise TooLarge(f"--reserve {size(reserve_bytes)}: {machine.name} has {ram_gib:g} GiB of RAM; give less")
    reserve_gib = reserve_bytes / GIB
    reserve = Quantity(reserve_gib, reserve_gib, reserve_gib, "--reserve", "as asked")
    return replace(machine, memory=replace(machine.memory, reserve_gib=reserve))
