"""Seconds of whole commands by the clock, each in a process of its own.

Run it with `python -m tests.benchmarks.bench_startup`. `first` is a run with an empty cache of compiled kernels, as
after an install; `later` the median of several after it.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROUNDS = 5
ENTRY = "from native_bridge.cli.main import entry; entry()"


def seconds(arguments: Sequence[str], cache: Path) -> float:
    """Wall time of one run of `sim` with that cache of kernels."""
    before = time.perf_counter()
    environment = {**os.environ, "FLASHMOE_CACHE": str(cache)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed program has its bytecode, which saves 0.2 s
    subprocess.run([sys.executable, "-c", ENTRY, *arguments], check=True, capture_output=True, env=environment)
    return time.perf_counter() - before


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        commands = (
            (["--help"], 0.15, 0.15),
            (["sweep", "gpt-oss-120b", "--bank", "8..64"], 6.0, 0.6),
            (["recommend", "gpt-oss-120b", "--machine", "rtx-4090", "--system", "placed"], 20.0, 1.2),
            (["recommend", "gpt-oss-120b", "--machine", "rtx-4090"], 20.0, 5.0),
            (["recommend", "qwen3-30b-phone", "--machine", "m1-8"], 20.0, 5.0),
            (["recommend", "--model", "qwen3.5-397b-a17b", "--machine", "m4-max-128"], 20.0, 5.0),
        )
        print(f"{'command':72}{'first s':>9}{'goal':>6}{'later s':>9}{'goal':>6}")
        for number, (arguments, first_goal, goal) in enumerate(commands):
            cache = Path(folder, str(number))
            first = seconds(arguments, cache)
            later = statistics.median(seconds(arguments, cache) for _ in range(ROUNDS))
            print(f"{' '.join(['sim', *arguments]):72}{first:9.2f}{first_goal:6.1f}{later:9.2f}{goal:6.2f}")


if __name__ == "__main__":
    main()
