"""The checks of `sim bridge doctor` that are specific to the runtime."""

from __future__ import annotations

import os
from collections.abc import Iterator

from flashmoe_sim.budget import MemoryBudget
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.sizes import size
from flashmoe_sim.systems.slot_bank_flags import COMMIT, IO_SPLIT, NO_GPU_BANK, ON_GPU, PREFETCH, VARIABLES
from native_bridge.engines.base import DoctorFinding, Runtime
from native_bridge.engines.flashmoe.modes import DROPPED, GET_ONE
from native_bridge.engines.llama_program import version_of

NEEDED = (
    *("--moe-mode", "--moe-sidecar", "--moe-slot-bank", "--moe-trace", "--moe-trace-harness"),
    *("--perf", "--no-escape", "--no-warmup", "--simple-io", "--logit-bias", "-lv"),
)
USEFUL = ("--moe-topk", IO_SPLIT, *PREFETCH.values(), "--list-devices")


def program(runtime: Runtime) -> Iterator[DoctorFinding]:
    """The program, its version, its devices and its flags."""
    yield DoctorFinding("ok", "runtime", str(runtime.path))
    yield version_of(runtime, verified=COMMIT, to_do="compare them with `sim replay`")
    yield DoctorFinding("ok", "backends", ", ".join(runtime.backends))
    devices = [f"{device.name}: {device.description}, {size(device.free_bytes)} free" for device in runtime.devices]
    yield DoctorFinding("ok", "devices", "; ".join(devices) or "the CPU alone")
    yield from _flags(runtime)


def _flags(runtime: Runtime) -> Iterator[DoctorFinding]:
    lacking = [flag for flag in NEEDED if flag not in runtime.flags]
    if not runtime.modes:
        yield DoctorFinding("missing", "flags", "no --moe-mode: a llama-cli that is not patched", GET_ONE)
    elif lacking:
        yield DoctorFinding("missing", "flags", f"lacks {', '.join(lacking)}", f"it is another version; {GET_ONE}")
    else:
        yield DoctorFinding("ok", "modes", ", ".join(runtime.modes))
    without = [flag for flag in USEFUL if flag not in runtime.flags]
    if runtime.modes and without:
        yield DoctorFinding("warning", "flags", f"lacks {', '.join(without)}", "runs that need them cannot be made")


def environment() -> Iterator[DoctorFinding]:
    """Variables that change a run, and variables that are hidden from it."""
    if switches := [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith(VARIABLES)]:
        yield DoctorFinding("ok", "switches", ", ".join(switches))
    if dropped := sorted(name for name in os.environ if name.startswith(DROPPED)):
        yield DoctorFinding("warning", "environment", f"{', '.join(dropped)}: not passed on", "give the flags after --")


def gpu_memory(runtime: Runtime, model: ModelGeometry, bank: int | None) -> DoctorFinding:
    """The GPU's free memory, as the runtime reports it, against the layers without their experts, and the bank."""
    free = sum(device.free_bytes for device in runtime.devices)
    names = ", ".join(device.name for device in runtime.devices)
    if not any(device.total_bytes for device in runtime.devices):
        return DoctorFinding(
            "warning", "gpu memory", f"not known: the runtime reports none of {names}", "look yourself"
        )
    slots = bank or model.top_k
    on_gpu = _shares_memory(runtime) or model.arch in ON_GPU
    budget = MemoryBudget(gpu="own", gpu_memory_bytes=free, dense_bytes=model.dense_bytes or 0)
    bank_bytes = model.bank_bytes(slots) if on_gpu else 0
    what = f"all layers and a bank of {slots}" if on_gpu else "all layers without their experts"
    found = f"{size(free)} free on {names}: {what} take {size(budget.taken_bytes + bank_bytes)}"
    if bank_bytes <= budget.left_bytes:
        return DoctorFinding("ok", "gpu memory", found)
    return DoctorFinding("warning", "gpu memory", found, "the runtime leaves layers to the CPU; or give a smaller bank")


def bank_place(runtime: Runtime, model: ModelGeometry) -> DoctorFinding:
    """Where a build for a GPU puts the bank; the log of a run says where it went."""
    if os.environ.get(NO_GPU_BANK, "0") not in ("", "0"):
        return DoctorFinding(
            "warning", "bank", f"in the host's memory: {NO_GPU_BANK} is set", "unset it for a bank on the GPU"
        )
    if _shares_memory(runtime):
        return DoctorFinding("ok", "bank", "in the memory that CPU and GPU share")
    if model.arch in ON_GPU:
        return DoctorFinding("ok", "bank", "on the GPU, where its layer is")
    return DoctorFinding(
        "warning",
        "bank",
        f"in the host's memory, whatever --gpu-layers says: {runtime.devices[0].name} cannot map the runtime's bank, "
        "so that nothing is uploaded and the CPU computes the experts",
        "a log shows it: `CPU_Mapped model buffer size`, upload=0; see docs/guides/bridge.md",
    )


def _shares_memory(runtime: Runtime) -> bool:
    """Whether the GPU is Metal's, which computes from the host's memory."""
    return any(device.name.startswith(("MTL", "Metal")) for device in runtime.devices)
