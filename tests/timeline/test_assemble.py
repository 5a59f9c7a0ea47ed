"""What a machine makes of a model's bytes, and what fits it, by hand; and how sure a speed is."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import fmean

import numpy as np
import pytest

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.io.errors import Conflict, Incomplete, OutOfRange, Unsupported
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.anchors import SPEED_SD
from flashmoe_sim.machines.belief import SD_90, Whose, ends, errors
from flashmoe_sim.machines.estimates import estimate
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.machine import Anchors, Machine, Quantity
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.sweep.plan import plan_setup
from flashmoe_sim.timeline.assemble import Conditions, DoesNotFit, costs_of, page_cache_bytes, price, weigh
from flashmoe_sim.timeline.from_replay import Timed, time_replay
from flashmoe_sim.timeline.models.table import parse_execution
from flashmoe_sim.timeline.names import ON_LINK
from flashmoe_sim.timeline.timing import speed_draws
from tests.residency.builders import geometry_of, one_layer, run, trace_of

EXPERT = 1_000_000
PLAIN = parse_execution("sync-install")
ONE_RUN = SD_90 * SPEED_SD


def workload() -> Workload:
    return prepare(trace_of(one_layer([[0, 1], [2, 3], [0, 1], [0, 2]]), 8), geometry_of({0: EXPERT}, 8))


def machine(**values: float) -> Machine:
    """The virtual machine with these quantities, such as storage__read_gb_s."""
    made = load_machine("vm-2core")
    for path, value in values.items():
        made = made.varied(path.replace("__", "."), value)
    return made


@pytest.mark.parametrize("given", ["8", "7000000B"])
def test_the_largest_bank_that_fits_is_said(given: str) -> None:
    """8 experts of a million bytes, and a memory with room for three and a half beside the dense weights."""
    source, on = workload(), machine(memory__reserve_gib=0).varied("memory.ram_gib", (GIB + 3.5 * EXPERT) / GIB)
    conditions = Conditions(dense_bytes=GIB)

    def room(bank: str) -> int:
        setup = plan_setup(bank, contract="atomic")
        return page_cache_bytes(source, setup, run(source, setup.bank, record=True), on, conditions)

    largest = {"8": "3", "7000000B": "3MiB"}[given]
    with pytest.raises(DoesNotFit, match=f"the largest bank that fits is --bank {largest}; give that or another"):
        room(given)
    assert room(largest) >= 0
    with pytest.raises(DoesNotFit):
        room({"3": "4", "3MiB": "4MiB"}[largest])
    with pytest.raises(DoesNotFit, match="no bank fits; give another --machine"):
        page_cache_bytes(
            source, plan_setup(8), run(source, Bank(slots=8), record=True), on, Conditions(dense_bytes=2 * GIB)
        )


def test_costs_by_hand() -> None:
    on = machine(cpu__weights_gb_s=10, cpu__layer_us=300, storage__read_gb_s=0.5, storage__request_us=100)
    on = on.varied("host.call_us", 7).varied("host.install_us", 11)
    on = replace(on, host=replace(on.host, resume_us=Quantity(13, 13, 13, "s", "c")))
    costs = costs_of(workload(), plan_setup(4), on, Conditions(PLAIN, dense_bytes=20_000_000))
    assert costs.dense_s.tolist() == pytest.approx([2e-3])
    assert costs.layer_s == pytest.approx(300e-6)
    assert costs.expert_s.tolist() == pytest.approx([1e-4])
    assert (costs.call_s, costs.install_s, costs.resume_s) == pytest.approx((7e-6, 11e-6, 13e-6))
    assert costs.chunks.tolist() == [1]  # 1,000,000 bytes are no multiple of 16 KiB, so they are not split
    assert costs.chunk_s[0, 0] == pytest.approx(100e-6 + 2e-3)
    assert costs.chunk_s[0, 1] == pytest.approx(100e-6 + 4e-3)
    assert costs.upload_s.tolist() == [0]  # the CPU computes where the expert was read to


def test_a_token_reads_a_row_of_the_embeddings_and_not_the_table() -> None:
    """20 MB of dense weights, of which 5 are the table: 15 MB at 10 GB/s. A tied table is the output, and all read."""
    on, source = machine(cpu__weights_gb_s=10, cpu__layer_us=0), workload()
    assert source.geometry is not None
    table = replace(source.geometry, dense_bytes=20_000_000, embedding_bytes=5_000_000)
    for model, given, expected in ((table, None, 1.5e-3), (replace(table, embedding_bytes=0), None, 2e-3),
                                   (table, 10_000_000, 0.5e-3), (table, 1_000_000, 0.0)):  # fmt: skip
        costs = costs_of(prepare(source.trace, model), plan_setup(4), on, Conditions(PLAIN, dense_bytes=given))
        assert costs.dense_s.tolist() == pytest.approx([expected])
    recorded = prepare(replace(source.trace, dense_bytes={0: 20_000_000}), table)  # per layer, so without the table
    assert costs_of(recorded, plan_setup(4), on, Conditions(PLAIN)).dense_s.tolist() == pytest.approx([2e-3])


@pytest.mark.parametrize(
    ("model", "program", "machine", "more_us"),
    [
        ("qwen3-coder-next", "llama.cpp", "rtx-4090", 100),
        ("qwen3-coder-next", "ik_llama.cpp", "rtx-4090", 100),
        ("qwen3-coder-next", "ktransformers", "rtx-4090", 0),
        ("qwen3-coder-next", "llama.cpp", "vm-2core", 500),
        ("qwen3.6-35b-a3b", "BigMoeOnEdge", "vm-2core", 500),
        ("qwen3-30b-a3b", "llama.cpp", "vm-2core", 0),
        ("qwen3-30b-a3b", "llama.cpp", "rtx-4090", 0),
        ("qwen3.8-flash-next", "llama.cpp", "vm-2core", 700),
        ("deepseek-v4-flash", "llama.cpp", "vm-2core", 400),
        ("qwen3.8-flash-next", "ktransformers", "vm-2core", 0),
    ],
)
def test_a_layer_with_many_small_steps(model: str, program: str, machine: str, more_us: float) -> None:
    geometry, on = load_model(model), load_machine(machine)
    weights = weigh(geometry, tuple(geometry.layers.values()), Conditions(program=program))
    costs = price(weights, on, Conditions(program=program), io_split=4)
    unit = on.gpu or on.cpu
    assert 1e6 * costs.layer_s == pytest.approx(unit.layer_us.value + more_us)


def test_a_time_per_layer_fitted_on_a_cpu_has_the_small_steps_in_it() -> None:
    geometry, on = load_model("qwen3.8-flash-next"), load_machine("vm-2core")
    assert on.cpu is not None
    anchors = Anchors(("run",), geometry.name, "2026-01-01", "sim machine fit", geometry.routed_bytes)
    fitted = replace(on, cpu=replace(on.cpu, weights_gb_s=None), anchors=anchors)
    costs = price(weigh(geometry, tuple(geometry.layers.values()), Conditions()), fitted, Conditions(), io_split=4)
    assert 1e6 * costs.dense_s == pytest.approx(on.cpu.layer_us.value)
    assert costs.layer_s == 0


def test_seconds_of_gpt_oss_on_a_cpu_by_hand() -> None:
    """Four experts of 36 layers and the dense weights without the table, at 27.65 GB/s, and 80 us a layer."""
    on, model = load_machine("ryzen-5600 + ddr4-3200x2 + 64GiB"), load_model("gpt-oss-120b")
    on = on.varied("cpu.weights_gb_s", 27.65).varied("cpu.layer_us", 80)
    costs = price(weigh(model, tuple(model.layers.values()), Conditions()), on, Conditions(), io_split=4)
    assert 36 * costs.layer_s + costs.dense_s.sum() + 4 * costs.expert_s.sum() == pytest.approx(
        (1_903_564_800 + 2_458_868_777 - 656_227_250) / 27.65e9 + 36 * 80e-6
    )


def test_the_embeddings_take_memory_where_they_are() -> None:
    """In RAM beside a GPU with its own memory, else with the other dense weights."""
    source = workload()
    assert source.geometry is not None
    source = prepare(source.trace, replace(source.geometry, dense_bytes=30 * GIB, embedding_bytes=10 * GIB))
    replayed = run(source, Bank(slots=4), record=True)
    assert page_cache_bytes(source, plan_setup(4), replayed, load_machine("rtx-4090"), Conditions()) > 0
    on = machine(memory__reserve_gib=0).varied("memory.ram_gib", 31)
    assert page_cache_bytes(source, plan_setup(4), replayed, on, Conditions()) == GIB - 4 * EXPERT


@pytest.mark.parametrize(
    ("name", "expected"), [("split-install", (7e-6, 7e-6)), ("prefill-copy", (7e-6, 0)), ("mapped", (0, 0))]
)
def test_which_calls_the_gpu_stops_for(name: str, expected: tuple[float, float]) -> None:
    machine = load_machine("rtx-3060").varied("host.call_us", 7)
    costs = costs_of(workload(), plan_setup(4), machine, Conditions(parse_execution(name), dense_bytes=0))
    assert (costs.call_s, costs.hit_call_s) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("execution", "added_s"), [("split-install", 30e-6), ("overlap-prefetch", 30e-6), ("resident", 0), ("mapped", 0)]
)
def test_decisions_take_the_host_in_every_call_where_there_is_a_bank(execution: str, added_s: float) -> None:
    """20 microseconds of the policy and 10 of the predictor."""
    source, on, conditions = workload(), machine(), Conditions(parse_execution(execution), dense_bytes=GIB)
    plain = plan_setup("2", contract="atomic", prefetch="temporal")
    slow = plan_setup("2", contract="atomic", policy="lru:cost_us=20", prefetch="temporal:cost_us=10")
    before, after = (costs_of(source, setup, on, conditions) for setup in (plain, slow))
    assert after.call_s - before.call_s == pytest.approx(added_s)
    assert after.hit_call_s - before.hit_call_s == pytest.approx(added_s)
    assert replay(source, slow).counts.total() == replay(source, plain).counts.total()


@pytest.mark.parametrize("cost_us", ["-1", "nan", "1000001"])
def test_decisions_of_impossible_length(cost_us: str) -> None:
    for chosen in ({"policy": f"lru:cost_us={cost_us}"}, {"prefetch": f"temporal:cost_us={cost_us}"}):
        with pytest.raises(OutOfRange, match="expected 0 to 1,000,000 microseconds in a routed call"):
            plan_setup("2", **chosen)


def test_memory_that_was_never_written_takes_time_where_the_bank_is_in_ram() -> None:
    first_touch = Quantity(2, 1, 3, "s", "c")

    def fill_s(name: str, execution: str, rate: Quantity | None) -> list[float]:
        on = load_machine(name)
        on = replace(on, host=replace(on.host, first_touch_gb_s=rate))
        conditions = Conditions(parse_execution(execution), dense_bytes=1)
        return costs_of(workload(), plan_setup(4), on, conditions).fill_s.tolist()

    assert fill_s("vm-2core", PLAIN.name, first_touch) == pytest.approx([EXPERT / 2e9])
    assert fill_s("m3-max-48", PLAIN.name, first_touch) == pytest.approx([EXPERT / 2e9])  # whose GPU shares the memory
    assert fill_s("vm-2core", PLAIN.name, None) == [0]
    assert fill_s("rtx-4090", PLAIN.name, first_touch) == [0]
    assert fill_s("vm-2core", "page-cache", first_touch) == [0]


def test_a_replay_by_hand() -> None:
    """Two slots, four calls of two experts: 2 + 2 + 2 + 1 misses, each 2.1 ms; layers and experts 2.5 ms a call."""
    on = machine(cpu__weights_gb_s=10, cpu__layer_us=300, storage__read_gb_s=0.5, storage__request_us=100)
    on = replace(on.varied("host.call_us", 0).varied("host.install_us", 0), memory=None)
    source = workload()
    conditions = Conditions(PLAIN, dense_bytes=20_000_000)
    timed = time_replay(source, run(source, 2, "lru", "atomic", record=True), on, conditions)
    assert timed.timing.total_s == pytest.approx(7 * 2.1e-3 + 4 * 2.5e-3)
    assert timed.timing.tok_s == pytest.approx(4 / (7 * 2.1e-3 + 4 * 2.5e-3))
    assert (timed.storage_bytes, timed.page_cache_bytes) == (7 * EXPERT, 0)
    assert timed.tok_s_lo < timed.timing.tok_s < timed.tok_s_hi


def test_page_cache_is_what_is_left() -> None:
    source, setup = workload(), plan_setup(4)
    replayed = run(source, Bank(slots=4), record=True)
    on = load_machine("vm-2core")
    free = (on.memory.ram_gib.value - on.memory.reserve_gib.value) * GIB
    conditions = Conditions(dense_bytes=GIB, kv_bytes=GIB // 2)
    left = page_cache_bytes(source, setup, replayed, on, conditions)
    assert left == round(free) - 4 * EXPERT - GIB - GIB // 2
    assert page_cache_bytes(source, setup, replayed, on, replace(conditions, direct_io=True)) == 0
    assert page_cache_bytes(source, setup, replayed, replace(on, memory=None), conditions) == 0


def test_a_gpu_of_its_own_memory_holds_the_bank() -> None:
    source, setup = workload(), plan_setup(4)
    replayed = run(source, Bank(slots=4), record=True)
    on = load_machine("rtx-4090")
    free = round((on.memory.ram_gib.value - on.memory.reserve_gib.value) * GIB)
    assert page_cache_bytes(source, setup, replayed, on, Conditions(dense_bytes=GIB)) == free
    with pytest.raises(DoesNotFit, match=r"bank 4: 0.0 GiB of slots, 30.0 GiB of dense weights .* GiB on its GPU"):
        page_cache_bytes(source, setup, replayed, on, Conditions(dense_bytes=30 * GIB))


def seconds_of(
    on: Machine, execution: str, *, policy: str = "static", bank: int = 4, source: Workload | None = None, **given: int
) -> Timed:
    source, setup = source or workload(), plan_setup(bank, policy=policy, contract="atomic")
    conditions = Conditions(parse_execution(execution), dense_bytes=given.get("dense_bytes", 0))
    replayed = replay(source, setup, record=True)
    return time_replay(source, replayed, on, conditions, interval=False)


def test_what_the_cpu_computes_is_read_if_ram_does_not_hold_it() -> None:
    """Two experts are pinned on the GPU; two miss in turn, and are in RAM, or come from storage if it holds but one."""
    card = load_machine("rtx-3060")
    source = prepare(trace_of(one_layer([[0, 1], [2, 3]] * 4), 8), workload().geometry)
    reserve = card.memory.reserve_gib.value
    enough = seconds_of(card, "hot-cold", bank=2, source=source)
    little = seconds_of(card.varied("memory.ram_gib", reserve + 1e6 / GIB), "hot-cold", bank=2, source=source)
    assert (enough.storage_bytes, enough.page_cache_bytes) == (0, 0)
    assert (little.storage_bytes, little.page_cache_bytes) == (8 * EXPERT, 0)
    assert little.timing.total_s > enough.timing.total_s
    more = seconds_of(card.varied("memory.ram_gib", 64), "hot-cold", bank=2, source=source)
    assert more.timing.total_s == enough.timing.total_s


@pytest.mark.parametrize("execution", ["hot-cold", "prefill-copy"])
def test_what_a_policy_installs_is_uploaded(execution: str) -> None:
    card = load_machine("rtx-3060")
    timed = seconds_of(card, execution, policy="lru", bank=2)
    assert timed.work.installs.sum() == timed.work.misses.sum() == 7
    assert timed.timeline.busy[ON_LINK] == pytest.approx(7 * timed.costs.upload_s[0])
    assert not seconds_of(card, execution, policy="static", bank=2).timeline.busy[ON_LINK]


def test_everything_resident_needs_room_for_everything() -> None:
    on = load_machine("rtx-4090")
    assert seconds_of(on, "resident").timing.tok_s
    room = round(on.gpu.memory_gib.value * GIB) - 8 * EXPERT
    assert seconds_of(on, "resident", dense_bytes=room).timing.tok_s
    with pytest.raises(DoesNotFit, match=r"^bank of every expert: 0\.0 GiB of slots, 23\.2 GiB of dense weights"):
        seconds_of(on, "resident", dense_bytes=room + 1)


def test_a_bank_where_there_is_none_is_refused() -> None:
    with pytest.raises(Conflict, match=r"^policy lru: keeps experts in a bank, but page-cache has no bank"):
        seconds_of(load_machine("vm-2core"), "page-cache", policy="lru")
    assert seconds_of(load_machine("vm-2core"), "page-cache", policy="demand").timing.tok_s


def test_ram_is_needed_to_compute_in_it() -> None:
    with pytest.raises(Unsupported, match=r"needs \[gpu\], \[cpu\] with weights_gb_s, and \[memory\]"):
        seconds_of(replace(load_machine("rtx-4090"), memory=None), "hot-cold")
    source, setup = workload(), plan_setup(4, policy="static", contract="atomic")
    with pytest.raises(Conflict, match=r"^--direct-io: hot-cold uses experts where they lie in RAM"):
        costs_of(source, setup, load_machine("rtx-4090"), Conditions(parse_execution("hot-cold"), 0, direct_io=True))


def test_computing_is_never_free() -> None:
    """A machine without weights_gb_s must have been fitted on this model, whose layer_us then has computing in it."""
    on = load_machine("vm-2core")
    assert on.cpu is not None
    bare = replace(on, cpu=replace(on.cpu, weights_gb_s=None))
    with pytest.raises(
        Incomplete, match=r"^machine vm-2core: cpu\.weights_gb_s is missing, so computing would take no t"
    ):
        seconds_of(bare, PLAIN.name)
    for routed_bytes in (None, 8 * EXPERT):
        fitted = Anchors(("run",), "this model", "2026-01-01", "sim machine fit", routed_bytes)
        assert seconds_of(replace(bare, anchors=fitted), PLAIN.name).timing.tok_s
    other = Anchors(("run",), "another model", "2026-01-01", "sim machine fit", 9 * EXPERT)
    with pytest.raises(Conflict, match=r"^machine vm-2core: was fitted on another model, and its cpu\.layer_us holds"):
        seconds_of(replace(bare, anchors=other), PLAIN.name)
    assert seconds_of(replace(on, anchors=other), PLAIN.name).timing.tok_s


def test_seconds_need_all_layers_but_a_last_one_that_drafts() -> None:
    sizes = dict.fromkeys(range(3), EXPERT)
    calls = [(layer, [0, 1], 1) for _ in range(4) for layer in range(3)]

    def seconds(*layers: int) -> Timed:
        trace = trace_of([call for call in calls if call[0] in layers], 8)
        return seconds_of(load_machine("vm-2core"), PLAIN.name, source=prepare(trace, geometry_of(sizes, 8)))

    assert seconds(0, 1, 2).timing.tok_s
    assert seconds(0, 1).timing.tok_s
    for some in ((0,), (1, 2), (0, 2)):
        with pytest.raises(
            Incomplete, match=f"has {len(some)} of the 3 MoE layers of .*leave --machine out to count onl"
        ):
            seconds(*some)


def test_a_speed_without_doubt_differs_from_run_to_run() -> None:
    sure = load_machine("vm-2core")
    lo, hi = ends(5.0, speed_draws(lambda _: 5.0, sure, np.ones(100), whose=None))
    assert (lo, hi) == pytest.approx((5 * math.exp(-ONE_RUN), 5 * math.exp(ONE_RUN)), rel=1e-3)
    assert (round(lo, 2), round(hi, 2)) == (4.61, 5.43)


def test_causes_add_up_as_squares() -> None:
    """Two quantities that alone move the logarithm by 0.3 and 0.4 move it by 0.5 together.

    How far one run is from another adds its own square, and so does the error of an engine that nothing is known of.
    """
    on = load_machine("vm-2core")
    moves = {"storage.read_gb_s": 0.3, "host.call_us": 0.4}

    def speed_on(other: Machine) -> float:
        now, then = dict(other.quantities()), dict(on.quantities())
        found = 0.0
        for path, move in moves.items():
            end = then[path].hi if now[path].value > then[path].value else then[path].lo
            found += move * abs(math.log(now[path].value / then[path].value)) / math.log(end / then[path].value)
        return math.exp(found)

    def half(whose: Whose | None) -> float:
        lo, hi = ends(1.0, speed_draws(speed_on, on, np.ones(100), whose=whose))
        return math.log(hi / lo) / 2

    assert half(None) == pytest.approx(math.hypot(0.5, ONE_RUN), rel=0.05)
    unknown = [half(Whose(*3 * [f"engine {number}"], f"model {number}")) for number in range(16)]
    assert fmean(unknown) == pytest.approx(math.hypot(0.5, ONE_RUN, SD_90 * errors()["sd"]["all"]), rel=0.05)
    assert half(Whose("ktransformers")) < half(Whose())


def test_the_luck_of_the_trace_narrows_with_its_length() -> None:
    on = load_machine("vm-2core")
    step_s = np.random.default_rng(1).exponential(size=4096) + 1
    widths = []
    for steps in (64, 512, 4096):
        lo, hi = ends(1.0, speed_draws(lambda _: 1.0, on, step_s[:steps], whose=None))
        assert lo < 1 < hi
        widths.append(math.log(hi / lo) / 2)
    assert widths[0] > 1.5 * widths[1] > 1.5 * widths[2]
    assert widths[2] == pytest.approx(ONE_RUN, rel=0.1)


def test_the_steps_of_a_small_state_take_less_on_a_cpu() -> None:
    """Copies of a state of 2 MiB are what a gated delta net takes longer: a model with a 64th of it takes a 64th."""
    large = load_model("qwen3.5-35b-a3b")
    assert large.attention is not None
    layers = tuple(replace(layer, state=layer.state // 64) for layer in large.attention.layers)
    small = replace(large, attention=replace(large.attention, layers=layers))
    each = (large, small, replace(large, attention=None))
    whole, part, none = (weigh(of, tuple(of.layers.values()), Conditions()).graph_cpu_s for of in each)
    assert whole == estimate("graph.cpu_s", "qwen35moe").value
    assert part == pytest.approx(whole / 64, rel=0.05)
    assert none == 0.0
