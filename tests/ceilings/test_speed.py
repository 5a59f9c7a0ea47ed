"""Ceilings in seconds: a run whose milliseconds are added up by hand, and laws over random traces."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from flashmoe_sim.api import load_trace as load_workload
from flashmoe_sim.ceilings.bottleneck import FREED, Bottleneck, bottleneck, without
from flashmoe_sim.ceilings.hardware import CHANGES, Move
from flashmoe_sim.ceilings.speed import SpeedCeilings, ceilings
from flashmoe_sim.ceilings.speed_verdict import speed_verdict
from flashmoe_sim.io.errors import Incomplete, TooLarge
from flashmoe_sim.machines.load import load_machine, parse_machine
from flashmoe_sim.machines.machine import Anchors, Machine
from flashmoe_sim.question import ConditionOptions
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.sweep.plan import plan_conditions, plan_setup
from flashmoe_sim.timeline.from_replay import time_replay
from flashmoe_sim.trace.routing import PHASE_DECODE
from tests.residency.builders import Call, geometry_of, of_one_layer, one_layer, random_calls, trace_of

# An expert of 1000 bytes is read in 1 ms, one at a time, uploaded in 0.5 ms and computed in 0.1 ms; a call takes 0.2 ms
# beside that and 0.05 ms to find its slots, an install 0.01 ms.
TINY = """
name = "tiny"
title = "A GPU whose milliseconds are easy to add"
[memory]
ram_gib = { value = 1, source = "s", condition = "c" }
bandwidth_gb_s = { value = 1, source = "s", condition = "c" }
copy_gb_s = { value = 1, source = "s", condition = "c" }
reserve_gib = { value = 0, source = "s", condition = "c" }
[storage]
read_gb_s = { value = 0.001, source = "s", condition = "c" }
request_us = { value = 0, source = "s", condition = "c" }
lanes = { value = 1, source = "s", condition = "c" }
[link]
pinned_gb_s = { value = 0.002, source = "s", condition = "c" }
pageable_gb_s = { value = 0.002, source = "s", condition = "c" }
request_us = { value = 0, source = "s", condition = "c" }
[gpu]
memory_gib = { value = 1, source = "s", condition = "c" }
weights_gb_s = { value = 0.01, source = "s", condition = "c" }
layer_us = { value = 200, source = "s", condition = "c" }
knee_tokens = { value = 100, source = "s", condition = "c" }
[host]
call_us = { value = 50, source = "s", condition = "c" }
install_us = { value = 10, source = "s", condition = "c" }
"""
CPU = """
[cpu]
weights_gb_s = { value = 0.01, source = "s", condition = "c" }
layer_us = { value = 0, source = "s", condition = "c" }
knee_tokens = { value = 100, source = "s", condition = "c" }
"""
UNIONS = [[0, 1], [0, 2], [0, 1], [0, 2]]


def tiny(more: str = "", **changed: float) -> Machine:
    machine = parse_machine(TINY + more, where="tiny.toml")
    for path, value in changed.items():
        machine = machine.varied(path.replace("__", "."), value)
    return machine


def workload_of(calls: list[Call], n_experts: int = 4, *, expert_bytes: int = 1000) -> Workload:
    trace = trace_of(calls, n_experts)
    return prepare(trace, geometry_of(dict.fromkeys(trace.layers, expert_bytes), n_experts))


def found(
    workload: Workload,
    machine: Machine,
    bank: int | str,
    *,
    policy: str = "lru",
    contract: str = "atomic",
    scope: str = "layer",
    prefetch: str = "none",
    execution: str | None = None,
    direct_io: bool = True,
    lookahead: int = 16,
    dense: int = 0,
) -> SpeedCeilings:
    setup = plan_setup(bank, policy=policy, contract=contract, scope=scope, prefetch=prefetch)
    conditions = plan_conditions(setup, ConditionOptions(execution=execution, dense=dense, direct_io=direct_io))
    return ceilings(workload, setup, machine, conditions, lookahead=lookahead)


def test_every_ceiling_by_hand() -> None:
    """Two slots and four calls of two experts. LRU misses both experts, then the other one of each call: 5 reads.

    Every call takes 0.2 + 0.05 + 2 x 0.1 = 0.45 ms without misses, and a miss 1 + 0.5 + 0.01 = 1.51 ms more.
    `min` serves expert 2 without installing it, since 1 is used before 2 is again: it misses 0, 1, 2 and 2.
    Who must admit 2 gives up 1 for it, as 0 is of the call, and misses as LRU does.
    A read ahead takes 1.5 ms; the first two are read before the run. Under compute, the read begins when the call
    before ends, so the expert comes 1.5 ms later, and is then computed: 1.6 ms a call. Before the first call two are
    read, usable at 1.5 and 2.5 ms: it ends at 2.6.
    """
    table = found(workload_of(one_layer(UNIONS)), tiny(), 2)
    ms = {row.name: 4 * row.ms_per_token for row in table.rows}
    assert ms == pytest.approx(
        {
            "this": 4 * 0.45 + 5 * 1.51,
            "stock": 4 * 0.40,
            "all-hit": 4 * 0.45,
            "oracle-prefetch": 4 * 0.45 + 5 * 1.5,
            "oracle-prefetch, overlapped": 2.6 + 3 * 1.6,
            "min": 4 * 0.45 + 4 * 1.51,
            "min, prefetched": 2.6 + 3 * 1.6,
            "min:forced": 4 * 0.45 + 5 * 1.51,
            "min:forced, prefetched": 2.6 + 3 * 1.6,
            "lookahead-16": 4 * 0.45 + 5 * 1.51,
            "lookahead-16, prefetched": 2.6 + 3 * 1.6,
            "bandwidth limit": 5.0,
        }
    )
    assert table.floor.resource == "storage"
    assert table.floor.busy_ms_per_token == pytest.approx(
        {"compute": 0.4, "cold_lane": 0, "storage": 1.25, "page_cache": 0, "link": 0.625, "host": 0.0625}
    )
    assert table.part_ms_per_token["read"] == pytest.approx(5 / 4)
    assert sum(table.part_ms_per_token.values()) == pytest.approx((4 * 0.45 + 5 * 1.51) / 4)
    reads = {row.name: 4 * row.reads_per_token for row in table.rows}
    assert [reads[name] for name in ("this", "stock", "all-hit", "oracle-prefetch", "min")] == [5, 0, 0, 5, 4]
    assert table.row("this").bytes_per_token == 1250  # type: ignore[union-attr]
    hits = [round(8 * row.hit_rate) for row in table.rows]
    assert hits == [3, 8, 8, 8, 8, 4, 8, 3, 8, 3, 8, 3]


def test_the_verdict_by_hand() -> None:
    """9.35 ms: without reads 4.35, without uploads and installs 6.8, without the hit path 7.55."""
    verdict = found(workload_of(one_layer(UNIONS)), tiny(), 2).verdict
    assert verdict.kind == "read"
    assert verdict.tok_s == pytest.approx(4000 / 9.35)
    free_ms = {kind: 4000 / tok_s for kind, tok_s in verdict.free_tok_s.items()}
    assert free_ms == pytest.approx({"read": 4.35, "cpu": 9.35, "upload": 6.8, "compute": 7.55})
    assert verdict.free_misses_tok_s == pytest.approx(4000 / 1.8)
    assert {move.name: 4000 / move.tok_s for move in verdict.ceilings} == pytest.approx(
        {"all-hit": 1.8, "oracle-prefetch, overlapped": 7.4, "min": 7.84}
    )
    assert {move.name: 4000 / move.tok_s for move in verdict.hardware} == pytest.approx(
        {
            "twice storage.read_gb_s": 9.35 - 2.5,
            "twice link.pinned_gb_s": 9.35 - 1.25,
            "half gpu.layer_us": 9.35 - 0.4,
            "twice gpu.weights_gb_s": 9.35 - 0.4,
            "half host.call_us": 9.35 - 0.1,
            "half host.install_us": 9.35 - 0.025,
            "twice memory.copy_gb_s": 9.35,
            "twice memory.ram_gib": 9.35,
            "twice link.pageable_gb_s": 9.35,
        }
    )
    assert verdict.text == (
        "Reads hold it back (free reads: 920 tok/s instead of 428); all hits would give 2,220, perfect one-call "
        "prefetch 541, the best policy 510; the most helpful hardware change is storage that is twice as fast: "
        "584 tok/s."
    )


@pytest.mark.parametrize(
    ("machine", "bank", "kind", "words"),
    [
        (tiny(link__pinned_gb_s=0.0002), 2, "upload", "Uploads and installs hold it back (free uploads"),
        (tiny(gpu__layer_us=5000), 2, "compute", "Computing holds it back (free layers, experts and slot lookups"),
        (tiny(gpu__layer_us=5000), 2, "compute", "the most helpful hardware change is half the GPU's fixed"),
    ],
)
def test_what_takes_longest_is_the_bottleneck(machine: Machine, bank: int, kind: str, words: str) -> None:
    verdict = found(workload_of(one_layer(UNIONS)), machine, bank).verdict
    assert verdict.kind == kind
    assert words in verdict.text


def test_reads_are_named_where_they_and_uploads_take_most_of_a_token() -> None:
    """Hits take 4 x 1.5 ms, reads 5 and uploads 2.55: without computing 7.55 ms, without reads 8.55, without both 6."""
    verdict = found(workload_of(one_layer(UNIONS)), tiny(gpu__layer_us=1250), 2).verdict
    free_ms = {kind: 4000 / tok_s for kind, tok_s in verdict.free_tok_s.items()}
    assert free_ms == pytest.approx({"read": 8.55, "cpu": 13.55, "upload": 11.0, "compute": 7.55})
    assert 4000 / verdict.free_misses_tok_s == pytest.approx(6.0)
    assert verdict.kind == "read"
    assert verdict.text.startswith("Reads hold it back (free reads: 468 tok/s instead of 295); ")
    assert found(workload_of(one_layer(UNIONS)), tiny(gpu__layer_us=1750), 2).verdict.kind == "compute"


def test_a_change_of_something_else_than_what_holds_it_back_is_explained() -> None:
    """Computing takes 4 x 0.9 ms of layers, 8 x 0.5 of experts and 0.2 of lookups, reads 5, uploads and installs 2.55.

    Half the reads saves 2.5 ms of 15.35, half of the experts' time 2.
    """
    machine = tiny(gpu__layer_us=900, gpu__weights_gb_s=0.002)
    verdict = found(workload_of(one_layer(UNIONS)), machine, 2).verdict
    assert verdict.kind == "compute"
    assert verdict.text.startswith("Computing holds it back (free layers, experts and slot lookups: 530 tok/s instead ")
    assert verdict.text.endswith(
        "; the most helpful hardware change is storage that is twice as fast: 311 tok/s, as each change halves one "
        "part only: of computing, GPU memory that is twice as fast gives most, 300."
    )


@pytest.mark.parametrize("kind", FREED)
def test_a_change_that_would_contradict_is_explained_for_every_kind(kind: str) -> None:
    """First with a change of another kind that gains most, then with one of its own."""
    held = Bottleneck(kind, 10.0, dict.fromkeys(FREED, 20.0), 20.0)
    own = [Move(name, 12.0, 0.2) for name, change in CHANGES.items() if kind in change.kinds]
    other = [Move(name, 13.0, 0.3) for name, change in CHANGES.items() if kind not in change.kinds]
    assert "as each change halves one part only: of " in speed_verdict(held, 10.0, {}, (*other, *own)).text
    idle = tuple(Move(move.name, 10.0, 0.0) for move in own)
    assert speed_verdict(held, 10.0, {}, (*other, *idle)).text.endswith(" none gains.")
    assert "halves one part" not in speed_verdict(held, 10.0, {}, (*own, *other)).text


def test_where_all_is_resident_there_is_only_the_hit_path() -> None:
    table = found(workload_of(one_layer(UNIONS)), tiny(), 2, execution="resident")
    assert math.isinf(table.verdict.free_tok_s["compute"])
    assert table.verdict.text == (
        "Computing holds it back (free layers, experts and slot lookups: no limit instead of 2,500 tok/s); "
        "neither hits nor prefetch nor policy would help; the most helpful hardware change is GPU memory "
        "that is twice as fast: 3,330 tok/s."
    )
    this, stock, all_hit = table.rows[:3]
    assert this.tok_s == stock.tok_s == all_hit.tok_s
    assert this.reads_per_token == 0
    assert this.hit_rate == 3 / 8  # of the bank, which is not asked


def test_memory_is_a_page_cache_that_more_of_helps() -> None:
    """A bank of one slot, and two experts of 400 MiB in turn: both fit a page cache of 1 GiB, one fits 0.5 GiB."""
    workload = workload_of(one_layer([[0], [1]] * 8), expert_bytes=400 << 20)
    table = found(workload, tiny(memory__ram_gib=0.5), 1, direct_io=False)
    gain = {move.name: move.gain for move in table.verdict.hardware}
    assert gain["twice memory.ram_gib"] > 1
    assert gain["twice memory.copy_gb_s"] == 0
    table = found(workload, tiny(), 1, direct_io=False)
    gain = {move.name: move.gain for move in table.verdict.hardware}
    assert gain["twice memory.ram_gib"] == 0
    assert gain["twice memory.copy_gb_s"] > 0


def test_the_floor_takes_the_reads_at_their_best() -> None:
    """One read in flight of a device of two lanes: the run leaves half of it idle, but the floor is its bandwidth."""
    machine = tiny(storage__lanes=2)
    table = found(workload_of(one_layer([[0], [1]] * 4)), machine, 1)
    assert table.floor.busy_ms_per_token["storage"] == pytest.approx(1.0)
    assert table.row("bandwidth limit").ms_per_token == pytest.approx(1.0)  # type: ignore[union-attr]


def test_a_prompt_is_not_in_the_speed() -> None:
    """A prompt of three tokens first, recorded as such: the decoded steps are those of the run without it."""
    calls = one_layer(UNIONS)
    prompt: list[Call] = [(0, [0, 1, 0, 1, 0, 1], 3)]
    workload = workload_of(prompt + calls)
    phased = replace(workload, trace=workload.trace.with_(phase=np.array([1, 2, 2, 2, 2], np.uint8)))
    table = found(phased, tiny(), 2)
    assert table.verdict.tok_s == pytest.approx(4000 / (4 * 0.45 + 3 * 1.51))
    assert table.row("bandwidth limit").ms_per_token == pytest.approx(0.75)  # type: ignore[union-attr]
    assert table.verdict.free_tok_s["read"] == pytest.approx(4000 / (4 * 0.45 + 3 * 0.51))


def random_table(seed: int) -> tuple[SpeedCeilings, str]:
    """The ceilings of a small random run of a system that reads its misses, and its contract."""
    rng = np.random.default_rng(seed)
    n_experts, layers = int(rng.integers(4, 17)), int(rng.integers(1, 4))
    calls = random_calls(
        rng, n_experts=n_experts, layers=layers, steps=int(rng.integers(4, 30)), most_tokens=int(rng.choice([1, 1, 3]))
    )
    workload = workload_of(calls, n_experts, expert_bytes=int(10 ** rng.uniform(5, 7)))
    decode = np.full(len(calls), PHASE_DECODE, np.uint8)  # wide calls too, as of several conversations
    contract = str(rng.choice(["atomic", "protected", "runtime"]))
    least = 1 if contract == "atomic" else max(len(set(experts)) for _, experts, _ in calls)
    table = found(
        replace(workload, trace=workload.trace.with_(phase=decode)),
        load_machine(str(rng.choice(["m3-max-48", "phone-ufs4", "rtx-3060"]))),
        int(rng.integers(least, n_experts + 1)),
        policy=str(rng.choice(["lru", "fifo"])),
        contract=contract,
        execution=str(
            rng.choice(["sync-install", "split-install", "parallel-install", "async-upload", "overlap-prefetch"])
        ),
        direct_io=bool(rng.random() < 0.5),
        dense=10**8,
        lookahead=4,
    )
    return table, contract


@pytest.mark.parametrize("seed", range(24))
def test_laws(seed: int) -> None:
    table, contract = random_table(seed)
    row = {one.name: one for one in table.rows}
    tok_s = {name: one.tok_s * (1 + 1e-9) for name, one in row.items()}
    assert len(row) == 12
    assert all(tok_s["all-hit"] >= row[name].tok_s for name in row if name not in ("stock", "bandwidth limit"))
    assert tok_s["stock"] >= row["all-hit"].tok_s
    assert tok_s["bandwidth limit"] >= row["this"].tok_s
    assert all(one.tok_s_lo <= one.tok_s <= one.tok_s_hi for one in table.rows)
    if contract != "runtime":  # where an aliased reference counts as a hit although nobody read its expert
        read = [one.reads_per_token for one in table.rows if one.name not in ("stock", "all-hit")]
        assert min(read) == row["min"].reads_per_token
    assert table.verdict.tok_s == row["this"].tok_s
    assert all(speed >= row["this"].tok_s * (1 - 1e-9) for speed in table.verdict.free_tok_s.values())
    verdict = table.verdict
    assert verdict.free_misses_tok_s * (1 + 1e-9) >= max(verdict.free_tok_s["read"], verdict.free_tok_s["upload"])
    if verdict.kind == "compute":
        assert verdict.free_tok_s["compute"] >= verdict.free_misses_tok_s
    else:
        assert verdict.free_misses_tok_s > verdict.free_tok_s["compute"]
        assert verdict.free_tok_s[verdict.kind] == max(verdict.free_tok_s["read"], verdict.free_tok_s["upload"])
    if table.machine == "rtx-3060" and contract != "runtime":  # where reads take no bandwidth from the GPU
        assert tok_s["oracle-prefetch, overlapped"] >= row["this"].tok_s


def test_two_lanes_can_be_faster_than_all_hits() -> None:
    """Where the CPU is as fast as the GPU, a miss in every call halves the time of the experts: 0.2 of 0.25 ms each."""
    machine = tiny(CPU, gpu__weights_gb_s=0.001, cpu__weights_gb_s=0.001)
    table = found(
        workload_of(one_layer([[0, 1]] * 4)), machine, 1, execution="hot-cold", policy="static", direct_io=False
    )
    this, _, all_hit = table.rows[:3]
    assert this.ms_per_token == pytest.approx(0.25 + 1.0)
    assert all_hit.ms_per_token == pytest.approx(0.25 + 2.0)
    assert this.reads_per_token == 0
    assert table.verdict.kind == "compute"
    assert [note.partition(":")[0] for note in table.notes] == ["oracle-prefetch"]


def test_all_hits_can_be_slower_than_misses_that_a_faster_cpu_computes() -> None:
    """The GPU takes 1 ms for an expert and the CPU 0.1; a call without misses does not stop for the host's 0.05."""
    machine = tiny(CPU, gpu__weights_gb_s=0.001, cpu__weights_gb_s=0.01)
    workload = workload_of(one_layer([[0, 1]] * 4))
    table = found(workload, machine, 1, execution="prefill-copy", policy="static", direct_io=False)
    this, _, all_hit = table.rows[:3]
    assert all_hit.ms_per_token - this.ms_per_token == pytest.approx(1 - 0.1 - 0.05)


@pytest.mark.parametrize(("name", "bank"), [("rtx-3090", 16), ("rtx-4090", 8), ("rtx-5090", 16)])
def test_perfect_prefetch_can_be_slower_than_misses_on_the_cpu(name: str, bank: int) -> None:
    """It uploads every expert instead, one call ahead."""
    table = found(load_workload("gpt-oss-120b"), load_machine(name), bank, execution="prefill-copy", direct_io=False)
    row = {one.name: one for one in table.rows}
    assert row["oracle-prefetch, overlapped"].tok_s < row["this"].tok_s < row["all-hit"].tok_s


def test_perfect_prefetch_can_be_slower_in_a_tiny_bank() -> None:
    """With one slot, a read for the next call can only begin when this call is done with its expert."""
    machine = load_machine("rtx-3060").varied("storage.lanes", 1).varied("storage.read_gb_s", 97)
    table = found(load_workload("gpt-oss-120b"), machine, 4, contract="protected", execution="async-upload")
    row = {one.name: one for one in table.rows}
    assert row["oracle-prefetch, overlapped"].tok_s < row["this"].tok_s


def test_misses_on_the_cpu_are_named() -> None:
    workload = workload_of(one_layer(UNIONS), expert_bytes=10**8)
    table = found(workload, load_machine("rtx-3060"), 1, execution="hot-cold", policy="static", direct_io=False)
    assert table.verdict.kind == "cpu"
    assert table.verdict.text.startswith("Misses computed on the CPU hold it back (free misses on the CPU: ")


def test_misses_that_ram_does_not_hold_are_held_back_by_reads() -> None:
    workload = workload_of(one_layer(UNIONS), expert_bytes=10**8)
    machine = load_machine("rtx-3060")
    little = machine.varied("memory.ram_gib", machine.memory.reserve_gib.value + 0.1)
    table = found(workload, little, 1, execution="hot-cold", policy="static", direct_io=False)
    assert table.verdict.kind == "read"
    assert table.verdict.text.startswith("Reads hold it back (free reads: ")
    assert table.verdict.free_tok_s["cpu"] > table.verdict.tok_s


def test_rows_that_cannot_be_are_told() -> None:
    calls: list[Call] = [(layer, [expert], 1) for _ in range(4) for expert in range(3) for layer in (0, 1)]
    unequal = prepare(trace_of(calls, 4), geometry_of({0: 1000, 1: 3000}, 4))
    table = found(unequal, tiny(), "5000B", scope="global")
    assert table.row("min") is None
    assert table.notes == ("min: unknown if experts of different sizes share a bank of bytes",)
    assert [move.name for move in table.verdict.ceilings] == ["all-hit", "oracle-prefetch, overlapped"]
    table = found(workload_of(calls), tiny(), 2, contract="sequential")
    assert table.row("min") is not None
    assert table.notes == (
        "oracle-prefetch: predictor oracle-1 is undefined under the contract sequential; "
        "use --contract runtime or protected or atomic",
    )
    assert [row.name for row in table.rows if "prefetch" in row.name] == []


def test_stock_says_whether_it_fits() -> None:
    workload = workload_of(one_layer(UNIONS), expert_bytes=300 << 20)
    table = found(workload, tiny(), 2)
    assert table.row("stock").meaning.endswith("would not fit.")  # type: ignore[union-attr]
    assert table.notes == ("stock: 1.2 GiB do not fit tiny, which has 1 GiB on its GPU",)
    assert found(workload_of(one_layer(UNIONS)), tiny(), 2).notes == ()


def test_the_bottleneck_of_a_timed_replay_is_that_of_the_verdict() -> None:
    workload, setup = workload_of(one_layer(UNIONS)), plan_setup(2, contract="atomic")
    conditions = plan_conditions(setup, ConditionOptions(dense=0, direct_io=True))
    timed = time_replay(workload, replay(workload, setup, record=True), tiny(), conditions)
    held = bottleneck(timed.work, timed.costs, conditions.execution)
    assert (held.kind, held.free_tok_s) == ("read", found(workload, tiny(), 2).verdict.free_tok_s)
    assert set(held.free_tok_s) == set(FREED)
    free = without(without(without(timed.costs, "read"), "upload"), "compute")
    nothing = bottleneck(timed.work, free, conditions.execution)
    assert nothing.kind == "none"


def test_bad_input_is_one_line() -> None:
    workload = workload_of(one_layer(UNIONS))
    idle = tiny(gpu__layer_us=0)
    assert idle.gpu is not None
    fitted = Anchors(("a run",), "a model", "2026-01-01", "sim machine fit")
    idle = replace(idle, gpu=replace(idle.gpu, weights_gb_s=None), anchors=fitted)
    with pytest.raises(Incomplete, match="computing takes no time there"):
        found(workload, idle, 2)
    with pytest.raises(TooLarge, match="do not fit tiny, which has 1 GiB on its GPU"):
        found(workload_of(one_layer(UNIONS), expert_bytes=800 << 20), tiny(), 2)
    with pytest.raises(Incomplete, match="give --model"):
        found(of_one_layer(UNIONS, 4), tiny(), 2)
    silent = workload.trace.with_(n_tokens=np.zeros(4, np.int32))
    with pytest.raises(Incomplete, match="no decoded step whose tokens are known"):
        found(replace(workload, trace=silent), tiny(), 2)
