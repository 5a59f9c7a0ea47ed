"""Results that a change of structure must not move: `python -m tests.frozen` compares them with frozen.csv.

Every bundled trace, policy and contract at two banks, or at one of all experts where these cannot hold a prompt's call,
every predictor, and the seconds of every execution model on three machines: each as a digest of its rows without their
ids, beside their misses and mean speed. What moved is printed as it was and as it is. `--write WHAT` freezes today's
results; if any moved, it adds WHAT to the changelog's table of changed results, with the first that moved.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import flashmoe_sim.api as sim
from flashmoe_sim.policies.base import ALL_CONTRACTS
from flashmoe_sim.policies.table import POLICIES
from flashmoe_sim.prefetchers.table import WITHOUT_FILE
from flashmoe_sim.timeline.models.table import EXECUTION_MODELS

FILE = Path(__file__).with_name("frozen.csv")
MACHINES = ("m3-max-48,rtx-3060", "vm-2core")  # the last has no GPU, which some execution models need
NOT_RESULTS = ("id", "version", "trace_id", "minor_misses")  # of which there are none here
LABELS = ("trace", "contract", "policy", "prefetch", "execution", "machine")
COLUMNS = (*LABELS, "rows", "misses", "tok_s", "digest")
CHANGELOG = Path(__file__).parents[1] / "CHANGELOG.md"
UNRELEASED = "## Unreleased\n"
CHANGED = "Changed results:\n\n| what | before | after |\n|---|---|---|\n"
Results = dict[tuple[str, ...], dict[str, str]]  # by labels


def results(names: list[str]) -> Iterator[dict[str, str]]:
    """A row of COLUMNS for each setup that can be; rows: how many results it has."""
    for name in names:
        trace = sim.load_trace(name)
        experts = min(trace.trace.n_experts.values())
        banks = [max(2, experts // 8), experts // 2]
        for contract in ALL_CONTRACTS:
            for policy in POLICIES:
                found = list(_frozen(trace, bank=banks, contract=contract, policy=policy))
                yield from found or _frozen(trace, bank=experts, contract=contract, policy=policy)
        for prefetch in WITHOUT_FILE:
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


def _frozen(trace: sim.Workload, **asked: object) -> Iterator[dict[str, str]]:
    try:
        table = sim.sweep(trace, **asked)  # type: ignore[arg-type]
    except sim.BadInput:
        return
    values = table.drop(column for column in NOT_RESULTS if column in table.columns)
    digest = hashlib.blake2b(values.write_csv(float_precision=None).encode(), digest_size=8).hexdigest()
    labels = {"trace": trace.trace.name, "policy": "lru", "prefetch": "none", **asked}
    speed = table["tok_s"].mean()
    yield {
        **{label: str(labels.get(label, "")) for label in LABELS},
        "rows": str(table.height),
        "misses": str(table["misses"].sum()),
        "tok_s": "" if speed is None else f"{speed:.6g}",
        "digest": digest,
    }


def moves(wanted: Results, today: Results) -> Iterator[tuple[str, str, str]]:
    """What of the results is another, before, and after."""
    for labels in sorted(wanted.keys() | today.keys()):
        before, after = wanted.get(labels), today.get(labels)
        if before is None or after is None or before["digest"] != after["digest"]:
            yield ", ".join(filter(None, labels)), _shown(before), _shown(after)


def _shown(row: dict[str, str] | None) -> str:
    if row is None:
        return "none"
    speed = f", {row['tok_s']} tok/s" if row["tok_s"] else ""
    return f"{row['misses']} misses{speed} ({row['digest'][:6]})"


def in_changelog(text: str, what: str, moved: list[tuple[str, str, str]]) -> str:
    """The changelog with a line for results that moved, among those that are not released."""
    labels, before, after = moved[0]
    more = f" and {len(moved) - 1} more" if len(moved) > 1 else ""
    assert UNRELEASED in text, "the changelog has no part for what is not released"
    head, released, rest = text.partition("\n## 0")
    if CHANGED not in head:
        head = head.replace(UNRELEASED, f"{UNRELEASED}\n{CHANGED}", 1)
    head = head.replace(CHANGED, f"{CHANGED}| {what} ({labels}{more}) | {before} | {after} |\n", 1)
    return f"{head}{released}{rest}"


def load() -> Results:
    """What is frozen."""
    with FILE.open(newline="") as file:
        return {tuple(row[label] for label in LABELS): row for row in csv.DictReader(file)}


def main(arguments: list[str]) -> int:
    """Compare, or freeze; names of traces limit it to them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", nargs="*", metavar="TRACE")
    parser.add_argument("--write", metavar="WHAT", help="freeze today's results; WHAT changed them")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    names = options.traces or list(sim.catalog())
    frozen = load()
    today = {tuple(row[label] for label in LABELS): row for row in results(names)}
    wanted = {labels: row for labels, row in frozen.items() if labels[0] in names}
    moved = list(moves(wanted, today))
    for labels, before, after in moved:
        print(f"{labels}: was {before}, is {after}")
    print(f"{len(today) - len(moved)} of {len(today)} as they were")
    if options.write is None:
        return 1 if moved else 0
    kept = {labels: row for labels, row in frozen.items() if labels not in wanted}
    with FILE.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows([*today.values(), *kept.values()])
    if moved:
        CHANGELOG.write_text(in_changelog(CHANGELOG.read_text(), options.write, moved))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
