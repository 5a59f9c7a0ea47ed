"""What a policy or predictor of one's own returns, and cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from flashmoe_sim.io.errors import Malformed
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.base import PinningPolicy, ScheduledPolicy
from flashmoe_sim.prefetchers.base import Predictions, Prefetcher
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.workload import Setup, Workload, prepare
from tests.trace.strategies import trace_of

Given = Callable[[], Any]


@dataclass(frozen=True)
class Pins(PinningPolicy):
    """Pins what it is told to."""

    name: ClassVar[str] = "pins"
    given: Given = list

    def pinned(self, candidates: Any) -> Any:
        return self.given()


@dataclass(frozen=True)
class Plans(ScheduledPolicy):
    """Has the residents that it is told to have."""

    name: ClassVar[str] = "plans"
    given: Given = list

    def schedule(self, trace: Any, key: Any, candidates: Any) -> Iterator[Any]:
        yield from self.given()


@dataclass(frozen=True)
class Guesses(Prefetcher):
    """Predicts what it is told to."""

    name: ClassVar[str] = "guesses"
    given: Given = list

    def predict(self, trace: Any) -> Any:
        return self.given()


@pytest.fixture
def workload() -> Workload:
    """Three steps of two layers with four experts each, of which a call requests one."""
    return prepare(trace_of(*((layer, [step]) for step in range(3) for layer in (0, 1)), n_experts={0: 4, 1: 4}))


def only(*kept: int, n: int = 4) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.isin(np.arange(n), kept)


GOOD = Predictions(np.array([0, 1]), np.array([0, 1]), np.array([0, 1, 2]), np.array([1, 3], np.int16))


def test_what_can_be(workload: Workload) -> None:
    bank = Bank(slots=1)
    assert replay(workload, Setup(bank, Pins(lambda: [only(0), only(2)]), "atomic")).counts.total()["hits"] == 2
    plan = [(0, only(0, 4, n=8)), (2, only(1, 4, n=8))]
    assert replay(workload, Setup(bank, Plans(lambda: plan), "atomic")).counts.total()["hits"] == 3
    assert replay(workload, Setup(bank, contract="atomic", prefetch=Guesses(lambda: GOOD))).counts.total()["hits"] == 1


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (None, "pinned returned nothing; expected a list of 2 masks"),
        ([only(0)], "pinned returned a list of 1; expected a list of 2 masks"),
        ([only(0), only(0, n=3)], r"an array bool \[3\]; expected masks bool \[experts\], here bool \[4\]"),
        ([only(0), np.zeros(4)], r"an array float64 \[4\]; expected masks"),
        ([only(0, 1), only(0)], "3 experts in total; expected at most 2"),
    ],
)
def test_pins_that_cannot_be(workload: Workload, given: Any, says: str) -> None:
    with pytest.raises(Malformed, match=rf"policy pins: .*test_own_results\.py:\d+: .*{says}"):
        replay(workload, Setup(Bank(slots=1), Pins(lambda: given), "atomic"))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([(2, only(n=8))], "a stretch from call 2; expected 0 first"),
        (
            [(0, only(n=8)), (3, only(n=8))],
            "a stretch from call 3; expected 0 first, then calls with which",
        ),
        ([(0, only(n=8)), (0, only(n=8))], "a stretch from call 0"),
        ([(None, only(n=8))], "a stretch from call None"),
        ([(0, only(n=4))], r"an array bool \[4\]; expected residents bool \[keys\], here bool \[8\]"),
        ([(0, only(0, 1, 2, n=8))], "3 experts in total; expected at most 2"),
    ],
)
def test_residents_that_cannot_be(workload: Workload, given: Any, says: str) -> None:
    with pytest.raises(Malformed, match=rf"policy plans: .*test_own_results\.py:\d+: schedule returned .*{says}"):
        replay(workload, Setup(Bank(slots=1), Plans(lambda: given), "atomic"))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (None, "nothing; expected Predictions"),
        (replace(GOOD, after=np.array([0.0, 1.0])), r"after: an array float64 \[2\]; expected a numpy array of whole"),
        (replace(GOOD, row=np.array([0])), "2 in after, 1 in row, 3 in offset"),
        (replace(GOOD, offset=np.array([0, 1, 3])), "an offset that does not divide expert; expected 0 to 2"),
        (replace(GOOD, after=np.array([1, 0])), "an after that is not a call, or is earlier"),
        (replace(GOOD, after=np.array([0, 6])), "expected -1 to 5, ascending"),
        (replace(GOOD, row=np.array([0, 2])), "a row that is not a layer; expected 0 to 1"),
        (replace(GOOD, expert=np.array([1, 4], np.int16)), "an expert that its layer does not have; expected 0 to 3"),
        (replace(GOOD, target=np.array([2, 1])), "a target that is not a later call of its row"),
        (replace(GOOD, target=np.array([3, 3])), "a target that is not a later call of its row"),
    ],
)
def test_predictions_that_cannot_be(workload: Workload, given: Any, says: str) -> None:
    with pytest.raises(Malformed, match=rf"predictor guesses: .*test_own_results\.py:\d+: predict returned .*{says}"):
        replay(workload, Setup(Bank(slots=1), contract="atomic", prefetch=Guesses(lambda: given)))
