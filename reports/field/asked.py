"""What `sim compare` answers for published rows: of the system that ran, or of a plain engine like it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.geometry.named import named_model
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.machines.belief import Draws, Whose, error_draws
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.machines.table import PRESETS
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.systems.borrow import borrow, bundled
from flashmoe_sim.systems.compare import Compared, at_setting, case_of
from flashmoe_sim.systems.table import SYSTEMS
from flashmoe_sim.trace.routing import RoutingTrace
from reports.field.depth import attended, kv_type_of
from reports.field.engines import engine_of
from reports.field.generic import Plain, plain_engines
from reports.field.machine import built_of, outside, part_in
from reports.field.model import model_of
from reports.field.rows import FieldRow
from reports.field.settings import run_of

PARTS = "parts"
LEAST_RAM = 0.75  # of the RAM that a row says or needs: a preset with less is another machine


@dataclass(frozen=True, eq=False)
class Asked:
    """A row as a question to the commands: a system with its setting, on a case."""

    row: FieldRow
    system: System
    workload: Workload
    case: Case
    borrowed: bool

    @property
    def whose(self) -> Whose:
        """Whose error the answer has."""
        return self.system.whose(self.case.model.base_name)

    def answer(self, *, prompt_tokens: int = 0, interval: bool = True) -> Compared:
        """What the commands print."""
        return at_setting(
            self.workload,
            self.case,
            self.system,
            borrowed=self.borrowed,
            interval=interval,
            prompt_tokens=prompt_tokens,
        )


@dataclass(frozen=True, eq=False)
class Answered:
    """A row with its answer.

    machine: `parts`, or the name of a preset that its owner may have chosen. of_machine: draws of the logarithm of the
    speed over `found.tok_s` without the engine's error.
    """

    asked: Asked
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


def _on(asked: Asked, name: str) -> Iterator[Answered]:
    found = asked.answer()
    if found.tok_s is not None and found.draws is not None:
        engine = error_draws(asked.case.machine, asked.whose)
        yield Answered(asked, name, found, np.log(found.draws / found.tok_s) - engine)


def asked_of(row: FieldRow, traces: Traces) -> Asked:
    """A row as a question on the machine of its parts: to its own system, else to a plain engine (see `generic`).

    Raises BadInput if no engine can have run it, or the row does not say what ran.
    """
    machine = built_of(row).machine
    try:
        asked = asked_on(row, system_of(row), machine, traces)
        asked.system.check(asked.case)
    except BadInput as error:
        return _plain(row, machine, traces, error)
    return asked


def asked_on(row: FieldRow, system: System, machine: Machine, traces: Traces) -> Asked:
    """A row as a question to a system on a machine. Raises BadInput if no size of it fits."""
    workload, borrowed = traces.of(model_of(row))
    assert workload.geometry is not None
    case = case_of(workload.geometry, machine, workload=workload)
    if case.model.attention is not None:
        case = replace(case, depth=attended(row), kv_type=kv_type_of(row))
    case = replace(case, drafts=system.drafted(run_of(row)))
    return Asked(row, system if system.size_given else system.sized(case), workload, case, borrowed)


def _plain(row: FieldRow, machine: Machine, traces: Traces, refused: BadInput) -> Asked:
    """The first plain engine that can have run a row. Raises the error of its own system if none can."""
    for system in plain_engines(run_of(row)):
        with suppress(BadInput):
            asked = asked_on(row, system, machine, traces)
            asked.system.check(asked.case)
            return asked
    raise refused


def system_of(row: FieldRow) -> System:
    """The system with the settings of a row. Raises BadInput if no system runs so."""
    run = run_of(row)
    for kind in SYSTEMS.values():
        if run.strategy in kind.ran_as.get(engine_of(row), ()):
            return kind.ran(run)
    raise BadInput(f"{row.where}: no system runs {row.engine} as {row.strategy}")


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


class Traces:
    """The trace that the commands take if only a model is given."""

    def __init__(self) -> None:
        self._known = dict[object, tuple[RoutingTrace, bool]]()

    def of(self, model: ModelGeometry) -> tuple[Workload, bool]:
        """The workload of a model, and whether its trace is made after other models' traces."""
        key = model.name, model.top_k, *(layer.n_experts for layer in model.layers.values())
        if key not in self._known:
            own = bundled(model) if model.top_k == named_model(model.name).top_k else None
            self._known[key] = (own[0].trace, False) if own is not None else (borrow(model)[0].trace, True)
        trace, borrowed = self._known[key]
        return prepare(trace, model), borrowed
