"""The phone's runs with routes: fitted on the first half of one model's tokens, then its other half and another model.

Reads overlap with computing there. The timeline replays the recorded routes; what is fitted are two or three scales of
the machine, on wall times alone or with the run's own clock of its bookkeeping.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.timeline.models.base import ExecutionModel
from reports.fidelity.from_table import with_values
from reports.fidelity.per_token import PerToken
from reports.fidelity.phone_runs import (
    OVERLAPPED,
    SERIAL,
    TRACES,
    active_bytes,
    phone,
    recorded,
    routed_work,
    run,
    step_ms,
    workload,
)

TOKENS = 128
HALF = TOKENS // 2
TOP_K = 6
OUTLIER = 0.05  # relative errors beyond this pull less and less


@dataclass(frozen=True)
class Variant:
    """What is fitted: quantities of the machine, and where they start.

    clocked: the bookkeeping of a miss is taken from the run's own clock of the fitted half.
    """

    name: str
    execution: ExecutionModel
    start: tuple[tuple[str, float], ...]
    clocked: bool = False


WEIGHTS_AND_READS = (("cpu.weights_gb_s", 16.0), ("storage.read_gb_s", 2.5))
VARIANTS = (
    Variant("bookkeeping fitted", OVERLAPPED, (*WEIGHTS_AND_READS, ("link.pinned_gb_s", 8.0))),
    Variant("bookkeeping clocked", OVERLAPPED, WEIGHTS_AND_READS, clocked=True),
    Variant("bookkeeping clocked, nothing overlaps", SERIAL, WEIGHTS_AND_READS, clocked=True),
)


@dataclass(frozen=True)
class Fitted:
    """A variant fitted on the first half of a model's tokens. cost: the robust error that was minimised."""

    variant: Variant
    machine: Machine
    cost: float


def predicted_ms(model: str, machine: Machine, execution: ExecutionModel) -> NDArray[np.float64]:
    """Wall time of every decoded token, f64 [128]; the prompt goes before."""
    work = routed_work(model)
    return step_ms(run(model, work, machine, execution), work)[-TOKENS:]


@cache
def fit(model: str, variant: Variant) -> Fitted:
    """Least robust relative error of wall time over the first half of the decoded tokens.

    Source: scipy.optimize.least_squares with loss soft_l1, over the logarithms of the quantities.
    """
    from scipy.optimize import least_squares

    wall_ms = recorded(f"{model}.metrics").wall_ms
    paths, start = zip(*variant.start, strict=True)
    base = phone(table=True)
    if variant.clocked:
        base = base.varied("link.pinned_gb_s", bookkeeping_gb_s(model))

    def machine(logarithms: NDArray[np.float64]) -> Machine:
        return with_values(base, dict(zip(paths, np.exp(logarithms).tolist(), strict=True)))

    def error(logarithms: NDArray[np.float64]) -> NDArray[np.float64]:
        return (predicted_ms(model, machine(logarithms), variant.execution) / wall_ms - 1)[:HALF]

    solved = least_squares(error, np.log(start), loss="soft_l1", f_scale=OUTLIER, diff_step=1e-3)
    return Fitted(variant, machine(solved.x), float(solved.cost))


def bookkeeping_gb_s(model: str) -> float:
    """Bytes missed over the run's own clock of its bookkeeping, the median of the first half."""
    work, sizes = routed_work(model), workload(model).expert_bytes
    missed = np.bincount(work.step, weights=work.misses * np.array(sizes)[work.row])[-TOKENS:]
    return float(np.median((missed / recorded(f"{model}.metrics").bookkeeping_ms)[:HALF])) * 1e-6


def weights_gb_s(model: str) -> float:
    """Weights that a token streams over the run's own clock of its computing, the median of the first half."""
    return active_bytes(model, TOP_K) / float(np.median(recorded(f"{model}.metrics").compute_ms[:HALF])) * 1e-6


def clocked_error(model: str, execution: ExecutionModel) -> float:
    """Median signed error over the first half with nothing fitted: both rates clocked, reads as the owners measured."""
    clocked = {"cpu.weights_gb_s": weights_gb_s(model), "link.pinned_gb_s": bookkeeping_gb_s(model)}
    predicted = predicted_ms(model, with_values(phone(table=True), clocked), execution)
    return float(np.median((predicted / recorded(f"{model}.metrics").wall_ms - 1)[:HALF]))


def best(model: str) -> Fitted:
    """Of the variants fitted on the first half of a model, the one that fits that half best."""
    return min((fit(model, variant) for variant in VARIANTS if variant.execution is OVERLAPPED), key=lambda f: f.cost)


def compared(fitted: Fitted, model: str) -> list[PerToken]:
    """The fitted half, the other half of the same model, and all of each other model."""
    found = []
    for other in (model, *(name for name in TRACES if name != model)):
        wall_ms = recorded(f"{other}.metrics").wall_ms
        predicted = predicted_ms(other, fitted.machine, fitted.variant.execution)
        parts = (
            {"first half": slice(0, HALF), "second half": slice(HALF, None)} if other == model else {"": slice(None)}
        )
        for part, tokens in parts.items():
            found.append(
                PerToken(
                    f"phone, runs with routes, {fitted.variant.name}",
                    f"{other} {part}".strip(),
                    f"{model} first half",
                    part != "first half",
                    wall_ms[tokens],
                    predicted[tokens],
                )
            )
    return found


@cache
def results() -> list[PerToken]:
    """Each model predicted from the other, by the variant that fits the fitted half best."""
    return [each for model in TRACES for each in compared(best(model), model)]
