"""What a machine, a runtime, a model and its sidecar need to be run together, and what is missing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from flashmoe_sim.geometry.gguf import read_gguf
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.io.sizes import size
from native_bridge import host
from native_bridge.confine import confined
from native_bridge.runtime import GET_ONE, Runtime, describe, find_runtime

VERIFIED_COMMIT = "64e25509b"
NEEDED = (
    *("--moe-mode", "--moe-sidecar", "--moe-slot-bank", "--moe-trace", "--moe-trace-harness"),
    *("--perf", "--no-escape", "--no-warmup", "--simple-io", "--logit-bias", "-lv"),
)
USEFUL = (
    *("--moe-topk", "--moe-cache-io-split", "--moe-prefetch-temporal", "--moe-predict-prev-token"),
    *("--moe-predict-top1-prev", "--list-devices"),
)
ON_GPU = ("gemma4",)  # whose bank the runtime allocates as any other weights, and so on the GPU
SWITCH, DROPPED, NO_GPU_BANK = "LLAMA_FLASH_MOE_", "LLAMA_ARG_", "LLAMA_FLASH_MOE_DISABLE_GPU_BANK"
PROGRAM_BYTES = 450 << 20  # of the runtime itself, its graph and a short context


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. state: ok, warning or missing; what to do is empty where nothing is."""

    state: str
    name: str
    found: str
    to_do: str = ""


def examine(
    *, runtime: str | None = None, model: Path | None = None, sidecar: Path | None = None, bank: int | None = None
) -> list[Finding]:
    """Everything that a run needs, looked at one by one; what cannot be looked at is a finding, too.

    model: a GGUF file, None for the small one that ships. bank: slots a layer that shall fit into memory.
    """
    described = _described(runtime)
    findings = [*_runtime(described), *_environment(), *_amx()]
    if model is None and sidecar is not None:
        return [*findings, Finding("missing", "model", "a sidecar, but not its model", "give --model, too")]
    geometry: ModelGeometry | None = None
    try:
        if model is None:
            from native_bridge.fixture import bundled_model

            model = bundled_model()
        geometry = read_gguf(model)
    except BadInput as error:
        findings.append(_missing("model", error))
    if geometry is not None:
        assert model is not None
        findings += [_model(geometry), *_streamed(geometry), *_ram(geometry, bank)]
        if isinstance(described, Runtime) and described.devices:
            findings += [_gpu_memory(described, geometry, bank), _bank_place(described, geometry)]
        findings += _sidecar(geometry, model, sidecar)
    return [*findings, *_temperature(), _page_cache()]


def _described(given: str | None) -> Runtime | BadInput:
    try:
        return describe(find_runtime(given))
    except BadInput as error:
        return error


def _runtime(runtime: Runtime | BadInput) -> Iterator[Finding]:
    if isinstance(runtime, BadInput):
        yield _missing("runtime", runtime)
        return
    yield Finding("ok", "runtime", str(runtime.path))
    version = f"{runtime.version} ({runtime.commit}), built with {runtime.compiler}"
    if runtime.commit == VERIFIED_COMMIT:
        yield Finding("ok", "version", version)
    else:
        yield Finding(
            "warning",
            "version",
            version,
            f"counts were verified with {VERIFIED_COMMIT}; compare them with `sim replay`",
        )
    yield Finding("ok", "backends", ", ".join(runtime.backends))
    devices = [f"{device.name}: {device.description}, {size(device.free_bytes)} free" for device in runtime.devices]
    yield Finding("ok", "devices", "; ".join(devices) or "the CPU alone")
    yield from _flags(runtime)


def _flags(runtime: Runtime) -> Iterator[Finding]:
    lacking = [flag for flag in NEEDED if flag not in runtime.flags]
    if not runtime.modes:
        yield Finding("missing", "flags", "no --moe-mode: a llama-cli that is not patched", GET_ONE)
    elif lacking:
        yield Finding("missing", "flags", f"lacks {', '.join(lacking)}", f"it is another version; {GET_ONE}")
    else:
        yield Finding("ok", "modes", ", ".join(runtime.modes))
    without = [flag for flag in USEFUL if flag not in runtime.flags]
    if runtime.modes and without:
        yield Finding("warning", "flags", f"lacks {', '.join(without)}", "runs that need them cannot be made")


def _amx() -> Iterator[Finding]:
    if host.amx_trap():
        yield Finding(
            "warning",
            "processor",
            f"{host.cpu_name()}: announces AMX, and the system does not grant it",
            host.AMX_ADVICE,
        )
    else:
        yield Finding("ok", "processor", host.machine_name())


def _model(model: ModelGeometry) -> Finding:
    layers = list(model.layers.values())
    experts = _range([layer.n_experts for layer in layers])
    each = sorted({layer.expert_bytes for layer in layers})
    costs = size(each[0]) if len(each) == 1 else f"{size(each[0])} to {size(each[-1])}"
    found = (
        f"{model.name}: {model.arch}, {len(layers)} MoE layers of {experts} experts, top-{model.top_k}, {costs} each"
    )
    return Finding("ok", "model", found)


def _streamed(model: ModelGeometry) -> Iterator[Finding]:
    from native_bridge.fixture.sidecar import STREAMED

    if model.arch not in STREAMED:
        yield Finding(
            "warning",
            "architecture",
            f"the slot bank streams {', '.join(STREAMED)}, not {model.arch}",
            "run it all resident (stock, resident-bank), or record it with sim trace capture",
        )


def _ram(model: ModelGeometry, bank: int | None) -> Iterator[Finding]:
    free, dense = host.free_ram_bytes(), model.dense_bytes or 0
    rest, slot = dense + PROGRAM_BYTES, model.bank_bytes(1)
    experts = max(layer.n_experts for layer in model.layers.values())
    fits = min(experts, (free - rest) // slot)
    if bank is None:
        if fits < model.top_k:
            yield _no_memory(free, rest + slot * model.top_k, f"a bank of {model.top_k}", "end other programs")
        else:
            yield Finding("ok", "memory", f"{size(free)} free: a bank of up to {fits} of {experts} slots fits")
        return
    needs = rest + model.bank_bytes(bank)
    if bank > experts:
        yield Finding("missing", "memory", f"a bank of {bank}, but {experts} experts", f"give --bank up to {experts}")
    elif bank < model.top_k:
        yield Finding(
            "missing", "memory", f"a bank of {bank} for top-{model.top_k}", f"give --bank {model.top_k} or more"
        )
    elif needs > free:
        yield _no_memory(
            free, needs, f"a bank of {bank}", f"give --bank {fits}" if fits >= model.top_k else "add memory"
        )
    else:
        yield Finding("ok", "memory", f"{size(free)} free: a bank of {bank} and the rest take {size(needs)}")


def _gpu_memory(runtime: Runtime, model: ModelGeometry, bank: int | None) -> Finding:
    """The GPU's free memory, as the runtime reports it, against the layers without their experts, and its bank."""
    free = sum(device.free_bytes for device in runtime.devices)
    names = ", ".join(device.name for device in runtime.devices)
    if not any(device.total_bytes for device in runtime.devices):
        return Finding("warning", "gpu memory", f"not known: the runtime reports none of {names}", "look yourself")
    slots = bank or model.top_k
    on_gpu = _shares_memory(runtime) or model.arch in ON_GPU
    needs = (model.dense_bytes or 0) + (model.bank_bytes(slots) if on_gpu else 0)
    what = f"all layers and a bank of {slots}" if on_gpu else "all layers without their experts"
    found = f"{size(free)} free on {names}: {what} take {size(needs)}"
    if needs <= free:
        return Finding("ok", "gpu memory", found)
    return Finding("warning", "gpu memory", found, "the runtime leaves layers to the CPU; or give a smaller bank")


def _bank_place(runtime: Runtime, model: ModelGeometry) -> Finding:
    """Where a build for a GPU puts the bank; the log of a run says where it went."""
    if os.environ.get(NO_GPU_BANK, "0") not in ("", "0"):
        return Finding(
            "warning", "bank", f"in the host's memory: {NO_GPU_BANK} is set", "unset it for a bank on the GPU"
        )
    if _shares_memory(runtime):
        return Finding("ok", "bank", "in the memory that CPU and GPU share")
    if model.arch in ON_GPU:
        return Finding("ok", "bank", "on the GPU, where its layer is")
    return Finding(
        "warning",
        "bank",
        f"in the host's memory, whatever --gpu-layers says: {runtime.devices[0].name} cannot map the runtime's bank, "
        "so that nothing is uploaded and the CPU computes the experts",
        "a log shows it: `CPU_Mapped model buffer size`, upload=0; see docs/bridge.md",
    )


def _shares_memory(runtime: Runtime) -> bool:
    """Whether the GPU is Metal's, which computes from the host's memory."""
    return any(device.name.startswith(("MTL", "Metal")) for device in runtime.devices)


def _environment() -> Iterator[Finding]:
    """Variables that change a run, and variables that are kept from it."""
    if switches := [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith(SWITCH)]:
        yield Finding("ok", "switches", ", ".join(switches))
    if dropped := sorted(name for name in os.environ if name.startswith(DROPPED)):
        yield Finding("warning", "environment", f"{', '.join(dropped)}: not passed on", "give the flags after --")


def _no_memory(free: int, needs: int, what: str, to_do: str) -> Finding:
    return Finding("missing", "memory", f"{size(free)} free: {what} and the rest take {size(needs)}", to_do)


def _sidecar(geometry: ModelGeometry, model: Path, sidecar: Path | None) -> Iterator[Finding]:
    if sidecar is None:
        free, needs = host.free_disk_bytes(Path.cwd()), geometry.routed_bytes
        found = f"none given: writing one here takes {size(needs)}; {size(free)} are free"
        if needs > free:
            yield Finding("missing", "sidecar", found, "free the disk, or write it to another one")
        else:
            yield Finding("ok", "sidecar", found)
        return
    from native_bridge.fixture.sidecar import verify_sidecar

    try:
        wrong = verify_sidecar(sidecar, model)
    except BadInput as error:
        yield _missing("sidecar", error)
        return
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        yield Finding("missing", "sidecar", f"{sidecar}: {wrong[0]}{more}", "write it again: sim model make-sidecar")
    else:
        yield Finding("ok", "sidecar", f"{sidecar}: holds the model's experts")


def _temperature() -> Iterator[Finding]:
    if found := host.temperature_c():
        yield Finding("ok", "temperature", ", ".join(f"{name} {value:.0f} °C" for name, value in found.items()))


def _page_cache() -> Finding:
    with confined(1 << 30) as group:
        if group is not None:
            return Finding("ok", "page cache", "cold runs can be confined to the memory they need")
    return Finding(
        "warning",
        "page cache",
        "cold runs cannot be confined: no cgroup may be made here",
        "they are refused where the page cache refills; run as root, or in a session of systemd",
    )


def _missing(name: str, error: BadInput) -> Finding:
    return Finding("missing", name, error.found, error.advice)


def _range(numbers: list[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"
