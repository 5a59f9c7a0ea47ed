"""From the arguments of `sim compare`, as words or objects, to a comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypedDict, Unpack

from flashmoe_sim.budget import Context, with_reserve
from flashmoe_sim.geometry.attention import DEFAULT_TYPE
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.io.sizes import asked_size, size
from flashmoe_sim.machines.asked import ask
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.systems.borrow import borrow, bundled
from flashmoe_sim.systems.compare import Compared, case_of, compare
from flashmoe_sim.systems.fits import check_any_fits, nothing_runs
from flashmoe_sim.systems.table import SYSTEMS, parse_system

ALL = "all"
DEFAULT_CONTEXT = 4096
OneSystem = str | System


@dataclass(frozen=True, eq=False)
class Told:
    """The resolved arguments about a model on a machine.

    workload: None if there is no trace and none was to be borrowed. notes: what the user should know about the trace
    and the machine. borrowed: the note on a trace that was made from another model's, or empty.
    """

    case: Case
    systems: list[System]
    workload: Workload | None
    notes: tuple[str, ...]
    borrowed: str = ""


@dataclass(frozen=True, eq=False)
class Comparison:
    """The compared systems and their case; notes and borrowed as in `Told`."""

    case: Case
    rows: list[Compared]
    notes: tuple[str, ...]
    borrowed: str = ""


class AskedMemory(TypedDict, total=False):
    """Keywords on the use of a machine's memory.

    Sizes have their unit (`2GiB`), or are bytes. dense: weights outside the routed experts. context: tokens, whose
    bytes follow from the model unless kv is given; without both, DEFAULT_CONTEXT. kv_type: of keys and values. reserve:
    RAM used by the system and other programs. buffers: compute buffers on each GPU; without it, from the
    model's widths, the context and a micro-batch of 512.
    """

    dense: str | int | None
    context: int | None
    kv: str | int | None
    kv_type: str | None
    reserve: str | int | None
    buffers: str | int | None


def told(
    *,
    workload: Workload | None,
    model: ModelGeometry | None,
    machine: Machine,
    systems: OneSystem | Iterable[OneSystem] = ALL,
    may_borrow: bool = True,
    must_fit: bool = True,
    dense: str | int | None = None,
    context: int | None = None,
    kv: str | int | None = None,
    kv_type: str | None = None,
    reserve: str | int | None = None,
    buffers: str | int | None = None,
) -> Told:
    """Words become values; without a workload, use the model's bundled trace or, if borrowing is allowed, a trace made
    from the most similar one.

    systems: names with settings, objects, or `all`. must_fit: whether to refuse before a trace is borrowed if nothing
    fits. Other keywords as in AskedMemory.
    Raises BadInput for unknown words, without any model, and if nothing fits.
    """
    chosen = parse_systems(systems)
    of = workload.geometry if workload is not None else model
    if of is None:
        raise BadInput("seconds need the size of an expert; give --model, see `sim model list`")
    notes = list(machine.notes)
    dense_bytes = None if dense is None else asked_size("--dense", dense)
    if dense_bytes is not None:
        of = replace(of, dense_bytes=dense_bytes)
    asked, of_context = _context(of, context, kv, kv_type)
    notes += of_context
    if reserve is not None:
        machine = with_reserve(machine, asked_size("--reserve", reserve))
    case = case_of(of, machine, workload=workload, kv_bytes=asked.bytes_of(of), context=asked.tokens)
    case = replace(case, kv_type=asked.kv_type)
    if buffers is not None:
        case = replace(case, buffers_bytes=asked_size("--buffers", buffers))
    borrowed = ""
    if workload is None and may_borrow:
        if must_fit:
            check_any_fits(case, chosen)
        if (own := bundled(of)) is not None:
            workload, note = own
        else:
            workload, note = borrow(of)
            borrowed = note
        notes.insert(0, note)
    return Told(case, chosen, workload, tuple(notes), borrowed)


def compare_as_told(
    *,
    workload: Workload | None,
    model: ModelGeometry | None,
    machine: Machine,
    systems: OneSystem | Iterable[OneSystem] = ALL,
    best: bool = False,
    hit_rate: float | None = None,
    progress: Callable[[int, int], None] | None = None,
    **memory: Unpack[AskedMemory],
) -> Comparison:
    """Compare systems on a workload, or on a model alone with a hit rate or a borrowed trace; see `told`.

    Raises BadInput for unknown words, without any model, and for a trace that lacks layers of its model.
    """
    if hit_rate is not None and not 0 <= hit_rate <= 1:
        raise BadInput(f"--hit-rate {hit_rate:g}; expected 0 to 1")
    if workload is not None and hit_rate is not None:
        raise BadInput("a hit rate replaces a trace; give one of the two")
    if hit_rate is not None and best:
        raise BadInput("with one hit rate for every setting, none is best; give a trace instead")
    on = told(workload=workload, model=model, machine=machine, systems=systems, may_borrow=hit_rate is None, **memory)
    rows = compare(
        on.workload,
        on.case,
        on.systems,
        best=best,
        borrowed=bool(on.borrowed),
        hit_rate=hit_rate,
        progress=progress,
    )
    if not any(row.tok_s for row in rows):
        raise nothing_runs(on.case, [(row.system, row.why_not) for row in rows])
    notes = (*filter(None, (ask(on.case.machine).rstrip("."),)), *on.notes)
    if known := [row.system.name for row in rows if row.hindsight and row.tok_s is not None]:
        notes = (*notes, f"{', '.join(known)}: the profile comes from this very trace, which flatters it")
    return Comparison(on.case, rows, notes, on.borrowed)


def _context(
    model: ModelGeometry, tokens: int | None, kv: str | int | None, kv_type: str | None
) -> tuple[Context, list[str]]:
    """The given context, or DEFAULT_CONTEXT, and what the user should know about it."""
    asked = Context.asked(tokens, kv, kv_type)
    if kv is not None or tokens == 0:
        return asked, []
    if tokens is None and model.attention is None:
        return asked, ["the context counts as no memory; give its size, such as --kv 2GiB"]
    if tokens is None:
        asked = replace(asked, tokens=DEFAULT_CONTEXT)
    kind = "" if asked.kv_type == DEFAULT_TYPE else f" in {asked.kv_type}"
    room = f"{asked.tokens:,} tokens, {size(asked.bytes_of(model))}{kind}"
    note = f"room for a context of {room}; speeds are at an empty one"
    return asked, [note if tokens else f"{note}; --context changes it"]


def parse_systems(given: OneSystem | Iterable[OneSystem]) -> list[System]:
    """Systems from `slot-bank:slots=64,all-gpu`, `all`, or objects; each once.

    Raises BadInput for an unknown name, and if there is none.
    """
    words = given.split(",") if isinstance(given, str) else [given] if isinstance(given, System) else list(given)
    found: dict[System, None] = {}
    for word in words:
        if isinstance(word, System):
            found[word] = None
        elif word.strip() == ALL:
            found |= dict.fromkeys(kind() for kind in SYSTEMS.values())
        else:
            found[parse_system(word.strip())] = None
    if not found:
        raise BadInput("no systems given; give at least one, such as slot-bank, or all")
    return list(found)
