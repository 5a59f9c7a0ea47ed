"""A smaller quantization of the same model with which it runs much faster, or a larger one that is faster too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flashmoe_sim.budget import own_memory
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.geometry.named import fewest_bits, file_bytes, named_model, quantizations, smaller
from flashmoe_sim.machines.arithmetic import most_gb_s
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.systems.all_gpu import AllGpu
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.systems.compare import NEAR, Compared, at_setting
from flashmoe_sim.systems.placed import PlacedLayers
from flashmoe_sim.tune.change import TRIED_REFS, Changed, at_own_size
from flashmoe_sim.tune.search import stretch

MUCH = 1.5


def faster_when_smaller(
    workload: Workload, case: Case, systems: Sequence[System], best: Compared, *, borrowed: bool = False
) -> Changed | None:
    """The largest smaller quantization that decodes at least MUCH times as fast as `best`; None if there is none.

    A still smaller one is taken instead if it is again MUCH times as fast, say because it is all on the GPU.

    Two bits and fewer, which the table does not list, are tried if no listed quantization helps or fits in memory.

    Of the systems, it tries all on the GPU, experts placed by layer and the system of `best`, each at the size of its
    own rule. A model that is already all on the GPU has little to gain and is not tried.
    """
    if best.tok_s is None or best.system.name == AllGpu.name:
        return None
    plain = {one.name: one for one in systems if one.name in (AllGpu.name, PlacedLayers.name)}
    order = [*(plain[name] for name in (AllGpu.name, PlacedLayers.name) if name in plain), best.system.unsized]
    order = list({one.name: one for one in order}.values())
    part = stretch(workload, TRIED_REFS)
    least, found = best, None
    names = smaller(case.model)
    if not _fits(case, names[-1] if names else ""):
        names += fewest_bits(case.model)
    for name in names:
        model = named_model(name)
        there = replace(case, model=model)
        routed = replace(part, geometry=model)
        for system in order:
            tried = at_own_size(routed, there, system)
            if not _gains(tried, least):
                continue
            sure = at_setting(replace(workload, geometry=model), there, tried.system, borrowed=borrowed)
            if _gains(sure, least):
                least, found = sure, Changed(name, best, sure)
                break
    return found


def faster_when_larger(workload: Workload, case: Case, best: Compared) -> Changed | None:
    """The smallest listed file that is larger, and yet faster with the engine of `best`; None if there is none.

    That is so where a token reads more of the smaller file, since it has more bits outside the experts, or where the
    cores of a CPU compute its types more slowly. Only such files are tried, on a stretch of the workload, each at the
    size of the engine's own rule.
    """
    own_bytes, own_s = token_bytes(case.model), _cpu_s(case, best.system.engine)
    part, here = stretch(workload, TRIED_REFS), None
    for model in reversed(quantizations(case.model)):
        there = replace(case, model=model)
        less = token_bytes(model) < own_bytes or _cpu_s(there, best.system.engine) < own_s
        if file_bytes(model) <= file_bytes(case.model) or model.format != case.model.format or not less:
            continue
        here = here or at_own_size(part, case, best.system.unsized)
        found = Changed(model.name, here, at_own_size(part.of_file(model), there, best.system.unsized))
        if here.tok_s is not None and found.times > 1 + NEAR:
            return found
    return None


def token_bytes(model: ModelGeometry) -> int:
    """Bytes of the weights that a token uses."""
    return (model.streamed_bytes or 0) + model.token_cycle_bytes()


def _cpu_s(case: Case, program: str) -> float:
    """Seconds in which a CPU computes the experts of a token; 0 without a CPU."""
    cpu, model = case.machine.cpu, case.model
    if cpu is None or cpu.weights_gb_s is None:
        return 0.0
    rate = min(cpu.weights_gb_s.value, most_gb_s(case.machine, model.quant, program))
    return model.token_cycle_bytes() / (rate * 1e9)


def _fits(case: Case, name: str) -> bool:
    """Whether a model, by default the case's own, fits in the memories of the machine, as far as these are known."""
    if case.budget.ram_bytes is None:
        return True
    memory = case.ram_bytes + (case.gpu_bytes if own_memory(case.machine) else 0)
    return file_bytes(named_model(name) if name else case.model) <= memory


def _gains(found: Compared, best: Compared) -> bool:
    return found.tok_s is not None and best.tok_s is not None and found.tok_s >= MUCH * best.tok_s
