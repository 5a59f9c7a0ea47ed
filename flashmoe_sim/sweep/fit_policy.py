"""Parameters of a policy fitted on some text and judged on other text."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean
from typing import Any

from flashmoe_sim.io.errors import BadInput, Conflict, Incomplete, Malformed, TooLarge
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.paired import PairedEstimate, blocks_of, difference
from flashmoe_sim.parameters import made
from flashmoe_sim.policies.base import Policy
from flashmoe_sim.residency.workload import Setup, Workload
from flashmoe_sim.sweep.left_out import LeftOut
from flashmoe_sim.sweep.versus import Conditioned, Steps, counted, gain_of, gains, known, requests_of
from flashmoe_sim.trace.calls import run_starts
from flashmoe_sim.trace.routing import RoutingTrace

MOST = 10_000
ITS_FIRST_HALF = "its first half"


@dataclass(frozen=True)
class FittedPolicy:
    """One bank on one trace.

    setup: with the parameters that hit most on the text of `fitted_on`; the other numbers are of the text it is judged
    on. points: its hit rate minus that of `default`, as a share. best, best_rate: the candidate that hits most there,
    by hindsight, and its hit rate. With a machine the best is the fastest: tok_s, best_tok_s, and log_gain, the
    logarithm of how many times as fast as `default` it decodes.
    """

    trace: str
    fitted_on: str
    setup: Setup
    default: str
    hit_rate: float
    points: PairedEstimate
    best: Policy
    best_rate: float
    log_gain: PairedEstimate | None = None
    tok_s: float | None = None
    best_tok_s: float | None = None

    def as_row(self, confidence: float) -> dict[str, Any]:
        """schema.FITTED."""
        lo, hi = self.points.interval(confidence)
        return {
            "trace": self.trace,
            "fitted_on": self.fitted_on,
            "bank": str(self.setup.bank),
            "policy": self.setup.policy.spec,
            "against": self.default,
            "contract": self.setup.contract,
            "hit_rate": self.hit_rate,
            "more_hits": self.points.value,
            "more_hits_lo": known(lo),
            "more_hits_hi": known(hi),
            "tok_s": self.tok_s,
            **gains(self.log_gain, confidence),
            "best_policy": self.best.spec,
            "hindsight_hit_rate": self.best_rate,
            "hindsight_tok_s": self.best_tok_s,
        }


def candidates(policy: Policy, values: Sequence[str]) -> list[Policy]:
    """The policy with every combination of values, each once. values: `NAME=V,V`, one for each parameter.

    Raises BadInput for what is not so written, an unknown parameter, and a value that it cannot have.
    """
    names, several = [], []
    for text in values:
        name, sign, listed = (part.strip() for part in text.partition("="))
        each = [value.strip() for value in listed.split(",")]
        if not (name and sign and all(each)):
            raise Malformed(f"--values {text!r}: expected NAME=V,V, such as half_life=4,16,64")
        if name in names:
            raise Conflict(f"--values {text!r}: {name} is given twice; list all its values in one")
        names.append(name)
        several.append(each)
    if not names:
        raise Incomplete("no values to try; give --values NAME=V,V, such as half_life=4,16,64")
    if (number := math.prod(map(len, several))) > MOST:
        raise TooLarge(f"--values: {number:,} combinations; expected at most {MOST:,}")
    kind, own = type(policy), policy.spec.removeprefix(policy.name).split(":")[1:]
    each_of = ([f"{name}={value}" for name, value in zip(names, one, strict=True)] for one in product(*several))
    found = (made("policy", ":".join((kind.name, *new)), kind.name, kind, [*own, *new]) for new in each_of)
    return list(dict.fromkeys(found))


def fit(
    workloads: Sequence[Workload],
    setups: Sequence[Setup],
    default: Setup,
    *,
    machine: Machine | None = None,
    conditions: Conditioned | None = None,
    left_out: list[LeftOut],
    progress: Callable[[int, int], None],
) -> list[FittedPolicy]:
    """The best of `setups`, which are of one bank, for each trace: by the other traces, or by its own first half.

    With several traces, each is judged with the parameters that have the highest mean over the others: of hit rates,
    or with a machine of how many times as fast as with the default parameters it decodes. A single trace is fitted on
    the first half of its steps, up to where a request begins if it has several, and judged on the rest, with the bank
    as the first half left it. Of equal ones the first listed is taken.
    left_out: receives traces that the bank does not fit. Raises BadInput if it fits none.
    """
    fits: dict[int, dict[Setup, Steps]] = {}
    all_setups = list(dict.fromkeys([default, *setups]))
    for number, workload in enumerate(workloads):
        requests_of(workload, 0)  # raises for a trace of one step
        try:
            found = {}
            for done, setup in enumerate(all_setups):
                progress(number * len(all_setups) + done, len(workloads) * len(all_setups))
                found[setup] = counted(workload, setup, machine, conditions)
            fits[number] = found
        except BadInput as error:
            refused = error
            left_out.append(LeftOut.of(default, str(error), trace=workload.trace.name))
    if not fits:
        raise refused
    rows = []
    for number, of in fits.items():
        workload = workloads[number]
        if len(fits) == 1:
            half = _half(workload.trace, len(next(iter(of.values())).hits))
            learnt = {setup: _worth(steps, of[default], slice(half)) for setup, steps in of.items()}
            judged, fitted_on = slice(half, None), ITS_FIRST_HALF
        else:
            others = [other for other in fits if other != number]
            learnt = {
                setup: fmean(_worth(fits[other][setup], fits[other][default], slice(None)) for other in others)
                for setup in of
            }
            judged, fitted_on = slice(None), ", ".join(workloads[other].trace.name for other in others)
        rows.append(_judged(workload, setups, default, learnt, of, judged, fitted_on))
    return rows


def _judged(
    workload: Workload,
    setups: Sequence[Setup],
    default: Setup,
    learnt: dict[Setup, float],
    of: dict[Setup, Steps],
    part: slice,
    fitted_on: str,
) -> FittedPolicy:
    chosen = max(setups, key=learnt.__getitem__)
    best = max(setups, key=lambda setup: _worth(of[setup], of[default], part))
    begin = part.start or 0
    own, other, hindsight = (of[setup].since(begin) for setup in (chosen, default, best))
    request = requests_of(workload, begin)
    block = blocks_of(len(own.hits), request)
    return FittedPolicy(
        workload.trace.name,
        fitted_on,
        chosen,
        default.policy.spec,
        own.hit_rate,
        difference(own.hits, other.hits, own.requests, block),
        best.policy,
        hindsight.hit_rate,
        gain_of(own, other, request),
        own.tok_s,
        hindsight.tok_s,
    )


def _worth(steps: Steps, default: Steps, part: slice) -> float:
    """The hit rate of a part, or on a machine how many times as fast as with the default parameters it decodes."""
    if steps.step_s is None or steps.decoded is None or default.step_s is None:
        return float(steps.hits[part].sum() / max(steps.requests[part].sum(), 1))
    within = steps.decoded < (part.stop or len(steps.hits))
    within &= steps.decoded >= (part.start or 0)
    return float(default.step_s[within].sum() / steps.step_s[within].sum())


def _half(trace: RoutingTrace, steps: int) -> int:
    """The step with which the second half begins: in the middle, or where the request nearest to it begins."""
    if trace.sequence is None:
        return steps // 2
    starts = run_starts(trace.sequence[run_starts(trace.steps)])[1:]
    return int(min(starts, key=lambda start: abs(start - steps / 2), default=steps // 2))
