"""What a system says of itself: where its experts are, what its settings become in a replay, memory and flags."""

from __future__ import annotations

import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from inspect import getdoc
from pathlib import Path
from typing import Any, ClassVar, Self

from flashmoe_sim.budget import BUFFERS_BYTES, MemoryBudget, own_memory
from flashmoe_sim.geometry.attention import DEFAULT_TYPE
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.machine import Machine, Quantity
from flashmoe_sim.parameters import spec_of
from flashmoe_sim.residency.replay import Replay
from flashmoe_sim.residency.replay import replay as run_replay
from flashmoe_sim.residency.setup import Setup
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.timeline.assemble import Conditions
from flashmoe_sim.timeline.models.base import ExecutionModel
from flashmoe_sim.trace.routing import RoutingTrace

HALF = "half"  # a profile of the first half of the trace, which is then judged on its second half
LADDER = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)


@dataclass(frozen=True)
class Case:
    """A model on a machine.

    kv_bytes: memory of the context. context: its tokens, for the flags; 0 if it was not given. kv_type: of its keys and
    values, for the flags. buffers_bytes: what an engine of llama.cpp's kind takes to compute.
    """

    model: ModelGeometry
    machine: Machine
    kv_bytes: int = 0
    context: int = 0
    kv_type: str = DEFAULT_TYPE
    buffers_bytes: int = BUFFERS_BYTES

    @cached_property
    def budget(self) -> MemoryBudget:
        """The machine's memories, and what every engine of llama.cpp's kind takes of them beside routed experts."""
        return MemoryBudget.of(
            self.machine, dense_bytes=self.dense_bytes, kv_bytes=self.kv_bytes, buffers_bytes=self.buffers_bytes
        )

    @property
    def dense_bytes(self) -> int:
        return self.model.dense_bytes or 0

    @property
    def gguf(self) -> str:
        """The model's file, or the word that stands for it."""
        return self.model.gguf or "MODEL.gguf"

    @property
    def n_experts(self) -> int:
        """Experts of a layer; the most of any."""
        return max(layer.n_experts for layer in self.model.layers.values())

    @property
    def slot_bytes(self) -> int:
        """Bytes of one slot in every layer."""
        return self.model.bank_bytes(1)

    @property
    def gpu_bytes(self) -> int:
        """Memory of the GPU that weights and caches can take; 0 without a GPU."""
        return self.budget.gpu_bytes

    @property
    def ram_bytes(self) -> int:
        """RAM beside what the system and other programs take; 0 if it is not known."""
        return self.budget.usable_ram_bytes


@dataclass(frozen=True)
class Share:
    """What a system keeps in a memory. where: `gpu`, `ram`, or `mapped` for what RAM may hold but need not."""

    what: str
    where: str
    size_bytes: int


@dataclass(frozen=True)
class Cost:
    """What a system takes more or less time for than a machine's file says.

    path: of a quantity of the machine, such as `cpu.weights_gb_s`. lo, value, hi: factors of it, or, if not `scales`,
    what takes the place of an estimate.
    """

    path: str
    lo: float
    value: float
    hi: float
    source: str
    scales: bool = True


PAGE_FAULTS = Cost(
    "storage.read_gb_s",
    0.02,
    0.1,
    0.5,
    "page faults read a file in small pieces, few at once: 0.12 of 5.5 GB/s in danveloper/flash-moe, and the published "
    "speeds of mapped models larger than RAM",
)


@dataclass(frozen=True)
class Launch:
    """How a system is started: its program and flags, and variables to set.

    sourced: a file that a shell reads first; empty if none. Words in capitals stand for files: `systems/files.py`.
    """

    words: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    sourced: str = ""

    @property
    def line(self) -> str:
        """The command line as a shell takes it."""
        if self.sourced:
            return f". {shlex.quote(self.sourced)} && {replace(self, sourced='').line}"
        variables = [f"{name}={shlex.quote(value)}" for name, value in self.environment.items()]
        return " ".join([*variables, shlex.join(self.words)])


@dataclass(frozen=True)
class Plan:
    """A system with its settings on a case: the replay, the order of events, the machine as the system uses it.

    direct_io: whether it reads past the page cache.
    """

    setup: Setup
    execution: ExecutionModel
    machine: Machine
    direct_io: bool = False

    def conditions(self, case: Case) -> Conditions:
        return Conditions(self.execution, case.model.dense_bytes, case.kv_bytes, self.direct_io)


@dataclass(frozen=True, kw_only=True)
class System(ABC):
    """One program with one way to place, cache or stream routed experts. Its fields are its settings.

    The first paragraph of a system's docstring is its entry in docs/reference/systems.md; its other lines say what
    each setting means.
    engine: the program. source: its repository and the commit that its flags are of, a colon, if its rule was read.
    keeps: what it keeps where. misses: where the other experts are computed or read from.
    size: the setting that decides how much memory it takes, empty if it has none; its default is the system's own rule.
    gpu: whether it needs a GPU of any kind. own_gpu: True if it needs one with a memory of its own, False if it needs
        one that shares the RAM.
    several_gpus: whether its rule holds on a machine with several GPUs, which count as one with the memory of all.
    apis: what must program the GPU; empty if any or none does. archs: the models it is made for, as llama.cpp calls
        them; empty for any. shape: layers and experts of the only model that it runs, or None.
    costs: what it takes more or less time for than a machine's file says.
    choices: other settings worth trying, each with its values; they change the speed and never the text.
    prompt_choices: such settings that matter to prompts alone.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    engine: ClassVar[str]
    source: ClassVar[str]
    keeps: ClassVar[str]
    misses: ClassVar[str]
    size: ClassVar[str] = ""
    gpu: ClassVar[bool] = False
    own_gpu: ClassVar[bool | None] = None
    several_gpus: ClassVar[bool] = False
    apis: ClassVar[tuple[str, ...]] = ()
    archs: ClassVar[tuple[str, ...]] = ()
    shape: ClassVar[tuple[int, int] | None] = None
    costs: ClassVar[tuple[Cost, ...]] = ()
    choices: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    prompt_choices: ClassVar[Mapping[str, tuple[Any, ...]]] = {}

    @property
    def spec(self) -> str:
        """The name with the settings that differ from their defaults, as `--system` takes it."""
        return spec_of(self)

    @property
    def size_given(self) -> bool:
        """Whether its size was chosen, or it has none to choose."""
        return all(getattr(self, item.name) != item.default for item in fields(self) if item.name == self.size)

    @property
    def unsized(self) -> Self:
        """The system with its size left to be chosen, and its other settings as they are."""
        default = {item.name: item.default for item in fields(self) if item.name == self.size}
        return replace(self, **default)

    @property
    def learns_first_half(self) -> bool:
        """Whether it chooses experts by the first half of the trace that it is judged on."""
        return getattr(self, "profile", "") == HALF

    @property
    def meaning(self) -> str:
        """One sentence."""
        return " ".join((getdoc(type(self)) or "").partition("\n\n")[0].split())

    @property
    def version(self) -> str:
        """The version that its flags are of, such as ikawrakow/ik_llama.cpp 8337e4cd3."""
        return re.split("[:,]", self.source)[0]

    def why_not(self, case: Case) -> str:
        """Why the system cannot run there at all, or empty."""
        machine, model = case.machine, case.model
        if self.gpu and machine.gpu is None:
            return "needs a GPU"
        if self.own_gpu is not None and (machine.gpu is None or own_memory(machine) is not self.own_gpu):
            return "needs a GPU with a memory of its own" if self.own_gpu else "needs a GPU that shares the RAM"
        if self.apis and (machine.gpu is None or machine.api not in self.apis):
            found = "no GPU" if machine.gpu is None else machine.api or "a GPU whose api its file does not say"
            return f"needs {' or '.join(self.apis)}; the machine has {found}"
        if machine.gpus > 1 and not self.several_gpus:
            return f"is known for one GPU only; the machine has {machine.gpus}"
        if self.archs and model.arch not in self.archs:
            return f"works for {', '.join(self.archs)} only; {model.name} is {model.arch or 'of an unknown kind'}"
        if self.shape is not None and self.shape != (len(model.layers), case.n_experts):
            return f"runs one model only, of {self.shape[0]} layers with {self.shape[1]} experts"
        return ""

    def sizes(self, case: Case) -> Sequence[int]:
        """Values of the setting `size` worth trying, ascending; those that do not fit are refused when they are."""
        return ()

    def sized(self, case: Case) -> Self:
        """The system with its `size` set as its own rule would; raises BadInput if nothing fits."""
        return self

    @abstractmethod
    def plan(self, case: Case) -> Plan:
        """The replay and the machine that the settings mean."""

    @abstractmethod
    def memory(self, case: Case) -> tuple[Share, ...]:
        """What it takes of each memory."""

    @abstractmethod
    def launch(self, case: Case) -> Launch:
        """How it is started with these settings."""

    def files(self, workload: Workload) -> Mapping[str, bytes]:
        """The files that `launch` names by words such as PROFILE.json, and the content of each, made of a workload."""
        return {}

    def prepared(self, workload: Workload) -> Workload:
        """The workload as the system routes it."""
        return workload

    def replay(self, workload: Workload, setup: Setup) -> Replay:
        """The recorded replay of a prepared workload."""
        return run_replay(workload, setup, record=True)

    def with_profile_of(self, trace: RoutingTrace, folder: Path) -> Self | None:
        """The system with its profile made of another trace, in a file there; None if it makes none of a trace."""
        return None

    def adapted(self, machine: Machine) -> Machine:
        """The machine with the system's own costs: factors widen intervals, and only estimates are replaced."""
        quantities = dict(machine.quantities())
        for cost in self.costs:
            if (old := quantities.get(cost.path)) is None or not (cost.scales or old.estimated):
                continue
            by = old if cost.scales else replace(old, value=1, lo=1, hi=1)
            source = f"{self.name}: {cost.source}"
            new = Quantity(by.value * cost.value, by.lo * cost.lo, by.hi * cost.hi, source, old.condition, True)
            section, _, key = cost.path.partition(".")
            machine = replace(machine, **{section: replace(getattr(machine, section), **{key: new})})
        return machine

    def check(self, case: Case) -> None:
        """Raise BadInput if the system cannot run there, or does not fit."""
        if reason := self.why_not(case):
            raise BadInput(reason)
        shares = self.memory(case)
        gpu = sum(share.size_bytes for share in shares if share.where == "gpu")
        ram = sum(share.size_bytes for share in shares if share.where == "ram")
        if not own_memory(case.machine):
            ram += gpu
        rooms = [(gpu, case.gpu_bytes, "the GPU"), (ram, case.ram_bytes, "RAM")]
        for taken, room, where in rooms if case.budget.ram_bytes is not None else []:  # a fitted machine's is not known
            if taken > room:
                raise BadInput(f"takes {taken / GIB:.1f} GiB of {where}, which has {room / GIB:.1f} for it")


def gpu_weights(case: Case) -> tuple[Share, ...]:
    """What every engine of llama.cpp's kind keeps on the GPU: dense weights, context and compute buffers."""
    return (
        Share("dense weights", "gpu", case.dense_bytes),
        Share("context", "gpu", case.kv_bytes),
        Share("compute buffers", "gpu", case.buffers_bytes),
    )


def gpu_left(case: Case) -> int:
    """GPU memory beside `gpu_weights`."""
    return case.budget.gpu_left_bytes


def slots_that_fit(case: Case, room: int, *, what: str = "slots on the GPU") -> int:
    """The most slots of every layer that so many bytes hold; raises BadInput if it is none."""
    slots = min(room // case.slot_bytes, case.n_experts) if room > 0 else 0
    if slots < 1:
        raise no_room(what, room)
    return slots


def ladder(least: int, most: int) -> list[int]:
    """Sizes worth trying from `least` to `most`, both included."""
    return sorted({least, most, *(size for size in LADDER if least < size < most)}) if least <= most else []


def llama_words(case: Case, *words: str, program: str = "llama-server") -> tuple[str, ...]:
    """A command line of llama.cpp's kind with the model and, as far as they are known, the context and its type."""
    return (program, "-m", case.gguf, *context_words(case), *words)


def context_words(case: Case) -> tuple[str, ...]:
    """The context and the type of its cache as llama.cpp takes them; nothing if its defaults do."""
    context = ("-c", str(case.context)) if case.context else ()
    kv_type = () if case.kv_type == DEFAULT_TYPE else ("-ctk", case.kv_type, "-ctv", case.kv_type)
    return (*context, *kv_type)


def no_room(what: str, room: int) -> BadInput:
    """The error if nothing of what a system keeps fits beside the rest."""
    return BadInput(f"{max(room, 0) / GIB:.1f} GiB are left for {what}, too little")
