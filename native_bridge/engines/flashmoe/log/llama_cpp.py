"""llama.cpp's own output: the backend, the build and the layers on a GPU."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from native_bridge.engines.flashmoe.log.text import WHOLE

_BACKEND = re.compile(
    r"load_backend: loaded (\w+) backend|ggml_(metal|cuda|hip|vulkan|sycl|opencl)(?:_\w+)?: ", re.IGNORECASE
)
_NOT_A_GPU = ("cpu", "blas", "rpc")
_FOUND = re.compile(r"ggml_cuda_init: found \d+ (\w+) devices")
_OFFLOADED = re.compile(rf"\w+: offloaded {WHOLE}/{WHOLE} layers to GPU")
_BUILD = re.compile(r"(?:build +: |build_info: |(?:main: )?build: )(\S.*)")


@dataclass(frozen=True)
class LlamaCpp:
    """llama.cpp's own output. gpu_layers: layers on the GPU, and the total; None if no line says so."""

    backend: str = ""
    build: str = ""
    gpu_layers: tuple[int, int] | None = None


def take_llama_cpp(so_far: LlamaCpp, line: str) -> LlamaCpp | None:
    """The output extended by one line; None for an unknown kind of line."""
    if found := _OFFLOADED.match(line):
        return replace(so_far, gpu_layers=(int(found[1]), int(found[2])))
    if found := _BUILD.match(line):
        return replace(so_far, build=found[1])
    if (found := _FOUND.match(line)) or (found := _BACKEND.match(line)):
        name = next(group for group in found.groups() if group).lower()
        return so_far if name in _NOT_A_GPU else replace(so_far, backend=name)
    return None
