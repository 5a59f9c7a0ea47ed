"""What `sim compare` answers for published rows: of the system that ran, or of a plain engine like it."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from flashmoe_sim.field.depth import attended, kv_type_of
from flashmoe_sim.field.engines import engine_of
from flashmoe_sim.field.generic import plain_engines
from flashmoe_sim.field.machine import built_of
from flashmoe_sim.field.model import model_of
from flashmoe_sim.field.rows import FieldRow
from flashmoe_sim.field.settings import run_of
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.geometry.named import named_model
from flashmoe_sim.io.errors import BadInput, Unsupported
from flashmoe_sim.machines.belief import Whose, error_draws, error_loads
from flashmoe_sim.machines.learning import Observation
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.measured.learn import observed
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.systems.borrow import borrow, bundled
from flashmoe_sim.systems.compare import Compared, at_setting, case_of, speed_of
from flashmoe_sim.systems.table import SYSTEMS
from flashmoe_sim.trace.routing import RoutingTrace


@dataclass(frozen=True, eq=False)
class AskedRow:
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


def asked_of(row: FieldRow, traces: Traces) -> AskedRow:
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


def asked_on(row: FieldRow, system: System, machine: Machine, traces: Traces) -> AskedRow:
    """A row as a question to a system on a machine. Raises BadInput if no size of it fits."""
    workload, borrowed = traces.of(model_of(row))
    assert workload.geometry is not None
    case = case_of(workload.geometry, machine, workload=workload)
    if case.model.attention is not None:
        case = replace(case, depth=attended(row), kv_type=kv_type_of(row))
    case = replace(case, drafts=system.drafted(run_of(row)))
    return AskedRow(row, system if system.size_given else system.sized(case), workload, case, borrowed)


def _plain(row: FieldRow, machine: Machine, traces: Traces, refused: BadInput) -> AskedRow:
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
    raise Unsupported(f"{row.where}: no system runs {row.engine} as {row.strategy}")


def observation_of(asked: AskedRow) -> Observation:
    """The measured speed of a row, as something to learn from or to explain."""
    machine, found = asked.case.machine, asked.answer(interval=False)
    assert found.draws is not None
    assert found.tok_s is not None
    unknown = np.log(found.draws / found.tok_s) - error_draws(machine, asked.whose)
    speed_on = speed_of(asked.workload, asked.case, asked.system)
    return observed(asked.row.decode_tok_s or math.nan, speed_on, error_loads(machine, asked.whose), unknown=unknown)


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
