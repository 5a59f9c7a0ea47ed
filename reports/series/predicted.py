"""A series that llama-bench measured, and what is predicted of it before and after one of its runs is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.measured.learn import Expected, learn_from, seen_on
from flashmoe_sim.measured.read import read_measured
from flashmoe_sim.measured.value import Measured
from reports.series.make_model import SHAPES, write

FOLDER = Path(__file__).parents[2] / "data" / "series"
PARTS = "h200 + xeon-8480 + 128GiB"
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
