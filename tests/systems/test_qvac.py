"""Tether's cache of experts, and llama.cpp's, by hand and against a plain twin; layers on the GPU beside it."""

from __future__ import annotations

import numpy as np
import pytest

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.errors import OutOfRange, TooLarge, Unsupported
from flashmoe_sim.io.sizes import GIB, MIB
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.residency.replay import Replayed
from flashmoe_sim.residency.workload import prepare
from flashmoe_sim.systems.base import Case
from flashmoe_sim.systems.cached import Cached
from flashmoe_sim.systems.qvac import Qvac
from flashmoe_sim.systems.uploaded import UploadedMisses
from flashmoe_sim.timeline.timed import time_replay
from tests.residency.builders import Call, random_calls, trace_of
from tests.systems.models import model_of

EXPERT = 100 * MIB
EXPERTS = 16
LRU = {"build": 12169}


def case_of(layers: int, machine: str = "rtx-3090", model: ModelGeometry | None = None) -> Case:
    model = model or model_of(layers * EXPERTS * EXPERT, layers=layers, arch="qwen35moe")
    return Case(model, load_machine(machine))


def replayed(system: UploadedMisses, calls: list[Call], case: Case) -> Replayed:
    trace = trace_of(calls, EXPERTS)
    workload = system.prepared(prepare(trace.with_(phase=np.full(len(calls), 2, np.uint8)), case.model))
    return system.replay(workload, system.plan(case).setup)


def twin(calls: list[Call], slots: int, *, kind: type[UploadedMisses], cpu_layers: int) -> list[int]:
    """Misses of each call: a list of experts, the one used last at its end.

    llama.cpp's own cache has hits in the order of the router, and turns a call away by its tokens; Tether's sorts both,
    and looks at the experts that the call really uses.
    """
    own = kind is Cached
    held: list[tuple[int, int]] = []
    misses = []
    for layer, experts, tokens in calls:
        asked = [(layer, expert) for expert in (dict.fromkeys(experts) if own else sorted(set(experts)))]
        if layer >= cpu_layers:
            misses.append(0)
            continue
        needed = min(len(experts), EXPERTS) if own else len(asked)
        if (own and tokens > 32) or needed > slots:
            misses.append(len(asked))
            continue
        hits = [one for one in asked if one in held]
        missed = sorted(one for one in asked if one not in held)
        held = [one for one in held if one not in asked]
        del held[: max(len(held) + len(asked) - slots, 0)]
        held += [*hits, *missed]
        misses.append(len(missed))
    return misses


@pytest.mark.parametrize("cpu_layers", [1, 2, 3])
@pytest.mark.parametrize("slots", [3, 7, 20])
@pytest.mark.parametrize("kind", [Cached, Qvac])
def test_equals_its_twin(kind: type[UploadedMisses], slots: int, cpu_layers: int) -> None:
    rng, case = np.random.default_rng(slots), case_of(3)
    system = kind(cache_mib=100 * (slots + kind.reserved), cpu_layers=cpu_layers, **(LRU if kind is Cached else {}))
    for _ in range(5):
        calls = []
        for layer, experts, tokens in random_calls(rng, n_experts=EXPERTS, layers=3, steps=30, most_tokens=2, width=2):
            times = int(rng.choice([1, 1, 40]))
            calls.append((layer, experts[::-1] * times, tokens * times))
        slots_used = min(slots, cpu_layers * EXPERTS)
        found = replayed(system, calls, case)
        expected = twin(calls, slots_used, kind=kind, cpu_layers=cpu_layers)
        assert found.stream.misses.tolist() == expected
        total = found.counts.total()
        assert total["misses"] == sum(expected)
        assert total["hits"] + total["misses"] == total["requests"]
        assert total["full_hit_calls"] == expected.count(0)


def test_its_own_size_is_a_tenth_and_whole_layers_get_the_rest() -> None:
    case = case_of(0, "rtx-3090", model_of(90 * GIB, layers=30, arch="qwen35moe"))
    sized = Qvac().sized(case)
    assert sized.cache_mib == 9 * 1024
    assert 1 < sized.cpu_layers < 30
    sized.check(case)
    held = {share.what: share.size_bytes for share in sized.memory(case)}
    assert held["experts of whole layers"] + held["experts"] == 90 * GIB
    fewer = Qvac(cache_mib=sized.cache_mib, cpu_layers=sized.cpu_layers - 1)
    with pytest.raises(TooLarge, match="of the GPU"):
        fewer.check(case)
    words = f"--n-cpu-moe {sized.cpu_layers} -fa on -ub 512 -np 1 --moe-cache-mib {sized.cache_mib}"
    assert sized.launch(case).line.endswith(words)
    assert Qvac().at_each_size(case) == [sized]


@pytest.mark.parametrize("kind", [Qvac, Cached])
def test_a_cache_is_for_some_layer_with_experts(kind: type[UploadedMisses]) -> None:
    case = case_of(0, "rtx-4090", load_model("deepseek-v2-lite"))  # layer 0 has none
    kind().sized(case).check(case)
    with pytest.raises(Unsupported, match="no layer below 1 has experts"):
        kind(cache_mib=300, cpu_layers=1).check(case)


def test_a_layer_on_the_gpu_uploads_nothing_and_frees_ram() -> None:
    case = case_of(2)
    calls: list[Call] = [(0, [0, 1], 1), (1, [0, 1], 1)] * 4
    both, one = Qvac(cache_mib=300), Qvac(cache_mib=300, cpu_layers=1)
    assert replayed(both, calls, case).stream.misses.tolist() == [2] * 8
    assert replayed(one, calls, case).stream.misses.tolist() == [2, 0] * 1 + [0, 0] * 3
    speeds = []
    for system in (both, one):
        plan = system.plan(case)
        workload = system.prepared(prepare(trace_of(calls, EXPERTS), case.model))
        found = system.replay(workload, plan.setup)
        timed = time_replay(workload, found, plan.machine, plan.conditions(case), interval=False)
        speeds.append(timed.timing.tok_s)
    assert speeds[0] < speeds[1]
    assert one.memory(case)[-1].size_bytes == EXPERTS * EXPERT


@pytest.mark.parametrize(
    ("system", "machine", "words"),
    [
        (Qvac(cache_mib=299), "rtx-3090", "the experts of a token in one layer and one reserved slot take 300"),
        (Cached(cache_mib=300, cpu_layers=1), "2x rtx-3090 + 256GiB", "with cpu_layers, it is known for one GPU only"),
        (Qvac(), "2x rtx-3090 + 256GiB", "is known for one GPU only"),
        (Qvac(), "m3-max-48", "needs a GPU with a memory of its own"),
    ],
)
def test_what_cannot_be(system: UploadedMisses, machine: str, words: str) -> None:
    with pytest.raises(Unsupported, match=words):
        system.check(case_of(2, machine))


@pytest.mark.parametrize("layers", [0, -2])
def test_no_layers(layers: int) -> None:
    with pytest.raises(OutOfRange, match=f"system qvac: cpu_layers={layers}"):
        Qvac(cpu_layers=layers)
