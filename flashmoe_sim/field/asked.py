"""What `sim compare` answers for published rows: of the system that ran, as it ran, or of a plain engine like it."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from flashmoe_sim.field.engines import attended, engine_of, kv_type_of, placed_by_fit
from flashmoe_sim.field.machine import built_of
from flashmoe_sim.field.model import model_of
from flashmoe_sim.field.rows import FieldRow
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.geometry.named import named_model
from flashmoe_sim.io.errors import BadInput, Unsupported
from flashmoe_sim.io.sizes import UNITS
from flashmoe_sim.machines.belief import Whose, error_draws, error_loads
from flashmoe_sim.machines.learning import Observation
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.measured.learn import observed
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.systems.any_engine import plain_engines
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.systems.borrow import borrow, bundled
from flashmoe_sim.systems.compare import Compared, at_setting, case_of, speed_of
from flashmoe_sim.systems.published import PublishedRun
from flashmoe_sim.systems.table import SYSTEMS
from flashmoe_sim.trace.routing import RoutingTrace

_NUMBER = r"(\d[\d,]*(?:\.\d+)?)"
_SIZE = rf"{_NUMBER} ?([KMG]i?B)\b"
_SLOTS = re.compile(rf"~?{_NUMBER} (projection |LRU )?slots/layer")
_CAP = re.compile(rf"\bcap {_NUMBER}")
_OF_A_LAYER = re.compile(rf"~?{_NUMBER} of {_NUMBER} (?:experts/layer|per layer)")
_SHARE_OF_A_LAYER = re.compile(rf"{_NUMBER} % of {_NUMBER} experts/layer")
_EXPERTS = re.compile(rf"~?{_NUMBER}(?: of {_NUMBER})? experts\b(?!/layer)(?: of {_NUMBER}| \(of {_NUMBER}\))?")
_GPU_AND_RAM = re.compile(rf"GPU {_NUMBER} \+ RAM {_NUMBER} slots")
_TOTAL_SLOTS = re.compile(rf"\((?:\D*)?{_NUMBER} slots\b")
_VRAM_AND_RAM = re.compile(rf"{_NUMBER} VRAM \+ {_NUMBER} RAM pinned")
_SHARE = re.compile(rf"~?{_NUMBER} %(?! of \d)")
_FIRST_ON_CPU = re.compile(r"(?<!\S)-{0,2}(?:n-cpu-moe|ncmoe)[ =](\d+)\b")
_ALL_ON_CPU = re.compile(r"(?<!\S)-{1,2}(?:cpu-moe|cmoe)\b")
_STATIC = re.compile(rf"{_NUMBER} % static")
_CACHE = re.compile(rf"(?:^|\(|, )~?{_SIZE}(?! (?:pinned RAM|RAM|pin\b|total|VRAM total))")


def run_of(row: FieldRow) -> PublishedRun:
    """A row for the system that ran. Raises BadInput if its model is unknown, or its numbers contradict the model."""
    text, model = row.slots_per_layer_or_cache_gib, model_of(row)
    return PublishedRun(
        where=row.where,
        engine=row.engine,
        build=row.engine_version_or_pr,
        strategy="n_cpu_moe" if placed_by_fit(row) else row.strategy,
        flags=row.flags,
        model=model,
        slots_per_layer=_slots(text),
        cache_bytes=_bytes(_CACHE.search(text)),
        residents=_residents(text),
        resident_share=None if _STATIC.search(text) else _share(text),
        cpu_layers=_cpu_layers(row, model),
    )


def _slots(text: str) -> int | None:
    """Slots of experts; an expert has three projections, so slots of projections hold a third as many."""
    if match := _SLOTS.search(text):
        return round(_value(match[1]) / (3 if match[2] == "projection " else 1))
    match = _OF_A_LAYER.search(text) or _CAP.search(text)
    return round(_value(match[1])) if match else None


def _residents(text: str) -> int | None:
    found = (pattern.search(text) for pattern in (_GPU_AND_RAM, _VRAM_AND_RAM, _EXPERTS, _TOTAL_SLOTS))
    match = next(filter(None, found), None)
    return int(_value(match[1])) if match else None


def _share(text: str) -> float | None:
    if text == "all":
        return 1.0
    if match := _SHARE_OF_A_LAYER.search(text):
        return _value(match[1]) / 100
    if match := _OF_A_LAYER.search(text):
        return _value(match[1]) / _value(match[2])
    if match := _EXPERTS.search(text):
        total = next((number for number in match.groups()[1:] if number), None)
        if total:
            return _value(match[1]) / _value(total)
    match = _SHARE.search(text)
    return _value(match[1]) / 100 if match else None


def _cpu_layers(row: FieldRow, model: ModelGeometry) -> int | None:
    """Layers with their experts on the CPU; an average of several runs is rounded. If the row leaves them out, those
    of the flags, which count the layers without experts before them too.
    """
    if row.experts_on_cpu_layers.lower() == "all":
        return row.moe_layers or len(model.layers)
    if row.strategy == "n_cpu_moe" and not row.experts_on_cpu_layers:
        if _ALL_ON_CPU.search(row.flags):
            return len(model.layers)
        if first := _FIRST_ON_CPU.search(row.flags):
            return sum(layer < int(first[1]) for layer in model.layers)
    match = re.match(rf"~?{_NUMBER}", row.experts_on_cpu_layers)
    return round(_value(match[1])) if match else None


def _bytes(match: re.Match[str] | None) -> int | None:
    return None if match is None else round(_value(match[1]) * UNITS[match[2]])


def _value(text: str) -> float:
    return float(text.replace(",", ""))


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
    """A row as a question on the machine of its parts: to its own system, else to any engine like it.

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
