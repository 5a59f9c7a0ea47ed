"""The table of policies and how the command line names them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from flashmoe_sim import api
from flashmoe_sim.io.errors import BadInput, Malformed, UnknownName
from flashmoe_sim.parameters import parse, spec_of
from flashmoe_sim.policies.base import (
    ALL_CONTRACTS,
    HOOKS,
    REQUIRED_HOOKS,
    Candidates,
    EvictingPolicy,
    PinningPolicy,
    Policy,
    PoolShape,
    ScheduledPolicy,
    State,
)
from flashmoe_sim.policies.lfu import Lfu
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.policies.min_ import Min, MinForced
from flashmoe_sim.policies.random_ import Random
from flashmoe_sim.policies.static import Static, StaticGlobal
from flashmoe_sim.policies.table import POLICIES, parse_policy
from flashmoe_sim.sweep.plan import plan_setup
from flashmoe_sim.timeline.from_replay import default_execution
from tests.policies.own import GAP
from tests.residency.builders import random_calls, run
from tests.residency.compare import workload_of


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_describes_itself_and_its_name_parses_back(name: str) -> None:
    kind = POLICIES[name]
    assert kind.name == name
    assert kind.__doc__
    first = kind.__doc__.strip().splitlines()[0]
    assert first[0].isupper()
    assert first.endswith(".")
    assert len(first) <= 120
    assert kind.ties
    assert kind.source
    assert kind.contracts
    assert set(kind.contracts) <= set(ALL_CONTRACTS)
    policy = parse_policy(name)
    assert type(policy) is POLICIES[name]
    assert policy.spec == name
    assert parse_policy(policy.spec) == policy
    assert hash(policy) == hash(parse_policy(name))


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_evicts_pins_or_is_scheduled(name: str) -> None:
    kind = POLICIES[name]
    assert sum(issubclass(kind, other) for other in (EvictingPolicy, PinningPolicy, ScheduledPolicy)) == 1
    if issubclass(kind, EvictingPolicy):
        assert REQUIRED_HOOKS <= set(kind.kernels) <= set(HOOKS)
        assert kind().stamp == "first"
    elif issubclass(kind, PinningPolicy):
        # What is never requested is not worth a slot.
        unused = Candidates([np.zeros(4, np.int64)], [np.zeros(4, np.int64)], [2], [1], 2)
        (mask,) = kind().pinned(unused)
        assert mask.dtype == np.bool_
        assert mask.tolist() == [False] * 4


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("lru:stamp=last", Lru(stamp="last")),
        ("lru:stamp=hits-first", Lru(stamp="hits-first")),
        ("lfu:count=restart", Lfu(count="restart")),
        ("lfu:count=restart:stamp=last", Lfu(count="restart", stamp="last")),
        ("random:seed=7", Random(seed=7)),
        ("min", Min()),
        ("min:forced", MinForced()),
        ("min:forced:stamp=last", MinForced(stamp="last")),
        ("static:ties_by=first-seen", Static(ties_by="first-seen")),
        ("static:global", StaticGlobal()),
    ],
)
def test_parameters(text: str, policy: Policy) -> None:
    assert parse_policy(text) == policy
    assert type(parse_policy(text)) is type(policy)
    assert parse_policy(policy.spec) == policy


def test_the_spec_leaves_defaults_out() -> None:
    assert parse_policy("lru:stamp=first").spec == "lru"
    assert parse_policy("random:seed=1").spec == "random"
    assert parse_policy("lfu:stamp=last:count=keep").spec == "lfu:stamp=last"


KNOWN = f"known: {', '.join(sorted(POLICIES))}"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("lfo", "unknown policy 'lfo'; did you mean 'lfu'?"),
        ("", f"unknown policy ''; {KNOWN}"),
        ("LRU", "unknown policy 'LRU'; did you mean 'lru'?"),
        ("lru:forced", "unknown policy 'lru:forced'; did you mean 'min:forced'?"),
        ("static:local", "unknown policy 'static:local'; did you mean 'static:global'?"),
        ("min:bypass", f"unknown policy 'min:bypass'; {KNOWN}"),
        ("lru:", "unknown policy 'lru:'"),
        ("lru:size=3", "'size=3' is not a parameter; lru has: stamp"),
        ("lru:stamp=first:oops", "'oops' is not a parameter; lru has: stamp"),
        ("demand:stamp=last", "'stamp=last' is not a parameter; demand has: none"),
        ("lru:stamp=middle", "stamp='middle' is not one of first, last, hits-first"),
        ("lru:stamp=", "stamp='' is not one of first, last, hits-first"),
        ("lfu:count=forget", "count='forget' is not one of keep, restart"),
        ("static:ties_by=luck", "ties_by='luck' is not one of id, first-seen"),
        ("random:seed=x", "seed is 'x', expected int"),
        ("random:seed=1.5", "seed is '1.5', expected int"),
        ("random:seed=0", "seed=0 is not in 1..4294967295"),
        ("random:seed=-1", "seed=-1 is not in 1..4294967295"),
        ("random:seed=4294967296", "seed=4294967296 is not in 1..4294967295"),
        ("no_such_module:Thing", "No module named 'no_such_module'"),
        ("math:Thing", "expected a name from `sim policy list` or module:Class"),
        ("math:sqrt", "not a policy: expected a named class that extends Policy"),
        (".x:Y", "expected a name from `sim policy list` or module:Class"),
        ("flashmoe_sim.policies.base:EvictingPolicy", "not a policy"),
        ("pathlib:Path", "not a policy: expected a named class that extends Policy"),
        ("slru:protected=0", "policy slru: protected=0.0 is not a share of the bank, between 0 and 1"),
        ("slru:protected=1", "protected=1.0 is not a share"),
        ("slru:protected=nan", "protected=nan is not a share"),
        ("2q:a1in=1.5", "policy 2q: a1in=1.5 is not a share of the bank, between 0 and 1"),
        ("2q:a1out=0", "policy 2q: a1out=0.0 is not a number of bank sizes above 0"),
        ("2q:a1out=nan", "policy 2q: a1out=nan is not a number of bank sizes above 0"),
        ("mq:life_time=-1", "policy mq: life_time=-1 is not in 0..2147483647"),
        ("mq:life_time=2147483648", "life_time=2147483648 is not in 0..2147483647"),
        ("s3fifo:skip=1.5", "policy s3fifo: skip=1.5 is not a share of the small queue, from 0 to 1"),
        ("s3fifo:small=-0.1", "policy s3fifo: small=-0.1 is not a share of the bank, between 0 and 1"),
        ("arc:p=1", "'p=1' is not a parameter; arc has: stamp"),
        ("lirs:hir=0", "policy lirs: hir=0.0 is not a share of the bank, between 0 and 1"),
        ("lirs:hir=1", "policy lirs: hir=1.0 is not a share of the bank, between 0 and 1"),
        ("lirs:hir=nan", "policy lirs: hir=nan is not a share of the bank, between 0 and 1"),
        ("lirs:stack=0", "policy lirs: stack=0 is not at least 1, the length of the bank"),
        ("lirs:stack=1.5", "stack is '1.5', expected int"),
        ("lru-k:k=0", "policy lru-k: k=0 is not in 1..64"),
        ("lru-k:k=65", "policy lru-k: k=65 is not in 1..64"),
        ("lru-k:correlated=-1", "policy lru-k: correlated=-1 is not in 0..2147483647"),
        ("lru-k:history=some", "policy lru-k: history='some' is not one of keep, restart"),
        ("w-tinylfu:window=0", "policy w-tinylfu: window=0.0 is not a share of the bank, between 0 and 1"),
        ("w-tinylfu:window=1", "policy w-tinylfu: window=1.0 is not a share of the bank, between 0 and 1"),
        ("w-tinylfu:sample=0", "policy w-tinylfu: sample=0 is not at least 1, in times the bank"),
        ("lecar:rate=0", "policy lecar: rate=0.0 is not above 0 and at most 10"),
        ("lecar:rate=inf", "policy lecar: rate=inf is not above 0 and at most 10"),
        ("lecar:discount=0", "policy lecar: discount=0.0 is not above 0 and at most 1"),
        ("lecar:discount=1.1", "policy lecar: discount=1.1 is not above 0 and at most 1"),
        ("lecar:seed=0", "policy lecar: seed=0 is not in 1..4294967295"),
        ("cacheus:seed=4294967296", "policy cacheus: seed=4294967296 is not in 1..4294967295"),
        ("lfu-decay:half_life=0", "half_life=0 is not in 1..2147483647"),
        ("lfu-halved:every=0", "every=0 is not in 1..2147483647"),
        ("lfu-decay:half_life=1.5", "half_life is '1.5', expected int"),
        ("lfru:count=forget", "count='forget' is not one of keep, restart"),
        ("hyperbolic:sample=64", "'sample=64' is not a parameter; hyperbolic has: stamp"),
        ("window:window=0", "window=0 is not in 1..16777216"),
        ("window:window=16777217", "window=16777217 is not in 1..16777216"),
        ("window:share=0", "share=0.0 is not above 0 and at most 1"),
        ("window:share=1.1", "share=1.1 is not above 0 and at most 1"),
        ("window:share=nan", "share=nan is not above 0 and at most 1"),
        ("least-stale:variant=arc", "variant='arc' is not one of lru, fifo"),
        ("bounded-lru:cap=0", "cap=0 is not in 1..2147483647"),
        ("nth-miss:empty=0", "empty=0 is not in 1..2147483647"),
        ("nth-miss:empty=9", "full=8 is not in 9..2147483647"),
        ("nth-miss:cap=0", "cap=0 is not in 1..2147483647"),
        ("second-miss:window=0", "window=0 is not in 1..2147483647"),
        ("lookahead:steps=-1", "steps=-1 is not in 0..2147483647"),
        ("lookahead-", "steps is '', expected int"),
        ("lookahead-many", "steps is 'many', expected int"),
        ("hot-window:interval=0", "interval=0 is not in 1..2147483647"),
        ("hot-window:interval=-5", "interval=-5 is not in 1..2147483647"),
        ("hot-window:interval=40.5", "interval is '40.5', expected int"),
        ("hot-window:count=token", "count='token' is not one of decode, reference"),
        ("hot-window:observe=first", "observe='first' is not one of all, last"),
        ("hot-window:bypass_tokens=-1", "bypass_tokens=-1 is not in 0..2147483647"),
        ("hot-profile:weighting=fair", "weighting='fair' is not one of flat, balanced, pressure, smooth, time"),
        ("hot-profile:fill=all", "fill='all' is not one of none, random"),
        ("hot-profile:curve=1.5", "curve=1.5 is not in 0..1"),
        ("hot-profile:curve=nan", "curve=nan is not in 0..1"),
        ("hot-profile:update_rate=-0.1", "update_rate=-0.1 is not in 0..1"),
        ("hot-profile:update_rate=x", "update_rate is 'x', expected float"),
        ("hot-profile:weighting=time", "weighting=time needs the times of a profile; give profile=FILE"),
        ("hot-profile:profile=missing.json", "missing.json: no such file; give the path of a profile"),
        ("scored-swaps:swaps=-1", "policy scored-swaps: swaps="),
        ("scored-swaps:lead=-0.5", "policy scored-swaps: lead="),
        ("scored-swaps:admit=-1", "policy scored-swaps: admit="),
        ("scored-swaps:recent=0", "policy scored-swaps: recent="),
        ("scored-swaps:weight=nan", "policy scored-swaps: weight="),
        ("scored-swaps:profile_steps=-1", "policy scored-swaps: profile_steps="),
        ("bounded-swaps:every=0", "policy bounded-swaps: every="),
        ("bounded-swaps:swaps=-1", "policy bounded-swaps: swaps="),
        ("bounded-swaps:decay=1.5", "policy bounded-swaps: decay="),
        ("bounded-swaps:decay=-0.1", "policy bounded-swaps: decay="),
        ("bounded-swaps:gain=-1.0", "policy bounded-swaps: gain="),
        ("bounded-swaps:least=nan", "policy bounded-swaps: least="),
        ("bounded-swaps:profile_steps=-1", "policy bounded-swaps: profile_steps="),
    ],
)
def test_bad_names_and_parameters(text: str, says: str) -> None:
    with pytest.raises(BadInput, match=re.escape(says)):
        parse_policy(text)


@dataclass(frozen=True)
class Newest(Lru):
    name: ClassVar[str] = "newest"
    kernels: ClassVar[dict[str, Any]] = Lru.kernels


@dataclass(frozen=True)
class Renamed(Lru):
    name: ClassVar[str] = "renamed"
    execution: ClassVar[str] = "hot-cold"


def test_a_rule_is_inherited_without_its_decisions_only() -> None:
    assert (Lru.textbook, Renamed.textbook, Newest.textbook) == ("lru", "lru", "")
    assert (Min.textbook, MinForced.textbook) == ("min", "")
    with pytest.raises(Malformed, match="policy Wrong: textbook is 'belady'"):
        type("Wrong", (Lru,), {"textbook": "belady"})


@pytest.mark.parametrize("contract", ["protected", "atomic", "sequential"])
def test_a_rule_has_the_counts_of_its_own_functions(contract: str) -> None:
    """Also in the passes that sizes share."""
    banks = [8, 16, 24]
    tables = [
        api.sweep("deepseek-v2-lite", bank=banks, policy=policy, contract=contract) for policy in (Renamed, Newest)
    ]
    shared, own = (table.drop("id", "policy") for table in tables)
    assert shared.equals(own)


def test_the_execution_model_is_that_of_the_policy() -> None:
    for policy, expected in ((Renamed(), "hot-cold"), (Newest(), "split-install"), ("demand", "page-cache")):
        assert default_execution(plan_setup(8, policy=policy)).name == expected
    with pytest.raises(UnknownName, match="unknown execution model 'hot'"):
        default_execution(plan_setup(8, policy=type("Hot", (Newest,), {"execution": "hot"})))


@dataclass(frozen=True)
class Switch:
    name: ClassVar[str] = "switch"
    on: bool = True


def test_a_switch_is_true_or_false() -> None:
    assert not parse("policy", "switch:on=False", {"switch": Switch}, object).on
    assert parse("policy", spec_of(Switch(on=False)), {"switch": Switch}, object) == Switch(on=False)
    with pytest.raises(Malformed, match="on is 'no'"):
        parse("policy", "switch:on=no", {"switch": Switch}, object)


def test_a_policy_from_outside_replays_under_every_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One class with small functions is enough; nothing is registered. It is LRU, so it counts what LRU counts."""
    (tmp_path / "policy_from_outside.py").write_text(GAP)
    monkeypatch.syspath_prepend(tmp_path)
    own = "policy_from_outside:Gap"
    rng = np.random.default_rng(0)
    workload = workload_of(
        random_calls(rng, n_experts=9, layers=2, steps=40, most_tokens=2, width=2), {0: 9, 1: 9}, {0: 8, 1: 24}
    )
    assert parse_policy(f"{own}:width=3").spec == "gap:width=3"
    for contract in ALL_CONTRACTS:
        for slots in (4, 6, 9):
            for scope in ("layer", "global"):
                found = run(workload, slots, own, contract, scope=scope, record=True)
                expected = run(workload, slots, "lru", contract, scope=scope, record=True)
                assert np.array_equal(found.counts.table, expected.counts.table)
                assert [keys.tolist() for keys in found.contents] == [keys.tolist() for keys in expected.contents]
                if found.slot is not None:
                    assert found.slot.tolist() == expected.slot.tolist()


@pytest.mark.parametrize(("scope", "layers"), [("layer", [3, 7]), ("global", [-1])])
def test_a_policy_knows_its_layer(scope: str, layers: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    allocate = Lru.allocate

    def noted(self: Lru, shape: PoolShape) -> State:
        seen.append(shape.layer)
        return allocate(self, shape)

    monkeypatch.setattr(Lru, "allocate", noted)
    run(workload_of([(3, [0, 1], 1), (7, [2], 1)], {3: 4, 7: 4}), 2, "lru", "atomic", scope=scope)
    assert seen == layers
