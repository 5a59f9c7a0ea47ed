"""What a search needs of a program that it runs: its build, the command of a run, and what it printed."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from flashmoe_sim.tune.objective import Objective
from flashmoe_sim.tune.trials import THREADS, UBATCH

OURS, IK = ("placed", "all-gpu", "cpu"), ("placed-ik", "cpu-ik")  # systems that both programs run
MMAP, NUMA, CORES = "mmap", "numa", "cores"  # knobs, beside threads and micro-batches
KV, DRAFT = "kv", "draft"  # knobs that make a case of its own
PINNED = ("--cpu-mask", "--cpu-strict")
SERVER = "llama-server"
KNOB_FLAGS = {THREADS: "-t", NUMA: "--numa", UBATCH: "-ub"}  # of all llama.cpp's programs
_NO_MEMORY = re.compile(
    r"out of memory|unable to allocate|failed to allocate|cudaMalloc failed|OutOfDeviceMemory|cannot allocate memory",
    re.IGNORECASE,
)
_OF_GPU = re.compile(r"cuda|hip|rocm|vulkan|vk::|sycl|metal|device", re.IGNORECASE)


@dataclass(frozen=True)
class Wanted:
    """What a run measures. tokens: that a repeat generates, if there is an answer. depth: in the context before."""

    objective: Objective
    tokens: int
    repeats: int
    depth: int

    @property
    def prompt_tokens(self) -> int:
        """Timed in a repeat; 0 if prompts do not count."""
        return self.objective.prompt_tokens if self.objective.goal != "decode" else 0

    @property
    def decodes(self) -> bool:
        """Whether answers count."""
        return self.objective.goal != "prompt"


@dataclass(frozen=True)
class Printed:
    """What a run printed. seconds: of the objective. sd: of their logarithm, of the mean of its repeats.

    timed_s: of all repeats. slowed: the last repeat's speed over the first one's; 1 for one repeat.
    """

    seconds: float
    sd: float
    timed_s: float
    slowed: float


@dataclass(frozen=True)
class Program(ABC):
    """A program that is run. flags: those in its --help. version: as it says, empty if it does not."""

    path: Path
    flags: frozenset[str]
    version: str

    name: ClassVar[str]
    maps: ClassVar[frozenset[str]]  # flags that say how the model is loaded
    any_system: ClassVar[bool]  # whether it runs others than `systems`, if they are named
    drafts: ClassVar[bool] = False
    filled_tokens: ClassVar[int] = 0  # that it reads before each answer

    @property
    @abstractmethod
    def is_ik(self) -> bool:
        """Whether it is of ik_llama.cpp."""

    @property
    def systems(self) -> tuple[str, ...]:
        """The systems that it runs."""
        places = "--n-cpu-moe" in self.flags
        return tuple(name for name in (IK if self.is_ik else OURS) if places or not name.startswith("placed"))

    @property
    def knobs(self) -> tuple[str, ...]:
        """What it can set beside what the systems have as settings."""
        return (
            THREADS,
            UBATCH,
            *([MMAP] if self.maps & self.flags else []),
            *([NUMA] if "--numa" in self.flags else []),
            *([CORES] if self.flags.issuperset(PINNED) else []),
        )

    def check(self, objective: Objective, depth: int) -> None:  # noqa: B027  # most measure everything
        """Raise BadInput for what it cannot measure."""

    def prepare(self, model: Path) -> None:  # noqa: B027  # most read the model alone
        """Write what its runs read beside the model."""

    def started(self, words: Sequence[str]) -> list[str]:
        """The line of a setting for the build that runs: its llama-server is beside it."""
        at, server = place_of_server(words), self.path.with_name(SERVER)
        return [str(server) if number == at and server.is_file() else word for number, word in enumerate(words)]

    def lacking(self, words: Sequence[str]) -> str:
        """The first flag of a line that this build does not have; empty if it has all."""
        return ""

    @abstractmethod
    def command(self, words: Sequence[str], model: Path, wanted: Wanted) -> list[str]:
        """The run of a setting. words: of the line that starts it."""

    @abstractmethod
    def read(self, text: str, words: Sequence[str], wanted: Wanted, *, model_bytes: int) -> Printed:
        """The speeds that a run printed.

        Raises BadInput if it printed none, or if they are of another setting or another model than was asked.
        """


def place_of_server(words: Sequence[str]) -> int | None:
    """Where a line names llama-server; None if it starts another program."""
    return next((at for at, word in enumerate(words) if Path(word).name == SERVER), None)


def memory_lacking(log: str) -> str:
    """The memory that a log says was too small: `gpu` or `ram`; empty if none was."""
    line = next((line for line in log.splitlines() if _NO_MEMORY.search(line)), "")
    return "" if not line else "gpu" if _OF_GPU.search(line) else "ram"


def after(words: Sequence[str], flag: str) -> str | None:
    """The value of a flag in a line; None if it is not there."""
    return words[words.index(flag) + 1] if flag in words else None
