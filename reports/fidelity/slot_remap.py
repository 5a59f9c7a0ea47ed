"""Slots of Qwen3-235B on a Strix Halo (cecil-the-coder/llama-cpp-moe-flash, README)."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.machine import Machine
from reports.fidelity.from_table import TableRun, fitted, predicted, table, table_run, with_values
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


def misses_per_token(row: dict[str, str]) -> float:
    return layers() * TOP_K * (1 - float(row["hit_pct"]) / 100)


def speeds(row: dict[str, str]) -> tuple[float, float]:
    return float(row["tok_s_lo"]), float(row["tok_s_hi"])


def miss_ms(row: dict[str, str], beside_ms: float) -> tuple[float, float]:
    """The least and the most that a miss can take, where all else of a token takes `beside_ms`."""
    slow, fast = speeds(row)
    return tuple((1e3 / tok_s - beside_ms) / misses_per_token(row) for tok_s in (fast, slow))  # type: ignore[return-value]


def run_of(row: dict[str, str]) -> TableRun:
    misses = misses_per_token(row) / layers()
    return table_run(MODEL, "sync-install", top_k=TOP_K, misses_per_call=misses, page_cache_share=1.0, dense_bytes=0)


def machine_with_compute() -> Machine:
    """What is published of a token beside its misses is in gpu.layer_us; all that a miss takes is a copy in memory."""
    machine = load_machine(MACHINE)
    assert machine.gpu is not None
    machine = replace(machine, gpu=replace(machine.gpu, weights_gb_s=None))
    values = {
        "gpu.layer_us": published_ms("compute") * 1e3 / layers(),
        "host.call_us": 0.0,
        "host.install_us": 0.0,
    }
    return with_values(machine, values)


@cache
def group() -> Group:
    rows = {row["slots"]: row for row in table(TABLE)}
    anchor = rows[ANCHOR]
    machine = fitted(machine_with_compute(), ("memory.copy_gb_s",), {run_of(anchor): sum(speeds(anchor)) / 2})
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
            run_of(row).tok_s(machine),
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
experts of {expert_bytes / 1e6:.1f} MB in that time are {copied_gb_s:.0f} GB/s, over four times the 30 GB/s that the
same page gives for reads that are warm; and {compute_ms:g} + {copy_ms:g} ms are {1e3 / (compute_ms + copy_ms):.1f}
tok/s, faster than the published {rows["64"]["tok_s_lo"]} to {rows["64"]["tok_s_hi"]}.""")
    return Group("Qwen3-235B in slots on a Strix Halo", predictions, explanation)


def most_compute_ms(few: dict[str, str], many: dict[str, str]) -> float:
    """The most that a token can take beside misses for which one cost of a miss fits both rows."""
    slow_few, fast_many = 1e3 / speeds(few)[1], 1e3 / speeds(many)[0]
    miss = (slow_few - fast_many) / (misses_per_token(few) - misses_per_token(many))
    return fast_many - miss * misses_per_token(many)
