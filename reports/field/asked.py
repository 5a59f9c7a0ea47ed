"""Published rows with their answers: on the machine of their parts, and on presets that their owners may have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from flashmoe_sim.field.asked import AskedRow, Traces, asked_of, asked_on, system_of
from flashmoe_sim.field.machine import built_of, outside, part_in
from flashmoe_sim.field.rows import FieldRow
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.machines.belief import Draws, error_draws
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.machines.table import PRESETS
from flashmoe_sim.systems.any_engine import Plain
from flashmoe_sim.systems.compare import Compared

PARTS = "parts"
LEAST_RAM = 0.75  # of the RAM that a row says or needs: a preset with less is another machine


@dataclass(frozen=True, eq=False)
class Answered:
    """A row with its answer.

    machine: `parts`, or the name of a preset that its owner may have chosen. of_machine: draws of the logarithm of the
    speed over `found.tok_s` without the engine's error.
    """

    asked: AskedRow
    machine: str
    found: Compared
    of_machine: Draws

    @property
    def row(self) -> FieldRow:
        return self.asked.row

    @property
    def plain(self) -> bool:
        """Whether a plain engine stands for the row's."""
        return isinstance(self.asked.system, Plain)


def answered(
    rows: Sequence[FieldRow], *, progress: Callable[[int, int], None] = lambda done, total: None
) -> list[Answered]:
    """The answers to rows that can be asked: on the machine of its parts, and if a system is its engine on presets."""
    traces, found = Traces(), list[Answered]()
    for number, row in enumerate(rows, 1):
        found += _answered(row, traces)
        progress(number, len(rows))
    return found


def _answered(row: FieldRow, traces: Traces) -> Iterator[Answered]:
    with suppress(BadInput):
        asked = asked_of(row, traces)
        yield from _on(asked, PARTS)
        if not isinstance(asked.system, Plain):
            system = system_of(row)
            for name, machine in presets_of(row).items():
                with suppress(BadInput):
                    yield from _on(asked_on(row, system, machine, traces), name)


def _on(asked: AskedRow, name: str) -> Iterator[Answered]:
    found = asked.answer()
    if found.tok_s is not None and found.draws is not None:
        engine = error_draws(asked.case.machine, asked.whose)
        yield Answered(asked, name, found, np.log(found.draws / found.tok_s) - engine)


def presets_of(row: FieldRow) -> dict[str, Machine]:
    """Presets with the row's only GPU and about as much RAM as it has or needs, or more."""
    built = built_of(row).machine
    part = part_in(row.gpu, ("gpu",))
    if part is None or built.gpus > 1 or outside(row):
        return {}
    presets = {name: load_machine(name) for name in PRESETS if name == part.name}
    return {name: preset for name, preset in presets.items() if _ram_gib(preset) >= LEAST_RAM * _ram_gib(built)}


def _ram_gib(machine: Machine) -> float:
    return 0.0 if machine.memory is None else machine.memory.ram_gib.value
