"""`hot-window` and `hot-cache`, which keep hot experts on the GPU beside the CPU, on by_hand.TWO_SIZES."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flashmoe_sim.api as sim
from flashmoe_sim.io.errors import BadInput, TooLarge, Unsupported
from flashmoe_sim.io.sizes import GIB, MIB
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.residency.workload import prepare
from flashmoe_sim.systems.base import Case
from flashmoe_sim.systems.compare import compare
from flashmoe_sim.systems.hot_cache import HotCache
from flashmoe_sim.systems.hot_window import HotWindowSlots
from flashmoe_sim.systems.table import parse_system
from flashmoe_sim.tune.objective import Objective
from flashmoe_sim.tune.proof import wins
from flashmoe_sim.verbs.compare import Compare
from tests.residency.builders import Call, trace_of
from tests.systems.by_hand import TWO_SIZES, on_card, taken

MODEL = replace(TWO_SIZES, arch="qwen35moe")
MAPS = 2 * 4 * 8


def case(*, kv_bytes: int = 0, arch: str = "qwen35moe", **given: Any) -> Case:
    return replace(on_card(arch=arch, **given), kv_bytes=kv_bytes)


# --- hot-window -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpu_mib", "kv_mib", "slots"),
    [
        (2048 + 8, 0, 1),  # a slot of both layers is 4 MiB, and the maps take a few bytes of the second
        (2048 + 9, 0, 2),
        (2048 + 9, 1, 1),
        (2048 + 13, 0, 3),
        (24 * 1024, 0, 4),  # as many as there are experts
    ],
)
def test_a_hot_window_as_large_as_the_gpu_has_room(gpu_mib: int, kv_mib: int, slots: int) -> None:
    on = case(gpu_mib=gpu_mib, kv_bytes=kv_mib * MIB)
    sized = HotWindowSlots().sized(on)
    assert sized.spec == f"hot-window:slots={slots}"
    sized.check(on)
    assert HotWindowSlots(slots=3).sized(on).slots == 3
    one_more = sum(share.size_bytes for share in HotWindowSlots(slots=slots + 1).memory(on) if share.where == "gpu")
    assert one_more > on.gpu_bytes or slots == 4


def test_no_room_for_a_hot_window() -> None:
    with pytest.raises(TooLarge, match=r"0\.0 GiB are left for slots on the GPU, too little"):
        HotWindowSlots().sized(case(gpu_mib=2048 + 4))
    assert HotWindowSlots().sizes(case(gpu_mib=2048 + 4)) == []
    assert HotWindowSlots().sizes(case()) == [2, 4]


def test_the_memory_of_a_hot_window() -> None:
    shares = HotWindowSlots(slots=3).memory(case(kv_bytes=7))
    assert taken(shares, "gpu") == {
        "hot experts": 3 * 4 * MIB,
        "maps": MAPS,
        "dense weights": GIB,
        "context": 7,
        "compute buffers": GIB,
    }
    # Three experts of the larger layer, and the router's numbers of all experts of both.
    assert taken(shares, "ram") == {"pinned buffers": 9 * MIB + 2 * 4 * 4}
    assert taken(shares, "mapped") == {"experts": 16 * MIB}


def test_the_flags_of_a_hot_window() -> None:
    words = "llama-server -m MODEL.gguf -c 4096 -ngl 99 --cpu-moe -fa on -ub 512 -np 1 --no-mmap"
    words += " --moe-hot-k 3 --moe-hot-rebalance-interval"
    assert HotWindowSlots(slots=3).launch(case()).line == f"LLAMA_MOE_HOT_PP_BYPASS_N_TOKENS=64 {words} 40"
    assert HotWindowSlots(slots=3, bypass_tokens=0).launch(case()).line == f"{words} 40"
    passing = HotWindowSlots(slots=3, interval=60, bypass_tokens=32).launch(case())
    assert passing.line == f"LLAMA_MOE_HOT_PP_BYPASS_N_TOKENS=32 {words} 60"


def test_a_hot_window_replays_as_its_program_does() -> None:
    """One slot: layer 0 of two begins full with expert 0; layer 1 takes 3 after the first decode of the trace.

    That is decode 3, so the next one ends the first interval of four: 1 of layer 0 has two references, 0 the bonus 3.
    """
    calls: list[Call] = [(0, [1, 2], 1), (1, [3, 2], 1), (0, [1, 1], 1), (1, [2, 3], 1), (0, [1, 0], 1), (1, [3, 0], 1)]
    workload = prepare(trace_of(calls, 4), MODEL)
    system = HotWindowSlots(slots=1, interval=4)
    plan = system.plan(case())
    assert plan.setup.policy.spec == "hot-window:interval=4:bypass_tokens=64:count=reference:observe=last:warm_up=True"
    assert plan.execution.name == "hot-cold"
    replayed = system.replay(workload, plan.setup)
    assert replayed.stream.hits.tolist() == [0, 0, 0, 1, 1, 1]
    assert [keys.tolist() for keys in replayed.contents] == [[0], [3]]


# --- hot-cache --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpu_mib", "kv_bytes", "max_mib"),
    [(2048 + 8, 0, 8), (2048 + 8, 1, 7), (2048 + 2, 0, 2), (24 * 1024, 0, 22 * 1024)],
)
def test_a_hot_cache_takes_what_the_gpu_has_beside_context_and_reserve(
    gpu_mib: int, kv_bytes: int, max_mib: int
) -> None:
    on = case(gpu_mib=gpu_mib, kv_bytes=kv_bytes)
    sized = HotCache().sized(on)
    assert sized.spec == f"hot-cache:max_mib={max_mib}"
    sized.check(on)
    assert HotCache(max_mib=5).sized(on).max_mib == 5


def test_no_room_for_a_hot_cache() -> None:
    with pytest.raises(TooLarge, match="are left for hot experts on the GPU, too little"):
        HotCache().sized(case(gpu_mib=2048))
    says = "1 MiB; an expert and the empty slot beside it take 2.0"
    assert HotCache(max_mib=1).why_not(case()) == says
    with pytest.raises(Unsupported, match=re.escape(says)):
        HotCache().sized(case(gpu_mib=2049))
    assert HotCache().sizes(case(gpu_mib=2048 + 8)) == [1, 2, 4, 8]
    assert HotCache().sizes(case(gpu_mib=2048)) == []


def test_the_memory_of_a_hot_cache() -> None:
    rest = {"dense weights": GIB, "context": 7, "compute buffers": GIB}
    assert taken(HotCache(max_mib=5).memory(case(kv_bytes=7)), "gpu") == {"hot experts": 5 * MIB, **rest}
    # All experts, and an empty slot of each layer: 16 and 4 MiB.
    shares = HotCache(max_mib=500).memory(case(kv_bytes=7))
    assert taken(shares, "gpu") == {"hot experts": 20 * MIB, **rest}
    assert taken(shares, "mapped") == {"experts": 16 * MIB}


def test_the_flags_of_a_hot_cache(tmp_path: Path) -> None:
    words = "llama-server -m MODEL.gguf -c 4096 -ngl 99 --cpu-moe -fa on -ub 512 -np 1 --no-mmap --moe-hot-cache"
    assert HotCache(max_mib=5).launch(case()).line == (
        f"{words} PROFILE.json --moe-hot-cache-max-mib 5 --moe-hot-cache-weighting flat --moe-hot-cache-layer-curve 0.5"
        " --auto-learn --moe-hot-cache-warmup-prompt PROMPT"
    )
    path = profile_of([[0, 1]], tmp_path)
    system = HotCache(max_mib=5, weighting="balanced", layer_curve=1.0, update_rate=0.25, profile=str(path))
    assert system.launch(case()).line == (
        f"{words} {path} --moe-hot-cache-max-mib 5 --moe-hot-cache-weighting balanced --moe-hot-cache-layer-curve 1 "
        "--moe-hot-cache-update-rate 0.25"
    )


def profile_of(experts: list[list[int]], folder: Path) -> Path:
    path = folder / "profile.json"
    layers = [{"layer": 0, "experts": experts}]
    path.write_text(json.dumps({"schema": "llama.cpp.moe_layer_opt_perf.v1", "layers": layers}))
    return path


def test_a_hot_cache_replays_as_its_program_does(tmp_path: Path) -> None:
    """The profile has 1 of layer 0, which takes 2 of 9 MiB; the seven others come in the order 5 0 6 7 3 4 2 of keys.

    That is: 1 of layer 1 for 6 MiB, then 0 of layer 0 for the last MiB. The revision of May leaves 7 MiB empty.
    """
    calls: list[Call] = [(0, [1, 0], 1), (1, [1, 2], 1)]
    workload = prepare(trace_of(calls, 4), MODEL)
    path = str(profile_of([[1, 5]], tmp_path))
    found = {}
    for revision in ("head", "may"):
        system = HotCache(max_mib=9, profile=path, revision=revision)
        replayed = system.replay(workload, system.plan(case()).setup)
        found[revision] = [keys.tolist() for keys in replayed.contents]
        assert replayed.counts.resident_bytes == {"head": 9 * MIB, "may": 2 * MIB}[revision]
    assert found == {"head": [[0, 1], [1]], "may": [[1], []]}


@pytest.mark.parametrize(("profile", "held"), [("half", [0]), ("all", [1])])
def test_a_hot_cache_chooses_by_the_first_half_or_by_all(profile: str, held: list[int]) -> None:
    """Of nine steps the first four use 0 in layer 0, the others 1; the budget is for one of them and the empty slot."""
    calls: list[Call] = [(layer, [int(step > 3)], 1) for step in range(9) for layer in (0, 1)]
    workload, system = prepare(trace_of(calls, 4), MODEL), HotCache(max_mib=2, profile=profile)
    assert system.replay(workload, system.plan(case()).setup).contents[0].tolist() == held


def test_lanes_run_side_by_side_under_cuda_only() -> None:
    assert HotCache(max_mib=5).plan(case()).execution.threshold == 2
    assert HotCache(max_mib=5).plan(case(api="rocm")).execution.threshold > 10**9


def test_what_a_routed_call_costs_where_the_machine_only_guesses() -> None:
    guessed = case()
    assert guessed.machine.host.call_us.estimated
    other = replace(guessed, machine=guessed.machine.varied("host.call_us", 5))
    call_us = HotCache(max_mib=5).plan(other).machine.host.call_us
    assert (call_us.lo, call_us.value, call_us.hi) == (35, 65, 130)
    known = replace(other.machine.host, call_us=replace(other.machine.host.call_us, estimated=False))
    measured = replace(other, machine=replace(other.machine, host=known))
    assert HotCache(max_mib=5).plan(measured).machine.host.call_us.value == 5


# --- both -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("system", "on", "says"),
    [
        ("hot-window:slots=5", case(), "5 slots; toy has 4 experts a layer, so they never fill"),
        ("hot-window", case(api="rocm"), "needs cuda; the machine has rocm"),
        ("hot-window", case(arch="qwen3moe"), "takes GPU memory for its cache, which the graph of qwen3moe never uses"),
        ("hot-cache", case(arch="qwen3moe"), "takes GPU memory for its cache, which the graph of qwen3moe never uses"),
        ("hot-cache", case(arch=""), "is not known to run a model of an unknown architecture"),
        ("hot-cache", case(api="rocm"), ""),
        *((name, Case(MODEL, load_machine(other)), "needs a GPU with a memory of its own")
          for name in ("hot-window", "hot-cache") for other in ("vm-2core", "m3-max-48")),
    ],
)  # fmt: skip
def test_where_a_system_cannot_run(system: str, on: Case, says: str) -> None:
    found = parse_system(system).why_not(on)
    assert says in found
    assert bool(says) == bool(found)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("hot-window:slots=-1", "system hot-window: slots=-1 is not in 1..2147483647"),
        ("hot-window:interval=0", "policy hot-window: interval=0 is not in 1.."),
        ("hot-window:bypass_tokens=-1", "policy hot-window: bypass_tokens=-1 is not in 0.."),
        ("hot-cache:max_mib=0", "system hot-cache: max_mib=0 is not in 1..2147483647; leave it out to have it chosen"),
        ("hot-cache:revision=june", "system hot-cache: revision='june' is not one of head, may"),
        ("hot-cache:weighting=time", "weighting=time needs the times of a profile; give profile=FILE"),
        ("hot-cache:layer_curve=2", "curve=2.0 is not in 0..1"),
    ],
)
def test_bad_settings(text: str, says: str) -> None:
    with pytest.raises(BadInput, match=re.escape(says)):
        parse_system(text)


def test_a_hit_rate_alone_ranks_systems_wrongly() -> None:
    """On an RTX 4090 a slot bank hits more than a hot set, which hits more than layers placed by number.

    The slot bank waits for storage at each miss, the others compute it where it is.
    """
    asked = Compare(model="qwen3.5-122b-a10b", machine="rtx-4090", systems="hot-cache,placed,slot-bank:slots=64")
    rows = asked.run().rows
    hits = {row.system.name: row.hit_rate or 0 for row in rows}
    assert hits["slot-bank"] > hits["hot-cache"] > 2 * hits["placed"]
    assert [row.system.name for row in rows] == ["hot-cache", "placed", "slot-bank"]
    assert wins(rows[0], rows[2], Objective()) > 0.9


def test_a_profile_of_another_workload_is_worse_than_none(tmp_path: Path) -> None:
    """A hot set chosen on prose, of 64 experts a layer, against one that needs no profile, on code."""
    layers = []
    for view in sim.load_trace("prose-256").trace.by_layer:
        experts, uses = np.unique(view.expert, return_counts=True)
        layers.append(
            {"layer": view.layer, "experts": list(map(list, zip(experts.tolist(), uses.tolist(), strict=True)))}
        )
    path = tmp_path / "prose.json"
    path.write_text(json.dumps({"schema": "llama.cpp.moe_layer_opt_perf.v1", "layers": layers}))
    exact = "hot-window:count=reference:observe=last:warm_up=True"
    table = sim.sweep(
        "python-256",
        bank=64,
        policy=["hot-profile", exact, f"hot-profile:profile={path}:fill=random"],
        contract="atomic",
    )
    own, window, borrowed = table["hit_rate"].to_list()
    assert own > 0.75
    assert own > window > borrowed + 0.05


def test_compare_says_why_neither_runs() -> None:
    calls: list[Call] = [(layer, [0, 1], 1) for _ in range(4) for layer in (0, 1)]
    workload = prepare(trace_of(calls, 4), MODEL)
    on = case(arch="olmoe")
    rows = compare(workload, on, [HotWindowSlots(), HotCache()])
    assert {row.why_not for row in rows} == {"takes GPU memory for its cache, which the graph of olmoe never uses"}
