"""Misses of minor experts that read half the bytes: seconds by hand, and between all of the bytes and none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import flashmoe_sim.api as sim
from flashmoe_sim.io.errors import BadInput, Conflict
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.timeline.assemble import Conditions
from flashmoe_sim.timeline.from_replay import Timed, time_replay
from flashmoe_sim.timeline.models.table import EXECUTION_MODELS, parse_execution
from tests.residency.builders import geometry_of, one_layer, run, trace_of

EXPERT = 1_000_000
SSD = {"storage.read_gb_s": 0.5, "storage.request_us": 100, "cpu.weights_gb_s": 10, "cpu.layer_us": 300}


def workload(*, second: float = 0.25) -> Workload:
    """Tokens with two experts, the second of which has this weight; the first has 0.75."""
    trace = trace_of(one_layer([[0, 1], [2, 3], [0, 1], [0, 2]]), 8)
    weight = np.tile(np.float32([0.75, second]), 4)
    return prepare(replace(trace, weight=weight), geometry_of({0: EXPERT}, 8))


def seconds_of(
    rule: str, on: Machine, execution: str = "sync-install", source: Workload | None = None, slots: int = 2
) -> Timed:
    policy, source = f"lru:minor={rule}" if rule else "lru", source or workload()
    replayed = run(source, Bank(slots=slots), policy, "atomic", record=True)
    return time_replay(source, replayed, on, Conditions(parse_execution(execution), dense_bytes=20_000_000))


def plain_machine() -> Machine:
    """2.1 ms for an expert from storage, 1.1 ms for half of it; 2.5 ms a call for the layer and its two experts."""
    on = load_machine("vm-2core").varied("host.call_us", 0).varied("host.install_us", 0)
    for path, value in SSD.items():
        on = on.varied(path, value)
    return replace(on, memory=None)


def test_by_hand() -> None:
    """Two slots: 0 and 1, 2 and 3, 0 and 1, then 2 miss; 1, 3, 1 and 2 are second choices."""
    timed = seconds_of("half@1", plain_machine())
    assert timed.timing.total_s == pytest.approx(3 * 2.1e-3 + 4 * 1.1e-3 + 4 * 2.5e-3)
    assert (timed.storage_bytes, timed.page_cache_bytes) == (5 * EXPERT, 0)
    assert timed.tok_s_lo < timed.timing.tok_s < timed.tok_s_hi


def test_the_page_cache_serves_smaller_reads_too() -> None:
    """First uses come from storage: 0 and 2 whole, half of 1 and 3. Then 0 whole, and half of 1 and 2."""
    on = plain_machine()
    on = replace(on, memory=load_machine("vm-2core").memory)
    assert (seconds_of("", on).storage_bytes, seconds_of("", on).page_cache_bytes) == (4 * EXPERT, 3 * EXPERT)
    timed = seconds_of("half@1", on)
    assert (timed.storage_bytes, timed.page_cache_bytes) == (3 * EXPERT, 2 * EXPERT)


@pytest.mark.parametrize("execution", EXECUTION_MODELS)
@pytest.mark.parametrize("name", ["m1-8", "rtx-3060"])
def test_between_all_bytes_and_a_model_of_half_the_bytes(name: str, execution: str) -> None:
    on, model = load_machine(name), parse_execution(execution)
    if not model.has_bank:
        return
    try:
        whole = seconds_of("", on, execution)
    except BadInput:
        return
    half = seconds_of("half@1", on, execution)
    all_of_them = seconds_of("half@0.99", on, execution)
    assert all_of_them.timing.total_s <= half.timing.total_s <= whole.timing.total_s
    assert all_of_them.timing.total_s < whole.timing.total_s or not model.reads
    assert seconds_of("half@7", on, execution).timing.total_s == pytest.approx(whole.timing.total_s, rel=1e-12)


def test_a_sweep_in_seconds_and_what_is_not_timed() -> None:
    asked = {"bank": 16, "contract": "atomic", "machine": "m1-8", "policy": "lru"}
    speed = {
        rule: sim.replay("requests-64", **asked, minor=rule)["tok_s"].item() for rule in (None, "half@4", "half@1")
    }
    assert speed[None] < speed["half@4"] < speed["half@1"]
    with pytest.raises(Conflict, match="reads of half the bytes are not timed beside reads ahead"):
        sim.replay("requests-64", **asked, minor="half@4", prefetch="oracle-1")
