"""Caches whose misses are uploaded, llama.cpp's and Tether's, by hand and against plain twins: rules, banks, layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.geometry.model import LayerGeometry, ModelGeometry
from flashmoe_sim.io.errors import OutOfRange, TooLarge, Unsupported
from flashmoe_sim.io.sizes import GIB, MIB
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.residency.replay import Replayed
from flashmoe_sim.residency.workload import prepare
from flashmoe_sim.systems.base import Case
from flashmoe_sim.systems.cached import Cached
from flashmoe_sim.systems.execution import CopiedFromFile, CopiedIfInstalled
from flashmoe_sim.systems.gpu_slots import UploadedMisses
from flashmoe_sim.systems.qvac import Qvac
from flashmoe_sim.timeline.from_replay import time_replay
from flashmoe_sim.trace.load import load_trace
from tests.policies.naive import Expert
from tests.policies.naive.queues import ClassLru
from tests.residency.builders import Call, random_calls, trace_of
from tests.systems.by_hand import misses_of, parts_of, replayed_by, timed_by
from tests.systems.models import model_of

EXPERTS = 16
LRU = 12169  # the last build with it
TWO_LAYERS = model_of(2 * EXPERTS * 100 * MIB, layers=2, arch="qwen35moe")  # an expert of 100 MiB


def _case(machine: str = "rtx-3090", model: ModelGeometry = TWO_LAYERS) -> Case:
    return Case(model, load_machine(machine))


def test_cached_uploads_every_miss_into_one_cache_for_all_layers() -> None:
    case = _case("rtx-3090", TWO_LAYERS)
    calls = [(0, [0, 1], 1), (1, [0], 1), (0, [0], 1), (1, [1], 1), (0, [1], 1), (0, [5] * 33, 33), (0, [0, 1], 1)]
    # Expert 1 of layer 1 replaces expert 1 of layer 0, which then replaces expert 0 of layer 1. A prompt of 33 tokens
    # replaces none.
    # Four slots, one of which is reserved.
    assert misses_of(replayed_by(Cached(cache_mib=400, build=LRU), calls, case)) == [2, 1, 0, 1, 1, 1, 0]
    parts = timed_by(Cached(cache_mib=400), calls, case).timing.part_ms_per_token
    assert parts["upload"] > parts["cold_lane"] == 0
    least = "299 MiB; the experts of a token in one layer and one reserved slot take 300; give cache_mib=300 or more"
    with pytest.raises(Unsupported, match=least):
        Cached(cache_mib=299).check(case)


def test_hits_of_cached_count_in_the_order_of_the_router_and_misses_by_number() -> None:
    """Three slots. The second call makes 1 the newest, so that the third, 4 and 3, evicts 2, and the fourth 1.

    3 comes in before 4, so that the fifth evicts 3, and the sixth hits 4.
    """
    case = _case("rtx-3090", TWO_LAYERS)
    calls = [(0, [1, 2], 1), (0, [2, 1], 1), (0, [4, 3], 1), (0, [2], 1), (0, [1], 1), (0, [4], 1), (0, [3], 1)]
    assert misses_of(replayed_by(Cached(cache_mib=400, build=LRU), calls, case)) == [2, 0, 2, 1, 1, 0, 1]


@pytest.mark.parametrize(("slots", "misses"), [(459, 55_821), (460, 55_726)])
def test_cached_misses_what_the_engine_does(slots: int, misses: int) -> None:
    """Its plan of slots, restated from its source, on the recorded trace: one more slot is allocated than is used."""
    model = load_model("gpt-oss-120b")
    case, of = Case(model, load_machine("rtx-4090 + 64GiB")), prepare(load_trace("gpt-oss-120b"), model)
    system = Cached(cache_mib=-(-(slots + 1) * model.layers[0].expert_bytes // MIB), build=LRU)
    assert system.replay(of, system.plan(case).setup).counts.total()["misses"] == misses


def test_sizes_of_cached_are_those_with_which_the_engine_starts() -> None:
    """A slot is allocated beside the 459 used of 5,809 MiB, and beside the four experts of a token."""
    model = load_model("gpt-oss-120b")
    case, of = Case(model, load_machine("rtx-4090 + 64GiB")), prepare(load_trace("gpt-oss-120b"), model)
    system = Cached(cache_mib=5809, build=LRU)
    assert system.slots_bytes(case) // model.layers[0].expert_bytes == 459
    assert system.replay(of, system.plan(case).setup).counts.total()["misses"] == 55_821
    for size in range(51, 64):
        assert "one reserved slot take 64; give cache_mib=64 or more" in Cached(cache_mib=size).why_not(case)
    Cached(cache_mib=64).check(case)


def test_a_call_of_cached_that_could_need_more_than_there_is_bypasses_it() -> None:
    """Four tokens of two experts may use eight, more than seven slots, although they use two."""
    case = _case("rtx-3090", TWO_LAYERS)
    wide = (0, [0, 1] * 4, 4)
    assert misses_of(replayed_by(Cached(cache_mib=800), [wide, (0, [0, 1], 1)], case)) == [2, 2]
    assert misses_of(replayed_by(Cached(cache_mib=900), [wide, (0, [0, 1], 1)], case)) == [2, 0]


@pytest.mark.parametrize(
    ("build", "policy", "words"),
    [
        (None, "class-lru", "the rule of builds from 12170 on"),
        (12170, "class-lru", "the rule of builds from 12170 on"),
        (12169, "lru", "the rule of builds 11480 to 12169"),
        (11480, "lru", "the rule of builds 11480 to 12169"),
    ],
)
def test_a_build_has_its_rule_and_says_so(build: int | None, policy: str, words: str) -> None:
    system = Cached(cache_mib=400, build=build)
    assert system.plan(_case()).setup.policy.name == policy
    assert words in system.of_builds(_case())[0]
    system.check(_case())


def test_builds_that_may_stop_with_quantized_keys_are_said() -> None:
    case = replace(_case(), kv_type="q8_0")
    for build, said in ((None, True), (12568, True), (12569, False)):
        clauses = " ".join(Cached(cache_mib=400, build=build).of_builds(case))
        assert ("stops in builds before 12569" in clauses) == said


def test_a_share_for_the_cpu_has_its_flag_and_its_builds() -> None:
    shared, case = Cached(cache_mib=400, cpu_share=0.95), _case()
    assert shared.launch(case).line.endswith(" --moe-cache-mib 400 --moe-cache-cpu-share 0.95")
    assert shared.of_builds(case) == ["is the rule of builds from 12191 on"]
    assert shared.plan(case).setup.policy.spec == "shared-class-lru:stamp=hits-first-sorted:share=0.95"
    Cached(cache_mib=400, cpu_share=0.95, build=12191).check(case)
    with pytest.raises(Unsupported, match="cpu-share is known of builds from 12191 on; leave out cpu_share"):
        Cached(cache_mib=400, cpu_share=0.95, build=12190).check(case)


@pytest.mark.parametrize("share", [-0.1, 1.5])
def test_a_share_outside_0_to_1(share: float) -> None:
    with pytest.raises(OutOfRange, match=f"system cached: cpu_share={share}"):
        Cached(cpu_share=share)


def test_half_of_the_misses_of_a_full_bank_are_computed_on_the_cpu() -> None:
    """Three slots. 0, 1 and 2 fill it. Of 3 and 4 the first comes in, and 4 does not; of 5 and 4 again the lower, 4."""
    case, system = _case(), Cached(cache_mib=400, cpu_share=0.5)
    calls: list[Call] = [(0, [0, 1], 1), (0, [2], 1), (0, [3, 4], 1), (0, [3], 1), (0, [5, 4], 1), (0, [4], 1)]
    found = replayed_by(system, calls, case)
    assert misses_of(found) == [2, 1, 2, 0, 2, 0]
    assert found.stream.bypassed.tolist() == [0, 0, 1, 0, 1, 0]
    parts = timed_by(system, [call for one in calls for call in (one, (1, [0], 1))], case).timing.part_ms_per_token
    assert parts["cold_lane"] > 0
    assert parts["upload"] > 0


def test_a_build_without_a_cache() -> None:
    with pytest.raises(Unsupported, match="builds before 11480 have no --moe-cache-mib"):
        Cached(cache_mib=400, build=11479).check(_case())


@pytest.mark.parametrize("gpus", [1, 2])
def test_cached_takes_what_is_left_of_all_gpus(gpus: int) -> None:
    case = _case(f"{gpus}x rtx-3090 + 256GiB" if gpus > 1 else "rtx-3090", model_of(90 * GIB, arch="qwen3moe"))
    sized = Cached().sized(case)
    sized.check(case)
    expert_bytes = case.model.layers[0].expert_bytes
    held = {share.what: share.size_bytes for share in sized.memory(case) if share.where == "gpu"}
    assert 0 <= case.gpu_bytes - sum(held.values()) + held["cached experts"] - sized.cache_mib * MIB < gpus * MIB
    assert held["cached experts"] == sized.cache_mib * MIB // expert_bytes * expert_bytes
    loads = "" if gpus == 1 else " --load-mode none"  # 64 GiB of RAM map the file, 256 hold it
    assert sized.launch(case).line.endswith(f" -np 1{loads} --moe-cache-mib {sized.cache_mib}")


MIXED = ModelGeometry(
    name="mixed",
    layers={
        number: LayerGeometry(EXPERTS, {"gate_up": 60 * MIB, "down": (60 if number % 2 else 40) * MIB})
        for number in range(4)
    },
    top_k=2,
    dense_bytes=GIB,
    source="tests",
    arch="qwen35moe",
)  # two layers with experts of 100 MiB, and two of 120


def test_layers_of_one_layout_share_a_bank_and_banks_share_the_cache_by_their_bytes() -> None:
    """1,100 MiB are split 5 to 6: 500 for experts of 100 MiB, 600 of 120, of which one each is reserved."""
    system, case = Cached(cache_mib=1100), _case(model=MIXED)
    assert [(group.layers, system.slots(group, MIXED)) for group in system.groups(MIXED)] == [((0, 2), 4), ((1, 3), 4)]
    assert system.slots_bytes(case) == 4 * 220 * MIB
    assert system.held_bytes(case) == 5 * 220 * MIB
    # One MiB less does not hold five of either.
    assert Cached(cache_mib=1099).held_bytes(case) == 4 * 220 * MIB
    # Each group has four slots of its own: what layer 1 uses does not evict from layer 0.
    calls: list[Call] = [(0, [0, 1], 1), (1, [0, 1], 1), (1, [2, 3], 1), (1, [4, 5], 1), (0, [0, 1], 1), (2, [0, 1], 1)]
    assert misses_of(replayed_by(system, [*calls, (0, [0, 1], 1)], case)) == [2, 2, 2, 2, 0, 2, 0]
    assert replayed_by(system, calls, case).counts.resident_bytes == 4 * 220 * MIB


def test_the_smallest_and_the_largest_cache_of_mixed_layers() -> None:
    """Three slots of a group, or 33, in proportion: 3 x 100 x 11 / 5, and 3 x 120 x 11 / 6."""
    case = _case("rtx-3090 + 64GiB", MIXED)
    with pytest.raises(Unsupported, match="slot take 660; give cache_mib=660 or more"):
        Cached(cache_mib=659).check(case)
    whole = Cached().sized(case)
    assert whole.cache_mib == 33 * 220
    assert [whole.slots(group, MIXED) for group in whole.groups(MIXED)] == [32, 32]


def test_a_bank_for_fewer_experts_than_those_of_a_token_is_left_out() -> None:
    """100 of 1,900 MiB are for experts of 50: one slot and the reserved one. The other bank has five and one."""
    layers = {number: LayerGeometry(EXPERTS, {"expert": (50 if number == 3 else 300) * MIB}) for number in range(4)}
    model = ModelGeometry("left-out", layers, 2, "tests", arch="qwen35moe", dense_bytes=GIB)
    system, case = Cached(cache_mib=1900), _case(model=model)
    assert [system.slots(group, model) for group in system.groups(model)] == [5, 0]
    assert system.held_bytes(case) == 6 * 300 * MIB
    calls: list[Call] = [(layer, [0, 1] if layer in (0, 3) else [layer], 1) for layer in (0, 1, 2, 3)] * 2
    found = replayed_by(system, calls, case)
    assert misses_of(found) == [2, 1, 1, 2, 0, 0, 0, 2]
    assert found.stream.bypassed.tolist() == [0, 0, 0, 2, 0, 0, 0, 2]  # the CPU computes them
    assert timed_by(system, calls, case).timing.part_ms_per_token["cold_lane"] > 0


def _twin(calls: list[Call], slots: Mapping[int, int], experts: int) -> list[int]:
    """Misses of each call, by banks of slots with the twin of class-lru: a call is planned as a whole.

    slots: of the bank of each layer's group, whose layers are even or odd.
    """
    rules = {group: ClassLru(slots[group]) for group in slots}
    held: dict[int, dict[int, Expert]] = {group: {} for group in slots}
    misses = []
    for layer, asked, tokens in calls:
        rule, there = rules[layer % 2], held[layer % 2]
        distinct = [(layer, expert) for expert in dict.fromkeys(asked)]
        if tokens > 32 or min(len(asked), experts) > slots[layer % 2]:
            misses.append(len(distinct))
            continue
        rule.layer, rule.tokens = layer, tokens
        rule.call(0)
        slot_of = {expert: slot for slot, expert in there.items()}
        for expert in distinct:
            if expert in slot_of:
                rule.used(slot_of[expert], expert, 0, (0, 0))
        missed = sorted(set(distinct) - slot_of.keys())
        for expert in missed:
            slot = next((slot for slot in range(slots[layer % 2]) if slot not in there), None)
            if slot is None:
                slot = rule.victim([pair for pair in sorted(there.items()) if pair[1] not in distinct])
                rule.evicted(slot, there[slot])
            there[slot] = expert
            rule.installed(slot, expert, 0, (0, 0))
        misses.append(len(missed))
    return misses


@pytest.mark.parametrize("mib", [660, 1100, 1980, 3300])
def test_class_lru_of_two_groups_equals_its_twin(mib: int) -> None:
    rng, case, system = np.random.default_rng(mib), _case("rtx-3090 + 64GiB", MIXED), Cached(cache_mib=mib)
    slots = {group.layers[0]: system.slots(group, MIXED) for group in system.groups(MIXED)}
    for _ in range(5):
        calls = []
        for layer, experts, tokens in random_calls(rng, n_experts=EXPERTS, layers=4, steps=40, most_tokens=3, width=2):
            times = int(rng.choice([1, 1, 1, 40]))
            calls.append((layer, experts[::-1] * times, tokens * times))
        assert misses_of(replayed_by(system, calls, case)) == _twin(calls, slots, EXPERTS)


def test_misses_that_are_not_installed_are_computed_on_the_cpu_beside_the_gpu() -> None:
    """One of three is up by 0.75, and with the hit done by 1.25; the CPU has two, 1 s. Two up take until 1.5 + 0.75."""
    assert parts_of(CopiedIfInstalled(), installs=1) == {"upload": 0.75, "experts": 0.5, "merge": 0.0625}
    assert parts_of(CopiedIfInstalled(), installs=2) == {"upload": 1.5, "experts": 0.75, "merge": 0.0625}
    # None: the hit takes until 0.25, the CPU until 1.5. Of a call without hits there is nothing to join.
    assert parts_of(CopiedIfInstalled(), installs=0) == {"experts": 0.25, "cold_lane": 1.25, "merge": 0.0625}
    assert parts_of(CopiedIfInstalled(), misses=4, warm=4, installs=0) == {"cold_lane": 2.0}


def test_what_is_not_in_ram_is_read_before_both() -> None:
    """Two of three misses in four chunks on two lanes: 2 s; then one upload and two experts beside the CPU's two."""
    found = parts_of(CopiedIfInstalled(), warm=1, installs=1)
    assert found == {"read": 2.0, "upload": 0.75, "experts": 0.5, "merge": 0.0625}


@pytest.mark.parametrize("call", [{}, {"warm": 1}, {"misses": 0, "warm": 0}, {"misses": 4, "warm": 2}])
@pytest.mark.parametrize("n_tokens", [1, 33])
def test_if_all_is_installed_or_many_tokens_are_read_every_miss_is_copied(call: dict[str, int], n_tokens: int) -> None:
    installs = {} if n_tokens == 1 else {"installs": 0}
    call = {**call, **installs, "n_tokens": n_tokens}
    assert parts_of(CopiedIfInstalled(), **call) == parts_of(CopiedFromFile(), **call)


EXPERT = 100 * MIB


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
    system = kind(
        cache_mib=100 * (slots + kind.reserved), cpu_layers=cpu_layers, **({"build": LRU} if kind is Cached else {})
    )
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
