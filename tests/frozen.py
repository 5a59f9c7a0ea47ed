"""Results that a change of structure must not move: `python -m tests.frozen` compares them with frozen.csv.

Every bundled trace, policy and contract at two banks, every predictor, and the seconds of every execution model on
three machines, each as a digest of its rows without their ids. `--write` freezes today's; the commit that does so says
why.
"""

from __future__ import annotations

import csv
import hashlib
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import polars

import flashmoe_sim.api as sim
from flashmoe_sim.policies.base import ALL_CONTRACTS
from flashmoe_sim.policies.table import POLICIES
from flashmoe_sim.prefetchers.table import PREFETCHERS
from flashmoe_sim.timeline.models.table import EXECUTION_MODELS

FILE = Path(__file__).with_name("frozen.csv")
MACHINES = ("m3-max-48,rtx-3060", "vm-2core")  # the last has no GPU, which some execution models need
NOT_RESULTS = ("id", "version", "trace_id")
LABELS = ("trace", "contract", "policy", "prefetch", "execution", "machine")


def results(names: list[str]) -> Iterator[tuple[str, ...]]:
    """A row for each setup that can be: its labels, how many rows of results it has, and their digest."""
    for name in names:
        trace = sim.load_trace(name)
        experts = min(trace.trace.n_experts.values())
        banks = [max(2, experts // 8), experts // 2]
        for contract in ALL_CONTRACTS:
            for policy in POLICIES:
                yield from _frozen(trace, bank=banks, contract=contract, policy=policy)
        for prefetch in PREFETCHERS:
            yield from _frozen(trace, bank=banks, contract="protected", prefetch=prefetch)
        for execution in EXECUTION_MODELS:
            for policy in ("lru", "demand", "hot-window"):
                for prefetch in ("none", "oracle-1"):
                    for machine in MACHINES:
                        yield from _frozen(
                            trace,
                            bank=banks,
                            contract="atomic",
                            policy=policy,
                            prefetch=prefetch,
                            execution=execution,
                            machine=machine,
                        )


def _frozen(trace: sim.Workload, **asked: object) -> Iterator[tuple[str, ...]]:
    try:
        table = sim.sweep(trace, **asked)  # type: ignore[arg-type]
    except sim.BadInput:
        return
    values = table.drop(column for column in NOT_RESULTS if column in table.columns)
    digest = hashlib.blake2b(values.write_csv(float_precision=None).encode(), digest_size=8).hexdigest()
    labels = {"trace": trace.trace.name, "policy": "lru", "prefetch": "none", **asked}
    yield *(str(labels.get(label, "")) for label in LABELS), str(table.height), digest


def main(arguments: list[str]) -> int:
    """Compare, or with `--write` freeze; names of traces limit it to them."""
    warnings.simplefilter("ignore")
    names = [name for name in arguments if name != "--write"] or list(sim.catalog())
    found = list(results(names))
    if "--write" in arguments:
        with FILE.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([(*LABELS, "rows", "digest"), *found])
        return 0
    wanted = {tuple(row[:-1]): row[-1] for row in polars.read_csv(FILE, infer_schema=False).fill_null("").iter_rows()}
    wanted = {labels: digest for labels, digest in wanted.items() if labels[0] in names}
    today = {row[:-1]: row[-1] for row in found}
    moved = sorted(labels for labels in wanted.keys() | today.keys() if wanted.get(labels) != today.get(labels))
    for labels in moved:
        print(*labels, "was", wanted.get(labels), "is", today.get(labels))
    print(f"{len(today) - len(moved)} of {len(today)} as they were")
    return 1 if moved else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
