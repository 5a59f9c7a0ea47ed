"""Bank sizes and experts a token of Qwen3.5-35B-A3B (Anemll/anemll-flash-llama.cpp, README)."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.machine import Link, Machine
from reports.fidelity.from_table import (
    Fit,
    TableRun,
    column,
    fit,
    fitted,
    passes_of_run,
    predicted,
    table,
    table_run,
    with_values,
)
from reports.fidelity.prediction import Group, prose

MODEL, MACHINE = "qwen3.5-35b-a3b:ud-iq2_m", "m5-max-128"
READS_PER_EXPERT, TRAINED_TOP_K, TOP_K, ANCHOR = 3, 8, 4, "128"
UNKNOWN = ("gpu.weights_gb_s", "host.call_us")
BANK, TOPK = "anemll_qwen35_35b_bank", "anemll_qwen35_35b_topk"
MS = "anemll_qwen35_35b_breakdown_ms"


def installs(row: dict[str, str]) -> int:
    """Experts installed in the whole run of a row: each is three reads."""
    return int(row["pread_ops"]) // READS_PER_EXPERT


@cache
def passes() -> int:
    rows = table(BANK)
    return passes_of_run(list(map(installs, rows)), [float(row["misses_per_call"]) for row in rows], layers=layers())


def run_of(row: dict[str, str], top_k: int, misses: float | None = None) -> TableRun:
    """A row of either table. The 9 GiB of experts have been read before, and are in the page cache of 128 GB."""
    per_call = installs(row) / (passes() * layers()) if misses is None else misses
    return table_run(MODEL, "split-install", top_k=top_k, misses_per_call=per_call, page_cache_share=1.0)


def layers() -> int:
    return len(load_model(MODEL).layers)


def misses_after_the_first_pass(row: dict[str, str], top_k: int) -> float:
    """Misses of a routed call but the first of each layer, which finds an empty bank and misses all it asks for.

    What all calls request follows from the hit rate; what the first ones do is what the others, with one token each,
    leave of it.
    """
    requests = installs(row) / (1 - float(row["hit_pct"]) / 100) / layers()
    others = passes() - 1
    return (installs(row) / layers() - (requests - others * top_k)) / others


@cache
def machine_with_parts() -> Machine:
    """The machine with what the breakdown of the run at bank 128 tells: reads, uploads and books of its installs.

    layer_us is 0: what stock takes is all in the rate of its weights, experts included.
    """
    machine, ms = load_machine(MACHINE), column(MS, "component", "ms")
    count = next(installs(row) for row in table(BANK) if row["bank"] == ANCHOR)
    moved = count * next(iter(load_model(MODEL).layers.values())).expert_bytes
    books_ms = ms["pread install total"] - ms["source I/O"] - ms["GPU upload"]
    request = replace(machine.storage.request_us, value=0.0)
    upload = replace(machine.storage.read_gb_s, value=moved / ms["GPU upload"] / 1e6)
    return with_values(
        replace(machine, link=Link(upload, upload, request)),
        {
            "memory.copy_gb_s": moved / ms["source I/O"] / 1e6,
            "host.install_us": books_ms * 1e3 / count,
            "gpu.layer_us": 0.0,
        },
    )


def stock() -> dict[TableRun, float]:
    """All experts resident in the ordinary loader, with the experts a token that the model was trained with."""
    tok_s = column("anemll_qwen35_35b_modes", "mode", "decode_tok_s")["stock"]
    return {table_run(MODEL, "resident", top_k=TRAINED_TOP_K, misses_per_call=0.0): tok_s}


def fit_on(anchor: dict[str, str]) -> Fit:
    """Fitted on stock and one row of four experts a token."""
    return fit(machine_with_parts(), UNKNOWN, {**stock(), run_of(anchor, TOP_K): float(anchor["decode_tok_s"])})


def install_us() -> float:
    ms, count = column(MS, "component", "ms"), next(installs(row) for row in table(BANK) if row["bank"] == ANCHOR)
    return ms["pread install total"] * 1e3 / count


@cache
def bank_group() -> Group:
    rows = table(BANK)
    anchor = next(row for row in rows if row["bank"] == ANCHOR)
    found = fit_on(anchor)
    machine = found.machine
    largest = rows[-1]
    same = f"{installs(largest):,} installs, as bank {ANCHOR} with {installs(anchor):,}"
    predictions = tuple(
        predicted(
            "Qwen3.5-35B, bank",
            f"bank {row['bank']}",
            f"stock, bank {ANCHOR} and its breakdown",
            float(row["decode_tok_s"]),
            found.speed(run_of(row, TOP_K)),
            note=same if row is largest else "",
        )
        for row in rows
        if row is not anchor
    )
    noise = float(largest["decode_tok_s"]) / float(anchor["decode_tok_s"]) - 1
    second = rows[1]
    saved_ms = 1e3 / float(second["decode_tok_s"]) - 1e3 / float(anchor["decode_tok_s"])
    saved_installs = (installs(second) - installs(anchor)) / passes()
    assert machine.gpu is not None
    assert machine.gpu.weights_gb_s is not None
    explanation = prose(f"""\
Fitted: the rate of weights ({machine.gpu.weights_gb_s.value:.0f} GB/s) on stock, and what the host takes of a
routed call ({machine.host.call_us.value:.0f} us) on bank {ANCHOR}; what an install takes ({install_us():.1f} us) is
the breakdown's. Runs have {passes()} forward passes of {layers()} layers: the only number with which all published
installs give all published misses per call. Misses are the installs over these.

The table's own noise: banks {ANCHOR} and {largest["bank"]} install the same, and are {noise:.1%} apart. Bank
{second["bank"]} is predicted too slow: its {saved_installs:.1f} more installs a token would have to take
{saved_ms * 1e3 / saved_installs:.0f} us each, where the breakdown gives {install_us():.0f}.""")
    return Group("Qwen3.5-35B-A3B on an M5 Max: bank sizes", predictions, explanation)


@cache
def topk_group() -> Group:
    rows = table(TOPK)
    anchor = next(row for row in rows if row["topk"] == str(TOP_K))
    found = fit_on(anchor)
    machine = found.machine
    expert_us = next(iter(load_model(MODEL).layers.values())).expert_bytes / _weights_gb_s(machine) / 1e3
    predictions = tuple(
        predicted(
            "Qwen3.5-35B, top-k",
            f"top-k {row['topk']}",
            f"stock, the breakdown, and top-k {TOP_K}",
            float(row["decode_tok_s"]),
            found.speed(run_of(row, int(row["topk"]))),
        )
        for row in rows
        if row is not anchor
    )
    low, high = predictions

    def error(row: dict[str, str], machine: Machine, top_k: int, misses: float | None = None) -> float:
        return run_of(row, top_k, misses).tok_s(machine) / float(row["decode_tok_s"]) - 1

    free = [error(row, machine, TOP_K) for row in rows if row is not anchor]
    later = {row["topk"]: misses_after_the_first_pass(row, int(row["topk"])) for row in rows}
    warm = fitted(
        machine_with_parts(),
        UNKNOWN,
        {**stock(), run_of(anchor, TOP_K, later[anchor["topk"]]): float(anchor["decode_tok_s"])},
    )
    warmed = [error(row, warm, int(row["topk"]), later[row["topk"]]) for row in rows if row is not anchor]
    explanation = prose(f"""\
As for the bank sizes, but fitted on the row of this table that repeats bank {ANCHOR} ({anchor["decode_tok_s"]}
tok/s). An expert takes {expert_us:.1f} us: its bytes at the rate of stock. Were an expert free, the errors would be
{free[0]:+.1%} and {free[1]:+.1%}. Were the first pass, which fills an empty bank, counted apart (its requests
follow from the hit rates), they would be {warmed[0]:+.1%} and {warmed[1]:+.1%}: top-k {high.name.split()[-1]} is at
the edge of what this model explains, and passes 10% only with the run's own average.

Both rows are predicted too fast, and no cost of an expert mends both: dearer experts help top-k 8 and hurt top-k 2.
With two experts a token the run installs less and computes less than with four, and is published as slower
({low.measured:g} against {anchor["decode_tok_s"]} tok/s): that is noise, or a cost that grows as fewer experts are
used and is in no part of the published breakdown.""")
    return Group("Qwen3.5-35B-A3B on an M5 Max: experts a token", predictions, explanation)


def _weights_gb_s(machine: Machine) -> float:
    assert machine.gpu is not None
    assert machine.gpu.weights_gb_s is not None
    return machine.gpu.weights_gb_s.value
