"""Reading the traces and models that a command line names, with progress and notes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flashmoe_sim.cli.common import message

if TYPE_CHECKING:
    from flashmoe_sim.residency.workload import Workload
    from flashmoe_sim.trace.chunk import Chunk, LongTrace
    from flashmoe_sim.trace.requests import Hints
    from flashmoe_sim.trace.routing import RoutingTrace


def read_trace(
    trace: str, *, lenient: bool = False, notes: bool = True, hints: Hints | None = None, in_chunks: bool = False
) -> RoutingTrace:
    """Read the trace named by TRACE, with progress; the reader's notes go to stderr if `notes`.

    in_chunks: unpack it into temporary files, with its notes.
    """
    from flashmoe_sim.cli.progress import reading
    from flashmoe_sim.trace.bundled import find_trace
    from flashmoe_sim.trace.load import load_trace

    if in_chunks:
        from flashmoe_sim.trace.on_disk import unpack

        with read_long(trace, lenient=lenient, hints=hints) as long:
            return unpack(long)
    with reading(find_trace(trace)[0]) as progress:
        loaded = load_trace(trace, lenient=lenient, progress=progress, hints=hints)
    for note in loaded.notes if notes else ():
        message(f"{trace}: {note}")
    return loaded


@contextmanager
def read_long(trace: str, *, lenient: bool = False, hints: Hints | None = None) -> Iterator[LongTrace]:
    """The trace named by TRACE, to be read in chunks in the block, with progress; the reader's notes go to stderr."""
    from flashmoe_sim.cli.progress import reading
    from flashmoe_sim.trace.bundled import find_trace
    from flashmoe_sim.trace.chunk import LongTrace
    from flashmoe_sim.trace.load import open_long
    from flashmoe_sim.trace.requests import Hints, ReadOptions

    path = find_trace(trace)[0]
    bars: list[Callable[[int], None]] = []  # one, of the reading that goes on

    def progress(count_bytes: int) -> None:
        for bar in bars:
            bar(count_bytes)

    with ExitStack() as stack:
        shown = stack.enter_context(ExitStack())

        def read() -> Iterator[Chunk]:
            shown.close()
            bars[:] = [shown.enter_context(reading(path))]
            yield from long.read()

        bars.append(shown.enter_context(reading(path)))
        options = ReadOptions(lenient=lenient, progress=progress, hints=hints or Hints())
        long = stack.enter_context(open_long(trace, options))
        shown.close()
        for note in long.head.notes:
            message(f"{trace}: {note}")
        yield LongTrace(long.head, read)


def read_online(given: Iterable[Any]) -> None:
    """Read the headers of the repositories among models and traces that nothing here knows, with progress and a line.

    Raises BadInput and SimError like `online.read_repository`.
    """
    from flashmoe_sim.cli.progress import over_bytes
    from flashmoe_sim.geometry.load import load_model, look_online, may_be_online
    from flashmoe_sim.io.errors import BadInput
    from flashmoe_sim.io.sizes import size

    names = [name.strip() for text in given if isinstance(text, str) for name in text.split(",")]
    for name in filter(may_be_online, dict.fromkeys(names)):
        try:
            load_model(name)
        except BadInput:
            with over_bytes(f"reading {name}", 0) as advance:
                _, count_bytes = look_online(name, progress=advance)
            message(f"{name}: read {size(count_bytes)} from Hugging Face")


def with_trace(question: Any, *, lenient: bool) -> Any:
    """The verb with its trace read, with progress and notes; refuses impossible words before it reads.

    A verb of real systems may have a model alone.
    """
    from flashmoe_sim.options import MemoryOptions
    from flashmoe_sim.question import BankOptions
    from flashmoe_sim.sweep.plan import plan
    from flashmoe_sim.trace.bundled import catalog
    from flashmoe_sim.verbs.given import machine_of, trace_and_model

    if issubclass(type(question), MemoryOptions):
        trace, model = trace_and_model(question.trace, question.model)
        workload = None if trace is None else load_workload(trace, model, lenient=lenient)
        return replace(question, trace=workload, model=model if trace is None else None)
    if isinstance(question, BankOptions):
        plan(question)
    machine = getattr(question, "machine", None)
    known: dict[str, Any] = {} if machine is None else {"machine": machine_of(machine)}
    named = question.trace or next(iter(catalog()))
    workload = load_workload(named, question.model, lenient=lenient, in_chunks=getattr(question, "in_chunks", False))
    return replace(question, trace=workload, model=None, **known)


def load_workload(trace: Any, model: Any, *, lenient: bool = False, in_chunks: bool = False) -> Workload:
    """The trace with its model: the given one, else the catalogue's, else the sizes recorded in the trace.

    in_chunks: unpack the trace into temporary files.
    """
    from flashmoe_sim.geometry.hints import hints_of
    from flashmoe_sim.residency.workload import find_geometry, prepare

    geometry = find_geometry(trace, model)
    loaded = read_trace(trace, lenient=lenient, hints=hints_of(geometry), in_chunks=in_chunks)
    workload = prepare(loaded, geometry)
    _say_partial(workload)
    return workload


def _say_partial(workload: Workload) -> None:
    """Note that bytes are of some layers only; the model's last layer may be one that drafts tokens."""
    trace, geometry = workload.trace, workload.geometry
    if geometry is not None and len(trace.layers) < len(geometry.layers) - 1:
        message(
            f"{trace.name}: has {len(trace.layers)} of the {len(geometry.layers)} MoE layers of {geometry.name}; "
            "bytes are of these layers only; if this is another model's trace, give its own --model"
        )
