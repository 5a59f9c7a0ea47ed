"""Whether anything can run on a machine at all, and what is needed if not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.geometry.named import file_bytes, named_model, named_models, nearest, quantizations
from flashmoe_sim.io.errors import BadInput, TooLarge, Unsupported
from flashmoe_sim.io.sizes import GIB, size
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.systems.base import Case, System

NAMED, FEW = 3, 4  # reasons in a refusal, and systems of each
GGUF_OF = {  # what MLX's bits are called in files that other engines read
    "mlx-2bit": "q2_k",
    "mlx-3bit": "q3_k_m",
    "mlx-4bit": "q4_k_m",
    "mlx-5bit": "q5_k_m",
    "mlx-6bit": "q6_k",
    "mlx-8bit": "q8_0",
}


def why_none_fits(case: Case, system: System) -> str:
    """Why a system cannot run at any of its sizes, before anything is replayed; empty if one can."""
    try:
        if reason := system.why_not(case):
            return reason
        settings = system.at_each_size(case)
    except BadInput as error:
        return str(error)
    reasons = [refusal(case, one) for one in settings]
    return "" if "" in reasons else reasons[0]


def check_any_fits(case: Case, systems: Sequence[System]) -> None:
    """Raise BadInput if none of the systems can run at any of its sizes."""
    if not any_fits(case, systems):
        raise nothing_runs(case, [(system, why_none_fits(case, system)) for system in systems])


def any_fits(case: Case, systems: Sequence[System]) -> bool:
    return any(not why_none_fits(case, system) for system in systems)


def any_holds(case: Case, systems: Sequence[System]) -> bool:
    """Whether a system can run that keeps a cache, or whose experts RAM can hold: others page them in from storage."""
    return any(not why_none_fits(case, system) and _holds(case, system) for system in systems)


def _holds(case: Case, system: System) -> bool:
    if system.caches:
        return True
    shares = system.sized(case).memory(case)
    return sum(share.size_bytes for share in shares if share.where in ("ram", "mapped")) <= case.ram_bytes


def nothing_runs(case: Case, reasons: Sequence[tuple[System, str]]) -> BadInput:
    """The error if no system runs: why each one does not, and what the least demanding one needs."""
    groups: dict[str, list[str]] = {}
    # most engines read only GGUF: of a model in another format, what the others say tells more
    if case.model.format not in ("gguf", ""):
        reasons = sorted(reasons, key=lambda one: one[0].facts is None or bool(one[0].facts.why_not_file(case.model)))
    for system, reason in reasons:
        groups.setdefault(reason, []).append(system.spec)
    first = list(groups.items())[:NAMED]
    why_not = "; ".join(f"{_few(specs)}: {reason}" for reason, specs in first)
    left = len(reasons) - sum(len(specs) for _, specs in first)
    more = f"; and {left} more" if left else ""
    other = another_file(case, [system for system, _ in reasons])
    named = ""
    if other is not None:
        named = f"--model {other[0].name}, {size(file_bytes(other[0]))}, which {other[1].name} can run"
    needs = min((least for system, _ in reasons if (least := _least_bytes(system, case))), default=0)
    kind: type[BadInput] = Unsupported
    if needs > _memory_bytes(case):
        kind = TooLarge
        smaller = "a smaller quantization" if other is None else f"a smaller quantization, {named}"
        advice = (
            f"the least that any of them needs is {needs / GIB:.1f} GiB in all; give {smaller}, or a machine with more "
            "memory"
        )
    else:
        advice = f"another quantization is {named}" if other else _nor_the_nearest(case, [one for one, _ in reasons])
    if case.machine.unseen:
        advice = f"{advice}; {'; '.join(case.machine.unseen)}"
    return kind(f"{case.machine.name}: no system can run {case.model.name} there: {why_not}{more}", advice=advice)


def _few(specs: Sequence[str]) -> str:
    more = len(specs) - FEW
    return f"{', '.join(specs[:FEW])}{f' and {more} more' if more > 0 else ''}"


def _nor_the_nearest(case: Case, systems: Sequence[System]) -> str:
    """Why the nearest quantization that the first of the engines loads does not run either; empty if none is known."""
    for system in systems:
        near = system.facts.nearest_file(case.model) if system.facts else None
        if near is not None and near.name != case.model.name:
            there = why_none_fits(replace(case, model=near), system)
            return f"but --model {near.name} does not run there either: {there}"
    return ""


def another_file(case: Case, systems: Sequence[System], *, cached: bool = False) -> tuple[ModelGeometry, System] | None:
    """The other quantization nearest in size that one of the systems caches or memory holds, or else that any can run.

    Together with the first such system. cached: whether only systems with a cache count.
    """
    of_engines = [quant for system in systems if system.facts for quant in system.facts.formats.quants]
    found = [
        (model, system)
        for model in quantizations(case.model, dict.fromkeys(of_engines))
        for system in systems
        if (system.caches or not cached) and not why_none_fits(replace(case, model=model), system)
    ]
    held = [one for one in found if _holds(replace(case, model=one[0]), one[1])]
    near = nearest(case.model, [model for model, _ in held or found])
    return next((one for one in held or found if one[0] is near), None)


def better_file(case: Case, systems: Sequence[System]) -> tuple[ModelGeometry, System] | None:
    """Another quantization, and the system for it, if none can run this one, or none but from storage page by page."""
    if any_holds(case, systems):
        return None
    fits = any_fits(case, systems)
    return (None if fits else _usual_file(case, systems)) or another_file(case, systems, cached=fits)


def _usual_file(case: Case, systems: Sequence[System]) -> tuple[ModelGeometry, System] | None:
    """A known model's usual quantization, of the bits of MLX's if it is one, and a system for it.

    Even if it is read from storage page by page.
    """
    if case.model.gguf or case.model.base_name not in named_models():
        return None
    bits = GGUF_OF.get(case.model.quant or "", "")
    known = bits in named_models()[case.model.base_name].quants
    usual = replace(case, model=named_model(f"{case.model.base_name}:{bits}" if known else case.model.base_name))
    if usual.model.name == case.model.name:
        return None
    first = next((system for system in systems if not why_none_fits(usual, system)), None)
    return None if first is None else (usual.model, first)


def instead(case: Case, systems: Sequence[System], other: tuple[ModelGeometry, System]) -> str:
    """The note on a `better_file` that is answered for."""
    only = ", but from storage page by page" if any_fits(case, systems) else ""
    return f"no system can run {case.model.name} here{only}; this is {other[0].name}, which {other[1].name} can"


def file_that_fits(model: ModelGeometry, machines: Sequence[Machine], systems: Sequence[System]) -> ModelGeometry:
    """The model; in another quantization if each of the machines lacks a system for it, and one has a `better_file`."""
    cases = [Case(model, machine) for machine in machines]
    if any(any_holds(case, systems) for case in cases):
        return model
    others = (other[0] for case in cases if (other := better_file(case, systems)))
    return next(others, model)


def refusal(case: Case, system: System) -> str:
    """Why a system does not fit a case; empty if it does."""
    try:
        system.check(case)
    except BadInput as error:
        return str(error)
    return ""


def _least_bytes(system: System, case: Case) -> int | None:
    """The memory of a system's smallest size, if memory is all that it lacks."""
    try:
        if system.why_not(case):
            return None
        least = system.at_each_size(case)[0]
        return sum(share.size_bytes for share in least.memory(case) if share.where != "mapped")
    except BadInput:
        return None


def _memory_bytes(case: Case) -> int:
    """All the memory that a model can use on the machine; None if its RAM is unknown."""
    return case.ram_bytes + (case.gpu_bytes if case.budget.gpu == "own" else 0)
