"""Speeds that other people measured with a model, those of the most similar machines first."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from flashmoe_sim.geometry.named import file_bytes
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.systems.table import SYSTEMS

TABLE = Path(str(resources.files("flashmoe_sim.tune").joinpath("speeds_of_others.csv")))
MOST = 5
SAME_FILE = 1.25  # times as large at most: more is another quantization
SHALLOW = 8192  # tokens in the context
OTHER_WAY, OTHER_PROGRAM = 0.3, 0.6  # how far another system of a program is, and another program, as ratios of rates
UNKNOWN = 0.7  # the same, of a rate that is not known


@dataclass(frozen=True)
class OthersSpeed:
    """A published speed. on: a card or a computer; url: where. reads: whether it waited for a drive."""

    model: str
    file_gib: float
    on: str
    gpu_gib: float | None
    gpu_gb_s: float | None
    ram_gb_s: float | None
    system: str
    depth: int
    drafts: int
    reads: bool
    tok_s: float
    url: str


@dataclass(frozen=True)
class OnOneComputer:
    """The speeds of one engine on one card or computer. same: whether it is the engine of the answer."""

    on: str
    title: str
    same: bool
    reads: bool
    speeds: tuple[OthersSpeed, ...]


@cache
def speeds_of_others() -> tuple[OthersSpeed, ...]:
    """All, as `python -m reports.field.speeds` wrote them."""

    def number(text: str) -> float | None:
        return float(text) if text else None

    with TABLE.open(encoding="utf-8", newline="") as file:
        return tuple(
            OthersSpeed(
                row["model"],
                float(row["file_gib"]),
                row["on"],
                number(row["gpu_gib"]),
                number(row["gpu_gb_s"]),
                number(row["ram_gb_s"]),
                row["system"],
                int(row["depth"]),
                int(row["drafts"]),
                row["reads"] == "true",
                float(row["tok_s"]),
                row["url"],
            )
            for row in csv.DictReader(file)
        )


def nearest(system: System, case: Case, *, most: int = MOST) -> list[OnOneComputer]:
    """The groups of speeds with the model of a case that are nearest to a system's on it; none in a deep context.

    The nearest one of the same system is among them.
    """
    if case.depth > SHALLOW:
        return []
    size_gib = file_bytes(case.model) / GIB
    groups = defaultdict[tuple[str, str, bool], list[OthersSpeed]](list)
    for one in speeds_of_others():
        alike = one.model == case.model.base_name and abs(math.log(one.file_gib / size_gib)) <= math.log(SAME_FILE)
        if one.system in SYSTEMS and alike and one.depth <= SHALLOW and bool(one.drafts) == (case.drafts is not None):
            groups[one.on, one.system, one.reads].append(one)
    far = {key: min(_far(one, system, case.machine) for one in of) for key, of in groups.items()}
    order = sorted(groups, key=lambda key: (far[key], key))
    same = next((key for key in order if key[1] == system.name), None)
    order = order[:most] if same is None or same in order[:most] else [*order[: most - 1], same]
    return [
        OnOneComputer(on, SYSTEMS[name].title, name == system.name, reads, tuple(groups[on, name, reads]))
        for on, name, reads in order
    ]


def _far(one: OthersSpeed, system: System, machine: Machine) -> float:
    """How unlike a speed's machine and engine are."""
    other = OTHER_WAY if SYSTEMS[one.system].program == system.program else OTHER_PROGRAM
    return sum(_distances(one, machine)) + (one.system != system.name) * other


def _distances(one: OthersSpeed, machine: Machine) -> Iterator[float]:
    gpu, memory = machine.gpu, machine.memory
    size, rate = (None, None) if gpu is None else (gpu.memory_gib, gpu.weights_gb_s)
    ram = None if memory is None else memory.bandwidth_gb_s
    own = ((one.gpu_gib, size), (one.gpu_gb_s, rate), (one.ram_gb_s, ram))
    for theirs, mine in own:
        if theirs and mine is not None:
            yield abs(math.log(theirs / mine.value))
        elif theirs or mine is not None:
            yield UNKNOWN
