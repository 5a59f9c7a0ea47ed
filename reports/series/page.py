"""`reports/series/README.md`: what a probe and one run of llama-bench say about the others of their machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.sections import speed
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.measured.learn import Expected, learn_from, seen_on
from flashmoe_sim.measured.read import read_measured
from flashmoe_sim.measured.value import Measured
from reports.pages import joined, table
from reports.series.make_model import SHAPES, write

PARTS = "h200 + xeon-8480 + 128GiB"
PAGE = Path(__file__).with_name("README.md")
HEAD = f"""\
# One run given, the others predicted

Models of random weights, with shapes and sizes of real ones, were timed by llama-bench (llama.cpp 0c1e57098) on two
virtual machines with an H200, 16 cores of a Xeon and 126 GiB: experts of some layers on the CPU, depth, prompts and
micro-batches, 16 threads. No row has taken part in any fit. What is known of the machine:

- parts: `{PARTS}`, which is what such a server is; but a virtual machine gets a share of its RAM.
- probed: `sim machine probe`, 20 seconds.
- one run: also `--measured` with the run that has all experts on the CPU, its prompt of 512 tokens and its decoding.
  A measurement that is more than two standard deviations off is not used.

A mapped file (`mmap=yes`, llama-bench's default) is copied to the GPU for prompts from pages that are not pinned:
prompts of gpt-oss-20b are 4 to 6 times as fast without. Random weights route as they are drawn: tokens of gpt-oss use
all experts of a layer, those of qwen3-30b-a3b the same 8 of 128, so that its prompts are left out here. Runs alike
differ by up to 1.6 times on these shared machines (33.6 and 55.3 tok/s). Micro-batches of 2,048 read prompts on the GPU
2.4 times as fast as those of 512, which the prediction does not know.

```sh
python -m reports.series.measure --llama-bench build/bin/llama-bench --out mine   # on a machine with a GPU
python -m reports.series                                                           # this page
```
"""
KINDS: dict[str, Callable[[Row], bool]] = {
    "decoding, experts on the CPU": lambda row: not row.measured.prompt and row.measured.system != "all-gpu",
    "decoding, all on the GPU": lambda row: not row.measured.prompt and row.measured.system == "all-gpu",
    "prompts, experts on the CPU": lambda row: row.measured.prompt and row.measured.system != "all-gpu",
    "prompts, all on the GPU": lambda row: row.measured.prompt and row.measured.system == "all-gpu",
}
FOLDER = Path(__file__).parents[2] / "data" / "series"
# Their weights have a mean that is not zero, and send all tokens of a prompt to the same 8 experts of a layer:
# llama.cpp copies and computes no others.
ALIKE = ("qwen3-30b-a3b",)
KNOWN = ("parts", "parts, one run", "probed", "probed, one run")


class Row(NamedTuple):
    """A measured speed, and what is expected by what is known of the machine: one of KNOWN; given: whether it is part
    of the one run."""

    machine: str
    model: str
    measured: Measured
    expected: Mapping[str, Expected]
    given: bool


def series() -> Iterator[Row]:
    """All rows: by machine, then by model."""
    with TemporaryDirectory() as folder:
        for path in sorted(FOLDER.glob("*/*.jsonl")):
            header = Path(folder, path.with_suffix(".gguf").name)
            write(header, SHAPES[path.stem], header=True)
            yield from of_model(path, load_model(str(header)))


def of_model(path: Path, model: ModelGeometry) -> Iterator[Row]:
    """The rows of a model on a machine; given is the run with all experts on the CPU: its prompt and its decoding."""
    rows = [row for row in read_measured(path) if not (row.prompt and path.stem in ALIKE)]
    slowest = min((row for row in rows if not row.prompt and not row.depth), key=lambda row: row.tok_s)
    given = [row for row in rows if row.settings == slowest.settings and not row.depth]
    machines = dict[str, Machine]()
    for known, machine in (("parts", load_machine(PARTS)), ("probed", load_machine(path.with_name("probed.toml")))):
        machines |= {known: machine, f"{known}, one run": learn_from(_by_hand(given), machine, model=model)}
    for row in rows:
        expected = {known: seen_on(row, machines[known], None, model).before for known in KNOWN}
        yield Row(path.parent.name, path.stem, replace(row, where=""), expected, row in given)


def _by_hand(given: Sequence[Measured]) -> list[str]:
    """Speeds as a user would type them."""
    return [f"{row.system}={row.tok_s:.4g} tokens={row.tokens}{' prompt' * row.prompt}" for row in given]


def markdown(rows: Sequence[Row]) -> str:
    """The page: errors by kind of row and by what is known, then every row."""
    errors = []
    for name, belongs in KINDS.items():
        some = [row for row in rows if belongs(row) and not row.given]
        errors += [_cells(name, known, some) for known in KNOWN]
    of_errors = ("rows", "known", "number", "median error", "largest factor", "inside 90%", "ends apart")
    parts = [HEAD, table(of_errors, errors, left=None)]
    head = ("setting", "timed", "measured", "parts", "probed", "probed, one run")
    for of in dict.fromkeys((row.machine, row.model) for row in rows):
        own = (row_cells(row) for row in rows if (row.machine, row.model) == of)
        parts += [f"## {of[1]} on {of[0]}", table(head, own, left=None)]
    return joined(*parts) + "\n"


def _cells(name: str, known: str, rows: Sequence[Row]) -> tuple[object, ...]:
    pairs = [(row.measured.tok_s, row.expected[known]) for row in rows]
    factors = [max(one.tok_s / tok_s, tok_s / one.tok_s) for tok_s, one in pairs]
    inside = sum(one.lo <= tok_s <= one.hi for tok_s, one in pairs)
    apart = math.exp(median(math.log(one.hi / one.lo) for _, one in pairs))
    error = median(abs(one.tok_s / tok_s - 1) for tok_s, one in pairs)
    cells = (f"{error:.0%}", f"{max(factors):.1f}", f"{inside} of {len(rows)}", f"a factor of {apart:.1f}")
    return name, known, len(rows), *cells


def row_cells(row: Row) -> tuple[str, ...]:
    """A row of the table of a model on a machine."""
    one = row.measured
    timed = f"prompt of {one.tokens:,}" if one.prompt else f"{one.tokens} tokens at a depth of {one.depth:,}"
    known = ["given" if row.given and "run" in name else _expected(row.expected[name]) for name in KNOWN]
    return one.system, timed, speed(one.tok_s), known[0], known[2], known[3]


def _expected(one: Expected) -> str:
    return f"{speed(one.tok_s)} ({speed(one.lo)} to {speed(one.hi)})"
