"""Parameters fitted on some text and judged on other: rates are those of replays, the choice is the fit's best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pytest

from flashmoe_sim import api
from flashmoe_sim.io.errors import BadInput, Incomplete
from flashmoe_sim.policies.base import PoolShape, State
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.policies.table import POLICIES
from flashmoe_sim.schema import FITTED
from flashmoe_sim.sweep.fit_policy import candidates
from flashmoe_sim.trace.cut import cut
from flashmoe_sim.verbs.fit_policy import FitPolicy
from tests.residency.builders import trace_of
from tests.support import refused

HALF_LIVES = ("1", "16", "64")
ASKED: dict[str, Any] = {"bank": 32, "contract": "atomic"}


def fitted(*traces: Any, policy: Any = "lfu-decay", values: Any = "half_life=1,16,64", **more: Any) -> pl.DataFrame:
    return api.fit_policy(list(traces), policy=policy, values=values, **ASKED | more)


def hit_rate(trace: Any, half_life: str) -> float:
    return float(api.replay(trace, policy=f"lfu-decay:half_life={half_life}", **ASKED)["hit_rate"].item())


def half_life_of(policy: str) -> str:
    return policy.partition("half_life=")[2] or "16"


def test_each_trace_has_the_parameters_of_the_others() -> None:
    traces = ("python-256", "prose-256", "cpp-256")
    table = fitted(*traces)
    assert table.columns == [column.name for column in FITTED]
    rates = {trace: {one: hit_rate(trace, one) for one in HALF_LIVES} for trace in traces}
    for row in table.iter_rows(named=True):
        own = rates[row["trace"]]
        others = [rates[trace] for trace in traces if trace != row["trace"]]
        chosen = max(HALF_LIVES, key=lambda one: np.mean([rate[one] for rate in others]))
        assert half_life_of(row["policy"]) == chosen
        assert row["fitted_on"] == ", ".join(trace for trace in traces if trace != row["trace"])
        assert row["hit_rate"] == pytest.approx(own[chosen])
        assert row["more_hits"] == pytest.approx(own[chosen] - own["16"])
        assert row["more_hits_lo"] <= row["more_hits"] <= row["more_hits_hi"]
        assert half_life_of(row["best_policy"]) == max(own, key=own.__getitem__)
        assert row["hindsight_hit_rate"] == pytest.approx(max(own.values()))
        assert row["hindsight_hit_rate"] >= row["hit_rate"]


def test_one_trace_is_fitted_on_its_first_half() -> None:
    row = fitted("prose-256").row(0, named=True)
    trace = api.load_trace("prose-256").trace
    head = {one: hit_rate(cut(trace, steps=(None, 519)), one) for one in HALF_LIVES}  # of 1,039 steps
    assert row["fitted_on"] == "its first half"
    assert half_life_of(row["policy"]) == max(head, key=head.__getitem__)
    whole = api.judge_policies(["prose-256"], policy=row["policy"], against="fifo", skip_steps=519, **ASKED)
    assert row["hit_rate"] == pytest.approx(whole["hit_rate"].item())


def test_the_second_half_begins_with_a_request() -> None:
    """A loop of 4 experts that MRU holds and LRU does not, then, in the second request, one that only LRU holds."""
    loop, same = [[0, 1, 2, 3][step % 4 :][:1] for step in range(40)], [[step // 8 % 4] for step in range(24)]
    sequence = np.repeat([0, 1], [40, 24]).astype(np.int32)
    trace = trace_of([(0, call, 1) for call in loop + same], 4).with_(sequence=sequence)
    row = fitted(trace, policy="lru-k", values="k=1,2", bank=3, contract="protected").row(0, named=True)
    whole = api.judge_policies([trace], policy=row["policy"], against="fifo", skip_steps=40, bank=3)
    assert row["hit_rate"] == pytest.approx(whole["hit_rate"].item())


@dataclass(frozen=True)
class Nothing(Lru):
    """LRU with a number that changes nothing."""

    name: ClassVar[str] = "nothing"
    width: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width == 9:
            raise ValueError("nine")

    def allocate(self, shape: PoolShape) -> State:
        return super().allocate(shape)


def test_combinations_of_values() -> None:
    kind = POLICIES["s3fifo"]
    found = candidates(kind(small=0.2), ["small=0.1,0.3", "skip=0,0.5"])  # type: ignore[call-arg]
    assert [one.spec for one in found] == ["s3fifo", "s3fifo:skip=0.5", "s3fifo:small=0.3", "s3fifo:small=0.3:skip=0.5"]
    assert [one.spec for one in candidates(Nothing(width=5), ["stamp=last"])] == ["nothing:stamp=last:width=5"]
    assert [one.spec for one in candidates(Nothing(), ["width=3,3,4"])] == ["nothing", "nothing:width=4"]
    table = fitted("python-256", policy=Nothing, values=["width=4,5"])
    assert table.select("policy", "more_hits").row(0) == ("nothing:width=4", 0.0), "of equal ones the first"


def test_progress_never_goes_back() -> None:
    seen: list[tuple[int, int]] = []
    asked = FitPolicy(["python-256"], policy="lru", values="stamp=first,last", bank="32,64", contract="atomic")
    asked.run(lambda done, total: seen.append((done, total)))
    assert seen == [(done, 4) for done in range(4)]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"values": ()}, "no values to try; give --values NAME=V,V"),
        ({"values": "half_life"}, "expected NAME=V,V, such as half_life=4,16,64"),
        ({"values": "half_life=4,,5"}, "expected NAME=V,V, such as half_life=4,16,64"),
        ({"values": ["half_life=4", "half_life=5"]}, "half_life is given twice; list all its values in one"),
        ({"values": "life=4"}, "'life=4' is not a parameter; lfu-decay has: stamp, warm, cost_us, minor, half_life"),
        ({"policy": Nothing, "values": "width=9"}, "ValueError: nine"),
        ({"values": "half_life=0"}, "half_life=0 is not in 1..2147483647"),
        (
            {"values": f"half_life={','.join(map(str, range(1, 10_002)))}"},
            "10,001 combinations; expected at most 10,000",
        ),
        ({"bank": 4, "contract": "protected"}, "slot-bank overflow"),
    ],
)
def test_what_cannot_be_fitted_is_one_line(asked: dict[str, Any], expected: str) -> None:
    with refused(BadInput, expected):
        fitted("python-256", **asked)


def test_on_a_machine_the_fastest_are_taken() -> None:
    traces = ("python-256", "prose-256", "cpp-256")

    def timed(trace: str, half_life: str) -> float:
        policy = f"lfu-decay:half_life={half_life}"
        return float(api.replay(trace, policy=policy, machine="m3-max-48", **ASKED)["tok_s"].item())

    speeds = {trace: {one: timed(trace, one) for one in HALF_LIVES} for trace in traces}
    for row in fitted(*traces, machine="m3-max-48").iter_rows(named=True):
        others, own = [speeds[trace] for trace in traces if trace != row["trace"]], speeds[row["trace"]]
        chosen = max(HALF_LIVES, key=lambda one: np.mean([speed[one] / speed["16"] for speed in others]))
        assert half_life_of(row["policy"]) == chosen
        assert row["tok_s"] == pytest.approx(own[chosen])
        assert row["gain"] == pytest.approx(own[chosen] / own["16"])
        assert row["gain_lo"] <= row["gain"] <= row["gain_hi"]
        assert half_life_of(row["best_policy"]) == max(own, key=own.__getitem__)
        assert row["hindsight_tok_s"] == pytest.approx(max(own.values()))
    alone = fitted("prose-256", machine="m3-max-48").row(0, named=True)
    assert (alone["fitted_on"], alone["tok_s"] is None) == ("its first half", False)
    with pytest.raises(Incomplete, match="give --machine too"):
        fitted("prose-256", execution="hot-cold")
