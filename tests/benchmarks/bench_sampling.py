"""What a sample of the layers saves: `python -m tests.benchmarks.bench_sampling`.

Replays of policies in banks of 17 sizes, on a trace of 20,000 tokens like gpt-oss-120b: all layers, and a sample
of them, in turns. Times are CPU seconds, the least of a few rounds; what it takes to read the trace from its Parquet
store stands beside them, as no sample saves that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import flashmoe_sim.api as sim
from flashmoe_sim.policies.table import parse_policy
from flashmoe_sim.residency.curve import hit_curve
from flashmoe_sim.residency.sample import sampled_curve
from flashmoe_sim.trace.store import write_store

ROUNDS = 3
TOKENS = 20_000
SHARES = (1.0, 0.5, 0.25, 0.125, 0.0625)
POLICIES = (("atomic", "min"), ("atomic", "arc"), ("atomic", "s3fifo"), ("atomic", "lfu-decay"), ("runtime", "lru"))


def seconds(work: Callable[[], Any]) -> float:
    """CPU seconds of all threads."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


def main() -> None:
    made = sim.synth(like="gpt-oss-120b", tokens=TOKENS)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "trace.parquet"
        write_store(made.trace, file)
        read = min(seconds(lambda: sim.load_trace(file)) for _ in range(ROUNDS))
    lru = min(seconds(lambda: hit_curve(made, parse_policy("lru"))) for _ in range(ROUNDS))
    print(f"{made.trace.refs:,} references; reading {read:.2f} s, the exact curve of LRU {lru:.2f} s")
    print("seconds, and how much faster than with all layers; the same with reading")
    print(f"{'policy':12}{'contract':10}" + "".join(f"{f'1/{1 / share:.0f}':>22}" for share in SHARES))
    for contract, policy in POLICIES:
        chosen, least = parse_policy(policy), dict.fromkeys(SHARES, float("inf"))
        for _ in range(ROUNDS):
            for share in SHARES:
                took = seconds(lambda: sampled_curve(made, chosen, contract=contract, share=share))  # noqa: B023 (called at once)
                least[share] = min(least[share], took)
        whole = least[SHARES[0]]
        cells = (f"{t:.2f} {whole / t:.1f}x {(whole + read) / (t + read):.1f}x" for t in least.values())
        print(f"{policy:12}{contract:10}" + "".join(f"{cell:>22}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
