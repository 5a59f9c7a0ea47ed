"""llama.cpp's own output: the backend, the build, the layers on a GPU, and where weights, bank and context are."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from native_bridge.engines.flashmoe.log.text import WHOLE
from native_bridge.engines.llama_program import device_memory
from native_bridge.engines.run_log import Placement

_BACKEND = re.compile(
    r"load_backend: loaded (\w+) backend|ggml_(metal|cuda|hip|vulkan|sycl|opencl)(?:_\w+)?: ", re.IGNORECASE
)
_NOT_A_GPU = ("cpu", "blas", "rpc")
_FOUND = re.compile(r"ggml_cuda_init: found \d+ (\w+) devices")
_OFFLOADED = re.compile(rf"\w+: offloaded {WHOLE}/{WHOLE} layers to GPU")
_BUILD = re.compile(r"(?:build +: |build_info: |(?:main: )?build: )(\S.*)")
_LOADING = re.compile(r"\S+: loading model tensors, this can take a while")
_BANK = re.compile(r"\S+: preparing virtual context with \d+ tensors via \S+ \(projected ")
_BUFFER = re.compile(r"\S+: +(\S+) +model buffer size = +[\d.]+ MiB")
_FOLLOWS_LAYERS = "Flash-MoE GPU-bank placement is enabled in this build"
_ON_HOST = "slot-bank routed expert tensors are using CPU/host-backed virtual buffers in this build"
_MEMORY = "llama_memory_breakdown_print: | memory breakdown [MiB] |"


@dataclass(frozen=True)
class LlamaCppLines:
    """What a log says so far. gpu_layers: layers on the GPU, and the total; None if no line says so."""

    backend: str = ""
    build: str = ""
    gpu_layers: tuple[int, int] | None = None


def take_llama_cpp(so_far: LlamaCppLines, line: str) -> LlamaCppLines | None:
    """The output extended by one line; None for an unknown kind of line."""
    if found := _OFFLOADED.match(line):
        return replace(so_far, gpu_layers=(int(found[1]), int(found[2])))
    if found := _BUILD.match(line):
        return replace(so_far, build=found[1])
    if (found := _FOUND.match(line)) or (found := _BACKEND.match(line)):
        name = next(group for group in found.groups() if group).lower()
        return so_far if name in _NOT_A_GPU else replace(so_far, backend=name)
    return None


def take_placement(placement: Placement, line: str) -> Placement | None:
    """The placement extended by one line; None for an unknown kind of line."""
    if found := _BUFFER.fullmatch(line):
        return replace(placement, model_buffers=(*placement.model_buffers, found[1]))
    if _LOADING.match(line):
        return replace(placement, model_buffers=(), bank_contexts=0)
    if _BANK.match(line):
        return replace(placement, bank_contexts=placement.bank_contexts + 1)
    if _FOLLOWS_LAYERS in line:
        return replace(placement, follows_layers=True)
    if _ON_HOST in line:
        return replace(placement, follows_layers=False)
    if _MEMORY in line:
        return replace(placement, memory=())
    if memory := device_memory(line):
        return replace(placement, memory=(*placement.memory, memory))
    return None
