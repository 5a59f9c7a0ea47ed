"""The verbs of `sim` as functions for notebooks, which return polars tables.

    import flashmoe_sim.api as sim

    trace = sim.load_trace("python-256")
    sim.sweep(trace, bank="16..256", policy="lru,min", contract="atomic")

The functions are here because `sweep` is a folder in the package itself. A trace is a file, a bundled trace
(`catalog`), or the result of `load_trace`, which is not read again. Banks, policies and predictors are words of the
command line or objects: 64 or `Bank(slots=64)`, "lru:stamp=last" or `Lru(stamp="last")`; your own policy is a class or
an instance, defined anywhere. A machine is a name, a file or a `Machine`. Sizes such as `dense` and `kv` have a unit
(`2GiB`), or are numbers of bytes. Tables have the columns of docs/reference/columns.md; `.to_pandas()` converts them,
and `figures` draws them: `figures.hit_curves(table)`. In a notebook, `plain_tables()` shows them without quotes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING
from functools import wraps
from inspect import Parameter, Signature, signature
from textwrap import fill
from typing import Any, ParamSpec, TypeVar, get_type_hints

import polars

from flashmoe_sim.geometry.load import load_model as read_model
from flashmoe_sim.io.arguments import taken
from flashmoe_sim.io.errors import BadInput, SimError, did_you_mean
from flashmoe_sim.machines.machine import OneMachine
from flashmoe_sim.policies.bank import Bank, OneBank
from flashmoe_sim.policies.base import EvictingPolicy, OnePolicy, PinningPolicy
from flashmoe_sim.prefetchers.base import OnePredictor
from flashmoe_sim.question import in_order
from flashmoe_sim.report import figures
from flashmoe_sim.report.notebook_tables import plain_tables
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.schema import PREDICTED, SAMPLED, frame
from flashmoe_sim.sweep.left_out import reasons
from flashmoe_sim.sweep.summary import ranked
from flashmoe_sim.sweep.workloads import by_hindsight
from flashmoe_sim.systems.resolve import OneSystem
from flashmoe_sim.trace.bundled import bundled_folder, catalog
from flashmoe_sim.trace.statistics import TraceStatistics
from flashmoe_sim.trace.statistics import inspect as run_inspect
from flashmoe_sim.tune.objective import Objective
from flashmoe_sim.tune.recommend import Recommendation
from flashmoe_sim.verbs.base import Verb
from flashmoe_sim.verbs.ceilings import Ceilings
from flashmoe_sim.verbs.compare import Compare
from flashmoe_sim.verbs.curve import Curve, ExactCurve
from flashmoe_sim.verbs.diagnose import Diagnose
from flashmoe_sim.verbs.fit_policy import FitPolicy
from flashmoe_sim.verbs.given import Model, Trace, workload_of
from flashmoe_sim.verbs.judge_policies import JudgePolicies
from flashmoe_sim.verbs.next_run import NextRun
from flashmoe_sim.verbs.predict import Predict
from flashmoe_sim.verbs.recommend import Recommend
from flashmoe_sim.verbs.replay import Replay
from flashmoe_sim.verbs.sweep import Sweep
from flashmoe_sim.verbs.synth import Synth
from flashmoe_sim.verbs.victims import Victims

__all__ = [
    "BadInput",
    "Bank",
    "EvictingPolicy",
    "Objective",
    "PinningPolicy",
    "SimError",
    "Workload",
    "bundled_folder",
    "catalog",
    "ceilings",
    "compare",
    "curve",
    "diagnose",
    "figures",
    "fit_policy",
    "inspect",
    "load_model",
    "load_trace",
    "next_run",
    "plain_tables",
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
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def _checked(
    function: Callable[P, T], spelled: Signature | None = None, kinds: Mapping[str, Any] | None = None
) -> Callable[P, T]:
    """The function, with arguments checked against their annotations, but for policies and predictors, which
    `sweep.plan` checks; errors name each keyword."""
    known, of = spelled or signature(function), kinds or get_type_hints(function)

    @wraps(function)
    def checked(*given: P.args, **keywords: P.kwargs) -> T:
        try:
            bound = known.bind(*given, **keywords)
        except TypeError as error:
            names = list(known.parameters)
            wrong = next((name for name in keywords if name not in names), None)
            hint = "" if wrong is None else f"; {did_you_mean(wrong, names)}known: {', '.join(names)}"
            raise TypeError(f"{function.__name__}(): {error}{hint}") from None
        for name, value in bound.arguments.items():
            if name not in ("policy", "prefetch"):
                bound.arguments[name] = taken(name, value, of[name])
        return function(*bound.args, **bound.kwargs)

    checked.__signature__ = known  # type: ignore[attr-defined]
    return checked


def _of_verb(verb: Callable[P, R], result: Callable[[R], T]) -> Callable[P, T]:
    """A function of a verb's fields: their help is in its docstring.

    result: what the function gives, of the verb.
    """

    def function(*given: P.args, **keywords: P.kwargs) -> T:
        return result(verb(*given, **keywords))

    options = [one for one in in_order(verb) if not one.metadata["on_command_line"]]  # type: ignore[arg-type]
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


def _indented(text: str) -> str:
    return fill(text, width=116, initial_indent=4 * " ", subsequent_indent=8 * " ")


def _recommended(question: Recommend) -> Recommendation:
    found = question.advise()
    if found.borrowed:
        warnings.warn(found.notes[0], stacklevel=4)
    return found


def _counted(question: Replay) -> polars.DataFrame:
    return question.run().table(question.by)


def _swept(question: Sweep) -> polars.DataFrame:
    with question.opened() as opened:
        rows = opened.rows()
    notes = () if opened.ledger is None else opened.ledger.notes
    known = by_hindsight(opened.workloads, (setup.policy for setup in opened.setups))
    for note in (*notes, *reasons(opened.left_out), *known):
        warnings.warn(note, stacklevel=4)
    return frame(rows if question.rank is None else ranked(rows, question.rank))


def _tabled(question: Verb[Any]) -> polars.DataFrame:
    found = question.run()
    for note in question.notes(found):
        warnings.warn(note, stacklevel=4)
    table: polars.DataFrame = found.table()
    return table


def _curve(question: Curve) -> polars.DataFrame:
    found = question.run()
    return found.table() if isinstance(found, ExactCurve) else frame(found.rows, SAMPLED)


def _synthesized(question: Synth) -> Workload:
    return question.made().workload


def _predicted(question: Predict) -> polars.DataFrame:
    found = question.run()
    for note in found.notes:
        warnings.warn(note, stacklevel=4)
    return frame([row.as_row() for row in found.rows], PREDICTED)


def _compared(question: Compare) -> polars.DataFrame:
    found = question.run()
    if found.borrowed:
        warnings.warn(found.borrowed, stacklevel=4)
    return found.table()


load_model = _checked(read_model)


@_checked
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


@_checked
def inspect(trace: Trace, *, banks: Sequence[int] = ()) -> TraceStatistics:
    """Exact statistics of a trace: width of its calls, skew, reuse distances, overlap.

    >>> round(inspect("python-256").overlap, 3)
    0.279

    banks: bank sizes in slots with which to compare the calls.
    """
    return run_inspect(load_trace(trace).trace, banks=banks)


replay = _of_verb(Replay, _counted)
diagnose = _of_verb(Diagnose, Diagnose.run)


ceilings = _of_verb(Ceilings, Ceilings.run)
sweep = _of_verb(Sweep, _swept)
judge_policies = _of_verb(JudgePolicies, _tabled)
fit_policy = _of_verb(FitPolicy, _tabled)
victims = _of_verb(Victims, _tabled)
curve = _of_verb(Curve, _curve)
recommend = _of_verb(Recommend, _recommended)
next_run = _of_verb(NextRun, NextRun.run)
compare = _of_verb(Compare, _compared)
predict = _of_verb(Predict, _predicted)
synth = _of_verb(Synth, _synthesized)
