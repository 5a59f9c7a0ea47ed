"""Slots of Qwen3-235B on a Strix Halo (cecil-the-coder/llama-cpp-moe-flash, README)."""

from __future__ import annotations

import re
from functools import cache

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.timeline.assemble import Conditions
from flashmoe_sim.timeline.from_rates import predict
from flashmoe_sim.timeline.rates import read_rates
from reports.fidelity.from_table import (
    PUBLISHED,
    Speed,
    TableRun,
    fit,
    predicted,
    table,
    table_run,
    timed_by_layer,
    with_values,
)
from reports.fidelity.prediction import Group, prose

MODEL, MACHINE, TOP_K, ANCHOR = "qwen3-235b-a22b:q4_k_m", "strix-halo-128", 8, "32"
TABLE = "slot_remap_qwen3_235b"


def layers() -> int:
    return len(load_model(MODEL).layers)


def published_ms(what: str) -> float:
    """`compute` or `copy`, of a token: the condition of the table tells them."""
    pattern = {"compute": r"GPU compute ~(\d+) ms", "copy": r"expert copy ([\d.]+) ms"}[what]
    found = re.search(pattern, table(TABLE)[0]["condition"])
    assert found is not None
    return float(found[1])


def copy_gb_s() -> float:
    """What the page gives for reads that are warm, as the preset has it."""
    memory = load_machine(MACHINE).memory
    assert memory is not None
    return memory.copy_gb_s.value


def misses_per_token(row: dict[str, str]) -> float:
    return layers() * TOP_K * (1 - float(row["hit_pct"]) / 100)


def speeds(row: dict[str, str]) -> tuple[float, float]:
    return float(row["tok_s_lo"]), float(row["tok_s_hi"])


def miss_ms(row: dict[str, str], beside_ms: float) -> tuple[float, float]:
    """The least and the most that a miss can take, if all else of a token takes `beside_ms`."""
    slow, fast = speeds(row)
    return tuple((1e3 / tok_s - beside_ms) / misses_per_token(row) for tok_s in (fast, slow))  # type: ignore[return-value]


def run_of(row: dict[str, str]) -> TableRun:
    misses = misses_per_token(row) / layers()
    return table_run(MODEL, "sync-install", top_k=TOP_K, misses_per_call=misses, page_cache_share=1.0, dense_bytes=0)


def machine_with_compute() -> Machine:
    """What is published of a token beside its misses is in gpu.layer_us; all that a miss takes is a copy in memory."""
    machine = timed_by_layer(load_machine(MACHINE), "gpu", MODEL)
    values = {
        "gpu.layer_us": published_ms("compute") * 1e3 / layers(),
        "host.call_us": 0.0,
        "host.install_us": 0.0,
    }
    return with_values(machine, values)


@cache
def group() -> Group:
    """The rows fitted on one of them, and all of them on the preset."""
    on_a_row, on_none = fitted_group(), preset_group()
    return Group(
        "Qwen3-235B in slots on a Strix Halo",
        (*on_a_row.predictions, *on_none.predictions),
        f"{on_a_row.explanation}\n\n{on_none.explanation}",
    )


@cache
def fitted_group() -> Group:
    rows = {row["slots"]: row for row in table(TABLE)}
    anchor = rows[ANCHOR]
    run, ends = run_of(anchor), speeds(anchor)
    found = fit(machine_with_compute(), ("memory.copy_gb_s",), {run: sum(ends) / 2}, ranges={run: ends})
    compute_ms, copy_ms = published_ms("compute"), published_ms("copy")
    least, most = {}, {}
    for slots, row in rows.items():
        least[slots], most[slots] = miss_ms(row, compute_ms)
    predictions = tuple(
        predicted(
            "slot remap",
            f"{slots} slots",
            f"{compute_ms:g} ms of compute and the middle of {ANCHOR} slots",
            speeds(row),
            found.speed(run_of(row)),
            note=""
            if least[slots] <= most[ANCHOR] and most[slots] >= least[ANCHOR]
            else "no cost of a miss fits both rows",
        )
        for slots, row in rows.items()
        if slots != ANCHOR
    )
    expert_bytes = load_model(MODEL).bank_bytes(1) / layers()
    copied_gb_s = misses_per_token(rows["64"]) * expert_bytes / copy_ms / 1e6
    explanation = prose(f"""\
Fitted: what a miss takes, on the middle of the published range at {ANCHOR} slots, with the published {compute_ms:g}
ms of compute a token beside it. 64 slots then fall inside their range.

96 slots do not, and cannot: with {compute_ms:g} ms of compute their {misses_per_token(rows["96"]):.0f} misses a
token leave {least["96"]:.2f} to {most["96"]:.2f} ms for each, while {ANCHOR} slots need {least[ANCHOR]:.2f} to
{most[ANCHOR]:.2f} ms. The ranges agree with each other only if compute takes at most
{most_compute_ms(rows[ANCHOR], rows["96"]):.0f} ms; the README lists them as steps of its development, in which
loading the next layer's experts ahead comes between the two.

The published {copy_ms:g} ms of expert copies at 64 slots cannot hold the misses: {misses_per_token(rows["64"]):.0f}
experts of {expert_bytes / 1e6:.1f} MB in that time are {copied_gb_s:.0f} GB/s, {copied_gb_s / copy_gb_s():.1f}
times the {copy_gb_s():g} GB/s that the same page gives for reads that are warm; and {compute_ms:g} + {copy_ms:g} ms
are {1e3 / (compute_ms + copy_ms):.1f} tok/s, faster than the published {rows["64"]["tok_s_lo"]} to
{rows["64"]["tok_s_hi"]}.""")
    return Group("fitted", predictions, explanation)


@cache
def preset_group() -> Group:
    """The same rows on the preset machine, as `sim predict --table` says them: nothing fitted."""
    geometry = load_model(MODEL)
    file_gib = 133  # the page's size of the file, which the named model takes for GiB
    dense_bytes = file_gib * GIB - geometry.routed_bytes
    machine, conditions = load_machine(MACHINE), Conditions(dense_bytes=dense_bytes)
    found = predict(read_rates(PUBLISHED / f"{TABLE}.csv"), geometry, machine, conditions)
    predictions = tuple(
        predicted(
            "slot remap, preset",
            f"{row['slots']} slots, preset",
            "nothing",
            speeds(row),
            Speed(one.tok_s, one.tok_s_lo, one.tok_s_hi),
            note=f"page cache serves {one.page_cache_share:.0%}",
        )
        for row, one in zip(table(TABLE), found, strict=True)
    )
    inside = [
        prediction.name.split()[0]
        for prediction, row in zip(predictions, table(TABLE), strict=True)
        if speeds(row)[0] <= prediction.predicted <= speeds(row)[1]
    ]
    last = found[-1].timing.part_ms_per_token
    explanation = prose(f"""\
The rows called preset are what `sim predict` says, with nothing fitted, on the preset {MACHINE}, whose storage and
page cache are this page's {machine.storage.read_gb_s.value:g} and {copy_gb_s():g} GB/s, and whose GPU is from
others' measurements of other models. Dense weights are the file of {file_gib} GiB less its experts. The page cache
is taken to serve what it can hold of the experts outside the slots. {" and ".join(inside)} slots come out inside
their published ranges. 96 slots do not, as they cannot with one cost of a miss: computing takes
{last["dense"] + last["experts"]:.0f} ms here, and the misses the page cache cannot hold beside 96 slots are read.""")
    return Group("preset", predictions, explanation)


def most_compute_ms(few: dict[str, str], many: dict[str, str]) -> float:
    """The most that a token can take beside misses for which one cost of a miss fits both rows."""
    slow_few, fast_many = 1e3 / speeds(few)[1], 1e3 / speeds(many)[0]
    miss = (slow_few - fast_many) / (misses_per_token(few) - misses_per_token(many))
    return fast_many - miss * misses_per_token(many)
