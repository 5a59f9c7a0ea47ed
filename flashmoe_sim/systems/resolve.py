"""What a user gives about systems on a machine, as words or objects, becomes a case to time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from flashmoe_sim.budget import Context, with_reserve
from flashmoe_sim.drafts import given_drafts
from flashmoe_sim.geometry.model import DEFAULT_TYPE, ModelGeometry
from flashmoe_sim.io.errors import Incomplete, TooLarge, Unsupported
from flashmoe_sim.io.notes import TAKEN, Note, code_of
from flashmoe_sim.io.sizes import given_size, size
from flashmoe_sim.machines.basis import notes as machine_notes
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.options import MemoryOptions
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.systems.compare import case_of
from flashmoe_sim.systems.fits import better_file, check_any_fits, instead
from flashmoe_sim.systems.llama_flags import spec_of
from flashmoe_sim.systems.table import NOT_MODELLED, SERVES, SYSTEMS, parse_system, plain_name
from flashmoe_sim.timeline.attention_cost import depth_unknown

ALL = "all"
DEFAULT_CONTEXT = 4096
OneSystem = str | System


@dataclass(frozen=True, eq=False)
class Resolved:
    """The resolved arguments about a model on a machine.

    workload: None if there is no trace and none was to be borrowed. notes: what the user should know about the trace
    and the machine. borrowed: the note on a trace that was made from another model's, or empty.
    """

    case: Case
    systems: list[System]
    workload: Workload | None
    notes: tuple[str, ...]
    borrowed: str = ""


def resolve(
    *,
    workload: Workload | None,
    model: ModelGeometry | None,
    machine: Machine,
    systems: OneSystem | Iterable[OneSystem] = ALL,
    memory: MemoryOptions | None = None,
    may_borrow: bool = True,
    must_fit: bool = True,
    any_file: bool = False,
) -> Resolved:
    """Words become values; without a workload, use the model's bundled trace or, if borrowing is allowed, a trace made
    from the most similar one.

    systems: names with settings, objects, or `all`. must_fit: whether to refuse before a trace is borrowed if nothing
    fits. any_file: whether the model may be in another quantization if no system can run this one.
    Raises BadInput for unknown words, without any model, and if nothing fits.
    """
    chosen, memory = parse_systems(systems), memory or MemoryOptions()
    of = workload.geometry if workload is not None else model
    if of is None:
        raise Incomplete(
            "seconds need the size of an expert; give --model with one or several names of `sim model list`, such as "
            "--model gpt-oss-20b,qwen3-30b-a3b"
        )
    notes = [*(note for note in of.notes if code_of(note) == TAKEN), *machine_notes(machine)]
    dense_bytes = None if memory.dense is None else given_size("--dense", memory.dense)
    if dense_bytes is not None:
        of = replace(of, dense_bytes=dense_bytes)
    context, of_context = _context(of, memory)
    notes += of_context
    if memory.reserve is not None:
        machine = with_reserve(machine, given_size("--reserve", memory.reserve))
    case = case_of(of, machine, workload=workload, kv_bytes=context.bytes_of(of), context=context.tokens)
    drafts = given_drafts(memory.draft, memory.accept, memory.drafter, of)
    case = replace(case, kv_type=context.kv_type, depth=context.depth, drafts=drafts)
    if drafts is not None:
        notes.append(drafts.in_words)
        room = max(case.gpu_bytes, case.ram_bytes)
        if case.budget.ram_bytes is not None and drafts.kept_bytes > room:
            raise TooLarge(
                f"--drafter {memory.drafter or drafts.kind}: takes {size(drafts.kept_bytes)}; {machine.name} has "
                f"{size(room)}; give a smaller draft model, or --drafter ngram"
            )
    if memory.buffers is not None:
        case = replace(case, buffers_bytes=given_size("--buffers", memory.buffers))
    if any_file and workload is None and (other := better_file(case, chosen)):
        found = resolve(
            workload=None, model=other[0], machine=machine, systems=chosen, memory=memory, may_borrow=may_borrow
        )
        taken = [note for note in of.notes if code_of(note) == TAKEN]
        return replace(found, notes=(*taken, Note(TAKEN, instead(case, chosen, other)), *found.notes))
    borrowed = ""
    if workload is None and may_borrow:
        from flashmoe_sim.systems.borrow import borrow, bundled

        if must_fit:
            check_any_fits(case, chosen)
        if (own := bundled(of)) is not None:
            workload, note = own
        else:
            workload, note = borrow(of)
            borrowed = note
        notes.insert(0, note)
    return Resolved(case, chosen, workload, tuple(notes), borrowed)


def _context(model: ModelGeometry, memory: MemoryOptions) -> tuple[Context, list[str]]:
    """The given context, or DEFAULT_CONTEXT, and what the user should know about it."""
    tokens, depth = memory.context, memory.depth or 0
    known = model.attention is not None
    context = Context.of_options(
        tokens, memory.kv, memory.kv_type, depth, default=DEFAULT_CONTEXT if known and memory.kv is None else 0
    )
    if depth and not known:
        raise depth_unknown(depth, model.name)
    if memory.kv is not None or tokens == 0:
        return context, []
    if not context.tokens:
        return context, ["the context counts as no memory; give its size, such as --kv 2GiB"]
    kind = "" if context.kv_type == DEFAULT_TYPE else f" in {context.kv_type}"
    room = f"{context.tokens:,} tokens, {size(context.bytes_of(model))}{kind}"
    at = f"with {depth:,} tokens in it" if depth else "at an empty one"
    note = f"room for a context of {room}; speeds are {at}"
    return context, [note if tokens or depth else f"{note}; --context changes it"]


def parse_systems(given: OneSystem | Iterable[OneSystem], *, any_engine: bool = False) -> list[System]:
    """Systems from `slot-bank:slots=64,all-gpu`, `all`, or objects; each once. An engine's name gives all of its own,
    and with flags, as `llama.cpp --n-cpu-moe 24`, the one that they make.

    any_engine: whether any engine stands for one that is not modelled.
    Raises BadInput for an unknown name, for an engine that is not modelled, and if there is none.
    """
    if isinstance(given, str) and " -" in f" {given}" and (spec := spec_of(given)):
        return [parse_system(spec)]
    words = given.split(",") if isinstance(given, str) else [given] if isinstance(given, System) else list(given)
    found: dict[System, None] = {}
    for word in words:
        if isinstance(word, System):
            found[word] = None
        elif word.strip() == ALL:
            found |= dict.fromkeys(kind() for kind in SYSTEMS.values())
        else:
            found |= dict.fromkeys(_of_engine(word.strip(), any_engine=any_engine) or [parse_system(word.strip())])
    if not found:
        raise Incomplete("no systems given; give at least one, such as slot-bank, or all")
    return list(found)


def _of_engine(word: str, *, any_engine: bool) -> Sequence[System]:
    """The systems of the engine that people call so, such as the five of llama.cpp; none if it is no engine's name.

    Raises BadInput for an engine that is not modelled, unless any may stand for it, and for settings of an engine.
    """
    engine, colon, _ = word.partition(":")
    if engine in SYSTEMS:
        return ()
    called = plain_name(engine)
    found = _not_modelled(called, any_engine=any_engine) or _modelled(called)
    if found and colon:
        names = ", ".join(one.name for one in found)
        raise Unsupported(f"system {word!r}: {engine} names several systems; give the settings of one: {names}")
    return found


def _not_modelled(called: str, *, any_engine: bool) -> Sequence[System]:
    """The ways of any engine for one that is not modelled, or one of them: `vllm` or `vllm-cpu`, as a plain name."""
    if any_engine:
        from flashmoe_sim.systems.any_engine import ways_of

        ways = [(name, way) for name in NOT_MODELLED if called.startswith(name) for way in ways_of(name)]
        return [way for name, way in ways if called in (name, plain_name(way.name))]
    if called in NOT_MODELLED:
        raise Unsupported(
            f"how {NOT_MODELLED[called]} places experts is not modelled, so no setting of it can be named; "
            f"`sim compare --system {called}` has the speed of any engine in its place"
        )
    return ()


def _modelled(called: str) -> Sequence[System]:
    serves = {plain_name(by) for name, by in SERVES.items() if plain_name(name) == called}
    kinds = [(kind, {plain_name(one) for one in (kind.engine, kind.title, *kind.ran_as)}) for kind in SYSTEMS.values()]
    return [kind() for kind, names in kinds if names & {called, *serves}]
