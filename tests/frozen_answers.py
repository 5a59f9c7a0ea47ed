"""Speeds and command lines of every system: `python -m tests.frozen_answers` compares them with frozen_answers.csv.

Four models on six machines, and others that only one engine serves; every system at the size of its own rule.
`--write` freezes today's answers.
"""

from __future__ import annotations

import argparse
import csv
import sys
import warnings
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path

import flashmoe_sim.api as sim

FILE = Path(__file__).with_name("frozen_answers.csv")
MODELS = ("gpt-oss-120b", "deepseek-v2-lite", "qwen3.5-35b-a3b", "qwen3-235b-a22b")
MACHINES = (
    "rtx-3060 + ryzen-5600 + ddr4-3200x2 + 32GiB + nvme-gen4",
    "rtx-4090 + ryzen-7950x + ddr5-5600x2 + 64GiB + nvme-gen4",
    "2x rtx-3090 + epyc-7532 + ddr4-3200x8 + 128GiB + nvme-gen4",
    "rx-7900-xtx + ryzen-7700x + ddr5-5200x2 + 96GiB + nvme-gen4",
    "m3-max-48",
    "strix-halo-128",
)
OF_ONE_ENGINE = (
    ("glm-5.2:int4-g64", "ryzen-9950x + ddr5-5600x2 + 128GiB + nvme-gen4"),
    ("qwen3.5-397b-a17b:mlx-4bit", "m3-max-48"),
    ("qwen3.8-flash-next:mlx-4bit", "m4-max + 64GiB"),
    ("gemma-4-26b-a4b:mlx-4bit", "m4 + 16GB"),
    ("deepseek-v4-flash:ds4-q2", "m3-max-128"),
    ("qwen3.8-flash-next", "rtx-5090 + ryzen-9950x + ddr5-6000x2 + 192GiB + nvme-gen5"),
    ("deepseek-v3:fp8", "rtx-pro-6000 + xeon-8480 + 1024GiB"),
    ("qwen3-30b-a3b", "rtx-5090 + 64GiB"),
    ("qwen3.6-35b-a3b:mlx-4bit", "m3-max-48"),
    ("gpt-oss-120b:mxfp4-q8", "m5-max-128"),
)
ASKED = (*product(MODELS, MACHINES), *OF_ONE_ENGINE)
COLUMNS = ("model", "machine", "system", "setting", "tok_s", "command")
SAME = 1e-4  # of a speed: what another processor's arithmetic may change
Answers = dict[tuple[str, ...], dict[str, str]]


def answers(model: str, machine: str) -> Iterator[dict[str, str]]:
    """A row of COLUMNS for each system that runs."""
    for row in sim.compare(model=model, machine=machine).iter_rows(named=True):
        if row["tok_s"] is not None:
            of_row = {name: row[name] for name in ("system", "setting", "command")}
            yield {"model": model, "machine": machine, **of_row, "tok_s": f"{row['tok_s']:.6g}"}


def by_labels(rows: Iterable[dict[str, str]]) -> Answers:
    return {(row["model"], row["machine"], row["system"]): row for row in rows}


def load() -> Answers:
    """What is frozen."""
    with FILE.open(newline="") as file:
        return by_labels(csv.DictReader(file))


def moves(wanted: Answers, today: Answers) -> Iterator[str]:
    """What of the answers is another, before and after."""
    for labels in sorted(wanted.keys() | today.keys()):
        before, after = wanted.get(labels), today.get(labels)
        if before is None or after is None or not _same(before, after):
            yield f"{', '.join(labels)}: was {_shown(before)}, is {_shown(after)}"


def _same(before: dict[str, str], after: dict[str, str]) -> bool:
    speeds = float(before["tok_s"]), float(after["tok_s"])
    return before["command"] == after["command"] and abs(speeds[1] / speeds[0] - 1) <= SAME


def _shown(row: dict[str, str] | None) -> str:
    return "none" if row is None else f"{row['tok_s']} tok/s by `{row['command']}`"


def main(arguments: list[str]) -> int:
    """Compare, or freeze."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="freeze today's answers")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    rows = [row for model, machine in ASKED for row in answers(model, machine)]
    if options.write:
        with FILE.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        return 0
    moved = list(moves(load(), by_labels(rows)))
    print("\n".join([*moved, f"{len(rows) - len(moved)} of {len(rows)} as they were"]))
    return 1 if moved else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
