"""What a layer of Qwen3.5-397B takes in flash-moe, against the speed of a token.

Sources: cecil-the-coder/llama-cpp-moe-flash, README, whose figures are of danveloper/flash-moe; that repository's
CLAUDE.md and docs/optimization-experiments-q4.md.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

from flashmoe_sim.geometry.model import LayerGeometry
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.timeline.assemble import Conditions, Weights
from flashmoe_sim.timeline.from_rates import made_work
from flashmoe_sim.timeline.models.table import parse_execution
from reports.fidelity.from_table import TableRun, column, predicted, table, timed_by_layer, with_values
from reports.fidelity.prediction import Group, prose

MACHINE, LAYERS, TOP_K = "m3-max-48", 60, 4
MODEL, TABLE = "qwen3.5-397b-a17b:mlx-4bit", "flash_moe_layer_ms"
# danveloper/flash-moe: before its fused multiply-add kernel; share of the reads that its page cache serves.
BEFORE_FMA_TOK_S, PAGE_CACHE_SHARE = 3.90, 0.71


def condition(pattern: str) -> tuple[float, ...]:
    """Numbers that the condition of the table tells."""
    found = re.search(pattern, table(TABLE)[0]["condition"])
    assert found is not None
    return tuple(float(number.replace(",", "")) for number in found.groups())


def run_of(page_cache_share: float = 0.0) -> TableRun:
    """All four experts of a call are read, each at once, with four reads in flight."""
    (expert_bytes,) = condition(r"expert ([\d,]+) bytes")
    conditions = Conditions(parse_execution("page-cache"))
    layers = (LayerGeometry(512, {"expert": int(expert_bytes)}),) * LAYERS
    work = made_work(layers=LAYERS, top_k=TOP_K, misses_per_call=TOP_K, page_cache_share=page_cache_share)
    routed_bytes = sum(layer.n_experts * layer.expert_bytes for layer in layers)
    return TableRun(work, Weights(MODEL, layers, (0.0,) * LAYERS, routed_bytes), conditions)


def machine_of(*, second_command: bool, cold_ms: float, warm_ms: float) -> Machine:
    """The machine whose four reads take so long, from storage and from the page cache, and whose parts are published.

    second_command: whether the GPU's second command of a layer is waited for, or runs beside what follows.
    The GPU computes from the memory that is read into, so it stands where a CPU would: nothing is copied for it.
    """
    machine = timed_by_layer(replace(load_machine(MACHINE), gpu=None), "cpu", MODEL)
    ms = column(TABLE, "part", "ms")
    (expert_bytes,) = condition(r"expert ([\d,]+) bytes")
    read_mb = TOP_K * expert_bytes / 1e6
    gpu_ms = ms["attention GPU"] + (ms["second GPU command"] if second_command else 0.0)
    values = {
        "cpu.layer_us": gpu_ms * 1e3,
        "host.call_us": ms["CPU"] * 1e3,
        "host.install_us": 0.0,
        "storage.request_us": 0.0,
        "storage.read_gb_s": read_mb / cold_ms,
        "memory.copy_gb_s": read_mb / warm_ms,
    }
    return with_values(machine, values)


@cache
def group() -> Group:
    ms = column(TABLE, "part", "ms")
    mixed_ms = ms["expert SSD read, mixed"]
    warm_ms, cold_ms = condition(r"warm ([\d.]+) ms, cold ([\d.]+) ms")
    published = condition(r"([\d.]+)-([\d.]+) tok/s")
    slow, fast = published
    in_turn = run_of().tok_s(machine_of(second_command=True, cold_ms=mixed_ms, warm_ms=mixed_ms))
    deferred = run_of().tok_s(machine_of(second_command=False, cold_ms=mixed_ms, warm_ms=mixed_ms))
    timing = run_of(PAGE_CACHE_SHARE).timing(machine_of(second_command=True, cold_ms=cold_ms, warm_ms=warm_ms))
    read_ms = timing.part_ms_per_token["read"] / LAYERS
    together_ms = PAGE_CACHE_SHARE * warm_ms + (1 - PAGE_CACHE_SHARE) * cold_ms
    name, parts = "397B, parts of a layer", "the parts of a layer; no speed"
    predictions = (
        predicted(name, "all in turn, before the FMA kernel", parts, BEFORE_FMA_TOK_S, in_turn),
        predicted(name, "second GPU command deferred", parts, (slow, fast), deferred),
        predicted(
            name,
            f"reads of a layer, of which the page cache serves {PAGE_CACHE_SHARE:.0%}",
            "four warm and four cold reads",
            mixed_ms,
            read_ms,
            quantity="ms",
            note="misses drawn independently; a call's experts are cold together",
        ),
    )
    explanation = prose(f"""\
Nothing is fitted: the published parts of a layer run through the timeline {LAYERS} times. They are
{sum(ms.values()):.2f} ms, so one after another {in_turn:.2f} tok/s. That is not the {slow:g} to {fast:g} printed
beside them ({in_turn / slow - 1:+.1%}) but the {BEFORE_FMA_TOK_S:.2f} that the engine's own repository reports
before its FMA kernel ({in_turn / BEFORE_FMA_TOK_S - 1:+.1%}): the budget seems to be the older version's. If the
second GPU command ({ms["second GPU command"]:g} ms) runs beside what follows, it is {deferred:.2f} tok/s.

Four warm reads take {warm_ms:g} ms, four cold ones {cold_ms:g}, and {PAGE_CACHE_SHARE:.0%} are warm. If which reads
are cold were independent, the timeline reads {read_ms:.2f} ms a layer, less than the published {mixed_ms:g}; if the
four of a call were cold or warm together, {together_ms:.2f} ms. A share of the page cache alone makes too little of
its misses, which come together.""")
    return Group("Qwen3.5-397B in flash-moe: the parts of a layer", predictions, explanation)
