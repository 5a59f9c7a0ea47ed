"""What must hold of every timeline."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import pairwise

import numpy as np
import pytest

from flashmoe_sim.ceilings.bottleneck import floor_of
from flashmoe_sim.timeline.models.table import EXECUTION_MODELS, parse_execution
from flashmoe_sim.timeline.names import ON_STORAGE, RESOURCES
from flashmoe_sim.timeline.run import simulate
from flashmoe_sim.timeline.work import Costs, Work
from tests.timeline.cases import costs_of, random_cases, work_of

EVERY_MODEL = pytest.mark.parametrize("name", EXECUTION_MODELS)


def without_ahead(work: Work) -> Work:
    return replace(work, **{item.name: getattr(work, item.name)[:0] for item in fields(work) if "ahead" in item.name})


def of_hits(work: Work) -> Work:
    """The same requests, all of them hits."""
    none = np.zeros_like(work.misses)
    return replace(without_ahead(work), misses=none, warm=none, cold=none, installs=none)


@EVERY_MODEL
def test_all_hits_is_resident(name: str) -> None:
    for work, costs in random_cases(1, 20):
        copied = name == "k-materialize"  # which copies hits too
        free = replace(costs, upload_s=np.zeros_like(costs.upload_s)) if copied else costs
        resident = simulate(of_hits(work), free, parse_execution("resident"))
        timeline = simulate(of_hits(work), free, parse_execution(name))
        assert (timeline.end == resident.end).all()
        assert (timeline.parts == resident.parts).all()


@EVERY_MODEL
def test_more_lanes_are_never_slower(name: str) -> None:
    for work, costs in random_cases(2, 20):
        ends = [
            simulate(without_ahead(work), lanes_alike(costs, lanes), parse_execution(name)).total_s
            for lanes in (1, 2, 3, 7)
        ]
        assert all(more <= fewer * (1 + 1e-12) for fewer, more in pairwise(ends))


def lanes_alike(costs: Costs, lanes: int) -> Costs:
    """A machine of this many lanes whose reads take the same time at every depth."""
    tables = ("chunk_s", "warm_chunk_s", "family_chunk_s", "family_warm_chunk_s")
    return replace(costs, **{key: np.repeat(getattr(costs, key)[..., :1], lanes, axis=-1) for key in tables})


@EVERY_MODEL
def test_time_is_accounted_for(name: str) -> None:
    for work, costs in random_cases(3, 50):
        timeline = simulate(work, costs, parse_execution(name))
        assert timeline.parts.sum(axis=1) == pytest.approx(np.diff(timeline.end, prepend=0.0), rel=1e-12)
        assert (timeline.parts >= 0).all()
        assert (timeline.busy <= timeline.total_s * (1 + 1e-12)).all()


@EVERY_MODEL
def test_a_machine_that_costs_nothing_takes_no_time(name: str) -> None:
    ((work, _),) = random_cases(4, 1)
    timeline = simulate(work, costs_of(rows=3), parse_execution(name))
    assert not timeline.end.any()
    assert not timeline.parts.any()
    assert not timeline.busy.any()


@EVERY_MODEL
def test_no_calls(name: str) -> None:
    timeline = simulate(work_of([]), costs_of(), parse_execution(name))
    assert timeline.total_s == 0
    assert not timeline.busy.any()


@EVERY_MODEL
def test_recorded_runs_are_the_same_and_no_lane_does_two_things_at_once(name: str) -> None:
    for work, costs in random_cases(5, 30):
        plain, recorded = (simulate(work, costs, parse_execution(name), record=record) for record in (False, True))
        assert plain.spans is None
        assert (recorded.end == plain.end).all()
        assert (recorded.parts == plain.parts).all()
        spans = recorded.spans
        assert (spans["end"] >= spans["begin"]).all()
        within = np.minimum(spans["end"], plain.total_s) - spans["begin"]
        busy = np.bincount(spans["resource"], weights=within, minlength=len(RESOURCES))
        busy[ON_STORAGE] /= costs.chunk_s.shape[1]
        assert plain.busy == pytest.approx(busy, rel=1e-12, abs=1e-12)
        track = spans["resource"].astype(int) * 100 + spans["lane"]
        for number in np.unique(track):
            mine = np.sort(spans[track == number], order=["begin", "end"])
            assert (mine["end"][:-1] <= mine["begin"][1:]).all()


TIMES = tuple(item.name for item in fields(Costs) if item.name.endswith("_s"))
READS = tuple(name for name in TIMES if "chunk_s" in name or "fill_s" in name)
PARTS_OF_A_MACHINE = {
    "storage": READS,
    "storage alone": ("chunk_s", "family_chunk_s"),
    "link": ("upload_s", "family_upload_s"),
    "memory": ("memory_s",),
    "compute": (
        "dense_s",
        "layer_s",
        "attention_s",
        "attention_token_s",
        "expert_s",
        "cold_expert_s",
        "merge_s",
        "step_s",
    ),
    "host": ("call_s", "hit_call_s", "install_s", "resume_s"),
}


def scaled(costs: Costs, names: tuple[str, ...], by: float) -> Costs:
    return replace(costs, **{name: getattr(costs, name) * by for name in names})


@EVERY_MODEL
@pytest.mark.parametrize("part", PARTS_OF_A_MACHINE)
def test_a_faster_part_never_slows_a_run(name: str, part: str) -> None:
    """With reads ahead in the background a faster processor may: its reads come earlier, and break off one ahead."""
    rng, model = np.random.default_rng(6), parse_execution(name)
    for work, costs in random_cases(6, 150):
        alone = part in ("compute", "host") and model.in_background
        faster = scaled(costs, PARTS_OF_A_MACHINE[part], float(rng.choice([0.1, 0.5, 0.95])))
        now, then = (simulate(without_ahead(work) if alone else work, each, model).total_s for each in (costs, faster))
        assert then <= now * (1 + 1e-12)


@EVERY_MODEL
def test_twice_as_fast_is_half_the_time(name: str) -> None:
    model = parse_execution(name)
    for work, costs in random_cases(8, 30):
        now, half = simulate(work, costs, model), simulate(work, scaled(costs, TIMES, 0.5), model)
        assert (half.end == now.end / 2).all()
        assert (half.busy == now.busy / 2).all()


@EVERY_MODEL
def test_all_hits_depend_on_neither_storage_nor_link_nor_memory(name: str) -> None:
    model = parse_execution(name)
    if name == "k-materialize":  # which copies hits too
        return
    for work, costs in random_cases(9, 20):
        slow = scaled(costs, (*READS, "upload_s", "family_upload_s", "memory_s"), 1e3)
        assert (simulate(of_hits(work), costs, model).end == simulate(of_hits(work), slow, model).end).all()


@EVERY_MODEL
def test_nothing_is_faster_than_its_floor(name: str) -> None:
    model = parse_execution(name)
    for work, costs in random_cases(10, 200):
        decoded = replace(work, n_tokens=np.ones_like(work.n_tokens), n_text=np.ones_like(work.n_text))
        total_s, floor = simulate(decoded, costs, model).total_s, floor_of(decoded, costs, model)
        tokens = len(np.unique(work.step))
        assert max(floor.busy_ms_per_token.values()) * tokens <= 1e3 * total_s * (1 + 1e-12)


def test_reads_beside_computing_slow_it_by_their_bytes() -> None:
    """Three hits of 1 s and a miss read in 2 s, whose bytes take 0.5 s of the memory: 2 s hold 1.5 s of hits.

    The other 1.5 s follow, then the miss: 4.5 s. An expert read ahead in time costs the call that uses it 0.5 s.
    """
    costs = costs_of(lanes=1, chunk_s=2.0, expert_s=1.0, memory_s=0.5)
    overlap = parse_execution("overlap-prefetch")
    call = {"requests": 4, "misses": 1}
    assert simulate(work_of([call]), costs, overlap).total_s == 2.0 + 1.5 + 1.0
    ahead = simulate(work_of([{"requests": 4}, {"requests": 4}], [(-1, 0, 0, 1)]), costs, overlap)
    assert ahead.end.tolist() == [4.0, 4.0 + 4.5]
    never_used = simulate(work_of([{"requests": 4}, {"requests": 4}], [(-1, 0, 0, -1)]), costs, overlap)
    assert never_used.end.tolist() == [4.0, 8.0]


def test_work_that_does_not_fit_is_refused() -> None:
    work, costs = work_of([{"requests": 2, "misses": 1}]), costs_of()
    resident = parse_execution("resident")
    one = np.ones(1, np.int32)
    with pytest.raises(ValueError, match="rows are in the costs"):
        simulate(replace(work, row=one), costs, resident)
    with pytest.raises(ValueError, match="warm <= misses"):
        simulate(replace(work, warm=2 * one), costs, resident)
    with pytest.raises(ValueError, match="a later call"):
        simulate(work_of([{"requests": 1}], [(0, 0, 0, 0)]), costs, resident)
    with pytest.raises(ValueError, match="not negative"):
        simulate(work, replace(costs, call_s=-1.0), resident)
