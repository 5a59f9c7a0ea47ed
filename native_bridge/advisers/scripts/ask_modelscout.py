"""Asks modelscout by the functions behind its `scan`: memory, placement, speed.

It chooses the placement itself; where that is another than the question's, it is told so and refuses. Every speed that
it prints lies between 0.5 and 180.
"""

from __future__ import annotations

from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

from lines import Refused, answer_all, nearest_quant
from modelscout.estimation import FitType, estimate_generation_speed, estimate_model_memory, evaluate_hardware_fit
from modelscout.hardware.types import CpuInfo, GPUInfo, MemoryInfo, StorageInfo, SystemHardware
from modelscout.models.metadata import ModelMetadata
from modelscout.models.quantization import BITS_PER_WEIGHT

CONTEXT = 8192  # its default
OFFLOADED = ("n_cpu_moe", "ot_regex", "vram_lru", "vram_static_profile")
PLACED = {
    "all_gpu": {FitType.FULL_GPU, FitType.UNIFIED_MEMORY},
    "cpu_only": {FitType.CPU_ONLY},
    **{strategy: {FitType.PARTIAL_OFFLOAD} for strategy in OFFLOADED},
}
MAKERS = {"apple": "apple", "radeon": "amd", "rx ": "amd", "arc ": "intel"}


def ask(question: dict[str, Any]) -> tuple[float, float | None, float | None]:
    wanted = PLACED.get(question["strategy"])
    if wanted is None:
        raise Refused("knows no experts on a drive, nor a placement of its own kind")
    if question["gpu"] and not question["gpu_gb_s"]:
        raise Refused("the bandwidth of the GPU is not known")
    quant, model, hardware = nearest_quant(question, BITS_PER_WEIGHT), _model(question), _hardware(question)
    fit = evaluate_hardware_fit(_memory(question), hardware)
    if not fit.can_run:
        raise Refused(f"does not run: {fit.fit_description}")
    if fit.fit_type not in wanted:
        raise Refused(f"places it otherwise: {fit.fit_type.value}")
    speed = estimate_generation_speed(model, hardware, fit, quant)
    return speed.estimated_tok_per_sec, *speed.speed_range_tok_per_sec


def gpu_gib(question: dict[str, Any]) -> float:
    if question["strategy"] != "all_gpu":
        raise Refused("counts the memory of the whole model, wherever it is")
    return _memory(question).total_required_gb


def _memory(question: dict[str, Any]) -> Any:
    quant, file = nearest_quant(question, BITS_PER_WEIGHT), round(question["file_gib"] * 2**30)
    context = question.get("context", CONTEXT)
    return estimate_model_memory(_model(question), quant, context, artifact=SimpleNamespace(file_size_bytes=file))


def _model(question: dict[str, Any]) -> Any:
    return ModelMetadata(
        id="row",
        display_name=question["model"],
        family="row",
        publisher="row",
        parameters=round(question["total_b"] * 1e9),
        active_parameters=round(question["active_b"] * 1e9),
        architecture="MoE",
        is_moe=True,
    )


def _hardware(question: dict[str, Any]) -> Any:
    unified, ram_gib, gpus = question["unified"], question["ram_gib"], []
    if question["gpu"] and question["strategy"] != "cpu_only":
        name = question["gpu"].lower()
        gpus = [
            GPUInfo(
                name=question["gpu"],
                vendor=next((maker for word, maker in MAKERS.items() if word in name), "nvidia"),
                vram_gb=question["gpu_gib"] or ram_gib,
                memory_bandwidth_gbps=question["gpu_gb_s"],
                device_count=1,
                unified_memory=unified,
            )
        ]
    memory = MemoryInfo(
        total_ram_gb=ram_gib,
        total_ram_bytes=round(ram_gib * 2**30),
        available_ram_gb=ram_gib,
        unified_memory=unified,
        memory_bandwidth_gbps=question["ram_gb_s"],
    )
    return SystemHardware(
        os_name="Linux",
        os_version="",
        architecture="",
        cpu=CpuInfo(),
        gpus=gpus,
        memory=memory,
        storage=StorageInfo(),
        is_apple_silicon=unified and bool(gpus) and gpus[0].vendor == "apple",
    )


if __name__ == "__main__":
    answer_all(ask, version("modelscout-llm"), gpu_gib)
