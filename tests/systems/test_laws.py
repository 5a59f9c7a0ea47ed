"""Laws of speeds that hold for every system: on models, sizes and machines drawn at random with fixed seeds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.geometry.model import LayerGeometry, ModelGeometry
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.machines.table import PRESETS
from flashmoe_sim.measured.learn import learn_from
from flashmoe_sim.residency.workload import prepare
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.systems.compare import Replays, at_setting, case_of, compare
from flashmoe_sim.systems.table import SYSTEMS, parse_system
from flashmoe_sim.trace.cut import cut
from flashmoe_sim.tune.recommend import recommend
from tests.systems.cases import case as case_of_tests
from tests.systems.cases import served_by, shape_of, workload
from tests.timeline.faster import BESIDE, EXACT, NOT_A_PART

SEED = 1
COMPOSED = (
    "rtx-3060 + ryzen-5600 + ddr4-3200x2 + 32GiB + nvme-gen4",
    "rtx-4090 + ryzen-7950x + ddr5-5600x2 + 64GiB + nvme-gen4",
    "2x rtx-3090 + epyc-7532 + ddr4-3200x8 + 128GiB + nvme-gen4",
)
MODELS = ("gpt-oss-20b", "gpt-oss-120b", "deepseek-v2-lite", "qwen3-30b-a3b", "qwen3.5-35b-a3b")
NOT_VARIED = ("memory.ram_gib", "memory.reserve_gib", "gpu.memory_gib", *NOT_A_PART)
SETTINGS = {
    "slot-remap": "slot-remap:gtt_mb=2000",  # by default it caches nothing of models so small
    "neurall": "neurall:swaps=2",  # by default a faster link lets it swap more, which need not be faster
}
TOKENS = 8
DRAWN = 2  # for each system


@dataclass(frozen=True)
class Drawn:
    """A system at one of its sizes on a case; the replays of its workload are kept."""

    label: str
    case: Case
    system: System
    replays: Replays = field(default_factory=dict)

    def speed(self, *, case: Case | None = None, machine: Machine | None = None) -> float:
        """The speed of this very setting on another case or machine, in tokens a second; 0 if it does not run."""
        on = case or self.case
        on = on if machine is None else replace(on, machine=machine)
        kept = self.replays if case is None else None
        return at_setting(workload(on.model, tokens=TOKENS), on, self.system, interval=False, replays=kept).tok_s or 0.0


@cache
def _model(name: str, shape: tuple[int, int]) -> ModelGeometry:
    """A model, or the layers and experts of the only one that an engine runs."""
    of = load_model(name)
    layers, experts = shape
    if not layers:
        return of
    layer = next(iter(of.layers.values()))
    return replace(of, layers=dict.fromkeys(range(layers), LayerGeometry(experts, layer.family_bytes)))


def _machine(of: ModelGeometry, rng: np.random.Generator) -> Machine:
    """A machine whose memories hold from a tenth of the model to all of it, and twice that; half of the time, its other
    numbers are up to four times as large or as small."""
    machine: Machine = load_machine(str(rng.choice([*PRESETS, *COMPOSED])))
    if rng.random() < 0.5:
        for path, quantity in machine.quantities():
            if path not in NOT_VARIED:
                machine = machine.varied(path, quantity.value * 4 ** rng.uniform(-1, 1))
    assert machine.memory is not None
    model_gib = (of.routed_bytes + (of.dense_bytes or 0)) / GIB
    sizes = {path: model_gib * 2 ** rng.uniform(-3, 1) for path in ("memory.ram_gib", "gpu.memory_gib")}
    beside_gib = {"memory.ram_gib": machine.memory.reserve_gib.value, "gpu.memory_gib": (of.dense_bytes or 0) / GIB}
    for path, _ in machine.quantities():
        if path in sizes:
            machine = machine.varied(path, sizes[path] + beside_gib[path])
    return machine


def _sized(system: System, case: Case, rng: np.random.Generator) -> System:
    each = list(system.at_each_size(case)) if rng.random() < 0.5 else []
    return each[int(rng.integers(len(each)))] if each else system.sized(case)


@cache
def drawn() -> tuple[Drawn, ...]:
    """Some cases of every system that runs on them."""
    found = []
    for place, name in enumerate(SYSTEMS):
        made = 0
        for number in range(40 * DRAWN):
            rng = np.random.default_rng([SEED, place, number])
            system = parse_system(SETTINGS.get(name, name))
            of = served_by(system, _model(str(rng.choice(MODELS)), shape_of(system, (0, 0))))
            case = replace(case_of(of, _machine(of, rng), workload=None), depth=int(rng.choice([0, 30_000])))
            try:
                if system.why_not(case):
                    continue
                chosen = _sized(system, case, rng)
            except BadInput:
                continue
            one = Drawn(f"{name} {number}: {chosen.spec}, {of.name}, {case.machine.name}", case, chosen)
            if not one.speed():
                continue
            found.append(one)
            made += 1
            if made == DRAWN:
                break
    return tuple(found)


def changed(machine: Machine, times: dict[str, float]) -> Machine:
    """The machine with those of its numbers that it has times so much."""
    for path, quantity in machine.quantities():
        if path in times:
            machine = machine.varied(path, quantity.value * times[path])
    return machine


def slower(times: dict[str, float]) -> list[str]:
    """The settings that a change of the machine makes slower; it makes some faster."""
    found, faster = [], 0
    for one in drawn():
        machine = one.case.machine
        most = BESIDE if machine.unified else EXACT
        before, after = one.speed(), one.speed(machine=changed(machine, times))
        faster += after > before * EXACT
        if after * most < before:
            found.append(f"{one.label}: {before:g} to {after:g}")
    assert faster or set(times) <= RARE, "no setting is faster"
    return found


RARE = {"memory.bandwidth_gb_s", "cpu.attention_gb_s", "memory.ram_gib"}  # decides few of the speeds
RAM_GB_S = ("memory.bandwidth_gb_s", "memory.copy_gb_s", "cpu.weights_gb_s", "cpu.attention_gb_s")
GPU = {"gpu.weights_gb_s": 1.5, "gpu.attention_gb_s": 1.5, "gpu.layer_us": 1 / 1.5}


@pytest.mark.parametrize("times", [1.1, 2, 8])
def test_more_ram_is_never_slower(times: float) -> None:
    assert slower({"memory.ram_gib": times}) == []


@pytest.mark.parametrize("path", [*RAM_GB_S, ""])
def test_more_bandwidth_of_ram_is_never_slower(path: str) -> None:
    assert slower(dict.fromkeys([path] if path else RAM_GB_S, 1.5)) == []


@pytest.mark.parametrize("times", [{"storage.read_gb_s": 2}, {"storage.request_us": 0.5}])
def test_faster_storage_is_never_slower(times: dict[str, float]) -> None:
    assert slower(times) == []


@pytest.mark.parametrize("path", [*GPU, ""])
def test_a_faster_gpu_is_never_slower(path: str) -> None:
    assert slower({path: GPU[path]} if path else GPU) == []


@pytest.mark.parametrize("times", [{"link.pinned_gb_s": 2}, {"link.pageable_gb_s": 2}, {"link.request_us": 0.5}])
def test_a_faster_link_is_never_slower(times: dict[str, float]) -> None:
    assert slower(times) == []


def test_more_cores_are_never_slower() -> None:
    for one in drawn():
        machine = one.case.machine
        after = one.speed(machine=replace(machine, cpu_cores=2 * machine.cpu_cores))
        assert after * EXACT >= one.speed(), one.label


def test_an_interval_holds_its_centre() -> None:
    for one in drawn():
        row = at_setting(workload(one.case.model, tokens=TOKENS), one.case, one.system)
        assert (row.tok_s_lo or 0.0) <= (row.tok_s or 0.0) <= (row.tok_s_hi or 0.0), one.label
        assert row.tok_s_lo, one.label


def test_the_order_of_systems_changes_no_speed() -> None:
    case = case_of(load_model("gpt-oss-20b"), load_machine(COMPOSED[0]), workload=None)
    systems = [kind() for kind in SYSTEMS.values()]
    forth, back = (
        {row.system.name: (row.system.spec, row.tok_s, row.tok_s_lo, row.tok_s_hi) for row in rows}
        for rows in (compare(workload(case.model, tokens=TOKENS), case, order) for order in (systems, systems[::-1]))
    )
    assert forth == back
    assert sum(speed is not None for _, speed, *_ in forth.values()) >= 10


@pytest.mark.parametrize("machine", COMPOSED)
def test_the_order_of_parts_changes_no_machine(machine: str) -> None:
    wanted, parts = load_machine(machine), machine.split(" + ")
    rng = np.random.default_rng(SEED)
    for _ in range(8):
        order = [parts[place] for place in rng.permutation(len(parts))]
        for text in (" + ".join(order), ", ".join(order)):
            assert dict(load_machine(text).quantities()) == dict(wanted.quantities())


@pytest.mark.parametrize("top_k", [1, 3])
def test_fewer_active_experts_are_never_slower(top_k: int) -> None:
    """At the same rate of hits, and on the same trace without the last ranks of every token."""
    for one in drawn():
        model = one.case.model
        if top_k >= (model.top_k or 1):
            continue
        fewer = replace(one.case, model=replace(model, top_k=top_k))
        before, after = (
            at_setting(None, on, one.system, hit_rate=0.7, interval=False).tok_s or 0.0 for on in (one.case, fewer)
        )
        assert after * EXACT >= before > 0, one.label
        part = prepare(cut(workload(model, tokens=TOKENS).trace, top_k=top_k), fewer.model)
        assert (at_setting(part, fewer, one.system, interval=False).tok_s or 0.0) * EXACT >= one.speed(), one.label


def _more_reads(larger: str, smaller: str) -> bool:
    """Whether an expert takes more reads of a smaller quantization."""
    large, small = (load_model(f"qwen3-30b-a3b:{one}").layers[0].family_reads() for one in (larger, smaller))
    return sum(small) > sum(large)


@pytest.mark.parametrize(("larger", "smaller"), [("q8_0", "q6_k"), ("q6_k", "q4_k_m")])
def test_a_smaller_quantization_is_never_slower(larger: str, smaller: str) -> None:
    """Of one model, and of the same types with half of the bytes.

    What storage reads in more chunks is left out, see Limits in seconds.md.
    """
    compared = 0
    for one in drawn():
        halves = {
            number: replace(layer, family_bytes={name: size // 2 for name, size in layer.family_bytes.items()})
            for number, layer in one.case.model.layers.items()
        }
        half = replace(one.case, model=replace(one.case.model, layers=halves))
        assert one.speed(case=half) * EXACT >= one.speed(), one.label
        if shape_of(one.system, (0, 0)) != (0, 0):
            continue
        rows = []
        for quant in (larger, smaller):
            model = load_model(f"qwen3-30b-a3b:{quant}")
            on = replace(one.case, model=replace(served_by(one.system, model), quant=model.quant))
            rows.append(at_setting(workload(on.model, tokens=TOKENS), on, one.system, interval=False))
        before, after = rows
        if (
            before.tok_s is None
            or after.tok_s is None
            or (_more_reads(larger, smaller) and (after.ms_per_token or {})["read"])
        ):
            continue
        compared += 1
        assert after.tok_s * EXACT >= before.tok_s, one.label
    assert compared > 5


def test_a_deeper_context_is_never_faster() -> None:
    for one in drawn():
        speeds = [one.speed(case=replace(one.case, depth=depth)) for depth in (0, 1000, 30_000, 120_000)]
        assert all(after <= before * EXACT for before, after in pairwise(speeds)), one.label


def test_a_measurement_as_predicted_leaves_the_centre() -> None:
    learnt = 0
    for machine in COMPOSED:
        model = load_model("gpt-oss-20b")
        of = workload(model, tokens=TOKENS)
        case = replace(case_of(model, load_machine(machine), workload=of), context=512)
        for row in compare(of, case, [kind() for kind in SYSTEMS.values()]):
            if row.tok_s is None:
                continue
            try:
                now = learn_from((f"{row.system.spec}={row.tok_s!r}",), case.machine, workload=of)
            except BadInput:
                continue  # such as a setting that leaves no room for the context of a measurement
            after = at_setting(of, replace(case, machine=now), row.system)
            assert after.tok_s == pytest.approx(row.tok_s, rel=1e-6), row.system.spec
            learnt += 1
    assert learnt > 15


@pytest.mark.parametrize("name", ["rtx-3090", "m4-32", "strix-halo-128"])
def test_compare_and_recommend_say_the_same_of_a_setting(name: str) -> None:
    of = case_of_tests(name)
    routed, systems = workload(of.model, tokens=128), [kind() for kind in SYSTEMS.values()]
    advised = [one.best for one in recommend(routed, of, systems).found.systems]
    again = {row.system.spec: row for row in compare(routed, of, [one.system for one in advised])}
    assert len([one for one in advised if one.tok_s]) > 3
    for one in advised:
        row = again[one.system.spec]
        assert (row.tok_s, row.tok_s_lo, row.tok_s_hi) == (one.tok_s, one.tok_s_lo, one.tok_s_hi)
