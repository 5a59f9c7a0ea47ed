"""One model on many machines, and many models on one machine: the best system for each pair."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flashmoe_sim.budget import WIRED
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.systems.borrow import borrow, bundled
from flashmoe_sim.systems.compare import Compared
from flashmoe_sim.tune.recommend import chosen
from flashmoe_sim.tune.search import SearchResult, search


@dataclass(frozen=True, eq=False)
class Cell:
    """A model on a machine.

    found: what `sim recommend` names first, with its interval; if nothing runs, one of the systems and why not.
    limited: what a Mac's limit of GPU memory keeps from running, and the command that raises it; or empty.
    """

    model: str
    machine: str
    found: Compared
    limited: str = ""

    def as_row(self) -> dict[str, Any]:
        shown = {key: value for key, value in self.found.as_row().items() if key in ROW}
        return {"model": self.model, "machine": self.machine, **shown, "limited": self.limited or None}


ROW = (
    "system",
    "setting",
    "why_not",
    "gpu_bytes",
    "ram_bytes",
    "held_bytes",
    "tok_s",
    "tok_s_lo",
    "tok_s_hi",
    "command",
)


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells in the given order, and how many settings were timed for them."""

    cells: tuple[Cell, ...]
    evaluations: int

    @property
    def fastest(self) -> list[Cell]:
        """The fastest cells first, then those where nothing runs."""
        return sorted(self.cells, key=lambda cell: -(cell.found.tok_s or 0.0))


def over_machines(
    workload: Workload,
    case: Case,
    systems: Sequence[System],
    machines: Iterable[Machine],
    *,
    borrowed: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Cells:
    """The model and the context of a case on each machine; systems are sized for it, other settings stay as given."""
    cells, evaluations, machines, replays = list[Cell](), 0, list(machines), dict[Any, Any]()
    for number, machine in enumerate(machines):
        if progress is not None:
            progress(number, len(machines))
        found = search(workload, replace(case, machine=machine), systems, borrowed=borrowed, replays=replays)
        cells.append(_cell(found, replace(case, machine=machine)))
        evaluations += found.evaluations
    return Cells(tuple(cells), evaluations)


def over_models(
    cases: Iterable[Case], systems: Sequence[System], *, progress: Callable[[int, int], None] | None = None
) -> Cells:
    """Each case's model on its machine, with its bundled trace or a borrowed one."""
    cells, evaluations, cases = [], 0, list(cases)
    for number, case in enumerate(cases):
        if progress is not None:
            progress(number, len(cases))
        own = bundled(case.model)
        workload, _ = own or borrow(case.model)
        found = search(workload, case, systems, borrowed=own is None)
        cells.append(_cell(found, case))
        evaluations += found.evaluations
    return Cells(tuple(cells), evaluations)


def _cell(found: SearchResult, case: Case) -> Cell:
    best = chosen(found, case) or found.systems[0]
    limited = (f"{one.best.system.title}: {one.best.why_not}" for one in found.systems if WIRED in one.best.why_not)
    return Cell(case.model.name, case.machine.name, best.best, next(limited, ""))
