"""The verbs of `sim` as functions for notebooks, which return polars tables.

    import flashmoe_sim.api as sim

    trace = sim.load_trace("python-256")
    sim.sweep(trace, bank="16..256", policy="lru,min", contract="atomic")

The functions are here because `sweep` is a folder in the package itself. A trace is a file, a bundled trace
(`catalog`), or the result of `load_trace`, which is not read again. Banks, policies and predictors are words of the
command line or objects: 64 or `Bank(slots=64)`, "lru:stamp=last" or `Lru(stamp="last")`; your own policy is a class or
an instance, defined anywhere. A machine is a name, a file or a `Machine`. Sizes such as `dense` and `kv` have a unit
(`2GiB`), or are numbers of bytes. Tables have the columns of docs/reference/columns.md; `.to_pandas()` converts them,
and `figures` draws them: `figures.hit_curves(table)`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import MISSING, replace
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from textwrap import fill
from typing import Any, Literal, ParamSpec, TypeVar, Unpack, get_type_hints

import polars

from flashmoe_sim.ceilings.speed import Ceilings
from flashmoe_sim.ceilings.speed import ceilings as run_ceilings
from flashmoe_sim.geometry.hints import hints_of
from flashmoe_sim.geometry.load import load_model as read_model
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.geometry.shape import find_shape
from flashmoe_sim.io.arguments import taken
from flashmoe_sim.io.errors import BadInput, SimError, did_you_mean
from flashmoe_sim.machines.machine import Machine, OneMachine
from flashmoe_sim.policies.bank import Bank, OneBank
from flashmoe_sim.policies.base import EvictingPolicy, OnePolicy, PinningPolicy
from flashmoe_sim.prefetchers.base import OnePredictor
from flashmoe_sim.question import Asked, AskedConditions, AskedSeveral, Question, in_order
from flashmoe_sim.report import figures
from flashmoe_sim.residency.curve import hit_curve
from flashmoe_sim.residency.replay import replay as run_replay
from flashmoe_sim.residency.sample import sampled_curve
from flashmoe_sim.residency.workload import Workload, find_geometry, prepare
from flashmoe_sim.schema import COMPARED, LAYER_COLUMNS, PREDICTED, SAMPLED, frame
from flashmoe_sim.sweep.collect import sweep as run_sweep
from flashmoe_sim.sweep.ledger import Ledger
from flashmoe_sim.sweep.left_out import LeftOut, reasons
from flashmoe_sim.sweep.long import check_in_chunks, read_head, sweep_in_chunks
from flashmoe_sim.sweep.plan import plan, plan_setup, plan_sweep
from flashmoe_sim.sweep.predictions import HitRates, predict_as_told
from flashmoe_sim.sweep.row import result_row, seconds
from flashmoe_sim.sweep.task import Task
from flashmoe_sim.sweep.workers import run_on
from flashmoe_sim.sweep.workloads import plan_workloads
from flashmoe_sim.systems.resolve import OneSystem
from flashmoe_sim.timeline.timed import time_replay
from flashmoe_sim.trace.bundled import bundled_folder, catalog
from flashmoe_sim.trace.chunk import LongTrace
from flashmoe_sim.trace.hit_points import check_hit_points, read_hit_points
from flashmoe_sim.trace.load import open_long
from flashmoe_sim.trace.statistics import TraceStatistics
from flashmoe_sim.trace.statistics import inspect as run_inspect
from flashmoe_sim.trace.synth import synthesize
from flashmoe_sim.tune.objective import Objective
from flashmoe_sim.tune.recommend import Recommendation
from flashmoe_sim.verbs.allocate import Allocate
from flashmoe_sim.verbs.compare import Compare
from flashmoe_sim.verbs.diagnose import Diagnose
from flashmoe_sim.verbs.given import Model, Trace, machine_of, workload_of
from flashmoe_sim.verbs.recommend import Recommend

__all__ = [
    "BadInput",
    "Bank",
    "EvictingPolicy",
    "Objective",
    "PinningPolicy",
    "SimError",
    "Workload",
    "allocate",
    "bundled_folder",
    "catalog",
    "ceilings",
    "compare",
    "curve",
    "diagnose",
    "figures",
    "inspect",
    "load_model",
    "load_trace",
    "predict",
    "recommend",
    "replay",
    "sweep",
    "synth",
]

NAMED = {
    "Model": Model,
    "Objective": Objective,
    "OneBank": OneBank,
    "OneMachine": OneMachine,
    "OnePolicy": OnePolicy,
    "OnePredictor": OnePredictor,
    "OneSystem": OneSystem,
    "Trace": Trace,
}
OPTIONS = {item.name: item for item in in_order(Question)}
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def _checked(function: Callable[P, T], spelled: Signature, kinds: Mapping[str, Any]) -> Callable[P, T]:
    """The function, with arguments checked against their annotations, but for policies and predictors, which
    `sweep.plan` checks; errors name each keyword."""

    @wraps(function)
    def checked(*given: P.args, **keywords: P.kwargs) -> T:
        try:
            bound = spelled.bind(*given, **keywords)
        except TypeError as error:
            known = list(spelled.parameters)
            wrong = next((name for name in keywords if name not in known), None)
            hint = "" if wrong is None else f"; {did_you_mean(wrong, known)}known: {', '.join(known)}"
            raise TypeError(f"{function.__name__}(): {error}{hint}") from None
        for name, value in bound.arguments.items():
            if name not in ("policy", "prefetch"):
                bound.arguments[name] = taken(name, value, kinds[name])
        return function(*bound.args, **bound.kwargs)

    checked.__signature__ = spelled  # type: ignore[attr-defined]
    return checked


def _of_verb(verb: Callable[P, R], result: Callable[[R], T]) -> Callable[P, T]:
    """A function of a verb's fields: their help is in its docstring.

    result: what the function gives, of the verb.
    """

    def function(*given: P.args, **keywords: P.kwargs) -> T:
        return result(verb(*given, **keywords))

    options = in_order(verb)  # type: ignore[arg-type]
    kinds = get_type_hints(verb, localns=NAMED)
    function.__name__ = function.__qualname__ = verb.__name__.lower()
    helps = [f"{one.name}: {one.metadata['help']}" for one in options if one.metadata["help"]]
    function.__doc__ = "\n".join([f"{verb.__doc__}", *map(_indented, helps), "    "])
    parameters = [
        Parameter(
            one.name,
            Parameter.KEYWORD_ONLY if one.kw_only else Parameter.POSITIONAL_OR_KEYWORD,
            default=Parameter.empty if one.default is MISSING else one.default,
            annotation=one.type,
        )
        for one in options
    ]
    return _checked(function, Signature(parameters, return_annotation=signature(result).return_annotation), kinds)


def _asking(asked: Any = None) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Spell out a function's `**asked: Unpack[asked]`: its signature, docstring and errors name each keyword."""

    def spelled_out(function: Callable[P, T]) -> Callable[P, T]:
        written = signature(function)
        found = {name: one for name, one in written.parameters.items() if one.kind is not one.VAR_KEYWORD}
        for name, annotation in get_type_hints(asked, localns=NAMED).items() if asked else ():
            default = OPTIONS[name].default
            default = Parameter.empty if default is MISSING else default
            found[name] = Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        kinds = get_type_hints(function) | (get_type_hints(asked, localns=NAMED) if asked else {})
        options = [found.pop(name) for name in OPTIONS if name in found]
        spelled = written.replace(parameters=sorted([*options, *found.values()], key=lambda one: one.kind))

        checked = _checked(function, spelled, kinds)
        said = [(one.name, OPTIONS[one.name].metadata) for one in options]
        helps = [f"{name}: {of['several'][1] if asked is AskedSeveral else of['help']}" for name, of in said]
        checked.__doc__ = "\n".join([f"{function.__doc__}", *map(_indented, helps), "    "])
        return checked

    return spelled_out


def _indented(text: str) -> str:
    return fill(text, width=116, initial_indent=4 * " ", subsequent_indent=8 * " ")


def _recommended(asked: Recommend) -> Recommendation:
    found = asked.run()
    if found.borrowed:
        warnings.warn(found.notes[0], stacklevel=4)
    return found


def _compared(asked: Compare) -> polars.DataFrame:
    found = asked.run()
    if found.borrowed:
        warnings.warn(found.borrowed, stacklevel=4)
    return frame([row.as_row() for row in found.rows], COMPARED)


load_model = _asking()(read_model)


@_asking()
def load_trace(trace: Trace, *, model: Model | None = None, lenient: bool = False) -> Workload:
    """Read a trace and combine it with its model, once for many replays.

    >>> trace = load_trace("python-256")
    >>> trace.trace.tokens, trace.trace.top_k, trace.expert_bytes[0]
    (1026, 8, 13056)

    trace: a file, the name of a bundled trace, or a `RoutingTrace`.
    model: sets the size of an expert: a manifest, sidecar folder, GGUF file, name or `ModelGeometry`. By default the
        catalogue's model, else the sizes recorded in the trace; without either, everything but bytes is counted.
    lenient: skip malformed lines. Notes on how the trace was read are in `.trace.notes`.
    Raises BadInput if the trace cannot be read, or cannot come from the model.
    """
    return workload_of(trace, model, lenient=lenient)


@_asking()
def inspect(trace: Trace, *, banks: Sequence[int] = ()) -> TraceStatistics:
    """Exact statistics of a trace: width of its calls, skew, reuse distances, overlap.

    >>> round(inspect("python-256").overlap, 3)
    0.279

    banks: bank sizes in slots with which to compare the calls.
    """
    return run_inspect(load_trace(trace).trace, banks=banks)


@_asking(Asked)
def replay(
    trace: Trace,
    *,
    machine: OneMachine | None = None,
    model: Model | None = None,
    by: Literal["trace", "layer"] = "trace",
    **asked: Unpack[Asked],
) -> polars.DataFrame:
    """Replay a trace against one bank: one row of docs/reference/columns.md, or one for every layer.

    >>> replay("python-256", bank=64, policy="lru", contract="protected")["hits"].item()
    37414
    >>> replay("python-256", bank=64, by="layer").select("layer", "misses").row(0)
    (0, 1353)

    `contract="runtime"` reproduces the patched runtime with its slot aliasing (column `aliased_refs`). With a machine,
    the row also has the speed on it.
    Raises BadInput for an impossible combination, and for a bank that does not fit the trace or the machine.
    """
    setup, conditions_of = plan(Question(machine=machine, **asked))
    workload = load_trace(trace, model=model)
    conditions = conditions_of(workload.geometry)
    replayed = run_replay(workload, setup, record=machine is not None)
    if by == "layer":
        who = Task(workload, setup).identity()
        return frame([who | row for row in replayed.counts.by_layer()], LAYER_COLUMNS)
    if machine is None:
        return frame([result_row(Task(workload, setup), replayed.counts, best=None)])
    runs_on = machine_of(machine)
    task = Task(workload, setup, runs_on, conditions)
    timed = time_replay(workload, setup, replayed, runs_on, conditions)
    return frame([result_row(task, replayed.counts, best=None, timing=seconds(task, timed))])


diagnose = _of_verb(Diagnose, Diagnose.run)


@_asking(Asked)
def ceilings(
    trace: Trace,
    *,
    machine: OneMachine,
    lookahead: int = 16,
    model: Model | None = None,
    **asked: Unpack[Asked],
) -> Ceilings:
    """Say how fast a run could be on a machine, like `sim ceilings`; docs/background/ceilings.md explains.

    >>> found = ceilings("python-256", machine="vm-2core", bank=64, dense="2GiB")
    >>> found.verdict.kind
    'compute'
    >>> [row.name for row in found.rows][:3]
    ['this', 'stock', 'all-hit']

    lookahead: steps that the row `lookahead-W` looks ahead.
    Raises BadInput for an impossible combination, and for a bank that does not fit the trace or the machine.
    """
    setup, conditions_of = plan(Question(machine=machine, **asked))
    runs_on, workload = machine_of(machine), load_trace(trace, model=model)
    return run_ceilings(workload, setup, runs_on, conditions_of(workload.geometry), lookahead=lookahead)


@_asking(AskedSeveral)
def sweep(
    traces: Trace | Iterable[Trace],
    *,
    bank_step: str = "auto",
    top_k: str | int | Iterable[int] | None = None,
    machine: OneMachine | Iterable[OneMachine] | None = None,
    model: Model | None = None,
    out: str | Path | None = None,
    threads: int | None = None,
    cluster: str | None = None,
    in_chunks: bool = False,
    **asked: Unpack[AskedSeveral],
) -> polars.DataFrame:
    """Replay traces against banks of many sizes under many policies, on all cores: a row for each, with the optimum.

    >>> table = sweep("python-256", bank="16..256", policy="lru,min", contract="atomic")
    >>> table.select("bank", "policy", "hits", polars.col("best_hit_rate").round(3)).row(0)
    ('16', 'lru', 20682, 0.622)
    >>> sweep(["python-256", "prose-256"], bank=[16, 64], policy=["lru", "fifo"]).height
    8

    Banks, policies, predictors and machines may be lists; there is a row for every combination, and a row's speed is
    null if the model does not fit the machine. Under `runtime` and `protected`, `min` is counted under `atomic`,
    without a predictor.
    bank_step: of a range: auto, 16, x2. top_k: cut every trace to this many experts per token, or to each of several.
    out: a folder whose ledger stores each row as soon as it is known; known rows are not computed again; `sim sweep
        --out` writes its tables. threads: default: the number of cores. cluster: `tcp://HOST:PORT` of a
    dask scheduler, or `local:N` for N processes; docs/guides/sweeps.md explains. in_chunks: read each trace, a file, in
        chunks, for traces larger than memory; without `top_k`, `machine` and `cluster`.
    Warns about banks that do not fit a trace, and returns the rows of the others.
    Raises BadInput, before anything runs, for unreadable files or impossible combinations, and if no bank fits any
    trace.
    """
    if in_chunks:
        check_in_chunks(machine=machine, cluster=cluster, top_k=top_k)
    workers = run_on(threads=threads, cluster=cluster)
    left_out: list[LeftOut] = []
    question = Question(machine=machine, **asked)
    setups, conditions = plan_sweep(question, bank_step=bank_step, in_chunks=in_chunks, left_out=left_out)
    several = [traces] if isinstance(traces, Trace) else list(traces)
    if not several:
        raise BadInput("no traces given; give at least one")
    with ExitStack() as stack:
        longs, workloads = {}, []
        if in_chunks:
            longs = _read_heads(several, model, stack)
        else:
            workloads = plan_workloads([load_trace(trace, model=model) for trace in several], several, top_ks=top_k)
        ledger = None if out is None else stack.enter_context(Ledger(Path(out)))
        if in_chunks:
            cores = threads or os.cpu_count() or 1
            rows = sweep_in_chunks(longs, setups, threads=cores, left_out=left_out, ledger=ledger)
        else:
            rows = run_sweep(
                workloads,
                setups,
                machines=_machines(machine),
                conditions=conditions,
                workers=workers,
                ledger=ledger,
                left_out=left_out,
            )
    for note in () if ledger is None else ledger.notes:
        warnings.warn(note, stacklevel=3)
    for reason in reasons(left_out):
        warnings.warn(reason, stacklevel=3)
    return frame(rows)


@_asking()
def curve(
    trace: Trace,
    *,
    policy: OnePolicy = "lru",
    contract: str = "atomic",
    io_split: int = 4,
    sample: float | None = None,
    seed: int = 1,
    model: Model | None = None,
) -> polars.DataFrame:
    """Count every bank size exactly in one pass over the trace: a row for each number of slots per layer.

    >>> table = curve("python-256", policy="min")
    >>> table.filter(polars.col("hit_rate") >= 0.9).select("bank").row(0)
    ('67',)
    >>> curve("gpt-oss-120b", policy="arc", sample=0.25).columns[3:7]
    ['bank_slots', 'hit_rate', 'hit_rate_lo', 'hit_rate_hi']

    sample: replay any evicting policy in only this share of the layers, drawn by `seed`, and estimate the others, with
        a 90 % interval; docs/guides/sampling.md explains. The columns are then the ones under Sampled in
        docs/reference/columns.md.
    Raises BadInput for a policy without such a pass; `lru`, `min` and `static` have one.
    """
    workload = load_trace(trace, model=model)
    setup = plan_setup(1, policy=policy, contract=contract, io_split=io_split)
    if sample is not None:
        return frame(sampled_curve(workload, setup.policy, contract=contract, share=sample, seed=seed).rows, SAMPLED)
    counted = hit_curve(workload, setup.policy, contract=contract, io_split=io_split)
    return frame(
        [
            result_row(Task(workload, replace(setup, bank=Bank(slots=slots))), counts, best=None)
            for slots, counts in counted.items()
        ]
    )


recommend = _of_verb(Recommend, _recommended)


allocate = _of_verb(Allocate, Allocate.run)
compare = _of_verb(Compare, _compared)


@_asking()
def synth(
    *,
    curve: str | Path | Mapping[int, float] | None = None,
    curve_tokens: int | None = None,
    like: Trace | None = None,
    null: str | None = None,
    model: Model | None = None,
    layers: int | None = None,
    experts: int | None = None,
    top_k: int | None = None,
    tokens: int | None = None,
    prompt: int = 0,
    seed: int = 1,
) -> Workload:
    """Make a trace from a hit curve, another trace or chance, like `sim trace synth`.

    docs/guides/what-if.md explains.

    >>> made = synth(curve={16: 0.588, 32: 0.728, 64: 0.818}, layers=40, experts=256, top_k=4, tokens=500)
    >>> replay(made, bank=32, contract="atomic")["hit_rate"].round(3).item()
    0.728

    curve: the LRU hit rate, 0 to 1, by slots per layer, or as for `--curve`. curve_tokens: the length of its run.
    like: a trace whose popularity and overlap to imitate. null: `uniform` or `shuffled`.
    The result is described in `.trace.notes`.
    Raises BadInput for missing or contradictory arguments, and for a curve that no such trace can have.
    """
    if curve is not None:
        curve = check_hit_points(curve.items()) if isinstance(curve, Mapping) else read_hit_points(curve)
    other = None if like is None else load_trace(like)
    made, _ = synthesize(
        curve=curve,
        like=other.trace if other else None,
        null=null,
        shape=find_shape(model, layers=layers, n_experts=experts, top_k=top_k),
        tokens=tokens,
        prompt=prompt,
        curve_tokens=curve_tokens,
        seed=seed,
    )
    return prepare(made, other.geometry) if other else load_trace(made, model=model)


@_asking(AskedConditions)
def predict(
    *,
    hit_rate: HitRates | None = None,
    table: str | Path | None = None,
    model: Model | None = None,
    machine: OneMachine | None = None,
    bank: OneBank | None = None,
    top_k: int | None = None,
    io_split: int = 4,
    **conditions: Unpack[AskedConditions],
) -> polars.DataFrame:
    """Predict how fast a model decodes from hit rates alone, like `sim predict`.

    docs/guides/predict.md explains.

    >>> found = predict(hit_rate=[0.6, 0.9], model="qwen3.5-35b-a3b", machine="m5-max-128", top_k=4)
    >>> found["tok_s"].is_sorted()
    True

    hit_rate: one, several, or `0.588,72.8%`. table: a CSV file. Give one of the two, a model and a machine.
    `bank` and `top_k` apply to every row without its own. A row of a table whose bank does not fit the machine has the
    reason in `does_not_fit` instead of a speed.
    Raises BadInput for a table that cannot be read, and if no row fits the machine.
    """
    told = predict_as_told(
        hit_rate=hit_rate,
        table=table,
        model=model,
        machine=machine,
        bank=bank,
        top_k=top_k,
        io_split=io_split,
        **conditions,
    )
    for note in told.notes:
        warnings.warn(note, stacklevel=3)
    return frame([row.as_row() for row in told.rows], PREDICTED)


def _read_heads(traces: Sequence[Trace], model: Model | None, stack: ExitStack) -> dict[Workload, LongTrace]:
    """Each trace read once in chunks, to be read again while the stack is open."""
    read = []
    for trace in traces:
        if not isinstance(trace, str | Path):
            raise BadInput("in_chunks reads files; give the path of a trace or the name of a bundled one")
        geometry = model if isinstance(model, ModelGeometry) else find_geometry(trace, model)
        long = stack.enter_context(open_long(trace, hints=hints_of(geometry)))
        read.append((read_head(long, geometry), long))
    workloads = plan_workloads([workload for workload, _ in read], traces)
    return dict(zip(workloads, (long for _, long in read), strict=True))


def _machines(given: OneMachine | Iterable[OneMachine] | None) -> list[Machine]:
    if given is None:
        return []
    if isinstance(given, OneMachine):
        return [machine_of(one.strip()) for one in given.split(",")] if isinstance(given, str) else [machine_of(given)]
    return [machine_of(one) for one in given]
