"""The phone: every prediction, and in words what came of it.

`results` has the times of every token, for figures; `groups` the rows of a table and the explanations, whose
figures are computed here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from reports import pages
from reports.fidelity import phone_overlap, phone_serial
from reports.fidelity.per_token import PerToken
from reports.fidelity.phone_runs import OVERLAPPED, SERIAL, TRACES, recorded
from reports.fidelity.prediction import Group, Prediction

SERIAL_MEDIAN, SERIAL_P95 = 0.05, 0.15
ROUTED_MEDIAN = 0.10
INTERRUPTED = "qwen_c4000_l4"
THROTTLED = "qwen_stream_ov"
ROUNDING = 1e-9


def results() -> list[PerToken]:
    """Every run, fitted or held out, token by token."""
    return [*phone_serial.results(), *phone_overlap.results()]


def groups() -> tuple[Group, Group]:
    """Runs without routes, and runs with routes."""
    return (
        Group("A phone, runs without routes", _rows(phone_serial.results()), serial_text()),
        Group("A phone, runs with routes", _rows(phone_overlap.results()), routed_text()),
    )


def serial_text() -> str:
    """Runs without routes: what was fitted, how far off it is, and why."""
    fitted = phone_serial.CASES[0].fitted_on
    phone = phone_serial.fitted_phone(fitted)
    value = {path: quantity.value for path, quantity in phone.machine.quantities()}
    run = recorded(f"{INTERRUPTED}.csv")
    line = best_line_share(run.read_bytes, run.wall_ms, SERIAL_P95)
    increasing = best_increasing_share(run.read_bytes, run.wall_ms, SERIAL_P95)
    calm = phone_serial.calm(INTERRUPTED)
    among = result(INTERRUPTED, phone_serial.CASES[0].fitted_text).among(calm)
    hot = np.median(recorded(f"{THROTTLED}.csv").compute_ms) / np.median(recorded("qwen_stream.csv").compute_ms)
    carried = result("gemma_c2000_l2", phone_serial.CASES[-1].fitted_text)
    return f"""A serial token is what it computes and what it reads. Fitted on {" and ".join(fitted)}, by least absolute
deviation of their own two clocks, the phone streams weights at {value["cpu.weights_gb_s"]:.1f} GB/s, keeps its books at
{value["link.pinned_gb_s"]:.1f} GB/s of what it misses, and reads at {value["storage.read_gb_s"]:.1f} GB/s beside
{value["storage.request_us"]:.0f} us per round of reads, {phone.batch_ms * 1e3:.0f} us per routed call that misses and
{value["host.call_us"]:.0f} us per routed call. Misses are as many as a token's bytes are, drawn over its layers. That
machine then predicts the other cache size, both numbers of lanes, runs without a cache, and runs that overlap.

{table(phone_serial.results())}

- {INTERRUPTED}: P95 is out of reach of a model of the bytes that a token reads. In hindsight, no straight line of them
  puts more than {line:.1%} of its tokens within {SERIAL_P95:.0%}; a function that is free at every token, if only it
  never decreases, {increasing:.1%}. {1 - calm.mean():.0%} of its tokens compute a quarter longer than those around
  them. Without these the median error is {among.median_error:.1%}, P95 {among.p95_error:.1%}.
- {THROTTLED}: it computed {hot:.1f} times as long as the same tokens without overlap, and no other run tells of that.
- With reads as the phone's owners measured them in place of the time per round, one number of lanes does not tell
  another: gemma_c2000_l2 from gemma_c2000_l4 is off by {carried.signed(50):+.1%}. They measured steady reads on an idle
  CPU; the engine wakes its lanes for a few reads at a time, into pages that were committed just before.
"""


def routed_text() -> str:
    """Runs with routes: what was fitted, how far off it is, and why."""
    lines = []
    for model in TRACES:
        fitted, clock = phone_overlap.best(model), recorded(f"{model}.metrics")
        values = {path: quantity.value for path, quantity in fitted.machine.quantities()}
        fits = ", ".join(f"{path} {values[path]:.1f}" for path, _ in fitted.variant.start)
        first, second = (float(np.median(part)) for part in np.split(clock.compute_ms, 2))
        long = float((clock.compute_ms > 1.5 * np.median(clock.compute_ms)).mean())
        lines.append(
            f"- {model}: {fits}. Its own clocks say {phone_overlap.weights_gb_s(model):.1f} GB/s of weights and "
            f"{phone_overlap.bookkeeping_gb_s(model):.1f}\n  GB/s of bookkeeping. Its second half computes "
            f"{second / first - 1:.0%} longer than its first; {long:.0%} of its tokens compute more than\n  half as "
            "long again as the median, which no route tells."
        )
    short = ", ".join(
        f"{model} {phone_overlap.clocked_error(model, OVERLAPPED):+.1%} (and with nothing overlapped "
        f"{phone_overlap.clocked_error(model, SERIAL):+.1%})"
        for model in TRACES
    )
    variants = [
        (model, variant.name, f"{phone_overlap.fit(model, variant).cost:.3f}", _held_out(model, variant))
        for model in TRACES
        for variant in phone_overlap.VARIANTS
    ]
    return f"""The timeline replays the recorded routes under `overlap-prefetch`; scales of the machine are fitted on
the first half of one model's tokens.

{table(phone_overlap.results())}

{chr(10).join(lines)}

The rates that fit best are not those of the clocks: slower computing and bookkeeping make up for what the timeline
hides too much. It computes hits first and then expert by expert, and its bookkeeping keeps nothing else waiting. The
engine goes through a layer's experts tensor by tensor in the order of their numbers, waits at the first that is not
there, and keeps its books on the thread that computes. With both rates clocked and reads as the phone's owners measured
them, nothing fitted, the first halves are off by: {short}.

What the fit minimises, on the fitted half, and what came of each variant. The table above is of the one that fits best
among those that overlap, as these runs do:

{pages.table(("fitted on", "variant", "cost", "median error of what is held out"), variants, left=None)}
"""


def table(rows: Sequence[PerToken]) -> str:
    """A Markdown table of errors, token by token."""
    cells = [
        (
            f"{each.name}{'' if each.held_out else ' (fitted)'}",
            each.fitted_on,
            *(f"{error:.1%}" for error in (each.median_error, each.p95_error)),
            *(f"{error:+.1%}" for error in (*map(each.signed, (50, 95, 99)), each.tok_s_error)),
        )
        for each in rows
    ]
    head = ("predicted", "fitted on", "median", "P95", "signed P50", "signed P95", "signed P99", "tok/s")
    return pages.table(head, cells, left=None)


def result(name: str, fitted_on: str) -> PerToken:
    """One run as predicted from others."""
    return next(each for each in results() if (each.name, each.fitted_on) == (name, fitted_on))


def _rows(found: Sequence[PerToken]) -> tuple[Prediction, ...]:
    """Of every run held out the median time of a token and the mean speed."""
    return tuple(row for each in found if each.held_out for row in each.predictions())


def _held_out(model: str, variant: phone_overlap.Variant) -> str:
    found = phone_overlap.compared(phone_overlap.fit(model, variant), model)
    return ", ".join(f"{each.name} {each.median_error:.1%}" for each in found if each.held_out)


def best_line_share(x: NDArray[np.float64], y: NDArray[np.float64], within: float) -> float:
    """The largest share of points whose y a straight line of x meets within `within` of y.

    Some best line passes through two ends of the points' intervals y * (1 - within) .. y * (1 + within): all are tried.
    """
    ends_x, ends_y = np.tile(x, 2), np.concatenate([y * (1 - within), y * (1 + within)])
    best = 0
    for end_x, end_y in zip(ends_x, ends_y, strict=True):
        others = ends_x != end_x
        slope = (ends_y[others] - end_y) / (ends_x[others] - end_x)
        line = end_y + slope[:, None] * (x - end_x)
        met = np.abs(line - y) <= within * y * (1 + ROUNDING)
        best = max(best, int(met.sum(axis=1).max(initial=0)))
    return best / len(x)


def best_increasing_share(x: NDArray[np.float64], y: NDArray[np.float64], within: float) -> float:
    """The same for functions that never decrease, free to take another value at every point.

    Points are taken by increasing x; for each height that the function may have reached, the most points met so far.
    """
    order = np.argsort(x, kind="stable")
    low, high = y[order] * (1 - within), y[order] * (1 + within)
    heights = np.unique(low)
    met = np.zeros(len(heights), np.int64)  # function at most heights[i]
    for lowest, highest in zip(low, high, strict=True):
        at, above = np.searchsorted(heights, [lowest, highest * (1 + ROUNDING)])
        taken = met.copy()
        taken[at:above] = met[at:above] + 1
        met = np.maximum.accumulate(taken)
    return int(met.max()) / len(x)
