#!/usr/bin/env python3
"""A test double of the patched llama-cli: replays a recorded run, or misbehaves as it is told.

STAND_IN_RUN: folders with recorded runs, as in PATH, of which the run with the mode, bank, micro-batch and prefetch
asked for is taken. STAND_IN_DOES: nothing (the default), or one of the words below.
"""

import gzip
import json
import os
import resource
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

DOES = os.environ.get("STAND_IN_DOES", "")
MODES = "stock,resident,resident-bank,resident-slot-bank,slot-bank,oracle-all-hit,oracle-prefetch"
HELP = """----- common params -----

-h,    --help, --usage                  print usage and exit
--version                               show version and build info
-t,    --threads N                      number of threads
-c,    --ctx-size N                     size of the context
-n,    --predict, --n-predict N         number of tokens to predict
-b,    --batch-size N                   logical batch size
-ub,   --ubatch-size N                  physical batch size
-f,    --file FNAME                     a file with the prompt
-p,    --prompt PROMPT                  the prompt
--perf, --no-perf                       timings
-e,    --escape, --no-escape            process escapes
--warmup, --no-warmup                   a run before
-m,    --model FNAME                    model path
-ngl,  --gpu-layers, --n-gpu-layers N   layers in VRAM
--list-devices                          print list of available devices and exit
-l,    --logit-bias TOKEN_ID(+/-)BIAS   how likely a token is
-s,    --seed SEED                      random seed
--temp, --temperature N                 temperature
--top-k N                               top-k
--simple-io                             use basic IO
-lv,   --verbosity, --log-verbosity N   the verbosity threshold
-fa,   --flash-attn [on|off|auto]       flash attention
--mmap, --no-mmap                       map the model
"""
PATCHED = f"""--moe-sidecar PATH                      the sidecar
--moe-mode {{{MODES}}}
                                        the mode
--moe-slot-bank N                       slots of each layer
--moe-topk N                            experts of each token
--moe-cache-io-split N                  chunks of a read
--moe-prefetch-temporal, --no-moe-prefetch-temporal
                                        prefetch
--moe-predict-prev-token, --no-moe-predict-prev-token
--moe-predict-top1-prev, --no-moe-predict-top1-prev
--moe-trace FILE                        the trace
--moe-trace-harness                     no chat
"""
LATER = """--moe-prefill-layer-major, --no-moe-prefill-layer-major
                                        prompts beside the bank
"""
OLDER = PATCHED.replace("--moe-trace-harness", "--moe-harness").replace("--moe-topk", "--moe-k")
FLAGS_ALONE = {
    "--moe-trace-harness",
    "--perf",
    "--no-escape",
    "--no-warmup",
    "--simple-io",
    "--mmap",
    "--no-mmap",
    "--moe-prefetch-temporal",
}
FLAGS_ALONE |= {"--moe-predict-prev-token", "--moe-predict-top1-prev", "--moe-prefill-layer-major"}


def main() -> int:
    question = sys.argv[1] if len(sys.argv) == 2 else ""
    if DOES == "hang-at-once":
        time.sleep(60)
    if DOES == "crash-at-once":
        os.kill(os.getpid(), signal.SIGILL)
    if question == "--version":
        sys.stderr.write("version: 8456 (64e25509b)\nbuilt with GNU 12.2.0 for Linux x86_64\n")
    elif question == "--list-devices":
        gpu = "  CUDA0: NVIDIA H100 80GB HBM3 (81559 MiB, 80000 MiB free)\n" if DOES == "has-a-gpu" else ""
        gpu = f"  {named}\n" if (named := os.environ.get("STAND_IN_DEVICE")) else gpu
        sys.stdout.write(f"Available devices:\n{gpu}")
    elif question == "--help":
        sys.stdout.write(HELP + {"not-patched": "", "older": OLDER, "later": PATCHED + LATER}.get(DOES, PATCHED))
    else:
        return run(given(sys.argv[1:]))
    return 0


def given(words: list[str]) -> dict[str, str]:
    flags = {}
    while words:
        flag = words.pop(0)
        if flag not in HELP + PATCHED + LATER:
            sys.exit(f"error: invalid argument: {flag}")
        flags[flag] = "" if flag in FLAGS_ALONE else words.pop(0)
    return flags


def run(flags: dict[str, str]) -> int:
    mode = flags.get("--moe-mode", "stock")
    if not Path(flags["-m"]).is_file():
        sys.stderr.write(
            f"llama_model_load: error loading model: failed to open {flags['-m']}\nFailed to load the model\n"
        )
        return 1
    if mode.startswith("oracle"):
        with open(flags["--moe-trace"]) as replayed:
            assert all("experts" in json.loads(line) for line in replayed)
    recorded = chosen(mode, flags)
    log = (recorded / "log.txt").read_text(errors="replace").splitlines(keepends=True)
    text = (recorded / "text.txt").read_text() if (recorded / "text.txt").exists() else ""
    if DOES == "print-nothing":
        return 0
    sys.stdout.write("\nLoading model... \n")
    if "--moe-trace" in flags and not mode.startswith("oracle"):
        write_trace(chosen("slot-bank", flags), Path(flags["--moe-trace"]))
    if DOES == "crash":
        sys.stderr.write("ggml.c:1: GGML_ASSERT(false) failed\n")
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGABRT)
    if DOES == "flood":
        with suppress(BrokenPipeError):
            while True:
                sys.stderr.write("y\n" * 32768)
    if DOES == "crash-with-gdb":
        sys.stderr.write("[Thread debugging using libthread_db enabled]\n")
        sys.stderr.write("warning: ptrace: Operation failed\n#1  0x7 in ggml_print_backtrace ()\n")
        sys.stderr.write("#2  0x9 in ggml_uncaught_exception()\nterminate called after throwing an instance of 'E'\n")
        sys.stderr.write("  what():  Failed to parse input at pos 0: \ufffd\n")
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGABRT)
    if DOES == "hang":
        sys.stdout.flush()
        time.sleep(60)
    if DOES == "fail":
        sys.stderr.write("main: error: no such thing as a slot\n")
        return 3
    if DOES == "later":
        tokens = " ] [ tokens - prefill: 38, decode: 24 ]\n"
        log = [line.replace(" ]\n", tokens) if line.startswith("[ Prompt") else line for line in log]
    if DOES.startswith("speaks"):
        text = "red OSErroralse bugs\nError: a failed assertion\n" + text
        log = [line for line in log if not line.startswith("[ Prompt")]
    if DOES == "another-version":
        log = [line.replace("Flash-MoE routed", "Flash-MoE experts").replace("Generation", "Decode") for line in log]
    sys.stdout.write(f"mode       : Flash-MoE trace harness (raw completion)\n\n\n> {flags['-p']}\n\n{text}")
    sys.stdout.flush()
    for line in log:
        if line.startswith(("log_", "~llama_", "graph_", "srv ", "Flash-MoE settings", "  ")):
            sys.stderr.write(line)
    sys.stderr.flush()
    if DOES == "speaks-and-dies":
        return 3
    sys.stdout.write("\n\n" + "".join(line for line in log if line.startswith("[ Prompt")) + "\nExiting...\n")
    return 0


def chosen(mode: str, flags: dict[str, str]) -> Path:
    ahead = [flag for flag in flags if flag.startswith(("--moe-prefetch", "--moe-predict"))]
    roots = os.environ["STAND_IN_RUN"].split(os.pathsep)
    for folder in sorted(folder for root in roots for folder in Path(root).glob("prose-*")):
        run = json.loads((folder / "run.json").read_text())
        asked = mode, flags.get("--moe-slot-bank", str(run["bank"])), flags["-ub"], ahead
        if (
            run["mode"],
            str(run["bank"]),
            str(run["ubatch"]),
            [flag for flag in run["extra"] if "--moe" in flag],
        ) == asked:
            return folder
    sys.exit(f"error: no recorded run of {mode}")


def write_trace(recorded: Path, target: Path) -> None:
    """All of it, or, as on a full disk, as much as fits, the last line cut; the runtime does not look."""
    data = gzip.decompress((recorded / "trace.jsonl.gz").read_bytes())
    if DOES == "later":  # a step of the prompt that went beside the bank; the log does not count it
        first = b"".join(line[: line.index(b'"slots"')] + b'"slots":[]}\n' for line in data.splitlines()[:8])
        data = first + data
    if DOES == "fill-the-disk":
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(data) // 2 + 7, resource.RLIM_INFINITY))
    with suppress(OSError):
        target.write_bytes(data)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


if __name__ == "__main__":
    sys.exit(main())
