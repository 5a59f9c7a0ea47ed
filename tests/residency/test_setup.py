"""What is refused before a replay begins, and how."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from flashmoe_sim.geometry.model import LayerGeometry, ModelGeometry
from flashmoe_sim.io.errors import BadInput, Conflict, Incomplete, OutOfRange, UnknownName, Unsupported
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.table import parse_policy
from flashmoe_sim.prefetchers.table import parse_prefetcher
from flashmoe_sim.residency.workload import Setup, prepare
from tests.residency.builders import geometry_of, one_layer, run, trace_of
from tests.support import refused

TRACE = trace_of([(0, [0, 1, 2], 1), (1, [1, 3], 1)], 4)


@pytest.mark.parametrize(
    ("options", "says", "kind"),
    [
        ({"contract": "eager"}, "unknown contract 'eager'; known: atomic, protected, runtime, sequential", UnknownName),
        ({"scope": "model"}, "unknown scope 'model'; known: global, layer", UnknownName),
        ({"prefetch": "temporal", "policy": "static"}, "predictor temporal cannot work: policy static ne", Unsupported),
        ({"policy": "lru:stamp=last", "contract": "runtime"}, "the runtime stamps experts in the order o", Unsupported),
        ({"policy": "hot-window"}, "policy hot-window is undefined under the contract protected; use --c", Unsupported),
        ({"prefetch": "eam", "contract": "sequential"}, "predictor eam is undefined under the contract s", Unsupported),
        ({"io_split": 0}, "io-split 0: expected 1 to 8", OutOfRange),
        ({"io_split": 9}, "io-split 9: expected 1 to 8", OutOfRange),
    ],
)
def test_refused_combinations(options: dict[str, object], says: str, kind: type[BadInput]) -> None:
    chosen = {
        "policy": parse_policy(str(options.pop("policy", "lru"))),
        "prefetch": parse_prefetcher(str(options.pop("prefetch", "none"))),
        "bank": Bank(slots=4),
        **options,
    }
    with refused(kind, says):
        Setup(**chosen)  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", ["lru", "static", "min:forced"])
@pytest.mark.parametrize("scope", ["layer", "global"])
def test_a_bank_larger_than_the_model(policy: str, scope: str) -> None:
    with pytest.raises(OutOfRange, match="bank 5: a layer of written by hand has 4 experts; give at most --bank 4"):
        run(TRACE, 5, policy, scope=scope)


def test_layers_with_fewer_experts_than_the_bank_hold_all_of_theirs() -> None:
    trace = trace_of([(0, [0, 1], 1), (1, [5], 1)], {0: 2, 1: 8})
    assert run(trace, 8, scope="global").counts.slots == 2 + 8
    with pytest.raises(OutOfRange, match="give at most --bank 8"):
        run(trace, 9)


@pytest.mark.parametrize("contract", ["runtime", "protected"])
def test_a_bank_smaller_than_the_union(contract: str) -> None:
    says = (
        r"bank 2: call 0 of written by hand \(layer 0\) asks for 3 distinct experts and a bank holds 2: slot-bank "
        r"overflow; the largest call needs 3 slots"
    )
    with pytest.raises(OutOfRange, match=says):
        run(TRACE, 2, "lru", contract)
    assert run(TRACE, 2, "lru", contract, scope="global").counts.slots == 4
    assert run(TRACE, 2, "lru", "atomic").counts.slots == 2
    assert run(TRACE, 2, "static", contract).counts.slots == 2


def test_a_bank_in_bytes_needs_a_geometry() -> None:
    with pytest.raises(Incomplete, match="bank 1KiB"):
        run(TRACE, Bank(budget_bytes=1024))


def test_a_bank_in_bytes_that_holds_no_expert() -> None:
    workload = prepare(TRACE, geometry_of({0: 2**20, 1: 3 * 2**20}, 4))
    with pytest.raises(OutOfRange, match=r"bank 5MiB: 2621440 bytes .* do not hold one expert .* at least --bank 6MiB"):
        run(workload, Bank(budget_bytes=5 * 2**20))
    with pytest.raises(OutOfRange, match=r"bank 2MiB: .* give at least --bank 3MiB"):
        run(workload, Bank(budget_bytes=2 * 2**20), scope="global")
    assert run(workload, Bank(budget_bytes=6 * 2**20)).counts.resident_bytes == 6 * 2**20
    assert run(workload, Bank(budget_bytes=3 * 2**20), scope="global").counts.resident_bytes == 3 * 2**20


@pytest.mark.parametrize("contract", ["runtime", "protected"])
def test_fixed_slots_for_experts_of_two_sizes(contract: str) -> None:
    workload = prepare(TRACE, geometry_of({0: 10, 1: 30}, 4))
    with pytest.raises(Conflict, match="layers differ in expert size"):
        run(workload, Bank(budget_bytes=200), "lru", contract, scope="global")
    # For each layer the share of 120 bytes is rounded down to slots: all 4 of 10 bytes, and 4 of 30.
    assert run(workload, Bank(budget_bytes=240), "lru", contract).counts.resident_bytes == 4 * 10 + 4 * 30
    # 95 bytes each: 3 slots of 30.
    assert run(workload, Bank(budget_bytes=190), "lru", contract).counts.resident_bytes == 4 * 10 + 3 * 30


def test_a_trace_of_another_model() -> None:
    sizes, narrow = {0: 10, 1: 10}, replace(geometry_of({0: 10, 1: 10}, 4), top_k=3)
    for trace, model, says in (
        (TRACE, geometry_of({0: 10}, 4), "routes layer 1, but toy has MoE layers 0..0"),
        (TRACE, geometry_of(sizes, 3), "layer 1 asks for expert 3, but toy has 3 experts there"),
        (TRACE.with_(top_k=4), narrow, "uses 4 experts a token, but toy routes at most 3"),
    ):
        with refused(Conflict, says):
            prepare(trace, model)
    assert prepare(TRACE.with_(top_k=3), narrow).geometry == narrow
    assert prepare(TRACE, geometry_of({**sizes, 2: 10}, 64)).n_experts == (64, 64)


def test_the_time_that_decisions_take() -> None:
    """Of the policy and the predictor, in a routed call."""
    setup = Setup(Bank(slots=4), parse_policy("lru:cost_us=3"), prefetch=parse_prefetcher("temporal:cost_us=0.5"))
    assert setup.decide_s == pytest.approx(3.5e-6)


def test_calls_without_tokens_ask_for_no_expert_of_their_neighbours() -> None:
    trace = trace_of([(0, [0, 1], 1), (1, [], 0), (0, [0, 3], 1), (1, [0, 1], 1), (1, [], 0)], 4)
    sizes = {layer: LayerGeometry(experts, {"expert": 10}) for layer, experts in ((0, 4), (1, 2))}
    assert prepare(trace, ModelGeometry("toy", sizes, 2, "tests")).n_experts == (4, 2)


def test_a_trace_without_calls() -> None:
    empty = trace_of(one_layer([[0]]), 1).with_(
        layer=np.zeros(0, np.int16),
        n_tokens=np.zeros(0, np.int32),
        offset=np.zeros(1, np.int64),
        expert=np.zeros(0, np.int16),
    )
    with pytest.raises(Incomplete, match="no routed calls in it"):
        prepare(empty)


def test_sizes_recorded_in_the_trace_serve_without_a_model() -> None:
    workload = prepare(TRACE.with_(expert_bytes={0: 10, 1: 30}))
    assert run(workload, 2).counts.resident_bytes == 2 * 10 + 2 * 30
    assert run(workload, Bank(budget_bytes=60)).counts.resident_bytes == 60
