"""llama.cpp's own output: devices and the build."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from flashmoe_sim.io.sizes import MIB
from native_bridge.engines.flashmoe.log.text import NUMBER, WHOLE
from native_bridge.engines.run_log import Device

_BACKEND = re.compile(
    r"load_backend: loaded (\w+) backend|ggml_(metal|cuda|hip|vulkan|sycl|opencl)(?:_\w+)?: ", re.IGNORECASE
)
_NOT_A_GPU = ("cpu", "blas", "rpc")
_ID = {"rocm": "ROCm"}
_FOUND = re.compile(r"ggml_cuda_init: found \d+ (\w+) devices")
_CUDA_DEVICE = re.compile(rf"  Device {WHOLE}: (.+?), (?:compute capability [\d.]+|\S+ \(0x\w+\)), VMM: \w+(.*)")
_CUDA_MEMORY = re.compile(rf"VRAM: {WHOLE} MiB")
_METAL_DEVICE = re.compile(r"ggml_metal_\w*init: (?:GPU name: +|picking default device: )(.+)")
_METAL_MEMORY = re.compile(rf"ggml_metal_\w*init: recommendedMaxWorkingSetSize += +{NUMBER} MB")
_METAL_UNIFIED = re.compile(r"ggml_metal_\w*init: has unified memory += (true|false)")
_VULKAN_DEVICE = re.compile(rf"ggml_vulkan: {WHOLE} = (.+?) \([^()]*\) \| uma: (\d) ")
_USED_DEVICE = re.compile(rf"\w+: using device (\w+) \((.+?)\)(?: \([^()]*\))? - {WHOLE} MiB free")
_OFFLOADED = re.compile(rf"\w+: offloaded {WHOLE}/{WHOLE} layers to GPU")
_BUILD = re.compile(r"(?:build +: |build_info: |(?:main: )?build: )(\S.*)")


@dataclass(frozen=True)
class LlamaCpp:
    """llama.cpp's own output. gpu_layers: layers on the GPU, and the total; None if no line says so."""

    backend: str = ""
    build: str = ""
    devices: tuple[Device, ...] = ()
    gpu_layers: tuple[int, int] | None = None


def take_llama_cpp(so_far: LlamaCpp, line: str) -> LlamaCpp | None:
    """The output extended by one line; None for an unknown kind of line."""
    if found := _OFFLOADED.match(line):
        return replace(so_far, gpu_layers=(int(found[1]), int(found[2])))
    if found := _BUILD.match(line):
        return replace(so_far, build=found[1])
    if (device := _device(so_far, line)) is not None:
        so_far = replace(so_far, devices=_with(so_far.devices, device))
    if (found := _FOUND.match(line)) or (found := _BACKEND.match(line)):
        name = next(group for group in found.groups() if group).lower()
        return so_far if name in _NOT_A_GPU else replace(so_far, backend=name)
    return None if device is None else so_far


def _device(so_far: LlamaCpp, line: str) -> Device | None:
    """The device that a line names or describes."""
    if found := _CUDA_DEVICE.fullmatch(line):
        memory = _CUDA_MEMORY.search(found[3])
        return Device(
            f"{_ID.get(so_far.backend, so_far.backend.upper())}{found[1]}",
            found[2],
            float(memory[1]) if memory else None,
        )
    if found := _METAL_DEVICE.fullmatch(line):
        return Device("Metal", found[1])
    if found := _VULKAN_DEVICE.match(line):
        return Device(f"Vulkan{found[1]}", found[2], unified=found[3] == "1")
    if found := _USED_DEVICE.match(line):
        return Device(found[1], found[2], free_mib=int(found[3]))
    if so_far.devices and (found := _METAL_MEMORY.match(line)):
        return replace(so_far.devices[-1], memory_mib=float(found[1]) * 1e6 / MIB)
    if so_far.devices and (found := _METAL_UNIFIED.match(line)):
        return replace(so_far.devices[-1], unified=found[1] == "true")
    return None


def _with(devices: tuple[Device, ...], told: Device) -> tuple[Device, ...]:
    """Each device once, with everything from its lines."""
    known = next((device for device in devices if _same(device, told)), None)
    if known is None:
        return (*devices, told)
    full = Device(
        told.id,
        told.name,
        told.memory_mib if told.memory_mib is not None else known.memory_mib,
        told.free_mib if told.free_mib is not None else known.free_mib,
        told.unified if told.unified is not None else known.unified,
    )
    return tuple(full if device is known else device for device in devices)


def _same(device: Device, told: Device) -> bool:
    """Whether both are the same device: in later versions the id of Metal's device has a number (`MTL0`)."""
    return device.id.lower() == told.id.lower() or (device.name == told.name and "Metal" in (device.id, told.id))
