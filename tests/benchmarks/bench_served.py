"""How fast responses of servers become a trace, beside orjson's parse of the same lines alone.

Run with `python -m tests.benchmarks.bench_served`. Both take turns in every round; a ratio is that of the median times.
orjson gets lines that are already in memory; we read the file and return a checked RoutingTrace.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import orjson

from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.trace.requests import Hints

LAYERS, TOP_K, EXPERTS = 48, 8, 128
PROMPT, GENERATED = 1500, 500
GOAL = 0.5


def responses(form: str, count: int) -> list[bytes]:
    """Lines of made-up responses."""
    rng = np.random.default_rng(0)
    rows = PROMPT + GENERATED - 1
    found = []
    for _ in range(count):
        # An odd stride makes the experts of a token distinct.
        start, stride = rng.integers(0, EXPERTS // 2, (2, rows, LAYERS, 1))
        expert = (start + (2 * stride + 1) * np.arange(TOP_K)) % EXPERTS
        usage = {"prompt_tokens": PROMPT, "completion_tokens": GENERATED}
        if form == "sglang":
            sent = base64.b64encode(expert.astype("<i4").tobytes()).decode()
            found.append(json.dumps({"text": "words", "meta_info": {**usage, "routed_experts": sent}}))
        elif form == "vllm 0.21":
            choice = {"index": 0, "routed_experts": expert[PROMPT:].tolist()}
            found.append(
                json.dumps({"choices": [choice], "prompt_routed_experts": expert[:PROMPT].tolist(), "usage": usage})
            )
        else:
            stream = io.BytesIO()
            np.save(stream, expert.astype(form.split()[1]))
            choice = {"index": 0, "routed_experts": base64.b64encode(stream.getvalue()).decode()}
            found.append(json.dumps({"choices": [choice], "usage": usage}))
    return [line.encode() + b"\n" for line in found]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--responses", type=int, default=20, help="responses in a file")
    options.add_argument("--rounds", type=int, default=9, help="how often each reader takes its turn")
    given = options.parse_args()
    print(f"{'form':<14}{'MB':>6}{'orjson ms':>11}{'ours ms':>9}{'ratio':>7}   goal >= {GOAL}")
    with tempfile.TemporaryDirectory() as folder:
        for form in ("vllm uint8", "vllm uint16", "vllm int32", "sglang", "vllm 0.21"):
            lines = responses(form, 3 if form == "vllm 0.21" else given.responses)
            path = Path(folder) / "responses.jsonl"
            path.write_bytes(b"".join(lines))
            hints = Hints(top_k=TOP_K, prefill_chunk=2048)
            trace = load_trace(path, hints=hints)
            assert trace.refs == len(lines) * (PROMPT + GENERATED - 1) * LAYERS * TOP_K
            costs: dict[str, list[float]] = {"orjson": [], "ours": []}
            for _ in range(given.rounds):
                began = time.process_time()
                for line in lines:
                    orjson.loads(line)
                between = time.process_time()
                load_trace(path, hints=hints)
                costs["ours"].append(time.process_time() - between)
                costs["orjson"].append(between - began)
            theirs, ours = (statistics.median(costs[name]) * 1e3 for name in ("orjson", "ours"))
            size = path.stat().st_size / 1e6
            met = "met" if theirs >= GOAL * ours else "MISSED"
            print(f"{form:<14}{size:>6.0f}{theirs:>11.1f}{ours:>9.1f}{theirs / ours:>7.2f}   {met}")


if __name__ == "__main__":
    main()
