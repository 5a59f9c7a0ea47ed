"""What a system declares: where its experts are, what its settings mean in a replay, its memory and flags."""

from __future__ import annotations

import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from inspect import getdoc
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.budget import MemoryBudget, own_memory, spare_bytes, wired_limit_advice
from flashmoe_sim.drafts import Drafts
from flashmoe_sim.geometry.compute_buffers import MICRO_BATCH, compute_buffer_bytes
from flashmoe_sim.geometry.model import CACHE_TYPES, DEFAULT_TYPE, ModelGeometry
from flashmoe_sim.io.errors import BadInput, TooLarge, Unsupported
from flashmoe_sim.io.sections import Command
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.belief import Whose
from flashmoe_sim.machines.estimates import estimate
from flashmoe_sim.machines.faults import read_by_faults
from flashmoe_sim.machines.machine import APIS, Machine, Quantity
from flashmoe_sim.machines.sockets import BOUND, INTERLEAVED, MIRRORED, SPLIT, cores, on_sockets
from flashmoe_sim.parameters import Choices, Limits, check, spec_of
from flashmoe_sim.policies.base import Policy
from flashmoe_sim.residency.replay import Replayed
from flashmoe_sim.residency.replay import replay as run_replay
from flashmoe_sim.residency.workload import Setup, Workload
from flashmoe_sim.systems.facts import NO_MMAP, EngineFacts, SlotSizes, declared, facts_of, listed
from flashmoe_sim.systems.in_parts import replay_in_parts
from flashmoe_sim.systems.published import PublishedRun, RanAs
from flashmoe_sim.timeline.assemble import Conditions
from flashmoe_sim.timeline.models.base import ExecutionModel
from flashmoe_sim.trace.routing import RoutingTrace

HALF = "half"  # a profile of the trace's first half, to be judged on its second half
BUFFERS_BYTES = round(estimate("memory.buffers_gib").value * GIB)
LOADED_SHARE = 0.9  # of the RAM for models: a file that takes less is read into it instead of mapped
NUMACTL = {BOUND: ("--cpunodebind=0", "--membind=0"), INTERLEAVED: ("--interleave=all",)}
LLAMA_CPP = "llama-cpp"  # the only program whose line may name a repository: of forks it was not read
LLAMA_NUMA = {BOUND: "numactl", INTERLEAVED: "distribute"}  # of llama.cpp's --numa
LADDER = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)


@dataclass(frozen=True)
class Case:
    """A model on a machine.

    kv_bytes: memory of the context. context: its tokens, for the flags; 0 if not given. kv_type: of its keys and
    values. depth: tokens in it before the run. drafts: drafted tokens that a pass verifies; None for none.
    buffers_bytes: compute buffers of an engine like llama.cpp on each GPU, if given.
    micro_batch: tokens of a prompt in one graph, which decides the compute buffers. leaves_spare: whether sizes leave
    `spare_bytes` of the GPU free when they are chosen; a given size may use all of it.
    """

    model: ModelGeometry
    machine: Machine
    kv_bytes: int = 0
    context: int = 0
    kv_type: str = DEFAULT_TYPE
    buffers_bytes: int | None = None
    micro_batch: int = MICRO_BATCH
    leaves_spare: bool = False
    depth: int = 0
    drafts: Drafts | None = None

    @cached_property
    def budget(self) -> MemoryBudget:
        """The machine's memories, and what every engine like llama.cpp uses of them beside routed experts."""
        buffers_bytes = self.compute_bytes()
        return MemoryBudget.of(
            self.machine,
            dense_bytes=self.dense_bytes,
            embedding_bytes=self.model.embedding_bytes,
            kv_bytes=self.kv_bytes,
            buffers_bytes=buffers_bytes,
            drafter_bytes=self.drafter_bytes,
        )

    def compute_bytes(self, *, copies: bool = True) -> int:
        """Compute buffers of an engine like llama.cpp on one GPU: given, else from the model, else BUFFERS_BYTES.

        copies: whether experts in RAM are copied to the GPU for prompts.
        """
        model = self.model
        if self.buffers_bytes is not None:
            return self.buffers_bytes
        if model.widths is None:
            return BUFFERS_BYTES
        copied = model.largest_matrix_bytes if copies else 0
        given = {"context": self.context, "micro_batch": self.micro_batch, "copied_bytes": copied}
        return compute_buffer_bytes(model.widths, top_k=model.top_k or 1, **given)

    @property
    def spare_bytes(self) -> int:
        """GPU memory that sizes leave free when they are chosen."""
        return spare_bytes(self.machine) if self.leaves_spare else 0

    @property
    def drafter_bytes(self) -> int:
        """The drafter's memory."""
        return 0 if self.drafts is None else self.drafts.kept_bytes

    @property
    def dense_bytes(self) -> int:
        return self.model.dense_bytes or 0

    @property
    def gpu_dense_bytes(self) -> int:
        """Dense weights that an engine like llama.cpp puts on a GPU: with its own memory, all but the embeddings."""
        return self.budget.dense_bytes

    @property
    def gguf(self) -> str:
        """The model's file, or a placeholder for it."""
        return self.model.gguf or "MODEL.gguf"

    @property
    def n_experts(self) -> int:
        """The number of experts per layer; the largest if layers differ."""
        return max(layer.n_experts for layer in self.model.layers.values())

    @property
    def cores(self) -> str:
        """The number of the CPU's physical cores, or a placeholder for it."""
        return str(self.machine.cpu_cores or "CORES")

    @property
    def all_experts(self) -> int:
        """The number of experts of all layers."""
        return sum(layer.n_experts for layer in self.model.layers.values())

    def experts_bytes(self, layers: Iterable[int]) -> int:
        """Bytes of all experts of these layers, by number."""
        chosen = (self.model.layers[number] for number in layers)
        return sum(layer.expert_bytes * layer.n_experts for layer in chosen)

    @property
    def expert_bytes(self) -> int:
        """Bytes of the largest expert."""
        return largest_expert_bytes(self.model)

    @property
    def slot_bytes(self) -> int:
        """Bytes of one slot in every layer."""
        return self.model.bank_bytes(1)

    @property
    def gpu_bytes(self) -> int:
        """GPU memory available for weights and caches; 0 without a GPU."""
        return self.budget.gpu_bytes

    @property
    def gpu_error_bytes(self) -> int:
        """How much more than its memory a plan may take of a GPU before it certainly does not fit."""
        return round(estimate("memory.plan_error").value * self.gpu_bytes) if own_memory(self.machine) else 0

    @property
    def ram_bytes(self) -> int:
        """RAM beside what the system and other programs use; 0 if unknown."""
        return self.budget.usable_ram_bytes

    @property
    def socket_ram_bytes(self) -> int:
        """The RAM of one socket beside what the system uses, which may lie all there."""
        memory = self.machine.memory
        others = 0.0 if memory is None else memory.ram_gib.value * (1 - 1 / self.machine.sockets)
        return max(self.ram_bytes - round(others * GIB), 0)


@dataclass(frozen=True)
class Share:
    """What a system keeps in a memory. where: `gpu`, `ram`, or `mapped` for what RAM may but need not hold."""

    what: str
    where: str
    size_bytes: int


@dataclass(frozen=True)
class Cost:
    """An operation that takes a system more or less time than the machine's file says.

    path: of a quantity of the machine, such as `cpu.weights_gb_s`. lo, value, hi: factors of it, or, if not `scales`, a
    replacement for an estimate.
    """

    path: str
    lo: float
    value: float
    hi: float
    source: str
    scales: bool = True

    @classmethod
    def of(cls, path: str, name: str, key: str | None = None) -> Self:
        """The cost with a number of the table of estimates, which scales if its unit is `times`."""
        found = estimate(name, key)
        return cls(path, *found.ends, found.source, found.unit == "times")


@dataclass(frozen=True)
class Launch:
    """How a system is started: its program, flags and environment variables.

    first_start: words with which the program makes the files that it needs, left out where they are given.
    sourced: a file that a shell reads first; empty if none. powershell: whether the line is for PowerShell, and not for
    a POSIX shell. Words in capitals are placeholders: `systems/files.py`.
    """

    words: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    first_start: tuple[str, ...] = ()
    sourced: str = ""
    powershell: bool = False

    @property
    def line(self) -> str:
        """The command line, as written in its shell."""
        if self.powershell:
            return self._in_powershell()
        if self.sourced:
            return f". {shlex.quote(self.sourced)} && {replace(self, sourced='').line}"
        variables = [f"{name}={shlex.quote(value)}" for name, value in self.environment.items()]
        return " ".join([*variables, shlex.join([*self.words, *self.first_start])])

    def command(self, label: str = "") -> Command:
        """The line to paste."""
        return Command(self.line, label, whole=self.powershell)

    def _in_powershell(self) -> str:
        program, *words = (_powershell_word(word) for word in (*self.words, *self.first_start))
        variables = "".join(f"$env:{name} = {_powershell_text(value)}; " for name, value in self.environment.items())
        called = "& " if program.startswith("'") else ""  # a quoted word alone is a text
        return f"{variables}{called}{' '.join([program, *words])}"


# Words that PowerShell hands to a program as they are: it makes arrays at commas, and two words of a flag with a dot or
# a colon. Source: Microsoft's about_Parsing and about_Quoting_Rules.
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_.:/\\+=][A-Za-z0-9_.:/\\+=-]*|-{1,2}[A-Za-z0-9_][A-Za-z0-9_=-]*|-\d[\d.]*")


def _powershell_word(word: str) -> str:
    return word if _PLAIN_WORD.fullmatch(word) else _powershell_text(word)


def _powershell_text(text: str) -> str:
    """A text in single quotes, in which PowerShell replaces nothing."""
    return "'" + text.replace("'", "''") + "'"


@dataclass(frozen=True)
class Plan:
    """A system with its settings on a case: the replay, the order of events, the machine as the system uses it.

    direct_io: whether its reads bypass the page cache.
    """

    setup: Setup
    execution: ExecutionModel
    machine: Machine
    direct_io: bool = False

    def conditions(self, case: Case) -> Conditions:
        return Conditions(
            self.execution,
            case.model.dense_bytes,
            case.kv_bytes,
            self.direct_io,
            checked=True,
            depth=case.depth,
            kv_type=case.kv_type,
            drafts=case.drafts,
        )


@dataclass(frozen=True, kw_only=True)
class System(ABC):
    """One program with one way to place, cache or stream routed experts. Its fields are its settings.

    The first paragraph of a system's docstring is its entry in docs/reference/systems.md; its other lines explain each
    setting. What it is beside them stands in `[systems.NAME]` of the file of its program, which the class names:
    `class Mine(System, program="mine")`, with `name="other"` if the program has several. There, limits are [least] or
    [least, most], and costs name an estimate for each path. A class may also have these attributes itself.

    engine: the program. source: its repository and the commit of its flags, a colon, and where its rule was read.
    keeps: what it keeps where. misses: where the other experts are computed or read from. caches: whether it chooses
    experts to keep; False if it places whole layers, or leaves all to the page cache.
    size: the setting that decides how much memory it uses, empty if it has none; None, its default, is the system's own
        rule. So is None of any setting that the program chooses; 0 is none, and a program's own default is a number.
    gpu: whether it needs a GPU of any kind. own_gpu: True if it needs a GPU with its own memory, False if it needs one
        that shares the RAM.
    several_gpus: whether its rule holds on a machine with several GPUs, which count as one with their total memory.
    splits_sockets: whether it divides every expert over the CPU's sockets by itself.
    several_machines: the same of machines that a network joins.
    program: the file of its engine, in `engines/` or, of a package of its own, beside the class; empty if nothing is
        known of the engine.
    costs: operations that take it more or less time than the machine's file says.
    by_faults: whether it reads experts by page faults of a mapped file, and not by itself.
    cpu_alone: whether the CPU computes everything, even beside a GPU.
    most_tokens: of calls that use its bank, which larger ones bypass; 0: all do.
    limits, words: of settings: the least and the most, or the words, that a value may be.
    choices: other settings worth trying, each with its values; they change the speed but never the text.
    run_choices: choices that only a search by real runs tries, since no published speed shows what they bring.
    prompt_choices: choices that affect only prompts. times_prompts: whether prompts are timed as the engine reads them.
    behind: a system that an answer names before it wherever that one runs, whatever a few percent say.
    has_command: whether it is known how it is started.
    ran_as: published runs that were of it, by engine and strategy as tables of such runs name them.
    fitted_off: ln(predicted / measured) of its published runs before one of its costs was fitted on them.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    engine: ClassVar[str]
    source: ClassVar[str]
    keeps: ClassVar[str]
    misses: ClassVar[str]
    caches: ClassVar[bool] = True
    size: ClassVar[str] = ""
    gpu: ClassVar[bool] = False
    own_gpu: ClassVar[bool | None] = None
    several_gpus: ClassVar[bool] = False
    splits_sockets: ClassVar[bool] = False
    several_machines: ClassVar[bool] = False
    program: ClassVar[str] = ""
    costs: ClassVar[tuple[Cost, ...]] = ()
    by_faults: ClassVar[bool] = False
    cpu_alone: ClassVar[bool] = False
    most_tokens: ClassVar[int] = 0
    limits: ClassVar[Limits] = {}
    words: ClassVar[Choices] = {}
    choices: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    run_choices: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    prompt_choices: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    times_prompts: ClassVar[bool] = True
    behind: ClassVar[str] = ""
    has_command: ClassVar[bool] = True
    ran_as: ClassVar[RanAs] = {}
    fitted_off: ClassVar[float] = 0.0

    def __init_subclass__(cls, *, program: str = "", name: str = "", **given: Any) -> None:
        """A class of a program has the attributes that the program's file declares of the system `name`."""
        super().__init_subclass__(**given)
        if not program:
            return
        cls.program, cls.name = program, name or program
        notes = {key: kind for base in cls.__mro__ for key, kind in vars(base).get("__annotations__", {}).items()}
        kinds = {key: str(kind) for key, kind in notes.items() if str(kind).startswith("ClassVar")}
        for key, value in declared(cls.name, program, kinds, beside=cls.__module__).items():
            setattr(cls, key, tuple(Cost.of(*cost) for cost in value.items()) if key == "costs" else value)

    def __post_init__(self) -> None:
        check("system", self, self.limits, self.words)

    @classmethod
    def ran(cls, run: PublishedRun) -> Self:
        """The system as it was in a published run of its engine and strategy.

        Raises BadInput with the run's place if it does not say what is needed, or did what the system does not do.
        """
        return cls()

    @classmethod
    def drafted(cls, run: PublishedRun) -> Drafts | None:
        """What a published run of it drafted; None of engines whose runs are predicted without drafts."""
        return None

    @property
    def builds(self) -> str:
        """The builds of the engine that its rule is of, in words; empty for those of its source and later ones."""
        return ""

    @property
    def spec(self) -> str:
        """The name with all settings that differ from their defaults, as written after `--system`."""
        return spec_of(self)

    @property
    def size_given(self) -> bool:
        """Whether its size is given, or it has none."""
        return all(getattr(self, item.name) != item.default for item in fields(self) if item.name == self.size)

    @property
    def chosen(self) -> int:
        """Its size; 0 before it is chosen."""
        return getattr(self, self.size) or 0

    @property
    def unsized(self) -> Self:
        """The system with its size still to be chosen, and its other settings unchanged."""
        default = {item.name: item.default for item in fields(self) if item.name == self.size}
        return replace(self, **default)

    @property
    def learns_first_half(self) -> bool:
        """Whether it chooses experts by the first half of the trace on which it is judged."""
        return self.uses_profile and getattr(self, "profile", "") == HALF

    @property
    def uses_profile(self) -> bool:
        """Whether it chooses experts by a profile."""
        return any(item.name == "profile" for item in fields(self))

    @property
    def facts(self) -> EngineFacts | None:
        """What its engine can do, and for whom; None if nothing is known of it."""
        return self.facts_of_engine()

    @classmethod
    def facts_of_engine(cls) -> EngineFacts | None:
        return facts_of(cls.program, beside=cls.__module__) if cls.program else None

    @property
    def kv_types(self) -> tuple[str, ...]:
        """Types of keys and values that its engine takes, as after --kv-type; all of llama.cpp's if it has no facts."""
        return (self.facts.formats.kv_types if self.facts is not None else ()) or tuple(CACHE_TYPES)

    @property
    def unmapped(self) -> tuple[str, ...]:
        """The flags with which it reads files into RAM as a whole instead of mapping them."""
        get = None if self.facts is None else self.facts.get
        return (NO_MMAP,) if get is None else tuple(get.unmapped.split())

    @property
    def common(self) -> bool:
        """Whether anybody can install its engine."""
        return self.facts is not None and self.facts.common

    def whose(self, model: str) -> Whose:
        """Whose error its predictions have. model: its name without the quantization."""
        return Whose(self.name, self.program, self.spec, model)

    @property
    def uses_gpu(self) -> bool:
        return self.gpu or self.own_gpu is not None

    @property
    def fixed_sizes(self) -> bool:
        """Whether the engine takes only the sizes that `sizes` lists, and none between them."""
        return self.facts is not None and bool(self.facts.sizes.allowed)

    def changes_text(self, case: Case) -> str:
        """How it changes the text, such as by fewer experts a token than the model's; empty if it does not."""
        top_k: int = getattr(self, "top_k", None) or 0
        return (
            f"it uses {top_k} of the model's {case.model.top_k} experts a token" if 0 < top_k < case.model.top_k else ""
        )

    @property
    def meaning(self) -> str:
        """The system in one sentence."""
        return " ".join((getdoc(type(self)) or "").partition("\n\n")[0].split())

    @property
    def version(self) -> str:
        """The version of its flags, such as ikawrakow/ik_llama.cpp 8337e4cd3."""
        return re.split("[:,]", self.source)[0]

    def why_not(self, case: Case) -> str:
        """Why the system cannot run in this case at all, or empty."""
        machine, model = case.machine, case.model
        if self.cpu_alone and machine.cpu is None:
            return "needs a CPU that the machine's file describes"
        if self.gpu and machine.gpu is None:
            return "needs a GPU"
        if self.own_gpu is not None and (machine.gpu is None or own_memory(machine) is not self.own_gpu):
            return "needs a GPU with a memory of its own" if self.own_gpu else "needs a GPU that shares the RAM"
        apis = self.facts.platform.apis if self.facts is not None and self.uses_gpu else ()
        if apis and machine.api not in apis and (machine.api or not set(APIS) <= set(apis)):
            return (
                f"needs {' or '.join(apis)}; the machine has {machine.api or 'a GPU whose api its file does not say'}"
            )
        if machine.machines > 1 and not self.several_machines:
            return f"is known for one machine only; these are {machine.machines}"
        if machine.gpus > 1 and not self.several_gpus:
            return f"is known for one GPU only; the machine has {machine.gpus}"
        return self.why_not_engine(model, machine) or self.why_not_kv_type(case) or self.why_not_drafts(case)

    def why_not_drafts(self, case: Case) -> str:
        """Why its engine cannot draft as the case asks, or empty; an engine of the user's own can."""
        if case.drafts is None or self.facts is None:
            return ""
        return self.facts.drafts.why_not(case.drafts, case.model.arch)

    def of_builds(self, case: Case) -> list[str]:
        """The builds of its engine that the answer holds for, in clauses after its name; none if its source's."""
        clauses = [f"is {self.builds}"] if self.builds else []
        if case.drafts is not None and self.facts is not None:
            needed = self.facts.drafts.needs(case.drafts, case.model.arch)
            clauses += [f"drafts with the own layer of {case.model.arch} in {needed}"] if needed else []
        return clauses

    def why_not_kv_type(self, case: Case) -> str:
        """Why its engine cannot keep keys and values as the case asks, or empty."""
        if case.kv_type in self.kv_types:
            return ""
        own = listed(self.kv_types, "or")
        return f"is known to keep keys and values in {own} only; leave out --kv-type {case.kv_type}"

    def why_not_engine(self, model: ModelGeometry, machine: Machine) -> str:
        """Why its engine cannot run a model on a machine, or empty."""
        return "" if self.facts is None else self.facts.why_not(model, machine)

    def how_to_get(self, machine: Machine) -> list[str]:
        """Where to get its engine for a machine, in sentences; none if that is not known."""
        return [] if self.facts is None else self.facts.how_to_get(machine.os)

    def where_from(self, case: Case) -> str:
        """Where its program comes from, in a sentence; empty if that is not known."""
        if self.facts is None:
            return ""
        return self.facts.where_from(self.launch(case).words[0], case.machine.os, case.machine.api)

    def labelled(self, machine: Machine) -> str:
        """Its setting and the program whose command line it is, where programs of one name are many."""
        return self.spec if self.facts is None else f"{self.spec} ({self.facts.named(machine.os)})"

    def get_row(self, machine: Machine) -> dict[str, Any] | None:
        """The same for JSON; None if that is not known."""
        return None if self.facts is None else self.facts.get_row(machine.os)

    def accepted(self, sizes: Sequence[int], case: Case) -> list[int]:
        """Those of ascending numbers of slots that the engine accepts."""
        limits = SlotSizes(source="") if self.facts is None else self.facts.sizes
        return limits.within(sizes, top_k=case.model.top_k, experts=case.n_experts)

    def why_not_slots(self, slots: int | None, case: Case) -> str:
        """Why the engine refuses so many slots, or empty; None: as many as fit."""
        if slots is None or self.facts is None:
            return ""
        return self.facts.sizes.why_not(slots, top_k=case.model.top_k, experts=case.n_experts)

    def sizes(self, case: Case) -> Sequence[int]:
        """Values of the setting `size` worth trying, ascending; those that do not fit are refused when tried."""
        return ()

    def sized(self, case: Case) -> Self:
        """The system with its `size` set as its own rule would; raises BadInput if nothing fits."""
        return self if self.size_given else self.of_size(self.own_size(case))

    def taken(self, sized: Self, case: Case) -> Self:
        """What its own rule has chosen, or BadInput if its engine does not take that."""
        if not self.size_given and (reason := sized.why_not(case)):
            raise Unsupported(reason)
        return sized

    def own_size(self, case: Case) -> int:
        """The size of its own rule; raises BadInput if nothing fits."""
        return self.chosen

    def of_size(self, size: int) -> Self:
        return replace(self, **{self.size: size})

    def at_each_size(self, case: Case) -> list[Self]:
        """The system at each size worth trying, else at its given size or its own rule's.

        Raises BadInput if nothing fits.
        """
        sizes = () if self.size_given else self.sizes(case)
        return [self.of_size(size) for size in sizes] or [self.sized(case)]

    @abstractmethod
    def plan(self, case: Case) -> Plan:
        """The replay and the machine that the settings mean."""

    @abstractmethod
    def memory(self, case: Case) -> tuple[Share, ...]:
        """What it uses of each memory."""

    def each_gpu(self, case: Case) -> list[int]:
        """What it uses of each of several GPUs, in bytes; empty if all have the same part of `memory`."""
        return []

    @abstractmethod
    def launch(self, case: Case) -> Launch:
        """The command that starts it with these settings."""

    def started(self, case: Case) -> Launch:
        """The command that starts it with these settings, drafts and sockets included."""
        mode = self.socket_mode(case)
        if mode:
            case = replace(case, machine=replace(case.machine, cpu_cores=cores(case.machine, mode)))
        windows = case.machine.os == "windows"
        launch = replace(self.launch(case), powershell=windows)
        if self.facts is not None:
            program, *words = launch.words
            launch = replace(launch, words=(self.facts.path_of(program, windows=windows), *words))
        if self.program == LLAMA_CPP and case.model.repository:
            launch = from_repository(launch, case)
        if self.facts is None or "linux" in self.facts.platform.os:
            launch = on_numa(launch, mode, case)
        if case.drafts is None or self.facts is None:
            return launch
        return replace(launch, words=(*launch.words, *self.facts.drafts.words(case.drafts, case.model.arch)))

    def read_in_ram(self, case: Case) -> int:
        """Bytes that it reads in RAM, mapped files included."""
        return sum(share.size_bytes for share in self.memory(case) if share.where in ("ram", "mapped"))

    def socket_mode(self, case: Case) -> str:
        """How it uses two sockets, one of sockets.MODES; empty if there is one, or it reads nothing in RAM.

        As the machine's file says, else as its engine does by itself, else bound to one if that one's RAM has room.
        """
        machine, needed = case.machine, self.read_in_ram(case) if case.machine.sockets > 1 else 0
        if not needed or machine.socket_mode:
            return machine.socket_mode if needed else ""
        if self.splits_sockets:
            return SPLIT
        return BOUND if needed <= case.socket_ram_bytes else INTERLEAVED

    def planned(self, case: Case) -> Plan:
        """The plan, with two sockets as one which computes as they do together."""
        plan = self.plan(case)
        return replace(plan, machine=self.seated(plan.machine, case))

    def seated(self, machine: Machine, case: Case) -> Machine:
        """A machine that it adapted, with two sockets as one which computes as they do on this case."""
        return on_sockets(machine, mode) if (mode := self.socket_mode(case)) else machine

    def conditions(self, plan: Plan, case: Case) -> Conditions:
        """How a plan of it runs, with what its engine takes for drafts."""
        conditions = replace(plan.conditions(case), program=self.engine, attended=self.attended(case.model))
        if case.drafts is None or self.facts is None:
            return conditions
        return replace(conditions, drafts=replace(case.drafts, call_us=self.facts.drafts.call_us))

    def attended(self, model: ModelGeometry) -> int:
        """The most tokens of the context that its attention reads of a model; 0 for all."""
        return 0

    def serving_words(self, case: Case, *, maps: bool = True) -> tuple[str, ...]:
        """Flags of engines like llama.cpp for one user: what the prediction assumes and their defaults leave open.

        maps: whether the engine computes from the mapped file, which is better read into RAM as a whole if that fits.
        """
        words = ("-fa", "on", "-ub", str(case.micro_batch), "-np", "1")
        needed = sum(share.size_bytes for share in self.memory(case) if share.where in ("ram", "mapped"))
        return (*words, *self.unmapped) if maps and 0 < needed <= LOADED_SHARE * case.ram_bytes else words

    def loads_whole(self, case: Case) -> bool:
        """Whether it reads its files into RAM as a whole, so that experts are copied to a GPU from pinned buffers."""
        return self.unmapped[0] in self.serving_words(case)

    def files(self, workload: Workload) -> Mapping[str, bytes]:
        """The files that `launch` names by placeholders such as PROFILE.json, with contents made from a workload."""
        return {}

    def prepared(self, workload: Workload) -> Workload:
        """The workload as the system routes it."""
        return workload

    def replay(self, workload: Workload, setup: Setup) -> Replayed:
        """The recorded replay of a prepared workload, without lookups for calls that bypass the bank."""
        setup = replace(setup, policy=self.taught(setup.policy, workload))
        if (calls := self.looked_up(workload)) is None:
            return run_replay(workload, setup, record=True)
        return replay_in_parts(workload, setup, [np.flatnonzero(calls)])

    def taught(self, policy: Policy, workload: Workload) -> Policy:
        """The policy with what it knows of a workload before it is replayed."""
        return policy

    def looked_up(self, workload: Workload) -> NDArray[np.bool_] | None:
        """Which calls use the bank, bool [calls]; None for all."""
        return workload.trace.n_tokens <= self.most_tokens if self.most_tokens else None

    def with_profile_of(self, trace: RoutingTrace, folder: Path) -> Self | None:
        """The system with a profile of another trace, in a file in `folder`; None if it uses no profile of a trace."""
        return None

    def costs_on(self, machine: Machine) -> tuple[Cost, ...]:
        """The costs that it has with its settings on a machine."""
        return self.costs

    def machine_of(self, case: Case) -> Machine:
        """The machine as the system uses it."""
        return self.adapted(case.machine)

    def adapted(self, machine: Machine) -> Machine:
        """The machine with the system's own costs: factors widen intervals, and only estimates are replaced."""
        quantities = dict(machine.quantities())
        for cost in self.costs_on(machine):
            if (old := quantities.get(cost.path)) is None or not (cost.scales or old.estimated):
                continue
            by = old if cost.scales else replace(old, value=1, lo=1, hi=1)
            source = f"{self.name}: {cost.source}"
            new = Quantity(by.value * cost.value, by.lo * cost.lo, by.hi * cost.hi, source, old.condition, True)
            machine = machine.with_quantity(cost.path, new)
        if self.cpu_alone:
            machine = without_gpu(machine)
        return replace(machine, storage=read_by_faults(machine.storage, machine.os)) if self.by_faults else machine

    def check(self, case: Case) -> None:
        """Raise BadInput if the system cannot run in this case, or does not fit, whatever the error of the plan."""
        if reason := self.why_not(case):
            raise Unsupported(reason)
        shares = self.memory(case)
        gpu = sum(share.size_bytes for share in shares if share.where == "gpu")
        ram = sum(share.size_bytes for share in shares if share.where == "ram")
        if not own_memory(case.machine):
            ram += gpu
        if self.socket_mode(case) == MIRRORED:
            ram = case.machine.sockets * self.read_in_ram(case)
        rooms = [(gpu, case.gpu_bytes, "the GPU", case.gpu_error_bytes), (ram, case.ram_bytes, "RAM", 0)]
        for taken, room, where, error in (
            rooms if case.budget.ram_bytes is not None else []
        ):  # unknown for a fitted machine
            if taken > room + error:
                advice = wired_limit_advice(case.machine, gpu) if where == "the GPU" else ""
                shortage = f"takes {taken / GIB:.1f} GiB of {where}, which has {room / GIB:.1f} for it"
                raise TooLarge(f"{shortage}; {advice}" if advice else shortage)


def on_numa(launch: Launch, mode: str, case: Case) -> Launch:
    """A command bound to a socket, or interleaved over all, on Linux; with flags and threads if it is llama.cpp's kind.

    case: whose machine's cores are those that compute.
    Source: ggml-org/llama.cpp 0c1e57098: --numa in common/arg.cpp; threads are by default as many as all cores.
    """
    if mode not in NUMACTL or case.machine.os == "windows":
        return launch
    flags = ("--numa", LLAMA_NUMA[mode], "-t", case.cores) if _name(launch.words[0]).startswith("llama-") else ()
    return replace(launch, words=("numactl", *NUMACTL[mode], *launch.words, *flags))


def largest_expert_bytes(model: ModelGeometry) -> int:
    return max(layer.expert_bytes for layer in model.layers.values())


def _name(program: str) -> str:
    return program.rpartition("/")[2]


def gpu_weights(case: Case, *, copies: bool = True) -> tuple[Share, ...]:
    """What every engine like llama.cpp keeps on the GPU: dense weights, context and compute buffers.

    copies: whether experts in RAM are copied to the GPU for prompts, which needs a larger buffer.
    """
    return (
        Share("dense weights", "gpu", case.gpu_dense_bytes),
        Share("context", "gpu", case.kv_bytes),
        Share("compute buffers", "gpu", case.compute_bytes(copies=copies)),
        *drafter_share(case, "gpu"),
    )


def ram_weights(case: Case, *more: Share) -> tuple[Share, ...]:
    """What an engine that computes on the CPU keeps in RAM: dense weights, context and more, and the drafter."""
    dense, context = Share("dense weights", "ram", case.dense_bytes), Share("context", "ram", case.kv_bytes)
    return (dense, context, *more, *drafter_share(case, "ram"))


def without_gpu(machine: Machine) -> Machine:
    """The machine as a program uses it that leaves its GPU alone."""
    return replace(machine, gpu=None, link=None, api="")


def drafter_share(case: Case, where: str) -> tuple[Share, ...]:
    """The drafter, if it takes memory."""
    return (Share("drafter", where, case.drafter_bytes),) if case.drafter_bytes else ()


def gpu_left(case: Case) -> int:
    """GPU memory beside `gpu_weights` for what is yet to be sized; less what a chosen size leaves free."""
    return case.budget.gpu_left_bytes - case.spare_bytes


def free_bytes(case: Case, shares: Sequence[Share]) -> dict[str, int | None]:
    """What these shares leave free of the GPU's memory and of the RAM beside the system's; None if it is not known.

    A driver and a desktop use some of the GPU's. What is mapped counts as in RAM, as far as it fits. If the GPU shares
    the RAM, what it holds counts in both.
    """
    kept = {where: sum(one.size_bytes for one in shares if one.where == where) for where in ("gpu", "ram", "mapped")}
    if case.budget.ram_bytes is None:
        return {"gpu": None, "ram": None}
    ram = case.ram_bytes - kept["ram"] - (0 if own_memory(case.machine) else kept["gpu"])
    gpu = None if case.machine.gpu is None else case.gpu_bytes - kept["gpu"]
    return {"gpu": gpu, "ram": max(ram - kept["mapped"], 0)}


def ladder(least: int, most: int) -> list[int]:
    """Sizes worth trying from `least` to `most`, both included."""
    return sorted({least, most, *(size for size in LADDER if least < size < most)}) if least <= most else []


def llama_words(case: Case, *words: str, program: str = "llama-server") -> tuple[str, ...]:
    """A command line like llama.cpp's, with the model and, as far as they are known, the context and its type."""
    return (program, "-m", case.gguf, *context_words(case), *words)


def from_repository(launch: Launch, case: Case) -> Launch:
    """A command line of llama.cpp that downloads the model at its first start, instead of naming its file."""
    at = launch.words.index("-m")
    return replace(launch, words=(*launch.words[:at], "-hf", case.model.repository, *launch.words[at + 2 :]))


def context_words(case: Case) -> tuple[str, ...]:
    """llama.cpp's flags for the context and the type of its cache; none if its defaults will do."""
    context = ("-c", str(case.context)) if case.context else ()
    kv_type = () if case.kv_type == DEFAULT_TYPE else ("-ctk", case.kv_type, "-ctv", case.kv_type)
    return (*context, *kv_type)


def halved(most: int, *, least: int = 1) -> list[int]:
    """The largest size, its half, quarter and eighth in ascending order, without those below `least`."""
    return sorted({size for size in (most // 8, most // 4, most // 2, most) if size >= least})


def no_room(what: str, room: int) -> BadInput:
    """The error if nothing that a system keeps fits beside the rest."""
    return TooLarge(f"{max(room, 0) / GIB:.1f} GiB are left for {what}, too little")
