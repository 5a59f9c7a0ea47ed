"""What `sim compare` answers for published rows: of the system that ran, or of a plain engine like it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from flashmoe_sim.drafts import MTP, given_drafts
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.geometry.named import named_model
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.machines.belief import Draws, Whose, error_draws
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.machines.table import PRESETS
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.systems.all_gpu import AllGpu
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.systems.big_moe_on_edge import BigMoeOnEdge
from flashmoe_sim.systems.borrow import borrow, bundled
from flashmoe_sim.systems.bounded_insert import BoundedInsert
from flashmoe_sim.systems.cached import Cached
from flashmoe_sim.systems.compare import Compared, at_setting, case_of
from flashmoe_sim.systems.cpu import Cpu
from flashmoe_sim.systems.crow import Crow
from flashmoe_sim.systems.ds4 import Ds4
from flashmoe_sim.systems.flash_moe import FlashMoe
from flashmoe_sim.systems.hot_cache import HotCache
from flashmoe_sim.systems.imp import Imp
from flashmoe_sim.systems.ktransformers import KTransformers
from flashmoe_sim.systems.moe_cache import MoeCache
from flashmoe_sim.systems.neurall import Neurall
from flashmoe_sim.systems.nvmoe import Nvmoe
from flashmoe_sim.systems.placed import PlacedLayers
from flashmoe_sim.systems.placed_ik import PlacedIk
from flashmoe_sim.systems.qvac import Qvac
from flashmoe_sim.systems.slotstream import Slotstream
from flashmoe_sim.systems.static_profile import StaticProfile
from flashmoe_sim.systems.strata import Strata
from flashmoe_sim.systems.turbo_fieldfare import TurboFieldfare
from flashmoe_sim.trace.routing import RoutingTrace
from reports.field.depth import attended, kv_type_of
from reports.field.engines import engine_of, is_fork
from reports.field.generic import Plain, plain_engines
from reports.field.machine import built_of, outside, part_in
from reports.field.model import model_of
from reports.field.rows import FieldRow
from reports.field.settings import Settings, settings_of

_DRAFTS = re.compile(r"drafts\b|MTP on")
_NO_DRAFTS = re.compile(r"no (?:MTP|drafts)|MTP off|--spec 1\b", re.IGNORECASE)
_MIB = re.compile(r"(?:NVMOE_CACHE_MB=|--moe-hot-cache-max-mib |cache |--moe-cache-mib )(\d+)")
_SPEC = re.compile(r"--spec (\d+)")  # tokens of a window, of which all but one are drafted
STRATA_WINDOW = 4  # as its setup starts it
STRATA_ACCEPT = 0.77  # 2.8 tokens of text a window of four: its documentation has 2.4 to 3.2
_PCIE_SHARE = re.compile(r"--pcie-frac (\d[\d.]*)")
_RESERVED = re.compile(r"RESERVE_MB|ADMIT_AFTER")
_NO_SETTING = re.compile(r"policy: (?:S?LRU|aging)|router|learned(?! state)")  # rules and predictors of neurall


CACHED = ("vram_lru", "vram_static_profile", "slot_bank_ssd", "ssd_stream")
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
    if isinstance(system, Strata) and not _NO_DRAFTS.search(row.flags):
        match = _SPEC.search(row.flags)
        drafted = (int(match[1]) if match else STRATA_WINDOW) - 1
        case = replace(case, drafts=given_drafts(drafted, STRATA_ACCEPT, MTP, workload.geometry))
    return Asked(row, system if system.size_given else system.sized(case), workload, case, borrowed)


def _plain(row: FieldRow, machine: Machine, traces: Traces, refused: BadInput) -> Asked:
    """The first plain engine that can have run a row. Raises the error of its own system if none can."""
    for system in plain_engines(row, settings_of(row, moe_layers=len(model_of(row).layers))):
        with suppress(BadInput):
            asked = asked_on(row, system, machine, traces)
            asked.system.check(asked.case)
            return asked
    raise refused


def system_of(row: FieldRow) -> System:
    """The system with the settings of a row. Raises BadInput if no system runs so."""
    own_cache = engine_of(row) == "llama.cpp" and is_fork(row) and row.strategy in CACHED
    for engine, strategies, made in SYSTEMS:
        if engine_of(row) == engine and row.strategy in strategies and not own_cache:
            return made(row, settings_of(row, moe_layers=len(model_of(row).layers)))
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


def _placed(kind: type[PlacedLayers]) -> Callable[[FieldRow, Settings], System]:
    def made(row: FieldRow, settings: Settings) -> System:
        layers = settings.cpu_layers
        return kind() if layers is None else kind(cpu_layers=min(round(layers), len(model_of(row).layers)))

    return made


def _rounded(value: float | None) -> int | None:
    return None if value is None else round(value)


def _all_gpu(row: FieldRow, settings: Settings) -> System:
    return AllGpu()


def _hot_cache(row: FieldRow, settings: Settings) -> System:
    match = _MIB.search(row.flags)
    return HotCache(max_mib=int(match[1])) if match else HotCache()


def _kt(row: FieldRow, settings: Settings) -> System:
    experts = max(layer.n_experts for layer in model_of(row).layers.values())
    if settings.resident_share is None:
        raise BadInput(f"{row.where}: does not say how many experts are on the GPU")
    return KTransformers(experts=round(settings.resident_share * experts))


def _slots(kind: Callable[..., System]) -> Callable[[FieldRow, Settings], System]:
    def made(row: FieldRow, settings: Settings) -> System:
        if settings.slots_per_layer is None:
            raise BadInput(f"{row.where}: does not say how many slots a layer has")
        return kind(slots=round(settings.slots_per_layer))

    return made


def _mib(kind: Callable[..., System]) -> Callable[[FieldRow, Settings], System]:
    def made(row: FieldRow, settings: Settings) -> System:
        match = _MIB.search(row.flags)
        if not match:
            raise BadInput(f"{row.where}: does not say how large the cache is")
        return kind(cache_mib=int(match[1]))

    return made


def _ds4(row: FieldRow, settings: Settings) -> System:
    if row.strategy == "all_gpu":
        return Ds4()
    each = max(layer.expert_bytes for layer in model_of(row).layers.values())
    return Ds4(experts=settings.residents or (settings.cache_bytes or 0) // each or None)


def _slotstream(row: FieldRow, settings: Settings) -> System:
    if _DRAFTS.search(row.flags):
        raise BadInput(f"{row.where}: drafts of slotstream are not modelled")
    return Slotstream(experts_per_layer=_rounded(settings.slots_per_layer))


def _strata(row: FieldRow, settings: Settings) -> System:
    match = _PCIE_SHARE.search(row.flags)
    return Strata(experts=settings.residents, pcie_share=float(match[1]) if match else None)


def _neurall(row: FieldRow, settings: Settings) -> System:
    """With what its build did by default, and empty at the start unless it kept what it had learnt."""
    flags, early = row.flags, row.engine_version_or_pr.startswith("b112")
    if _NO_SETTING.search(flags):
        raise BadInput(f"{row.where}: no setting of neurall is that eviction rule or predictor")
    if early and "WAIT" not in flags and "DETERMINISTIC" not in flags:
        raise BadInput(f"{row.where}: this build did not wait for swaps, as neurall does")
    asked = Neurall(slots=_rounded(settings.slots_per_layer), profile="half" if "state kept" in flags else "none")
    if early or "policy: " in flags:
        asked = replace(asked, lead=0 if "margin 0" in flags else -2, admit=2 if "admit on 2" in flags else 0)
    return replace(asked, swaps=8, lead=4) if "DETERMINISTIC" in flags else asked


def _moe_cache(row: FieldRow, settings: Settings) -> System:
    if "drafter" in row.flags or _RESERVED.search(row.flags):
        raise BadInput(f"{row.where}: moe-cache has no settings for a drafter, the reserve or the admission")
    match = _MIB.search(row.flags)
    return MoeCache(cache_mib=int(match[1])) if match else MoeCache()


def _cached(row: FieldRow, settings: Settings) -> System:
    match = _MIB.search(row.flags)
    return Cached(cache_mib=int(match[1])) if match else Cached()


def _qvac(row: FieldRow, settings: Settings) -> System:
    """By its own rule if it fits itself."""
    match = _MIB.search(row.flags)
    if match is None or "--fit on" in row.flags:
        return Qvac()
    return Qvac(cache_mib=int(match[1]), cpu_layers=_rounded(settings.cpu_layers))


CPU = ("cpu_only", "page_cache_mmap")
SYSTEMS = (
    ("llama.cpp", ("all_gpu",), _all_gpu),
    ("llama.cpp", ("n_cpu_moe", "ot_regex"), _placed(PlacedLayers)),
    ("ik_llama.cpp", ("n_cpu_moe", "ot_regex"), _placed(PlacedIk)),
    ("ik_llama.cpp", ("all_gpu",), lambda row, settings: PlacedIk(cpu_layers=0)),
    ("llama.cpp", CPU, lambda row, settings: Cpu()),
    ("adrianhoehne/llama.cpp hot-cache", ("vram_static_profile",), _hot_cache),
    ("ktransformers kt-kernel + SGLang", ("vram_static_profile", "n_cpu_moe", "all_gpu"), _kt),
    ("TurboFieldfare", ("slot_bank_ssd",), _slots(TurboFieldfare)),
    ("nvmoe", ("slot_bank_ssd",), _mib(Nvmoe)),
    ("ds4", ("slot_bank_ssd", "ssd_stream", "all_gpu"), _ds4),
    ("slotstream", ("slot_bank_ssd",), _slotstream),
    ("llama.cpp + moe-stream patch", ("slot_bank_ssd",), _slots(Crow)),
    ("kekzl/imp", ("vram_lru",), _slots(Imp)),
    ("llama.cpp PR #27861", ("vram_lru",), _slots(BoundedInsert)),
    ("thecodacus/llama.cpp moe-cache", ("vram_static_profile",), _slots(StaticProfile)),
    ("Strata", ("vram_lru",), _strata),
    ("neurall llama.cpp", ("vram_lru",), _neurall),
    ("leloch moe-cache", ("vram_lru",), _moe_cache),
    ("llama.cpp", ("vram_lru",), _cached),
    ("qvac-fabric-llm.cpp", ("vram_lru",), _qvac),
    ("BigMoeOnEdge", ("ssd_stream",), _mib(BigMoeOnEdge)),
    ("flash-moe", ("page_cache_mmap", "ssd_stream"), lambda row, settings: FlashMoe()),
)
