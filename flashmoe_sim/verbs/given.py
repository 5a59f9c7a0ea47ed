"""What a user gives as words or objects: traces, models and machines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from flashmoe_sim.drafts import drafted
from flashmoe_sim.geometry.load import load_model, quantization_said
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.geometry.recordings import hints_of
from flashmoe_sim.io.errors import Conflict
from flashmoe_sim.io.sizes import given_size
from flashmoe_sim.machines.machine import Machine, OneMachine
from flashmoe_sim.options import MemoryOptions, Several
from flashmoe_sim.question import BankOptions
from flashmoe_sim.residency.workload import Workload, find_geometry, means_model_not_trace, prepare
from flashmoe_sim.sweep.plan import plan
from flashmoe_sim.sweep.task import Task
from flashmoe_sim.trace.bundled import catalog, find_trace
from flashmoe_sim.trace.load import Shown, load_trace, open_long
from flashmoe_sim.trace.long_traces import Chunk, LongTrace, unpack
from flashmoe_sim.trace.requests import Hints, ReadOptions
from flashmoe_sim.trace.routing import RoutingTrace

if TYPE_CHECKING:
    from flashmoe_sim.verbs.ceilings import Ceilings
    from flashmoe_sim.verbs.diagnose import Diagnose
    from flashmoe_sim.verbs.judge import Judge
    from flashmoe_sim.verbs.replay import Replay

Trace: TypeAlias = str | Path | RoutingTrace | Workload
Model: TypeAlias = str | Path | ModelGeometry
Load: TypeAlias = Callable[..., RoutingTrace]  # reads a trace, like `trace_of`
LoadLong: TypeAlias = Callable[..., AbstractContextManager[LongTrace]]  # reads a trace in chunks, like `long_trace_of`
Read: TypeAlias = Callable[..., Workload]  # reads a trace with its model, like `workload_of`


@dataclass(frozen=True)
class Terminal:
    """What shows that a trace is read. shown: its progress. message: takes a line for the user."""

    shown: Shown
    message: Callable[[str], None]


def workload_of(
    trace: Trace,
    model: Model | None = None,
    *,
    lenient: bool = False,
    in_chunks: bool = False,
    terminal: Terminal | None = None,
) -> Workload:
    """The trace with its model: the given one, else the catalogue's, else the sizes recorded in the trace.

    in_chunks: unpack the trace into temporary files; raises BadInput for a trace in memory.
    """
    if in_chunks and not isinstance(trace, str | Path):
        raise Conflict("in_chunks reads files; give the path of a trace or the name of a bundled one")
    if isinstance(trace, Workload):
        if model is None:
            return trace
        trace = trace.trace
    geometry = geometry_of(trace, model)
    if isinstance(trace, RoutingTrace):
        return prepare(trace, geometry)
    hints = hints_of(geometry)
    read = trace_of(trace, lenient=lenient, hints=hints, in_chunks=in_chunks, terminal=terminal)
    workload = prepare(read, geometry, checked=not in_chunks)
    if terminal is not None and geometry is not None and len(read.layers) < len(geometry.layers) - 1:
        # the model's last layer may be one that drafts tokens
        terminal.message(
            f"{read.name}: has {len(read.layers)} of the {len(geometry.layers)} MoE layers of {geometry.name}; "
            "bytes are of these layers only; if this is another model's trace, give its own --model"
        )
    return workload


def trace_of(
    trace: str | Path,
    *,
    lenient: bool = False,
    notes: bool = True,
    hints: Hints | None = None,
    in_chunks: bool = False,
    terminal: Terminal | None = None,
) -> RoutingTrace:
    """The trace of a file or a name. notes: whether the terminal gets the reader's notes.

    in_chunks: unpack it into temporary files, with its notes.
    """
    if in_chunks:
        with long_trace_of(trace, lenient=lenient, hints=hints, terminal=terminal) as long:
            return unpack(long)
    found = load_trace(trace, lenient=lenient, shown=None if terminal is None else terminal.shown, hints=hints)
    if notes and terminal is not None:
        for note in found.notes:
            terminal.message(f"{trace}: {note}")
    return found


@contextmanager
def long_trace_of(
    trace: str | Path, *, lenient: bool = False, hints: Hints | None = None, terminal: Terminal | None = None
) -> Iterator[LongTrace]:
    """The trace of a file or a name, to be read in chunks in the block, any number of times."""
    bars: list[Callable[[int], None]] = []  # one, of the reading that goes on

    def progress(count_bytes: int) -> None:
        for bar in bars:
            bar(count_bytes)

    options = ReadOptions(lenient=lenient, progress=None if terminal is None else progress, hints=hints or Hints())
    with ExitStack() as stack:
        shown = stack.enter_context(ExitStack())

        def show() -> None:
            if terminal is not None:
                shown.close()
                bars[:] = [shown.enter_context(terminal.shown(path))]

        def read() -> Iterator[Chunk]:
            show()
            yield from long.read()

        path = find_trace(trace)[0]
        show()
        long = stack.enter_context(open_long(trace, options))
        shown.close()
        if terminal is not None:
            for note in long.head.notes:
                terminal.message(f"{trace}: {note}")
        yield LongTrace(long.head, read)


def with_trace(question: Any, read: Read) -> Any:
    """The verb with its trace read; refuses impossible words before it reads.

    A verb of real systems may have a model alone.
    """
    if issubclass(type(question), MemoryOptions):
        trace, model = trace_and_model(question.trace, question.model)
        workload = None if trace is None else read(trace, model)
        return replace(question, trace=workload, model=model if trace is None else None)
    if isinstance(question, BankOptions):
        plan(question)
    machine = getattr(question, "machine", None)
    known: dict[str, Any] = {} if machine is None else {"machine": machine_of(machine)}
    named = question.trace or next(iter(catalog()))
    workload = read(named, question.model, in_chunks=getattr(question, "in_chunks", False))
    return replace(question, trace=workload, model=None, **known)


def geometry_of(trace: Trace, model: Model | None) -> ModelGeometry | None:
    """The given model, else the catalogue's for this trace."""
    if isinstance(trace, str | Path) and not isinstance(model, ModelGeometry):
        return find_geometry(trace, model)
    return model_of(model)


def trace_and_model(trace: Trace | None, model: Model | None) -> tuple[Trace | None, Model | None]:
    """For a verb that needs only one of them: a model's name in the place of the trace is the model."""
    return (None, str(trace)) if model is None and means_model_not_trace(trace) else (trace, model)


def workload_and_model(
    trace: Trace | None, model: Model | None, *, read: Read = workload_of
) -> tuple[Workload | None, ModelGeometry | None]:
    """The trace with its model; or the model, for a verb that needs only one of them."""
    trace, model = trace_and_model(trace, model)
    return (None, model_of(model)) if trace is None else (read(trace, model), None)


def names_no_quantization(trace: Trace | None, model: Model | None) -> bool:
    """Whether a model is given by its name alone, so that any of its quantizations is meant."""
    name = trace if model is None else model
    return isinstance(name, str) and not quantization_said(name)


def model_of(model: Model | None) -> ModelGeometry | None:
    """A model that is given by name, file or value, if any is."""
    return model if model is None or isinstance(model, ModelGeometry) else load_model(model)


def machine_of(machine: OneMachine) -> Machine:
    """A machine that is given by name, file, parts or value."""
    if isinstance(machine, Machine):
        return machine
    from flashmoe_sim.machines.load import load_machine

    return load_machine(machine)


def learnt_machine(
    machine: OneMachine,
    measured: Several,
    *,
    workload: Workload | None = None,
    model: ModelGeometry | None = None,
    dense: str | int | None = None,
) -> Machine:
    """A machine after the speeds that were measured on it, if any were. dense: of the model, as --dense."""
    found = machine_of(machine)
    if not measured:
        return found
    from flashmoe_sim.measured.learn import learn_from

    if dense is not None:
        dense_bytes = given_size("--dense", dense)
        if workload is not None and workload.geometry is not None:
            workload = workload.of_file(replace(workload.geometry, dense_bytes=dense_bytes))
        elif model is not None:
            model = replace(model, dense_bytes=dense_bytes)
    return learn_from(measured, found, workload=workload, model=model)


def machines_of(machines: OneMachine | Iterable[OneMachine] | None) -> list[Machine]:
    """Machines that are given by names with commas between them, as one value or as several."""
    if machines is None:
        return []
    from flashmoe_sim.machines.load import machines_in

    several = machines_in(machines) if isinstance(machines, str) else machines
    each = several if isinstance(several, Iterable) and not isinstance(several, Path | Machine) else [several]
    return [machine_of(one) for one in each]


def task_of(verb: Ceilings | Diagnose | Judge | Replay) -> Task:
    """The one setup of a verb, on its trace (the first of the catalogue if none is given) and machine, if it has one.

    Raises BadInput for unknown words before it reads the trace.
    """
    setup, conditions_of = plan(verb)
    machine = getattr(verb, "machine", None)
    runs_on = None if machine is None else machine_of(machine)
    workload = workload_of(verb.trace or next(iter(catalog())), verb.model)
    if runs_on is None:
        return Task(workload, setup)
    runs_on = learnt_machine(runs_on, getattr(verb, "measured", ()), workload=workload)
    conditions = conditions_of(workload.geometry)
    return Task(drafted(workload, conditions.drafts), setup, runs_on, conditions)
