"""Why a machine may be slower or faster than its parts: causes, and the command that tells each."""

from __future__ import annotations

import math
from dataclasses import dataclass

from flashmoe_sim.machines.learning import Observation
from flashmoe_sim.machines.machine import Machine

MOST = 3  # causes that are named
LEAST = 0.08  # of the likelihood of the most likely one
NVIDIA = "nvidia"
OF_SERVERS_GB_S = 120  # more than two channels of RAM deliver


@dataclass(frozen=True)
class Cause:
    """A reason, in a clause after "most likely".

    tell: what to do to find out. odds: before any measurement, beside the others'. changes: what it multiplies numbers
    of the machine by, by path; or times: the speed. spread: standard deviation of the logarithm of its effect.
    """

    what: str
    tell: str
    odds: float
    changes: dict[str, float] | None = None
    times: float = 1.0
    spread: float = 0.2


RAM_PATHS = (
    "memory.bandwidth_gb_s",
    "memory.copy_gb_s",
    "cpu.weights_gb_s",
    "cpu.attention_gb_s",
    "link.pageable_gb_s",
)
CPU_PATHS = ("cpu.weights_gb_s", "cpu.attention_gb_s")
GPU_PATHS = ("gpu.weights_gb_s", "gpu.attention_gb_s")


def explained(one: Observation, now: tuple[float, float], machine: Machine, *, prompt: bool) -> list[Cause]:
    """The causes that explain a measurement best, the most likely one first.

    now: mean and standard deviation of the logarithm of the speed that is expected without any cause.
    """
    here = one.speed_on(machine)
    slower = math.log(one.tok_s) < now[0]
    likely = []
    for cause in _slower(machine) if slower else _faster(now, prompt=prompt):
        times = cause.times if cause.changes is None else one.speed_on(_changed(machine, cause.changes)) / here
        sd = math.hypot(now[1], cause.spread)
        off = (math.log(one.tok_s) - now[0] - math.log(times)) / sd
        likely.append((cause.odds * math.exp(-off * off / 2) / sd, cause))
    likely.sort(key=lambda each: -each[0])
    return [cause for weight, cause in likely[:MOST] if weight >= LEAST * likely[0][0]]


def _changed(machine: Machine, changes: dict[str, float]) -> Machine:
    known = dict(machine.quantities())
    return machine.with_values({path: times * known[path].value for path, times in changes.items() if path in known})


def _slower(machine: Machine) -> list[Cause]:
    windows = machine.os == "windows"
    ram = (
        "look at Speed in `Get-CimInstance Win32_PhysicalMemory`"
        if windows
        else "look at Speed in `sudo dmidecode -t memory`"
    )
    busy = "Task Manager" if windows else "`top`"
    reads = "Resource Monitor" if windows else "`vmstat 1`, column bi"
    if machine.os == "macos":
        busy = reads = "Activity Monitor"
    found = [
        Cause("another program used the machine", f"watch {busy} while it runs", 2, times=0.5, spread=0.4),
        Cause(
            "the model did not stay in RAM and was read again and again",
            f"watch {reads}, while it runs",
            2,
            times=0.2,
            spread=0.7,
        ),
        Cause("it ran hot and slowed down", "run it again after ten minutes of rest", 1, times=0.65),
    ]
    if not machine.unified and machine.cpu is not None:
        found += [
            Cause(
                "the RAM runs in one channel or without its XMP or EXPO profile, at half its speed",
                ram,
                3,
                dict.fromkeys(RAM_PATHS, 0.5),
            ),
            Cause(
                "more or fewer threads ran than the CPU has cores",
                "run it again with -t and the number of cores",
                1.5,
                dict.fromkeys(CPU_PATHS, 0.6),
            ),
            Cause(
                "the engine was built without the CPU's AVX instructions",
                "look at system_info in its log",
                1,
                dict.fromkeys(CPU_PATHS, 0.15),
                spread=0.4,
            ),
        ]
        if machine.memory is not None and machine.memory.bandwidth_gb_s.value > OF_SERVERS_GB_S:
            found.append(
                Cause(
                    "this is a virtual machine, which gets a share of the processor's memory channels",
                    "measure it with `sim machine probe`, and give its file as --machine",
                    3,
                    dict.fromkeys(RAM_PATHS, 0.4),
                    spread=0.4,
                )
            )
    if machine.link is not None and machine.gpu is not None and machine.cpu is not None:
        width = (
            "look at Link Width in `nvidia-smi -q`"
            if machine.gpu_maker == NVIDIA
            else "look at LnkSta in `sudo lspci -vv`"
        )
        found.append(
            Cause(
                "the GPU's link is narrower than it should be, such as x4",
                width,
                1,
                {"link.pinned_gb_s": 0.25, "link.pageable_gb_s": 0.25},
            )
        )
        if machine.gpu.weights_gb_s is not None and machine.cpu.weights_gb_s is not None:
            as_cpu = machine.cpu.weights_gb_s.value / machine.gpu.weights_gb_s.value
            found.append(
                Cause(
                    "fewer layers were on the GPU than -ngl says",
                    "look at `offloaded N/N layers to GPU` in its log",
                    2,
                    dict.fromkeys(GPU_PATHS, as_cpu),
                )
            )
    return found


def _faster(now: tuple[float, float], *, prompt: bool) -> list[Cause]:
    found = [
        Cause("the parts are better than those given", "look at `sim machine show`", 2, times=1.8, spread=0.4),
        Cause(
            "the file is smaller than the model in question",
            "look at the size of the model in its log",
            2,
            times=2.0,
            spread=0.4,
        ),
        Cause("drafts were on", "run it again without them", 1, times=1.7, spread=0.3),
    ]
    if not prompt:
        inverse = 1000 / math.exp(2 * now[0])
        found.append(
            Cause(
                "it is milliseconds a token, not tokens a second",
                "look at the unit",
                1,
                times=inverse,
                spread=0.05,
            )
        )
        found.append(Cause("it is the speed of the prompt", "add the word prompt to it", 1, times=12.0, spread=0.8))
    return found
