"""What `sim compare` prints for the rows that it can run as they were run."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
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
from flashmoe_sim.systems.base import System
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
from reports.field.machine import built_of, outside, part_in
from reports.field.model import model_of, name_of
from reports.field.rows import FieldRow
from reports.field.settings import Settings, settings_of
from reports.field.tune import engine_of

_DRAFTS = re.compile(r"drafts\b|MTP on")
_MIB = re.compile(r"(?:NVMOE_CACHE_MB=|--moe-hot-cache-max-mib |cache |--moe-cache-mib )(\d+)")
_SPEC = re.compile(r"--spec (\d+)")  # tokens of a window, of which all but one are drafted
STRATA_ACCEPT = 0.77  # 2.8 tokens of text a window of four: its documentation has 2.4 to 3.2
_PCIE_SHARE = re.compile(r"--pcie-frac (\d[\d.]*)")
_RESERVED = re.compile(r"RESERVE_MB|ADMIT_AFTER")
_NO_SETTING = re.compile(r"policy: (?:S?LRU|aging)|router|learned(?! state)")  # rules and predictors of neurall


LEAST_RAM = 0.75  # of the RAM that a row says or needs: a preset with less is another machine


@dataclass(frozen=True)
class Printed:
    """A row as the commands answer it.

    machine: `parts`, or a preset's name. found: None if the row cannot be asked. of_machine: draws of the logarithm of
    the speed over `found.tok_s` without the engine's error. why: it cannot be asked, or does not run.
    """

    row: FieldRow
    machine: str
    found: Compared | None
    of_machine: Draws | None
    why: str = ""

    @property
    def whose(self) -> Whose:
        """Whose error the prediction has."""
        assert self.found is not None
        return self.found.system.whose(name_of(self.row))


def printed(rows: Sequence[FieldRow]) -> list[Printed]:
    """What is printed for each row: on the machine of its parts, and on each preset that its owner may have chosen."""
    traces = dict[object, tuple[RoutingTrace, bool]]()
    return [one for row in rows for one in _printed(row, traces)]


def _printed(row: FieldRow, traces: dict[object, tuple[RoutingTrace, bool]]) -> list[Printed]:
    try:
        system, model = system_of(row), model_of(row)
        workload, borrowed = workload_of(model, traces)
        return [_on(row, name, machine, system, workload, borrowed) for name, machine in machines_of(row).items()]
    except BadInput as error:
        return [Printed(row, "parts", None, None, str(error).removeprefix(f"{row.where}: "))]


def _on(row: FieldRow, name: str, machine: Machine, system: System, workload: Workload, borrowed: bool) -> Printed:
    assert workload.geometry is not None
    case = case_of(workload.geometry, machine, workload=workload)
    if case.model.attention is not None:
        case = replace(case, depth=attended(row), kv_type=kv_type_of(row))
    if isinstance(system, Strata) and (match := _SPEC.search(row.flags)):
        case = replace(case, drafts=given_drafts(int(match[1]) - 1, STRATA_ACCEPT, MTP, workload.geometry))
    asked = system if system.size_given else system.sized(case)
    found = at_setting(workload, case, asked, borrowed=borrowed)
    if found.draws is None:
        return Printed(row, name, None, None, found.why_not)
    engine = error_draws(machine, asked.whose(case.model.base_name))
    return Printed(row, name, found, np.log(found.draws / (found.tok_s or 1.0)) - engine)


def system_of(row: FieldRow) -> System:
    """The system with the settings of a row. Raises BadInput if no system runs so."""
    for engine, strategies, made in SYSTEMS:
        if engine_of(row) == engine and row.strategy in strategies:
            return made(row, settings_of(row, moe_layers=len(model_of(row).layers)))
    raise BadInput(f"{row.where}: no system runs {row.engine} as {row.strategy}")


def machines_of(row: FieldRow) -> dict[str, Machine]:
    """The machine of a row's parts, and presets with its only GPU and about as much RAM as it has or needs, or more."""
    built = built_of(row).machine
    found = {"parts": built}
    part = part_in(row.gpu, ("gpu",))
    if part is None or built.gpus > 1 or outside(row):
        return found
    for name in PRESETS:
        preset = load_machine(name)
        if name == part.name and _ram_gib(preset) >= LEAST_RAM * _ram_gib(built):
            found[name] = preset
    return found


def _ram_gib(machine: Machine) -> float:
    return 0.0 if machine.memory is None else machine.memory.ram_gib.value


def workload_of(model: ModelGeometry, known: dict[object, tuple[RoutingTrace, bool]]) -> tuple[Workload, bool]:
    """The trace that the commands take if only the model is given, and whether it is another model's."""
    key = model.name, model.top_k, *(layer.n_experts for layer in model.layers.values())
    if key not in known:
        own = bundled(model) if model.top_k == named_model(model.name).top_k else None
        known[key] = (own[0].trace, False) if own is not None else (borrow(model)[0].trace, True)
    trace, borrowed = known[key]
    return prepare(trace, model), borrowed


def _placed(kind: type[PlacedLayers]) -> Callable[[FieldRow, Settings], System]:
    def made(row: FieldRow, settings: Settings) -> System:
        layers = settings.cpu_layers
        if layers is None and "--fit" not in row.flags:
            raise BadInput(f"{row.where}: does not say how many layers' experts are on the CPU")
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
    if settings.residents is None and settings.cache_bytes is None:
        raise BadInput(f"{row.where}: does not say how large the cache is")
    each = max(layer.expert_bytes for layer in model_of(row).layers.values())
    return Ds4(experts=settings.residents or (settings.cache_bytes or 0) // each)


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
    ("ollama", ("all_gpu",), _all_gpu),
    ("llama.cpp", ("n_cpu_moe", "ot_regex"), _placed(PlacedLayers)),
    ("ik_llama.cpp", ("n_cpu_moe", "ot_regex"), _placed(PlacedIk)),
    ("llama.cpp", CPU, lambda row, settings: Cpu()),
    ("adrianhoehne/llama.cpp hot-cache", ("vram_static_profile",), _hot_cache),
    ("ktransformers kt-kernel + SGLang", ("vram_static_profile", "n_cpu_moe", "all_gpu"), _kt),
    ("TurboFieldfare", ("slot_bank_ssd",), _slots(TurboFieldfare)),
    ("nvmoe", ("slot_bank_ssd",), _mib(Nvmoe)),
    ("ds4", ("slot_bank_ssd", "all_gpu"), _ds4),
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
