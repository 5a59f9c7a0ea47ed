"""Make the models and time them with llama-bench: experts on the CPU, depth, prompts and micro-batches."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from reports.series.make_model import SHAPES, write

ALWAYS = ("-ngl", "99", "-fa", "1", "-o", "jsonl")
LIMIT_S = 150.0  # for one command
SERIES = {
    "gpt-oss-120b": (
        "-ncmoe 36,24,12,0 -p 512 -n 64 -r 3",
        "-ncmoe 36,24,0 -p 2048 -n 0 -ub 2048 -r 2",
        "-ncmoe 0 -p 0 -n 64 -d 16384,65536 -ub 2048 -r 2",
        "-ncmoe 24 -p 0 -n 64 -d 16384 -ub 2048 -r 2",
    ),
    "qwen3-30b-a3b": (
        "-ncmoe 48,32,16,0 -p 512 -n 64 -r 3",
        "-ncmoe 48,32,0 -p 2048 -n 0 -ub 2048 -r 2",
        "-ncmoe 32,0 -p 0 -n 64 -d 8192,32768 -ub 2048 -r 2",
    ),
    "gpt-oss-20b": (
        "-lm mmap,none -ncmoe 24 -p 512 -n 64 -r 2",
        "-lm mmap,none -ncmoe 24 -p 2048 -n 0 -ub 2048 -r 2",
    ),
}


def measure(model: str, *, llama_bench: Path, folder: Path, out: Path, threads: str) -> None:
    """Time one model; its file is removed at the end. A command that fails or takes too long leaves out its rows."""
    file = folder / f"{model}.gguf"
    write(file, SHAPES[model])
    try:
        with (out / f"{model}.jsonl").open("w", encoding="utf-8") as lines:
            for options in SERIES[model]:
                command = [str(llama_bench), "-m", str(file), *ALWAYS, "-t", threads, *options.split()]
                print(" ".join(command), file=sys.stderr, flush=True)
                try:
                    subprocess.run(command, stdout=lines, timeout=LIMIT_S, check=True)
                except (subprocess.SubprocessError, OSError) as error:
                    print(error, file=sys.stderr, flush=True)
    finally:
        file.unlink()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--llama-bench", type=Path, required=True, help="the program, of a CUDA build")
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm"), help="where the models are made: 60 GB")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--threads", default="16", help="threads of llama-bench")
    parser.add_argument("models", nargs="*", default=[*SERIES])
    asked = parser.parse_args()
    for name in asked.models:
        measure(name, llama_bench=asked.llama_bench, folder=asked.folder, out=asked.out, threads=asked.threads)
