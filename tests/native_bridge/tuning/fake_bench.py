"""A program that answers like llama-bench, and breaks in a way of its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HELP = """usage: ./llama-bench [options]

options:
  -h, --help
  --version                                   show version and build info
  --numa <distribute|isolate|numactl>         numa mode (default: disabled)
  -r, --repetitions <n>                       number of times to repeat each test (default: 5)
  -o, --output <csv|json|jsonl|md|sql>        output format printed to stdout (default: md)

test parameters:
  -m, --model <filename>                            (default: models/7B/ggml-model-q4_0.gguf)
  -p, --n-prompt <n>                                (default: 512)
  -n, --n-gen <n>                                   (default: 128)
  -d, --n-depth <n>                                 (default: 0)
  -ub, --ubatch-size <n>                            (default: 512)
  -t, --threads <n>                                 (default: 8)
  -ngl, --n-gpu-layers <n>                          (default: 99)
  -ncmoe, --n-cpu-moe <n>                           (default: 0)
  -fa, --flash-attn <on|off|auto>                   (default: auto)
  -lm, --load-mode <auto|none|mmap|mlock|mmap+mlock|dio> (default: auto)
"""


def main(behaviour: dict[str, Any], words: list[str], counter: str) -> None:
    """Print what a run prints.

    speed: tokens a second with everything on the CPU and 8 threads. least_layers: on the CPU, below which memory lacks;
        with less than `spills`, it is full, and the driver moves the rest to RAM. cores: the mask with which it is
        faster. breaks: how it fails.
    """
    if "--help" in words:
        print(behaviour.get("help", HELP))
        return
    if "--version" in words:
        print("version: 11434 (abcdef123)\nbuilt with a compiler")
        return
    value = {flag: words[words.index(flag) + 1] for flag in words if flag.startswith("-")}
    runs = len(Path(counter).read_text()) if Path(counter).exists() else 0
    Path(counter).write_text("x" * (runs + 1))
    layers, threads = int(value.get("--n-cpu-moe", 0)), int(value.get("-t", 8))
    speed = behaviour["speed"] * (40 / (4 + layers)) * {8: 1.0, 6: 1.05}.get(threads, 0.8)
    speed *= 1.2 if value.get("--cpu-strict") == "1" and value["--cpu-mask"] == behaviour.get("cores") else 1.0
    speed *= {"q8_0": 1.3, "q4_0": 1.1}.get(value.get("-ctk", ""), 1.0)
    breaks = behaviour.get("breaks", "")
    if layers < behaviour.get("least_layers", 0):
        _end(
            "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 1 MiB on device 0: cudaMalloc failed: out of memory"
        )
    if layers < behaviour.get("spills", 0):
        speed /= 30
    if breaks == "slower" and runs >= 2:
        speed /= 4
    _break(breaks, runs)
    print(json.dumps(_rows(value, speed, behaviour, breaks), indent=2))


def _rows(value: dict[str, str], speed: float, behaviour: dict[str, Any], breaks: str) -> list[dict[str, Any]]:
    repeats, rows = int(value["-r"]), []
    for prompt, tokens in ((True, int(value["-p"])), (False, int(value["-n"]))):
        if not tokens:
            continue
        tok_s = speed * (20 if prompt else 1)
        samples = [tok_s * (0.5 if breaks == "heat" and number else 1.0) for number in range(repeats)]
        rows.append(
            {
                "build_number": 11434,
                "model_filename": value["-m"],
                "model_type": "a model",
                "model_size": behaviour["model_bytes"] * (3 if breaks == "other model" else 1),
                "n_threads": int(value.get("-t", 8)),
                "n_ubatch": int(value.get("-ub", 512)),
                "n_gpu_layers": int(value.get("-ngl", 0)),
                "n_cpu_moe": 0 if breaks == "other setting" else int(value.get("--n-cpu-moe", 0)),
                "type_k": value.get("-ctk", "f16"),
                "type_v": value.get("-ctv", "f16"),
                "n_prompt": tokens if prompt else 0,
                "n_gen": 0 if prompt else tokens,
                "n_depth": int(value.get("-d", 0)),
                "avg_ts": {"zero": 0.0, "minus": -tok_s, "text": "fast"}.get(breaks, sum(samples) / repeats),
                "stddev_ts": 0.01 * tok_s,
                "samples_ns": [round(1e9 * tokens / one) for one in samples],
                "samples_ts": samples,
            }
        )
    return rows


def _break(breaks: str, runs: int) -> None:
    if breaks == "silent":
        sys.exit(0)
    if breaks == "prose":
        print("All is well, 31 tokens each second.")
        sys.exit(0)
    if breaks == "markdown":
        print("| model | size | params | backend | ngl | test | t/s |\n| - | - | - | - | - | - | - |")
        sys.exit(0)
    if breaks == "crash":
        _end("llama_model_load: error loading model: unknown architecture")
    if breaks == "signal":
        import os
        import signal

        os.kill(os.getpid(), signal.SIGSEGV)
    if breaks == "flood":
        for _ in range(1 << 14):
            print("x" * 4096)
    if breaks == "hang":
        import time

        time.sleep(3600)
    if breaks == "torn":
        print('[\n  {\n    "avg_ts": 31.0, "n_gen":')
        sys.exit(0)
    if breaks == "later" and runs:
        _end("CUDA error: an illegal memory access was encountered")


def _end(line: str) -> None:
    print(line, file=sys.stderr)
    sys.exit(1)
