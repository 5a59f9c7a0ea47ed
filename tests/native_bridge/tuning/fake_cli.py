"""A program that answers like the patched llama-cli, and breaks in a way of its own."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

MODES = "stock,resident,resident-bank,resident-slot-bank,slot-bank,oracle-all-hit,oracle-prefetch"
ALONE = (
    "--moe-prefetch-temporal",
    "--moe-predict-prev-token",
    "--moe-predict-top1-prev",
    "--moe-trace-harness",
    "--perf",
    "--no-escape",
    "--no-warmup",
    "--simple-io",
)
OTHERS = (
    "-m -c -t -n -f -ub -ngl -lv --seed --logit-bias --moe-sidecar --moe-slot-bank --moe-topk --moe-cache-io-split "
    "-ctk -ctv --cpu-mask --cpu-strict"
)
HELP = "\n".join(
    ["usage: llama-cli", f"--moe-mode {{{MODES}}}", "--version", *ALONE, *(f"{flag} N" for flag in OTHERS.split())]
)
LETTERS = 4  # of a token


def main(behaviour: dict[str, Any], words: list[str], counter: str) -> None:
    """Complete a text.

    speed: tokens a second with 16 slots and 8 threads. best: most slots for which there is memory. breaks: how it
    fails.
    """
    if "--help" in words:
        print(behaviour.get("help", HELP))
        return
    if "--version" in words:
        print("version: 8456 (64e25509b)\nbuilt with a compiler")
        return
    value = {flag: word for flag, word in zip(words, [*words[1:], ""], strict=True) if flag.startswith("-")}
    unknown = [flag for flag in value if flag not in HELP and not flag.endswith("-inf")]
    assert not unknown, unknown
    assert Path(value["--moe-sidecar"], "manifest.json").is_file()
    ran = Path(counter).read_text().splitlines() if Path(counter).exists() else []
    prompt = Path(value["-f"]).read_text()
    with Path(counter).open("a") as stream:
        stream.write(json.dumps([words, len(prompt)]) + "\n")
    slots = int(value["--moe-slot-bank"])
    _break(behaviour, len(ran), slots)
    speed = behaviour["speed"] * slots / 16 * {8: 1.0, 6: 1.05}.get(int(value.get("-t", 8)), 0.8)
    speed *= 1.2 if "--moe-prefetch-temporal" in words else 1.0
    speed *= 1.1 if value["--moe-cache-io-split"] == "8" else 1.0
    speed *= 3.0 if "--moe-topk" in words else 1.0
    if behaviour.get("breaks") == "slower" and len(ran) >= 8:
        speed /= 4
    _say(len(prompt) // LETTERS, int(value["-n"]), speed, behaviour.get("breaks", ""))


def _say(read: int, tokens: int, speed: float, breaks: str) -> None:
    print(f"A text of {tokens} tokens.")
    if breaks == "other format":
        print(f"{speed} tokens each second")
        return
    if breaks == "silent":
        return
    wrote = 1 if breaks == "stops" else tokens
    prompt_ms, answer_ms = 1e3 * read / (20 * speed), 0.0 if breaks == "zero" else 1e3 * wrote / speed
    print(
        "slot print_timing: id  0 | task 0 | \n"
        f"prompt eval time = {prompt_ms:10.2f} ms / {read:5d} tokens (    1.00 ms per token,    10.0 tokens per s)\n"
        f"       eval time = {answer_ms:10.2f} ms / {wrote:5d} tokens (    1.00 ms per token,    10.0 tokens per s)\n"
        f"      total time = {prompt_ms + answer_ms:10.2f} ms / {read + wrote:5d} tokens\n"
        "llama_memory_breakdown_print: |   - CUDA0 (RTX 4090)   | 24576 = 21620 + ( 2956 =  2560 +      96 +     300) +"
        "                 600 |",
        file=sys.stderr,
    )


def _break(behaviour: dict[str, Any], ran: int, slots: int) -> None:
    breaks = behaviour.get("breaks", "")
    if slots > behaviour.get("most_slots", slots):
        sys.exit("ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 1073741824")
    if breaks == "crash":
        print("llama_model_load: error loading model: unknown architecture\nFailed to load the model", file=sys.stderr)
        sys.exit(1)
    if breaks == "overflow":
        print(
            "graph_compute: Flash-MoE graph compute failed: slot-bank overflow in layer 3: need more than 8 slots\n",
            file=sys.stderr,
        )
        sys.exit(0)
    if breaks == "later" and ran:
        sys.exit("CUDA error: an illegal memory access was encountered")
    if breaks in ("segv", "oom"):
        sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGSEGV if breaks == "segv" else signal.SIGKILL)
    if breaks == "hang":
        time.sleep(3600)
    if breaks == "flood":
        for _ in range(1 << 14):
            print("x" * 4096)
