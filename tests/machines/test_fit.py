"""Fitting: known numbers come back, intervals hold them as often as they say, and nothing is made up."""

from __future__ import annotations

from math import exp, sqrt

import numpy as np
import pytest

from flashmoe_sim.io.errors import Incomplete
from flashmoe_sim.machines.equations import Equation, fit
from tests.support import refused

TRUTH = {"layer_us": 3400.0, "read_gb_s": 0.26, "request_us": 30.0, "pinned_gb_s": 0.08, "weights_gb_s": 0.1}
LAYERS = 12e-6
TOKEN = {"layer_us": LAYERS, "read_gb_s": 0.13}
READS = {"read_gb_s": 22.0}
ALL_HIT = {"layer_us": LAYERS}


def observed(terms: dict[str, float], *, relative_sd: float = 0.05, error: float = 0.0) -> Equation:
    """What would be measured of these terms, its logarithm off by `error`."""
    seconds = sum(TRUTH[name] * units for name, units in terms.items()) * exp(error)
    return Equation("measured", seconds, relative_sd, terms)


@pytest.mark.parametrize(
    "equations",
    [
        [TOKEN, ALL_HIT],
        [TOKEN, READS, ALL_HIT],
        [
            {"layer_us": LAYERS, "read_gb_s": 0.13, "request_us": 900e-6},
            {"read_gb_s": 0.13, "request_us": 225e-6},
            ALL_HIT,
        ],
        [TOKEN | {"pinned_gb_s": 0.13}, READS, {"pinned_gb_s": 22.0}],
        [TOKEN | {"weights_gb_s": 0.16}, READS, {"layer_us": LAYERS, "weights_gb_s": 0.08}],
    ],
)
def test_exact_equations_give_back_what_made_them(equations: list[dict[str, float]]) -> None:
    parameters = [name for name in TRUTH if any(name in terms for terms in equations)]
    found = fit([observed(terms) for terms in equations], parameters)
    assert found.value == pytest.approx([TRUTH[name] for name in parameters], rel=1e-9)
    assert found.residual == pytest.approx(np.zeros(len(equations)), abs=1e-9)
    assert found.draws.shape == (400, len(parameters))
    for name in parameters:
        lo, value, hi = found.interval(name)
        assert lo < value < hi


def test_it_is_least_squares_with_weights_where_nothing_is_at_its_bound() -> None:
    made = [observed(TOKEN, error=0.05), observed(READS, relative_sd=0.01, error=-0.02), observed(ALL_HIT, error=-0.03)]
    found = fit(made, ["layer_us", "read_gb_s"])
    weight = np.array([1 / (one.seconds * one.relative_sd) for one in made])
    matrix = np.array([[one.terms.get(name, 0.0) for name in found.parameters] for one in made])
    plain = np.linalg.lstsq(matrix * weight[:, None], [one.seconds for one in made] * weight, rcond=None)[0]
    assert found.value == pytest.approx(plain, rel=1e-9)
    assert found.residual == pytest.approx(
        [row @ plain / one.seconds - 1 for row, one in zip(matrix, made, strict=True)]
    )


def test_never_negative() -> None:
    """Anchors that are faster the more they read would want a negative time."""
    made = [Equation("much", 0.04, 0.05, TOKEN), Equation("little", 0.05, 0.05, ALL_HIT)]
    found = fit(made, ["layer_us", "read_gb_s"])
    assert found.value[1] == 0
    assert (found.draws >= 0).all()
    assert found.interval("read_gb_s")[0] == 0


def test_intervals_hold_the_truth_nine_times_in_ten() -> None:
    trials = 400
    rng = np.random.default_rng(7)
    held = dict.fromkeys(("layer_us", "read_gb_s"), 0)
    for trial in range(trials):
        made = [
            observed(terms, relative_sd=sd, error=rng.normal() * sd)
            for terms, sd in ((TOKEN, 0.05), (READS, 0.03), (ALL_HIT, 0.05))
        ]
        found = fit(made, list(held), draws=200, seed=trial)
        for name in held:
            lo, _, hi = found.interval(name)
            held[name] += lo <= TRUTH[name] <= hi
    tolerance = 3.5 * sqrt(0.9 * 0.1 / trials)  # standard deviations of a binomial share: 5 points
    for name, count in held.items():
        assert abs(count / trials - 0.9) < tolerance, name


def test_draws_keep_how_parameters_go_together() -> None:
    """Two speeds alone: what a slower all-hit run adds to a layer is taken off the reads."""
    found = fit([observed(TOKEN), observed(ALL_HIT)], ["layer_us", "read_gb_s"])
    assert np.corrcoef(found.draws.T)[0, 1] < -0.5


def test_the_same_seed_gives_the_same_draws() -> None:
    made = [observed(TOKEN), observed(ALL_HIT)]
    first, same, other = (fit(made, ["layer_us", "read_gb_s"], seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.draws, same.draws)
    assert (first.draws != other.draws).any()


@pytest.mark.parametrize(
    ("equations", "parameters", "message"),
    [
        ([ALL_HIT, ALL_HIT], "layer_us read_gb_s", "no anchor determines read_gb_s: read_gb_s needs a streamed run"),
        ([READS, READS], "layer_us read_gb_s", "no anchor determines layer_us: layer_us needs an all-hit run"),
        ([TOKEN, TOKEN], "layer_us read_gb_s", "the anchors cannot separate layer_us and read_gb_s: layer_us needs an"),
        (
            [TOKEN, {"layer_us": LAYERS, "read_gb_s": 0.13004}],
            "layer_us read_gb_s",
            "the anchors cannot separate layer_us and read_gb_s",
        ),
        (
            [TOKEN, ALL_HIT],
            "layer_us read_gb_s pinned_gb_s",
            "no anchor determines pinned_gb_s: pinned_gb_s needs a run with",
        ),
        (
            [TOKEN | {"request_us": 900e-6}, READS | {"request_us": 22 / 0.13 * 900e-6}, ALL_HIT],
            "layer_us read_gb_s request_us",
            "the anchors cannot separate read_gb_s and request_us: read_gb_s needs a streamed run: mode slot-bank, "
            "fewer slots than experts; request_us needs runs with two different chunk sizes",
        ),
        (
            [TOKEN | {"weights_gb_s": 0.16}, READS, ALL_HIT | {"weights_gb_s": 0.16}],
            "layer_us read_gb_s weights_gb_s",
            "the anchors cannot separate layer_us and weights_gb_s: layer_us needs an all-hit run (--moe-mode "
            "oracle-all-hit) or a stock one; weights_gb_s needs runs with two different --moe-topk",
        ),
        ([TOKEN], "layer_us read_gb_s", "the anchors cannot separate layer_us and read_gb_s"),
    ],
)
def test_what_is_not_told_is_refused_by_name(equations: list[dict[str, float]], parameters: str, message: str) -> None:
    with refused(Incomplete, message):
        fit([observed(terms) for terms in equations], parameters.split())


def test_observations_that_disagree_widen_the_interval() -> None:
    """Each is 10% off, where 5% is the standard deviation: the interval is as wide as what was seen says."""
    alike = fit([observed(ALL_HIT) for _ in range(4)], ["layer_us"])
    apart = fit([observed(ALL_HIT, error=error) for error in (0.1, -0.1, 0.1, -0.1)], ["layer_us"])
    ratio = sqrt(4 * (0.1 / 0.05) ** 2 / 3)
    assert apart.draws.std() / apart.value[0] == pytest.approx(ratio * alike.draws.std() / alike.value[0], rel=0.05)
