"""CPU seconds of whole commands, each in a process of its own.

Run it with `python -m tests.benchmarks.bench_startup`. Every figure is the median of several runs after one that fills
the cache of compiled kernels, user and system time together.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROUNDS = 5
ENTRY = "from native_bridge.cli.main import entry; entry()"


def cpu_seconds(arguments: Sequence[str]) -> float:
    """CPU time of one run of `sim`."""
    before = os.times()
    subprocess.run([sys.executable, "-c", ENTRY, *arguments], check=True, capture_output=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        commands = (
            (["--help"], 0.3),
            (["sweep", "--help"], 0.3),
            (["sweep", "--bank", "16..256"], 3.0),
            (["recommend", "gpt-oss-120b", "--machine", "rtx-4090"], 10.0),
            (["recommend", "qwen3-30b-phone", "--machine", "m1-8"], 10.0),
            (["recommend", "--model", "qwen3.5-397b-a17b", "--machine", "m4-max-128"], 10.0),
            (["sweep", "--bank", "16..256", "--out", str(Path(folder, "results")), "--force"], 5.0),
        )
        print(f"{'command':52}{'CPU s':>8}{'goal':>8}")
        for arguments, goal in commands:
            cpu_seconds(arguments)
            seconds = statistics.median(cpu_seconds(arguments) for _ in range(ROUNDS))
            shown = " ".join(["sim", *(Path(part).name if part.startswith(folder) else part for part in arguments)])
            print(f"{shown:52}{seconds:8.2f}{goal:8.1f}")


if __name__ == "__main__":
    main()
