"""Why a machine may be slower or faster than its parts: the possible causes, and how to check each."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib import resources
from typing import Any

from flashmoe_sim.budget import most_wired_mib, own_memory
from flashmoe_sim.machines.estimates import estimate
from flashmoe_sim.machines.learning import Observation
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.machines.parts import catalogue
from flashmoe_sim.systems.base import Case, System

FILE = "causes.toml"
MOST, FEWEST = 3, 2  # causes that are named
LEAST = 0.08  # of the likelihood of the most likely one, for those beyond FEWEST
SAME = 0.97  # of the speed: a cause that changes less explains nothing
PATHS = {
    "RAM": (
        "memory.bandwidth_gb_s",
        "memory.copy_gb_s",
        "cpu.weights_gb_s",
        "cpu.attention_gb_s",
        "link.pageable_gb_s",
    ),
    "CPU": ("cpu.weights_gb_s", "cpu.attention_gb_s"),
    "GPU": ("gpu.weights_gb_s", "gpu.attention_gb_s"),
    "link": ("link.pinned_gb_s", "link.pageable_gb_s"),
    "storage": ("storage.read_gb_s",),
}


@dataclass(frozen=True)
class Cause:
    """A reason, in a clause after "most likely".

    tell: what to do to find out. odds: before any measurement, beside the others'. needs: what must hold of what ran,
    of CONDITIONS. Each of its effects is as likely as another: times, of the speed; factors, of the numbers of the
    machine in PATHS[paths]; on_cpu, shares of the GPU's work that the CPU does instead; inverse: a time read as
    a speed. spread: standard deviation of the logarithm of an effect.
    """

    what: str
    tell: str
    odds: float
    spread: float
    source: str
    needs: tuple[str, ...] = ()
    times: tuple[float, ...] = ()
    paths: str = ""
    factors: tuple[float, ...] = ()
    on_cpu: tuple[float, ...] = ()
    inverse: bool = False


@dataclass(frozen=True, eq=False)
class Ran:
    """What was measured, by which a cause can be or cannot.

    case: the machine as its owner gave it. prompt: whether a prompt was timed. depth: tokens in the context before.
    """

    system: System
    case: Case
    observation: Observation
    prompt: bool = False
    depth: int = 0
    moved: dict[tuple[str, float], float] = field(default_factory=dict)

    @property
    def machine(self) -> Machine:
        return self.case.machine

    @cached_property
    def tok_s(self) -> float:
        """The speed that the parts promise."""
        return self.observation.speed_on(self.machine)

    def times(self, paths: str, factor: float) -> float:
        """What a factor of these numbers of the machine multiplies the speed by; 1 if it has none of them."""
        if (paths, factor) not in self.moved:
            known = dict(self.machine.quantities())
            changed = {path: factor * known[path].value for path in PATHS[paths] if path in known}
            speed = self.observation.speed_on(self.machine.with_values(changed)) if changed else self.tok_s
            self.moved[paths, factor] = speed / self.tok_s
        return self.moved[paths, factor]

    def is_full(self, *where: str) -> bool:
        """Whether the plan nearly fills the GPU's memory, or the RAM for models; False if it is unknown."""
        case, shared = self.case, self.machine.unified and "gpu" not in where
        places = (*where, "gpu") if shared else where
        room = case.gpu_bytes if "gpu" in where else case.ram_bytes
        kept = sum(share.size_bytes for share in self.system.memory(case) if share.where in places)
        return bool(room) and kept >= estimate("causes.nearly_full").value * room

    @property
    def forms(self) -> set[tuple[str, str]]:
        """The kinds and forms of the parts in the machine's title, such as a CPU of a laptop."""
        titles = set(self.machine.title.split(", "))
        return {(part.kind, part.form) for part in catalogue().values() if part.title in titles}

    @property
    def of_laptop(self) -> bool:
        return any(form == "laptop" for _, form in self.forms)

    @property
    def of_server(self) -> bool:
        """Whether its CPU is a server's or a workstation's, of many channels of RAM and maybe of two sockets."""
        memory = self.machine.memory
        many = memory is not None and memory.bandwidth_gb_s.value > estimate("causes.server_ram_gb_s").value
        return many or bool(self.forms & {("cpu", "server"), ("cpu", "workstation")})

    @property
    def uploads(self) -> bool:
        """Whether experts move to a GPU of its own memory, or would for its cache."""
        return own_memory(self.machine) and (self.system.caches or self.times("link", 0.25) < SAME)

    @property
    def gpu_computes(self) -> bool:
        return self.machine.gpu is not None and self.times("GPU", 0.5) < SAME


CONDITIONS: Mapping[str, Callable[[Ran], bool]] = {
    "a laptop": lambda ran: ran.of_laptop,
    "a server": lambda ran: ran.of_server,
    "a desktop or laptop": lambda ran: not ran.of_server,
    "RAM of its own": lambda ran: not ran.machine.unified,
    "RAM nearly full": lambda ran: ran.is_full("ram", "mapped"),
    "GPU nearly full": lambda ran: ran.is_full("gpu"),
    "Windows": lambda ran: ran.machine.os == "windows",
    "not Windows": lambda ran: ran.machine.os != "windows",
    "macOS": lambda ran: ran.machine.os == "macos",
    "a GPU that computes": lambda ran: ran.gpu_computes,
    "a GPU of NVIDIA": lambda ran: ran.machine.gpu_maker == "nvidia" and ran.gpu_computes,
    "a GPU of AMD": lambda ran: ran.machine.gpu_maker == "amd" and ran.gpu_computes,
    "a GPU of Intel": lambda ran: ran.machine.gpu_maker == "intel" and ran.gpu_computes,
    "a GPU of another maker than NVIDIA": lambda ran: ran.machine.gpu_maker in ("amd", "intel"),
    "uploads of experts": lambda ran: ran.uploads,
    "no uploads of experts": lambda ran: not ran.uploads,
    "several GPUs": lambda ran: own_memory(ran.machine) and ran.machine.gpus > 1 and ran.gpu_computes,
    "one GPU beside layers on the CPU": lambda ran: (
        own_memory(ran.machine) and ran.machine.gpus == 1 and ran.gpu_computes and ran.times("CPU", 0.5) < SAME
    ),
    "a cache of experts": lambda ran: ran.system.caches,
    "generating": lambda ran: not ran.prompt,
    "an empty context": lambda ran: not ran.depth,
}


def explained(ran: Ran, now: tuple[float, float]) -> list[Cause]:
    """The causes that explain a measurement best, the most likely one first: FEWEST at least, if so many can be.

    now: mean and standard deviation of the logarithm of the speed that is expected without any cause.
    """
    off = math.log(ran.observation.tok_s) - now[0]
    likely: list[tuple[float, Cause]] = []
    for cause in causes()["slower" if off < 0 else "faster"]:
        if not all(CONDITIONS[need](ran) for need in cause.needs):
            continue
        effects = [math.log(times) for times in _effects(cause, ran, now[0]) if (times < SAME) == (off < 0)]
        if effects:
            sd = math.hypot(now[1], cause.spread)
            fits = sum(math.exp(-(((off - effect) / sd) ** 2) / 2) for effect in effects) / len(effects)
            likely.append((cause.odds * fits / sd, cause))
    likely.sort(key=lambda each: -each[0])
    weights = [weight for weight, _ in likely[:MOST]]
    named = [place < FEWEST or weight >= LEAST * weights[0] for place, weight in enumerate(weights)]
    return [_in_words(cause, ran.machine) for (_, cause), is_named in zip(likely, named, strict=False) if is_named]


@cache
def causes() -> dict[str, tuple[Cause, ...]]:
    """What the file beside this one has, by `slower` and `faster`."""
    text = resources.files("flashmoe_sim.measured").joinpath(FILE).read_text(encoding="utf-8")
    return {which: tuple(_cause(row) for row in rows) for which, rows in tomllib.loads(text).items()}


def _cause(row: Mapping[str, Any]) -> Cause:
    found: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
    return Cause(**found)


def _effects(cause: Cause, ran: Ran, expected: float) -> list[float]:
    """What it multiplies the speed by, one after the other."""
    if cause.inverse:
        return [1000 / math.exp(2 * expected)]
    if cause.paths:
        return [ran.times(cause.paths, factor) for factor in cause.factors]
    if cause.on_cpu:
        gpu, cpu = ran.machine.gpu, ran.machine.cpu
        if gpu is None or cpu is None or gpu.weights_gb_s is None or cpu.weights_gb_s is None:
            return []
        slower = gpu.weights_gb_s.value / cpu.weights_gb_s.value
        return [ran.times("GPU", 1 / (1 - share + share * slower)) for share in cause.on_cpu]
    return list(cause.times)


def _in_words(cause: Cause, machine: Machine) -> Cause:
    """The cause, with how to check it on this machine."""
    windows, macos = machine.os == "windows", machine.os == "macos"
    words = {
        "busy": "Activity Monitor" if macos else "Task Manager" if windows else "`top`",
        "reads": "Activity Monitor" if macos else "Resource Monitor" if windows else "`vmstat 1`, column bi,",
        "ram": "look at Speed in `Get-CimInstance Win32_PhysicalMemory`"
        if windows
        else "look at Speed in `sudo dmidecode -t memory`",
        "link": "look at Link Width in `nvidia-smi -q`"
        if machine.gpu_maker == "nvidia"
        else "look at the GPU's bus in GPU-Z"
        if windows
        else "look at LnkSta in `sudo lspci -vv`",
        "cores": str(machine.cpu_cores or "and the number of its fast cores"),
        "wired_mib": str(most_wired_mib(machine)),
    }
    return replace(cause, tell=cause.tell.format(**words))
