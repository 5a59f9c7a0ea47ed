"""Which of the systems a llama.cpp run was, from its settings."""

from __future__ import annotations

from dataclasses import dataclass

ALL_LAYERS = 99  # what people write for all layers; a smaller number may be all or a part
DEFAULT_UBATCH = 512
_NO_GPU = {"CPU", "BLAS", "ZenDNN"}


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Settings that say where weights were.

    ik: whether the program is ik_llama.cpp. backend: as llama-bench prints it, such as CUDA or Metal,BLAS; empty if not
    told. gpu_layers: `-ngl`, negative for all; None if not told. layers: of the model, with its output, as the log
    counts them. cpu_moe: layers of `--n-cpu-moe`. overrides: of `-ot`, separated by commas. shares: of `-ts`.
    elsewhere: another setting that puts weights or context in places that no system has, as a sentence.
    """

    ik: bool = False
    backend: str = ""
    gpu_layers: int | None = None
    layers: int | None = None
    cpu_moe: int = 0
    overrides: str = ""
    shares: str = ""
    ubatch: int = DEFAULT_UBATCH
    elsewhere: str = ""


def system_of(run: Placement, *, prompt: bool) -> tuple[str, str]:
    """The spec of the system, and empty; or empty, and why there is none."""
    backends = {name for name in run.backend.split(",") if name}
    if "RPC" in "+".join(backends):
        return "", "ran on several machines (RPC), which no system does"
    if run.elsewhere:
        return "", run.elsewhere
    if backends and backends <= _NO_GPU:
        return "cpu", ""
    if run.gpu_layers is None:
        return "", "does not say how many layers were on the GPU"
    if run.gpu_layers == 0:
        return ("", "has n_gpu_layers 0, with which a GPU still takes prompts") if prompt else ("cpu", "")
    if 0 < run.gpu_layers < (ALL_LAYERS if run.layers is None else run.layers):
        return "", _partial(run)
    return _with_experts(run)


def _partial(run: Placement) -> str:
    if run.layers is None:
        return f"has n_gpu_layers {run.gpu_layers}, which may be all layers or a part of them"
    return f"has {run.gpu_layers} of {run.layers} layers on the GPU, and no system puts whole layers on the CPU"


def _with_experts(run: Placement) -> tuple[str, str]:
    if run.cpu_moe and run.overrides:
        return "", "places experts by n_cpu_moe and by overrides of tensors"
    overrides = run.overrides.replace("(?:", "(")
    if ":" in overrides:
        return "", f"has an override with a colon, which no system takes: {run.overrides}"
    if not run.cpu_moe and not overrides:
        return "all-gpu", ""
    name = "placed-ik" if run.ik else "placed"
    words = [name, f"ot={overrides}" if overrides else f"cpu_layers={run.cpu_moe}"]
    words += [f"ts={run.shares}"] if run.shares else []
    words += [f"ubatch={run.ubatch}"] if run.ubatch != DEFAULT_UBATCH else []
    return ":".join(words), ""
