"""The phone's runs without routes: a machine fitted on the serial ones of one cache size, then everything else.

Serial runs tell what they compute and what they read. Both are linear in quantities of the machine. compute_ms is the
weights that a token streams and the bookkeeping of its misses. io_ms is a time per routed call, one per routed call
that misses (waking the lanes, waiting for the last), one per round of reads (as many as there are lanes), and the
bytes. That is what the timeline adds up under `parallel-install`, but for the time per call that misses: no machine
has it, so it is added to the wall time of the timeline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.timeline.work import Work
from reports.fidelity.from_table import with_values
from reports.fidelity.per_token import PerToken
from reports.fidelity.phone_runs import (
    BANK,
    OVERLAPPED,
    SERIAL,
    TOP_K,
    active_bytes,
    drawn_work,
    phone,
    recorded,
    run,
    step_ms,
    workload,
)


@dataclass(frozen=True)
class Case:
    """Runs fitted on together, and the runs predicted. table: with the reads that the phone's owners measured."""

    fitted_on: tuple[str, ...]
    predicts: tuple[str, ...]
    table: bool = False

    @property
    def fitted_text(self) -> str:
        return " + ".join(self.fitted_on) + (" (reads as measured)" if self.table else "")


CASES = (
    Case(
        ("qwen_c2000_l2", "qwen_c2000_l4"),
        ("qwen_c4000_l2", "qwen_c4000_l4", "qwen_c4000_l4_ov", "qwen_stream", "qwen_stream_ov"),
    ),
    Case(("qwen_c4000_l2", "qwen_c4000_l4"), ("qwen_c2000_l2", "qwen_c2000_l4", "qwen_c4000_l4_ov", "qwen_stream")),
    Case(("gemma_c2000_l2", "gemma_c2000_l4"), ("gemma_c2000_l4_ov", "gemma_stream", "gemma_stream_ov")),
    Case(("qwen_c2000_l4",), ("qwen_c4000_l4", "qwen_c4000_l2"), table=True),
    Case(("gemma_c2000_l4",), ("gemma_c2000_l2",), table=True),
)


@cache
def work_named(name: str) -> Work:
    """The work of a run, such as `qwen_c2000_l4`; the same routes for one model's runs that read the same bytes."""
    return drawn_work(model_of(name), recorded(f"{name}.csv").read_bytes)


def model_of(name: str) -> str:
    return name.partition("_")[0]


def lanes_of(name: str) -> int:
    return 2 if "_l2" in name else 4


@dataclass(frozen=True)
class Phone:
    """The phone as serial runs tell it. batch_ms: of each routed call that misses, beside what the machine takes."""

    machine: Machine
    batch_ms: float


def fitted_phone(names: Sequence[str], *, table: bool = False) -> Phone:
    """The phone as some serial runs of one model tell it.

    table: of the reads themselves only the scale of the measured table is fitted.
    """
    machine = phone(table=table)
    terms = [terms_of(name, machine) for name in names]
    clocks = [recorded(f"{name}.csv") for name in names]
    wall_ms = np.concatenate([clock.wall_ms for clock in clocks])
    compute_ms, io_ms = (np.concatenate([getattr(clock, of) for clock in clocks]) for of in ("compute_ms", "io_ms"))
    compute_x = least_absolute(np.concatenate([each.compute for each in terms]), compute_ms, wall_ms)
    io_x = least_absolute(np.concatenate([each.io for each in terms]), io_ms, wall_ms)
    values = {
        "cpu.weights_gb_s": 1e-6 / compute_x[0],
        "link.pinned_gb_s": 1e-6 / compute_x[1],
        "host.call_us": io_x[0] * 1e3,
    }
    if table:
        values["storage.read_gb_s"] = machine.storage.read_gb_s.value / io_x[2]
    else:
        values |= {"storage.request_us": io_x[2] * 1e3, "storage.read_gb_s": 1e-6 / io_x[3]}
    machine = with_values(machine, {path: float(value) for path, value in values.items()})
    return Phone(machine, float(io_x[1]))


def predicted_ms(name: str, phone: Phone) -> NDArray[np.float64]:
    """Wall time of every token of a run, f64 [tokens]. A run without a cache keeps no books."""
    model, work = model_of(name), work_named(name)
    machine = phone.machine.varied("storage.lanes", lanes_of(name))
    if "_stream" in name:
        machine = replace(machine, link=None)
    timeline = run(model, work, machine, OVERLAPPED if name.endswith("_ov") else SERIAL)
    return step_ms(timeline, work) + phone.batch_ms * np.bincount(work.step, weights=work.misses > 0)


@cache
def results() -> list[PerToken]:
    """Every case, its fitted runs first."""
    return [
        PerToken(
            "phone, runs without routes",
            name,
            case.fitted_text,
            name in case.predicts,
            recorded(f"{name}.csv").wall_ms,
            predicted_ms(name, machine),
        )
        for case in CASES
        for machine in [fitted_phone(case.fitted_on, table=case.table)]
        for name in (*case.fitted_on, *case.predicts)
    ]


def calm(name: str) -> NDArray[np.bool_]:
    """Tokens whose compute time is within a quarter of the median of the 31 around them: bool [tokens].

    The others were interrupted: nothing that a token reads makes its computing take half as long again.
    """
    compute = recorded(f"{name}.csv").compute_ms
    around = np.lib.stride_tricks.sliding_window_view(np.pad(compute, 15, mode="reflect"), 31)
    calm: NDArray[np.bool_] = compute <= 1.25 * np.median(around, axis=1)
    return calm


@dataclass(frozen=True, eq=False)
class Terms:
    """What multiplies the unknowns.

    compute: f64 [tokens, 2], bytes streamed and bytes missed. io: f64 [tokens, 4], routed calls, those that miss,
    rounds of reads and bytes read; with the table [tokens, 3], its milliseconds in place of the last two.
    """

    compute: NDArray[np.float64]
    io: NDArray[np.float64]


def terms_of(name: str, machine: Machine) -> Terms:
    """What the timeline adds up for each token of a serial run; of `machine` only the table of reads counts."""
    model, lanes = model_of(name), lanes_of(name)
    layers = workload(model).layer_geometry
    assert layers is not None
    size = np.array([layer.expert_bytes for layer in layers])
    chunks = np.array([layer.read_ops(io_split=BANK.io_split) for layer in layers])
    misses = work_named(name).misses.reshape(-1, len(layers))
    rounds = -(-misses * chunks // lanes)
    depth = -(-misses * chunks // np.maximum(rounds, 1))
    tokens = np.ones(len(misses))
    compute = np.stack([tokens * active_bytes(model, TOP_K), misses @ size], axis=1)
    calls, missing = tokens * len(layers), (misses > 0).sum(axis=1)
    chunk = np.rint(size / chunks).astype(int)
    if machine.storage.measured:
        read_ms = np.array(
            [[machine.storage.chunk_s(each, d) * 1e3 for d in range(1, lanes + 1)] for each in chunk.tolist()]
        )
        reading = rounds * read_ms[np.arange(len(layers)), np.maximum(depth, 1) - 1]
        return Terms(compute, np.stack([calls, missing, reading.sum(axis=1)], axis=1))
    io = np.stack([calls, missing, rounds.sum(axis=1), (rounds * depth) @ chunk], axis=1)
    return Terms(compute, io.astype(float))


def least_absolute(
    terms: NDArray[np.float64], ms: NDArray[np.float64], wall_ms: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The unknowns, none negative, whose sums are off by the least share of the wall time, on the mean over the tokens.

    Least absolute deviation, as a linear programme, so that tokens that were interrupted pull nothing.
    """
    from scipy.optimize import linprog

    scale = terms.max(axis=0)
    rows, target, n = terms / scale / wall_ms[:, None], ms / wall_ms, len(ms)
    off = -np.eye(n)
    solved = linprog(
        np.concatenate([np.zeros(len(scale)), np.ones(n)]),
        A_ub=np.block([[rows, off], [-rows, off]]),
        b_ub=np.concatenate([target, -target]),
    )
    x: NDArray[np.float64] = solved.x[: len(scale)] / scale
    return x
