"""Asks llmfit by `llmfit plan --json`, which takes the placement and has no look-up of measured speeds.

The model is told by its parameters; the machine by a profile and, for the memory of a card, by a program in the place
of nvidia-smi. The card has a neutral name and its home is empty, so that nothing measured can answer. Quantizations
that llmfit does not know are told as the one nearest in bits.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from lines import Refused, answer_all, nearest_quant

PROGRAM = Path(sys.argv[1])
TIMEOUT_S = 30
CONTEXT = 8192  # its default
PATHS = {"all_gpu": "gpu", "cpu_only": "cpu_only"} | dict.fromkeys(
    ("n_cpu_moe", "ot_regex", "vram_lru", "vram_static_profile"), "cpu_offload"
)
BITS = {
    "F16": 16,
    "BF16": 16,
    "Q8_0": 8.4,
    "Q6_K": 6.4,
    "Q5_K_M": 5.44,
    "Q4_K_M": 4.64,
    "Q4_0": 4.5,
    "MXFP4": 4.4,
    "Q3_K_M": 3.84,
    "Q2_K": 2.96,
}
SMI = """#!/bin/sh
case "$*" in
  *addressing_mode*memory.free*) echo "None, $CARD_MIB, $CARD_MIB, Card" ;;
  *addressing_mode*) echo "None, $CARD_MIB, Card" ;;
  *) echo "$CARD_MIB, Card" ;;
esac
"""


def ask(question: dict[str, Any], folder: Path) -> tuple[float, float | None, float | None]:
    path = PATHS.get(question["strategy"])
    if path is None:
        raise Refused("knows no experts on a drive, nor a placement of its own kind")
    if path == "cpu_offload" and question["unified"]:
        raise Refused("has no experts on the CPU beside a GPU on the same memory")
    if question["gpu"] and not question["gpu_gb_s"]:
        raise Refused("the bandwidth of the GPU is not known")
    answer = _planned(question, folder)
    chosen = next(one for one in answer["run_paths"] if one["path"] == path)
    if not chosen["feasible"] or not chosen["estimated_tps"]:
        raise Refused("says that this placement is not feasible")
    return chosen["estimated_tps"], None, None


def gpu_gib(question: dict[str, Any], folder: Path) -> float:
    """The least memory of the placement's GPU; what it calls GB it compares with GiB of nvidia-smi."""
    path = PATHS.get(question["strategy"])
    if path is None:
        raise Refused("knows no placement of its own kind")
    chosen = next(one for one in _planned(question, folder)["run_paths"] if one["path"] == path)
    return chosen["minimum"]["vram_gb"]


def _planned(question: dict[str, Any], folder: Path) -> Any:
    (folder / "model.json").write_text(json.dumps([_model(question)]))
    hardware = {
        "total_ram_gb": question["ram_gib"],
        "unified_memory": question["unified"],
        "ddr_bandwidth_gbps": question["ram_gb_s"],
    }
    if question["gpu"]:
        hardware["gpu_memory_bandwidth_gbps"] = question["gpu_gb_s"]
    (folder / "profiles" / "row.json").write_text(
        json.dumps({"schema_version": 1, "name": "row", "hardware": hardware})
    )
    words = (PROGRAM, "--no-dashboard", "--profile", folder / "profiles" / "row.json", "--json", "plan", "row/row")
    done = subprocess.run(
        [
            *words,
            *("--context", str(question.get("context", CONTEXT)), "--quant", nearest_quant(question, BITS)),
            *("--kv-quant", "q8_0" if question.get("kv_type") == "q8_0" else "fp16"),
        ],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env={
            "PATH": f"{folder / 'bin'}:/usr/bin:/bin",
            "HOME": str(folder / "home"),
            "LC_ALL": "C.UTF-8",
            "LLMFIT_BENCH_STORE": str(folder / "nothing"),
            "LLMFIT_HARDWARE_PROFILES": str(folder / "profiles"),
            "LLMFIT_CUSTOM_MODELS": str(folder / "model.json"),
            "LLMFIT_DDR_BANDWIDTH": str(question["ram_gb_s"]),
            "CARD_MIB": str(round((question["gpu_gib"] or question["ram_gib"]) * 1024)),
        },
        check=False,
    )
    if done.returncode:
        raise Refused(f"says: {done.stderr.strip().splitlines()[-1][:150]}")
    return json.loads(done.stdout)


def _model(question: dict[str, Any]) -> dict[str, Any]:
    size_gb = round(question["total_b"] * 0.58, 1)  # at its own Q4_K_M
    return {
        "name": "row/row",
        "provider": "row",
        "use_case": "General",
        "quantization": "Q4_K_M",
        "context_length": 32768,
        "min_ram_gb": size_gb,
        "recommended_ram_gb": 2 * size_gb,
        "min_vram_gb": size_gb,
        "is_moe": True,
        "num_experts": question["experts"],
        "active_experts": question["top_k"],
        "parameters_raw": round(question["total_b"] * 1e9),
        "active_parameters": round(question["active_b"] * 1e9),
        "parameter_count": f"{question['total_b']:g}B",
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        here = Path(made)
        for name in ("bin", "home", "nothing", "profiles"):
            (here / name).mkdir()
        (here / "bin" / "nvidia-smi").write_text(SMI)
        (here / "bin" / "nvidia-smi").chmod(0o755)
        said = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        answer_all(
            lambda question: ask(question, here),
            said.stdout.strip().removeprefix("llmfit "),
            lambda question: gpu_gib(question, here),
        )
